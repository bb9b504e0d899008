package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/journal"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/transport"
)

// Result is what the demo did; its JSON form is a stable interface.
type Result struct {
	Processes []int           `json:"processes"`
	Requests  []RequestResult `json:"requests"`
	Policy    Policy          `json:"policy"`
	Layouts   Layouts         `json:"layouts"`
	Control   *Control        `json:"control,omitempty"` // nil: the run did not come so far
	Transport string          `json:"transport"`
	Mode      string          `json:"mode"`
	Shape     string          `json:"shape"`
	Integrity string          `json:"integrity"`        // off, sample or full
	Layout    string          `json:"layout,omitempty"` // measured with the engines' kernels, or declared
	Probed    bool            `json:"probed"`           // what prefill's kernel wrote was read by decode's
	Plan      PlanResult      `json:"plan"`
	Rounds    *Rounds         `json:"rounds,omitempty"`   // nil: there was one
	Life      *Life           `json:"policies,omitempty"` // nil: without a policy store
}

// RequestResult is one request's transfer and tokens.
type RequestResult struct {
	ID           string  `json:"id"`
	PromptTokens int     `json:"prompt_tokens"`
	Bytes        int64   `json:"bytes"`
	Segments     int64   `json:"segments"`
	Pieces       int64   `json:"pieces"`
	Digests      int64   `json:"digests,omitempty"` // compared with the source's
	Seconds      float64 `json:"seconds"`
	Expected     []int   `json:"expected"` // of the unsplit run
	Tokens       []int   `json:"tokens"`
	Equal        bool    `json:"equal"`
	// Route is how it went, where a policy decided that.
	Route *agent.Route `json:"route,omitempty"`
}

// Layouts are the layouts that the engines ended up with, and the policy's
// reasons.
type Layouts struct {
	Source            string `json:"source"`
	Destination       string `json:"destination"`
	SourceReason      string `json:"source_reason,omitempty"`
	DestinationReason string `json:"destination_reason,omitempty"`
}

// Control is the request whose cache was cleared before decode.
type Control struct {
	Equal bool `json:"equal"` // false is right: the tokens come from the cache
}

// PlanResult is the plan that both sides proved.
type PlanResult struct {
	Digest   string `json:"digest"`
	Runs     int    `json:"runs"`
	Reason   string `json:"reason,omitempty"`
	Picture  string `json:"-"`
	Coloured string `json:"-"`
}

// WrongTokens is a run that moved its caches and generated something else
// than the unsplit run.
type WrongTokens struct{ Requests []string }

func (e *WrongTokens) Error() string {
	return fmt.Sprintf("demo: the tokens of %v differ from the unsplit run", e.Requests)
}

// ErrControl says that a cleared cache made no difference.
var ErrControl = errors.New("demo: the control request with a cleared cache gave the same tokens: the model ignores its cache and the run proves nothing")

// Run runs the demo. program starts an engine process (its path and leading
// arguments); the engine serves on its standard input and output. step, where
// not nil, is told what is going on. The result is filled as far as the run
// came, also with an error.
//
// Errors: *UsageError; refusals of policy, layout, session or transfer as a
// *refusal.Refusal; *EngineGone; *WrongTokens; ErrControl.
func Run(ctx context.Context, c Config, program []string, stderr io.Writer, step func(string, ...any)) (*Result, error) {
	if step == nil {
		step = func(string, ...any) {}
	}
	model, err := c.Model()
	if err != nil {
		return nil, err
	}
	if err := c.Validate(model.Geometry()); err != nil {
		return nil, err
	}
	module, err := c.module()
	if err != nil {
		return nil, err
	}
	if c.Store != "" {
		if c.Store, err = filepath.Abs(c.Store); err != nil {
			return nil, err
		}
		stored, err := activeModule(ctx, c.Store)
		if err != nil {
			return nil, err
		}
		if stored != nil { // what the run is started with is for an empty store
			module, c.Origin, c.Keys = stored, "policy store "+c.Store, nil
		}
	}
	folder, err := socketFolder()
	if err != nil {
		return nil, fmt.Errorf("make a folder for sockets: %w", err)
	}
	defer os.RemoveAll(folder)
	if c.Record != "" {
		// What is no journal is refused before anything runs.
		kept, err := journal.Create(c.Record, journal.Options{})
		if err == nil {
			err = kept.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	running, cancel := context.WithTimeout(ctx, patience+c.For)
	defer cancel()

	r := &router{config: c, model: model, began: time.Now(), step: step, result: &Result{Processes: []int{}, Transport: c.Transport, Mode: c.Mode, Shape: string(c.Shape), Integrity: c.Integrity, Requests: []RequestResult{}}}
	if err := r.launch(running, program, stderr); err != nil {
		return r.result, err
	}
	ran := make(chan struct{})
	// An engine that dies ends the run: what the other one waits for from it
	// may have a long lease.
	err = all(running,
		func(ctx context.Context) error {
			defer close(ran)
			return r.run(ctx, module, folder)
		},
		func(ctx context.Context) error {
			select {
			case <-r.source.gone:
				return fmt.Errorf("engine %s is gone", r.source.name)
			case <-r.destination.gone:
				return fmt.Errorf("engine %s is gone", r.destination.name)
			case <-ran:
			case <-ctx.Done():
			}
			return nil
		})
	if err == nil {
		return r.result, errors.Join(r.stop(true), c.keep(folder))
	}
	var gone *child
	if running.Err() == nil {
		gone = r.gone()
	}
	stopped := errors.Join(r.stop(false), c.keep(folder))
	if gone != nil {
		// Whatever the other engine said is a consequence.
		return r.result, &EngineGone{Engine: gone.name, Err: errors.Join(gone.broken, gone.wait())}
	}
	return r.result, errors.Join(err, stopped)
}

// recordOf is where an engine keeps what its policy is asked, while it runs.
func (c Config) recordOf(folder, role string) string {
	if c.Record == "" {
		return ""
	}
	return filepath.Join(folder, role+".journal")
}

// keep writes what the engines' policies were asked, as far as they came.
func (c Config) keep(folder string) error {
	if c.Record == "" {
		return nil
	}
	var both []*journal.Journal
	for _, role := range []string{"source", "destination"} {
		j, err := journal.Read(c.recordOf(folder, role))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it did not come that far
		} else if err != nil {
			return err
		}
		both = append(both, j)
	}
	return journal.Write(c.Record, journal.Merge(both...))
}

// socketFolder makes a private folder for the agents' sockets. A socket's path
// has at most 107 bytes, whatever the folder for temporary files is called.
func socketFolder() (string, error) {
	parent := os.TempDir()
	if len(parent) > 60 {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "kvferry-demo-")
}

// patience is how long a run may take, far above what the largest needs.
const patience = 15 * time.Minute

// EngineGone is an engine that ended before it was told to, or badly.
type EngineGone struct {
	Engine string
	Err    error // how it ended; nil: in order
}

func (e *EngineGone) Error() string {
	s := "engine " + e.Engine + " ended before it was told to"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the error as scripts read it.
func (e *EngineGone) Unwrap() error {
	return &refusal.Refusal{Kind: "engine", Fault: string(blame.Local), Message: e.Error()}
}

// gone is the engine that has ended, nil where both run on. What an engine that
// dies leaves behind is seen in no particular order, so it waits a moment.
func (r *router) gone() *child {
	moment := time.NewTimer(300 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-r.source.gone:
		return r.source
	case <-r.destination.gone:
		return r.destination
	case <-moment.C:
		return nil
	}
}

type router struct {
	config              Config
	model               *tinyllm.Model
	step                func(string, ...any)
	began               time.Time
	unmoved             unmoved
	source, destination *child
	result              *Result
}

// child is an engine, in a process of its own or (loop) as a goroutine.
type child struct {
	name    string
	process int
	lines   *lines
	input   io.Closer
	wait    func() error // more than once gives the same
	kill    func()

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	gone    chan struct{} // closed when the output ended
	broken  error         // why, where the output was not understood
}

// launch starts both engines.
func (r *router) launch(ctx context.Context, program []string, stderr io.Writer) error {
	if r.config.Transport == "loop" {
		opens := loopProviders()
		r.source = goroutineChild(ctx, "prefill", opens[0])
		r.destination = goroutineChild(ctx, "decode", opens[1])
	} else {
		var err error
		stderr = shared(stderr)
		if r.source, err = processChild(ctx, "prefill", program, stderr); err != nil {
			return err
		}
		if r.destination, err = processChild(ctx, "decode", program, stderr); err != nil {
			return errors.Join(err, r.source.stop(false))
		}
	}
	r.result.Processes = []int{r.source.process, r.destination.process}
	return nil
}

// shared is a writer that both engines' standard errors go to. A file is as
// good as it is, and the engines then write to it themselves.
func shared(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &lockedWriter{w: w}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func processChild(ctx context.Context, name string, program []string, stderr io.Writer) (*child, error) {
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start engine %s: %w", name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start engine %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start engine %s: %w", name, err)
	}
	c := newChild(name, newLines(out, in), in)
	c.process = cmd.Process.Pid
	c.wait = sync.OnceValue(func() error {
		<-c.gone // Wait closes the pipe that the reader reads
		return cmd.Wait()
	})
	c.kill = func() { _ = cmd.Process.Kill() }
	return c, nil
}

func goroutineChild(ctx context.Context, name string, open func(string, string) (transport.Provider, error)) *child {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := newChild(name, newLines(outR, inW), inW)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		err := Serve(ctx, inR, outW, open)
		inR.CloseWithError(io.ErrClosedPipe)
		outW.Close()
		done <- err
	}()
	c.process = os.Getpid()
	c.wait = sync.OnceValue(func() error {
		err := <-done
		cancel()
		return err
	})
	c.kill = cancel
	return c
}

func newChild(name string, l *lines, input io.Closer) *child {
	c := &child{name: name, lines: l, input: input, waiting: map[int]chan reply{}, gone: make(chan struct{})}
	go func() {
		defer close(c.gone)
		for {
			var r reply
			if err := l.read(&r); err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
					c.broken = err
				}
				return
			}
			c.mu.Lock()
			ch := c.waiting[r.N]
			if r.State != "offered" {
				delete(c.waiting, r.N) // it was the last
			}
			c.mu.Unlock()
			if ch != nil {
				ch <- r
			}
		}
	}()
	return c
}

// stop ends the engine and waits for it.
func (c *child) stop(orderly bool) error {
	if orderly {
		_ = c.lines.write(order{Kind: orderStop}) // an engine that is gone needs no order
	}
	_ = c.input.Close()
	timer := time.AfterFunc(10*time.Second, c.kill)
	defer timer.Stop()
	err := c.wait()
	if err != nil && orderly {
		return &EngineGone{c.name, err}
	}
	return nil
}

func (r *router) stop(orderly bool) error {
	var errs [2]error
	var w sync.WaitGroup
	for i, c := range []*child{r.source, r.destination} {
		w.Go(func() { errs[i] = c.stop(orderly) })
	}
	w.Wait()
	return errors.Join(errs[:]...)
}

// call sends an order; the returned function gives its replies one by one.
func (c *child) call(ctx context.Context, o order) (func() (reply, error), error) {
	ch := make(chan reply, 2)
	c.mu.Lock()
	c.next++
	o.N = c.next
	c.waiting[o.N] = ch
	c.mu.Unlock()
	if err := c.lines.write(o); err != nil {
		return nil, fmt.Errorf("engine %s is gone: %w", c.name, err)
	}
	return func() (reply, error) {
		var got reply
		select {
		case got = <-ch:
		case <-c.gone:
			select {
			case got = <-ch: // its last line
			default:
				return got, fmt.Errorf("engine %s ended before it answered", c.name)
			}
		case <-ctx.Done():
			return got, fmt.Errorf("wait for engine %s: %w", c.name, ctx.Err())
		}
		if got.State == "failed" {
			return got, got.Error
		}
		return got, nil
	}, nil
}

// ask is call for an order with one reply.
func (c *child) ask(ctx context.Context, o order) (reply, error) {
	next, err := c.call(ctx, o)
	if err != nil {
		return reply{}, err
	}
	return next()
}

// all runs the functions at once. The first that fails ends the others, whose
// errors are then a consequence, and its error is returned.
func all(ctx context.Context, run ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var w sync.WaitGroup
	for _, f := range run {
		w.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	w.Wait()
	return context.Cause(ctx)
}

// controlTokens is how many tokens the control request generates at least: of
// few, the same ones could come out of a cleared cache by chance.
const controlTokens = 16

// promptTokens are the lengths of the requests' prompts: different, and ending
// inside a block on both sides.
func promptTokens(request, sourceBlock, destinationBlock int) int {
	n := 37 + 29*(request%4) + 5*(request/4)
	for n%sourceBlock == 0 || n%destinationBlock == 0 {
		if sourceBlock == 1 || destinationBlock == 1 {
			break
		}
		n++
	}
	return n
}

func (r *router) run(ctx context.Context, module []byte, folder string) error {
	c := r.config
	prompts := make([][]int, c.Requests+1) // the last one is the control: request 0 again
	for i := range c.Requests {
		prompts[i] = r.model.Prompt(i, promptTokens(i, c.Source.Block, c.Destination.Block))
	}
	prompts[c.Requests] = prompts[0]

	r.step("two engines choose their layouts")
	m := r.model.Geometry()
	var blocks [2][]int
	sides := [2]SideConfig{c.Source, c.Destination}
	roles := [2]string{"source", "destination"}
	for i, side := range sides {
		sh, err := side.Shard(m)
		if err != nil {
			return err
		}
		blocks[i] = c.blocks(side, roles[i], m, sh)
	}
	begin := func(i int, lie string) order {
		own, fallback := "", ""
		if roles[i] == "destination" {
			own, fallback = c.Store, c.Fallback
		}
		return order{Kind: orderStart, Start: &start{
			Origin: c.Origin, Keys: c.Keys, Store: own, Fallback: fallback,
			Role: roles[i], Shape: c.Shape, Heads: c.Heads, Seed: c.Seed, Side: sides[i], Peer: sides[1-i], Transport: c.Transport, Mode: c.Mode, Integrity: c.integrity(),
			Policy: c.Policy, Module: module, Settings: c.Settings, Record: c.recordOf(folder, roles[i]), Lie: lie, Folder: folder, Blocks: blocks[i], PeerBlocks: blocks[1-i],
		}}
	}
	lie := ""
	switch {
	case c.LieLayout:
		lie = lieLayout
	case c.LieKernel:
		lie = lieKernel
	}
	// Neither waits for the other here, so both are heard, and of two refusals
	// the source's is told.
	chosen := [2]func() (reply, error){}
	var err error
	if chosen[0], err = r.source.call(ctx, begin(0, lie)); err != nil {
		return err
	}
	if chosen[1], err = r.destination.call(ctx, begin(1, "")); err != nil {
		return err
	}
	s, err := chosen[0]()
	d, other := chosen[1]()
	if err == nil {
		err = other
	}
	r.result.Layouts = Layouts{s.Layout, d.Layout, s.Reason, d.Reason}
	if s.Policy != nil {
		r.result.Policy = *s.Policy
		r.result.Policy.Source, r.result.Policy.Keys = c.Origin, c.Keys
	}
	if err != nil {
		return err
	}

	r.step("the engines shake hands")
	dialler, listener, address := r.destination, r.source, s.Address
	if c.Mode == "push" {
		dialler, listener, address = r.source, r.destination, d.Address
	}
	var dialled, accepted reply
	err = all(ctx,
		func(ctx context.Context) (err error) {
			dialled, err = dialler.ask(ctx, order{Kind: orderConnect, Address: address})
			return err
		},
		func(ctx context.Context) (err error) {
			accepted, err = listener.ask(ctx, order{Kind: orderAccept})
			return err
		})
	if err != nil {
		return err
	}
	r.result.Plan = PlanResult{Digest: dialled.Plan.Digest, Runs: dialled.Plan.Runs, Reason: dialled.Plan.Reason, Picture: dialled.Plan.Picture, Coloured: dialled.Plan.Coloured}
	// Each engine says what the other one's layouts are.
	r.result.Layout, r.result.Probed = dialled.Plan.Peer, dialled.Plan.Probed && accepted.Plan.Probed
	if accepted.Plan.Peer != dialled.Plan.Peer {
		r.result.Layout = string(session.Declared)
	}
	r.result.Policy.Calls = dialled.Policy.Calls + accepted.Policy.Calls

	r.step("%d requests move", len(prompts))
	results := make([]RequestResult, len(prompts))
	expected := make([][]int, len(prompts))
	turn := make(chan struct{}, runtime.GOMAXPROCS(0)) // of the unsplit runs
	var work []func(context.Context) error
	for i, prompt := range prompts {
		control := i == c.Requests
		count := c.Tokens
		if control {
			count = max(count, controlTokens)
		}
		work = append(work,
			func(ctx context.Context) (err error) {
				results[i], err = r.insist(ctx, i, prompt, count, control)
				return err
			},
			func(ctx context.Context) (err error) {
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
					expected[i], err = unsplit(r.model, prompt, count)
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
	}
	if err := all(ctx, work...); err != nil {
		return err
	}
	var wrong []string
	for i := range c.Requests {
		results[i].Expected = expected[i]
		results[i].Equal = slices.Equal(expected[i], results[i].Tokens)
		if !results[i].Equal {
			wrong = append(wrong, results[i].ID)
		}
	}
	r.result.Requests = results[:c.Requests]
	r.result.Control = &Control{Equal: slices.Equal(expected[c.Requests], results[c.Requests].Tokens)}
	if len(wrong) > 0 {
		return &WrongTokens{wrong}
	}
	if r.result.Control.Equal {
		return ErrControl
	}
	if c.many() {
		err = r.again(ctx, prompts[:c.Requests], expected)
	}
	if c.Store != "" && ctx.Err() == nil {
		last, other := r.destination.ask(ctx, order{Kind: orderLife})
		if other != nil {
			return errors.Join(err, other)
		}
		r.result.Life = last.Life
	}
	return err
}

// request moves one request from prefill to decode, as a router does.
func (r *router) request(ctx context.Context, id int, prompt []int, count int, zero bool) (RequestResult, error) {
	out := RequestResult{ID: requestName(id), PromptTokens: len(prompt)}
	n := int64(len(prompt))
	var taken reply
	var source func() (reply, error)
	var err error
	if r.config.Mode == "push" {
		x, err := r.destination.ask(ctx, order{Kind: orderExpect, Request: id, Tokens: n, Count: count})
		if err != nil {
			return out, err
		}
		if source, err = r.source.call(ctx, order{Kind: orderPrefill, Request: id, Prompt: prompt, Ticket: x.Ticket}); err != nil {
			return out, err
		}
		// A push that fails is nothing that the destination sees the end of.
		last := source
		var pushed reply
		err = all(ctx,
			func(context.Context) (err error) {
				pushed, err = last()
				return err
			},
			func(ctx context.Context) (err error) {
				taken, err = r.destination.ask(ctx, order{Kind: orderTake, Request: id, Tokens: n})
				return err
			})
		if err != nil {
			return out, err
		}
		source = func() (reply, error) { return pushed, nil }
	} else {
		if source, err = r.source.call(ctx, order{Kind: orderPrefill, Request: id, Prompt: prompt}); err != nil {
			return out, err
		}
		offered, err := source()
		if err != nil {
			return out, err
		}
		if taken, err = r.destination.ask(ctx, order{Kind: orderTake, Request: id, Ticket: offered.Ticket, Tokens: n, Count: count}); err != nil {
			return out, err
		}
	}
	done, err := source()
	if err != nil {
		return out, err
	}
	if taken.First >= 0 && taken.First != done.First {
		return out, fmt.Errorf("demo: request %d: prefill produced token %d, %d came along with the cache", id, done.First, taken.First)
	}
	decoded, err := r.destination.ask(ctx, order{Kind: orderDecode, Request: id, First: done.First, Count: count, Zero: zero})
	if err != nil {
		return out, err
	}
	m := taken.Moved
	out.Pieces = m.Pieces
	if done.Moved != nil { // a push is counted by the side that pushed
		m = done.Moved
	}
	out.Bytes, out.Segments, out.Digests, out.Seconds, out.Tokens, out.Route = m.Bytes, m.Segments, m.Digests, m.Seconds, decoded.Output, m.Route
	return out, nil
}

// unsplit runs the model alone, its cache on one rank in plain memory.
func unsplit(m *tinyllm.Model, prompt []int, count int) ([]int, error) {
	c, tables, err := plain(m, len(prompt)+count)
	if err != nil {
		return nil, err
	}
	first := m.Prefill(c, tables, prompt, 0, nil)
	return m.Decode(c, tables, first, int64(len(prompt)), count), nil
}
