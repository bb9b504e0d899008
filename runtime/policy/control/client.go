package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

// ErrNotLive is a request that only a process which runs can serve.
var ErrNotLive = errors.New("policy control: no process runs on the store")

// answerTime is how long a process may take for what is done at once; what
// compiles a module takes its time.
const answerTime = 2 * time.Minute

// lockTime is how long to wait for a store whose lock somebody holds who does not
// answer: another command, which is done soon, or a process that begins or ends.
const lockTime = 5 * time.Second

// Send has a request done to the store in a folder: by the process that runs on
// it, or where there is none to what stands there, with rest as the options. A
// folder without a store is an error; nothing is made, but for Load.
//
// When ctx ends, Record and a history that is followed end well, with what there
// is so far.
//
// Errors: *Error of the process; those of Do; store.ErrLocked where somebody has
// the store and does not answer; *store.FileError; ErrNotLive.
func Send(ctx context.Context, folder string, q *Request, rest generation.Options) (*Answer, error) {
	return send(ctx, folder, q, rest, lockTime)
}

func send(ctx context.Context, folder string, q *Request, rest generation.Options, wait time.Duration) (*Answer, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	if err := store.Present(folder); err != nil && (q.Verb != Load || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	end := time.Now().Add(wait)
	for {
		out, err := live(ctx, folder, q)
		if errors.Is(err, errBusy) && time.Now().Before(end) {
			if err := pause(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil || !errors.Is(err, ErrNotLive) {
			return out, err
		}
		if q.Verb == Record {
			return nil, blame.On(blame.Operator, fmt.Errorf("%w: %s; what policies are asked can be recorded while one does", ErrNotLive, folder))
		}
		out, err = atRest(ctx, folder, q, rest)
		if !errors.Is(err, store.ErrLocked) {
			return out, err
		}
		if time.Now().After(end) {
			return nil, blame.On(blame.Operator, fmt.Errorf("%w, which answers on no control socket (%s): end it, or let it listen", err, filepath.Join(folder, socketName)))
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// pause waits a moment before the next attempt.
func pause(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errBusy is a process that serves as many connections as it may.
var errBusy = errors.New("policy control: the process serves too many connections; nothing was done")

// atRest does a request to what stands in the store.
func atRest(ctx context.Context, folder string, q *Request, opt generation.Options) (*Answer, error) {
	s, err := store.Open(folder)
	if err != nil {
		return nil, err
	}
	opt.Store = s
	out, err := Do(ctx, generation.AtRest(opt), q, false)
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	out.Store = folder
	if q.Verb == History && q.Follow {
		for _, e := range out.Events {
			if err := q.Events(e); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// live does a request by the process that runs on the store.
//
// Errors: ErrNotLive where none does.
func live(ctx context.Context, folder string, q *Request) (out *Answer, err error) {
	if len(q.Module) > maxBytesIn {
		return nil, blame.On(blame.Operator, fmt.Errorf("policy control: the module has %d bytes, at most %d are taken", len(q.Module), maxBytesIn))
	}
	k, err := socketOf(folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	raw, err := net.DialTimeout("unix", k.path, readTime)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED): // there is none, or its process is dead
		return nil, ErrNotLive
	case err != nil:
		return nil, blame.On(blame.Operator, fmt.Errorf("reach the process of policy store %s: %w", folder, err))
	}
	c, ok := raw.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("policy control: a connection is a %T", raw), raw.Close())
	}
	defer c.Close() // the answer is here
	if uid, err := peerOf(c); err != nil {
		return nil, err
	} else if self := os.Geteuid(); uid != self && uid != 0 && self != 0 {
		return nil, &UserError{uid, self}
	}
	_ = c.SetWriteDeadline(time.Now().Add(writeTime)) // a connection that has none fails below
	var gone error
	if err := writeFrame(c, sent{protocol, *q}, q.Module); err != nil {
		// It may have said why before it closed.
		gone = err
	}
	long := q.Verb == Record || q.Verb == History && q.Follow
	if !long {
		_ = c.SetReadDeadline(time.Now().Add(answerTime)) // likewise
	}
	defer context.AfterFunc(ctx, func() {
		_ = c.CloseWrite() // which the process takes for enough
		_ = c.SetReadDeadline(time.Now().Add(writeTime))
	})()
	for {
		var r received
		more, err := readFrame(c, &r, maxBytesOut)
		switch {
		case err != nil && ctx.Err() != nil && !long:
			return nil, ctx.Err()
		case errors.Is(err, io.EOF) && q.Follow && out != nil:
			return out, nil // it, or we, had enough
		case err != nil:
			if gone != nil {
				err = gone
			}
			return nil, blame.On(blame.Peer, fmt.Errorf("policy store %s: its process took the request and did not answer: %w", folder, unanswered(err)))
		case r.Busy:
			return nil, blame.On(blame.Peer, fmt.Errorf("%w: %s", errBusy, folder))
		case r.Error != nil:
			return nil, r.Error
		}
		out = &r.Answer
		if q.Verb == Record {
			out.Journal, err = journal.Parse(more)
			return out, err
		}
		if !r.More {
			return out, nil
		}
		for _, e := range r.Events {
			if err := q.Events(e); err != nil {
				return nil, err
			}
		}
	}
}

// unanswered makes the end of a connection an error with words.
func unanswered(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return errors.New("it closed the connection; it is ending, or died")
	}
	return err
}
