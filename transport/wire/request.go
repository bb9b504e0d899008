package wire

import (
	"github.com/kvferry/kvferry/plan/stamp"
)

// Request appends what a request moves: plan, tokens, spans, layers and edges.
// Its name and tables are not part of it.
func (e *Encoder) Request(r *stamp.Request) {
	e.Raw(r.Plan[:])
	e.I64(r.From)
	e.I64(r.To)
	e.Flag(r.Spans != nil)
	if r.Spans != nil {
		e.U32(uint32(len(r.Spans)))
		for _, s := range r.Spans {
			e.I64(s.From)
			e.I64(s.To)
		}
	}
	e.U32(uint32(r.Layers.From))
	e.U32(uint32(r.Layers.To))
	e.Flag(r.Edges != nil)
	if r.Edges != nil {
		e.U32(uint32(len(r.Edges)))
		for _, k := range r.Edges {
			e.U32(uint32(k.Source))
			e.U32(uint32(k.Destination))
		}
	}
}

// Request reads what a request moves. Whether a plan can serve it is for
// stamp.Stamper.Validate.
func (d *Decoder) Request() (r stamp.Request) {
	d.Raw(r.Plan[:], "plan")
	r.From, r.To = d.I64("from"), d.I64("to")
	if d.Flag("spans") {
		r.Spans = make([]stamp.Span, d.Count(16, "spans"))
		for i := range r.Spans {
			r.Spans[i] = stamp.Span{From: d.I64("spans"), To: d.I64("spans")}
		}
	}
	r.Layers.From, r.Layers.To = d.Small("layers.from"), d.Small("layers.to")
	if d.Flag("edges") {
		r.Edges = make([]stamp.EdgeKey, d.Count(8, "edges"))
		for i := range r.Edges {
			r.Edges[i] = stamp.EdgeKey{Source: d.Small("edges"), Destination: d.Small("edges")}
		}
	}
	return r
}
