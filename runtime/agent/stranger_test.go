package agent_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/session"
	"github.com/kvferry/kvferry/runtime/transfer"
	"github.com/kvferry/kvferry/transport"
)

// tell sends a message of a transfer.
func tell(t *testing.T, c net.Conn, m transfer.Message) {
	t.Helper()
	payload, err := transfer.Encode(m)
	var frame []byte
	if err == nil {
		frame, err = session.AppendFrame(nil, session.Type(m.Type()), payload)
	}
	if err == nil {
		_, err = c.Write(frame)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a peer names in an Open is looked up, never trusted: plans, providers.
func TestOpensOfStrangers(t *testing.T) {
	var r rig
	p := parsePair(t, tp2, tp4)
	d := r.node(t, "b", &p.Destination, nil)
	x, err := d.engine.Expect(t.Context(), agent.Expect{Request: "w", Tables: d.table(32), Tokens: 32, TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stranger(t, &r, d, &p.Source, func(raw net.Conn, m *session.Machine) {
		plan := m.Result().Alternatives[0].Proven.Digest().String()
		for i, c := range []struct {
			name      string
			plan      string
			providers []string
			code      transfer.Code
		}{
			{"a plan that was never agreed on", "sha256:" + strings.Repeat("0", 64), []string{"loop"}, "plan"},
			{"no plan", "", []string{"loop"}, "plan"},
			{"no provider", plan, nil, "range"},
			{"a provider that is not connected", plan, []string{"loop", "tcp"}, "range"},
			{"a provider twice", plan, []string{"loop", "loop"}, "range"},
		} {
			tell(t, raw, &transfer.Open{X: uint64(i + 1), Kind: transfer.ToWrite, Ticket: string(x.Ticket()), Ranks: []int{0, 1}, Plan: c.plan, Providers: c.providers, To: 32, Layers: [2]int{0, 4}, End: 32, First: []int64{0}})
			for {
				typ, payload := hear(t, raw)
				if typ == session.Type(transfer.TypeBeat) {
					continue
				}
				got, err := transfer.Decode(uint8(typ), payload)
				if refused, ok := got.(*transfer.Refused); err != nil || !ok || refused.Failure.Code != c.code {
					t.Errorf("%s: %s, %v", c.name, payload, err)
				}
				break
			}
		}
		// And the loads of a rank that it has not end the connection.
		tell(t, raw, &transfer.Beat{Loads: []transfer.Load{{Rank: 7, Load: 3}}})
		for {
			if typ, _ := hear(t, raw); typ == 0 {
				break
			}
		}
	})
	x.Cancel()
	wait(t, "free", x.Free)
}

// Agents that push their own ranks of one engine take the same plan, whatever
// each one's policy would choose.
func TestAgentsPushUnderOnePlan(t *testing.T) {
	p := parsePair(t, tp8, tp2)
	var r rig
	key := option(func(c *agent.Config, s *agent.EngineSpec) { s.Key = bytes.Repeat([]byte{5}, 32) })
	s := []*node{r.node(t, "a0", &p.Source, []int{0, 2, 4, 6}, key), r.node(t, "a1", &p.Source, []int{1, 3, 5, 7}, key)}
	d := r.node(t, "b", &p.Destination, nil)
	d.policy.picks = []func(int, []int) int{replica(1), replica(0)}
	const tokens = 40
	st, dt := s[0].table(tokens), d.table(tokens)
	d.soil()
	e, err := d.engine.Expect(t.Context(), agent.Expect{Request: "w", Tables: dt, Tokens: tokens, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s {
		n.fill(1, st, allLayers, 0, tokens)
		n.policy.route = func(q policy.RouteQuestion) (policy.Decision, []policy.Clamped, error) {
			return policy.Decision{Alternative: len(q.Alternatives) - 1}, nil, nil
		}
	}
	for _, n := range s {
		x, err := n.dial(transport.Source, d).Push(t.Context(), agent.Push{Ticket: e.Ticket(), Tables: st, Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, "push", func(ctx context.Context) error {
			result, err := x.Wait(ctx)
			if err == nil && (result.Route.Alternative != 0 || result.Route.Proved != 1) {
				t.Errorf("%+v", result.Route)
			}
			return err
		})
	}
	wait(t, "expectation", func(ctx context.Context) error { _, err := e.Wait(ctx); return err })
	d.check("pushed", moved{1, dt, allLayers, 0, tokens})
}
