package meter

// code is the contents of the metered code section.
func (w *writer) code() []byte {
	size := 0
	for _, b := range w.m.bodies {
		size += b.to - b.from
	}
	w.add()
	out := appendUint(make([]byte, 0, size+size/2+16), uint64(len(w.plans)+len(w.added)))
	var f []byte
	for i := range w.plans {
		f = w.function(f[:0], i)
		out = append(appendUint(out, uint64(len(f))), f...)
	}
	for _, f := range w.added {
		out = append(appendUint(out, uint64(len(f.body))), f.body...)
	}
	return out
}

// function appends the metered body of a function that is not imported.
//
// A leaf that loops nowhere and costs no more than a call stays as it is: the
// calls pay for it. All others become
//
//	charge the entry       where that leaves less than nothing, call refill
//	count the frame
//	block (results)
//	  the body             returns are branches
//	end
//	write fuel back, give the frame back
//
// and each loop of the body
//
//	block (results)
//	  loop                 if a round could not be paid for, refill and give its charge back
//	    block
//	      loop (results)   where charging a round leaves less than nothing,
//	        the body       br_if out of the block
//	      end
//	      br out with the results
//	    end
//	    br to the outer loop
//	  end
//	  unreachable
//	end
//
// The refill is where the loop is not, since a call among its values would have
// the engine keep them in memory in every round. The way there is a block that
// nothing else leads to, since a conditional branch to a place with other ways to
// it is compiled by wazero into twice the instructions (it splits the edge, and
// the new branch is no longer fused with its comparison).
//
// Charges within, where neither a loop nor the function begins, are not looked
// at, nor that of a function which neither loops nor calls: what runs until the
// next that is, is bounded by the functions' sizes.
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
	e := &emitter{w: w, p: p, weight: w.weights[i], cached: p.loops, fuel: p.locals, size: p.locals, out: out}
	if e.cached {
		e.size++
	}
	e.spent = e.size
	if p.sizes {
		e.spent++
	}
	e.declare()
	if e.cached {
		e.index(opGlobalGet, w.fuel)
		e.index(opLocalSet, e.fuel)
	}
	if p.leaf && !p.loops {
		e.spend(p.entry)
	} else {
		e.take(p.entry)
		e.refill()
	}
	e.enter()
	e.op(opBlock)
	e.out = w.blockType(e.out, w.m.types[w.m.funcs[w.m.imported+i]].results)
	at := p.code
	for _, d := range p.edits {
		if d.at > at { // not in an instruction that was replaced
			e.out = append(e.out, w.m.b[at:d.at]...)
			at = d.at
		}
		at += e.edit(d)
	}
	e.out = append(e.out, w.m.b[at:body.to]...) // its end is the block's
	e.store()
	e.leave()
	e.op(opEnd)
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
	return appendInt(out, int64(w.typeOf(nil, results)))
}

// typeOf is the index of a function type, which it adds.
func (w *writer) typeOf(params, results []byte) int {
	t := append(appendUint([]byte{0x60}, uint64(len(params))), params...)
	t = append(appendUint(t, uint64(len(results))), results...)
	at, ok := w.typesAt[string(t)]
	if !ok {
		at = len(w.m.types) + len(w.types)
		w.typesAt[string(t)] = at
		w.types = append(w.types, t)
	}
	return at
}

// emitter writes the instructions that the pass adds to one function.
type emitter struct {
	w      *writer
	p      *plan
	cached bool   // fuel is in the local fuel
	weight int    // frames that the function counts for
	fuel   uint64 // local
	size   uint64 // local, where sizes are charged
	spent  uint64 // local, where there are loops: a round could not be paid for
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
	if e.p.loops {
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

// set pops what fuel becomes.
func (e *emitter) set() {
	if e.cached {
		e.index(opLocalSet, e.fuel)
	} else {
		e.index(opGlobalSet, e.w.fuel)
	}
}

// less subtracts what is on top of the stack and pushes whether fuel is negative
// now.
func (e *emitter) less() {
	e.op(opI64Sub)
	if e.cached {
		e.index(opLocalTee, e.fuel)
	} else {
		e.set()
		e.get()
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

// spend charges a fixed cost and leaves it at that.
func (e *emitter) spend(cost int64) {
	e.get()
	e.constant(opI64Const, cost)
	e.op(opI64Sub)
	e.set()
}

// refill calls for more where a charge has left less than nothing.
func (e *emitter) refill() {
	e.op(opIf, typeEmpty)
	e.more()
	e.op(opEnd)
}

// more calls for the next slice.
func (e *emitter) more() {
	e.store()
	e.index(opCall, e.w.refill)
	e.reload()
}

// reload reads fuel from the global.
func (e *emitter) reload() {
	if e.cached {
		e.index(opGlobalGet, e.w.fuel)
		e.index(opLocalSet, e.fuel)
	}
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
	e.constant(opI64Const, 0)
	e.index(opGlobalSet, e.w.rest)
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

// edit writes what an edit adds, and returns how many bytes there are left out.
func (e *emitter) edit(d edit) int {
	switch d.kind {
	case editLoop:
		e.op(opBlock)
		e.op(d.text...)
		e.op(opLoop, typeEmpty)
		e.index(opLocalGet, e.spent)
		e.op(opIf, typeEmpty)
		e.constant(opI32Const, 0)
		e.index(opLocalSet, e.spent)
		e.more()
		e.get()
		e.constant(opI64Const, d.value)
		e.op(opI64Add)
		e.set()
		e.op(opEnd, opBlock, typeEmpty)
	case editLoopEnd:
		e.index(opBr, 2)
		e.op(opEnd)
		e.constant(opI32Const, 1)
		e.index(opLocalSet, e.spent)
		e.index(opBr, 0)
		e.op(opEnd, opUnreachable, opEnd)
	case editRound:
		e.take(d.value)
		e.index(opBrIf, 1)
	case editCheck:
		e.take(d.value)
		e.refill()
	case editCharge:
		e.spend(d.value)
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
		e.refill()
	case editStore:
		e.store()
	case editReload:
		e.reload()
	case editReturn:
		if e.cached || e.weight > 0 {
			e.index(opBr, uint64(d.value))
			return 1
		}
	case editReplace:
		e.op(d.text...)
	case editFill:
		e.index(opCall, e.w.fill)
	case editCopy:
		e.index(opCall, e.w.copy)
	}
	return d.skip
}
