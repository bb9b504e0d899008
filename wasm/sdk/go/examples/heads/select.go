//go:build wasip1

package main

import "github.com/kvferry/kvferry/wasm/sdk/go/kvferry"

// score is how a combination of an own candidate and a peer's compares: lower
// is better, the first field first.
type score struct {
	weight uint64 // pieces a GiB, times what attention costs on both sides in per cent
	order  uint32 // places in both engines' orders of preference, added
	source uint32 // place in the source's
	usable bool
}

func better(a, b *score) bool {
	switch {
	case a.usable != b.usable:
		return a.usable
	case a.weight != b.weight:
		return a.weight < b.weight
	case a.order != b.order:
		return a.order < b.order
	}
	return a.source < b.source
}

// rate is pieces a GiB.
func rate(c kvferry.Cost) uint64 {
	r := (min(c.Pieces(), 1<<33-1) << 30) / max(c.Bytes(), 1)
	return min(max(r, 1), 1<<34)
}

// attention is in per cent of what it costs at best.
func attention(c kvferry.Candidate) uint64 { return 100 + min(uint64(c.Attention()), 10000) }

// judge scores own candidate i against every peer, by the best that each can do.
// failed is a peer that it cannot be planned with.
func judge(q kvferry.SelectLayoutIn, i uint32, failed *uint32) score {
	own, peers := q.Candidates().At(i), q.Peers()
	costs := own.Costs()
	sum := score{usable: true}
	for p := range peers.Len() {
		theirs := peers.At(p).Candidates()
		var best score
		for n := uint32(0); n < costs.Len() && work <= maxWork; n++ {
			cost := costs.At(n)
			if c := cost.Candidate(); cost.Peer() == p && c < theirs.Len() {
				s := score{rate(cost) * attention(own) * attention(theirs.At(c)), i + c, c, true}
				if q.Role() == kvferry.RoleSource {
					s.source = i
				}
				if better(&s, &best) {
					best = s
				}
			}
			work++
		}
		if !best.usable {
			*failed = p
			return best
		}
		if sum.weight+best.weight < sum.weight {
			sum.weight = 1<<64 - 1
		} else {
			sum.weight += best.weight
		}
		sum.order += best.order
		sum.source += best.source
	}
	if peers.Len() == 0 {
		return score{attention(own), i, i, true}
	}
	return sum
}

func explain(q kvferry.SelectLayoutIn, l *kvferry.Line, best uint32, s, worst *score, kept bool) {
	candidates, peers := q.Candidates(), q.Peers().Len()
	l.SayBytes(candidates.At(best).Name(), 100)
	switch {
	case kept:
		l.Say(": kept, as answered before")
		return
	case candidates.Len() == 1:
		l.Say(": all that the engine's attention can do")
	case peers == 0:
		l.Say(": no peer is expected; the engine's first choice among those that attention is cheapest on")
	default:
		l.Say(": fewest pieces to move, attention weighed in")
	}
	if peers == 0 {
		return
	}
	l.Say("; weight ").SayNumber(s.weight / 10000).Say(" pieces a GiB")
	if n := candidates.Len(); n > 1 {
		l.Say(", the worst of ").SayNumber(uint64(n)).Say(" candidates ").SayNumber(worst.weight / 10000)
	}
}

func chooseLayout(q kvferry.SelectLayoutIn, a *kvferry.Answer, r kvferry.SelectLayoutOut) kvferry.Status {
	if q.Role() != kvferry.RoleSource && q.Role() != kvferry.RoleDestination {
		return a.Nothing(kvferry.StatusBadInput)
	}
	var line kvferry.Line
	var best, failed uint32
	var least, worst score
	kept := false
	n := q.Candidates().Len()
	for i := uint32(0); i < n && work <= maxWork; i++ {
		s := judge(q, i, &failed)
		if !s.usable {
			continue
		}
		if !worst.usable || better(&worst, &s) {
			worst = s
		}
		if !kept && better(&s, &least) {
			least, best = s, i
		}
		if q.Previous() == i+1 {
			least, best, kept = s, i, true
		}
	}
	switch {
	case work > maxWork:
		line.Say("there are more candidates times peers than this policy looks at")
		return kvferry.Refuse[kvferry.SelectLayoutOut](a, kvferry.StatusUnsupported, &line)
	case !least.usable && n == 0:
		line.Say("the engine offers no layout")
		return kvferry.Refuse[kvferry.SelectLayoutOut](a, kvferry.StatusDeclined, &line)
	case !least.usable:
		line.Say("nothing that the engine's attention can do could be planned with engine ")
		line.SayBytes(q.Peers().At(failed).Engine(), 100)
		return kvferry.Refuse[kvferry.SelectLayoutOut](a, kvferry.StatusDeclined, &line)
	}
	explain(q, &line, best, &least, &worst, kept)
	r.SetIndex(best)
	r.SetReason(line.Text(a))
	return kvferry.StatusOk
}
