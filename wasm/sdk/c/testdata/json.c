/* Writes what kvferry_json.h reads in a text, so that it can be compared with
 * another reader: first where the text goes wrong, or each value on a line, a
 * member's name before it. Natively it reads texts from the standard input, each
 * after its length in four bytes; as a guest it is called with one. */
#include "kvferry_json.h"

typedef struct {
	char *to;
	uint32_t n, room;
} sink;

static void put(sink *s, const char *c, uint32_t n) {
	for (uint32_t i = 0; i < n; i++) {
		if (s->n < s->room) s->to[s->n] = c[i];
		s->n++;
	}
}

/* A text goes out as hex, whatever is in it. */
static void put_text(sink *s, const kvf_json *v) {
	static char text[1 << 16], again[1 << 16];
	uint32_t n = kvf_json_text(v, text, sizeof text);
	if (n > sizeof text) n = sizeof text;
	for (uint32_t i = 0; i < n; i++) {
		const char *digits = "0123456789abcdef";
		char c[2] = {digits[(unsigned char)text[i] >> 4], digits[(unsigned char)text[i] & 15]};
		put(s, c, 2);
	}
	if (!kvf_json_equal(v, text, n) || (n && kvf_json_equal(v, text, n - 1))) put(s, "!equal", 6);
	/* With less room it is the same as far as whole characters go. */
	uint32_t half = n / 2;
	if (kvf_json_text(v, again, half) != n) put(s, "!length", 7);
	while (half && ((unsigned char)text[half] & 0xc0) == 0x80) half--;
	for (uint32_t i = 0; i < half; i++)
		if (again[i] != text[i]) put(s, "!cut", 4);
}

static void dump(sink *s, const kvf_json *v, uint32_t depth) {
	static const char kinds[] = "?nftdsao";
	put(s, &kinds[v->kind], 1);
	int64_t n;
	if (v->kind == KVF_JSON_NUMBER) {
		put(s, v->at, v->length);
		if (kvf_json_integer(v, &n)) {
			char c[20];
			uint32_t k = 0;
			uint64_t u = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
			do c[k++] = (char)('0' + u % 10); while (u /= 10);
			put(s, n < 0 ? "=-" : "=", n < 0 ? 2 : 1);
			while (k) put(s, &c[--k], 1);
		}
	}
	if (v->kind == KVF_JSON_TEXT) put_text(s, v);
	put(s, "\n", 1);
	kvf_json key, value;
	if (depth > KVF_JSON_DEPTH) return;
	for (kvf_json_walk w = kvf_json_items(v); kvf_json_next(&w, &key, &value);) {
		if (key.kind) put_text(s, &key);
		put(s, key.kind ? ":" : "-", 1);
		dump(s, &value, depth + 1);
	}
	if (v->kind == KVF_JSON_ARRAY || v->kind == KVF_JSON_OBJECT) put(s, ".\n", 2);
}

static uint32_t describe(const char *text, uint32_t length, char *to, uint32_t room) {
	sink s = {to, 0, room};
	kvf_json v = kvf_json_open(text, length);
	if (!v.kind) {
		put(&s, "x", 1);
		uint32_t at = (uint32_t)(v.at - text);
		char c[10];
		uint32_t k = 0;
		do c[k++] = (char)('0' + at % 10); while (at /= 10);
		while (k) put(&s, &c[--k], 1);
		if (v.length != length - (uint32_t)(v.at - text)) put(&s, "!rest", 5);
	} else {
		dump(&s, &v, 0);
	}
	return s.n;
}

#ifdef __wasm__
static char in[1 << 16], out[1 << 20];

__attribute__((export_name("in"))) char *where_in(void) { return in; }
__attribute__((export_name("out"))) char *where_out(void) { return out; }
__attribute__((export_name("describe"))) uint32_t describe_in(uint32_t length) { return length > sizeof in ? 0 : describe(in, length, out, sizeof out); }
#else
#include <stdio.h>
#include <stdlib.h>

int main(void) {
	static char out[1 << 20];
	unsigned char size[4];
	while (fread(size, 1, 4, stdin) == 4) {
		uint32_t n = size[0] | size[1] << 8 | size[2] << 16 | (uint32_t)size[3] << 24;
		char *in = malloc(n ? n : 1); /* just as large, so that what is read beyond it is found */
		if (!in || fread(in, 1, n, stdin) != n) return 1;
		uint32_t m = describe(in, n, out, sizeof out);
		if (m > sizeof out) m = sizeof out;
		unsigned char length[4] = {m & 255, m >> 8 & 255, m >> 16 & 255, m >> 24};
		fwrite(length, 1, 4, stdout);
		fwrite(out, 1, m, stdout);
		free(in);
	}
	return 0;
}
#endif
