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
	return KVF_REFUSE(out, out_cap, SELECT_LAYOUT, select_layout_out, KVF_STATUS_DECLINED, &line);
}
