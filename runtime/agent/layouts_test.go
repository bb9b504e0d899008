package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
)

// offering is the source of a pair file with layouts to choose from.
func offering(t testing.TB) EngineSpec {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(`
kvferry: pair/1
model:
  name: tiny
  layers: 2
  components:
    - {name: k, heads: 4, dim: 8, dtype: bf16}
    - {name: v, heads: 4, dim: 8, dtype: bf16}
source: {engine: prefill, shard: {tp: 2}, block: 16, blocks: 8, can: [hnd, nhd]}
destination: {engine: decode, shard: {tp: 4}, block: 16, blocks: 8, can: [nhd]}
`))
	if err != nil {
		t.Fatal(err)
	}
	engine := func(side string) policy.Engine {
		s := f.Side(side)
		e := policy.Engine{Name: s.Engine, Model: f.SideModel(s), Shard: s.Shard}
		for _, c := range s.Groups[0].Candidates() {
			e.Candidates = append(e.Candidates, policy.Candidate{Name: c.Name, Layouts: []layout.Spec{c.Spec}, Pools: []plan.Pool{s.Groups[0].Pool()}})
		}
		return e
	}
	own := engine(pairfile.Source)
	return EngineSpec{ID: own.Name, Incarnation: "1", Model: own.Model, Shard: own.Shard, Can: own.Candidates, Role: policy.Source, Expected: []policy.Engine{engine(pairfile.Destination)}}
}

// chooser is an agent with a policy, and nothing to listen on.
func chooser(t testing.TB, folder string, p Policy) *Agent {
	t.Helper()
	var net loop.Network
	provider := net.New(loop.Options{Workers: 1})
	a, err := New(Config{Name: "a", Providers: []transport.Provider{provider}, Policy: p, Layouts: folder})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), provider.Close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

func builtin(t testing.TB, name string) *policy.Policy {
	t.Helper()
	wasm, _ := policies.Get(name)
	p, err := policy.Open(t.Context(), wasm, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// changing is a policy that chooses another layout each time it is asked, unless
// it is told of one on record.
type changing struct {
	Policy
	mu    sync.Mutex
	asked []policy.Question
}

func (c *changing) Name() string            { return "changing" }
func (c *changing) Digest() geometry.Digest { return geometry.Digest{} }
func (c *changing) SelectLayout(_ context.Context, q policy.Question) (policy.Choice, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, q)
	if q.Recorded > 0 {
		return policy.Choice{Index: q.Recorded - 1, Reason: "as on record"}, nil
	}
	return policy.Choice{Index: len(c.asked) % 2, Reason: "another"}, nil
}

// An engine has one layout for as long as an incarnation of it lives, in every
// process that shares the record and whatever the policy would say later.
func TestLayoutsAreSticky(t *testing.T) {
	for _, folder := range []string{"", t.TempDir()} {
		p := &changing{}
		a := chooser(t, folder, p)
		spec := offering(t)
		first, err := a.SelectLayout(t.Context(), spec)
		if err != nil || first.Index != 1 {
			t.Fatalf("%+v, %v", first, err)
		}
		if again, err := a.SelectLayout(t.Context(), spec); err != nil || again != first || len(p.asked) != 1 {
			t.Errorf("again: %+v, %v, asked %d times", again, err, len(p.asked))
		}
		other := a
		if folder != "" { // another process
			other = chooser(t, folder, p)
			if again, err := other.SelectLayout(t.Context(), spec); err != nil || again != first || len(p.asked) != 1 {
				t.Errorf("elsewhere: %+v, %v, asked %d times", again, err, len(p.asked))
			}
		}
		fewer := spec
		fewer.Can = spec.Can[:1]
		var le *LayoutError
		if _, err := other.SelectLayout(t.Context(), fewer); !errors.As(err, &le) || blame.Of(err) != blame.Operator {
			t.Errorf("with other candidates: %v", err)
		}
		// A new incarnation is asked about with what is on record.
		spec.Incarnation = "2"
		if next, err := other.SelectLayout(t.Context(), spec); err != nil || next.Index != first.Index || next.Reason != "as on record" || p.asked[1].Recorded != 2 {
			t.Errorf("the next incarnation: %+v, %v, asked %d times", next, err, len(p.asked))
		}
		if q := p.asked[0]; q.Role != policy.Source || len(q.Peers) != 1 || q.Recorded != 0 || len(q.Engine.Places) != 0 {
			t.Errorf("asked %+v", q)
		}
	}
}

// Many processes of an engine that start at once agree.
func TestLayoutsOfProcesses(t *testing.T) {
	if folder := os.Getenv("KVFERRY_TEST_LAYOUTS"); folder != "" {
		choice, err := chooser(t, folder, builtin(t, "heads")).SelectLayout(t.Context(), offering(t))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(choice)
		if err := os.WriteFile(os.Getenv("KVFERRY_TEST_ANSWER"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	folder := t.TempDir()
	var wg sync.WaitGroup
	answers := make([][]byte, 4)
	for i := range answers {
		wg.Go(func() {
			file := filepath.Join(t.TempDir(), "answer")
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLayoutsOfProcesses$")
			cmd.Env = append(os.Environ(), "KVFERRY_TEST_LAYOUTS="+folder, "KVFERRY_TEST_ANSWER="+file)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
				return
			}
			answers[i], _ = os.ReadFile(file)
		})
	}
	wg.Wait()
	for _, a := range answers {
		if len(a) == 0 || !bytes.Equal(a, answers[0]) {
			t.Errorf("%s and %s", answers[0], a)
		}
	}
}

// A record that cannot be read is an error that names it, never a layout.
func TestLayoutRecords(t *testing.T) {
	folder := t.TempDir()
	a := chooser(t, folder, &changing{})
	spec := offering(t)
	path := newLayouts(folder).path(spec.ID)
	for name, text := range map[string]string{"not JSON": "{", "another engine's": `{"engine": "x", "incarnation": "1"}`, "an index that is none": `{"engine": "prefill", "incarnation": "1", "index": -1}`,
		"too long": strings.Repeat(" ", maxRecord+1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := a.SelectLayout(t.Context(), spec); err == nil || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One whose index is not among the candidates that it claims to be of.
	b, _ := json.Marshal(layoutRecord{Engine: spec.ID, Incarnation: "1", Candidates: candidatesDigest(spec.Can), Index: 5})
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var le *LayoutError
	if _, err := a.SelectLayout(t.Context(), spec); !errors.As(err, &le) {
		t.Errorf("an index too far: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	unlock, err := newLayouts(folder).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.SelectLayout(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another process chooses: %v", err)
	}
	unlock()
	if _, err := a.SelectLayout(t.Context(), spec); err != nil {
		t.Error(err)
	}
}

// Register takes the layouts that were chosen, and no others.
func TestRegisterWhatWasChosen(t *testing.T) {
	a := chooser(t, "", builtin(t, "heads"))
	spec := offering(t)
	check := func() error { return a.layouts.check(spec) }
	var le *LayoutError
	if err := check(); !errors.As(err, &le) || !strings.Contains(err.Error(), "SelectLayout comes before Register") {
		t.Errorf("not chosen: %v", err)
	}
	choice, err := a.SelectLayout(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	use := func(i int) {
		side, err := policy.Engine{Name: spec.ID, Model: spec.Model, Shard: spec.Shard, Candidates: spec.Can}.Side(i)
		if err != nil {
			t.Fatal(err)
		}
		spec.Layouts, spec.Pools = side.Ranks, side.Groups
	}
	use(choice.Index)
	if err := check(); err != nil {
		t.Errorf("as chosen: %v", err)
	}
	use(1 - choice.Index)
	if err := check(); !errors.As(err, &le) || !strings.Contains(err.Error(), "which the policy chose") {
		t.Errorf("another: %v", err)
	}
	use(choice.Index)
	spec.Pools = []plan.Pool{{Block: 32, Blocks: 8}}
	if err := check(); !errors.As(err, &le) {
		t.Errorf("another block size: %v", err)
	}
	spec.Incarnation = "2"
	if err := check(); !errors.As(err, &le) {
		t.Errorf("another incarnation: %v", err)
	}
	none := offering(t)
	none.Can = nil
	if _, err := a.SelectLayout(t.Context(), none); err == nil || blame.Of(err) != blame.Local {
		t.Errorf("nothing to choose from: %v", err)
	}
}

func FuzzLayoutRecord(f *testing.F) {
	b, err := json.Marshal(layoutRecord{Engine: "e", Incarnation: "1", Candidates: "sha256:00", Names: "hnd, nhd", Index: 1, Reason: "r", Policy: "p", Digest: "d"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"index": -1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseLayout(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseLayout(out); err != nil || *again != *r {
			t.Fatalf("%s came back as %+v, %v", out, again, err)
		}
	})
}
