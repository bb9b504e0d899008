/* seedbug is the refactor that kvferry was born from: its select_layout asks a
 * base that knows no connector, gets no preference, and says so. What must follow
 * is an error that names the engine and what each side can do, never a layout. */
#include "../heads/remap.h"

KVF_HOOK(kvferry_remap) { return match_heads(in, in_len, out, out_cap); }

KVF_HOOK(kvferry_select_layout) {
	const kvf_select_layout_in *q = kvf_input(in, in_len, KVF_HOOK_SELECT_LAYOUT, sizeof *q);
	if (!q) return kvf_status(KVF_STATUS_BAD_INPUT, 0);
	kvf_line line = {{0}, 0};
	KVF_SAY(&line, "connectors do not specify a kv cache layout");
	kvf_answer a = kvf_begin(out, out_cap, KVF_HOOK_SELECT_LAYOUT, sizeof(kvf_select_layout_out));
	kvf_text reason = {0, 0};
	kvf_put_text(&a, &reason, &line);
	uint64_t result = kvf_end(&a, KVF_STATUS_DECLINED);
	if (result >> 32 == KVF_STATUS_AGAIN) return result;
	((kvf_select_layout_out *)out)->reason = reason;
	return result;
}
