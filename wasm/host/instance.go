package host

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

// Arena sizes double from the least; a call uses the smallest that holds its
// input and as much again for the answer.
const (
	leastArena = 64 << 10
	mostArena  = 2 * abi.MaxMessage
)

// instance is one instance of the guest. One call at a time.
type instance struct {
	mod    api.Module
	memory api.Memory
	hooks  map[string]api.Function
	size   uint32 // of the arena
	at     uint32 // where the arena starts
	// snapshot and globals are the state as it was after the arena was taken.
	snapshot []byte
	globals  []uint64
	scratch  []uint64 // for restore
	stack    [4]uint64
	log      *logging
}

// logging is what a call has logged so far.
type logging struct{ lines int }

type logKey struct{}

// gate bounds the lines a second of a policy.
type gate struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	lines int
}

func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); now.Sub(g.since) >= time.Second {
		g.since, g.lines = now, 0
	}
	g.lines++
	return g.lines <= MaxLogRate
}

// log is the import kvferry_v1.log(level, at, length).
func (p *Policy) log(ctx context.Context, m api.Module, stack []uint64) {
	l, _ := ctx.Value(logKey{}).(*logging)
	if p.opt.Log == nil || l == nil || l.lines >= MaxLogLines || !p.gate.pass() {
		return
	}
	l.lines++
	b, ok := m.Memory().Read(uint32(stack[1]), min(uint32(stack[2]), MaxLogLine))
	if !ok {
		return // a guest that points outside its memory has nothing to say
	}
	p.opt.Log(uint32(stack[0]), abi.Reason(string(b)))
}

// state is all that a module can keep in globals; hidden ones too.
func (i *instance) state(into []uint64) []uint64 {
	m, ok := i.mod.(experimental.InternalModule)
	if !ok {
		panic("host: the engine's modules do not show their globals")
	}
	for n := range m.NumGlobal() {
		into = append(into, m.Global(n).Get())
	}
	return into
}

// restore puts the instance back to where every call starts, and reports
// whether it is there: grown memory and changed globals cannot be put back.
func (i *instance) restore() bool {
	i.scratch = i.state(i.scratch[:0])
	return slices.Equal(i.scratch, i.globals) && i.memory.Size() == uint32(len(i.snapshot)) && i.memory.Write(0, i.snapshot)
}

func (p *Policy) instantiate(ctx context.Context, arena uint32) (*instance, error) {
	i := &instance{hooks: map[string]api.Function{}, size: arena, log: &logging{}}
	var err error
	// No start function runs: none was exported under a name that would, and
	// an anonymous instance shares nothing with another.
	i.mod, err = p.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, &Error{What: "instance", Name: p.manifest.Name, Reason: "cannot be made", Err: err}
	}
	fail := func(e *Error) (*instance, error) {
		_ = i.mod.Close(ctx) // the reason is e
		return nil, e
	}
	marker := i.mod.ExportedGlobal(module.Marker) // there: checkMarker saw it
	if _, mutable := marker.(api.MutableGlobal); mutable || marker.Type() != api.ValueTypeI32 {
		return fail(&Error{What: "export", Name: module.Marker, Reason: "want an immutable i32 global"})
	}
	i.memory = i.mod.Memory()
	results, err := i.mod.ExportedFunction(exportArena).Call(ctx, uint64(arena))
	if err != nil {
		return fail(&Error{What: "export", Name: exportArena, Reason: "trapped", Err: err})
	}
	i.at = uint32(results[0])
	if i.at == 0 || i.at%8 != 0 || uint64(i.at)+uint64(arena) > uint64(i.memory.Size()) {
		return fail(&Error{What: "export", Name: exportArena, Reason: fmt.Sprintf("answered %d for %d bytes in a memory of %d: want an offset that is a multiple of 8", i.at, arena, i.memory.Size())})
	}
	for _, h := range p.manifest.Hooks {
		i.hooks[h] = i.mod.ExportedFunction("kvferry_" + h)
	}
	live, _ := i.memory.Read(0, i.memory.Size())
	i.snapshot = bytes.Clone(live)
	i.globals = i.state(nil)
	return i, nil
}

// acquire takes an idle instance with an arena of the given size, or makes one
// once there is room for it. Every acquire is followed by a release.
func (p *Policy) acquire(ctx context.Context, arena uint32) (*instance, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	p.open.Add(1)
	p.mu.Unlock()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		p.open.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	var i, other *instance
	if list := p.idle[arena]; len(list) > 0 {
		i, p.idle[arena] = list[len(list)-1], list[:len(list)-1]
	} else if p.live++; p.live > p.opt.Instances {
		other = p.evict()
	}
	p.mu.Unlock()
	if other != nil {
		_ = other.mod.Close(context.WithoutCancel(ctx)) // idle: it has nothing to lose
	}
	if i != nil {
		return i, nil
	}
	i, err := p.instantiate(ctx, arena)
	if err != nil {
		p.release(ctx, nil, false)
	}
	return i, err
}

// evict takes an idle instance of any size out of the pool; nil where there is
// none. p.mu is held.
func (p *Policy) evict() *instance {
	for size, list := range p.idle {
		if n := len(list); n > 0 {
			p.idle[size] = list[:n-1]
			p.live--
			return list[n-1]
		}
	}
	return nil
}

// release ends a call. A sound instance is kept for the next, unless it cannot
// be put back to where every call starts.
func (p *Policy) release(ctx context.Context, i *instance, sound bool) {
	defer p.open.Done()
	keep := i != nil && sound && p.reuse && i.restore()
	p.mu.Lock()
	if keep {
		p.idle[i.size] = append(p.idle[i.size], i)
	} else {
		p.live--
	}
	p.mu.Unlock()
	if i != nil && !keep {
		_ = i.mod.Close(context.WithoutCancel(ctx)) // it has nothing to lose
	}
	<-p.slots
}

// call runs a hook on an encoded message and returns the answer's bytes.
//
// Errors: *Fault, *Refused, ErrClosed; *Error where no instance can be made.
func (p *Policy) call(ctx context.Context, hook string, in []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // a call that began cannot be stopped
	}
	if len(in) > abi.MaxMessage {
		return nil, &Error{What: "input", Name: hook, Reason: fmt.Sprintf("%d bytes, at most %d go into a guest", len(in), abi.MaxMessage), Operator: true}
	}
	used := (uint32(len(in)) + 7) &^ 7 // the answer is 8-aligned
	arena := uint32(leastArena)
	for int64(arena) < 2*int64(len(in)) {
		arena *= 2
	}
	for {
		out, need, err := p.once(ctx, hook, in, arena)
		if err != nil || need == 0 {
			return out, err
		}
		if need > abi.MaxMessage || arena >= mostArena {
			return nil, &Fault{p.manifest.Name, hook, fmt.Sprintf("wants %d bytes for its answer, at most %d are read", need, abi.MaxMessage), nil}
		}
		if need <= arena-used {
			return nil, &Fault{p.manifest.Name, hook, fmt.Sprintf("asks for %d bytes, of which it had %d", need, arena-used), nil}
		}
		for arena < mostArena && arena-used < need {
			arena *= 2
		}
	}
}

// once runs a hook in an arena of the given size. need is not 0 where that was
// too small.
func (p *Policy) once(ctx context.Context, hook string, in []byte, arena uint32) (out []byte, need uint32, err error) {
	i, err := p.acquire(ctx, arena)
	if err != nil {
		return nil, 0, err
	}
	sound := false
	defer func() { p.release(ctx, i, sound) }()
	f := i.hooks[hook]
	if f == nil {
		sound = true
		return nil, 0, &Error{What: "hook", Name: hook, Reason: "policy " + p.manifest.Name + " does not have it"}
	}
	p.calls.Add(1)
	i.memory.Write(i.at, in)
	from := (i.at + uint32(len(in)) + 7) &^ 7
	room := i.at + arena - from
	i.stack = [4]uint64{uint64(i.at), uint64(len(in)), uint64(from), uint64(room)}
	i.log.lines = 0
	if err := f.CallWithStack(context.WithValue(ctx, logKey{}, i.log), i.stack[:]); err != nil {
		return nil, 0, &Fault{p.manifest.Name, hook, trapped, err}
	}
	sound = true
	status, low := uint32(i.stack[0]>>32), uint32(i.stack[0])
	switch status {
	case abi.StatusAgain:
		if low == 0 {
			return nil, 0, &Fault{p.manifest.Name, hook, "wants more room and does not say how much", nil}
		}
		return nil, low, nil
	case abi.StatusOk, abi.StatusDeclined, abi.StatusUnsupported, abi.StatusBadInput:
	default:
		return nil, 0, &Fault{p.manifest.Name, hook, fmt.Sprintf("status %d is none of kvferry/1", status), nil}
	}
	if low > room {
		return nil, 0, &Fault{p.manifest.Name, hook, fmt.Sprintf("says that it wrote %d bytes where it had room for %d", low, room), nil}
	}
	view, _ := i.memory.Read(from, low)
	out = bytes.Clone(view) // the memory is the next call's
	if status != abi.StatusOk {
		return nil, 0, &Refused{p.manifest.Name, hook, status, refusal(hook, out)}
	}
	return out, 0, nil
}

// refusal is the reason in an answer that says no, where there is one. A no
// stays a no when its reason cannot be read, and says that.
func refusal(hook string, out []byte) string {
	if len(out) == 0 {
		return ""
	}
	var reason string
	var err error
	switch hook {
	case "select_layout":
		var a *abi.SelectLayoutOut
		if a, err = abi.DecodeSelectLayoutOut(out); err == nil {
			reason = a.Reason
		}
	case "route":
		var a *abi.RouteOut
		if a, err = abi.DecodeRouteOut(out); err == nil {
			reason = a.Reason
		}
	default:
		var a *abi.RemapOut
		if a, err = abi.DecodeRemapOut(out); err == nil {
			reason = a.Reason
		}
	}
	if err != nil {
		reason = "(its reason cannot be read: " + err.Error() + ")"
	}
	return abi.Reason(reason)
}

// SelectLayout asks which of the candidates an engine should use. The index is
// one of the question's.
//
// Errors: *Refused, *Fault, *Error, ErrClosed.
func (p *Policy) SelectLayout(ctx context.Context, in []byte, candidates int) (index int, reason string, err error) {
	out, err := p.call(ctx, "select_layout", in)
	if err != nil {
		return 0, "", err
	}
	a, err := abi.DecodeSelectLayoutOut(out)
	if err != nil {
		return 0, "", &Fault{p.manifest.Name, "select_layout", "answered what cannot be read", err}
	}
	if uint64(a.Index) >= uint64(candidates) {
		return 0, "", &Fault{p.manifest.Name, "select_layout", fmt.Sprintf("chose candidate %d of %d", a.Index, candidates), nil}
	}
	return int(a.Index), abi.Reason(a.Reason), nil
}

// Remap asks which source rank feeds which destination rank.
//
// Errors: *Refused, *Fault, *Error, ErrClosed.
func (p *Policy) Remap(ctx context.Context, in []byte) (*abi.RemapOut, error) {
	out, err := p.call(ctx, "remap", in)
	if err != nil {
		return nil, err
	}
	a, err := abi.DecodeRemapOut(out)
	if err != nil {
		return nil, &Fault{p.manifest.Name, "remap", "answered what cannot be read", err}
	}
	if n := len(a.Alternatives); n == 0 || n > abi.MaxAlternatives {
		return nil, &Fault{p.manifest.Name, "remap", fmt.Sprintf("answered %d alternatives, want 1 to %d", n, abi.MaxAlternatives), nil}
	}
	a.Reason = abi.Reason(a.Reason)
	return a, nil
}
