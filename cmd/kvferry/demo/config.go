// Package demo is the main job in small: a prefill engine and a decode engine
// of different shape, each an OS process with its own agent, hand over the KV
// cache of several requests, and the tokens are compared with an unsplit run.
//
// Everything goes the way it would in production: the policy picks the
// layouts, the sessions shake hands, the plan is proved on both sides and the
// blocks move through a real transport.
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
)

// SideConfig is the shape of one of the two engines.
type SideConfig struct {
	TP     int      `json:"tp"`
	PP     int      `json:"pp"`
	DCP    int      `json:"dcp"`
	Block  int      `json:"block"`
	Layout string   `json:"layout,omitempty"` // told; "" asks the policy among Can
	Can    []string `json:"can,omitempty"`    // presets that the engine's attention can read and write, best first
}

// Config is one run of the demo.
type Config struct {
	Heads       int
	Source      SideConfig
	Destination SideConfig
	Transport   string // loop, shm or tcp
	Mode        string // pull, push, layers or chunks
	Policy      string // built-in name, or a file ending in .wasm
	Unmetered   bool   // lets a policy run whose digest is not built in
	Requests    int
	Tokens      int // generated for each request
	Seed        uint64

	LieLayout  bool // the source engine's label disagrees with its strides
	ReplaySeed bool
	Unchecked  bool
}

// Default is the demo without flags.
func Default() Config {
	return Config{
		Heads:       8,
		Source:      SideConfig{TP: 2, PP: 1, DCP: 1, Block: 16, Can: []string{"hnd", "nhd"}},
		Destination: SideConfig{TP: 4, PP: 1, DCP: 1, Block: 32, Can: []string{"nhd"}},
		Transport:   "shm",
		Mode:        "pull",
		Policy:      "heads",
		Requests:    4,
		Tokens:      24,
		Seed:        1,
	}
}

// UsageError is a flag that cannot be; the command ends with status 2.
type UsageError struct {
	Flag   string
	Value  string
	Reason string
}

func (e *UsageError) Error() string {
	return fmt.Sprintf("--%s %q: %s", e.Flag, e.Value, e.Reason)
}

// Set changes the fields that text names: "tp=4,layout=nhd,block=32" or
// "can=hnd,nhd". A word without "=" continues the list before it.
func (s *SideConfig) Set(flag, text string) error {
	key := ""
	for field := range strings.SplitSeq(text, ",") {
		k, v, ok := strings.Cut(field, "=")
		if !ok {
			if key != "can" {
				return &UsageError{flag, text, fmt.Sprintf("%q is not name=value", field)}
			}
			k, v = "can", field
		} else if k == "can" {
			s.Can, s.Layout = nil, ""
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
		case "layout", "can":
			for name := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '+' || r == '|' || r == ' ' }) {
				if _, ok := preset.Lookup(name); !ok {
					return &UsageError{flag, text, fmt.Sprintf("no layout preset is called %q (kvferry plan presets lists them)", name)}
				}
				if k == "layout" {
					if v != name {
						return &UsageError{flag, text, fmt.Sprintf("layout tells one layout, %q is several: offer them with can=", v)}
					}
					s.Layout, s.Can = name, []string{name}
				} else if !slices.Contains(s.Can, name) {
					s.Can = append(s.Can, name)
				}
			}
			if v == "" {
				return &UsageError{flag, text, k + " names no layout"}
			}
		default:
			return &UsageError{flag, text, fmt.Sprintf("unknown name %q (known: tp, pp, dcp, block, layout, can)", k)}
		}
	}
	return nil
}

// Validate refuses what no engine could be, before a process is started.
func (c Config) Validate(m geometry.Model) error {
	if c.ReplaySeed {
		return c.validateSeed()
	}
	pick := func(flag, v string, known ...string) error {
		if !slices.Contains(known, v) {
			return &UsageError{flag, v, "want one of " + strings.Join(known, ", ")}
		}
		return nil
	}
	if err := pick("transport", c.Transport, "loop", "shm", "tcp"); err != nil {
		return err
	}
	if err := pick("mode", c.Mode, "pull", "push", "layers", "chunks"); err != nil {
		return err
	}
	if err := c.counts(); err != nil {
		return err
	}
	if c.Unchecked && !c.ReplaySeed {
		return &UsageError{"unchecked", "true", "goes with --replay-seed only: nothing else runs unproved"}
	}
	for _, s := range []struct {
		flag string
		side SideConfig
	}{{"source", c.Source}, {"destination", c.Destination}} {
		if err := c.fits(s.side, m); err != nil {
			return &UsageError{s.flag, s.side.String(), err.Error()}
		}
	}
	return nil
}

// counts refuses too few or too many requests or tokens.
func (c Config) counts() error {
	for _, n := range []struct {
		flag        string
		v, low, top int
	}{{"requests", c.Requests, 1, 64}, {"tokens", c.Tokens, 2, 512}} {
		if n.v < n.low || n.v > n.top {
			return &UsageError{n.flag, strconv.Itoa(n.v), fmt.Sprintf("want %d to %d", n.low, n.top)}
		}
	}
	return nil
}

// Limits of an engine of the demo.
const (
	maxRanks = 512
	maxCache = 4 << 30 // bytes, of all ranks
)

// fits refuses a side that model m cannot be held by: its shard, any of its
// layouts, and what its cache takes.
func (c Config) fits(s SideConfig, m geometry.Model) error {
	sh, err := s.Shard(m)
	if err != nil {
		return err
	}
	if err := sh.Validate(m); err != nil {
		return err
	}
	if n := sh.Ranks(); n > maxRanks {
		return fmt.Errorf("tp %d, pp %d and dcp %d are %d ranks, an engine of the demo has at most %d", s.TP, s.PP, s.DCP, n, maxRanks)
	}
	g := m.Groups[0]
	bytes := int64(0)
	for r := range sh.Ranks() {
		part := sh.Part(g, r)
		for _, component := range g.Components {
			bytes += int64(len(part.Layers)*len(part.Heads)) * component.RowBits() / 8 * int64(s.Block) * int64(c.blocks(s))
		}
	}
	if bytes > maxCache {
		return fmt.Errorf("%d blocks of %d tokens take %d bytes on %d ranks, an engine of the demo has at most %d", c.blocks(s), s.Block, bytes, sh.Ranks(), int64(maxCache))
	}
	for _, name := range s.Can {
		spec, ok := preset.Lookup(name)
		if !ok {
			return fmt.Errorf("no layout preset is called %q", name)
		}
		part := sh.Part(g, 0)
		if _, err := spec.Resolve(layout.Extent{Layers: part.Layers, Blocks: c.blocks(s), Tokens: s.Block, Heads: len(part.Heads), Components: g.Components}); err != nil {
			return fmt.Errorf("layout %s does not fit: %w", name, err)
		}
	}
	return nil
}

// blocks is the size of a side's pools: every request and the control at once,
// and some that stay untouched.
func (c Config) blocks(s SideConfig) int {
	longest := 0
	for i := range c.Requests {
		longest = max(longest, promptTokens(i, c.Source.Block, c.Destination.Block))
	}
	entry := s.Block * s.DCP
	return (c.Requests + 2) * ((longest + max(c.Tokens, controlTokens) + entry - 1) / entry)
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

// String is the side in the form that Set reads.
func (s SideConfig) String() string {
	text := fmt.Sprintf("tp=%d,pp=%d,block=%d", s.TP, s.PP, s.Block)
	if s.DCP > 1 {
		text += fmt.Sprintf(",dcp=%d", s.DCP)
	}
	if s.Layout != "" {
		return text + ",layout=" + s.Layout
	}
	return text + ",can=" + strings.Join(s.Can, ",")
}
