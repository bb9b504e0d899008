// Package demo is the main job in small: a prefill engine and a decode engine
// of different shape, each an OS process with its own agent, hand over the KV
// cache of several requests, and the tokens are compared with an unsplit run.
//
// Everything goes the way it would in production: the policy picks the
// layouts, the engines' kernels are measured, the sessions shake hands, the plan
// is proved on both sides and the blocks move through a real transport.
package demo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/transfer"
)

// Config is one run of the demo.
type Config struct {
	Shape       tinyllm.Shape
	Heads       int
	Source      SideConfig
	Destination SideConfig
	Transport   string        // loop, shm or tcp
	Mode        string        // pull, push, layers or chunks
	Integrity   string        // off, sample or full
	Policy      string        // what the policy was asked for as: a built-in name where there is no Module
	Module      []byte        // the policy's; nil: the built-in one
	Origin      string        // where it came from, for the report
	Keys        []string      // that signed it
	Settings    []byte        // what the operator tells the policy, YAML or JSON; nil: nothing
	Record      string        // file for what the policies are asked and answer; "": it is not kept
	Store       string        // policy store that decode's agent runs on; "": none
	Fallback    string        // with a store: none, last-good or built-in
	Repeat      int           // rounds of requests
	For         time.Duration // 0: as many rounds as Repeat says
	Requests    int
	Tokens      int // generated for each request
	Seed        uint64

	LieLayout  bool // the source engine's label disagrees with its strides
	LieKernel  bool // the source engine's kernel disagrees with its strides
	ReplaySeed bool
	Unchecked  bool
}

// Default is the demo without flags.
func Default() Config {
	return Shaped(Config{
		Shape:       tinyllm.Llama,
		Heads:       8,
		Source:      SideConfig{TP: 2, PP: 1, DCP: 1, Block: 16},
		Destination: SideConfig{TP: 4, PP: 1, DCP: 1, Block: 32},
		Transport:   "shm",
		Mode:        "pull",
		Integrity:   "off",
		Policy:      "heads",
		Fallback:    "none",
		Repeat:      1,
		Requests:    4,
		Tokens:      24,
		Seed:        1,
	})
}

// Shaped is c with engines that can keep the cache of a model of its shape.
func Shaped(c Config) Config {
	c.Source.Can, c.Destination.Can = []string{"hnd", "nhd"}, []string{"nhd"}
	switch c.Shape {
	case tinyllm.MLA:
		c.Source.Can, c.Destination.Can = []string{"mla"}, []string{partsName}
	case tinyllm.FP8: // scales in the row, and in a place of their own
		c.Source.Can, c.Destination.Can = []string{"token-head-scales-hnd", "token-head-scales-nhd"}, []string{"split-nhd"}
	case tinyllm.Hybrid:
		c.Source.State, c.Destination.State = []string{"gdn-ds", "gdn-sd"}, []string{"gdn-sd"}
	}
	return c
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

// Model makes the model of the run.
//
// Errors: *UsageError.
func (c Config) Model() (*tinyllm.Model, error) {
	if err := pick("model-shape", string(c.Shape), tinyllm.Shapes()...); err != nil {
		return nil, err
	}
	m, err := tinyllm.New(tinyllm.Default(c.Shape, c.Heads, c.Seed))
	if err != nil {
		return nil, &UsageError{"heads", fmt.Sprint(c.Heads), err.Error()}
	}
	return m, nil
}

func pick(flag, v string, known ...string) error {
	if !slices.Contains(known, v) {
		return &UsageError{flag, v, "want one of " + strings.Join(known, ", ")}
	}
	return nil
}

// Validate refuses what no engine could be, before a process is started.
func (c Config) Validate(m geometry.Model) error {
	if c.ReplaySeed {
		return c.validateSeed()
	}
	if err := pick("transport", c.Transport, "loop", "shm", "tcp"); err != nil {
		return err
	}
	if err := pick("mode", c.Mode, "pull", "push", "layers", "chunks"); err != nil {
		return err
	}
	if err := pick("integrity", c.Integrity, "off", "sample", "full"); err != nil {
		return err
	}
	if err := c.counts(); err != nil {
		return err
	}
	if c.Unchecked && !c.ReplaySeed {
		return &UsageError{"unchecked", "true", "goes with --replay-seed only: nothing else runs unproved"}
	}
	if c.LieLayout && c.LieKernel {
		return &UsageError{"lie-kernel", "true", "goes without --lie-layout: one lie at a time"}
	}
	if c.LieLayout && c.Shape == tinyllm.MLA {
		return &UsageError{"lie-layout", "true", "a latent has no heads that a label could say anything of"}
	}
	for _, s := range []struct {
		flag string
		side SideConfig
	}{{"source", c.Source}, {"destination", c.Destination}} {
		if err := c.fits(s.side, s.flag, m); err != nil {
			return &UsageError{s.flag, s.side.String(), err.Error()}
		}
	}
	return nil
}

// counts refuses too few or too many requests, tokens or rounds.
func (c Config) counts() error {
	for _, n := range []struct {
		flag        string
		v, low, top int
	}{{"requests", c.Requests, 1, 64}, {"tokens", c.Tokens, 2, 512}} {
		if n.v < n.low || n.v > n.top {
			return &UsageError{n.flag, strconv.Itoa(n.v), fmt.Sprintf("want %d to %d", n.low, n.top)}
		}
	}
	return c.goesOn()
}

// goesOn refuses what says wrongly how long a run takes, or on which policies.
func (c Config) goesOn() error {
	switch {
	case c.Repeat < 1 || c.Repeat > maxRepeat:
		return &UsageError{"repeat", strconv.Itoa(c.Repeat), fmt.Sprintf("want 1 to %d", maxRepeat)}
	case c.For < 0 || c.For > maxFor:
		return &UsageError{"for", c.For.String(), fmt.Sprintf("want 0 (as --repeat says) to %v", maxFor)}
	case c.For > 0 && c.Repeat != 1:
		return &UsageError{"repeat", strconv.Itoa(c.Repeat), "goes without --for"}
	case c.ReplaySeed && (c.Store != "" || c.For > 0 || c.Repeat != 1):
		return &UsageError{"replay-seed", "true", "is one case: it goes without --policy-store, --repeat and --for"}
	case c.Store == "" && c.Fallback != "none":
		return &UsageError{"policy-fallback", c.Fallback, "goes with --policy-store"}
	}
	return pick("policy-fallback", c.Fallback, "none", "last-good", "built-in")
}

// Bounds of a run that goes on.
const (
	maxRepeat = 1 << 20
	maxFor    = 24 * time.Hour
)

// integrity is how much of what moves is compared.
func (c Config) integrity() transfer.Integrity {
	if c.Integrity == "off" {
		return transfer.Off
	}
	return transfer.Integrity(c.Integrity)
}

// Limits of an engine of the demo.
const (
	maxRanks = 512
	maxCache = 4 << 30 // bytes, of all ranks
)

// fits refuses a side that model m cannot be held by: its shard, any of its
// layouts, and what its cache takes.
func (c Config) fits(s SideConfig, role string, m geometry.Model) error {
	sh, err := s.Shard(m)
	if err != nil {
		return err
	}
	states := false
	pools := s.pools(m, role, sh, nil)
	var common []int
	for g, p := range pools {
		states = states || m.Groups[g].State
		if p.Shard == nil {
			common = append(common, g)
		} else if err := p.Shard.Validate(m.Select([]int{g})); err != nil {
			return err
		}
	}
	if err := sh.Validate(m.Select(common)); err != nil {
		return err
	}
	switch {
	case states && len(s.State) == 0:
		return errors.New("no layout is named for the model's states, and there is no default")
	case !states && len(s.State) > 0:
		return fmt.Errorf("the model has no states that could be kept as %s", strings.Join(s.State, ", "))
	}
	if n := sh.Ranks(); n > maxRanks {
		return fmt.Errorf("tp %d, pp %d and dcp %d are %d ranks, an engine of the demo has at most %d", s.TP, s.PP, s.DCP, n, maxRanks)
	}
	side := plan.Side{Model: m, Shard: sh, Groups: s.pools(m, role, sh, c.blocks(s, role, m, sh))}
	bytes := int64(0)
	for g, group := range m.Groups {
		pool := side.Groups[g]
		checked := false
		for r := range sh.Ranks() {
			part := side.Part(g, r)
			extent := part.Extent(group, pool.Block, pool.Blocks)
			for i, component := range group.Components {
				bytes += int64(len(part.Layers)*max(extent.Heads[i], 1)) * component.RowBits() / 8 * int64(pool.Block) * int64(pool.Blocks)
			}
			if bytes > maxCache {
				return fmt.Errorf("%d blocks of %d tokens take %d bytes and more on %d ranks, an engine of the demo has at most %d", pool.Blocks, pool.Block, bytes, sh.Ranks(), int64(maxCache))
			}
			if len(part.Layers) == 0 || checked {
				continue
			}
			checked = true
			for _, candidate := range s.candidates(m) {
				if _, err := candidate.layouts[g].Resolve(extent); err != nil {
					return fmt.Errorf("layout %s does not fit: %w", candidate.name, err)
				}
			}
		}
	}
	return nil
}

// blocks is the size of a side's pools by group: every request and the control
// at once, some blocks that stay untouched, and those for probes.
func (c Config) blocks(s SideConfig, role string, m geometry.Model, sh shard.Spec) []int {
	longest := 0
	for i := range c.Requests {
		longest = max(longest, promptTokens(i, c.Source.Block, c.Destination.Block))
	}
	pools := s.pools(m, role, sh, nil)
	out := need(m, pools, sh, int64(longest+max(c.Tokens, controlTokens)))
	probe := need(m, pools, sh, s.probeTokens())
	for g := range out {
		out[g] = (c.Requests+2)*out[g] + probe[g]
	}
	return out
}
