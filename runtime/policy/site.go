package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/wasm/abi"
)

// Load is how busy something is, in eight buckets from 1 (idle) to MaxLoad; 0
// is not known. Whoever samples it keeps it from flickering: it is part of every
// question that it stands in, and so of the key that answers are kept by.
type Load uint8

// MaxLoad is the busiest.
const MaxLoad = 8

// Memory is where a cache lies, or what a provider moves.
type Memory uint32

// The kinds of memory.
const (
	HostMemory  Memory = abi.MemoryHost
	CUDAMemory  Memory = abi.MemoryCuda
	OtherMemory Memory = abi.MemoryOther // of a device of another kind
)

// Reach is how near two ranks are.
type Reach uint32

// How near, nearest first. 0 is not known.
const (
	SameProcess Reach = abi.ReachProcess
	SameHost    Reach = abi.ReachHost
	SameDomain  Reach = abi.ReachDomain // one link domain: memory is reached without a network card
	OverNetwork Reach = abi.ReachNetwork
)

// About is what is known of an engine besides its cache. All of it may be left
// out.
type About struct {
	Software string // "vllm", "sglang", ...
	Version  string // of the software
	Labels   map[string]string
	Places   []Place // by rank, of all ranks or of none
}

// Place is where a rank runs. NUMA is 1 + the node, 0: not known.
type Place struct {
	Host    string
	Domain  string // link domain; empty: none, or not known
	NUMA    int
	Load    Load // of what the rank gives and takes
	Devices []Device
	Rails   []Rail // that it may use, in the host's order
	Labels  map[string]string
}

// Device is a device that a rank's cache lies on; a rank in host memory has
// none. NUMA is 1 + the node, 0: not known.
type Device struct {
	ID   string // as the host's tools name it
	Kind Memory
	NUMA int
}

// Rail is a network interface. NUMA is 1 + the node, 0: not known.
type Rail struct {
	Name  string
	NUMA  int
	Gbits int // a second, 0: not known
	Load  Load
}

// Provider is a configured transport, as far as a policy knows it.
type Provider struct {
	Name     string
	Memory   []Memory // that it moves
	OneSided bool     // the reader reaches the owner's memory by itself
	PeerCPU  bool     // needs the other process to run
	Strides  bool     // takes strided runs as they are
	CRC, TLS bool     // as configured
	Piece    int64    // smallest piece in bytes that moves at full speed, 0: not known
}

// Edge is ranks of the source and ranks of the destination that are connected
// alike. No pair of ranks stands in two edges of a question.
type Edge struct {
	Source, Destination plan.Range
	Providers           []int // indices into the question's, that can serve them
	Reach               Reach
	Load                Load
}

// Bounds on a question: edges name providers by bit, and each edge is compared
// with all others.
const (
	MaxProviders    = 64
	MaxEdges        = 1 << 13
	MaxAlternatives = abi.MaxAlternatives // of one answer
)

func (a About) record(name string) abi.Engine {
	out := abi.Engine{Name: name, Software: a.Software, Version: a.Version, Labels: labels(a.Labels)}
	for r, p := range a.Places {
		place := abi.Place{Rank: uint32(r), NUMA: uint32(p.NUMA), Load: uint32(p.Load), Host: p.Host, Domain: p.Domain, Labels: labels(p.Labels)}
		for _, d := range p.Devices {
			place.Devices = append(place.Devices, abi.Device{ID: d.ID, Kind: uint32(d.Kind), NUMA: uint32(d.NUMA)})
		}
		for _, rail := range p.Rails {
			place.Rails = append(place.Rails, abi.Rail{Name: rail.Name, NUMA: uint32(rail.NUMA), Gbits: uint32(rail.Gbits), Load: uint32(rail.Load)})
		}
		out.Places = append(out.Places, place)
	}
	return out
}

func providers(list []Provider) []abi.Provider {
	var out []abi.Provider
	for _, p := range list {
		r := abi.Provider{Name: p.Name, OneSided: flag(p.OneSided), PeerCPU: flag(p.PeerCPU), Strides: flag(p.Strides), CRC: uint32(switched(p.CRC)), TLS: uint32(switched(p.TLS)), Piece: uint64(p.Piece)}
		for _, m := range p.Memory {
			r.Memories |= 1 << m
		}
		out = append(out, r)
	}
	return out
}

// edges are in ascending order, whatever order they are given in, so that the
// same question has the same bytes.
func edges(list []Edge) []abi.Edge {
	var out []abi.Edge
	for _, e := range list {
		r := abi.Edge{
			SourceFrom: uint32(e.Source.From), SourceTo: uint32(e.Source.To), DestinationFrom: uint32(e.Destination.From), DestinationTo: uint32(e.Destination.To),
			Reach: uint32(e.Reach), Load: uint32(e.Load),
		}
		for _, p := range e.Providers {
			r.Providers |= 1 << p
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b abi.Edge) int {
		return cmp.Or(cmp.Compare(a.SourceFrom, b.SourceFrom), cmp.Compare(a.DestinationFrom, b.DestinationFrom))
	})
	return out
}

func switched(on bool) Switch {
	if on {
		return On
	}
	return Off
}

// site is what all questions have alike, for checking.
type site struct {
	providers     []Provider
	edges         []Edge
	configuration []byte
	ranks         [2]int // of source and destination; below 0: not known
}

// between checks that v lies in [low, high].
func between(field string, v, low, high int64) error {
	if v < low || v > high {
		return &QuestionError{field, v, fmt.Sprintf("want %d to %d", low, high)}
	}
	return nil
}

// first returns the first error that there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Bounds on numbers that go into a question.
const (
	maxNUMA  = 1 << 16
	maxGbits = 1 << 24
)

// Bounds on what is said of an engine, so that whoever passes it on can be sure
// that it fits a question.
const (
	MaxLabels  = 64      // of an engine, and of a rank
	MaxDevices = 64      // of a rank
	MaxRails   = 64      // of a rank
	maxItems   = 1 << 15 // places, labels, devices and rails of an engine
	maxSaid    = 1 << 20 // bytes of all texts of an engine
)

// size counts what is said of an engine, and its text.
func (a About) size() (items, text int) {
	count := func(labels map[string]string) {
		items += len(labels)
		for k, v := range labels {
			text += len(k) + len(v)
		}
	}
	count(a.Labels)
	for _, p := range a.Places {
		items += 1 + len(p.Devices) + len(p.Rails)
		text += len(p.Host) + len(p.Domain)
		count(p.Labels)
		for _, d := range p.Devices {
			text += len(d.ID)
		}
		for _, r := range p.Rails {
			text += len(r.Name)
		}
	}
	return items, text
}

// Validate checks what is said of an engine of so many ranks; below 0: not
// known. at is what it is called in errors.
//
// Errors: *QuestionError.
func (a About) Validate(at string, ranks int) error {
	items, text := a.size()
	if err := first(between(at+" (places, labels, devices and rails)", int64(items), 0, maxItems), between(at+" (bytes of text)", int64(text), 0, maxSaid),
		between(at+".labels", int64(len(a.Labels)), 0, MaxLabels)); err != nil {
		return err
	}
	if err := first(textual(at+".software", a.Software, geometry.MaxName), textual(at+".version", a.Version, geometry.MaxName), labelled(at+".labels", a.Labels)); err != nil {
		return err
	}
	if n := len(a.Places); n > 0 && ranks >= 0 && n != ranks {
		return &QuestionError{at + ".places", n, fmt.Sprintf("want one for each of %d ranks, or none", ranks)}
	}
	for r, p := range a.Places {
		at := fmt.Sprintf("%s.places[%d]", at, r)
		err := first(between(at+".labels", int64(len(p.Labels)), 0, MaxLabels), between(at+".devices", int64(len(p.Devices)), 0, MaxDevices), between(at+".rails", int64(len(p.Rails)), 0, MaxRails),
			textual(at+".host", p.Host, abi.MaxText), textual(at+".domain", p.Domain, abi.MaxText), labelled(at+".labels", p.Labels),
			between(at+".numa", int64(p.NUMA), 0, maxNUMA), between(at+".load", int64(p.Load), 0, MaxLoad))
		for i, d := range p.Devices {
			at := fmt.Sprintf("%s.devices[%d]", at, i)
			err = first(err, textual(at+".id", d.ID, abi.MaxText), between(at+".kind", int64(d.Kind), int64(HostMemory), int64(OtherMemory)), between(at+".numa", int64(d.NUMA), 0, maxNUMA))
		}
		for i, rail := range p.Rails {
			at := fmt.Sprintf("%s.rails[%d]", at, i)
			err = first(err, textual(at+".name", rail.Name, abi.MaxText), between(at+".numa", int64(rail.NUMA), 0, maxNUMA), between(at+".gbits", int64(rail.Gbits), 0, maxGbits), between(at+".load", int64(rail.Load), 0, MaxLoad))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func labelled(at string, m map[string]string) error {
	for k, v := range m {
		if err := first(textual(at, k, geometry.MaxName), textual(at+"."+k, v, abi.MaxText)); err != nil {
			return err
		}
	}
	return nil
}

func (s site) validate() error {
	if err := first(between("providers", int64(len(s.providers)), 0, MaxProviders), between("edges", int64(len(s.edges)), 0, MaxEdges), between("configuration", int64(len(s.configuration)), 0, abi.MaxBytes)); err != nil {
		return err
	}
	for i, p := range s.providers {
		at := fmt.Sprintf("providers[%d]", i)
		err := first(textual(at+".name", p.Name, geometry.MaxName), between(at+".piece", p.Piece, 0, 1<<62))
		for _, m := range p.Memory {
			err = first(err, between(at+".memory", int64(m), int64(HostMemory), int64(OtherMemory)))
		}
		if slices.ContainsFunc(s.providers[:i], func(o Provider) bool { return o.Name == p.Name }) {
			err = first(err, &QuestionError{at + ".name", p.Name, "stands twice"})
		}
		if err != nil {
			return err
		}
	}
	for i, e := range s.edges {
		at := fmt.Sprintf("edges[%d]", i)
		err := first(between(at+".reach", int64(e.Reach), 0, int64(OverNetwork)), between(at+".load", int64(e.Load), 0, MaxLoad))
		for k, r := range []plan.Range{e.Source, e.Destination} {
			most := s.ranks[k]
			if most < 0 {
				most = 1 << 20
			}
			if r.From < 0 || r.From >= r.To || r.To > most {
				err = first(err, &QuestionError{at + "." + [2]string{"source", "destination"}[k], r, fmt.Sprintf("want ranks, of %d", most)})
			}
		}
		for _, p := range e.Providers {
			err = first(err, between(at+".providers", int64(p), 0, int64(len(s.providers))-1))
		}
		if err != nil {
			return err
		}
	}
	// Edges that overlap would say two things of a pair of ranks. Sorted by
	// where they begin at the source, each meets only those that begin before it
	// ends.
	byStart := slices.SortedFunc(slices.Values(s.edges), func(a, b Edge) int { return cmp.Compare(a.Source.From, b.Source.From) })
	for i, a := range byStart {
		for _, b := range byStart[i+1:] {
			if b.Source.From >= a.Source.To {
				break
			}
			if a.Destination.From < b.Destination.To && b.Destination.From < a.Destination.To {
				return &QuestionError{"edges", fmt.Sprintf("%v to %v and %v to %v", a.Source, a.Destination, b.Source, b.Destination), "no pair of ranks stands in two edges"}
			}
		}
	}
	return nil
}

// RemapQuestion asks which source rank feeds which destination rank.
type RemapQuestion struct {
	Pair                *plan.Pair
	Source, Destination About
	Providers           []Provider // in the configured order
	Edges               []Edge
	Previous            [][]plan.Assignment // alternatives answered before for these engines; nil: none
	Configuration       []byte              // the operator's for the policy, canonical JSON
}

// Input is the question as a policy is asked it. The same question gives the
// same bytes.
//
// Errors: *QuestionError.
// Preconditions: q.Pair.Validate() is nil.
func (q RemapQuestion) Input() (*abi.RemapIn, error) {
	ranks := [2]int{len(q.Pair.Source.Ranks), len(q.Pair.Destination.Ranks)}
	if err := first(q.Source.Validate("source", ranks[0]), q.Destination.Validate("destination", ranks[1]), site{q.Providers, q.Edges, q.Configuration, ranks}.validate(),
		between("previous", int64(len(q.Previous)), 0, abi.MaxAlternatives)); err != nil {
		return nil, err
	}
	in := RemapInput(q.Pair)
	in.Engines[0], in.Engines[1] = q.Source.record(q.Pair.Source.Engine), q.Destination.record(q.Pair.Destination.Engine)
	in.Providers, in.Edges, in.Configuration = providers(q.Providers), edges(q.Edges), q.Configuration
	for i, as := range q.Previous {
		if err := q.Pair.ValidateAssignments(as); err != nil {
			return nil, &QuestionError{fmt.Sprintf("previous[%d]", i), len(as), "the pair cannot have these assignments: " + err.Error()}
		}
		in.Previous = append(in.Previous, abi.Alternative{Assignments: assignmentRecords(as)})
	}
	return in, nil
}

func assignmentRecords(as []plan.Assignment) []abi.Assignment {
	out := make([]abi.Assignment, 0, len(as))
	for _, a := range as {
		out = append(out, abi.Assignment{
			Components: a.Components, Group: uint32(a.Group), Destination: uint32(a.Destination), Source: uint32(a.Source),
			LayerFrom: uint32(a.Layers.From), LayerTo: uint32(a.Layers.To), HeadFrom: uint32(a.Heads.From), HeadTo: uint32(a.Heads.To),
			TokenSize: uint32(a.Tokens.Size), TokenInterleave: uint32(a.Tokens.Interleave), TokenPhase: uint32(a.Tokens.Phase),
		})
	}
	return out
}
