package agent

import "sync"

// mailbox queues events for one goroutine. Posting never blocks: a reader of
// a connection posts to many, and none of them may hold it up. Its length is
// bounded by what peers may have open.
type mailbox[E any] struct {
	mu     sync.Mutex
	queue  []E
	closed bool
	wake   chan struct{}
}

func newMailbox[E any]() *mailbox[E] { return &mailbox[E]{wake: make(chan struct{}, 1)} }

// post queues e; false: the mailbox is closed and e is dropped.
func (m *mailbox[E]) post(e E) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.queue = append(m.queue, e)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// take waits for events and returns all of them in order.
func (m *mailbox[E]) take() []E {
	for range m.wake {
		m.mu.Lock()
		q := m.queue
		m.queue = nil
		m.mu.Unlock()
		if len(q) > 0 {
			return q
		}
	}
	return nil
}

// close refuses further events and returns those that nobody took.
func (m *mailbox[E]) close() []E {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	q := m.queue
	m.queue = nil
	return q
}
