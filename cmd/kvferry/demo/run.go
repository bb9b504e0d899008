package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/transport"
)

// Result is what the demo did; its JSON form is a stable interface.
type Result struct {
	Processes []int           `json:"processes"`
	Requests  []RequestResult `json:"requests"`
	Policy    Policy          `json:"policy"`
	Layouts   Layouts         `json:"layouts"`
	Control   Control         `json:"control"`
	Transport string          `json:"transport"`
	Mode      string          `json:"mode"`
	Plan      PlanResult      `json:"plan"`
}

// RequestResult is one request's transfer and tokens.
type RequestResult struct {
	ID           string  `json:"id"`
	PromptTokens int     `json:"prompt_tokens"`
	Bytes        int64   `json:"bytes"`
	Segments     int64   `json:"segments"`
	Pieces       int64   `json:"pieces"`
	Seconds      float64 `json:"seconds"`
	Expected     []int   `json:"expected"` // of the unsplit run
	Tokens       []int   `json:"tokens"`
	Equal        bool    `json:"equal"`
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
// *refusal.Refusal; *WrongTokens; ErrControl.
func Run(ctx context.Context, c Config, program []string, stderr io.Writer, step func(string, ...any)) (*Result, error) {
	if step == nil {
		step = func(string, ...any) {}
	}
	model, err := tinyllm.New(tinyllm.Default(c.Heads, c.Seed))
	if err != nil {
		return nil, &UsageError{"heads", fmt.Sprint(c.Heads), err.Error()}
	}
	if err := c.Validate(model.Geometry()); err != nil {
		return nil, err
	}
	module, err := policyModule(c.Policy)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "kvferry-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for sockets: %w", err)
	}
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()

	r := &router{config: c, model: model, step: step, result: &Result{Processes: []int{}, Transport: c.Transport, Mode: c.Mode, Requests: []RequestResult{}, Control: Control{Equal: true}}}
	if err := r.launch(ctx, program, stderr); err != nil {
		return r.result, err
	}
	err = r.run(ctx, module, folder)
	return r.result, errors.Join(err, r.stop(err == nil))
}

type router struct {
	config              Config
	model               *tinyllm.Model
	step                func(string, ...any)
	source, destination *child
	result              *Result
}

// child is an engine, in a process of its own or (loop) as a goroutine.
type child struct {
	name  string
	lines *lines
	input io.Closer
	wait  func() error
	kill  func()

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	gone    chan struct{} // closed when the output ended
}

// launch starts both engines.
func (r *router) launch(ctx context.Context, program []string, stderr io.Writer) error {
	if r.config.Transport == "loop" {
		opens := loopProviders()
		r.source = goroutineChild(ctx, "prefill", opens[0])
		r.destination = goroutineChild(ctx, "decode", opens[1])
		return nil
	}
	var err error
	if r.source, err = processChild(ctx, "prefill", program, stderr); err != nil {
		return err
	}
	if r.destination, err = processChild(ctx, "decode", program, stderr); err != nil {
		return errors.Join(err, r.source.stop(false))
	}
	return nil
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
	c.wait = func() error {
		<-c.gone // Wait closes the pipe that the reader reads
		return cmd.Wait()
	}
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
	c.wait = func() error {
		err := <-done
		cancel()
		return err
	}
	c.kill = cancel
	return c
}

func newChild(name string, l *lines, input io.Closer) *child {
	c := &child{name: name, lines: l, input: input, waiting: map[int]chan reply{}, gone: make(chan struct{})}
	go func() {
		defer close(c.gone)
		for {
			var r reply
			if l.read(&r) != nil {
				return
			}
			c.mu.Lock()
			ch := c.waiting[r.N]
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
		return fmt.Errorf("stop engine %s: %w", c.name, err)
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

// both runs f and g at once and joins their errors.
func both(f, g func() error) error {
	var a, b error
	var w sync.WaitGroup
	w.Go(func() { a = f() })
	b = g()
	w.Wait()
	if a != nil {
		return a // what the other said is most often a consequence
	}
	return b
}

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
	longest := 0
	for i := range c.Requests {
		prompts[i] = r.model.Prompt(i, promptTokens(i, c.Source.Block, c.Destination.Block))
		longest = max(longest, len(prompts[i]))
	}
	prompts[c.Requests] = prompts[0]

	r.step("two engines choose their layouts")
	begin := func(role string, side, peer SideConfig, lie bool) order {
		entry := side.Block * side.DCP
		need := (longest + c.Tokens + entry - 1) / entry
		return order{Kind: orderStart, Start: &start{
			Role: role, Heads: c.Heads, Seed: c.Seed, Side: side, Peer: peer, Transport: c.Transport, Mode: c.Mode,
			Policy: module, Unmetered: c.Unmetered, Lie: lie, Folder: folder,
			Blocks: need*(c.Requests+1) + need, // every request at once, and some that stay untouched
		}}
	}
	var s, d reply
	err := both(
		func() (err error) {
			s, err = r.source.ask(ctx, begin("source", c.Source, c.Destination, c.LieLayout))
			return err
		},
		func() (err error) {
			d, err = r.destination.ask(ctx, begin("destination", c.Destination, c.Source, false))
			return err
		})
	r.result.Layouts = Layouts{s.Layout, d.Layout, s.Reason, d.Reason}
	if s.Policy != nil {
		r.result.Policy = *s.Policy
	}
	if err != nil {
		return err
	}
	r.result.Processes = []int{s.Process, d.Process}

	r.step("the engines shake hands")
	dialler, listener, address := r.destination, r.source, s.Address
	if c.Mode == "push" {
		dialler, listener, address = r.source, r.destination, d.Address
	}
	var dialled, accepted reply
	err = both(
		func() (err error) {
			dialled, err = dialler.ask(ctx, order{Kind: orderConnect, Address: address})
			return err
		},
		func() (err error) {
			accepted, err = listener.ask(ctx, order{Kind: orderAccept})
			return err
		})
	if err != nil {
		return err
	}
	r.result.Plan = PlanResult{Digest: dialled.Plan.Digest, Runs: dialled.Plan.Runs, Reason: dialled.Plan.Reason, Picture: dialled.Plan.Picture, Coloured: dialled.Plan.Coloured}
	r.result.Policy.Calls = dialled.Policy.Calls + accepted.Policy.Calls

	results := make([]RequestResult, len(prompts))
	errs := make([]error, len(prompts))
	var w sync.WaitGroup
	r.step("%d requests move", len(prompts))
	for i, prompt := range prompts {
		w.Go(func() { results[i], errs[i] = r.request(ctx, i, prompt, i == c.Requests) })
	}
	expected := make([][]int, c.Requests)
	for i := range c.Requests {
		if expected[i], err = unsplit(r.model, prompts[i], c.Tokens); err != nil {
			errs = append(errs, err)
		}
	}
	w.Wait()
	if err := errors.Join(errs...); err != nil {
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
	r.result.Control.Equal = slices.Equal(expected[0], results[c.Requests].Tokens)
	if len(wrong) > 0 {
		return &WrongTokens{wrong}
	}
	if r.result.Control.Equal {
		return ErrControl
	}
	return nil
}

// request moves one request from prefill to decode, as a router does.
func (r *router) request(ctx context.Context, id int, prompt []int, zero bool) (RequestResult, error) {
	out := RequestResult{ID: requestName(id), PromptTokens: len(prompt)}
	n, count := int64(len(prompt)), r.config.Tokens
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
		if taken, err = r.destination.ask(ctx, order{Kind: orderTake, Request: id, Tokens: n}); err != nil {
			return out, err
		}
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
	out.Bytes, out.Segments, out.Seconds, out.Tokens = m.Bytes, m.Segments, m.Seconds, decoded.Output
	return out, nil
}

// unsplit runs the model alone, its cache on one rank in plain memory.
func unsplit(m *tinyllm.Model, prompt []int, count int) ([]int, error) {
	c, table, err := plain(m.Geometry(), SideConfig{TP: 1, PP: 1, DCP: 1, Block: 16}, "hnd", len(prompt)+count)
	if err != nil {
		return nil, err
	}
	first := m.Prefill(c, table, prompt, 0, nil)
	return m.Decode(c, table, first, int64(len(prompt)), count), nil
}
