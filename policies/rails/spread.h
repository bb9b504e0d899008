/* Several alternatives, and one of them for each transfer: replicas are read from
 * by turns, or as they have time, without a proof a transfer. remap answers with
 * assignments that choose other replicas each, all proved before anything moves;
 * route takes the one whose busiest rank is done first as things are, and of
 * equals the one after that which was taken before. */
#ifndef RAILS_SPREAD_H
#define RAILS_SPREAD_H

#include "../heads/remap.h"
#include "kvferry_json.h"
#include "site.h"

#define ALTERNATIVES 8

/* One way to choose among replicas. */
typedef struct {
	int near;  /* nearer ranks first */
	int weigh; /* those that are busy serve less; else all serve alike, over all alternatives of the manner */
	uint32_t most;
	uint32_t parity; /* 1: even ranks first, 2: odd ones */
} manner;

/* What an alternative takes: its busiest source rank, then all together. */
typedef struct {
	uint64_t most, all;
} toil;

static int lighter(const toil *a, const toil *b) { return a->most != b->most ? a->most < b->most : a->all < b->all; }

/* toil_of takes what was given, and forgets it. */
static toil toil_of(uint64_t *given, uint32_t n) {
	toil t = {0, 0};
	for (uint32_t i = 0; i < n; i++) {
		if (given[i] > t.most) t.most = given[i];
		t.all = t.all + given[i] < t.all ? ~0ull : t.all + given[i];
		given[i] = 0;
	}
	return t;
}

/* An alternative as it stands in the answer. */
typedef struct {
	uint32_t at, written, serving;
	uint64_t choices;
	toil toil;
} written_out;

/* Fuel that is spent here at most, about: what is left over is for questions
 * that cost more than they look. */
#define FUEL 3000000ull

/* expected is about the fuel that a look at where the ranks run and one match
 * take. */
static uint64_t expected(const kvf_remap_in *q, const kvf_side *source, const kvf_side *destination) {
	uint64_t n = source->ranks.count, to = destination->ranks.count, cells = (uint64_t)source->stages * source->dcp, kinds = 0;
	if (!cells) cells = 1;
	for (uint32_t g = 0; g < q->groups.count; g++) {
		const kvf_group *group = KVF_AT(kvf_group, q, q->groups, g);
		for (uint32_t i = 0; i < group->components.count && i < MAX_CLASSES; i++) {
			uint32_t heads = KVF_AT(kvf_component, q, group->components, i)->heads, k = 0;
			while (k < i && KVF_AT(kvf_component, q, group->components, k)->heads != heads) k++;
			kinds += k == i;
		}
	}
	return n * to * 120 + (n + to) * 1500 + kinds * to * (n * EFFORT_LOOK + cells * (EFFORT_CELL + EFFORT_STEP));
}

/* lean makes the ranks of one parity serve before the others: all others have as
 * good as served for ever. */
static void lean(holders *h, uint32_t parity) {
	for (uint32_t i = 0; i < h->side->ranks.count; i++) h->load[i] = parity && i % 2 == parity % 2 ? 1ull << 50 : 0;
}

/* spread is a remap with at most "most" alternatives, best first: of each manner
 * as many as it may have that choose anew. */
static uint64_t spread(const kvf_remap_in *q, uint32_t out, uint32_t out_cap, const uint8_t *fare, const manner *manners, uint32_t count, uint32_t most) {
	kvf_line line = {{0}, 0};
	holders h;
	site s;
	uint8_t *far = 0, *busy = 0;
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	uint32_t n = source->ranks.count;
	uint64_t budget = expected(q, source, destination);
	if (budget > FUEL) {
		budget = 0; /* matched once, as heads does */
	} else {
		budget = FUEL - ((uint64_t)n * destination->ranks.count * 120 + (n + destination->ranks.count) * 1500);
		if (!locate(&s, q, q->engines, q->edges, n, destination->ranks.count, 0) || !chart(&s, &far, &busy)) return unmatched(out, out_cap, TOO_LARGE);
	}
	tariff t = {fare ? far : 0, busy, fare};
	if (!begin(&h, q)) return unmatched(out, out_cap, TOO_LARGE);
	uint32_t kept = 0;
	uint64_t dearest = 0; /* of the matches so far */
	int cut = 0;          /* 1: there would be more, and no fuel for them */
	h.tariff = &t;
	h.given = (uint64_t *)zeros((uint64_t)n * 2);
	if (!h.given) return unmatched(out, out_cap, TOO_LARGE);
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
	written_out all[ALTERNATIVES];
	for (uint32_t m = 0; m < count; m++) {
		uint64_t first = 0;
		uint32_t own = 0;
		h.prefer = (preference){manners[m].near ? t.far : 0, manners[m].weigh ? t.busy : 0, 0};
		lean(&h, manners[m].parity);
		for (uint32_t i = 0; own < manners[m].most && kept < most && i < 2 * ALTERNATIVES && (!kept || h.replicas); i++) {
			if ((cut = kept && h.effort + dearest > budget)) break;
			uint64_t before = h.effort;
			written_out f = {.at = (uint32_t)((a.need + 7) & ~7ull)};
			enum matched got = match(&h, q, &a, &f.written);
			if (got != MATCHED) return unmatched(out, out_cap, got);
			f.serving = serving(&h);
			if (h.effort - before > dearest) dearest = h.effort - before;
			f.choices = h.choices;
			f.toil = toil_of(h.given, n);
			uint32_t k = 0;
			while (k < kept && all[k].choices != f.choices) k++;
			if (k < kept) { /* chosen before */
				a.need = f.at;
				if (i && f.choices == first) break; /* it has come round */
			} else {
				for (; k > 0 && lighter(&f.toil, &all[k - 1].toil); k--) all[k] = all[k - 1];
				all[k] = f;
				kept++;
				own++;
			}
			if (!i) first = f.choices;
		}
	}
	kvf_alternative *list = (kvf_alternative *)kvf_grow(&a, kept * sizeof *list);
	kvf_say_number(&line, kept);
	if (kept == 1) KVF_SAY(&line, " alternative");
	else KVF_SAY(&line, " alternatives");
	if (cut) KVF_SAY(&line, ", as many as there is fuel for");
	if (kept == 1) KVF_SAY(&line, ": ");
	else KVF_SAY(&line, "; the first: ");
	say_matched(&line, all[0].written, all[0].serving, n);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	for (uint32_t k = 0; k < kept; k++)
		if (all[k].written) list[k].assignments = (kvf_list){all[k].at, all[k].written, sizeof(kvf_assignment)};
	kvf_remap_out *answer = (kvf_remap_out *)out;
	answer->alternatives = (kvf_list){(uint32_t)list - out, kept, sizeof *list};
	answer->reason = reason;
	return result;
}

/* ranks_of are the ranks that a transfer can be between: those with places, and
 * those that any alternative moves something of. */
static void ranks_of(const kvf_route_in *q, uint32_t *sources, uint32_t *destinations) {
	*sources = *destinations = 0;
	if (q->engines.count == 2) {
		*sources = KVF_AT(kvf_engine, q, q->engines, 0)->places.count;
		*destinations = KVF_AT(kvf_engine, q, q->engines, 1)->places.count;
	}
	for (uint32_t i = 0; i < q->alternatives.count; i++) {
		const kvf_proven *p = KVF_AT(kvf_proven, q, q->alternatives, i);
		for (uint32_t k = 0; k < p->flows.count; k++) {
			const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
			if (f->source >= *sources) *sources = f->source < MAX_PAIRS ? f->source + 1 : MAX_PAIRS + 1;
			if (f->destination >= *destinations) *destinations = f->destination < MAX_PAIRS ? f->destination + 1 : MAX_PAIRS + 1;
		}
	}
}

/* What was chosen for a transfer. */
typedef struct {
	uint32_t index;
	uint32_t equals; /* alternatives that take as much */
	uint32_t turn;   /* 1: of several that take as much it is the one whose turn it is */
} choice;

/* choose is the alternative that takes the least; of equals the one after the
 * one taken before, so that they take turns. fare is what distances cost, 0 where
 * they play no part; given has room for all source ranks, zero. */
static choice choose(const kvf_route_in *q, const site *s, const uint8_t *fare, uint64_t *given) {
	choice c = {0, 0, 0};
	toil least = {0, 0}, each[ALTERNATIVES];
	uint32_t n = q->alternatives.count < ALTERNATIVES ? q->alternatives.count : ALTERNATIVES;
	for (uint32_t i = 0; i < n; i++) {
		const kvf_proven *p = KVF_AT(kvf_proven, q, q->alternatives, i);
		for (uint32_t k = 0; k < p->flows.count; k++) {
			const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
			uint64_t units = (f->bytes >> 10 < 1ull << 36 ? f->bytes >> 10 : 1ull << 36) + 1;
			between w = way_between(s, f->source, f->destination);
			given[f->source] += units * cost[w.busy] * (fare ? fare[w.far] : 1);
		}
		each[i] = toil_of(given, s->sources);
		if (!i || lighter(&each[i], &least)) least = each[i];
	}
	uint32_t before = q->previous.count ? KVF_AT(kvf_decision, q, q->previous, 0)->alternative : n - 1;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = (before % n + 1 + i) % n;
		if (lighter(&least, &each[k])) continue;
		if (!c.equals++) c.index = k;
	}
	return c;
}

static void say_choice(kvf_line *line, const choice *c, uint32_t n) {
	KVF_SAY(line, "alternative ");
	kvf_say_number(line, c->index);
	KVF_SAY(line, " of ");
	kvf_say_number(line, n);
	if (n == 1) return;
	if (c->equals > 1) {
		KVF_SAY(line, ": its turn among ");
		kvf_say_number(line, c->equals);
		KVF_SAY(line, " that take as much");
	} else {
		KVF_SAY(line, ": its busiest rank is done first");
	}
}

/* Where the ranks of a transfer run. 0 where they are more than this looks at; the
 * hook returns *refused then. given has room for all source ranks. */
static int locate_flows(site *s, const kvf_route_in *q, uint64_t **given, uint32_t out, uint32_t out_cap, uint64_t *refused) {
	uint32_t sources, destinations;
	ranks_of(q, &sources, &destinations);
	*given = 0;
	if (locate(s, q, q->engines, q->edges, sources, destinations, 1)) *given = (uint64_t *)kvf_take(sources * 8);
	if (*given) return 1;
	kvf_line line = {{0}, 0};
	KVF_SAY(&line, "the engines have more ranks than this policy looks at");
	*refused = KVF_REFUSE(out, out_cap, ROUTE, route_out, KVF_STATUS_UNSUPPORTED, &line);
	return 0;
}

/* refuse_route says no to a route. */
static uint64_t refuse_route(uint32_t out, uint32_t out_cap, uint32_t status, const kvf_line *line) {
	return KVF_REFUSE(out, out_cap, ROUTE, route_out, status, line);
}

/* settings_of reads how many alternatives are wanted, and what else stands in
 * the configuration: "known" is told of each other member, and says whether it is
 * one of the policy's and right. 0 where it is not; the line says why. */
static int settings_of(const void *q, kvf_text text, uint32_t *most, int (*known)(const kvf_json *key, const kvf_json *value, kvf_line *line), kvf_line *line) {
	*most = ALTERNATIVES;
	if (!text.length) return 1;
	kvf_json c = kvf_json_open(kvf_chars(q, text), text.length), key, value;
	if (c.kind == KVF_JSON_NULL) return 1;
	if (c.kind != KVF_JSON_OBJECT) {
		KVF_SAY(line, "configuration: want an object of settings");
		return 0;
	}
	for (kvf_json_walk w = kvf_json_items(&c); kvf_json_next(&w, &key, &value);) {
		if (KVF_JSON_IS(&key, "alternatives")) {
			int64_t n;
			if (!kvf_json_integer(&value, &n) || n < 1 || n > ALTERNATIVES) {
				KVF_SAY(line, "configuration: alternatives: want a number from 1 to 8");
				return 0;
			}
			*most = (uint32_t)n;
		} else if (known && known(&key, &value, line)) {
			continue;
		} else {
			if (!line->n) {
				char c[64];
				uint32_t n = kvf_json_text(&key, c, sizeof c);
				KVF_SAY(line, "configuration: ");
				if (n <= sizeof c) kvf_say(line, c, n);
				else KVF_SAY(line, "a name");
				KVF_SAY(line, ": this policy has no such setting");
			}
			return 0;
		}
	}
	return 1;
}

#endif
