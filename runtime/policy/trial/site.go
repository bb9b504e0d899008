package trial

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/decision"
	"github.com/kvferry/kvferry/runtime/policy/document"
)

// siteText is the YAML form of a site:
//
//	kvferry: site/1
//	source:
//	  software: vllm
//	  labels: {zone: b}
//	  places:                      # by rank, of all ranks or of none
//	    - {host: node-1, domain: nvl-3, numa: 1, load: 3,
//	       devices: [{id: GPU-0, kind: cuda, numa: 1}],
//	       rails: [{name: mlx5_0, numa: 1, gbits: 400, load: 1}]}
//	destination: {places: [...]}
//	providers:                     # in the configured order
//	  - {name: shm, memory: [host], one_sided: true}
//	  - {name: tcp, memory: [host, cuda], peer_cpu: true, tls: true}
//	edges:
//	  - {source: 0-1, destination: 0-3, providers: [shm, tcp], reach: host, load: 2}
//
// numa is 1 + the node, loads go from 1 (idle) to 8 (busiest); 0 and what is
// left out are not known.
type siteText struct {
	Kvferry     string         `yaml:"kvferry"`
	Source      aboutText      `yaml:"source"`
	Destination aboutText      `yaml:"destination"`
	Providers   []providerText `yaml:"providers"`
	Edges       []edgeText     `yaml:"edges"`
}

type aboutText struct {
	Software string            `yaml:"software"`
	Version  string            `yaml:"version"`
	Labels   map[string]string `yaml:"labels"`
	Places   []placeText       `yaml:"places"`
}

type placeText struct {
	Host    string            `yaml:"host"`
	Domain  string            `yaml:"domain"`
	NUMA    int               `yaml:"numa"`
	Load    uint8             `yaml:"load"`
	Devices []deviceText      `yaml:"devices"`
	Rails   []railText        `yaml:"rails"`
	Labels  map[string]string `yaml:"labels"`
}

type deviceText struct {
	ID   string `yaml:"id"`
	Kind string `yaml:"kind"`
	NUMA int    `yaml:"numa"`
}

type railText struct {
	Name  string `yaml:"name"`
	NUMA  int    `yaml:"numa"`
	Gbits int    `yaml:"gbits"`
	Load  uint8  `yaml:"load"`
}

type providerText struct {
	Name     string   `yaml:"name"`
	Memory   []string `yaml:"memory"`
	OneSided bool     `yaml:"one_sided"`
	PeerCPU  bool     `yaml:"peer_cpu"`
	Strides  bool     `yaml:"strides"`
	CRC      bool     `yaml:"crc"`
	TLS      bool     `yaml:"tls"`
	Piece    int64    `yaml:"piece"`
}

type edgeText struct {
	Source      string   `yaml:"source"`
	Destination string   `yaml:"destination"`
	Providers   []string `yaml:"providers"`
	Reach       string   `yaml:"reach"`
	Load        uint8    `yaml:"load"`
}

func memories() map[string]policy.Memory {
	return map[string]policy.Memory{"host": policy.HostMemory, "cuda": policy.CUDAMemory, "other": policy.OtherMemory}
}

func reaches() map[string]policy.Reach {
	return map[string]policy.Reach{"": 0, "process": policy.SameProcess, "host": policy.SameHost, "domain": policy.SameDomain, "network": policy.OverNetwork}
}

func modes() map[string]policy.Mode {
	return map[string]policy.Mode{"direct": policy.Direct, "staged": policy.Staged}
}

// ParseSite reads a site file. name is for errors. Whether it fits a pair is
// for the question that is asked with it.
//
// Errors: *Error.
func ParseSite(name string, data []byte) (decision.Site, error) {
	var t siteText
	root, err := document.Decode(name, data, &t)
	if err != nil {
		return decision.Site{}, err
	}
	bad := func(field, why string, args ...any) (decision.Site, error) {
		return decision.Site{}, &Error{File: name, Field: field, Reason: fmt.Sprintf(why, args...)}
	}
	if t.Kvferry != SiteVersion {
		return decision.Site{}, &Error{File: name, Line: root.Line, Field: "kvferry", Reason: fmt.Sprintf("%q: want %q", t.Kvferry, SiteVersion)}
	}
	var out decision.Site
	for _, side := range []struct {
		name string
		from aboutText
		to   *policy.About
	}{{"source", t.Source, &out.Source}, {"destination", t.Destination, &out.Destination}} {
		*side.to = policy.About{Software: side.from.Software, Version: side.from.Version, Labels: side.from.Labels}
		for r, p := range side.from.Places {
			place := policy.Place{Host: p.Host, Domain: p.Domain, NUMA: p.NUMA, Load: policy.Load(p.Load), Labels: p.Labels}
			for k, d := range p.Devices {
				kind, ok := memories()[d.Kind]
				if !ok {
					return bad(fmt.Sprintf("%s.places[%d].devices[%d].kind", side.name, r, k), "%q: want host, cuda or other", d.Kind)
				}
				place.Devices = append(place.Devices, policy.Device{ID: d.ID, Kind: kind, NUMA: d.NUMA})
			}
			for _, rail := range p.Rails {
				place.Rails = append(place.Rails, policy.Rail{Name: rail.Name, NUMA: rail.NUMA, Gbits: rail.Gbits, Load: policy.Load(rail.Load)})
			}
			side.to.Places = append(side.to.Places, place)
		}
	}
	for i, p := range t.Providers {
		one := policy.Provider{Name: p.Name, OneSided: p.OneSided, PeerCPU: p.PeerCPU, Strides: p.Strides, CRC: p.CRC, TLS: p.TLS, Piece: p.Piece}
		for k, m := range p.Memory {
			kind, ok := memories()[m]
			if !ok {
				return bad(fmt.Sprintf("providers[%d].memory[%d]", i, k), "%q: want host, cuda or other", m)
			}
			one.Memory = append(one.Memory, kind)
		}
		out.Providers = append(out.Providers, one)
	}
	for i, e := range t.Edges {
		at := fmt.Sprintf("edges[%d]", i)
		source, ok := ranks(e.Source)
		if !ok {
			return bad(at+".source", "%q: want a rank or a range of them, 0 or 0-3", e.Source)
		}
		destination, ok := ranks(e.Destination)
		if !ok {
			return bad(at+".destination", "%q: want a rank or a range of them, 0 or 0-3", e.Destination)
		}
		reach, ok := reaches()[e.Reach]
		if !ok {
			return bad(at+".reach", "%q: want process, host, domain or network", e.Reach)
		}
		edge := policy.Edge{Source: source, Destination: destination, Reach: reach, Load: policy.Load(e.Load)}
		for k, name := range e.Providers {
			p := slices.IndexFunc(t.Providers, func(p providerText) bool { return p.Name == name })
			if p < 0 {
				return bad(fmt.Sprintf("%s.providers[%d]", at, k), "%q is none of the providers of this file", name)
			}
			edge.Providers = append(edge.Providers, p)
		}
		out.Edges = append(out.Edges, edge)
	}
	return out, nil
}

// ranks reads "3" or "0-3".
func ranks(text string) (plan.Range, bool) {
	from, to, ranged := strings.Cut(text, "-")
	low, err := strconv.ParseUint(strings.TrimSpace(from), 10, 20)
	high := low
	if ranged && err == nil {
		high, err = strconv.ParseUint(strings.TrimSpace(to), 10, 20)
	}
	return plan.Range{From: int(low), To: int(high) + 1}, err == nil && low <= high
}
