package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
	"github.com/kvferry/kvferry/wasm/overhead"
	"github.com/kvferry/kvferry/wasm/sdk"
	"github.com/kvferry/kvferry/wasm/sdk/tool"
)

func benchPolicyCommand(a *app) *cobra.Command {
	rounds, swaps := 9, 300
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "fuel, calls and loads of policies in four languages, hot swaps, and what a long call does to collections",
		Long: "policy measures what it costs that policies are guests: metering against the\n" +
			"same code unmetered, a call against native code and a copy of the guest's memory,\n" +
			"a load from the cache against the first, calls while policies take each other's\n" +
			"place, and garbage collections while a guest runs. The Go guest is built by the\n" +
			"Go compiler that is found, and left out where there is none.",
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 || rounds > 1000 {
				return usagef("--rounds %d: want 1 to 1000", rounds)
			}
			if swaps < 1 || swaps > 100_000 {
				return usagef("--swaps %d: want 1 to 100000", swaps)
			}
			return a.benchPolicy(cmd.Context(), rounds, swaps)
		},
	}
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "`N` rounds, in each of which everything is measured in turn")
	cmd.Flags().IntVar(&swaps, "swaps", swaps, "`N` policies that take each other's place")
	return cmd
}

// speaker is the policy heads in a language, sealed.
type speaker struct {
	name string // "C", "Rust", ...
	wasm []byte
}

// policyBench is what the parts of the bench share.
type policyBench struct {
	*app
	ctx      context.Context
	rounds   int
	pair     *plan.Pair // of the reference case
	in       []byte     // the question about it
	speakers []speaker  // C first
	box      *sandbox.Box
	rows     []row
	notes    []string
	closing  []func() error // of the part that runs
}

func (a *app) benchPolicy(ctx context.Context, rounds, swaps int) (err error) {
	b := &policyBench{app: a, ctx: ctx, rounds: rounds}
	folder, err := os.MkdirTemp("", "kvferry-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	f, err := pairfile.Parse("reference", reference(80, 512, 1024, "hnd", "hnd"))
	if err != nil {
		return err
	}
	if b.pair, _, err = f.Pair(nil); err != nil {
		return err
	}
	b.in = policy.RemapInput(b.pair).Encode()
	if err := b.gather(filepath.Join(folder, "go")); err != nil {
		return err
	}
	if b.box, err = sandbox.OpenIn(filepath.Join(folder, "compiled")); err != nil {
		return err
	}
	defer b.box.Close()
	for _, part := range []func() error{
		b.metering, b.calls, func() error { return b.loads(folder) }, func() error { return b.swaps(swaps) }, b.collections,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return a.report(&report{Bench: "bench policy", Rounds: rounds, Rows: b.rows, Notes: b.notes, Verified: true,
		Case: fmt.Sprintf("heads, remap of the 70B pair, TP 2 -> 4, a question of %d bytes", len(b.in))})
}

// gather brings the policy heads together in all languages.
func (b *policyBench) gather(work string) error {
	c, ok := policies.Get(defaultPolicy)
	if !ok {
		return fmt.Errorf("policy %s is not built in", defaultPolicy)
	}
	b.speakers = []speaker{{"C", c}}
	manifest, err := module.ReadManifest(c)
	if err != nil {
		return err
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	seal := func(name string, wasm []byte) error {
		sealed, err := module.Seal(wasm, text, abi.Minor)
		if err != nil {
			return fmt.Errorf("seal the %s guest: %w", name, err)
		}
		b.speakers = append(b.speakers, speaker{name, sealed})
		return nil
	}
	for _, l := range []struct{ name, lang string }{{"Rust", "rust"}, {"AssemblyScript", "as"}} {
		wasm, err := sdk.Example(l.lang)
		if err != nil {
			return err
		}
		if err := seal(l.name, wasm); err != nil {
			return err
		}
	}
	wasm, err := b.buildGo(work)
	var missing *tool.Missing
	if errors.As(err, &missing) {
		b.notes = append(b.notes, "the Go guest was not measured: "+missing.Error())
		return nil
	}
	if err != nil {
		return err
	}
	return seal("Go", wasm)
}

// buildGo builds the Go guest.
func (b *policyBench) buildGo(work string) ([]byte, error) {
	compiler, err := tool.Find(b.ctx, "go")
	if err != nil {
		return nil, err
	}
	b.step("building the Go guest")
	files, script := sdk.GoExample()
	for _, f := range files {
		path := filepath.Join(work, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return nil, err
		}
	}
	folder := filepath.Join(work, filepath.FromSlash(script))
	cmd := exec.CommandContext(b.ctx, "sh", "build.sh")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GO="+compiler.Path, "GOFLAGS=-mod=mod", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the Go guest: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.ReadFile(filepath.Join(folder, "heads.wasm"))
}

// sampled is something that measures itself.
type sampled struct {
	name   string
	repeat int // samples in a round; 0: 1
	run    func() (time.Duration, error)
}

// inTurns runs everything once to warm up, and then, round after round, each in
// its turn.
func (b *policyBench) inTurns(rounds int, all ...sampled) ([]timing, error) {
	samples := make([][]float64, len(all))
	for round := range rounds + 1 {
		for i, s := range all {
			b.step("round %d of %d: %s", round, rounds, s.name)
			runtime.GC() // the garbage of one is not the next one's pause
			for range max(s.repeat, 1) {
				if err := b.ctx.Err(); err != nil {
					return nil, fmt.Errorf("bench stopped: %w", err)
				}
				took, err := s.run()
				if err != nil {
					return nil, fmt.Errorf("bench %s: %w", s.name, err)
				}
				if round > 0 {
					samples[i] = append(samples[i], took.Seconds())
				}
			}
		}
	}
	out := make([]timing, len(all))
	for i, s := range samples {
		slices.Sort(s)
		out[i] = timing{s[len(s)/2], s[0]}
	}
	return out, nil
}

// clocked measures all that f does.
func clocked(f func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		began := time.Now()
		err := f()
		return time.Since(began), err
	}
}

// metering compares guests as they are with themselves metered: the policy heads,
// and tight loops.
func (b *policyBench) metering() (err error) {
	const calls, rounds = 64, 20_000
	defer func() { err = errors.Join(err, b.closeAll()) }()
	var all []sampled
	open := func(name string, wasm []byte, call func(g *overhead.Guest) (overhead.Took, error)) error {
		for _, metered := range []bool{false, true} {
			g, err := overhead.Open(b.ctx, wasm, metered, false)
			if err != nil {
				return err
			}
			b.closing = append(b.closing, func() error { return g.Close(b.ctx) })
			all = append(all, sampled{name, calls, func() (time.Duration, error) { took, err := call(g); return took.Time, err }})
		}
		return nil
	}
	var first []byte
	err = open("heads", b.speakers[0].wasm, func(g *overhead.Guest) (overhead.Took, error) {
		_, answer, took, err := g.Ask(b.ctx, "remap", b.in)
		if first == nil {
			first = bytes.Clone(answer)
		}
		if err == nil && !bytes.Equal(first, answer) {
			err = errors.New("the metered guest answers otherwise")
		}
		return took, err
	})
	if err != nil {
		return err
	}
	for _, l := range overhead.Loops() {
		err := open("loop that "+l.Does, l.Wasm, func(g *overhead.Guest) (overhead.Took, error) {
			_, took, err := g.Run(b.ctx, "run", rounds)
			return took, err
		})
		if err != nil {
			return err
		}
	}
	// What reading the clock takes is no part of a short call.
	all = append(all, sampled{"clock", calls, clocked(func() error { return nil })})
	t, err := b.inTurns(b.rounds, all...)
	if err != nil {
		return err
	}
	clock := t[len(t)-1].median
	for i := 0; i+1 < len(t); i += 2 {
		target, floor := 1.15, 1.25
		if i == 0 {
			target, floor = 1.10, 1.20
		}
		ratio := (t[i+1].median - clock) / (t[i].median - clock)
		b.rows = append(b.rows, timed(all[i].name+", metered", t[i+1]).against(judge("the same as it is", ratio, "most", target, floor)))
	}
	return nil
}

// calls compares a call of each guest, with all that it takes to start from the
// same state, with native code and a copy of the guest's memory.
func (b *policyBench) calls() (err error) {
	native, err := b.verify()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.closeAll()) }()
	all := []sampled{{"native code", 64, clocked(func() error { _, err := nativeHeads(b.pair); return err })}}
	var fuel uint64
	var want *abi.RemapOut
	used, sizes := make([]uint64, len(b.speakers)), make([]uint64, len(b.speakers))
	for i, s := range b.speakers {
		b.step("loading the %s guest", s.name)
		opt := b.box.Limits()
		opt.Observe = func(c host.Call) { fuel = c.Fuel }
		p, err := host.Load(b.ctx, s.wasm, opt)
		if err != nil {
			return fmt.Errorf("load the %s guest: %w", s.name, err)
		}
		b.closing = append(b.closing, func() error { return p.Close(b.ctx) })
		out, err := p.Remap(b.ctx, b.in)
		if err != nil {
			return err
		}
		if want == nil {
			want = out
		} else if !reflect.DeepEqual(out, want) {
			return fmt.Errorf("bench policy: the %s guest answers otherwise than the C guest", s.name)
		}
		used[i], sizes[i] = fuel, p.Memory()
		from, to := make([]byte, sizes[i]), make([]byte, sizes[i])
		all = append(all,
			sampled{"native code and a copy", 64, clocked(func() error {
				as, err := nativeHeads(b.pair)
				if err == nil && len(as) != native {
					err = fmt.Errorf("%d assignments, want %d", len(as), native)
				}
				copy(to, from)
				return err
			})},
			sampled{s.name + " guest", 64, clocked(func() error { _, err := p.Remap(b.ctx, b.in); return err })})
	}
	t, err := b.inTurns(b.rounds, all...)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, timed("native code", t[0]))
	for i, s := range b.speakers {
		target, floor := 3.0, 6.0
		if s.name == "Go" {
			target, floor = 12, 24
		}
		twin, call := t[1+2*i], t[2+2*i]
		b.rows = append(b.rows, timed(fmt.Sprintf("call, %s guest, %d fuel", s.name, used[i]), call).
			against(judge(fmt.Sprintf("native code and a copy of %d KiB", sizes[i]>>10), call.median/twin.median, "most", target, floor)))
	}
	return nil
}

// verify checks that the native code's answer is the policy's, and that it is
// proved, and returns how many assignments it has.
func (b *policyBench) verify() (int, error) {
	p, err := policy.Open(b.ctx, b.speakers[0].wasm, b.box.Policy())
	if err != nil {
		return 0, err
	}
	answer, err := p.Remap(b.ctx, b.pair)
	if err := errors.Join(err, p.Close()); err != nil {
		return 0, err
	}
	native, err := nativeHeads(b.pair)
	if err != nil {
		return 0, err
	}
	if !reflect.DeepEqual(native, answer.Alternatives[0]) {
		return 0, fmt.Errorf("bench policy: the native code answers otherwise than the policy: %v, %v", native, answer.Alternatives[0])
	}
	pl, err := build.Build(b.pair, native, nil, plan.DefaultBudget())
	if err != nil {
		return 0, err
	}
	_, err = proof.Check(b.pair, pl)
	return len(native), err
}

// closeAll closes what a part of the bench has opened.
func (b *policyBench) closeAll() error {
	var errs []error
	for _, f := range b.closing {
		errs = append(errs, f())
	}
	b.closing = nil
	return errors.Join(errs...)
}
