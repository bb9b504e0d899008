package agent

import (
	"sync"

	"github.com/kvferry/kvferry/transport"
)

// pump hands a provider's completions to whoever submitted the operations.
type pump struct {
	provider transport.Provider
	stop     chan struct{}

	mu      sync.Mutex
	waiting map[transport.OpID]func(transport.Completion)
	early   map[transport.OpID]transport.Completion // completed before Submit's caller could say who waits
}

func newPump(p transport.Provider) *pump {
	return &pump{provider: p, stop: make(chan struct{}), waiting: map[transport.OpID]func(transport.Completion){}, early: map[transport.OpID]transport.Completion{}}
}

// submit starts an operation; done is called once with its completion, from
// another goroutine, and must not block.
func (p *pump) submit(op transport.Operation, done func(transport.Completion)) (transport.OpID, error) {
	id, err := p.provider.Submit(op)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	c, ok := p.early[id]
	delete(p.early, id)
	if !ok {
		p.waiting[id] = done
	}
	p.mu.Unlock()
	if ok {
		done(c)
	}
	return id, nil
}

// run polls until stop is closed.
func (p *pump) run() {
	var buf [64]transport.Completion
	for {
		n := p.provider.Poll(buf[:])
		for _, c := range buf[:n] {
			p.mu.Lock()
			done := p.waiting[c.Op]
			delete(p.waiting, c.Op)
			if done == nil {
				p.early[c.Op] = c
			}
			p.mu.Unlock()
			if done != nil {
				done(c)
			}
		}
		if n == len(buf) {
			continue
		}
		select {
		case <-p.provider.Ready():
		case <-p.stop:
			return
		}
	}
}
