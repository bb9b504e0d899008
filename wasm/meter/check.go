package meter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Extern is what an import or an export is.
type Extern byte

// The kinds of imports and exports, with the numbers of the format.
const (
	Function Extern = 0
	Table    Extern = 1
	Memory   Extern = 2
	Global   Extern = 3
	tag      Extern = 4
)

// String is the kind's name.
func (e Extern) String() string {
	if names := [...]string{"function", "table", "memory", "global"}; int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("kind %d", byte(e))
}

// Import is something that a module may import.
type Import struct {
	Module, Name string
	Extern       Extern
}

// Limits bound what a module may hold. Engines have no such bounds: what a
// module claims in a few bytes (locals, types, names) they allocate, and what is
// nested or branches much takes them time that grows faster than the module.
//
// A zero means none of that thing. Start from Policy.
type Limits struct {
	Size          int // bytes of the module
	Customs       int // custom sections
	Name          int // bytes of a name
	Types         int
	Params        int // of a type
	Results       int // of a type
	Imports       int
	Functions     int // imported ones not counted
	Tables        int
	TableElements int // elements of a table at the start, of one that grows at most, and of an element segment
	MemoryPages   int // pages of 64 KiB at the start; what a memory grows to is the engine's to limit
	Globals       int // imported ones counted
	Exports       int
	Elements      int // element segments
	Data          int // data segments
	Body          int // bytes of a function's body
	Locals        int // of a function, parameters counted
	Stack         int // operands of a function at a time
	Nesting       int // blocks inside each other
	Blocks        int // blocks, loops and conditions of a function
	BrTable       int // labels of one br_table
	Edges         int // ways that control takes in a function: blocks, branches, labels of br_tables
	// Work bounds what compiling the module takes that grows faster than the
	// module, FunctionWork the same of one function, whose work is also memory.
	// The unit is about a microsecond: each edge is as many of them as there are
	// values (locals and operands) to carry along it, more where it is a branch
	// and in loops, and engines look through all edges to a place for each.
	Work         int
	FunctionWork int

	// Allowed is what may be imported, AnyImport that anything may.
	Allowed   []Import
	AnyImport bool
	Start     bool // a start function is allowed
}

// Policy returns the limits for policies. They let through what compilers make
// of a policy, the Go compiler's two megabytes included, and nothing else; what
// they let through compiles in bounded time and memory. No import is allowed:
// set Allowed.
func Policy() Limits {
	return Limits{
		Size:          4 << 20,
		Customs:       64,
		Name:          1024,
		Types:         4096,
		Params:        64,
		Results:       16,
		Imports:       64,
		Functions:     20_000,
		Tables:        1,
		TableElements: 65_536,
		MemoryPages:   256,
		Globals:       256,
		Exports:       64,
		Elements:      256,
		Data:          65_536,
		Body:          256 << 10,
		Locals:        1024,
		Stack:         1024,
		Nesting:       1024,
		Blocks:        2048,
		BrTable:       4096,
		Edges:         8192,
		Work:          8 << 20,
		FunctionWork:  1 << 20,
	}
}

// Check reads a module strictly and refuses what is malformed, what exceeds the
// limits, what is not enabled and what is not allowed. It allocates in
// proportion to the module, whatever the module claims, and takes time in
// proportion to it.
//
// It is no validator: it knows every section, every instruction and every
// index, and no types. An engine still has to validate what passes.
//
// Errors: *Error.
func Check(wasm []byte, limits Limits) error {
	m, err := parse(wasm, &limits)
	if err != nil {
		return err
	}
	grows := -1 // offset of a table.grow
	s := &scanner{m: m}
	w := &work{s: s, limits: &limits}
	for i, b := range m.bodies {
		if !s.open(m.imported+i, b) {
			return s.r.err
		}
		w.open()
		for s.next() {
			if s.op == opTableGrow && grows < 0 {
				grows = s.start
			}
			w.instruction()
		}
		w.close()
		if s.r.err != nil {
			return s.r.err
		}
	}
	for _, t := range m.tables {
		if grows >= 0 && (!t.bounded || uint64(t.max) > uint64(max(limits.TableElements, 0))) {
			return over(t.at, -1, fmt.Sprintf("elements at most of a table of a module that grows tables (byte %d)", grows), uint64(t.max), limits.TableElements, "declare a maximum for the table")
		}
	}
	return nil
}

// printable makes a guest's name fit for messages: short, and nothing that a
// terminal acts on.
func printable(name string) string {
	const most = 64
	cut := ""
	if len(name) > most {
		name, cut = name[:most], "..."
	}
	plain := func(r rune) rune {
		if r < 0x21 || r > 0x7e {
			return '?'
		}
		return r
	}
	return strings.Map(plain, name) + cut
}

// listed names what may be imported.
func listed(allowed []Import) string {
	if len(allowed) == 0 {
		return "nothing"
	}
	by := map[string][]string{}
	for _, i := range allowed {
		by[i.Module] = append(by[i.Module], i.Name)
	}
	var out []string
	for _, m := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[m])
		names := strings.Join(by[m], ", ")
		if len(by[m]) > 1 {
			names = "{" + names + "}"
		}
		out = append(out, m+"."+names)
	}
	return strings.Join(out, ", ")
}
