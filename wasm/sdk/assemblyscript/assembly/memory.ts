// Where free memory begins; 0 before the first call of take.
const TOP: usize = memory.data(8, 8);

/**
 * n bytes, 8-aligned, that are zero; the guest stops when memory is out. Nothing
 * needs to be given back: the host restores the memory after a call.
 */
export function take(n: u32): usize {
  let at: u64 = load<u32>(TOP);
  if (at == 0) at = (__heap_base + 15) & ~15;
  const end = (at + n + 7) & ~7, have = (<u64>memory.size()) << 16;
  if (end > have) {
    const pages = (end - have + 0xffff) >> 16;
    if (pages > 65536 || memory.grow(<i32>pages) < 0) unreachable();
  }
  store<u32>(TOP, <u32>end);
  return <usize>at;
}
