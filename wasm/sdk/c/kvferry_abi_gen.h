/* Code generated from wasm/abi/schema/kvferry1.schema by gen; DO NOT EDIT. */
#ifndef KVFERRY_ABI_GEN_H
#define KVFERRY_ABI_GEN_H

#include <stdint.h>

#define KVF_MAGIC 0x3146564bu
#define KVF_MAJOR 1
#define KVF_MINOR 0

enum kvf_hook {
	KVF_HOOK_SELECT_LAYOUT = 1,
	KVF_HOOK_REMAP = 2,
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

/* an operator's words about an engine */
typedef struct {
	kvf_text key;
	kvf_text value;
} kvf_label;
_Static_assert(sizeof(kvf_label) == 16, "kvf_label");
_Static_assert(__builtin_offsetof(kvf_label, key) == 0, "kvf_label.key");
_Static_assert(__builtin_offsetof(kvf_label, value) == 8, "kvf_label.value");

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
	uint32_t tail_reserved;
} kvf_peer;
_Static_assert(sizeof(kvf_peer) == 40, "kvf_peer");
_Static_assert(__builtin_offsetof(kvf_peer, engine) == 0, "kvf_peer.engine");
_Static_assert(__builtin_offsetof(kvf_peer, tp) == 8, "kvf_peer.tp");
_Static_assert(__builtin_offsetof(kvf_peer, stages) == 12, "kvf_peer.stages");
_Static_assert(__builtin_offsetof(kvf_peer, dcp) == 16, "kvf_peer.dcp");
_Static_assert(__builtin_offsetof(kvf_peer, interleave) == 20, "kvf_peer.interleave");
_Static_assert(__builtin_offsetof(kvf_peer, candidates) == 24, "kvf_peer.candidates");

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
	kvf_text host; /* empty: not known */
	kvf_list parts; /* of kvf_part */
	uint32_t tail_reserved;
} kvf_rank;
_Static_assert(sizeof(kvf_rank) == 40, "kvf_rank");
_Static_assert(__builtin_offsetof(kvf_rank, rank) == 0, "kvf_rank.rank");
_Static_assert(__builtin_offsetof(kvf_rank, pp) == 4, "kvf_rank.pp");
_Static_assert(__builtin_offsetof(kvf_rank, tp) == 8, "kvf_rank.tp");
_Static_assert(__builtin_offsetof(kvf_rank, dcp) == 12, "kvf_rank.dcp");
_Static_assert(__builtin_offsetof(kvf_rank, host) == 16, "kvf_rank.host");
_Static_assert(__builtin_offsetof(kvf_rank, parts) == 24, "kvf_rank.parts");

typedef struct {
	kvf_text engine;
	uint32_t tp;
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
	kvf_list pools; /* of kvf_pool: by group */
	kvf_list ranks; /* of kvf_rank: by rank number */
	kvf_list labels; /* of kvf_label */
	uint32_t tail_reserved;
} kvf_side;
_Static_assert(sizeof(kvf_side) == 64, "kvf_side");
_Static_assert(__builtin_offsetof(kvf_side, engine) == 0, "kvf_side.engine");
_Static_assert(__builtin_offsetof(kvf_side, tp) == 8, "kvf_side.tp");
_Static_assert(__builtin_offsetof(kvf_side, stages) == 12, "kvf_side.stages");
_Static_assert(__builtin_offsetof(kvf_side, dcp) == 16, "kvf_side.dcp");
_Static_assert(__builtin_offsetof(kvf_side, interleave) == 20, "kvf_side.interleave");
_Static_assert(__builtin_offsetof(kvf_side, pools) == 24, "kvf_side.pools");
_Static_assert(__builtin_offsetof(kvf_side, ranks) == 36, "kvf_side.ranks");
_Static_assert(__builtin_offsetof(kvf_side, labels) == 48, "kvf_side.labels");

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

typedef struct {
	kvf_list assignments; /* of kvf_assignment */
	uint32_t tail_reserved;
} kvf_alternative;
_Static_assert(sizeof(kvf_alternative) == 16, "kvf_alternative");
_Static_assert(__builtin_offsetof(kvf_alternative, assignments) == 0, "kvf_alternative.assignments");

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
	uint32_t reserved;
	kvf_list groups; /* of kvf_group: of the engine */
	kvf_list candidates; /* of kvf_candidate */
	kvf_list peers; /* of kvf_peer */
	kvf_list labels; /* of kvf_label */
} kvf_select_layout_in;
_Static_assert(sizeof(kvf_select_layout_in) == 120, "kvf_select_layout_in");
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
_Static_assert(__builtin_offsetof(kvf_select_layout_in, reserved) == 68, "kvf_select_layout_in.reserved");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, groups) == 72, "kvf_select_layout_in.groups");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, candidates) == 84, "kvf_select_layout_in.candidates");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, peers) == 96, "kvf_select_layout_in.peers");
_Static_assert(__builtin_offsetof(kvf_select_layout_in, labels) == 108, "kvf_select_layout_in.labels");

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
} kvf_remap_in;
_Static_assert(sizeof(kvf_remap_in) == 64, "kvf_remap_in");
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

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_list alternatives; /* of kvf_alternative: at most 8, best first */
	kvf_text reason;
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

#endif
