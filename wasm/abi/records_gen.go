// Code generated from schema/kvferry1.schema by gen; DO NOT EDIT.

package abi

// The version of the records.
const (
	Magic = 0x3146564b
	Major = 1
	Minor = 0
)

// The numbers of hook; they never change.
const (
	HookSelectLayout = 1
	HookRemap        = 2
)

// The numbers of status; they never change.
const (
	StatusOk          = 0
	StatusAgain       = 1 // out was too small: nothing is written, the low word is the size needed
	StatusDeclined    = 2 // a deliberate no, with a reason
	StatusUnsupported = 3
	StatusBadInput    = 4
)

// The numbers of axis; they never change.
const (
	AxisLayer     = 1
	AxisBlock     = 2
	AxisToken     = 3
	AxisHead      = 4
	AxisDim       = 5
	AxisSlot      = 6
	AxisChannel   = 7
	AxisComponent = 255 // the place of "component" in an order: the item's components lie together there
)

// The numbers of dtype; they never change.
const (
	DtypeFp64    = 1
	DtypeFp32    = 2
	DtypeFp16    = 3
	DtypeBf16    = 4
	DtypeFp8E4m3 = 5
	DtypeFp8E5m2 = 6
	DtypeInt8    = 7
	DtypeUint8   = 8
	DtypeFp4     = 9
	DtypeInt4    = 10
)

// The numbers of role; they never change.
const (
	RoleSource      = 1
	RoleDestination = 2
)

// Range is a record: [from, to).
type Range struct {
	From uint32 `json:"from,omitempty"`
	To   uint32 `json:"to,omitempty"`
}

const sizeRange = 8

func (x *Range) put(e *encoder, at int) {
	e.u32(at+0, x.From)
	e.u32(at+4, x.To)
}

func (x *Range) get(d *decoder, at, end int) {
	x.From = d.u32(at+0, end)
	x.To = d.u32(at+4, end)
}

// Component is a record.
type Component struct {
	Name           string `json:"name,omitempty"`
	Heads          uint32 `json:"heads,omitempty"` // 0: no heads; of a state, its channels
	Dim            uint32 `json:"dim,omitempty"`
	Dtype          uint32 `json:"dtype,omitempty"`            // enum dtype
	Bits           uint32 `json:"bits,omitempty"`             // of one element
	Unit           uint32 `json:"unit,omitempty"`             // neighbouring heads that a shard never parts, at least 1
	TokensPerEntry uint32 `json:"tokens_per_entry,omitempty"` // at least 1
	Scales         uint32 `json:"scales,omitempty"`           // 1 + the component whose rows this one scales, 0: none
}

const sizeComponent = 40

func (x *Component) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	e.u32(at+8, x.Heads)
	e.u32(at+12, x.Dim)
	e.u32(at+16, x.Dtype)
	e.u32(at+20, x.Bits)
	e.u32(at+24, x.Unit)
	e.u32(at+28, x.TokensPerEntry)
	e.u32(at+32, x.Scales)
}

func (x *Component) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "component.name")
	x.Heads = d.u32(at+8, end)
	x.Dim = d.u32(at+12, end)
	x.Dtype = d.u32(at+16, end)
	x.Bits = d.u32(at+20, end)
	x.Unit = d.u32(at+24, end)
	x.TokensPerEntry = d.u32(at+28, end)
	x.Scales = d.u32(at+32, end)
}

// Share is a record: a layer that reads the cache of another.
type Share struct {
	Layer uint32 `json:"layer,omitempty"`
	Owner uint32 `json:"owner,omitempty"`
}

const sizeShare = 8

func (x *Share) put(e *encoder, at int) {
	e.u32(at+0, x.Layer)
	e.u32(at+4, x.Owner)
}

func (x *Share) get(d *decoder, at, end int) {
	x.Layer = d.u32(at+0, end)
	x.Owner = d.u32(at+4, end)
}

// Group is a record: layers with the same components, block size and block table.
type Group struct {
	Name       string      `json:"name,omitempty"`
	State      uint32      `json:"state,omitempty"`    // 1: keeps one state a request and no tokens; its heads are channels, its blocks slots
	Optional   uint32      `json:"optional,omitempty"` // 1: an engine may lack it
	Window     uint32      `json:"window,omitempty"`   // tokens back that the layers look, 0: all
	Layers     []Range     `json:"layers,omitempty"`
	Components []Component `json:"components,omitempty"`
	Shared     []Share     `json:"shared,omitempty"`
}

const sizeGroup = 56

func (x *Group) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	e.u32(at+8, x.State)
	e.u32(at+12, x.Optional)
	e.u32(at+16, x.Window)
	putList(e, at+20, x.Layers, sizeRange, (*Range).put)
	putList(e, at+32, x.Components, sizeComponent, (*Component).put)
	putList(e, at+44, x.Shared, sizeShare, (*Share).put)
}

func (x *Group) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "group.name")
	x.State = d.u32(at+8, end)
	x.Optional = d.u32(at+12, end)
	x.Window = d.u32(at+16, end)
	x.Layers = getList(d, at+20, end, "group.layers", (*Range).get)
	x.Components = getList(d, at+32, end, "group.components", (*Component).get)
	x.Shared = getList(d, at+44, end, "group.shared", (*Share).get)
}

// Label is a record: an operator's words about an engine.
type Label struct {
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
}

const sizeLabel = 16

func (x *Label) put(e *encoder, at int) {
	e.text(at+0, x.Key)
	e.text(at+8, x.Value)
}

func (x *Label) get(d *decoder, at, end int) {
	x.Key = d.text(at+0, end, "label.key")
	x.Value = d.text(at+8, end, "label.value")
}

// Item is a record: one item of an order, outermost first: axis[%mod][/div]; mod 0 is the whole axis.
type Item struct {
	Components uint64 `json:"components,omitempty"` // bit i: stands in the order of component i of the group; 0: of all
	Axis       uint32 `json:"axis,omitempty"`       // enum axis
	Mod        uint32 `json:"mod,omitempty"`
	Div        uint32 `json:"div,omitempty"`
}

const sizeItem = 24

func (x *Item) put(e *encoder, at int) {
	e.u64(at+0, x.Components)
	e.u32(at+8, x.Axis)
	e.u32(at+12, x.Mod)
	e.u32(at+16, x.Div)
}

func (x *Item) get(d *decoder, at, end int) {
	x.Components = d.u64(at+0, end)
	x.Axis = d.u32(at+8, end)
	x.Mod = d.u32(at+12, end)
	x.Div = d.u32(at+16, end)
}

// Cost is a record: what a request of 4096 tokens takes to move between two candidates, from the host's own arithmetic.
type Cost struct {
	Peer      uint32 `json:"peer,omitempty"`      // index in peers
	Candidate uint32 `json:"candidate,omitempty"` // index in that peer's candidates
	Pieces    uint64 `json:"pieces,omitempty"`    // contiguous copies
	Bytes     uint64 `json:"bytes,omitempty"`
}

const sizeCost = 24

func (x *Cost) put(e *encoder, at int) {
	e.u32(at+0, x.Peer)
	e.u32(at+4, x.Candidate)
	e.u64(at+8, x.Pieces)
	e.u64(at+16, x.Bytes)
}

func (x *Cost) get(d *decoder, at, end int) {
	x.Peer = d.u32(at+0, end)
	x.Candidate = d.u32(at+4, end)
	x.Pieces = d.u64(at+8, end)
	x.Bytes = d.u64(at+16, end)
}

// GroupLayout is a record: how a candidate keeps one group.
type GroupLayout struct {
	Order       []Item `json:"order,omitempty"` // of a kernel block where there are any
	Group       uint32 `json:"group,omitempty"` // index in the message's groups
	Block       uint32 `json:"block,omitempty"` // tokens, 1 in a state
	Blocks      uint32 `json:"blocks,omitempty"`
	Ring        uint32 `json:"ring,omitempty"`         // blocks that a request goes round in, 0: none
	KernelBlock uint32 `json:"kernel_block,omitempty"` // tokens; a block is that many several times over, 0: none
	TP          uint32 `json:"tp,omitempty"`           // the group's own shard, or the engine's
	Stages      uint32 `json:"stages,omitempty"`
	DCP         uint32 `json:"dcp,omitempty"`
	Interleave  uint32 `json:"interleave,omitempty"`
}

const sizeGroupLayout = 48

func (x *GroupLayout) put(e *encoder, at int) {
	putList(e, at+0, x.Order, sizeItem, (*Item).put)
	e.u32(at+12, x.Group)
	e.u32(at+16, x.Block)
	e.u32(at+20, x.Blocks)
	e.u32(at+24, x.Ring)
	e.u32(at+28, x.KernelBlock)
	e.u32(at+32, x.TP)
	e.u32(at+36, x.Stages)
	e.u32(at+40, x.DCP)
	e.u32(at+44, x.Interleave)
}

func (x *GroupLayout) get(d *decoder, at, end int) {
	x.Order = getList(d, at+0, end, "group_layout.order", (*Item).get)
	x.Group = d.u32(at+12, end)
	x.Block = d.u32(at+16, end)
	x.Blocks = d.u32(at+20, end)
	x.Ring = d.u32(at+24, end)
	x.KernelBlock = d.u32(at+28, end)
	x.TP = d.u32(at+32, end)
	x.Stages = d.u32(at+36, end)
	x.DCP = d.u32(at+40, end)
	x.Interleave = d.u32(at+44, end)
}

// Candidate is a record: a layout that the engine's attention can read and write.
type Candidate struct {
	Name      string        `json:"name,omitempty"`
	Layouts   []GroupLayout `json:"layouts,omitempty"`   // of each group that the message names and the engine has
	Attention uint32        `json:"attention,omitempty"` // what attention costs more on it than on the best, in per cent
	Costs     []Cost        `json:"costs,omitempty"`     // absent for what cannot be planned
}

const sizeCandidate = 40

func (x *Candidate) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	putList(e, at+8, x.Layouts, sizeGroupLayout, (*GroupLayout).put)
	e.u32(at+20, x.Attention)
	putList(e, at+24, x.Costs, sizeCost, (*Cost).put)
}

func (x *Candidate) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "candidate.name")
	x.Layouts = getList(d, at+8, end, "candidate.layouts", (*GroupLayout).get)
	x.Attention = d.u32(at+20, end)
	x.Costs = getList(d, at+24, end, "candidate.costs", (*Cost).get)
}

// Peer is a record: an engine that the configuration expects to meet.
type Peer struct {
	Engine     string      `json:"engine,omitempty"`
	TP         uint32      `json:"tp,omitempty"`
	Stages     uint32      `json:"stages,omitempty"`
	DCP        uint32      `json:"dcp,omitempty"`
	Interleave uint32      `json:"interleave,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"`
}

const sizePeer = 40

func (x *Peer) put(e *encoder, at int) {
	e.text(at+0, x.Engine)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.Stages)
	e.u32(at+16, x.DCP)
	e.u32(at+20, x.Interleave)
	putList(e, at+24, x.Candidates, sizeCandidate, (*Candidate).put)
}

func (x *Peer) get(d *decoder, at, end int) {
	x.Engine = d.text(at+0, end, "peer.engine")
	x.TP = d.u32(at+8, end)
	x.Stages = d.u32(at+12, end)
	x.DCP = d.u32(at+16, end)
	x.Interleave = d.u32(at+20, end)
	x.Candidates = getList(d, at+24, end, "peer.candidates", (*Candidate).get)
}

// Pool is a record.
type Pool struct {
	Block  uint32 `json:"block,omitempty"` // tokens a block, on each rank; 1 in a state
	Blocks uint32 `json:"blocks,omitempty"`
	Ring   uint32 `json:"ring,omitempty"` // blocks that a request goes round in, 0: none
}

const sizePool = 16

func (x *Pool) put(e *encoder, at int) {
	e.u32(at+0, x.Block)
	e.u32(at+4, x.Blocks)
	e.u32(at+8, x.Ring)
}

func (x *Pool) get(d *decoder, at, end int) {
	x.Block = d.u32(at+0, end)
	x.Blocks = d.u32(at+4, end)
	x.Ring = d.u32(at+8, end)
}

// Part is a record: what a rank holds of a group's components that are dealt alike.
type Part struct {
	Components    uint64  `json:"components,omitempty"` // bit i: component i of the group
	Group         uint32  `json:"group,omitempty"`
	DCPSize       uint32  `json:"dcp_size,omitempty"` // token t is held where (t / interleave) mod dcp_size == dcp_phase
	DCPInterleave uint32  `json:"dcp_interleave,omitempty"`
	DCPPhase      uint32  `json:"dcp_phase,omitempty"`
	Layers        []Range `json:"layers,omitempty"`
	Heads         []Range `json:"heads,omitempty"` // in storage order; empty for components without heads
}

const sizePart = 48

func (x *Part) put(e *encoder, at int) {
	e.u64(at+0, x.Components)
	e.u32(at+8, x.Group)
	e.u32(at+12, x.DCPSize)
	e.u32(at+16, x.DCPInterleave)
	e.u32(at+20, x.DCPPhase)
	putList(e, at+24, x.Layers, sizeRange, (*Range).put)
	putList(e, at+36, x.Heads, sizeRange, (*Range).put)
}

func (x *Part) get(d *decoder, at, end int) {
	x.Components = d.u64(at+0, end)
	x.Group = d.u32(at+8, end)
	x.DCPSize = d.u32(at+12, end)
	x.DCPInterleave = d.u32(at+16, end)
	x.DCPPhase = d.u32(at+20, end)
	x.Layers = getList(d, at+24, end, "part.layers", (*Range).get)
	x.Heads = getList(d, at+36, end, "part.heads", (*Range).get)
}

// Rank is a record.
type Rank struct {
	Rank  uint32 `json:"rank,omitempty"`
	PP    uint32 `json:"pp,omitempty"` // its place in the engine's shard; a group may have another, by its parts
	TP    uint32 `json:"tp,omitempty"`
	DCP   uint32 `json:"dcp,omitempty"`
	Host  string `json:"host,omitempty"` // empty: not known
	Parts []Part `json:"parts,omitempty"`
}

const sizeRank = 40

func (x *Rank) put(e *encoder, at int) {
	e.u32(at+0, x.Rank)
	e.u32(at+4, x.PP)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.DCP)
	e.text(at+16, x.Host)
	putList(e, at+24, x.Parts, sizePart, (*Part).put)
}

func (x *Rank) get(d *decoder, at, end int) {
	x.Rank = d.u32(at+0, end)
	x.PP = d.u32(at+4, end)
	x.TP = d.u32(at+8, end)
	x.DCP = d.u32(at+12, end)
	x.Host = d.text(at+16, end, "rank.host")
	x.Parts = getList(d, at+24, end, "rank.parts", (*Part).get)
}

// Side is a record.
type Side struct {
	Engine     string  `json:"engine,omitempty"`
	TP         uint32  `json:"tp,omitempty"`
	Stages     uint32  `json:"stages,omitempty"`
	DCP        uint32  `json:"dcp,omitempty"`
	Interleave uint32  `json:"interleave,omitempty"`
	Pools      []Pool  `json:"pools,omitempty"` // by group
	Ranks      []Rank  `json:"ranks,omitempty"` // by rank number
	Labels     []Label `json:"labels,omitempty"`
}

const sizeSide = 64

func (x *Side) put(e *encoder, at int) {
	e.text(at+0, x.Engine)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.Stages)
	e.u32(at+16, x.DCP)
	e.u32(at+20, x.Interleave)
	putList(e, at+24, x.Pools, sizePool, (*Pool).put)
	putList(e, at+36, x.Ranks, sizeRank, (*Rank).put)
	putList(e, at+48, x.Labels, sizeLabel, (*Label).put)
}

func (x *Side) get(d *decoder, at, end int) {
	x.Engine = d.text(at+0, end, "side.engine")
	x.TP = d.u32(at+8, end)
	x.Stages = d.u32(at+12, end)
	x.DCP = d.u32(at+16, end)
	x.Interleave = d.u32(at+20, end)
	x.Pools = getList(d, at+24, end, "side.pools", (*Pool).get)
	x.Ranks = getList(d, at+36, end, "side.ranks", (*Rank).get)
	x.Labels = getList(d, at+48, end, "side.labels", (*Label).get)
}

// Assignment is a record: the destination rank takes a box from the source rank.
type Assignment struct {
	Components      uint64 `json:"components,omitempty"` // bit i: component i of the group; components of one box have equally many heads
	Group           uint32 `json:"group,omitempty"`
	Destination     uint32 `json:"destination,omitempty"`
	Source          uint32 `json:"source,omitempty"`
	LayerFrom       uint32 `json:"layer_from,omitempty"`
	LayerTo         uint32 `json:"layer_to,omitempty"`
	HeadFrom        uint32 `json:"head_from,omitempty"`
	HeadTo          uint32 `json:"head_to,omitempty"`
	TokenSize       uint32 `json:"token_size,omitempty"` // 0: all tokens; else those with (t / token_interleave) mod token_size == token_phase
	TokenInterleave uint32 `json:"token_interleave,omitempty"`
	TokenPhase      uint32 `json:"token_phase,omitempty"`
}

const sizeAssignment = 48

func (x *Assignment) put(e *encoder, at int) {
	e.u64(at+0, x.Components)
	e.u32(at+8, x.Group)
	e.u32(at+12, x.Destination)
	e.u32(at+16, x.Source)
	e.u32(at+20, x.LayerFrom)
	e.u32(at+24, x.LayerTo)
	e.u32(at+28, x.HeadFrom)
	e.u32(at+32, x.HeadTo)
	e.u32(at+36, x.TokenSize)
	e.u32(at+40, x.TokenInterleave)
	e.u32(at+44, x.TokenPhase)
}

func (x *Assignment) get(d *decoder, at, end int) {
	x.Components = d.u64(at+0, end)
	x.Group = d.u32(at+8, end)
	x.Destination = d.u32(at+12, end)
	x.Source = d.u32(at+16, end)
	x.LayerFrom = d.u32(at+20, end)
	x.LayerTo = d.u32(at+24, end)
	x.HeadFrom = d.u32(at+28, end)
	x.HeadTo = d.u32(at+32, end)
	x.TokenSize = d.u32(at+36, end)
	x.TokenInterleave = d.u32(at+40, end)
	x.TokenPhase = d.u32(at+44, end)
}

// Alternative is a record.
type Alternative struct {
	Assignments []Assignment `json:"assignments,omitempty"`
}

const sizeAlternative = 16

func (x *Alternative) put(e *encoder, at int) {
	putList(e, at+0, x.Assignments, sizeAssignment, (*Assignment).put)
}

func (x *Alternative) get(d *decoder, at, end int) {
	x.Assignments = getList(d, at+0, end, "alternative.assignments", (*Assignment).get)
}

// SelectLayoutIn is a message of hook select_layout.
type SelectLayoutIn struct {
	Engine     string      `json:"engine,omitempty"`
	Model      string      `json:"model,omitempty"`
	Role       uint32      `json:"role,omitempty"` // enum role
	Layers     uint32      `json:"layers,omitempty"`
	TP         uint32      `json:"tp,omitempty"`
	Stages     uint32      `json:"stages,omitempty"`
	DCP        uint32      `json:"dcp,omitempty"`
	Interleave uint32      `json:"interleave,omitempty"`
	Previous   uint32      `json:"previous,omitempty"` // 1 + the index answered before, 0: none
	Groups     []Group     `json:"groups,omitempty"`   // of the engine
	Candidates []Candidate `json:"candidates,omitempty"`
	Peers      []Peer      `json:"peers,omitempty"`
	Labels     []Label     `json:"labels,omitempty"`
}

const sizeSelectLayoutIn = 120

func (x *SelectLayoutIn) put(e *encoder, at int) {
	e.text(at+24, x.Engine)
	e.text(at+32, x.Model)
	e.u32(at+40, x.Role)
	e.u32(at+44, x.Layers)
	e.u32(at+48, x.TP)
	e.u32(at+52, x.Stages)
	e.u32(at+56, x.DCP)
	e.u32(at+60, x.Interleave)
	e.u32(at+64, x.Previous)
	putList(e, at+72, x.Groups, sizeGroup, (*Group).put)
	putList(e, at+84, x.Candidates, sizeCandidate, (*Candidate).put)
	putList(e, at+96, x.Peers, sizePeer, (*Peer).put)
	putList(e, at+108, x.Labels, sizeLabel, (*Label).put)
}

func (x *SelectLayoutIn) get(d *decoder, at, end int) {
	x.Engine = d.text(at+24, end, "select_layout_in.engine")
	x.Model = d.text(at+32, end, "select_layout_in.model")
	x.Role = d.u32(at+40, end)
	x.Layers = d.u32(at+44, end)
	x.TP = d.u32(at+48, end)
	x.Stages = d.u32(at+52, end)
	x.DCP = d.u32(at+56, end)
	x.Interleave = d.u32(at+60, end)
	x.Previous = d.u32(at+64, end)
	x.Groups = getList(d, at+72, end, "select_layout_in.groups", (*Group).get)
	x.Candidates = getList(d, at+84, end, "select_layout_in.candidates", (*Candidate).get)
	x.Peers = getList(d, at+96, end, "select_layout_in.peers", (*Peer).get)
	x.Labels = getList(d, at+108, end, "select_layout_in.labels", (*Label).get)
}

// Encode returns the message's bytes.
func (x *SelectLayoutIn) Encode() []byte { return encode(HookSelectLayout, sizeSelectLayoutIn, x.put) }

// DecodeSelectLayoutIn reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeSelectLayoutIn(b []byte) (*SelectLayoutIn, error) {
	x := new(SelectLayoutIn)
	if err := decode(b, HookSelectLayout, "select_layout_in", x.get); err != nil {
		return nil, err
	}
	return x, nil
}

// SelectLayoutOut is a message of hook select_layout.
type SelectLayoutOut struct {
	Index  uint32 `json:"index,omitempty"`  // of the candidate chosen
	Reason string `json:"reason,omitempty"` // at most 256 bytes of printable UTF-8
}

const sizeSelectLayoutOut = 40

func (x *SelectLayoutOut) put(e *encoder, at int) {
	e.u32(at+24, x.Index)
	e.text(at+32, x.Reason)
}

func (x *SelectLayoutOut) get(d *decoder, at, end int) {
	x.Index = d.u32(at+24, end)
	x.Reason = d.text(at+32, end, "select_layout_out.reason")
}

// Encode returns the message's bytes.
func (x *SelectLayoutOut) Encode() []byte {
	return encode(HookSelectLayout, sizeSelectLayoutOut, x.put)
}

// DecodeSelectLayoutOut reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeSelectLayoutOut(b []byte) (*SelectLayoutOut, error) {
	x := new(SelectLayoutOut)
	if err := decode(b, HookSelectLayout, "select_layout_out", x.get); err != nil {
		return nil, err
	}
	return x, nil
}

// RemapIn is a message of hook remap.
type RemapIn struct {
	Model  string  `json:"model,omitempty"`
	Layers uint32  `json:"layers,omitempty"`
	Groups []Group `json:"groups,omitempty"` // that both engines have
	Sides  []Side  `json:"sides,omitempty"`  // source, destination
}

const sizeRemapIn = 64

func (x *RemapIn) put(e *encoder, at int) {
	e.text(at+24, x.Model)
	e.u32(at+32, x.Layers)
	putList(e, at+40, x.Groups, sizeGroup, (*Group).put)
	putList(e, at+52, x.Sides, sizeSide, (*Side).put)
}

func (x *RemapIn) get(d *decoder, at, end int) {
	x.Model = d.text(at+24, end, "remap_in.model")
	x.Layers = d.u32(at+32, end)
	x.Groups = getList(d, at+40, end, "remap_in.groups", (*Group).get)
	x.Sides = getList(d, at+52, end, "remap_in.sides", (*Side).get)
}

// Encode returns the message's bytes.
func (x *RemapIn) Encode() []byte { return encode(HookRemap, sizeRemapIn, x.put) }

// DecodeRemapIn reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeRemapIn(b []byte) (*RemapIn, error) {
	x := new(RemapIn)
	if err := decode(b, HookRemap, "remap_in", x.get); err != nil {
		return nil, err
	}
	return x, nil
}

// RemapOut is a message of hook remap.
type RemapOut struct {
	Alternatives []Alternative `json:"alternatives,omitempty"` // at most 8, best first
	Reason       string        `json:"reason,omitempty"`
}

const sizeRemapOut = 48

func (x *RemapOut) put(e *encoder, at int) {
	putList(e, at+24, x.Alternatives, sizeAlternative, (*Alternative).put)
	e.text(at+36, x.Reason)
}

func (x *RemapOut) get(d *decoder, at, end int) {
	x.Alternatives = getList(d, at+24, end, "remap_out.alternatives", (*Alternative).get)
	x.Reason = d.text(at+36, end, "remap_out.reason")
}

// Encode returns the message's bytes.
func (x *RemapOut) Encode() []byte { return encode(HookRemap, sizeRemapOut, x.put) }

// DecodeRemapOut reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeRemapOut(b []byte) (*RemapOut, error) {
	x := new(RemapOut)
	if err := decode(b, HookRemap, "remap_out", x.get); err != nil {
		return nil, err
	}
	return x, nil
}
