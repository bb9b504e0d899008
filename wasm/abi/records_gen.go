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
	HookSelectLayout = 1 // which layout an engine uses; once an engine, and again when what it knows changes
	HookRemap        = 2 // which source rank feeds which destination rank; once a pair
	HookRoute        = 3 // how one transfer goes; optional
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

// The numbers of memory; they never change.
const (
	MemoryHost  = 1
	MemoryCuda  = 2
	MemoryOther = 3 // a device of another kind
)

// The numbers of reach; they never change.
const (
	ReachProcess = 1 // one address space
	ReachHost    = 2 // one host
	ReachDomain  = 3 // one link domain: memory is reached without a network card
	ReachNetwork = 4
)

// The numbers of mode; they never change.
const (
	ModeDirect = 1 // each run goes to its place
	ModeStaged = 2 // packed on one side, unpacked on the other
)

// The numbers of integrity; they never change.
const (
	IntegrityOff    = 1
	IntegritySample = 2
	IntegrityFull   = 3
)

// The numbers of switch; they never change.
const (
	SwitchOff = 1
	SwitchOn  = 2
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

// Label is a record: an operator's words about an engine or a rank.
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

// Device is a record: that a rank's cache lies on; a rank in host memory has none.
type Device struct {
	ID   string `json:"id,omitempty"`   // as the host's tools name it: a UUID, a PCI address
	Kind uint32 `json:"kind,omitempty"` // enum memory
	NUMA uint32 `json:"numa,omitempty"` // 1 + its NUMA node, 0: not known
}

const sizeDevice = 16

func (x *Device) put(e *encoder, at int) {
	e.text(at+0, x.ID)
	e.u32(at+8, x.Kind)
	e.u32(at+12, x.NUMA)
}

func (x *Device) get(d *decoder, at, end int) {
	x.ID = d.text(at+0, end, "device.id")
	x.Kind = d.u32(at+8, end)
	x.NUMA = d.u32(at+12, end)
}

// Rail is a record: a network interface that a rank may use.
type Rail struct {
	Name  string `json:"name,omitempty"`
	NUMA  uint32 `json:"numa,omitempty"`  // 1 + its NUMA node, 0: not known
	Gbits uint32 `json:"gbits,omitempty"` // a second, 0: not known
	Load  uint32 `json:"load,omitempty"`  // 1 (idle) to 8 (busiest), 0: not known
}

const sizeRail = 24

func (x *Rail) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	e.u32(at+8, x.NUMA)
	e.u32(at+12, x.Gbits)
	e.u32(at+16, x.Load)
}

func (x *Rail) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "rail.name")
	x.NUMA = d.u32(at+8, end)
	x.Gbits = d.u32(at+12, end)
	x.Load = d.u32(at+16, end)
}

// Place is a record: where a rank runs.
type Place struct {
	Rank    uint32   `json:"rank,omitempty"`
	NUMA    uint32   `json:"numa,omitempty"`   // 1 + its NUMA node, 0: not known
	Load    uint32   `json:"load,omitempty"`   // of what it gives and takes: 1 (idle) to 8 (busiest), 0: not known
	Host    string   `json:"host,omitempty"`   // empty: not known
	Domain  string   `json:"domain,omitempty"` // its link domain; empty: none, or not known
	Devices []Device `json:"devices,omitempty"`
	Rails   []Rail   `json:"rails,omitempty"`
	Labels  []Label  `json:"labels,omitempty"`
}

const sizePlace = 72

func (x *Place) put(e *encoder, at int) {
	e.u32(at+0, x.Rank)
	e.u32(at+4, x.NUMA)
	e.u32(at+8, x.Load)
	e.text(at+16, x.Host)
	e.text(at+24, x.Domain)
	putList(e, at+32, x.Devices, sizeDevice, (*Device).put)
	putList(e, at+44, x.Rails, sizeRail, (*Rail).put)
	putList(e, at+56, x.Labels, sizeLabel, (*Label).put)
}

func (x *Place) get(d *decoder, at, end int) {
	x.Rank = d.u32(at+0, end)
	x.NUMA = d.u32(at+4, end)
	x.Load = d.u32(at+8, end)
	x.Host = d.text(at+16, end, "place.host")
	x.Domain = d.text(at+24, end, "place.domain")
	x.Devices = getList(d, at+32, end, "place.devices", (*Device).get)
	x.Rails = getList(d, at+44, end, "place.rails", (*Rail).get)
	x.Labels = getList(d, at+56, end, "place.labels", (*Label).get)
}

// Engine is a record: what is known of an engine besides its cache.
type Engine struct {
	Name     string  `json:"name,omitempty"`
	Software string  `json:"software,omitempty"` // "vllm", "sglang", ...; empty: not known
	Version  string  `json:"version,omitempty"`  // of the software
	Labels   []Label `json:"labels,omitempty"`
	Places   []Place `json:"places,omitempty"` // by rank number; empty: not known
}

const sizeEngine = 48

func (x *Engine) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	e.text(at+8, x.Software)
	e.text(at+16, x.Version)
	putList(e, at+24, x.Labels, sizeLabel, (*Label).put)
	putList(e, at+36, x.Places, sizePlace, (*Place).put)
}

func (x *Engine) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "engine.name")
	x.Software = d.text(at+8, end, "engine.software")
	x.Version = d.text(at+16, end, "engine.version")
	x.Labels = getList(d, at+24, end, "engine.labels", (*Label).get)
	x.Places = getList(d, at+36, end, "engine.places", (*Place).get)
}

// Provider is a record: a configured transport.
type Provider struct {
	Name     string `json:"name,omitempty"`
	Memories uint32 `json:"memories,omitempty"`  // bit i: moves memory of kind i of enum memory
	OneSided uint32 `json:"one_sided,omitempty"` // 1: the reader reaches the owner's memory by itself
	PeerCPU  uint32 `json:"peer_cpu,omitempty"`  // 1: needs the other process to run
	Strides  uint32 `json:"strides,omitempty"`   // 1: takes strided runs as they are
	CRC      uint32 `json:"crc,omitempty"`       // enum switch
	TLS      uint32 `json:"tls,omitempty"`       // enum switch
	Piece    uint64 `json:"piece,omitempty"`     // smallest piece in bytes that moves at full speed, 0: not known
}

const sizeProvider = 40

func (x *Provider) put(e *encoder, at int) {
	e.text(at+0, x.Name)
	e.u32(at+8, x.Memories)
	e.u32(at+12, x.OneSided)
	e.u32(at+16, x.PeerCPU)
	e.u32(at+20, x.Strides)
	e.u32(at+24, x.CRC)
	e.u32(at+28, x.TLS)
	e.u64(at+32, x.Piece)
}

func (x *Provider) get(d *decoder, at, end int) {
	x.Name = d.text(at+0, end, "provider.name")
	x.Memories = d.u32(at+8, end)
	x.OneSided = d.u32(at+12, end)
	x.PeerCPU = d.u32(at+16, end)
	x.Strides = d.u32(at+20, end)
	x.CRC = d.u32(at+24, end)
	x.TLS = d.u32(at+28, end)
	x.Piece = d.u64(at+32, end)
}

// Edge is a record: pairs of ranks that are connected alike; no pair stands in two of them.
type Edge struct {
	Providers       uint64 `json:"providers,omitempty"`   // bit i: provider i of the message can serve them
	SourceFrom      uint32 `json:"source_from,omitempty"` // the ranks [source_from, source_to) of the source
	SourceTo        uint32 `json:"source_to,omitempty"`
	DestinationFrom uint32 `json:"destination_from,omitempty"`
	DestinationTo   uint32 `json:"destination_to,omitempty"`
	Reach           uint32 `json:"reach,omitempty"` // enum reach, 0: not known
	Load            uint32 `json:"load,omitempty"`  // 1 (idle) to 8 (busiest), 0: not known
}

const sizeEdge = 32

func (x *Edge) put(e *encoder, at int) {
	e.u64(at+0, x.Providers)
	e.u32(at+8, x.SourceFrom)
	e.u32(at+12, x.SourceTo)
	e.u32(at+16, x.DestinationFrom)
	e.u32(at+20, x.DestinationTo)
	e.u32(at+24, x.Reach)
	e.u32(at+28, x.Load)
}

func (x *Edge) get(d *decoder, at, end int) {
	x.Providers = d.u64(at+0, end)
	x.SourceFrom = d.u32(at+8, end)
	x.SourceTo = d.u32(at+12, end)
	x.DestinationFrom = d.u32(at+16, end)
	x.DestinationTo = d.u32(at+20, end)
	x.Reach = d.u32(at+24, end)
	x.Load = d.u32(at+28, end)
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
	Edges      []Edge      `json:"edges,omitempty"` // between the two engines; ranks of the asked engine stand on the side of its role
}

const sizePeer = 48

func (x *Peer) put(e *encoder, at int) {
	e.text(at+0, x.Engine)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.Stages)
	e.u32(at+16, x.DCP)
	e.u32(at+20, x.Interleave)
	putList(e, at+24, x.Candidates, sizeCandidate, (*Candidate).put)
	putList(e, at+36, x.Edges, sizeEdge, (*Edge).put)
}

func (x *Peer) get(d *decoder, at, end int) {
	x.Engine = d.text(at+0, end, "peer.engine")
	x.TP = d.u32(at+8, end)
	x.Stages = d.u32(at+12, end)
	x.DCP = d.u32(at+16, end)
	x.Interleave = d.u32(at+20, end)
	x.Candidates = getList(d, at+24, end, "peer.candidates", (*Candidate).get)
	x.Edges = getList(d, at+36, end, "peer.edges", (*Edge).get)
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
	Parts []Part `json:"parts,omitempty"`
}

const sizeRank = 32

func (x *Rank) put(e *encoder, at int) {
	e.u32(at+0, x.Rank)
	e.u32(at+4, x.PP)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.DCP)
	putList(e, at+16, x.Parts, sizePart, (*Part).put)
}

func (x *Rank) get(d *decoder, at, end int) {
	x.Rank = d.u32(at+0, end)
	x.PP = d.u32(at+4, end)
	x.TP = d.u32(at+8, end)
	x.DCP = d.u32(at+12, end)
	x.Parts = getList(d, at+16, end, "rank.parts", (*Part).get)
}

// Side is a record.
type Side struct {
	Engine     string `json:"engine,omitempty"`
	TP         uint32 `json:"tp,omitempty"`
	Stages     uint32 `json:"stages,omitempty"`
	DCP        uint32 `json:"dcp,omitempty"`
	Interleave uint32 `json:"interleave,omitempty"`
	Pools      []Pool `json:"pools,omitempty"` // by group
	Ranks      []Rank `json:"ranks,omitempty"` // by rank number
}

const sizeSide = 48

func (x *Side) put(e *encoder, at int) {
	e.text(at+0, x.Engine)
	e.u32(at+8, x.TP)
	e.u32(at+12, x.Stages)
	e.u32(at+16, x.DCP)
	e.u32(at+20, x.Interleave)
	putList(e, at+24, x.Pools, sizePool, (*Pool).put)
	putList(e, at+36, x.Ranks, sizeRank, (*Rank).put)
}

func (x *Side) get(d *decoder, at, end int) {
	x.Engine = d.text(at+0, end, "side.engine")
	x.TP = d.u32(at+8, end)
	x.Stages = d.u32(at+12, end)
	x.DCP = d.u32(at+16, end)
	x.Interleave = d.u32(at+20, end)
	x.Pools = getList(d, at+24, end, "side.pools", (*Pool).get)
	x.Ranks = getList(d, at+36, end, "side.ranks", (*Rank).get)
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

// Alternative is a record: assignments that together give the destination all it needs.
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

// Flow is a record: what moves between two ranks, for a request of 4096 tokens.
type Flow struct {
	Bytes       uint64 `json:"bytes,omitempty"`
	Pieces      uint64 `json:"pieces,omitempty"` // contiguous copies
	Source      uint32 `json:"source,omitempty"`
	Destination uint32 `json:"destination,omitempty"`
}

const sizeFlow = 24

func (x *Flow) put(e *encoder, at int) {
	e.u64(at+0, x.Bytes)
	e.u64(at+8, x.Pieces)
	e.u32(at+16, x.Source)
	e.u32(at+20, x.Destination)
}

func (x *Flow) get(d *decoder, at, end int) {
	x.Bytes = d.u64(at+0, end)
	x.Pieces = d.u64(at+8, end)
	x.Source = d.u32(at+16, end)
	x.Destination = d.u32(at+20, end)
}

// Proven is a record: one of remap's alternatives, proved.
type Proven struct {
	Bytes  uint64 `json:"bytes,omitempty"` // of a request of 4096 tokens
	Pieces uint64 `json:"pieces,omitempty"`
	Flows  []Flow `json:"flows,omitempty"`
}

const sizeProven = 32

func (x *Proven) put(e *encoder, at int) {
	e.u64(at+0, x.Bytes)
	e.u64(at+8, x.Pieces)
	putList(e, at+16, x.Flows, sizeFlow, (*Flow).put)
}

func (x *Proven) get(d *decoder, at, end int) {
	x.Bytes = d.u64(at+0, end)
	x.Pieces = d.u64(at+8, end)
	x.Flows = getList(d, at+16, end, "proven.flows", (*Flow).get)
}

// Transport is a record.
type Transport struct {
	Provider uint32 `json:"provider,omitempty"` // index in the question's providers
}

const sizeTransport = 8

func (x *Transport) put(e *encoder, at int) {
	e.u32(at+0, x.Provider)
}

func (x *Transport) get(d *decoder, at, end int) {
	x.Provider = d.u32(at+0, end)
}

// RailChoice is a record: a rank uses one of its rails; ranks that are not named are not bound.
type RailChoice struct {
	Side uint32 `json:"side,omitempty"` // enum role
	Rank uint32 `json:"rank,omitempty"`
	Rail uint32 `json:"rail,omitempty"` // index in the rank's rails
}

const sizeRailChoice = 16

func (x *RailChoice) put(e *encoder, at int) {
	e.u32(at+0, x.Side)
	e.u32(at+4, x.Rank)
	e.u32(at+8, x.Rail)
}

func (x *RailChoice) get(d *decoder, at, end int) {
	x.Side = d.u32(at+0, end)
	x.Rank = d.u32(at+4, end)
	x.Rail = d.u32(at+8, end)
}

// Decision is a record: how a transfer goes; zero leaves a thing to the host, as configured.
type Decision struct {
	Alternative uint32       `json:"alternative,omitempty"` // index in the question's alternatives
	Mode        uint32       `json:"mode,omitempty"`        // enum mode
	Permute     uint32       `json:"permute,omitempty"`     // enum role: the side that brings elements into the other's order
	Chunk       uint32       `json:"chunk,omitempty"`       // bytes that travel as one
	Streams     uint32       `json:"streams,omitempty"`     // connections in parallel
	Priority    uint32       `json:"priority,omitempty"`    // 1 (last) to 8 (first)
	Integrity   uint32       `json:"integrity,omitempty"`   // enum integrity
	CRC         uint32       `json:"crc,omitempty"`         // enum switch
	TLS         uint32       `json:"tls,omitempty"`         // enum switch
	Recompute   uint32       `json:"recompute,omitempty"`   // 1: nothing moves, the destination computes the tokens itself
	Transports  []Transport  `json:"transports,omitempty"`  // in order of preference; no other is tried; empty: all, as configured
	Rails       []RailChoice `json:"rails,omitempty"`
}

const sizeDecision = 64

func (x *Decision) put(e *encoder, at int) {
	e.u32(at+0, x.Alternative)
	e.u32(at+4, x.Mode)
	e.u32(at+8, x.Permute)
	e.u32(at+12, x.Chunk)
	e.u32(at+16, x.Streams)
	e.u32(at+20, x.Priority)
	e.u32(at+24, x.Integrity)
	e.u32(at+28, x.CRC)
	e.u32(at+32, x.TLS)
	e.u32(at+36, x.Recompute)
	putList(e, at+40, x.Transports, sizeTransport, (*Transport).put)
	putList(e, at+52, x.Rails, sizeRailChoice, (*RailChoice).put)
}

func (x *Decision) get(d *decoder, at, end int) {
	x.Alternative = d.u32(at+0, end)
	x.Mode = d.u32(at+4, end)
	x.Permute = d.u32(at+8, end)
	x.Chunk = d.u32(at+12, end)
	x.Streams = d.u32(at+16, end)
	x.Priority = d.u32(at+20, end)
	x.Integrity = d.u32(at+24, end)
	x.CRC = d.u32(at+28, end)
	x.TLS = d.u32(at+32, end)
	x.Recompute = d.u32(at+36, end)
	x.Transports = getList(d, at+40, end, "decision.transports", (*Transport).get)
	x.Rails = getList(d, at+52, end, "decision.rails", (*RailChoice).get)
}

// SelectLayoutIn is a message of hook select_layout.
type SelectLayoutIn struct {
	Engine        string      `json:"engine,omitempty"`
	Model         string      `json:"model,omitempty"`
	Role          uint32      `json:"role,omitempty"` // enum role
	Layers        uint32      `json:"layers,omitempty"`
	TP            uint32      `json:"tp,omitempty"`
	Stages        uint32      `json:"stages,omitempty"`
	DCP           uint32      `json:"dcp,omitempty"`
	Interleave    uint32      `json:"interleave,omitempty"`
	Previous      uint32      `json:"previous,omitempty"` // 1 + the index answered before, 0: none
	Recorded      uint32      `json:"recorded,omitempty"` // 1 + the index that the fleet has on record for this engine, 0: none
	Groups        []Group     `json:"groups,omitempty"`   // of the engine
	Candidates    []Candidate `json:"candidates,omitempty"`
	Peers         []Peer      `json:"peers,omitempty"`
	Engines       []Engine    `json:"engines,omitempty"`       // the asked one, then the peers in their order
	Providers     []Provider  `json:"providers,omitempty"`     // in the configured order
	Configuration Bytes       `json:"configuration,omitempty"` // the operator's for this policy, canonical JSON; empty: none
}

const sizeSelectLayoutIn = 144

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
	e.u32(at+68, x.Recorded)
	putList(e, at+72, x.Groups, sizeGroup, (*Group).put)
	putList(e, at+84, x.Candidates, sizeCandidate, (*Candidate).put)
	putList(e, at+96, x.Peers, sizePeer, (*Peer).put)
	putList(e, at+108, x.Engines, sizeEngine, (*Engine).put)
	putList(e, at+120, x.Providers, sizeProvider, (*Provider).put)
	e.bytes(at+132, x.Configuration)
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
	x.Recorded = d.u32(at+68, end)
	x.Groups = getList(d, at+72, end, "select_layout_in.groups", (*Group).get)
	x.Candidates = getList(d, at+84, end, "select_layout_in.candidates", (*Candidate).get)
	x.Peers = getList(d, at+96, end, "select_layout_in.peers", (*Peer).get)
	x.Engines = getList(d, at+108, end, "select_layout_in.engines", (*Engine).get)
	x.Providers = getList(d, at+120, end, "select_layout_in.providers", (*Provider).get)
	x.Configuration = d.bytes(at+132, end, "select_layout_in.configuration")
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
	Model         string        `json:"model,omitempty"`
	Layers        uint32        `json:"layers,omitempty"`
	Groups        []Group       `json:"groups,omitempty"`    // that both engines have
	Sides         []Side        `json:"sides,omitempty"`     // source, destination
	Engines       []Engine      `json:"engines,omitempty"`   // source, destination
	Providers     []Provider    `json:"providers,omitempty"` // in the configured order
	Edges         []Edge        `json:"edges,omitempty"`
	Previous      []Alternative `json:"previous,omitempty"`      // answered before for these engines; empty: none
	Configuration Bytes         `json:"configuration,omitempty"` // the operator's for this policy, canonical JSON; empty: none
}

const sizeRemapIn = 120

func (x *RemapIn) put(e *encoder, at int) {
	e.text(at+24, x.Model)
	e.u32(at+32, x.Layers)
	putList(e, at+40, x.Groups, sizeGroup, (*Group).put)
	putList(e, at+52, x.Sides, sizeSide, (*Side).put)
	putList(e, at+64, x.Engines, sizeEngine, (*Engine).put)
	putList(e, at+76, x.Providers, sizeProvider, (*Provider).put)
	putList(e, at+88, x.Edges, sizeEdge, (*Edge).put)
	putList(e, at+100, x.Previous, sizeAlternative, (*Alternative).put)
	e.bytes(at+112, x.Configuration)
}

func (x *RemapIn) get(d *decoder, at, end int) {
	x.Model = d.text(at+24, end, "remap_in.model")
	x.Layers = d.u32(at+32, end)
	x.Groups = getList(d, at+40, end, "remap_in.groups", (*Group).get)
	x.Sides = getList(d, at+52, end, "remap_in.sides", (*Side).get)
	x.Engines = getList(d, at+64, end, "remap_in.engines", (*Engine).get)
	x.Providers = getList(d, at+76, end, "remap_in.providers", (*Provider).get)
	x.Edges = getList(d, at+88, end, "remap_in.edges", (*Edge).get)
	x.Previous = getList(d, at+100, end, "remap_in.previous", (*Alternative).get)
	x.Configuration = d.bytes(at+112, end, "remap_in.configuration")
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
	Reason       string        `json:"reason,omitempty"`       // at most 256 bytes of printable UTF-8
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

// RouteIn is a message of hook route.
type RouteIn struct {
	Model         string     `json:"model,omitempty"`
	Tokens        uint32     `json:"tokens,omitempty"`       // of the request
	Cached        uint32     `json:"cached,omitempty"`       // of them at its start that the destination has already
	Priority      uint32     `json:"priority,omitempty"`     // as asked, 1 (last) to 8 (first), 0: nothing asked
	Deadline      uint32     `json:"deadline,omitempty"`     // ms left, rounded down to two significant bits, 0: none
	Lease         uint32     `json:"lease,omitempty"`        // ms left of the source's lease, rounded down likewise, 0: none
	Chunk         uint32     `json:"chunk,omitempty"`        // configured, in bytes
	Streams       uint32     `json:"streams,omitempty"`      // configured, the most there can be
	Integrity     uint32     `json:"integrity,omitempty"`    // configured, enum integrity: the least there will be
	Recompute     uint32     `json:"recompute,omitempty"`    // 1: recompute may be answered
	Alternatives  []Proven   `json:"alternatives,omitempty"` // of remap's answer, in its order
	Engines       []Engine   `json:"engines,omitempty"`      // source, destination
	Providers     []Provider `json:"providers,omitempty"`    // in the configured order
	Edges         []Edge     `json:"edges,omitempty"`
	Previous      []Decision `json:"previous,omitempty"`      // answered before for these engines; empty: none, else one
	Configuration Bytes      `json:"configuration,omitempty"` // the operator's for this policy, canonical JSON; empty: none
}

const sizeRouteIn = 144

func (x *RouteIn) put(e *encoder, at int) {
	e.text(at+24, x.Model)
	e.u32(at+32, x.Tokens)
	e.u32(at+36, x.Cached)
	e.u32(at+40, x.Priority)
	e.u32(at+44, x.Deadline)
	e.u32(at+48, x.Lease)
	e.u32(at+52, x.Chunk)
	e.u32(at+56, x.Streams)
	e.u32(at+60, x.Integrity)
	e.u32(at+64, x.Recompute)
	putList(e, at+72, x.Alternatives, sizeProven, (*Proven).put)
	putList(e, at+84, x.Engines, sizeEngine, (*Engine).put)
	putList(e, at+96, x.Providers, sizeProvider, (*Provider).put)
	putList(e, at+108, x.Edges, sizeEdge, (*Edge).put)
	putList(e, at+120, x.Previous, sizeDecision, (*Decision).put)
	e.bytes(at+132, x.Configuration)
}

func (x *RouteIn) get(d *decoder, at, end int) {
	x.Model = d.text(at+24, end, "route_in.model")
	x.Tokens = d.u32(at+32, end)
	x.Cached = d.u32(at+36, end)
	x.Priority = d.u32(at+40, end)
	x.Deadline = d.u32(at+44, end)
	x.Lease = d.u32(at+48, end)
	x.Chunk = d.u32(at+52, end)
	x.Streams = d.u32(at+56, end)
	x.Integrity = d.u32(at+60, end)
	x.Recompute = d.u32(at+64, end)
	x.Alternatives = getList(d, at+72, end, "route_in.alternatives", (*Proven).get)
	x.Engines = getList(d, at+84, end, "route_in.engines", (*Engine).get)
	x.Providers = getList(d, at+96, end, "route_in.providers", (*Provider).get)
	x.Edges = getList(d, at+108, end, "route_in.edges", (*Edge).get)
	x.Previous = getList(d, at+120, end, "route_in.previous", (*Decision).get)
	x.Configuration = d.bytes(at+132, end, "route_in.configuration")
}

// Encode returns the message's bytes.
func (x *RouteIn) Encode() []byte { return encode(HookRoute, sizeRouteIn, x.put) }

// DecodeRouteIn reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeRouteIn(b []byte) (*RouteIn, error) {
	x := new(RouteIn)
	if err := decode(b, HookRoute, "route_in", x.get); err != nil {
		return nil, err
	}
	return x, nil
}

// RouteOut is a message of hook route.
type RouteOut struct {
	Decisions []Decision `json:"decisions,omitempty"` // exactly one
	Reason    string     `json:"reason,omitempty"`    // at most 256 bytes of printable UTF-8
}

const sizeRouteOut = 48

func (x *RouteOut) put(e *encoder, at int) {
	putList(e, at+24, x.Decisions, sizeDecision, (*Decision).put)
	e.text(at+36, x.Reason)
}

func (x *RouteOut) get(d *decoder, at, end int) {
	x.Decisions = getList(d, at+24, end, "route_out.decisions", (*Decision).get)
	x.Reason = d.text(at+36, end, "route_out.reason")
}

// Encode returns the message's bytes.
func (x *RouteOut) Encode() []byte { return encode(HookRoute, sizeRouteOut, x.put) }

// DecodeRouteOut reads a message; with an error there is none.
//
// Errors: *Error.
func DecodeRouteOut(b []byte) (*RouteOut, error) {
	x := new(RouteOut)
	if err := decode(b, HookRoute, "route_out", x.get); err != nil {
		return nil, err
	}
	return x, nil
}
