package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
)

// hybrid is a model with a group of every kind: full attention in fp8 with
// scales, a window that the destination keeps in a ring, states, a compressed
// cache, and a draft that the destination alone has.
const hybrid = `kvferry: pair/1
model:
  name: hybrid
  layers: 8
  groups:
    - name: full
      layers: [1, 5]
      components:
        - {name: k, heads: 4, dim: 8, dtype: fp8}
        - {name: k_scale, heads: 4, dim: 1, dtype: fp32, tokens_per_entry: 8, scales: k}
        - {name: v, heads: 4, dim: 8, dtype: bf16}
    - name: window
      window: 24
      layers: [0, 2]
      components:
        - {name: k, heads: 2, dim: 4, dtype: fp32}
        - {name: v, heads: 2, dim: 4, dtype: fp32}
    - name: state
      state: true
      layers: [3, 4, 6]
      components:
        - {name: x, channels: 16, dim: 3, dtype: bf16}
        - {name: B, channels: 8, unit: 4, dim: 3, dtype: bf16}
        - {name: ssm, channels: 4, dim: 32, dtype: fp32}
    - name: compressed
      layers: [5]
      components:
        - {name: c, heads: 0, dim: 6, dtype: bf16, tokens_per_entry: 4}
    - name: draft
      optional: true
      layers: [7]
      components:
        - {name: k, heads: 4, dim: 4, dtype: fp32}
        - {name: v, heads: 4, dim: 4, dtype: fp32}
source:
  engine: prefill
  shard: {tp: 2, pp: [3, 5]}
  groups:
    full: {block: 8, blocks: 40, layout: {order: [block, component, {k: [head, token, dim], k_scale: [head, token, dim], v: [token, head, dim]}]}}
    window: {block: 8, blocks: 40, layout: {order: [block, head, token, component, dim]}}
    state: {slots: 6, layout: {order: [slot, component, channel, dim]}}
    compressed: {block: 16, blocks: 20, layout: {order: [block, token, dim]}}
destination:
  engine: decode
  shard: {tp: 4}
  groups:
    full: {block: 24, blocks: 20, layout: {order: [component, block, token, head, dim]}}
    window: {block: 4, blocks: 40, ring: 8, layout: {order: [block, token, head, component, dim]}}
    state: {slots: 5, layout: {order: [slot, {"x,B": [dim, component, channel], ssm: [channel, dim]}]}}
    compressed: {block: 8, blocks: 40, layout: {order: [block, token, dim]}}
    draft: {block: 16, blocks: 20, layout: {order: [block, head, token, component, dim]}}
`

// engines parses a pair file and returns both engines with all their groups.
func engines(t testing.TB, text string) (source, destination plan.Side) {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if source, err = f.Engine(pairfile.Source, nil); err != nil {
		t.Fatal(err)
	}
	if destination, err = f.Engine(pairfile.Destination, nil); err != nil {
		t.Fatal(err)
	}
	return source, destination
}

// blocksOf hands out distinct blocks of every group for n tokens, from block
// number from on.
func blocksOf(side *plan.Side, n int64, from int) [][]uint32 {
	out := make([][]uint32, len(side.Groups))
	for g, pool := range side.Groups {
		_, entries := stamp.Entries(side, g, 0, n)
		if pool.Ring > 0 {
			entries = int64(pool.Ring)
		}
		for i := range entries {
			out[g] = append(out[g], uint32((from+7*int(i))%pool.Blocks))
		}
	}
	return out
}

// row is what rows calls write about: one row of one component, -1 where it has
// no heads.
type row struct {
	group, component string
	layer, head      int
	from, to         int64 // its tokens; 0 and 1 in a state
}

// rows is what a request leaves in one rank's memory: every byte of every row
// that moves is a function of the row's coordinate.
func (n *node) rows(side *plan.Side, rank int, tables [][]uint32, spans []stamp.Span, write func(of row, b []byte, v byte)) {
	for g := range side.Groups {
		l, span := side.Ranks[rank][g], spans[g]
		if l == nil || span.Empty() {
			continue
		}
		group, part, pool := &side.Model.Groups[g], side.Part(g, rank), side.Groups[g]
		for ci, c := range group.Components {
			e := int64(c.EntryTokens())
			from, to := span.From, span.To
			if !group.State {
				from, to = c.Entries(from, to)
			}
			heads := part.Heads[ci]
			if c.Heads == 0 {
				heads = []int{0}
			}
			for li, layer := range part.Layers {
				for hi, head := range heads {
					for entry := from; entry < to; entry++ {
						at, place := int64(0), int64(0)
						if !group.State {
							u := entry * e // no context parallelism here
							at, place = u/int64(pool.Block), u%int64(pool.Block)/e
							if pool.Ring > 0 {
								at %= int64(pool.Ring)
							}
						}
						of := row{group.Name, c.Name, layer, head, entry * e, (entry + 1) * e}
						if c.Heads == 0 {
							of.head = -1
						}
						for d := range c.Dim {
							region, bit := l.Bit(ci, li, int64(tables[g][at]), place, int64(hi), int64(d))
							b := n.pools[rank].Buffer(g, region).Bytes()[bit/8:][:c.DType.Bits()/8]
							h := fnv.New64a()
							fmt.Fprint(h, group.Name, c.Name, layer, head, entry, d)
							sum := h.Sum64()
							for k := range b {
								write(of, b[k:k+1], byte(sum>>(8*k)))
							}
						}
					}
				}
			}
		}
	}
}

// everything is spans of all groups up to token n.
func everything(side *plan.Side, n int64) []stamp.Span {
	out := make([]stamp.Span, len(side.Groups))
	for g := range out {
		out[g] = stamp.Span{From: 0, To: n}
		if side.Model.Groups[g].State {
			out[g] = stamp.Span{From: 0, To: 1}
		}
	}
	return out
}

// compute stands for prefill.
func (n *node) compute(tables [][]uint32, tokens int64) {
	for _, rank := range n.held {
		n.rows(n.side, rank, tables, everything(n.side, tokens), func(_ row, b []byte, v byte) { b[0] = v })
	}
}

// soilAll makes every byte of every group recognisable.
func (n *node) soilAll() {
	for _, rank := range n.held {
		for g, l := range n.side.Ranks[rank] {
			if l == nil {
				continue
			}
			for region := range l.Regions {
				b := n.pools[rank].Buffer(g, region).Bytes()
				for i := range b {
					b[i] = 0xEE
				}
			}
		}
	}
}

// holds compares every byte of the node's memory with what should be there.
func (n *node) holds(what string, tables [][]uint32, spans []stamp.Span) {
	n.t.Helper()
	for _, rank := range n.held {
		got := map[[2]int][]byte{}
		for g, l := range n.side.Ranks[rank] {
			if l != nil {
				for region := range l.Regions {
					b := n.pools[rank].Buffer(g, region).Bytes()
					got[[2]int{g, region}] = bytes.Clone(b)
					for i := range b {
						b[i] = 0xEE
					}
				}
			}
		}
		n.rows(n.side, rank, tables, spans, func(_ row, b []byte, v byte) { b[0] = v })
		for at, have := range got {
			want := n.pools[rank].Buffer(at[0], at[1]).Bytes()
			for i := range have {
				if have[i] != want[i] {
					n.t.Errorf("%s: rank %d group %s region %d byte %d is %#x, want %#x", what, rank, n.side.Model.Groups[at[0]].Name, at[1], i, have[i], want[i])
					break
				}
			}
			copy(want, have)
		}
	}
}

// Every kind of cache in one request: what both sides hold arrives, what is out
// of the window is said, and what the source has not is absent, not valid.
func TestGroupsOfEveryKind(t *testing.T) {
	source, destination := engines(t, hybrid)
	const tokens, prefix = 75, 16
	for name, open := range providers {
		for _, mode := range []string{"pull", "push", "suffix", "layers", "chunks"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				r := rig{open: open}
				s, d := r.node(t, "a", &source, nil), r.node(t, "b", &destination, nil)
				s.soilAll()
				d.soilAll()
				st, dt := blocksOf(&source, tokens, 3), blocksOf(&destination, tokens, 1)
				st[1] = st[1][len(st[1])-5:] // the window's last blocks: tokens 40 to 75
				s.compute(blocksOf(&source, tokens, 3), tokens)
				from := int64(0)
				if mode == "suffix" {
					from = prefix
				}
				var result agent.Result
				if mode == "push" {
					peer := s.dial(transport.Source, d)
					x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "r", Tables: dt, Tokens: tokens, TTL: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					p, err := peer.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens, Integrity: transfer.Full})
					if err != nil {
						t.Fatal(err)
					}
					wait(t, "push", func(ctx context.Context) (err error) { _, err = p.Wait(ctx); return err })
					wait(t, "expectation", func(ctx context.Context) (err error) { result, err = x.Wait(ctx); return err })
					wait(t, "free", x.Free)
				} else {
					peer := d.dial(transport.Destination, s)
					o := offer(t, s, agent.Offer{Request: "r", Tables: st, From: from, Tokens: tokens, Streaming: mode == "layers" || mode == "chunks"})
					p, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, From: from, Tokens: tokens, Integrity: transfer.Full})
					if err != nil {
						t.Fatal(err)
					}
					switch mode {
					case "layers":
						for g, group := range source.Model.Groups {
							for _, l := range group.Layers {
								if err := o.Ready(agent.Box{Group: g, Layers: plan.Range{From: l, To: l + 1}, From: 0, To: tokens}); err != nil && !errors.Is(err, transfer.ErrUnknown) {
									t.Fatal(err)
								}
							}
						}
					case "chunks":
						for at := int64(0); at < tokens; at += 10 {
							for g := range source.Model.Groups {
								if err := o.Ready(agent.Box{Group: g, Layers: plan.Range{From: 0, To: 8}, From: at, To: min(at+10, tokens)}); err != nil && !errors.Is(err, transfer.ErrUnknown) {
									t.Fatal(err)
								}
							}
						}
					}
					if err := p.Landed(t.Context(), agent.Box{Group: 4, Layers: plan.Range{From: 7, To: 8}, From: from, To: tokens}); !errors.Is(err, transfer.ErrAbsent) {
						t.Errorf("waiting for the draft group: %v", err)
					}
					wait(t, "pull", func(ctx context.Context) (err error) { result, err = p.Wait(ctx); return err })
					freed(t, o, transfer.Read)
				}
				spans := everything(&destination, tokens)
				spans[0].From, spans[3].From = from, from
				spans[1].From = 44 // the destination's ring holds 8 blocks of 4, the last of which has 3 tokens
				spans[4] = stamp.Span{}
				d.holds(mode, dt, spans)
				if fmt.Sprint(result.Absent) != "[draft]" {
					t.Errorf("absent %v, want the draft group", result.Absent)
				}
				if want := fmt.Sprintf("[group 1 layers 0-7 tokens %d-43]", from); fmt.Sprint(result.OutOfWindow) != want {
					t.Errorf("out of the window %v, want %s", result.OutOfWindow, want)
				}
				if result.Integrity != transfer.Full {
					t.Errorf("integrity %q, want full", result.Integrity)
				}
				if len(result.ValidBlocks[4]) != 0 || len(result.ValidBlocks[2]) != 1 || len(result.ValidBlocks[1]) != 8 {
					t.Errorf("valid blocks %v: want none of the draft group, the slot and the ring", result.ValidBlocks)
				}
				if slices.ContainsFunc(result.Valid, func(b agent.Box) bool { return b.Group == 4 }) {
					t.Errorf("valid %v: the draft group is absent", result.Valid)
				}
			})
		}
	}
}

// A state is that of one token count: a transfer that ends elsewhere gets none.
func TestStateOfAnotherTokenIsRefused(t *testing.T) {
	source, destination := engines(t, hybrid)
	var r rig
	s, d := r.node(t, "a", &source, nil), r.node(t, "b", &destination, nil)
	peer := d.dial(transport.Destination, s)
	o := offer(t, s, agent.Offer{Request: "r", Tables: blocksOf(&source, 64, 3), Tokens: 64})
	p, err := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: blocksOf(&destination, 40, 1), Tokens: 40})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Wait(t.Context())
	if !errors.Is(err, transfer.ErrRange) || !strings.Contains(err.Error(), `state of group "state" is that of 64 tokens, the transfer ends at 40`) {
		t.Errorf("got %v", err)
	}
}

// flipper calls flip whenever operations have ended.
type flipper struct {
	transport.Provider
	flip func()
}

func (f *flipper) Poll(out []transport.Completion) int {
	n := f.Provider.Poll(out)
	if n > 0 && f.flip != nil {
		f.flip() // each time: an operation that ends later writes over it
	}
	return n
}

// A byte that changes on its way is found, named by all that it is of, and never
// called valid.
func TestIntegrityNamesWhatDiffers(t *testing.T) {
	source, destination := engines(t, hybrid)
	const tokens, rank = 75, 1
	for _, mode := range []string{"pull", "push"} {
		for _, c := range []struct {
			group, component string
			nth              int // byte of the component on the rank
			level            agent.Integrity
		}{
			{"full", "k", 0, transfer.Full}, {"full", "k", 777, transfer.Full}, {"full", "k_scale", 31, transfer.Full}, {"full", "v", 1003, transfer.Full},
			{"window", "k", 77, transfer.Full}, {"window", "v", 130, transfer.Full},
			{"state", "x", 20, transfer.Full}, {"state", "B", 3, transfer.Full}, {"state", "ssm", 127, transfer.Full},
			{"compressed", "c", 50, transfer.Full},
			{"full", "k", 777, transfer.Off},
		} {
			t.Run(fmt.Sprintf("%s/%s %s %d/%q", mode, c.group, c.component, c.nth, c.level), func(t *testing.T) {
				var r rig
				var d *node
				var hurt row
				dt := blocksOf(&destination, tokens, 1)
				flip := func() { // a byte of a row, between the copy and the comparison
					n, spans := 0, everything(d.side, tokens)
					for g := range spans { // a ring keeps what its window reaches
						if w := int64(d.side.Model.Groups[g].Window); w > 0 {
							spans[g].From = tokens - w
						}
					}
					d.rows(d.side, rank, dt, spans, func(of row, b []byte, v byte) {
						if of.group != c.group || of.component != c.component {
							return
						}
						if n++; n == c.nth+1 {
							b[0] = v ^ 4
							hurt = of
						}
					})
				}
				own := func(hit bool) transport.Provider {
					p := &flipper{Provider: r.net.New(loop.Options{Workers: 1})}
					if hit {
						p.flip = flip
					}
					return p
				}
				s := r.nodeWith(t, "a", &source, nil, own(mode == "push"))
				d = r.nodeWith(t, "b", &destination, nil, own(mode == "pull"))
				s.compute(blocksOf(&source, tokens, 3), tokens)
				st := blocksOf(&source, tokens, 3)
				var result agent.Result
				var err error
				if mode == "push" {
					peer := s.dial(transport.Source, d)
					x, e := d.engine.Expect(t.Context(), agent.Expect{Request: "r", Tables: dt, Tokens: tokens, TTL: time.Minute})
					if e != nil {
						t.Fatal(e)
					}
					p, e := peer.Push(t.Context(), agent.Push{Ticket: x.Ticket(), Tables: st, Tokens: tokens, Integrity: c.level})
					if e != nil {
						t.Fatal(e)
					}
					_, sent := p.Wait(t.Context())
					result, err = x.Wait(t.Context())
					if (sent == nil) != (err == nil) {
						t.Errorf("the source hears %v, the destination %v", sent, err)
					}
				} else {
					peer := d.dial(transport.Destination, s)
					o := offer(t, s, agent.Offer{Request: "r", Tables: st, Tokens: tokens})
					p, e := peer.Pull(t.Context(), agent.Pull{Ticket: o.Ticket(), Tables: dt, Tokens: tokens, Integrity: c.level})
					if e != nil {
						t.Fatal(e)
					}
					result, err = p.Wait(t.Context())
				}
				if hurt == (row{}) {
					t.Fatalf("nothing was hurt: rank %d has no byte %d of %s %s", rank, c.nth, c.group, c.component)
				}
				if c.level == transfer.Off {
					if err != nil {
						t.Errorf("nobody looked, and yet: %v", err)
					}
					return
				}
				var found *transfer.Corrupt
				if !errors.Is(err, transfer.ErrCorrupt) || !errors.As(err, &found) {
					t.Fatalf("got %v, want a *transfer.Corrupt", err)
				}
				if len(result.Valid) != 0 {
					t.Errorf("valid %v after %v", result.Valid, err)
				}
				if got := (row{found.Group, found.Component, found.Layer, found.Head, found.From, found.To}); got != hurt {
					t.Errorf("it names %+v, what was hurt is %+v", got, hurt)
				}
				if found.DestinationRank != rank || found.SourceRank < 0 || found.SourceRank >= len(source.Ranks) || source.Ranks[found.SourceRank] == nil {
					t.Errorf("%v: what was hurt lies on destination rank %d", found, rank)
				}
			})
		}
	}
}
