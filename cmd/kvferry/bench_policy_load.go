package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/wasm/host"
)

// loads compares loading a guest that lies in the cache with loading it for the
// first time: compiled in a child, as policies are, and in this process.
func (b *policyBench) loads(folder string) error {
	for _, c := range []struct {
		speaker       string
		rounds        int
		target, floor float64
	}{{"AssemblyScript", b.rounds, 0.5, 0.8}, {"Go", min(b.rounds, 3), 0.15, 0.3}} {
		i := slices.IndexFunc(b.speakers, func(s speaker) bool { return s.name == c.speaker })
		if i < 0 {
			continue // a note says so
		}
		wasm := b.speakers[i].wasm
		load := func(opt host.Options) (time.Duration, error) {
			began := time.Now()
			p, err := host.Load(b.ctx, wasm, opt)
			took := time.Since(began)
			if err != nil {
				return 0, err
			}
			return took, p.Close(b.ctx)
		}
		n := 0
		t, err := b.inTurns(c.rounds,
			sampled{c.speaker + " guest, first load", 1, func() (time.Duration, error) {
				n++
				box, err := sandbox.OpenIn(filepath.Join(folder, fmt.Sprintf("%s-%d", c.speaker, n)))
				if err != nil {
					return 0, err
				}
				defer box.Close()
				return load(box.Limits())
			}},
			sampled{c.speaker + " guest, compiled in this process", 1, func() (time.Duration, error) { return load(host.Options{InProcess: true}) }},
			sampled{c.speaker + " guest, from the cache", 1, func() (time.Duration, error) { return load(b.box.Limits()) }},
		)
		if err != nil {
			return err
		}
		size := fmt.Sprintf("%s guest of %d KiB", c.speaker, len(wasm)>>10)
		b.rows = append(b.rows,
			timed("first load, "+size, t[0]),
			timed("load, compiled in this process", t[1]),
			timed("load from the cache, "+size, t[2]).against(
				judge("the first load", t[2].median/t[0].median, "most", c.target, c.floor)))
	}
	return nil
}

// swaps changes which policy decides, again and again, while calls go on: none
// may fail.
func (b *policyBench) swaps(times int) (err error) {
	const workers = 4
	m, err := generation.New(b.ctx, generation.Options{Policy: b.box.Policy()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	swap := func(i int) error {
		// Guests of different bytes, in turn: each is in the cache, and none of
		// them is active or drains when it is let in.
		for {
			id, err := m.Load(b.ctx, generation.Module{Wasm: b.speakers[i%3].wasm, Source: "bench"})
			var change *generation.ChangeError
			if errors.As(err, &change) { // too many drain
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				return err
			}
			return m.Activate(b.ctx, id)
		}
	}
	if err := swap(0); err != nil {
		return err
	}
	var stop atomic.Bool
	var done, failed atomic.Int64
	var first atomic.Value
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			pair := *b.pair
			for n := 0; !stop.Load(); n++ {
				pair.Source.Engine = fmt.Sprintf("prefill-%d-%d", w, n) // a pair that nobody asked about
				answer, err := m.RemapFor(b.ctx, policy.RemapQuestion{Pair: &pair})
				if err == nil && len(answer.Alternatives) == 0 {
					err = errors.New("no alternatives")
				}
				if done.Add(1); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, err.Error())
				}
			}
		})
	}
	var took []time.Duration
	for i := 1; i <= times && err == nil; i++ {
		b.step("swap %d of %d", i, times)
		began := time.Now()
		if err = b.ctx.Err(); err == nil {
			err = swap(i)
		}
		took = append(took, time.Since(began))
	}
	stop.Store(true)
	wait.Wait()
	if err != nil {
		return fmt.Errorf("bench hot swaps: %w", err)
	}
	slices.Sort(took)
	if text, ok := first.Load().(string); ok {
		b.notes = append(b.notes, "the first call that failed: "+text)
	}
	b.rows = append(b.rows,
		timed("hot swap under load: load, check, activate", timing{took[len(took)/2].Seconds(), took[0].Seconds()}),
		row{Name: fmt.Sprintf("%d hot swaps", times), Value: float64(done.Load()), Unit: fmt.Sprintf("calls of %d workers, %d failed", workers, failed.Load()),
			Compared: []compare{judge("one call, failed", float64(failed.Load()), "most", 0, 0)}})
	return nil
}
