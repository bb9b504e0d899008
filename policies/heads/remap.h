/* Match heads: each destination rank takes each of its heads from a source rank
 * that holds it, for every pipeline stage whose layers overlap and every DCP
 * rank whose tokens do. Of several source ranks that hold the same (replicas),
 * the one serves that has served the least so far, so that all do their share;
 * heads that follow each other stay with one rank, so that boxes stay whole.
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
#define MAX_WORK (1u << 26)
#define MAX_CLASSES 64 /* a class holds one component at least */

/* Ranks, parts, ranges, replicas and costs looked at so far: nobody meters this
 * guest yet, so it gives up by itself. */
static uint64_t work;

/* One class of the group's components. */
typedef struct {
	uint64_t components;
	uint64_t tied;   /* the classes that scales tie to it, as a mask; itself at least */
	uint64_t weight; /* bits of one head of one layer, by token */
	uint32_t heads;  /* of the model; 0: none */
} class;

/* What the source holds of one group, sorted out once a group. A cell is the
 * ranks of one stage and DCP rank. */
typedef struct {
	const void *base;
	const kvf_side *side;
	uint32_t group, classes, room; /* room: of classes */
	class class[MAX_CLASSES];
	uint32_t stages, dcp;
	kvf_range *stage;      /* [stage]: range that its layers lie in, ascending */
	const kvf_part **part; /* [rank][class]: 0 where it holds none */
	uint32_t *first;       /* [stage][dcp]: 1 + the cell's first rank, 0: none */
	uint32_t *next;        /* [rank]: 1 + the next rank of its cell, 0: none */
	uint64_t *load;        /* [rank]: bits served of a token, of all groups */
} holders;

/* zeros returns room for n words; 0 where that is more than this policy does. */
static uint32_t *zeros(uint64_t n) {
	uint32_t *p = n > MAX_TABLE ? 0 : (uint32_t *)kvf_take((uint32_t)n * 4);
	if (p) __builtin_memset(p, 0, (uint32_t)n * 4); /* groups share the room, one after the other */
	return p;
}

static const kvf_rank *rank_at(const holders *h, uint32_t i) { return KVF_AT(kvf_rank, h->base, h->side->ranks, i); }

/* span is the i-th head range of a part; components without heads have the one
 * range [0, 1). */
static kvf_range span(const void *base, const kvf_part *p, uint32_t i) {
	kvf_range whole = {0, 1};
	return p->heads.count ? *KVF_AT(kvf_range, base, p->heads, i) : whole;
}

static uint32_t spans(const kvf_part *p) { return p->heads.count ? p->heads.count : 1; }

/* end_of is where the range of a part that holds a head ends, 0 where none does. */
static uint32_t end_of(const void *base, const kvf_part *p, uint32_t head) {
	for (uint32_t i = 0; i < spans(p); i++, work++) {
		kvf_range g = span(base, p, i);
		if (g.from <= head && head < g.to) return g.to;
	}
	return 0;
}

/* following is the first head from the given one on that a part holds; ~0 where
 * there is none. */
static uint32_t following(const void *base, const kvf_part *p, uint32_t head) {
	uint32_t least = ~0u;
	for (uint32_t i = 0; i < spans(p); i++, work++) {
		kvf_range g = span(base, p, i);
		uint32_t from = g.from > head ? g.from : head;
		if (from < g.to && from < least) least = from;
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
	work += c;
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
	work += group->components.count * 2 * (uint64_t)h->classes;
}

/* stage_of is the stage with the layers of a part, added where it is new; ~0
 * where the part has none, or the ranks have more stages than they are. */
static uint32_t stage_of(holders *h, const kvf_part *p) {
	kvf_range own = layers(h->base, p);
	uint32_t s = h->stages;
	while (s > 0 && h->stage[s - 1].from > own.from) s--;
	work += p->layers.count + h->stages - s;
	if (s > 0 && h->stage[s - 1].from == own.from) return s - 1;
	if (own.from >= own.to || h->stages == h->side->ranks.count) return ~0u;
	for (uint32_t k = h->stages; k > s; k--) h->stage[k] = h->stage[k - 1];
	h->stage[s] = own;
	h->stages++;
	return s;
}

/* collect fills in h; 0 where the group is too large for this policy. */
static int collect(holders *h, const kvf_group *group) {
	uint32_t n = h->side->ranks.count;
	h->stage = (kvf_range *)zeros((uint64_t)n * 2);
	h->part = (const kvf_part **)zeros((uint64_t)n * h->room);
	h->next = zeros(n);
	if (!h->stage || !h->part || !h->next) return 0;
	const kvf_part *any = 0;
	for (uint32_t i = 0; i < n && work <= MAX_WORK; i++) {
		const kvf_rank *r = rank_at(h, i);
		for (uint32_t k = 0; k < r->parts.count && work <= MAX_WORK; k++, work++) {
			const kvf_part *p = KVF_AT(kvf_part, h->base, r->parts, k);
			if (p->group != h->group) continue;
			uint32_t c = class_of(h, p->components, h->classes < h->room);
			if (c == h->classes || stage_of(h, p) == ~0u) continue;
			h->part[i * h->room + c] = p;
			any = p;
		}
	}
	if (!any) return 1;
	tie(h, group);
	h->dcp = any->dcp_size;
	if (!h->dcp || h->dcp > MAX_TABLE || work > MAX_WORK) return 0;
	h->first = zeros((uint64_t)h->stages * h->dcp);
	if (!h->first) return 0;
	/* Backwards, so that each chain ascends. */
	for (uint32_t i = n; i-- > 0 && work <= MAX_WORK;) {
		const kvf_part *p = 0;
		for (uint32_t c = 0; c < h->classes && !p; c++, work++) p = h->part[i * h->room + c];
		if (!p || p->dcp_phase >= h->dcp) continue;
		uint32_t *first = &h->first[stage_of(h, p) * h->dcp + p->dcp_phase];
		h->next[i] = *first;
		*first = i + 1;
	}
	return work <= MAX_WORK;
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
	uint32_t rank, cell;
	kvf_range layers;
	const kvf_part *tokens; /* of the source */
} target;

#define EACH(c, set) (uint64_t left_ = (set); left_ && ((c = (uint32_t)__builtin_ctzll(left_)), 1); left_ &= left_ - 1)

static const kvf_part *held(const holders *h, uint32_t rank, uint32_t c) { return h->part[rank * h->room + c]; }

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
			kvf_range g = span(h->base, t->want[c], i);
			for (uint32_t head = g.from; head < g.to;)
				if (!(head = holds(h, rank, 1ull << c, head))) return 0;
		}
	}
	return 1;
}

#define ALL (~0u)

/* pick is the least loaded source rank of the cell that holds a head, or ALL that
 * are wanted, in all classes of a set; of those the first. 1 + its index, 0
 * where there is none. */
static uint32_t pick(const holders *h, const target *t, uint64_t set, uint32_t head) {
	uint32_t best = 0;
	for (uint32_t i = h->first[t->cell]; i && work <= MAX_WORK; i = h->next[i - 1], work++) {
		if (best && h->load[i - 1] >= h->load[best - 1]) continue;
		if (head == ALL ? holds_all(h, t, i - 1, set) : holds(h, i - 1, set, head) > 0) best = i;
	}
	return best;
}

/* put says that heads of a class come from a source rank: in the box before
 * where that goes on. */
static void put(const holders *h, kvf_answer *a, uint32_t *written, target *t, uint32_t c, uint32_t s, kvf_range heads) {
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
	h->load[s - 1] += h->class[c].weight * (heads.to - heads.from) * (t->layers.to - t->layers.from);
}

/* walk serves the wanted heads of a set of classes in ascending order: a head of
 * all of them that want it from one source rank, which is "whole" where that is
 * not 0. */
static void walk(const holders *h, kvf_answer *a, uint32_t *written, target *t, uint64_t set, uint32_t whole) {
	uint32_t c, before = 0;
	for EACH(c, set) t->open[c].source = 0;
	for (uint32_t from = 0; work <= MAX_WORK && *written <= MAX_ASSIGNMENTS;) {
		uint32_t head = ~0u, end = ~0u;
		for EACH(c, set) {
			uint32_t f = following(h->base, t->want[c], from);
			if (f < head) head = f;
		}
		if (head == ~0u) return;
		if (head != from) before = 0;
		uint64_t wanted = 0;
		for EACH(c, set) {
			uint32_t e = end_of(h->base, t->want[c], head);
			if (e) wanted |= 1ull << c;
			else e = following(h->base, t->want[c], head);
			if (e < end) end = e;
		}
		uint32_t s = whole;
		if (!s) s = before && holds(h, before - 1, wanted, head) ? before : pick(h, t, wanted, head);
		uint32_t e = s ? holds(h, s - 1, wanted, head) : head + 1; /* nobody has it: the proof will name it */
		if (e < end) end = e;
		if (s)
			for EACH(c, wanted) put(h, a, written, t, c, s, (kvf_range){head, end});
		before = s;
		from = end;
	}
}

/* serve serves a destination rank from one cell. Classes that scales tie together
 * and that have equally many heads are served head by head; where their heads do
 * not match, since some have none, one rank must have them all. */
static void serve(const holders *h, kvf_answer *a, uint32_t *written, target *t) {
	uint64_t left = 0;
	for (uint32_t c = 0; c < h->classes; c++, work++)
		if (t->want[c]) left |= 1ull << c;
	while (left) {
		uint32_t first = (uint32_t)__builtin_ctzll(left), c, whole = 0;
		uint64_t set = h->class[first].tied & left, alike = 0;
		for EACH(c, set) {
			if (h->class[c].heads == h->class[first].heads) alike |= 1ull << c;
			work++;
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
	for (uint32_t i = 0; i < destination->ranks.count && work <= MAX_WORK; i++, work++) {
		const kvf_rank *r = KVF_AT(kvf_rank, h->base, destination->ranks, i);
		const kvf_part *d = 0;
		for (uint32_t c = 0; c < h->classes; c++, work++) t.want[c] = 0;
		for (uint32_t k = 0; k < r->parts.count && work <= MAX_WORK; k++, work++) {
			const kvf_part *p = KVF_AT(kvf_part, h->base, r->parts, k);
			uint32_t c = p->group == h->group ? class_of(h, p->components, 0) : h->classes;
			if (c == h->classes) continue;
			t.want[c] = d = p;
		}
		if (!d) continue;
		t.rank = r->rank;
		kvf_range wanted = layers(h->base, d);
		for (uint32_t stage = 0; stage < h->stages && work <= MAX_WORK; stage++, work++) {
			kvf_range have = h->stage[stage];
			t.layers = (kvf_range){have.from > wanted.from ? have.from : wanted.from, have.to < wanted.to ? have.to : wanted.to};
			if (t.layers.from >= t.layers.to) continue;
			for (uint32_t dcp = 0; dcp < h->dcp && work <= MAX_WORK; dcp++, work++) {
				t.cell = stage * h->dcp + dcp;
				if (!h->first[t.cell]) continue;
				t.tokens = 0;
				for (uint32_t c = 0; !t.tokens; c++) t.tokens = held(h, h->first[t.cell] - 1, c);
				if (shares(t.tokens, d)) serve(h, a, written, &t);
			}
		}
		if (*written > MAX_ASSIGNMENTS) break;
	}
	return 1;
}

static uint64_t match_heads(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap) {
	const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
	if (!q || q->sides.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	kvf_line line = {{0}, 0};
	holders h;
	h.base = q;
	h.side = source;
	h.load = (uint64_t *)zeros((uint64_t)source->ranks.count * 2);

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	kvf_alternative *alternative = (kvf_alternative *)kvf_grow(&a, sizeof(kvf_alternative));
	uint64_t at = (a.need + 7) & ~7ull;
	uint32_t written = 0, mark = kvf_mark();
	for (uint32_t g = 0; g < q->groups.count; g++) {
		const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
		if (group->components.count < 1 || group->components.count > MAX_CLASSES) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
		kvf_release(mark);
		h.group = g;
		h.room = group->components.count;
		h.classes = h.stages = 0;
		int fits = h.load && match_group(&h, group, destination, &a, &written);
		if (written > MAX_ASSIGNMENTS || work > MAX_WORK) {
			KVF_SAY(&line, "the pair takes more assignments, or more time, than this policy gives it");
			return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_UNSUPPORTED, &line);
		}
		if (!fits) { /* too large, or out of memory */
			KVF_SAY(&line, "the source has more ranks times components than this policy looks at");
			return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_UNSUPPORTED, &line);
		}
	}
	uint32_t serving = 0;
	for (uint32_t i = 0; i < source->ranks.count; i++) serving += h.load[i] > 0;
	KVF_SAY(&line, "heads matched in ");
	kvf_say_number(&line, written);
	if (written == 1) KVF_SAY(&line, " assignment, ");
	else KVF_SAY(&line, " assignments, ");
	kvf_say_number(&line, serving);
	KVF_SAY(&line, " of ");
	kvf_say_number(&line, source->ranks.count);
	KVF_SAY(&line, " source ranks serve");
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
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

#endif
