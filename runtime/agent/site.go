package agent

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/load"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// What policies are told: what the operator and the engines said, what was found
// out, what peers told, and how busy all of it is.

// here completes what an engine says of itself with what is found out about the
// ranks that this agent holds. What is said counts.
func (a *Agent) here(e *Engine, said policy.About) session.Site {
	site := session.Site{Machine: a.local.Machine, Process: a.local.Process, About: said}
	site.About.Labels = maps.Clone(said.Labels)
	places := slices.Clone(said.Places)
	if places == nil {
		places = make([]policy.Place, len(e.desc.Side.Ranks))
	}
	known := false
	for r := range places {
		p := &places[r]
		if m, held := e.held[r]; held {
			if p.Host == "" {
				p.Host = a.local.Host
			}
			// The process's node is where the memory lies that it allocates; a
			// device's is the device's.
			if p.NUMA == 0 && onHost(m) {
				p.NUMA = a.local.NUMA
			}
		}
		known = known || session.Known(*p)
	}
	if site.About.Places = nil; known {
		site.About.Places = places
	}
	return site
}

func onHost(m memory.Rank) bool {
	for _, group := range m.Buffers {
		for _, b := range group {
			if b.Kind() != memory.Host {
				return false
			}
		}
	}
	return true
}

// transports are the configured providers as policies know them.
func (a *Agent) transports() []policy.Provider {
	var out []policy.Provider
	for _, p := range a.cfg.Providers {
		c := p.Capabilities()
		known := policy.Provider{Name: p.Name(), OneSided: c.OneSided, PeerCPU: c.NeedsPeerCPU, Strides: c.NativeStrides, CRC: c.CRC, TLS: c.TLS, Piece: c.Efficient}
		for _, m := range c.Memory {
			kind := policy.OtherMemory
			switch m {
			case memory.Host:
				kind = policy.HostMemory
			case memory.CUDA:
				kind = policy.CUDAMemory
			}
			known.Memory = append(known.Memory, kind)
		}
		out = append(out, known)
	}
	return out
}

// survey is what is known of a pair, from our side.
type survey struct {
	ours, theirs policy.About
	edges        []policy.Edge // nil: too many to say
}

// by gives the abouts in the pair's order.
func (s *survey) by(role session.Role) (source, destination policy.About) {
	if role == session.Source {
		return s.ours, s.theirs
	}
	return s.theirs, s.ours
}

// survey looks at a pair through the links that there are, as of the latest
// sample of all loads.
// Preconditions: there is a link; all are of one peer.
func (e *Engine) survey(links []*link) *survey {
	a := e.agent
	loads := a.sample()
	out := &survey{ours: e.loaded(loads)}
	side := &links[0].result.Peer.Engine.Side
	var sites []*session.Site
	var held [][]int
	for _, l := range links {
		sites, held = append(sites, &l.result.Peer.Site), append(held, l.result.Peer.Engine.Held)
	}
	out.theirs = session.Merge(sites, held, len(side.Ranks))
	if out.theirs.Places == nil {
		out.theirs.Places = make([]policy.Place, len(side.Ranks))
	}
	for r := range out.theirs.Places {
		out.theirs.Places[r].Load = loads.Known(rankLoad(side.Engine, r))
	}
	for _, l := range links {
		out.edges = append(out.edges, l.reaches(loads.Load(l.load()))...)
	}
	if len(out.edges) > policy.MaxEdges {
		out.edges = nil
	}
	return out
}

// loaded is what is known of the engine, with how busy our ranks are.
func (e *Engine) loaded(loads load.Snapshot[loadKey]) policy.About {
	out := e.site.About
	out.Places = slices.Clone(out.Places)
	if out.Places == nil {
		out.Places = make([]policy.Place, len(e.desc.Side.Ranks))
	}
	for _, r := range e.desc.Held {
		out.Places[r].Load = loads.Load(rankLoad(e.owner.Engine, r))
	}
	return out
}

// told is what a hello says of the engine.
func (e *Engine) told() session.Site {
	out := e.site
	out.About = e.loaded(e.agent.sample())
	return out
}

// greeted takes what the peer's hello says of how busy its ranks are.
func (l *link) greeted() {
	var loads []transfer.Load
	places := l.result.Peer.Site.About.Places
	for _, r := range l.result.Peer.Engine.Held {
		if r < len(places) && places[r].Load > 0 {
			loads = append(loads, transfer.Load{Rank: r, Load: uint8(places[r].Load)})
		}
	}
	_ = l.told(loads) // they are of ranks that it holds
}

// reaches are the edges between our ranks and those of the link's agent: ranks
// that are connected alike are one edge.
func (l *link) reaches(busy policy.Load) []policy.Edge {
	healthy := l.healthy()
	var via []int
	for i, p := range l.agent.cfg.Providers {
		if slices.Contains(healthy, p.Name()) {
			via = append(via, i)
		}
	}
	own, peer := &l.engine.site, &l.result.Peer.Site
	source, destination := l.engine.desc.Held, l.result.Peer.Engine.Held
	if l.role == session.Destination {
		own, peer = peer, own
		source, destination = destination, source
	}
	return edges(source, destination, via, busy, func(s, d int) policy.Reach { return session.Reach(own, s, peer, d) })
}

// edges groups ranks in a row that are as near to the same ranks.
// Preconditions: source and destination ascend.
func edges(source, destination []int, via []int, busy policy.Load, reach func(s, d int) policy.Reach) []policy.Edge {
	type stretch struct {
		ranks plan.Range
		reach policy.Reach
	}
	row := func(s int) []stretch {
		var out []stretch
		for _, d := range destination {
			r := reach(s, d)
			if k := len(out) - 1; k >= 0 && out[k].ranks.To == d && out[k].reach == r {
				out[k].ranks.To++
				continue
			}
			out = append(out, stretch{plan.Range{From: d, To: d + 1}, r})
		}
		return out
	}
	var out []policy.Edge
	for i := 0; i < len(source); {
		first := row(source[i])
		j := i + 1
		for j < len(source) && source[j] == source[j-1]+1 && slices.Equal(row(source[j]), first) {
			j++
		}
		for _, s := range first {
			out = append(out, policy.Edge{Source: plan.Range{From: source[i], To: source[j-1] + 1}, Destination: s.ranks, Providers: via, Reach: s.reach, Load: busy})
		}
		i = j
	}
	return out
}

// configuration is what the operator tells the policy.
func (a *Agent) configuration() []byte { return a.configurations[a.cfg.Policy.Name()] }

// maxPrevious bounds the assignments of an answer that a policy is shown again.
const maxPrevious = 1 << 13

// remapQuestion is what the policy is asked about a pair.
func (e *Engine) remapQuestion(pair *plan.Pair, role session.Role, links []*link, previous [][]plan.Assignment) policy.RemapQuestion {
	s := e.survey(links)
	q := policy.RemapQuestion{Pair: pair, Providers: e.agent.transports(), Edges: s.edges, Configuration: e.agent.configuration()}
	q.Source, q.Destination = s.by(role)
	n := 0
	for _, as := range previous {
		n += len(as)
	}
	if n <= maxPrevious {
		q.Previous = previous
	}
	return q
}

// rounded has the four leading bits of n: requests of about one length are asked
// about once.
func rounded(n int64) int {
	drop := 0
	for n>>drop >= 16 {
		drop++
	}
	return int(n >> drop << drop)
}

// rankLoads are the loads of our held ranks, as a beat carries them.
func (e *Engine) rankLoads() []transfer.Load {
	loads := e.agent.sample()
	var out []transfer.Load
	for _, r := range e.desc.Held {
		if l := loads.Load(rankLoad(e.owner.Engine, r)); l > 0 {
			out = append(out, transfer.Load{Rank: r, Load: uint8(l)})
		}
	}
	return out
}
