package spec

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/overhead"
)

// The built-in policies pass the preflight and answer all their vectors as they
// do unmetered, with the same fuel on both engines, and far less than a call may
// use.
func TestPolicies(t *testing.T) {
	for _, name := range policies.Names() {
		wasm, _ := policies.Get(name)
		if err := meter.Check(wasm, meter.Policy()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		type answer struct {
			status uint64
			text   []byte
			used   uint64
		}
		var answers [2]map[string]answer
		for i, e := range engines {
			plain, paid := open(t, wasm, e.name == "interpreter")
			answers[i] = map[string]answer{}
			for _, q := range questions(t, name) {
				var a, b answer
				var took overhead.Took
				var err error
				if a.status, a.text, _, err = plain.Ask(ctx, q.Hook, q.In); err != nil {
					t.Fatalf("%s: %v", q.Name, err)
				}
				if b.status, b.text, took, err = paid.Ask(ctx, q.Hook, q.In); err != nil {
					t.Fatalf("%s: %v", q.Name, err)
				}
				b.used = took.Fuel
				if a.status != b.status || !bytes.Equal(a.text, b.text) {
					t.Errorf("%s, %s on the %s: answer %#x %x, metered %#x %x", name, q.Name, e.name, a.status, a.text, b.status, b.text)
				}
				if b.used <= 0 || b.used > budget/2 {
					t.Errorf("%s, %s: %d units used", name, q.Name, b.used)
				}
				b.text = bytes.Clone(b.text)
				answers[i][q.Name] = b
			}
		}
		for q, a := range answers[0] {
			if b := answers[1][q]; a.used != b.used || a.status != b.status || !bytes.Equal(a.text, b.text) {
				t.Errorf("%s, %s: %d units on the %s, %d on the %s", name, q, a.used, engines[0].name, b.used, engines[1].name)
			}
		}
	}
}
