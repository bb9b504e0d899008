package meter

// effect is by how much an instruction changes the height of the operand stack,
// where that does not depend on what is around it: not for branches, structure
// and calls.
func effect(op uint32) int {
	switch prefix, number := op>>16, op&0xffff; prefix {
	case opMisc:
		switch op {
		case opMemoryInit, opMemoryCopy, opMemoryFill, opTableInit, opTableCopy, opTableFill:
			return -3
		case opTableGrow:
			return -1
		case opMisc<<16 | 16: // table.size
			return 1
		}
		return 0
	case opVector:
		return vectorEffect(number)
	}
	switch {
	case op == opLocalGet, op == opGlobalGet, op == 0x3f, op >= opI32Const && op <= opF64Const, op == opRefNull, op == opRefFunc:
		return 1
	case op == 0x1a, op == opLocalSet, op == opGlobalSet: // drop
		return -1
	case op == 0x1b, op == 0x1c, op == 0x26, op >= 0x36 && op <= 0x3e: // select, table.set, stores
		return -2
	case op == 0x45, op == 0x50: // eqz
		return 0
	case op >= 0x46 && op <= 0x66, // comparisons
		op >= 0x6a && op <= 0x78, op >= 0x7c && op <= 0x8a, // of integers
		op >= 0x92 && op <= 0x98, op >= 0xa0 && op <= 0xa6: // of floats
		return -1
	}
	return 0
}

func vectorEffect(n uint32) int {
	switch {
	case n == 12:
		return 1
	case n == 11, n == 0x52, n >= 0x58 && n <= 0x5b: // store, bitselect, lane stores
		return -2
	case n <= 10, n >= 0x0f && n <= 0x16, n == 0x18, n == 0x19, n == 0x1b, n == 0x1d, n == 0x1f, n == 0x21, // loads, splats, lanes out
		n == 0x4d, n == 0x53, n >= 0x5c && n <= 0x64, // not, any_true, what takes one operand
		n >= 0x67 && n <= 0x6a, n == 0x74, n == 0x75, n == 0x7a, n >= 0x7c && n <= 0x81, n == 0x83, n == 0x84, n >= 0x87 && n <= 0x8a, n == 0x94,
		n == 0xa0, n == 0xa1, n == 0xa3, n == 0xa4, n >= 0xa7 && n <= 0xaa, n == 0xc0, n == 0xc1, n == 0xc3, n == 0xc4, n >= 0xc7 && n <= 0xca,
		n == 0xe0, n == 0xe1, n == 0xe3, n == 0xec, n == 0xed, n == 0xef, n >= 0xf8:
		return 0
	}
	return -1
}
