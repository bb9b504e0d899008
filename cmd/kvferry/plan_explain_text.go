package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/plan/stamp"
	"github.com/kvferry/kvferry/runtime/policy/decision"
)

// explainJSON is what plan explain prints, a stable interface.
type explainJSON struct {
	File        string            `json:"file"`
	Element     elementJSON       `json:"element"`
	Tokens      *span             `json:"tokens,omitempty"` // of the transfer; left out where the group is in none
	Source      []location        `json:"source"`
	Destination []location        `json:"destination"`
	Moves       bool              `json:"moves"`
	Reason      string            `json:"reason,omitempty"` // why it does not move
	Copies      []carried         `json:"copies,omitempty"` // one a destination rank
	Absent      []string          `json:"absent,omitempty"`
	Skipped     []string          `json:"skipped,omitempty"`
	Proof       *proofJSON        `json:"proof"`
	Policy      *policyJSON       `json:"policy"`
	Layouts     map[string]string `json:"layouts,omitempty"`
	Reasons     map[string]string `json:"reasons,omitempty"`
}

// elementJSON is the element as it was found.
type elementJSON struct {
	Group     string `json:"group,omitempty"`
	Component string `json:"component"`
	DType     string `json:"dtype"`
	Layer     int    `json:"layer"`
	Reads     *int   `json:"reads_layer,omitempty"` // whose cache the layer reads, where it keeps none
	Head      *int   `json:"head,omitempty"`
	Channel   *int   `json:"channel,omitempty"`
	Token     *int64 `json:"token,omitempty"`
	Entry     *span  `json:"entry,omitempty"` // the tokens that share the element, where these are several
	Dim       int    `json:"dim"`
}

func (s *spot) json() elementJSON {
	c := s.of()
	out := elementJSON{Group: s.group.Name, Component: c.Name, DType: c.DType.String(), Layer: s.asked, Dim: s.dim}
	if s.asked != s.layer {
		out.Reads = &s.layer
	}
	switch {
	case c.Heads == 0:
	case s.group.State:
		out.Channel = &s.head
	default:
		out.Head = &s.head
	}
	if !s.group.State {
		out.Token = &s.token
	}
	if c.EntryTokens() > 1 {
		from, to := s.entry()
		out.Entry = &span{from, to}
	}
	return out
}

// explain is plan explain of one file.
func (a *app) explain(ctx context.Context, name string, pol *chooser, flags *explainFlags, el *element) error {
	p, err := prepare(ctx, name, pol)
	if err != nil {
		return err
	}
	gi, err := el.group(&p.file.Model, flags.group)
	if err != nil {
		return err
	}
	at, err := el.in(&p.file.Model.Groups[gi])
	if err != nil {
		return err
	}
	out := explainJSON{File: name, Absent: p.common.Absent, Skipped: p.common.Skipped, Source: []location{}, Destination: []location{},
		Proof: &proofJSON{OK: true}, Policy: pol.json(), Layouts: p.layouts, Reasons: p.reasons}
	st, err := stamp.New(p.proven)
	if err != nil {
		return err
	}
	_, want := at.entry()
	if at.of().Scales != "" {
		want = at.token + 1 // it comes with the first of its tokens
	}
	req, err := request(p.pair, st, &flags.requestFlags, max(want, flags.tokens))
	if err != nil {
		return err
	}
	out.Proof.Elements = elements(p.pair, req)
	m := &p.pair.Destination.Model
	g := slices.IndexFunc(m.Groups, func(o geometry.Group) bool { return o.Name == at.group.Name })
	var side *plan.Side // that the places of a group of one side belong to
	if g < 0 {
		side, err = out.oneSide(p, at, max(want, flags.tokens))
		if err != nil {
			return err
		}
	} else {
		at.group = &m.Groups[g] // its dtype is the sides'
		out.Tokens = &span{req.From, req.To}
		x := explainer{p: p, st: st, req: req, copies: map[fed][]stamp.Copy{}}
		found, err := x.element(g, at)
		if err != nil {
			return err
		}
		out.Source, out.Destination = append(out.Source, found.source...), append(out.Destination, found.destination...)
		out.Copies, out.Reason, out.Moves = found.carried, found.reason, found.reason == ""
	}
	out.Element = at.json()
	if a.json() {
		return a.emit(out)
	}
	a.explained(p, &out, at, g, side)
	return nil
}

// oneSide finds an element of a group that only one side has, and which the
// pair has not: where it lies on that side.
func (out *explainJSON) oneSide(p *planned, at *spot, want int64) (*plan.Side, error) {
	name, places := pairfile.Destination, &out.Destination
	out.Reason = fmt.Sprintf("group %s is absent: %s has it and %s has not; nothing fills it", at.group.Name, p.pair.Destination.Engine, p.pair.Source.Engine)
	if slices.Contains(p.common.Skipped, at.group.Name) {
		name, places = pairfile.Source, &out.Source
		out.Reason = fmt.Sprintf("group %s is skipped: %s has it and %s has not", at.group.Name, p.pair.Source.Engine, p.pair.Destination.Engine)
	}
	all, err := p.file.Engine(name, func(side string, group int) (int, error) {
		return p.decided[decision.Offered{Side: side, Group: group}], nil
	})
	if err != nil {
		return nil, err
	}
	g := slices.IndexFunc(all.Model.Groups, func(o geometry.Group) bool { return o.Name == at.group.Name })
	own := plan.Side{Engine: all.Engine, Model: all.Model.Select([]int{g}), Shard: all.Shard, Groups: all.Groups[g : g+1]}
	for _, layouts := range all.Ranks {
		own.Ranks = append(own.Ranks, layouts[g:g+1])
	}
	at.group = &own.Model.Groups[0]
	tables, _ := ownTables(&own, want)
	held, first, err := stamp.Held(&own, tables, want)
	var e *stamp.Error
	if errors.As(err, &e) {
		return nil, &refusal.Group{Name: at.group.Name, Err: &stamp.Error{Field: name + " table", Value: e.Value, Reason: e.Reason}}
	} else if err != nil {
		return nil, err
	}
	*places = append(*places, locate(&own, 0, held[0], first[0], at)...)
	return &own, nil
}

// explained writes what was found for people.
func (a *app) explained(p *planned, out *explainJSON, at *spot, g int, only *plan.Side) {
	c := at.of()
	fmt.Fprintf(a.out, "%s (%s)\n", at, c.DType)
	if at.asked != at.layer {
		fmt.Fprintf(a.out, "layer %d keeps no cache: it reads that of layer %d\n", at.asked, at.layer)
	}
	if c.EntryTokens() > 1 {
		from, to := at.entry()
		fmt.Fprintf(a.out, "one entry for tokens %d to %d\n", from, to-1)
	}
	for _, end := range []struct {
		name   string
		side   *plan.Side
		places []location
	}{{"source", &p.pair.Source, out.Source}, {"destination", &p.pair.Destination, out.Destination}} {
		side, group := end.side, g
		if only != nil {
			if len(end.places) == 0 {
				continue
			}
			side, group = only, 0
		}
		fmt.Fprintf(a.out, "%s %s\n", end.name, side.Engine)
		for _, l := range end.places {
			fmt.Fprintf(a.out, "  %s\n", l.text(side, group, at))
		}
	}
	if !out.Moves {
		fmt.Fprintf(a.out, "does not move: %s\n", out.Reason)
		return
	}
	if at.group.State {
		fmt.Fprintln(a.out, "moves with the state")
	} else {
		fmt.Fprintf(a.out, "moves with tokens %d to %d\n", out.Tokens.From, out.Tokens.To-1)
	}
	for i := range out.Copies {
		c := &out.Copies[i]
		fmt.Fprintf(a.out, "  %s: byte %d of it\n", c.Copy, c.Byte)
		of := ""
		if c.Run != nil {
			of = fmt.Sprintf(" %d of the plan", *c.Run)
		} else if c.Window != nil {
			of = fmt.Sprintf(" of tokens %d to %d of a period", c.Window.From, c.Window.To-1)
		}
		fmt.Fprintf(a.out, "    edge %d -> %d, run%s: %s\n", c.Edge.Source, c.Edge.Destination, of, c.Segment.Copy)
		fmt.Fprintf(a.out, "    assigned: %s\n", c.Assignment)
	}
}

// text is a place in words.
func (l *location) text(s *plan.Side, g int, at *spot) string {
	t := fmt.Sprintf("rank %d: ", l.Rank)
	if l.Block == nil {
		t += fmt.Sprintf("not in the block table (entry %d)", l.Entry)
	} else {
		t += fmt.Sprintf("%s+%d", l.Region, *l.Offset)
		if l.Bit != nil {
			t += fmt.Sprintf(" bit %d", *l.Bit)
		}
		block, place := "block", fmt.Sprintf(", token %d in it", l.Place)
		switch {
		case at.group.State:
			block, place = "slot", ""
		case at.of().EntryTokens() > 1:
			place = fmt.Sprintf(", entry %d in it", l.Place)
		}
		t += fmt.Sprintf(", %s %d%s", block, *l.Block, place)
	}
	part := s.Part(g, l.Rank)
	t += fmt.Sprintf(", layer %d of %d", l.Layer, len(part.Layers))
	if heads := part.Heads[at.component]; heads != nil {
		row := "head"
		if at.group.State {
			row = "channel"
		}
		t += fmt.Sprintf(", %s %d of %d", row, l.Head, len(heads))
	}
	return t + " on the rank"
}
