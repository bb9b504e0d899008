package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// group is the model of one group in one layer.
func group(g geometry.Group) geometry.Model {
	g.Layers = []int{0}
	return geometry.Model{Name: "m", Layers: 1, Groups: []geometry.Group{g}}
}

// mamba2 is the state of a Mamba2 layer: the convolution over x, B and C, and
// the state of each head.
func mamba2(inner, groups, state, headDim int) geometry.Group {
	return geometry.Group{Name: "mamba", State: true, Components: []geometry.Component{
		{Name: "x", Heads: inner, Unit: headDim, Dim: 3, DType: geometry.BF16},
		{Name: "B", Heads: groups * state, Unit: state, Dim: 3, DType: geometry.BF16},
		{Name: "C", Heads: groups * state, Unit: state, Dim: 3, DType: geometry.BF16},
		{Name: "ssm", Heads: inner / headDim, Dim: headDim * state, DType: geometry.FP32},
	}}
}

// deltaNet is the convolution of a gated delta net over Q, K and V.
func deltaNet(keyHeads, valueHeads, dim int) geometry.Group {
	return geometry.Group{Name: "gdn", State: true, Components: []geometry.Component{
		{Name: "q", Heads: keyHeads * dim, Unit: dim, Dim: 3, DType: geometry.BF16},
		{Name: "k", Heads: keyHeads * dim, Unit: dim, Dim: 3, DType: geometry.BF16},
		{Name: "v", Heads: valueHeads * dim, Unit: dim, Dim: 3, DType: geometry.BF16},
	}}
}

// TestChannels has the widths of convolutions on a rank: public figures.
func TestChannels(t *testing.T) {
	for _, c := range []struct {
		name  string
		group geometry.Group
		tp    int
		want  string // by rank, by component: "from+count"
	}{
		{"Nemotron-H-8B, tp 1", mamba2(8192, 8, 128, 64), 1, "0+8192 0+1024 0+1024 0+128"},
		{"Nemotron-H-8B, tp 4", mamba2(8192, 8, 128, 64), 4,
			"0+2048 0+256 0+256 0+32; 2048+2048 256+256 256+256 32+32; 4096+2048 512+256 512+256 64+32; 6144+2048 768+256 768+256 96+32"},
		{"Qwen3.5-27B, tp 8", deltaNet(16, 48, 128), 8,
			"0+256 0+256 0+768; 256+256 256+256 768+768; 512+256 512+256 1536+768; 768+256 768+256 2304+768; " +
				"1024+256 1024+256 3072+768; 1280+256 1280+256 3840+768; 1536+256 1536+256 4608+768; 1792+256 1792+256 5376+768"},
		// Fewer groups than ranks: B and C are replicated, x and the states are not.
		{"one group, tp 4", mamba2(512, 1, 16, 64), 4, "0+128 0+16 0+16 0+2; 128+128 0+16 0+16 2+2; 256+128 0+16 0+16 4+2; 384+128 0+16 0+16 6+2"},
		{"two groups, tp 8", mamba2(512, 2, 16, 64), 8,
			"0+64 0+16 0+16 0+1; 64+64 0+16 0+16 1+1; 128+64 0+16 0+16 2+1; 192+64 0+16 0+16 3+1; " +
				"256+64 16+16 16+16 4+1; 320+64 16+16 16+16 5+1; 384+64 16+16 16+16 6+1; 448+64 16+16 16+16 7+1"},
		{"as many heads, in units of one and of four", geometry.Group{Components: []geometry.Component{
			{Name: "a", Heads: 8, Dim: 4, DType: geometry.BF16}, {Name: "b", Heads: 8, Unit: 4, Dim: 4, DType: geometry.BF16}, {Name: "c", Heads: 8, Dim: 4, DType: geometry.BF16}}}, 4,
			"0+2 0+4 0+2; 2+2 0+4 2+2; 4+2 4+4 4+2; 6+2 4+4 6+2"},
		{"no heads beside channels", geometry.Group{State: true, Components: []geometry.Component{
			{Name: "all", Dim: 4, DType: geometry.BF16}, {Name: "x", Heads: 6, Unit: 3, Dim: 4, DType: geometry.BF16}}}, 2, "- 0+3; - 3+3"},
		{"heads of k and v, scales of neither", geometry.Group{Components: []geometry.Component{
			{Name: "k", Heads: 4, Dim: 4, DType: geometry.BF16}, {Name: "v", Heads: 2, Dim: 4, DType: geometry.BF16}, {Name: "s", Dim: 1, DType: geometry.FP32, Scales: "k"}}}, 4,
			"0+1 0+1 -; 1+1 0+1 -; 2+1 1+1 -; 3+1 1+1 -"},
	} {
		m := group(c.group)
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		s := spec(c.tp, []int{1}, 1, 1)
		if err := s.Validate(m); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var ranks []string
		for r := range s.Ranks() {
			var parts []string
			p := s.Part(m.Groups[0], r)
			for _, h := range p.Heads {
				if h == nil {
					parts = append(parts, "-")
					continue
				}
				for i := range h {
					if h[i] != h[0]+i {
						t.Fatalf("%s: rank %d has channels %v", c.name, r, h)
					}
				}
				parts = append(parts, fmt.Sprintf("%d+%d", h[0], len(h)))
			}
			ranks = append(ranks, strings.Join(parts, " "))
			e := p.Extent(m.Groups[0], 1, 16)
			if err := e.Validate(); err != nil || e.State != c.group.State || e.Blocks != 16 || e.Tokens != 1 || !slices.Equal(e.Layers, p.Layers) {
				t.Errorf("%s: rank %d has extent %+v: %v", c.name, r, e, err)
			}
		}
		if got := strings.Join(ranks, "; "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestUnits deals units by the definition: unit u of n lies on tp rank t when
// the span [u/n, (u+1)/n) of the whole meets [t/T, (t+1)/T).
func TestUnits(t *testing.T) {
	for _, unit := range []int{1, 2, 3} {
		for n := 1; n <= 12; n++ {
			for tp := 1; tp <= 24; tp++ {
				c := geometry.Component{Name: "c", Heads: n * unit, Dim: 1, DType: geometry.BF16}
				if unit > 1 {
					c.Unit = unit
				}
				m := group(geometry.Group{Components: []geometry.Component{{Name: "latent", Dim: 1, DType: geometry.BF16}, c}})
				s := spec(tp, []int{1}, 1, 1)
				err := s.Validate(m)
				if fits := n%tp == 0 || tp%n == 0; fits != (err == nil) {
					t.Fatalf("%d units over tp %d: %v", n, tp, err)
				}
				var e *shard.Error
				if err != nil {
					if !errors.As(err, &e) || e.Field != "tp" || !strings.Contains(err.Error(), fmt.Sprintf("is %d: %d ", tp, n)) || !strings.Contains(err.Error(), fmt.Sprintf("do not split evenly over tp %d", tp)) {
						t.Fatalf("%d units over tp %d: %v", n, tp, err)
					}
					continue
				}
				for r := range tp {
					var want []int
					for h := range n * unit {
						if u := h / unit; u*tp < (r+1)*n && r*n < (u+1)*tp {
							want = append(want, h)
						}
					}
					p := s.Part(m.Groups[0], r)
					if !slices.Equal(p.Heads[1], want) || p.Heads[0] != nil {
						t.Fatalf("%d units of %d over tp %d: rank %d has %v, want %v", n, unit, tp, r, p.Heads, want)
					}
				}
			}
		}
	}
}

// TestScalesWithRows: a rank that holds rows holds their scales, whatever the
// shard.
func TestScalesWithRows(t *testing.T) {
	m := group(geometry.Group{Components: []geometry.Component{
		{Name: "k", Heads: 4, Dim: 8, DType: geometry.FP8E4M3}, {Name: "v", Heads: 4, Dim: 8, DType: geometry.FP8E4M3},
		{Name: "k_scale", Heads: 4, Dim: 1, DType: geometry.FP32, Scales: "k"}, {Name: "v_scale", Heads: 4, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "v"}}})
	for _, s := range []shard.Spec{
		spec(1, []int{1}, 1, 1), spec(2, []int{1}, 2, 32), spec(8, []int{1}, 1, 1),
		{TP: 2, Stages: []int{1}, DCPSize: 1, Interleave: 1, Heads: [][]int{{3, 0}, {1, 2, 3}}, Order: [3]shard.Grid{1, 2, 3}},
	} {
		if err := s.Validate(m); err != nil {
			t.Fatal(err)
		}
		for r := range s.Ranks() {
			p := s.Part(m.Groups[0], r)
			if !slices.Equal(p.Heads[0], p.Heads[2]) || !slices.Equal(p.Heads[1], p.Heads[3]) || len(p.Heads[0]) == 0 {
				t.Errorf("%srank %d has heads %v", s.Text(), r, p.Heads)
			}
		}
	}
}

// TestPlaces has engines whose ranks stand where no order of axes puts them.
func TestPlaces(t *testing.T) {
	s := spec(2, []int{2, 2}, 2, 4)
	// TensorRT-LLM's way and none: dcp outside tp in the first stage, inside in
	// the second, stages interleaved.
	s.Places = []shard.Place{
		{PP: 0, TP: 0, DCP: 0}, {PP: 1, TP: 0, DCP: 0}, {PP: 0, TP: 1, DCP: 0}, {PP: 1, TP: 0, DCP: 1},
		{PP: 0, TP: 0, DCP: 1}, {PP: 1, TP: 1, DCP: 0}, {PP: 0, TP: 1, DCP: 1}, {PP: 1, TP: 1, DCP: 1},
	}
	m := model(4, 4)
	if err := s.Validate(m); err != nil {
		t.Fatal(err)
	}
	for r, want := range s.Places {
		if got := s.Place(r); got != want || s.Rank(got) != r {
			t.Errorf("rank %d stands at %+v, where rank %d is; want %+v", r, got, s.Rank(got), want)
		}
		p := s.Part(m.Groups[0], r)
		if !slices.Equal(p.Layers, []int{2 * want.PP, 2*want.PP + 1}) || !slices.Equal(p.Heads[0], []int{2 * want.TP, 2*want.TP + 1}) || p.Phase != want.DCP || p.Size != 2 || p.Interleave != 4 {
			t.Errorf("rank %d holds %+v", r, p)
		}
	}
	if r := s.Rank(shard.Place{PP: 2}); r != -1 {
		t.Errorf("a place outside the grid is rank %d", r)
	}
	// Written out, an order is the same shard but for its text.
	for _, order := range [][3]shard.Grid{{shard.PP, shard.TP, shard.DCP}, {shard.DCP, shard.PP, shard.TP}, {shard.TP, shard.DCP, shard.PP}} {
		a := spec(3, []int{1, 3}, 2, 1)
		a.Order = order
		b := a
		for r := range a.Ranks() {
			b.Places = append(b.Places, a.Place(r))
		}
		b.Order = [3]shard.Grid{shard.TP, shard.PP, shard.DCP} // says nothing
		m := model(4, 6)
		if err := b.Validate(m); err != nil {
			t.Fatal(err)
		}
		for r := range a.Ranks() {
			if p, q := a.Part(m.Groups[0], r), b.Part(m.Groups[0], r); fmt.Sprint(p) != fmt.Sprint(q) || b.Rank(a.Place(r)) != r {
				t.Errorf("order %v: rank %d holds %v, by places %v", order, r, p, q)
			}
		}
		if a.Text() == b.Text() || !strings.Contains(b.Text(), " places [{0 0 0} ") {
			t.Errorf("got %s", b.Text())
		}
	}
}

func TestPlacesRefused(t *testing.T) {
	all := func() []shard.Place {
		return []shard.Place{{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}}
	}
	for _, c := range []struct {
		name   string
		places []shard.Place
		want   string
	}{
		{"none", []shard.Place{}, "shard: ranks is 0: want a place for each of 4 ranks"},
		{"too few", all()[:3], "shard: ranks is 3: want a place for each of 4 ranks"},
		{"too many", append(all(), shard.Place{}), "shard: ranks is 5: want a place for each of 4 ranks"},
		{"a place twice", append(all()[:3], shard.Place{PP: 0, TP: 1}), "shard: ranks[3] is {0 1 0}: is the place of rank 1"},
		{"a stage beyond", append(all()[:3], shard.Place{PP: 2, TP: 1}), "shard: ranks[3] is {2 1 0}: want a place in 2 pp x 2 tp x 1 dcp"},
		{"tp beyond", append(all()[:3], shard.Place{PP: 1, TP: 2}), "shard: ranks[3] is {1 2 0}: want a place in 2 pp x 2 tp x 1 dcp"},
		{"dcp beyond", append(all()[:3], shard.Place{PP: 1, TP: 1, DCP: 1}), "shard: ranks[3] is {1 1 1}: want a place in 2 pp x 2 tp x 1 dcp"},
		{"negative", append(all()[:3], shard.Place{PP: 1, TP: -1}), "shard: ranks[3] is {1 -1 0}: want a place in 2 pp x 2 tp x 1 dcp"},
		{"negative stage", append(all()[:3], shard.Place{PP: -1, TP: 1}), "shard: ranks[3] is {-1 1 0}: want a place in 2 pp x 2 tp x 1 dcp"},
		{"negative dcp", append(all()[:3], shard.Place{PP: 1, TP: 1, DCP: -1}), "shard: ranks[3] is {1 1 -1}: want a place in 2 pp x 2 tp x 1 dcp"},
	} {
		s := spec(2, []int{2, 2}, 1, 1)
		s.Places = c.places
		err := s.Validate(model(4, 4))
		var e *shard.Error
		if !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

// TestValidateGroups has what the groups of a model forbid a shard.
func TestValidateGroups(t *testing.T) {
	attention := geometry.Group{Name: "attention", Layers: []int{0, 2, 4}, Components: []geometry.Component{{Name: "k", Heads: 8, Dim: 4, DType: geometry.BF16}}}
	explicit := shard.Spec{TP: 2, Stages: []int{6}, DCPSize: 1, Interleave: 1, Heads: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}, Order: [3]shard.Grid{1, 2, 3}}
	with := func(change func(g *geometry.Group)) geometry.Model {
		g := attention
		g.Components = slices.Clone(g.Components)
		change(&g)
		return geometry.Model{Name: "m", Layers: 6, Groups: []geometry.Group{g}}
	}
	entries := func(n int) geometry.Model {
		return with(func(g *geometry.Group) { g.Components[0].Entry = n })
	}
	scale := with(func(g *geometry.Group) {
		g.Components = append(g.Components, geometry.Component{Name: "s", Heads: 8, Dim: 1, DType: geometry.FP32, Entry: 16, Scales: "k"})
	})
	state := with(func(g *geometry.Group) { g.State = true })
	unit := with(func(g *geometry.Group) { g.Components[0].Unit = 4 })
	shared := with(func(g *geometry.Group) { g.Shared = []geometry.Share{{Layer: 3, Owner: 2}, {Layer: 5, Owner: 4}} })
	none := with(func(g *geometry.Group) { g.Components[0].Heads = 0 })
	mixed := with(func(g *geometry.Group) {
		g.Components = append(g.Components, geometry.Component{Name: "v", Heads: 4, Dim: 1, DType: geometry.BF16})
	})
	both := geometry.Model{Name: "m", Layers: 6, Groups: []geometry.Group{none.Groups[0], attention}}
	both.Groups[1].Name = "more"
	for _, c := range []struct {
		name  string
		model geometry.Model
		shard shard.Spec
		want  string // "" where it is legal
	}{
		{"entries within the interleave", entries(4), spec(1, []int{6}, 2, 8), ""},
		{"entries as the interleave", entries(8), spec(1, []int{6}, 2, 8), ""},
		{"entries larger than the interleave", entries(16), spec(1, []int{6}, 2, 8), `shard: dcp.interleave is 8: parts the entries of 16 tokens that group "attention" has`},
		{"entries across the interleave", entries(3), spec(1, []int{6}, 2, 8), `shard: dcp.interleave is 8: parts the entries of 3 tokens that group "attention" has`},
		{"entries where nothing is dealt", entries(16), spec(1, []int{6}, 1, 1), ""},
		{"scales of tokens across the interleave", scale, spec(1, []int{6}, 2, 1), `shard: dcp.interleave is 1: parts the entries of 16 tokens that group "attention" has`},
		{"states", state, spec(2, []int{6}, 1, 1), ""},
		{"states have no tokens", state, spec(1, []int{6}, 2, 1), `shard: dcp.size is 2: group "attention" keeps states, which have no tokens to deal: give the group a shard of its own`},
		{"states by a list of heads", state, explicit, `shard: heads is given: group "attention" has channels, which are dealt in equal parts`},
		{"units by a list of heads", unit, explicit, `shard: heads is given: group "attention" has channels, which are dealt in equal parts`},
		{"units over tp", unit, spec(2, []int{6}, 1, 1), ""},
		{"units replicated", unit, spec(4, []int{6}, 1, 1), ""},
		{"units that do not split", unit, spec(3, []int{6}, 1, 1), `shard: tp is 3: 2 units of 4 of group "attention" (component k) do not split evenly over tp 3, nor tp over them: they are dealt in equal parts, so choose a tp that divides them, or give the group a shard of its own`},
		{"shared layers in their stage", shared, spec(1, []int{2, 2, 2}, 1, 1), ""},
		{"a shared layer in another stage", shared, spec(1, []int{3, 3}, 1, 1), `shard: pp is [3 3]: layer 3 shares the cache of layer 2, which lies in another stage`},
		{"the last layer alone", shared, spec(1, []int{5, 1}, 1, 1), `shard: pp is [5 1]: layer 5 shares the cache of layer 4, which lies in another stage`},
		{"a list of heads", attentionModel(attention), explicit, ""},
		{"a list of heads where one group has none", both, explicit, ""},
		{"a list of heads where none has any", none, explicit, `shard: heads is given: the model's components have no heads: every tp rank holds them whole`},
		{"a list of heads for components that differ", mixed, explicit, `shard: heads[1][0] is 4: head numbers are 0 to 3, each once a rank`},
		{"components that differ", mixed, spec(8, []int{6}, 1, 1), ""},
		{"one component that does not split", mixed, spec(16, []int{6}, 1, 1), ""},
		{"components of which one does not split", with(func(g *geometry.Group) {
			g.Components = append(g.Components, geometry.Component{Name: "v", Heads: 3, Dim: 1, DType: geometry.BF16})
		}), spec(8, []int{6}, 1, 1), `shard: tp is 8: 3 heads of group "attention" (component v) do not split evenly over tp 8, nor tp over heads: give the shard's heads explicitly`},
	} {
		if err := c.model.Validate(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		err := c.shard.Validate(c.model)
		var e *shard.Error
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &e) || err.Error() != c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func attentionModel(g geometry.Group) geometry.Model {
	return geometry.Model{Name: "m", Layers: 6, Groups: []geometry.Group{g}}
}

// TestExtent compares a part's extent with what a layout then has room for.
func TestExtent(t *testing.T) {
	g := geometry.Group{Layers: []int{0, 1, 2}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 4, DType: geometry.BF16}, {Name: "s", Dim: 1, DType: geometry.FP32, Entry: 4, Scales: "k"}}}
	s := spec(4, []int{1, 2}, 1, 1)
	got := s.Part(g, 6).Extent(g, 16, 32)
	want := layout.Extent{Layers: []int{1, 2}, Blocks: 32, Tokens: 16, Heads: []int{2, 0}, Components: g.Components}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}
