package geometry

import "fmt"

// Difference is one field in which two descriptions differ, with both values.
type Difference struct {
	Field       string `json:"field"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// Match says which groups two models have in common.
type Match struct {
	// Groups are the indices of the common groups, in the destination's order.
	Groups []struct{ Source, Destination int }
	// Absent are the names of optional groups that the destination has and the
	// source has not: their cache does not come.
	Absent []string
	// Skipped are the names of optional groups that only the source has.
	Skipped []string
}

// index returns the index of the named group, or -1.
func (m Model) index(name string) int {
	for i, g := range m.Groups {
		if g.Name == name {
			return i
		}
	}
	return -1
}

// only counts the layers that the given groups hold and no other.
func (m Model) only(which func(Group) bool) int {
	in, out := map[int]bool{}, map[int]bool{}
	for _, g := range m.Groups {
		to := out
		if which(g) {
			to = in
		}
		for _, l := range g.Layers {
			to[l] = true
		}
	}
	n := 0
	for l := range in {
		if !out[l] {
			n++
		}
	}
	return n
}

// required is the number of layers without those of optional groups alone.
func (m Model) required() int {
	return m.Layers - m.Left - m.only(func(g Group) bool { return g.Optional })
}

// Select returns the model of the groups with the given indices, in their
// order. Layers that only groups left out hold are counted in Left.
func (m Model) Select(groups []int) Model {
	kept := map[string]bool{}
	out := m
	out.Groups = make([]Group, len(groups))
	for i, g := range groups {
		out.Groups[i] = m.Groups[g]
		kept[m.Groups[g].Name] = true
	}
	out.Left = m.Left + m.only(func(g Group) bool { return !kept[g.Name] })
	return out
}

// Compare matches the groups of two models by name, never by position, and
// returns every field in which the models differ, in the order of Text; none
// means that the common groups of one are those of the other. An optional group
// that one side lacks is no difference. An identity name that only one side
// declares is one; its missing value is written "(not declared)".
func Compare(source, destination Model) (Match, []Difference) {
	var out []Difference
	var match Match
	add := func(field string, s, d any) {
		if a, b := fmt.Sprint(s), fmt.Sprint(d); a != b {
			out = append(out, Difference{field, a, b})
		}
	}
	add("model.name", source.Name, destination.Name)
	layers := func(m Model) int { return m.Layers }
	if source.Layers != destination.Layers { // else they number alike, whatever either leaves out
		layers = Model.required
	}
	add("model.layers", layers(source), layers(destination))
	alike := len(out) == 0 || layers(source) == layers(destination)
	all := Identity{}
	for n := range source.Identity {
		all[n] = ""
	}
	for n := range destination.Identity {
		all[n] = ""
	}
	value := func(id Identity, n string) string {
		if v, ok := id[n]; ok {
			return v
		}
		return "(not declared)"
	}
	for _, n := range all.Names() {
		add("model.identity."+n, value(source.Identity, n), value(destination.Identity, n))
	}
	// compare compares groups that are taken for one another.
	single := len(source.Groups) == 1 && len(destination.Groups) == 1
	compare := func(at string, si, di int) {
		match.Groups = append(match.Groups, struct{ Source, Destination int }{si, di})
		s, d := source.Groups[si], destination.Groups[di]
		if alike { // else the numbers of layers say nothing more
			add(at+"layers", Ranges(s.Layers), Ranges(d.Layers))
			add(at+"shared", sharesText(s.Shared), sharesText(d.Shared))
		}
		add(at+"state", s.State, d.State)
		add(at+"window", s.Window, d.Window)
		if single && (s.Name == "" || d.Name == "") {
			at = "model." // where there is one group, its components are the model's
		}
		compareComponents(add, at, s, d)
	}
	if single {
		// One group against one of another name is one difference, not two
		// groups that have no counterpart.
		if s, d := source.Groups[0], destination.Groups[0]; s.Name != d.Name && !s.Optional && !d.Optional {
			add("model.groups[0].name", s.Name, d.Name)
			compare("model.groups[0].", 0, 0)
			return match, out
		}
	}
	for _, g := range source.Groups {
		if destination.index(g.Name) >= 0 {
			continue
		}
		if !g.Optional {
			add(g.field(), fmt.Sprintf("layers %s", Ranges(g.Layers)), "(no such group)")
			continue
		}
		match.Skipped = append(match.Skipped, g.Name)
	}
	for di, d := range destination.Groups {
		si := source.index(d.Name)
		if si < 0 {
			if d.Optional {
				match.Absent = append(match.Absent, d.Name)
			} else {
				add(d.field(), "(no such group)", fmt.Sprintf("layers %s", Ranges(d.Layers)))
			}
			continue
		}
		compare(d.field()+".", si, di)
	}
	if len(match.Groups) == 0 && len(out) == 0 {
		add("model.groups", "none in common", "(want at least one)")
	}
	return match, out
}

// field is the dotted place of a group: by its name, for groups are matched by
// name.
func (g Group) field() string {
	if g.Name == "" {
		return "model.groups[0]"
	}
	return "model.groups." + g.Name
}

func compareComponents(add func(string, any, any), at string, s, d Group) {
	add(at+"components", len(s.Components), len(d.Components))
	for ci := range min(len(s.Components), len(d.Components)) {
		a, b := s.Components[ci], d.Components[ci]
		at := fmt.Sprintf("%scomponents.%s.", at, a.Name)
		add(at+"name", a.Name, b.Name)
		add(at+"heads", a.Heads, b.Heads)
		add(at+"dim", a.Dim, b.Dim)
		add(at+"dtype", a.DType, b.DType)
		add(at+"unit", a.UnitHeads(), b.UnitHeads())
		add(at+"tokens_per_entry", a.EntryTokens(), b.EntryTokens())
		add(at+"scales", a.Scales, b.Scales)
	}
}
