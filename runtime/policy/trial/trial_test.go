package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/trial"
	"github.com/kvferry/kvferry/wasm/host"
)

const cases = `kvferry: cases/1
cases:
  - name: two ranks feed four
    pair: seed.yaml
    site: racks.yaml
    hook: remap
    configuration: {keep: true}
    expect:
      edges: [0 -> 0, 1->3]
      alternatives: 1
      fuel: 100000
  - pair: can.yaml
    hook: select_layout
    expect: {layouts: {source: nhd}}
  - pair: dcp.yaml
    hook: remap
    expect: {declined: ""}
  - pair: seed.yaml
    hook: route
    tokens: 77
    expect: {route: {alternative: 0, recompute: false, mode: staged}}
`

func TestParse(t *testing.T) {
	got, err := trial.Parse("first.yaml", []byte(cases))
	if err != nil {
		t.Fatal(err)
	}
	none, zero, no, staged := "", 0, false, "staged"
	want := []trial.Case{
		{Name: "two ranks feed four", Line: 3, Pair: "seed.yaml", Site: "racks.yaml", Hook: "remap", Configuration: map[string]any{"keep": true},
			Expect: trial.Expect{Edges: []stamp.EdgeKey{{}, {Source: 1, Destination: 3}}, Alternatives: 1, Fuel: 100000}},
		{Name: "select_layout can.yaml", Line: 12, Pair: "can.yaml", Hook: "select_layout", Expect: trial.Expect{Layouts: map[string]string{"source": "nhd"}}},
		{Name: "remap dcp.yaml", Line: 15, Pair: "dcp.yaml", Hook: "remap", Expect: trial.Expect{Declined: &none}},
		{Name: "route seed.yaml", Line: 18, Pair: "seed.yaml", Hook: "route", Tokens: 77, Expect: trial.Expect{Route: &trial.Route{Alternative: &zero, Recompute: &no, Mode: &staged}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Every error names the file, the line and the field.
func TestParseErrors(t *testing.T) {
	one := func(lines string) string {
		return "kvferry: cases/1\ncases:\n  - " + strings.ReplaceAll(lines, "\n", "\n    ")
	}
	for _, c := range []struct{ text, want string }{
		{"", "first.yaml: empty"},
		{"kvferry: cases/2\ncases: []", `first.yaml:1: kvferry: "cases/2": want "cases/1"`},
		{"kvferry: cases/1", "first.yaml:1: cases: 0 of them: want 1 to 1024"},
		{"kvferry: cases/1\nkases: []", "first.yaml:2: kases: there is no such key here"},
		{"kvferry: cases/1\n---\na: b", "first.yaml:2: a second document: a file holds one"},
		{"kvferry: [", "first.yaml:1: did not find expected node content"},
		{"kvferry: &a cases/1\ncases: *a", "first.yaml:1: anchors and aliases are not part of such a file"},
		{one("hook: remap\nexpect: {fuel: 1}"), "first.yaml:3: cases[0].pair: missing: want the path of a pair file, beside this file"},
		{one("pair: a\nhook: map\nexpect: {fuel: 1}"), `first.yaml:3: cases[0].hook: "map": want select_layout, remap or route`},
		{one("pair: a\nhook: remap\nexpect: {}"), "first.yaml:3: cases[0].expect: nothing is expected: want edges, layouts, alternatives, declined, fuel or route"},
		{one("pair: a\nhook: remap\nexpect: {edges: [0 to 1]}"), `first.yaml:3: cases[0].expect.edges[0]: "0 to 1" is no edge: want ranks such as 0 -> 1, the source's first`},
		{one("pair: a\nhook: remap\nexpect: {edges: [0->1, 0 -> 1]}"), `first.yaml:3: cases[0].expect.edges[1]: "0 -> 1" stands twice`},
		{one("pair: a\nhook: select_layout\nexpect: {edges: [0->1]}"), "first.yaml:3: cases[0].expect: expects what hook select_layout does not answer"},
		{one("pair: a\nhook: remap\nexpect: {declined: x, edges: []}"), "first.yaml:3: cases[0].expect.declined: stands beside an answer that is expected: want one of them"},
		{one("pair: a\nhook: route\nexpect: {route: {mode: fast}}"), `first.yaml:3: cases[0].expect.route.mode: "fast": want direct or staged`},
		{one("pair: a\nhook: route\ntokens: -1\nexpect: {fuel: 1}"), "first.yaml:3: cases[0].tokens: -1: want 1 to 1073741824"},
		{one("pair: a\nhook: remap\nexpect: {alternatives: 9}"), "first.yaml:3: cases[0].expect.alternatives: 9: want 1 to 8"},
		{one("pair: a\nhook: remap\nexpect: {fuel: -1}"), "first.yaml:5: cannot unmarshal !!int `-1` into uint64"},
	} {
		_, err := trial.Parse("first.yaml", []byte(c.text))
		var e *trial.Error
		if !errors.As(err, &e) || err.Error() != c.want {
			t.Errorf("%q:\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
}

const racks = `kvferry: site/1
source:
  software: vllm
  labels: {zone: b}
  places:
    - {host: a, domain: d, numa: 1, load: 3, devices: [{id: GPU-0, kind: cuda, numa: 1}], rails: [{name: mlx5_0, numa: 1, gbits: 400, load: 8}]}
    - {host: a}
providers:
  - {name: shm, memory: [host], one_sided: true}
  - {name: tcp, peer_cpu: true, tls: true, piece: 64}
edges:
  - {source: 0-1, destination: "3", providers: [tcp], reach: host, load: 2}
`

func TestParseSite(t *testing.T) {
	got, err := trial.ParseSite("racks.yaml", []byte(racks))
	if err != nil {
		t.Fatal(err)
	}
	want := decision.Site{
		Source: policy.About{Software: "vllm", Labels: map[string]string{"zone": "b"}, Places: []policy.Place{
			{Host: "a", Domain: "d", NUMA: 1, Load: 3, Devices: []policy.Device{{ID: "GPU-0", Kind: policy.CUDAMemory, NUMA: 1}}, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 8}}},
			{Host: "a"},
		}},
		Providers: []policy.Provider{{Name: "shm", Memory: []policy.Memory{policy.HostMemory}, OneSided: true}, {Name: "tcp", PeerCPU: true, TLS: true, Piece: 64}},
		Edges:     []policy.Edge{{Source: plan.Range{To: 2}, Destination: plan.Range{From: 3, To: 4}, Providers: []int{1}, Reach: policy.SameHost, Load: 2}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, c := range []struct{ old, new, want string }{
		{"site/1", "site/2", `racks.yaml:1: kvferry: "site/2": want "site/1"`},
		{"kind: cuda", "kind: tape", `racks.yaml: source.places[0].devices[0].kind: "tape": want host, cuda or other`},
		{"memory: [host]", "memory: [disk]", `racks.yaml: providers[0].memory[0]: "disk": want host, cuda or other`},
		{"source: 0-1", "source: 1-0", `racks.yaml: edges[0].source: "1-0": want a rank or a range of them, 0 or 0-3`},
		{"providers: [tcp]", "providers: [ucx]", `racks.yaml: edges[0].providers[0]: "ucx" is none of the providers of this file`},
		{"reach: host", "reach: far", `racks.yaml: edges[0].reach: "far": want process, host, domain or network`},
		{"load: 3", "load: -3", "racks.yaml:6: cannot unmarshal !!int `-3` into uint8"},
	} {
		_, err := trial.ParseSite("racks.yaml", []byte(strings.Replace(racks, c.old, c.new, 1)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.new, err, c.want)
		}
	}
}

// What the page for authors shows is read.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/writing-policies.md")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]int{}
	for i, part := range strings.Split(string(page), "```") {
		text, ok := strings.CutPrefix(part, "yaml\n")
		if i%2 == 0 || !ok {
			continue
		}
		if strings.HasPrefix(text, "kvferry: "+trial.SiteVersion) {
			_, err = trial.ParseSite("page", []byte(text))
			read["sites"]++
		} else {
			_, err = trial.Parse("page", []byte(text))
			read["cases"]++
		}
		if err != nil {
			t.Error(err)
		}
	}
	if read["sites"] != 1 || read["cases"] != 1 {
		t.Errorf("the page shows %v", read)
	}
}

// What a case expects is compared with what the policy decides, and every way
// to be wrong is said.
func TestRun(t *testing.T) {
	wasm, _ := policies.Get("heads")
	spent := map[string]uint64{}
	p, err := policy.Open(context.Background(), wasm, policy.Options{Observe: func(c host.Call) { spent[c.Hook] = max(spent[c.Hook], c.Fuel) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	fuel := func(hook string) uint64 {
		n := spent[hook]
		delete(spent, hook)
		return n
	}
	for _, c := range []struct {
		name, pair, hook, expect string
		wrong                    []string // how each line begins
	}{
		{"as it is", "seed", "remap", "{edges: [0->0, 0->1, 1->2, 1->3], alternatives: 1}", nil},
		{"other edges", "seed", "remap", "{edges: [0->0, 0->1, 1->2, 0->3]}", []string{"nothing moves from rank 0 to rank 3", "something moves from rank 1 to rank 3"}},
		{"more alternatives", "seed", "remap", "{alternatives: 2}", []string{"1 alternatives: expected 2"}},
		{"too dear", "tp4-tp6-h12", "remap", "{fuel: 1}", []string{"spent "}},
		{"answers", "pp-uneven", "remap", "{declined: never}", []string{"answered, where it was expected to decline"}},
		{"a layout", "can", "select_layout", "{layouts: {source: vllm/packed-nhd, destination: vllm/packed-nhd}}", nil},
		{"another", "can", "select_layout", "{layouts: {source: vllm/packed-hnd, engine: x}}", []string{"the layout of engine is not the policy's", "source: layout vllm/packed-nhd: expected vllm/packed-hnd"}},
		{"nothing to choose", "seed", "select_layout", "{layouts: {source: x}}", []string{"nothing was asked", "the layout of source is not the policy's"}},
		{"no hook", "seed", "route", "{route: {alternative: 0}}", nil}, // heads leaves it to the host
		{"no hook, another", "seed", "route", "{route: {alternative: 3}}", []string{"alternative 0: expected 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := trial.Parse("c.yaml", []byte("kvferry: cases/1\ncases:\n  - {pair: x, hook: "+c.hook+", expect: "+c.expect+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
			f := fixture.File(t, filepath.Join("../../../testdata/pairs", c.pair+".yaml"))
			r, err := list[0].Run(context.Background(), p, trial.Setting{Pair: f, Fuel: fuel})
			if err != nil {
				t.Fatal(err)
			}
			same := len(r.Wrong) == len(c.wrong)
			for i := range r.Wrong {
				same = same && strings.HasPrefix(r.Wrong[i], c.wrong[i])
			}
			if !same || r.OK != (len(c.wrong) == 0) {
				t.Errorf("%q, want %q", r.Wrong, c.wrong)
			}
		})
	}
}

// written is a file of the same cases.
func written(t *testing.T, list []trial.Case) []byte {
	t.Helper()
	var out []map[string]any
	for _, c := range list {
		expect := map[string]any{"alternatives": c.Expect.Alternatives, "fuel": c.Expect.Fuel, "declined": c.Expect.Declined, "route": c.Expect.Route}
		if c.Expect.Edges != nil {
			edges := []string{}
			for _, e := range c.Expect.Edges {
				edges = append(edges, fmt.Sprintf("%d -> %d", e.Source, e.Destination))
			}
			expect["edges"] = edges
		}
		if c.Expect.Layouts != nil {
			expect["layouts"] = c.Expect.Layouts
		}
		out = append(out, map[string]any{"name": c.Name, "pair": c.Pair, "site": c.Site, "hook": c.Hook, "configuration": c.Configuration, "tokens": c.Tokens, "expect": expect})
	}
	text, err := yaml.Marshal(map[string]any{"kvferry": trial.Version, "cases": out})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Whatever a file holds, it is read or refused with its name; cases that are
// read are the same when they are written again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(cases), false)
	f.Add([]byte(racks), true)
	f.Add([]byte("kvferry: cases/1\ncases: [{pair: a, hook: remap, expect: {fuel: 1}}]"), false)
	f.Fuzz(func(t *testing.T, text []byte, site bool) {
		var one, two any
		var err error
		if site {
			one, err = trial.ParseSite("f.yaml", text)
			two, _ = trial.ParseSite("f.yaml", text)
		} else {
			one, err = trial.Parse("f.yaml", text)
			two, _ = trial.Parse("f.yaml", text)
		}
		var e *trial.Error
		if err != nil && (!errors.As(err, &e) || !strings.HasPrefix(err.Error(), "f.yaml")) {
			t.Fatalf("error %T %v", err, err)
		}
		if err != nil {
			return
		}
		if list, ok := one.([]trial.Case); ok {
			again, err := trial.Parse("f.yaml", written(t, list))
			if err != nil {
				t.Fatalf("%v in %s", err, written(t, list))
			}
			for i := range again {
				again[i].Line = list[i].Line
			}
			two = again
		}
		if !reflect.DeepEqual(one, two) {
			t.Errorf("%+v\n%+v", one, two)
		}
	})
}
