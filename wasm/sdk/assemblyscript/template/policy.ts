// {{NAME}}: a policy to begin with. It is complete: plans that it answers are
// proved like any other's, and what it cannot do it declines. kvferry/ is the
// SDK, docs/abi.md of kvferry the specification.
import {
  Alternative,
  Answer,
  Assignment,
  Decision,
  Hook,
  Line,
  Part,
  Rank,
  RemapIn,
  RemapOut,
  RouteIn,
  RouteOut,
  SelectLayoutIn,
  SelectLayoutOut,
  Side,
  Status,
  open,
  status,
} from "./kvferry/assembly";
export { kvferry_arena } from "./kvferry/assembly";

/**
 * Which layout the engine uses: what it used before, or what the fleet has on record,
 * or its own first choice.
 */
export function kvferry_select_layout(at: usize, length: u32, out: usize, cap: u32): u64 {
  const q = open<SelectLayoutIn>(at, length, Hook.SELECT_LAYOUT);
  if (!q) return status(Status.BAD_INPUT, 0);
  const a = new Answer(out, cap, Hook.SELECT_LAYOUT, offsetof<SelectLayoutOut>()), line = new Line();
  let s = Status.OK, index: u32 = 0;
  if (!q.candidatesCount) {
    line.say("the engine offers no layout");
    s = Status.DECLINED;
  } else {
    index = q.previous ? q.previous - 1 : q.recorded ? q.recorded - 1 : 0;
    const c = q.candidates(at, index);
    line.saySome(at + c.nameAt, c.nameLength, 100);
    line.say(q.previous ? ": as before" : q.recorded ? ": as on record" : ": the engine's first choice");
  }
  const reason = a.text(line), result = a.end(s);
  if (result >> 32 == Status.AGAIN) return result; // the host asks again, with more room
  const r = changetype<SelectLayoutOut>(out);
  r.index = index;
  r.setReason(reason, line.length);
  return result;
}

/** Where the range that a part's layers lie in begins. */
function layersFrom(q: usize, p: Part): u32 {
  let from: u32 = u32.MAX_VALUE;
  for (let i: u32 = 0; i < p.layersCount; i++) from = min(from, p.layers(q, i).from);
  return from;
}

/** Where it ends. */
function layersTo(q: usize, p: Part): u32 {
  let to: u32 = 0;
  for (let i: u32 = 0; i < p.layersCount; i++) to = max(to, p.layers(q, i).to);
  return to;
}

// Range i of a part's heads; components without heads have the one range [0, 1).

function headsFrom(q: usize, p: Part, i: u32): u32 {
  return p.headsCount ? p.heads(q, i).from : 0;
}

function headsTo(q: usize, p: Part, i: u32): u32 {
  return p.headsCount ? p.heads(q, i).to : 1;
}

function headRanges(p: Part): u32 {
  return max(p.headsCount, <u32>1);
}

/**
 * Whether some source rank before rank s holds what part p of s is: then that one
 * serves.
 */
function replica(q: usize, source: Side, s: u32, p: Part): bool {
  for (let i: u32 = 0; i < s; i++) {
    const r = source.ranks(q, i);
    for (let k: u32 = 0; k < r.partsCount; k++) {
      const o = r.parts(q, k);
      if (
        o.group == p.group &&
        o.components == p.components &&
        o.dcpPhase == p.dcpPhase &&
        layersFrom(q, o) == layersFrom(q, p) &&
        headsFrom(q, o, 0) == headsFrom(q, p, 0)
      ) return true;
    }
  }
  return false;
}

/** Writes what the destination's part takes from a source rank: what both hold. */
function take(q: usize, a: Answer, d: Rank, want: Part, s: Rank, have: Part): u32 {
  const from = max(layersFrom(q, want), layersFrom(q, have)), to = min(layersTo(q, want), layersTo(q, have));
  let written: u32 = 0;
  for (let i: u32 = 0; i < headRanges(want); i++) {
    for (let k: u32 = 0; k < headRanges(have); k++) {
      const headFrom = max(headsFrom(q, want, i), headsFrom(q, have, k)), headTo = min(headsTo(q, want, i), headsTo(q, have, k));
      if (from >= to || headFrom >= headTo) continue;
      written++;
      const w = changetype<Assignment | null>(a.grow(<u32>offsetof<Assignment>()));
      if (!w) continue; // no room: end tells the host how much would be enough
      w.group = want.group;
      w.components = want.components;
      w.destination = d.rank;
      w.source = s.rank;
      w.layerFrom = from;
      w.layerTo = to;
      w.headFrom = headFrom;
      w.headTo = headTo;
      if (have.dcpSize > 1) {
        w.tokenSize = have.dcpSize;
        w.tokenInterleave = have.dcpInterleave;
        w.tokenPhase = have.dcpPhase;
      }
    }
  }
  return written;
}

/**
 * Whether some scales are dealt over ranks otherwise than the rows that they scale: a
 * scale has to come from the rank that its rows come from.
 */
function apart(at: usize, q: RemapIn): bool {
  for (let i: u32 = 0; i < q.groupsCount; i++) {
    const g = q.groups(at, i);
    for (let k: u32 = 0; k < g.componentsCount; k++) {
      const c = g.components(at, k);
      if (!c.scales) continue;
      const rows = g.components(at, c.scales - 1);
      if (c.heads != rows.heads || c.unit != rows.unit || c.tokensPerEntry != rows.tokensPerEntry) return true;
    }
  }
  return false;
}

/**
 * Which source rank feeds which destination rank: of the ranks that hold a thing, the
 * first.
 */
export function kvferry_remap(at: usize, length: u32, out: usize, cap: u32): u64 {
  const q = open<RemapIn>(at, length, Hook.REMAP);
  if (!q || q.sidesCount != 2) return status(Status.BAD_INPUT, 0);
  const a = new Answer(out, cap, Hook.REMAP, offsetof<RemapOut>()), line = new Line();
  if (apart(at, q)) {
    line.say("scales are dealt otherwise than the rows that they scale");
    const reason = a.text(line), result = a.end(Status.DECLINED);
    if (result >> 32 != Status.AGAIN) changetype<RemapOut>(out).setReason(reason, line.length);
    return result;
  }
  const source = q.sides(at, 0), destination = q.sides(at, 1);
  const alternativeAt = a.here(), alternative = changetype<Alternative>(a.grow(<u32>offsetof<Alternative>())), first = a.here();
  let written: u32 = 0;
  for (let i: u32 = 0; i < destination.ranksCount; i++) {
    const d = destination.ranks(at, i);
    for (let k: u32 = 0; k < d.partsCount; k++) {
      const want = d.parts(at, k);
      for (let s: u32 = 0; s < source.ranksCount; s++) {
        const r = source.ranks(at, s);
        for (let n: u32 = 0; n < r.partsCount; n++) {
          const have = r.parts(at, n), both = have.dcpSize > 1 && want.dcpSize > 1;
          if (have.group != want.group || have.components != want.components || replica(at, source, s, have)) continue;
          if (both && (have.dcpSize != want.dcpSize || have.dcpInterleave != want.dcpInterleave)) {
            line.say("both sides part tokens over ranks, each in its own way");
            a.restart();
            const reason = a.text(line), result = a.end(Status.DECLINED);
            if (result >> 32 != Status.AGAIN) changetype<RemapOut>(out).setReason(reason, line.length);
            return result;
          }
          if (both && have.dcpPhase != want.dcpPhase) continue;
          written += take(at, a, d, want, r, have);
        }
      }
    }
  }
  line.say("the first holder serves, ").sayNumber(written).say(" assignments");
  const reason = a.text(line), result = a.end(Status.OK);
  if (result >> 32 == Status.AGAIN) return result;
  if (written) alternative.setAssignments(first, written);
  const r = changetype<RemapOut>(out);
  r.setAlternatives(alternativeAt, 1);
  r.setReason(reason, line.length);
  return result;
}

/**
 * How one transfer goes: by the alternative whose busiest source rank is the least busy.
 * Everything else is left to the host.
 */
export function kvferry_route(at: usize, length: u32, out: usize, cap: u32): u64 {
  const q = open<RouteIn>(at, length, Hook.ROUTE);
  if (!q || !q.alternativesCount || q.enginesCount != 2) return status(Status.BAD_INPUT, 0);
  const source = q.engines(at, 0);
  let best: u32 = 0, least: u32 = u32.MAX_VALUE;
  for (let i: u32 = 0; i < q.alternativesCount; i++) {
    const p = q.alternatives(at, i);
    let busiest: u32 = 0;
    for (let k: u32 = 0; k < p.flowsCount; k++) {
      const s = p.flows(at, k).source;
      if (s < source.placesCount) busiest = max(busiest, source.places(at, s).load); // else it is not known where it runs
    }
    if (busiest < least) {
      least = busiest;
      best = i;
    }
  }
  const a = new Answer(out, cap, Hook.ROUTE, offsetof<RouteOut>()), line = new Line();
  const decisionAt = a.here(), decision = changetype<Decision>(a.grow(<u32>offsetof<Decision>()));
  line.say("alternative ").sayNumber(best).say(": load of its busiest source rank ").sayNumber(least).say(" of 8");
  const reason = a.text(line), result = a.end(Status.OK);
  if (result >> 32 == Status.AGAIN) return result;
  decision.alternative = best;
  const r = changetype<RouteOut>(out);
  r.setDecisions(decisionAt, 1);
  r.setReason(reason, line.length);
  return result;
}
