// Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT.

export const MAGIC: u32 = 0x3146564b;
export const MAJOR: u32 = 1;
export const MINOR: u32 = 0;

/** The numbers of hook; they never change. */
export namespace Hook {
  /** which layout an engine uses; once an engine, and again when what it knows changes */
  export const SELECT_LAYOUT: u32 = 1;
  /** which source rank feeds which destination rank; once a pair */
  export const REMAP: u32 = 2;
  /** how one transfer goes; optional */
  export const ROUTE: u32 = 3;
}

/** The numbers of status; they never change. */
export namespace Status {
  export const OK: u32 = 0;
  /** out was too small: nothing is written, the low word is the size needed */
  export const AGAIN: u32 = 1;
  /** a deliberate no, with a reason */
  export const DECLINED: u32 = 2;
  export const UNSUPPORTED: u32 = 3;
  export const BAD_INPUT: u32 = 4;
}

/** The numbers of axis; they never change. */
export namespace Axis {
  export const LAYER: u32 = 1;
  export const BLOCK: u32 = 2;
  export const TOKEN: u32 = 3;
  export const HEAD: u32 = 4;
  export const DIM: u32 = 5;
  export const SLOT: u32 = 6;
  export const CHANNEL: u32 = 7;
  /** the place of "component" in an order: the item's components lie together there */
  export const COMPONENT: u32 = 255;
}

/** The numbers of dtype; they never change. */
export namespace Dtype {
  export const FP64: u32 = 1;
  export const FP32: u32 = 2;
  export const FP16: u32 = 3;
  export const BF16: u32 = 4;
  export const FP8_E4M3: u32 = 5;
  export const FP8_E5M2: u32 = 6;
  export const INT8: u32 = 7;
  export const UINT8: u32 = 8;
  export const FP4: u32 = 9;
  export const INT4: u32 = 10;
}

/** The numbers of role; they never change. */
export namespace Role {
  export const SOURCE: u32 = 1;
  export const DESTINATION: u32 = 2;
}

/** The numbers of memory; they never change. */
export namespace Memory {
  export const HOST: u32 = 1;
  export const CUDA: u32 = 2;
  /** a device of another kind */
  export const OTHER: u32 = 3;
}

/** The numbers of reach, how near the two ranks of an edge are; they never change. */
export namespace Reach {
  /** one address space */
  export const PROCESS: u32 = 1;
  /** one host */
  export const HOST: u32 = 2;
  /** one link domain: memory is reached without a network card */
  export const DOMAIN: u32 = 3;
  export const NETWORK: u32 = 4;
}

/** The numbers of mode, how pieces travel; they never change. */
export namespace Mode {
  /** each run goes to its place */
  export const DIRECT: u32 = 1;
  /** packed on one side, unpacked on the other */
  export const STAGED: u32 = 2;
}

/** The numbers of integrity, digests of what arrived; they never change. */
export namespace Integrity {
  export const OFF: u32 = 1;
  export const SAMPLE: u32 = 2;
  export const FULL: u32 = 3;
}

/** The numbers of switch; they never change. */
export namespace Switch {
  export const OFF: u32 = 1;
  export const ON: u32 = 2;
}

/** What every message begins with. */
@unmanaged
export class Header {
  magic: u32;
  version: u32;
  hook: u32;
  record: u32;
  size: u32;
  headerReserved: u32;
}

/** record: [from, to) */
@unmanaged
export class Range {
  from: u32;
  to: u32;
}

/** record */
@unmanaged
export class Component {
  nameAt: u32;
  nameLength: u32;
  /** 0: no heads; of a state, its channels */
  heads: u32;
  dim: u32;
  /** enum dtype */
  dtype: u32;
  /** of one element */
  bits: u32;
  /** neighbouring heads that a shard never parts, at least 1 */
  unit: u32;
  /** at least 1 */
  tokensPerEntry: u32;
  /** 1 + the component whose rows this one scales, 0: none */
  scales: u32;
  reserved: u32;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
}

/** record: a layer that reads the cache of another */
@unmanaged
export class Share {
  layer: u32;
  owner: u32;
}

/** record: layers with the same components, block size and block table */
@unmanaged
export class Group {
  nameAt: u32;
  nameLength: u32;
  /** 1: keeps one state a request and no tokens; its heads are channels, its blocks slots */
  state: u32;
  /** 1: an engine may lack it */
  optional: u32;
  /** tokens back that the layers look, 0: all */
  window: u32;
  /** of Range */
  layersAt: u32;
  layersCount: u32;
  layersStep: u32;
  /** of Component */
  componentsAt: u32;
  componentsCount: u32;
  componentsStep: u32;
  /** of Share */
  sharedAt: u32;
  sharedCount: u32;
  sharedStep: u32;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
  /** Record i of layers in the message at base. */
  @inline layers(base: usize, i: u32): Range {
    return changetype<Range>(base + this.layersAt + i * this.layersStep);
  }
  /** Points layers at records in the answer. */
  @inline setLayers(at: u32, count: u32): void {
    this.layersAt = at;
    this.layersCount = count;
    this.layersStep = 8;
  }
  /** Record i of components in the message at base. */
  @inline components(base: usize, i: u32): Component {
    return changetype<Component>(base + this.componentsAt + i * this.componentsStep);
  }
  /** Points components at records in the answer. */
  @inline setComponents(at: u32, count: u32): void {
    this.componentsAt = at;
    this.componentsCount = count;
    this.componentsStep = 40;
  }
  /** Record i of shared in the message at base. */
  @inline shared(base: usize, i: u32): Share {
    return changetype<Share>(base + this.sharedAt + i * this.sharedStep);
  }
  /** Points shared at records in the answer. */
  @inline setShared(at: u32, count: u32): void {
    this.sharedAt = at;
    this.sharedCount = count;
    this.sharedStep = 8;
  }
}

/** record: an operator's words about an engine or a rank */
@unmanaged
export class Label {
  keyAt: u32;
  keyLength: u32;
  valueAt: u32;
  valueLength: u32;
  /** Points key at something in the answer. */
  @inline setKey(at: u32, length: u32): void {
    this.keyAt = at;
    this.keyLength = length;
  }
  /** Points value at something in the answer. */
  @inline setValue(at: u32, length: u32): void {
    this.valueAt = at;
    this.valueLength = length;
  }
}

/** record: that a rank's cache lies on; a rank in host memory has none */
@unmanaged
export class Device {
  /** as the host's tools name it: a UUID, a PCI address */
  idAt: u32;
  idLength: u32;
  /** enum memory */
  kind: u32;
  /** 1 + its NUMA node, 0: not known */
  numa: u32;
  /** Points id at something in the answer. */
  @inline setId(at: u32, length: u32): void {
    this.idAt = at;
    this.idLength = length;
  }
}

/** record: a network interface that a rank may use */
@unmanaged
export class Rail {
  nameAt: u32;
  nameLength: u32;
  /** 1 + its NUMA node, 0: not known */
  numa: u32;
  /** a second, 0: not known */
  gbits: u32;
  /** 1 (idle) to 8 (busiest), 0: not known */
  load: u32;
  reserved: u32;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
}

/** record: where a rank runs */
@unmanaged
export class Place {
  rank: u32;
  /** 1 + its NUMA node, 0: not known */
  numa: u32;
  /** of what it gives and takes: 1 (idle) to 8 (busiest), 0: not known */
  load: u32;
  reserved: u32;
  /** empty: not known */
  hostAt: u32;
  hostLength: u32;
  /** its link domain; empty: none, or not known */
  domainAt: u32;
  domainLength: u32;
  /** of Device */
  devicesAt: u32;
  devicesCount: u32;
  devicesStep: u32;
  /** of Rail */
  railsAt: u32;
  railsCount: u32;
  railsStep: u32;
  /** of Label */
  labelsAt: u32;
  labelsCount: u32;
  labelsStep: u32;
  tailReserved: u32;
  /** Points host at something in the answer. */
  @inline setHost(at: u32, length: u32): void {
    this.hostAt = at;
    this.hostLength = length;
  }
  /** Points domain at something in the answer. */
  @inline setDomain(at: u32, length: u32): void {
    this.domainAt = at;
    this.domainLength = length;
  }
  /** Record i of devices in the message at base. */
  @inline devices(base: usize, i: u32): Device {
    return changetype<Device>(base + this.devicesAt + i * this.devicesStep);
  }
  /** Points devices at records in the answer. */
  @inline setDevices(at: u32, count: u32): void {
    this.devicesAt = at;
    this.devicesCount = count;
    this.devicesStep = 16;
  }
  /** Record i of rails in the message at base. */
  @inline rails(base: usize, i: u32): Rail {
    return changetype<Rail>(base + this.railsAt + i * this.railsStep);
  }
  /** Points rails at records in the answer. */
  @inline setRails(at: u32, count: u32): void {
    this.railsAt = at;
    this.railsCount = count;
    this.railsStep = 24;
  }
  /** Record i of labels in the message at base. */
  @inline labels(base: usize, i: u32): Label {
    return changetype<Label>(base + this.labelsAt + i * this.labelsStep);
  }
  /** Points labels at records in the answer. */
  @inline setLabels(at: u32, count: u32): void {
    this.labelsAt = at;
    this.labelsCount = count;
    this.labelsStep = 16;
  }
}

/** record: what is known of an engine besides its cache */
@unmanaged
export class Engine {
  nameAt: u32;
  nameLength: u32;
  /** "vllm", "sglang", ...; empty: not known */
  softwareAt: u32;
  softwareLength: u32;
  /** of the software */
  versionAt: u32;
  versionLength: u32;
  /** of Label */
  labelsAt: u32;
  labelsCount: u32;
  labelsStep: u32;
  /** of Place: by rank number; empty: not known */
  placesAt: u32;
  placesCount: u32;
  placesStep: u32;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
  /** Points software at something in the answer. */
  @inline setSoftware(at: u32, length: u32): void {
    this.softwareAt = at;
    this.softwareLength = length;
  }
  /** Points version at something in the answer. */
  @inline setVersion(at: u32, length: u32): void {
    this.versionAt = at;
    this.versionLength = length;
  }
  /** Record i of labels in the message at base. */
  @inline labels(base: usize, i: u32): Label {
    return changetype<Label>(base + this.labelsAt + i * this.labelsStep);
  }
  /** Points labels at records in the answer. */
  @inline setLabels(at: u32, count: u32): void {
    this.labelsAt = at;
    this.labelsCount = count;
    this.labelsStep = 16;
  }
  /** Record i of places in the message at base. */
  @inline places(base: usize, i: u32): Place {
    return changetype<Place>(base + this.placesAt + i * this.placesStep);
  }
  /** Points places at records in the answer. */
  @inline setPlaces(at: u32, count: u32): void {
    this.placesAt = at;
    this.placesCount = count;
    this.placesStep = 72;
  }
}

/** record: a configured transport */
@unmanaged
export class Provider {
  nameAt: u32;
  nameLength: u32;
  /** bit i: moves memory of kind i of enum memory */
  memories: u32;
  /** 1: the reader reaches the owner's memory by itself */
  oneSided: u32;
  /** 1: needs the other process to run */
  peerCpu: u32;
  /** 1: takes strided runs as they are */
  strides: u32;
  /** enum switch */
  crc: u32;
  /** enum switch */
  tls: u32;
  /** smallest piece in bytes that moves at full speed, 0: not known */
  piece: u64;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
}

/** record: pairs of ranks that are connected alike; no pair stands in two of them */
@unmanaged
export class Edge {
  /** bit i: provider i of the message can serve them */
  providers: u64;
  /** the ranks [source_from, source_to) of the source */
  sourceFrom: u32;
  sourceTo: u32;
  destinationFrom: u32;
  destinationTo: u32;
  /** enum reach, 0: not known */
  reach: u32;
  /** 1 (idle) to 8 (busiest), 0: not known */
  load: u32;
}

/** record: one item of an order, outermost first: axis[%mod][/div]; mod 0 is the whole axis */
@unmanaged
export class Item {
  /** bit i: stands in the order of component i of the group; 0: of all */
  components: u64;
  /** enum axis */
  axis: u32;
  mod: u32;
  div: u32;
  reserved: u32;
}

/** record: what a request of 4096 tokens takes to move between two candidates, from the host's own arithmetic */
@unmanaged
export class Cost {
  /** index in peers */
  peer: u32;
  /** index in that peer's candidates */
  candidate: u32;
  /** contiguous copies */
  pieces: u64;
  bytes: u64;
}

/** record: how a candidate keeps one group */
@unmanaged
export class GroupLayout {
  /** of Item: of a kernel block where there are any */
  orderAt: u32;
  orderCount: u32;
  orderStep: u32;
  /** index in the message's groups */
  group: u32;
  /** tokens, 1 in a state */
  block: u32;
  blocks: u32;
  /** blocks that a request goes round in, 0: none */
  ring: u32;
  /** tokens; a block is that many several times over, 0: none */
  kernelBlock: u32;
  /** the group's own shard, or the engine's */
  tp: u32;
  stages: u32;
  dcp: u32;
  interleave: u32;
  /** Record i of order in the message at base. */
  @inline order(base: usize, i: u32): Item {
    return changetype<Item>(base + this.orderAt + i * this.orderStep);
  }
  /** Points order at records in the answer. */
  @inline setOrder(at: u32, count: u32): void {
    this.orderAt = at;
    this.orderCount = count;
    this.orderStep = 24;
  }
}

/** record: a layout that the engine's attention can read and write */
@unmanaged
export class Candidate {
  nameAt: u32;
  nameLength: u32;
  /** of GroupLayout: of each group that the message names and the engine has */
  layoutsAt: u32;
  layoutsCount: u32;
  layoutsStep: u32;
  /** what attention costs more on it than on the best, in per cent */
  attention: u32;
  /** of Cost: absent for what cannot be planned */
  costsAt: u32;
  costsCount: u32;
  costsStep: u32;
  tailReserved: u32;
  /** Points name at something in the answer. */
  @inline setName(at: u32, length: u32): void {
    this.nameAt = at;
    this.nameLength = length;
  }
  /** Record i of layouts in the message at base. */
  @inline layouts(base: usize, i: u32): GroupLayout {
    return changetype<GroupLayout>(base + this.layoutsAt + i * this.layoutsStep);
  }
  /** Points layouts at records in the answer. */
  @inline setLayouts(at: u32, count: u32): void {
    this.layoutsAt = at;
    this.layoutsCount = count;
    this.layoutsStep = 48;
  }
  /** Record i of costs in the message at base. */
  @inline costs(base: usize, i: u32): Cost {
    return changetype<Cost>(base + this.costsAt + i * this.costsStep);
  }
  /** Points costs at records in the answer. */
  @inline setCosts(at: u32, count: u32): void {
    this.costsAt = at;
    this.costsCount = count;
    this.costsStep = 24;
  }
}

/** record: an engine that the configuration expects to meet */
@unmanaged
export class Peer {
  engineAt: u32;
  engineLength: u32;
  tp: u32;
  stages: u32;
  dcp: u32;
  interleave: u32;
  /** of Candidate */
  candidatesAt: u32;
  candidatesCount: u32;
  candidatesStep: u32;
  /** of Edge: between the two engines; ranks of the asked engine stand on the side of its role */
  edgesAt: u32;
  edgesCount: u32;
  edgesStep: u32;
  /** Points engine at something in the answer. */
  @inline setEngine(at: u32, length: u32): void {
    this.engineAt = at;
    this.engineLength = length;
  }
  /** Record i of candidates in the message at base. */
  @inline candidates(base: usize, i: u32): Candidate {
    return changetype<Candidate>(base + this.candidatesAt + i * this.candidatesStep);
  }
  /** Points candidates at records in the answer. */
  @inline setCandidates(at: u32, count: u32): void {
    this.candidatesAt = at;
    this.candidatesCount = count;
    this.candidatesStep = 40;
  }
  /** Record i of edges in the message at base. */
  @inline edges(base: usize, i: u32): Edge {
    return changetype<Edge>(base + this.edgesAt + i * this.edgesStep);
  }
  /** Points edges at records in the answer. */
  @inline setEdges(at: u32, count: u32): void {
    this.edgesAt = at;
    this.edgesCount = count;
    this.edgesStep = 32;
  }
}

/** record */
@unmanaged
export class Pool {
  /** tokens a block, on each rank; 1 in a state */
  block: u32;
  blocks: u32;
  /** blocks that a request goes round in, 0: none */
  ring: u32;
  reserved: u32;
}

/** record: what a rank holds of a group's components that are dealt alike */
@unmanaged
export class Part {
  /** bit i: component i of the group */
  components: u64;
  group: u32;
  /** token t is held where (t / interleave) mod dcp_size == dcp_phase */
  dcpSize: u32;
  dcpInterleave: u32;
  dcpPhase: u32;
  /** of Range */
  layersAt: u32;
  layersCount: u32;
  layersStep: u32;
  /** of Range: in storage order; empty for components without heads */
  headsAt: u32;
  headsCount: u32;
  headsStep: u32;
  /** Record i of layers in the message at base. */
  @inline layers(base: usize, i: u32): Range {
    return changetype<Range>(base + this.layersAt + i * this.layersStep);
  }
  /** Points layers at records in the answer. */
  @inline setLayers(at: u32, count: u32): void {
    this.layersAt = at;
    this.layersCount = count;
    this.layersStep = 8;
  }
  /** Record i of heads in the message at base. */
  @inline heads(base: usize, i: u32): Range {
    return changetype<Range>(base + this.headsAt + i * this.headsStep);
  }
  /** Points heads at records in the answer. */
  @inline setHeads(at: u32, count: u32): void {
    this.headsAt = at;
    this.headsCount = count;
    this.headsStep = 8;
  }
}

/** record */
@unmanaged
export class Rank {
  rank: u32;
  /** its place in the engine's shard; a group may have another, by its parts */
  pp: u32;
  tp: u32;
  dcp: u32;
  /** of Part */
  partsAt: u32;
  partsCount: u32;
  partsStep: u32;
  tailReserved: u32;
  /** Record i of parts in the message at base. */
  @inline parts(base: usize, i: u32): Part {
    return changetype<Part>(base + this.partsAt + i * this.partsStep);
  }
  /** Points parts at records in the answer. */
  @inline setParts(at: u32, count: u32): void {
    this.partsAt = at;
    this.partsCount = count;
    this.partsStep = 48;
  }
}

/** record */
@unmanaged
export class Side {
  engineAt: u32;
  engineLength: u32;
  tp: u32;
  stages: u32;
  dcp: u32;
  interleave: u32;
  /** of Pool: by group */
  poolsAt: u32;
  poolsCount: u32;
  poolsStep: u32;
  /** of Rank: by rank number */
  ranksAt: u32;
  ranksCount: u32;
  ranksStep: u32;
  /** Points engine at something in the answer. */
  @inline setEngine(at: u32, length: u32): void {
    this.engineAt = at;
    this.engineLength = length;
  }
  /** Record i of pools in the message at base. */
  @inline pools(base: usize, i: u32): Pool {
    return changetype<Pool>(base + this.poolsAt + i * this.poolsStep);
  }
  /** Points pools at records in the answer. */
  @inline setPools(at: u32, count: u32): void {
    this.poolsAt = at;
    this.poolsCount = count;
    this.poolsStep = 16;
  }
  /** Record i of ranks in the message at base. */
  @inline ranks(base: usize, i: u32): Rank {
    return changetype<Rank>(base + this.ranksAt + i * this.ranksStep);
  }
  /** Points ranks at records in the answer. */
  @inline setRanks(at: u32, count: u32): void {
    this.ranksAt = at;
    this.ranksCount = count;
    this.ranksStep = 32;
  }
}

/** record: the destination rank takes a box from the source rank */
@unmanaged
export class Assignment {
  /** bit i: component i of the group; components of one box have equally many heads */
  components: u64;
  group: u32;
  destination: u32;
  source: u32;
  layerFrom: u32;
  layerTo: u32;
  headFrom: u32;
  headTo: u32;
  /** 0: all tokens; else those with (t / token_interleave) mod token_size == token_phase */
  tokenSize: u32;
  tokenInterleave: u32;
  tokenPhase: u32;
}

/** record: assignments that together give the destination all it needs */
@unmanaged
export class Alternative {
  /** of Assignment */
  assignmentsAt: u32;
  assignmentsCount: u32;
  assignmentsStep: u32;
  tailReserved: u32;
  /** Record i of assignments in the message at base. */
  @inline assignments(base: usize, i: u32): Assignment {
    return changetype<Assignment>(base + this.assignmentsAt + i * this.assignmentsStep);
  }
  /** Points assignments at records in the answer. */
  @inline setAssignments(at: u32, count: u32): void {
    this.assignmentsAt = at;
    this.assignmentsCount = count;
    this.assignmentsStep = 48;
  }
}

/** record: what moves between two ranks, for a request of 4096 tokens */
@unmanaged
export class Flow {
  bytes: u64;
  /** contiguous copies */
  pieces: u64;
  source: u32;
  destination: u32;
}

/** record: one of remap's alternatives, proved */
@unmanaged
export class Proven {
  /** of a request of 4096 tokens */
  bytes: u64;
  pieces: u64;
  /** of Flow */
  flowsAt: u32;
  flowsCount: u32;
  flowsStep: u32;
  tailReserved: u32;
  /** Record i of flows in the message at base. */
  @inline flows(base: usize, i: u32): Flow {
    return changetype<Flow>(base + this.flowsAt + i * this.flowsStep);
  }
  /** Points flows at records in the answer. */
  @inline setFlows(at: u32, count: u32): void {
    this.flowsAt = at;
    this.flowsCount = count;
    this.flowsStep = 24;
  }
}

/** record */
@unmanaged
export class Transport {
  /** index in the question's providers */
  provider: u32;
  reserved: u32;
}

/** record: a rank uses one of its rails; ranks that are not named are not bound */
@unmanaged
export class RailChoice {
  /** enum role */
  side: u32;
  rank: u32;
  /** index in the rank's rails */
  rail: u32;
  reserved: u32;
}

/** record: how a transfer goes; zero leaves a thing to the host, as configured */
@unmanaged
export class Decision {
  /** index in the question's alternatives */
  alternative: u32;
  /** enum mode */
  mode: u32;
  /** enum role: the side that brings elements into the other's order */
  permute: u32;
  /** bytes that travel as one */
  chunk: u32;
  /** connections in parallel */
  streams: u32;
  /** 1 (last) to 8 (first) */
  priority: u32;
  /** enum integrity */
  integrity: u32;
  /** enum switch */
  crc: u32;
  /** enum switch */
  tls: u32;
  /** 1: nothing moves, the destination computes the tokens itself */
  recompute: u32;
  /** of Transport: in order of preference; no other is tried; empty: all, as configured */
  transportsAt: u32;
  transportsCount: u32;
  transportsStep: u32;
  /** of RailChoice */
  railsAt: u32;
  railsCount: u32;
  railsStep: u32;
  /** Record i of transports in the message at base. */
  @inline transports(base: usize, i: u32): Transport {
    return changetype<Transport>(base + this.transportsAt + i * this.transportsStep);
  }
  /** Points transports at records in the answer. */
  @inline setTransports(at: u32, count: u32): void {
    this.transportsAt = at;
    this.transportsCount = count;
    this.transportsStep = 8;
  }
  /** Record i of rails in the message at base. */
  @inline rails(base: usize, i: u32): RailChoice {
    return changetype<RailChoice>(base + this.railsAt + i * this.railsStep);
  }
  /** Points rails at records in the answer. */
  @inline setRails(at: u32, count: u32): void {
    this.railsAt = at;
    this.railsCount = count;
    this.railsStep = 16;
  }
}

/** message: the question of select_layout */
@unmanaged
export class SelectLayoutIn extends Header {
  engineAt: u32;
  engineLength: u32;
  modelAt: u32;
  modelLength: u32;
  /** enum role */
  role: u32;
  layers: u32;
  tp: u32;
  stages: u32;
  dcp: u32;
  interleave: u32;
  /** 1 + the index answered before, 0: none */
  previous: u32;
  /** 1 + the index that the fleet has on record for this engine, 0: none */
  recorded: u32;
  /** of Group: of the engine */
  groupsAt: u32;
  groupsCount: u32;
  groupsStep: u32;
  /** of Candidate */
  candidatesAt: u32;
  candidatesCount: u32;
  candidatesStep: u32;
  /** of Peer */
  peersAt: u32;
  peersCount: u32;
  peersStep: u32;
  /** of Engine: the asked one, then the peers in their order */
  enginesAt: u32;
  enginesCount: u32;
  enginesStep: u32;
  /** of Provider: in the configured order */
  providersAt: u32;
  providersCount: u32;
  providersStep: u32;
  /** the operator's for this policy, canonical JSON; empty: none */
  configurationAt: u32;
  configurationLength: u32;
  tailReserved: u32;
  /** Points engine at something in the answer. */
  @inline setEngine(at: u32, length: u32): void {
    this.engineAt = at;
    this.engineLength = length;
  }
  /** Points model at something in the answer. */
  @inline setModel(at: u32, length: u32): void {
    this.modelAt = at;
    this.modelLength = length;
  }
  /** Record i of groups in the message at base. */
  @inline groups(base: usize, i: u32): Group {
    return changetype<Group>(base + this.groupsAt + i * this.groupsStep);
  }
  /** Points groups at records in the answer. */
  @inline setGroups(at: u32, count: u32): void {
    this.groupsAt = at;
    this.groupsCount = count;
    this.groupsStep = 56;
  }
  /** Record i of candidates in the message at base. */
  @inline candidates(base: usize, i: u32): Candidate {
    return changetype<Candidate>(base + this.candidatesAt + i * this.candidatesStep);
  }
  /** Points candidates at records in the answer. */
  @inline setCandidates(at: u32, count: u32): void {
    this.candidatesAt = at;
    this.candidatesCount = count;
    this.candidatesStep = 40;
  }
  /** Record i of peers in the message at base. */
  @inline peers(base: usize, i: u32): Peer {
    return changetype<Peer>(base + this.peersAt + i * this.peersStep);
  }
  /** Points peers at records in the answer. */
  @inline setPeers(at: u32, count: u32): void {
    this.peersAt = at;
    this.peersCount = count;
    this.peersStep = 48;
  }
  /** Record i of engines in the message at base. */
  @inline engines(base: usize, i: u32): Engine {
    return changetype<Engine>(base + this.enginesAt + i * this.enginesStep);
  }
  /** Points engines at records in the answer. */
  @inline setEngines(at: u32, count: u32): void {
    this.enginesAt = at;
    this.enginesCount = count;
    this.enginesStep = 48;
  }
  /** Record i of providers in the message at base. */
  @inline providers(base: usize, i: u32): Provider {
    return changetype<Provider>(base + this.providersAt + i * this.providersStep);
  }
  /** Points providers at records in the answer. */
  @inline setProviders(at: u32, count: u32): void {
    this.providersAt = at;
    this.providersCount = count;
    this.providersStep = 40;
  }
  /** Points configuration at something in the answer. */
  @inline setConfiguration(at: u32, length: u32): void {
    this.configurationAt = at;
    this.configurationLength = length;
  }
}

/** message: the answer to select_layout */
@unmanaged
export class SelectLayoutOut extends Header {
  /** of the candidate chosen */
  index: u32;
  reserved: u32;
  /** at most 256 bytes of printable UTF-8 */
  reasonAt: u32;
  reasonLength: u32;
  /** Points reason at something in the answer. */
  @inline setReason(at: u32, length: u32): void {
    this.reasonAt = at;
    this.reasonLength = length;
  }
}

/** message: the question of remap */
@unmanaged
export class RemapIn extends Header {
  modelAt: u32;
  modelLength: u32;
  layers: u32;
  reserved: u32;
  /** of Group: that both engines have */
  groupsAt: u32;
  groupsCount: u32;
  groupsStep: u32;
  /** of Side: source, destination */
  sidesAt: u32;
  sidesCount: u32;
  sidesStep: u32;
  /** of Engine: source, destination */
  enginesAt: u32;
  enginesCount: u32;
  enginesStep: u32;
  /** of Provider: in the configured order */
  providersAt: u32;
  providersCount: u32;
  providersStep: u32;
  /** of Edge */
  edgesAt: u32;
  edgesCount: u32;
  edgesStep: u32;
  /** of Alternative: answered before for these engines; empty: none */
  previousAt: u32;
  previousCount: u32;
  previousStep: u32;
  /** the operator's for this policy, canonical JSON; empty: none */
  configurationAt: u32;
  configurationLength: u32;
  /** Points model at something in the answer. */
  @inline setModel(at: u32, length: u32): void {
    this.modelAt = at;
    this.modelLength = length;
  }
  /** Record i of groups in the message at base. */
  @inline groups(base: usize, i: u32): Group {
    return changetype<Group>(base + this.groupsAt + i * this.groupsStep);
  }
  /** Points groups at records in the answer. */
  @inline setGroups(at: u32, count: u32): void {
    this.groupsAt = at;
    this.groupsCount = count;
    this.groupsStep = 56;
  }
  /** Record i of sides in the message at base. */
  @inline sides(base: usize, i: u32): Side {
    return changetype<Side>(base + this.sidesAt + i * this.sidesStep);
  }
  /** Points sides at records in the answer. */
  @inline setSides(at: u32, count: u32): void {
    this.sidesAt = at;
    this.sidesCount = count;
    this.sidesStep = 48;
  }
  /** Record i of engines in the message at base. */
  @inline engines(base: usize, i: u32): Engine {
    return changetype<Engine>(base + this.enginesAt + i * this.enginesStep);
  }
  /** Points engines at records in the answer. */
  @inline setEngines(at: u32, count: u32): void {
    this.enginesAt = at;
    this.enginesCount = count;
    this.enginesStep = 48;
  }
  /** Record i of providers in the message at base. */
  @inline providers(base: usize, i: u32): Provider {
    return changetype<Provider>(base + this.providersAt + i * this.providersStep);
  }
  /** Points providers at records in the answer. */
  @inline setProviders(at: u32, count: u32): void {
    this.providersAt = at;
    this.providersCount = count;
    this.providersStep = 40;
  }
  /** Record i of edges in the message at base. */
  @inline edges(base: usize, i: u32): Edge {
    return changetype<Edge>(base + this.edgesAt + i * this.edgesStep);
  }
  /** Points edges at records in the answer. */
  @inline setEdges(at: u32, count: u32): void {
    this.edgesAt = at;
    this.edgesCount = count;
    this.edgesStep = 32;
  }
  /** Record i of previous in the message at base. */
  @inline previous(base: usize, i: u32): Alternative {
    return changetype<Alternative>(base + this.previousAt + i * this.previousStep);
  }
  /** Points previous at records in the answer. */
  @inline setPrevious(at: u32, count: u32): void {
    this.previousAt = at;
    this.previousCount = count;
    this.previousStep = 16;
  }
  /** Points configuration at something in the answer. */
  @inline setConfiguration(at: u32, length: u32): void {
    this.configurationAt = at;
    this.configurationLength = length;
  }
}

/** message: the answer to remap */
@unmanaged
export class RemapOut extends Header {
  /** of Alternative: at most 8, best first */
  alternativesAt: u32;
  alternativesCount: u32;
  alternativesStep: u32;
  /** at most 256 bytes of printable UTF-8 */
  reasonAt: u32;
  reasonLength: u32;
  tailReserved: u32;
  /** Record i of alternatives in the message at base. */
  @inline alternatives(base: usize, i: u32): Alternative {
    return changetype<Alternative>(base + this.alternativesAt + i * this.alternativesStep);
  }
  /** Points alternatives at records in the answer. */
  @inline setAlternatives(at: u32, count: u32): void {
    this.alternativesAt = at;
    this.alternativesCount = count;
    this.alternativesStep = 16;
  }
  /** Points reason at something in the answer. */
  @inline setReason(at: u32, length: u32): void {
    this.reasonAt = at;
    this.reasonLength = length;
  }
}

/** message: the question of route */
@unmanaged
export class RouteIn extends Header {
  modelAt: u32;
  modelLength: u32;
  /** of the request */
  tokens: u32;
  /** of them at its start that the destination has already */
  cached: u32;
  /** as asked, 1 (last) to 8 (first), 0: nothing asked */
  priority: u32;
  /** ms left, rounded down to two significant bits, 0: none */
  deadline: u32;
  /** ms left of the source's lease, rounded down likewise, 0: none */
  lease: u32;
  /** configured, in bytes */
  chunk: u32;
  /** configured, the most there can be */
  streams: u32;
  /** configured, enum integrity: the least there will be */
  integrity: u32;
  /** 1: recompute may be answered */
  recompute: u32;
  reserved: u32;
  /** of Proven: of remap's answer, in its order */
  alternativesAt: u32;
  alternativesCount: u32;
  alternativesStep: u32;
  /** of Engine: source, destination */
  enginesAt: u32;
  enginesCount: u32;
  enginesStep: u32;
  /** of Provider: in the configured order */
  providersAt: u32;
  providersCount: u32;
  providersStep: u32;
  /** of Edge */
  edgesAt: u32;
  edgesCount: u32;
  edgesStep: u32;
  /** of Decision: answered before for these engines; empty: none, else one */
  previousAt: u32;
  previousCount: u32;
  previousStep: u32;
  /** the operator's for this policy, canonical JSON; empty: none */
  configurationAt: u32;
  configurationLength: u32;
  tailReserved: u32;
  /** Points model at something in the answer. */
  @inline setModel(at: u32, length: u32): void {
    this.modelAt = at;
    this.modelLength = length;
  }
  /** Record i of alternatives in the message at base. */
  @inline alternatives(base: usize, i: u32): Proven {
    return changetype<Proven>(base + this.alternativesAt + i * this.alternativesStep);
  }
  /** Points alternatives at records in the answer. */
  @inline setAlternatives(at: u32, count: u32): void {
    this.alternativesAt = at;
    this.alternativesCount = count;
    this.alternativesStep = 32;
  }
  /** Record i of engines in the message at base. */
  @inline engines(base: usize, i: u32): Engine {
    return changetype<Engine>(base + this.enginesAt + i * this.enginesStep);
  }
  /** Points engines at records in the answer. */
  @inline setEngines(at: u32, count: u32): void {
    this.enginesAt = at;
    this.enginesCount = count;
    this.enginesStep = 48;
  }
  /** Record i of providers in the message at base. */
  @inline providers(base: usize, i: u32): Provider {
    return changetype<Provider>(base + this.providersAt + i * this.providersStep);
  }
  /** Points providers at records in the answer. */
  @inline setProviders(at: u32, count: u32): void {
    this.providersAt = at;
    this.providersCount = count;
    this.providersStep = 40;
  }
  /** Record i of edges in the message at base. */
  @inline edges(base: usize, i: u32): Edge {
    return changetype<Edge>(base + this.edgesAt + i * this.edgesStep);
  }
  /** Points edges at records in the answer. */
  @inline setEdges(at: u32, count: u32): void {
    this.edgesAt = at;
    this.edgesCount = count;
    this.edgesStep = 32;
  }
  /** Record i of previous in the message at base. */
  @inline previous(base: usize, i: u32): Decision {
    return changetype<Decision>(base + this.previousAt + i * this.previousStep);
  }
  /** Points previous at records in the answer. */
  @inline setPrevious(at: u32, count: u32): void {
    this.previousAt = at;
    this.previousCount = count;
    this.previousStep = 64;
  }
  /** Points configuration at something in the answer. */
  @inline setConfiguration(at: u32, length: u32): void {
    this.configurationAt = at;
    this.configurationLength = length;
  }
}

/** message: the answer to route */
@unmanaged
export class RouteOut extends Header {
  /** of Decision: exactly one */
  decisionsAt: u32;
  decisionsCount: u32;
  decisionsStep: u32;
  /** at most 256 bytes of printable UTF-8 */
  reasonAt: u32;
  reasonLength: u32;
  tailReserved: u32;
  /** Record i of decisions in the message at base. */
  @inline decisions(base: usize, i: u32): Decision {
    return changetype<Decision>(base + this.decisionsAt + i * this.decisionsStep);
  }
  /** Points decisions at records in the answer. */
  @inline setDecisions(at: u32, count: u32): void {
    this.decisionsAt = at;
    this.decisionsCount = count;
    this.decisionsStep = 64;
  }
  /** Points reason at something in the answer. */
  @inline setReason(at: u32, length: u32): void {
    this.reasonAt = at;
    this.reasonLength = length;
  }
}

/** Does not compile where the compiler lays records out otherwise. */
@inline
export function checkRecords(): void {
  if (offsetof<Range>() != 8) ERROR("Range");
  if (offsetof<Range>("from") != 0) ERROR("Range.from");
  if (offsetof<Range>("to") != 4) ERROR("Range.to");
  if (offsetof<Component>() != 40) ERROR("Component");
  if (offsetof<Component>("nameAt") != 0) ERROR("Component.name");
  if (offsetof<Component>("heads") != 8) ERROR("Component.heads");
  if (offsetof<Component>("dim") != 12) ERROR("Component.dim");
  if (offsetof<Component>("dtype") != 16) ERROR("Component.dtype");
  if (offsetof<Component>("bits") != 20) ERROR("Component.bits");
  if (offsetof<Component>("unit") != 24) ERROR("Component.unit");
  if (offsetof<Component>("tokensPerEntry") != 28) ERROR("Component.tokensPerEntry");
  if (offsetof<Component>("scales") != 32) ERROR("Component.scales");
  if (offsetof<Component>("reserved") != 36) ERROR("Component.reserved");
  if (offsetof<Share>() != 8) ERROR("Share");
  if (offsetof<Share>("layer") != 0) ERROR("Share.layer");
  if (offsetof<Share>("owner") != 4) ERROR("Share.owner");
  if (offsetof<Group>() != 56) ERROR("Group");
  if (offsetof<Group>("nameAt") != 0) ERROR("Group.name");
  if (offsetof<Group>("state") != 8) ERROR("Group.state");
  if (offsetof<Group>("optional") != 12) ERROR("Group.optional");
  if (offsetof<Group>("window") != 16) ERROR("Group.window");
  if (offsetof<Group>("layersAt") != 20) ERROR("Group.layers");
  if (offsetof<Group>("componentsAt") != 32) ERROR("Group.components");
  if (offsetof<Group>("sharedAt") != 44) ERROR("Group.shared");
  if (offsetof<Label>() != 16) ERROR("Label");
  if (offsetof<Label>("keyAt") != 0) ERROR("Label.key");
  if (offsetof<Label>("valueAt") != 8) ERROR("Label.value");
  if (offsetof<Device>() != 16) ERROR("Device");
  if (offsetof<Device>("idAt") != 0) ERROR("Device.id");
  if (offsetof<Device>("kind") != 8) ERROR("Device.kind");
  if (offsetof<Device>("numa") != 12) ERROR("Device.numa");
  if (offsetof<Rail>() != 24) ERROR("Rail");
  if (offsetof<Rail>("nameAt") != 0) ERROR("Rail.name");
  if (offsetof<Rail>("numa") != 8) ERROR("Rail.numa");
  if (offsetof<Rail>("gbits") != 12) ERROR("Rail.gbits");
  if (offsetof<Rail>("load") != 16) ERROR("Rail.load");
  if (offsetof<Rail>("reserved") != 20) ERROR("Rail.reserved");
  if (offsetof<Place>() != 72) ERROR("Place");
  if (offsetof<Place>("rank") != 0) ERROR("Place.rank");
  if (offsetof<Place>("numa") != 4) ERROR("Place.numa");
  if (offsetof<Place>("load") != 8) ERROR("Place.load");
  if (offsetof<Place>("reserved") != 12) ERROR("Place.reserved");
  if (offsetof<Place>("hostAt") != 16) ERROR("Place.host");
  if (offsetof<Place>("domainAt") != 24) ERROR("Place.domain");
  if (offsetof<Place>("devicesAt") != 32) ERROR("Place.devices");
  if (offsetof<Place>("railsAt") != 44) ERROR("Place.rails");
  if (offsetof<Place>("labelsAt") != 56) ERROR("Place.labels");
  if (offsetof<Engine>() != 48) ERROR("Engine");
  if (offsetof<Engine>("nameAt") != 0) ERROR("Engine.name");
  if (offsetof<Engine>("softwareAt") != 8) ERROR("Engine.software");
  if (offsetof<Engine>("versionAt") != 16) ERROR("Engine.version");
  if (offsetof<Engine>("labelsAt") != 24) ERROR("Engine.labels");
  if (offsetof<Engine>("placesAt") != 36) ERROR("Engine.places");
  if (offsetof<Provider>() != 40) ERROR("Provider");
  if (offsetof<Provider>("nameAt") != 0) ERROR("Provider.name");
  if (offsetof<Provider>("memories") != 8) ERROR("Provider.memories");
  if (offsetof<Provider>("oneSided") != 12) ERROR("Provider.oneSided");
  if (offsetof<Provider>("peerCpu") != 16) ERROR("Provider.peerCpu");
  if (offsetof<Provider>("strides") != 20) ERROR("Provider.strides");
  if (offsetof<Provider>("crc") != 24) ERROR("Provider.crc");
  if (offsetof<Provider>("tls") != 28) ERROR("Provider.tls");
  if (offsetof<Provider>("piece") != 32) ERROR("Provider.piece");
  if (offsetof<Edge>() != 32) ERROR("Edge");
  if (offsetof<Edge>("providers") != 0) ERROR("Edge.providers");
  if (offsetof<Edge>("sourceFrom") != 8) ERROR("Edge.sourceFrom");
  if (offsetof<Edge>("sourceTo") != 12) ERROR("Edge.sourceTo");
  if (offsetof<Edge>("destinationFrom") != 16) ERROR("Edge.destinationFrom");
  if (offsetof<Edge>("destinationTo") != 20) ERROR("Edge.destinationTo");
  if (offsetof<Edge>("reach") != 24) ERROR("Edge.reach");
  if (offsetof<Edge>("load") != 28) ERROR("Edge.load");
  if (offsetof<Item>() != 24) ERROR("Item");
  if (offsetof<Item>("components") != 0) ERROR("Item.components");
  if (offsetof<Item>("axis") != 8) ERROR("Item.axis");
  if (offsetof<Item>("mod") != 12) ERROR("Item.mod");
  if (offsetof<Item>("div") != 16) ERROR("Item.div");
  if (offsetof<Item>("reserved") != 20) ERROR("Item.reserved");
  if (offsetof<Cost>() != 24) ERROR("Cost");
  if (offsetof<Cost>("peer") != 0) ERROR("Cost.peer");
  if (offsetof<Cost>("candidate") != 4) ERROR("Cost.candidate");
  if (offsetof<Cost>("pieces") != 8) ERROR("Cost.pieces");
  if (offsetof<Cost>("bytes") != 16) ERROR("Cost.bytes");
  if (offsetof<GroupLayout>() != 48) ERROR("GroupLayout");
  if (offsetof<GroupLayout>("orderAt") != 0) ERROR("GroupLayout.order");
  if (offsetof<GroupLayout>("group") != 12) ERROR("GroupLayout.group");
  if (offsetof<GroupLayout>("block") != 16) ERROR("GroupLayout.block");
  if (offsetof<GroupLayout>("blocks") != 20) ERROR("GroupLayout.blocks");
  if (offsetof<GroupLayout>("ring") != 24) ERROR("GroupLayout.ring");
  if (offsetof<GroupLayout>("kernelBlock") != 28) ERROR("GroupLayout.kernelBlock");
  if (offsetof<GroupLayout>("tp") != 32) ERROR("GroupLayout.tp");
  if (offsetof<GroupLayout>("stages") != 36) ERROR("GroupLayout.stages");
  if (offsetof<GroupLayout>("dcp") != 40) ERROR("GroupLayout.dcp");
  if (offsetof<GroupLayout>("interleave") != 44) ERROR("GroupLayout.interleave");
  if (offsetof<Candidate>() != 40) ERROR("Candidate");
  if (offsetof<Candidate>("nameAt") != 0) ERROR("Candidate.name");
  if (offsetof<Candidate>("layoutsAt") != 8) ERROR("Candidate.layouts");
  if (offsetof<Candidate>("attention") != 20) ERROR("Candidate.attention");
  if (offsetof<Candidate>("costsAt") != 24) ERROR("Candidate.costs");
  if (offsetof<Peer>() != 48) ERROR("Peer");
  if (offsetof<Peer>("engineAt") != 0) ERROR("Peer.engine");
  if (offsetof<Peer>("tp") != 8) ERROR("Peer.tp");
  if (offsetof<Peer>("stages") != 12) ERROR("Peer.stages");
  if (offsetof<Peer>("dcp") != 16) ERROR("Peer.dcp");
  if (offsetof<Peer>("interleave") != 20) ERROR("Peer.interleave");
  if (offsetof<Peer>("candidatesAt") != 24) ERROR("Peer.candidates");
  if (offsetof<Peer>("edgesAt") != 36) ERROR("Peer.edges");
  if (offsetof<Pool>() != 16) ERROR("Pool");
  if (offsetof<Pool>("block") != 0) ERROR("Pool.block");
  if (offsetof<Pool>("blocks") != 4) ERROR("Pool.blocks");
  if (offsetof<Pool>("ring") != 8) ERROR("Pool.ring");
  if (offsetof<Pool>("reserved") != 12) ERROR("Pool.reserved");
  if (offsetof<Part>() != 48) ERROR("Part");
  if (offsetof<Part>("components") != 0) ERROR("Part.components");
  if (offsetof<Part>("group") != 8) ERROR("Part.group");
  if (offsetof<Part>("dcpSize") != 12) ERROR("Part.dcpSize");
  if (offsetof<Part>("dcpInterleave") != 16) ERROR("Part.dcpInterleave");
  if (offsetof<Part>("dcpPhase") != 20) ERROR("Part.dcpPhase");
  if (offsetof<Part>("layersAt") != 24) ERROR("Part.layers");
  if (offsetof<Part>("headsAt") != 36) ERROR("Part.heads");
  if (offsetof<Rank>() != 32) ERROR("Rank");
  if (offsetof<Rank>("rank") != 0) ERROR("Rank.rank");
  if (offsetof<Rank>("pp") != 4) ERROR("Rank.pp");
  if (offsetof<Rank>("tp") != 8) ERROR("Rank.tp");
  if (offsetof<Rank>("dcp") != 12) ERROR("Rank.dcp");
  if (offsetof<Rank>("partsAt") != 16) ERROR("Rank.parts");
  if (offsetof<Side>() != 48) ERROR("Side");
  if (offsetof<Side>("engineAt") != 0) ERROR("Side.engine");
  if (offsetof<Side>("tp") != 8) ERROR("Side.tp");
  if (offsetof<Side>("stages") != 12) ERROR("Side.stages");
  if (offsetof<Side>("dcp") != 16) ERROR("Side.dcp");
  if (offsetof<Side>("interleave") != 20) ERROR("Side.interleave");
  if (offsetof<Side>("poolsAt") != 24) ERROR("Side.pools");
  if (offsetof<Side>("ranksAt") != 36) ERROR("Side.ranks");
  if (offsetof<Assignment>() != 48) ERROR("Assignment");
  if (offsetof<Assignment>("components") != 0) ERROR("Assignment.components");
  if (offsetof<Assignment>("group") != 8) ERROR("Assignment.group");
  if (offsetof<Assignment>("destination") != 12) ERROR("Assignment.destination");
  if (offsetof<Assignment>("source") != 16) ERROR("Assignment.source");
  if (offsetof<Assignment>("layerFrom") != 20) ERROR("Assignment.layerFrom");
  if (offsetof<Assignment>("layerTo") != 24) ERROR("Assignment.layerTo");
  if (offsetof<Assignment>("headFrom") != 28) ERROR("Assignment.headFrom");
  if (offsetof<Assignment>("headTo") != 32) ERROR("Assignment.headTo");
  if (offsetof<Assignment>("tokenSize") != 36) ERROR("Assignment.tokenSize");
  if (offsetof<Assignment>("tokenInterleave") != 40) ERROR("Assignment.tokenInterleave");
  if (offsetof<Assignment>("tokenPhase") != 44) ERROR("Assignment.tokenPhase");
  if (offsetof<Alternative>() != 16) ERROR("Alternative");
  if (offsetof<Alternative>("assignmentsAt") != 0) ERROR("Alternative.assignments");
  if (offsetof<Flow>() != 24) ERROR("Flow");
  if (offsetof<Flow>("bytes") != 0) ERROR("Flow.bytes");
  if (offsetof<Flow>("pieces") != 8) ERROR("Flow.pieces");
  if (offsetof<Flow>("source") != 16) ERROR("Flow.source");
  if (offsetof<Flow>("destination") != 20) ERROR("Flow.destination");
  if (offsetof<Proven>() != 32) ERROR("Proven");
  if (offsetof<Proven>("bytes") != 0) ERROR("Proven.bytes");
  if (offsetof<Proven>("pieces") != 8) ERROR("Proven.pieces");
  if (offsetof<Proven>("flowsAt") != 16) ERROR("Proven.flows");
  if (offsetof<Transport>() != 8) ERROR("Transport");
  if (offsetof<Transport>("provider") != 0) ERROR("Transport.provider");
  if (offsetof<Transport>("reserved") != 4) ERROR("Transport.reserved");
  if (offsetof<RailChoice>() != 16) ERROR("RailChoice");
  if (offsetof<RailChoice>("side") != 0) ERROR("RailChoice.side");
  if (offsetof<RailChoice>("rank") != 4) ERROR("RailChoice.rank");
  if (offsetof<RailChoice>("rail") != 8) ERROR("RailChoice.rail");
  if (offsetof<RailChoice>("reserved") != 12) ERROR("RailChoice.reserved");
  if (offsetof<Decision>() != 64) ERROR("Decision");
  if (offsetof<Decision>("alternative") != 0) ERROR("Decision.alternative");
  if (offsetof<Decision>("mode") != 4) ERROR("Decision.mode");
  if (offsetof<Decision>("permute") != 8) ERROR("Decision.permute");
  if (offsetof<Decision>("chunk") != 12) ERROR("Decision.chunk");
  if (offsetof<Decision>("streams") != 16) ERROR("Decision.streams");
  if (offsetof<Decision>("priority") != 20) ERROR("Decision.priority");
  if (offsetof<Decision>("integrity") != 24) ERROR("Decision.integrity");
  if (offsetof<Decision>("crc") != 28) ERROR("Decision.crc");
  if (offsetof<Decision>("tls") != 32) ERROR("Decision.tls");
  if (offsetof<Decision>("recompute") != 36) ERROR("Decision.recompute");
  if (offsetof<Decision>("transportsAt") != 40) ERROR("Decision.transports");
  if (offsetof<Decision>("railsAt") != 52) ERROR("Decision.rails");
  if (offsetof<SelectLayoutIn>() != 144) ERROR("SelectLayoutIn");
  if (offsetof<SelectLayoutIn>("magic") != 0) ERROR("SelectLayoutIn.magic");
  if (offsetof<SelectLayoutIn>("version") != 4) ERROR("SelectLayoutIn.version");
  if (offsetof<SelectLayoutIn>("hook") != 8) ERROR("SelectLayoutIn.hook");
  if (offsetof<SelectLayoutIn>("record") != 12) ERROR("SelectLayoutIn.record");
  if (offsetof<SelectLayoutIn>("size") != 16) ERROR("SelectLayoutIn.size");
  if (offsetof<SelectLayoutIn>("headerReserved") != 20) ERROR("SelectLayoutIn.headerReserved");
  if (offsetof<SelectLayoutIn>("engineAt") != 24) ERROR("SelectLayoutIn.engine");
  if (offsetof<SelectLayoutIn>("modelAt") != 32) ERROR("SelectLayoutIn.model");
  if (offsetof<SelectLayoutIn>("role") != 40) ERROR("SelectLayoutIn.role");
  if (offsetof<SelectLayoutIn>("layers") != 44) ERROR("SelectLayoutIn.layers");
  if (offsetof<SelectLayoutIn>("tp") != 48) ERROR("SelectLayoutIn.tp");
  if (offsetof<SelectLayoutIn>("stages") != 52) ERROR("SelectLayoutIn.stages");
  if (offsetof<SelectLayoutIn>("dcp") != 56) ERROR("SelectLayoutIn.dcp");
  if (offsetof<SelectLayoutIn>("interleave") != 60) ERROR("SelectLayoutIn.interleave");
  if (offsetof<SelectLayoutIn>("previous") != 64) ERROR("SelectLayoutIn.previous");
  if (offsetof<SelectLayoutIn>("recorded") != 68) ERROR("SelectLayoutIn.recorded");
  if (offsetof<SelectLayoutIn>("groupsAt") != 72) ERROR("SelectLayoutIn.groups");
  if (offsetof<SelectLayoutIn>("candidatesAt") != 84) ERROR("SelectLayoutIn.candidates");
  if (offsetof<SelectLayoutIn>("peersAt") != 96) ERROR("SelectLayoutIn.peers");
  if (offsetof<SelectLayoutIn>("enginesAt") != 108) ERROR("SelectLayoutIn.engines");
  if (offsetof<SelectLayoutIn>("providersAt") != 120) ERROR("SelectLayoutIn.providers");
  if (offsetof<SelectLayoutIn>("configurationAt") != 132) ERROR("SelectLayoutIn.configuration");
  if (offsetof<SelectLayoutOut>() != 40) ERROR("SelectLayoutOut");
  if (offsetof<SelectLayoutOut>("magic") != 0) ERROR("SelectLayoutOut.magic");
  if (offsetof<SelectLayoutOut>("version") != 4) ERROR("SelectLayoutOut.version");
  if (offsetof<SelectLayoutOut>("hook") != 8) ERROR("SelectLayoutOut.hook");
  if (offsetof<SelectLayoutOut>("record") != 12) ERROR("SelectLayoutOut.record");
  if (offsetof<SelectLayoutOut>("size") != 16) ERROR("SelectLayoutOut.size");
  if (offsetof<SelectLayoutOut>("headerReserved") != 20) ERROR("SelectLayoutOut.headerReserved");
  if (offsetof<SelectLayoutOut>("index") != 24) ERROR("SelectLayoutOut.index");
  if (offsetof<SelectLayoutOut>("reserved") != 28) ERROR("SelectLayoutOut.reserved");
  if (offsetof<SelectLayoutOut>("reasonAt") != 32) ERROR("SelectLayoutOut.reason");
  if (offsetof<RemapIn>() != 120) ERROR("RemapIn");
  if (offsetof<RemapIn>("magic") != 0) ERROR("RemapIn.magic");
  if (offsetof<RemapIn>("version") != 4) ERROR("RemapIn.version");
  if (offsetof<RemapIn>("hook") != 8) ERROR("RemapIn.hook");
  if (offsetof<RemapIn>("record") != 12) ERROR("RemapIn.record");
  if (offsetof<RemapIn>("size") != 16) ERROR("RemapIn.size");
  if (offsetof<RemapIn>("headerReserved") != 20) ERROR("RemapIn.headerReserved");
  if (offsetof<RemapIn>("modelAt") != 24) ERROR("RemapIn.model");
  if (offsetof<RemapIn>("layers") != 32) ERROR("RemapIn.layers");
  if (offsetof<RemapIn>("reserved") != 36) ERROR("RemapIn.reserved");
  if (offsetof<RemapIn>("groupsAt") != 40) ERROR("RemapIn.groups");
  if (offsetof<RemapIn>("sidesAt") != 52) ERROR("RemapIn.sides");
  if (offsetof<RemapIn>("enginesAt") != 64) ERROR("RemapIn.engines");
  if (offsetof<RemapIn>("providersAt") != 76) ERROR("RemapIn.providers");
  if (offsetof<RemapIn>("edgesAt") != 88) ERROR("RemapIn.edges");
  if (offsetof<RemapIn>("previousAt") != 100) ERROR("RemapIn.previous");
  if (offsetof<RemapIn>("configurationAt") != 112) ERROR("RemapIn.configuration");
  if (offsetof<RemapOut>() != 48) ERROR("RemapOut");
  if (offsetof<RemapOut>("magic") != 0) ERROR("RemapOut.magic");
  if (offsetof<RemapOut>("version") != 4) ERROR("RemapOut.version");
  if (offsetof<RemapOut>("hook") != 8) ERROR("RemapOut.hook");
  if (offsetof<RemapOut>("record") != 12) ERROR("RemapOut.record");
  if (offsetof<RemapOut>("size") != 16) ERROR("RemapOut.size");
  if (offsetof<RemapOut>("headerReserved") != 20) ERROR("RemapOut.headerReserved");
  if (offsetof<RemapOut>("alternativesAt") != 24) ERROR("RemapOut.alternatives");
  if (offsetof<RemapOut>("reasonAt") != 36) ERROR("RemapOut.reason");
  if (offsetof<RouteIn>() != 144) ERROR("RouteIn");
  if (offsetof<RouteIn>("magic") != 0) ERROR("RouteIn.magic");
  if (offsetof<RouteIn>("version") != 4) ERROR("RouteIn.version");
  if (offsetof<RouteIn>("hook") != 8) ERROR("RouteIn.hook");
  if (offsetof<RouteIn>("record") != 12) ERROR("RouteIn.record");
  if (offsetof<RouteIn>("size") != 16) ERROR("RouteIn.size");
  if (offsetof<RouteIn>("headerReserved") != 20) ERROR("RouteIn.headerReserved");
  if (offsetof<RouteIn>("modelAt") != 24) ERROR("RouteIn.model");
  if (offsetof<RouteIn>("tokens") != 32) ERROR("RouteIn.tokens");
  if (offsetof<RouteIn>("cached") != 36) ERROR("RouteIn.cached");
  if (offsetof<RouteIn>("priority") != 40) ERROR("RouteIn.priority");
  if (offsetof<RouteIn>("deadline") != 44) ERROR("RouteIn.deadline");
  if (offsetof<RouteIn>("lease") != 48) ERROR("RouteIn.lease");
  if (offsetof<RouteIn>("chunk") != 52) ERROR("RouteIn.chunk");
  if (offsetof<RouteIn>("streams") != 56) ERROR("RouteIn.streams");
  if (offsetof<RouteIn>("integrity") != 60) ERROR("RouteIn.integrity");
  if (offsetof<RouteIn>("recompute") != 64) ERROR("RouteIn.recompute");
  if (offsetof<RouteIn>("reserved") != 68) ERROR("RouteIn.reserved");
  if (offsetof<RouteIn>("alternativesAt") != 72) ERROR("RouteIn.alternatives");
  if (offsetof<RouteIn>("enginesAt") != 84) ERROR("RouteIn.engines");
  if (offsetof<RouteIn>("providersAt") != 96) ERROR("RouteIn.providers");
  if (offsetof<RouteIn>("edgesAt") != 108) ERROR("RouteIn.edges");
  if (offsetof<RouteIn>("previousAt") != 120) ERROR("RouteIn.previous");
  if (offsetof<RouteIn>("configurationAt") != 132) ERROR("RouteIn.configuration");
  if (offsetof<RouteOut>() != 48) ERROR("RouteOut");
  if (offsetof<RouteOut>("magic") != 0) ERROR("RouteOut.magic");
  if (offsetof<RouteOut>("version") != 4) ERROR("RouteOut.version");
  if (offsetof<RouteOut>("hook") != 8) ERROR("RouteOut.hook");
  if (offsetof<RouteOut>("record") != 12) ERROR("RouteOut.record");
  if (offsetof<RouteOut>("size") != 16) ERROR("RouteOut.size");
  if (offsetof<RouteOut>("headerReserved") != 20) ERROR("RouteOut.headerReserved");
  if (offsetof<RouteOut>("decisionsAt") != 24) ERROR("RouteOut.decisions");
  if (offsetof<RouteOut>("reasonAt") != 36) ERROR("RouteOut.reason");
}
