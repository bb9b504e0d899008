package meter

import "fmt"

// Keeps names the first thing in a module by which a call can leave something
// for the next that is neither in its memory nor in a global that holds a
// number: a table that it writes, a segment that it drops, a mutable global that
// holds a vector or a reference. Empty: there is none, and an instance whose
// memory and numbers are put back is as good as new.
//
// Errors: *Error.
func Keeps(wasm []byte) (string, error) {
	m, err := parse(wasm, nil)
	if err != nil {
		return "", err
	}
	for i, t := range m.globals {
		if m.mutable[i] && (t == typeV128 || isReference(t)) {
			return fmt.Sprintf("global %d", i), nil
		}
	}
	s := &scanner{m: m}
	for i, b := range m.bodies {
		if !s.open(m.imported+i, b) {
			return "", s.r.err
		}
		for s.next() {
			name := ""
			switch s.op {
			case opTableSet:
				name = "table.set"
			case opTableInit:
				name = "table.init"
			case opTableCopy:
				name = "table.copy"
			case opTableGrow:
				name = "table.grow"
			case opTableFill:
				name = "table.fill"
			case opElemDrop:
				name = "elem.drop"
			case opDataDrop:
				name = "data.drop"
			default:
				continue
			}
			return fmt.Sprintf("%s in function %d, byte %d", name, m.imported+i, s.start), nil
		}
		if s.r.err != nil {
			return "", s.r.err
		}
	}
	return "", nil
}
