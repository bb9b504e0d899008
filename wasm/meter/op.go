package meter

import "fmt"

// Opcodes that the pass looks at. One behind a prefix byte is prefix<<16 | its
// number.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32LtS       = 0x48
	opI32GtU       = 0x4b
	opI32LeU       = 0x4d
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opTableSet     = 0x26
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc // prefix
	opVector       = 0xfd // prefix
	opMemoryInit   = opMisc<<16 | 8
	opDataDrop     = opMisc<<16 | 9
	opMemoryCopy   = opMisc<<16 | 10
	opMemoryFill   = opMisc<<16 | 11
	opTableInit    = opMisc<<16 | 12
	opElemDrop     = opMisc<<16 | 13
	opTableCopy    = opMisc<<16 | 14
	opTableGrow    = opMisc<<16 | 15
	opTableFill    = opMisc<<16 | 17
	opV128Const    = opVector<<16 | 12
)

// imm is what follows an opcode.
type imm byte

const (
	immBad imm = iota // not an opcode of the features enabled here
	immNone
	immBlock     // block type
	immLabel     // label
	immTable     // label vector and label, of br_table
	immFunc      // function
	immIndirect  // type and table
	immLocal     // local
	immGlobal    // global
	immTab       // table
	immMemarg    // alignment and offset
	immZero      // a zero byte: the memory
	immI32       // constant
	immI64       // constant
	imm4         // four bytes
	imm8         // eight bytes
	imm16        // sixteen bytes
	immLanes     // sixteen lanes below 32
	immRef       // reference type
	immTypes     // value type vector, of select
	immDataMem   // data segment and memory
	immData      // data segment
	immMemMem    // memory and memory
	immElemTab   // element segment and table
	immElem      // element segment
	immTabTab    // table and table
	immLane2     // lane below 2
	immLane4     // lane below 4
	immLane8     // lane below 8
	immLane16    // lane below 16
	immMemLane2  // alignment, offset, lane below 2
	immMemLane4  // the same, below 4
	immMemLane8  // the same, below 8
	immMemLane16 // the same, below 16
)

// immOf is what follows an opcode of one byte.
func immOf(op byte) imm {
	switch {
	case op == opBlock, op == opLoop, op == opIf:
		return immBlock
	case op == opBr, op == opBrIf:
		return immLabel
	case op == opBrTable:
		return immTable
	case op == opCall, op == opRefFunc:
		return immFunc
	case op == opCallIndirect:
		return immIndirect
	case op == 0x1c: // select with types
		return immTypes
	case op >= opLocalGet && op <= opLocalTee:
		return immLocal
	case op == opGlobalGet, op == opGlobalSet:
		return immGlobal
	case op == 0x25, op == 0x26: // table.get, table.set
		return immTab
	case op >= 0x28 && op <= 0x3e: // loads and stores
		return immMemarg
	case op == 0x3f, op == opMemoryGrow: // memory.size
		return immZero
	case op == opI32Const:
		return immI32
	case op == opI64Const:
		return immI64
	case op == opF32Const:
		return imm4
	case op == opF64Const:
		return imm8
	case op == opRefNull:
		return immRef
	case op <= opNop, op == opElse, op == opEnd, op == opReturn,
		op == 0x1a, op == 0x1b, // drop, select
		op >= 0x45 && op <= 0xc4, // comparisons, arithmetic, conversions, sign extension
		op == 0xd1:               // ref.is_null
		return immNone
	}
	return immBad
}

// immMisc is what follows an opcode behind the prefix 0xfc.
func immMisc(sub uint32) imm {
	if sub < 8 { // saturating conversions
		return immNone
	}
	if list := [...]imm{immDataMem, immData, immMemMem, immZero, immElemTab, immElem, immTabTab, immTab, immTab, immTab}; sub-8 < uint32(len(list)) {
		return list[sub-8]
	}
	return immBad
}

// immVector is what follows an opcode behind the prefix 0xfd.
func immVector(sub uint32) imm {
	switch {
	case sub <= 11, sub == 0x5c, sub == 0x5d: // loads, store; loads that fill up with zeros
		return immMemarg
	case sub == 12:
		return imm16
	case sub == 13: // i8x16.shuffle
		return immLanes
	case sub >= 0x15 && sub <= 0x17:
		return immLane16
	case sub >= 0x18 && sub <= 0x1a:
		return immLane8
	case sub == 0x1b, sub == 0x1c, sub == 0x1f, sub == 0x20:
		return immLane4
	case sub == 0x1d, sub == 0x1e, sub == 0x21, sub == 0x22:
		return immLane2
	case sub >= 0x54 && sub <= 0x5b: // loads and stores of lanes of 8, 16, 32, 64 bits
		return [...]imm{immMemLane16, immMemLane8, immMemLane4, immMemLane2}[(sub-0x54)%4]
	case sub > 0xff:
		return immBad
	}
	switch sub { // numbers that are free
	case 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee:
		return immBad
	}
	return immNone
}

// featureOf names what an opcode belongs to that is none of the features
// enabled here, and how its author gets rid of it.
func featureOf(op uint32) (name, feature, fix string) {
	name = fmt.Sprintf("opcode %#02x", op)
	if op > 0xff {
		name = fmt.Sprintf("opcode %#02x %d", op>>16, op&0xffff)
	}
	named := func(n string) string { return n + " (" + name + ")" }
	switch {
	case op == 0x12:
		return named("return_call"), "tail calls", "compile without -mtail-call"
	case op == 0x13:
		return named("return_call_indirect"), "tail calls", "compile without -mtail-call"
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return named("exception handling"), "exceptions", "compile without -fwasm-exceptions"
	case op == 0x14, op == 0x15, op == 0xd4, op == 0xd5, op == 0xd6:
		return named("typed function reference"), "typed function references", "compile without -mtyped-function-references"
	case op == 0xd3, op>>16 == 0xfb, op == 0xfb:
		return named("garbage collected object"), "garbage collection", "use a compiler that keeps its objects in linear memory"
	case op == 0xfe, op>>16 == 0xfe:
		return named("atomic"), "threads", "compile without -pthread and -matomics"
	case op>>16 == opVector && op&0xffff > 0xff:
		return named("relaxed SIMD"), "relaxed SIMD", "compile without -mrelaxed-simd"
	case op>>16 == opMisc && op&0xffff >= 19 && op&0xffff <= 22:
		return named("wide arithmetic"), "wide arithmetic", "compile without -mwide-arithmetic"
	}
	return name, "", ""
}

// costOf is what an instruction costs, in units of fuel: a unit is about the
// time of one simple instruction in compiled code. Structure (block, loop, else,
// end, nop) compiles to nothing and costs nothing; a loop still pays for the
// branch that makes it one, and a call for the call.
func costOf(op uint32) int64 {
	switch {
	case op == opNop, op == opBlock, op == opLoop, op == opElse, op == opEnd:
		return 0
	case op == opCall:
		return costCall
	case op == opCallIndirect:
		return costIndirect
	case op == opRefFunc:
		return costLeave
	case op == opMemoryGrow, op == opTableGrow:
		return costGrow
	case op == opMemoryInit, op == opMemoryCopy, op == opMemoryFill, op == opTableInit, op == opTableCopy, op == opTableFill:
		return costBulk
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82, // integer division
		op == 0x91, op == 0x95, op == 0x9f, op == 0xa3: // square roots, float division
		return costDivide
	case op>>16 == opVector:
		switch op & 0xffff {
		case 0xe3, 0xe7, 0xef, 0xf3:
			return costDivide
		}
		return costVector
	}
	return 1
}

// Costs of what is not one unit. They keep a unit below a nanosecond or so
// whatever it is spent on; BenchmarkUnit shows what each is worth.
const (
	costCall     = 6
	costIndirect = 12
	costLeave    = 128 // what leaves compiled code: a call of an import (beside the call), ref.func
	costEntry    = 2   // of a function, beside what it does
	costDivide   = 6
	costVector   = 2
	costBulk     = 16
	costGrow     = 1024
)

// bulkShift says how the size on top of the stack is charged by the
// instructions that have one: size << shift, or size >> -shift.
func bulkShift(op uint32) (shift int, ok bool) {
	switch op {
	case opMemoryInit, opMemoryCopy, opMemoryFill:
		return -2, true // four bytes a unit
	case opTableInit, opTableCopy, opTableFill:
		return 1, true // elements of eight bytes
	case opTableGrow:
		return 3, true // and they are made, and the old ones copied
	case opMemoryGrow:
		return 12, true // a page of 64 KiB is made, or cleared
	}
	return 0, false
}
