package host

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/wasm/meter"
)

// Fuel is what a guest may use, in the meter's units: some nanoseconds each at
// most, half a nanosecond most often. It bounds how long a call lasts. How long a
// garbage collection can be held up is bounded by the slices of it after which
// guests pause (meter.DefaultSlice). A zero field is the default.
type Fuel struct {
	Start        uint64 // _initialize and the arena, once an instance
	SelectLayout uint64 // of a call of the hook, as the next two
	Remap        uint64
	Route        uint64
}

// Defaults.
const (
	DefaultFuel   = 4_000_000 // of a call: a quarter of a millisecond of what compilers make, two milliseconds at worst
	DefaultStart  = 20_000_000
	DefaultMemory = 16 << 20 // bytes of linear memory
)

// FuelOf is what a call of a hook may use.
func (o Options) FuelOf(hook string) uint64 {
	var n uint64
	switch hook {
	case "select_layout":
		n = o.Fuel.SelectLayout
	case "remap":
		n = o.Fuel.Remap
	case "route":
		n = o.Fuel.Route
	}
	if n == 0 {
		n = DefaultFuel
	}
	return min(n, meter.Most)
}

func (o Options) startFuel() uint64 {
	if o.Fuel.Start == 0 {
		return DefaultStart
	}
	return min(o.Fuel.Start, meter.Most)
}

// Call is one call of a guest's hook, as Options.Observe is told of it.
type Call struct {
	Policy   geometry.Digest
	Hook     string
	In, Out  []byte // the question and the answer; valid during the callback only
	Status   uint32 // that the hook returned; without meaning where Err is a *Fault
	Fuel     uint64 // used
	Duration time.Duration
	Err      error // *Fault or *Refused; nil: an answer, or that it wants more room
}

// tank is the fuel of an instance.
type tank struct {
	left, rest interface {
		Get() uint64
		Set(uint64)
	}
	full uint64
}

func (t *tank) fill(units uint64) {
	t.full = units
	fuel, rest := meter.Split(int64(units), meter.DefaultSlice)
	t.left.Set(uint64(fuel))
	t.rest.Set(uint64(rest))
}

// empty reports whether more was used than there was. A guest may come to its
// end so, since not every charge stops it.
func (t *tank) empty() bool { return int64(t.left.Get()+t.rest.Get()) < 0 }

// used is what was used since fill. A trap for depth leaves no count behind.
func (t *tank) used() uint64 {
	left := t.left.Get() + t.rest.Get()
	switch meter.Spent(int64(left)) {
	case meter.ByDepth:
		return 0
	case meter.ByFuel:
		return t.full
	}
	return t.full - min(left, t.full)
}

// trap says why a call trapped.
//
// functions is how many the module has: those that the meter adds stand behind
// them.
func (t *tank) trap(policy, hook string, functions int, err error) *Fault {
	f := &Fault{Policy: policy, Hook: hook, Cause: meter.Spent(int64(t.left.Get() + t.rest.Get())), Fuel: t.used(), Limit: t.full, Err: err}
	switch f.Cause {
	case meter.ByFuel:
		f.Reason = fmt.Sprintf("used up its fuel of %d", t.full)
		f.Err = nil // the engine knows it as an unreachable instruction, which explains nothing
	case meter.ByDepth:
		f.Reason = fmt.Sprintf("its calls went deeper than %d frames", meter.Frames)
		f.Err = nil
	default:
		f.Reason, f.Trapped = trapped, trappedIn(err, functions)
	}
	return f
}

const trapped = "trapped"

// frame is a line of the engine's stack that is a function of the guest, which
// has no names to the engine (module.Unnamed) and so is shown by its index.
var frame = regexp.MustCompile(`(?m)^\t\.\$(\d+)\(`)

// trappedIn is the innermost function of the guest's own on the stack of a trap.
func trappedIn(err error, functions int) *int {
	if err == nil {
		return nil
	}
	for _, m := range frame.FindAllStringSubmatch(err.Error(), -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n < functions {
			return &n
		}
	}
	return nil
}
