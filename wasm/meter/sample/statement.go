package sample

import "slices"

// nested writes a block's contents; what precedes opened it.
func (g *generator) nested(l label, contents func()) {
	g.labels = append(g.labels, l)
	contents()
	g.labels = g.labels[:len(g.labels)-1]
	g.code = append(g.code, 0x0b)
}

func (g *generator) statements(most, depth int) {
	for range g.r.IntN(most + 1) {
		g.statement(depth)
	}
}

// statement writes code that leaves the stack as it was.
func (g *generator) statement(depth int) {
	if depth > 5 || g.budget <= 0 {
		g.emit([]byte{0x01})
		return
	}
	switch g.r.IntN(22) {
	case 0, 1, 2:
		t := g.pick(numeric)
		if l := g.local(t); l >= 0 {
			g.value(t, depth)
			g.emit(Op(0x21, l))
		}
	case 3:
		t := g.pick(numeric)
		g.value(t, depth)
		g.emit(Op(0x24, global(t)))
	case 4, 5:
		g.store(depth)
	case 6: // drop
		g.value(g.pick([]byte{I32, I64, F32, F64, V128, Func, Extern}), depth)
		g.emit([]byte{0x1a})
	case 7: // if without else
		g.value(I32, depth)
		g.emit([]byte{0x04, Empty})
		g.nested(label{}, func() { g.statements(3, depth+1) })
	case 8: // if with else, one of whose arms may leave
		g.value(I32, depth)
		g.emit([]byte{0x04, Empty})
		g.nested(label{}, func() {
			g.statements(3, depth+1)
			g.code = append(g.code, 0x05)
			g.statements(2, depth+1)
			if g.chance(20) {
				g.leave(depth + 1)
			}
		})
	case 9, 10:
		g.loop(nil, nil, func() { g.statements(4, depth+1) })
	case 11:
		g.emit([]byte{0x02, Empty})
		g.nested(label{}, func() {
			g.statements(3, depth+1)
			g.branchIf(depth + 1)
			g.statements(2, depth+1)
		})
	case 12:
		g.branchIf(depth)
	case 13:
		g.choose(depth)
	case 14:
		g.bulkMemory(depth)
	case 15:
		g.bulkTable()
	case 16: // a reference moves
		t := g.pick([]byte{Func, Extern})
		switch g.r.IntN(3) {
		case 0:
			g.reference(t)
			g.emit(Op(0x21, g.local(t)))
		case 1:
			g.reference(t)
			g.emit(Op(0x24, 2*len(numeric)+int(Func-t)))
		case 2:
			g.emit(Const(int32(constantTable + g.r.IntN(tableSize-constantTable))))
			g.reference(t)
			g.emit([]byte{0x26, Func - t})
		}
	case 17:
		g.values(depth)
	case 18: // all results of a call
		g.call(depth)
	case 19: // a trap, nearly never reached
		g.value(I32, depth)
		g.emit(Const(0x7fff0000), []byte{0x4a}, []byte{0x04, Empty})
		g.nested(label{}, func() {
			g.emit([]byte{0x00})
			g.dead(depth + 1)
		})
	case 20: // segments go
		if g.chance(10) {
			g.emit([]byte{0xfc, 9, 1})
		} else if g.chance(10) {
			g.emit([]byte{0xfc, 13, 1})
		}
	default:
		g.emit([]byte{0x01})
	}
}

// loop writes a loop that takes and gives values of the same types and runs a
// few times. Its contents leave the values where they are.
func (g *generator) loop(params, results []byte, contents func()) {
	rounds := 1 + g.r.IntN(6)
	if g.loops*rounds > 200 || g.spent > most {
		rounds = 1
	}
	counter := g.own(I32)
	g.emit(Const(int32(rounds)), Op(0x21, counter))
	g.emit([]byte{0x03}, g.blockType(params, results))
	g.loops *= rounds
	g.nested(label{types: params, loop: true}, func() {
		contents()
		next := Code(Op(0x20, counter), Const(1), []byte{0x6b}, Op(0x22, counter))
		if g.chance(20) { // another round right away
			g.emit(next, Op(0x0d, 0))
			g.emit(Const(int32(1)), Op(0x21, counter))
		}
		g.emit(next, Op(0x0d, 0))
	})
	g.loops /= rounds
}

// target is a label that may be left for: none of a loop, which would not end.
func (g *generator) target() int {
	var all []int
	for i, l := range g.labels {
		if !l.loop {
			all = append(all, len(g.labels)-1-i)
		}
	}
	return all[g.r.IntN(len(all))]
}

func (g *generator) typesOf(target int) []byte { return g.labels[len(g.labels)-1-target].types }

// branchIf leaves for a label, rarely.
func (g *generator) branchIf(depth int) {
	to := g.target()
	types := g.typesOf(to)
	for _, t := range types {
		g.value(t, depth+1)
	}
	g.value(I32, depth+1)
	if g.chance(80) {
		g.emit(Const(7), []byte{0x71, 0x45})
	}
	g.emit(Op(0x0d, to))
	for range types {
		g.emit([]byte{0x1a})
	}
}

// leave goes away for good; what follows is dead.
func (g *generator) leave(depth int) {
	if g.chance(50) {
		to := g.target()
		for _, t := range g.typesOf(to) {
			g.value(t, depth+1)
		}
		g.emit(Op(0x0c, to))
	} else {
		for _, t := range g.results {
			g.value(t, depth+1)
		}
		g.emit([]byte{0x0f})
	}
	g.dead(depth)
}

// dead writes code that nothing reaches.
func (g *generator) dead(depth int) {
	if g.chance(50) {
		spent := g.spent
		g.statements(2, depth+1)
		g.spent = spent
	}
	if g.chance(30) { // what only dead code may do
		g.emit([]byte{0x1a, 0x6a, 0x1a})
	}
}

// choose is a switch.
func (g *generator) choose(depth int) {
	arms := 2 + g.r.IntN(4)
	for range arms {
		g.emit([]byte{0x02, Empty})
		g.labels = append(g.labels, label{})
	}
	g.value(I32, depth+1)
	if g.chance(80) {
		g.emit(Const(7), []byte{0x71})
	}
	labels := make([][]byte, arms)
	for i := range labels {
		labels[i] = Uint(g.r.IntN(arms))
	}
	g.emit([]byte{0x0e}, Vector(labels...), Uint(g.r.IntN(arms)))
	for range arms {
		g.labels = g.labels[:len(g.labels)-1]
		g.code = append(g.code, 0x0b)
		g.statements(2, depth+1)
	}
}

func (g *generator) store(depth int) {
	a := g.stores[g.r.IntN(len(g.stores))]
	g.address(depth)
	g.value(a.kind, depth+1)
	if a.lanes > 0 {
		g.emit(a.code, g.memarg(a), []byte{byte(g.r.IntN(a.lanes))})
	} else {
		g.emit(a.code, g.memarg(a))
	}
}

// values moves several values through a block.
func (g *generator) values(depth int) {
	params, results := g.list(2), g.list(3)
	for _, t := range params {
		g.value(t, depth+1)
	}
	g.emit([]byte{0x02}, g.blockType(params, results))
	g.nested(label{types: results}, func() {
		for range params {
			g.emit([]byte{0x1a})
		}
		g.statements(1, depth+1)
		for _, t := range results {
			g.value(t, depth+1)
		}
		if g.chance(40) {
			g.value(I32, depth+1)
			g.emit(Op(0x0d, 0))
		}
	})
	for range results {
		g.emit([]byte{0x1a})
	}
}

// callable returns the functions that code may call: those with lower indices,
// as long as that does not take too long.
func (g *generator) callable(fits func(Type) bool) []int {
	var out []int
	for i, w := range g.work {
		if g.spent+g.loops*w < most && fits(g.m.Types[g.types[i]]) {
			out = append(out, i)
		}
	}
	return out
}

// calling pushes the result of a call, where some function gives the type.
func (g *generator) calling(t byte, depth int) {
	list := g.callable(func(s Type) bool { return len(s.Results) == 1 && s.Results[0] == t })
	if len(list) == 0 {
		g.leaf(t)
		return
	}
	g.invoke(list[g.r.IntN(len(list))], depth)
}

func (g *generator) call(depth int) {
	list := g.callable(func(Type) bool { return true })
	if len(list) == 0 {
		return
	}
	i := list[g.r.IntN(len(list))]
	g.invoke(i, depth)
	results := g.m.Types[g.types[i]].Results
	for _, t := range slices.Backward(results) {
		if l := g.local(t); l >= 0 {
			g.emit(Op(0x21, l))
		} else {
			g.emit([]byte{0x1a})
		}
	}
}

// invoke calls a function, directly or through the table.
func (g *generator) invoke(i, depth int) {
	for _, t := range g.m.Types[g.types[i]].Params {
		g.value(t, depth+1)
	}
	slot := i - importedFuncs
	if slot >= 0 && slot < constantTable-1 && g.chance(40) {
		if g.chance(2) {
			slot = constantTable - 1 // holds nothing
		}
		g.emit(Const(int32(slot)))
		g.emit([]byte{0x11}, Uint(g.types[i]), []byte{0})
	} else {
		g.emit(Op(0x10, i))
	}
	g.spent += g.loops * g.work[i]
}

func (g *generator) bulkMemory(depth int) {
	g.emit(Const(int32(g.r.IntN(60_000))))
	small := Const(int32(g.r.IntN(64)))
	switch g.r.IntN(3) {
	case 0:
		g.value(I32, depth+1)
		g.emit(Const(int32(g.r.IntN(5000))))
		g.emit([]byte{0xfc, 11, 0})
	case 1:
		g.emit(Const(int32(g.r.IntN(60_000))))
		g.emit(Const(int32(g.r.IntN(5000))))
		g.emit([]byte{0xfc, 10, 0, 0})
	case 2:
		g.emit(Const(0), small)
		g.emit([]byte{0xfc, 8, 1, 0})
	}
}

// bulkTable writes to the slots that nothing calls.
func (g *generator) bulkTable() {
	const room = tableSize - constantTable
	to := constantTable + g.r.IntN(room)
	n := g.r.IntN(tableSize - to + 1)
	kind := g.r.IntN(2)
	g.emit(Const(int32(to)))
	switch g.r.IntN(4) {
	case 0:
		g.reference([]byte{Func, Extern}[kind])
		g.emit(Const(int32(n)))
		g.emit([]byte{0xfc, 17, byte(kind)})
	case 1:
		g.emit(Const(int32(g.r.IntN(tableSize-n+1))), Const(int32(n)))
		g.emit([]byte{0xfc, 14, byte(kind), byte(kind)})
	case 2:
		g.emit(Const(0), Const(int32(min(n, 6))))
		g.emit([]byte{0xfc, 12, 1, 0})
	case 3:
		g.emit(Const(0), Const(int32(min(n, 1))))
		g.emit([]byte{0xfc, 12, 2, 0})
	}
}
