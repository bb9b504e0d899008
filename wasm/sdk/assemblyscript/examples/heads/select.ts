import { Answer, Candidate, Cost, Hook, Line, Role, SelectLayoutIn, SelectLayoutOut, Status, open, status } from "../../assembly";
import { MAX_WORK, Work } from "./bounds";

/**
 * How a combination of an own candidate and a peer's compares: lower is better, the
 * first field first.
 */
@unmanaged
class Score {
  weight: u64 = 0; // pieces a GiB, times what attention costs on both sides in per cent
  order: u32 = 0; // places in both engines' orders of preference, added
  source: u32 = 0; // place in the source's
  usable: bool = false;

  set(weight: u64, order: u32, source: u32): void {
    this.weight = weight;
    this.order = order;
    this.source = source;
    this.usable = true;
  }

  copy(s: Score): void {
    this.set(s.weight, s.order, s.source);
    this.usable = s.usable;
  }
}

function better(a: Score, b: Score): bool {
  if (a.usable != b.usable) return a.usable;
  if (a.weight != b.weight) return a.weight < b.weight;
  if (a.order != b.order) return a.order < b.order;
  return a.source < b.source;
}

/** Pieces a GiB. */
function rate(c: Cost): u64 {
  const r = (min(c.pieces, ((<u64>1) << 33) - 1) << 30) / max(c.bytes, <u64>1);
  return min(max(r, <u64>1), (<u64>1) << 34);
}

/** Attention in per cent of what it costs at best. */
function attention(c: Candidate): u64 {
  return 100 + min(<u64>c.attention, <u64>10000);
}

@unmanaged
class Judge {
  work: Work = new Work();
  failed: u32 = 0; // a peer that some candidate cannot be planned with
  sum: Score = new Score();
  private best: Score = new Score();
  private s: Score = new Score();

  /** Scores own candidate i against every peer, by the best that each can do. */
  judge(base: usize, q: SelectLayoutIn, i: u32): void {
    const own = q.candidates(base, i), work = this.work, sum = this.sum, best = this.best, s = this.s;
    sum.set(0, 0, 0);
    for (let p: u32 = 0; p < q.peersCount; p++) {
      const peer = q.peers(base, p);
      best.set(0, 0, 0);
      best.usable = false;
      for (let n: u32 = 0; n < own.costsCount && work.n <= MAX_WORK; n++, work.n++) {
        const cost = own.costs(base, n);
        if (cost.peer != p || cost.candidate >= peer.candidatesCount) continue;
        const theirs = peer.candidates(base, cost.candidate);
        s.set(rate(cost) * attention(own) * attention(theirs), i + cost.candidate, q.role == Role.SOURCE ? i : cost.candidate);
        if (better(s, best)) best.copy(s);
      }
      if (!best.usable) {
        this.failed = p;
        sum.copy(best);
        return;
      }
      const weight = sum.weight + best.weight;
      sum.weight = weight < sum.weight ? u64.MAX_VALUE : weight;
      sum.order += best.order;
      sum.source += best.source;
    }
    if (!q.peersCount) sum.set(attention(own), i, i);
  }
}

function explain(base: usize, q: SelectLayoutIn, line: Line, best: u32, s: Score, worst: Score, kept: bool): void {
  const c = q.candidates(base, best);
  line.saySome(base + c.nameAt, c.nameLength, 100);
  if (kept) {
    line.say(": kept, as answered before");
    return;
  }
  if (q.candidatesCount == 1) line.say(": all that the engine's attention can do");
  else if (!q.peersCount) line.say(": no peer is expected; the engine's first choice among those that attention is cheapest on");
  else line.say(": fewest pieces to move, attention weighed in");
  if (!q.peersCount) return;
  line.say("; weight ").sayNumber(s.weight / 10000).say(" pieces a GiB");
  if (q.candidatesCount > 1) line.say(", the worst of ").sayNumber(q.candidatesCount).say(" candidates ").sayNumber(worst.weight / 10000);
}

export function kvferry_select_layout(at: usize, length: u32, out: usize, cap: u32): u64 {
  const q = open<SelectLayoutIn>(at, length, Hook.SELECT_LAYOUT);
  if (!q || (q.role != Role.SOURCE && q.role != Role.DESTINATION)) return status(Status.BAD_INPUT, 0);
  const a = new Answer(out, cap, Hook.SELECT_LAYOUT, offsetof<SelectLayoutOut>());
  const line = new Line(), j = new Judge(), least = new Score(), worst = new Score();
  let best: u32 = 0, kept = false;
  for (let i: u32 = 0; i < q.candidatesCount && j.work.n <= MAX_WORK; i++) {
    j.judge(at, q, i);
    if (!j.sum.usable) continue;
    if (!worst.usable || better(worst, j.sum)) worst.copy(j.sum);
    const before = q.previous == i + 1;
    if (before || (!kept && better(j.sum, least))) {
      least.copy(j.sum);
      best = i;
      if (before) kept = true;
    }
  }
  let s = Status.OK;
  if (j.work.n > MAX_WORK) {
    line.say("there are more candidates times peers than this policy looks at");
    s = Status.UNSUPPORTED;
  } else if (!least.usable && !q.candidatesCount) {
    line.say("the engine offers no layout");
    s = Status.DECLINED;
  } else if (!least.usable) {
    const peer = q.peers(at, j.failed);
    line.say("nothing that the engine's attention can do could be planned with engine ").saySome(at + peer.engineAt, peer.engineLength, 100);
    s = Status.DECLINED;
  } else {
    explain(at, q, line, best, least, worst, kept);
  }
  const reason = a.text(line), result = a.end(s);
  if (result >> 32 != Status.AGAIN) {
    const r = changetype<SelectLayoutOut>(out);
    if (s == Status.OK) r.index = best;
    r.setReason(reason, line.length);
  }
  return result;
}
