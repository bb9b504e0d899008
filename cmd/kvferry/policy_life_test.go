package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/demo"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy/control"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/wasm/abi"
)

// lived is a store and, while one runs, the demo on it.
type lived struct {
	t     *testing.T
	store string
	end   context.CancelFunc
	done  chan struct{}

	// Of the demo that ended last.
	code      int
	out, errs string
}

// start runs a demo on the store until it is ended.
func (l *lived) start(args ...string) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l.end, l.done = cancel, make(chan struct{})
	go func() {
		defer close(l.done)
		var out, errs bytes.Buffer
		l.code = run(ctx, append([]string{"demo", "-o", "json", "--policy-store", l.store, "--model-shape", "mla", "--requests", "2", "--tokens", "4"}, args...), &out, &errs)
		l.out, l.errs = out.String(), errs.String()
	}()
	l.t.Cleanup(func() { l.stop() })
	l.until("a process that was asked something", func(s *control.Answer) bool {
		return s.Live && slices.ContainsFunc(s.Status.Generations, func(g control.Generation) bool { return g.Stage == generation.Active && g.Counters.Calls > 2 })
	})
}

func (l *lived) stop() {
	l.end()
	<-l.done
}

// policy runs a policy command on the store.
func (l *lived) policy(args ...string) (code int, out, errs string) {
	return kvferry(append(append([]string{"policy"}, args...), "--store", l.store)...)
}

// does runs a command that must do, and returns its answer.
func (l *lived) does(args ...string) *control.Answer {
	l.t.Helper()
	code, out, errs := l.policy(append(args, "-o", "json")...)
	if code != 0 || errs != "" {
		l.t.Fatalf("%v: exit status %d, stderr %q, stdout %s", args, code, errs, out)
	}
	v := decode[struct {
		Where string
		control.Answer
	}](l.t, out)
	if v.Where != where(v.Live) {
		l.t.Errorf("%v: where %q, live %v", args, v.Where, v.Live)
	}
	return &v.Answer
}

// until waits for something that policy list shows.
func (l *lived) until(what string, is func(*control.Answer) bool) *control.Answer {
	l.t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		code, out, errs := l.policy("list", "-o", "json")
		if last = out + errs; code != 0 {
			continue // not begun yet
		}
		v := decode[control.Answer](l.t, out)
		if is(&v) {
			return &v
		}
		if l.done != nil {
			select {
			case <-l.done:
				l.t.Fatalf("waited for %s, and the demo ended with %d: %s %s", what, l.code, l.out, l.errs)
			default:
			}
		}
	}
	l.t.Fatalf("waited in vain for %s: %s", what, last)
	return nil
}

// of is a generation of an answer.
func of(a *control.Answer, id uint64) control.Generation {
	for _, g := range a.Status.Generations {
		if g.ID == id {
			return g
		}
	}
	return control.Generation{}
}

// history is the store's.
func (l *lived) history() []generation.Event {
	l.t.Helper()
	code, out, errs := l.policy("history", "-o", "json")
	if code != 0 || errs != "" {
		l.t.Fatalf("history: exit status %d, %s", code, errs)
	}
	return lines[generation.Event](l.t, out)
}

// A policy's whole life beside transfers that go on: no request is lost by a
// change, a policy that does wrong is taken out, and the process that starts
// again stands where the last one stood.
func TestPolicyLife(t *testing.T) {
	if testing.Short() {
		t.Skip("runs demos for a while")
	}
	dir := t.TempDir()
	l := &lived{t: t, store: filepath.Join(dir, "store")}
	module := func(name string, wasm []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, wasm, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	heads, _ := policies.Get("heads")
	newer := module("newer.wasm", fixture.Rename(heads, "heads", "1.0.1"))
	// The first layer of one rank, and nothing else.
	gap := &abi.RemapOut{Alternatives: []abi.Alternative{{Assignments: []abi.Assignment{{Components: 1, LayerTo: 1, HeadTo: 1}}}}}
	bad := module("bad.wasm", fixture.Turning("turns", "1.0.0", gap))
	traps := module("traps.wasm", fixture.Turning("traps", "1.0.0", nil))

	l.start("--for", "10m", "--policy-fallback", "built-in")
	s := l.does("list")
	if len(s.Status.Generations) != 1 || of(s, 1).Name != "heads" || s.Status.Fallback != "built-in" || s.Status.FallbackBy == nil {
		t.Errorf("at the beginning: %+v", s.Status)
	}

	// Loaded, shadow, canary, active.
	if out := l.does("load", "mla-spread"); out.Generation != 2 || out.Stage != generation.Loaded || !out.Live {
		t.Errorf("%+v", out)
	}
	l.does("promote")
	l.until("a difference", func(s *control.Answer) bool {
		return of(s, 2).Stage == generation.Shadow && of(s, 2).Counters.Differed > 0
	})
	if _, out, _ := l.policy("differences"); !strings.Contains(out, "remap, engines prefill and decode: generation 2 ") {
		t.Errorf("differences: %s", out)
	}
	if out := l.does("promote", "--percent", "100", "--by", "pair"); out.Stage != generation.Canary {
		t.Errorf("%+v", out)
	}
	l.until("answers of the canary", func(s *control.Answer) bool {
		return of(s, 2).Percent == 100 && of(s, 2).By == generation.ByPair && of(s, 2).Counters.Answers > 2
	})
	if out := l.does("promote"); out.Stage != generation.Active {
		t.Errorf("%+v", out)
	}
	l.until("the end of heads", func(s *control.Answer) bool { return of(s, 1).Stage == generation.Closed && s.Status.LastGood.ID == 1 })

	// A policy that was let in and does wrong is taken out by itself, whatever it
	// does and wherever it stands.
	var taken uint64
	for _, c := range []struct {
		file, fault string
		put         []string
	}{{bad, "proof", []string{"activate"}}, {traps, "trap", []string{"canary", "--percent", "100"}}} {
		out := l.does(append(c.put, c.file)...)
		taken = out.Generation
		after := l.until("a rollback of "+c.file, func(s *control.Answer) bool { return of(s, taken).Stage == generation.Closed })
		if g := of(after, taken); g.Counters.Faults() < 3 {
			t.Errorf("%+v", g)
		}
		found := false
		for _, e := range l.history() {
			found = found || e.Kind == generation.RolledBack && e.Generation == taken && string(e.Fault) == c.fault && strings.Contains(e.Reason, "faults in")
		}
		if !found {
			t.Errorf("history says nothing of generation %d: %+v", taken, l.history())
		}
	}
	l.until("the good one again", func(s *control.Answer) bool {
		return slices.ContainsFunc(s.Status.Generations, func(g control.Generation) bool { return g.Stage == generation.Active && g.Name == "mla-spread" })
	})
	if code, _, errs := l.policy("rollback"); code != 1 || !strings.Contains(errs, "no last good policy") {
		t.Errorf("a rollback to nothing: %d, %s", code, errs)
	}

	// Its file goes, and it can be gone back to all the same.
	newest := l.does("activate", newer).Generation
	l.does("activate", "mla-spread")
	if err := os.Remove(newer); err != nil {
		t.Fatal(err)
	}
	if out := l.does("rollback", "--reason", "a test"); out.Generation <= newest {
		t.Errorf("%+v", out)
	}
	s = l.until("the newer one", func(s *control.Answer) bool {
		return slices.ContainsFunc(s.Status.Generations, func(g control.Generation) bool { return g.Stage == generation.Active && g.Version == "1.0.1" })
	})

	l.refusals(s.Process)
	l.together()
	l.recorded(filepath.Join(dir, "questions"))

	// The engine dies, and what stood there stands.
	if code, _, errs := l.policy("shadow", "rails"); code != 0 {
		t.Errorf("shadow: %s", errs)
	}
	s = l.does("list")
	if err := syscall.Kill(s.Process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-l.done
	if v := decode[demoJSON](t, l.out); l.code != 1 || v.Error == nil || v.Error.Kind != "engine" {
		t.Errorf("a demo whose engine was killed: %d, %s", l.code, l.out)
	}
	rest := l.does("list")
	if rest.Live || rest.Status.Generations[0].Version != "1.0.1" || rest.Status.Generations[1].Stage != generation.Shadow {
		t.Errorf("at rest: %+v", rest)
	}
	if code, _, errs := l.policy("record", "--out", filepath.Join(dir, "none")); code != 1 || !strings.Contains(errs, "no process runs on the store") {
		t.Errorf("record of nothing: %d, %s", code, errs)
	}
	if out := l.does("drop", fmt.Sprint(rest.Status.Generations[1].ID)); out.Live {
		t.Errorf("%+v", out)
	}

	// The next one begins there, whatever it is started with, and ends well.
	l.start("--policy", "seedbug", "--repeat", "12")
	<-l.done
	var v struct {
		Rounds   demo.Rounds
		Policies demo.Life
		Policy   struct{ Name, Source string }
	}
	if err := json.Unmarshal([]byte(l.out), &v); err != nil || l.code != 0 {
		t.Fatalf("exit status %d, %v, %s, %s", l.code, err, l.out, l.errs)
	}
	if v.Rounds.Rounds != 12 || v.Rounds.Moved != 24 || v.Rounds.Failed != 0 || len(v.Policies.Status.Generations) != 1 || v.Policies.Status.Generations[0].Version != "1.0.1" || v.Policies.Status.Generations[0].Counters.Answers == 0 || v.Policy.Name != "heads" || !strings.Contains(v.Policy.Source, l.store) {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(l.errs, `"event":"restored"`) {
		t.Errorf("the log says nothing: %s", l.errs)
	}
}

// refusals are things that a store does not take while a process runs on it.
func (l *lived) refusals(process int) {
	t := l.t
	code, _, errs := kvferry("demo", "--policy-store", l.store)
	if code != 1 || !strings.Contains(errs, "in use by another process") || !strings.Contains(errs, fmt.Sprintf("process %d", process)) {
		t.Errorf("a second process: exit status %d, %s", code, errs)
	}
	for range 20 {
		c, err := net.Dial("unix", filepath.Join(l.store, "control.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(bytes.Repeat([]byte{0xff}, 100)); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"shadow", "999"}, "policy generation 999 to shadow: there is no such generation"},
		{[]string{"drop", "1"}, "policy generation 1 to draining: there is no such generation, or it is closed"},
		{[]string{"promote"}, "load a policy first"},
		{[]string{"load", "heads"}, "version 1.0.0 is lower than 1.0.1"},
		{[]string{"load", filepath.Join(l.store, "state") + ".wasm"}, "no such file"},
	} {
		code, out, errs := l.policy(c.args...)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, "(fault: operator)") {
			t.Errorf("%v: exit status %d, %q, stderr %q, want %q", c.args, code, out, errs, c.want)
		}
		if code, out, _ = l.policy(append(c.args, "-o", "json")...); code != 1 || !strings.Contains(out, `"fault":"operator"`) {
			t.Errorf("%v -o json: exit status %d, %s", c.args, code, out)
		}
	}
}

// together runs commands at the same time.
func (l *lived) together() {
	var wg sync.WaitGroup
	for _, name := range []string{"rails", "compat-vllm", "pin", "seedbug"} {
		wg.Go(func() {
			code, out, errs := l.policy("load", name, "-o", "json")
			if code != 0 {
				l.t.Errorf("load %s: %d, %s", name, code, errs)
				return
			}
			var v control.Answer
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				l.t.Error(err)
			}
			if code, _, errs := l.policy("drop", fmt.Sprint(v.Generation)); code != 0 {
				l.t.Errorf("drop %d: %d, %s", v.Generation, code, errs)
			}
		})
	}
	wg.Wait()
}

// recorded keeps what the process asks, and asks another policy.
func (l *lived) recorded(file string) {
	t := l.t
	code, out, errs := l.policy("record", "--out", file, "--calls", "1", "--for", "1m", "-o", "json")
	v := decode[struct {
		Where   string
		Entries int
	}](t, out)
	if code != 0 || v.Where != "live" || v.Entries != 1 {
		t.Errorf("record: exit status %d, %s, %s", code, out, errs)
	}
	if code, out, errs = kvferry("policy", "replay", file, "--policy", "heads"); code != 0 || !strings.Contains(out, "1 questions, 1 the same") {
		t.Errorf("replay: exit status %d, %s, %s", code, out, errs)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Without a fallback a request fails where the policy does, is counted, and the
// next ones move once the policy was taken out; with one nothing fails.
func TestPolicyLifeOfARouteThatTraps(t *testing.T) {
	if testing.Short() {
		t.Skip("runs demos for a while")
	}
	file := filepath.Join(t.TempDir(), "traps.wasm")
	// General questions are about a model whose name has 9 bytes.
	route := fixture.About(9, fixture.Status(abi.StatusDeclined), fixture.Trap())
	if err := os.WriteFile(file, fixture.Deciding("traps", "1.0.0", route), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode, fallback string
		failed         bool
	}{{"pull", "none", true}, {"chunks", "none", true}, {"pull", "built-in", false}} {
		t.Run(c.mode+", "+c.fallback, func(t *testing.T) {
			l := &lived{t: t, store: filepath.Join(t.TempDir(), "store")}
			l.start("--mode", c.mode, "--policy-fallback", c.fallback, "--for", "10m")
			id := l.does("activate", file).Generation
			s := l.until("its end", func(s *control.Answer) bool { return of(s, id).Stage == generation.Closed })
			if g := of(s, id); g.Counters.Traps < 3 || (g.Counters.Replaced > 0) == c.failed {
				t.Errorf("%+v", g.Counters)
			}
			before := s.Status.Events[generation.RolledBack]
			calls := func(s *control.Answer) (n int64) {
				for _, g := range s.Status.Generations {
					if g.Stage == generation.Active {
						n = g.Counters.Calls
					}
				}
				return n
			}
			first := calls(l.does("list"))
			l.until("rounds that move", func(s *control.Answer) bool { return calls(s) >= first+8 })
			l.stop()
			var v struct{ Rounds demo.Rounds }
			if err := json.Unmarshal([]byte(l.out), &v); err != nil {
				t.Fatalf("%v: %s %s", err, l.out, l.errs)
			}
			if n := v.Rounds; (n.Failed > 0) != c.failed || n.Moved < 4 || strings.Contains(n.Failure, "traps") != c.failed || before != 1 {
				t.Errorf("%+v, %d rollbacks", n, before)
			}
			if !strings.Contains(l.errs, `"event":"rolled back"`) {
				t.Errorf("the log says nothing: %s", l.errs)
			}
		})
	}
}

func TestPolicyLifeWrongFlags(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"list"}, "--store is missing"},
		{[]string{"load", "heads"}, "--store is missing"},
		{[]string{"load", "--store", store}, "MODULE is missing"},
		{[]string{"load", "nobody", "--store", store}, `MODULE "nobody": no built-in policy of that name`},
		{[]string{"shadow", "--store", store}, "ID or MODULE is missing"},
		{[]string{"canary", "1", "--store", store}, "--percent is missing"},
		{[]string{"canary", "1", "--percent", "0", "--store", store}, "--percent 0: want more than 0 and at most 100"},
		{[]string{"canary", "1", "--percent", "NaN", "--store", store}, "--percent NaN"},
		{[]string{"canary", "1", "--percent", "5", "--by", "moon", "--store", store}, `--by "moon": want request or pair`},
		{[]string{"promote", "heads", "--store", store}, `"heads" is no generation`},
		{[]string{"drop", "0", "--store", store}, `"0" is no generation`},
		{[]string{"history", "-n", "-1", "--store", store}, "-n -1"},
		{[]string{"record", "--store", store}, "--out is missing"},
		{[]string{"record", "f", "--out", "g", "--store", store}, "FILE or --out"},
		{[]string{"record", "--out", "g"}, "go with --store"},
		{[]string{"record", "f", "--for", "-1s", "--store", store}, "--for -1s"},
		{[]string{"record", "f", "--pairs", "p", "--store", store}, "--pairs goes without --store"},
	} {
		code, out, errs := kvferry(append([]string{"policy"}, c.args...)...)
		if code != 2 || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q; want 2 and %q", c.args, code, out, errs, c.want)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--repeat", "0"}, "--repeat"},
		{[]string{"--for", "-1s"}, "--for"},
		{[]string{"--for", "1s", "--repeat", "2"}, "goes without --for"},
		{[]string{"--policy-fallback", "last-good"}, "goes with --policy-store"},
		{[]string{"--policy-store", store, "--policy-fallback", "moon"}, "want one of none, last-good, built-in"},
		{[]string{"--policy-store", store, "--replay-seed"}, "goes without --policy-store"},
	} {
		code, _, errs := kvferry(append([]string{"demo"}, c.args...)...)
		if code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("demo %v: exit status %d, stderr %q; want 2 and %q", c.args, code, errs, c.want)
		}
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("a wrong flag made a store: %v", err)
	}
	// Nor does looking at one that is not there.
	if code, _, errs := kvferry("policy", "list", "--store", store); code != 1 || !strings.Contains(errs, "(fault: operator)") {
		t.Errorf("a store that is not there: %d, %s", code, errs)
	}
}

// A store whose active module, or whose state, is broken says so and what to do,
// and doing it helps.
func TestPolicyLifeOfABrokenStore(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	do := func(want int, text string, args ...string) {
		t.Helper()
		code, out, errs := kvferry(append(append([]string{"policy"}, args...), "--store", store)...)
		if code != want || !strings.Contains(out+errs, text) {
			t.Errorf("%v: exit status %d, %s%s; want %d and %q", args, code, out, errs, want, text)
		}
	}
	do(0, "is active", "activate", "heads")
	do(0, "is active", "activate", "rails")
	do(0, "is sound", "recover")
	rails, _ := policies.Get("rails")
	file := filepath.Join(store, "modules", fmt.Sprintf("%x", sha256.Sum256(rails)))
	if err := os.WriteFile(file, rails[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := kvferry("demo", "--policy-store", store)
	if code != 1 || !strings.Contains(errs, "it was cut or changed") || !strings.Contains(errs, "(fault: operator)") {
		t.Errorf("a demo on it: %d, %s", code, errs)
	}
	do(0, "is active: the last good policy, again", "rollback")
	do(0, "heads 1.0.0", "list")
	state := filepath.Join(store, "state")
	if err := os.WriteFile(state, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(1, "recover the store", "list")
	do(0, "the broken one is "+state+".broken.1", "recover")
	do(0, "active  heads 1.0.0", "list")
	do(0, "again what its backup says", "history")
	l := &lived{t: t, store: store}
	l.start("--for", "10m")
	do(1, "a process that runs has a sound store", "recover")
	l.stop()
}

// What the commands say of a store that no process runs.
func TestPolicyLifeAtRest(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range []struct{ args, want string }{
		{"load heads", "generation 1 is loaded (at rest: no process runs on the store, the next one begins with it)\n"},
		{"activate 1", "generation 1 is active (at rest: "},
		{"canary rails --percent 12.5 --by pair", "generation 2 is the canary with 12.5 per cent by pair (at rest: "},
		{"list", "canary 12.5% by pair"},
		{"promote", "generation 2 is active (at rest: "},
		{"list", "a rollback goes back to heads 1.0.0, generation 1\n"},
		{"rollback --reason wish", "generation 3 is active: the last good policy, again (at rest: "},
		{"differences", "none (at rest)"},
		{"history -n 1", "changed      generation 3  heads 1.0.0  -> active  (the last good policy, again)\n"},
		{"history --follow -n 2", "rolled back  generation 2  rails 1.0.0  active -> closed  (wish)\n"},
	} {
		code, out, errs := kvferry(append(append([]string{"policy"}, strings.Fields(c.args)...), "--store", store)...)
		if code != 0 || errs != "" || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit status %d, stdout %q, stderr %q; want %q", c.args, code, out, errs, c.want)
		}
	}
}
