package pairfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/shard"
)

// Marshal is the canonical text of the file: Parse of it gives an equal file,
// and equal files give equal texts.
func Marshal(f *File) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "kvferry: %s\n%s", Version, MarshalModel(f.Model))
	for _, name := range []string{Source, Destination} {
		s := f.Side(name)
		fmt.Fprintf(&b, "%s:\n  engine: %s\n  shard: {%s}\n", name, quote(s.Engine), shardText(s.Shard))
		if !f.named() {
			sizes(&b, "  ", f.Model.Groups[0], &s.Groups[0])
		}
		if s.DType != 0 {
			fmt.Fprintf(&b, "  dtype: %s\n", s.DType)
		}
		identity(&b, s.Identity)
		if !f.named() {
			lies(&b, "  ", &s.Groups[0])
			continue
		}
		b.WriteString("  groups:\n")
		for g, group := range f.Model.Groups {
			if own := &s.Groups[g]; !own.Absent {
				fmt.Fprintf(&b, "    %s:\n", quote(group.Name))
				sizes(&b, "      ", group, own)
				if own.Shard != nil {
					fmt.Fprintf(&b, "      shard: {%s}\n", shardText(*own.Shard))
				}
				lies(&b, "      ", own)
			}
		}
	}
	return []byte(b.String())
}

// group writes one of the model's groups.
func group(b *strings.Builder, g geometry.Group, layers int) {
	fmt.Fprintf(b, "    - name: %s\n", quote(g.Name))
	if len(g.Layers) < layers {
		fmt.Fprintf(b, "      layers: %q\n", geometry.Ranges(g.Layers))
	}
	if g.State {
		b.WriteString("      state: true\n")
	}
	if g.Window > 0 {
		fmt.Fprintf(b, "      window: %d\n", g.Window)
	}
	if g.Optional {
		b.WriteString("      optional: true\n")
	}
	if len(g.Shared) > 0 {
		shares := make([]string, len(g.Shared))
		for i, s := range g.Shared {
			shares[i] = fmt.Sprintf("%d: %d", s.Layer, s.Owner)
		}
		fmt.Fprintf(b, "      shared: {%s}\n", strings.Join(shares, ", "))
	}
	b.WriteString("      components:\n")
	components(b, "        ", g)
}

func components(b *strings.Builder, indent string, g geometry.Group) {
	for _, c := range g.Components {
		fmt.Fprintf(b, "%s- {name: %s, %s: %d", indent, quote(c.Name), counted(g.State), c.Heads)
		if c.Unit > 0 {
			fmt.Fprintf(b, ", unit: %d", c.Unit)
		}
		fmt.Fprintf(b, ", dim: %d, dtype: %s", c.Dim, c.DType)
		if c.Entry > 0 {
			fmt.Fprintf(b, ", tokens_per_entry: %d", c.Entry)
		}
		if c.Scales != "" {
			fmt.Fprintf(b, ", scales: %s", quote(c.Scales))
		}
		b.WriteString("}\n")
	}
}

// sizes writes the sizes of a group's pool.
func sizes(b *strings.Builder, indent string, g geometry.Group, s *SideGroup) {
	if g.State {
		fmt.Fprintf(b, "%sslots: %d\n", indent, s.Blocks)
		return
	}
	fmt.Fprintf(b, "%sblock: %d\n%sblocks: %d\n", indent, s.Block, indent, s.Blocks)
	if s.Kernel > 0 {
		fmt.Fprintf(b, "%skernel_block: %d\n", indent, s.Kernel)
	}
	if s.Ring > 0 {
		fmt.Fprintf(b, "%sring: %d\n", indent, s.Ring)
	}
}

// lies writes where a group lies.
func lies(b *strings.Builder, indent string, s *SideGroup) {
	switch {
	case s.Can != nil:
		can := make([]string, len(s.Can))
		for i, c := range s.Can {
			can[i] = quote(c)
		}
		fmt.Fprintf(b, "%scan: [%s]\n", indent, strings.Join(can, ", "))
	case s.Preset != "":
		fmt.Fprintf(b, "%slayout: %s\n", indent, quote(s.Preset))
	case s.Layout != nil:
		fmt.Fprintf(b, "%slayout:\n", indent)
		layoutText(b, indent+"  ", *s.Layout)
	}
}

// MarshalModel is the canonical text of a pair file's model, from "model:" on.
// Preconditions: m is valid, Left is 0, and the groups' names are such as Parse
// takes.
func MarshalModel(m geometry.Model) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "model:\n  name: %s\n  layers: %d\n", quote(m.Name), m.Layers)
	identity(&b, m.Identity)
	if !named(m) {
		b.WriteString("  components:\n")
		components(&b, "    ", m.Groups[0])
		return []byte(b.String())
	}
	b.WriteString("  groups:\n")
	for _, g := range m.Groups {
		group(&b, g, m.Layers)
	}
	return []byte(b.String())
}

func identity(b *strings.Builder, id geometry.Identity) {
	if len(id) == 0 {
		return
	}
	b.WriteString("  identity:\n")
	for _, n := range id.Names() {
		fmt.Fprintf(b, "    %s: %s\n", strconv.Quote(n), strconv.Quote(id[n]))
	}
}

func shardText(s shard.Spec) string {
	ints := func(n []int) string {
		return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ", "), "[]") + "]"
	}
	var g grid
	dealt := false
	if s.Places != nil {
		g, dealt = gridOf(s)
	}
	t := fmt.Sprintf("tp: %d, pp: %s", s.TP, ints(s.Stages))
	if dealt {
		t += fmt.Sprintf(", pcp: %d, dcp: {size: %d, interleave: %d}", g.sizes[axisPCP], g.sizes[axisDCP], s.Interleave)
	} else {
		t += fmt.Sprintf(", dcp: {size: %d, interleave: %d}", s.DCPSize, s.Interleave)
	}
	if s.Heads != nil {
		lists := make([]string, len(s.Heads))
		for i, h := range s.Heads {
			lists[i] = ints(h)
		}
		t += ", heads: [" + strings.Join(lists, ", ") + "]"
	}
	if dealt {
		names := make([]string, len(g.order))
		for i, axis := range g.order {
			names[i] = gridAxes[axis]
		}
		return t + ", rank_order: [" + strings.Join(names, ", ") + "]"
	}
	if s.Places != nil {
		places := make([]string, len(s.Places))
		for i, p := range s.Places {
			places[i] = placeText(s, p)
		}
		return t + ", ranks: [" + strings.Join(places, ", ") + "]"
	}
	return t + fmt.Sprintf(", rank_order: [%s, %s, %s]", s.Order[0], s.Order[1], s.Order[2])
}

func orderText(order []layout.Entry) string {
	var out []string
	for _, e := range order {
		switch {
		case e.Component:
			out = append(out, "component")
		case e.Branch != nil:
			var parts []string
			for _, key := range slices.Sorted(maps.Keys(e.Branch)) {
				parts = append(parts, quote(key)+": "+orderText(e.Branch[key]))
			}
			out = append(out, "{"+strings.Join(parts, ", ")+"}")
		default:
			out = append(out, e.Item.String())
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func layoutText(b *strings.Builder, indent string, s layout.Spec) {
	fmt.Fprintf(b, "%sorder: %s\n", indent, orderText(s.Order))
	if len(s.Strides) > 0 {
		var st []string
		for _, item := range slices.Sorted(maps.Keys(s.Strides)) {
			st = append(st, fmt.Sprintf("%s: %d", item, s.Strides[item]))
		}
		fmt.Fprintf(b, "%sstrides: {%s}\n", indent, strings.Join(st, ", "))
	}
	if s.Name != "" {
		fmt.Fprintf(b, "%sname: %s\n", indent, quote(s.Name))
	}
}

var (
	plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	notWords  = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// quote writes a string so that YAML reads it as that string. Go's escapes
// are YAML's too.
func quote(s string) string {
	if plainWord.MatchString(s) && !slices.Contains(notWords, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}
