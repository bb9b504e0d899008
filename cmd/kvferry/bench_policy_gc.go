package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
	"github.com/kvferry/kvferry/wasm/overhead"
)

// longCall is a guest that takes long over a question.
type longCall struct {
	name     string
	wasm, in []byte
}

// collections measures how long the world stands still for a collection while a
// guest is in the middle of a long call, against the same with the guest idle. A
// guest cannot be interrupted: it pauses by itself, after each slice of its fuel.
func (b *policyBench) collections() error {
	text := string(reference(80, 512, 1024, "hnd", "hnd"))
	f, err := pairfile.Parse("large", []byte(strings.NewReplacer("heads: 8,", "heads: 64,", "{tp: 2}", "{tp: 64}", "{tp: 4}", "{tp: 64}").Replace(text)))
	if err != nil {
		return err
	}
	large, _, err := f.Pair(nil)
	if err != nil {
		return err
	}
	loop, err := b.spinning(false)
	if err != nil {
		return err
	}
	slow, err := b.spinning(true)
	if err != nil {
		return err
	}
	fills, err := sealedSpin(overhead.Fill(11 << 20))
	if err != nil {
		return err
	}
	for _, l := range []longCall{
		{"heads about 64 ranks and 64", b.speakers[0].wasm, policy.RemapInput(large).Encode()},
		{"a loop, until its fuel ends", loop, b.in},
		{"divisions, until its fuel ends", slow, b.in},
		{"a fill of 11 MiB", fills, b.in},
	} {
		if err := b.collecting(l); err != nil {
			return fmt.Errorf("bench collections, %s: %w", l.name, err)
		}
	}
	return nil
}

// spinning is a policy that uses nearly all the fuel of a call.
func (b *policyBench) spinning(slow bool) ([]byte, error) {
	const few = 1000
	var fuel [2]uint64
	for i := range fuel {
		g, err := overhead.Open(b.ctx, overhead.Spin(uint32((i+1)*few), slow), true, false)
		if err != nil {
			return nil, err
		}
		_, _, took, err := g.Ask(b.ctx, "remap", b.in)
		if err := errors.Join(err, g.Close(b.ctx)); err != nil {
			return nil, err
		}
		fuel[i] = took.Fuel
	}
	rounds := few * (host.DefaultFuel - fuel[0]) / (fuel[1] - fuel[0]) // and as many before: a little is left
	return sealedSpin(overhead.Spin(uint32(rounds), slow))
}

func sealedSpin(wasm []byte) ([]byte, error) {
	return module.Seal(wasm, []byte(`{"name": "spin", "version": "1.0.0", "hooks": ["remap"], "abi": {"min": "1.0", "max": "1.0"}}`), abi.Minor)
}

// collecting measures collections beside one guest.
func (b *policyBench) collecting(l longCall) (err error) {
	var fuel, took atomic.Int64
	opt := b.box.Limits()
	opt.Observe = func(c host.Call) { fuel.Store(int64(c.Fuel)); took.Store(int64(c.Duration)) }
	p, err := host.Load(b.ctx, l.wasm, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(b.ctx)) }()
	ask := func() error {
		_, err := p.Remap(b.ctx, l.in)
		var refused *host.Refused
		if errors.As(err, &refused) { // what goes round declines in the end
			return nil
		}
		return err
	}
	// The guest is called over and over by another goroutine while busy is set.
	var busy atomic.Bool
	beside := func(f func() (time.Duration, error)) (took time.Duration, err error) {
		var wait sync.WaitGroup
		var failed error
		busy.Store(true)
		wait.Go(func() {
			for busy.Load() && failed == nil {
				failed = ask()
			}
		})
		time.Sleep(2 * time.Millisecond) // it is under way
		took, err = f()
		busy.Store(false)
		wait.Wait()
		return took, errors.Join(err, failed)
	}
	t, err := b.inTurns(b.rounds,
		sampled{"the guest idle", 16, func() (time.Duration, error) { time.Sleep(2 * time.Millisecond); return standstill() }},
		sampled{"the guest busy", 16, func() (time.Duration, error) { return beside(standstill) }},
	)
	if err != nil {
		return err
	}
	r := timed("standstill for a collection, "+l.name, t[1])
	c := judge("the same with the guest idle", t[1].median/t[0].median, "most", 5, 10)
	r.Name += fmt.Sprintf(" (%d fuel, %s)", fuel.Load(), duration(time.Duration(took.Load()).Seconds()))
	b.rows = append(b.rows, r.against(c))
	return nil
}

// standstill makes a collection and returns how long the world stood still for
// it: from when it was told to stop, twice.
func standstill() (time.Duration, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.NumGC == before.NumGC {
		return 0, errors.New("there was no collection")
	}
	return time.Duration(after.PauseTotalNs-before.PauseTotalNs) / time.Duration(after.NumGC-before.NumGC), nil
}
