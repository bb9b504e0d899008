package agent

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/runtime/blame"
)

// ledger knows which blocks of an engine are in use by offers, expectations
// and transfers. Any number may read a block (requests share prefixes), one
// may write it and then nobody reads it.
type ledger struct {
	mu     sync.Mutex
	groups []map[uint32]*use
}

type use struct {
	reads int
	write bool
	by    string // the last one that took it
}

// InUse is a block that something else is using.
type InUse struct {
	Group int
	Block uint32
	By    string // what uses it
	For   string // what wanted it
}

func (e *InUse) Error() string {
	return fmt.Sprintf("agent: block %d (group %d) is wanted by %s while %s uses it", e.Block, e.Group, e.For, e.By)
}

// Blame is the engine, whose allocator gave it away twice.
func (e *InUse) Blame() blame.Party { return blame.Local }

func newLedger(groups int) *ledger {
	l := &ledger{groups: make([]map[uint32]*use, groups)}
	for g := range l.groups {
		l.groups[g] = map[uint32]*use{}
	}
	return l
}

// take marks the blocks, all or none.
func (l *ledger) take(blocks [][]uint32, write bool, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, ids := range blocks {
		for _, id := range ids {
			if u := l.groups[g][id]; u != nil && (write || u.write) {
				return &InUse{g, id, u.by, by}
			}
		}
	}
	for g, ids := range blocks {
		for _, id := range ids {
			u := l.groups[g][id]
			if u == nil {
				u = &use{}
				l.groups[g][id] = u
			}
			u.by, u.write = by, write
			if !write {
				u.reads++
			}
		}
	}
	return nil
}

// give unmarks the blocks and calls bump with those that nothing uses any
// more, before anybody else can take them.
func (l *ledger) give(blocks [][]uint32, write bool, bump func(group int, blocks []uint32)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, ids := range blocks {
		var free []uint32
		for _, id := range ids {
			u := l.groups[g][id]
			if write {
				u.write = false
			} else {
				u.reads--
			}
			if u.reads == 0 && !u.write {
				delete(l.groups[g], id)
				free = append(free, id)
			}
		}
		if bump != nil && len(free) > 0 {
			bump(g, free)
		}
	}
}
