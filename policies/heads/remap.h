/* Match heads: each destination rank takes each of its heads from a source rank
 * that holds it, for every pipeline stage whose layers overlap and every DCP
 * rank whose tokens do. Where several source ranks hold the same (replicas), the
 * destination ranks take them in turn, so that each serves its share. */
#ifndef HEADS_REMAP_H
#define HEADS_REMAP_H

#include "kvferry.h"

/* What the source holds of one group, sorted out once a group. */
typedef struct {
	const void *base;
	const kvf_side *side;
	uint32_t group, heads; /* heads at least 1 */
	uint32_t stages, dcp;
	uint32_t *first;       /* [stage][dcp][head]: 1 + the first rank that holds it, 0: none */
	uint32_t *next;        /* [rank][head]: 1 + the next rank that holds the same, 0: none */
	uint32_t *count;       /* [stage][dcp][head]: ranks that hold it */
	uint32_t *turn;        /* [stage][head]: destination ranks served */
} holders;

static const kvf_part *part_of(const void *base, const kvf_rank *r, uint32_t group) {
	for (uint32_t i = 0; i < r->parts.count; i++) {
		const kvf_part *p = KVF_AT(kvf_part, base, r->parts, i);
		if (p->group == group) return p;
	}
	return 0;
}

static inline uint32_t slot(const holders *h, uint32_t stage, uint32_t dcp, uint32_t head) {
	return (stage * h->dcp + dcp) * h->heads + head;
}

static uint32_t *zeros(uint64_t n) { return n > 1u << 20 ? 0 : (uint32_t *)kvf_take((uint32_t)n * 4); }

/* collect fills in h; 0 where the group is too large for this policy. */
static int collect(holders *h) {
	uint64_t slots = (uint64_t)h->stages * h->dcp * h->heads;
	h->first = zeros(slots);
	h->count = zeros(slots);
	h->turn = zeros((uint64_t)h->stages * h->heads);
	h->next = zeros((uint64_t)h->side->ranks.count * h->heads);
	if (!h->first || !h->count || !h->turn || !h->next) return 0;
	/* Backwards, so that each chain ascends. */
	for (uint32_t i = h->side->ranks.count; i-- > 0;) {
		const kvf_rank *r = KVF_AT(kvf_rank, h->base, h->side->ranks, i);
		const kvf_part *p = part_of(h->base, r, h->group);
		if (!p || r->pp >= h->stages || r->dcp >= h->dcp) continue;
		for (uint32_t k = 0; k < (p->heads.count ? p->heads.count : 1); k++) {
			uint32_t from = 0, to = 1;
			if (p->heads.count) {
				const kvf_range *g = KVF_AT(kvf_range, h->base, p->heads, k);
				from = g->from, to = g->to;
			}
			for (uint32_t head = from; head < to && head < h->heads; head++) {
				uint32_t s = slot(h, r->pp, r->dcp, head);
				h->next[i * h->heads + head] = h->first[s];
				h->first[s] = i + 1;
				h->count[s]++;
			}
		}
	}
	return 1;
}

/* pick is the source rank that serves a head to the destination rank whose turn
 * it is; 1 + its number, 0 where none holds it. */
static uint32_t pick(const holders *h, uint32_t stage, uint32_t dcp, uint32_t head) {
	uint32_t s = slot(h, stage, dcp, head), n = h->count[s];
	if (!n) return 0;
	uint32_t r = h->first[s];
	for (uint32_t skip = h->turn[stage * h->heads + head] % n; skip; skip--) r = h->next[(r - 1) * h->heads + head];
	return r;
}

/* layers is the span of a part's layer ranges. */
static kvf_range layers(const void *base, const kvf_part *p) {
	kvf_range out = {0, 0};
	for (uint32_t i = 0; i < p->layers.count; i++) {
		const kvf_range *g = KVF_AT(kvf_range, base, p->layers, i);
		if (!i || g->from < out.from) out.from = g->from;
		if (!i || g->to > out.to) out.to = g->to;
	}
	return out;
}

/* serve writes the assignments of one destination rank's part from one stage
 * and DCP rank of the source. */
static void serve(const holders *h, kvf_answer *a, uint32_t *written, const kvf_part *d, uint32_t rank, uint32_t stage, uint32_t dcp, uint64_t components) {
	uint32_t open = 0;            /* 1 + the source rank of the assignment being written */
	kvf_assignment *w = 0;
	uint32_t last = 0;
	uint32_t lists = d->heads.count ? d->heads.count : 1;
	for (uint32_t k = 0; k < lists; k++) {
		uint32_t from = 0, to = 1;
		if (d->heads.count) {
			const kvf_range *g = KVF_AT(kvf_range, h->base, d->heads, k);
			from = g->from, to = g->to;
		}
		for (uint32_t head = from; head < to && head < h->heads; head++) {
			uint32_t s = pick(h, stage, dcp, head);
			if (!s) { open = 0; continue; }
			const kvf_rank *r = KVF_AT(kvf_rank, h->base, h->side->ranks, s - 1);
			const kvf_part *p = part_of(h->base, r, h->group);
			/* Ranks that deal tokens alike share some only in the same phase. */
			if (p->dcp_size == d->dcp_size && p->dcp_interleave == d->dcp_interleave && p->dcp_phase != d->dcp_phase) return;
			kvf_range sl = layers(h->base, p), dl = layers(h->base, d);
			uint32_t lo = sl.from > dl.from ? sl.from : dl.from, hi = sl.to < dl.to ? sl.to : dl.to;
			if (lo >= hi) return;
			if (open == s && head == last + 1) {
				if (w) w->head_to = head + 1;
			} else {
				w = (kvf_assignment *)kvf_grow(a, sizeof *w);
				(*written)++;
				if (w) {
					w->components = components;
					w->group = h->group;
					w->destination = rank;
					w->source = r->rank;
					w->layer_from = lo;
					w->layer_to = hi;
					w->head_from = head;
					w->head_to = head + 1;
				}
			}
			open = s;
			last = head;
		}
	}
}

/* took moves the turn of every head that a destination rank takes. */
static void took(const holders *h, const kvf_part *d, uint32_t stage) {
	if (!d->heads.count) {
		h->turn[stage * h->heads]++;
		return;
	}
	for (uint32_t k = 0; k < d->heads.count; k++) {
		const kvf_range *g = KVF_AT(kvf_range, h->base, d->heads, k);
		for (uint32_t head = g->from; head < g->to && head < h->heads; head++) h->turn[stage * h->heads + head]++;
	}
}

/* overlaps reports whether any rank of a source stage shares a layer with d. */
static int overlaps(const holders *h, const kvf_part *d, uint32_t stage) {
	kvf_range dl = layers(h->base, d);
	for (uint32_t i = 0; i < h->side->ranks.count; i++) {
		const kvf_rank *r = KVF_AT(kvf_rank, h->base, h->side->ranks, i);
		const kvf_part *p = part_of(h->base, r, h->group);
		if (!p || r->pp != stage) continue;
		kvf_range sl = layers(h->base, p);
		return sl.from < dl.to && dl.from < sl.to;
	}
	return 0;
}

static uint64_t match_heads(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap) {
	const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
	if (!q || q->sides.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	kvf_alternative *alternative = (kvf_alternative *)kvf_grow(&a, (sizeof(kvf_alternative) + 7) & ~7u);
	uint64_t at = (a.need + 7) & ~7ull;
	uint32_t written = 0, replicas = 1;
	for (uint32_t g = 0; g < q->groups.count; g++) {
		const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
		holders h = {q, source, g, group->heads ? group->heads : 1, source->stages, source->dcp, 0, 0, 0, 0};
		if (!collect(&h)) return kvf_status(KVF_STATUS_UNSUPPORTED, 0);
		uint64_t components = ~0ull >> (64 - group->components.count);
		for (uint32_t i = 0; i < h.stages * h.dcp * h.heads; i++)
			if (h.count[i] > replicas) replicas = h.count[i];
		for (uint32_t i = 0; i < destination->ranks.count; i++) {
			const kvf_rank *r = KVF_AT(kvf_rank, q, destination->ranks, i);
			const kvf_part *d = part_of(q, r, g);
			if (!d) continue;
			for (uint32_t stage = 0; stage < h.stages; stage++) {
				if (!overlaps(&h, d, stage)) continue;
				for (uint32_t dcp = 0; dcp < h.dcp; dcp++) serve(&h, &a, &written, d, r->rank, stage, dcp, components);
				took(&h, d, stage);
			}
		}
	}
	kvf_line line = {{0}, 0};
	KVF_SAY(&line, "heads matched in ");
	kvf_say_number(&line, written);
	KVF_SAY(&line, " assignments");
	if (replicas > 1) {
		KVF_SAY(&line, ", replicas taken in turn (up to ");
		kvf_say_number(&line, replicas);
		KVF_SAY(&line, " hold the same)");
	}
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	alternative->assignments.at = (uint32_t)at;
	alternative->assignments.count = written;
	alternative->assignments.step = sizeof(kvf_assignment);
	kvf_remap_out *answer = (kvf_remap_out *)out;
	answer->alternatives.at = (uint32_t)alternative - out;
	answer->alternatives.count = 1;
	answer->alternatives.step = (sizeof(kvf_alternative) + 7) & ~7u;
	answer->reason = reason;
	return result;
}

#endif
