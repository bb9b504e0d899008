//! {{NAME}}: a policy to begin with. It is complete: plans that it answers are
//! proved like any other's, and what it cannot do it declines. kvferry/ is the
//! SDK, docs/abi.md of kvferry the specification.

#![no_std]

use kvferry::*;

kvferry::hooks! {
    kvferry_select_layout => select_layout,
    kvferry_remap => remap,
    kvferry_route => route,
}

/// Which layout the engine uses: what it used before, or what the fleet has on
/// record, or its own first choice.
fn select_layout(q: &Input<SelectLayoutIn>, a: &mut Answer<SelectLayoutOut>) -> Status {
    let mut line = Line::default();
    if q.record.candidates.count == 0 {
        return a.refuse(Status::Declined, line.say("the engine offers no layout"));
    }
    let (index, why) = if q.record.previous > 0 {
        (q.record.previous - 1, ": as before")
    } else if q.record.recorded > 0 {
        (q.record.recorded - 1, ": as on record")
    } else {
        (0, ": the engine's first choice")
    };
    line.say_some(q.bytes(q.get(q.record.candidates, index).name), 100).say(why);
    a.record.index = index;
    a.record.reason = a.text(&line);
    Status::Ok
}

fn overlap(a: Range, b: Range) -> Range {
    Range { from: a.from.max(b.from), to: a.to.min(b.to) }
}

/// The range that a part's layers lie in.
fn layers(q: &Input<RemapIn>, p: &Part) -> Range {
    let start = Range { from: u32::MAX, to: 0 };
    q.iter(p.layers).fold(start, |all, g| Range { from: all.from.min(g.from), to: all.to.max(g.to) })
}

/// Range `i` of a part's heads; components without heads have the one range
/// \[0, 1).
fn heads(q: &Input<RemapIn>, p: &Part, i: u32) -> Range {
    if p.heads.count == 0 {
        return Range { from: 0, to: 1 };
    }
    q.get(p.heads, i)
}

fn head_ranges(p: &Part) -> u32 {
    p.heads.count.max(1)
}

/// Whether some source rank before rank `s` holds what part `p` of it is: then that
/// one serves.
fn replica(q: &Input<RemapIn>, source: &Side, s: u32, p: &Part) -> bool {
    (0..s).any(|i| {
        q.iter(q.get(source.ranks, i).parts).any(|o| {
            o.group == p.group
                && o.components == p.components
                && o.dcp_phase == p.dcp_phase
                && layers(q, &o).from == layers(q, p).from
                && heads(q, &o, 0).from == heads(q, p, 0).from
        })
    })
}

/// Whether some scales are dealt over ranks otherwise than the rows that they
/// scale: a scale has to come from the rank that its rows come from.
fn apart(q: &Input<RemapIn>) -> bool {
    q.iter(q.record.groups).any(|g| {
        q.iter(g.components).any(|c| {
            if c.scales == 0 {
                return false;
            }
            let of = q.get(g.components, c.scales - 1);
            c.heads != of.heads || c.unit != of.unit || c.tokens_per_entry != of.tokens_per_entry
        })
    })
}

/// Which source rank feeds which destination rank: of the ranks that hold a thing,
/// the first.
fn remap(q: &Input<RemapIn>, a: &mut Answer<RemapOut>) -> Status {
    if q.record.sides.count != 2 {
        return a.nothing(Status::BadInput);
    }
    let mut line = Line::default();
    if apart(q) {
        return a.refuse(Status::Declined, line.say("scales are dealt otherwise than the rows that they scale"));
    }
    let (source, destination) = (q.get(q.record.sides, 0), q.get(q.record.sides, 1));
    let mut alternatives = a.records();
    let alternative = a.add(&mut alternatives, Alternative::default());
    let mut list = a.records();
    for d in q.iter(destination.ranks) {
        for want in q.iter(d.parts) {
            for (s, from) in q.iter(source.ranks).enumerate() {
                for have in q.iter(from.parts) {
                    if have.group != want.group || have.components != want.components || replica(q, &source, s as u32, &have) {
                        continue;
                    }
                    if have.dcp_size > 1 && want.dcp_size > 1 {
                        if have.dcp_size != want.dcp_size || have.dcp_interleave != want.dcp_interleave {
                            return a.refuse(Status::Declined, line.say("both sides part tokens over ranks, each in its own way"));
                        }
                        if have.dcp_phase != want.dcp_phase {
                            continue;
                        }
                    }
                    take(q, a, &mut list, &d, &want, &from, &have);
                }
            }
        }
    }
    line.say("the first holder serves, ").say_number(list.len() as u64).say(" assignments");
    a.record.reason = a.text(&line);
    a.set(&alternatives, alternative, Alternative { assignments: list.list(), ..Alternative::default() });
    a.record.alternatives = alternatives.list();
    Status::Ok
}

/// Writes what the destination's part takes from a source rank: what both hold.
fn take(q: &Input<RemapIn>, a: &mut Answer<RemapOut>, list: &mut Records<Assignment>, d: &Rank, want: &Part, s: &Rank, have: &Part) {
    let l = overlap(layers(q, want), layers(q, have));
    for i in 0..head_ranges(want) {
        for k in 0..head_ranges(have) {
            let h = overlap(heads(q, want, i), heads(q, have, k));
            if l.from >= l.to || h.from >= h.to {
                continue;
            }
            let mut w = Assignment {
                group: want.group,
                components: want.components,
                destination: d.rank,
                source: s.rank,
                layer_from: l.from,
                layer_to: l.to,
                head_from: h.from,
                head_to: h.to,
                ..Assignment::default()
            };
            if have.dcp_size > 1 {
                w.token_size = have.dcp_size;
                w.token_interleave = have.dcp_interleave;
                w.token_phase = have.dcp_phase;
            }
            a.add(list, w);
        }
    }
}

/// How one transfer goes: by the alternative whose busiest source rank is the least
/// busy. Everything else is left to the host.
fn route(q: &Input<RouteIn>, a: &mut Answer<RouteOut>) -> Status {
    if q.record.alternatives.count == 0 || q.record.engines.count != 2 {
        return a.nothing(Status::BadInput);
    }
    let places = q.get(q.record.engines, 0).places;
    let (mut best, mut least) = (0, u32::MAX);
    for (i, p) in q.iter(q.record.alternatives).enumerate() {
        let known = q.iter(p.flows).filter(|f| f.source < places.count);
        let busiest = known.map(|f| q.get(places, f.source).load).max().unwrap_or(0);
        if busiest < least {
            best = i as u32;
            least = busiest;
        }
    }
    let mut decisions = a.records();
    a.add(&mut decisions, Decision { alternative: best, ..Decision::default() });
    a.record.decisions = decisions.list();
    let mut line = Line::default();
    line.say("alternative ").say_number(best as u64).say(": load of its busiest source rank ").say_number(least as u64).say(" of 8");
    a.record.reason = a.text(&line);
    Status::Ok
}
