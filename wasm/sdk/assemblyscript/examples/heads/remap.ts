import { Alternative, Answer, Assignment, Group, Hook, Line, Part, Rank, RemapIn, RemapOut, Side, Status, open, status, take } from "../../assembly";
import { MAX_ASSIGNMENTS, MAX_CLASSES, MAX_TABLE, MAX_WORK } from "./bounds";

const NONE: u32 = u32.MAX_VALUE;

// @ts-ignore: decorator
@inline
function bit(c: u32): u64 {
  return (<u64>1) << c;
}

// @ts-ignore: decorator
@inline
function lowest(set: u64): u32 {
  return <u32>ctz(set);
}

/** Words that are zero; room for more than this policy looks at is none. */
@unmanaged
class Words {
  static take(n: u64): Words | null {
    return n > MAX_TABLE ? null : changetype<Words>(take(<u32>n * 4));
  }
  // @ts-ignore: decorator
  @inline @operator("[]") get(i: u32): u32 {
    return load<u32>(changetype<usize>(this) + ((<usize>i) << 2));
  }
  // @ts-ignore: decorator
  @inline @operator("[]=") set(i: u32, v: u32): void {
    store<u32>(changetype<usize>(this) + ((<usize>i) << 2), v);
  }
}

/** Components of the group that are dealt alike. */
@unmanaged
class Class {
  components: u64;
  tied: u64; // the classes that scales tie to it, as a mask; itself at least
  weight: u64; // bits of one head of one layer, by token
  heads: u32; // of the model; 0: none
  // What is served at the moment:
  source: u32; // of the assignment that heads are still added to; 0: none
  to: u32;
  want: Part | null; // of the destination rank
  written: Assignment | null; // null where the answer is full
}

/**
 * What the source holds of one group, sorted out once a group, and the destination
 * rank that is served. A cell is the ranks of one stage and DCP rank.
 */
@unmanaged
class Holders {
  work: u64 = 0; // ranks, parts, ranges, replicas and costs looked at so far
  written: u32 = 0; // assignments
  group: u32 = 0;
  room: u32 = 0; // of classes
  classes: u32 = 0;
  stages: u32 = 0;
  dcp: u32 = 0;
  wants: u64 = 0; // the classes that the destination rank has, as a mask
  rank: u32 = 0; // the destination's
  cell: u32 = 0;
  layerFrom: u32 = 0;
  layerTo: u32 = 0;
  private class: usize = take(MAX_CLASSES * offsetof<Class>());
  private stage: Words = changetype<Words>(0); // [stage]: from and to of the range that its layers lie in, ascending
  private part: Words = changetype<Words>(0); // [rank][class]: the part's address, 0: none
  private first: Words = changetype<Words>(0); // [stage][dcp]: 1 + the cell's first rank, 0: none
  private next: Words = changetype<Words>(0); // [rank]: 1 + the next rank of its cell, 0: none
  private tokens: Part = changetype<Part>(0); // of the source

  constructor(
    private base: usize,
    private side: Side,
    private load: usize, // [rank]: bits served of a token, of all groups
    private answer: Answer,
  ) {}

  // @ts-ignore: decorator
  @inline private at(c: u32): Class {
    return changetype<Class>(this.class + c * offsetof<Class>());
  }

  loadOf(rank: u32): u64 {
    return load<u64>(this.load + ((<usize>rank) << 3));
  }

  /** Where the range of a part that holds a head ends, 0 where none does. */
  private endOf(p: Part, head: u32): u32 {
    const n = p.headsCount;
    for (let i: u32 = 0; i < n; i++) {
      const g = p.heads(this.base, i), to = g.to;
      if (g.from <= head && head < to) {
        this.work += i;
        return to;
      }
    }
    if (!n && !head) return 1; // components without heads have the one range [0, 1)
    this.work += max(n, <u32>1);
    return 0;
  }

  /** The first head from the given one on that a part holds. */
  private following(p: Part, head: u32): u32 {
    const n = p.headsCount;
    let least: u32 = n || head ? NONE : 0;
    for (let i: u32 = 0; i < n; i++) {
      const g = p.heads(this.base, i), from = max(g.from, head);
      if (from < g.to && from < least) least = from;
    }
    this.work += max(n, <u32>1);
    return least;
  }

  /** Where the range that a part's layers lie in begins. */
  private layersFrom(p: Part): u32 {
    let from: u32 = p.layersCount ? NONE : 0;
    for (let i: u32 = 0; i < p.layersCount; i++) from = min(from, p.layers(this.base, i).from);
    return from;
  }

  /** Where it ends. */
  private layersTo(p: Part): u32 {
    let to: u32 = 0;
    for (let i: u32 = 0; i < p.layersCount; i++) to = max(to, p.layers(this.base, i).to);
    return to;
  }

  /**
   * The class of just these components, added where it is new and there is room; the
   * number of classes where there is none.
   */
  private classOf(components: u64, add: bool): u32 {
    let c: u32 = 0;
    while (c < this.classes && this.at(c).components != components) c++;
    this.work += c;
    if (c == this.classes && add && c < MAX_CLASSES) {
      const n = this.at(c);
      n.components = components;
      n.tied = bit(c);
      n.weight = 1; // nobody serves for nothing
      n.heads = 0;
      this.classes++;
    }
    return c;
  }

  /** Finds out which classes scales tie together, and what a head weighs. */
  private tie(group: Group): void {
    for (let i: u32 = 0; i < group.componentsCount; i++) {
      const c = group.components(this.base, i);
      let tied: u64 = 0;
      for (let k: u32 = 0; k < this.classes; k++) {
        const own = this.at(k), holds = ((own.components >> i) & 1) == 1;
        if (holds) {
          own.heads = c.heads;
          own.weight += (<u64>c.dim * <u64>c.bits) / max(c.tokensPerEntry, <u32>1);
        }
        if (holds || (c.scales && c.scales <= 64 && ((own.components >> (c.scales - 1)) & 1) == 1)) tied |= own.tied;
      }
      for (let set = tied; set; set &= set - 1) this.at(lowest(set)).tied = tied;
    }
    this.work += <u64>group.componentsCount * 2 * this.classes;
  }

  /**
   * The stage with the layers of a part, added where it is new; NONE where the part
   * has none, or the ranks have more stages than they are.
   */
  private stageOf(p: Part): u32 {
    const from = this.layersFrom(p), to = this.layersTo(p), stage = this.stage;
    let s = this.stages;
    while (s > 0 && stage[2 * s - 2] > from) s--;
    this.work += p.layersCount + this.stages - s;
    if (s > 0 && stage[2 * s - 2] == from) return s - 1;
    if (from >= to || this.stages == this.side.ranksCount) return NONE;
    for (let k = 2 * this.stages; k > 2 * s; k--) stage[k + 1] = stage[k - 1];
    stage[2 * s] = from;
    stage[2 * s + 1] = to;
    this.stages++;
    return s;
  }

  // @ts-ignore: decorator
  @inline private held(rank: u32, c: u32): Part | null {
    return changetype<Part | null>(<usize>this.part[rank * this.room + c]);
  }

  /** Fills itself in; false where the group is too large for this policy. */
  private collect(group: Group): bool {
    const n = this.side.ranksCount;
    this.classes = this.stages = 0;
    const stage = Words.take(<u64>n * 2), part = Words.take(<u64>n * this.room), next = Words.take(n);
    if (!stage || !part || !next) return false;
    this.stage = stage;
    this.part = part;
    this.next = next;
    let any: Part | null = null;
    for (let i: u32 = 0; i < n && this.work <= MAX_WORK; i++) {
      const r = this.side.ranks(this.base, i);
      for (let k: u32 = 0; k < r.partsCount && this.work <= MAX_WORK; k++, this.work++) {
        const p = r.parts(this.base, k);
        if (p.group != this.group) continue;
        const c = this.classOf(p.components, this.classes < this.room);
        if (c == this.classes || this.stageOf(p) == NONE) continue;
        part[i * this.room + c] = <u32>changetype<usize>(p);
        any = p;
      }
    }
    if (!any) return true;
    this.tie(group);
    this.dcp = any.dcpSize;
    if (!this.dcp || this.dcp > MAX_TABLE || this.work > MAX_WORK) return false;
    const first = Words.take(<u64>this.stages * this.dcp);
    if (!first) return false;
    this.first = first;
    // Backwards, so that each chain ascends.
    for (let i = n; i > 0 && this.work <= MAX_WORK; i--) {
      let p: Part | null = null;
      for (let c: u32 = 0; c < this.classes && !p; c++, this.work++) p = this.held(i - 1, c);
      if (!p || p.dcpPhase >= this.dcp) continue;
      const cell = this.stageOf(p) * this.dcp + p.dcpPhase;
      next[i - 1] = first[cell];
      first[cell] = i;
    }
    return this.work <= MAX_WORK;
  }

  /**
   * Up to where a source rank holds a head, and those that follow it, in all classes
   * of a set; 0 where it does not.
   */
  private holds(rank: u32, set: u64, head: u32): u32 {
    let end = NONE;
    for (; set; set &= set - 1) {
      const p = this.held(rank, lowest(set));
      end = min(end, p ? this.endOf(p, head) : 0);
    }
    return end;
  }

  /**
   * Whether a source rank holds every head that the destination rank wants of a set of
   * classes.
   */
  private holdsAll(rank: u32, set: u64): bool {
    for (; set; set &= set - 1) {
      const c = lowest(set), want = this.at(c).want!;
      if (!want.headsCount && !this.holds(rank, bit(c), 0)) return false;
      for (let i: u32 = 0; i < want.headsCount; i++) {
        const g = want.heads(this.base, i);
        for (let head = g.from; head < g.to; ) {
          head = this.holds(rank, bit(c), head);
          if (!head) return false;
        }
      }
    }
    return true;
  }

  /**
   * The least loaded source rank of the cell that holds a head, or all that are wanted
   * where that is NONE, in all classes of a set; of those the first. 1 + its index,
   * 0 where there is none.
   */
  private pick(set: u64, head: u32): u32 {
    let best: u32 = 0;
    for (let i = this.first[this.cell]; i && this.work <= MAX_WORK; i = this.next[i - 1], this.work++) {
      if (best && this.loadOf(i - 1) >= this.loadOf(best - 1)) continue;
      if (head == NONE ? this.holdsAll(i - 1, set) : this.holds(i - 1, set, head) > 0) best = i;
    }
    return best;
  }

  /**
   * Says that heads of a class come from a source rank: in the assignment before where
   * that goes on.
   */
  private put(c: u32, s: u32, from: u32, to: u32): void {
    const k = this.at(c);
    if (k.source != s || k.to != from) {
      const w = changetype<Assignment | null>(this.answer.grow(offsetof<Assignment>()));
      this.written++;
      k.source = s;
      k.written = w;
      if (w) {
        w.components = k.components;
        w.group = this.group;
        w.destination = this.rank;
        w.source = this.side.ranks(this.base, s - 1).rank;
        w.layerFrom = this.layerFrom;
        w.layerTo = this.layerTo;
        w.headFrom = from;
        if (this.tokens.dcpSize > 1) {
          w.tokenSize = this.tokens.dcpSize;
          w.tokenInterleave = this.tokens.dcpInterleave;
          w.tokenPhase = this.tokens.dcpPhase;
        }
      }
    }
    k.to = to;
    const w = k.written;
    if (w) w.headTo = to;
    store<u64>(this.load + ((<usize>(s - 1)) << 3), this.loadOf(s - 1) + k.weight * (to - from) * (this.layerTo - this.layerFrom));
  }

  /**
   * Serves the wanted heads of a set of classes in ascending order: a head of all of
   * them that want it from one source rank, which is whole where that is not 0.
   */
  private walk(all: u64, whole: u32): void {
    for (let set = all; set; set &= set - 1) this.at(lowest(set)).source = 0;
    for (let from: u32 = 0, before: u32 = 0; this.work <= MAX_WORK && this.written <= MAX_ASSIGNMENTS; ) {
      let head = NONE, end = NONE, wanted: u64 = 0;
      for (let set = all; set; set &= set - 1) head = min(head, this.following(this.at(lowest(set)).want!, from));
      if (head == NONE) return;
      if (head != from) before = 0;
      for (let set = all; set; set &= set - 1) {
        const c = lowest(set), want = this.at(c).want!;
        let e = this.endOf(want, head);
        if (e) wanted |= bit(c);
        else e = this.following(want, head);
        end = min(end, e);
      }
      let s = whole;
      if (!s) s = before && this.holds(before - 1, wanted, head) ? before : this.pick(wanted, head);
      end = min(end, s ? this.holds(s - 1, wanted, head) : head + 1); // nobody has it: the proof will name it
      if (s) for (let set = wanted; set; set &= set - 1) this.put(lowest(set), s, head, end);
      before = s;
      from = end;
    }
  }

  /**
   * Serves a destination rank from one cell. Classes that scales tie together and that
   * have equally many heads are served head by head; where their heads do not match,
   * since some have none, one rank must have them all.
   */
  private serve(): void {
    this.work += this.classes;
    for (let left = this.wants; left; ) {
      const first = this.at(lowest(left));
      let set = first.tied & left, alike: u64 = 0, whole: u32 = 0;
      for (let m = set; m; m &= m - 1, this.work++) {
        if (this.at(lowest(m)).heads == first.heads) alike |= bit(lowest(m));
      }
      if (alike != set) whole = this.pick(set, NONE);
      if (whole) {
        for (let m = set; m; m &= m - 1) this.walk(bit(lowest(m)), whole);
      } else {
        set = alike; // where it had to be one rank, the proof will name what comes apart
        this.walk(set, 0);
      }
      left &= ~set;
    }
  }

  /** Serves one destination rank from each cell that has something of what it wants. */
  private matchRank(d: Part): void {
    const from = this.layersFrom(d), to = this.layersTo(d);
    for (let stage: u32 = 0; stage < this.stages && this.work <= MAX_WORK; stage++, this.work++) {
      this.layerFrom = max(this.stage[2 * stage], from);
      this.layerTo = min(this.stage[2 * stage + 1], to);
      if (this.layerFrom >= this.layerTo) continue;
      for (let dcp: u32 = 0; dcp < this.dcp && this.work <= MAX_WORK; dcp++, this.work++) {
        this.cell = stage * this.dcp + dcp;
        const rank = this.first[this.cell];
        if (!rank) continue;
        let p: Part | null = null;
        for (let c: u32 = 0; !p; c++) p = this.held(rank - 1, c);
        this.tokens = p!;
        if (shares(p!, d)) this.serve();
      }
    }
  }

  /**
   * Writes what serves the destination's parts of one group; false where the group is
   * too large for this policy.
   */
  matchGroup(group: Group, destination: Side): bool {
    if (!this.collect(group)) return false;
    for (let i: u32 = 0; i < destination.ranksCount && this.work <= MAX_WORK; i++, this.work++) {
      const r = destination.ranks(this.base, i);
      let d: Part | null = null;
      this.wants = 0;
      this.work += this.classes;
      for (let k: u32 = 0; k < r.partsCount && this.work <= MAX_WORK; k++, this.work++) {
        const p = r.parts(this.base, k);
        const c = p.group == this.group ? this.classOf(p.components, false) : this.classes;
        if (c == this.classes) continue;
        this.at(c).want = p;
        this.wants |= bit(c);
        d = p;
      }
      if (!d) continue;
      this.rank = r.rank;
      this.matchRank(d);
      if (this.written > MAX_ASSIGNMENTS) break;
    }
    return true;
  }
}

function divisor(a: u64, b: u64): u64 {
  while (b) {
    const r = a % b;
    a = b;
    b = r;
  }
  return a;
}

/** Whether any token lies on both parts' DCP ranks. */
function shares(a: Part, b: Part): bool {
  const n = <u64>a.dcpInterleave, m = <u64>b.dcpInterleave, g = divisor(n * a.dcpSize, m * b.dcpSize);
  if (!g) return false;
  const x = (n * a.dcpPhase) % g, y = (m * b.dcpPhase) % g;
  return (y + g - x) % g < n || (x + g - y) % g < m;
}

export function kvferry_remap(at: usize, length: u32, out: usize, cap: u32): u64 {
  const q = open<RemapIn>(at, length, Hook.REMAP);
  if (!q || q.sidesCount != 2) return status(Status.BAD_INPUT, 0);
  const source = q.sides(at, 0), destination = q.sides(at, 1), line = new Line(), n = source.ranksCount;
  let fits = <u64>n * 2 <= MAX_TABLE;
  const a = new Answer(out, cap, Hook.REMAP, offsetof<RemapOut>());
  const alternativeAt = a.here(), alternative = changetype<Alternative>(a.grow(offsetof<Alternative>())), listAt = a.here();
  const h = new Holders(at, source, fits ? take(n * 8) : 0, a);
  for (let g: u32 = 0; g < q.groupsCount; g++) {
    const group = q.groups(at, g);
    if (group.componentsCount < 1 || group.componentsCount > MAX_CLASSES) return status(Status.BAD_INPUT, 0);
    h.group = g;
    h.room = group.componentsCount;
    fits = fits && h.matchGroup(group, destination);
    const much = h.written > MAX_ASSIGNMENTS || h.work > MAX_WORK;
    if (!much && fits) continue;
    if (much) line.say("the pair takes more assignments, or more time, than this policy gives it");
    else line.say("the source has more ranks times components than this policy looks at");
    a.restart();
    const reason = a.text(line), result = a.end(Status.UNSUPPORTED);
    if (result >> 32 != Status.AGAIN) changetype<RemapOut>(out).setReason(reason, line.length);
    return result;
  }
  let serving: u32 = 0;
  for (let i: u32 = 0; i < n; i++) if (h.loadOf(i)) serving++;
  line.say("heads matched in ").sayNumber(h.written).say(h.written == 1 ? " assignment, " : " assignments, ");
  line.sayNumber(serving).say(" of ").sayNumber(n).say(" source ranks serve");
  const reason = a.text(line), result = a.end(Status.OK);
  if (result >> 32 != Status.OK) return result;
  if (h.written) alternative.setAssignments(listAt, h.written);
  const r = changetype<RemapOut>(out);
  r.setAlternatives(alternativeAt, 1);
  r.setReason(reason, line.length);
  return result;
}
