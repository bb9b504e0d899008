package policies_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/configuration"
)

// written is YAML as an operator writes it, as policies are given it.
func written(t testing.TB, yaml string) []byte {
	t.Helper()
	out, err := configuration.Canonical("pin.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A table made of what heads answers is followed, in its order, and proved;
// where it leaves out a source that is needed, the policy declines and says what
// is missing.
func TestPinFollowsItsTable(t *testing.T) {
	p := open(t, "pin")
	seeds, lacking, several := 1500, 0, 0
	if testing.Short() {
		seeds = 200
	}
	for seed := range uint64(seeds) {
		m := sample.New(seed)
		pair := m.Pair()
		heads := matchHeads(pair)
		from := make([][]int, len(pair.Destination.Ranks))
		for d := range from {
			for _, a := range heads {
				if a.Destination == d && !slices.Contains(from[d], a.Source) {
					from[d] = append(from[d], a.Source)
				}
			}
			m.Shuffle(len(from[d]), func(i, j int) { from[d][i], from[d][j] = from[d][j], from[d][i] })
			if len(from[d]) > 1 {
				several++
			}
		}
		out := m.IntN(len(from))
		left := -1
		if m.Chance(30) && len(from[out]) > 1 {
			left, from[out] = from[out][0], from[out][1:]
		}
		if slices.ContainsFunc(from, func(list []int) bool { return len(list) == 0 }) {
			continue // a rank that holds nothing of what both have
		}
		table, err := json.Marshal(map[string]any{"pairs": []any{map[string]any{"source": "*", "destination": "*", "from": from}}})
		if err != nil {
			t.Fatal(err)
		}
		q := policy.RemapQuestion{Pair: pair, Configuration: written(t, string(table))}
		answer, err := p.RemapFor(context.Background(), q)
		// The twin prefers what stands first, and knows no loads.
		w := twin{load: make([]uint64, len(pair.Source.Ranks)), toll: func(int, int) uint64 { return 0 }, far: func(d, s int) int { return slices.Index(from[d], s) }}
		want := w.match(pair)
		if err != nil {
			lacking++
			if left < 0 || !strings.Contains(err.Error(), fmt.Sprintf("pairs[0].from: destination rank %d wants head ", out)) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		if !reflect.DeepEqual(answer.Alternatives, [][]plan.Assignment{want}) {
			t.Fatalf("seed %d: answer\n%v\nwant\n%v", seed, answer.Alternatives, want)
		}
		proved(t, seed, pair, want)
	}
	t.Logf("%d of %d tables lack a source, %d ranks read from several", lacking, seeds, several)
	if lacking < seeds/50 || several < seeds/10 {
		t.Error("the draw shows nothing")
	}
}

// Whatever stands in the table and cannot be is named, and so is a pair that it
// has no row for.
func TestPinDeclines(t *testing.T) {
	p := open(t, "pin")
	pair := parsePair(t, "seed") // TP 2 to TP 4
	for _, c := range []struct{ configuration, want string }{
		{"", "there is no configuration: this policy does what its table says"},
		{"[]", "configuration: pairs: want a list of rows"},
		{"{}", "configuration: pairs: want a list of rows"},
		{"pairs: 1", "configuration: pairs: want a list of rows"},
		{"pairs: []\nmore: 1", "configuration: want pairs and nothing else"},
		{"pairs: []", "the table has no row for engines prefill and decode"},
		{"pairs: [{source: 'prefill-*', destination: '*', from: heads}, {source: '*', destination: 'decode?', from: heads}]", "the table has no row for engines prefill and decode"},
		{"pairs: [1]", "configuration: pairs[0]: want an object"},
		{"pairs: [{destination: '*'}]", "configuration: pairs[0].source: want a pattern of names of engines"},
		{"pairs: [{source: '*', destination: [x]}]", "configuration: pairs[0].destination: want a pattern of names of engines"},
		{"pairs: [{source: '', destination: '*'}]", "configuration: pairs[0].source: want a pattern of 1 to 256 bytes"},
		{"pairs: [{source: '*', destination: '" + strings.Repeat("*", 257) + "'}]", "configuration: pairs[0].destination: want a pattern of 1 to 256 bytes"},
		{"pairs: [{source: '*', destination: '*', form: heads}]", "configuration: pairs[0].form: rows have no such member"},
		{"pairs: [{source: x, destination: x}, {source: '*', destination: '*'}]", "configuration: pairs[1].from: want for each destination rank the source ranks it reads from, or heads"},
		{"pairs: [{source: '*', destination: '*', from: tails}]", "configuration: pairs[0].from: want for each destination rank the source ranks it reads from, or heads"},
		{"pairs: [{source: '*', destination: '*', from: [0, 0, 1]}]", "configuration: pairs[0].from: 3 entries; the destination has 4 ranks"},
		{"pairs: [{source: '*', destination: '*', from: [0, 0, 1, 1, 1]}]", "configuration: pairs[0].from: 5 entries; the destination has 4 ranks"},
		{"pairs: [{source: '*', destination: '*', from: [0, 2, 1, 1]}]", "configuration: pairs[0].from: destination rank 1: want one or several of the source's 2 ranks, counted from 0"},
		{"pairs: [{source: '*', destination: '*', from: [0, 0, [], 1]}]", "configuration: pairs[0].from: destination rank 2: want one or several of the source's 2 ranks, counted from 0"},
		{"pairs: [{source: '*', destination: '*', from: [0, 0, 1, [1, x]]}]", "configuration: pairs[0].from: destination rank 3: want one or several of the source's 2 ranks, counted from 0"},
		{"pairs: [{source: '*', destination: '*', from: [0, 1, 1, 1]}]", "configuration: pairs[0].from: destination rank 1 wants head 2, which none of its source ranks holds"},
	} {
		q := policy.RemapQuestion{Pair: pair, Configuration: written(t, c.configuration)}
		_, err := p.RemapFor(context.Background(), q)
		var declined *policy.Declined
		if !errors.As(err, &declined) || !strings.HasSuffix(err.Error(), "(hook remap): "+c.want) {
			t.Errorf("%.90s: error %v, want %q", c.configuration, err, c.want)
		}
	}
	// The first row that is for the pair counts.
	for _, c := range []struct{ configuration, want string }{
		{"pairs: [{source: 'p*l', destination: 'd?c*e', from: [0, 0, 1, 1]}, {source: '*', destination: '*', from: heads}]", "pairs[0]: heads matched in 4 assignments, 2 of 2 source ranks serve"},
		{"pairs: [{source: 'p*x', destination: '*', from: [0, 0, 0, 0]}, {source: '**', destination: decode, from: heads}]", "pairs[1]: heads matched in 4 assignments, 2 of 2 source ranks serve"},
	} {
		answer, err := p.RemapFor(context.Background(), policy.RemapQuestion{Pair: pair, Configuration: written(t, c.configuration)})
		if err != nil || answer.Reason != c.want {
			t.Errorf("%s: %s (%v), want %s", c.configuration, answer.Reason, err, c.want)
		}
	}
}

// The table says which layout an engine uses.
func TestPinSelectsLayouts(t *testing.T) {
	p := open(t, "pin")
	two := question()
	other := two.Peers[0]
	other.Name = "decode-2"
	two.Peers = append(slices.Clone(two.Peers), other)
	alone := question()
	alone.Peers = nil
	for _, c := range []struct {
		q                   policy.Question
		configuration, want string
	}{
		{question(), "pairs: [{source: prefill, destination: decode, layouts: {source: nhd, destination: nhd}}]", "nhd: pairs[0]"},
		{question(), "pairs: [{source: prefill, destination: x, layouts: {}}, {source: '*', destination: '*', layouts: {source: hnd}}]", "hnd: pairs[1]"},
		{question(), "pairs: [{source: decode, destination: prefill, layouts: {source: nhd, destination: nhd}}]", "the table has no row for engines prefill and decode"},
		{question(), "pairs: [{source: '*', destination: '*', layouts: {destination: nhd}}]", "configuration: pairs[0].layouts.source: want the name of a layout"},
		{question(), "pairs: [{source: '*', destination: '*', layouts: {source: nhd, target: nhd}}]", "configuration: pairs[0].layouts: want source and destination"},
		{question(), "pairs: [{source: '*', destination: '*', layouts: {source: dnh}}]", "pairs[0] wants layout dnh, which engine prefill does not offer"},
		{two, "pairs: [{source: '*', destination: 'decode*', layouts: {source: nhd}}]", "nhd: pairs[0]"},
		{two, "pairs: [{source: '*', destination: decode, layouts: {source: nhd}}, {source: '*', destination: '*', layouts: {source: nhd}}]", "nhd: pairs[0]"},
		{two, "pairs: [{source: '*', destination: decode, layouts: {source: nhd}}, {source: '*', destination: '*', layouts: {source: hnd}}]", "pairs[0] and pairs[1] want different layouts of engine prefill"},
		{alone, "pairs: [{source: 'pre*', destination: decode, layouts: {source: hnd}}, {source: x, destination: '*', layouts: {source: nhd}}]", "hnd: pairs[0]"},
		{alone, "pairs: [{source: x, destination: '*', layouts: {source: hnd}}]", "the table has no row for engine prefill as a source"},
		{alone, "", "there is no configuration: this policy does what its table says"},
	} {
		c.q.Configuration = written(t, c.configuration)
		got, err := p.SelectLayout(context.Background(), c.q)
		if err != nil {
			if !strings.HasSuffix(err.Error(), "(hook select_layout): "+c.want) {
				t.Errorf("%s: %v, want %s", c.configuration, err, c.want)
			}
		} else if got.Reason != c.want || !strings.HasPrefix(c.want, c.q.Engine.Candidates[got.Index].Name+": ") {
			t.Errorf("%s: %d (%s), want %s", c.configuration, got.Index, got.Reason, c.want)
		}
	}
	back := question()
	back = policy.Question{Engine: back.Peers[0], Role: policy.Destination, Peers: []policy.Engine{back.Engine}, Configuration: written(t, "pairs: [{source: prefill, destination: decode, layouts: {source: hnd, destination: nhd}}]")}
	if got, err := p.SelectLayout(context.Background(), back); err != nil || got.Index != 0 || got.Reason != "nhd: pairs[0]" {
		t.Errorf("the destination: %+v (%v)", got, err)
	}
}

// A row says how transfers go, and no more than it says is decided.
func TestPinRoutes(t *testing.T) {
	p := open(t, "pin")
	pair := policy.RemapQuestion{Pair: parsePair(t, "seed")}
	crowded(&pair)
	q := routed(pair, policy.Answer{Alternatives: [][]plan.Assignment{matchHeads(pair.Pair)}})
	for _, c := range []struct {
		row  string
		want policy.Decision
		err  string
	}{
		{"", policy.Decision{}, ""},
		{"transports: [nixl]", policy.Decision{Providers: []int{1}}, ""},
		{"transports: [nixl, tcp, nixl]", policy.Decision{Providers: []int{1, 0}}, ""},
		{"chunk: 1048576, streams: 4, priority: 8, crc: true, tls: true, mode: staged, permute: source, integrity: full",
			policy.Decision{Chunk: 1 << 20, Streams: 4, Priority: 8, CRC: policy.On, TLS: policy.On, Mode: policy.Staged, Permute: policy.Source, Integrity: policy.IntegrityFull}, ""},
		{"mode: direct, permute: destination, integrity: sample, chunk: null", policy.Decision{Mode: policy.Direct, Permute: policy.Destination, Integrity: policy.IntegritySample}, ""},
		{"rails: {source: [mlx5_4, null], destination: [null, mlx5_1, mlx5_6]}",
			policy.Decision{Rails: []policy.RailChoice{{Side: policy.Source, Rank: 0, Rail: 1}, {Side: policy.Destination, Rank: 1, Rail: 0}, {Side: policy.Destination, Rank: 2, Rail: 1}}}, ""},
		{"transports: [nixll]", policy.Decision{}, "pairs[0].transports: none that is configured here is called nixll"},
		{"transports: [1]", policy.Decision{}, "pairs[0].transports: none that is configured here is called so"},
		{"transports: tcp", policy.Decision{}, "pairs[0].transports: want a list of names"},
		{"transports: []", policy.Decision{}, "pairs[0].transports: want one at least"},
		{"chunk: 1MiB", policy.Decision{}, "pairs[0].chunk: want a number of bytes"},
		{"chunk: 0", policy.Decision{}, "pairs[0].chunk: want a number of bytes"},
		{"streams: -1", policy.Decision{}, "pairs[0].streams: want a number of connections"},
		{"priority: 9", policy.Decision{}, "pairs[0].priority: want a number from 1 to 8"},
		{"crc: on please", policy.Decision{}, "pairs[0].crc: want true or false"},
		{"tls: 1", policy.Decision{}, "pairs[0].tls: want true or false"},
		{"mode: sideways", policy.Decision{}, "pairs[0].mode: want direct or staged"},
		{"permute: both", policy.Decision{}, "pairs[0].permute: want source or destination"},
		{"integrity: half", policy.Decision{}, "pairs[0].integrity: want off, sample or full"},
		{"rails: [mlx5_0]", policy.Decision{}, "pairs[0].rails: want lists for source and destination"},
		{"rails: {source: mlx5_0}", policy.Decision{}, "pairs[0].rails: want lists for source and destination"},
		{"rails: {source: [mlx5_9]}", policy.Decision{}, "pairs[0].rails: source rank 0 is not known to have a rail mlx5_9"},
		{"rails: {destination: [null, null, null, null, mlx5_0]}", policy.Decision{}, "pairs[0].rails: destination rank 4 is not known to have a rail mlx5_0"},
	} {
		q.Configuration = written(t, "pairs: [{source: prefill, destination: decode, "+c.row+"}]")
		got, clamped, err := p.Route(context.Background(), q)
		if c.err != "" {
			if err == nil || !strings.HasSuffix(err.Error(), "(hook route): configuration: "+c.err) {
				t.Errorf("%s: error %v, want %q", c.row, err, c.err)
			}
			continue
		}
		c.want.Reason = "pairs[0]"
		if err != nil || len(clamped) > 0 || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v %v (%v), want %+v", c.row, got, clamped, err, c.want)
		}
	}
	q.Edges[0].Providers = []int{1}
	q.Configuration = written(t, "pairs: [{source: prefill, destination: decode, transports: [tcp]}]")
	if _, _, err := p.Route(context.Background(), q); err == nil || !strings.Contains(err.Error(), "pairs[0].transports: none of them serves source rank 0 and destination rank 0") {
		t.Errorf("error %v, want that tcp does not serve the ranks", err)
	}
	q.Configuration = nil
	if _, _, err := p.Route(context.Background(), q); err == nil || !strings.HasSuffix(err.Error(), "there is no configuration: this policy does what its table says") {
		t.Errorf("error %v, want that there is no configuration", err)
	}
}
