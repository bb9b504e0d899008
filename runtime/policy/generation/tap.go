package generation

import (
	"github.com/kvferry/kvferry/wasm/host"
)

// tap is somebody who looks at what the guests are asked.
type tap struct{ observe func(host.Call) }

// Tap shows observe every call of the guests that answer, until stop is called,
// after which it is not called any more. Answers that were known are forgotten at
// the beginning, so that every question is seen once; those of a generation in
// shadow, and those that answers are weighed against, are not shown. The call's
// messages are valid during observe only, which must not take long and must not
// call the manager.
//
// Errors: ErrClosed.
func (m *Manager) Tap(observe func(host.Call)) (stop func(), err error) {
	t := &tap{observe}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line.Load().closed {
		return nil, ErrClosed
	}
	m.taps[t] = struct{}{}
	m.tapped.Store(true)
	for _, g := range m.live {
		g.policy.Forget()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.taps, t)
		m.tapped.Store(len(m.taps) > 0)
	}, nil
}

// called is told of every call of a generation's guest.
func (m *Manager) called(g *generation, c host.Call) {
	g.counts.spent.Add(int64(c.Fuel))
	if m.opt.Policy.Observe != nil {
		m.opt.Policy.Observe(c)
	}
	if !m.tapped.Load() || m.line.Load().shadow == g {
		return
	}
	// Held while it is shown, so that nothing is shown after stop has returned.
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.taps {
		t.observe(c)
	}
}
