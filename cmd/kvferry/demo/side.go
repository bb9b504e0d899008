package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// SideConfig is the shape of one of the two engines.
type SideConfig struct {
	TP     int      `json:"tp"`
	PP     int      `json:"pp"`
	DCP    int      `json:"dcp"`
	Block  int      `json:"block"`            // tokens; a group with a window has blocks of half of them
	Layout string   `json:"layout,omitempty"` // told; "" asks the policy among Can
	Can    []string `json:"can,omitempty"`    // presets that the engine's attention can read and write, best first
	State  []string `json:"state,omitempty"`  // presets for a group of states, best first; a told Layout goes with the first
}

// Set changes the fields that text names: "tp=4,layout=nhd,block=32" or
// "can=hnd,nhd". A word without "=" continues the list before it.
func (s *SideConfig) Set(flag, text string) error {
	key := ""
	for field := range strings.SplitSeq(text, ",") {
		k, v, ok := strings.Cut(field, "=")
		if !ok {
			if key != "can" && key != "state" {
				return &UsageError{flag, text, fmt.Sprintf("%q is not name=value", field)}
			}
			k, v = key, field
		} else if k == "can" {
			s.Can, s.Layout = nil, ""
		} else if k == "state" {
			s.State = nil
		}
		key = k
		switch k {
		case "tp", "pp", "dcp", "block":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > 1<<16 {
				return &UsageError{flag, text, fmt.Sprintf("%s is %q, want a number from 1 to 65536", k, v)}
			}
			switch k {
			case "tp":
				s.TP = n
			case "pp":
				s.PP = n
			case "dcp":
				s.DCP = n
			case "block":
				s.Block = n
			}
		case "layout", "can", "state":
			if err := s.name(flag, text, k, v); err != nil {
				return err
			}
		default:
			return &UsageError{flag, text, fmt.Sprintf("unknown name %q (known: tp, pp, dcp, block, layout, can, state)", k)}
		}
	}
	return nil
}

// name adds the layouts that v names.
func (s *SideConfig) name(flag, text, k, v string) error {
	for name := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '+' || r == '|' || r == ' ' }) {
		if _, ok := lookup(name); !ok {
			return &UsageError{flag, text, fmt.Sprintf("no layout preset is called %q (kvferry plan presets lists them; the demo has %s, too)", name, partsName)}
		}
		switch {
		case k == "layout" && v != name:
			return &UsageError{flag, text, fmt.Sprintf("layout tells one layout, %q is several: offer them with can=", v)}
		case k == "layout":
			s.Layout, s.Can = name, []string{name}
		case k == "state" && !slices.Contains(s.State, name):
			s.State = append(s.State, name)
		case k == "can" && !slices.Contains(s.Can, name):
			s.Can = append(s.Can, name)
		}
	}
	if v == "" {
		return &UsageError{flag, text, k + " names no layout"}
	}
	return nil
}

// partsName is a layout for the parts of a latent that no engine is known to
// have: all latents of a block, then all its rotated parts.
const partsName = "mla-parts"

// lookup returns the layout of a name: a preset's, or one of the demo's own.
func lookup(name string) (layout.Spec, bool) {
	if name == partsName {
		items := layout.Items(layout.Item{Axis: geometry.Block}, layout.Item{Axis: geometry.Token}, layout.Item{Axis: geometry.Dim})
		return layout.Spec{Order: slices.Insert(items, 1, layout.Entry{Component: true})}, true
	}
	return preset.Lookup(name)
}

// candidate is one way in which an engine can keep its whole cache.
type candidate struct {
	name    string
	layouts []layout.Spec // by group of the model
}

// candidates are the ways in which the engine can keep the cache of model m, in
// its order of preference. All groups of tokens lie alike.
func (s SideConfig) candidates(m geometry.Model) []candidate {
	states := []string{""}
	if slices.ContainsFunc(m.Groups, func(g geometry.Group) bool { return g.State }) {
		states = s.State
	}
	var out []candidate
	for _, name := range s.Can {
		for _, state := range states {
			c := candidate{name: name}
			if state != "" {
				c.name += " + " + state
			}
			for _, g := range m.Groups {
				of := name
				if g.State {
					of = state
				}
				spec, _ := lookup(of) // Set knows no others
				c.layouts = append(c.layouts, spec)
			}
			out = append(out, c)
		}
	}
	return out
}

// Shard is the side's shard of model m.
func (s SideConfig) Shard(m geometry.Model) (shard.Spec, error) {
	order, err := shard.Order(nil)
	if err != nil {
		return shard.Spec{}, err
	}
	stages, err := s.stages(m.Layers)
	if err != nil {
		return shard.Spec{}, err
	}
	return shard.Spec{TP: s.TP, Stages: stages, DCPSize: s.DCP, Interleave: 1, Order: order}, nil
}

// stages splits the layers as evenly as they go, the earlier stages taking the
// remainder.
func (s SideConfig) stages(layers int) ([]int, error) {
	if s.PP > layers {
		return nil, &shard.Error{Field: "pp", Value: s.PP, Reason: fmt.Sprintf("the model has %d layers", layers)}
	}
	out := make([]int, s.PP)
	for i := range out {
		out[i] = layers / s.PP
		if i < layers%s.PP {
			out[i]++
		}
	}
	return out, nil
}

// pools are the block pools by group, with so many blocks each, of an engine in
// its role: the destination keeps a group with a window in a ring, the source in
// a table without end.
func (s SideConfig) pools(m geometry.Model, role string, sh shard.Spec, blocks []int) []plan.Pool {
	out := make([]plan.Pool, len(m.Groups))
	for g, group := range m.Groups {
		p := plan.Pool{Block: s.Block}
		if blocks != nil {
			p.Blocks = blocks[g]
		}
		switch {
		case group.State:
			p.Block = 1
			if sh.DCPSize > 1 { // states have no tokens to deal: heads go over those ranks, too
				own := sh
				own.TP, own.DCPSize = sh.TP*sh.DCPSize, 1
				p.Shard = &own
			}
		case group.Window > 0:
			p.Block = max(s.Block/2, 1)
			if role == "destination" {
				// The block being written, and those of the window before it.
				p.Ring = entries(int64(group.Window-1), p, sh) + 1
			}
		}
		out[g] = p
	}
	return out
}

// entries is the number of table entries for n tokens.
func entries(n int64, p plan.Pool, sh shard.Spec) int {
	per := int64(p.Block) * int64(sh.DCPSize)
	return int((n + per - 1) / per)
}

// need is the number of blocks that a request of n tokens takes of each group.
func need(m geometry.Model, pools []plan.Pool, sh shard.Spec, n int64) []int {
	out := make([]int, len(pools))
	for g, p := range pools {
		switch {
		case m.Groups[g].State:
			out[g] = 1
		case p.Ring > 0:
			out[g] = p.Ring
		default:
			out[g] = entries(n, p, sh)
		}
	}
	return out
}

// probeTokens is how many tokens the blocks for probe transfers hold.
func (s SideConfig) probeTokens() int64 { return int64(s.Block * s.DCP) }

// side is an engine with all ranks in one candidate's layouts.
func (s SideConfig) side(engine, role string, m geometry.Model, c candidate, blocks []int) (plan.Side, error) {
	sh, err := s.Shard(m)
	if err != nil {
		return plan.Side{}, err
	}
	side := plan.Side{Engine: engine, Model: m, Shard: sh, Groups: s.pools(m, role, sh, blocks)}
	for r := range sh.Ranks() {
		var layouts []*layout.Layout
		for g, group := range m.Groups {
			var l *layout.Layout
			if part := side.Part(g, r); len(part.Layers) > 0 {
				if l, err = c.layouts[g].Resolve(part.Extent(group, side.Groups[g].Block, side.Groups[g].Blocks)); err != nil {
					return plan.Side{}, fmt.Errorf("lay out rank %d of engine %s: %w", r, engine, err)
				}
			}
			layouts = append(layouts, l)
		}
		side.Ranks = append(side.Ranks, layouts)
	}
	return side, side.Validate(engine)
}

// String is the side in the form that Set reads.
func (s SideConfig) String() string {
	text := fmt.Sprintf("tp=%d,pp=%d,block=%d", s.TP, s.PP, s.Block)
	if s.DCP > 1 {
		text += fmt.Sprintf(",dcp=%d", s.DCP)
	}
	if s.Layout != "" {
		text += ",layout=" + s.Layout
	} else {
		text += ",can=" + strings.Join(s.Can, ",")
	}
	if len(s.State) > 0 {
		text += ",state=" + strings.Join(s.State, ",")
	}
	return text
}
