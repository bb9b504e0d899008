package transport

import (
	"math/rand/v2"
	"testing"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

func TestEntriesAreThoseOfTheTokens(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for range 5000 {
		side := plan.Side{
			Shard:  shard.Spec{DCPSize: 1 + rng.IntN(4), Interleave: 1 + rng.IntN(5)},
			Groups: []plan.Pool{{Block: 1 + rng.IntN(6)}},
		}
		from := rng.Int64N(60)
		to := from + rng.Int64N(40)
		lo, hi := Entries(&side, 0, from, to)
		if from == to {
			if lo != hi {
				t.Fatalf("no tokens: [%d, %d)", lo, hi)
			}
			continue
		}
		wantLo, wantHi := int64(1<<40), int64(-1)
		for phase := range side.Shard.DCPSize {
			p := shard.Part{Size: side.Shard.DCPSize, Interleave: side.Shard.Interleave, Phase: phase}
			for tok := from; tok < to; tok++ {
				if u, ok := p.Local(tok); ok {
					e := u / int64(side.Groups[0].Block)
					wantLo, wantHi = min(wantLo, e), max(wantHi, e+1)
				}
			}
		}
		if lo != wantLo || hi != wantHi {
			t.Fatalf("dcp %d interleave %d block %d tokens [%d, %d): entries [%d, %d), want [%d, %d)",
				side.Shard.DCPSize, side.Shard.Interleave, side.Groups[0].Block, from, to, lo, hi, wantLo, wantHi)
		}
	}
}
