package build

import (
	"fmt"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/plan"
)

// pieceKey names the entries that two ranks share: how many tokens they have,
// whether they scale others, the ranks' DCP phases and the assignment's filter.
type pieceKey struct {
	group                         int
	entry                         int
	scales                        bool
	sourcePhase, destinationPhase int
	tokens                        plan.Tokens
}

// piecesOf returns the range of out.Pieces that holds the sequences of entries
// of the window that both ranks hold and the filter selects. Its numbers count
// entries of the class; the table entries are those of all classes.
func (b *builder) piecesOf(g int, class *geometry.Class, sp, dp *shard.Part, filter plan.Tokens) (span, error) {
	if filter.All() {
		filter = plan.Tokens{}
	}
	key := pieceKey{g, class.Entry, class.Scales, sp.Phase, dp.Phase, filter}
	if r, ok := b.pieces[key]; ok {
		return r, nil
	}
	e := class.Entry
	window := b.out.Groups[g]
	if class.Scales && window.From%int64(e) != 0 {
		return span{}, &plan.Error{Side: "pair", Field: "window", Value: window.From, Reason: fmt.Sprintf("it starts inside the %d tokens that share a scale", e)}
	}
	period := plan.Period{From: window.From / int64(e), To: window.To / int64(e)}
	if class.Scales {
		period.To = (window.To + int64(e) - 1) / int64(e)
	}
	sBlock, dBlock := int64(b.pair.Source.Groups[g].Block/e), int64(b.pair.Destination.Groups[g].Block/e)
	pick := &shard.Part{Size: 1, Interleave: 1}
	if filter != (plan.Tokens{}) {
		pick = &shard.Part{Size: filter.Size, Interleave: filter.Interleave / e, Phase: filter.Phase}
	}
	sp, dp = entries(sp, e), entries(dp, e)
	holders := [3]*shard.Part{sp, dp, pick}
	r := span{from: len(b.out.Pieces)}
	for t := period.From; t < period.To; {
		if err := b.step(1); err != nil {
			return span{}, err
		}
		n := period.To - t
		skip := int64(0)
		for _, p := range holders {
			ok, run := held(p, t)
			if !ok {
				skip = max(skip, run)
			}
			n = min(n, run)
		}
		if skip > 0 {
			t += skip
			continue
		}
		su, _ := sp.Local(t)
		du, _ := dp.Local(t)
		n = min(n, sBlock-su%sBlock, dBlock-du%dBlock)
		b.addPiece(r.from, plan.Piece{
			Token: t, Step: 1, Count: n,
			SourceBlock: su / sBlock, SourceToken: su % sBlock, SourceStep: 1,
			DestinationBlock: du / dBlock, DestinationToken: du % dBlock, DestinationStep: 1,
		})
		if len(b.out.Pieces) > b.budget.Pieces {
			return span{}, &plan.TooLarge{What: "pieces", Need: len(b.out.Pieces), Limit: b.budget.Pieces}
		}
		t += n
	}
	r.to = len(b.out.Pieces)
	b.pieces[key] = r
	return r, nil
}

// entries is how a rank's entries of e tokens are dealt, which are never parted.
func entries(p *shard.Part, e int) *shard.Part {
	if e == 1 || p.Size == 1 {
		return p
	}
	return &shard.Part{Size: p.Size, Interleave: p.Interleave / e, Phase: p.Phase}
}

// held reports whether a rank holds token t, and for how many tokens from t on
// that stays so.
func held(p *shard.Part, t int64) (bool, int64) {
	if p.Size == 1 {
		return true, 1 << 62
	}
	i, c := int64(p.Interleave), int64(p.Size)
	if phase := t / i % c; phase != int64(p.Phase) {
		return false, ((int64(p.Phase)-phase+c)%c)*i - t%i
	}
	return true, i - t%i
}

// addPiece appends a piece, or lengthens the last one (not before index from)
// where single tokens follow each other at constant distances in the same
// blocks: so does every rank's share of a block where tokens are dealt singly.
func (b *builder) addPiece(from int, p plan.Piece) {
	if n := len(b.out.Pieces); n > from {
		q := &b.out.Pieces[n-1]
		if p.Count == 1 && q.SourceBlock == p.SourceBlock && q.DestinationBlock == p.DestinationBlock {
			last := q.Count - 1
			dt := p.Token - (q.Token + last*q.Step)
			ds := p.SourceToken - (q.SourceToken + last*q.SourceStep)
			dd := p.DestinationToken - (q.DestinationToken + last*q.DestinationStep)
			if ds > 0 && dd > 0 && (q.Count == 1 || dt == q.Step && ds == q.SourceStep && dd == q.DestinationStep) {
				q.Step, q.SourceStep, q.DestinationStep = dt, ds, dd
				q.Count++
				return
			}
		}
	}
	b.out.Pieces = append(b.out.Pieces, p)
}
