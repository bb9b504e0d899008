package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/plan/stamp"
)

// benchFlags are what every bench takes.
type benchFlags struct {
	small  bool
	rounds int
	seed   uint64
}

func (f *benchFlags) add(cmd *cobra.Command, rounds int) {
	cmd.Flags().BoolVar(&f.small, "small", false, "a case of 4 layers in little memory: to try it out, not to quote")
	cmd.Flags().IntVar(&f.rounds, "rounds", rounds, "`N` interleaved samples of each variant")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "`SEED` of the random block tables")
}

func (f *benchFlags) check() error {
	if f.rounds < 1 || f.rounds > 1000 {
		return usagef("--rounds %d: want 1 to 1000", f.rounds)
	}
	return nil
}

func (f *benchFlags) layers() int {
	if f.small {
		return 4
	}
	return 80
}

// The request of the reference case: 4,096 tokens in blocks of 16.
const (
	referenceTokens = 4096
	referenceBlock  = 16
)

// referenceBytes is what one destination rank of the reference case receives:
// 335.5 MB with 80 layers.
func referenceBytes(layers int) int64 {
	return int64(layers) * 2 /* k, v */ * 2 /* heads a rank */ * referenceTokens * 128 * 2
}

func benchPlanCommand(a *app) *cobra.Command {
	var flags benchFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "planning, proving and stamping the 70B pair, against one thread's contiguous copy of its bytes",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.benchPlan(cmd.Context(), &flags)
		},
	}
	flags.add(cmd, 9)
	return cmd
}

// table is a random block table of the reference request.
func table(rng *rand.Rand, blocks int) []uint32 {
	ids := make([]uint32, 0, referenceTokens/referenceBlock)
	for _, id := range rng.Perm(blocks)[:cap(ids)] {
		ids = append(ids, uint32(id))
	}
	return ids
}

func (a *app) benchPlan(ctx context.Context, flags *benchFlags) error {
	layers := flags.layers()
	text := reference(layers, 512, 1024, "hnd", "hnd")
	pol, err := (&policyFlags{name: defaultPolicy}).open(ctx)
	if err != nil {
		return err
	}
	defer pol.close()

	// What everything below works on.
	f, err := pairfile.Parse("reference", text)
	if err != nil {
		return err
	}
	pair, _, err := f.Pair(nil)
	if err != nil {
		return err
	}
	assignments, err := pol.remap(ctx, pair)
	if err != nil {
		return err
	}
	pl, err := build.Build(pair, assignments, nil, plan.DefaultBudget())
	if err != nil {
		return err
	}
	proven, err := proof.Check(pair, pl)
	if err != nil {
		return err
	}
	st, err := stamp.New(proven)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(flags.seed, 0))
	req := &stamp.Request{ID: "bench", Plan: proven.Digest(), Source: [][]uint32{table(rng, 512)}, Destination: [][]uint32{table(rng, 1024)}, To: referenceTokens}
	if err := st.Validate(req); err != nil {
		return err
	}

	// Memory of one planning from file to proof, before the timing fills the
	// heap.
	bytes, objects, err := allocated(func() error {
		p, _, err := f.Pair(nil)
		if err != nil {
			return err
		}
		pl, err := build.Build(p, assignments, nil, plan.DefaultBudget())
		if err != nil {
			return err
		}
		_, err = proof.Check(p, pl)
		return err
	})
	if err != nil {
		return err
	}

	key := stamp.EdgeKey{Source: 0, Destination: 1}
	stamper, loop := newStampers(st, req, key)
	if err := stamper.check(loop); err != nil {
		return err
	}
	// The least of several walks: the runtime's own goroutines allocate too.
	var stampBytes, stampObjects uint64
	for i := range 8 {
		b, n, err := allocated(stamper.run)
		if err != nil {
			return err
		}
		if i == 0 || n < stampObjects {
			stampBytes, stampObjects = b, n
		}
	}

	total := referenceBytes(layers)
	contiguous, free, err := newContiguous(total)
	if err != nil {
		return err
	}
	defer free()
	// A pair that the policy has not seen, each time: only the name is new.
	calls := 0
	unknown := *pair
	call := func() error {
		calls++
		unknown.Source.Engine = fmt.Sprintf("prefill-%d", calls)
		_, err := pol.remap(ctx, &unknown)
		return err
	}
	cached := func() error {
		_, err := pol.remap(ctx, pair)
		return err
	}
	t, err := a.interleave(ctx, flags.rounds,
		variant{"contiguous copy", 1, contiguous.run},
		variant{"build", 1, func() error { _, err := build.Build(pair, assignments, nil, plan.DefaultBudget()); return err }},
		variant{"prove", 1, func() error { _, err := proof.Check(pair, pl); return err }},
		variant{"build and prove", 1, func() error {
			pl, err := build.Build(pair, assignments, nil, plan.DefaultBudget())
			if err != nil {
				return err
			}
			_, err = proof.Check(pair, pl)
			return err
		}},
		variant{"policy call", 1, call},
		variant{"cached lookup", 64, cached},
		variant{"plain loop", 8, loop.run},
		variant{"stamp", 8, stamper.run},
	)
	if err != nil {
		return err
	}
	copyTime, both, lookup, plain, stamped := t[0], t[3], t[5], t[6], t[7]
	segments := int64(stamper.n)
	r := &report{Bench: "bench plan", Small: flags.small, Rounds: flags.rounds, Verified: true,
		Case: fmt.Sprintf("%d layers, 8 kv heads, dim 128, bf16, block 16, TP 2 -> 4, HND: %d runs, %d assignments, %d tokens", layers, len(pl.Runs), len(assignments), referenceTokens)}
	r.Rows = []row{
		moved("contiguous copy, 1 thread", copyTime, total, 0),
		timed("build", t[1]),
		timed("prove", t[2]),
		timed("build and prove", both).against(judge("contiguous copy", both.median/copyTime.median, "most", 0.05, 0.2)),
		{Name: "planning allocates", Value: float64(bytes) / (1 << 20), Unit: fmt.Sprintf("MiB in %d objects", objects),
			Compared: []compare{judge("32 MB", float64(bytes)/32e6, "most", 0, 1)}},
		timed("policy call", t[4]),
		timed("cached lookup", lookup).against(judge("contiguous copy", lookup.median/copyTime.median, "most", 0.001, 0.001)),
		{Name: "plan runs", Value: float64(len(pl.Runs)), Unit: "runs", Compared: []compare{judge("4096 runs", float64(len(pl.Runs))/4096, "most", 0, 1)}},
		{Name: "plain loop", Seconds: plain.median, Best: plain.best, Pieces: segments},
		{Name: "stamp, one rank's request", Seconds: stamped.median, Best: stamped.best, Pieces: segments,
			Compared: []compare{judge("plain loop", stamped.median/plain.median, "most", 2, 4), judge("40960 segments", float64(segments)/40960, "most", 0, 1)}},
		{Name: "stamping allocates", Value: float64(stampObjects), Unit: fmt.Sprintf("objects a request (%d B)", stampBytes),
			Compared: []compare{judge("one object", float64(stampObjects), "most", 0, 0)}},
	}
	large, err := a.largestRows(ctx, pol, flags)
	if err != nil {
		return err
	}
	r.Rows = append(r.Rows, large...)
	return a.report(r)
}

// stamper and loop write the same segments into a small ring, as a provider
// that consumes them at once does: one through the cursor, the other by
// indexing the tables itself.
type stamper struct {
	st   *stamp.Stamper
	req  *stamp.Request
	key  stamp.EdgeKey
	c    stamp.Cursor
	ring []stamp.Segment
	n    int
}

type plainLoop struct {
	runs                []plan.Run
	source, destination []uint32
	stride, to          []int64 // of one block, by run
	ring                []stamp.Segment
	n                   int
}

const ringSize = 1 << 12

func newStampers(st *stamp.Stamper, req *stamp.Request, key stamp.EdgeKey) (*stamper, *plainLoop) {
	p := st.Proven()
	l := &plainLoop{source: req.Source[0], destination: req.Destination[0], ring: make([]stamp.Segment, ringSize)}
	for _, e := range p.Plan().Edges {
		if e.Source == key.Source && e.Destination == key.Destination {
			l.runs = p.Plan().Runs[e.From:e.To]
		}
	}
	for i := range l.runs {
		r := &l.runs[i]
		l.stride = append(l.stride, plan.BlockOffset(p.Pair().Source.Ranks[key.Source][0], r.SourceMap, 1))
		l.to = append(l.to, plan.BlockOffset(p.Pair().Destination.Ranks[key.Destination][0], r.DestinationMap, 1))
	}
	return &stamper{st: st, req: req, key: key, ring: make([]stamp.Segment, ringSize)}, l
}

func (s *stamper) run() error {
	if err := s.st.Cursor(s.req, s.key, &s.c); err != nil {
		return err
	}
	n := 0
	for s.c.Next(&s.ring[n&(ringSize-1)]) {
		n++
	}
	s.n = n
	return nil
}

func (l *plainLoop) run() error {
	n := 0
	for i := range l.runs {
		r := &l.runs[i]
		for k, id := range l.source {
			l.ring[n&(ringSize-1)] = stamp.Segment{Run: r, SourceOffset: r.SourceOffset + int64(id)*l.stride[i], DestinationOffset: r.DestinationOffset + int64(l.destination[k])*l.to[i], Blocks: 1}
			n++
		}
	}
	l.n = n
	return nil
}

// check runs both and compares how much they wrote and what they wrote last.
func (s *stamper) check(l *plainLoop) error {
	if err := s.run(); err != nil {
		return err
	}
	if err := l.run(); err != nil {
		return err
	}
	if s.n != l.n {
		return fmt.Errorf("bench: stamp yields %d segments, the plain loop %d", s.n, l.n)
	}
	for i := range min(s.n, ringSize) {
		k := (s.n - 1 - i) & (ringSize - 1)
		if s.ring[k] != l.ring[k] {
			return fmt.Errorf("bench: segment %d is %+v by stamp, %+v by the plain loop", s.n-1-i, s.ring[k], l.ring[k])
		}
	}
	return nil
}
