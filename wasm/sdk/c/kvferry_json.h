/* Reads the operator's configuration: JSON where it lies, with nothing taken and
 * nothing copied. Freestanding, header only, and of use without kvferry.h.
 *
 *   kvf_json c = kvf_json_open(text, length);
 *   if (!c.kind) ...;                                   // no JSON, or too deep; c.at is where
 *   kvf_json name = kvf_json_get(&c, "name");           // kind 0 where there is none
 *   kvf_json key, value;
 *   for (kvf_json_walk w = kvf_json_items(&c); kvf_json_next(&w, &key, &value);) ...
 *
 * kvf_json_open checks the text to its end; what is read from it afterwards is
 * there. Texts are UTF-8, nested KVF_JSON_DEPTH deep at most. Where a name
 * stands twice in an object, kvf_json_get finds the first. */
#ifndef KVFERRY_JSON_H
#define KVFERRY_JSON_H

#include <stdint.h>

#define KVF_JSON_DEPTH 64

enum kvf_json_kind {
	KVF_JSON_NONE = 0, /* nothing is there */
	KVF_JSON_NULL,
	KVF_JSON_FALSE,
	KVF_JSON_TRUE,
	KVF_JSON_NUMBER,
	KVF_JSON_TEXT,
	KVF_JSON_ARRAY,
	KVF_JSON_OBJECT,
};

/* A value: its text, from its first character to its last. */
typedef struct {
	const char *at;
	uint32_t length;
	uint32_t kind; /* enum kvf_json_kind */
} kvf_json;

/* Where a walk through an array or an object is. */
typedef struct {
	const char *at, *end;
	int object;
} kvf_json_walk;

static inline const char *kvf_json_blanks_(const char *p, const char *end) {
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
	return p;
}

static inline int kvf_json_digit_(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

static inline int32_t kvf_json_hex_(char c) {
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'a' && c <= 'f') return c - 'a' + 10;
	if (c >= 'A' && c <= 'F') return c - 'A' + 10;
	return -1;
}

/* kvf_json_hex4_ is the number of four hex digits, -1 where they are none. */
static inline int32_t kvf_json_hex4_(const char *p, const char *end) {
	int32_t v = 0;
	if (end - p < 4) return -1;
	for (int i = 0; i < 4; i++) {
		int32_t d = kvf_json_hex_(p[i]);
		if (d < 0) return -1;
		v = v << 4 | d;
	}
	return v;
}

/* kvf_json_rune_ is the length of the UTF-8 sequence at p, 0 where it is none:
 * too long for what it says, a surrogate, beyond U+10FFFF, or cut. */
static inline uint32_t kvf_json_rune_(const char *p, const char *end) {
	unsigned char c = (unsigned char)*p;
	uint32_t n, v, least;
	if (c < 0x80) return 1;
	if (c >= 0xc2 && c < 0xe0) n = 2, v = c & 0x1f, least = 0x80;
	else if (c >= 0xe0 && c < 0xf0) n = 3, v = c & 0x0f, least = 0x800;
	else if (c >= 0xf0 && c < 0xf5) n = 4, v = c & 0x07, least = 0x10000;
	else return 0;
	if ((uint32_t)(end - p) < n) return 0;
	for (uint32_t i = 1; i < n; i++) {
		c = (unsigned char)p[i];
		if ((c & 0xc0) != 0x80) return 0;
		v = v << 6 | (c & 0x3f);
	}
	return v < least || v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? 0 : n;
}

/* kvf_json_scalar_ is where the text, number or word at p ends, 0 where there is
 * none; *wrong is where it goes wrong. */
static inline const char *kvf_json_scalar_(const char *p, const char *end, uint32_t *kind, const char **wrong) {
	*wrong = p;
	if (p >= end) return 0;
	if (*p == '"') {
		*kind = KVF_JSON_TEXT;
		for (p++; p < end && *p != '"';) {
			if (*p >= 0x20 && *p < 0x7f && *p != '\\') { /* most are so */
				p++;
				continue;
			}
			*wrong = p;
			if ((unsigned char)*p < 0x20) return 0;
			if (*p != '\\') {
				uint32_t n = kvf_json_rune_(p, end);
				if (!n) return 0;
				p += n;
				continue;
			}
			if (++p >= end) return 0;
			switch (*p) {
			case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
				p++;
				break;
			case 'u':
				if (kvf_json_hex4_(p + 1, end) < 0) return 0;
				p += 5;
				break;
			default:
				return 0;
			}
		}
		*wrong = p;
		return p < end ? p + 1 : 0;
	}
	if (*p == '-' || kvf_json_digit_(p, end)) {
		*kind = KVF_JSON_NUMBER;
		if (*p == '-') p++;
		*wrong = p;
		if (!kvf_json_digit_(p, end)) return 0;
		if (*p == '0') p++;
		else while (kvf_json_digit_(p, end)) p++;
		if (p < end && *p == '.') {
			*wrong = ++p;
			if (!kvf_json_digit_(p, end)) return 0;
			while (kvf_json_digit_(p, end)) p++;
		}
		if (p < end && (*p == 'e' || *p == 'E')) {
			p++;
			if (p < end && (*p == '+' || *p == '-')) p++;
			*wrong = p;
			if (!kvf_json_digit_(p, end)) return 0;
			while (kvf_json_digit_(p, end)) p++;
		}
		return p;
	}
	static const struct {
		char word[6];
		uint32_t length, kind;
	} words[3] = {{"null", 4, KVF_JSON_NULL}, {"false", 5, KVF_JSON_FALSE}, {"true", 4, KVF_JSON_TRUE}};
	for (int i = 0; i < 3; i++) {
		uint32_t n = 0;
		while (n < words[i].length && p + n < end && p[n] == words[i].word[n]) n++;
		if (n == words[i].length) {
			*kind = words[i].kind;
			return p + n;
		}
	}
	return 0;
}

/* kvf_json_value_ is where the value at p ends, 0 where it is none or nested too
 * deep; *wrong is where it goes wrong. It needs no stack: whether a level is an
 * object is a bit. */
static inline const char *kvf_json_value_(const char *p, const char *end, uint32_t *kind, const char **wrong) {
	uint64_t objects = 0; /* bit 0: the innermost level */
	uint32_t depth = 0, inner;
	*kind = p < end && *p == '{' ? KVF_JSON_OBJECT : p < end && *p == '[' ? KVF_JSON_ARRAY : KVF_JSON_NONE;
	for (int first = 1;;) {
		/* At a value, or at the end of a level that has nothing in it. */
		p = kvf_json_blanks_(p, end);
		*wrong = p;
		if (p >= end) return 0;
		int closes = depth && first && *p == (objects & 1 ? '}' : ']');
		if (!closes) {
			if (depth && objects & 1) {
				if (*p != '"' || !(p = kvf_json_scalar_(p, end, &inner, wrong))) return 0;
				p = kvf_json_blanks_(p, end);
				*wrong = p;
				if (p >= end || *p != ':') return 0;
				p = kvf_json_blanks_(p + 1, end);
				*wrong = p;
				if (p >= end) return 0;
			}
			if (*p == '{' || *p == '[') {
				if (depth == KVF_JSON_DEPTH) return 0;
				objects = objects << 1 | (*p == '{');
				depth++;
				p++;
				first = 1;
				continue;
			}
			p = kvf_json_scalar_(p, end, &inner, wrong);
			if (!p) return 0;
			if (!depth) {
				*kind = inner;
				return p;
			}
		}
		/* After a value: levels end until one goes on. */
		for (;;) {
			p = kvf_json_blanks_(p, end);
			*wrong = p;
			if (p >= end) return 0;
			if (*p == ',') break;
			if (*p != (objects & 1 ? '}' : ']')) return 0;
			p++;
			objects >>= 1;
			if (!--depth) return p;
		}
		p++;
		first = 0;
	}
}

/* kvf_json_past_ is where a value ends that was checked before. */
static inline const char *kvf_json_past_(const char *p, const char *end, uint32_t *kind) {
	uint32_t depth = 0;
	*kind = *p == '"' ? KVF_JSON_TEXT : *p == '{' ? KVF_JSON_OBJECT : *p == '[' ? KVF_JSON_ARRAY : *p == 't' ? KVF_JSON_TRUE : *p == 'f' ? KVF_JSON_FALSE : *p == 'n' ? KVF_JSON_NULL : KVF_JSON_NUMBER;
	if (*kind < KVF_JSON_TEXT) {
		while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ' ' && *p != '\n' && *p != '\r' && *p != '\t') p++;
		return p;
	}
	for (; p < end; p++) {
		if (*p == '"') {
			for (p++; p < end && *p != '"'; p++)
				if (*p == '\\') p++;
		} else if (*p == '{' || *p == '[') {
			depth++;
			continue;
		} else if (*p == '}' || *p == ']') {
			depth--;
		} else {
			continue;
		}
		if (!depth) return p < end ? p + 1 : end;
	}
	return end;
}

/* kvf_json_open is the one value of a text. Its kind is KVF_JSON_NONE where the
 * text is no JSON, is no UTF-8, or is nested too deep; "at" is where it goes
 * wrong then, and length what follows. */
static inline kvf_json kvf_json_open(const char *text, uint32_t length) {
	const char *end = text + length, *from = kvf_json_blanks_(text, end), *wrong;
	kvf_json v = {from, 0, KVF_JSON_NONE};
	const char *to = kvf_json_value_(from, end, &v.kind, &wrong);
	if (to) {
		wrong = kvf_json_blanks_(to, end);
		if (wrong == end) {
			v.length = (uint32_t)(to - from);
			return v;
		}
	}
	return (kvf_json){wrong, (uint32_t)(end - wrong), KVF_JSON_NONE};
}

/* kvf_json_items begins a walk: through an object's members, an array's
 * elements, or nothing where v is neither. */
static inline kvf_json_walk kvf_json_items(const kvf_json *v) {
	kvf_json_walk w = {v->at, v->at, v->kind == KVF_JSON_OBJECT};
	if (w.object || v->kind == KVF_JSON_ARRAY) {
		w.at++;
		w.end = v->at + v->length - 1;
	}
	return w;
}

/* kvf_json_next moves on; 0 at the end. key is a text in an object, and of kind
 * KVF_JSON_NONE in an array. */
static inline int kvf_json_next(kvf_json_walk *w, kvf_json *key, kvf_json *value) {
	const char *p = kvf_json_blanks_(w->at, w->end);
	*key = (kvf_json){p, 0, KVF_JSON_NONE};
	if (p >= w->end) return 0;
	if (w->object) {
		const char *to = kvf_json_past_(p, w->end, &key->kind);
		key->length = (uint32_t)(to - p);
		p = kvf_json_blanks_(kvf_json_blanks_(to, w->end) + 1, w->end); /* over the colon */
	}
	*value = (kvf_json){p, 0, KVF_JSON_NONE};
	const char *to = kvf_json_past_(p, w->end, &value->kind);
	value->length = (uint32_t)(to - p);
	p = kvf_json_blanks_(to, w->end);
	w->at = p < w->end ? p + 1 : p; /* over the comma */
	return 1;
}

/* kvf_json_unit_ is the next character of a text that lies in [*p, end), moved
 * over; the half of a pair that stands alone is U+FFFD. */
static inline uint32_t kvf_json_unit_(const char **p, const char *end) {
	const char *c = *p;
	if (*c != '\\') {
		uint32_t n = kvf_json_rune_(c, end), v = (unsigned char)*c;
		if (n > 1) v &= 0xffu >> (n + 1);
		for (uint32_t i = 1; i < n; i++) v = v << 6 | ((unsigned char)c[i] & 0x3f);
		*p = c + (n ? n : 1);
		return v;
	}
	*p = c + 2;
	switch (c[1]) {
	case 'b': return '\b';
	case 'f': return '\f';
	case 'n': return '\n';
	case 'r': return '\r';
	case 't': return '\t';
	case 'u': break;
	default: return (unsigned char)c[1];
	}
	uint32_t v = (uint32_t)kvf_json_hex4_(c + 2, end);
	*p = c + 6;
	if (v < 0xd800 || v >= 0xe000) return v;
	if (v < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
		int32_t low = kvf_json_hex4_(*p + 2, end);
		if (low >= 0xdc00 && low < 0xe000) {
			*p += 6;
			return 0x10000 + ((v - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
		}
	}
	return 0xfffd;
}

/* kvf_json_text writes a text, without its escapes, as UTF-8: of it as much as
 * "room" takes, whole characters only. It returns the length of all of it; 0
 * where v is no text. */
static inline uint32_t kvf_json_text(const kvf_json *v, char *to, uint32_t room) {
	if (v->kind != KVF_JSON_TEXT) return 0;
	const char *p = v->at + 1, *end = v->at + v->length - 1;
	uint32_t n = 0;
	while (p < end) {
		uint32_t c = kvf_json_unit_(&p, end), size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		if (n <= room && size <= room - n) {
			if (size == 1) {
				to[n] = (char)c;
			} else {
				for (uint32_t i = size; i-- > 1; c >>= 6) to[n + i] = (char)(0x80 | (c & 0x3f));
				to[n] = (char)((0xf00u >> size & 0xff) | c);
			}
		} else {
			room = 0; /* nothing shorter may follow what did not fit */
		}
		n += size;
	}
	return n;
}

/* kvf_json_equal reports whether a text is these characters. */
static inline int kvf_json_equal(const kvf_json *v, const char *s, uint32_t length) {
	if (v->kind != KVF_JSON_TEXT) return 0;
	const char *p = v->at + 1, *end = v->at + v->length - 1, *q = s, *stop = s + length;
	while (p < end && q < stop) {
		char c[4];
		if (*p != '\\') {
			if (*p++ != *q++) return 0;
			continue;
		}
		const char *from = p;
		(void)kvf_json_unit_(&p, end);
		kvf_json one = {from - 1, (uint32_t)(p - from) + 2, KVF_JSON_TEXT};
		uint32_t n = kvf_json_text(&one, c, sizeof c);
		if ((uint32_t)(stop - q) < n) return 0;
		for (uint32_t i = 0; i < n; i++)
			if (c[i] != *q++) return 0;
	}
	return p == end && q == stop;
}

/* KVF_JSON_IS reports whether a text is a literal. */
#define KVF_JSON_IS(v, literal) kvf_json_equal(v, literal, sizeof literal - 1)

/* kvf_json_find is the member of an object with this name; of kind
 * KVF_JSON_NONE where there is none, or v is no object. */
static inline kvf_json kvf_json_find(const kvf_json *v, const char *name, uint32_t length) {
	kvf_json key, value;
	if (v->kind == KVF_JSON_OBJECT)
		for (kvf_json_walk w = kvf_json_items(v); kvf_json_next(&w, &key, &value);)
			if (kvf_json_equal(&key, name, length)) return value;
	return (kvf_json){v->at, 0, KVF_JSON_NONE};
}

#define kvf_json_get(v, literal) kvf_json_find(v, literal, sizeof literal - 1)

/* kvf_json_integer is a whole number without fraction and exponent; 0 where v is
 * none, or does not fit. */
static inline int kvf_json_integer(const kvf_json *v, int64_t *to) {
	if (v->kind != KVF_JSON_NUMBER) return 0;
	const char *p = v->at, *end = v->at + v->length;
	int minus = *p == '-';
	uint64_t n = 0, most = minus ? (uint64_t)1 << 63 : ((uint64_t)1 << 63) - 1;
	for (p += minus; p < end; p++) {
		if (*p < '0' || *p > '9') return 0;
		uint64_t d = (uint64_t)(*p - '0');
		if (n > (most - d) / 10) return 0;
		n = n * 10 + d;
	}
	*to = (int64_t)(minus ? 0 - n : n);
	return 1;
}

#endif
