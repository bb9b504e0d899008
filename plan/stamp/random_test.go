package stamp_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan/fixture"
)

// Random small pairs, requests and tables, byte by byte.
func TestRandomRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 4))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	counted := map[string]int{}
	n := 400
	if testing.Short() {
		n = 60
	}
	for i := range n {
		components := pick(fixture.KV(4, 8, "bf16"), fixture.KV(4, 4, "fp8"), "{name: k, heads: 4, dim: 8, dtype: fp4}", "{name: k, heads: 4, dim: 8, dtype: bf16}, {name: v, heads: 4, dim: 4, dtype: fp32}")
		orders := []string{
			"[block, head, token, component, dim]", "[block, token, head, component, dim]", "[component, block, head, token, dim]",
			"[block, component, token, head, dim]", "[block, head, token, dim]", "[block, layer, head, token, component, dim]",
			"[layer, block, token/2, component, head, token%2, dim]", "[block, head, dim/2, token, dim%2]", "[block/2, token, block%2, head, dim]",
			"{order: [block, token, head, component, dim], strides: {block: 2048}}",
		}
		if !strings.Contains(components, "fp4") {
			orders = append(orders, "[block, head, dim, token]", "[block, head, {k: [dim, token], KV: [token, dim]}]")
		}
		shards := []string{"{tp: 1}", "{tp: 2}", "{tp: 4}", "{tp: 8}", "{tp: 2, pp: [1, 2]}", "{tp: 1, pp: [2, 1], rank_order: [tp, pp]}",
			"{tp: 2, dcp: {size: 2, interleave: 1}}", "{tp: 1, dcp: {size: 3, interleave: 2}}", "{tp: 2, heads: [[3, 1], [0, 2]]}", "{tp: 3, heads: [[0], [2, 1], [1, 3]]}"}
		if r.IntN(8) == 0 {
			components = "{name: latent, heads: 0, dim: 12, dtype: bf16}"
			orders = []string{"[block, token, component, dim]", "[block, token, dim]", "[layer, block, dim, token]"}
			shards = shards[:8]
		}
		side := func() fixture.Half {
			order := pick(orders...)
			if strings.Contains(components, "name: v") {
				order = strings.ReplaceAll(order, "KV", "v")
			} else {
				order = strings.ReplaceAll(order, ", KV: [token, dim]", "")
			}
			return fixture.Side(pick(shards...), []int{2, 4, 6, 8}[r.IntN(4)], order)
		}
		source, destination := side(), side()
		p := fixture.Pair(t, 3, components, source, destination)
		s := stamper(t, p, r.IntN(4))
		to := 1 + r.Int64N(60)
		from := r.Int64N(to)
		tables := [2][]uint32{ids(r, 40, 512), ids(r, 40, 512)}
		if r.IntN(3) == 0 {
			slices.Sort(tables[0])
			slices.Sort(tables[1])
		}
		req := request(s, tables[0], tables[1], from, to)
		if err := s.Validate(req); err != nil {
			t.Fatal(err)
		}
		copies, err := s.Expand(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := judge(p, req, copies); err != nil {
			t.Fatalf("pair %d, %s\n%+v -> %+v, tokens %d to %d: %v\n%s", i, components, source, destination, from, to, err, s.Proven().Plan().Text(p))
		}
		var total, bytes int64
		for k, c := range copies {
			bytes += c.Bytes
			if k > 0 {
				q := copies[k-1]
				if q.DestinationRank == c.DestinationRank && q.DestinationRegion == c.DestinationRegion && (q.DestinationOffset+q.Bytes > c.DestinationOffset ||
					q.DestinationOffset+q.Bytes == c.DestinationOffset && q.SourceRank == c.SourceRank && q.SourceRegion == c.SourceRegion && q.SourceOffset+q.Bytes == c.SourceOffset) {
					t.Fatalf("pair %d: copies %+v and %+v overlap, are out of order or are one", i, q, c)
				}
			}
		}
		for _, e := range s.Edges(req) {
			n, _, err := s.Totals(req, e)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		if total != bytes {
			t.Fatalf("pair %d: totals say %d bytes, the copies are %d", i, total, bytes)
		}
		counted[source.Shard]++
		counted[destination.Layout]++
	}
	if len(counted) < 15 {
		t.Errorf("only %v", counted)
	}
}
