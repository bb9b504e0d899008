package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/memory/host"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/transport"
)

// connected is a copyCase between two providers of this process, which see
// each other as they would see another process.
type connected struct {
	c                   *copyCase
	source, destination transport.Provider
	there, here         transport.PeerID // of the destination at the source, of the source at the destination
	serial              uint64
}

// connect registers the case's two ranks and prepares its plan on both sides.
// The caller must close the result.
func connect(ctx context.Context, c *copyCase, source, destination transport.Provider) (t *connected, err error) {
	t = &connected{c: c, source: source, destination: destination}
	defer func() {
		if err != nil {
			_ = t.close() // the first error is the one to report
		}
	}()
	if err := source.Register(c.src.Rank()); err != nil {
		return t, err
	}
	if err := destination.Register(c.dst.Rank()); err != nil {
		return t, err
	}
	if t.here, err = destination.Connect(ctx, source.Address()); err != nil {
		return t, err
	}
	if t.there, err = source.Accepted(destination.Token(t.here)); err != nil {
		return t, err
	}
	if err := source.Prepare(c.st.Proven(), t.there, transport.Source); err != nil {
		return t, err
	}
	return t, destination.Prepare(c.st.Proven(), t.here, transport.Destination)
}

func (t *connected) close() error {
	err := t.destination.Close()
	if e := t.source.Close(); err == nil {
		err = e
	}
	return err
}

// patience bounds one movement.
const patience = 2 * time.Minute

// run pulls the request once: grant, submit, wait, revoke.
func (t *connected) run() error {
	t.serial++
	var id transport.GrantID
	binary.LittleEndian.PutUint64(id[:], t.serial)
	deadline := time.Now().Add(patience)
	req := *t.c.req
	req.Edges = []stamp.EdgeKey{t.c.key}
	grant := transport.Grant{ID: id, Peer: t.there, Direction: transport.Read, Request: req, Deadline: deadline, Generations: generations(t.c.src, req.Source[0])}
	grant.Request.Destination = nil
	if err := t.source.Grant(grant); err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	op := transport.Operation{Peer: t.here, Grant: id, Direction: transport.Read, Request: req, PeerGenerations: grant.Generations, Deadline: deadline}
	if !t.destination.Capabilities().OneSided {
		op.Request.Source, op.PeerGenerations = nil, nil
	}
	if _, err := t.destination.Submit(op); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	var done [1]transport.Completion
	for t.destination.Poll(done[:]) == 0 {
		select {
		case <-t.destination.Ready():
		case <-time.After(time.Until(deadline)):
			return fmt.Errorf("poll: %w", transport.ErrDeadline)
		}
	}
	if done[0].Err != nil {
		return fmt.Errorf("move: %w", done[0].Err)
	}
	if done[0].Bytes != t.c.bytes {
		return fmt.Errorf("move: %d bytes reported, the request has %d", done[0].Bytes, t.c.bytes)
	}
	return t.source.Revoke(id)
}

func generations(p *host.Pool, table []uint32) [][]uint64 {
	out := make([]uint64, len(table))
	for i, id := range table {
		out[i] = p.Generations(0).Load(int(id))
	}
	return [][]uint64{out}
}
