package host

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/meter"
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
	linear *linear // of memory
	hooks  map[string]api.Function
	size   uint32 // of the arena
	at     uint32 // where the arena starts
	tank   tank
	// snapshot and globals are the state as it was after the arena was taken: the
	// memory, of size bytes then, without the zeros at its end, and every global of
	// the module.
	snapshot []byte
	began    uint32
	globals  []global
	stack    [4]uint64
	running  *running
}

// global is a global of the module and what it holds where a call starts.
type global struct {
	is api.Global
	at uint64
}

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
	b, ok := m.Memory().Read(uint32(stack[1]), min(uint32(stack[2]), MaxLogLine))
	if !ok {
		return // a guest that points outside its memory has nothing to say
	}
	p.say(runningOf(ctx), uint32(stack[0]), b)
}

// say logs a line within the caps.
func (p *Policy) say(r *running, level uint32, line []byte) {
	if p.opt.Log == nil || r.lines >= MaxLogLines || !p.gate.pass() {
		return
	}
	r.lines++
	p.opt.Log(level, abi.Reason(string(line)))
}

// look notes what the module's globals hold, but for the two of the meter, which
// are the last.
func (i *instance) look() {
	m, ok := i.mod.(experimental.InternalModule)
	if !ok {
		panic("host: the engine's modules do not show their globals")
	}
	for n := range m.NumGlobal() - meter.Globals {
		g := global{is: m.Global(n)}
		if e, ok := i.mod.ExportedGlobal(meter.GlobalName(n)).(api.MutableGlobal); ok {
			g.is = e
		}
		g.at = g.is.Get()
		i.globals = append(i.globals, g)
	}
}

// restore puts the instance back to where every call starts, and reports
// whether it is there: memory that grew cannot be taken away again.
func (i *instance) restore() bool {
	for _, g := range i.globals {
		if g.is.Get() == g.at {
			continue
		}
		m, ok := g.is.(api.MutableGlobal)
		if !ok {
			return false
		}
		m.Set(g.at)
	}
	if i.memory.Size() != i.began {
		return false
	}
	live, _ := i.memory.Read(0, i.began)
	put(live, i.snapshot)
	wipe(live[len(i.snapshot):])
	return true
}

// instantiate makes an instance with an arena of the given size, as every call
// finds it.
//
// Errors: *Error.
func (p *Policy) instantiate(ctx context.Context, arena uint32) (i *instance, err error) {
	name := p.manifest.Name
	i = &instance{hooks: map[string]api.Function{}, size: arena, running: &running{}, linear: &linear{store: p.store}}
	defer func() {
		if err != nil {
			if i.mod != nil {
				_ = i.mod.Close(context.WithoutCancel(ctx)) // the reason is err
			}
			i.forget()
			i.linear.Free()
			i = nil
		}
	}()
	defer recovered(name, &err)
	if i.linear.whole, err = p.store.take(); err != nil {
		e := refuse("instance", name, "no memory for it").because(err)
		e.Operator = true
		return i, e
	}
	ctx = context.WithValue(experimental.WithMemoryAllocator(ctx, i.linear), runningKey{}, i.running)
	// No start function runs: none was exported under a name that would, and
	// an anonymous instance shares nothing with another.
	if i.mod, err = p.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions()); err != nil {
		return i, refuse("instance", name, "cannot be made").because(err).whileMade().fixed("keep data and elements within the memory and the tables that the module declares")
	}
	marker := i.mod.ExportedGlobal(module.Marker) // there: checkMarker saw it
	if _, mutable := marker.(api.MutableGlobal); mutable || marker.Type() != api.ValueTypeI32 {
		return i, exported(module.Marker, "want an immutable i32 global").fixed("seal the module with kvferry policy build")
	}
	i.memory = i.mod.Memory()
	i.tank.left = i.mod.ExportedGlobal(meter.Fuel).(api.MutableGlobal) // the meter put both there
	i.tank.rest = i.mod.ExportedGlobal(meter.Rest).(api.MutableGlobal)
	i.tank.fill(p.opt.startFuel())
	begin := func(name string, params ...uint64) (uint64, error) {
		f := i.mod.ExportedFunction(name)
		if f == nil {
			return 0, nil
		}
		results, err := f.Call(ctx, params...)
		p.flush(i.running)
		if err != nil || i.tank.empty() {
			fault := i.tank.trap(p.manifest.Name, name, p.functions, err)
			e := exported(name, "%s", fault.Reason).because(fault.Err).whileMade()
			switch {
			case fault.Cause == meter.ByFuel:
				e.Got, e.Limit = fault.Fuel, fault.Limit
			case fault.Cause == meter.ByDepth:
				e.Got, e.Limit = meter.Frames+1, meter.Frames
			case fault.Trapped != nil:
				e.Func = *fault.Trapped
			}
			return 0, e.fixed("do less, and nothing that can fail, before the first question")
		}
		if len(results) == 0 {
			return 0, nil
		}
		return results[0], nil
	}
	if _, err := begin(exportBegin); err != nil {
		return i, err
	}
	at, err := begin(exportArena, uint64(arena))
	if err != nil {
		return i, err
	}
	i.at, i.began = uint32(at), i.memory.Size()
	if i.at == 0 || i.at%8 != 0 || uint64(i.at)+uint64(arena) > uint64(i.began) {
		return i, exported(exportArena, "answered %d for %d bytes in a memory of %d: want an offset that is a multiple of 8", i.at, arena, i.began).whileMade().fixed("answer where so many bytes of the module's own begin, and grow the memory first, as the SDKs do")
	}
	for _, h := range p.manifest.Hooks {
		i.hooks[h] = i.mod.ExportedFunction("kvferry_" + h)
	}
	i.look()
	if p.reuse {
		live, _ := i.memory.Read(0, i.began)
		solid := bytes.TrimRight(live, "\x00")
		if len(solid) > 0 {
			if i.snapshot, err = mapped(uint64(len(solid))); err != nil {
				e := refuse("instance", name, "no memory for its snapshot").because(err)
				e.Operator = true
				return i, e
			}
			put(i.snapshot, solid)
		}
	}
	p.grew(i)
	return i, nil
}

// grew notes how large the memory of an instance is.
func (p *Policy) grew(i *instance) {
	for n := uint64(i.memory.Size()); ; {
		was := p.memory.Load()
		if n <= was || p.memory.CompareAndSwap(was, n) {
			return
		}
	}
}

// forget gives the snapshot back. The instance does not run again.
func (i *instance) forget() {
	if i.snapshot != nil {
		_ = unix.Munmap(i.snapshot) // ours alone, and whole
		i.snapshot = nil
	}
}

// end closes an instance: it has nothing to lose.
func (i *instance) end(ctx context.Context) {
	_ = i.mod.Close(context.WithoutCancel(ctx))
	i.forget()
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
		other.end(ctx)
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
	if i != nil {
		p.grew(i)
	}
	keep := i != nil && sound && p.reuse && i.restore()
	p.mu.Lock()
	if keep {
		p.idle[i.size] = append(p.idle[i.size], i)
	} else {
		p.live--
	}
	p.mu.Unlock()
	if i != nil && !keep {
		i.end(ctx)
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
		e := refuse("input", hook, "%d bytes, at most %d go into a guest", len(in), abi.MaxMessage)
		e.Got, e.Limit, e.Operator = uint64(len(in)), abi.MaxMessage, true
		return nil, e
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
			return nil, p.fault(hook, nil, "wants %d bytes for its answer, at most %d are read", need, abi.MaxMessage).over(need, abi.MaxMessage)
		}
		if need <= arena-used {
			return nil, p.fault(hook, nil, "asks for %d bytes, of which it had %d", need, arena-used)
		}
		for arena < mostArena && arena-used < need {
			arena *= 2
		}
	}
}

// fault is what a guest did wrong in a hook without trapping.
func (p *Policy) fault(hook string, err error, reason string, args ...any) *Fault {
	return &Fault{Policy: p.manifest.Name, Hook: hook, Reason: fmt.Sprintf(reason, args...), Err: err}
}

// over adds how many it answered or asked for and how many it may.
func (e *Fault) over(got, most uint32) *Fault {
	e.Got, e.Most = uint64(got), uint64(most)
	return e
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
		return nil, 0, refuse("hook", hook, "policy %s does not have it", p.manifest.Name)
	}
	p.calls.Add(1)
	i.memory.Write(i.at, in)
	from := (i.at + uint32(len(in)) + 7) &^ 7
	room := i.at + arena - from
	i.stack = [4]uint64{uint64(i.at), uint64(len(in)), uint64(from), uint64(room)}
	i.running.reset()
	i.tank.fill(p.opt.FuelOf(hook))
	began := time.Now()
	err = f.CallWithStack(context.WithValue(ctx, runningKey{}, i.running), i.stack[:])
	took := time.Since(began)
	p.flush(i.running)
	status, low := uint32(i.stack[0]>>32), uint32(i.stack[0])
	if err != nil || i.tank.empty() {
		err = i.tank.trap(p.manifest.Name, hook, p.functions, err)
	} else {
		sound = true
		out, need, err = p.result(i, hook, status, low, from, room)
	}
	if p.opt.Observe != nil {
		p.opt.Observe(Call{Policy: p.digest, Hook: hook, In: in, Out: out, Status: status, Fuel: i.tank.used(), Duration: took, Err: err})
	}
	if err != nil {
		out = nil
	}
	return out, need, err
}

// result reads what a hook left: the bytes of its answer, or of its refusal, or
// how much room it needs for one.
//
// Errors: *Fault, *Refused.
func (p *Policy) result(i *instance, hook string, status, low, from, room uint32) (out []byte, need uint32, err error) {
	switch status {
	case abi.StatusAgain:
		if low == 0 {
			return nil, 0, p.fault(hook, nil, "wants more room and does not say how much")
		}
		return nil, low, nil
	case abi.StatusOk, abi.StatusDeclined, abi.StatusUnsupported, abi.StatusBadInput:
	default:
		return nil, 0, p.fault(hook, nil, "status %d is none of kvferry/1", status)
	}
	if low > room {
		return nil, 0, p.fault(hook, nil, "says that it wrote %d bytes where it had room for %d", low, room).over(low, room)
	}
	view, _ := i.memory.Read(from, low)
	out = bytes.Clone(view) // the memory is the next call's
	if status != abi.StatusOk {
		return out, 0, &Refused{p.manifest.Name, hook, status, refusal(hook, out)}
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
		return 0, "", p.fault("select_layout", err, "answered what cannot be read")
	}
	if uint64(a.Index) >= uint64(candidates) {
		return 0, "", p.fault("select_layout", nil, "chose candidate %d of %d", a.Index, candidates)
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
		return nil, p.fault("remap", err, "answered what cannot be read")
	}
	if n := len(a.Alternatives); n == 0 || n > abi.MaxAlternatives {
		f := p.fault("remap", nil, "answered %d alternatives, want 1 to %d", n, abi.MaxAlternatives)
		if n > 0 {
			f.over(uint32(n), abi.MaxAlternatives)
		}
		return nil, f
	}
	a.Reason = abi.Reason(a.Reason)
	return a, nil
}
