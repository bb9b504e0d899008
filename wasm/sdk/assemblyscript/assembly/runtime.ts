// The runtime of policies: objects come from take and are never given back.
// AssemblyScript keeps an object's class and size in the two words before it.
import { take } from "./memory";

const HEAD: usize = 24; // room before an object, so that it lies 8-aligned

// @ts-ignore: decorator
@global @unsafe
function __alloc(size: usize): usize {
  return take(<u32>size);
}

// @ts-ignore: decorator
@global @unsafe
function __realloc(at: usize, size: usize): usize {
  const to = take(<u32>size);
  memory.copy(to, at, size);
  return to;
}

// @ts-ignore: decorator
@global @unsafe
function __free(_at: usize): void {}

// @ts-ignore: decorator
@global @unsafe
function __new(size: usize, id: u32): usize {
  const at = take(<u32>(HEAD + size)) + HEAD;
  store<u32>(at - 8, id);
  store<u32>(at - 4, <u32>size);
  return at;
}

// @ts-ignore: decorator
@global @unsafe
function __renew(at: usize, size: usize): usize {
  const had: usize = load<u32>(at - 4);
  const to = __new(size, load<u32>(at - 8));
  memory.copy(to, at, min(had, size));
  return to;
}

// @ts-ignore: decorator
@global @unsafe
function __link(_parent: usize, _child: usize, _several: bool): void {}

// @ts-ignore: decorator
@global @unsafe
function __pin(at: usize): usize {
  return at;
}

// @ts-ignore: decorator
@global @unsafe
function __unpin(_at: usize): void {}

// @ts-ignore: decorator
@global @unsafe
function __visit(_at: usize, _cookie: u32): void {}

// @ts-ignore: decorator
@global @unsafe
function __collect(): void {}
