package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/fixture"
	"github.com/kvferry/kvferry/plan/stamp"
)

// plainly lists copies without their loops, joined where they are contiguous and
// sorted by destination.
func plainly(list []copyJSON) []copyJSON {
	var all []copyJSON
	for _, c := range list {
		each(c.Loops, c.Source.Offset, c.Destination.Offset, func(so, do int64) {
			one := c
			one.Loops, one.Source.Offset, one.Destination.Offset = nil, so, do
			all = append(all, one)
		})
	}
	slices.SortFunc(all, func(a, b copyJSON) int {
		return cmp.Or(cmp.Compare(a.Destination.Rank, b.Destination.Rank), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Destination.Region, b.Destination.Region), cmp.Compare(a.Destination.Offset, b.Destination.Offset))
	})
	var out []copyJSON
	for _, c := range all {
		if n := len(out); n > 0 && continues(&out[n-1], &c) {
			out[n-1].Bytes += c.Bytes
			continue
		}
		out = append(out, c)
	}
	return out
}

// continues reports whether a copy lies behind another on both sides.
func continues(a, b *copyJSON) bool {
	from, to := a.Source, a.Destination
	from.Offset, to.Offset = from.Offset+a.Bytes, to.Offset+a.Bytes
	return a.Group == b.Group && from == b.Source && to == b.Destination
}

// Both forms of every pair's copies say the same, the expanded one is sorted and
// maximal, what they say adds up to the edges and to the proof's elements, and
// element by element it is what is due.
func TestPlanShowFormsAgree(t *testing.T) {
	pol, passedBy := opened(t), 0
	for i, name := range glob(t, pairs+"*.yaml", 60) {
		if strings.Contains(name, "llama-70b") || strings.HasSuffix(name, "/mla.yaml") {
			continue // the same runs as the small ones, many times over
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			p := prepared(t, pol, name)
			most := int64(80)
			for g, period := range p.proven.Plan().Groups {
				most = max(most, min(2*period.Tokens, 300), int64(p.pair.Source.Model.Groups[g].Window)+100)
			}
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for range 2 {
				flags, st, req := drawn(t, p, rng, most)
				passedBy += len(outOfWindow(&p.pair.Destination.Model, req))
				formsAgree(t, p, st, req, flags)
			}
		})
	}
	if passedBy < 3 {
		t.Errorf("%d times something was out of the window: too few to show anything", passedBy)
	}
}

func formsAgree(t *testing.T, p *planned, st *stamp.Stamper, req *stamp.Request, flags *requestFlags) {
	t.Helper()
	loops, err := copies(p.pair, st, req, false)
	if err != nil {
		t.Fatal(err)
	}
	expanded, err := copies(p.pair, st, req, true)
	if err != nil {
		t.Fatal(err)
	}
	edges, err := flows(p.pair, st, req)
	if err != nil {
		t.Fatal(err)
	}
	names := p.pair.Destination.Model.Groups[0].Name != ""
	var edgeBytes, segments, groupBytes, groupSegments, bytes int64
	for _, e := range edges {
		edgeBytes, segments = edgeBytes+e.Bytes, segments+e.Segments
		if e.Bytes < 1 || e.Segments < 1 || (len(e.Groups) > 0) != names {
			t.Errorf("edge %+v", e)
		}
		for _, g := range e.Groups {
			groupBytes, groupSegments = groupBytes+g.Bytes, groupSegments+g.Segments
		}
	}
	for i, c := range expanded {
		bytes += c.Bytes
		if len(c.Loops) > 0 || (c.Group != "") != names {
			t.Errorf("copy %v", c)
		}
		if i > 0 && continues(&expanded[i-1], &expanded[i]) {
			t.Errorf("not maximal: %v and %v", expanded[i-1], c)
		}
	}
	if edgeBytes != bytes || names && (groupBytes != bytes || groupSegments != segments) {
		t.Errorf("edges carry %d bytes in %d segments, their groups %d in %d, the copies %d", edgeBytes, segments, groupBytes, groupSegments, bytes)
	}
	// Regions are sorted as the rank has them, so both once more by name.
	a, b := plainly(loops), plainly(expanded)
	if !slices.EqualFunc(a, b, func(a, b copyJSON) bool { return a.String() == b.String() }) {
		t.Errorf("%d copies with loops, %d expanded", len(a), len(b))
	}
	due := fixture.Due{Source: req.Source, Destination: req.Destination, SourceFirst: req.SourceFirst, DestinationFirst: req.DestinationFirst}
	for _, s := range req.Spans {
		due.Spans = append(due.Spans, [2]int64{s.From, s.To})
	}
	if err := fixture.Judge(p.pair, &due, moves(t, p.pair, expanded)); err != nil {
		t.Errorf("%+v: %v", flags, err)
	}
	if n, want := elements(p.pair, req), countDue(p.pair, req); n != want {
		t.Errorf("%d elements, a count gives %d", n, want)
	}
}

// moves reads copies as they are printed.
func moves(t *testing.T, p *plan.Pair, list []copyJSON) []fixture.Move {
	t.Helper()
	var out []fixture.Move
	for _, c := range list {
		m := fixture.Move{Group: slices.IndexFunc(p.Source.Model.Groups, func(g geometry.Group) bool { return g.Name == c.Group }), Bytes: c.Bytes,
			SourceRank: c.Source.Rank, SourceOffset: c.Source.Offset, DestinationRank: c.Destination.Rank, DestinationOffset: c.Destination.Offset}
		region := func(l *layout.Layout, name string) int {
			i := slices.IndexFunc(l.Regions, func(r layout.Region) bool { return r.Name == name })
			if i < 0 {
				t.Fatalf("no region %q of copy %v", name, c)
			}
			return i
		}
		m.SourceRegion = region(p.Source.Ranks[m.SourceRank][m.Group], c.Source.Region)
		m.DestinationRegion = region(p.Destination.Ranks[m.DestinationRank][m.Group], c.Destination.Region)
		out = append(out, m)
	}
	return out
}

// countDue counts, one by one, the elements that a request should move.
func countDue(p *plan.Pair, req *stamp.Request) int64 {
	var n int64
	for gi, g := range p.Destination.Model.Groups {
		span := req.Spans[gi]
		for r := range p.Destination.Ranks {
			part := p.Destination.Part(gi, r)
			for ci, c := range g.Components {
				row := int64(len(part.Layers)) * int64(max(len(part.Heads[ci]), 1)) * int64(c.Dim)
				e := int64(c.EntryTokens())
				for t := span.From; t < span.To; t++ {
					decides := e - 1 // the last token of its entry
					if c.Scales != "" {
						decides = 0
					}
					if _, held := part.Local(t / e * e); held && t%e == decides {
						n += row
					}
				}
			}
		}
	}
	return n
}

// The object of section 13, field by field.
func TestPlanShowJSON(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"seed.yaml", "--source-blocks", "1,3", "--destination-blocks", "2,0", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, stderr %q", code, errs)
	}
	for _, want := range []string{
		`"edges":[{"source":0,"destination":0,"bytes":32768,"segments":2},{"source":0,"destination":1,"bytes":32768,"segments":2},`,
		`{"source":{"rank":0,"region":"layer0","offset":114688},"destination":{"rank":1,"region":"layer0","offset":0},"bytes":16384}`,
		`"proof":{"ok":true,"elements":65536}`,
		`"policy":{"name":"heads","digest":"sha256:`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	code, out, _ = kvferry("plan", "show", pairs+"seed-nhd.yaml", "-o", "json")
	if want := `"bytes":1024,"loops":[{"count":16,"source_stride":2048,"destination_stride":1024}]}`; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit status %d, no %s in %s", code, want, out)
	}
}

func TestPlanShowText(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"seed.yaml")
	want := `prefill (tp 2, block 16) -> decode (tp 4, block 16)
             heads  0  1  2  3  4  5  6  7
rank 0    layers 0  0  0  .  .  .  .  .  .
rank 1    layers 0  .  .  0  0  .  .  .  .
rank 2    layers 0  .  .  .  .  1  1  .  .
rank 3    layers 0  .  .  .  .  .  .  1  1
tokens 0 to 15: 65536 bytes in 4 segments over 4 edges, 32768 elements, proved
`
	if code != 0 || errs != "" || out != want {
		t.Errorf("exit status %d, stderr %q, got\n%s\nwant\n%s", code, errs, out, want)
	}
	code, out, errs = kvferry("plan", "show", pairs+"seed.yaml", "--expand", "-v")
	for _, want := range []string{"  rank 0 layer0+16384 -> rank 1 layer0+0, 16384 bytes\n", "  policy heads sha256:", "  assign rank 1 <- rank 0: k v, layers 0, heads 2-3\n", "  plan sha256:"} {
		if code != 0 || errs != "" || !strings.Contains(out, want) {
			t.Errorf("exit status %d, stderr %q, no %q in\n%s", code, errs, want, out)
		}
	}
}

// Without tables one full block each; a range given is the range moved; dcp
// ranks hold their share.
func TestPlanShowTokens(t *testing.T) {
	row := int64(2 * 16) // elements of k and v of a (token, head, layer)
	for _, c := range []struct {
		file string
		args []string
		want int64 // tokens x heads x layers, replicas counted
	}{
		{"block-16-64", nil, 16 * 4 * 2},
		{"block-64-16", nil, 16 * 4 * 2},
		{"block-16-64", []string{"--source-blocks", "3,1,2"}, 48 * 4 * 2},
		{"block-48-32", []string{"--tokens", "7"}, 7 * 4 * 2},
		{"block-48-32", []string{"--source-blocks", "3,1", "--destination-blocks", "0,1,2", "--from", "31", "--tokens", "70"}, 39 * 4 * 2},
		{"dcp-source", []string{"--destination-blocks", "0,1"}, 32 * 4 * 2},
		{"dcp-both", []string{"--source-blocks", "0,1,2"}, 96 * 4 * 2},
		{"tp1-tp16-h16", nil, 16 * 16 * 2},
		{"replicas-both", nil, 16 * 4 * 2},
	} {
		if got := show(t, append([]string{"plan", "show", pairs + c.file + ".yaml"}, c.args...)...); got.Proof.Elements != c.want*row {
			t.Errorf("%s %v: %d elements, want %d", c.file, c.args, got.Proof.Elements, c.want*row)
		}
	}
}

// What moves of pairs of several groups: by default what all of them hold in
// one block; of given tables what those hold that keep all tokens.
func TestPlanShowGroups(t *testing.T) {
	for _, c := range []struct {
		file    string
		args    []string
		tokens  int64 // [0, tokens)
		passed  []passed
		bytes   map[string]int64 // by group
		absent  []string
		skipped []string
	}{
		// K and V of a token of a layer are 256 bytes on all ranks together.
		{file: "groups-window-ring", tokens: 16, bytes: map[string]int64{"full": 256 * 16, "sliding": 256 * 5 * 16}},
		{file: "groups-window-ring", args: []string{"--source-blocks", "full:0,1,2 sliding:5,6,7", "--destination-blocks", "full:1,0;sliding:9,8,7,6,5"}, tokens: 48,
			bytes: map[string]int64{"full": 256 * 48, "sliding": 256 * 5 * 48}},
		// The source keeps the window's last blocks only: those are moved.
		{file: "groups-window-ring", args: []string{"--source-blocks", "sliding:5,6,7,8,9", "--source-blocks", "full:0,1,2,3,4,5,6", "--destination-blocks", "full:3,1,0,2 sliding:9, 8,7 ,6,5"}, tokens: 112,
			passed: []passed{{"sliding", 0, 32}}, bytes: map[string]int64{"full": 256 * 112, "sliding": 256 * 5 * 80}},
		{file: "groups-window-ring", args: []string{"--source-blocks", "1:5,6,7,8", "--source-blocks", "0:0,1,2,3,4,5,6", "--destination-blocks", "full:3,1,0,2", "--destination-blocks", "sliding:9,8,7,6,5"}, tokens: 112,
			passed: []passed{{"sliding", 0, 48}}, bytes: map[string]int64{"full": 256 * 112, "sliding": 256 * 5 * 64}},
		// 512 of k and v a token, and states: conv 2 B x 3 x 128 channels and ssm 4 B x 32 x 16 of two layers.
		{file: "groups-hybrid-mamba2", tokens: 16, bytes: map[string]int64{"attention": 512 * 2 * 16, "mamba": (2*3*128 + 4*32*16) * 2}},
		{file: "groups-hybrid-mamba2", args: []string{"--source-blocks", "mamba:3 attention:1,2", "--destination-blocks", "mamba:0 attention:7", "--tokens", "21"}, tokens: 21,
			bytes: map[string]int64{"attention": 512 * 2 * 21, "mamba": (2*3*128 + 4*32*16) * 2}},
		// Latents of 128 bytes to four ranks that each hold all; an entry of c4 for 4 tokens, of c128 for 128.
		{file: "groups-compressed", tokens: 64, bytes: map[string]int64{"window": 4 * 128 * 4 * 64, "c4": 4 * 128 * 2 * 16}},
		{file: "groups-compressed", args: []string{"--source-blocks", "window:0,1,2 c4:0 c128:0", "--destination-blocks", "window:0,1,2 c4:0,1 c128:0,1", "--tokens", "131"}, tokens: 131,
			bytes: map[string]int64{"window": 4 * 128 * 4 * 131, "c4": 4 * 128 * 2 * 32, "c128": 4 * 128 * 2}},
		{file: "groups-draft-destination", tokens: 16, bytes: map[string]int64{"main": 256 * 4 * 16}, absent: []string{"draft"}},
		{file: "groups-draft-source", tokens: 16, bytes: map[string]int64{"main": 256 * 4 * 16}, skipped: []string{"draft"}},
	} {
		args := append([]string{"plan", "show", pairs + c.file + ".yaml"}, c.args...)
		got := show(t, args...)
		bytes := map[string]int64{}
		for _, e := range got.Edges {
			sum := int64(0)
			for _, g := range e.Groups {
				bytes[g.Group] += g.Bytes
				sum += g.Bytes
			}
			if sum != e.Bytes {
				t.Errorf("%v: edge %+v", args, e)
			}
		}
		if !maps.Equal(bytes, c.bytes) || !slices.Equal(got.OutOfWindow, c.passed) || !slices.Equal(got.Absent, c.absent) || !slices.Equal(got.Skipped, c.skipped) {
			t.Errorf("%v: %v, out of window %v, absent %v, skipped %v; want %v, %v, %v, %v", args, bytes, got.OutOfWindow, got.Absent, got.Skipped, c.bytes, c.passed, c.absent, c.skipped)
		}
		_, text, _ := kvferry(args...)
		if want := fmt.Sprintf("tokens 0 to %d: ", c.tokens-1); !strings.Contains(text, want) {
			t.Errorf("%v: no %q in\n%s", args, want, text)
		}
		for _, w := range c.passed {
			if want := fmt.Sprintf("%s: tokens %d to %d are out of the window and do not move\n", w.Group, w.From, w.To-1); !strings.Contains(text, want) {
				t.Errorf("%v: no %q in\n%s", args, want, text)
			}
		}
	}
}

// Of states alone there are no tokens to count, and of windows alone the tables
// say how many there are.
func TestPlanShowDefaultTokens(t *testing.T) {
	pair := func(groups, sides string) string {
		name := filepath.Join(t.TempDir(), "pair.yaml")
		text := fmt.Sprintf("kvferry: pair/1\nmodel: {name: m, layers: 2, groups: [%s]}\nsource: {engine: a, shard: {tp: 1}, groups: {%s}}\ndestination: {engine: b, shard: {tp: 1}, groups: {%s}}\n", groups, sides, sides)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	states := pair("{name: s, state: true, components: [{name: x, channels: 4, dim: 3, dtype: bf16}]}", "s: {slots: 4, layout: {order: [slot, channel, dim]}}")
	code, out, errs := kvferry("plan", "show", states)
	if code != 0 || errs != "" || !strings.Contains(out, "\nstates: 48 bytes in 2 segments over 1 edges, 24 elements, proved\n") {
		t.Errorf("exit status %d, %s, %s", code, errs, out)
	}
	windows := pair("{name: w, window: 24, components: [{name: k, heads: 1, dim: 4, dtype: bf16}]}", "w: {block: 16, blocks: 8, layout: {order: [block, token, head, dim]}}")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "tokens 0 to 15: "},
		{[]string{"--source-blocks", "1,2,3", "--destination-blocks", "4,5,6"}, "tokens 0 to 47: "},
		{[]string{"--source-blocks", "1,2", "--destination-blocks", "4,5,6", "--tokens", "80"}, "w: tokens 0 to 47 are out of the window and do not move\n"},
	} {
		code, out, errs := kvferry(append([]string{"plan", "show", windows}, c.args...)...)
		if code != 0 || errs != "" || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit status %d, %s, no %q in %s", c.args, code, errs, c.want, out)
		}
	}
}

// A request that the pair cannot serve is refused with its place; it is no
// wrong flag, since it depends on the file.
func TestPlanShowRefusesRequests(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--tokens", "17"}, []string{"source table", "16 tokens"}},
		{[]string{"--source-blocks", "0,1", "--tokens", "17"}, []string{"destination table", "16 tokens"}},
		{[]string{"--from", "16"}, []string{"tokens", "[16, 16)"}},
		{[]string{"--source-blocks", "4"}, []string{"source table", "pool of 4"}},
		{[]string{"--destination-blocks", "4"}, []string{"destination table", "pool of 4"}},
		{[]string{"--source-blocks", "0,1", "--destination-blocks", "3,3"}, []string{"destination table", "repeats"}},
	} {
		args := append([]string{"plan", "show", pairs + "seed.yaml"}, c.args...)
		code, out, errs := kvferry(args...)
		if code != 1 || out != "" || !strings.Contains(errs, "(fault: operator)") {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
		code, out, errs = kvferry(append(args, "-o", "json")...)
		v := decode[shown](t, out)
		if code != 1 || errs != "" || v.Error == nil || v.Error.Kind != "request" || v.Error.Fault != "operator" || len(v.Error.Fields) != 1 || len(v.Copies) > 0 {
			t.Fatalf("%v: exit status %d, stderr %q, JSON %s", c.args, code, errs, out)
		}
		for _, want := range c.want {
			if !strings.Contains(v.Error.Message, want) {
				t.Errorf("%v: %q does not say %q", c.args, v.Error.Message, want)
			}
		}
	}
	// Where groups have names, a refusal says which one it is about.
	for _, c := range []struct {
		file, group string
		args        []string
		want        string
	}{
		{"groups-window-ring", "full", []string{"--tokens", "17", "--destination-blocks", "full:0 sliding:0,1,2,3,4"}, "source table of group full is 1 entries: they hold 16 tokens, 17 are needed"},
		{"groups-window-ring", "sliding", []string{"--destination-blocks", "full:0 sliding:0,1,2,3"}, "destination table of group sliding is 4 entries: the group goes round in a ring of 5 blocks"},
		{"groups-window-ring", "sliding", []string{"--source-blocks", "full:0,1,2,3,4,5 sliding:2,1", "--destination-blocks", "full:0,1,2 sliding:0,1,2,3,4"}, "source table of group sliding is from entry 4 on: tokens 33 to 63 of group"},
		{"groups-window-ring", "sliding", []string{"--source-blocks", "full:0,1,2,3,4 sliding:0,1,2,3,4", "--destination-blocks", "full:0,1,2 sliding:0,1,2,3,10"}, "destination table of group sliding is 10: entry 4 names no block of a pool of 10"},
		{"groups-window-ring", "sliding", []string{"--source-blocks", "full:0,1,2,3,4 sliding:0,1,2,3,4", "--destination-blocks", "full:0,1,2 sliding:0,1,2,3,1"}, "destination table of group sliding is 1: entry 4 repeats it"},
		{"groups-hybrid-mamba2", "mamba", []string{"--source-blocks", "attention:0 mamba:0,1"}, `source table of group mamba is 2 entries: group "mamba" keeps one state a request`},
		{"groups-head-block-scales", "attention", []string{"--from", "3"}, "spans of group attention is 3: the transfer would start inside the 16 tokens from 0 on"},
	} {
		code, out, errs := kvferry(append([]string{"plan", "show", pairs + c.file + ".yaml", "-o", "json"}, c.args...)...)
		v := decode[shown](t, out)
		if code != 1 || errs != "" || v.Error == nil || v.Error.Kind != "request" || v.Error.Fault != "operator" || v.Error.Group != c.group || len(v.Error.Fields) != 1 || !strings.Contains(v.Error.Message, c.want) {
			t.Errorf("%s %v: exit status %d, stderr %q, %s", c.file, c.args, code, errs, out)
		}
	}
	// Surplus entries are legal, and the source may read a block twice.
	if got := show(t, "plan", "show", pairs+"seed.yaml", "--source-blocks", "1,1,2", "--destination-blocks", "3,0"); got.Proof.Elements != 65536 {
		t.Errorf("%d elements, want 65536", got.Proof.Elements)
	}
}

// Sides that differ name every field, with both values.
func TestPlanCheckNamesEveryMismatch(t *testing.T) {
	code, out, _ := kvferry("plan", "check", pairs+"bad/identity-differs.yaml", "-o", "json")
	v := decode[shown](t, out)
	if code != 1 || v.Error == nil || v.Error.Kind != "mismatch" {
		t.Fatalf("exit status %d, %s", code, out)
	}
	var got []string
	for _, f := range v.Error.Fields {
		got = append(got, f.Field+" "+f.Source+" "+f.Destination)
	}
	want := []string{"model.identity.rope.theta 500000 10000", "model.identity.window (not declared) 4096"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("fields %q, want %q", got, want)
	}
	_, _, errs := kvferry("plan", "check", pairs+"bad/identity-differs.yaml", "-v")
	for _, line := range []string{"model.identity.rope.theta: source 500000, destination 10000", "model.identity.window: source (not declared), destination 4096"} {
		if !strings.Contains(errs, line) {
			t.Errorf("no %q in %q", line, errs)
		}
	}
}

func TestPlanPresets(t *testing.T) {
	code, out, errs := kvferry("plan", "presets", "-o", "json")
	v := decode[struct{ Presets []presetJSON }](t, out)
	if code != 0 || errs != "" || len(v.Presets) < 10 {
		t.Fatalf("exit status %d, stderr %q, %d presets", code, errs, len(v.Presets))
	}
	_, text, _ := kvferry("plan", "presets")
	found := false
	for _, p := range v.Presets {
		if p.Name == "vllm/packed-hnd" {
			found = p.Order == "[block, head, token, component, dim]" && p.Claim == "HND"
		}
		if strings.Count(text, "  "+p.Name+"\n") != 1 || p.Order == "" || p.Doc == "" {
			t.Errorf("preset %+v", p)
		}
	}
	if !found {
		t.Error("vllm/packed-hnd is not [block, head, token, component, dim] with the claim HND")
	}
	// Each stands below the title of its kind, and says what it is made for.
	at := map[string]int{}
	for _, k := range kinds {
		if at[k.name] = strings.Index(text, k.title+"\n"); at[k.name] < 0 {
			t.Errorf("no title %q", k.title)
		}
	}
	for _, c := range []struct{ name, kind, next, components string }{
		{"vllm/packed-hnd", "attention", "latent", ""},
		{"vllm/cpu-vec", "attention", "latent", "k v"},
		{"sglang/mla", "latent", "quantised", ""},
		{"vllm/mla-fp8", "latent", "quantised", "latent scale rope"},
		{"vllm/indexer", "latent", "quantised", "index_k index_scale"},
		{"vllm/nvfp4-hnd", "quantised", "state", "k k_scale v v_scale"},
		{"vllm/token-head-scales-nhd", "quantised", "state", "k k_scale v v_scale"},
		{"vllm/mamba2-sd", "state", "", "x B C ssm"},
		{"vllm/gdn-ds", "state", "", "q k v ssm"},
	} {
		i := slices.IndexFunc(v.Presets, func(p presetJSON) bool { return p.Name == c.name })
		if i < 0 || v.Presets[i].Kind != c.kind || strings.Join(v.Presets[i].Components, " ") != c.components {
			t.Errorf("%s: %+v", c.name, v.Presets[max(i, 0)])
		}
		if n := strings.Index(text, "  "+c.name+"\n"); n < at[c.kind] || c.next != "" && n > at[c.next] {
			t.Errorf("%s does not stand below %s", c.name, c.kind)
		}
	}
}

// The benches run, verify what they moved and report every figure that the
// design asks for. How fast this machine is today is no test.
func TestBenchSmall(t *testing.T) {
	for _, c := range []struct {
		bench string
		rows  []string
	}{
		{"plan", []string{"contiguous copy, 1 thread", "build", "prove", "build and prove", "planning allocates", "cached lookup", "plan runs", "plain loop", "stamp, one rank's request", "stamping allocates",
			"build and prove the 80-layer pair", "build and prove llama-3.1-405b", "plan of llama-3.1-405b", "build and prove deepseek-v3", "plan of deepseek-v3", "build and prove deepseek-v4-pro", "plan of deepseek-v4-pro"}},
		{"copy", []string{"HND -> HND, 8192 B, contiguous", "HND -> HND, 8192 B, Go copy()", "HND -> HND, 8192 B, copy seam", "NHD -> NHD, 512 B, loop", "NHD -> HND, 256 B, shm"}},
		{"digest", []string{"read, contiguous", "HND, 256 B rows, 8 heads", "NHD, 256 B rows, 8 heads", "70B HND, 256 B rows, 8 KiB pieces", "read, the same 8 KiB pieces", "[dim][token], 2 B elements", "[dim/8][token][8], 2 B elements", "HND, sampled 1/64", "scales, 4 B rows"}},
	} {
		code, out, errs := kvferry("bench", c.bench, "--small", "--rounds", "1", "-o", "json")
		r := decode[report](t, out)
		if code != 0 || errs != "" || !r.Verified || r.Machine.CPUs < 1 || r.Rounds != 1 {
			t.Fatalf("%s: exit status %d, stderr %q, %s", c.bench, code, errs, out)
		}
		for _, want := range c.rows {
			found := false
			for _, row := range r.Rows {
				found = found || row.Name == want
			}
			if !found {
				t.Errorf("%s: no row %q in %s", c.bench, want, out)
			}
		}
		for _, row := range r.Rows {
			if row.Seconds <= 0 && row.Unit == "" {
				t.Errorf("%s: %s took %v s", c.bench, row.Name, row.Seconds)
			}
			for _, cmp := range row.Compared {
				if strings.Contains(cmp.With, "segments") || strings.Contains(cmp.With, "MB") || strings.Contains(cmp.With, "KiB") || strings.Contains(cmp.With, "object") || strings.Contains(cmp.With, "runs") {
					if !cmp.OK { // counts, not times
						t.Errorf("%s: %s is %v x %s", c.bench, row.Name, cmp.Ratio, cmp.With)
					}
				}
			}
		}
	}
}
