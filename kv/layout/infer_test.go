package layout_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

func TestSamples(t *testing.T) {
	e := layout.Extent{Layers: []int{3}, Blocks: 12, Tokens: 1, Heads: []int{2}, Components: []geometry.Component{{Name: "k", Heads: 2, Dim: 8, DType: geometry.BF16}}}
	var got []string
	for _, el := range layout.Samples(e) {
		got = append(got, strings.TrimPrefix(el.String(), "component 0 layer index 0 "))
	}
	want := []string{
		"block 0 token 0 head 0 dim 0",
		"block 1 token 0 head 0 dim 0", "block 2 token 0 head 0 dim 0", "block 3 token 0 head 0 dim 0", "block 4 token 0 head 0 dim 0", "block 6 token 0 head 0 dim 0", "block 11 token 0 head 0 dim 0",
		"block 0 token 0 head 1 dim 0",
		"block 0 token 0 head 0 dim 1", "block 0 token 0 head 0 dim 2", "block 0 token 0 head 0 dim 4", "block 0 token 0 head 0 dim 7",
		"block 11 token 0 head 1 dim 7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestInferNeedsEachSample leaves out one sample of a sufficient set at a time.
// What then follows is the layout or a refusal, never another layout.
func TestInferNeedsEachSample(t *testing.T) {
	for _, text := range []string{
		"block head token component dim",
		"layer block token/2 head component token%2 dim/4 dim%4",
		"block head component {k: dim/4 token/2 dim%4/2 token%2 dim%2; v: dim token}",
	} {
		l := packed(t, text)
		all := observe(l, layout.Samples(kv()))
		refused := 0
		for i := range all {
			got, err := layout.Infer(slices.Delete(slices.Clone(all), i, i+1), kv(), l.Regions)
			var a *layout.Ambiguous
			switch {
			case err == nil && !got.Equal(l):
				t.Errorf("%s without %s:\n%s", text, all[i], got.Text())
			case err != nil && !errors.As(err, &a):
				t.Errorf("%s without %s: %v", text, all[i], err)
			case err != nil:
				refused++
				if a.Missing != all[i].Element {
					t.Errorf("%s without %s: asks for %s", text, all[i], a.Missing)
				}
			}
		}
		if refused == 0 {
			t.Errorf("%s: every sample is superfluous", text)
		}
	}
}

// TestInferFindsTheLie changes the place of one sample. Either it shows, or
// the layout found explains every sample as changed.
func TestInferFindsTheLie(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	contradictions := 0
	for range 2000 {
		l := packed(t, []string{"block head token component dim", "block head component {k: dim token; v: token dim}", "block token/2 head token%2 component dim"}[r.IntN(3)])
		all := observe(l, layout.Samples(kv()))
		i := r.IntN(len(all))
		all[i].Bit = r.Int64N(l.Regions[all[i].Region].Bytes/2) * 16
		got, err := layout.Infer(all, kv(), l.Regions)
		if err != nil {
			var c *layout.Contradiction
			if errors.As(err, &c) {
				contradictions++
				if c.A == c.B || !slices.Contains(all, c.A) || !slices.Contains(all, c.B) {
					t.Errorf("not a pair of samples: %v", c)
				}
			}
			continue
		}
		for _, s := range all {
			if region, bit := at(got, s.Element); region != s.Region || bit != s.Bit {
				t.Fatalf("%s is said to lie at bit %d", s, bit)
			}
		}
	}
	if contradictions == 0 {
		t.Error("nothing contradicted")
	}
}

func TestInferRefuses(t *testing.T) {
	l := packed(t, "block head token component dim")
	good := observe(l, layout.Samples(kv()))
	find := func(el layout.Element) int {
		return slices.IndexFunc(good, func(s layout.Sample) bool { return s.Element == el })
	}
	origin, token1, token2, token3 := find(layout.Element{}), find(layout.Element{Token: 1}), find(layout.Element{Token: 2}), find(layout.Element{Token: 3})
	last := find(layout.Element{Block: 2, Token: 3, Head: 1, Dim: 7})
	for _, c := range []struct {
		name   string
		change func(ss []layout.Sample) []layout.Sample
		a, b   int    // contradiction, indices after the change; -1: another error
		say    string // part of the message
	}{
		{"one element at two places", func(ss []layout.Sample) []layout.Sample {
			s := ss[origin]
			s.Bit += 16
			return append(ss, s)
		}, origin, len(good), "one element lies at one place"},
		{"two elements at one place", func(ss []layout.Sample) []layout.Sample { ss[token1].Bit = ss[origin].Bit; return ss }, origin, token1, "two elements lie at two places"},
		{"two regions", func(ss []layout.Sample) []layout.Sample { ss[token1].Region = 1; return ss }, origin, token1, "lies in one region"},
		{"tokens descend", func(ss []layout.Sample) []layout.Sample {
			for i := range ss {
				ss[i].Bit += 4096 // so that there is room below
			}
			ss[token1].Bit, ss[token2].Bit, ss[token3].Bit = ss[origin].Bit-256-1, ss[origin].Bit-512-1, ss[origin].Bit-768-1
			return slices.DeleteFunc(ss, func(s layout.Sample) bool { return s.Component != 0 || s.Layer != 0 || s.Block > 0 })
		}, -2, -2, "along token"},
		// Token 3 is 1 in either digit, were the axis cut at 2.
		{"no digits", func(ss []layout.Sample) []layout.Sample { ss[token3].Bit += 24; return slices.Delete(ss, last, last+1) }, token2, token3, "fit no division"},
		{"the corner", func(ss []layout.Sample) []layout.Sample { ss[last].Bit -= 16; return ss }, -2, last, "with the others they put it at bit"},
		{"not seen", func(ss []layout.Sample) []layout.Sample {
			return slices.DeleteFunc(ss, func(s layout.Sample) bool { return s.Layer == 1 && s.Component == 1 })
		}, -1, -1, "do not settle the place of component v of layer 42: it was not observed"},
		{"no start", func(ss []layout.Sample) []layout.Sample { return slices.Delete(ss, origin, origin+1) }, -1, -1, "where it starts does not follow"},
		{"none", func(ss []layout.Sample) []layout.Sample { return nil }, -1, -1, "it was not observed"},
		{"of no component", func(ss []layout.Sample) []layout.Sample { ss[1].Component = 2; return ss }, -1, -1, "samples[1].component is 2"},
		{"of no layer", func(ss []layout.Sample) []layout.Sample { ss[1].Layer = -1; return ss }, -1, -1, "samples[1].layer is -1"},
		{"of no token", func(ss []layout.Sample) []layout.Sample { ss[1].Token = 4; return ss }, -1, -1, "samples[1].token is 4"},
		{"of no region", func(ss []layout.Sample) []layout.Sample { ss[1].Region = 2; return ss }, -1, -1, "samples[1].region is 2"},
		{"behind the region", func(ss []layout.Sample) []layout.Sample { ss[1].Bit = 768 * 8; return ss }, -1, -1, "samples[1].bit is 6144"},
		{"before the region", func(ss []layout.Sample) []layout.Sample { ss[1].Bit = -16; return ss }, -1, -1, "samples[1].bit is -16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			regions := l.Regions
			if c.name == "tokens descend" {
				regions = []layout.Region{{Name: "layer41", Bytes: 4096}, {Name: "layer42", Bytes: 4096}}
			}
			ss := c.change(slices.Clone(good))
			_, err := layout.Infer(ss, kv(), regions)
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("got %v; want %q", err, c.say)
			}
			var con *layout.Contradiction
			if c.a == -1 {
				if errors.As(err, &con) {
					t.Fatalf("got a contradiction: %v", err)
				}
				return
			}
			if !errors.As(err, &con) {
				t.Fatalf("got %v; want a *Contradiction", err)
			}
			if c.a >= 0 && con.A != ss[c.a] || c.b >= 0 && con.B != ss[c.b] {
				t.Errorf("got %s and %s", con.A, con.B)
			}
		})
	}
	// Samples that make a layout in which elements overlap by half.
	ss := slices.Clone(good)
	for i := range ss {
		if ss[i].Component == 1 {
			ss[i].Bit -= 128 - 8
		}
	}
	var le *layout.Error
	if _, err := layout.Infer(ss, kv(), l.Regions); !errors.As(err, &le) || le.Field != "places" {
		t.Errorf("overlap: got %v", err)
	}
}

func BenchmarkInfer(b *testing.B) {
	e := llama70b(80)
	l, err := layout.Spec{Order: order(b, "block head token component dim")}.Resolve(e)
	if err != nil {
		b.Fatal(err)
	}
	samples := observe(l, layout.Samples(e))
	for b.Loop() {
		if _, err := layout.Infer(samples, e, l.Regions); err != nil {
			b.Fatal(err)
		}
	}
}
