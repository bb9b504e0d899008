package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
	"github.com/kvferry/kvferry/transport/shm"
	"github.com/kvferry/kvferry/transport/tcp"
)

// policyModule returns the module that a name or file stands for.
func policyModule(name string) ([]byte, error) {
	if module, ok := policies.Get(name); ok {
		return module, nil
	}
	if !strings.HasSuffix(name, ".wasm") {
		return nil, &UsageError{"policy", name, "no built-in policy of that name (" + strings.Join(policies.Names(), ", ") + ") and no .wasm file"}
	}
	b, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return nil, blame.On(blame.Operator, fmt.Errorf("read the policy: %w", err))
	}
	return b, nil
}

// chosen is the layout that an engine keeps its cache in.
type chosen struct {
	name   string
	spec   layout.Spec
	reason string
}

// choose asks the policy which of the layouts that the engine's attention can
// do it should use, unless the engine was told one.
func (e *engine) choose(ctx context.Context) (chosen, error) {
	if e.start.Lie {
		// A label that lost touch with the bytes: the strides say NHD.
		spec, _ := preset.Lookup("nhd")
		spec.Name = "HND"
		return chosen{"hnd", spec, "told"}, nil
	}
	if name := e.start.Side.Layout; name != "" {
		spec, ok := preset.Lookup(name)
		if !ok {
			return chosen{}, &UsageError{e.start.Role, name, "no such preset"}
		}
		return chosen{name, spec, "told"}, nil
	}
	peer := engineRole(e.other())
	own, err := e.candidates(engineName(e.start.Role), e.start.Side)
	if err != nil {
		return chosen{}, err
	}
	other, err := e.candidates(e.other(), e.start.Peer)
	if err != nil {
		return chosen{}, err
	}
	role := policy.Source
	if peer == "source" {
		role = policy.Destination
	}
	choice, err := e.policy.SelectLayout(ctx, policy.Question{Engine: own, Role: role, Peers: []policy.Engine{other}})
	if err != nil {
		can := geometry.Difference{Field: "layout", Source: "can " + strings.Join(e.start.Side.Can, ", "), Destination: "can " + strings.Join(e.start.Peer.Can, ", ")}
		if role == policy.Destination {
			can.Source, can.Destination = can.Destination, can.Source
		}
		return chosen{}, &refusal.Layout{Fields: []geometry.Difference{can}, Err: err}
	}
	c := own.Candidates[choice.Index]
	return chosen{c.Name, c.Layout, choice.Reason}, nil
}

func engineRole(name string) string {
	if name == engineName("source") {
		return "source"
	}
	return "destination"
}

// candidates is an engine as the policy sees it.
func (e *engine) candidates(name string, side SideConfig) (policy.Engine, error) {
	m := e.model.Geometry()
	s, err := side.Shard(m)
	if err != nil {
		return policy.Engine{}, err
	}
	out := policy.Engine{Name: name, Model: m, Shard: s}
	for _, c := range side.Can {
		spec, ok := preset.Lookup(c)
		if !ok {
			return policy.Engine{}, &UsageError{engineRole(name), c, "no such preset"}
		}
		out.Candidates = append(out.Candidates, policy.Candidate{Name: c, Layout: spec, Block: side.Block, Blocks: e.start.Blocks})
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
