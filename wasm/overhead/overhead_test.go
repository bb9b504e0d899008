package overhead_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/overhead"
)

var ctx = context.Background()

// pair opens a module as it is and metered.
func pair(t *testing.T, wasm []byte, interpreter bool) (plain, metered *overhead.Guest) {
	t.Helper()
	var out [2]*overhead.Guest
	for i := range out {
		g, err := overhead.Open(ctx, wasm, i == 1, interpreter)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		out[i] = g
	}
	return out[0], out[1]
}

// Every loop passes the preflight, goes round as often as it is told, and gives
// the same metered and not, with the fuel of each round paid.
func TestLoops(t *testing.T) {
	for _, l := range overhead.Loops() {
		t.Run(l.Name, func(t *testing.T) {
			if err := meter.Check(l.Wasm, meter.Policy()); err != nil {
				t.Fatal(err)
			}
			for _, interpreter := range []bool{false, true} {
				plain, metered := pair(t, l.Wasm, interpreter)
				var before uint64
				for _, rounds := range []uint64{1, 10, 1000, 1010} {
					a, took, err := plain.Run(ctx, "run", rounds)
					if err != nil {
						t.Fatal(err)
					}
					if took.Fuel != 0 || took.Time <= 0 {
						t.Errorf("as it is: %+v", took)
					}
					b, took, err := metered.Run(ctx, "run", rounds)
					if err != nil || a != b {
						t.Fatalf("%d rounds: %d, metered %d, %v", rounds, a, b, err)
					}
					if took.Fuel < before+rounds {
						t.Errorf("%d rounds: %d of fuel", rounds, took.Fuel)
					}
					before = took.Fuel - rounds
				}
			}
		})
	}
}

// A spinning policy passes the preflight, declines, and costs as much a round
// however often it goes round.
func TestSpin(t *testing.T) {
	for _, slow := range []bool{false, true} {
		fuel := map[uint32]uint64{}
		for _, rounds := range []uint32{1, 100, 1 << 20} {
			wasm := overhead.Spin(rounds, slow)
			if err := meter.Check(wasm, meter.Policy()); err != nil {
				t.Fatal(err)
			}
			g, err := overhead.Open(ctx, wasm, true, false)
			if err != nil {
				t.Fatal(err)
			}
			status, _, took, err := g.Ask(ctx, "remap", make([]byte, 64))
			if err = errors.Join(err, g.Close(ctx)); err != nil || status != abi.StatusDeclined<<32 {
				t.Fatalf("status %#x, %v", status, err)
			}
			fuel[rounds] = took.Fuel
		}
		if round := (fuel[100] - fuel[1]) / 99; round == 0 || fuel[1<<20] != fuel[1]+round*(1<<20-1) {
			t.Errorf("slow %v: fuel %v", slow, fuel)
		}
	}
}

// A policy that fills much declines, within the fuel of a call, and leaves what it
// says.
func TestFill(t *testing.T) {
	const size = 3<<20 + 17
	wasm := overhead.Fill(size)
	if err := meter.Check(wasm, meter.Policy()); err != nil {
		t.Fatal(err)
	}
	g, err := overhead.Open(ctx, wasm, true, false)
	if err != nil {
		t.Fatal(err)
	}
	status, _, took, err := g.Ask(ctx, "remap", make([]byte, 64))
	if err = errors.Join(err, g.Close(ctx)); err != nil || status != abi.StatusDeclined<<32 || took.Fuel < size/8 || took.Fuel > 4_000_000 {
		t.Errorf("status %#x, %d fuel, %v", status, took.Fuel, err)
	}
}

func TestAsk(t *testing.T) {
	text, err := os.ReadFile("../../policies/heads/vectors/remap-seed.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		In *abi.RemapIn `json:"remap_in"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	wasm, _ := policies.Get("heads")
	plain, metered := pair(t, wasm, false)
	in := v.In.Encode()
	var first []byte
	for range 3 {
		for _, g := range []*overhead.Guest{plain, metered} {
			status, answer, _, err := g.Ask(ctx, "remap", in)
			if err != nil || status>>32 != abi.StatusOk {
				t.Fatalf("status %#x, %v", status, err)
			}
			if _, err := abi.DecodeRemapOut(answer); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = bytes.Clone(answer)
			}
			if !bytes.Equal(answer, first) {
				t.Errorf("answer %x, first %x", answer, first)
			}
		}
	}
	if _, _, _, err := plain.Ask(ctx, "knows", in); err == nil {
		t.Error("a hook that it does not have was asked")
	}
}

func TestOpenRefusals(t *testing.T) {
	loops := overhead.Loops()
	if _, err := overhead.Open(ctx, loops[0].Wasm[:20], false, false); err == nil {
		t.Error("half a module was opened")
	}
	g, _ := pair(t, loops[0].Wasm, false)
	if _, _, _, err := g.Ask(ctx, "remap", nil); err == nil {
		t.Error("a module that is no policy was asked")
	}
}
