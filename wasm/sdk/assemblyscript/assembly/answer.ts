import { Header, MAGIC, MAJOR, MINOR, Status } from "./abi_gen";
import { status } from "./input";
import { take } from "./memory";

/**
 * An answer that grows at its end. It goes on counting where the buffer is full, so
 * that the host can be told what would have been enough.
 */
@unmanaged
export class Answer {
  cap: u32;
  need: u64 = 0;

  constructor(
    /** Where the answer begins: offsets in it count from here. */
    public at: usize,
    cap: u32,
    private hook: u32,
    private record: u32,
  ) {
    this.cap = cap & ~7;
    this.restart();
  }

  /** Begins anew, for a refusal that holds nothing but its reason. */
  restart(): void {
    this.need = 0;
    const h = changetype<Header>(this.grow(this.record));
    if (!h) return;
    h.magic = MAGIC;
    h.version = (MAJOR << 16) | MINOR;
    h.hook = this.hook;
    h.record = this.record;
  }

  /** Where the next record or text begins, counted from the answer's start. */
  here(): u32 {
    return <u32>((this.need + 7) & ~7);
  }

  /** The address of n more zero bytes of the answer, 8-aligned; 0 where there is no room. */
  grow(n: u32): usize {
    const from = (this.need + 7) & ~7;
    this.need = from + n;
    const to = (this.need + 7) & ~7;
    if (to > this.cap) return 0;
    memory.fill(this.at + <usize>from, 0, <usize>(to - from));
    return this.at + <usize>from;
  }

  /** What the hook returns. */
  end(s: u32): u64 {
    this.need = (this.need + 7) & ~7;
    if (this.need > this.cap) return status(Status.AGAIN, <u32>min(this.need, <u64>u32.MAX_VALUE));
    changetype<Header>(this.at).size = <u32>this.need;
    return status(s, <u32>this.need);
  }

  /** Puts a line into the answer and returns where, 0 where there is no room. */
  text(line: Line): u32 {
    const at = this.grow(line.length);
    if (!at) return 0;
    memory.copy(at, line.at, line.length);
    return <u32>(at - this.at);
  }
}

const MOST: u32 = 256;

/** A text that is put together piece by piece: at most 256 bytes, whole runes only. */
@unmanaged
export class Line {
  at: usize = take(MOST);
  length: u32 = 0;

  /** Adds what fits. */
  say(s: string): Line {
    const n = <u32>String.UTF8.byteLength(s), at = take(n);
    String.UTF8.encodeUnsafe(changetype<usize>(s), s.length, at);
    return this.saySome(at, n, MOST);
  }

  /** Adds what fits of n bytes at an address, at most room. */
  saySome(at: usize, n: u32, room: u32): Line {
    room = min(room, MOST - this.length);
    if (n > room) {
      n = room;
      while (n && (load<u8>(at + n) & 0xc0) == 0x80) n--;
    }
    memory.copy(this.at + this.length, at, n);
    this.length += n;
    return this;
  }

  /** Adds a number. */
  sayNumber(v: u64): Line {
    const d = take(20);
    let n: u32 = 20;
    do {
      store<u8>(d + --n, <u8>(48 + (v % 10)));
      v /= 10;
    } while (v);
    return this.saySome(d + n, 20 - n, MOST);
  }
}
