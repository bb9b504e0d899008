package tcp

import (
	"errors"
	"fmt"
)

// errStopped says that a job was stopped before and reports for itself.
var errStopped = errors.New("transport/tcp: the operation was stopped")

// sendChunk gathers the next chunk of a part, checks that its blocks are still
// those that were granted, and sends it. The part then waits behind the others
// of the connection, so that a large operation never holds up a small one for
// longer than a chunk. An error is the connection's; a part whose operation
// was stopped is dropped.
func (e *peer) sendChunk(c *conn, p *part, buf []byte) error {
	t := p.transfer
	if !t.job.Begin() {
		return nil
	}
	room := min(int64(len(buf)-headerSize), p.bytes-p.done)
	b := buf[:headerSize+room]
	var n, segments int64
	err := p.start()
	if err == nil {
		n, segments, err = p.pass(b[headerSize:], true)
	}
	if err == nil && n != room {
		err = fmt.Errorf("transport/tcp: edge %v ends after %d bytes, stamping counted %d", p.edge, p.done+n, p.bytes)
	}
	if err == nil {
		err = t.job.CheckRank(p.rank())
	}
	if !t.job.End(n, segments, err) {
		return nil
	}
	t.segments.Add(segments)
	h := header{kind: kindData, mine: t.mine, op: t.op, part: p.number, offset: uint64(p.done)}
	h.seal(b)
	p.done += n
	// The peer may answer before Write returns.
	last := p.done == p.bytes && t.left.Add(-1) == 0
	if _, err := c.c.Write(b); err != nil {
		return err
	}
	switch {
	case p.done < p.bytes:
		c.push(p)
	case last && !t.mine:
		t.complete()
	}
	return nil
}

// onData takes a chunk: all that its header says is checked first, then its
// CRC, and only then a byte is moved to its place.
func (e *peer) onData(c *conn, h *header, length int) error {
	t, err := e.find(h)
	if err != nil {
		return err
	}
	var p *part
	if t != nil {
		if t.sends {
			return h.bad("op", h.op, "an operation whose bytes come from the sender")
		}
		if uint64(h.part) >= uint64(len(t.parts)) {
			return h.bad("part", h.part, "below %d", len(t.parts))
		}
		p = t.parts[h.part]
		switch streams := len(e.data); {
		case int(p.number)%streams != c.stream:
			return h.bad("connection", c.stream, "%d for part %d", int(p.number)%streams, h.part)
		case h.offset != uint64(p.done):
			return h.bad("offset", h.offset, "%d, where part %d has got to", p.done, h.part)
		case int64(length) > p.bytes-p.done:
			return h.bad("length", length, "at most %d, what is left of part %d", p.bytes-p.done, h.part)
		}
	}
	b, err := c.reader.body(h, length)
	if err != nil || t == nil { // an operation that has ended
		return err
	}
	p.done += int64(length)
	if !t.job.Begin() {
		return nil
	}
	var n, segments int64
	if !t.mine {
		err = t.job.CheckRank(p.rank())
	}
	if err == nil {
		err = p.start()
	}
	if err == nil {
		n, segments, err = p.pass(b, false)
	}
	if err == nil && n != int64(length) {
		err = fmt.Errorf("transport/tcp: edge %v ends after %d bytes, stamping counted %d", p.edge, p.done-int64(length)+n, p.bytes)
	}
	if !t.job.End(n, segments, err) {
		return nil
	}
	t.segments.Add(segments)
	if p.done == p.bytes && t.left.Add(-1) == 0 {
		e.applied(t)
	}
	return nil
}

// applied is called when all bytes of a transfer are in place here.
func (e *peer) applied(t *transfer) {
	if !t.mine { // a write into our blocks: they must still be the ones granted
		if e.checkAll(t) == nil {
			t.complete()
		}
		return
	}
	e.mu.Lock()
	t.applied = true
	ended := t.ended
	e.mu.Unlock()
	if ended {
		t.complete()
	}
}
