/* What a kvferry/1 policy in C needs: access to the records of a message,
 * an answer that grows inside the host's output buffer, and reasons. Freestanding,
 * header only. See wasm/abi/schema for the records.
 *
 * A policy defines KVF_HOOK functions and nothing else:
 *
 *   #include "kvferry.h"
 *   KVF_HOOK(kvferry_remap) {
 *       const kvf_remap_in *q = kvf_input(in, in_len, KVF_HOOK_REMAP, sizeof *q);
 *       if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
 *       kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_REMAP, sizeof(kvf_remap_out));
 *       ...
 *       return kvf_end(&a, KVF_STATUS_OK);
 *   }
 *
 * Build: clang --target=wasm32-unknown-unknown -O2 -nostdlib
 *        -Wl,--no-entry -Wl,--strip-all -I wasm/sdk/c -o policy.wasm policy.c
 *        go run ./wasm/module/seal policy.wasm manifest.json
 *
 * The second step adds the manifest and the marker of the ABI, the global
 * kvferry_abi_v1, which C has no way to export.
 */
#ifndef KVFERRY_H
#define KVFERRY_H

#include "kvferry_abi_gen.h"

/* Words that may be parts of any record. */
typedef uint32_t __attribute__((may_alias)) kvf_word;
typedef uint64_t __attribute__((may_alias)) kvf_wide;

#define KVF_EXPORT(name) __attribute__((export_name(name), used))
#define KVF_HOOK(name) KVF_EXPORT(#name) uint64_t name(uint32_t in, uint32_t in_len, uint32_t out, uint32_t out_cap)

extern unsigned char __heap_base;
static uint32_t kvf_heap;

/* kvf_take returns n bytes, 8-aligned, that are zero in a fresh instance; 0 when
 * memory is out. Nothing needs to be given back: the host restores the memory after
 * a call. */
static uint32_t kvf_take(uint32_t n) {
	if (!kvf_heap) kvf_heap = ((uint32_t)&__heap_base + 7) & ~7u;
	uint64_t end = (uint64_t)kvf_heap + (((uint64_t)n + 7) & ~7ull);
	uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * 65536;
	if (end > have) {
		uint64_t pages = (end - have + 65535) / 65536;
		if (pages > 65536 || __builtin_wasm_memory_grow(0, (uint32_t)pages) == (uint32_t)-1) return 0;
	}
	uint32_t at = kvf_heap;
	kvf_heap = (uint32_t)end;
	return at;
}

/* kvf_release gives back all that was taken since kvf_mark. What is taken again
 * is not zero. */
static inline uint32_t kvf_mark(void) { return kvf_heap; }
static inline void kvf_release(uint32_t mark) { kvf_heap = mark; }

/* The host asks once an instance for room for input and output. */
KVF_EXPORT("kvferry_arena") uint32_t kvferry_arena(uint32_t size) { return kvf_take(size); }

static inline uint64_t kvf_status(uint32_t status, uint32_t low) { return (uint64_t)status << 32 | low; }

typedef struct { uint32_t magic, version, hook, record, size, header_reserved; } kvf_header;

/* kvf_input returns the message's own record, or 0 where it is not one of this
 * hook, or one of an older host that lacks fields: say which minor the policy
 * needs in its manifest (abi.min), or read with kvf_read and KVF_READ. */
static inline const void *kvf_input(uint32_t in, uint32_t len, uint32_t hook, uint32_t record) {
	const kvf_header *h = (const kvf_header *)in;
	if (len < sizeof *h || h->magic != KVF_MAGIC || h->version >> 16 != KVF_MAJOR || h->hook != hook || h->size != len || h->record < record) return 0;
	return h;
}

/* KVF_AT is record i of a list of the message at base. Where an older host may
 * have written it, shorter, KVF_READ is the way. */
#define KVF_AT(type, base, list, i) ((const type *)((uint32_t)(base) + (list).at + (uint32_t)(i) * (list).step))

/* kvf_copy copies a record of "have" bytes over one of "size": what the writer did
 * not know becomes zero, what the reader does not know stays behind. */
static inline void kvf_copy(void *to, uint32_t size, uint32_t from, uint32_t have) {
	for (uint32_t i = 0; i < size; i += 4) *(kvf_word *)((uint32_t)to + i) = i + 4 <= have ? *(const kvf_word *)(from + i) : 0;
}

/* KVF_READ copies record i of a list into the variable "to", whatever minor it was
 * written in. */
#define KVF_READ(to, base, list, i) kvf_copy(&(to), sizeof(to), (uint32_t)(base) + (list).at + (uint32_t)(i) * (list).step, (list).step)

/* kvf_read copies the message's own record, of "size" bytes in this minor, whatever
 * minor it was written in. It returns what lists and texts count from, or 0
 * where this is no message of the hook. */
static inline const void *kvf_read(void *to, uint32_t size, uint32_t in, uint32_t len, uint32_t hook) {
	const kvf_header *h = kvf_input(in, len, hook, sizeof *h);
	if (h) kvf_copy(to, size, in, h->record);
	return h;
}

static inline const char *kvf_chars(const void *base, kvf_text t) { return (const char *)((uint32_t)base + t.at); }

/* An answer grows at its end; need counts on when the buffer is full, so that
 * the host can be told what would have been enough. */
typedef struct { uint32_t at, cap; uint64_t need; } kvf_answer;

/* kvf_grow returns n more zero bytes of the answer, 8-aligned, or 0. */
static inline uint32_t kvf_grow(kvf_answer *a, uint32_t n) {
	uint64_t from = (a->need + 7) & ~7ull;
	a->need = from + n;
	if (a->need > a->cap) return 0;
	kvf_wide *p = (kvf_wide *)(a->at + (uint32_t)from);
	for (uint32_t i = 0; i < (n + 7) / 8; i++) p[i] = 0;
	return (uint32_t)p;
}

static inline kvf_answer kvf_begin(uint32_t out, uint32_t cap, uint32_t hook, uint32_t record) {
	kvf_answer a = {out, cap & ~7u, 0};
	kvf_header *h = (kvf_header *)kvf_grow(&a, record);
	if (h) {
		h->magic = KVF_MAGIC;
		h->version = KVF_MAJOR << 16 | KVF_MINOR;
		h->hook = hook;
		h->record = record;
	}
	return a;
}

static inline uint64_t kvf_end(kvf_answer *a, uint32_t status) {
	a->need = (a->need + 7) & ~7ull;
	if (a->need > a->cap) return kvf_status(KVF_STATUS_AGAIN, a->need > 0xffffffffu ? 0xffffffffu : (uint32_t)a->need);
	((kvf_header *)a->at)->size = (uint32_t)a->need;
	return kvf_status(status, (uint32_t)a->need);
}

/* Text that is put together piece by piece, at most 256 bytes. */
typedef struct { char c[256]; uint32_t n; } kvf_line;

/* kvf_say_some adds at most room bytes of a text, whole runes only. */
static inline void kvf_say_some(kvf_line *l, const char *s, uint32_t n, uint32_t room) {
	if (room > sizeof l->c - l->n) room = sizeof l->c - l->n;
	if (n > room)
		for (n = room; n && ((unsigned char)s[n] & 0xc0) == 0x80;) n--;
	for (uint32_t i = 0; i < n; i++) l->c[l->n++] = s[i];
}

static inline void kvf_say(kvf_line *l, const char *s, uint32_t n) { kvf_say_some(l, s, n, sizeof l->c); }
#define KVF_SAY(line, literal) kvf_say(line, literal, sizeof literal - 1)

static inline void kvf_say_number(kvf_line *l, uint64_t v) {
	char d[20];
	uint32_t n = 0;
	do d[n++] = (char)('0' + v % 10); while (v /= 10);
	while (n) kvf_say(l, &d[--n], 1);
}

/* kvf_put_text stores a line in the answer and points t (in the answer) at it. */
static inline void kvf_put_text(kvf_answer *a, kvf_text *t, const kvf_line *l) {
	uint32_t p = kvf_grow(a, l->n);
	if (!p) return;
	for (uint32_t i = 0; i < l->n; i++) ((char *)p)[i] = l->c[i];
	t->at = p - a->at;
	t->length = l->n;
}

/* KVF_REFUSE says no with a reason: what the hook returns. "hook" is the end of a
 * KVF_HOOK_ name, "message" that of the answer's. */
#define KVF_REFUSE(out, out_cap, hook, message, status, line) \
	kvf_refuse(out, out_cap, KVF_HOOK_##hook, sizeof(kvf_##message), __builtin_offsetof(kvf_##message, reason), status, line)

static inline uint64_t kvf_refuse(uint32_t out, uint32_t out_cap, uint32_t hook, uint32_t record, uint32_t reason_at, uint32_t status, const kvf_line *line) {
	kvf_answer a = kvf_begin(out, out_cap, hook, record);
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, line);
	uint64_t result = kvf_end(&a, status);
	if (result >> 32 != KVF_STATUS_AGAIN) *(kvf_text *)(out + reason_at) = reason;
	return result;
}

#endif
