use crate::MAX_WORK;
use kvferry::{role, Answer, Candidate, Cost, Input, Line, SelectLayoutIn, SelectLayoutOut, Status};

/// How a combination of an own candidate and a peer's compares: lower is better,
/// the first field first.
#[derive(Clone, Copy, Default)]
struct Score {
    weight: u64, // pieces a GiB, times what attention costs on both sides in per cent
    order: u32,  // places in both engines' orders of preference, added
    source: u32, // place in the source's
    usable: bool,
}

fn better(a: &Score, b: &Score) -> bool {
    if a.usable != b.usable {
        return a.usable;
    }
    (a.weight, a.order, a.source) < (b.weight, b.order, b.source)
}

/// Pieces a GiB.
fn rate(c: &Cost) -> u64 {
    ((c.pieces.min((1 << 33) - 1) << 30) / c.bytes.max(1)).max(1).min(1 << 34)
}

/// Attention in per cent of what it costs at best.
fn attention(c: &Candidate) -> u64 {
    100 + (c.attention as u64).min(10000)
}

/// Scores own candidate `i` against every peer, by the best that each can do.
/// `failed` is a peer that it cannot be planned with.
fn judge(q: &Input<SelectLayoutIn>, i: u32, work: &mut u64, failed: &mut u32) -> Score {
    let own = q.get(q.record.candidates, i);
    let mut sum = Score { usable: true, ..Score::default() };
    for (p, peer) in q.iter(q.record.peers).enumerate() {
        let mut best = Score::default();
        for cost in q.iter(own.costs) {
            if *work > MAX_WORK {
                break;
            }
            if cost.peer == p as u32 && cost.candidate < peer.candidates.count {
                let theirs = q.get(peer.candidates, cost.candidate);
                let source = if q.record.role == role::SOURCE { i } else { cost.candidate };
                let weight = rate(&cost).wrapping_mul(attention(&own)).wrapping_mul(attention(&theirs));
                let s = Score { weight, order: i.wrapping_add(cost.candidate), source, usable: true };
                if better(&s, &best) {
                    best = s;
                }
            }
            *work += 1;
        }
        if !best.usable {
            *failed = p as u32;
            return best;
        }
        sum.weight = sum.weight.saturating_add(best.weight);
        sum.order = sum.order.wrapping_add(best.order);
        sum.source = sum.source.wrapping_add(best.source);
    }
    if q.record.peers.count == 0 {
        return Score { weight: attention(&own), order: i, source: i, usable: true };
    }
    sum
}

fn explain(q: &Input<SelectLayoutIn>, line: &mut Line, best: u32, s: &Score, worst: &Score, kept: bool) {
    let (candidates, peers) = (q.record.candidates, q.record.peers.count);
    line.say_some(q.bytes(q.get(candidates, best).name), 100);
    if kept {
        line.say(": kept, as answered before");
        return;
    }
    line.say(if candidates.count == 1 {
        ": all that the engine's attention can do"
    } else if peers == 0 {
        ": no peer is expected; the engine's first choice among those that attention is cheapest on"
    } else {
        ": fewest pieces to move, attention weighed in"
    });
    if peers == 0 {
        return;
    }
    line.say("; weight ").say_number(s.weight / 10000).say(" pieces a GiB");
    if candidates.count > 1 {
        line.say(", the worst of ").say_number(candidates.count as u64).say(" candidates ").say_number(worst.weight / 10000);
    }
}

pub fn select_layout(q: &Input<SelectLayoutIn>, a: &mut Answer<SelectLayoutOut>) -> Status {
    if q.record.role != role::SOURCE && q.record.role != role::DESTINATION {
        return a.nothing(Status::BadInput);
    }
    let mut line = Line::default();
    let (mut work, mut best, mut failed, mut kept) = (0, 0, 0, false);
    let (mut least, mut worst) = (Score::default(), Score::default());
    for i in 0..q.record.candidates.count {
        if work > MAX_WORK {
            break;
        }
        let s = judge(q, i, &mut work, &mut failed);
        if !s.usable {
            continue;
        }
        if !worst.usable || better(&worst, &s) {
            worst = s;
        }
        let before = q.record.previous == i + 1;
        if before || !kept && better(&s, &least) {
            least = s;
            best = i;
            kept |= before;
        }
    }
    let status = if work > MAX_WORK {
        line.say("there are more candidates times peers than this policy looks at");
        Status::Unsupported
    } else if !least.usable && q.record.candidates.count == 0 {
        line.say("the engine offers no layout");
        Status::Declined
    } else if !least.usable {
        line.say("nothing that the engine's attention can do could be planned with engine ");
        line.say_some(q.bytes(q.get(q.record.peers, failed).engine), 100);
        Status::Declined
    } else {
        explain(q, &mut line, best, &least, &worst, kept);
        a.record.index = best;
        Status::Ok
    };
    a.record.reason = a.text(&line);
    status
}
