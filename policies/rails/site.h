/* Where the ranks of both engines run, how near they are to each other and how
 * busy the ways between them are. What is not known makes nothing nearer. */
#ifndef RAILS_SITE_H
#define RAILS_SITE_H

#include "kvferry.h"

#define MAX_PAIRS (1u << 20)  /* source ranks times destination ranks */
#define MAX_EDGES (1u << 13)

/* How far a source rank is from a destination rank, nearest first. */
enum far {
	FAR_PROCESS,
	FAR_NODE,    /* one host, one NUMA node */
	FAR_HOST,    /* one host; the nodes are not known */
	FAR_CROSS,   /* one host, other nodes */
	FAR_DOMAIN,  /* one link domain */
	FAR_RAIL,    /* over the network, from a rail to its like */
	FAR_NETWORK, /* over the network, or it is not known how */
	FARS,
};

/* Where a rank runs. Names are numbered; 0 is not known. */
typedef struct {
	uint32_t host, domain, numa;
	uint32_t load;
	uint32_t rail;      /* number of its rail's name */
	uint32_t rail_load;
	uint32_t best;      /* 1 + the rail's index, 0: it has none */
	uint32_t rails;
} spot;

typedef struct {
	const char *c;
	uint32_t n, ends; /* ends: its first and last characters, mixed */
} name;

/* A site is what is known of a question's two engines. */
typedef struct {
	const void *base;
	kvf_list edges;
	uint32_t sources, destinations;
	spot *source, *destination; /* by rank */
	uint16_t *edge;             /* [destination][source]: 1 + the edge's index, 0: none */
	name *names;
	uint32_t named;
} site;

typedef uint32_t __attribute__((may_alias, aligned(1))) four;

static int same(const char *a, const char *b, uint32_t n) {
	uint32_t i = 0;
	for (; i + 4 <= n; i += 4)
		if (*(const four *)(a + i) != *(const four *)(b + i)) return 0;
	for (; i < n; i++)
		if (a[i] != b[i]) return 0;
	return 1;
}

/* number is the number of a name, the same for the same name; 0 for none. */
static uint32_t number(site *s, kvf_text t) {
	if (!t.length) return 0;
	const char *c = kvf_chars(s->base, t);
	uint32_t ends = (unsigned char)c[0];
	if (t.length >= 4) ends = *(const four *)c * 31 + *(const four *)(c + t.length - 4);
	for (const name *o = s->names, *end = o + s->named; o < end; o++)
		if (o->ends == ends && o->n == t.length && same(o->c, c, t.length)) return (uint32_t)(o - s->names) + 1;
	if (s->named == (s->sources + s->destinations) * 3) return 0; /* more places than ranks */
	s->names[s->named] = (name){c, t.length, ends};
	return ++s->named;
}

/* numa_of is the node that a rank's cache lies on: its device's, else its own. */
static uint32_t numa_of(const void *base, const kvf_place *p) {
	uint32_t numa = p->devices.count ? KVF_AT(kvf_device, base, p->devices, 0)->numa : 0;
	return numa ? numa : p->numa;
}

/* rail_of is 1 + the rail that a rank is best off with: one on its node, that is
 * less busy, faster, first. A rail elsewhere counts as three buckets busier, one
 * that nobody knows the place of as one. Loads are left out where the answer is
 * to be the same whatever they are. */
static uint32_t rail_of(const void *base, const kvf_place *p, int loads) {
	uint32_t best = 0, least = ~0u, speed = 0, numa = numa_of(base, p);
	for (uint32_t i = 0; i < p->rails.count; i++) {
		const kvf_rail *r = KVF_AT(kvf_rail, base, p->rails, i);
		uint32_t weight = !r->numa || !numa ? 1 : r->numa == numa ? 0 : 3;
		if (loads) weight += r->load ? r->load : 1;
		if (weight > least || (weight == least && best && r->gbits <= speed)) continue;
		best = i + 1;
		least = weight;
		speed = r->gbits;
	}
	return best;
}

static void place_ranks(site *s, spot *to, uint32_t n, const kvf_engine *e, int loads) {
	for (uint32_t i = 0; i < e->places.count; i++) {
		const kvf_place *p = KVF_AT(kvf_place, s->base, e->places, i);
		if (p->rank >= n) continue;
		spot *o = &to[p->rank];
		o->host = number(s, p->host);
		o->domain = number(s, p->domain);
		o->numa = numa_of(s->base, p);
		o->load = p->load;
		o->rails = p->rails.count;
		o->best = rail_of(s->base, p, loads);
		if (!o->best) continue;
		const kvf_rail *r = KVF_AT(kvf_rail, s->base, p->rails, o->best - 1);
		o->rail = number(s, r->name);
		o->rail_load = r->load;
	}
}

/* locate finds out where the ranks run. 0 where they are more than this looks
 * at. */
static int locate(site *s, const void *base, kvf_list engines, kvf_list edges, uint32_t sources, uint32_t destinations, int loads) {
	uint64_t pairs = (uint64_t)sources * destinations;
	*s = (site){.base = base, .edges = edges, .sources = sources, .destinations = destinations};
	if (pairs > MAX_PAIRS || sources > MAX_PAIRS || destinations > MAX_PAIRS || edges.count > MAX_EDGES) return 0;
	s->source = (spot *)kvf_take(sources * sizeof(spot));
	s->destination = (spot *)kvf_take(destinations * sizeof(spot));
	s->edge = (uint16_t *)kvf_take((uint32_t)pairs * 2);
	s->names = (name *)kvf_take((sources + destinations) * 3 * sizeof(name));
	if (!s->source || !s->destination || !s->edge || !s->names) return 0;
	if (engines.count == 2) {
		place_ranks(s, s->source, sources, KVF_AT(kvf_engine, base, engines, 0), loads);
		place_ranks(s, s->destination, destinations, KVF_AT(kvf_engine, base, engines, 1), loads);
	}
	for (uint32_t i = 0; i < edges.count; i++) {
		const kvf_edge *e = KVF_AT(kvf_edge, base, edges, i);
		uint32_t from = e->source_from, to = e->source_to < sources ? e->source_to : sources;
		for (uint32_t d = e->destination_from; from < to && d < e->destination_to && d < destinations; d++)
			for (uint16_t *p = s->edge + d * sources + from, *end = s->edge + d * sources + to; p < end; p++) *p = (uint16_t)(i + 1);
	}
	return 1;
}

/* edge_of is the edge between two ranks, 0 where none is known. */
static const kvf_edge *edge_of(const site *s, uint32_t source, uint32_t destination) {
	uint32_t e = s->edge[destination * s->sources + source];
	return e ? KVF_AT(kvf_edge, s->base, s->edges, e - 1) : 0;
}

/* What lies between two ranks. */
typedef struct {
	uint32_t far, busy;
} between;

/* judge_pair is what lies between two ranks on an edge of this reach and load: how
 * near they are is what the edge says, else what their places say. A rail is in
 * the way only of what goes over the network. */
static inline between judge_pair(const spot *a, const spot *b, uint32_t reach, uint32_t load) {
	between w = {FAR_NETWORK, load > a->load ? load : a->load};
	if (!reach) {
		if (a->host && a->host == b->host) reach = KVF_REACH_HOST;
		else if (a->domain && a->domain == b->domain) reach = KVF_REACH_DOMAIN;
	}
	if (reach == KVF_REACH_PROCESS) {
		w.far = FAR_PROCESS;
	} else if (reach == KVF_REACH_HOST) {
		w.far = !a->numa || !b->numa ? FAR_HOST : a->numa == b->numa ? FAR_NODE : FAR_CROSS;
	} else if (reach == KVF_REACH_DOMAIN) {
		w.far = FAR_DOMAIN;
	} else {
		if (a->rail && a->rail == b->rail) w.far = FAR_RAIL;
		if (a->rail_load > w.busy) w.busy = a->rail_load;
		if (b->rail_load > w.busy) w.busy = b->rail_load;
	}
	if (w.busy > 8) w.busy = 8;
	return w;
}

static between way_between(const site *s, uint32_t source, uint32_t destination) {
	const kvf_edge *e = edge_of(s, source, destination);
	return judge_pair(&s->source[source], &s->destination[destination], e ? e->reach : 0, e ? e->load : 0);
}

/* chart writes tables by [destination][source] of how far and how busy it is
 * between all ranks; a table that would be the same everywhere is 0. The
 * call returns 0 where memory is out. */
static int chart(const site *s, uint8_t **far, uint8_t **busy) {
	uint32_t pairs = s->sources * s->destinations;
	uint8_t *f = (uint8_t *)kvf_take(pairs), *b = (uint8_t *)kvf_take(pairs), *said = (uint8_t *)kvf_take((s->edges.count + 1) * 2);
	if (!f || !b || !said) return 0;
	for (uint32_t i = 0; i < s->edges.count; i++) {
		const kvf_edge *e = KVF_AT(kvf_edge, s->base, s->edges, i);
		said[i * 2 + 2] = e->reach < 255 ? (uint8_t)e->reach : 255;
		said[i * 2 + 3] = e->load < 255 ? (uint8_t)e->load : 255;
	}
	uint32_t fars = 0, loads = 0;
	const uint16_t *edge = s->edge;
	for (uint32_t d = 0, at = 0; d < s->destinations; d++) {
		const spot *b_spot = &s->destination[d];
		for (const spot *a = s->source, *end = a + s->sources; a < end; a++, at++) {
			const uint8_t *e = &said[edge[at] * 2];
			between w = judge_pair(a, b_spot, e[0], e[1]);
			f[at] = (uint8_t)w.far;
			b[at] = (uint8_t)w.busy;
			fars |= 1u << w.far;
			loads |= 1u << w.busy;
		}
	}
	if (fars & (fars - 1)) *far = f;
	if (loads & (loads - 1)) *busy = b;
	return 1;
}

#endif
