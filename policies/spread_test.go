package policies_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
)

// How far two ranks are from each other, as rails counts.
const (
	farProcess = iota
	farNode
	farHost
	farCross
	farDomain
	farRail
	farNetwork
)

var fares = []uint64{2, 4, 5, 6, 8, 16, 20}

// places are where the ranks of a question's engines run, with what was drawn
// of the ways between them: the native twin of what rails makes of it.
type places struct {
	source, destination []policy.Place
	edges               []policy.Edge
	loads               bool // rails are chosen by their loads, too
}

func (p *places) at(list []policy.Place, r int) policy.Place {
	if r < len(list) {
		return list[r]
	}
	return policy.Place{}
}

func (p *places) edge(s, d int) policy.Edge {
	for _, e := range p.edges {
		if e.Source.From <= s && s < e.Source.To && e.Destination.From <= d && d < e.Destination.To {
			return e
		}
	}
	return policy.Edge{}
}

func numaOf(p policy.Place) int {
	if len(p.Devices) > 0 && p.Devices[0].NUMA > 0 {
		return p.Devices[0].NUMA
	}
	return p.NUMA
}

// rail is the index of the rail that a rank is best off with; -1: it has none.
func (p *places) rail(at policy.Place) int {
	weigh := func(r policy.Rail) int {
		w := 3
		if r.NUMA == 0 || numaOf(at) == 0 {
			w = 1
		} else if r.NUMA == numaOf(at) {
			w = 0
		}
		if p.loads {
			w += max(int(r.Load), 1)
		}
		return w
	}
	best := -1
	for i, r := range at.Rails {
		if best < 0 || cmp.Or(cmp.Compare(weigh(r), weigh(at.Rails[best])), cmp.Compare(at.Rails[best].Gbits, r.Gbits)) < 0 {
			best = i
		}
	}
	return best
}

// between is how far and how busy it is between two ranks.
func (p *places) between(s, d int) (far int, busy policy.Load) {
	a, b, e := p.at(p.source, s), p.at(p.destination, d), p.edge(s, d)
	busy = max(a.Load, e.Load)
	reach := e.Reach
	if reach == 0 {
		switch {
		case a.Host != "" && a.Host == b.Host:
			reach = policy.SameHost
		case a.Domain != "" && a.Domain == b.Domain:
			reach = policy.SameDomain
		}
	}
	switch reach {
	case policy.SameProcess:
		return farProcess, busy
	case policy.SameHost:
		switch {
		case numaOf(a) == 0 || numaOf(b) == 0:
			return farHost, busy
		case numaOf(a) == numaOf(b):
			return farNode, busy
		}
		return farCross, busy
	case policy.SameDomain:
		return farDomain, busy
	}
	far = farNetwork
	x, y := p.rail(a), p.rail(b)
	if x >= 0 && y >= 0 && a.Rails[x].Name == b.Rails[y].Name {
		far = farRail
	}
	if x >= 0 {
		busy = max(busy, a.Rails[x].Load)
	}
	if y >= 0 {
		busy = max(busy, b.Rails[y].Load)
	}
	return far, busy
}

// costOf is what a bit costs that is so busy: the more, the less is left of it.
func costOf(busy policy.Load) uint64 { return 840 / uint64(9-max(busy, 1)) }

// manner is one way to choose among replicas.
type manner struct {
	near, weigh bool
	most        int
	parity      int // 1: even ranks first, 2: odd ones
}

func manners(name string) []manner {
	if name == "rails" {
		return []manner{{true, true, 1, 0}, {false, true, 1, 0}, {true, false, 3, 0}, {false, false, 3, 0}}
	}
	return []manner{{false, true, 1, 0}, {false, false, 8, 0}, {false, false, 8, 1}, {false, false, 8, 2}}
}

// toil is what an alternative takes: its busiest source rank, and all together.
type toil struct{ most, all uint64 }

func toilOf(given []uint64) (t toil) {
	for _, n := range given {
		t.most, t.all = max(t.most, n), t.all+n
	}
	return t
}

func (t toil) compare(o toil) int {
	return cmp.Or(cmp.Compare(t.most, o.most), cmp.Compare(t.all, o.all))
}

// spreadOut is the native twin of the remap of rails and mla-spread, which
// match a pair so many times at most.
func spreadOut(name string, q policy.RemapQuestion, most, matches int) [][]plan.Assignment {
	p := &places{source: q.Source.Places, destination: q.Destination.Places, edges: q.Edges}
	price := func(d, s int) uint64 {
		far, busy := p.between(s, d)
		if name == "mla-spread" {
			return costOf(busy)
		}
		return fares[far] * costOf(busy)
	}
	type found struct {
		as   []plan.Assignment
		toil toil
	}
	var all []found
	for _, m := range manners(name) {
		t := twin{load: make([]uint64, len(q.Pair.Source.Ranks)), price: price}
		if m.near {
			t.far = func(d, s int) int { far, _ := p.between(s, d); return far }
		}
		if m.weigh {
			t.toll = func(d, s int) uint64 { _, busy := p.between(s, d); return costOf(busy) }
		}
		for r := range t.load {
			if m.parity > 0 && r%2 == m.parity%2 {
				t.load[r] = 1 << 50
			}
		}
		var first []plan.Assignment
		for i, own := 0, 0; own < m.most && len(all) < most && i < 16 && matches > 0; i++ {
			matches--
			as := t.match(q.Pair)
			if slices.ContainsFunc(all, func(f found) bool { return reflect.DeepEqual(f.as, as) }) {
				if i > 0 && reflect.DeepEqual(as, first) {
					break
				}
			} else {
				all = append(all, found{as, toilOf(t.given)})
				own++
			}
			if i == 0 {
				first = as
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.toil.compare(b.toil) })
	var out [][]plan.Assignment
	for _, f := range all {
		out = append(out, f.as)
	}
	return out
}

// drawSite draws where the engines of a pair run; as often as not some of it is
// not known.
func drawSite(m *sample.Maker, q *policy.RemapQuestion) {
	n, k := len(q.Pair.Source.Ranks), len(q.Pair.Destination.Ranks)
	one := func(words ...string) string { return words[m.IntN(len(words))] }
	load := func() policy.Load {
		if m.Chance(40) {
			return 0
		}
		return policy.Load(1 + m.IntN(8))
	}
	about := func(ranks int) (a policy.About) {
		if m.Chance(10) {
			return a
		}
		for r := range ranks {
			p := policy.Place{Host: one("", "node-1", "node-2", "node-3"), Domain: one("", "", "nvl-1", "nvl-2"), NUMA: m.IntN(3), Load: load()}
			if m.Chance(50) {
				p.Devices = append(p.Devices, policy.Device{ID: fmt.Sprintf("GPU-%d", r), Kind: policy.CUDAMemory, NUMA: m.IntN(3)})
			}
			for _, name := range []string{"mlx5_0", "mlx5_1", "eth0"}[:m.IntN(4)] {
				p.Rails = append(p.Rails, policy.Rail{Name: name, NUMA: m.IntN(3), Gbits: []int{0, 100, 400}[m.IntN(3)], Load: load()})
			}
			a.Places = append(a.Places, p)
		}
		return a
	}
	q.Source, q.Destination = about(n), about(k)
	for i, name := range []string{"shm", "tcp", "nixl"}[:1+m.IntN(3)] {
		q.Providers = append(q.Providers, policy.Provider{Name: name, Memory: []policy.Memory{policy.HostMemory}, OneSided: i != 1, Strides: i != 2, PeerCPU: i != 2})
	}
	if m.Chance(20) {
		return
	}
	for s := 0; s < n; {
		to := min(s+1+m.IntN(4), n)
		for d := 0; d < k; {
			until := min(d+1+m.IntN(4), k)
			e := policy.Edge{Source: plan.Range{From: s, To: to}, Destination: plan.Range{From: d, To: until}, Reach: policy.Reach(m.IntN(5)), Load: load()}
			for i := range q.Providers {
				if m.Chance(80) {
					e.Providers = append(e.Providers, i)
				}
			}
			if m.Chance(90) {
				q.Edges = append(q.Edges, e)
			}
			d = until
		}
		s = to
	}
}

// proved builds and proves an alternative; false where the pair cannot be
// planned for halves of bytes, which no policy can know.
func proved(t *testing.T, seed uint64, pair *plan.Pair, as []plan.Assignment) bool {
	t.Helper()
	pl, err := build.Build(pair, as, nil, plan.DefaultBudget())
	if err != nil {
		var half *build.Unaligned
		if !asUnaligned(err, &half) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return false
	}
	if _, err := proof.Check(pair, pl); err != nil {
		t.Fatalf("seed %d: %+v", seed, err)
	}
	return true
}

// Every answer of rails and mla-spread is the twin's, over random pairs and
// sites; each alternative is proved, and chooses anew.
func TestAlternativesAreTheTwinsAndProved(t *testing.T) {
	for _, name := range []string{"rails", "mla-spread"} {
		t.Run(name, func(t *testing.T) {
			p := open(t, name)
			seeds, several, more, cut := 1500, 0, 0, 0
			if testing.Short() {
				seeds = 300
			}
			for seed := range uint64(seeds) {
				m := sample.New(seed)
				q := policy.RemapQuestion{Pair: m.Pair()}
				if seed%2 == 1 { // larger ones, which have no layouts to prove in
					q.Pair = drawn(m)
				}
				drawSite(m, &q)
				most := 8
				if m.Chance(20) {
					most = 1 + m.IntN(8)
					q.Configuration = fmt.Appendf(nil, `{"alternatives":%d}`, most)
				}
				answer, err := p.RemapFor(context.Background(), q)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				want := spreadOut(name, q, most, 1000)
				if strings.Contains(answer.Reason, "as many as there is fuel for") {
					for n := 1; n < 50 && !reflect.DeepEqual(answer.Alternatives, want); n++ {
						want = spreadOut(name, q, most, n)
					}
					cut++
				}
				if !reflect.DeepEqual(answer.Alternatives, want) {
					t.Fatalf("seed %d: %d alternatives (%s)\n%v\nwant %d\n%v", seed, len(answer.Alternatives), answer.Reason, answer.Alternatives, len(want), want)
				}
				if len(want) > 1 {
					several++
				}
				if len(want) > 4 {
					more++
				}
				if seed%2 == 0 {
					for _, as := range answer.Alternatives {
						proved(t, seed, q.Pair, as)
					}
				}
			}
			t.Logf("%d pairs, %d with several alternatives, %d with more than four, %d cut short", seeds, several, more, cut)
			if cut > seeds/20 || several < seeds/10 || more < seeds/100 {
				t.Error("the draw shows nothing")
			}
		})
	}
}

// chosen is the native twin of which alternative a route takes, and of how many
// that take as little.
func chosen(name string, q policy.RouteQuestion) (index, equals int) {
	p := &places{source: q.Source.Places, destination: q.Destination.Places, edges: q.Edges, loads: true}
	var each []toil
	for _, flows := range q.Alternatives {
		given := map[int]uint64{}
		for _, f := range flows {
			far, busy := p.between(f.Source, f.Destination)
			price := costOf(busy)
			if name == "rails" {
				price *= fares[far]
			}
			given[f.Source] += (uint64(f.Bytes)>>10 + 1) * price
		}
		var t toil
		for _, n := range given {
			t.most, t.all = max(t.most, n), t.all+n
		}
		each = append(each, t)
	}
	least := slices.MinFunc(each, toil.compare)
	before := len(each) - 1
	if q.Previous != nil {
		before = q.Previous.Alternative
	}
	index = -1
	for i := range each {
		if k := (before + 1 + i) % len(each); each[k] == least {
			if equals++; index < 0 {
				index = k
			}
		}
	}
	return index, equals
}

// order is the native twin of the transports that rails names; nil: as
// configured.
func order(q policy.RouteQuestion, flows []policy.Flow) []int {
	p := &places{edges: q.Edges}
	serves := map[int]bool{}
	for _, f := range flows {
		e := p.edge(f.Source, f.Destination)
		if len(e.Providers) == 0 {
			return nil
		}
		for _, i := range e.Providers {
			serves[i] = true
		}
	}
	var out []int
	for i := range q.Providers {
		if serves[i] {
			out = append(out, i)
		}
	}
	weight := func(i int) int {
		w := 0
		if !q.Providers[i].OneSided {
			w += 4
		}
		if !q.Providers[i].Strides {
			w += 2
		}
		if q.Providers[i].PeerCPU {
			w++
		}
		return w
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(weight(a), weight(b)) })
	return out
}

// drawRoute draws a transfer of a pair by some alternatives.
func drawRoute(m *sample.Maker) policy.RouteQuestion {
	pair := policy.RemapQuestion{Pair: drawn(m)}
	drawSite(m, &pair)
	q := policy.RouteQuestion{Model: "m", Source: policy.Party{Name: "prefill", About: pair.Source}, Destination: policy.Party{Name: "decode", About: pair.Destination},
		Tokens: m.IntN(1 << 17), Limits: policy.Limits{Streams: m.IntN(9)}, Providers: pair.Providers, Edges: pair.Edges}
	q.Cached = m.IntN(q.Tokens + 1)
	n, k := len(pair.Pair.Source.Ranks), len(pair.Pair.Destination.Ranks)
	size := int64(1+m.IntN(1<<20)) << m.IntN(12)
	for range 1 + m.IntN(8) {
		var flows []policy.Flow
		for d := range k {
			for _, s := range m.Perm(n)[:min(n, 1+m.IntN(2))] {
				flows = append(flows, policy.Flow{Source: s, Destination: d, Bytes: size, Pieces: 1})
			}
		}
		q.Alternatives = append(q.Alternatives, flows)
	}
	if m.Chance(50) {
		q.Previous = &policy.Decision{Alternative: m.IntN(len(q.Alternatives))}
	}
	return q
}

// Routes are the twin's, and such as the host accepts.
func TestRoutesAreTheTwins(t *testing.T) {
	for _, name := range []string{"rails", "mla-spread"} {
		t.Run(name, func(t *testing.T) {
			p := open(t, name)
			seeds, turns, bound, streams, ordered := 3000, 0, 0, 0, 0
			if testing.Short() {
				seeds = 300
			}
			for seed := range uint64(seeds) {
				m := sample.New(seed)
				q := drawRoute(m)
				d, clamped, err := p.Route(context.Background(), q)
				if err != nil || len(clamped) > 0 {
					t.Fatalf("seed %d: %v %v", seed, clamped, err)
				}
				index, equals := chosen(name, q)
				if d.Alternative != index {
					t.Fatalf("seed %d: alternative %d (%s), want %d", seed, d.Alternative, d.Reason, index)
				}
				if equals > 1 {
					turns++
				}
				if name == "mla-spread" {
					if d.Providers != nil || d.Streams != 0 || d.Rails != nil {
						t.Fatalf("seed %d: %+v, want nothing but the alternative", seed, d)
					}
					continue
				}
				flows := q.Alternatives[index]
				if want := order(q, flows); !slices.Equal(d.Providers, want) {
					t.Fatalf("seed %d: transports %v, want %v", seed, d.Providers, want)
				}
				want := 0
				if q.Limits.Streams > 1 {
					want = int(min(int64(q.Limits.Streams), flows[0].Bytes/4096*int64(q.Tokens-q.Cached)/(32<<20)+1))
				}
				if d.Streams != want {
					t.Fatalf("seed %d: %d streams, want %d", seed, d.Streams, want)
				}
				where := &places{source: q.Source.Places, destination: q.Destination.Places, edges: q.Edges, loads: true}
				var rails []policy.RailChoice
				for _, side := range []policy.Role{policy.Source, policy.Destination} {
					list := q.Source.Places
					if side == policy.Destination {
						list = q.Destination.Places
					}
					for r, at := range list {
						if len(at.Rails) > 1 && slices.ContainsFunc(flows, func(f policy.Flow) bool {
							far, _ := where.between(f.Source, f.Destination)
							return far >= farRail && (side == policy.Source && f.Source == r || side == policy.Destination && f.Destination == r)
						}) {
							rails = append(rails, policy.RailChoice{Side: side, Rank: r, Rail: where.rail(at)})
						}
					}
				}
				if !slices.Equal(d.Rails, rails) {
					t.Fatalf("seed %d: rails %v, want %v", seed, d.Rails, rails)
				}
				bound += len(rails)
				if want > 1 {
					streams++
				}
				if len(d.Providers) > 1 {
					ordered++
				}
			}
			t.Logf("%d routes: %d by turns, %d with several streams, %d with transports in order, %d rails bound", seeds, turns, streams, ordered, bound)
			if turns < seeds/20 || name == "rails" && (streams < seeds/20 || ordered < seeds/20 || bound < seeds) {
				t.Error("the draw shows nothing")
			}
		})
	}
}

// One after another transfers read from every replica, and from a busy one not
// at all while others have time.
func TestTransfersTakeTurns(t *testing.T) {
	pair := parsePair(t, "vllm-mla-p8-d2")
	p := open(t, "mla-spread")
	q := policy.RemapQuestion{Pair: pair}
	answer, err := p.RemapFor(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Alternatives) != 8 {
		t.Fatalf("%d alternatives for eight replicas and two readers", len(answer.Alternatives))
	}
	transfer := func(loads func(rank int) policy.Load) (read [8]int) {
		var previous *policy.Decision
		for range 8 {
			r := routed(q, answer)
			for rank := range 8 {
				r.Source.Places = append(r.Source.Places, policy.Place{Load: loads(rank)})
			}
			r.Previous = previous
			d, _, err := p.Route(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Alternatives[d.Alternative] {
				read[f.Source]++
			}
			previous = &d
		}
		return read
	}
	if got := transfer(func(int) policy.Load { return 1 }); got != [8]int{2, 2, 2, 2, 2, 2, 2, 2} {
		t.Errorf("eight transfers read %v times from the ranks, want as often from each", got)
	}
	if got := transfer(func(rank int) policy.Load { return policy.Load(1 + rank%2*4) }); got != [8]int{4, 0, 4, 0, 4, 0, 4, 0} {
		t.Errorf("read %v times; the odd ranks are busy", got)
	}
	busy := transfer(func(rank int) policy.Load {
		if rank < 2 {
			return 8
		}
		return 1
	})
	if busy[0] > 0 || busy[1] > 0 || busy[2] == 0 || busy[4] == 0 {
		t.Errorf("read %v times; ranks 0 and 1 are busiest", busy)
	}
}

// What the operator sets is taken, and what is no setting is declined by name.
func TestSpreadConfiguration(t *testing.T) {
	ctx := context.Background()
	q := policy.RemapQuestion{Pair: parsePair(t, "vllm-mla-p8-d2")}
	for _, name := range []string{"rails", "mla-spread"} {
		p := open(t, name)
		for _, c := range []struct{ configuration, want string }{
			{`{}`, ""}, {`{"alternatives":2}`, ""},
			{`[]`, "configuration: want an object of settings"},
			{`{"alternatives":0}`, "configuration: alternatives: want a number from 1 to 8"},
			{`{"alternatives":"3"}`, "configuration: alternatives: want a number from 1 to 8"},
			{`{"alternatives":2.5}`, "configuration: alternatives: want a number from 1 to 8"},
			{`{"prefer":["mlx5_1"]}`, "configuration: prefer: this policy has no such setting"},
			{`{"` + strings.Repeat("x", 99) + `":1}`, "configuration: a name: this policy has no such setting"},
		} {
			q.Configuration = []byte(c.configuration)
			_, err := p.RemapFor(ctx, q)
			var declined *policy.Declined
			if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &declined) || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("%s, %.40s: error %v, want %q", name, c.configuration, err, c.want)
			}
		}
	}
	rails := open(t, "rails")
	q.Configuration = nil
	crowded(&q)
	q.Edges[0].Providers = []int{1}
	answer, err := rails.RemapFor(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		configuration string
		want          []int
		err           string
	}{
		{``, []int{1}, ""},
		{`{"transports":["nixl"]}`, []int{1}, ""},
		{`{"transports":["absent","tcp","nixl","tcp"]}`, []int{0, 1}, ""},
		{`{"transports":["tcp"]}`, nil, "configuration: transports: none of them is here and serves source rank"},
		{`{"transports":["absent"]}`, nil, "configuration: transports: none of them is here and serves source rank"},
		{`{"transports":[]}`, nil, "configuration: transports: want a list of names of transports, in order"},
		{`{"transports":"tcp"}`, nil, "configuration: transports: want a list of names of transports, in order"},
		{`{"transports":[1]}`, nil, "configuration: transports: want a list of names of transports, in order"},
	} {
		r := routed(q, answer)
		r.Configuration = []byte(c.configuration)
		d, _, err := rails.Route(ctx, r)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.configuration, err, c.err)
			}
		} else if err != nil || !slices.Equal(d.Providers, c.want) {
			t.Errorf("%s: transports %v (%v), want %v", c.configuration, d.Providers, err, c.want)
		}
	}
}
