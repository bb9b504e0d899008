/* Keep the cache in the layout that takes the fewest pieces to move, among those
 * that the engine's attention can do. */
#ifndef HEADS_SELECT_H
#define HEADS_SELECT_H

#include "kvferry.h"

/* How a combination of an own candidate and a peer's compares: lower is better,
 * the first field first. Both engines of a pair look at the same combinations
 * with the same figures, and no two of them compare equal, so that each picks
 * its half of the same one. */
typedef struct {
	uint64_t weight; /* pieces a GiB, times what attention costs on both sides in per cent */
	uint32_t order;  /* places in both engines' orders of preference, added */
	uint32_t source; /* place in the source's */
	int usable;
} score;

static int better(const score *a, const score *b) {
	if (a->usable != b->usable) return a->usable;
	if (a->weight != b->weight) return a->weight < b->weight;
	if (a->order != b->order) return a->order < b->order;
	return a->source < b->source;
}

static uint64_t atmost(uint64_t v, uint64_t limit) { return v < limit ? v : limit; }

/* Pieces a GiB: peers may have different groups, so pieces alone do not compare. */
static uint64_t rate(const kvf_cost *c) {
	uint64_t r = (atmost(c->pieces, (1ull << 33) - 1) << 30) / (c->bytes ? c->bytes : 1);
	return r ? atmost(r, 1ull << 34) : 1;
}

/* Attention in per cent of what it costs at best. */
static uint64_t attention(const kvf_candidate *c) { return 100 + atmost(c->attention, 10000); }

/* judge scores own candidate i against every peer, by the best that each can
 * do. Not usable where some peer has no candidate that it could be planned with;
 * that peer is left in failed. */
static score judge(const kvf_select_layout_in *q, uint32_t i, uint32_t *failed) {
	const kvf_candidate *own = KVF_AT(kvf_candidate, q, q->candidates, i);
	score sum = {0, 0, 0, 1};
	for (uint32_t p = 0; p < q->peers.count; p++) {
		const kvf_peer *peer = KVF_AT(kvf_peer, q, q->peers, p);
		score best = {0, 0, 0, 0};
		for (uint32_t n = 0; n < own->costs.count; n++) {
			const kvf_cost *cost = KVF_AT(kvf_cost, q, own->costs, n);
			if (cost->peer != p || cost->candidate >= peer->candidates.count) continue;
			const kvf_candidate *theirs = KVF_AT(kvf_candidate, q, peer->candidates, cost->candidate);
			score s = {rate(cost) * attention(own) * attention(theirs), i + cost->candidate, q->role == KVF_ROLE_SOURCE ? i : cost->candidate, 1};
			if (better(&s, &best)) best = s;
		}
		if (!best.usable) {
			*failed = p;
			return best;
		}
		sum.weight = sum.weight + best.weight < sum.weight ? ~0ull : sum.weight + best.weight;
		sum.order += best.order;
		sum.source += best.source;
	}
	if (!q->peers.count) sum = (score){attention(own), i, i, 1};
	return sum;
}

static void explain(const kvf_select_layout_in *q, kvf_line *line, uint32_t best, const score *s, const score *worst, int kept) {
	const kvf_candidate *c = KVF_AT(kvf_candidate, q, q->candidates, best);
	kvf_say_some(line, kvf_chars(q, c->name), c->name.length, 100);
	if (kept) {
		KVF_SAY(line, ": kept, as answered before");
		return;
	}
	if (q->candidates.count == 1) KVF_SAY(line, ": all that the engine's attention can do");
	else if (!q->peers.count) KVF_SAY(line, ": no peer is expected; the engine's first choice among those that attention is cheapest on");
	else KVF_SAY(line, ": fewest pieces to move, attention weighed in");
	if (!q->peers.count) return;
	KVF_SAY(line, "; weight ");
	kvf_say_number(line, s->weight / 10000);
	KVF_SAY(line, " pieces a GiB");
	if (q->candidates.count > 1) {
		KVF_SAY(line, ", the worst of ");
		kvf_say_number(line, q->candidates.count);
		KVF_SAY(line, " candidates ");
		kvf_say_number(line, worst->weight / 10000);
	}
}

/* select_cheapest is a select_layout. */
static uint64_t select_cheapest(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q || (q->role != KVF_ROLE_SOURCE && q->role != KVF_ROLE_DESTINATION)) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t best = 0, failed = 0;
	int kept = 0;
	score least = {0, 0, 0, 0}, worst = least;
	for (uint32_t i = 0; i < q->candidates.count; i++) {
		score s = judge(q, i, &failed);
		if (!s.usable) continue;
		if (!worst.usable || better(&worst, &s)) worst = s;
		if (!kept && better(&s, &least)) {
			least = s;
			best = i;
		}
		if (q->previous == i + 1) {
			least = s;
			best = i;
			kept = 1;
		}
	}
	if (!least.usable) {
		if (!q->candidates.count) {
			KVF_SAY(&line, "the engine offers no layout");
		} else {
			const kvf_peer *peer = KVF_AT(kvf_peer, q, q->peers, failed);
			KVF_SAY(&line, "nothing that the engine's attention can do could be planned with engine ");
			kvf_say_some(&line, kvf_chars(q, peer->engine), peer->engine.length, 100);
		}
		return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
	}
	explain(q, &line, best, &least, &worst, kept);
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 == KVF_STATUS_AGAIN) return result;
	((kvf_select_layout_out *)out)->index = best;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}

#endif
