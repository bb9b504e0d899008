use crate::{MAX_ASSIGNMENTS, MAX_CLASSES, MAX_TABLE, MAX_WORK};
use core::cell::Cell;
use kvferry::{take, Alternative, Answer, Assignment, Group, Input, Line, List, Part, Range, Rank, Records, RemapIn, RemapOut, Status, Zero};

const NONE: u32 = u32::MAX;

/// The numbers of the bits of a set, in ascending order.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let bit = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(bit)
    })
}

/// Components of the group that are dealt alike.
#[derive(Clone, Copy, Default)]
struct Class {
    components: u64,
    tied: u64,   // the classes that scales tie to it, as a mask; itself at least
    weight: u64, // bits of one head of one layer, by token
    heads: u32,  // of the model; 0: none
}

/// What the source holds of one group, sorted out once a group. A cell is the
/// ranks of one stage and DCP rank.
struct Holders<'a> {
    q: &'a Input<'a, RemapIn>,
    work: Cell<u64>, // ranks, parts, ranges, replicas and costs looked at so far
    ranks: List<Rank>,
    group: u32,
    room: u32, // of classes
    class: [Class; MAX_CLASSES],
    classes: usize,
    stage: &'a mut [u32], // [stage]: from and to of the range that its layers lie in, ascending
    stages: usize,
    part: &'a mut [Option<&'a Part>], // [rank][class]
    dcp: u32,
    first: &'a mut [u32], // [stage][dcp]: 1 + the cell's first rank, 0: none
    next: &'a mut [u32],  // [rank]: 1 + the next rank of its cell, 0: none
    load: &'a mut [u64],  // [rank]: bits served of a token, of all groups
}

/// Makes room for n values; false where that is more than this policy does.
/// They are zero: groups share the room, one after the other.
fn zeros<'a, T: Zero>(room: &mut &'a mut [T], n: u64, zero: T) -> bool {
    if n > MAX_TABLE {
        return false;
    }
    if (room.len() as u64) < n {
        match take(n as u32) {
            Some(more) => *room = more,
            None => return false,
        }
    }
    room[..n as usize].fill(zero);
    true
}

/// An assignment that heads are still added to.
#[derive(Clone, Copy)]
struct Open {
    source: u32, // 0: none
    to: u32,
    number: u32,
    written: Assignment,
}

/// A destination rank that is served from one cell.
struct Target<'a> {
    want: [Option<&'a Part>; MAX_CLASSES], // by class of the group
    wants: u64,                            // the classes that it has, as a mask
    open: [Open; MAX_CLASSES],
    rank: u32,
    cell: usize,
    layers: Range,
    tokens: Option<&'a Part>, // of the source
}

/// What is written so far.
struct Written<'a, 'b> {
    a: &'a mut Answer<'b, RemapOut>,
    list: Records<Assignment>,
}

impl<'a> Holders<'a> {
    fn worked(&self, n: usize) {
        self.work.set(self.work.get() + n as u64);
    }

    fn tired(&self) -> bool {
        self.work.get() > MAX_WORK
    }

    /// The i-th head range of a part; components without heads have the one
    /// range \[0, 1).
    fn span(&self, p: &Part, i: u32) -> Range {
        if p.heads.count == 0 {
            return Range { from: 0, to: 1 };
        }
        *self.q.at(p.heads, i)
    }

    /// Where the range of a part that holds a head ends, 0 where none does.
    fn end_of(&self, p: &Part, head: u32) -> u32 {
        for i in 0..p.heads.count.max(1) {
            let g = self.span(p, i);
            if g.from <= head && head < g.to {
                return g.to;
            }
            self.worked(1);
        }
        0
    }

    /// The first head from the given one on that a part holds.
    fn following(&self, p: &Part, head: u32) -> u32 {
        let mut least = NONE;
        for i in 0..p.heads.count.max(1) {
            let g = self.span(p, i);
            let from = g.from.max(head);
            if from < g.to && from < least {
                least = from;
            }
            self.worked(1);
        }
        least
    }

    /// The range that a part's layers lie in.
    fn layers(&self, p: &Part) -> Range {
        let mut out = Range::default();
        for (i, g) in self.q.iter(p.layers).enumerate() {
            if i == 0 || g.from < out.from {
                out.from = g.from;
            }
            if i == 0 || g.to > out.to {
                out.to = g.to;
            }
        }
        out
    }

    /// The class of just these components, added where it is new and there is
    /// room; the number of classes where there is none.
    fn class_of(&mut self, components: u64, add: bool) -> usize {
        let mut c = 0;
        while c < self.classes && self.class[c].components != components {
            c += 1;
        }
        self.worked(c);
        if c == self.classes && add && c < MAX_CLASSES {
            self.class[c] = Class { components, tied: 1 << c, weight: 1, heads: 0 };
            self.classes += 1;
        }
        c
    }

    /// Finds out which classes scales tie together, and what a head weighs.
    fn tie(&mut self, group: &Group) {
        for (i, c) in self.q.iter(group.components).enumerate() {
            let mut tied = 0;
            for own in &mut self.class[..self.classes] {
                let holds = own.components >> i & 1 == 1;
                if holds {
                    own.heads = c.heads;
                    own.weight = own.weight.wrapping_add((c.dim as u64).wrapping_mul(c.bits as u64) / c.tokens_per_entry.max(1) as u64);
                }
                if holds || c.scales > 0 && c.scales <= 64 && own.components >> (c.scales - 1) & 1 == 1 {
                    tied |= own.tied;
                }
            }
            for k in bits(tied) {
                self.class[k].tied = tied;
            }
        }
        self.worked(group.components.count as usize * 2 * self.classes);
    }

    /// The stage with the layers of a part, added where it is new; `NONE` where
    /// the part has none, or the ranks have more stages than they are.
    fn stage_of(&mut self, p: &Part) -> u32 {
        let own = self.layers(p);
        let mut s = self.stages;
        while s > 0 && self.stage[2 * s - 2] > own.from {
            s -= 1;
        }
        self.worked(p.layers.count as usize + self.stages - s);
        if s > 0 && self.stage[2 * s - 2] == own.from {
            return s as u32 - 1;
        }
        if own.from >= own.to || self.stages == self.ranks.count as usize {
            return NONE;
        }
        self.stage.copy_within(2 * s..2 * self.stages, 2 * s + 2);
        self.stage[2 * s] = own.from;
        self.stage[2 * s + 1] = own.to;
        self.stages += 1;
        s as u32
    }

    /// What a source rank holds of a class.
    fn held(&self, rank: u32, c: usize) -> Option<&'a Part> {
        self.part[rank as usize * self.room as usize + c]
    }

    /// Fills itself in; false where the group is too large for this policy.
    fn collect(&mut self, group: &Group) -> bool {
        let n = self.ranks.count;
        self.classes = 0;
        self.stages = 0;
        if !zeros(&mut self.stage, n as u64 * 2, 0) || !zeros(&mut self.part, n as u64 * self.room as u64, None) || !zeros(&mut self.next, n as u64, 0) {
            return false;
        }
        let mut any = None;
        for i in 0..n {
            if self.tired() {
                break;
            }
            let parts = self.q.at(self.ranks, i).parts;
            for k in 0..parts.count {
                if self.tired() {
                    break;
                }
                let p = self.q.at(parts, k);
                if p.group == self.group {
                    let c = self.class_of(p.components, self.classes < self.room as usize);
                    if c < self.classes && self.stage_of(p) != NONE {
                        self.part[i as usize * self.room as usize + c] = Some(p);
                        any = Some(p);
                    }
                }
                self.worked(1);
            }
        }
        let any = match any {
            Some(p) => p,
            None => return true,
        };
        self.tie(group);
        self.dcp = any.dcp_size;
        if self.dcp == 0 || self.dcp as u64 > MAX_TABLE || self.tired() || !zeros(&mut self.first, self.stages as u64 * self.dcp as u64, 0) {
            return false;
        }
        // Backwards, so that each chain ascends.
        for i in (0..n).rev() {
            if self.tired() {
                break;
            }
            let mut part = None;
            for c in 0..self.classes {
                part = self.held(i, c);
                self.worked(1);
                if part.is_some() {
                    break;
                }
            }
            if let Some(p) = part {
                if p.dcp_phase < self.dcp {
                    let cell = self.stage_of(p) as usize * self.dcp as usize + p.dcp_phase as usize;
                    self.next[i as usize] = self.first[cell];
                    self.first[cell] = i + 1;
                }
            }
        }
        !self.tired()
    }

    /// Up to where a source rank holds a head, and those that follow it, in all
    /// classes of a set; 0 where it does not.
    fn holds(&self, rank: u32, set: u64, head: u32) -> u32 {
        let mut end = NONE;
        for c in bits(set) {
            end = end.min(self.held(rank, c).map_or(0, |p| self.end_of(p, head)));
        }
        end
    }

    /// Whether a source rank holds every head that the destination rank wants of a
    /// set of classes.
    fn holds_all(&self, t: &Target, rank: u32, set: u64) -> bool {
        for (c, want) in wanted(t, set) {
            for i in 0..want.heads.count.max(1) {
                let g = self.span(want, i);
                let mut head = g.from;
                while head < g.to {
                    head = self.holds(rank, 1 << c, head);
                    if head == 0 {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// The least loaded source rank of the cell that holds a head, or all that are
    /// wanted where that is `NONE`, in all classes of a set; of those the first. 1
    /// + its index, 0 where there is none.
    fn pick(&self, t: &Target, set: u64, head: u32) -> u32 {
        let mut best = 0;
        let mut i = self.first[t.cell];
        while i != 0 && !self.tired() {
            let r = i - 1;
            if best == 0 || self.load[r as usize] < self.load[best as usize - 1] {
                if if head == NONE { self.holds_all(t, r, set) } else { self.holds(r, set, head) > 0 } {
                    best = i;
                }
            }
            i = self.next[r as usize];
            self.worked(1);
        }
        best
    }

    /// Says that heads of a class come from a source rank: in the box before where
    /// that goes on.
    fn put(&mut self, out: &mut Written, t: &mut Target, c: usize, s: u32, heads: Range) {
        let (class, open) = (self.class[c], &mut t.open[c]);
        if open.source != s || open.to != heads.from {
            let mut w = Assignment {
                components: class.components,
                group: self.group,
                destination: t.rank,
                source: self.q.at(self.ranks, s - 1).rank,
                layer_from: t.layers.from,
                layer_to: t.layers.to,
                head_from: heads.from,
                ..Assignment::default()
            };
            if let Some(tokens) = t.tokens.filter(|p| p.dcp_size > 1) {
                w.token_size = tokens.dcp_size;
                w.token_interleave = tokens.dcp_interleave;
                w.token_phase = tokens.dcp_phase;
            }
            *open = Open { source: s, to: 0, number: out.a.add(&mut out.list, w), written: w };
        }
        open.to = heads.to;
        open.written.head_to = heads.to;
        out.a.set(&out.list, open.number, open.written);
        let load = &mut self.load[s as usize - 1];
        let size = (heads.to.wrapping_sub(heads.from) as u64).wrapping_mul(t.layers.to.wrapping_sub(t.layers.from) as u64);
        *load = load.wrapping_add(class.weight.wrapping_mul(size));
    }

    /// Serves the wanted heads of a set of classes in ascending order: a head of
    /// all of them that want it from one source rank, which is `whole` where that
    /// is not 0.
    fn walk(&mut self, out: &mut Written, t: &mut Target, set: u64, whole: u32) {
        for c in bits(set) {
            t.open[c].source = 0;
        }
        let (mut from, mut before) = (0, 0);
        while !self.tired() && out.list.len() <= MAX_ASSIGNMENTS {
            let mut head = NONE;
            for (_, want) in wanted(t, set) {
                head = head.min(self.following(want, from));
            }
            if head == NONE {
                return;
            }
            if head != from {
                before = 0;
            }
            let (mut takers, mut end) = (0, NONE);
            for (c, want) in wanted(t, set) {
                let mut e = self.end_of(want, head);
                if e != 0 {
                    takers |= 1 << c;
                } else {
                    e = self.following(want, head);
                }
                end = end.min(e);
            }
            let mut s = whole;
            if s == 0 {
                s = if before != 0 && self.holds(before - 1, takers, head) != 0 { before } else { self.pick(t, takers, head) };
            }
            // Where nobody has it the proof will name it.
            end = end.min(if s != 0 { self.holds(s - 1, takers, head) } else { head + 1 });
            if s != 0 {
                for c in bits(takers) {
                    self.put(out, t, c, s, Range { from: head, to: end });
                }
            }
            before = s;
            from = end;
        }
    }

    /// Serves a destination rank from one cell. Classes that scales tie together
    /// and that have equally many heads are served head by head; where their heads
    /// do not match, since some have none, one rank must have them all.
    fn serve(&mut self, out: &mut Written, t: &mut Target) {
        self.worked(self.classes);
        let mut left = t.wants;
        while left != 0 {
            let first = self.class[left.trailing_zeros() as usize];
            let (mut set, mut alike, mut whole) = (first.tied & left, 0, 0);
            for c in bits(set) {
                if self.class[c].heads == first.heads {
                    alike |= 1 << c;
                }
                self.worked(1);
            }
            if alike != set {
                whole = self.pick(t, set, NONE);
            }
            if whole != 0 {
                for c in bits(set) {
                    self.walk(out, t, 1 << c, whole);
                }
            } else {
                // Where it had to be one rank, the proof will name what comes apart.
                set = alike;
                self.walk(out, t, set, 0);
            }
            left &= !set;
        }
    }

    /// Serves one destination rank from each cell that has something of what it
    /// wants.
    fn match_rank(&mut self, out: &mut Written, t: &mut Target<'a>, d: &Part) {
        let wanted = self.layers(d);
        for stage in 0..self.stages {
            if self.tired() {
                break;
            }
            t.layers = Range { from: self.stage[2 * stage].max(wanted.from), to: self.stage[2 * stage + 1].min(wanted.to) };
            for dcp in 0..self.dcp as usize {
                if t.layers.from >= t.layers.to || self.tired() {
                    break;
                }
                t.cell = stage * self.dcp as usize + dcp;
                if self.first[t.cell] != 0 {
                    if let Some(p) = (0..self.classes).find_map(|c| self.held(self.first[t.cell] - 1, c)) {
                        t.tokens = Some(p);
                        if shares(p, d) {
                            self.serve(out, t);
                        }
                    }
                }
                self.worked(1);
            }
            self.worked(1);
        }
    }

    /// Writes what serves the destination's parts of one group; false where the
    /// group is too large for this policy.
    fn match_group(&mut self, out: &mut Written, t: &mut Target<'a>, group: &Group, destination: List<Rank>) -> bool {
        if !self.collect(group) {
            return false;
        }
        for i in 0..destination.count {
            if self.tired() {
                break;
            }
            let r = self.q.at(destination, i);
            let mut found = None;
            t.wants = 0;
            self.worked(self.classes);
            for k in 0..r.parts.count {
                if self.tired() {
                    break;
                }
                let p = self.q.at(r.parts, k);
                if p.group == self.group {
                    let c = self.class_of(p.components, false);
                    if c < self.classes {
                        t.want[c] = Some(p);
                        t.wants |= 1 << c;
                        found = Some(p);
                    }
                }
                self.worked(1);
            }
            if let Some(d) = found {
                t.rank = r.rank;
                self.match_rank(out, t, d);
            }
            if out.list.len() > MAX_ASSIGNMENTS {
                break;
            }
            self.worked(1);
        }
        true
    }
}

/// What a destination rank wants of a set of classes.
fn wanted<'t, 'a>(t: &'t Target<'a>, set: u64) -> impl Iterator<Item = (usize, &'a Part)> + 't {
    bits(set).filter_map(move |c| t.want[c].map(|p| (c, p)))
}

fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        let r = a % b;
        a = b;
        b = r;
    }
    a
}

/// Whether any token lies on both parts' DCP ranks.
fn shares(a: &Part, b: &Part) -> bool {
    let (n, m) = (a.dcp_interleave as u64, b.dcp_interleave as u64);
    let g = divisor(n * a.dcp_size as u64, m * b.dcp_size as u64);
    if g == 0 {
        return false;
    }
    let (x, y) = (n.wrapping_mul(a.dcp_phase as u64) % g, m.wrapping_mul(b.dcp_phase as u64) % g);
    y.wrapping_add(g).wrapping_sub(x) % g < n || x.wrapping_add(g).wrapping_sub(y) % g < m
}

pub fn remap(q: &Input<RemapIn>, a: &mut Answer<RemapOut>) -> Status {
    if q.record.sides.count != 2 {
        return a.nothing(Status::BadInput);
    }
    let source = q.get(q.record.sides, 0).ranks;
    let destination = q.get(q.record.sides, 1).ranks;
    let load = if source.count as u64 * 2 > MAX_TABLE { None } else { take(source.count) };
    let mut fits = load.is_some();
    let mut h = Holders {
        q,
        work: Cell::new(0),
        ranks: source,
        group: 0,
        room: 0,
        class: [Class::default(); MAX_CLASSES],
        classes: 0,
        stage: &mut [],
        stages: 0,
        part: &mut [],
        dcp: 0,
        first: &mut [],
        next: &mut [],
        load: load.unwrap_or(&mut []),
    };
    let none = Open { source: 0, to: 0, number: 0, written: Assignment::default() };
    let mut t = Target { want: [None; MAX_CLASSES], wants: 0, open: [none; MAX_CLASSES], rank: 0, cell: 0, layers: Range::default(), tokens: None };
    let mut alternatives = a.records::<Alternative>();
    let alternative = a.add(&mut alternatives, Alternative::default());
    let list = a.records::<Assignment>();
    let mut out = Written { a, list };
    let mut line = Line::default();
    for (g, group) in q.iter(q.record.groups).enumerate() {
        h.group = g as u32;
        h.room = group.components.count;
        if h.room < 1 || h.room as usize > MAX_CLASSES {
            return out.a.nothing(Status::BadInput);
        }
        fits = fits && h.match_group(&mut out, &mut t, &group, destination);
        let much = out.list.len() > MAX_ASSIGNMENTS || h.tired();
        if much || !fits {
            line.say(if much {
                "the pair takes more assignments, or more time, than this policy gives it"
            } else {
                "the source has more ranks times components than this policy looks at"
            });
            return out.a.refuse(Status::Unsupported, &line);
        }
    }
    let written = out.list.len();
    let serving = h.load.iter().filter(|l| **l > 0).count();
    line.say("heads matched in ").say_number(written as u64).say(if written == 1 { " assignment, " } else { " assignments, " });
    line.say_number(serving as u64).say(" of ").say_number(source.count as u64).say(" source ranks serve");
    let assignments = out.list.list();
    out.a.record.reason = out.a.text(&line);
    out.a.set(&alternatives, alternative, Alternative { assignments, ..Alternative::default() });
    out.a.record.alternatives = alternatives.list();
    Status::Ok
}
