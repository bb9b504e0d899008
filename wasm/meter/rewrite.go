package meter

// code is the contents of the metered code section.
func (w *writer) code() []byte {
	size := 0
	for _, b := range w.m.bodies {
		size += b.to - b.from
	}
	out := appendUint(make([]byte, 0, size+size/2+16), uint64(len(w.plans)))
	var f []byte
	for i := range w.plans {
		f = w.function(f[:0], i)
		out = append(appendUint(out, uint64(len(f))), f...)
	}
	return out
}

// function appends the metered body of a function that is not imported.
//
// A leaf that loops nowhere and costs no more than a call stays as it is: the
// calls pay for it. All others become
//
//	block                  the trap
//	  block ... block      one for each charge, the entry's innermost
//	    charge the entry   where there is not enough, br_if to its block
//	    count the frame
//	    block (results)
//	      the body         charges br_if to their blocks, returns are branches
//	    end
//	    write fuel back, give the frame back
//	    return
//	  end
//	  br to the trap       and so on for each charge
//	  ...
//	  end
//	end
//	write fuel back
//	unreachable
//
// A block of its own for each charge looks like waste. But a conditional branch
// to a place with other ways to it is compiled by wazero into twice the
// instructions (it splits the edge, and the new branch is no longer fused with
// its comparison), in every round of every loop.
//
// In a function that loops, fuel is in a local: a load and a store of the global
// in each round would cost more than many loops do. It is written back before
// calls and on the way out, but not when the guest traps by itself.
func (w *writer) function(out []byte, i int) []byte {
	p := w.plans[i]
	body := w.m.bodies[i]
	if len(p.edits) == 0 && p.total <= costCall+costEntry {
		return append(out, w.m.b[body.from:body.to]...)
	}
	charges := 1
	for _, d := range p.edits {
		if d.kind == editCharge || d.kind == editSize {
			charges++
		}
	}
	e := &emitter{w: w, p: p, weight: w.weights[i], cached: p.loops, fuel: p.locals, size: p.locals, out: out}
	if e.cached {
		e.size++
	}
	e.declare()
	if charges > 1 {
		e.op(opBlock, typeEmpty)
	}
	for range charges {
		e.op(opBlock, typeEmpty)
	}
	if e.cached {
		e.index(opGlobalGet, w.fuel)
		e.index(opLocalSet, e.fuel)
	}
	e.take(p.entry)
	e.trap(0)
	e.enter()
	e.op(opBlock)
	e.out = w.blockType(e.out, w.m.types[w.m.funcs[w.m.imported+i]].results)
	at := p.code
	for _, d := range p.edits {
		e.out = append(e.out, w.m.b[at:d.at]...)
		at = d.at
		if e.edit(d) {
			at++
		}
	}
	e.out = append(e.out, w.m.b[at:body.to]...) // its end is the block's
	e.store()
	e.leave()
	e.op(opReturn, opEnd)
	for left := charges - 1; left > 0; left-- {
		e.index(opBr, uint64(left))
		e.op(opEnd)
	}
	if charges > 1 {
		e.op(opEnd)
	}
	e.store()
	e.op(opUnreachable, opEnd)
	return e.out
}

// blockType appends the type of a block that gives the results of a function.
func (w *writer) blockType(out, results []byte) []byte {
	switch len(results) {
	case 0:
		return append(out, typeEmpty)
	case 1:
		return append(out, results[0])
	}
	at, ok := w.resultTypes[string(results)]
	if !ok {
		at = len(w.types)
		w.resultTypes[string(results)] = at
		w.types = append(w.types, string(results))
	}
	return appendInt(out, int64(len(w.m.types)+at))
}

// emitter writes the instructions that the pass adds to one function.
type emitter struct {
	w      *writer
	p      *plan
	cached bool   // fuel is in the local fuel
	weight int    // frames that the function counts for
	fuel   uint64 // local
	size   uint64 // local, where sizes are charged
	traps  uint64 // charges so far
	out    []byte
}

func (e *emitter) op(ops ...byte)            { e.out = append(e.out, ops...) }
func (e *emitter) index(op byte, i uint64)   { e.out = appendUint(append(e.out, op), i) }
func (e *emitter) constant(op byte, v int64) { e.out = appendInt(append(e.out, op), v) }

// declare writes the locals, those that are added behind those that are there.
func (e *emitter) declare() {
	var added []byte
	if e.cached {
		added = append(added, 1, typeI64)
	}
	if e.p.sizes {
		added = append(added, 1, typeI32)
	}
	e.out = appendUint(e.out, uint64(e.p.groups+len(added)/2))
	e.out = append(e.out, e.w.m.b[e.p.decls:e.p.code]...)
	e.out = append(e.out, added...)
}

// get pushes the fuel that is left.
func (e *emitter) get() {
	if e.cached {
		e.index(opLocalGet, e.fuel)
	} else {
		e.index(opGlobalGet, e.w.fuel)
	}
}

// less subtracts what is on top of the stack and pushes whether fuel is negative
// now.
func (e *emitter) less() {
	e.op(opI64Sub)
	if e.cached {
		e.index(opLocalTee, e.fuel)
	} else {
		e.index(opGlobalSet, e.w.fuel)
		e.index(opGlobalGet, e.w.fuel)
	}
	e.constant(opI64Const, 0)
	e.op(opI64LtS)
}

// take charges a fixed cost and pushes whether fuel is negative now.
func (e *emitter) take(cost int64) {
	e.get()
	e.constant(opI64Const, cost)
	e.less()
}

// trap branches to the trap where a charge left too little. Blocks is how many
// are open inside the charges' own.
func (e *emitter) trap(blocks int) {
	e.index(opBrIf, uint64(blocks)+e.traps)
	e.traps++
}

// store writes fuel back into the global.
func (e *emitter) store() {
	if e.cached {
		e.index(opLocalGet, e.fuel)
		e.index(opGlobalSet, e.w.fuel)
	}
}

// enter counts the frame.
func (e *emitter) enter() {
	if e.weight == 0 {
		return
	}
	e.index(opGlobalGet, e.w.depth)
	e.constant(opI32Const, int64(e.weight))
	e.op(opI32Sub)
	e.index(opGlobalSet, e.w.depth)
	e.index(opGlobalGet, e.w.depth)
	e.constant(opI32Const, 0)
	e.op(opI32LtS, opIf, typeEmpty)
	e.constant(opI64Const, tooDeep)
	e.index(opGlobalSet, e.w.fuel)
	e.op(opUnreachable, opEnd)
}

// leave gives the frame back.
func (e *emitter) leave() {
	if e.weight == 0 {
		return
	}
	e.index(opGlobalGet, e.w.depth)
	e.constant(opI32Const, int64(e.weight))
	e.op(opI32Add)
	e.index(opGlobalSet, e.w.depth)
}

// edit writes what an edit adds. It reports whether the byte there is left out.
func (e *emitter) edit(d edit) bool {
	switch d.kind {
	case editCharge:
		e.take(d.value)
		e.trap(d.depth + 1)
	case editSize:
		e.index(opLocalTee, e.size)
		e.get()
		e.index(opLocalGet, e.size)
		e.op(opI64ExtendU)
		if d.value >= 0 {
			e.constant(opI64Const, d.value)
			e.op(opI64Shl)
		} else {
			e.constant(opI64Const, -d.value)
			e.op(opI64ShrU)
		}
		e.less()
		e.trap(d.depth + 1)
	case editStore:
		e.store()
	case editReload:
		if e.cached {
			e.index(opGlobalGet, e.w.fuel)
			e.index(opLocalSet, e.fuel)
		}
	case editReturn:
		if e.cached || e.weight > 0 {
			e.index(opBr, uint64(d.depth))
			return true
		}
	}
	return false
}
