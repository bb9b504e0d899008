/* heads, the built-in policy: match heads, and keep the cache in the layout that
 * takes the fewest pieces to move, among those that the engine's attention can
 * do. */
#include "remap.h"

KVF_HOOK(kvferry_remap) { return match_heads(in, in_len, out, out_cap); }

/* Pieces for each MiB moved, and what attention costs extra: the measure by
 * which candidates are compared. Blocks may differ, so pieces alone would not
 * do. */
static uint64_t rate(const kvf_cost *c) {
	if (!c->bytes) return 0;
	return c->pieces > (1ull << 40) ? ~0ull >> 8 : (c->pieces << 20) / c->bytes;
}

KVF_HOOK(kvferry_select_layout) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	uint32_t status = KVF_STATUS_OK, best = 0;
	if (!q->candidates.count) {
		status = KVF_STATUS_DECLINED;
		KVF_SAY(&line, "the engine offers no layout");
	}
	uint64_t least = ~0ull, worst = 0;
	for (uint32_t i = 0; i < q->candidates.count; i++) {
		const kvf_candidate *c = KVF_AT(kvf_candidate, q, q->candidates, i);
		/* Against each expected peer, the best that it can do. */
		uint64_t sum = 0;
		for (uint32_t p = 0; p < q->peers.count; p++) {
			uint64_t low = ~0ull;
			for (uint32_t k = 0; k < c->costs.count; k++) {
				const kvf_cost *cost = KVF_AT(kvf_cost, q, c->costs, k);
				if (cost->peer == p && rate(cost) < low) low = rate(cost);
			}
			if (low != ~0ull) sum += low;
		}
		sum += (sum / 100) * c->attention; /* attention is in per cent */
		if (sum > worst) worst = sum;
		if (sum < least) {
			least = sum;
			best = i;
		}
	}
	if (status == KVF_STATUS_OK) {
		const kvf_candidate *c = KVF_AT(kvf_candidate, q, q->candidates, best);
		kvf_say(&line, kvf_chars(q, c->name), c->name.length);
		if (!q->peers.count) {
			KVF_SAY(&line, ": the engine's first choice, no peer is expected");
		} else if (q->candidates.count == 1) {
			KVF_SAY(&line, ": all that the engine's attention can do; ");
			kvf_say_number(&line, least);
			KVF_SAY(&line, " pieces a MiB");
		} else {
			KVF_SAY(&line, ": fewest pieces to move, ");
			kvf_say_number(&line, least);
			KVF_SAY(&line, " a MiB (worst of ");
			kvf_say_number(&line, q->candidates.count);
			KVF_SAY(&line, " candidates: ");
			kvf_say_number(&line, worst);
			KVF_SAY(&line, ")");
		}
	}
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, status);
	if (result >> 32 == KVF_STATUS_AGAIN) return result;
	((kvf_select_layout_out *)out)->index = best;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}
