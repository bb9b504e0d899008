/* {{NAME}}: a policy to begin with. It is complete: plans that it answers are
 * proved like any other's, and what it cannot do it declines. kvferry/ is the SDK,
 * docs/abi.md of kvferry the specification. */
#include "kvferry/kvferry.h"

/* Which layout the engine uses: what it used before, or what the fleet has on
 * record, or its own first choice. */
KVF_HOOK(kvferry_select_layout) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	if (!q->candidates.count) {
		KVF_SAY(&line, "the engine offers no layout");
		return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
	}
	uint32_t index = q->previous ? q->previous - 1 : q->recorded ? q->recorded - 1 : 0;
	const kvf_candidate *c = KVF_AT(kvf_candidate, q, q->candidates, index);
	kvf_say_some(&line, kvf_chars(q, c->name), c->name.length, 100);
	if (q->previous) KVF_SAY(&line, ": as before");
	else if (q->recorded) KVF_SAY(&line, ": as on record");
	else KVF_SAY(&line, ": the engine's first choice");

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result; /* the host asks again, with more room */
	((kvf_select_layout_out *)out)->index = index;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}

static kvf_range overlap(kvf_range a, kvf_range b) {
	return (kvf_range){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}

/* The range that a part's layers lie in. */
static kvf_range layers(const void *q, const kvf_part *p) {
	kvf_range out = {~0u, 0};
	for (uint32_t i = 0; i < p->layers.count; i++) {
		const kvf_range *g = KVF_AT(kvf_range, q, p->layers, i);
		if (g->from < out.from) out.from = g->from;
		if (g->to > out.to) out.to = g->to;
	}
	return out;
}

/* Range i of a part's heads; components without heads have the one range [0, 1). */
static kvf_range heads(const void *q, const kvf_part *p, uint32_t i) {
	return p->heads.count ? *KVF_AT(kvf_range, q, p->heads, i) : (kvf_range){0, 1};
}

static uint32_t head_ranges(const kvf_part *p) { return p->heads.count ? p->heads.count : 1; }

/* Whether some source rank before rank s holds what part p of s is: then that one
 * serves. */
static int replica(const void *q, const kvf_side *source, uint32_t s, const kvf_part *p) {
	for (uint32_t i = 0; i < s; i++) {
		const kvf_rank *r = KVF_AT(kvf_rank, q, source->ranks, i);
		for (uint32_t k = 0; k < r->parts.count; k++) {
			const kvf_part *o = KVF_AT(kvf_part, q, r->parts, k);
			if (o->group == p->group && o->components == p->components && o->dcp_phase == p->dcp_phase && layers(q, o).from == layers(q, p).from && heads(q, o, 0).from == heads(q, p, 0).from) return 1;
		}
	}
	return 0;
}

/* The destination's part takes from a source rank what both hold. */
static uint32_t take(const void *q, kvf_answer *a, const kvf_rank *d, const kvf_part *want, const kvf_rank *s, const kvf_part *have) {
	kvf_range l = overlap(layers(q, want), layers(q, have));
	uint32_t written = 0;
	for (uint32_t i = 0; i < head_ranges(want); i++) {
		for (uint32_t k = 0; k < head_ranges(have); k++) {
			kvf_range h = overlap(heads(q, want, i), heads(q, have, k));
			if (l.from >= l.to || h.from >= h.to) continue;
			written++;
			kvf_assignment *w = (kvf_assignment *)kvf_grow(a, sizeof *w);
			if (!w) continue; /* no room: kvf_end tells the host how much would be enough */
			w->group = want->group;
			w->components = want->components;
			w->destination = d->rank;
			w->source = s->rank;
			w->layer_from = l.from;
			w->layer_to = l.to;
			w->head_from = h.from;
			w->head_to = h.to;
			if (have->dcp_size > 1) {
				w->token_size = have->dcp_size;
				w->token_interleave = have->dcp_interleave;
				w->token_phase = have->dcp_phase;
			}
		}
	}
	return written;
}

/* Whether some scales are dealt over ranks otherwise than the rows that they scale:
 * a scale has to come from the rank that its rows come from. */
static int apart(const kvf_remap_in *q) {
	for (uint32_t i = 0; i < q->groups.count; i++) {
		const kvf_group *g = KVF_AT(kvf_group, q, q->groups, i);
		for (uint32_t k = 0; k < g->components.count; k++) {
			const kvf_component *c = KVF_AT(kvf_component, q, g->components, k);
			if (!c->scales) continue;
			const kvf_component *of = KVF_AT(kvf_component, q, g->components, c->scales - 1);
			if (c->heads != of->heads || c->unit != of->unit || c->tokens_per_entry != of->tokens_per_entry) return 1;
		}
	}
	return 0;
}

/* Which source rank feeds which destination rank: of the ranks that hold a thing,
 * the first. */
KVF_HOOK(kvferry_remap) {
	const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
	if (!q || q->sides.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	kvf_line line = {{0}, 0};
	if (apart(q)) {
		KVF_SAY(&line, "scales are dealt otherwise than the rows that they scale");
		return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
	}
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	kvf_alternative *alternative = (kvf_alternative *)kvf_grow(&a, sizeof *alternative);
	uint32_t first = (uint32_t)a.need, written = 0;
	for (uint32_t i = 0; i < destination->ranks.count; i++) {
		const kvf_rank *d = KVF_AT(kvf_rank, q, destination->ranks, i);
		for (uint32_t k = 0; k < d->parts.count; k++) {
			const kvf_part *want = KVF_AT(kvf_part, q, d->parts, k);
			for (uint32_t s = 0; s < source->ranks.count; s++) {
				const kvf_rank *r = KVF_AT(kvf_rank, q, source->ranks, s);
				for (uint32_t n = 0; n < r->parts.count; n++) {
					const kvf_part *have = KVF_AT(kvf_part, q, r->parts, n);
					if (have->group != want->group || have->components != want->components || replica(q, source, s, have)) continue;
					if (have->dcp_size > 1 && want->dcp_size > 1 && (have->dcp_size != want->dcp_size || have->dcp_interleave != want->dcp_interleave)) {
						KVF_SAY(&line, "both sides part tokens over ranks, each in its own way");
						return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
					}
					if (have->dcp_size > 1 && want->dcp_size > 1 && have->dcp_phase != want->dcp_phase) continue;
					written += take(q, &a, d, want, r, have);
				}
			}
		}
	}
	KVF_SAY(&line, "the first holder serves, ");
	kvf_say_number(&line, written);
	KVF_SAY(&line, " assignments");
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	if (written) alternative->assignments = (kvf_list){first, written, sizeof(kvf_assignment)};
	((kvf_remap_out *)out)->alternatives = (kvf_list){(uint32_t)alternative - out, 1, sizeof *alternative};
	((kvf_remap_out *)out)->reason = reason;
	return result;
}

/* How one transfer goes: by the alternative whose busiest source rank is the least
 * busy. Everything else is left to the host. */
KVF_HOOK(kvferry_route) {
	const kvf_route_in *q = kvf_input(in, in_len, KVF_HOOK_ROUTE, sizeof *q);
	if (!q || !q->alternatives.count || q->engines.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_engine *source = KVF_AT(kvf_engine, q, q->engines, 0);
	uint32_t best = 0, least = ~0u;
	for (uint32_t i = 0; i < q->alternatives.count; i++) {
		const kvf_proven *p = KVF_AT(kvf_proven, q, q->alternatives, i);
		uint32_t busiest = 0;
		for (uint32_t k = 0; k < p->flows.count; k++) {
			const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
			if (f->source >= source->places.count) continue; /* not known where it runs */
			uint32_t load = KVF_AT(kvf_place, q, source->places, f->source)->load;
			if (load > busiest) busiest = load;
		}
		if (busiest < least) {
			least = busiest;
			best = i;
		}
	}
	kvf_line line = {{0}, 0};
	KVF_SAY(&line, "alternative ");
	kvf_say_number(&line, best);
	KVF_SAY(&line, ": load of its busiest source rank ");
	kvf_say_number(&line, least);
	KVF_SAY(&line, " of 8");

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_ROUTE, sizeof(kvf_route_out));
	kvf_decision *d = (kvf_decision *)kvf_grow(&a, sizeof *d);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	d->alternative = best;
	((kvf_route_out *)out)->decisions = (kvf_list){(uint32_t)d - out, 1, sizeof *d};
	((kvf_route_out *)out)->reason = reason;
	return result;
}
