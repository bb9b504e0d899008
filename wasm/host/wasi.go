package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
)

// A Go guest needs ten functions of WASI preview 1. They are here, and say the
// same in every call: no arguments, no environment, zeros for random bytes, a
// clock that begins at the same instant and goes on by a microsecond a reading
// and by what the guest sleeps. What it writes to standard output and error goes
// to the log, within its caps.
const wasiModule = "wasi_snapshot_preview1"

// Numbers of WASI.
const (
	wasiOK    = 0
	wasiBadF  = 8
	wasiFault = 21
	wasiInval = 28

	clockEvent   = 0 // type of a subscription and of its event
	absoluteTime = 1 // flag of a subscription

	maxSubscriptions = 64
	maxVectors       = 64
)

// epoch is when every call begins, in nanoseconds since 1970.
const epoch = 1_600_000_000_000_000_000

// exited is a guest that ended itself.
type exited struct{ code uint32 }

func (e *exited) Error() string { return fmt.Sprintf("the guest ended itself with status %d", e.code) }

// running is what belongs to a call, or to the making of an instance.
type running struct {
	lines int    // logged
	clock uint64 // passed since epoch, ns
	text  []byte // written, and no whole line yet
	level uint32 // of text
}

func (r *running) reset() { *r = running{text: r.text[:0]} }

type runningKey struct{}

func runningOf(ctx context.Context) *running {
	r, _ := ctx.Value(runningKey{}).(*running)
	if r == nil {
		r = &running{} // an engine that calls on its own account: nothing is kept
	}
	return r
}

// wasiFunction is one of the ten.
type wasiFunction struct {
	name    string
	params  string // i: i32, l: i64
	results string
	f       func(p *Policy, r *running, m api.Memory, stack []uint64) uint32
}

func wasiFunctions() []wasiFunction {
	return []wasiFunction{
		{"args_get", "ii", "i", func(*Policy, *running, api.Memory, []uint64) uint32 { return wasiOK }},
		{"args_sizes_get", "ii", "i", none},
		{"clock_time_get", "ili", "i", clock},
		{"environ_get", "ii", "i", func(*Policy, *running, api.Memory, []uint64) uint32 { return wasiOK }},
		{"environ_sizes_get", "ii", "i", none},
		{"fd_write", "iiii", "i", write},
		{"poll_oneoff", "iiii", "i", poll},
		{"proc_exit", "i", "", exit},
		{"random_get", "ii", "i", random},
		{"sched_yield", "", "i", func(*Policy, *running, api.Memory, []uint64) uint32 { return wasiOK }},
	}
}

// imports are what a policy may import.
func imports() []meter.Import {
	out := []meter.Import{{Module: importModule, Name: importLog, Extern: meter.Function}}
	for _, f := range wasiFunctions() {
		out = append(out, meter.Import{Module: wasiModule, Name: f.name, Extern: meter.Function})
	}
	return out
}

// signature is the type of an import, in the letters of wasiFunction.
func signature(module, name string) (params, results string) {
	if module == importModule {
		return "iii", ""
	}
	for _, f := range wasiFunctions() {
		if f.name == name {
			return f.params, f.results
		}
	}
	return "", ""
}

// letters are value types as wasiFunction has them.
func letters(s string) []api.ValueType {
	out := []api.ValueType{}
	for _, c := range s {
		out = append(out, map[rune]api.ValueType{'i': api.ValueTypeI32, 'l': api.ValueTypeI64}[c])
	}
	return out
}

// wasi makes the functions for a module that imports any of them.
func (p *Policy) wasi(ctx context.Context, builder wazero.HostModuleBuilder) error {
	for _, f := range wasiFunctions() {
		call := f.f
		returns := f.results != ""
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
			if v := call(p, runningOf(ctx), m.Memory(), stack); returns {
				stack[0] = uint64(v)
			}
		}), letters(f.params), letters(f.results)).Export(f.name)
	}
	_, err := builder.Instantiate(ctx)
	return err
}

// none writes that there are no arguments, or no variables: a count and a size.
func none(_ *Policy, _ *running, m api.Memory, stack []uint64) uint32 {
	if !m.WriteUint32Le(uint32(stack[0]), 0) || !m.WriteUint32Le(uint32(stack[1]), 0) {
		return wasiFault
	}
	return wasiOK
}

func clock(_ *Policy, r *running, m api.Memory, stack []uint64) uint32 {
	r.clock += 1000
	if !m.WriteUint64Le(uint32(stack[2]), epoch+r.clock) {
		return wasiFault
	}
	return wasiOK
}

func random(_ *Policy, _ *running, m api.Memory, stack []uint64) uint32 {
	b, ok := m.Read(uint32(stack[0]), uint32(stack[1]))
	if !ok {
		return wasiFault
	}
	clear(b)
	return wasiOK
}

func exit(_ *Policy, _ *running, _ api.Memory, stack []uint64) uint32 {
	panic(&exited{uint32(stack[0])}) // the engine makes an error of it: the way out of a guest
}

// write takes what a guest writes to standard output or error, and logs whole
// lines. All of it counts as written, also what the caps drop.
func write(p *Policy, r *running, m api.Memory, stack []uint64) uint32 {
	fd, at, n := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	if fd != 1 && fd != 2 {
		return wasiBadF
	}
	if n > maxVectors {
		return wasiInval
	}
	vectors, ok := m.Read(at, 8*n)
	if !ok {
		return wasiFault
	}
	written := uint32(0)
	for v := range slices.Chunk(vectors, 8) {
		b, ok := m.Read(binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:]))
		if !ok {
			return wasiFault
		}
		if fd != r.level {
			p.flush(r)
			r.level = fd
		}
		written += uint32(len(b))
		for len(b) > 0 {
			line, rest, whole := bytes.Cut(b, []byte{'\n'})
			r.text = append(r.text, line[:min(len(line), MaxLogLine-len(r.text))]...)
			if whole {
				p.flush(r)
			}
			b = rest
		}
	}
	if !m.WriteUint32Le(uint32(stack[3]), written) {
		return wasiFault
	}
	return wasiOK
}

// flush logs what was written and is no whole line.
func (p *Policy) flush(r *running) {
	if len(r.text) > 0 {
		p.say(r, r.level, r.text)
		r.text = r.text[:0]
	}
}

// poll says that every clock that is waited for has come, at once.
func poll(_ *Policy, r *running, m api.Memory, stack []uint64) uint32 {
	in, out, n := uint32(stack[0]), uint32(stack[1]), uint32(stack[2])
	if n == 0 || n > maxSubscriptions {
		return wasiInval
	}
	const subscription, event = 48, 32
	questions, ok := m.Read(in, n*subscription)
	if !ok {
		return wasiFault
	}
	asked := bytes.Clone(questions) // the answers may lie over them
	latest := r.clock
	for i := range n {
		q := asked[i*subscription:]
		var e [event]byte
		copy(e[:8], q[:8]) // the guest's own mark
		if e[10] = q[8]; q[8] != clockEvent {
			binary.LittleEndian.PutUint16(e[8:], wasiBadF)
		} else {
			until := binary.LittleEndian.Uint64(q[24:])
			if binary.LittleEndian.Uint16(q[40:])&absoluteTime != 0 {
				until -= min(until, epoch)
			} else {
				until += r.clock
			}
			latest = max(latest, min(until, 1<<62))
		}
		if !m.Write(out+i*event, e[:]) {
			return wasiFault
		}
	}
	r.clock = latest
	if !m.WriteUint32Le(uint32(stack[3]), n) {
		return wasiFault
	}
	return wasiOK
}
