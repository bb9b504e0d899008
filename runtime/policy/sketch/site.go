package sketch

import (
	"bytes"
	"fmt"
	"math/bits"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Route is the question that in asks.
//
// Errors: *Error.
func Route(in *abi.RouteIn) (policy.RouteQuestion, error) {
	none := policy.RouteQuestion{}
	if len(in.Engines) != 2 {
		return none, &Error{Field: "engines", Value: len(in.Engines), Reason: "a transfer has two"}
	}
	q := policy.RouteQuestion{
		Model:  in.Model,
		Source: policy.Party{Name: in.Engines[0].Name, About: about(&in.Engines[0])}, Destination: policy.Party{Name: in.Engines[1].Name, About: about(&in.Engines[1])},
		Tokens: int(in.Tokens), Cached: int(in.Cached), Priority: int(in.Priority),
		Deadline: time.Duration(in.Deadline) * time.Millisecond, Lease: time.Duration(in.Lease) * time.Millisecond,
		Limits:    policy.Limits{Chunk: int64(in.Chunk), Streams: int(in.Streams), Integrity: policy.Integrity(in.Integrity), Recompute: in.Recompute == 1},
		Providers: providers(in.Providers), Edges: edges(in.Edges), Configuration: in.Configuration,
	}
	for _, a := range in.Alternatives {
		flows := []policy.Flow{}
		for _, f := range a.Flows {
			flows = append(flows, policy.Flow{Source: int(f.Source), Destination: int(f.Destination), Bytes: int64(f.Bytes), Pieces: int64(f.Pieces)})
		}
		q.Alternatives = append(q.Alternatives, flows)
	}
	switch len(in.Previous) {
	case 0:
	case 1:
		d, err := q.Accept(&abi.RouteOut{Decisions: in.Previous})
		if err != nil {
			return none, &Error{Field: "previous", Err: err}
		}
		q.Previous = &d
	default:
		return none, &Error{Field: "previous", Value: len(in.Previous), Reason: "want one at most"}
	}
	again, err := q.Input()
	if err != nil {
		return none, &Error{Field: "route_in", Err: err}
	}
	if !bytes.Equal(again.Encode(), in.Encode()) {
		return none, &Error{Field: "route_in", Reason: "what is made of it asks another question"}
	}
	return q, nil
}

func about(r *abi.Engine) policy.About {
	a := policy.About{Software: r.Software, Version: r.Version, Labels: labels(r.Labels)}
	for _, p := range r.Places {
		place := policy.Place{Host: p.Host, Domain: p.Domain, NUMA: int(p.NUMA), Load: load(p.Load), Labels: labels(p.Labels)}
		for _, d := range p.Devices {
			place.Devices = append(place.Devices, policy.Device{ID: d.ID, Kind: policy.Memory(d.Kind), NUMA: int(d.NUMA)})
		}
		for _, rail := range p.Rails {
			place.Rails = append(place.Rails, policy.Rail{Name: rail.Name, NUMA: int(rail.NUMA), Gbits: int(rail.Gbits), Load: load(rail.Load)})
		}
		a.Places = append(a.Places, place)
	}
	return a
}

// load is a bucket; one that is none stays none, and is refused as such.
func load(v uint32) policy.Load { return policy.Load(min(v, policy.MaxLoad+1)) }

func labels(list []abi.Label) map[string]string {
	if len(list) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, l := range list {
		out[l.Key] = l.Value
	}
	return out
}

func providers(list []abi.Provider) []policy.Provider {
	var out []policy.Provider
	for _, r := range list {
		p := policy.Provider{Name: r.Name, OneSided: r.OneSided == 1, PeerCPU: r.PeerCPU == 1, Strides: r.Strides == 1, CRC: r.CRC == abi.SwitchOn, TLS: r.TLS == abi.SwitchOn, Piece: int64(r.Piece)}
		for m := r.Memories; m != 0; m &= m - 1 {
			p.Memory = append(p.Memory, policy.Memory(bits.TrailingZeros32(m)))
		}
		out = append(out, p)
	}
	return out
}

func edges(list []abi.Edge) []policy.Edge {
	var out []policy.Edge
	for _, r := range list {
		e := policy.Edge{
			Source: plan.Range{From: int(r.SourceFrom), To: int(r.SourceTo)}, Destination: plan.Range{From: int(r.DestinationFrom), To: int(r.DestinationTo)},
			Reach: policy.Reach(r.Reach), Load: load(r.Load),
		}
		for p := r.Providers; p != 0; p &= p - 1 {
			e.Providers = append(e.Providers, bits.TrailingZeros64(p))
		}
		out = append(out, e)
	}
	return out
}

// Question decodes a message and makes the question that it asks again: a
// *policy.RemapQuestion or a *policy.RouteQuestion. For a layout selection it
// returns the message: the layouts in it are orders only, of which no engine is
// made.
//
// Errors: *Error, *abi.Error.
func Question(hook string, message []byte) (any, error) {
	switch hook {
	case "select_layout":
		return abi.DecodeSelectLayoutIn(message)
	case "remap":
		in, err := abi.DecodeRemapIn(message)
		if err != nil {
			return nil, err
		}
		q, err := Remap(in)
		if err != nil {
			return nil, err
		}
		return &q, nil
	case "route":
		in, err := abi.DecodeRouteIn(message)
		if err != nil {
			return nil, err
		}
		q, err := Route(in)
		if err != nil {
			return nil, err
		}
		return &q, nil
	}
	return nil, &Error{Field: "hook", Value: fmt.Sprintf("%q", hook), Reason: "there is no such hook"}
}
