/* Match heads: each destination rank takes each of its heads from a source rank
 * that holds it, for every pipeline stage whose layers overlap and every DCP
 * rank whose tokens do. Of several source ranks that hold the same (replicas),
 * the one serves that has served the least so far, so that all do their share;
 * heads that follow each other stay with one rank, so that boxes stay whole. */
#ifndef HEADS_REMAP_H
#define HEADS_REMAP_H

#include "kvferry.h"

#define MAX_ASSIGNMENTS (1u << 16)
#define MAX_TABLE (1u << 20)
#define MAX_WORK (1u << 27)

/* Ranks, parts, heads, replicas and costs looked at so far: nobody meters this guest yet, so
 * it gives up by itself. */
static uint64_t work;

/* What the source holds of one group, sorted out once a group. */
typedef struct {
	const void *base;
	const kvf_side *side;
	uint32_t group, heads; /* heads at least 1 */
	uint32_t stages, dcp;
	uint32_t *first;       /* [stage][dcp][head]: 1 + the first rank that holds it, 0: none */
	uint32_t *next;        /* [rank][head]: 1 + the next rank that holds the same, 0: none */
	uint32_t *stage;       /* [stage]: 1 + a rank of it that holds layers of the group, 0: none */
	uint64_t *load;        /* [rank]: heads times layers served, of all groups */
} holders;

static const kvf_part *part_of(const void *base, const kvf_rank *r, uint32_t group) {
	for (uint32_t i = 0; i < r->parts.count; i++, work++) {
		const kvf_part *p = KVF_AT(kvf_part, base, r->parts, i);
		if (p->group == group) return p;
	}
	return 0;
}

static const kvf_rank *rank_at(const holders *h, uint32_t i) { return KVF_AT(kvf_rank, h->base, h->side->ranks, i); }

static inline uint32_t slot(const holders *h, uint32_t stage, uint32_t dcp, uint32_t head) {
	return (stage * h->dcp + dcp) * h->heads + head;
}

/* zeros returns room for n words; 0 where that is more than this policy does. */
static uint32_t *zeros(uint64_t n) { return n > MAX_TABLE ? 0 : (uint32_t *)kvf_take((uint32_t)n * 4); }

/* span is the i-th head range of a part; a group without heads has the one
 * range [0, 1). */
static kvf_range span(const void *base, const kvf_part *p, uint32_t i) {
	kvf_range whole = {0, 1};
	return p->heads.count ? *KVF_AT(kvf_range, base, p->heads, i) : whole;
}

static uint32_t spans(const kvf_part *p) { return p->heads.count ? p->heads.count : 1; }

/* collect fills in h; 0 where the group is too large for this policy. */
static int collect(holders *h) {
	uint32_t n = h->side->ranks.count;
	if (h->stages > MAX_TABLE || h->dcp > MAX_TABLE || h->heads > MAX_TABLE) return 0; /* so that products do not wrap */
	h->first = zeros((uint64_t)h->stages * h->dcp * h->heads);
	h->next = zeros((uint64_t)n * h->heads);
	h->stage = zeros(h->stages);
	if (!h->first || !h->next || !h->stage) return 0;
	/* Backwards, so that each chain ascends. */
	for (uint32_t i = n; i-- > 0;) {
		if (++work > MAX_WORK) return 0;
		const kvf_rank *r = rank_at(h, i);
		const kvf_part *p = part_of(h->base, r, h->group);
		if (!p || r->pp >= h->stages || r->dcp >= h->dcp) continue;
		h->stage[r->pp] = i + 1;
		for (uint32_t k = 0; k < spans(p); k++) {
			kvf_range g = span(h->base, p, k);
			for (uint32_t head = g.from; head < g.to && head < h->heads; head++) {
				if (++work > MAX_WORK) return 0;
				uint32_t s = slot(h, r->pp, r->dcp, head);
				h->next[i * h->heads + head] = h->first[s];
				h->first[s] = i + 1;
			}
		}
	}
	return 1;
}

/* pick is the source rank that serves a head: the one that served the head
 * before where it holds this one too, else the least loaded, of those the first.
 * 1 + its index, 0 where none holds the head. */
static uint32_t pick(const holders *h, uint32_t stage, uint32_t dcp, uint32_t head, uint32_t before) {
	uint32_t best = 0;
	for (uint32_t i = h->first[slot(h, stage, dcp, head)]; i; i = h->next[(i - 1) * h->heads + head]) {
		work++;
		if (i == before) return i;
		if (!best || h->load[i - 1] < h->load[best - 1]) best = i;
	}
	return best;
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

/* serve writes the assignments of one destination part from one stage and DCP
 * rank of the source. wanted is 1 for each head of the part. */
static void serve(const holders *h, kvf_answer *a, uint32_t *written, const kvf_part *d, const uint8_t *wanted, uint32_t rank, uint32_t stage, uint32_t dcp, kvf_range box, uint64_t components) {
	uint32_t before = 0;
	kvf_assignment *w = 0;
	work += h->heads;
	for (uint32_t head = 0; head < h->heads && work <= MAX_WORK; head++) {
		uint32_t s = wanted[head] ? pick(h, stage, dcp, head, before) : 0;
		if (s) {
			const kvf_rank *r = rank_at(h, s - 1);
			if (s != before) {
				const kvf_part *p = part_of(h->base, r, h->group);
				if (!shares(p, d)) return; /* nor does any other rank of this DCP rank */
				w = (kvf_assignment *)kvf_grow(a, sizeof *w);
				++*written;
				if (w) {
					w->components = components;
					w->group = h->group;
					w->destination = rank;
					w->source = r->rank;
					w->layer_from = box.from;
					w->layer_to = box.to;
					w->head_from = head;
					if (p->dcp_size > 1) {
						w->token_size = p->dcp_size;
						w->token_interleave = p->dcp_interleave;
						w->token_phase = p->dcp_phase;
					}
				}
			}
			if (w) w->head_to = head + 1;
			h->load[s - 1] += box.to - box.from;
		}
		before = s;
	}
}

/* Says no, with a reason. */
static uint64_t refuse(uint32_t out, uint32_t out_cap, uint32_t hook, uint32_t record, uint32_t reason_at, uint32_t status, const kvf_line *line) {
	kvf_answer a = kvf_begin(out, out_cap, hook, record);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, line);
	uint64_t result = kvf_end(&a, status);
	if (result >> 32 != KVF_STATUS_AGAIN) *(kvf_text *)(out + reason_at) = reason;
	return result;
}

static uint64_t match_heads(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap) {
	const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
	if (!q || q->sides.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	kvf_line line = {{0}, 0};
	uint64_t *load = (uint64_t *)zeros((uint64_t)source->ranks.count * 2);

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	kvf_alternative *alternative = (kvf_alternative *)kvf_grow(&a, sizeof(kvf_alternative));
	uint64_t at = (a.need + 7) & ~7ull;
	uint32_t written = 0;
	for (uint32_t g = 0; g < q->groups.count; g++) {
		const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
		if (group->components.count < 1 || group->components.count > 64) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
		holders h = {q, source, g, group->heads ? group->heads : 1, source->stages, source->dcp, 0, 0, 0, load};
		uint8_t *wanted = (uint8_t *)zeros((h.heads + 3) / 4);
		if (!load || !wanted || !collect(&h)) { /* too large, or out of memory */
			KVF_SAY(&line, "the source has more ranks times heads than this policy looks at");
			return refuse(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out), __builtin_offsetof(kvf_remap_out, reason), KVF_STATUS_UNSUPPORTED, &line);
		}
		uint64_t components = ~0ull >> (64 - group->components.count);
		for (uint32_t i = 0; i < destination->ranks.count; i++, work++) {
			const kvf_rank *r = KVF_AT(kvf_rank, q, destination->ranks, i);
			const kvf_part *d = part_of(q, r, g);
			if (work > MAX_WORK) break; /* refused below */
			if (!d) continue;
			work += h.heads / 8;
			for (uint32_t k = 0; k < h.heads; k++) wanted[k] = 0;
			for (uint32_t k = 0; k < spans(d); k++) {
				kvf_range s = span(q, d, k);
				for (uint32_t head = s.from; head < s.to && head < h.heads && work <= MAX_WORK; head++, work++) wanted[head] = 1;
			}
			kvf_range dl = layers(q, d);
			for (uint32_t stage = 0; stage < h.stages && work <= MAX_WORK; stage++, work++) {
				if (!h.stage[stage]) continue;
				kvf_range sl = layers(q, part_of(q, rank_at(&h, h.stage[stage] - 1), g));
				kvf_range box = {sl.from > dl.from ? sl.from : dl.from, sl.to < dl.to ? sl.to : dl.to};
				if (box.from >= box.to) continue;
				for (uint32_t dcp = 0; dcp < h.dcp && work <= MAX_WORK; dcp++) serve(&h, &a, &written, d, wanted, r->rank, stage, dcp, box, components);
			}
			if (written > MAX_ASSIGNMENTS) break;
		}
		if (written > MAX_ASSIGNMENTS || work > MAX_WORK) {
			KVF_SAY(&line, "the pair takes more assignments, or more time, than this policy gives it");
			return refuse(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out), __builtin_offsetof(kvf_remap_out, reason), KVF_STATUS_UNSUPPORTED, &line);
		}
	}
	uint32_t serving = 0;
	for (uint32_t i = 0; i < source->ranks.count; i++) serving += load[i] > 0;
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
	alternative->assignments.at = (uint32_t)at;
	alternative->assignments.count = written;
	alternative->assignments.step = sizeof(kvf_assignment);
	kvf_remap_out *answer = (kvf_remap_out *)out;
	answer->alternatives.at = (uint32_t)alternative - out;
	answer->alternatives.count = 1;
	answer->alternatives.step = sizeof(kvf_alternative);
	answer->reason = reason;
	return result;
}

#endif
