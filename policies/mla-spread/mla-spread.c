/* mla-spread: read what many ranks hold alike, as MLA's latent, from all of them
 * by turns, and less from those that are busy. remap answers with proved
 * alternatives that choose other replicas each, route picks one for a transfer:
 * no proof is made a request. Where the ranks run plays no part; see rails. */
#include "../rails/spread.h"
#include "../heads/select.h"

KVF_HOOK(kvferry_select_layout) { return select_cheapest(in, in_len, out, out_cap); }

KVF_HOOK(kvferry_remap) {
	const kvf_remap_in *q = remap_input(in, in_len);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t most;
	if (!settings_of(q, q->configuration, &most, 0, &line)) return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
	static const manner manners[4] = {{0, 1, 1, 0}, {0, 0, ALTERNATIVES, 0}, {0, 0, ALTERNATIVES, 1}, {0, 0, ALTERNATIVES, 2}};
	return spread(q, out, out_cap, 0, manners, 4, most);
}

KVF_HOOK(kvferry_route) {
	const kvf_route_in *q = kvf_input(in, in_len, KVF_HOOK_ROUTE, sizeof *q);
	if (!q || !q->alternatives.count) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t most;
	if (!settings_of(q, q->configuration, &most, 0, &line)) return refuse_route(out, out_cap, KVF_STATUS_DECLINED, &line);
	site s;
	uint64_t *given, refused;
	if (!locate_flows(&s, q, &given, out, out_cap, &refused)) return refused;
	choice c = choose(q, &s, 0, given);
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_ROUTE, sizeof(kvf_route_out));
	kvf_decision *d = (kvf_decision *)kvf_grow(&a, sizeof *d);
	say_choice(&line, &c, q->alternatives.count);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	d->alternative = c.index;
	((kvf_route_out *)out)->decisions = (kvf_list){(uint32_t)d - out, 1, sizeof *d};
	((kvf_route_out *)out)->reason = reason;
	return result;
}
