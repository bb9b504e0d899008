package matrix_test

import (
	"slices"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// A quantisation says how a cache keeps its rows.
const (
	plain      = "bf16"
	inline     = "fp8, a scale a token and head, beside its row"
	apart      = "fp8, a scale a token and head, in a region of its own"
	blockScale = "fp8, a scale for 4 tokens of a head"
	packed     = "fp4 and int4, packed, with fp8 scales"
	mixedTypes = "fp8 beside bf16"
)

var quantisations = []string{plain, inline, apart, blockScale, packed, mixedTypes}

// scaled reports whether the quantisation has scales.
func scaled(q string) bool { return q != plain && q != mixedTypes }

// tokensPerEntry of what has entries of several tokens.
const tokensPerEntry = 4

// quantise makes the components of rows with the given names, all of heads
// heads; 0: none.
func quantise(q string, heads int, rows ...geometry.Component) []geometry.Component {
	var out, behind []geometry.Component
	for i, c := range rows {
		c.Heads, c.DType = heads, geometry.BF16
		scale := geometry.Component{Name: c.Name + "_scale", Heads: heads, Dim: 1, DType: geometry.FP32, Scales: c.Name}
		switch q {
		case inline, apart:
			c.DType = geometry.FP8E4M3
			out = append(out, c, scale)
		case blockScale:
			c.DType, scale.Entry = geometry.FP8E5M2, tokensPerEntry
			out, behind = append(out, c), append(behind, scale)
		case packed:
			c.DType = [...]geometry.DType{geometry.FP4, geometry.Int4}[i%2]
			scale.Dim, scale.DType = 2, geometry.FP8E4M3
			out = append(out, c, scale)
		case mixedTypes:
			if i == 0 {
				c.DType = geometry.FP8E4M3
			}
			out = append(out, c)
		default:
			out = append(out, c)
		}
	}
	return append(out, behind...)
}

// shape is a kind of model.
type shape struct {
	name   string
	layers int
	// groups makes the model's groups for a quantisation.
	groups func(q string) []geometry.Group
	// Names of optional groups that the source, the destination lacks.
	sourceLacks, destinationLacks string
	// ring names a group with a window that one side keeps in a ring.
	ring string
	// blocks are, by group, how many tokens a block has where it is not as
	// many as the row of the table says: twice, or half as many.
	blocks map[string]func(int) int
}

func row2(name string, dim int) geometry.Component { return geometry.Component{Name: name, Dim: dim} }

func group(name string, components []geometry.Component, layers ...int) geometry.Group {
	return geometry.Group{Name: name, Layers: layers, Components: components}
}

func channels(name string, n, unit, dim int, d geometry.DType) geometry.Component {
	return geometry.Component{Name: name, Heads: n, Unit: unit, Dim: dim, DType: d}
}

func state(name string, components []geometry.Component, layers ...int) geometry.Group {
	return geometry.Group{Name: name, Layers: layers, Components: components, State: true}
}

func twice(n int) int { return 2 * n }
func half2(n int) int { return n / 2 }

// shapes are the kinds of models that there are.
var shapes = []shape{
	{name: "GQA", layers: 4, groups: func(q string) []geometry.Group {
		return []geometry.Group{group("", quantise(q, 4, row2("k", 16), row2("v", 8)), 0, 1, 2, 3)}
	}},
	{name: "MHA of 2 heads, on more ranks replicas", layers: 4, groups: func(q string) []geometry.Group {
		return []geometry.Group{group("", quantise(q, 2, row2("k", 16), row2("v", 16)), 0, 1, 2, 3)}
	}},
	{name: "MLA", layers: 4, groups: func(q string) []geometry.Group {
		return []geometry.Group{group("", quantise(q, 0, row2("latent", 24), row2("rope", 8)), 0, 1, 2, 3)}
	}},
	{name: "MLA, rows of several types", layers: 4, groups: func(q string) []geometry.Group {
		c := quantise(q, 0, row2("latent", 32))
		return []geometry.Group{group("", append(c, geometry.Component{Name: "rope", Dim: 8, DType: geometry.BF16}), 0, 1, 2, 3)}
	}},
	{name: "MLA and an indexer", layers: 4, groups: func(q string) []geometry.Group {
		index := []geometry.Component{{Name: "index_k", Dim: 16, DType: geometry.FP8E4M3}, {Name: "index_scale", Dim: 1, DType: geometry.FP32, Scales: "index_k"}}
		return []geometry.Group{group("latent", quantise(q, 0, row2("latent", 24), row2("rope", 8)), 0, 1, 2, 3), group("indexer", index, 0, 1, 2, 3)}
	}, blocks: map[string]func(int) int{"indexer": twice}},
	{name: "sliding windows beside full attention", layers: 4, groups: func(q string) []geometry.Group {
		gs := []geometry.Group{group("window", quantise(q, 4, row2("k", 8), row2("v", 8)), 0, 2), group("full", quantise(q, 4, row2("k", 8), row2("v", 8)), 1, 3)}
		gs[0].Window = 24
		return gs
	}, ring: "window", blocks: map[string]func(int) int{"window": half2}},
	{name: "Mamba2 beside attention", layers: 4, groups: func(q string) []geometry.Group {
		return []geometry.Group{group("attention", quantise(q, 4, row2("k", 16), row2("v", 16)), 1, 3),
			state("mamba", []geometry.Component{channels("x", 16, 0, 3, geometry.BF16), channels("B", 8, 4, 3, geometry.BF16), channels("C", 8, 4, 3, geometry.BF16), channels("ssm", 8, 0, 32, geometry.FP32)}, 0, 2)}
	}},
	{name: "gated delta net beside attention", layers: 4, groups: func(q string) []geometry.Group {
		return []geometry.Group{state("delta", []geometry.Component{channels("q", 16, 4, 3, geometry.BF16), channels("k", 16, 4, 3, geometry.BF16), channels("v", 32, 4, 3, geometry.BF16), channels("ssm", 8, 0, 16, geometry.FP32)}, 0, 1, 2),
			group("attention", quantise(q, 2, row2("k", 16), row2("v", 16)), 3)}
	}},
	{name: "Mamba1", layers: 4, groups: func(string) []geometry.Group {
		return []geometry.Group{state("", []geometry.Component{channels("x", 32, 0, 3, geometry.BF16), channels("ssm", 32, 0, 8, geometry.FP32)}, 0, 1, 2, 3)}
	}},
	{name: "compressed entries", layers: 4, groups: func(q string) []geometry.Group {
		gs := []geometry.Group{group("compressed", []geometry.Component{{Name: "summary", Dim: 24, DType: geometry.BF16, Entry: tokensPerEntry}}, 0, 1, 2, 3),
			group("window", quantise(q, 0, row2("latent", 24), row2("rope", 8)), 0, 1, 2, 3)}
		gs[1].Window = 32
		return gs
	}, ring: "window"},
	{name: "layers that share a cache", layers: 4, groups: func(q string) []geometry.Group {
		g := group("", quantise(q, 4, row2("k", 16), row2("v", 8)), 0, 1, 2)
		g.Shared = []geometry.Share{{Layer: 3, Owner: 2}}
		return []geometry.Group{g}
	}},
	{name: "a draft at the destination only", layers: 5, groups: drafted, sourceLacks: "draft"},
	{name: "a draft at the source only", layers: 5, groups: drafted, destinationLacks: "draft"},
}

// drafted is a model with a draft layer that an engine may lack. It comes
// first: what the engine calls its groups is not what the pair does.
func drafted(q string) []geometry.Group {
	gs := []geometry.Group{group("draft", quantise(plain, 4, row2("k", 8), row2("v", 8)), 4), group("attention", quantise(q, 4, row2("k", 16), row2("v", 16)), 0, 2), group("more", quantise(q, 2, row2("k", 8), row2("v", 8)), 1, 3)}
	gs[0].Optional = true
	return gs
}

// The kinds of layout of the covering table.
var kindsOfLayout = []string{"hnd", "nhd", "split", "joint", "cross-layer", "transposed"}

// orders are the orders of components that are dealt alike, without the heads
// that some have not.
var orders = map[string]string{
	"hnd":         "block head token component dim",
	"nhd":         "block token head component dim",
	"split":       "block token head dim",
	"joint":       "block component head token dim",
	"cross-layer": "block head layer token component dim",
}

// statesOrders are those of states.
var statesOrders = map[string]string{
	"hnd":         "slot component channel dim",
	"split":       "slot channel dim",
	"joint":       "layer slot component channel dim",
	"cross-layer": "slot layer component channel dim",
}

// words makes entries of an order, without heads where there are none.
func words(text string, headed bool) []layout.Entry {
	var out []layout.Entry
	for word := range strings.FieldsSeq(text) {
		if word == "component" {
			out = append(out, layout.Entry{Component: true})
			continue
		}
		it, err := layout.ParseItem(word)
		if err != nil {
			panic(err) // a word of ours
		}
		if it.Axis != geometry.Head || headed {
			out = append(out, layout.Entry{Item: it})
		}
	}
	return out
}

// names joins components to a key of a branch.
func names(comps []geometry.Component) string {
	var out []string
	for _, c := range comps {
		out = append(out, c.Name)
	}
	return strings.Join(out, ",")
}

// lie makes the layout of a kind for a group.
func lie(kind string, g *geometry.Group, q string) layout.Spec {
	comps := g.Components
	if g.State {
		return layout.Spec{Order: stateOrder(kind, comps)}
	}
	if kind == "transposed" {
		// K as [dim/8][token][dim%8], everything else as [dim][token].
		branch := map[string][]layout.Entry{}
		for i, c := range comps {
			rows := "block head dim token"
			if i == 0 && c.Dim%8 == 0 {
				rows = "block head dim/8 token dim%8"
			}
			branch[c.Name] = words(rows, c.Heads > 0)
		}
		return layout.Spec{Order: []layout.Entry{{Branch: branch}}}
	}
	var rows, scales []geometry.Component
	for _, c := range comps {
		if c.Scales != "" {
			scales = append(scales, c)
		} else {
			rows = append(rows, c)
		}
	}
	if q == apart && len(scales) > 0 {
		return layout.Spec{Order: []layout.Entry{{Branch: map[string][]layout.Entry{names(rows): alike(kind, rows), names(scales): alike(kind, scales)}}}}
	}
	return layout.Spec{Order: alike(kind, comps)}
}

// alike is the order of components that lie together: of one after the other
// where they are not dealt alike, since then no head or token of one is a head
// or token of the next.
func alike(kind string, comps []geometry.Component) []layout.Entry {
	var classes [][]geometry.Component
next:
	for _, c := range comps {
		for i, o := range classes {
			if o[0].Heads == c.Heads && o[0].Entry == c.Entry {
				classes[i] = append(classes[i], c)
				continue next
			}
		}
		classes = append(classes, []geometry.Component{c})
	}
	if len(classes) == 1 {
		return words(orders[kind], comps[0].Heads > 0)
	}
	branch := map[string][]layout.Entry{}
	for _, class := range classes {
		text := orders[kind]
		if kind != "split" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "block ", ""), "layer ", "")
		}
		branch[names(class)] = words(text, class[0].Heads > 0)
	}
	switch kind {
	case "split":
		return []layout.Entry{{Branch: branch}}
	case "cross-layer":
		return append(words("block layer component", true), layout.Entry{Branch: branch})
	}
	return append(words("block component", true), layout.Entry{Branch: branch})
}

func stateOrder(kind string, comps []geometry.Component) []layout.Entry {
	conv, ssm := comps[:len(comps)-1], comps[len(comps)-1:]
	switch kind {
	case "nhd": // the convolution's state with the channels inside
		return append(words("slot component", true), layout.Entry{Branch: map[string][]layout.Entry{names(conv): words("dim component channel", true), names(ssm): words("channel dim", true)}})
	case "transposed":
		branch := map[string][]layout.Entry{}
		for _, c := range comps {
			branch[c.Name] = words("slot dim channel", true)
		}
		return []layout.Entry{{Branch: branch}}
	}
	return words(statesOrders[kind], true)
}

// mayPart reports whether a layout of the kind may part the elements of a byte:
// not where a row lies in one piece.
func mayPart(kind string, groups []geometry.Group) bool {
	return kind == "transposed" && slices.ContainsFunc(groups, func(g geometry.Group) bool {
		return slices.ContainsFunc(g.Components, func(c geometry.Component) bool { return c.DType.Bits() < 8 })
	})
}
