package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/kv/shard"
	"github.com/kvferry/kvferry/runtime/policy"
)

// Site is what an agent knows of an engine besides its cache: what policies are
// told. All of it may be left out.
type Site struct {
	// Machine and Process are equal for agents under one running kernel and in
	// one process; see package locality.
	Machine, Process string
	// About the engine. An agent knows where the ranks are that it holds, and of
	// others what it was told: a place of which nothing is known is zero.
	About policy.About
}

// maxID bounds Machine and Process.
const maxID = 64

type (
	wireSite struct {
		Machine  string            `json:"machine,omitempty"`
		Process  string            `json:"process,omitempty"`
		Software string            `json:"software,omitempty"`
		Version  string            `json:"version,omitempty"`
		Labels   map[string]string `json:"labels,omitempty"`
		Ranks    int               `json:"ranks,omitempty"` // there are places of so many
		Places   []wirePlace       `json:"places,omitempty"`
	}
	wirePlace struct {
		Rank    int               `json:"rank"` // ascending
		Host    string            `json:"host,omitempty"`
		Domain  string            `json:"domain,omitempty"`
		NUMA    int               `json:"numa,omitempty"`
		Load    uint8             `json:"load,omitempty"`
		Devices []wireDevice      `json:"devices,omitempty"`
		Rails   []wireRail        `json:"rails,omitempty"`
		Labels  map[string]string `json:"labels,omitempty"`
	}
	wireDevice struct {
		ID   string `json:"id,omitempty"`
		Kind uint32 `json:"kind"`
		NUMA int    `json:"numa,omitempty"`
	}
	wireRail struct {
		Name  string `json:"name,omitempty"`
		NUMA  int    `json:"numa,omitempty"`
		Gbits int    `json:"gbits,omitempty"`
		Load  uint8  `json:"load,omitempty"`
	}
)

// Known reports whether anything is said of a place.
func Known(p policy.Place) bool {
	return p.Host != "" || p.Domain != "" || p.NUMA != 0 || p.Load != 0 || len(p.Devices) > 0 || len(p.Rails) > 0 || len(p.Labels) > 0
}

// MarshalJSON writes the wire form: places of which nothing is known are left
// out.
func (s Site) MarshalJSON() ([]byte, error) {
	w := wireSite{Machine: s.Machine, Process: s.Process, Software: s.About.Software, Version: s.About.Version, Labels: s.About.Labels, Ranks: len(s.About.Places)}
	for r, p := range s.About.Places {
		if !Known(p) {
			continue
		}
		place := wirePlace{Rank: r, Host: p.Host, Domain: p.Domain, NUMA: p.NUMA, Load: uint8(p.Load), Labels: p.Labels}
		for _, d := range p.Devices {
			place.Devices = append(place.Devices, wireDevice{d.ID, uint32(d.Kind), d.NUMA})
		}
		for _, rail := range p.Rails {
			place.Rails = append(place.Rails, wireRail{rail.Name, rail.NUMA, rail.Gbits, uint8(rail.Load)})
		}
		w.Places = append(w.Places, place)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the wire form. It checks what would not fit the types;
// Validate checks the rest.
func (s *Site) UnmarshalJSON(b []byte) error {
	var w wireSite
	if err := strict(b, &w); err != nil {
		return err
	}
	if w.Ranks < 0 || w.Ranks > shard.MaxRanks {
		return &FrameError{"site.ranks", w.Ranks, fmt.Sprintf("0 to %d", shard.MaxRanks)}
	}
	about := policy.About{Software: w.Software, Version: w.Version, Labels: some(w.Labels)}
	if w.Ranks > 0 {
		about.Places = make([]policy.Place, w.Ranks)
	}
	last := -1
	for i, p := range w.Places {
		if p.Rank <= last || p.Rank >= w.Ranks {
			return &FrameError{fmt.Sprintf("site.places[%d].rank", i), p.Rank, fmt.Sprintf("ascending ranks below %d", w.Ranks)}
		}
		last = p.Rank
		place := policy.Place{Host: p.Host, Domain: p.Domain, NUMA: p.NUMA, Load: policy.Load(p.Load), Labels: some(p.Labels)}
		for _, d := range p.Devices {
			place.Devices = append(place.Devices, policy.Device{ID: d.ID, Kind: policy.Memory(d.Kind), NUMA: d.NUMA})
		}
		for _, r := range p.Rails {
			place.Rails = append(place.Rails, policy.Rail{Name: r.Name, NUMA: r.NUMA, Gbits: r.Gbits, Load: policy.Load(r.Load)})
		}
		if !Known(place) {
			return &FrameError{fmt.Sprintf("site.places[%d]", i), "empty", "something that is known of the rank"}
		}
		about.Places[p.Rank] = place
	}
	*s = Site{w.Machine, w.Process, about}
	return nil
}

// some is m, nil where it is empty.
func some(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// Validate checks what is said of an engine of so many ranks.
//
// Errors: *policy.QuestionError.
func (s *Site) Validate(at string, ranks int) error {
	for _, f := range []struct{ name, v string }{{"machine", s.Machine}, {"process", s.Process}} {
		if len(f.v) > maxID {
			return &policy.QuestionError{Field: at + "." + f.name, Value: fmt.Sprintf("%d bytes", len(f.v)), Reason: fmt.Sprintf("want at most %d", maxID)}
		}
	}
	return s.About.Validate(at, ranks)
}

// Reach is how near rank a of one site and rank b of another are: what agents
// know of their kernels counts before what hosts are called.
func Reach(s *Site, a int, t *Site, b int) policy.Reach {
	if s.Process != "" && s.Process == t.Process {
		return policy.SameProcess
	}
	p, q := placeOf(s, a), placeOf(t, b)
	kernels := s.Machine != "" && t.Machine != ""
	hosts := p.Host != "" && q.Host != ""
	switch {
	case kernels && s.Machine == t.Machine, !kernels && hosts && p.Host == q.Host:
		return policy.SameHost
	case p.Domain != "" && p.Domain == q.Domain:
		return policy.SameDomain
	case kernels, hosts:
		return policy.OverNetwork
	}
	return 0
}

func placeOf(s *Site, rank int) policy.Place {
	if rank < len(s.About.Places) {
		return s.About.Places[rank]
	}
	return policy.Place{}
}

// Merge is what several agents of one engine of so many ranks know together:
// of each rank what the agent says that holds it, else what any says. Loads are
// left out.
func Merge(sites []*Site, held [][]int, ranks int) policy.About {
	var out policy.About
	places := make([]policy.Place, ranks)
	known := false
	take := func(s *Site, r int) {
		if p := placeOf(s, r); Known(p) && !Known(places[r]) {
			p.Load = 0
			places[r], known = p, true
		}
	}
	for i, s := range sites {
		if out.Software == "" {
			out.Software, out.Version = s.About.Software, s.About.Version
		}
		for _, k := range slices.Sorted(maps.Keys(s.About.Labels)) {
			if _, ok := out.Labels[k]; !ok && len(out.Labels) < policy.MaxLabels {
				if out.Labels == nil {
					out.Labels = map[string]string{}
				}
				out.Labels[k] = s.About.Labels[k]
			}
		}
		for _, r := range held[i] {
			take(s, r)
		}
	}
	for _, s := range sites {
		for r := range places {
			take(s, r)
		}
	}
	if known {
		out.Places = places
	}
	return out
}
