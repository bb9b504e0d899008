package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/architecture"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/blame"
)

// modelFlags say what a configuration does not: how the two engines keep the
// model's cache.
type modelFlags struct {
	name, dtype, state, cache, draft string
	tp, pp, block, blocks, slots     string // N, or SOURCE:DESTINATION
	layouts                          []string
	sided                            map[string]*[]string // by side: layouts of that side alone
	known                            bool
}

func planModelCommand(a *app) *cobra.Command {
	var source, destination []string
	flags := modelFlags{sided: map[string]*[]string{pairfile.Source: &source, pairfile.Destination: &destination}}
	cmd := &cobra.Command{
		Use:   "model CONFIG...",
		Short: "writes the model part of a pair file from a model's config.json",
		Long: "model reads configuration files as models are published with (Hugging Face's\n" +
			"config.json) and writes what cache they keep as a pair file: the model part, and\n" +
			"with --tp or any other flag of the engines both sides, as far as the flags say\n" +
			"them. What is missing stands there as a comment: no layout and no size is ever\n" +
			"made up. Where nothing is missing the file is complete and has been checked.\n\n" +
			"A number may be given as SOURCE:DESTINATION. Several files give one YAML\n" +
			"document, or with -o json one object a line, each a pair file.",
		Example: "  kvferry plan model config.json --tp 4 --pp 2\n" +
			"  kvferry plan model config.json --tp 2:4 --block 16 --blocks 256 --layout vllm/packed-hnd > pair.yaml\n" +
			"  kvferry plan model config.json --cache-dtype fp8_ds_mla --draft destination",
		Args: func(cmd *cobra.Command, args []string) error {
			if flags.known {
				return arguments(0, 0, "")(cmd, args)
			}
			return arguments(1, -1, "CONFIG")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.known {
				return a.architectures()
			}
			return a.models(cmd.Context(), &flags, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.name, "name", "", "the model's `NAME` (default: the file's, or its folder's where it is called config.json)")
	f.StringVar(&flags.dtype, "dtype", "", "element `TYPE` of what is not quantised (default: the configuration's)")
	f.StringVar(&flags.cache, "cache-dtype", "", "how attention caches are quantised: one of "+strings.Join(architecture.Quantisations(), ", "))
	f.StringVar(&flags.state, "state-dtype", "", "element `TYPE` of recurrent states (default: the configuration's)")
	f.StringVar(&flags.draft, "draft", "", "which `SIDE` runs the model's draft layers: source, destination or both")
	f.StringVar(&flags.tp, "tp", "", "head shards: `N`")
	f.StringVar(&flags.pp, "pp", "", "pipeline stages: `N`; the first ones hold a layer more where they do not divide the layers")
	f.StringVar(&flags.block, "block", "", "tokens a block: `N`")
	f.StringVar(&flags.blocks, "blocks", "", "blocks in the pool of each group: `N`")
	f.StringVar(&flags.slots, "slots", "", "slots in the pool of each group of states: `N`")
	f.StringArrayVar(&flags.layouts, "layout", nil, "a `PRESET` that both sides know: each group takes the first that fits it")
	f.StringArrayVar(&source, "source-layout", nil, "a `PRESET` of the source, tried first")
	f.StringArrayVar(&destination, "destination-layout", nil, "a `PRESET` of the destination, tried first")
	f.BoolVar(&flags.known, "known", false, "list the architectures that are known")
	return cmd
}

// architectures lists what plan model can read.
func (a *app) architectures() error {
	if a.json() {
		type known struct {
			Names []string `json:"names"`
			Doc   string   `json:"doc"`
		}
		out := []known{}
		for _, k := range architecture.Known() {
			out = append(out, known(k))
		}
		return a.emit(map[string]any{"architectures": out})
	}
	for _, k := range architecture.Known() {
		fmt.Fprintf(a.out, "%s\n  %s\n", strings.Join(k.Names, " "), k.Doc)
	}
	return nil
}

// models writes one document a file; a failure is reported and does not stop
// the rest.
func (a *app) models(ctx context.Context, flags *modelFlags, files []string) error {
	if flags.name != "" && len(files) > 1 {
		return usagef("--name %s: there are %d configurations", flags.name, len(files))
	}
	sides, err := flags.sides()
	if err != nil {
		return err
	}
	written := 0
	return a.eachFile(ctx, files, func(name string) error {
		d, err := flags.describe(name, sides)
		if err != nil {
			return err
		}
		if a.json() {
			return a.emit(d.json())
		}
		if written++; written > 1 {
			fmt.Fprintln(a.out, "---")
		}
		_, err = io.WriteString(a.out, d.yaml())
		return err
	})
}

// engine is one side as the flags say it; 0 and nil are not said.
type engine struct {
	name                         string // of the engine
	tp, pp, block, blocks, slots int
	layouts                      []preset.Preset
	draft                        bool
}

// sides reads the flags of the engines; nil where none is given.
func (flags *modelFlags) sides() (map[string]*engine, error) {
	if !slices.Contains([]string{"", "both", pairfile.Source, pairfile.Destination}, flags.draft) {
		return nil, usagef("--draft %s: want source, destination or both", flags.draft)
	}
	if flags.cache != "" && !slices.Contains(architecture.Quantisations(), flags.cache) {
		return nil, usagef("--cache-dtype %s: want one of %s; --dtype says the type of a cache that is not quantised", flags.cache, strings.Join(architecture.Quantisations(), ", "))
	}
	sides := map[string]*engine{
		pairfile.Source:      {name: "prefill", draft: flags.draft == "both" || flags.draft == pairfile.Source},
		pairfile.Destination: {name: "decode", draft: flags.draft == "both" || flags.draft == pairfile.Destination},
	}
	given := flags.draft == pairfile.Source || flags.draft == pairfile.Destination
	for _, n := range []struct {
		flag, text string
		max        int
		to         func(*engine) *int
	}{
		{"tp", flags.tp, shard.MaxRanks, func(e *engine) *int { return &e.tp }},
		{"pp", flags.pp, geometry.MaxLayers, func(e *engine) *int { return &e.pp }},
		{"block", flags.block, layout.MaxTokens, func(e *engine) *int { return &e.block }},
		{"blocks", flags.blocks, layout.MaxBlocks, func(e *engine) *int { return &e.blocks }},
		{"slots", flags.slots, layout.MaxBlocks, func(e *engine) *int { return &e.slots }},
	} {
		if n.text == "" {
			continue
		}
		given = true
		source, destination, two := strings.Cut(n.text, ":")
		if !two {
			destination = source
		}
		for side, text := range map[string]string{pairfile.Source: source, pairfile.Destination: destination} {
			v, err := strconv.Atoi(text)
			if err != nil || v < 1 || v > n.max {
				return nil, usagef("--%s %s: want a number from 1 to %d, or two as SOURCE:DESTINATION", n.flag, n.text, n.max)
			}
			*n.to(sides[side]) = v
		}
	}
	for _, side := range []string{pairfile.Source, pairfile.Destination} {
		for _, name := range slices.Concat(*flags.sided[side], flags.layouts) {
			p, ok := preset.Get(name)
			if !ok {
				return nil, usagef("no preset is called %s (kvferry plan presets lists them)", name)
			}
			sides[side].layouts = append(sides[side].layouts, p)
			given = true
		}
	}
	if !given {
		return nil, nil
	}
	return sides, nil
}

// described is a pair file, or what there is of one.
type described struct {
	file     *pairfile.File // with all groups of both sides; what is not said is 0
	sides    bool           // the flags say something of them
	complete bool
}

// describe reads a configuration and adds what the flags say.
func (flags *modelFlags) describe(name string, sides map[string]*engine) (*described, error) {
	data, err := readConfig(name)
	if err != nil {
		return nil, err
	}
	o := architecture.Options{Name: flags.name, CacheDType: flags.dtype, StateDType: flags.state, Quantisation: flags.cache, Draft: flags.draft != ""}
	if o.Name == "" {
		o.Name = modelName(name)
	}
	m, err := architecture.Read(data, o)
	if err != nil {
		return nil, err
	}
	d := &described{file: &pairfile.File{Model: m}, sides: sides != nil, complete: sides != nil}
	for _, side := range []string{pairfile.Source, pairfile.Destination} {
		s := d.file.Side(side)
		s.Groups = make([]pairfile.SideGroup, len(m.Groups))
		if sides == nil {
			continue
		}
		complete, err := sides[side].fill(m, s)
		if err != nil {
			return nil, blame.On(blame.Operator, fmt.Errorf("%s: %w", side, err))
		}
		d.complete = d.complete && complete
	}
	if d.complete {
		// What is said to be complete is read as anyone else will read it.
		f, err := pairfile.Parse(name, pairfile.Marshal(d.file))
		if err != nil {
			return nil, err
		}
		if _, _, err := f.Pair(nil); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// modelName is what a file's model is called: the file, or its folder where
// the file is called as all are.
func modelName(file string) string {
	base := strings.TrimSuffix(filepath.Base(file), ".json")
	if base == "config" {
		if abs, err := filepath.Abs(file); err == nil {
			base = filepath.Base(filepath.Dir(abs))
		}
	}
	if base == "-" || base == "/" || base == "." {
		return "" // the configuration may say it
	}
	return base
}

// readConfig reads a configuration, or standard input for "-".
func readConfig(name string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, architecture.MaxBytes+1)) // Read refuses what is larger
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return b, nil
}

// fill fills in a side, and reports whether it is complete.
func (e *engine) fill(m geometry.Model, s *pairfile.Side) (complete bool, err error) {
	s.Engine = e.name
	stages, err := stages(m, max(e.pp, 1))
	if err != nil {
		return false, err
	}
	s.Shard = shard.Spec{TP: max(e.tp, 1), Stages: stages, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}
	if err := s.Shard.Validate(m); err != nil {
		return false, err
	}
	complete = true
	for g, group := range m.Groups {
		own := &s.Groups[g]
		if group.Optional && !e.draft {
			own.Absent = true
			continue
		}
		if own.Block, own.Blocks = e.block, e.blocks; group.State {
			own.Block, own.Blocks = 1, e.slots
		}
		if own.Block == 0 || own.Blocks == 0 || len(e.layouts) == 0 {
			complete = false
		}
		if len(e.layouts) > 0 {
			p, err := e.fitting(group, s.Shard)
			if err != nil {
				return false, err
			}
			own.Preset, own.Layout = p.Name, &p.Spec
		}
	}
	return complete, nil
}

// stages divides the layers, the first stages holding one more where that must
// be. Draft layers come on top of the last.
func stages(m geometry.Model, n int) ([]int, error) {
	own := m.Layers
	for _, g := range m.Groups {
		if g.Optional {
			for _, l := range g.Layers {
				own = min(own, l) // they are numbered behind the model's own
			}
		}
	}
	if n > own {
		return nil, &shard.Error{Field: "pp", Value: n, Reason: fmt.Sprintf("the model has %d layers", own)}
	}
	out := make([]int, n)
	for i := range out {
		out[i] = own / n
		if i < own%n {
			out[i]++
		}
	}
	out[n-1] += m.Layers - own
	return out, nil
}

// fitting is the first of the engine's layouts that a rank's part of the group
// can lie in.
func (e *engine) fitting(g geometry.Group, s shard.Spec) (preset.Preset, error) {
	block := e.block
	switch {
	case g.State:
		block = 1
	case block == 0: // not said: one that entries and any engine's tiles divide
		for _, c := range g.Components {
			block = max(block, 32*c.EntryTokens())
		}
	}
	var first error
next:
	for _, p := range e.layouts {
		for r := range s.Ranks() {
			part := s.Part(g, r)
			if len(part.Layers) == 0 {
				continue
			}
			if _, err := p.Resolve(part.Extent(g, block, 1)); err != nil {
				if first == nil {
					first = err
				}
				continue next
			}
		}
		return p, nil
	}
	return preset.Preset{}, fmt.Errorf("none of the layouts given fits group %q: %w", g.Name, first)
}
