/* compat-vllm: the mapping that vLLM's NixlConnector computes, and its choices,
 * for fleets in which one side must find what that connector expects. What the
 * connector refuses is declined, by name, also where it could be moved. */
#include "../heads/remap.h"

static void say_text(kvf_line *line, const void *base, kvf_text t) { kvf_say_some(line, kvf_chars(base, t), t.length, 60); }

static void say_engine(kvf_line *line, const void *base, const kvf_side *s) {
	KVF_SAY(line, "engine ");
	say_text(line, base, s->engine);
}

static void say_group(kvf_line *line, const void *base, const kvf_group *g) {
	if (!g->name.length) {
		KVF_SAY(line, "the cache");
		return;
	}
	KVF_SAY(line, "group ");
	say_text(line, base, g->name);
}

/* of_one_stage reports whether an engine is as the connector knows engines: one
 * pipeline stage, no ranks that share tokens, ranks in the order of their heads. */
static int of_one_stage(const void *q, const kvf_side *s, kvf_line *line) {
	if (s->stages != 1 || s->dcp != 1) {
		say_engine(line, q, s);
		KVF_SAY(line, " has ");
		kvf_say_number(line, s->stages != 1 ? s->stages : s->dcp);
		if (s->stages != 1) KVF_SAY(line, " pipeline stages: vLLM pulls from engines of one stage into engines of one");
		else KVF_SAY(line, " ranks that share tokens: vLLM's connector knows no decode context parallelism");
		return 0;
	}
	for (uint32_t i = 0; i < s->ranks.count; i++) {
		const kvf_rank *r = KVF_AT(kvf_rank, q, s->ranks, i);
		if (r->rank == i && r->tp == i && s->ranks.count == s->tp) continue;
		say_engine(line, q, s);
		KVF_SAY(line, ": rank ");
		kvf_say_number(line, r->rank);
		KVF_SAY(line, " has the heads of another: vLLM's ranks are in the order of their heads");
		return 0;
	}
	return 1;
}

/* dealt_alike reports whether rank r of tp holds of a component just what vLLM
 * gives it: heads are dealt in units, and each to several ranks where there are
 * fewer. */
static int dealt_alike(const void *q, const kvf_part *p, const kvf_component *c, uint32_t r, uint32_t tp) {
	if (p->dcp_size != 1) return 0;
	if (!c->heads) return !p->heads.count;
	uint32_t unit = c->unit ? c->unit : 1, units = c->heads / unit;
	if (!units || c->heads % unit || (units % tp && tp % units) || p->heads.count != 1) return 0;
	uint32_t own = units > tp ? units / tp : 1, from = (uint32_t)((uint64_t)r * units / tp);
	const kvf_range *g = KVF_AT(kvf_range, q, p->heads, 0);
	return g->from == from * unit && g->to == (from + own) * unit;
}

static int held_alike(const kvf_remap_in *q, const kvf_side *s, kvf_line *line) {
	for (uint32_t i = 0; i < s->ranks.count; i++) {
		const kvf_rank *r = KVF_AT(kvf_rank, q, s->ranks, i);
		for (uint32_t k = 0; k < r->parts.count; k++) {
			const kvf_part *p = KVF_AT(kvf_part, q, r->parts, k);
			if (p->group >= q->groups.count || !p->components) return 0;
			const kvf_group *g = KVF_AT(kvf_group, q, q->groups, p->group);
			uint32_t first = (uint32_t)__builtin_ctzll(p->components);
			if (first < g->components.count && dealt_alike(q, p, KVF_AT(kvf_component, q, g->components, first), i, s->tp)) continue;
			say_engine(line, q, s);
			KVF_SAY(line, ": rank ");
			kvf_say_number(line, i);
			KVF_SAY(line, " holds other heads or tokens of ");
			say_group(line, q, g);
			KVF_SAY(line, " than vLLM gives that rank");
			return 0;
		}
	}
	return 1;
}

/* blocks_fit reports whether the connector takes blocks of these sizes. */
static int blocks_fit(uint32_t source, uint32_t destination, int split, kvf_line *line) {
	if (source && destination % source == 0 && !(split && source != destination)) return 1;
	KVF_SAY(line, "blocks of ");
	kvf_say_number(line, source);
	KVF_SAY(line, " tokens at the source and of ");
	kvf_say_number(line, destination);
	if (source && destination % source == 0) KVF_SAY(line, " at the destination: vLLM wants them equal where the source has more ranks");
	else KVF_SAY(line, " at the destination: vLLM wants these a multiple of those");
	return 0;
}

/* moved reports whether the connector moves a group between engines of these
 * sizes. */
static int moved(const kvf_remap_in *q, uint32_t g, const kvf_side *source, const kvf_side *destination, kvf_line *line) {
	const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
	int split = 0;
	for (uint32_t i = 0; i < group->components.count; i++) {
		const kvf_component *c = KVF_AT(kvf_component, q, group->components, i);
		if (c->scales) {
			if (c->scales > group->components.count) return 0;
			const kvf_component *rows = KVF_AT(kvf_component, q, group->components, c->scales - 1);
			if (c->heads != rows->heads || c->tokens_per_entry != rows->tokens_per_entry) {
				say_group(line, q, group);
				KVF_SAY(line, ", ");
				say_text(line, q, c->name);
				KVF_SAY(line, ": vLLM moves scales only within the rows that they scale");
				return 0;
			}
		}
		if (!c->heads || source->tp <= destination->tp) continue;
		split = 1;
		uint32_t units = c->heads / (c->unit ? c->unit : 1);
		if (source->tp > units) {
			say_group(line, q, group);
			KVF_SAY(line, ": ");
			kvf_say_number(line, units);
			KVF_SAY(line, " heads on ");
			kvf_say_number(line, source->tp);
			KVF_SAY(line, " ranks: vLLM refuses a source that holds heads several times and has more ranks than the destination, ");
			kvf_say_number(line, destination->tp);
			return 0;
		}
	}
	if (group->state || g >= source->pools.count || g >= destination->pools.count) return 1;
	uint32_t n = line->n;
	say_group(line, q, group);
	KVF_SAY(line, ": ");
	if (!blocks_fit(KVF_AT(kvf_pool, q, source->pools, g)->block, KVF_AT(kvf_pool, q, destination->pools, g)->block, split, line)) return 0;
	line->n = n;
	return 1;
}

/* configured says no to a configuration: this policy has nothing to set. */
static int configured(const void *q, kvf_text t, kvf_line *line) {
	const char *c = kvf_chars(q, t);
	if (!t.length || (t.length == 2 && c[0] == '{' && c[1] == '}')) return 0;
	KVF_SAY(line, "configuration: this policy has no settings: it does what vLLM does");
	return 1;
}

/* mappable reports whether the connector takes the pair; the line says why not. */
static int mappable(const kvf_remap_in *q, const kvf_side *source, const kvf_side *destination, kvf_line *line) {
	if (configured(q, q->configuration, line) || !of_one_stage(q, source, line) || !of_one_stage(q, destination, line)) return 0;
	uint32_t tp = source->tp, td = destination->tp;
	if (!tp || !td) return 0;
	if (tp % td && td % tp) {
		KVF_SAY(line, "tensor parallel sizes ");
		kvf_say_number(line, tp);
		KVF_SAY(line, " and ");
		kvf_say_number(line, td);
		KVF_SAY(line, ": vLLM wants one a multiple of the other");
		return 0;
	}
	if (!held_alike(q, source, line) || !held_alike(q, destination, line)) return 0;
	for (uint32_t g = 0; g < q->groups.count; g++)
		if (!moved(q, g, source, destination, line)) return 0;
	return 1;
}

/* Destination rank r reads from source rank r * Tp / Td; where the source has
 * more ranks, from the Tp / Td that follow each other from there, the heads of
 * each, and what all hold alike from the first. */
KVF_HOOK(kvferry_remap) {
	const kvf_remap_in *q = remap_input(in, in_len);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	kvf_line line = {{0}, 0};
	if (!mappable(q, source, destination, &line)) {
		if (!line.n) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
		return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
	}
	uint32_t tp = source->tp, td = destination->tp, each = tp > td ? tp / td : 1;
	uint8_t *far = (uint64_t)tp * td > MAX_TABLE ? 0 : (uint8_t *)kvf_take(tp * td);
	holders h;
	if (!far || !begin(&h, q)) return unmatched(out, out_cap, TOO_LARGE);
	__builtin_memset(far, NEVER, tp * td);
	for (uint32_t d = 0; d < td; d++) __builtin_memset(far + d * tp + (uint32_t)((uint64_t)d * tp / td), 0, each);
	h.prefer = (preference){far, 0, 1};
	KVF_SAY(&line, "as vLLM maps them: ");
	return answer_one(&h, q, out, out_cap, &line);
}

/* heads_first reports whether a layout keeps the heads of each component before
 * its tokens (HND), or of a state its channels before what they hold (DS).
 * Components without heads lie as they like. */
static int heads_first(const void *q, const kvf_group_layout *l, const kvf_group *g) {
	for (uint32_t c = 0; c < g->components.count && c < 64; c++) {
		const kvf_component *k = KVF_AT(kvf_component, q, g->components, c);
		if (!k->heads) continue;
		int inner = 0; /* tokens, or what a channel holds, were met */
		for (uint32_t i = 0; i < l->order.count; i++) {
			const kvf_item *o = KVF_AT(kvf_item, q, l->order, i);
			if (o->components && !(o->components >> c & 1)) continue;
			if (g->state ? o->axis == KVF_AXIS_DIM && k->dim > 1 : o->axis == KVF_AXIS_TOKEN) inner = 1;
			if (inner && (o->axis == KVF_AXIS_HEAD || o->axis == KVF_AXIS_CHANNEL)) return 0;
		}
	}
	return 1;
}

/* usable reports whether the connector would take a candidate at all. */
static int usable(const kvf_select_layout_in *q, const kvf_candidate *c) {
	for (uint32_t i = 0; i < c->layouts.count; i++) {
		const kvf_group_layout *l = KVF_AT(kvf_group_layout, q, c->layouts, i);
		if (l->group >= q->groups.count || !heads_first(q, l, KVF_AT(kvf_group, q, q->groups, l->group))) return 0;
	}
	return 1;
}

/* fits reports whether the connector takes the blocks of two candidates. */
static int fits(const kvf_select_layout_in *q, const kvf_candidate *own, const kvf_candidate *theirs, uint32_t peer_tp) {
	int source = q->role == KVF_ROLE_SOURCE;
	kvf_line line = {{0}, 0};
	for (uint32_t i = 0; i < own->layouts.count; i++) {
		const kvf_group_layout *a = KVF_AT(kvf_group_layout, q, own->layouts, i);
		const kvf_group *g = KVF_AT(kvf_group, q, q->groups, a->group);
		int split = 0;
		for (uint32_t c = 0; c < g->components.count; c++) split |= KVF_AT(kvf_component, q, g->components, c)->heads > 0;
		split &= source ? q->tp > peer_tp : peer_tp > q->tp;
		for (uint32_t k = 0; k < theirs->layouts.count && !g->state; k++) {
			const kvf_group_layout *b = KVF_AT(kvf_group_layout, q, theirs->layouts, k);
			if (b->group == a->group && !blocks_fit(source ? a->block : b->block, source ? b->block : a->block, split, &line)) return 0;
		}
	}
	return 1;
}

/* met reports whether a peer has a candidate that goes with an own one. */
static int met(const kvf_select_layout_in *q, const kvf_candidate *own, uint32_t p) {
	const kvf_peer *peer = KVF_AT(kvf_peer, q, q->peers, p);
	for (uint32_t n = 0; n < own->costs.count; n++) {
		const kvf_cost *cost = KVF_AT(kvf_cost, q, own->costs, n);
		if (cost->peer != p || cost->candidate >= peer->candidates.count) continue;
		const kvf_candidate *theirs = KVF_AT(kvf_candidate, q, peer->candidates, cost->candidate);
		if (usable(q, theirs) && fits(q, own, theirs, peer->tp)) return 1;
	}
	return 0;
}

KVF_HOOK(kvferry_select_layout) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q || (q->role != KVF_ROLE_SOURCE && q->role != KVF_ROLE_DESTINATION)) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	if (configured(q, q->configuration, &line)) return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
	uint32_t chosen = ~0u, lonely = ~0u; /* lonely: the peer that the first usable candidate does not go with */
	int any = 0;
	for (uint32_t i = 0; i < q->candidates.count; i++) {
		const kvf_candidate *c = KVF_AT(kvf_candidate, q, q->candidates, i);
		if (!usable(q, c)) continue;
		uint32_t p = 0;
		while (p < q->peers.count && met(q, c, p)) p++;
		if (p < q->peers.count) {
			if (!any) lonely = p;
			any = 1;
			continue;
		}
		any = 1;
		if (chosen == ~0u || q->previous == i + 1) chosen = i;
	}
	if (chosen == ~0u) {
		KVF_SAY(&line, "engine ");
		say_text(&line, q, q->engine);
		if (any) {
			KVF_SAY(&line, " offers no layout that vLLM's connector takes together with one of engine ");
			say_text(&line, q, KVF_AT(kvf_peer, q, q->peers, lonely)->engine);
			KVF_SAY(&line, ": heads before tokens on both sides, blocks that go into each other");
		} else {
			KVF_SAY(&line, " offers no layout with heads before tokens (HND), which vLLM's connector requires");
		}
		return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
	}
	say_text(&line, q, KVF_AT(kvf_candidate, q, q->candidates, chosen)->name);
	KVF_SAY(&line, ": the engine's first that vLLM's connector takes");
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 == KVF_STATUS_AGAIN) return result;
	((kvf_select_layout_out *)out)->index = chosen;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}
