/* Match heads: each destination rank takes each of its heads from a source rank
 * that holds it, for every pipeline stage whose layers overlap and every DCP
 * rank whose tokens do. Of several source ranks that hold the same (replicas),
 * the one serves that the policy prefers, and of equals the one that has served
 * the least so far, so that all do their share; heads that follow each other stay
 * with one rank, so that boxes stay whole.
 *
 * A group's components fall into classes that are dealt alike; a part is what a
 * rank holds of one. Each class is matched for itself, but for those that scales
 * tie together: a scale must come from the rank that its rows come from. There a
 * head comes from a rank that holds it in all of them, and where scales without
 * heads are among them, all heads come from one rank that holds all, if there
 * is any.
 *
 * Stages and DCP ranks are those of the group's parts, not of the engine: a
 * group may be sharded in its own way. */
#ifndef HEADS_REMAP_H
#define HEADS_REMAP_H

#include "kvferry.h"

#define MAX_ASSIGNMENTS (1u << 16)
#define MAX_TABLE (1u << 20)
#define MAX_CLASSES 64 /* a class holds one component at least */

/* One class of the group's components. */
typedef struct {
	uint64_t components;
	uint64_t tied;   /* the classes that scales tie to it, as a mask; itself at least */
	uint64_t weight; /* bits of one head of one layer, by token */
	uint32_t heads;  /* of the model; 0: none */
} class;

/* Which of several source ranks a policy would rather have serve a destination
 * rank. Both tables are by [destination rank][source rank], by their places in
 * the sides' lists. All zero: whoever has served the least. */
typedef struct {
	const uint8_t *far;  /* nearer ranks, with a lower number, come first; NEVER is not asked. 0: all are as near */
	const uint8_t *busy; /* how busy the way between them is, 0 to 8 and no more: what it serves costs the more. 0: nobody is */
	int ordered;         /* 1: the first in order of ranks, whatever it has served */
} preference;

#define NEVER 255

/* About what matching takes, in units of fuel: for a rank and each of its parts,
 * for a destination rank and a cell, for a stretch of heads of a class and each
 * range of the part that it is of, for each rank that is looked at for it, and
 * where it has to be asked what it holds. */
#define EFFORT_PART 250
#define EFFORT_CELL 1000
#define EFFORT_STEP 500
#define EFFORT_LOOK 45
#define EFFORT_ASK 200
#define EFFORT_RANGE 30

/* What serving costs a rank, by how busy it is: the more, the less is left of it.
 * Who is not known to be busy is idle. */
static const uint16_t cost[9] = {105, 105, 120, 140, 168, 210, 280, 420, 840};

/* What moving a bit from a source rank to a destination rank takes, as far as
 * alternatives are compared by it; tables as in a preference. */
typedef struct {
	const uint8_t *far;  /* 0: all are as near */
	const uint8_t *busy; /* 0: nobody is */
	const uint8_t *fare; /* by how far it is */
} tariff;

static uint32_t price(const tariff *t, uint32_t at) {
	return (t->far ? t->fare[t->far[at]] : 1) * (t->busy ? cost[t->busy[at]] : 1);
}

/* Heads that the same ranks of a cell hold, of one class. */
typedef struct {
	uint32_t from, to, first, last; /* 1 + the ranks; those between by holders.same */
} segment;

#define SCATTERED (~0u)

/* What the source holds of one group, sorted out once a group. A cell is the
 * ranks of one stage and DCP rank. */
typedef struct {
	const void *base;
	const kvf_side *side;
	preference prefer;
	uint32_t group, classes, room; /* room: of classes */
	class class[MAX_CLASSES];
	uint32_t stages, dcp;
	kvf_range *stage;      /* [stage]: range that its layers lie in, ascending */
	const kvf_part **part; /* [rank][class]: 0 where it holds none */
	uint32_t *first;       /* [stage][dcp]: 1 + the cell's first rank, 0: none */
	uint32_t *next;        /* [rank]: 1 + the next rank of its cell, 0: none */
	uint32_t *start;       /* [stage][dcp]: the cell's first of a class's segments */
	uint32_t *segments;    /* [stage][dcp][class]: how many it has, SCATTERED: its ranks' heads overlap */
	segment *segment;      /* [class][rank]: a cell's ascend */
	uint32_t *same;        /* [rank][class]: 1 + the next rank of its segment, 0: none */
	uint64_t *load;        /* [rank]: bits served of a token, of all groups, times what they cost */
	const tariff *tariff;  /* 0: nothing is compared */
	uint64_t *given;       /* [rank]: bits served of a token in this alternative, times their price; with a tariff */
	uint64_t choices;      /* a hash of who serves what: alternatives that choose alike have the same */
	uint64_t effort;       /* about the fuel that matching took so far */
	int replicas;          /* 1: some ranks hold the same, so that there is something to choose */
	uint32_t lacking;      /* 1 + the first destination rank that wants a head which nobody may give it */
	uint32_t head, lost;   /* that head, and its group */
} holders;

/* zeros returns room for n words; 0 where that is more than this policy does. */
static uint32_t *zeros(uint64_t n) {
	uint32_t *p = n > MAX_TABLE ? 0 : (uint32_t *)kvf_take((uint32_t)n * 4);
	if (p) __builtin_memset(p, 0, (uint32_t)n * 4); /* groups share the room, one after the other */
	return p;
}

static const kvf_rank *rank_at(const holders *h, uint32_t i) { return KVF_AT(kvf_rank, h->base, h->side->ranks, i); }

/* Components without heads have the one head 0. */
static const kvf_range whole = {0, 1};

static uint32_t spans(const kvf_part *p) { return p->heads.count ? p->heads.count : 1; }

/* span is the i-th head range of a part. */
static const kvf_range *span(const void *base, const kvf_part *p, uint32_t i) { return p->heads.count ? KVF_AT(kvf_range, base, p->heads, i) : &whole; }

/* end_of is where the range of a part that holds a head ends, 0 where none does. */
static inline uint32_t end_of(const void *base, const kvf_part *p, uint32_t head) {
	for (uint32_t i = 0, n = spans(p); i < n; i++) {
		const kvf_range *g = span(base, p, i);
		if (g->from <= head && head < g->to) return g->to;
	}
	return 0;
}

/* following is the first head from the given one on that a part holds; ~0 where
 * there is none. */
static uint32_t following(const void *base, const kvf_part *p, uint32_t head) {
	uint32_t least = ~0u;
	for (uint32_t i = 0, n = spans(p); i < n; i++) {
		const kvf_range *g = span(base, p, i);
		uint32_t from = g->from > head ? g->from : head;
		if (from < g->to && from < least) least = from;
	}
	return least;
}

/* layers is the range that a part's layers lie in. They may leave gaps: a box
 * may name more than its ranks hold. */
static kvf_range layers(const void *base, const kvf_part *p) {
	kvf_range out = {0, 0};
	for (uint32_t i = 0; i < p->layers.count; i++) {
		const kvf_range *g = KVF_AT(kvf_range, base, p->layers, i);
		if (!i || g->from < out.from) out.from = g->from;
		if (!i || g->to > out.to) out.to = g->to;
	}
	return out;
}

/* class_of is the class of just these components, added where it is new and
 * there is room; the number of classes where there is none. */
static uint32_t class_of(holders *h, uint64_t components, int add) {
	uint32_t c = 0;
	while (c < h->classes && h->class[c].components != components) c++;
	if (c == h->classes && add && c < MAX_CLASSES) {
		h->class[c] = (class){components, 1ull << c, 1, 0}; /* nobody serves for nothing */
		h->classes++;
	}
	return c;
}

/* tie finds out which classes scales tie together, and what a head weighs. */
static void tie(holders *h, const kvf_group *group) {
	for (uint32_t i = 0; i < group->components.count; i++) {
		const kvf_component *c = KVF_AT(kvf_component, h->base, group->components, i);
		uint64_t tied = 0;
		for (uint32_t k = 0; k < h->classes; k++) {
			uint64_t own = h->class[k].components;
			if (own >> i & 1) {
				h->class[k].heads = c->heads;
				h->class[k].weight += (uint64_t)c->dim * c->bits / (c->tokens_per_entry ? c->tokens_per_entry : 1);
			}
			if (own >> i & 1 || (c->scales && c->scales <= 64 && own >> (c->scales - 1) & 1)) tied |= h->class[k].tied;
		}
		for (uint32_t k = 0; k < h->classes; k++)
			if (tied >> k & 1) h->class[k].tied = tied;
	}
}

/* stage_from is the stage whose layers begin there; the number of stages where
 * there is none. */
static uint32_t stage_from(const holders *h, uint32_t from) {
	uint32_t s = 0;
	while (s < h->stages && h->stage[s].from != from) s++;
	return s;
}

/* add_stage adds the stage with these layers, where it is new. 0 where there are
 * none, or the ranks have more stages than they are. */
static int add_stage(holders *h, kvf_range own) {
	if (own.from >= own.to) return 0;
	if (stage_from(h, own.from) < h->stages) return 1;
	if (h->stages == h->side->ranks.count) return 0;
	uint32_t s = h->stages++;
	for (; s > 0 && h->stage[s - 1].from > own.from; s--) h->stage[s] = h->stage[s - 1];
	h->stage[s] = own;
	return 1;
}

static const kvf_part *held(const holders *h, uint32_t rank, uint32_t c) { return h->part[rank * h->room + c]; }

/* segments_of sorts out who holds the same of a class in a cell: most often
 * ranks hold one range of heads each, that others hold too or not at all. */
static uint32_t segments_of(holders *h, segment *s, uint32_t first, uint32_t c) {
	uint32_t m = 0;
	for (uint32_t i = first; i; i = h->next[i - 1]) {
		const kvf_part *p = held(h, i - 1, c);
		if (!p) continue;
		const kvf_range *g = span(h->base, p, 0);
		uint32_t k = m;
		while (k > 0 && s[k - 1].from > g->from) k--;
		if (spans(p) == 1 && k > 0 && s[k - 1].from == g->from && s[k - 1].to == g->to) {
			h->same[(s[k - 1].last - 1) * h->room + c] = i;
			s[k - 1].last = i;
			continue;
		}
		if (spans(p) != 1 || g->from >= g->to || (k > 0 && s[k - 1].to > g->from) || (k < m && s[k].from < g->to)) return SCATTERED;
		for (uint32_t j = m; j > k; j--) s[j] = s[j - 1];
		s[k] = (segment){g->from, g->to, i, i};
		m++;
	}
	return m;
}

/* sort_out fills in the segments of all cells; 0 where there is no room. */
static int sort_out(holders *h, uint32_t n) {
	uint32_t cells = h->stages * h->dcp, base = 0;
	h->start = zeros(cells);
	h->segments = zeros((uint64_t)cells * h->room);
	h->segment = (segment *)zeros((uint64_t)n * h->classes * 4);
	h->same = zeros((uint64_t)n * h->room);
	if (!h->start || !h->segments || !h->segment || !h->same) return 0;
	for (uint32_t cell = 0; cell < cells; cell++) {
		h->start[cell] = base;
		for (uint32_t c = 0; c < h->classes; c++) h->segments[cell * h->room + c] = segments_of(h, h->segment + c * n + base, h->first[cell], c);
		for (uint32_t i = h->first[cell]; i; i = h->next[i - 1]) base++;
	}
	return 1;
}

/* collect fills in h; 0 where the group is too large for this policy. */
static int collect(holders *h, const kvf_group *group) {
	uint32_t n = h->side->ranks.count;
	h->stage = (kvf_range *)zeros((uint64_t)n * 2);
	h->part = (const kvf_part **)zeros((uint64_t)n * h->room);
	h->next = zeros(n);
	uint32_t *begins = zeros((uint64_t)n * h->room); /* [rank][class]: its first layer */
	if (!h->stage || !h->part || !h->next || !begins) return 0;
	const kvf_part *any = 0;
	for (uint32_t i = 0; i < n; i++) {
		const kvf_rank *r = rank_at(h, i);
		h->effort += EFFORT_PART * (1 + r->parts.count);
		for (uint32_t k = 0; k < r->parts.count; k++) {
			const kvf_part *p = KVF_AT(kvf_part, h->base, r->parts, k);
			if (p->group != h->group) continue;
			uint32_t c = class_of(h, p->components, h->classes < h->room);
			if (c == h->classes) continue;
			kvf_range own = layers(h->base, p);
			h->effort += EFFORT_RANGE * p->layers.count;
			if (!add_stage(h, own)) continue;
			begins[i * h->room + c] = own.from;
			h->part[i * h->room + c] = p;
			any = p;
		}
	}
	if (!any) return 1;
	tie(h, group);
	h->dcp = any->dcp_size;
	if (!h->dcp || h->dcp > MAX_TABLE) return 0;
	h->first = zeros((uint64_t)h->stages * h->dcp);
	if (!h->first) return 0;
	/* Each cell has every head at least once. */
	for (uint32_t c = 0; c < h->classes && !h->replicas; c++) {
		uint64_t held = 0, once = (uint64_t)(h->class[c].heads ? h->class[c].heads : 1) * h->stages * h->dcp;
		for (uint32_t i = 0; i < n; i++) {
			const kvf_part *p = h->part[i * h->room + c];
			for (uint32_t k = 0, all = p ? spans(p) : 0; k < all; k++) held += span(h->base, p, k)->to - span(h->base, p, k)->from;
		}
		h->replicas = held > once;
	}
	/* Backwards, so that each chain ascends. */
	for (uint32_t i = n; i-- > 0;) {
		uint32_t c = 0;
		while (c < h->classes && !h->part[i * h->room + c]) c++;
		const kvf_part *p = c < h->classes ? h->part[i * h->room + c] : 0;
		if (!p || p->dcp_phase >= h->dcp) continue;
		uint32_t *first = &h->first[stage_from(h, begins[i * h->room + c]) * h->dcp + p->dcp_phase];
		h->next[i] = *first;
		*first = i + 1;
	}
	return sort_out(h, n);
}

static uint64_t divisor(uint64_t a, uint64_t b) {
	while (b) {
		uint64_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

/* shares reports whether any token lies on both parts' DCP ranks. A rank holds
 * the tokens whose place in a period of size * interleave lies in a window of
 * interleave tokens; by the Chinese remainder theorem two such sets meet exactly
 * where the windows do modulo the common divisor of the periods. */
static int shares(const kvf_part *a, const kvf_part *b) {
	uint64_t n = a->dcp_interleave, m = b->dcp_interleave;
	uint64_t g = divisor(n * a->dcp_size, m * b->dcp_size);
	if (!g) return 0;
	uint64_t x = n * a->dcp_phase % g, y = m * b->dcp_phase % g;
	return (y + g - x) % g < n || (x + g - y) % g < m;
}

/* An assignment that heads are still added to. */
typedef struct {
	uint32_t source, to; /* source 0: none */
	kvf_assignment *w;   /* 0 where the answer is full */
} box;

/* A destination rank that is served from one cell. */
typedef struct {
	const kvf_part *want[MAX_CLASSES]; /* by class of the group, 0 where it has none */
	box open[MAX_CLASSES];
	uint32_t rank, cell, row; /* row: of the preference's tables */
	kvf_range layers;
	const kvf_part *tokens; /* of the source */
} target;

#define EACH(c, set) (uint64_t left_ = (set); left_ && ((c = (uint32_t)__builtin_ctzll(left_)), 1); left_ &= left_ - 1)

/* holds is up to where a source rank holds a head, and those that follow it, in
 * all classes of a set; 0 where it does not. */
static uint32_t holds(const holders *h, uint32_t rank, uint64_t set, uint32_t head) {
	uint32_t c, end = ~0u;
	for EACH(c, set) {
		const kvf_part *p = held(h, rank, c);
		uint32_t e = p ? end_of(h->base, p, head) : 0;
		if (e < end) end = e;
	}
	return end;
}

/* holds_all reports whether a source rank holds every head that the destination
 * rank wants of a set of classes. */
static int holds_all(const holders *h, const target *t, uint32_t rank, uint64_t set) {
	uint32_t c;
	for EACH(c, set) {
		for (uint32_t i = 0; i < spans(t->want[c]); i++) {
			const kvf_range *g = span(h->base, t->want[c], i);
			for (uint32_t head = g->from; head < g->to;)
				if (!(head = holds(h, rank, 1ull << c, head))) return 0;
		}
	}
	return 1;
}

#define ALL (~0u)

/* toll is what a bit costs that a source rank serves to the target. */
static uint32_t toll(const holders *h, const target *t, uint32_t rank) {
	if (h->prefer.ordered) return 0;
	return h->prefer.busy ? cost[h->prefer.busy[t->row + rank]] : 1;
}

/* found is the segment of a class in the target's cell that has a head; 0 where
 * none has. */
static const segment *found(const holders *h, const target *t, uint32_t c, uint32_t head) {
	uint32_t low = 0, high = h->segments[t->cell * h->room + c];
	const segment *s = h->segment + c * h->side->ranks.count + h->start[t->cell];
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (s[middle].to <= head) low = middle + 1;
		else high = middle;
	}
	return low < h->segments[t->cell * h->room + c] && s[low].from <= head ? &s[low] : 0;
}

/* best_of is pick among the ranks that follow each other from "first" by "next",
 * which is a class's place in lists of step words; made for each kind of question:
 * whether there are preferences, and whether ranks must be asked what they hold. */
static inline __attribute__((always_inline)) uint32_t best_of(holders *h, const target *t, uint64_t set, uint32_t head, uint32_t first, const uint32_t *next, uint32_t step, int preferred, int ask) {
	const uint8_t *far = preferred && h->prefer.far ? h->prefer.far + t->row : 0, *busy = preferred && h->prefer.busy ? h->prefer.busy + t->row : 0;
	const uint64_t *loads = h->load;
	uint32_t c, best = 0, nearest = NEVER, looks = 0, asked = 0;
	uint64_t unit = 0, least = ~0ull;
	if (busy) {
		for EACH(c, set) unit += h->class[c].weight;
		unit *= t->layers.to - t->layers.from;
	}
	for (uint32_t i = first; i; i = next[(i - 1) * step]) {
		uint32_t f = far ? far[i - 1] : 0;
		looks++;
		if (preferred && (f > nearest || f == NEVER)) continue;
		uint64_t load = loads[i - 1];
		if (busy) load += unit * cost[busy[i - 1]];
		if (load >= least && (!preferred || f == nearest)) continue;
		if (ask) {
			asked++;
			if (head == ALL ? !holds_all(h, t, i - 1, set) : !holds(h, i - 1, set, head)) continue;
		}
		best = i;
		least = load;
		nearest = f;
	}
	h->effort += looks * EFFORT_LOOK + asked * EFFORT_ASK;
	return best;
}

/* pick is the source rank of the cell that holds a head, or ALL that are wanted,
 * in all classes of a set: of the nearest the one that has the least to do when
 * it serves; of those the first. 1 + its index, 0 where there is none. It is
 * what takes the most time. */
static uint32_t pick(holders *h, const target *t, uint64_t set, uint32_t head) {
	uint32_t c = (uint32_t)__builtin_ctzll(set);
	int preferred = h->prefer.far || h->prefer.busy;
	if (head != ALL && !(set & (set - 1)) && h->segments[t->cell * h->room + c] != SCATTERED) {
		const segment *s = found(h, t, c, head);
		if (!s) return 0;
		if (s->first == s->last && !h->prefer.far) return s->first;
		return preferred ? best_of(h, t, set, head, s->first, h->same + c, h->room, 1, 0) : best_of(h, t, set, head, s->first, h->same + c, h->room, 0, 0);
	}
	return preferred ? best_of(h, t, set, head, h->first[t->cell], h->next, 1, 1, 1) : best_of(h, t, set, head, h->first[t->cell], h->next, 1, 0, 1);
}

static void mix(uint64_t *hash, uint64_t a, uint64_t b) {
	*hash = (*hash ^ a) * 0x9e3779b97f4a7c15ull;
	*hash = (*hash ^ *hash >> 29 ^ b) * 0xbf58476d1ce4e5b9ull;
}

/* put says that heads of a class come from a source rank: in the box before
 * where that goes on. */
static void put(holders *h, kvf_answer *a, uint32_t *written, target *t, uint32_t c, uint32_t s, kvf_range heads) {
	box *b = &t->open[c];
	if (b->source != s || b->to != heads.from) {
		kvf_assignment *w = (kvf_assignment *)kvf_grow(a, sizeof *w);
		++*written;
		b->source = s;
		b->w = w;
		if (w) {
			w->components = h->class[c].components;
			w->group = h->group;
			w->destination = t->rank;
			w->source = rank_at(h, s - 1)->rank;
			w->layer_from = t->layers.from;
			w->layer_to = t->layers.to;
			w->head_from = heads.from;
			if (t->tokens->dcp_size > 1) {
				w->token_size = t->tokens->dcp_size;
				w->token_interleave = t->tokens->dcp_interleave;
				w->token_phase = t->tokens->dcp_phase;
			}
		}
	}
	b->to = heads.to;
	if (b->w) b->w->head_to = heads.to;
	uint64_t bits = h->class[c].weight * (heads.to - heads.from) * (t->layers.to - t->layers.from);
	h->load[s - 1] += bits * toll(h, t, s - 1);
	if (h->tariff) h->given[s - 1] += bits * price(h->tariff, t->row + s - 1);
	h->effort += EFFORT_STEP;
	mix(&h->choices, (uint64_t)t->cell << 32 | h->group, h->class[c].components);
	mix(&h->choices, (uint64_t)t->rank << 32 | s, (uint64_t)heads.from << 32 | heads.to);
}

/* walk serves the wanted heads of a set of classes in ascending order: a head of
 * all of them that want it from one source rank, which is "whole" where that is
 * not 0. */
static void walk(holders *h, kvf_answer *a, uint32_t *written, target *t, uint64_t set, uint32_t whole) {
	uint32_t c, before = 0;
	for EACH(c, set) t->open[c].source = 0;
	for (uint32_t from = 0; *written <= MAX_ASSIGNMENTS;) {
		uint32_t head = ~0u, end = ~0u;
		for EACH(c, set) {
			uint32_t f = following(h->base, t->want[c], from);
			if (f < head) head = f;
		}
		if (head == ~0u) return;
		if (head != from) before = 0;
		uint64_t wanted = 0;
		for EACH(c, set) {
			h->effort += EFFORT_STEP + EFFORT_RANGE * spans(t->want[c]);
			uint32_t e = end_of(h->base, t->want[c], head);
			if (e) wanted |= 1ull << c;
			else e = following(h->base, t->want[c], head);
			if (e < end) end = e;
		}
		uint32_t s = whole;
		if (!s) s = before && holds(h, before - 1, wanted, head) ? before : pick(h, t, wanted, head);
		uint32_t e = s ? holds(h, s - 1, wanted, head) : head + 1; /* nobody has it: the proof will name it */
		if (e < end) end = e;
		if (s) {
			for EACH(c, wanted) put(h, a, written, t, c, s, (kvf_range){head, end});
		} else if (!h->lacking) {
			h->lacking = t->rank + 1;
			h->head = head;
			h->lost = h->group;
		}
		before = s;
		from = end;
	}
}

/* serve serves a destination rank from one cell. Classes that scales tie together
 * and that have equally many heads are served head by head; where their heads do
 * not match, since some have none, one rank must have them all. */
static void serve(holders *h, kvf_answer *a, uint32_t *written, target *t) {
	uint64_t left = 0;
	for (uint32_t c = 0; c < h->classes; c++)
		if (t->want[c]) left |= 1ull << c;
	while (left) {
		uint32_t first = (uint32_t)__builtin_ctzll(left), c, whole = 0;
		uint64_t set = h->class[first].tied & left, alike = 0;
		for EACH(c, set) {
			if (h->class[c].heads == h->class[first].heads) alike |= 1ull << c;
		}
		if (alike != set) whole = pick(h, t, set, ALL);
		if (whole) {
			for EACH(c, set) walk(h, a, written, t, 1ull << c, whole);
		} else { /* where it had to be one rank, the proof will name what comes apart */
			set = alike;
			walk(h, a, written, t, set, 0);
		}
		left &= ~set;
	}
}

/* match_group writes what serves the destination's parts of one group; 0 where
 * the group is too large for this policy. */
static int match_group(holders *h, const kvf_group *group, const kvf_side *destination, kvf_answer *a, uint32_t *written) {
	if (!collect(h, group)) return 0;
	target t;
	for (uint32_t i = 0; i < destination->ranks.count; i++) {
		const kvf_rank *r = KVF_AT(kvf_rank, h->base, destination->ranks, i);
		const kvf_part *d = 0;
		h->effort += EFFORT_PART * (1 + r->parts.count);
		for (uint32_t c = 0; c < h->classes; c++) t.want[c] = 0;
		for (uint32_t k = 0; k < r->parts.count; k++) {
			const kvf_part *p = KVF_AT(kvf_part, h->base, r->parts, k);
			uint32_t c = p->group == h->group ? class_of(h, p->components, 0) : h->classes;
			if (c == h->classes) continue;
			t.want[c] = d = p;
		}
		if (!d) continue;
		t.rank = r->rank;
		t.row = i * h->side->ranks.count;
		kvf_range wanted = layers(h->base, d);
		h->effort += EFFORT_RANGE * d->layers.count;
		for (uint32_t stage = 0; stage < h->stages; stage++) {
			kvf_range have = h->stage[stage];
			t.layers = (kvf_range){have.from > wanted.from ? have.from : wanted.from, have.to < wanted.to ? have.to : wanted.to};
			if (t.layers.from >= t.layers.to) continue;
			for (uint32_t dcp = 0; dcp < h->dcp; dcp++) {
				t.cell = stage * h->dcp + dcp;
				if (!h->first[t.cell]) continue;
				t.tokens = 0;
				for (uint32_t c = 0; !t.tokens; c++) t.tokens = held(h, h->first[t.cell] - 1, c);
				h->effort += EFFORT_CELL;
				if (shares(t.tokens, d)) serve(h, a, written, &t);
			}
		}
		if (*written > MAX_ASSIGNMENTS) break;
	}
	return 1;
}

/* What became of an alternative. */
enum matched { MATCHED, WRONG, TOO_LONG, TOO_LARGE };

/* begin gets ready to match: the loads are there for all alternatives. 0 where
 * the source has more ranks than this looks at. */
static int begin(holders *h, const kvf_remap_in *q) {
	*h = (holders){.base = q, .side = KVF_AT(kvf_side, q, q->sides, 0)};
	h->load = (uint64_t *)zeros((uint64_t)h->side->ranks.count * 2);
	return h->load != 0;
}

/* match writes the assignments of one alternative at the end of the answer, and
 * counts them. Loads go on from what they are. */
static enum matched match(holders *h, const kvf_remap_in *q, kvf_answer *a, uint32_t *written) {
	uint32_t mark = kvf_mark();
	*written = 0;
	h->choices = 0;
	h->lacking = 0;
	for (uint32_t g = 0; g < q->groups.count; g++) {
		const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
		if (group->components.count < 1 || group->components.count > MAX_CLASSES) return WRONG;
		kvf_release(mark);
		h->group = g;
		h->room = group->components.count;
		h->classes = h->stages = 0;
		int fits = match_group(h, group, KVF_AT(kvf_side, q, q->sides, 1), a, written);
		if (*written > MAX_ASSIGNMENTS) return TOO_LONG;
		if (!fits) return TOO_LARGE;
	}
	kvf_release(mark);
	return MATCHED;
}

/* unmatched is what a hook returns for a pair that is more than this policy does. */
static uint64_t unmatched(uint32_t out, uint32_t out_cap, enum matched why) {
	kvf_line line = {{0}, 0};
	if (why == WRONG) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	if (why == TOO_LONG) KVF_SAY(&line, "the pair takes more assignments than this policy gives it");
	else KVF_SAY(&line, "the source has more ranks times components than this policy looks at"); /* or memory is out */
	return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_UNSUPPORTED, &line);
}

/* serving counts the source ranks that serve.
 * Preconditions: there is a tariff. */
static uint32_t serving(const holders *h) {
	uint32_t n = 0;
	for (uint32_t i = 0; i < h->side->ranks.count; i++) n += h->given[i] > 0;
	return n;
}

static void say_matched(kvf_line *line, uint32_t written, uint32_t serving, uint32_t ranks) {
	KVF_SAY(line, "heads matched in ");
	kvf_say_number(line, written);
	if (written == 1) KVF_SAY(line, " assignment, ");
	else KVF_SAY(line, " assignments, ");
	kvf_say_number(line, serving);
	KVF_SAY(line, " of ");
	kvf_say_number(line, ranks);
	KVF_SAY(line, " source ranks serve");
}

static const kvf_remap_in *remap_input(uint32_t in, uint32_t in_len) {
	const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
	return q && q->sides.count == 2 ? q : 0;
}

/* answer_one answers with one alternative; what is said before is part of the
 * reason. */
static uint64_t answer_one(holders *h, const kvf_remap_in *q, uint32_t out, uint32_t out_cap, kvf_line *line) {
	uint64_t *given = (uint64_t *)zeros((uint64_t)h->side->ranks.count * 2);
	static const tariff none;
	if (!given) return unmatched(out, out_cap, TOO_LARGE);
	h->tariff = &none;
	h->given = given;
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	kvf_alternative *alternative = (kvf_alternative *)kvf_grow(&a, sizeof(kvf_alternative));
	uint64_t at = (a.need + 7) & ~7ull;
	uint32_t written;
	enum matched got = match(h, q, &a, &written);
	if (got != MATCHED) return unmatched(out, out_cap, got);
	say_matched(line, written, serving(h), h->side->ranks.count);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	if (written) alternative->assignments = (kvf_list){(uint32_t)at, written, sizeof(kvf_assignment)};
	kvf_remap_out *answer = (kvf_remap_out *)out;
	answer->alternatives.at = (uint32_t)alternative - out;
	answer->alternatives.count = 1;
	answer->alternatives.step = sizeof(kvf_alternative);
	answer->reason = reason;
	return result;
}

/* match_heads is a remap with one alternative: whoever has served the least. */
static uint64_t match_heads(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap) {
	const kvf_remap_in *q = remap_input(in, in_len);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	holders h;
	if (!begin(&h, q)) return unmatched(out, out_cap, TOO_LARGE);
	kvf_line line = {{0}, 0};
	return answer_one(&h, q, out, out_cap, &line);
}

#endif
