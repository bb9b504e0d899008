// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.

use crate::{Header, List, Message, Question, Record, Reply, Text, Zero};

pub const MAGIC: u32 = 0x3146564b;
pub const MAJOR: u32 = 1;
pub const MINOR: u32 = 0;

/// The numbers of hook; they never change.
pub mod hook {
    /// which layout an engine uses; once an engine, and again when what it knows changes
    pub const SELECT_LAYOUT: u32 = 1;
    /// which source rank feeds which destination rank; once a pair
    pub const REMAP: u32 = 2;
    /// how one transfer goes; optional
    pub const ROUTE: u32 = 3;
}

/// The numbers of status; they never change.
pub mod status {
    pub const OK: u32 = 0;
    /// out was too small: nothing is written, the low word is the size needed
    pub const AGAIN: u32 = 1;
    /// a deliberate no, with a reason
    pub const DECLINED: u32 = 2;
    pub const UNSUPPORTED: u32 = 3;
    pub const BAD_INPUT: u32 = 4;
}

/// The numbers of axis; they never change.
pub mod axis {
    pub const LAYER: u32 = 1;
    pub const BLOCK: u32 = 2;
    pub const TOKEN: u32 = 3;
    pub const HEAD: u32 = 4;
    pub const DIM: u32 = 5;
    pub const SLOT: u32 = 6;
    pub const CHANNEL: u32 = 7;
    /// the place of "component" in an order: the item's components lie together there
    pub const COMPONENT: u32 = 255;
}

/// The numbers of dtype; they never change.
pub mod dtype {
    pub const FP64: u32 = 1;
    pub const FP32: u32 = 2;
    pub const FP16: u32 = 3;
    pub const BF16: u32 = 4;
    pub const FP8_E4M3: u32 = 5;
    pub const FP8_E5M2: u32 = 6;
    pub const INT8: u32 = 7;
    pub const UINT8: u32 = 8;
    pub const FP4: u32 = 9;
    pub const INT4: u32 = 10;
}

/// The numbers of role; they never change.
pub mod role {
    pub const SOURCE: u32 = 1;
    pub const DESTINATION: u32 = 2;
}

/// The numbers of memory; they never change.
pub mod memory {
    pub const HOST: u32 = 1;
    pub const CUDA: u32 = 2;
    /// a device of another kind
    pub const OTHER: u32 = 3;
}

/// The numbers of reach, how near the two ranks of an edge are; they never change.
pub mod reach {
    /// one address space
    pub const PROCESS: u32 = 1;
    /// one host
    pub const HOST: u32 = 2;
    /// one link domain: memory is reached without a network card
    pub const DOMAIN: u32 = 3;
    pub const NETWORK: u32 = 4;
}

/// The numbers of mode, how pieces travel; they never change.
pub mod mode {
    /// each run goes to its place
    pub const DIRECT: u32 = 1;
    /// packed on one side, unpacked on the other
    pub const STAGED: u32 = 2;
}

/// The numbers of integrity, digests of what arrived; they never change.
pub mod integrity {
    pub const OFF: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const FULL: u32 = 3;
}

/// The numbers of switch; they never change.
pub mod switch {
    pub const OFF: u32 = 1;
    pub const ON: u32 = 2;
}

/// record: \[from, to)
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Range {
    pub from: u32,
    pub to: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Range {}
unsafe impl Zero for Range {}
const _: () = assert!(core::mem::size_of::<Range>() == 8);

/// record
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Component {
    pub name: Text,
    /// 0: no heads; of a state, its channels
    pub heads: u32,
    pub dim: u32,
    /// enum dtype
    pub dtype: u32,
    /// of one element
    pub bits: u32,
    /// neighbouring heads that a shard never parts, at least 1
    pub unit: u32,
    /// at least 1
    pub tokens_per_entry: u32,
    /// 1 + the component whose rows this one scales, 0: none
    pub scales: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Component {}
unsafe impl Zero for Component {}
const _: () = assert!(core::mem::size_of::<Component>() == 40);

/// record: a layer that reads the cache of another
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Share {
    pub layer: u32,
    pub owner: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Share {}
unsafe impl Zero for Share {}
const _: () = assert!(core::mem::size_of::<Share>() == 8);

/// record: layers with the same components, block size and block table
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Group {
    pub name: Text,
    /// 1: keeps one state a request and no tokens; its heads are channels, its blocks slots
    pub state: u32,
    /// 1: an engine may lack it
    pub optional: u32,
    /// tokens back that the layers look, 0: all
    pub window: u32,
    pub layers: List<Range>,
    pub components: List<Component>,
    pub shared: List<Share>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Group {}
unsafe impl Zero for Group {}
const _: () = assert!(core::mem::size_of::<Group>() == 56);

/// record: an operator's words about an engine or a rank
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Label {
    pub key: Text,
    pub value: Text,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Label {}
unsafe impl Zero for Label {}
const _: () = assert!(core::mem::size_of::<Label>() == 16);

/// record: that a rank's cache lies on; a rank in host memory has none
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Device {
    /// as the host's tools name it: a UUID, a PCI address
    pub id: Text,
    /// enum memory
    pub kind: u32,
    /// 1 + its NUMA node, 0: not known
    pub numa: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Device {}
unsafe impl Zero for Device {}
const _: () = assert!(core::mem::size_of::<Device>() == 16);

/// record: a network interface that a rank may use
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Rail {
    pub name: Text,
    /// 1 + its NUMA node, 0: not known
    pub numa: u32,
    /// a second, 0: not known
    pub gbits: u32,
    /// 1 (idle) to 8 (busiest), 0: not known
    pub load: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Rail {}
unsafe impl Zero for Rail {}
const _: () = assert!(core::mem::size_of::<Rail>() == 24);

/// record: where a rank runs
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Place {
    pub rank: u32,
    /// 1 + its NUMA node, 0: not known
    pub numa: u32,
    /// of what it gives and takes: 1 (idle) to 8 (busiest), 0: not known
    pub load: u32,
    pub reserved: u32,
    /// empty: not known
    pub host: Text,
    /// its link domain; empty: none, or not known
    pub domain: Text,
    pub devices: List<Device>,
    pub rails: List<Rail>,
    pub labels: List<Label>,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Place {}
unsafe impl Zero for Place {}
const _: () = assert!(core::mem::size_of::<Place>() == 72);

/// record: what is known of an engine besides its cache
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Engine {
    pub name: Text,
    /// "vllm", "sglang", ...; empty: not known
    pub software: Text,
    /// of the software
    pub version: Text,
    pub labels: List<Label>,
    /// by rank number; empty: not known
    pub places: List<Place>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Engine {}
unsafe impl Zero for Engine {}
const _: () = assert!(core::mem::size_of::<Engine>() == 48);

/// record: a configured transport
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Provider {
    pub name: Text,
    /// bit i: moves memory of kind i of enum memory
    pub memories: u32,
    /// 1: the reader reaches the owner's memory by itself
    pub one_sided: u32,
    /// 1: needs the other process to run
    pub peer_cpu: u32,
    /// 1: takes strided runs as they are
    pub strides: u32,
    /// enum switch
    pub crc: u32,
    /// enum switch
    pub tls: u32,
    /// smallest piece in bytes that moves at full speed, 0: not known
    pub piece: u64,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Provider {}
unsafe impl Zero for Provider {}
const _: () = assert!(core::mem::size_of::<Provider>() == 40);

/// record: pairs of ranks that are connected alike; no pair stands in two of them
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Edge {
    /// bit i: provider i of the message can serve them
    pub providers: u64,
    /// the ranks \[source_from, source_to) of the source
    pub source_from: u32,
    pub source_to: u32,
    pub destination_from: u32,
    pub destination_to: u32,
    /// enum reach, 0: not known
    pub reach: u32,
    /// 1 (idle) to 8 (busiest), 0: not known
    pub load: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Edge {}
unsafe impl Zero for Edge {}
const _: () = assert!(core::mem::size_of::<Edge>() == 32);

/// record: one item of an order, outermost first: axis\[%mod\]\[/div\]; mod 0 is the whole axis
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Item {
    /// bit i: stands in the order of component i of the group; 0: of all
    pub components: u64,
    /// enum axis
    pub axis: u32,
    pub r#mod: u32,
    pub div: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Item {}
unsafe impl Zero for Item {}
const _: () = assert!(core::mem::size_of::<Item>() == 24);

/// record: what a request of 4096 tokens takes to move between two candidates, from the host's own arithmetic
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// index in peers
    pub peer: u32,
    /// index in that peer's candidates
    pub candidate: u32,
    /// contiguous copies
    pub pieces: u64,
    pub bytes: u64,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Cost {}
unsafe impl Zero for Cost {}
const _: () = assert!(core::mem::size_of::<Cost>() == 24);

/// record: how a candidate keeps one group
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GroupLayout {
    /// of a kernel block where there are any
    pub order: List<Item>,
    /// index in the message's groups
    pub group: u32,
    /// tokens, 1 in a state
    pub block: u32,
    pub blocks: u32,
    /// blocks that a request goes round in, 0: none
    pub ring: u32,
    /// tokens; a block is that many several times over, 0: none
    pub kernel_block: u32,
    /// the group's own shard, or the engine's
    pub tp: u32,
    pub stages: u32,
    pub dcp: u32,
    pub interleave: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for GroupLayout {}
unsafe impl Zero for GroupLayout {}
const _: () = assert!(core::mem::size_of::<GroupLayout>() == 48);

/// record: a layout that the engine's attention can read and write
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Candidate {
    pub name: Text,
    /// of each group that the message names and the engine has
    pub layouts: List<GroupLayout>,
    /// what attention costs more on it than on the best, in per cent
    pub attention: u32,
    /// absent for what cannot be planned
    pub costs: List<Cost>,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Candidate {}
unsafe impl Zero for Candidate {}
const _: () = assert!(core::mem::size_of::<Candidate>() == 40);

/// record: an engine that the configuration expects to meet
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Peer {
    pub engine: Text,
    pub tp: u32,
    pub stages: u32,
    pub dcp: u32,
    pub interleave: u32,
    pub candidates: List<Candidate>,
    /// between the two engines; ranks of the asked engine stand on the side of its role
    pub edges: List<Edge>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Peer {}
unsafe impl Zero for Peer {}
const _: () = assert!(core::mem::size_of::<Peer>() == 48);

/// record
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Pool {
    /// tokens a block, on each rank; 1 in a state
    pub block: u32,
    pub blocks: u32,
    /// blocks that a request goes round in, 0: none
    pub ring: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Pool {}
unsafe impl Zero for Pool {}
const _: () = assert!(core::mem::size_of::<Pool>() == 16);

/// record: what a rank holds of a group's components that are dealt alike
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Part {
    /// bit i: component i of the group
    pub components: u64,
    pub group: u32,
    /// token t is held where (t / interleave) mod dcp_size == dcp_phase
    pub dcp_size: u32,
    pub dcp_interleave: u32,
    pub dcp_phase: u32,
    pub layers: List<Range>,
    /// in storage order; empty for components without heads
    pub heads: List<Range>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Part {}
unsafe impl Zero for Part {}
const _: () = assert!(core::mem::size_of::<Part>() == 48);

/// record
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Rank {
    pub rank: u32,
    /// its place in the engine's shard; a group may have another, by its parts
    pub pp: u32,
    pub tp: u32,
    pub dcp: u32,
    pub parts: List<Part>,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Rank {}
unsafe impl Zero for Rank {}
const _: () = assert!(core::mem::size_of::<Rank>() == 32);

/// record
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Side {
    pub engine: Text,
    pub tp: u32,
    pub stages: u32,
    pub dcp: u32,
    pub interleave: u32,
    /// by group
    pub pools: List<Pool>,
    /// by rank number
    pub ranks: List<Rank>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Side {}
unsafe impl Zero for Side {}
const _: () = assert!(core::mem::size_of::<Side>() == 48);

/// record: the destination rank takes a box from the source rank
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Assignment {
    /// bit i: component i of the group; components of one box have equally many heads
    pub components: u64,
    pub group: u32,
    pub destination: u32,
    pub source: u32,
    pub layer_from: u32,
    pub layer_to: u32,
    pub head_from: u32,
    pub head_to: u32,
    /// 0: all tokens; else those with (t / token_interleave) mod token_size == token_phase
    pub token_size: u32,
    pub token_interleave: u32,
    pub token_phase: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Assignment {}
unsafe impl Zero for Assignment {}
const _: () = assert!(core::mem::size_of::<Assignment>() == 48);

/// record: assignments that together give the destination all it needs
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Alternative {
    pub assignments: List<Assignment>,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Alternative {}
unsafe impl Zero for Alternative {}
const _: () = assert!(core::mem::size_of::<Alternative>() == 16);

/// record: what moves between two ranks, for a request of 4096 tokens
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Flow {
    pub bytes: u64,
    /// contiguous copies
    pub pieces: u64,
    pub source: u32,
    pub destination: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Flow {}
unsafe impl Zero for Flow {}
const _: () = assert!(core::mem::size_of::<Flow>() == 24);

/// record: one of remap's alternatives, proved
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Proven {
    /// of a request of 4096 tokens
    pub bytes: u64,
    pub pieces: u64,
    pub flows: List<Flow>,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Proven {}
unsafe impl Zero for Proven {}
const _: () = assert!(core::mem::size_of::<Proven>() == 32);

/// record
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Transport {
    /// index in the question's providers
    pub provider: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Transport {}
unsafe impl Zero for Transport {}
const _: () = assert!(core::mem::size_of::<Transport>() == 8);

/// record: a rank uses one of its rails; ranks that are not named are not bound
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RailChoice {
    /// enum role
    pub side: u32,
    pub rank: u32,
    /// index in the rank's rails
    pub rail: u32,
    pub reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for RailChoice {}
unsafe impl Zero for RailChoice {}
const _: () = assert!(core::mem::size_of::<RailChoice>() == 16);

/// record: how a transfer goes; zero leaves a thing to the host, as configured
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Decision {
    /// index in the question's alternatives
    pub alternative: u32,
    /// enum mode
    pub mode: u32,
    /// enum role: the side that brings elements into the other's order
    pub permute: u32,
    /// bytes that travel as one
    pub chunk: u32,
    /// connections in parallel
    pub streams: u32,
    /// 1 (last) to 8 (first)
    pub priority: u32,
    /// enum integrity
    pub integrity: u32,
    /// enum switch
    pub crc: u32,
    /// enum switch
    pub tls: u32,
    /// 1: nothing moves, the destination computes the tokens itself
    pub recompute: u32,
    /// in order of preference; no other is tried; empty: all, as configured
    pub transports: List<Transport>,
    pub rails: List<RailChoice>,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for Decision {}
unsafe impl Zero for Decision {}
const _: () = assert!(core::mem::size_of::<Decision>() == 64);

/// message: the question of select_layout
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SelectLayoutIn {
    pub header: Header,
    pub engine: Text,
    pub model: Text,
    /// enum role
    pub role: u32,
    pub layers: u32,
    pub tp: u32,
    pub stages: u32,
    pub dcp: u32,
    pub interleave: u32,
    /// 1 + the index answered before, 0: none
    pub previous: u32,
    /// 1 + the index that the fleet has on record for this engine, 0: none
    pub recorded: u32,
    /// of the engine
    pub groups: List<Group>,
    pub candidates: List<Candidate>,
    pub peers: List<Peer>,
    /// the asked one, then the peers in their order
    pub engines: List<Engine>,
    /// in the configured order
    pub providers: List<Provider>,
    /// the operator's for this policy, canonical JSON; empty: none
    pub configuration: Text,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for SelectLayoutIn {}
unsafe impl Zero for SelectLayoutIn {}
const _: () = assert!(core::mem::size_of::<SelectLayoutIn>() == 144);

impl Message for SelectLayoutIn {
    const HOOK: u32 = hook::SELECT_LAYOUT;
}
impl Question for SelectLayoutIn {}

/// message: the answer to select_layout
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SelectLayoutOut {
    pub header: Header,
    /// of the candidate chosen
    pub index: u32,
    pub reserved: u32,
    /// at most 256 bytes of printable UTF-8
    pub reason: Text,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for SelectLayoutOut {}
unsafe impl Zero for SelectLayoutOut {}
const _: () = assert!(core::mem::size_of::<SelectLayoutOut>() == 40);

impl Message for SelectLayoutOut {
    const HOOK: u32 = hook::SELECT_LAYOUT;
}
impl Reply for SelectLayoutOut {
    fn set_reason(&mut self, reason: Text) {
        self.reason = reason;
    }
}

/// message: the question of remap
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RemapIn {
    pub header: Header,
    pub model: Text,
    pub layers: u32,
    pub reserved: u32,
    /// that both engines have
    pub groups: List<Group>,
    /// source, destination
    pub sides: List<Side>,
    /// source, destination
    pub engines: List<Engine>,
    /// in the configured order
    pub providers: List<Provider>,
    pub edges: List<Edge>,
    /// answered before for these engines; empty: none
    pub previous: List<Alternative>,
    /// the operator's for this policy, canonical JSON; empty: none
    pub configuration: Text,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for RemapIn {}
unsafe impl Zero for RemapIn {}
const _: () = assert!(core::mem::size_of::<RemapIn>() == 120);

impl Message for RemapIn {
    const HOOK: u32 = hook::REMAP;
}
impl Question for RemapIn {}

/// message: the answer to remap
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RemapOut {
    pub header: Header,
    /// at most 8, best first
    pub alternatives: List<Alternative>,
    /// at most 256 bytes of printable UTF-8
    pub reason: Text,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for RemapOut {}
unsafe impl Zero for RemapOut {}
const _: () = assert!(core::mem::size_of::<RemapOut>() == 48);

impl Message for RemapOut {
    const HOOK: u32 = hook::REMAP;
}
impl Reply for RemapOut {
    fn set_reason(&mut self, reason: Text) {
        self.reason = reason;
    }
}

/// message: the question of route
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RouteIn {
    pub header: Header,
    pub model: Text,
    /// of the request
    pub tokens: u32,
    /// of them at its start that the destination has already
    pub cached: u32,
    /// as asked, 1 (last) to 8 (first), 0: nothing asked
    pub priority: u32,
    /// ms left, rounded down to two significant bits, 0: none
    pub deadline: u32,
    /// ms left of the source's lease, rounded down likewise, 0: none
    pub lease: u32,
    /// configured, in bytes
    pub chunk: u32,
    /// configured, the most there can be
    pub streams: u32,
    /// configured, enum integrity: the least there will be
    pub integrity: u32,
    /// 1: recompute may be answered
    pub recompute: u32,
    pub reserved: u32,
    /// of remap's answer, in its order
    pub alternatives: List<Proven>,
    /// source, destination
    pub engines: List<Engine>,
    /// in the configured order
    pub providers: List<Provider>,
    pub edges: List<Edge>,
    /// answered before for these engines; empty: none, else one
    pub previous: List<Decision>,
    /// the operator's for this policy, canonical JSON; empty: none
    pub configuration: Text,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for RouteIn {}
unsafe impl Zero for RouteIn {}
const _: () = assert!(core::mem::size_of::<RouteIn>() == 144);

impl Message for RouteIn {
    const HOOK: u32 = hook::ROUTE;
}
impl Question for RouteIn {}

/// message: the answer to route
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RouteOut {
    pub header: Header,
    /// exactly one
    pub decisions: List<Decision>,
    /// at most 256 bytes of printable UTF-8
    pub reason: Text,
    pub tail_reserved: u32,
}

// SAFETY: words only, of which every value is one; no padding.
unsafe impl Record for RouteOut {}
unsafe impl Zero for RouteOut {}
const _: () = assert!(core::mem::size_of::<RouteOut>() == 48);

impl Message for RouteOut {
    const HOOK: u32 = hook::ROUTE;
}
impl Reply for RouteOut {
    fn set_reason(&mut self, reason: Text) {
        self.reason = reason;
    }
}
