/* pin: the operator's table, and nothing else. A row says for which engines it
 * is, which layouts they use, from which source ranks each destination rank may
 * read, and how transfers go; the first row that is for a pair counts. What no
 * row is for is declined, and so is what a row asks for and cannot be. */
#include "../heads/remap.h"
#include "kvferry_json.h"

/* A row's members. */
typedef struct {
	kvf_json source, destination, layouts, from, transports, rails, chunk, streams, priority, mode, permute, integrity, crc, tls;
	uint32_t index;
} row;

/* wrong begins the reason for a configuration that cannot be. */
static void wrong(kvf_line *line, uint32_t index, const char *member, uint32_t n) {
	KVF_SAY(line, "configuration: pairs[");
	kvf_say_number(line, index);
	KVF_SAY(line, "]");
	if (n) KVF_SAY(line, ".");
	kvf_say(line, member, n);
	KVF_SAY(line, ": ");
}

#define WRONG(line, index, member, why) (wrong(line, index, member, sizeof member - 1), KVF_SAY(line, why), 0)

/* matches reports whether a name is what a pattern says: * is any characters, ?
 * one byte, all others themselves. */
static int matches(const char *p, uint32_t n, const char *s, uint32_t m) {
	uint32_t i = 0, k = 0, star = ~0u, back = 0;
	while (k < m) {
		if (i < n && p[i] == '*') {
			star = i++;
			back = k;
		} else if (i < n && (p[i] == '?' || p[i] == s[k])) {
			i++;
			k++;
		} else if (star != ~0u) {
			i = star + 1;
			k = ++back;
		} else {
			return 0;
		}
	}
	while (i < n && p[i] == '*') i++;
	return i == n;
}

#define MAX_PATTERN 256

/* is_for reports whether a pattern is for an engine; below 0 where it is none. */
static int is_for(const kvf_json *pattern, const void *q, kvf_text engine) {
	char c[MAX_PATTERN];
	uint32_t n = kvf_json_text(pattern, c, sizeof c);
	if (!n || n > sizeof c) return -1;
	return matches(c, n, kvf_chars(q, engine), engine.length);
}

/* read_row takes a row apart. 0 where it has what no row has. */
static int read_row(const kvf_json *v, uint32_t index, row *r, kvf_line *line) {
	*r = (row){.index = index};
	if (v->kind != KVF_JSON_OBJECT) return WRONG(line, index, "", "want an object");
	kvf_json key, value;
	for (kvf_json_walk w = kvf_json_items(v); kvf_json_next(&w, &key, &value);) {
		kvf_json *to = 0;
#define MEMBER(name) \
	if (KVF_JSON_IS(&key, #name)) to = &r->name
		MEMBER(source);
		MEMBER(destination);
		MEMBER(layouts);
		MEMBER(from);
		MEMBER(transports);
		MEMBER(rails);
		MEMBER(chunk);
		MEMBER(streams);
		MEMBER(priority);
		MEMBER(mode);
		MEMBER(permute);
		MEMBER(integrity);
		MEMBER(crc);
		MEMBER(tls);
		if (!to) {
			char c[64];
			uint32_t n = kvf_json_text(&key, c, sizeof c);
			wrong(line, index, c, n <= sizeof c ? n : 0);
			KVF_SAY(line, "rows have no such member");
			return 0;
		}
		if (value.kind != KVF_JSON_NULL) *to = value;
	}
	if (r->source.kind != KVF_JSON_TEXT) return WRONG(line, index, "source", "want a pattern of names of engines");
	if (r->destination.kind != KVF_JSON_TEXT) return WRONG(line, index, "destination", "want a pattern of names of engines");
	return 1;
}

/* table_of is the array of rows; of kind KVF_JSON_NONE where there is none. */
static kvf_json table_of(const void *q, kvf_text text, kvf_line *line) {
	kvf_json none = {0, 0, KVF_JSON_NONE}, key, value, rows = none;
	if (!text.length) {
		KVF_SAY(line, "there is no configuration: this policy does what its table says");
		return none;
	}
	kvf_json c = kvf_json_open(kvf_chars(q, text), text.length);
	for (kvf_json_walk w = kvf_json_items(&c); c.kind == KVF_JSON_OBJECT && kvf_json_next(&w, &key, &value);) {
		if (!KVF_JSON_IS(&key, "pairs")) {
			KVF_SAY(line, "configuration: want pairs and nothing else");
			return none;
		}
		rows = value;
	}
	if (rows.kind != KVF_JSON_ARRAY) {
		KVF_SAY(line, "configuration: pairs: want a list of rows");
		return none;
	}
	return rows;
}

static void say_pair(kvf_line *line, const void *q, kvf_text source, kvf_text destination) {
	KVF_SAY(line, "engines ");
	kvf_say_some(line, kvf_chars(q, source), source.length, 80);
	KVF_SAY(line, " and ");
	kvf_say_some(line, kvf_chars(q, destination), destination.length, 80);
}

/* row_of is the first row for two engines. 0 where there is none, or one before
 * it is wrong; the line says why. */
static int row_of(const kvf_json *rows, const void *q, kvf_text source, kvf_text destination, row *r, kvf_line *line) {
	kvf_json none, one;
	uint32_t i = 0;
	for (kvf_json_walk w = kvf_json_items(rows); kvf_json_next(&w, &none, &one); i++) {
		if (!read_row(&one, i, r, line)) return 0;
		int s = is_for(&r->source, q, source), d = is_for(&r->destination, q, destination);
		if (s < 0) return WRONG(line, i, "source", "want a pattern of 1 to 256 bytes");
		if (d < 0) return WRONG(line, i, "destination", "want a pattern of 1 to 256 bytes");
		if (s && d) return 1;
	}
	KVF_SAY(line, "the table has no row for ");
	say_pair(line, q, source, destination);
	return 0;
}

static int found_row(const void *q, kvf_text configuration, kvf_text source, kvf_text destination, row *r, kvf_line *line) {
	kvf_json rows = table_of(q, configuration, line);
	return rows.kind && row_of(&rows, q, source, destination, r, line);
}

/* allow marks that a destination rank may read from a source rank, as its n-th
 * choice. */
static int allow(const kvf_json *v, uint8_t *far, uint32_t ranks, uint32_t n) {
	int64_t s;
	if (!kvf_json_integer(v, &s) || s < 0 || s >= ranks || n >= NEVER) return 0;
	if (far[s] == NEVER) far[s] = (uint8_t)n;
	return 1;
}

/* allowed fills in who may read from whom; 0 where the row does not say so. */
static int allowed(const row *r, uint8_t *far, uint32_t sources, uint32_t destinations, kvf_line *line) {
	kvf_json none, one, inner;
	uint32_t d = 0;
	if (r->from.kind != KVF_JSON_ARRAY) return WRONG(line, r->index, "from", "want for each destination rank the source ranks it reads from, or heads");
	for (kvf_json_walk w = kvf_json_items(&r->from); kvf_json_next(&w, &none, &one); d++) {
		if (d >= destinations) continue;
		uint8_t *own = far + d * sources;
		int right = 1;
		uint32_t n = 0;
		if (one.kind == KVF_JSON_ARRAY)
			for (kvf_json_walk v = kvf_json_items(&one); right && kvf_json_next(&v, &none, &inner);) right = allow(&inner, own, sources, n++);
		else
			right = allow(&one, own, sources, n++);
		if (right && n) continue;
		wrong(line, r->index, "from", 4);
		KVF_SAY(line, "destination rank ");
		kvf_say_number(line, d);
		KVF_SAY(line, ": want one or several of the source's ");
		kvf_say_number(line, sources);
		KVF_SAY(line, " ranks, counted from 0");
		return 0;
	}
	if (d == destinations) return 1;
	wrong(line, r->index, "from", 4);
	kvf_say_number(line, d);
	KVF_SAY(line, " entries; the destination has ");
	kvf_say_number(line, destinations);
	KVF_SAY(line, " ranks");
	return 0;
}

/* say_lacking says which destination rank would go without. */
static void say_lacking(kvf_line *line, const kvf_remap_in *q, const holders *h, uint32_t index) {
	const kvf_group *g = KVF_AT(kvf_group, q, q->groups, h->lost);
	wrong(line, index, "from", 4);
	KVF_SAY(line, "destination rank ");
	kvf_say_number(line, h->lacking - 1);
	KVF_SAY(line, " wants head ");
	kvf_say_number(line, h->head);
	if (g->name.length) KVF_SAY(line, " of group ");
	kvf_say_some(line, kvf_chars(q, g->name), g->name.length, 60);
	KVF_SAY(line, ", which none of its source ranks holds");
}

KVF_HOOK(kvferry_remap) {
	const kvf_remap_in *q = remap_input(in, in_len);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	const kvf_side *source = KVF_AT(kvf_side, q, q->sides, 0), *destination = KVF_AT(kvf_side, q, q->sides, 1);
	uint32_t sources = source->ranks.count, destinations = destination->ranks.count;
	kvf_line line = {{0}, 0};
	row r;
	holders h;
	if (!found_row(q, q->configuration, source->engine, destination->engine, &r, &line)) return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
	if (!begin(&h, q)) return unmatched(out, out_cap, TOO_LARGE);
	if (!KVF_JSON_IS(&r.from, "heads")) {
		uint64_t pairs = (uint64_t)sources * destinations;
		uint8_t *far = pairs > MAX_TABLE ? 0 : (uint8_t *)kvf_take((uint32_t)pairs);
		if (!far) return unmatched(out, out_cap, TOO_LARGE);
		__builtin_memset(far, NEVER, (uint32_t)pairs);
		if (!allowed(&r, far, sources, destinations, &line)) return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
		h.prefer = (preference){far, 0, 1};
	}
	KVF_SAY(&line, "pairs[");
	kvf_say_number(&line, r.index);
	KVF_SAY(&line, "]: ");
	uint64_t result = answer_one(&h, q, out, out_cap, &line);
	if (result >> 32 > KVF_STATUS_AGAIN || !h.lacking) return result;
	line.n = 0;
	say_lacking(&line, q, &h, r.index);
	return KVF_REFUSE(out, out_cap, REMAP, remap_out, KVF_STATUS_DECLINED, &line);
}

/* layout_of is the name of the layout that a row gives the engine asked about. */
static int layout_of(const row *r, uint32_t role, kvf_json *to, kvf_line *line) {
	kvf_json key, value, none = {0, 0, KVF_JSON_NONE};
	*to = none;
	for (kvf_json_walk w = kvf_json_items(&r->layouts); r->layouts.kind == KVF_JSON_OBJECT && kvf_json_next(&w, &key, &value);) {
		int source = KVF_JSON_IS(&key, "source");
		if (!source && !KVF_JSON_IS(&key, "destination")) return WRONG(line, r->index, "layouts", "want source and destination");
		if (source == (role == KVF_ROLE_SOURCE)) *to = value;
	}
	if (to->kind == KVF_JSON_TEXT) return 1;
	if (role == KVF_ROLE_SOURCE) return WRONG(line, r->index, "layouts.source", "want the name of a layout");
	return WRONG(line, r->index, "layouts.destination", "want the name of a layout");
}

static int offered(const kvf_select_layout_in *q, const kvf_json *name, uint32_t *index) {
	for (uint32_t i = 0; i < q->candidates.count; i++) {
		kvf_text t = KVF_AT(kvf_candidate, q, q->candidates, i)->name;
		if (!kvf_json_equal(name, kvf_chars(q, t), t.length)) continue;
		*index = i;
		return 1;
	}
	return 0;
}

/* take adds a row's layout to what was chosen: rows for several peers must agree. */
static int take(const kvf_select_layout_in *q, const row *r, uint32_t *chosen, uint32_t *by, kvf_line *line) {
	kvf_json name;
	uint32_t i;
	if (!layout_of(r, q->role, &name, line)) return 0;
	if (!offered(q, &name, &i)) {
		char c[64];
		uint32_t n = kvf_json_text(&name, c, sizeof c);
		KVF_SAY(line, "pairs[");
		kvf_say_number(line, r->index);
		KVF_SAY(line, "] wants layout ");
		if (n <= sizeof c) kvf_say(line, c, n);
		KVF_SAY(line, ", which engine ");
		kvf_say_some(line, kvf_chars(q, q->engine), q->engine.length, 80);
		KVF_SAY(line, " does not offer");
		return 0;
	}
	if (*chosen != ~0u && *chosen != i) {
		KVF_SAY(line, "pairs[");
		kvf_say_number(line, *by);
		KVF_SAY(line, "] and pairs[");
		kvf_say_number(line, r->index);
		KVF_SAY(line, "] want different layouts of engine ");
		kvf_say_some(line, kvf_chars(q, q->engine), q->engine.length, 80);
		return 0;
	}
	if (*chosen == ~0u) *by = r->index;
	*chosen = i;
	return 1;
}

/* pinned finds the layout: by all expected peers, and where none is expected by
 * all rows that are for the engine. */
static int pinned(const kvf_select_layout_in *q, uint32_t *chosen, uint32_t *by, kvf_line *line) {
	int source = q->role == KVF_ROLE_SOURCE;
	kvf_json rows = table_of(q, q->configuration, line), none, one;
	if (!rows.kind) return 0;
	row r;
	for (uint32_t p = 0; p < q->peers.count; p++) {
		kvf_text peer = KVF_AT(kvf_peer, q, q->peers, p)->engine;
		if (!row_of(&rows, q, source ? q->engine : peer, source ? peer : q->engine, &r, line)) return 0;
		if (!take(q, &r, chosen, by, line)) return 0;
	}
	if (q->peers.count) return 1;
	uint32_t i = 0;
	for (kvf_json_walk w = kvf_json_items(&rows); kvf_json_next(&w, &none, &one); i++) {
		if (!read_row(&one, i, &r, line)) return 0;
		if (is_for(source ? &r.source : &r.destination, q, q->engine) > 0 && !take(q, &r, chosen, by, line)) return 0;
	}
	if (*chosen != ~0u) return 1;
	KVF_SAY(line, "the table has no row for engine ");
	kvf_say_some(line, kvf_chars(q, q->engine), q->engine.length, 80);
	if (source) KVF_SAY(line, " as a source");
	else KVF_SAY(line, " as a destination");
	return 0;
}

KVF_HOOK(kvferry_select_layout) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q || (q->role != KVF_ROLE_SOURCE && q->role != KVF_ROLE_DESTINATION)) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	uint32_t chosen = ~0u, by = 0;
	if (!pinned(q, &chosen, &by, &line)) return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
	kvf_text name = KVF_AT(kvf_candidate, q, q->candidates, chosen)->name;
	kvf_say_some(&line, kvf_chars(q, name), name.length, 100);
	KVF_SAY(&line, ": pairs[");
	kvf_say_number(&line, by);
	KVF_SAY(&line, "]");
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 == KVF_STATUS_AGAIN) return result;
	((kvf_select_layout_out *)out)->index = chosen;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}

/* number_of reads a member that is a number; absent is 0. */
static int number_of(const kvf_json *v, int64_t most, uint32_t *to) {
	int64_t n = 0;
	if (v->kind && (!kvf_json_integer(v, &n) || n < 1 || n > most)) return 0;
	*to = (uint32_t)n;
	return 1;
}

/* switch_of reads a member that is true or false. */
static int switch_of(const kvf_json *v, uint32_t *to) {
	if (v->kind && v->kind != KVF_JSON_TRUE && v->kind != KVF_JSON_FALSE) return 0;
	*to = v->kind == KVF_JSON_TRUE ? KVF_SWITCH_ON : v->kind == KVF_JSON_FALSE ? KVF_SWITCH_OFF : 0;
	return 1;
}

/* settings fills in what a row says of transfers besides transports and rails. */
static int settings(const row *r, kvf_decision *d, kvf_line *line) {
	if (!number_of(&r->chunk, 1 << 30, &d->chunk)) return WRONG(line, r->index, "chunk", "want a number of bytes");
	if (!number_of(&r->streams, 1 << 16, &d->streams)) return WRONG(line, r->index, "streams", "want a number of connections");
	if (!number_of(&r->priority, 8, &d->priority)) return WRONG(line, r->index, "priority", "want a number from 1 to 8");
	if (!switch_of(&r->crc, &d->crc)) return WRONG(line, r->index, "crc", "want true or false");
	if (!switch_of(&r->tls, &d->tls)) return WRONG(line, r->index, "tls", "want true or false");
	if (r->mode.kind) {
		d->mode = KVF_JSON_IS(&r->mode, "direct") ? KVF_MODE_DIRECT : KVF_JSON_IS(&r->mode, "staged") ? KVF_MODE_STAGED : 0;
		if (!d->mode) return WRONG(line, r->index, "mode", "want direct or staged");
	}
	if (r->permute.kind) {
		d->permute = KVF_JSON_IS(&r->permute, "source") ? KVF_ROLE_SOURCE : KVF_JSON_IS(&r->permute, "destination") ? KVF_ROLE_DESTINATION : 0;
		if (!d->permute) return WRONG(line, r->index, "permute", "want source or destination");
	}
	if (r->integrity.kind) {
		d->integrity = KVF_JSON_IS(&r->integrity, "off") ? KVF_INTEGRITY_OFF : KVF_JSON_IS(&r->integrity, "sample") ? KVF_INTEGRITY_SAMPLE : KVF_JSON_IS(&r->integrity, "full") ? KVF_INTEGRITY_FULL : 0;
		if (!d->integrity) return WRONG(line, r->index, "integrity", "want off, sample or full");
	}
	return 1;
}

#define MAX_WAYS 64

/* transports reads the row's list; each must be one that is configured here, and
 * some of them must serve each flow. */
static int transports(const row *r, const kvf_route_in *q, uint32_t *to, uint32_t *n, kvf_line *line) {
	kvf_json none, one;
	uint64_t may = 0;
	*n = 0;
	if (!r->transports.kind) return 1;
	if (r->transports.kind != KVF_JSON_ARRAY) return WRONG(line, r->index, "transports", "want a list of names");
	for (kvf_json_walk w = kvf_json_items(&r->transports); kvf_json_next(&w, &none, &one);) {
		uint32_t i = 0;
		for (; i < q->providers.count && i < MAX_WAYS; i++) {
			kvf_text t = KVF_AT(kvf_provider, q, q->providers, i)->name;
			if (kvf_json_equal(&one, kvf_chars(q, t), t.length)) break;
		}
		if (i == q->providers.count || i == MAX_WAYS) {
			char c[64];
			uint32_t length = kvf_json_text(&one, c, sizeof c);
			wrong(line, r->index, "transports", 10);
			KVF_SAY(line, "none that is configured here is called ");
			if (length && length <= sizeof c) kvf_say(line, c, length);
			else KVF_SAY(line, "so");
			return 0;
		}
		if (!(may >> i & 1)) to[(*n)++] = i;
		may |= 1ull << i;
	}
	if (!*n) return WRONG(line, r->index, "transports", "want one at least");
	const kvf_proven *p = KVF_AT(kvf_proven, q, q->alternatives, 0);
	for (uint32_t k = 0; k < p->flows.count; k++) {
		const kvf_flow *f = KVF_AT(kvf_flow, q, p->flows, k);
		for (uint32_t i = 0; i < q->edges.count; i++) {
			const kvf_edge *e = KVF_AT(kvf_edge, q, q->edges, i);
			if (f->source < e->source_from || f->source >= e->source_to || f->destination < e->destination_from || f->destination >= e->destination_to) continue;
			if (e->providers & may) break;
			wrong(line, r->index, "transports", 10);
			KVF_SAY(line, "none of them serves source rank ");
			kvf_say_number(line, f->source);
			KVF_SAY(line, " and destination rank ");
			kvf_say_number(line, f->destination);
			return 0;
		}
	}
	return 1;
}

/* bound reads which rails the ranks of a side use, by names in the order of
 * ranks; null leaves a rank as it is. It writes them where there is room, and
 * counts them. */
static int bound(const row *r, const kvf_route_in *q, uint32_t role, kvf_rail_choice *to, uint32_t *n, kvf_line *line) {
	kvf_json key, value, none, one;
	if (r->rails.kind && r->rails.kind != KVF_JSON_OBJECT) return WRONG(line, r->index, "rails", "want lists for source and destination");
	for (kvf_json_walk w = kvf_json_items(&r->rails); r->rails.kind && kvf_json_next(&w, &key, &value);) {
		int source = KVF_JSON_IS(&key, "source");
		if ((!source && !KVF_JSON_IS(&key, "destination")) || value.kind != KVF_JSON_ARRAY) return WRONG(line, r->index, "rails", "want lists for source and destination");
		if (source != (role == KVF_ROLE_SOURCE) || q->engines.count != 2) continue;
		const kvf_engine *e = KVF_AT(kvf_engine, q, q->engines, source ? 0 : 1);
		uint32_t rank = 0;
		for (kvf_json_walk v = kvf_json_items(&value); kvf_json_next(&v, &none, &one); rank++) {
			if (one.kind == KVF_JSON_NULL) continue;
			uint32_t count = rank < e->places.count ? KVF_AT(kvf_place, q, e->places, rank)->rails.count : 0, i = 0;
			for (; i < count; i++) {
				kvf_text t = KVF_AT(kvf_rail, q, KVF_AT(kvf_place, q, e->places, rank)->rails, i)->name;
				if (kvf_json_equal(&one, kvf_chars(q, t), t.length)) break;
			}
			if (i == count) {
				char c[64];
				uint32_t length = kvf_json_text(&one, c, sizeof c);
				wrong(line, r->index, "rails", 5);
				if (source) KVF_SAY(line, "source rank ");
				else KVF_SAY(line, "destination rank ");
				kvf_say_number(line, rank);
				KVF_SAY(line, " is not known to have a rail ");
				if (length <= sizeof c) kvf_say(line, c, length);
				return 0;
			}
			if (to) to[*n] = (kvf_rail_choice){role, rank, i, 0};
			++*n;
		}
	}
	return 1;
}

static int both_bound(const row *r, const kvf_route_in *q, kvf_rail_choice *to, uint32_t *n, kvf_line *line) {
	*n = 0;
	return bound(r, q, KVF_ROLE_SOURCE, to, n, line) && bound(r, q, KVF_ROLE_DESTINATION, to, n, line);
}

KVF_HOOK(kvferry_route) {
	const kvf_route_in *q = kvf_input(in, in_len, KVF_HOOK_ROUTE, sizeof *q);
	if (!q || !q->alternatives.count || q->engines.count != 2) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	row r;
	kvf_decision said = {0};
	uint32_t ways[MAX_WAYS], n, rails;
	if (!found_row(q, q->configuration, KVF_AT(kvf_engine, q, q->engines, 0)->name, KVF_AT(kvf_engine, q, q->engines, 1)->name, &r, &line) || !settings(&r, &said, &line) ||
		!transports(&r, q, ways, &n, &line) || !both_bound(&r, q, 0, &rails, &line))
		return KVF_REFUSE(out, out_cap, ROUTE, route_out, KVF_STATUS_DECLINED, &line);
	KVF_SAY(&line, "pairs[");
	kvf_say_number(&line, r.index);
	KVF_SAY(&line, "]");
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_ROUTE, sizeof(kvf_route_out));
	kvf_decision *d = (kvf_decision *)kvf_grow(&a, sizeof *d);
	kvf_transport *list = (kvf_transport *)kvf_grow(&a, n * sizeof *list);
	kvf_rail_choice *choices = (kvf_rail_choice *)kvf_grow(&a, rails * sizeof *choices);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_OK);
	if (result >> 32 != KVF_STATUS_OK) return result;
	*d = said;
	for (uint32_t i = 0; i < n; i++) list[i].provider = ways[i];
	(void)both_bound(&r, q, choices, &rails, &line);
	if (n) d->transports = (kvf_list){(uint32_t)list - out, n, sizeof *list};
	if (rails) d->rails = (kvf_list){(uint32_t)choices - out, rails, sizeof *choices};
	((kvf_route_out *)out)->decisions = (kvf_list){(uint32_t)d - out, 1, sizeof *d};
	((kvf_route_out *)out)->reason = reason;
	return result;
}
