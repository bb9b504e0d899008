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
	KVF_AXIS_COMPONENT = 255, /* the place of "component" in an order */
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

typedef struct {
	kvf_text name;
	uint32_t heads; /* 0: no heads */
	uint32_t dim;
	uint32_t dtype;
	uint32_t bits; /* of one element */
} kvf_component;
_Static_assert(sizeof(kvf_component) == 24, "kvf_component");

/* layers with the same components, block size and block table */
typedef struct {
	kvf_text name;
	uint32_t heads;
	uint32_t reserved;
	kvf_list layers; /* of kvf_range */
	kvf_list components; /* of kvf_component */
} kvf_group;
_Static_assert(sizeof(kvf_group) == 40, "kvf_group");

/* an operator's words about an engine */
typedef struct {
	kvf_text key;
	kvf_text value;
} kvf_label;
_Static_assert(sizeof(kvf_label) == 16, "kvf_label");

/* one item of an order: axis[%mod][/div]; mod 0 is the whole axis */
typedef struct {
	uint32_t axis;
	uint32_t mod;
	uint32_t div;
	uint32_t component; /* 1 + the component whose own item it is; 0: of all */
} kvf_item;
_Static_assert(sizeof(kvf_item) == 16, "kvf_item");

/* what a period of tokens takes to move between two candidates, from the host's own arithmetic */
typedef struct {
	uint32_t peer; /* index in peers */
	uint32_t candidate; /* index in that peer's candidates */
	uint64_t pieces; /* contiguous copies */
	uint64_t bytes;
} kvf_cost;
_Static_assert(sizeof(kvf_cost) == 24, "kvf_cost");

/* a layout that the engine's attention can read and write */
typedef struct {
	kvf_text name;
	kvf_list order; /* of kvf_item */
	uint32_t block; /* tokens */
	uint32_t blocks;
	uint32_t attention; /* relative cost of attention on it, 0: not said */
	uint32_t reserved;
	kvf_list costs; /* of kvf_cost */
} kvf_candidate;
_Static_assert(sizeof(kvf_candidate) == 48, "kvf_candidate");

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

typedef struct {
	uint32_t block; /* tokens a block, on each rank */
	uint32_t blocks;
} kvf_pool;
_Static_assert(sizeof(kvf_pool) == 8, "kvf_pool");

/* what a rank holds of a group */
typedef struct {
	uint32_t group;
	uint32_t dcp_size; /* token t is held where (t / interleave) mod dcp_size == dcp_phase */
	uint32_t dcp_interleave;
	uint32_t dcp_phase;
	kvf_list layers; /* of kvf_range */
	kvf_list heads; /* of kvf_range: in storage order; empty for a group without heads */
} kvf_part;
_Static_assert(sizeof(kvf_part) == 40, "kvf_part");

typedef struct {
	uint32_t rank;
	uint32_t pp;
	uint32_t tp;
	uint32_t dcp;
	kvf_text host; /* empty: not known */
	kvf_list parts; /* of kvf_part */
	uint32_t tail_reserved;
} kvf_rank;
_Static_assert(sizeof(kvf_rank) == 40, "kvf_rank");

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

/* the destination rank takes a box from the source rank */
typedef struct {
	uint64_t components; /* bit i: component i of the group */
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

typedef struct {
	kvf_list assignments; /* of kvf_assignment */
	uint32_t tail_reserved;
} kvf_alternative;
_Static_assert(sizeof(kvf_alternative) == 16, "kvf_alternative");

typedef struct {
	uint32_t magic;
	uint32_t version;
	uint32_t hook;
	uint32_t record;
	uint32_t size;
	uint32_t header_reserved;
	kvf_text engine;
	kvf_text model;
	uint32_t role;
	uint32_t layers;
	uint32_t tp;
	uint32_t stages;
	uint32_t dcp;
	uint32_t interleave;
	uint32_t previous; /* 1 + the index answered before, 0: none */
	uint32_t reserved;
	kvf_list groups; /* of kvf_group */
	kvf_list candidates; /* of kvf_candidate */
	kvf_list peers; /* of kvf_peer */
	kvf_list labels; /* of kvf_label */
} kvf_select_layout_in;
_Static_assert(sizeof(kvf_select_layout_in) == 120, "kvf_select_layout_in");

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
	kvf_list groups; /* of kvf_group */
	kvf_list sides; /* of kvf_side: source, destination */
} kvf_remap_in;
_Static_assert(sizeof(kvf_remap_in) == 64, "kvf_remap_in");

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

#endif
