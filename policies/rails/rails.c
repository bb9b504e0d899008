/* rails: read from the nearest replica, over the rail on its own NUMA node, as
 * long as these have time. remap answers with several proved alternatives, some
 * that stay near and some that spread wide; route takes the one whose busiest
 * rank is done first as things are, names transports, and binds ranks to rails. */
#include "spread.h"
#include "../heads/select.h"

KVF_HOOK(kvferry_select_layout) { return select_cheapest(in, in_len, out, out_cap); }

/* What a bit costs by how far it goes. Within a process and a host these are
 * copies, beyond them wires; the steps matter and not the figures. */
static const uint8_t fare[FARS] = {2, 4, 5, 6, 8, 16, 20};

#define MAX_NAMED 64

/* The operator's list of transports, an array of texts; of kind KVF_JSON_NONE
 * where there is none. */
static kvf_json named;

static int known(const kvf_json *key, const kvf_json *value, kvf_line *line) {
	if (!KVF_JSON_IS(key, "transports")) return 0;
	kvf_json none, one;
	uint32_t n = 0;
	int right = value->kind == KVF_JSON_ARRAY;
	if (right)
		for (kvf_json_walk w = kvf_json_items(value); kvf_json_next(&w, &none, &one); n++)
			if (one.kind != KVF_JSON_TEXT) right = 0;
	if (!right || !n || n > MAX_NAMED) {
		KVF_SAY(line, "configuration: transports: want a list of names of transports, in order");
		return 0;
	}
	named = *value;
	return 1;
}

KVF_HOOK(kvferry_remap) {
	const kvf_remap_in *q = remap_input(in, in_len);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t most;
	if (!settings_of(q, q->configuration, &most, known, &line)) return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
	static const manner manners[4] = {{1, 1, 1, 0}, {0, 1, 1, 0}, {1, 0, 3, 0}, {0, 0, 3, 0}};
	return spread(q, out, out_cap, fare, manners, 4, most);
}

/* A transport that may be used, and what speaks for it. */
typedef struct {
	uint32_t provider, weight;
} way;

/* weight_of is what speaks against a transport: a copy that the reader makes by
 * itself comes first, then one that takes strided runs as they are, then one that
 * does not need the other process to run. */
static uint32_t weight_of(const kvf_provider *p) { return (p->one_sided ? 0 : 4) + (p->strides ? 0 : 2) + (p->peer_cpu ? 1 : 0); }

/* ways lists the transports of an alternative in order: the operator's, else all
 * that can serve any of it. 0 where it is left as configured, since nothing is
 * known, or something is that none of them serves. *unserved is the flow that the
 * operator's list leaves out. */
static uint32_t ways(const kvf_route_in *q, const site *s, const kvf_proven *p, way *to, const kvf_flow **unserved) {
	uint64_t all = 0, may = 0;
	uint32_t n = 0;
	int whole = p->flows.count > 0;
	*unserved = 0;
	for (uint32_t k = 0; k < p->flows.count; k++) {
		const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
		const kvf_edge *e = edge_of(s, f->source, f->destination);
		uint64_t by = e ? e->providers : 0;
		if (!by) whole = 0;
		all |= by;
	}
	if (named.kind) {
		kvf_json none, one;
		for (kvf_json_walk w = kvf_json_items(&named); kvf_json_next(&w, &none, &one);)
			for (uint32_t i = 0; i < q->providers.count && i < 64; i++) {
				kvf_text t = KVF_AT(kvf_provider, q, q->providers, i)->name;
				if (may >> i & 1 || !kvf_json_equal(&one, kvf_chars(q, t), t.length)) continue;
				to[n++] = (way){i, 0};
				may |= 1ull << i;
			}
		for (uint32_t k = 0; k < p->flows.count; k++) {
			const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
			const kvf_edge *e = edge_of(s, f->source, f->destination);
			if (!n || (e && !(e->providers & may))) {
				*unserved = f;
				break;
			}
		}
		return n;
	}
	if (!whole) return 0;
	for (uint32_t i = 0; i < q->providers.count && i < 64; i++) {
		if (!(all >> i & 1)) continue;
		way one = {i, weight_of(KVF_AT(kvf_provider, q, q->providers, i))};
		uint32_t k = n++;
		for (; k > 0 && to[k - 1].weight > one.weight; k--) to[k] = to[k - 1];
		to[k] = one;
	}
	return n;
}

#define STREAM (32ull << 20) /* bytes that are worth one more connection */

/* streams_of is how many connections the largest flow is worth, of as many as
 * are configured; 0 where that is one. */
static uint32_t streams_of(const kvf_route_in *q, const kvf_proven *p) {
	uint64_t largest = 0, tokens = q->tokens > q->cached ? q->tokens - q->cached : 0;
	if (q->streams < 2) return 0;
	for (uint32_t k = 0; k < p->flows.count; k++) {
		const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
		if (f->bytes > largest) largest = f->bytes;
	}
	if (largest >> 40) return q->streams;
	uint64_t n = largest / 4096 * tokens / STREAM + 1; /* flows are of 4096 tokens */
	return n < q->streams ? (uint32_t)n : q->streams;
}

/* bind marks the ranks of both engines whose bytes go over the network and that
 * have several rails to choose among. */
static uint32_t bind(const kvf_route_in *q, const site *s, const kvf_proven *p, uint8_t *source, uint8_t *destination) {
	uint32_t n = 0;
	for (uint32_t k = 0; k < p->flows.count; k++) {
		const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
		if (way_between(s, f->source, f->destination).far < FAR_RAIL) continue;
		if (s->source[f->source].rails > 1 && !source[f->source]) source[f->source] = 1, n++;
		if (s->destination[f->destination].rails > 1 && !destination[f->destination]) destination[f->destination] = 1, n++;
	}
	return n;
}

KVF_HOOK(kvferry_route) {
	const kvf_route_in *q = kvf_input(in, in_len, KVF_HOOK_ROUTE, sizeof *q);
	if (!q || !q->alternatives.count) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t most;
	if (!settings_of(q, q->configuration, &most, known, &line)) return refuse_route(out, out_cap, KVF_STATUS_DECLINED, &line);
	site s;
	uint64_t *given, refused;
	if (!locate_flows(&s, q, &given, out, out_cap, &refused)) return refused;
	choice c = choose(q, &s, fare, given);
	const kvf_proven *p = KVF_AT(kvf_proven, q, q->alternatives, c.index);
	uint8_t *marks = (uint8_t *)kvf_take(s.sources + s.destinations);
	if (!marks) return kvf_status(KVF_STATUS_UNSUPPORTED, 0);
	way to[64];
	const kvf_flow *unserved;
	uint32_t n = ways(q, &s, p, to, &unserved);
	if (unserved) {
		KVF_SAY(&line, "configuration: transports: none of them is here and serves source rank ");
		kvf_say_number(&line, unserved->source);
		KVF_SAY(&line, " and destination rank ");
		kvf_say_number(&line, unserved->destination);
		return refuse_route(out, out_cap, KVF_STATUS_DECLINED, &line);
	}
	uint32_t bound = bind(q, &s, p, marks, marks + s.sources), streams = streams_of(q, p);

	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_ROUTE, sizeof(kvf_route_out));
	kvf_decision *d = (kvf_decision *)kvf_grow(&a, sizeof *d);
	kvf_transport *transports = (kvf_transport *)kvf_grow(&a, n * sizeof *transports);
	kvf_rail_choice *rails = (kvf_rail_choice *)kvf_grow(&a, bound * sizeof *rails);
	say_choice(&line, &c, q->alternatives.count);
	if (n) {
		const kvf_provider *first = KVF_AT(kvf_provider, q, q->providers, to[0].provider);
		KVF_SAY(&line, "; ");
		kvf_say_some(&line, kvf_chars(q, first->name), first->name.length, 60);
		KVF_SAY(&line, " first");
	} else {
		KVF_SAY(&line, "; transports as configured");
	}
	if (bound) {
		KVF_SAY(&line, "; ranks bound to rails: ");
		kvf_say_number(&line, bound);
	}
	if (streams) {
		KVF_SAY(&line, "; streams: ");
		kvf_say_number(&line, streams);
	}
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	d->alternative = c.index;
	d->streams = streams;
	for (uint32_t i = 0; i < n; i++) transports[i].provider = to[i].provider;
	uint32_t w = 0;
	for (uint32_t i = 0; i < s.sources + s.destinations; i++) {
		if (!marks[i]) continue;
		int own = i < s.sources;
		uint32_t rank = own ? i : i - s.sources;
		rails[w++] = (kvf_rail_choice){own ? KVF_ROLE_SOURCE : KVF_ROLE_DESTINATION, rank, (own ? s.source : s.destination)[rank].best - 1, 0};
	}
	if (n) d->transports = (kvf_list){(uint32_t)transports - out, n, sizeof *transports};
	if (bound) d->rails = (kvf_list){(uint32_t)rails - out, bound, sizeof *rails};
	((kvf_route_out *)out)->decisions = (kvf_list){(uint32_t)d - out, 1, sizeof *d};
	((kvf_route_out *)out)->reason = reason;
	return result;
}
