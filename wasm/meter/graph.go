package meter

// Frames is how deep calls may go. The interpreter ends at 2,000 frames and the
// compiler at some size of its stack; where a guest that stays below both
// ends must not depend on the engine, so the pass counts.
const Frames = 1000

// frameBytes is how much code stands for a frame more: what a compiled function
// keeps on the stack grows with its code, and few large frames must not reach the
// end of the compiler's stack before many small ones reach the interpreter's.
const frameBytes = 4096

// chainMost bounds the frames between two that are counted: with it no guest
// comes near the interpreter's end.
const chainMost = 400

// weigh returns how many frames each function that is not imported counts for,
// 0: it is not counted. Only functions that can come up again below themselves
// are, and each stands for the longest chain of others that it may call, and for
// more where it is large.
//
// A call through a table may reach every function whose address is taken.
// Preconditions: the functions that the module imports call nothing of it, and
// nobody else puts functions into its tables; where they do, the engine's own
// ends hold.
func weigh(m *module, plans []*plan) []int {
	n := len(plans)
	table := n // a node that stands for calls through tables
	var taken []uint32
	for i, t := range m.taken {
		if t && i >= m.imported {
			taken = append(taken, uint32(i))
		}
	}
	// callee is the i-th call of a node.
	callee := func(node, i int) (int, bool) {
		calls, more := taken, false
		if node < n {
			calls, more = plans[node].calls, plans[node].indirect
		}
		switch {
		case i < len(calls):
			return int(calls[i]) - m.imported, true
		case i == len(calls) && more:
			return table, true
		}
		return 0, false
	}

	weight := make([]int, n)
	chain := make([]int, n+1) // of frames that are not counted, from the node on
	longest := 0
	// finish is called with the nodes of each strongly connected component,
	// those that it calls before it.
	finish := func(component []int) {
		cyclic := len(component) > 1
		below := func(node int) int {
			most := 0
			for i := 0; ; i++ {
				c, ok := callee(node, i)
				if !ok {
					return most
				}
				cyclic = cyclic || c == node
				most = max(most, chain[c])
			}
		}
		for _, node := range component {
			if node == table { // first: the others of its component call it
				chain[table] = below(table)
			}
		}
		for _, node := range component {
			if node == table {
				continue
			}
			length := 1 + below(node)
			if cyclic {
				weight[node] = length + plans[node].size/frameBytes
			} else {
				chain[node] = length
			}
			longest = max(longest, length)
		}
	}
	components(n+1, callee, finish)
	if longest > chainMost {
		for i := range weight {
			weight[i] = 1 + plans[i].size/frameBytes
		}
	}
	return weight
}

// components finds strongly connected components (Tarjan's algorithm, without
// recursion: the graph is a stranger's).
func components(n int, callee func(node, i int) (int, bool), finish func([]int)) {
	const unseen = 0
	type visit struct{ node, next int }
	index := make([]int, n) // order of discovery, from 1
	low := make([]int, n)
	open := make([]bool, n) // on the stack
	var stack []int
	var path []visit
	found := 0
	enter := func(node int) {
		found++
		index[node], low[node], open[node] = found, found, true
		stack = append(stack, node)
		path = append(path, visit{node, 0})
	}
	for root := range n {
		if index[root] != unseen {
			continue
		}
		for enter(root); len(path) > 0; {
			v := &path[len(path)-1]
			node := v.node
			if c, ok := callee(node, v.next); ok {
				v.next++
				if index[c] == unseen {
					enter(c)
				} else if open[c] {
					low[node] = min(low[node], index[c])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				up := path[len(path)-1].node
				low[up] = min(low[up], low[node])
			}
			if low[node] != index[node] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != node {
				at--
			}
			for _, c := range stack[at:] {
				open[c] = false
			}
			finish(stack[at:])
			stack = stack[:at]
		}
	}
}
