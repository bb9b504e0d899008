package agent

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/load"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// loadKey names what is metered: a rank of an engine, or a link.
type loadKey struct {
	engine string
	rank   int    // -1: a link
	agent  string // of a link: the peer's
}

func rankLoad(engine string, rank int) loadKey { return loadKey{engine: engine, rank: rank} }

// load is the link's key.
func (l *link) load() loadKey {
	return loadKey{l.engine.owner.Engine + " " + l.result.Peer.Engine.Side.Engine, -1, l.result.Peer.Agent}
}

// sample is how busy everything is; it changes once a second at most.
func (a *Agent) sample() load.Snapshot[loadKey] {
	a.metering.Lock()
	defer a.metering.Unlock()
	return a.meter.Sample(a.clock.Now())
}

// burden is what a transfer puts on ranks and a link while it runs.
type burden struct {
	agent *Agent
	of    map[loadKey]int64 // bytes
}

// begin meters what a plan moves over a link, for so many tokens and layers of a
// request: on our ranks, on the peer's as far as we know, and on the link. It is
// what the plan says of an average request, scaled; the exact bytes are known
// only when they have moved.
func (l *link) begin(a *agreed, tokens int64, layers plan.Range) *burden {
	all := max(l.engine.shape.Layers().To-l.engine.shape.Layers().From, 1)
	part := float64(tokens) / build.CostTokens
	if layers != (plan.Range{}) {
		part *= float64(layers.To-layers.From) / float64(all)
	}
	sum := map[loadKey]int64{}
	pair := l.result.Pair
	for _, f := range a.through {
		n := int64(float64(f.Bytes) * part)
		sum[rankLoad(pair.Source.Engine, f.Source)] += n
		sum[rankLoad(pair.Destination.Engine, f.Destination)] += n
		sum[l.load()] += n
	}
	l.agent.metering.Lock()
	for k, n := range sum {
		if !l.agent.meter.Begin(k, n) {
			delete(sum, k)
		}
	}
	l.agent.metering.Unlock()
	l.poke()
	return &burden{l.agent, sum}
}

// end takes the burden off; moved: its bytes arrived. Only the first call counts.
func (b *burden) end(moved bool) {
	if b == nil {
		return
	}
	b.agent.metering.Lock()
	defer b.agent.metering.Unlock()
	for k, n := range b.of {
		arrived := n
		if !moved {
			arrived = 0
		}
		b.agent.meter.End(k, n, arrived)
	}
	b.of = nil
}

// poke has the link look at its loads, and at whether it has something to tell.
func (l *link) poke() {
	select {
	case l.beat <- struct{}{}:
	default:
	}
}

// told takes what a beat says of the peer's ranks.
func (l *link) told(loads []transfer.Load) error {
	if len(loads) == 0 {
		return nil
	}
	h := l.result.Peer
	l.agent.metering.Lock()
	defer l.agent.metering.Unlock()
	for _, o := range loads {
		if !slices.Contains(h.Engine.Held, o.Rank) {
			return blame.On(blame.Peer, &transfer.MessageError{Type: transfer.TypeBeat, Field: "loads", Reason: fmt.Sprintf("rank %d is none of agent %q", o.Rank, h.Agent)})
		}
		l.agent.meter.Tell(rankLoad(h.Engine.Side.Engine, o.Rank), policy.Load(o.Load))
	}
	return nil
}

// untold drops what the peer's agent told.
func (l *link) untold() {
	h := l.result.Peer
	l.agent.metering.Lock()
	defer l.agent.metering.Unlock()
	for _, r := range h.Engine.Held {
		l.agent.meter.Forget(rankLoad(h.Engine.Side.Engine, r))
	}
}
