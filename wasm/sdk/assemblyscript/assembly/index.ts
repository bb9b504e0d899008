/**
 * What a kvferry/1 policy in AssemblyScript needs: access to the records of a
 * question, an answer that grows inside the host's buffer, and reasons.
 *
 * A policy exports its hooks and the arena, and nothing else:
 *
 *   import { Answer, Hook, Line, Status, open, RemapIn, RemapOut } from "kvferry";
 *   export { kvferry_arena } from "kvferry";
 *
 *   export function kvferry_remap(at: usize, length: u32, out: usize, cap: u32): u64 {
 *     const q = open<RemapIn>(at, length, Hook.REMAP);
 *     if (!q) return status(Status.BAD_INPUT, 0);
 *     const a = new Answer(out, cap, Hook.REMAP, offsetof<RemapOut>());
 *     ...
 *     return a.end(Status.OK);
 *   }
 *
 * and is built with
 *
 *   asc policy.ts -O3 --runtime kvferry/assembly/runtime --use abort= -o policy.wasm
 *
 * The runtime keeps what it knows in memory, not in globals: the host puts memory
 * back after a call, and throws away an instance whose globals changed. For the same
 * reason a policy has no "let" outside functions.
 */
export * from "./abi_gen";
export * from "./answer";
export * from "./input";
export { take } from "./memory";

import { take } from "./memory";

/** The host asks once an instance for room for questions and answers. */
export function kvferry_arena(size: u32): usize {
  return take(size);
}
