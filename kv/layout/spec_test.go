package layout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

// order reads an order as pair files write it, with blanks between entries and
// branches as {k: ...; v,w: ...}.
func order(t testing.TB, text string) []layout.Entry {
	t.Helper()
	for _, sign := range []string{"{", "}", ":", ";"} {
		text = strings.ReplaceAll(text, sign, " "+sign+" ")
	}
	words := strings.Fields(text)
	out := entries(t, &words)
	if len(words) > 0 {
		t.Fatalf("%q is left of the order %q", words, text)
	}
	return out
}

func entries(t testing.TB, words *[]string) []layout.Entry {
	t.Helper()
	next := func(want string) string {
		if len(*words) == 0 || want != "" && (*words)[0] != want {
			t.Fatalf("want %q before %q", want, *words)
		}
		w := (*words)[0]
		*words = (*words)[1:]
		return w
	}
	var out []layout.Entry
	for len(*words) > 0 && (*words)[0] != "}" && (*words)[0] != ";" {
		switch w := next(""); w {
		case "component":
			out = append(out, layout.Entry{Component: true})
		case "{":
			b := map[string][]layout.Entry{}
			for {
				key := next("")
				next(":")
				b[key] = entries(t, words)
				if next("") == "}" {
					break
				}
			}
			out = append(out, layout.Entry{Branch: b})
		default:
			it, err := layout.ParseItem(w)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, layout.Entry{Item: it})
		}
	}
	return out
}

// kv is the extent of the examples: 2 layers (41 and 42), 3 blocks of 4
// tokens, 2 heads of 8 bf16 elements.
func kv() layout.Extent {
	return layout.Extent{Layers: []int{41, 42}, Blocks: 3, Tokens: 4, Heads: []int{2, 2}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 8, DType: geometry.BF16},
		{Name: "v", Heads: 8, Dim: 8, DType: geometry.BF16},
	}}
}

func TestParseItem(t *testing.T) {
	for _, c := range []struct {
		text string
		want layout.Item
	}{
		{"layer", layout.Item{Axis: geometry.Layer}},
		{"block", layout.Item{Axis: geometry.Block}},
		{"token/16", layout.Item{Axis: geometry.Token, Div: 16}},
		{"head%4", layout.Item{Axis: geometry.Head, Mod: 4}},
		{"dim%64/8", layout.Item{Axis: geometry.Dim, Mod: 64, Div: 8}},
		{"dim%1", layout.Item{Axis: geometry.Dim, Mod: 1}},
		{"slot", layout.Item{Axis: geometry.Slot}},
		{"channel%64/8", layout.Item{Axis: geometry.Channel, Mod: 64, Div: 8}},
	} {
		it, err := layout.ParseItem(c.text)
		if err != nil || it != c.want {
			t.Errorf("ParseItem(%q) = %+v, %v; want %+v", c.text, it, err, c.want)
		}
		if it.String() != c.text {
			t.Errorf("%q prints as %q", c.text, it)
		}
	}
	for _, text := range []string{"", "component", "Slot", "channels", "Token", "token ", "token/", "token%", "token/0", "token/1", "token%0",
		"token/-2", "token/+2", "token/02", "token%016", "token/2%4", "token%4%2", "token/2/2", "token%6/4", "token%2/4", "dim%99999999999"} {
		it, err := layout.ParseItem(text)
		var e *layout.Error
		if !errors.As(err, &e) || e.Field != "order" {
			t.Errorf("ParseItem(%q) = %+v, %v; want an *Error of field order", text, it, err)
		}
	}
}

func FuzzParseItem(f *testing.F) {
	for _, s := range []string{"layer", "token/16", "dim%64/8", "token%6/4", "dim%%", "head/", "component"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		it, err := layout.ParseItem(text)
		if err == nil && it.String() != text {
			t.Errorf("%q is read as %+v, which is %q", text, it, it)
		}
	})
}

func TestResolve(t *testing.T) {
	unequal := kv()
	unequal.Components = []geometry.Component{
		{Name: "k", Heads: 8, Dim: 8, DType: geometry.BF16},
		{Name: "v", Heads: 8, Dim: 4, DType: geometry.FP32},
		{Name: "scale", Heads: 8, Dim: 1, DType: geometry.FP32},
	}
	unequal.Heads = []int{2, 2, 2}
	fp4 := kv()
	fp4.Components = []geometry.Component{{Name: "k", Heads: 8, Dim: 8, DType: geometry.FP4}, {Name: "v", Heads: 8, Dim: 8, DType: geometry.FP4}}
	mla := layout.Extent{Layers: []int{0, 1}, Blocks: 5, Tokens: 4, Heads: []int{0}, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.BF16}}}
	type place struct {
		el     layout.Element
		region string
		byte   int64
	}
	for _, c := range []struct {
		name    string
		extent  layout.Extent
		order   string
		strides map[string]int64
		regions []layout.Region
		places  []place
	}{
		{
			"packed", kv(), "block head token component dim", nil,
			[]layout.Region{{Name: "layer41", Bytes: 3 * 2 * 4 * 32}, {Name: "layer42", Bytes: 768}},
			[]place{
				{layout.Element{Block: 2, Head: 1, Token: 3, Dim: 7}, "layer41", 2*256 + 128 + 3*32 + 14},
				{layout.Element{Component: 1, Layer: 1, Block: 2, Head: 1, Token: 3, Dim: 7}, "layer42", 2*256 + 128 + 3*32 + 16 + 14},
			},
		},
		{
			"all apart", kv(), "block token head dim", nil,
			[]layout.Region{{Name: "layer41.k", Bytes: 384}, {Name: "layer41.v", Bytes: 384}, {Name: "layer42.k", Bytes: 384}, {Name: "layer42.v", Bytes: 384}},
			[]place{{layout.Element{Component: 1, Layer: 1, Block: 1, Token: 2, Head: 1}, "layer42.v", 128 + 2*32 + 16}},
		},
		{
			"a region a component", kv(), "layer block token head dim", nil,
			[]layout.Region{{Name: "k", Bytes: 768}, {Name: "v", Bytes: 768}},
			[]place{{layout.Element{Component: 1, Layer: 1, Block: 1, Token: 2, Head: 1}, "v", 384 + 128 + 2*32 + 16}},
		},
		{
			"a pool", kv(), "component block layer head token dim", nil,
			[]layout.Region{{Name: "pool", Bytes: 1536}},
			[]place{{layout.Element{Component: 1, Layer: 1, Block: 2, Token: 2, Head: 1}, "pool", 768 + 2*256 + 128 + 64 + 32}},
		},
		{
			"unequal widths", unequal, "block token head component dim", nil,
			[]layout.Region{{Name: "layer41", Bytes: 3 * 4 * 2 * 36}, {Name: "layer42", Bytes: 864}},
			[]place{
				{layout.Element{Component: 1, Block: 1, Token: 1, Head: 1, Dim: 3}, "layer41", 288 + 72 + 36 + 16 + 12},
				{layout.Element{Component: 2, Block: 1, Token: 1, Head: 1}, "layer41", 288 + 72 + 36 + 32},
			},
		},
		{
			"padded", kv(), "block head token component dim", map[string]int64{"block": 512, "head": 200, "token": 40},
			[]layout.Region{{Name: "layer41", Bytes: 1536}, {Name: "layer42", Bytes: 1536}},
			[]place{{layout.Element{Component: 1, Block: 2, Head: 1, Token: 3, Dim: 1}, "layer41", 1024 + 200 + 120 + 16 + 2}},
		},
		{
			"padded, components apart", unequal, "block token head dim", map[string]int64{"token": 64},
			[]layout.Region{{Name: "layer41.k", Bytes: 768}, {Name: "layer41.v", Bytes: 768}, {Name: "layer41.scale", Bytes: 768},
				{Name: "layer42.k", Bytes: 768}, {Name: "layer42.v", Bytes: 768}, {Name: "layer42.scale", Bytes: 768}},
			[]place{{layout.Element{Component: 2, Block: 1, Token: 1, Head: 1}, "layer41.scale", 256 + 64 + 4}},
		},
		{
			"transposed K", kv(), "block head component {k: dim token; v: token dim}", nil,
			[]layout.Region{{Name: "layer41", Bytes: 768}, {Name: "layer42", Bytes: 768}},
			[]place{
				{layout.Element{Block: 1, Head: 1, Token: 3, Dim: 5}, "layer41", 256 + 128 + 5*8 + 6},
				{layout.Element{Component: 1, Block: 1, Head: 1, Token: 3, Dim: 5}, "layer41", 256 + 128 + 64 + 3*16 + 10},
			},
		},
		{
			"a branch without component", kv(), "block head {k: dim/4 token dim%4; v: dim token}", nil,
			[]layout.Region{{Name: "layer41.k", Bytes: 384}, {Name: "layer41.v", Bytes: 384}, {Name: "layer42.k", Bytes: 384}, {Name: "layer42.v", Bytes: 384}},
			[]place{
				{layout.Element{Block: 1, Head: 1, Token: 3, Dim: 6}, "layer41.k", 128 + 64 + 32 + 3*8 + 4},
				{layout.Element{Component: 1, Block: 1, Head: 1, Token: 3, Dim: 6}, "layer41.v", 128 + 64 + 6*8 + 6},
			},
		},
		{
			"three parts", kv(), "block dim/4 token head component dim%4/2 dim%2", nil,
			[]layout.Region{{Name: "layer41", Bytes: 768}, {Name: "layer42", Bytes: 768}},
			[]place{{layout.Element{Component: 1, Block: 1, Token: 1, Head: 1, Dim: 7}, "layer41", 256 + 128 + 32 + 16 + 8 + 4 + 2}},
		},
		{
			"half bytes", fp4, "block head token component dim", nil,
			[]layout.Region{{Name: "layer41", Bytes: 192}, {Name: "layer42", Bytes: 192}},
			[]place{{layout.Element{Component: 1, Block: 1, Head: 1, Token: 1, Dim: 6}, "layer41", 64 + 32 + 8 + 4 + 3}},
		},
		{
			"no heads", mla, "block token dim", nil,
			[]layout.Region{{Name: "layer0.latent", Bytes: 23040}, {Name: "layer1.latent", Bytes: 23040}},
			[]place{{layout.Element{Layer: 1, Block: 4, Token: 3, Dim: 575}, "layer1.latent", 4*4608 + 3*1152 + 1150}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := layout.Spec{Order: order(t, c.order), Strides: c.strides}.Resolve(c.extent)
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Regions) != len(c.regions) {
				t.Fatalf("regions %v, want %v", l.Regions, c.regions)
			}
			for i, r := range c.regions {
				if l.Regions[i] != r {
					t.Errorf("region %d is %v, want %v", i, l.Regions[i], r)
				}
			}
			for _, p := range c.places {
				if r, bit := at(l, p.el); l.Regions[r].Name != p.region || bit != 8*p.byte {
					t.Errorf("%s lies at %s byte %d, want %s byte %d", p.el, l.Regions[r].Name, bit/8, p.region, p.byte)
				}
			}
			if why := overlap(l); why != "" {
				t.Error(why)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	mla := layout.Extent{Layers: []int{0}, Blocks: 5, Tokens: 4, Heads: []int{0}, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.BF16}}}
	unequal := kv()
	unequal.Components = []geometry.Component{{Name: "k", Heads: 8, Dim: 8, DType: geometry.BF16}, {Name: "v", Heads: 8, Dim: 4, DType: geometry.BF16}}
	huge := kv()
	huge.Blocks, huge.Tokens, huge.Heads = 1<<28, 1<<20, []int{8, 8}
	for _, c := range []struct {
		name    string
		extent  layout.Extent
		order   string
		strides map[string]int64
		field   string
		say     string
	}{
		{"no order", kv(), "", nil, "order", "no default"},
		{"token missing", kv(), "block head component dim", nil, "order", "token is missing for component k"},
		{"head missing", kv(), "block token component dim", nil, "order", "head is missing"},
		{"head of no heads", mla, "block head token dim", nil, "order", "latent has no heads"},
		{"twice", kv(), "block head token token component dim", nil, "order", "stands twice"},
		{"component twice", kv(), "block component head token component dim", nil, "order", "component stands twice"},
		{"branch of a stranger", kv(), "block head component {k: dim token; w: token dim; v: token dim}", nil, "order", `no component "w"`},
		{"branch that forgets one", kv(), "block head component {k: dim token}", nil, "order", `no items for component "v"`},
		{"branch with layer for one", kv(), "block head {k: layer dim token; v: token dim}", nil, "order", "some components only"},
		{"branch that forgets token", kv(), "block head component {k: dim token; v: dim}", nil, "order", "token is missing for component v"},
		{"tiles too few", kv(), "block head component token dim/4", nil, "order", "below 4 is missing"},
		{"tiles with a gap", kv(), "block head component token dim/4 dim%2", nil, "order", "dim%2 stands where the part below 4 is due"},
		{"tiles with an overlap", kv(), "block head component token dim/2 dim%4", nil, "order", "dim%4 stands where the part below 2 is due"},
		{"modulus divides nothing", kv(), "block head component token dim/3 dim%3", nil, "order", "does not divide 8 places of dim"},
		{"outside component with unequal widths", unequal, "block head dim token component", nil, "order", "takes 4 values in component v, 8 in k"},
		{"stride of nothing", kv(), "block head token component dim", map[string]int64{"layer": 1 << 20}, "strides", "names no item outside component"},
		{"stride inside component", kv(), "block head token component dim", map[string]int64{"dim": 4}, "strides", "names no item outside component"},
		{"stride too small", kv(), "block head token component dim", map[string]int64{"block": 255}, "strides.block", "smaller than what lies inside, 256 bytes"},
		{"stride too small for padding inside", kv(), "block head token component dim", map[string]int64{"block": 256, "token": 40}, "strides.block", "smaller than what lies inside, 320 bytes"},
		{"stride negative", kv(), "block head token component dim", map[string]int64{"block": -256}, "strides.block", "want 1"},
		{"stride beyond any region", kv(), "block head token component dim", map[string]int64{"block": 1 << 47}, "strides.block", "want 1"},
		{"stride times count beyond any region", kv(), "block head token component dim", map[string]int64{"block": 1 << 46}, "order", "larger than"},
		{"overflow", huge, "block head token component dim", nil, "order", "larger than"},
		{"no extent", layout.Extent{}, "block head token component dim", nil, "layers", "want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := layout.Spec{Order: order(t, c.order), Strides: c.strides}.Resolve(c.extent)
			var e *layout.Error
			if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v; want field %s and %q", err, c.field, c.say)
			}
		})
	}
	// What only Go code can write.
	branch := layout.Entry{Branch: map[string][]layout.Entry{"k": nil, "v": nil}}
	good := order(t, "block head token component dim")
	for name, entries := range map[string][]layout.Entry{
		"branch first":    append([]layout.Entry{branch}, good...),
		"two things":      append([]layout.Entry{{Component: true, Item: layout.Item{Axis: geometry.Layer}}}, good...),
		"axis of a state": append([]layout.Entry{{Item: layout.Item{Axis: geometry.Slot}}}, good...),
		"empty entry":     append([]layout.Entry{{}}, good...),
		"negative":        append([]layout.Entry{{Item: layout.Item{Axis: geometry.Layer, Div: -1}}}, good...),
	} {
		var e *layout.Error
		if _, err := (layout.Spec{Order: entries}).Resolve(kv()); !errors.As(err, &e) || e.Field != "order" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	s := layout.Spec{Order: good, Bits: []int64{32}}
	if _, err := s.Resolve(kv()); err == nil || !strings.Contains(err.Error(), "elements of [32] bits, component k has bf16") {
		t.Errorf("element size: got %v", err)
	}
}

func TestText(t *testing.T) {
	s := layout.Spec{Order: order(t, "block token/2 head component {v: token%2 dim; k: dim%8/2 token%2 dim%2 dim/8}")}
	if got, want := s.Text(), "[block, token/2, head, component, {k: [dim%8/2, token%2, dim%2, dim/8], v: [token%2, dim]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestClaim(t *testing.T) {
	one := kv()
	one.Heads = []int{1, 1}
	wide := kv()
	wide.Tokens = 8
	mla := layout.Extent{Layers: []int{0}, Blocks: 5, Tokens: 4, Heads: []int{0}, Components: []geometry.Component{{Name: "latent", Dim: 576, DType: geometry.BF16}}}
	for _, c := range []struct {
		extent layout.Extent
		order  string
		claim  string
		actual string // "" where the claim holds
	}{
		{kv(), "block head token component dim", "HND", ""},
		{kv(), "block head token component dim", "NHD", "HND"},
		{kv(), "block token head component dim", "NHD", ""},
		{kv(), "block token head component dim", "HND", "NHD"},
		{kv(), "head block dim component token", "HND", ""},
		{kv(), "token head block dim", "HND", "NHD"},
		{kv(), "block head component {k: dim token; v: token dim}", "HND", ""},
		{kv(), "block component {k: head token dim; v: token head dim}", "HND", "NHD"},
		{wide, "block token/2 head token%2 component dim", "HND", "neither: parts of head and token lie inside one another"},
		{wide, "block token/2 head token%2 component dim", "NHD", "neither: parts of head and token lie inside one another"},
		// One head a rank: the strides would bear either name, the order does not.
		{one, "block token head component dim", "HND", "NHD"},
		{one, "block token head component dim", "NHD", ""},
		// A part with one value is none.
		{kv(), "block token/4 head token%4 component dim", "HND", ""},
		{mla, "block token dim", "HND", "no heads"},
		{kv(), "layer block head token component dim", "LBHNC", ""},
		{kv(), "layer block head token component dim", "LBNHC", "LBHNC"},
		{kv(), "layer block head token dim component", "LBHNC", ""},
		{kv(), "block head token component dim", "LBHNC", ""},
		{kv(), "block head layer token component dim", "BHLNC", ""},
		{kv(), "block head layer token component dim", "LBHNC", "BHLNC"},
		{kv(), "block layer token head component dim", "BLNHC", ""},
		{kv(), "layer head block token component dim", "LHBNC", ""},
		// The name that vLLM gives its transposed rows.
		{kv(), "layer block head component {k: dim token; v: token dim}", "LBHNC", "LBHCN"},
		{kv(), "layer component block head token dim", "LBHNC", "LCBHN"},
	} {
		_, err := layout.Spec{Name: c.claim, Order: order(t, c.order)}.Resolve(c.extent)
		var e *layout.ClaimError
		switch {
		case c.actual == "" && err != nil:
			t.Errorf("%s as %s: %v", c.order, c.claim, err)
		case c.actual != "" && (!errors.As(err, &e) || e.Claim != c.claim || e.Actual != c.actual):
			t.Errorf("%s as %s: got %v, want to hear of %s", c.order, c.claim, err, c.actual)
		}
	}
	_, err := layout.Spec{Name: "hnd", Order: order(t, "block head token component dim")}.Resolve(kv())
	var e *layout.Error
	if !errors.As(err, &e) || e.Field != "name" {
		t.Errorf("unknown claim: got %v", err)
	}
	// On strides alone.
	l, err := layout.Spec{Order: order(t, "layer block token head dim")}.Resolve(kv())
	if err != nil {
		t.Fatal(err)
	}
	var claim *layout.ClaimError
	if err := l.Claim("HND"); !errors.As(err, &claim) || claim.Actual != "NHD" || claim.Component != "k" {
		t.Errorf("got %v", err)
	}
	if err := l.Claim("LBNHC"); !errors.As(err, &claim) || claim.Actual != "components in regions of their own" {
		t.Errorf("got %v", err)
	}
	if err := l.Claim(""); err != nil {
		t.Errorf("no claim: got %v", err)
	}
}
