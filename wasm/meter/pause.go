package meter

// A guest cannot be interrupted: what an engine compiled it to has no place
// where a garbage collector, or whatever else wants all threads to hold, gets
// in. So a metered module stops by itself, after each slice of its fuel and of
// the bytes that it fills or copies, for an instruction that is the host's
// business on every engine and changes nothing: memory.grow by no page.
//
// The functions below are added behind all others, so that no index changes.

// DefaultSlice is a sound Options.Slice: some tens of microseconds of what
// compilers make, hundreds at worst.
const DefaultSlice = 1 << 18

// PauseBytes is how many bytes are filled or copied at most between two pauses.
const PauseBytes = 256 << 10

// function is a function that the pass adds.
type function struct {
	kind int // index of its type
	body []byte
}

// add adds the functions that the module's bodies call.
func (w *writer) add() {
	var fills, copies bool
	for _, p := range w.plans {
		fills, copies = fills || p.fills, copies || p.copies
	}
	if len(w.plans) == 0 {
		return
	}
	add := func(params int, body func(e *emitter)) uint64 {
		kind := w.typeOf([]byte{typeI32, typeI32, typeI32}[:params], nil)
		e := &emitter{w: w}
		body(e)
		w.added = append(w.added, function{kind, e.out})
		return uint64(len(w.m.funcs) + len(w.added) - 1)
	}
	w.refill = add(0, (*emitter).refilling)
	if fills {
		w.fill = add(3, (*emitter).filling)
	}
	if copies {
		w.copy = add(3, (*emitter).copying)
	}
}

// pause lets the host in, where the module has a memory.
func (e *emitter) pause() {
	if e.w.m.memories > 0 {
		e.constant(opI32Const, 0)
		e.op(opMemoryGrow, 0, opDrop)
	}
}

// refilling is called where fuel is below 0. It moves the next slice from what
// rests to fuel, or traps where both together are below 0, which fuel then says.
func (e *emitter) refilling() {
	const sum = 0 // local
	e.op(1, 1, typeI64)
	e.index(opGlobalGet, e.w.fuel)
	e.index(opGlobalGet, e.w.rest)
	e.op(opI64Add)
	e.index(opLocalTee, sum)
	e.constant(opI64Const, 0)
	e.op(opI64LtS, opIf, typeEmpty)
	e.index(opLocalGet, sum)
	e.index(opGlobalSet, e.w.fuel)
	e.constant(opI64Const, 0)
	e.index(opGlobalSet, e.w.rest)
	e.op(opUnreachable, opEnd)
	for range 2 { // the lesser of both
		e.index(opLocalGet, sum)
		e.constant(opI64Const, e.w.slice)
	}
	e.op(opI64LtS, opSelect)
	e.index(opGlobalSet, e.w.fuel)
	e.index(opLocalGet, sum)
	e.index(opGlobalGet, e.w.fuel)
	e.op(opI64Sub)
	e.index(opGlobalSet, e.w.rest)
	e.pause()
	e.op(opEnd)
}

// Parameters of filling and copying: where to, what or where from, how many.
const to, from, many = 0, 1, 2

// long branches out of the block around it unless there are many bytes, all of
// which the memory has behind each of some addresses. What is out of bounds is
// left to the instruction itself, which then traps and has written nothing.
func (e *emitter) long(addresses ...uint64) {
	e.index(opLocalGet, many)
	e.constant(opI32Const, PauseBytes)
	e.op(opI32LeU)
	e.index(opBrIf, 0)
	for _, a := range addresses {
		e.index(opLocalGet, a)
		e.op(opI64ExtendU)
		e.index(opLocalGet, many)
		e.op(opI64ExtendU, opI64Add, opMemorySize, 0, opI64ExtendU)
		e.constant(opI64Const, 16)
		e.op(opI64Shl, opI64GtU)
		e.index(opBrIf, 0)
	}
}

// shift moves a parameter by so many bytes.
func (e *emitter) shift(parameter uint64, n int64) {
	e.index(opLocalGet, parameter)
	e.constant(opI32Const, n)
	e.op(opI32Add)
	e.index(opLocalSet, parameter)
}

// again pauses and goes on with the loop around it while there are many.
func (e *emitter) again() {
	e.pause()
	e.index(opLocalGet, many)
	e.constant(opI32Const, PauseBytes)
	e.op(opI32GtU)
	e.index(opBrIf, 0)
	e.op(opEnd)
}

// filling is memory.fill in parts.
func (e *emitter) filling() {
	e.op(0, opBlock, typeEmpty)
	e.long(to)
	e.op(opLoop, typeEmpty)
	e.index(opLocalGet, to)
	e.index(opLocalGet, from)
	e.constant(opI32Const, PauseBytes)
	e.op(opMisc, opMemoryFill&0xff, 0)
	e.shift(to, PauseBytes)
	e.shift(many, -PauseBytes)
	e.again()
	e.op(opEnd)
	for i := range uint64(3) {
		e.index(opLocalGet, i)
	}
	e.op(opMisc, opMemoryFill&0xff, 0, opEnd)
}

// copying is memory.copy in parts: from the end where it moves bytes up, since
// both may overlap.
func (e *emitter) copying() {
	e.op(0, opBlock, typeEmpty)
	e.long(to, from)
	e.index(opLocalGet, to)
	e.index(opLocalGet, from)
	e.op(opI32GtU, opIf, typeEmpty, opLoop, typeEmpty)
	e.shift(many, -PauseBytes)
	for _, a := range []uint64{to, from} {
		e.index(opLocalGet, a)
		e.index(opLocalGet, many)
		e.op(opI32Add)
	}
	e.constant(opI32Const, PauseBytes)
	e.op(opMisc, opMemoryCopy&0xff, 0, 0)
	e.again()
	e.index(opBr, 1)
	e.op(opEnd, opLoop, typeEmpty)
	e.index(opLocalGet, to)
	e.index(opLocalGet, from)
	e.constant(opI32Const, PauseBytes)
	e.op(opMisc, opMemoryCopy&0xff, 0, 0)
	e.shift(to, PauseBytes)
	e.shift(from, PauseBytes)
	e.shift(many, -PauseBytes)
	e.again()
	e.op(opEnd)
	for i := range uint64(3) {
		e.index(opLocalGet, i)
	}
	e.op(opMisc, opMemoryCopy&0xff, 0, 0, opEnd)
}
