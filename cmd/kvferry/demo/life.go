package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

// With a policy store the decode engine's agent runs a generation.Manager on it
// and listens to whoever changes its policies: decode is who asks which rank
// feeds which, and in all modes but push who asks how a transfer goes. The
// prefill engine has the policy that is active when the run begins, for its
// layout and, in mode push, for the transfers that it begins.

// asks is a policy that an engine asks: an open one, or a manager's.
type asks interface {
	agent.Policy
	Calls() int64
}

// Life is what a store's policies did in a run.
type Life struct {
	Store   string          `json:"store"`
	Process int             `json:"process"` // that ran them
	Status  *control.Status `json:"status"`
}

// Rounds is what a run did that went on for more than one round of requests.
type Rounds struct {
	Rounds  int    `json:"rounds"`
	Moved   int64  `json:"moved"`             // requests
	Failed  int64  `json:"failed"`            // requests that did not move
	Failure string `json:"failure,omitempty"` // of the first of them
}

// FailedRequests are requests of later rounds that were not moved.
type FailedRequests struct {
	Failed, All int64
	First       error
}

func (e *FailedRequests) Error() string {
	return fmt.Sprintf("demo: %d of %d requests did not move, the first: %v", e.Failed, e.All, e.First)
}

// Unwrap returns the first request's error.
func (e *FailedRequests) Unwrap() error { return e.First }

// openStore opens a store, which a command that changes it may have for a
// moment.
func openStore(ctx context.Context, folder string) (*store.Store, error) {
	for end := time.Now().Add(2 * time.Second); ; {
		s, err := store.Open(folder)
		if !errors.Is(err, store.ErrLocked) || time.Now().After(end) {
			return s, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// activeModule is the module of the policy that is active in a store, nil where
// there is none.
func activeModule(ctx context.Context, folder string) (_ []byte, err error) {
	s, err := openStore(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	state := s.State()
	g, ok := state.Find(state.Active)
	if !ok {
		return nil, nil
	}
	return s.Module(g.Digest)
}

// manage opens the engine's policies: those of the store, or where none is
// active there the one that the run was started with.
func (e *engine) manage(ctx context.Context, options policy.Options) (err error) {
	fallback, err := generation.ParseFallback(e.start.Fallback)
	if err != nil {
		return err
	}
	s, err := openStore(ctx, e.start.Store)
	if err != nil {
		return err
	}
	e.close = append(e.close, s.Close)
	server, err := control.Listen(s)
	if err != nil {
		return err
	}
	m, err := generation.New(ctx, generation.Options{
		Policy: options, Store: s, Fallback: fallback, Events: server.Tell,
		Log: zerolog.New(os.Stderr).With().Timestamp().Str("store", s.Folder()).Logger(),
	})
	if err != nil {
		return errors.Join(err, server.Close())
	}
	e.close = append(e.close, m.Close, server.Close) // the server first
	if m.Name() == "" {
		id, err := m.Load(ctx, generation.Module{Wasm: e.start.Module, Source: e.start.Origin, Keys: e.start.Keys})
		if err == nil {
			err = m.Activate(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("policy %s: %w", e.start.Policy, err)
		}
	}
	e.policy, e.manager = m, m
	server.Serve(m)
	return nil
}

// box is what the engine's modules are compiled with: with a store, any may come.
func (e *engine) box() (*sandbox.Box, error) {
	if e.start.Store != "" {
		return sandbox.OpenAny()
	}
	return sandbox.Open(e.start.Module)
}

// askAgain is how often a managed engine asks again which rank feeds which, as
// one does whose peers come and go: a policy that does wrong is found out, and
// one in shadow has something to be compared with.
const askAgain = 250 * time.Millisecond

// askOn asks the policy again and again until the run ends. A policy that fails
// leaves the plans as they are; the manager counts it.
func (e *engine) askOn(ctx context.Context) {
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = e.peer.Replan(ctx) // counted, logged, and no end of anything
		case <-ctx.Done():
			return
		}
	}
}

// drop ends a request that did not move, and gives its blocks back.
func (e *engine) drop(ctx context.Context, o *order) error {
	e.mu.Lock()
	h, offered := e.requests[o.Request], e.offers[o.Request]
	delete(e.requests, o.Request)
	e.mu.Unlock()
	if offered != nil {
		offered.open.Cancel()
		select {
		case <-offered.done: // what computes the prompt goes on until it notices
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h == nil {
		return nil
	}
	if h.expected != nil {
		h.expected.Cancel()
		if err := h.expected.Free(ctx); err != nil {
			return err
		}
	}
	e.give(h.tables)
	return nil
}

// life is what the engine's policies did.
func (e *engine) life() *Life {
	if e.manager == nil {
		return nil
	}
	return &Life{e.start.Store, os.Getpid(), control.StatusOf(e.manager.Status(), true)}
}

// again moves the requests round after round. Those that fail are counted: what
// a policy does wrong ends no run that an operator watches.
func (r *router) again(ctx context.Context, prompts, expected [][]int) error {
	out := &Rounds{Rounds: 1, Moved: int64(len(prompts))}
	defer func() {
		out.Failed = r.unmoved.n
		if r.unmoved.first != nil {
			out.Failure = r.unmoved.first.Error()
		}
	}()
	r.result.Rounds = out
	c := r.config
	var end <-chan time.Time
	if c.For > 0 {
		timer := time.NewTimer(time.Until(r.began.Add(c.For)))
		defer timer.Stop()
		end = timer.C
	}
	for c.For > 0 || out.Rounds < c.Repeat {
		select {
		case <-end:
			return r.unmoved.err(out.Moved)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		r.step("round %d", out.Rounds+1)
		before := r.unmoved.n
		var work []func(context.Context) error
		for i, prompt := range prompts {
			work = append(work, func(ctx context.Context) error {
				id := out.Rounds*(c.Requests+1) + i
				got, err := r.request(ctx, id, prompt, c.Tokens, false)
				if err == nil && !slices.Equal(got.Tokens, expected[i]) {
					return &WrongTokens{[]string{got.ID}}
				}
				if err == nil || ctx.Err() != nil {
					return err
				}
				return r.failed(ctx, id, err)
			})
		}
		if err := all(ctx, work...); err != nil {
			return err
		}
		out.Rounds++
		out.Moved += int64(len(prompts)) - (r.unmoved.n - before)
	}
	return r.unmoved.err(out.Moved)
}

// many reports whether the run has more than one round.
func (c Config) many() bool { return c.Repeat > 1 || c.For > 0 }

// unmoved counts requests that did not move.
type unmoved struct {
	mu    sync.Mutex
	n     int64
	first error
}

func (u *unmoved) err(moved int64) error {
	if u.first == nil {
		return nil
	}
	return &FailedRequests{u.n, u.n + moved, u.first}
}

// failed counts a request that did not move, and has both engines let go of it.
func (r *router) failed(ctx context.Context, id int, err error) error {
	r.unmoved.mu.Lock()
	r.unmoved.n++
	if r.unmoved.first == nil {
		r.unmoved.first = err
	}
	r.unmoved.mu.Unlock()
	for _, engine := range []*child{r.source, r.destination} {
		if _, err := engine.ask(ctx, order{Kind: orderDrop, Request: id}); err != nil {
			return err
		}
	}
	return nil
}

// attempts is how often a request of the first round is tried in a run that goes
// on, each a moment after the one before: as long as a policy takes to be taken
// out that does wrong.
const attempts = 100

// insist moves a request of the first round, whose tokens the later ones are
// compared with.
func (r *router) insist(ctx context.Context, i int, prompt []int, count int, zero bool) (RequestResult, error) {
	for n, id := 1, i; ; n++ {
		got, err := r.request(ctx, id, prompt, count, zero)
		if err == nil || !r.config.many() || n == attempts || ctx.Err() != nil {
			got.ID = requestName(i)
			return got, err
		}
		if err := r.failed(ctx, id, err); err != nil {
			return got, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return got, ctx.Err()
		}
		id = -n*(r.config.Requests+1) - i // a name of its own
	}
}
