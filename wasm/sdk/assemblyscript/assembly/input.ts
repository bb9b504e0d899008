import { Header, MAGIC, MAJOR, checkRecords } from "./abi_gen";
import { take } from "./memory";

/**
 * The message at an address where it is one of the hook, else null. Fields that an
 * older host left out must not be read: say which minor the policy needs in its
 * manifest (abi.min), or use read.
 */
export function open<T>(at: usize, length: u32, hook: u32): T | null {
  const h = header(at, length, hook);
  if (!h || h.record < offsetof<T>()) return null;
  return changetype<T>(at);
}

/** A copy of the message's own record, whatever minor it was written in; else null. */
export function read<T>(at: usize, length: u32, hook: u32): T | null {
  const h = header(at, length, hook);
  return h ? whole<T>(at, h.record) : null;
}

function header(at: usize, length: u32, hook: u32): Header | null {
  checkRecords();
  const h = changetype<Header>(at);
  if (length < offsetof<Header>() || h.magic != MAGIC || h.version >> 16 != MAJOR || h.hook != hook || h.size != length || h.record > length) return null;
  return h;
}

/**
 * A copy of a record of a list, whatever minor it was written in, given the list's
 * step: what the writer did not know is zero.
 */
export function whole<T>(at: usize, step: u32): T {
  const to = take(offsetof<T>());
  memory.copy(to, at, min(<usize>step, offsetof<T>()));
  return changetype<T>(to);
}

/** What a hook returns. */
// @ts-ignore: decorator
@inline
export function status(status: u32, low: u32): u64 {
  return ((<u64>status) << 32) | low;
}

// @ts-ignore: decorator
@external("kvferry_v1", "log")
declare function hostLog(level: u32, at: usize, length: u32): void;

/** Writes a line for the operator; the host cuts it and drops what is too much. */
export function log(level: u32, text: string): void {
  const n = <u32>String.UTF8.byteLength(text), at = take(n);
  String.UTF8.encodeUnsafe(changetype<usize>(text), text.length, at);
  hostLog(level, at, n);
}
