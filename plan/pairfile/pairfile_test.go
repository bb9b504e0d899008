package pairfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
)

const example = `kvferry: pair/1
model:
  name: small
  layers: 4
  identity: {weights: "sha256:aa", rope: {type: llama3, theta: 500000}}
  components:
    - {name: k, heads: 8, dim: 16, dtype: bf16}
    - {name: v, heads: 8, dim: 16, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 2, pp: [3, 1]}
  block: 16
  blocks: 8
  layout:
    order: [block, head, token, component, dim]
    strides: {block: 32768}
    name: HND
destination:
  engine: decode
  shard: {tp: 4, dcp: {size: 2, interleave: 4}, rank_order: [tp]}
  block: 32
  blocks: 8
  layout: {order: [block, head, {k: [dim, token], v: [token, dim]}]}
`

func parse(t *testing.T, text string) *pairfile.File {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f := parse(t, example)
	if want := (geometry.Identity{"weights": "sha256:aa", "rope.type": "llama3", "rope.theta": "500000"}); !reflect.DeepEqual(f.Model.Identity, want) {
		t.Errorf("identity %v, want %v", f.Model.Identity, want)
	}
	if want := "[k v] 8 16 bf16"; want != fmt.Sprintf("[%s %s] %d %d %s", f.Model.Groups[0].Components[0].Name, f.Model.Groups[0].Components[1].Name,
		f.Model.Groups[0].Components[1].Heads, f.Model.Groups[0].Components[1].Dim, f.Model.Groups[0].Components[1].DType) {
		t.Errorf("components %+v, want %s", f.Model.Groups[0].Components, want)
	}
	if want := (shard.Spec{TP: 2, Stages: []int{3, 1}, DCPSize: 1, Interleave: 1, Order: [3]shard.Grid{shard.PP, shard.TP, shard.DCP}}); !reflect.DeepEqual(f.Source.Shard, want) {
		t.Errorf("source shard %+v, want %+v", f.Source.Shard, want)
	}
	if want := (shard.Spec{TP: 4, Stages: []int{4}, DCPSize: 2, Interleave: 4, Order: [3]shard.Grid{shard.TP, shard.PP, shard.DCP}}); !reflect.DeepEqual(f.Destination.Shard, want) {
		t.Errorf("destination shard %+v, want %+v", f.Destination.Shard, want)
	}
	item := func(a geometry.Axis) layout.Entry { return layout.Entry{Item: layout.Item{Axis: a}} }
	if want := (layout.Spec{Name: "HND", Order: []layout.Entry{item(geometry.Block), item(geometry.Head), item(geometry.Token), {Component: true}, item(geometry.Dim)},
		Strides: map[string]int64{"block": 32768}}); !reflect.DeepEqual(*f.Source.Groups[0].Layout, want) {
		t.Errorf("source layout %+v, want %+v", *f.Source.Groups[0].Layout, want)
	}
	dim, token := layout.Item{Axis: geometry.Dim}, layout.Item{Axis: geometry.Token}
	if want := (map[string][]layout.Entry{"k": layout.Items(dim, token), "v": layout.Items(token, dim)}); !reflect.DeepEqual(f.Destination.Groups[0].Layout.Order[2].Branch, want) {
		t.Errorf("branch %+v, want %+v", f.Destination.Groups[0].Layout.Order[2].Branch, want)
	}
}

func TestPair(t *testing.T) {
	p, _, err := parse(t, example).Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Source.Ranks); n != 4 {
		t.Errorf("source has %d ranks, want 4", n)
	}
	if n := len(p.Destination.Ranks); n != 8 {
		t.Errorf("destination has %d ranks, want 8", n)
	}
	// A layer's number in a name is its number in the model.
	if got := p.Source.Ranks[2][0].Regions; len(got) != 1 || got[0] != (layout.Region{Name: "layer3", Bytes: 8 * 32768}) {
		t.Errorf("source rank 2 has regions %v, want layer3 of %d bytes", got, 8*32768)
	}
	if p.Source.Ranks[0][0] != p.Source.Ranks[1][0] {
		t.Error("ranks of one stage and equal head counts do not share their layout")
	}
}

// Every field's default is what the format says, and nothing else has one.
func TestSideOverrides(t *testing.T) {
	text := strings.Replace(example, "  engine: decode\n", "  engine: decode\n  dtype: fp8\n  identity: {rope: {theta: 10000}, lora: none}\n", 1)
	f := parse(t, text)
	m := f.SideModel(&f.Destination)
	if got := m.Groups[0].Components[1].DType; got != geometry.FP8E4M3 {
		t.Errorf("destination dtype %s, want fp8_e4m3", got)
	}
	if got := f.Model.Groups[0].Components[1].DType; got != geometry.BF16 {
		t.Errorf("the model's own dtype became %s", got)
	}
	_, _, err := f.Pair(nil)
	var mis *plan.Mismatch
	if !errors.As(err, &mis) {
		t.Fatalf("got %v, want a *plan.Mismatch", err)
	}
	want := []geometry.Difference{
		{Field: "model.identity.lora", Source: "(not declared)", Destination: "none"},
		{Field: "model.identity.rope.theta", Source: "500000", Destination: "10000"},
		{Field: "model.components.k.dtype", Source: "bf16", Destination: "fp8_e4m3"},
		{Field: "model.components.v.dtype", Source: "bf16", Destination: "fp8_e4m3"},
	}
	if !reflect.DeepEqual(mis.Fields, want) {
		t.Errorf("differences %v, want %v", mis.Fields, want)
	}
}

func TestChoose(t *testing.T) {
	f := parse(t, strings.Replace(example, "  layout:\n    order: [block, head, token, component, dim]\n    strides: {block: 32768}\n    name: HND\n", "  can: [hnd, nhd]\n", 1))
	if got := f.Source.Groups[0].Can; len(got) != 2 || got[0] == got[1] {
		t.Fatalf("can is %v", got)
	}
	var asked []string
	p, _, err := f.Pair(func(side string, _ int) (int, error) { asked = append(asked, side); return 1, nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0] != pairfile.Source {
		t.Errorf("asked for %v, want the source alone", asked)
	}
	want, err := f.Source.Groups[0].Candidates()[1].Spec.Resolve(p.Source.Ranks[0][0].Extent)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Source.Ranks[0][0].Equal(want) {
		t.Error("the source does not lie as chosen")
	}

	var e *pairfile.Error
	if _, _, err := f.Pair(nil); !errors.As(err, &e) || e.Field != "source.can" || !strings.Contains(e.Reason, "no default layout") {
		t.Errorf("nothing chooses: got %v", err)
	}
	if _, _, err := f.Pair(func(string, int) (int, error) { return 2, nil }); !errors.As(err, &e) || e.Value != 2 || e.Line != 14 {
		t.Errorf("a choice out of range: got %v", err)
	}
	declined := errors.New("declined")
	if _, _, err := f.Pair(func(string, int) (int, error) { return 0, declined }); err != declined {
		t.Errorf("got %v, want the chooser's own error", err)
	}
}

// Errors carry the place in the file also where another package found them.
func TestErrorPlaces(t *testing.T) {
	for _, c := range []struct {
		old, new     string
		field        string
		line, column int
		cause        any
	}{
		{"tp: 2,", "tp: 3,", "source.shard.tp", 11, 15, new(*shard.Error)},
		{"pp: [3, 1]", "pp: [3, 2]", "source.shard.pp", 11, 22, new(*shard.Error)},
		{"{name: v, heads: 8", "{name: k, heads: 8", "model.components[1].name", 8, 14, new(*geometry.Error)},
		{"name: HND", "name: NHD", "source.layout.name", 17, 11, new(*layout.ClaimError)},
		{"dtype: bf16", "dtype: bf17", "model.components[0].dtype", 7, 43, nil},
		{"block: 16", "block: sixteen", "source.block", 12, 10, nil},
	} {
		f, err := pairfile.Parse("pair.yaml", []byte(strings.Replace(example, c.old, c.new, 1)))
		if err == nil {
			_, _, err = f.Pair(nil)
		}
		var e *pairfile.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want an *Error", c.new, err)
			continue
		}
		if e.File != "pair.yaml" || e.Field != c.field || e.Line != c.line || e.Column != c.column {
			t.Errorf("%s: got %s at %d:%d (%v), want %s at %d:%d", c.new, e.Field, e.Line, e.Column, err, c.field, c.line, c.column)
		}
		if e.Fault() != "operator" || !strings.HasPrefix(err.Error(), fmt.Sprintf("pair.yaml:%d:%d: %s", c.line, c.column, c.field)) {
			t.Errorf("%s: message %q", c.new, err)
		}
		if c.cause != nil && !errors.As(err, c.cause) {
			t.Errorf("%s: %v does not unwrap to its cause", c.new, err)
		}
	}
}

func files(t testing.TB, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 40 {
		t.Fatalf("%s matches only %d files", pattern, len(names))
	}
	out := map[string][]byte{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(n)] = b
	}
	return out
}

// roundTrip checks that Marshal is canonical: reading it back gives an equal
// file with the same text.
func roundTrip(t *testing.T, f *pairfile.File) {
	t.Helper()
	text := pairfile.Marshal(f)
	again, err := pairfile.Parse("again", text)
	if err != nil {
		t.Fatalf("canonical text is refused: %v\n%s", err, text)
	}
	if !reflect.DeepEqual(f.Model, again.Model) || !reflect.DeepEqual(f.Source, again.Source) || !reflect.DeepEqual(f.Destination, again.Destination) {
		t.Fatalf("read back as another file:\n%+v\nwant\n%+v\n%s", again, f, text)
	}
	if b := pairfile.Marshal(again); !bytes.Equal(b, text) {
		t.Fatalf("canonical text is not stable:\n%s\nthen\n%s", text, b)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	roundTrip(t, parse(t, example))
	roundTrip(t, parse(t, strings.NewReplacer("name: small", `name: "a: \"b\"\n\x07\u2028é"`, "engine: prefill", `engine: "true"`, "weights:", `"odd key ":`).Replace(example)))
	for name, b := range files(t, "../../testdata/pairs/*.yaml") {
		t.Run(name, func(t *testing.T) {
			f, err := pairfile.Parse(name, b)
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, f)
		})
	}
}

// FuzzParse reads what may be no pair file. What is one has a canonical text
// that reads back as the same file, and computing its pair gives a pair or an
// error that says whose fault it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(hybrid))
	for _, pattern := range []string{"../../testdata/pairs/*.yaml", "../../testdata/pairs/bad/*.yaml"} {
		for _, b := range files(f, pattern) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := pairfile.Parse("fuzz", data)
		if err != nil {
			var e *pairfile.Error
			if !errors.As(err, &e) || e.Reason == "" {
				t.Fatalf("an error without a reason: %#v", err)
			}
			return
		}
		roundTrip(t, file)
		if file.Model.Layers*len(file.Model.Groups) > 256 || max(file.Source.Shard.Ranks(), file.Destination.Shard.Ranks()) > 64 {
			return // right or wrong, it takes long
		}
		p, common, err := file.Pair(func(string, int) (int, error) { return 0, nil })
		var e *pairfile.Error
		var mis *plan.Mismatch
		switch {
		case errors.As(err, &e), errors.As(err, &mis):
		case err != nil:
			t.Fatalf("an error of no kind: %v", err)
		case len(common.Source) != len(p.Source.Groups) || len(common.Destination) != len(p.Destination.Groups):
			t.Fatalf("common groups %v of pairs of %d and %d", common, len(p.Source.Groups), len(p.Destination.Groups))
		default:
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
