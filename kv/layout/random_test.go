package layout_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// TestRandomSpecs resolves random orders and compares every element with the
// definition, and with what FromTensors, Infer and the JSON form make of it.
func TestRandomSpecs(t *testing.T) {
	runs := 4000
	if testing.Short() {
		runs = 600
	}
	drawn := map[string]int{}
	count := func(what string, is bool) {
		if is {
			drawn[what]++
		}
	}
	for seed := range uint64(runs) {
		r := drawing{rand.New(rand.NewPCG(seed, 1))}
		e := r.extent()
		s := r.spec(e)
		l, err := s.Resolve(e)
		if err != nil {
			t.Fatalf("seed %d: resolve %s, kernel %d, %+v: %v", seed, s.Text(), s.Kernel, e, err)
		}
		if why := (twin{s, e}).compare(l); why != "" {
			t.Fatalf("seed %d: %s, kernel %d, %v: %s", seed, s.Text(), s.Kernel, s.Strides, why)
		}
		if why := overlap(l); why != "" {
			t.Fatalf("seed %d: %s: %s", seed, s.Text(), why)
		}
		data, err := json.Marshal(l)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var read layout.Layout
		if err := json.Unmarshal(data, &read); err != nil || !read.Equal(l) {
			t.Fatalf("seed %d: read %s: %v", seed, data, err)
		}
		seen := observe(l, layout.Samples(e))
		r.Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		inferred, err := layout.Infer(seen, e, l.Regions)
		if err != nil {
			t.Fatalf("seed %d: infer %s: %v", seed, s.Text(), err)
		}
		if !inferred.Equal(l) {
			t.Fatalf("seed %d: %s\ninferred\n%swant\n%s", seed, s.Text(), inferred.Text(), l.Text())
		}
		if ts := register(l); ts != nil {
			count("registered as tensors", true)
			got, err := layout.FromTensors(ts, e)
			if err != nil {
				t.Fatalf("seed %d: from tensors %+v: %v", seed, ts, err)
			}
			elements(e, func(el layout.Element) {
				r, x := at(l, el)
				if gr, gx := at(got, el); l.Regions[r] != got.Regions[gr] || gx != x {
					t.Fatalf("seed %d: %s: %s lies at bit %d, tensors give %d", seed, s.Text(), el, x, gx)
				}
			})
		}
		var look func(order []layout.Entry, depth int)
		look = func(order []layout.Entry, depth int) {
			for _, en := range order {
				count("tiled items", en.Item.Div > 1)
				count("branches", en.Branch != nil)
				count("branches three deep", en.Branch != nil && depth == 2)
				count("component inside a branch", en.Component && depth > 0)
				for key, below := range en.Branch {
					count("sets of components", strings.Contains(key, ","))
					look(below, depth+1)
				}
			}
		}
		look(s.Order, 0)
		count("layouts", true)
		count("strides", s.Strides != nil)
		count("kernel blocks", s.Kernel > 0)
		count("several kernel blocks a block", s.Kernel > 0 && s.Kernel < int64(e.Tokens))
		count("strides of kernel blocks", s.Kernel > 0 && s.Strides["block"] > 0)
		count("states", e.State)
		count("mixed heads", slices.Max(e.Heads) != slices.Min(e.Heads))
		count("entries", slices.ContainsFunc(e.Components, func(c geometry.Component) bool { return c.Entry > 1 }))
		count("entries in kernel blocks", s.Kernel > 0 && slices.ContainsFunc(e.Components, func(c geometry.Component) bool { return c.Entry > 1 }))
		count("joined regions", slices.ContainsFunc(l.Regions, func(r layout.Region) bool { return strings.Contains(r.Name, "+") }))
	}
	features := []string{"layouts", "registered as tensors", "tiled items", "branches", "branches three deep", "component inside a branch", "sets of components", "strides",
		"kernel blocks", "several kernel blocks a block", "strides of kernel blocks", "states", "mixed heads", "entries", "entries in kernel blocks", "joined regions"}
	for _, f := range features {
		if t.Logf("%s: %d", f, drawn[f]); drawn[f] == 0 {
			t.Errorf("nothing was drawn with %s", f)
		}
	}
}

// TestRandomMutations changes one number of a layout: one that Validate still
// takes has no overlap.
func TestRandomMutations(t *testing.T) {
	runs := 4000
	if testing.Short() {
		runs = 600
	}
	taken, refused := 0, 0
	for seed := range uint64(runs) {
		r := drawing{rand.New(rand.NewPCG(seed, 2))}
		e := r.extent()
		l, err := r.spec(e).Resolve(e)
		if err != nil {
			t.Fatal(err)
		}
		places := make([][]layout.Place, len(l.Places))
		for i := range places {
			places[i] = slices.Clone(l.Places[i])
		}
		l.Places, l.Regions = places, slices.Clone(l.Regions)
		p := &l.Places[r.IntN(len(l.Places))][r.IntN(len(e.Layers))]
		m := slices.Clone(l.Maps[p.Map])
		l.Maps[p.Map] = m
		l.Extent.Components, l.Extent.Heads = slices.Clone(e.Components), slices.Clone(e.Heads)
		switch k := r.IntN(6); {
		case k == 5:
			i := r.IntN(len(e.Components))
			c := &l.Extent.Components[i]
			switch r.IntN(5) {
			case 0:
				l.Extent.Heads[i] += r.of(-1, 1)
			case 1:
				c.Entry = r.of(0, 1, 2, 3)
			case 2:
				c.Unit = r.of(0, 1, 2, 3)
			case 3:
				c.DType = geometry.DType(r.of(1, 3, 4, 5, 9))
			case 4:
				l.Extent.State = !l.Extent.State
			}
		case k == 0:
			p.Offset += int64(r.of(-64, -16, -8, 8, 16, 32, 256))
		case k == 1:
			p.Region = r.IntN(len(l.Regions))
		case k == 2:
			l.Regions[p.Region].Bytes += int64(r.of(-1, 1, 64))
		case len(m) > 0:
			d := &m[r.IntN(len(m))]
			switch r.IntN(4) {
			case 0:
				d.Stride += int64(r.of(-8, -4, 4, 8, 16))
			case 1:
				d.Stride *= 2
			case 2:
				d.Mod *= 2
			case 3:
				d.Axis = geometry.Axis(r.IntN(7))
			}
		}
		why := ""
		if err := l.Validate(); err == nil {
			taken++
			if why = overlap(l); why != "" {
				t.Fatalf("seed %d: accepted although %s:\n%s", seed, why, l.Text())
			}
		} else {
			refused++
		}
	}
	t.Logf("%d taken, %d refused", taken, refused)
	if taken == 0 || refused == 0 {
		t.Error("the mutations were all of one kind")
	}
}
