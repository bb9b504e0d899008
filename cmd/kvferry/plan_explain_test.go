package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/stamp"
)

// opened opens the built-in policy.
func opened(t *testing.T) *chooser {
	t.Helper()
	pol, err := (policyFlags{name: defaultPolicy}).open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pol.close)
	return pol
}

// prepared carries a pair file to its proof.
func prepared(t *testing.T, pol *chooser, name string) *planned {
	t.Helper()
	p, err := prepare(context.Background(), name, pol)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drawn draws a request of a pair in the words of the command line: random
// tables, of windows the last blocks only, with entries more than are needed,
// and a random range of tokens.
func drawn(t *testing.T, p *planned, rng *rand.Rand, most int64) (*requestFlags, *stamp.Stamper, *stamp.Request) {
	t.Helper()
	st, err := stamp.New(p.proven)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		f := &requestFlags{}
		f.tokens = 1 + rng.Int64N(most)
		for _, side := range []struct {
			s  *plan.Side
			to *[]string
		}{{&p.pair.Source, &f.source}, {&p.pair.Destination, &f.destination}} {
			for g, pool := range side.s.Groups {
				group := &side.s.Model.Groups[g]
				_, need := stamp.Entries(side.s, g, 0, f.tokens)
				n := need
				switch {
				case group.State:
					n = 1
				case pool.Ring > 0:
					n = int64(pool.Ring)
				case group.Window > 0 && rng.IntN(2) == 0:
					n = 1 + rng.Int64N(need)
				default:
					n = need + rng.Int64N(2)
				}
				n = min(n, int64(pool.Blocks))
				var ids []string
				for _, id := range rng.Perm(pool.Blocks)[:n] {
					ids = append(ids, fmt.Sprint(id))
				}
				table := strings.Join(ids, ",")
				if group.Name != "" {
					table = group.Name + ":" + table
				}
				*side.to = append(*side.to, table)
			}
		}
		if rng.IntN(3) == 0 {
			f.from = rng.Int64N(f.tokens)
		}
		req, err := request(p.pair, st, f, 1)
		var refused *stamp.Error
		switch {
		case err == nil:
			return f, st, req
		case !errors.As(err, &refused): // a window that is too short, a pool that is too small, a scale that would be parted
			t.Fatal(err)
		}
	}
	t.Fatal("no request can be served")
	return nil, nil, nil
}

// placed is an element's place: where a rank has it.
type placed struct {
	rank, region int
	bit          int64
}

// search finds an element's places the other way round than explain: it goes
// through what every rank's blocks hold, place by place, and looks which element
// lies there.
func search(s *plan.Side, g int, table []uint32, first int64, at *spot) []placed {
	var out []placed
	c := at.of()
	e := int64(c.EntryTokens())
	for r, layouts := range s.Ranks {
		part, l := s.Part(g, r), layouts[g]
		for li, layer := range part.Layers {
			if layer != at.layer {
				continue
			}
			heads := part.Heads[at.component]
			if heads == nil {
				heads = []int{0}
			}
			for h, head := range heads {
				for i, id := range table {
					for place := range int64(s.Groups[g].Block) / e {
						token := part.Token((first+int64(i))*int64(s.Groups[g].Block) + place*e)
						if at.group.State {
							token = 0
						}
						if head == at.head && token <= at.token && at.token < token+e {
							region, bit := l.Bit(at.component, li, int64(id), place, int64(h), int64(at.dim))
							out = append(out, placed{r, region, bit})
						}
					}
				}
			}
		}
	}
	return out
}

// Every element of every pair: where it lies is where a search through all
// places finds it, the copy named is one of plan show --expand and moves it, and
// it moves exactly where such a copy writes it.
func TestPlanExplainEveryPair(t *testing.T) {
	small, big := glob(t, pairs+"*.yaml", 60), glob(t, "../../testdata/models/*.yaml", 25)
	least := 3000
	if testing.Short() {
		big, least = nil, 300
	}
	pol, moved, still := opened(t), 0, map[string]int{}
	for i, name := range slices.Concat(small, big) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			p := prepared(t, pol, name)
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			requests, elements := 3, 30
			if testing.Short() {
				requests, elements = 2, 8
			}
			if i >= len(small) {
				requests, elements = 1, 40
			}
			most := int64(1)
			for g, period := range p.proven.Plan().Groups {
				most = max(most, 2*period.Tokens, int64(p.pair.Destination.Model.Groups[g].Window)+16)
			}
			for range requests {
				_, st, req := drawn(t, p, rng, min(most, 700))
				list, err := st.Expand(req)
				if err != nil {
					t.Fatal(err)
				}
				x := explainer{p: p, st: st, req: req, copies: map[fed][]stamp.Copy{}}
				for range elements {
					g := rng.IntN(len(p.pair.Source.Groups))
					at := anyElement(p.pair, g, rng, req.To)
					got, err := x.element(g, at)
					if err != nil {
						t.Fatalf("%s: %v", at, err)
					}
					if why := judgeExplained(p.pair, req, g, at, got, list); why != "" {
						t.Fatalf("%s of tokens %d to %d: %s\n%+v", at, req.From, req.To, why, got)
					}
					if got.reason == "" {
						moved++
					} else {
						still[strings.Join(strings.Fields(strings.Map(letters, got.reason))[:3], " ")]++
					}
				}
			}
		})
	}
	t.Logf("%d elements move, of those that do not %v", moved, still)
	if moved < least || len(still) < 3 {
		t.Errorf("%d elements move, of those that do not %v: too few to show anything", moved, still)
	}
}

func letters(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// anyElement draws an element of a group, of a token before a bit behind the
// end.
func anyElement(p *plan.Pair, g int, rng *rand.Rand, end int64) *spot {
	group := &p.Destination.Model.Groups[g]
	at := &spot{group: group, component: rng.IntN(len(group.Components))}
	at.layer = group.Layers[rng.IntN(len(group.Layers))]
	at.asked = at.layer
	at.head, at.dim = rng.IntN(at.of().HeadCount()), rng.IntN(at.of().Dim)
	if !group.State {
		at.token = rng.Int64N(end + 3)
	}
	return at
}

// judgeExplained says what is wrong with what explain says of an element, "" for
// nothing.
func judgeExplained(p *plan.Pair, req *stamp.Request, g int, at *spot, got *explained, list []stamp.Copy) string {
	found := map[string][]placed{
		"source":      search(&p.Source, g, req.Source[g], req.SourceFirst[g], at),
		"destination": search(&p.Destination, g, req.Destination[g], req.DestinationFirst[g], at),
	}
	for side, said := range map[string][]location{"source": got.source, "destination": got.destination} {
		var places []placed
		for _, l := range said {
			if l.Offset == nil {
				continue
			}
			bit := *l.Offset * 8
			if (l.Bit != nil) != (at.of().DType.Bits() < 8) {
				return side + ": a bit is told for whole bytes, or none for parts of one"
			}
			if l.Bit != nil {
				bit += *l.Bit
			}
			places = append(places, placed{l.Rank, l.region, bit})
		}
		if !slices.Equal(places, found[side]) {
			return fmt.Sprintf("%s: places %v, a search finds %v", side, places, found[side])
		}
	}
	// What a copy writes, and from where.
	writer := func(to placed) *stamp.Copy {
		i := slices.IndexFunc(list, func(c stamp.Copy) bool {
			return c.Group == g && c.DestinationRank == to.rank && c.DestinationRegion == to.region && c.DestinationOffset <= to.bit/8 && to.bit/8 < c.DestinationOffset+c.Bytes
		})
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	written := 0
	for _, to := range found["destination"] {
		c := writer(to)
		if c == nil {
			continue
		}
		from := placed{c.SourceRank, c.SourceRegion, to.bit + (c.SourceOffset-c.DestinationOffset)*8}
		if !slices.Contains(found["source"], from) {
			return fmt.Sprintf("%v is written from %v, which is another element", to, from)
		}
		k := slices.IndexFunc(got.carried, func(x carried) bool { return x.Edge.Destination == to.rank })
		if k < 0 {
			return fmt.Sprintf("%v is written, and no copy is named", to)
		}
		if want := (carried{Edge: edgeJSON{c.SourceRank, c.DestinationRank}, Copy: named(p, *c), Byte: to.bit/8 - c.DestinationOffset}); got.carried[k].Edge != want.Edge ||
			fmt.Sprint(got.carried[k].Copy) != fmt.Sprint(want.Copy) || got.carried[k].Byte != want.Byte {
			return fmt.Sprintf("%v is written by %v at %d, told is %v at %d", to, want.Copy, want.Byte, got.carried[k].Copy, got.carried[k].Byte)
		}
		if why := judgeSegment(&got.carried[k]); why != "" {
			return why
		}
		written++
	}
	if (got.reason == "") != (written > 0) || len(got.carried) != written || written > 0 && written != len(got.destination) {
		return fmt.Sprintf("reason %q, %d copies, %d of %d places written", got.reason, len(got.carried), written, len(got.destination))
	}
	return ""
}

// judgeSegment looks whether the run that is named writes the element's byte,
// from the byte that the copy takes it from.
func judgeSegment(c *carried) string {
	want := [2]int64{c.Copy.Source.Offset + c.Byte, c.Copy.Destination.Offset + c.Byte}
	found := 0
	each(c.Segment.Loops, c.Segment.Source.Offset, c.Segment.Destination.Offset, func(so, do int64) {
		if d := want[1] - do; d >= 0 && d < c.Segment.Bytes && so+d == want[0] {
			found++
		}
	})
	if found != 1 || c.Segment.Destination.Region != c.Copy.Destination.Region || c.Segment.Source.Region != c.Copy.Source.Region || (c.Run == nil) == (c.Window == nil) || c.Assignment == "" {
		return fmt.Sprintf("segment %v (run %v, window %v) moves byte %v %d times", c.Segment, c.Run, c.Window, want, found)
	}
	return ""
}

// What the command prints is what was found, and the copy is in the output of
// plan show --expand with the same tables.
func TestPlanExplainJSON(t *testing.T) {
	for _, c := range []struct {
		file, element, group string
		request              []string
		moves                bool
		want                 []string // of the text
	}{
		{"seed", "c=k,layer=0,head=5,token=7,dim=9", "", nil, true, []string{"k layer 0 head 5 token 7 dim 9 (fp16)\n", "  rank 1: layer0+", "block 0, token 7 in it, layer 0 of 1, head 1 of 4 on the rank\n", "    edge 1 -> 2, run 2 of the plan: ", "    assigned: rank 2 <- rank 1: k v, layers 0, heads 4-5\n"}},
		{"seed", "dim=9, token=17, c=v, head=0, layer=0", "", []string{"--source-blocks", "1,3", "--destination-blocks", "2,0"}, true, []string{"block 3, token 1 in it", "block 0, token 1 in it"}},
		{"block-48-32", "c=k,layer=0,head=1,token=35,dim=3", "", []string{"--from", "7", "--tokens", "41"}, true, []string{"run of tokens 7 to 40 of a period"}},
		{"block-48-32", "c=k,layer=0,head=1,token=41,dim=3", "", []string{"--tokens", "41"}, false, []string{"does not move: token 41 is outside the transfer of tokens 0 to 40\n"}},
		{"fp4", "c=k,layer=0,head=1,token=3,dim=3", "", nil, true, []string{" bit 4, block 0"}},
		{"groups-hybrid-mamba2", "c=B,layer=2,channel=19,dim=1", "", []string{"--source-blocks", "attention:2; mamba:3", "--destination-blocks", "mamba:1 attention:0"}, true, []string{"mamba B layer 2 channel 19 dim 1 (bf16)\n", "slot 3, layer 1 of 2, channel 3 of 16 on the rank\n"}},
		{"groups-compressed", "c=kv,layer=1,token=77,dim=1", "c128", []string{"--source-blocks", "window:2,0 c4:1 c128:3", "--destination-blocks", "window:0,1,2 c4:4 c128:7"}, true, []string{"one entry for tokens 0 to 127\n", "moves with tokens 0 to 127\n"}},
		{"groups-compressed", "c=kv,layer=1,token=77,dim=1", "c128", []string{"--tokens", "100"}, false, []string{"its entry for tokens 0 to 127 is partial: it is complete with token 127, and the transfer ends with token 99\n"}},
		{"groups-compressed", "c=kv,layer=1,token=3,dim=1", "window", []string{"--tokens", "400"}, false, []string{"does not move: token 3 is out of the window: the layers look back 128 tokens from token 400 on", "not in the block table (entry 0)"}},
		{"groups-shared", "c=v,layer=6,head=2,token=20,dim=3", "sliding", []string{"--source-blocks", "full:0,1 sliding:3,1", "--destination-blocks", "full:7,6 sliding:5,4"}, true, []string{"sliding v layer 6 head 2", "layer 6 keeps no cache: it reads that of layer 2\n", "rank 1: layer2+"}},
		{"groups-shared", "c=v,layer=6,head=2,token=20,dim=3", "", []string{"--source-blocks", "full:0,1 sliding:3,1", "--destination-blocks", "full:7,6 sliding:5,4"}, true, []string{"sliding v layer 6 head 2", "layer 6 keeps no cache: it reads that of layer 2\n", "rank 1: layer2+"}},
		{"groups-shared", "c=k,layer=3,head=0,token=0,dim=0", "", nil, true, []string{"full k layer 3 head 0"}},
		{"groups-block-scales", "c=k_scale,layer=0,token=35", "", []string{"--source-blocks", "attention:0,1,2", "--destination-blocks", "attention:3,4"}, true, []string{"one entry for tokens 32 to 47\n"}},
		{"groups-draft-destination", "c=v,layer=4,head=2,token=20,dim=3", "draft", nil, false, []string{"destination decode\n  rank 5: layer4+", "does not move: group draft is absent: decode has it and prefill has not; nothing fills it\n"}},
		{"groups-draft-source", "c=v,layer=4,head=2,token=20,dim=3", "draft", nil, false, []string{"source prefill\n  rank 0: layer4+", "does not move: group draft is skipped: prefill has it and decode has not\n"}},
	} {
		t.Run(c.file+" "+c.element, func(t *testing.T) {
			args := append([]string{"plan", "explain", pairs + c.file + ".yaml", "--element", c.element}, c.request...)
			if c.group != "" {
				args = append(args, "--group", c.group)
			}
			code, out, errs := kvferry(append(args, "-o", "json")...)
			if code != 0 || errs != "" {
				t.Fatalf("exit status %d, stderr %q", code, errs)
			}
			v := decode[explainJSON](t, out)
			if v.Moves != c.moves || v.Moves == (v.Reason != "") || v.Moves != (len(v.Copies) > 0) || !v.Proof.OK || v.Proof.Elements < 1 || v.Policy.Name != "heads" {
				t.Errorf("moves %v because %q, %d copies, %s", v.Moves, v.Reason, len(v.Copies), out)
			}
			code, text, errs := kvferry(args...)
			for _, want := range c.want {
				if code != 0 || errs != "" || !strings.Contains(text, want) {
					t.Errorf("exit status %d, stderr %q, no %q in\n%s", code, errs, want, text)
				}
			}
			if !c.moves {
				return
			}
			// The request that explain took is that of these tables.
			code, shown, errs := kvferry(append(append([]string{"plan", "show", pairs + c.file + ".yaml", "--expand", "-o", "json", "--tokens", fmt.Sprint(v.Tokens.To)}, tables(c.request, &v)...), c.request...)...)
			if code != 0 {
				t.Fatalf("exit status %d, %s", code, errs)
			}
			for _, copy := range v.Copies {
				one, err := json.Marshal(copy.Copy)
				if err != nil || !strings.Contains(shown, string(one)) {
					t.Errorf("plan show --expand has no %s (%v)", one, err)
				}
			}
		})
	}
}

// tables are the flags for blocks 0, 1, 2, ... where none are given.
func tables(given []string, v *explainJSON) []string {
	if slices.Contains(given, "--source-blocks") || v.Element.Group != "" {
		return nil
	}
	var out []string
	for flag, places := range map[string][]location{"--source-blocks": v.Source, "--destination-blocks": v.Destination} {
		var ids []string
		for i := range places[0].Entry + 1 {
			ids = append(ids, fmt.Sprint(i))
		}
		out = append(out, flag, strings.Join(ids, ","))
	}
	return out
}

// An element that cannot be is a wrong flag where no file could have it, and
// refused with its place where this one does not.
func TestPlanExplainRefuses(t *testing.T) {
	for _, c := range []struct {
		file, element string
		more          []string
		code          int
		want          string
	}{
		{"seed", "", nil, 2, "--element is missing"},
		{"seed", "k", nil, 2, `"k" is no KEY=VALUE`},
		{"seed", "c=k", nil, 2, "want at least c and layer"},
		{"seed", "layer=0", nil, 2, "want at least c and layer"},
		{"seed", "c=,layer=0", nil, 2, "c is empty"},
		{"seed", "c=k,layer=0,row=1", nil, 2, `"row" is no part of an element`},
		{"seed", "c=k,layer=0,layer=0", nil, 2, "layer is given twice"},
		{"seed", "c=k,layer=0,head=0,channel=0", nil, 2, "head is given twice"},
		{"seed", "c=k,layer=-1", nil, 2, `layer is "-1": want a number from 0 to 2147483647`},
		{"seed", "c=k,layer=0,token=9999999999999", nil, 2, `token is "9999999999999"`},
		{"seed", "c=k,layer=0,head=0,token=0,dim=0", []string{"--group", "full"}, 2, "--group full: the pair names no groups"},
		{"groups-shared", "c=k,layer=40,head=0,token=0,dim=0", nil, 2, "groups full, sliding have a component of this name: say with --group which is meant"},
		{"groups-shared", "c=k,layer=3,head=0,token=0,dim=0", []string{"--group", "half"}, 2, "--group half: no group has this name (full, sliding)"},
		{"seed", "c=q,layer=0,head=0,token=0,dim=0", nil, 1, "element: component is q: the model has none of this name (k, v)"},
		{"seed", "c=k,layer=7,head=0,token=0,dim=0", nil, 1, "element: layer is 7: the model has layers 0"},
		{"seed", "c=k,layer=0,head=8,token=0,dim=0", nil, 1, "element: head is 8: component k has 0 to 7"},
		{"seed", "c=k,layer=0,token=0,dim=0", nil, 1, "element: head is missing: component k has 0 to 7"},
		{"seed", "c=k,layer=0,head=0,token=0,dim=512", nil, 1, "element: dim is 512: component k has 0 to "},
		{"seed", "c=k,layer=0,head=0,dim=0", nil, 1, "element: token is missing: the model keeps something for each token"},
		{"seed", "c=k,layer=0,channel=0,token=0,dim=0", nil, 1, "element: channel is 0: the model has heads: say head="},
		{"mla", "c=latent,layer=0,head=1,token=0,dim=0", nil, 1, "component latent has no heads: leave it out"},
		{"groups-hybrid-mamba2", "c=ssm,layer=0,head=1,dim=0", nil, 1, "group mamba has channels: say channel="},
		{"groups-hybrid-mamba2", "c=ssm,layer=0,channel=1,token=3,dim=0", nil, 1, "group mamba keeps a state, which has no tokens: leave it out"},
		{"groups-hybrid-mamba2", "c=ssm,layer=1,channel=1,dim=0", nil, 1, "element: layer is 1: group mamba has layers 0,2"},
		{"groups-hybrid-mamba2", "c=k,layer=0,channel=1,dim=0", []string{"--group", "mamba"}, 1, "element: component is k: group mamba has x, B, C, ssm"},
		{"seed", "c=k,layer=0,head=0,token=0,dim=0", []string{"--source-blocks", "9"}, 1, "pool of 4"},
		{"seed", "c=k,layer=0,head=0,token=0,dim=0", []string{"--from", "-1"}, 2, "--from -1"},
	} {
		args := append([]string{"plan", "explain", pairs + c.file + ".yaml", "--element", c.element}, c.more...)
		code, out, errs := kvferry(args...)
		if code != c.code || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q, want %q", args, code, out, errs, c.want)
		}
		if c.code != exitFailed {
			continue
		}
		code, out, errs = kvferry(append(args, "-o", "json")...)
		v := decode[shown](t, out)
		if code != 1 || errs != "" || v.Error == nil || v.Error.Fault != "operator" || len(v.Error.Fields) != 1 {
			t.Errorf("%v: exit status %d, stderr %q, JSON %s", args, code, errs, out)
		}
	}
}
