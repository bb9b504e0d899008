package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
	"github.com/kvferry/kvferry/transport/shm"
	"github.com/kvferry/kvferry/transport/tcp"
)

// module returns the policy's module.
func (c Config) module() ([]byte, error) {
	if c.Module != nil {
		return c.Module, nil
	}
	if module, ok := policies.Get(c.Policy); ok {
		return module, nil
	}
	return nil, &UsageError{"policy", c.Policy, "no built-in policy of that name (" + strings.Join(policies.Names(), ", ") + ")"}
}

// chosen is the layouts that an engine keeps its cache in.
type chosen struct {
	candidate
	reason string
	can    []policy.Candidate // that it was chosen from; nil: the engine was told
}

// choose asks the policy which of the layouts that the engine's attention can
// do it should use, unless the engine was told one.
func (e *engine) choose(ctx context.Context, incarnation string) (chosen, error) {
	m := e.model.Geometry()
	if e.start.Lie == lieLayout {
		// A label that lost touch with the bytes: the strides say NHD.
		side := e.start.Side
		side.Can = []string{"nhd"}
		c := side.candidates(m)[0]
		for g, group := range m.Groups {
			if !group.State {
				c.layouts[g].Name = "HND"
			}
		}
		c.name = strings.Replace(c.name, "nhd", "hnd", 1)
		return chosen{c, "told", nil}, nil
	}
	if e.start.Side.Layout != "" {
		return chosen{e.start.Side.candidates(m)[0], "told", nil}, nil
	}
	own, err := e.candidates(e.start.Role, e.start.Side, e.start.Blocks)
	if err != nil {
		return chosen{}, err
	}
	other, err := e.candidates(otherRole(e.start.Role), e.start.Peer, e.start.PeerBlocks)
	if err != nil {
		return chosen{}, err
	}
	role := policy.Source
	if e.start.Role == "destination" {
		role = policy.Destination
	}
	choice, err := e.agent.SelectLayout(ctx, agent.EngineSpec{ID: own.Name, Incarnation: incarnation, Model: own.Model, Shard: own.Shard, Can: own.Candidates, Role: role, Expected: []policy.Engine{other}})
	if err != nil {
		can := geometry.Difference{Field: "layout", Source: canDo(own), Destination: canDo(other)}
		if role == policy.Destination {
			can.Source, can.Destination = can.Destination, can.Source
		}
		return chosen{}, &refusal.Layout{Fields: []geometry.Difference{can}, Err: err}
	}
	return chosen{e.start.Side.candidates(m)[choice.Index], choice.Reason, own.Candidates}, nil
}

func canDo(e policy.Engine) string {
	var names []string
	for _, c := range e.Candidates {
		names = append(names, c.Name)
	}
	return "can " + strings.Join(names, ", ")
}

func otherRole(role string) string {
	if role == "source" {
		return "destination"
	}
	return "source"
}

// candidates is an engine as the policy sees it.
func (e *engine) candidates(role string, side SideConfig, blocks []int) (policy.Engine, error) {
	m := e.model.Geometry()
	s, err := side.Shard(m)
	if err != nil {
		return policy.Engine{}, err
	}
	out := policy.Engine{Name: engineName(role), Model: m, Shard: s}
	for _, c := range side.candidates(m) {
		out.Candidates = append(out.Candidates, policy.Candidate{Name: c.name, Layouts: c.layouts, Pools: side.pools(m, role, s, blocks)})
	}
	return out, nil
}

// openProvider opens the provider of a process of its own.
func openProvider(name, folder string) (transport.Provider, error) {
	switch name {
	case "shm":
		return shm.New(shm.Options{})
	case "tcp":
		return tcp.New(tcp.Options{Listen: "127.0.0.1:0"})
	}
	return nil, fmt.Errorf("demo: transport %q does not reach another process", name)
}

// loopProviders are the two ends of a network inside this process.
func loopProviders() [2]func(string, string) (transport.Provider, error) {
	network := new(loop.Network)
	open := func(string, string) (transport.Provider, error) { return network.New(loop.Options{}), nil }
	return [2]func(string, string) (transport.Provider, error){open, open}
}
