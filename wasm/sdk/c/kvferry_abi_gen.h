/* Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT. */
#ifndef KVFERRY_ABI_GEN_H
#define KVFERRY_ABI_GEN_H

#include <stdint.h>

#define KVF_MAGIC 0x3146564bu
#define KVF_MAJOR 1
#define KVF_MINOR 0

enum kvf_hook {
	KVF_HOOK_SELECT_LAYOUT = 1, /* which layout an engine uses; once an engine, and again when what it knows changes */
	KVF_HOOK_REMAP = 2, /* which source rank feeds which destination rank; once a pair */
	KVF_HOOK_ROUTE = 3, /* how one transfer goes; optional */
};

enum kvf_status {
	KVF_STATUS_OK = 0,
	KVF_STATUS_AGAIN = 1, /* out was too small: nothing is written, the low word is the size needed */
	KVF_STATUS_DECLINED = 2, /* a deliberate no, with a reason */
	KVF_STATUS_UNSUPPORTED = 3,
	KVF_STATUS_BAD_INPUT = 4,
};

enum kvf_axis {
	KVF_AXIS_LAYER = 1,
	KVF_AXIS_BLOCK = 2,
	KVF_AXIS_TOKEN = 3,
	KVF_AXIS_HEAD = 4,
	KVF_AXIS_DIM = 5,
	KVF_AXIS_SLOT = 6,
	KVF_AXIS_CHANNEL = 7,
	KVF_AXIS_COMPONENT = 255, /* the place of "component" in an order: the item's components lie together there */
};

enum kvf_dtype {
	KVF_DTYPE_FP64 = 1,
	KVF_DTYPE_FP32 = 2,
	KVF_DTYPE_FP16 = 3,
	KVF_DTYPE_BF16 = 4,
	KVF_DTYPE_FP8_E4M3 = 5,
	KVF_DTYPE_FP8_E5M2 = 6,
	KVF_DTYPE_INT8 = 7,
	KVF_DTYPE_UINT8 = 8,
	KVF_DTYPE_FP4 = 9,
	KVF_DTYPE_INT4 = 10,
};

enum kvf_role {
	KVF_ROLE_SOURCE = 1,
	KVF_ROLE_DESTINATION = 2,
};

enum kvf_memory {
	KVF_MEMORY_HOST = 1,
	KVF_MEMORY_CUDA = 2,
	KVF_MEMORY_OTHER = 3, /* a device of another kind */
};

enum kvf_reach {
	KVF_REACH_PROCESS = 1, /* one address space */
	KVF_REACH_HOST = 2, /* one host */
	KVF_REACH_DOMAIN = 3, /* one link domain: memory is reached without a network card */
	KVF_REACH_NETWORK = 4,
};

enum kvf_mode {
	KVF_MODE_DIRECT = 1, /* each run goes to its place */
	KVF_MODE_STAGED = 2, /* packed on one side, unpacked on the other */
};

enum kvf_integrity {
	KVF_INTEGRITY_OFF = 1,
	KVF_INTEGRITY_SAMPLE = 2,
	KVF_INTEGRITY_FULL = 3,
};

enum kvf_switch {
	KVF_SWITCH_OFF = 1,
	KVF_SWITCH_ON = 2,
};

/* at: offset from the start of the message */
typedef struct { uint32_t at, length; } kvf_text;
typedef struct { uint32_t at, count, step; } kvf_list;

/* [from, to) */
typedef struct {
	uint32_t from;
	uint32_t to;
} kvf_range;
_Static_assert(sizeof(kvf_range) == 8, "kvf_range");
_Static_assert(__builtin_offsetof(kvf_range, from) == 0, "kvf_range.from");
_Static_assert(__builtin_offsetof(kvf_range, to) == 4, "kvf_range.to");

typedef struct {
	kvf_text name;
	uint32_t heads; /* 0: no heads; of a state, its channels */
	uint32_t dim;
	uint32_t dtype; /* enum dtype */
	uint32_t bits; /* of one element */
	uint32_t unit; /* neighbouring heads that a shard never parts, at least 1 */
	uint32_t tokens_per_entry; /* at least 1 */
	uint32_t scales; /* 1 + the component whose rows this one scales, 0: none */
	uint32_t reserved;
} kvf_component;
_Static_assert(sizeof(kvf_component) == 40, "kvf_component");
_Static_assert(__builtin_offsetof(kvf_component, name) == 0, "kvf_component.name");
_Static_assert(__builtin_offsetof(kvf_component, heads) == 8, "kvf_component.heads");
_Static_assert(__builtin_offsetof(kvf_component, dim) == 12, "kvf_component.dim");
_Static_assert(__builtin_offsetof(kvf_component, dtype) == 16, "kvf_component.dtype");
_Static_assert(__builtin_offsetof(kvf_component, bits) == 20, "kvf_component.bits");
_Static_assert(__builtin_offsetof(kvf_component, unit) == 24, "kvf_component.unit");
_Static_assert(__builtin_offsetof(kvf_component, tokens_per_entry) == 28, "kvf_component.tokens_per_entry");
_Static_assert(__builtin_offsetof(kvf_component, scales) == 32, "kvf_component.scales");
_Static_assert(__builtin_offsetof(kvf_component, reserved) == 36, "kvf_component.reserved");

/* a layer that reads the cache of another */
typedef struct {
	uint32_t layer;
	uint32_t owner;
} kvf_share;
_Static_assert(sizeof(kvf_share) == 8, "kvf_share");
_Static_assert(__builtin_offsetof(kvf_share, layer) == 0, "kvf_share.layer");
_Static_assert(__builtin_offsetof(kvf_share, owner) == 4, "kvf_share.owner");

/* layers with the same components, block size and block table */
typedef struct {
	kvf_text name;
	uint32_t state; /* 1: keeps one state a request and no tokens; its heads are channels, its blocks slots */
	uint32_t optional; /* 1: an engine may lack it */
	uint32_t window; /* tokens back that the layers look, 0: all */
	kvf_list layers; /* of kvf_range */
	kvf_list components; /* of kvf_component */
	kvf_list shared; /* of kvf_share */
} kvf_group;
_Static_assert(sizeof(kvf_group) == 56, "kvf_group");
_Static_assert(__builtin_offsetof(kvf_group, name) == 0, "kvf_group.name");
_Static_assert(__builtin_offsetof(kvf_group, state) == 8, "kvf_group.state");
_Static_assert(__builtin_offsetof(kvf_group, optional) == 12, "kvf_group.optional");
_Static_assert(__builtin_offsetof(kvf_group, window) == 16, "kvf_group.window");
_Static_assert(__builtin_offsetof(kvf_group, layers) == 20, "kvf_group.layers");
_Static_assert(__builtin_offsetof(kvf_group, components) == 32, "kvf_group.components");
_Static_assert(__builtin_offsetof(kvf_group, shared) == 44, "kvf_group.shared");

/* an operator's words about an engine or a rank */
typedef struct {
	kvf_text key;
	kvf_text value;
} kvf_label;
_Static_assert(sizeof(kvf_label) == 16, "kvf_label");
_Static_assert(__builtin_offsetof(kvf_label, key) == 0, "kvf_label.key");
_Static_assert(__builtin_offsetof(kvf_label, value) == 8, "kvf_label.value");

/* that a rank's cache lies on; a rank in host memory has none */
typedef struct {
	kvf_text id; /* as the host's tools name it: a UUID, a PCI address */
	uint32_t kind; /* enum memory */
	uint32_t numa; /* 1 + its NUMA node, 0: not known */
} kvf_device;
_Static_assert(sizeof(kvf_device) == 16, "kvf_device");
_Static_assert(__builtin_offsetof(kvf_device, id) == 0, "kvf_device.id");
_Static_assert(__builtin_offsetof(kvf_device, kind) == 8, "kvf_device.kind");
_Static_assert(__builtin_offsetof(kvf_device, numa) == 12, "kvf_device.numa");

/* a network interface that a rank may use */
typedef struct {
	kvf_text name;
	uint32_t numa; /* 1 + its NUMA node, 0: not known */
	uint32_t gbits; /* a second, 0: not known */
	uint32_t load; /* 1 (idle) to 8 (busiest), 0: not known */
	uint32_t reserved;
} kvf_rail;
_Static_assert(sizeof(kvf_rail) == 24, "kvf_rail");
_Static_assert(__builtin_offsetof(kvf_rail, name) == 0, "kvf_rail.name");
_Static_assert(__builtin_offsetof(kvf_rail, numa) == 8, "kvf_rail.numa");
_Static_assert(__builtin_offsetof(kvf_rail, gbits) == 12, "kvf_rail.gbits");
_Static_assert(__builtin_offsetof(kvf_rail, load) == 16, "kvf_rail.load");
_Static_assert(__builtin_offsetof(kvf_rail, reserved) == 20, "kvf_rail.reserved");

/* where a rank runs */
typedef struct {
	uint32_t rank;
	uint32_t numa; /* 1 + its NUMA node, 0: not known */
	uint32_t load; /* of what it gives and takes: 1 (idle) to 8 (busiest), 0: not known */
	uint32_t reserved;
	kvf_text host; /* empty: not known */
	kvf_text domain; /* its link domain; empty: none, or not known */
	kvf_list devices; /* of kvf_device */
	kvf_list rails; /* of kvf_rail */
	kvf_list labels; /* of kvf_label */
	uint32_t tail_reserved;
} kvf_place;
_Static_assert(sizeof(kvf_place) == 72, "kvf_place");
_Static_assert(__builtin_offsetof(kvf_place, rank) == 0, "kvf_place.rank");
_Static_assert(__builtin_offsetof(kvf_place, numa) == 4, "kvf_place.numa");
_Static_assert(__builtin_offsetof(kvf_place, load) == 8, "kvf_place.load");
_Static_assert(__builtin_offsetof(kvf_place, reserved) == 12, "kvf_place.reserved");
_Static_assert(__builtin_offsetof(kvf_place, host) == 16, "kvf_place.host");
_Static_assert(__builtin_offsetof(kvf_place, domain) == 24, "kvf_place.domain");
_Static_assert(__builtin_offsetof(kvf_place, devices) == 32, "kvf_place.devices");
_Static_assert(__builtin_offsetof(kvf_place, rails) == 44, "kvf_place.rails");
_Static_assert(__builtin_offsetof(kvf_place, labels) == 56, "kvf_place.labels");

/* what is known of an engine besides its cache */
typedef struct {
	kvf_text name;
	kvf_text software; /* "vllm", "sglang", ...; empty: not known */
	kvf_text version; /* of the software */
	kvf_list labels; /* of kvf_label */
	kvf_list places; /* of kvf_place: by rank number; empty: not known */
} kvf_engine;
_Static_assert(sizeof(kvf_engine) == 48, "kvf_engine");
_Static_assert(__builtin_offsetof(kvf_engine, name) == 0, "kvf_engine.name");
_Static_assert(__builtin_offsetof(kvf_engine, software) == 8, "kvf_engine.software");
_Static_assert(__builtin_offsetof(kvf_engine, version) == 16, "kvf_engine.version");
_Static_assert(__builtin_offsetof(kvf_engine, labels) == 24, "kvf_engine.labels");
_Static_assert(__builtin_offsetof(kvf_engine, places) == 36, "kvf_engine.places");

/* a configured transport */
typedef struct {
	kvf_text name;
	uint32_t memories; /* bit i: moves memory of kind i of enum memory */
	uint32_t one_sided; /* 1: the reader reaches the owner's memory by itself */
	uint32_t peer_cpu; /* 1: needs the other process to run */
	uint32_t strides; /* 1: takes strided runs as they are */
	uint32_t crc; /* enum switch */
	uint32_t tls; /* enum switch */
	uint64_t piece; /* smallest piece in bytes that moves at full speed, 0: not known */
} kvf_provider;
_Static_assert(sizeof(kvf_provider) == 40, "kvf_provider");
_Static_assert(__builtin_offsetof(kvf_provider, name) == 0, "kvf_provider.name");
_Static_assert(__builtin_offsetof(kvf_provider, memories) == 8, "kvf_provider.memories");
_Static_assert(__builtin_offsetof(kvf_provider, one_sided) == 12, "kvf_provider.one_sided");
_Static_assert(__builtin_offsetof(kvf_provider, peer_cpu) == 16, "kvf_provider.peer_cpu");
_Static_assert(__builtin_offsetof(kvf_provider, strides) == 20, "kvf_provider.strides");
_Static_assert(__builtin_offsetof(kvf_provider, crc) == 24, "kvf_provider.crc");
_Static_assert(__builtin_offsetof(kvf_provider, tls) == 28, "kvf_provider.tls");
_Static_assert(__builtin_offsetof(kvf_provider, piece) == 32, "kvf_provider.piece");

/* pairs of ranks that are connected alike; no pair stands in two of them */
typedef struct {
	uint64_t providers; /* bit i: provider i of the message can serve them */
	uint32_t source_from; /* the ranks [source_from, source_to) of the source */
	uint32_t source_to;
	uint32_t destination_from;
	uint32_t destination_to;
	uint32_t reach; /* enum reach, 0: not known */
	uint32_t load; /* 1 (idle) to 8 (busiest), 0: not known */
} kvf_edge;
_Static_assert(sizeof(kvf_edge) == 32, "kvf_edge");
_Static_assert(__builtin_offsetof(kvf_edge, providers) == 0, "kvf_edge.providers");
_Static_assert(__builtin_offsetof(kvf_edge, source_from) == 8, "kvf_edge.source_from");
_Static_assert(__builtin_offsetof(kvf_edge, source_to) == 12, "kvf_edge.source_to");
_Static_assert(__builtin_offsetof(kvf_edge, destination_from) == 16, "kvf_edge.destination_from");
_Static_assert(__builtin_offsetof(kvf_edge, destination_to) == 20, "kvf_edge.destination_to");
_Static_assert(__builtin_offsetof(kvf_edge, reach) == 24, "kvf_edge.reach");
_Static_assert(__builtin_offsetof(kvf_edge, load) == 28, "kvf_edge.load");

/* one item of an order, outermost first: axis[%mod][/div]; mod 0 is the whole axis */
typedef struct {
	uint64_t components; /* bit i: stands in the order of component i of the group; 0: of all */
	uint32_t axis; /* enum axis */
	uint32_t mod;
	uint32_t div;
	uint32_t reserved;
} kvf_item;
_Static_assert(sizeof(kvf_item) == 24, "kvf_item");
_Static_assert(__builtin_offsetof(kvf_item, components) == 0, "kvf_item.components");
_Static_assert(__builtin_offsetof(kvf_item, axis) == 8, "kvf_item.axis");
_Static_assert(__builtin_offsetof(kvf_item, mod) == 12, "kvf_item.mod");
_Static_assert(__builtin_offsetof(kvf_item, div) == 16, "kvf_item.div");
_Static_assert(__builtin_offsetof(kvf_item, reserved) == 20, "kvf_item.reserved");

/* what a request of 4096 tokens takes to move between two candidates, from the host's own arithmetic */
typedef struct {
	uint32_t peer; /* index in peers */
	uint32_t candidate; /* index in that peer's candidates */
	uint64_t pieces; /* contiguous copies */
	uint64_t bytes;
} kvf_cost;
_Static_assert(sizeof(kvf_cost) == 24, "kvf_cost");
_Static_assert(__builtin_offsetof(kvf_cost, peer) == 0, "kvf_cost.peer");
_Static_assert(__builtin_offsetof(kvf_cost, candidate) == 4, "kvf_cost.candidate");
_Static_assert(__builtin_offsetof(kvf_cost, pieces) == 8, "kvf_cost.pieces");
_Static_assert(__builtin_offsetof(kvf_cost, bytes) == 16, "kvf_cost.bytes");

/* how a candidate keeps one group */
typedef struct {
	kvf_list order; /* of kvf_item: of a kernel block where there are any */
	uint32_t group; /* index in the message's groups */
	uint32_t block; /* tokens, 1 in a state */
	uint32_t blocks;
	uint32_t ring; /* blocks that a request goes round in, 0: none */
	uint32_t kernel_block; /* tokens; a block is that many several times over, 0: none */
	uint32_t tp; /* the group's own shard, or the engine's */
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
} kvf_group_layout;
_Static_assert(sizeof(kvf_group_layout) == 48, "kvf_group_layout");
_Static_assert(__builtin_offsetof(kvf_group_layout, order) == 0, "kvf_group_layout.order");
_Static_assert(__builtin_offsetof(kvf_group_layout, group) == 12, "kvf_group_layout.group");
_Static_assert(__builtin_offsetof(kvf_group_layout, block) == 16, "kvf_group_layout.block");
_Static_assert(__builtin_offsetof(kvf_group_layout, blocks) == 20, "kvf_group_layout.blocks");
_Static_assert(__builtin_offsetof(kvf_group_layout, ring) == 24, "kvf_group_layout.ring");
_Static_assert(__builtin_offsetof(kvf_group_layout, kernel_block) == 28, "kvf_group_layout.kernel_block");
_Static_assert(__builtin_offsetof(kvf_group_layout, tp) == 32, "kvf_group_layout.tp");
_Static_assert(__builtin_offsetof(kvf_group_layout, stages) == 36, "kvf_group_layout.stages");
_Static_assert(__builtin_offsetof(kvf_group_layout, dcp) == 40, "kvf_group_layout.dcp");
_Static_assert(__builtin_offsetof(kvf_group_layout, interleave) == 44, "kvf_group_layout.interleave");

/* a layout that the engine's attention can read and write */
typedef struct {
	kvf_text name;
	kvf_list layouts; /* of kvf_group_layout: of each group that the message names and the engine has */
	uint32_t attention; /* what attention costs more on it than on the best, in per cent */
	kvf_list costs; /* of kvf_cost: absent for what cannot be planned */
	uint32_t tail_reserved;
} kvf_candidate;
_Static_assert(sizeof(kvf_candidate) == 40, "kvf_candidate");
_Static_assert(__builtin_offsetof(kvf_candidate, name) == 0, "kvf_candidate.name");
_Static_assert(__builtin_offsetof(kvf_candidate, layouts) == 8, "kvf_candidate.layouts");
_Static_assert(__builtin_offsetof(kvf_candidate, attention) == 20, "kvf_candidate.attention");
_Static_assert(__builtin_offsetof(kvf_candidate, costs) == 24, "kvf_candidate.costs");

/* an engine that the configuration expects to meet */
typedef struct {
	kvf_text engine;
	uint32_t tp;
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
	kvf_list candidates; /* of kvf_candidate */
	kvf_list edges; /* of kvf_edge: between the two engines; ranks of the asked engine stand on the side of its role */
} kvf_peer;
_Static_assert(sizeof(kvf_peer) == 48, "kvf_peer");
_Static_assert(__builtin_offsetof(kvf_peer, engine) == 0, "kvf_peer.engine");
_Static_assert(__builtin_offsetof(kvf_peer, tp) == 8, "kvf_peer.tp");
_Static_assert(__builtin_offsetof(kvf_peer, stages) == 12, "kvf_peer.stages");
_Static_assert(__builtin_offsetof(kvf_peer, dcp) == 16, "kvf_peer.dcp");
_Static_assert(__builtin_offsetof(kvf_peer, interleave) == 20, "kvf_peer.interleave");
_Static_assert(__builtin_offsetof(kvf_peer, candidates) == 24, "kvf_peer.candidates");
_Static_assert(__builtin_offsetof(kvf_peer, edges) == 36, "kvf_peer.edges");

typedef struct {
	uint32_t block; /* tokens a block, on each rank; 1 in a state */
	uint32_t blocks;
	uint32_t ring; /* blocks that a request goes round in, 0: none */
	uint32_t reserved;
} kvf_pool;
_Static_assert(sizeof(kvf_pool) == 16, "kvf_pool");
_Static_assert(__builtin_offsetof(kvf_pool, block) == 0, "kvf_pool.block");
_Static_assert(__builtin_offsetof(kvf_pool, blocks) == 4, "kvf_pool.blocks");
_Static_assert(__builtin_offsetof(kvf_pool, ring) == 8, "kvf_pool.ring");
_Static_assert(__builtin_offsetof(kvf_pool, reserved) == 12, "kvf_pool.reserved");

/* what a rank holds of a group's components that are dealt alike */
typedef struct {
	uint64_t components; /* bit i: component i of the group */
	uint32_t group;
	uint32_t dcp_size; /* token t is held where (t / interleave) mod dcp_size == dcp_phase */
	uint32_t dcp_interleave;
	uint32_t dcp_phase;
	kvf_list layers; /* of kvf_range */
	kvf_list heads; /* of kvf_range: in storage order; empty for components without heads */
} kvf_part;
_Static_assert(sizeof(kvf_part) == 48, "kvf_part");
_Static_assert(__builtin_offsetof(kvf_part, components) == 0, "kvf_part.components");
_Static_assert(__builtin_offsetof(kvf_part, group) == 8, "kvf_part.group");
_Static_assert(__builtin_offsetof(kvf_part, dcp_size) == 12, "kvf_part.dcp_size");
_Static_assert(__builtin_offsetof(kvf_part, dcp_interleave) == 16, "kvf_part.dcp_interleave");
_Static_assert(__builtin_offsetof(kvf_part, dcp_phase) == 20, "kvf_part.dcp_phase");
_Static_assert(__builtin_offsetof(kvf_part, layers) == 24, "kvf_part.layers");
_Static_assert(__builtin_offsetof(kvf_part, heads) == 36, "kvf_part.heads");

typedef struct {
	uint32_t rank;
	uint32_t pp; /* its place in the engine's shard; a group may have another, by its parts */
	uint32_t tp;
	uint32_t dcp;
	kvf_list parts; /* of kvf_part */
	uint32_t tail_reserved;
} kvf_rank;
_Static_assert(sizeof(kvf_rank) == 32, "kvf_rank");
_Static_assert(__builtin_offsetof(kvf_rank, rank) == 0, "kvf_rank.rank");
_Static_assert(__builtin_offsetof(kvf_rank, pp) == 4, "kvf_rank.pp");
_Static_assert(__builtin_offsetof(kvf_rank, tp) == 8, "kvf_rank.tp");
_Static_assert(__builtin_offsetof(kvf_rank, dcp) == 12, "kvf_rank.dcp");
_Static_assert(__builtin_offsetof(kvf_rank, parts) == 16, "kvf_rank.parts");

typedef struct {
	kvf_text engine;
	uint32_t tp;
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
	kvf_list pools; /* of kvf_pool: by group */
	kvf_list ranks; /* of kvf_rank: by rank number */
} kvf_side;
_Static_assert(sizeof(kvf_side) == 48, "kvf_side");
_Static_assert(__builtin_offsetof(kvf_side, engine) == 0, "kvf_side.engine");
_Static_assert(__builtin_offsetof(kvf_side, tp) == 8, "kvf_side.tp");
_Static_assert(__builtin_offsetof(kvf_side, stages) == 12, "kvf_side.stages");
_Static_assert(__builtin_offsetof(kvf_side, dcp) == 16, "kvf_side.dcp");
_Static_assert(__builtin_offsetof(kvf_side, interleave) == 20, "kvf_side.interleave");
_Static_assert(__builtin_offsetof(kvf_side, pools) == 24, "kvf_side.pools");
_Static_assert(__builtin_offsetof(kvf_side, ranks) == 36, "kvf_side.ranks");

/* the destination rank takes a box from the source rank */
typedef struct {
	uint64_t components; /* bit i: component i of the group; components of one box have equally many heads */
	uint32_t group;
	uint32_t destination;
	uint32_t source;
	uint32_t layer_from;
	uint32_t layer_to;
	uint32_t head_from;
	uint32_t head_to;
	uint32_t token_size; /* 0: all tokens; else those with (t / token_interleave) mod token_size == token_phase */
	uint32_t token_interleave;
	uint32_t token_phase;
} kvf_assignment;
_Static_assert(sizeof(kvf_assignment) == 48, "kvf_assignment");
_Static_assert(__builtin_offsetof(kvf_assignment, components) == 0, "kvf_assignment.components");
_Static_assert(__builtin_offsetof(kvf_assignment, group) == 8, "kvf_assignment.group");
_Static_assert(__builtin_offsetof(kvf_assignment, destination) == 12, "kvf_assignment.destination");
_Static_assert(__builtin_offsetof(kvf_assignment, source) == 16, "kvf_assignment.source");
_Static_assert(__builtin_offsetof(kvf_assignment, layer_from) == 20, "kvf_assignment.layer_from");
_Static_assert(__builtin_offsetof(kvf_assignment, layer_to) == 24, "kvf_assignment.layer_to");
_Static_assert(__builtin_offsetof(kvf_assignment, head_from) == 28, "kvf_assignment.head_from");
_Static_assert(__builtin_offsetof(kvf_assignment, head_to) == 32, "kvf_assignment.head_to");
_Static_assert(__builtin_offsetof(kvf_assignment, token_size) == 36, "kvf_assignment.token_size");
_Static_assert(__builtin_offsetof(kvf_assignment, token_interleave) == 40, "kvf_assignment.token_interleave");
_Static_assert(__builtin_offsetof(kvf_assignment, token_phase) == 44, "kvf_assignment.token_phase");

/* assignments that together give the destination all it needs */
typedef struct {
	kvf_list assignments; /* of kvf_assignment */
	uint32_t tail_reserved;
} kvf_alternative;
_Static_assert(sizeof(kvf_alternative) == 16, "kvf_alternative");
_Static_assert(__builtin_offsetof(kvf_alternative, assignments) == 0, "kvf_alternative.assignments");

/* what moves between two ranks, for a request of 4096 tokens */
typedef struct {
	uint64_t bytes;
	uint64_t pieces; /* contiguous copies */
	uint32_t source;
	uint32_t destination;
} kvf_flow;
_Static_assert(sizeof(kvf_flow) == 24, "kvf_flow");
_Static_assert(__builtin_offsetof(kvf_flow, bytes) == 0, "kvf_flow.bytes");
_Static_assert(__builtin_offsetof(kvf_flow, pieces) == 8, "kvf_flow.pieces");
_Static_assert(__builtin_offsetof(kvf_flow, source) == 16, "kvf_flow.source");
_Static_assert(__builtin_offsetof(kvf_flow, destination) == 20, "kvf_flow.destination");

/* one of remap's alternatives, proved */
typedef struct {
	uint64_t bytes; /* of a request of 4096 tokens */
	uint64_t pieces;
	kvf_list flows; /* of kvf_flow */
	uint32_t tail_reserved;
} kvf_proven;
_Static_assert(sizeof(kvf_proven) == 32, "kvf_proven");
_Static_assert(__builtin_offsetof(kvf_proven, bytes) == 0, "kvf_proven.bytes");
_Static_assert(__builtin_offsetof(kvf_proven, pieces) == 8, "kvf_proven.pieces");
_Static_assert(__builtin_offsetof(kvf_proven, flows) == 16, "kvf_proven.flows");

typedef struct {
	uint32_t provider; /* index in the question's providers */
	uint32_t reserved;
} kvf_transport;
_Static_assert(sizeof(kvf_transport) == 8, "kvf_transport");
_Static_assert(__builtin_offsetof(kvf_transport, provider) == 0, "kvf_transport.provider");
_Static_assert(__builtin_offsetof(kvf_transport, reserved) == 4, "kvf_transport.reserved");

/* a rank uses one of its rails; ranks that are not named are not bound */
typedef struct {
	uint32_t side; /* enum role */
	uint32_t rank;
	uint32_t rail; /* index in the rank's rails */
	uint32_t reserved;
} kvf_rail_choice;
_Static_assert(sizeof(kvf_rail_choice) == 16, "kvf_rail_choice");
_Static_assert(__builtin_offsetof(kvf_rail_choice, side) == 0, "kvf_rail_choice.side");
_Static_assert(__builtin_offsetof(kvf_rail_choice, rank) == 4, "kvf_rail_choice.rank");
_Static_assert(__builtin_offsetof(kvf_rail_choice, rail) == 8, "kvf_rail_choice.rail");
_Static_assert(__builtin_offsetof(kvf_rail_choice, reserved) == 12, "kvf_rail_choice.reserved");

/* how a transfer goes; zero leaves a thing to the host, as configured */
typedef struct {
	uint32_t alternative; /* index in the question's alternatives */
	uint32_t mode; /* enum mode */
	uint32_t permute; /* enum role: the side that brings elements into the other's order */
	uint32_t chunk; /* bytes that travel as one */
	uint32_t streams; /* connections in parallel */
	uint32_t priority; /* 1 (last) to 8 (first) */
	uint32_t integrity; /* enum integrity */
	uint32_t crc; /* enum switch */
	uint32_t tls; /* enum switch */
	uint32_t recompute; /* 1: nothing moves, the destination computes the tokens itself */
	kvf_list transports; /* of kvf_transport: in order of preference; no other is tried; empty: all, as configured */
	kvf_list rails; /* of kvf_rail_choice */
} kvf_decision;
_Static_assert(sizeof(kvf_decision) == 64, "kvf_decision");
_Static_assert(__builtin_offsetof(kvf_decision, alternative) == 0, "kvf_decision.alternative");
_Static_assert(__builtin_offsetof(kvf_decision, mode) == 4, "kvf_decision.mode");
_Static_assert(__builtin_offsetof(kvf_decision, permute) == 8, "kvf_decision.permute");
_Static_assert(__builtin_offsetof(kvf_decision, chunk) == 12, "kvf_decision.chunk");
_Static_assert(__builtin_offsetof(kvf_decision, streams) == 16, "kvf_decision.streams");
_Static_assert(__builtin_offsetof(kvf_decision, priority) == 20, "kvf_decision.priority");
_Static_assert(__builtin_offsetof(kvf_decision, integrity) == 24, "kvf_decision.integrity");
_Static_assert(__builtin_offsetof(kvf_decision, crc) == 28, "kvf_decision.crc");
_Static_assert(__builtin_offsetof(kvf_decision, tls) == 32, "kvf_decision.tls");
_Static_assert(__builtin_offsetof(kvf_decision, recompute) == 36, "kvf_decision.recompute");
_Static_assert(__builtin_offsetof(kvf_decision, transports) == 40, "kvf_decision.transports");
_Static_assert(__builtin_offsetof(kvf_decision, rails) == 52, "kvf_decision.rails");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_text engine;
	kvf_text model;
	uint32_t role; /* enum role */
	uint32_t layers;
	uint32_t tp;
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
	uint32_t previous; /* 1 + the index answered before, 0: none */
	uint32_t recorded; /* 1 + the index that the fleet has on record for this engine, 0: none */
	kvf_list groups; /* of kvf_group: of the engine */
	kvf_list candidates; /* of kvf_candidate */
	kvf_list peers; /* of kvf_peer */
	kvf_list engines; /* of kvf_engine: the asked one, then the peers in their order */
	kvf_list providers; /* of kvf_provider: in the configured order */
	kvf_text configuration; /* the operator's for this policy, canonical JSON; empty: none */
	uint32_t tail_reserved;
} kvf_select_layout_in;
_Static_assert(sizeof(kvf_select_layout_in) == 144, "kvf_select_layout_in");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, magic) == 0, "kvf_select_layout_in.magic");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, version) == 4, "kvf_select_layout_in.version");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, hook) == 8, "kvf_select_layout_in.hook");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, record) == 12, "kvf_select_layout_in.record");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, size) == 16, "kvf_select_layout_in.size");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, header_reserved) == 20, "kvf_select_layout_in.header_reserved");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, engine) == 24, "kvf_select_layout_in.engine");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, model) == 32, "kvf_select_layout_in.model");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, role) == 40, "kvf_select_layout_in.role");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, layers) == 44, "kvf_select_layout_in.layers");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, tp) == 48, "kvf_select_layout_in.tp");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, stages) == 52, "kvf_select_layout_in.stages");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, dcp) == 56, "kvf_select_layout_in.dcp");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, interleave) == 60, "kvf_select_layout_in.interleave");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, previous) == 64, "kvf_select_layout_in.previous");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, recorded) == 68, "kvf_select_layout_in.recorded");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, groups) == 72, "kvf_select_layout_in.groups");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, candidates) == 84, "kvf_select_layout_in.candidates");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, peers) == 96, "kvf_select_layout_in.peers");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, engines) == 108, "kvf_select_layout_in.engines");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, providers) == 120, "kvf_select_layout_in.providers");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, configuration) == 132, "kvf_select_layout_in.configuration");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	uint32_t index; /* of the candidate chosen */
	uint32_t reserved;
	kvf_text reason; /* at most 256 bytes of printable UTF-8 */
} kvf_select_layout_out;
_Static_assert(sizeof(kvf_select_layout_out) == 40, "kvf_select_layout_out");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, magic) == 0, "kvf_select_layout_out.magic");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, version) == 4, "kvf_select_layout_out.version");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, hook) == 8, "kvf_select_layout_out.hook");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, record) == 12, "kvf_select_layout_out.record");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, size) == 16, "kvf_select_layout_out.size");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, header_reserved) == 20, "kvf_select_layout_out.header_reserved");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, index) == 24, "kvf_select_layout_out.index");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, reserved) == 28, "kvf_select_layout_out.reserved");
_Static_assert(__builtin_offsetof(kvf_select_layout_out, reason) == 32, "kvf_select_layout_out.reason");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_text model;
	uint32_t layers;
	uint32_t reserved;
	kvf_list groups; /* of kvf_group: that both engines have */
	kvf_list sides; /* of kvf_side: source, destination */
	kvf_list engines; /* of kvf_engine: source, destination */
	kvf_list providers; /* of kvf_provider: in the configured order */
	kvf_list edges; /* of kvf_edge */
	kvf_list previous; /* of kvf_alternative: answered before for these engines; empty: none */
	kvf_text configuration; /* the operator's for this policy, canonical JSON; empty: none */
} kvf_remap_in;
_Static_assert(sizeof(kvf_remap_in) == 120, "kvf_remap_in");
_Static_assert(__builtin_offsetof(kvf_remap_in, magic) == 0, "kvf_remap_in.magic");
_Static_assert(__builtin_offsetof(kvf_remap_in, version) == 4, "kvf_remap_in.version");
_Static_assert(__builtin_offsetof(kvf_remap_in, hook) == 8, "kvf_remap_in.hook");
_Static_assert(__builtin_offsetof(kvf_remap_in, record) == 12, "kvf_remap_in.record");
_Static_assert(__builtin_offsetof(kvf_remap_in, size) == 16, "kvf_remap_in.size");
_Static_assert(__builtin_offsetof(kvf_remap_in, header_reserved) == 20, "kvf_remap_in.header_reserved");
_Static_assert(__builtin_offsetof(kvf_remap_in, model) == 24, "kvf_remap_in.model");
_Static_assert(__builtin_offsetof(kvf_remap_in, layers) == 32, "kvf_remap_in.layers");
_Static_assert(__builtin_offsetof(kvf_remap_in, reserved) == 36, "kvf_remap_in.reserved");
_Static_assert(__builtin_offsetof(kvf_remap_in, groups) == 40, "kvf_remap_in.groups");
_Static_assert(__builtin_offsetof(kvf_remap_in, sides) == 52, "kvf_remap_in.sides");
_Static_assert(__builtin_offsetof(kvf_remap_in, engines) == 64, "kvf_remap_in.engines");
_Static_assert(__builtin_offsetof(kvf_remap_in, providers) == 76, "kvf_remap_in.providers");
_Static_assert(__builtin_offsetof(kvf_remap_in, edges) == 88, "kvf_remap_in.edges");
_Static_assert(__builtin_offsetof(kvf_remap_in, previous) == 100, "kvf_remap_in.previous");
_Static_assert(__builtin_offsetof(kvf_remap_in, configuration) == 112, "kvf_remap_in.configuration");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_list alternatives; /* of kvf_alternative: at most 8, best first */
	kvf_text reason; /* at most 256 bytes of printable UTF-8 */
	uint32_t tail_reserved;
} kvf_remap_out;
_Static_assert(sizeof(kvf_remap_out) == 48, "kvf_remap_out");
_Static_assert(__builtin_offsetof(kvf_remap_out, magic) == 0, "kvf_remap_out.magic");
_Static_assert(__builtin_offsetof(kvf_remap_out, version) == 4, "kvf_remap_out.version");
_Static_assert(__builtin_offsetof(kvf_remap_out, hook) == 8, "kvf_remap_out.hook");
_Static_assert(__builtin_offsetof(kvf_remap_out, record) == 12, "kvf_remap_out.record");
_Static_assert(__builtin_offsetof(kvf_remap_out, size) == 16, "kvf_remap_out.size");
_Static_assert(__builtin_offsetof(kvf_remap_out, header_reserved) == 20, "kvf_remap_out.header_reserved");
_Static_assert(__builtin_offsetof(kvf_remap_out, alternatives) == 24, "kvf_remap_out.alternatives");
_Static_assert(__builtin_offsetof(kvf_remap_out, reason) == 36, "kvf_remap_out.reason");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_text model;
	uint32_t tokens; /* of the request */
	uint32_t cached; /* of them at its start that the destination has already */
	uint32_t priority; /* as asked, 1 (last) to 8 (first), 0: nothing asked */
	uint32_t deadline; /* ms left, rounded down to two significant bits, 0: none */
	uint32_t lease; /* ms left of the source's lease, rounded down likewise, 0: none */
	uint32_t chunk; /* configured, in bytes */
	uint32_t streams; /* configured, the most there can be */
	uint32_t integrity; /* configured, enum integrity: the least there will be */
	uint32_t recompute; /* 1: recompute may be answered */
	uint32_t reserved;
	kvf_list alternatives; /* of kvf_proven: of remap's answer, in its order */
	kvf_list engines; /* of kvf_engine: source, destination */
	kvf_list providers; /* of kvf_provider: in the configured order */
	kvf_list edges; /* of kvf_edge */
	kvf_list previous; /* of kvf_decision: answered before for these engines; empty: none, else one */
	kvf_text configuration; /* the operator's for this policy, canonical JSON; empty: none */
	uint32_t tail_reserved;
} kvf_route_in;
_Static_assert(sizeof(kvf_route_in) == 144, "kvf_route_in");
_Static_assert(__builtin_offsetof(kvf_route_in, magic) == 0, "kvf_route_in.magic");
_Static_assert(__builtin_offsetof(kvf_route_in, version) == 4, "kvf_route_in.version");
_Static_assert(__builtin_offsetof(kvf_route_in, hook) == 8, "kvf_route_in.hook");
_Static_assert(__builtin_offsetof(kvf_route_in, record) == 12, "kvf_route_in.record");
_Static_assert(__builtin_offsetof(kvf_route_in, size) == 16, "kvf_route_in.size");
_Static_assert(__builtin_offsetof(kvf_route_in, header_reserved) == 20, "kvf_route_in.header_reserved");
_Static_assert(__builtin_offsetof(kvf_route_in, model) == 24, "kvf_route_in.model");
_Static_assert(__builtin_offsetof(kvf_route_in, tokens) == 32, "kvf_route_in.tokens");
_Static_assert(__builtin_offsetof(kvf_route_in, cached) == 36, "kvf_route_in.cached");
_Static_assert(__builtin_offsetof(kvf_route_in, priority) == 40, "kvf_route_in.priority");
_Static_assert(__builtin_offsetof(kvf_route_in, deadline) == 44, "kvf_route_in.deadline");
_Static_assert(__builtin_offsetof(kvf_route_in, lease) == 48, "kvf_route_in.lease");
_Static_assert(__builtin_offsetof(kvf_route_in, chunk) == 52, "kvf_route_in.chunk");
_Static_assert(__builtin_offsetof(kvf_route_in, streams) == 56, "kvf_route_in.streams");
_Static_assert(__builtin_offsetof(kvf_route_in, integrity) == 60, "kvf_route_in.integrity");
_Static_assert(__builtin_offsetof(kvf_route_in, recompute) == 64, "kvf_route_in.recompute");
_Static_assert(__builtin_offsetof(kvf_route_in, reserved) == 68, "kvf_route_in.reserved");
_Static_assert(__builtin_offsetof(kvf_route_in, alternatives) == 72, "kvf_route_in.alternatives");
_Static_assert(__builtin_offsetof(kvf_route_in, engines) == 84, "kvf_route_in.engines");
_Static_assert(__builtin_offsetof(kvf_route_in, providers) == 96, "kvf_route_in.providers");
_Static_assert(__builtin_offsetof(kvf_route_in, edges) == 108, "kvf_route_in.edges");
_Static_assert(__builtin_offsetof(kvf_route_in, previous) == 120, "kvf_route_in.previous");
_Static_assert(__builtin_offsetof(kvf_route_in, configuration) == 132, "kvf_route_in.configuration");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_list decisions; /* of kvf_decision: exactly one */
	kvf_text reason; /* at most 256 bytes of printable UTF-8 */
	uint32_t tail_reserved;
} kvf_route_out;
_Static_assert(sizeof(kvf_route_out) == 48, "kvf_route_out");
_Static_assert(__builtin_offsetof(kvf_route_out, magic) == 0, "kvf_route_out.magic");
_Static_assert(__builtin_offsetof(kvf_route_out, version) == 4, "kvf_route_out.version");
_Static_assert(__builtin_offsetof(kvf_route_out, hook) == 8, "kvf_route_out.hook");
_Static_assert(__builtin_offsetof(kvf_route_out, record) == 12, "kvf_route_out.record");
_Static_assert(__builtin_offsetof(kvf_route_out, size) == 16, "kvf_route_out.size");
_Static_assert(__builtin_offsetof(kvf_route_out, header_reserved) == 20, "kvf_route_out.header_reserved");
_Static_assert(__builtin_offsetof(kvf_route_out, decisions) == 24, "kvf_route_out.decisions");
_Static_assert(__builtin_offsetof(kvf_route_out, reason) == 36, "kvf_route_out.reason");

#endif
