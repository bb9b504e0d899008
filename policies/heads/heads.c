/* heads, the built-in policy: match heads (remap.h), and keep the cache in the
 * layout that takes the fewest pieces to move, among those that the engine's
 * attention can do (select.h). */
#include "remap.h"
#include "select.h"

KVF_HOOK(kvferry_remap) { return match_heads(in, in_len, out, out_cap); }

KVF_HOOK(kvferry_select_layout) { return select_cheapest(in, in_len, out, out_cap); }
