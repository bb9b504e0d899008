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
	fmt.Fprintf(&b, "kvferry: %s\nmodel:\n  name: %s\n  layers: %d\n", Version, quote(f.Model.Name), f.Model.Layers)
	identity(&b, f.Model.Identity)
	b.WriteString("  components:\n")
	for _, c := range f.Model.Groups[0].Components {
		fmt.Fprintf(&b, "    - {name: %s, heads: %d, dim: %d, dtype: %s}\n", quote(c.Name), c.Heads, c.Dim, c.DType)
	}
	for _, name := range []string{Source, Destination} {
		s := f.Side(name)
		fmt.Fprintf(&b, "%s:\n  engine: %s\n  shard: {%s}\n  block: %d\n  blocks: %d\n", name, quote(s.Engine), shardText(s.Shard), s.Block, s.Blocks)
		if s.DType != 0 {
			fmt.Fprintf(&b, "  dtype: %s\n", s.DType)
		}
		identity(&b, s.Identity)
		switch {
		case s.Can != nil:
			can := make([]string, len(s.Can))
			for i, c := range s.Can {
				can[i] = quote(c)
			}
			fmt.Fprintf(&b, "  can: [%s]\n", strings.Join(can, ", "))
		case s.Preset != "":
			fmt.Fprintf(&b, "  layout: %s\n", quote(s.Preset))
		case s.Layout != nil:
			b.WriteString("  layout:\n")
			layoutText(&b, *s.Layout)
		}
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
	t := fmt.Sprintf("tp: %d, pp: %s, dcp: {size: %d, interleave: %d}", s.TP, ints(s.Stages), s.DCPSize, s.Interleave)
	if s.Heads != nil {
		lists := make([]string, len(s.Heads))
		for i, h := range s.Heads {
			lists[i] = ints(h)
		}
		t += ", heads: [" + strings.Join(lists, ", ") + "]"
	}
	return t + fmt.Sprintf(", rank_order: [%s, %s, %s]", s.Order[0], s.Order[1], s.Order[2])
}

func layoutText(b *strings.Builder, s layout.Spec) {
	items := func(list []layout.Item) string {
		t := make([]string, len(list))
		for i, it := range list {
			t[i] = it.String()
		}
		return strings.Join(t, ", ")
	}
	var order []string
	for _, e := range s.Order {
		switch {
		case e.Component:
			order = append(order, "component")
		case e.Branch != nil:
			var parts []string
			for _, name := range slices.Sorted(maps.Keys(e.Branch)) {
				parts = append(parts, fmt.Sprintf("%s: [%s]", quote(name), items(e.Branch[name])))
			}
			order = append(order, "{"+strings.Join(parts, ", ")+"}")
		default:
			order = append(order, e.Item.String())
		}
	}
	fmt.Fprintf(b, "    order: [%s]\n", strings.Join(order, ", "))
	if len(s.Strides) > 0 {
		var st []string
		for _, item := range slices.Sorted(maps.Keys(s.Strides)) {
			st = append(st, fmt.Sprintf("%s: %d", item, s.Strides[item]))
		}
		fmt.Fprintf(b, "    strides: {%s}\n", strings.Join(st, ", "))
	}
	if s.Name != "" {
		fmt.Fprintf(b, "    name: %s\n", quote(s.Name))
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
