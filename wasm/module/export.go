package module

import "slices"

// Export is one export of a module. Index counts in the index space of its
// kind, imports included.
type Export struct {
	Name  string
	Kind  Kind
	Index uint32
}

// maxExports is far above what any policy offers.
const maxExports = 4096

// Exports returns what a module exports, in its order.
//
// Errors: *Error.
func Exports(b []byte) ([]Export, error) {
	ss, err := sections(b)
	if err != nil {
		return nil, err
	}
	var out []Export
	for _, s := range ss {
		if s.id != 7 {
			continue
		}
		list, err := exports(b[s.from:s.to], s.from)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// exports reads an export section that starts at byte offset base.
func exports(b []byte, base int) ([]Export, error) {
	bad := refuse(base, "export section", "cannot be read")
	n, at, err := leb(b)
	if err != nil {
		return nil, bad
	}
	if n > maxExports {
		return nil, over(base, "export section", "exports", int(n), maxExports)
	}
	var out []Export
	for range n {
		length, w, err := leb(b[at:])
		at += w
		if err != nil || uint64(length) >= uint64(len(b)-at) { // a kind follows
			return nil, bad
		}
		e := Export{Name: string(b[at : at+int(length)]), Kind: Kind(b[at+int(length)])}
		at += int(length) + 1
		index, w, err := leb(b[at:])
		at += w
		if err != nil {
			return nil, bad
		}
		e.Index = index
		out = append(out, e)
	}
	if at != len(b) {
		return nil, bad
	}
	return out, nil
}

// Functions is how many functions a module has, imported ones counted; -1 where
// that cannot be read.
func Functions(b []byte) int {
	list, err := Imports(b)
	if err != nil {
		return -1
	}
	n := 0
	for _, i := range list {
		if i.Kind == Function {
			n++
		}
	}
	ss, _ := sections(b) // Imports read them
	for _, s := range ss {
		if s.id == 3 {
			own, _, err := leb(b[s.from:s.to])
			if err != nil {
				return -1
			}
			n += int(own)
		}
	}
	return n
}

// Unnamed is a module without the names of its functions and locals. Indices
// stay what they are. A module that cannot be read comes back as it is.
func Unnamed(b []byte) []byte {
	ss, err := sections(b)
	if err != nil {
		return b
	}
	out := slices.Clone(b[:8])
	for _, s := range ss {
		if s.id != 0 || s.name != "name" {
			out = append(out, b[s.start:s.to]...)
		}
	}
	return out
}
