// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.

package kvferry

// The version of the records.
const (
	Magic = 0x3146564b
	Major = 1
	Minor = 0
)

// The numbers of hook; they never change.
const (
	HookSelectLayout uint32 = 1 // which layout an engine uses; once an engine, and again when what it knows changes
	HookRemap        uint32 = 2 // which source rank feeds which destination rank; once a pair
	HookRoute        uint32 = 3 // how one transfer goes; optional
)

// The numbers of status; they never change.
const (
	StatusOk          Status = 0
	StatusAgain       Status = 1 // out was too small: nothing is written, the low word is the size needed
	StatusDeclined    Status = 2 // a deliberate no, with a reason
	StatusUnsupported Status = 3
	StatusBadInput    Status = 4
)

// The numbers of axis; they never change.
const (
	AxisLayer     uint32 = 1
	AxisBlock     uint32 = 2
	AxisToken     uint32 = 3
	AxisHead      uint32 = 4
	AxisDim       uint32 = 5
	AxisSlot      uint32 = 6
	AxisChannel   uint32 = 7
	AxisComponent uint32 = 255 // the place of "component" in an order: the item's components lie together there
)

// The numbers of dtype; they never change.
const (
	DtypeFp64    uint32 = 1
	DtypeFp32    uint32 = 2
	DtypeFp16    uint32 = 3
	DtypeBf16    uint32 = 4
	DtypeFp8E4m3 uint32 = 5
	DtypeFp8E5m2 uint32 = 6
	DtypeInt8    uint32 = 7
	DtypeUint8   uint32 = 8
	DtypeFp4     uint32 = 9
	DtypeInt4    uint32 = 10
)

// The numbers of role; they never change.
const (
	RoleSource      uint32 = 1
	RoleDestination uint32 = 2
)

// The numbers of memory; they never change.
const (
	MemoryHost  uint32 = 1
	MemoryCuda  uint32 = 2
	MemoryOther uint32 = 3 // a device of another kind
)

// The numbers of reach, how near the two ranks of an edge are; they never change.
const (
	ReachProcess uint32 = 1 // one address space
	ReachHost    uint32 = 2 // one host
	ReachDomain  uint32 = 3 // one link domain: memory is reached without a network card
	ReachNetwork uint32 = 4
)

// The numbers of mode, how pieces travel; they never change.
const (
	ModeDirect uint32 = 1 // each run goes to its place
	ModeStaged uint32 = 2 // packed on one side, unpacked on the other
)

// The numbers of integrity, digests of what arrived; they never change.
const (
	IntegrityOff    uint32 = 1
	IntegritySample uint32 = 2
	IntegrityFull   uint32 = 3
)

// The numbers of switch; they never change.
const (
	SwitchOff uint32 = 1
	SwitchOn  uint32 = 2
)

// Range is a view of a record: [from, to).
type Range struct{ view }

func (Range) size() uint32 { return 8 }

// From is a field.
func (x Range) From() uint32 { return x.u32(0) }

// To is a field.
func (x Range) To() uint32 { return x.u32(4) }

// Component is a view of a record.
type Component struct{ view }

func (Component) size() uint32 { return 40 }

// Name is a text, not a copy.
func (x Component) Name() []byte { return x.text(0) }

// Heads is a field: 0: no heads; of a state, its channels.
func (x Component) Heads() uint32 { return x.u32(8) }

// Dim is a field.
func (x Component) Dim() uint32 { return x.u32(12) }

// Dtype is a field: enum dtype.
func (x Component) Dtype() uint32 { return x.u32(16) }

// Bits is a field: of one element.
func (x Component) Bits() uint32 { return x.u32(20) }

// Unit is a field: neighbouring heads that a shard never parts, at least 1.
func (x Component) Unit() uint32 { return x.u32(24) }

// TokensPerEntry is a field: at least 1.
func (x Component) TokensPerEntry() uint32 { return x.u32(28) }

// Scales is a field: 1 + the component whose rows this one scales, 0: none.
func (x Component) Scales() uint32 { return x.u32(32) }

// Share is a view of a record: a layer that reads the cache of another.
type Share struct{ view }

func (Share) size() uint32 { return 8 }

// Layer is a field.
func (x Share) Layer() uint32 { return x.u32(0) }

// Owner is a field.
func (x Share) Owner() uint32 { return x.u32(4) }

// Group is a view of a record: layers with the same components, block size and block table.
type Group struct{ view }

func (Group) size() uint32 { return 56 }

// Name is a text, not a copy.
func (x Group) Name() []byte { return x.text(0) }

// State is a field: 1: keeps one state a request and no tokens; its heads are channels, its blocks slots.
func (x Group) State() uint32 { return x.u32(8) }

// Optional is a field: 1: an engine may lack it.
func (x Group) Optional() uint32 { return x.u32(12) }

// Window is a field: tokens back that the layers look, 0: all.
func (x Group) Window() uint32 { return x.u32(16) }

// Layers is a list.
func (x Group) Layers() List[Range] { return listAt[Range](x.view, 20) }

// Components is a list.
func (x Group) Components() List[Component] { return listAt[Component](x.view, 32) }

// Shared is a list.
func (x Group) Shared() List[Share] { return listAt[Share](x.view, 44) }

// Label is a view of a record: an operator's words about an engine or a rank.
type Label struct{ view }

func (Label) size() uint32 { return 16 }

// Key is a text, not a copy.
func (x Label) Key() []byte { return x.text(0) }

// Value is a text, not a copy.
func (x Label) Value() []byte { return x.text(8) }

// Device is a view of a record: that a rank's cache lies on; a rank in host memory has none.
type Device struct{ view }

func (Device) size() uint32 { return 16 }

// ID is a text, not a copy: as the host's tools name it: a UUID, a PCI address.
func (x Device) ID() []byte { return x.text(0) }

// Kind is a field: enum memory.
func (x Device) Kind() uint32 { return x.u32(8) }

// NUMA is a field: 1 + its NUMA node, 0: not known.
func (x Device) NUMA() uint32 { return x.u32(12) }

// Rail is a view of a record: a network interface that a rank may use.
type Rail struct{ view }

func (Rail) size() uint32 { return 24 }

// Name is a text, not a copy.
func (x Rail) Name() []byte { return x.text(0) }

// NUMA is a field: 1 + its NUMA node, 0: not known.
func (x Rail) NUMA() uint32 { return x.u32(8) }

// Gbits is a field: a second, 0: not known.
func (x Rail) Gbits() uint32 { return x.u32(12) }

// Load is a field: 1 (idle) to 8 (busiest), 0: not known.
func (x Rail) Load() uint32 { return x.u32(16) }

// Place is a view of a record: where a rank runs.
type Place struct{ view }

func (Place) size() uint32 { return 72 }

// Rank is a field.
func (x Place) Rank() uint32 { return x.u32(0) }

// NUMA is a field: 1 + its NUMA node, 0: not known.
func (x Place) NUMA() uint32 { return x.u32(4) }

// Load is a field: of what it gives and takes: 1 (idle) to 8 (busiest), 0: not known.
func (x Place) Load() uint32 { return x.u32(8) }

// Host is a text, not a copy: empty: not known.
func (x Place) Host() []byte { return x.text(16) }

// Domain is a text, not a copy: its link domain; empty: none, or not known.
func (x Place) Domain() []byte { return x.text(24) }

// Devices is a list.
func (x Place) Devices() List[Device] { return listAt[Device](x.view, 32) }

// Rails is a list.
func (x Place) Rails() List[Rail] { return listAt[Rail](x.view, 44) }

// Labels is a list.
func (x Place) Labels() List[Label] { return listAt[Label](x.view, 56) }

// Engine is a view of a record: what is known of an engine besides its cache.
type Engine struct{ view }

func (Engine) size() uint32 { return 48 }

// Name is a text, not a copy.
func (x Engine) Name() []byte { return x.text(0) }

// Software is a text, not a copy: "vllm", "sglang", ...; empty: not known.
func (x Engine) Software() []byte { return x.text(8) }

// Version is a text, not a copy: of the software.
func (x Engine) Version() []byte { return x.text(16) }

// Labels is a list.
func (x Engine) Labels() List[Label] { return listAt[Label](x.view, 24) }

// Places is a list: by rank number; empty: not known.
func (x Engine) Places() List[Place] { return listAt[Place](x.view, 36) }

// Provider is a view of a record: a configured transport.
type Provider struct{ view }

func (Provider) size() uint32 { return 40 }

// Name is a text, not a copy.
func (x Provider) Name() []byte { return x.text(0) }

// Memories is a field: bit i: moves memory of kind i of enum memory.
func (x Provider) Memories() uint32 { return x.u32(8) }

// OneSided is a field: 1: the reader reaches the owner's memory by itself.
func (x Provider) OneSided() uint32 { return x.u32(12) }

// PeerCPU is a field: 1: needs the other process to run.
func (x Provider) PeerCPU() uint32 { return x.u32(16) }

// Strides is a field: 1: takes strided runs as they are.
func (x Provider) Strides() uint32 { return x.u32(20) }

// CRC is a field: enum switch.
func (x Provider) CRC() uint32 { return x.u32(24) }

// TLS is a field: enum switch.
func (x Provider) TLS() uint32 { return x.u32(28) }

// Piece is a field: smallest piece in bytes that moves at full speed, 0: not known.
func (x Provider) Piece() uint64 { return x.u64(32) }

// Edge is a view of a record: pairs of ranks that are connected alike; no pair stands in two of them.
type Edge struct{ view }

func (Edge) size() uint32 { return 32 }

// Providers is a field: bit i: provider i of the message can serve them.
func (x Edge) Providers() uint64 { return x.u64(0) }

// SourceFrom is a field: the ranks [source_from, source_to) of the source.
func (x Edge) SourceFrom() uint32 { return x.u32(8) }

// SourceTo is a field.
func (x Edge) SourceTo() uint32 { return x.u32(12) }

// DestinationFrom is a field.
func (x Edge) DestinationFrom() uint32 { return x.u32(16) }

// DestinationTo is a field.
func (x Edge) DestinationTo() uint32 { return x.u32(20) }

// Reach is a field: enum reach, 0: not known.
func (x Edge) Reach() uint32 { return x.u32(24) }

// Load is a field: 1 (idle) to 8 (busiest), 0: not known.
func (x Edge) Load() uint32 { return x.u32(28) }

// Item is a view of a record: one item of an order, outermost first: axis[%mod][/div]; mod 0 is the whole axis.
type Item struct{ view }

func (Item) size() uint32 { return 24 }

// Components is a field: bit i: stands in the order of component i of the group; 0: of all.
func (x Item) Components() uint64 { return x.u64(0) }

// Axis is a field: enum axis.
func (x Item) Axis() uint32 { return x.u32(8) }

// Mod is a field.
func (x Item) Mod() uint32 { return x.u32(12) }

// Div is a field.
func (x Item) Div() uint32 { return x.u32(16) }

// Cost is a view of a record: what a request of 4096 tokens takes to move between two candidates, from the host's own arithmetic.
type Cost struct{ view }

func (Cost) size() uint32 { return 24 }

// Peer is a field: index in peers.
func (x Cost) Peer() uint32 { return x.u32(0) }

// Candidate is a field: index in that peer's candidates.
func (x Cost) Candidate() uint32 { return x.u32(4) }

// Pieces is a field: contiguous copies.
func (x Cost) Pieces() uint64 { return x.u64(8) }

// Bytes is a field.
func (x Cost) Bytes() uint64 { return x.u64(16) }

// GroupLayout is a view of a record: how a candidate keeps one group.
type GroupLayout struct{ view }

func (GroupLayout) size() uint32 { return 48 }

// Order is a list: of a kernel block where there are any.
func (x GroupLayout) Order() List[Item] { return listAt[Item](x.view, 0) }

// Group is a field: index in the message's groups.
func (x GroupLayout) Group() uint32 { return x.u32(12) }

// Block is a field: tokens, 1 in a state.
func (x GroupLayout) Block() uint32 { return x.u32(16) }

// Blocks is a field.
func (x GroupLayout) Blocks() uint32 { return x.u32(20) }

// Ring is a field: blocks that a request goes round in, 0: none.
func (x GroupLayout) Ring() uint32 { return x.u32(24) }

// KernelBlock is a field: tokens; a block is that many several times over, 0: none.
func (x GroupLayout) KernelBlock() uint32 { return x.u32(28) }

// TP is a field: the group's own shard, or the engine's.
func (x GroupLayout) TP() uint32 { return x.u32(32) }

// Stages is a field.
func (x GroupLayout) Stages() uint32 { return x.u32(36) }

// DCP is a field.
func (x GroupLayout) DCP() uint32 { return x.u32(40) }

// Interleave is a field.
func (x GroupLayout) Interleave() uint32 { return x.u32(44) }

// Candidate is a view of a record: a layout that the engine's attention can read and write.
type Candidate struct{ view }

func (Candidate) size() uint32 { return 40 }

// Name is a text, not a copy.
func (x Candidate) Name() []byte { return x.text(0) }

// Layouts is a list: of each group that the message names and the engine has.
func (x Candidate) Layouts() List[GroupLayout] { return listAt[GroupLayout](x.view, 8) }

// Attention is a field: what attention costs more on it than on the best, in per cent.
func (x Candidate) Attention() uint32 { return x.u32(20) }

// Costs is a list: absent for what cannot be planned.
func (x Candidate) Costs() List[Cost] { return listAt[Cost](x.view, 24) }

// Peer is a view of a record: an engine that the configuration expects to meet.
type Peer struct{ view }

func (Peer) size() uint32 { return 48 }

// Engine is a text, not a copy.
func (x Peer) Engine() []byte { return x.text(0) }

// TP is a field.
func (x Peer) TP() uint32 { return x.u32(8) }

// Stages is a field.
func (x Peer) Stages() uint32 { return x.u32(12) }

// DCP is a field.
func (x Peer) DCP() uint32 { return x.u32(16) }

// Interleave is a field.
func (x Peer) Interleave() uint32 { return x.u32(20) }

// Candidates is a list.
func (x Peer) Candidates() List[Candidate] { return listAt[Candidate](x.view, 24) }

// Edges is a list: between the two engines; ranks of the asked engine stand on the side of its role.
func (x Peer) Edges() List[Edge] { return listAt[Edge](x.view, 36) }

// Pool is a view of a record.
type Pool struct{ view }

func (Pool) size() uint32 { return 16 }

// Block is a field: tokens a block, on each rank; 1 in a state.
func (x Pool) Block() uint32 { return x.u32(0) }

// Blocks is a field.
func (x Pool) Blocks() uint32 { return x.u32(4) }

// Ring is a field: blocks that a request goes round in, 0: none.
func (x Pool) Ring() uint32 { return x.u32(8) }

// Part is a view of a record: what a rank holds of a group's components that are dealt alike.
type Part struct{ view }

func (Part) size() uint32 { return 48 }

// Components is a field: bit i: component i of the group.
func (x Part) Components() uint64 { return x.u64(0) }

// Group is a field.
func (x Part) Group() uint32 { return x.u32(8) }

// DCPSize is a field: token t is held where (t / interleave) mod dcp_size == dcp_phase.
func (x Part) DCPSize() uint32 { return x.u32(12) }

// DCPInterleave is a field.
func (x Part) DCPInterleave() uint32 { return x.u32(16) }

// DCPPhase is a field.
func (x Part) DCPPhase() uint32 { return x.u32(20) }

// Layers is a list.
func (x Part) Layers() List[Range] { return listAt[Range](x.view, 24) }

// Heads is a list: in storage order; empty for components without heads.
func (x Part) Heads() List[Range] { return listAt[Range](x.view, 36) }

// Rank is a view of a record.
type Rank struct{ view }

func (Rank) size() uint32 { return 32 }

// Rank is a field.
func (x Rank) Rank() uint32 { return x.u32(0) }

// PP is a field: its place in the engine's shard; a group may have another, by its parts.
func (x Rank) PP() uint32 { return x.u32(4) }

// TP is a field.
func (x Rank) TP() uint32 { return x.u32(8) }

// DCP is a field.
func (x Rank) DCP() uint32 { return x.u32(12) }

// Parts is a list.
func (x Rank) Parts() List[Part] { return listAt[Part](x.view, 16) }

// Side is a view of a record.
type Side struct{ view }

func (Side) size() uint32 { return 48 }

// Engine is a text, not a copy.
func (x Side) Engine() []byte { return x.text(0) }

// TP is a field.
func (x Side) TP() uint32 { return x.u32(8) }

// Stages is a field.
func (x Side) Stages() uint32 { return x.u32(12) }

// DCP is a field.
func (x Side) DCP() uint32 { return x.u32(16) }

// Interleave is a field.
func (x Side) Interleave() uint32 { return x.u32(20) }

// Pools is a list: by group.
func (x Side) Pools() List[Pool] { return listAt[Pool](x.view, 24) }

// Ranks is a list: by rank number.
func (x Side) Ranks() List[Rank] { return listAt[Rank](x.view, 36) }

// Assignment is a view of a record: the destination rank takes a box from the source rank.
type Assignment struct{ view }

func (Assignment) size() uint32 { return 48 }

// Components is a field: bit i: component i of the group; components of one box have equally many heads.
func (x Assignment) Components() uint64 { return x.u64(0) }

// SetComponents writes it.
func (x Assignment) SetComponents(v uint64) { x.set64(0, v) }

// Group is a field.
func (x Assignment) Group() uint32 { return x.u32(8) }

// SetGroup writes it.
func (x Assignment) SetGroup(v uint32) { x.set32(8, v) }

// Destination is a field.
func (x Assignment) Destination() uint32 { return x.u32(12) }

// SetDestination writes it.
func (x Assignment) SetDestination(v uint32) { x.set32(12, v) }

// Source is a field.
func (x Assignment) Source() uint32 { return x.u32(16) }

// SetSource writes it.
func (x Assignment) SetSource(v uint32) { x.set32(16, v) }

// LayerFrom is a field.
func (x Assignment) LayerFrom() uint32 { return x.u32(20) }

// SetLayerFrom writes it.
func (x Assignment) SetLayerFrom(v uint32) { x.set32(20, v) }

// LayerTo is a field.
func (x Assignment) LayerTo() uint32 { return x.u32(24) }

// SetLayerTo writes it.
func (x Assignment) SetLayerTo(v uint32) { x.set32(24, v) }

// HeadFrom is a field.
func (x Assignment) HeadFrom() uint32 { return x.u32(28) }

// SetHeadFrom writes it.
func (x Assignment) SetHeadFrom(v uint32) { x.set32(28, v) }

// HeadTo is a field.
func (x Assignment) HeadTo() uint32 { return x.u32(32) }

// SetHeadTo writes it.
func (x Assignment) SetHeadTo(v uint32) { x.set32(32, v) }

// TokenSize is a field: 0: all tokens; else those with (t / token_interleave) mod token_size == token_phase.
func (x Assignment) TokenSize() uint32 { return x.u32(36) }

// SetTokenSize writes it.
func (x Assignment) SetTokenSize(v uint32) { x.set32(36, v) }

// TokenInterleave is a field.
func (x Assignment) TokenInterleave() uint32 { return x.u32(40) }

// SetTokenInterleave writes it.
func (x Assignment) SetTokenInterleave(v uint32) { x.set32(40, v) }

// TokenPhase is a field.
func (x Assignment) TokenPhase() uint32 { return x.u32(44) }

// SetTokenPhase writes it.
func (x Assignment) SetTokenPhase(v uint32) { x.set32(44, v) }

// Alternative is a view of a record: assignments that together give the destination all it needs.
type Alternative struct{ view }

func (Alternative) size() uint32 { return 16 }

// Assignments is a list.
func (x Alternative) Assignments() List[Assignment] { return listAt[Assignment](x.view, 0) }

// SetAssignments points it at records of the answer.
func (x Alternative) SetAssignments(l Records[Assignment]) { x.setList(0, l.at, l.count, 48) }

// Flow is a view of a record: what moves between two ranks, for a request of 4096 tokens.
type Flow struct{ view }

func (Flow) size() uint32 { return 24 }

// Bytes is a field.
func (x Flow) Bytes() uint64 { return x.u64(0) }

// Pieces is a field: contiguous copies.
func (x Flow) Pieces() uint64 { return x.u64(8) }

// Source is a field.
func (x Flow) Source() uint32 { return x.u32(16) }

// Destination is a field.
func (x Flow) Destination() uint32 { return x.u32(20) }

// Proven is a view of a record: one of remap's alternatives, proved.
type Proven struct{ view }

func (Proven) size() uint32 { return 32 }

// Bytes is a field: of a request of 4096 tokens.
func (x Proven) Bytes() uint64 { return x.u64(0) }

// Pieces is a field.
func (x Proven) Pieces() uint64 { return x.u64(8) }

// Flows is a list.
func (x Proven) Flows() List[Flow] { return listAt[Flow](x.view, 16) }

// Transport is a view of a record.
type Transport struct{ view }

func (Transport) size() uint32 { return 8 }

// Provider is a field: index in the question's providers.
func (x Transport) Provider() uint32 { return x.u32(0) }

// SetProvider writes it.
func (x Transport) SetProvider(v uint32) { x.set32(0, v) }

// RailChoice is a view of a record: a rank uses one of its rails; ranks that are not named are not bound.
type RailChoice struct{ view }

func (RailChoice) size() uint32 { return 16 }

// Side is a field: enum role.
func (x RailChoice) Side() uint32 { return x.u32(0) }

// SetSide writes it.
func (x RailChoice) SetSide(v uint32) { x.set32(0, v) }

// Rank is a field.
func (x RailChoice) Rank() uint32 { return x.u32(4) }

// SetRank writes it.
func (x RailChoice) SetRank(v uint32) { x.set32(4, v) }

// Rail is a field: index in the rank's rails.
func (x RailChoice) Rail() uint32 { return x.u32(8) }

// SetRail writes it.
func (x RailChoice) SetRail(v uint32) { x.set32(8, v) }

// Decision is a view of a record: how a transfer goes; zero leaves a thing to the host, as configured.
type Decision struct{ view }

func (Decision) size() uint32 { return 64 }

// Alternative is a field: index in the question's alternatives.
func (x Decision) Alternative() uint32 { return x.u32(0) }

// SetAlternative writes it.
func (x Decision) SetAlternative(v uint32) { x.set32(0, v) }

// Mode is a field: enum mode.
func (x Decision) Mode() uint32 { return x.u32(4) }

// SetMode writes it.
func (x Decision) SetMode(v uint32) { x.set32(4, v) }

// Permute is a field: enum role: the side that brings elements into the other's order.
func (x Decision) Permute() uint32 { return x.u32(8) }

// SetPermute writes it.
func (x Decision) SetPermute(v uint32) { x.set32(8, v) }

// Chunk is a field: bytes that travel as one.
func (x Decision) Chunk() uint32 { return x.u32(12) }

// SetChunk writes it.
func (x Decision) SetChunk(v uint32) { x.set32(12, v) }

// Streams is a field: connections in parallel.
func (x Decision) Streams() uint32 { return x.u32(16) }

// SetStreams writes it.
func (x Decision) SetStreams(v uint32) { x.set32(16, v) }

// Priority is a field: 1 (last) to 8 (first).
func (x Decision) Priority() uint32 { return x.u32(20) }

// SetPriority writes it.
func (x Decision) SetPriority(v uint32) { x.set32(20, v) }

// Integrity is a field: enum integrity.
func (x Decision) Integrity() uint32 { return x.u32(24) }

// SetIntegrity writes it.
func (x Decision) SetIntegrity(v uint32) { x.set32(24, v) }

// CRC is a field: enum switch.
func (x Decision) CRC() uint32 { return x.u32(28) }

// SetCRC writes it.
func (x Decision) SetCRC(v uint32) { x.set32(28, v) }

// TLS is a field: enum switch.
func (x Decision) TLS() uint32 { return x.u32(32) }

// SetTLS writes it.
func (x Decision) SetTLS(v uint32) { x.set32(32, v) }

// Recompute is a field: 1: nothing moves, the destination computes the tokens itself.
func (x Decision) Recompute() uint32 { return x.u32(36) }

// SetRecompute writes it.
func (x Decision) SetRecompute(v uint32) { x.set32(36, v) }

// Transports is a list: in order of preference; no other is tried; empty: all, as configured.
func (x Decision) Transports() List[Transport] { return listAt[Transport](x.view, 40) }

// SetTransports points it at records of the answer.
func (x Decision) SetTransports(l Records[Transport]) { x.setList(40, l.at, l.count, 8) }

// Rails is a list.
func (x Decision) Rails() List[RailChoice] { return listAt[RailChoice](x.view, 52) }

// SetRails points it at records of the answer.
func (x Decision) SetRails(l Records[RailChoice]) { x.setList(52, l.at, l.count, 16) }

// SelectLayoutIn is a view of a message: the question of select_layout.
type SelectLayoutIn struct{ view }

func (SelectLayoutIn) size() uint32 { return 144 }

func (SelectLayoutIn) hook() uint32 { return HookSelectLayout }

// Engine is a text, not a copy.
func (x SelectLayoutIn) Engine() []byte { return x.text(24) }

// Model is a text, not a copy.
func (x SelectLayoutIn) Model() []byte { return x.text(32) }

// Role is a field: enum role.
func (x SelectLayoutIn) Role() uint32 { return x.u32(40) }

// Layers is a field.
func (x SelectLayoutIn) Layers() uint32 { return x.u32(44) }

// TP is a field.
func (x SelectLayoutIn) TP() uint32 { return x.u32(48) }

// Stages is a field.
func (x SelectLayoutIn) Stages() uint32 { return x.u32(52) }

// DCP is a field.
func (x SelectLayoutIn) DCP() uint32 { return x.u32(56) }

// Interleave is a field.
func (x SelectLayoutIn) Interleave() uint32 { return x.u32(60) }

// Previous is a field: 1 + the index answered before, 0: none.
func (x SelectLayoutIn) Previous() uint32 { return x.u32(64) }

// Recorded is a field: 1 + the index that the fleet has on record for this engine, 0: none.
func (x SelectLayoutIn) Recorded() uint32 { return x.u32(68) }

// Groups is a list: of the engine.
func (x SelectLayoutIn) Groups() List[Group] { return listAt[Group](x.view, 72) }

// Candidates is a list.
func (x SelectLayoutIn) Candidates() List[Candidate] { return listAt[Candidate](x.view, 84) }

// Peers is a list.
func (x SelectLayoutIn) Peers() List[Peer] { return listAt[Peer](x.view, 96) }

// Engines is a list: the asked one, then the peers in their order.
func (x SelectLayoutIn) Engines() List[Engine] { return listAt[Engine](x.view, 108) }

// Providers is a list: in the configured order.
func (x SelectLayoutIn) Providers() List[Provider] { return listAt[Provider](x.view, 120) }

// Configuration is a text, not a copy: the operator's for this policy, canonical JSON; empty: none.
func (x SelectLayoutIn) Configuration() []byte { return x.text(132) }

// SelectLayoutOut is a view of a message: the answer to select_layout.
type SelectLayoutOut struct{ view }

func (SelectLayoutOut) size() uint32 { return 40 }

func (SelectLayoutOut) hook() uint32 { return HookSelectLayout }

// Index is a field: of the candidate chosen.
func (x SelectLayoutOut) Index() uint32 { return x.u32(24) }

// SetIndex writes it.
func (x SelectLayoutOut) SetIndex(v uint32) { x.set32(24, v) }

// Reason is a text, not a copy: at most 256 bytes of printable UTF-8.
func (x SelectLayoutOut) Reason() []byte { return x.text(32) }

// SetReason points it at a text of the answer.
func (x SelectLayoutOut) SetReason(t Text) { x.setText(32, t) }

// RemapIn is a view of a message: the question of remap.
type RemapIn struct{ view }

func (RemapIn) size() uint32 { return 120 }

func (RemapIn) hook() uint32 { return HookRemap }

// Model is a text, not a copy.
func (x RemapIn) Model() []byte { return x.text(24) }

// Layers is a field.
func (x RemapIn) Layers() uint32 { return x.u32(32) }

// Groups is a list: that both engines have.
func (x RemapIn) Groups() List[Group] { return listAt[Group](x.view, 40) }

// Sides is a list: source, destination.
func (x RemapIn) Sides() List[Side] { return listAt[Side](x.view, 52) }

// Engines is a list: source, destination.
func (x RemapIn) Engines() List[Engine] { return listAt[Engine](x.view, 64) }

// Providers is a list: in the configured order.
func (x RemapIn) Providers() List[Provider] { return listAt[Provider](x.view, 76) }

// Edges is a list.
func (x RemapIn) Edges() List[Edge] { return listAt[Edge](x.view, 88) }

// Previous is a list: answered before for these engines; empty: none.
func (x RemapIn) Previous() List[Alternative] { return listAt[Alternative](x.view, 100) }

// Configuration is a text, not a copy: the operator's for this policy, canonical JSON; empty: none.
func (x RemapIn) Configuration() []byte { return x.text(112) }

// RemapOut is a view of a message: the answer to remap.
type RemapOut struct{ view }

func (RemapOut) size() uint32 { return 48 }

func (RemapOut) hook() uint32 { return HookRemap }

// Alternatives is a list: at most 8, best first.
func (x RemapOut) Alternatives() List[Alternative] { return listAt[Alternative](x.view, 24) }

// SetAlternatives points it at records of the answer.
func (x RemapOut) SetAlternatives(l Records[Alternative]) { x.setList(24, l.at, l.count, 16) }

// Reason is a text, not a copy: at most 256 bytes of printable UTF-8.
func (x RemapOut) Reason() []byte { return x.text(36) }

// SetReason points it at a text of the answer.
func (x RemapOut) SetReason(t Text) { x.setText(36, t) }

// RouteIn is a view of a message: the question of route.
type RouteIn struct{ view }

func (RouteIn) size() uint32 { return 144 }

func (RouteIn) hook() uint32 { return HookRoute }

// Model is a text, not a copy.
func (x RouteIn) Model() []byte { return x.text(24) }

// Tokens is a field: of the request.
func (x RouteIn) Tokens() uint32 { return x.u32(32) }

// Cached is a field: of them at its start that the destination has already.
func (x RouteIn) Cached() uint32 { return x.u32(36) }

// Priority is a field: as asked, 1 (last) to 8 (first), 0: nothing asked.
func (x RouteIn) Priority() uint32 { return x.u32(40) }

// Deadline is a field: ms left, rounded down to two significant bits, 0: none.
func (x RouteIn) Deadline() uint32 { return x.u32(44) }

// Lease is a field: ms left of the source's lease, rounded down likewise, 0: none.
func (x RouteIn) Lease() uint32 { return x.u32(48) }

// Chunk is a field: configured, in bytes.
func (x RouteIn) Chunk() uint32 { return x.u32(52) }

// Streams is a field: configured, the most there can be.
func (x RouteIn) Streams() uint32 { return x.u32(56) }

// Integrity is a field: configured, enum integrity: the least there will be.
func (x RouteIn) Integrity() uint32 { return x.u32(60) }

// Recompute is a field: 1: recompute may be answered.
func (x RouteIn) Recompute() uint32 { return x.u32(64) }

// Alternatives is a list: of remap's answer, in its order.
func (x RouteIn) Alternatives() List[Proven] { return listAt[Proven](x.view, 72) }

// Engines is a list: source, destination.
func (x RouteIn) Engines() List[Engine] { return listAt[Engine](x.view, 84) }

// Providers is a list: in the configured order.
func (x RouteIn) Providers() List[Provider] { return listAt[Provider](x.view, 96) }

// Edges is a list.
func (x RouteIn) Edges() List[Edge] { return listAt[Edge](x.view, 108) }

// Previous is a list: answered before for these engines; empty: none, else one.
func (x RouteIn) Previous() List[Decision] { return listAt[Decision](x.view, 120) }

// Configuration is a text, not a copy: the operator's for this policy, canonical JSON; empty: none.
func (x RouteIn) Configuration() []byte { return x.text(132) }

// RouteOut is a view of a message: the answer to route.
type RouteOut struct{ view }

func (RouteOut) size() uint32 { return 48 }

func (RouteOut) hook() uint32 { return HookRoute }

// Decisions is a list: exactly one.
func (x RouteOut) Decisions() List[Decision] { return listAt[Decision](x.view, 24) }

// SetDecisions points it at records of the answer.
func (x RouteOut) SetDecisions(l Records[Decision]) { x.setList(24, l.at, l.count, 64) }

// Reason is a text, not a copy: at most 256 bytes of printable UTF-8.
func (x RouteOut) Reason() []byte { return x.text(36) }

// SetReason points it at a text of the answer.
func (x RouteOut) SetReason(t Text) { x.setText(36, t) }
