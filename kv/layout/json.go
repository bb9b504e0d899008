package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/kv/geometry"
)

// MaxJSON bounds the JSON form that is read, in bytes.
const MaxJSON = 1 << 24

// The JSON form is canonical: one layout has one text (up to white space), and
// only that is read. Fields are those of Layout; layers are ranges as in
// Text, a digit is "axis%mod/div*stride" and a place is [region, offset, map].
// Offsets and strides are bits. The fields state, unit, tokens_per_entry and
// scales are left out exactly where they have their zero value; no other field
// is optional, and there is no room for unknown ones: a new field is a new
// form, which an old reader refuses.
type jsonLayout struct {
	Layers     string          `json:"layers"`
	Blocks     int             `json:"blocks"`
	Tokens     int             `json:"tokens"`
	Heads      []int           `json:"heads"`
	State      bool            `json:"state,omitempty"`
	Components []jsonComponent `json:"components"`
	Regions    []jsonRegion    `json:"regions"`
	Maps       [][]string      `json:"maps"`
	Places     [][][3]int64    `json:"places"`
}

type jsonComponent struct {
	Name   string `json:"name"`
	Heads  int    `json:"heads"`
	Dim    int    `json:"dim"`
	DType  string `json:"dtype"`
	Unit   int    `json:"unit,omitempty"`
	Entry  int    `json:"tokens_per_entry,omitempty"`
	Scales string `json:"scales,omitempty"`
}

type jsonRegion struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// MarshalJSON returns the canonical form.
// Preconditions: l is valid.
func (l *Layout) MarshalJSON() ([]byte, error) {
	e := &l.Extent
	j := jsonLayout{
		Layers: geometry.Ranges(e.Layers), Blocks: e.Blocks, Tokens: e.Tokens, Heads: e.Heads, State: e.State,
		Components: make([]jsonComponent, len(e.Components)), Regions: make([]jsonRegion, len(l.Regions)),
		Maps: make([][]string, len(l.Maps)), Places: make([][][3]int64, len(l.Places)),
	}
	for i, c := range e.Components {
		j.Components[i] = jsonComponent{c.Name, c.Heads, c.Dim, c.DType.String(), c.Unit, c.Entry, c.Scales}
	}
	for i, r := range l.Regions {
		j.Regions[i] = jsonRegion(r)
	}
	for i, m := range l.Maps {
		j.Maps[i] = make([]string, len(m))
		for k, d := range m {
			j.Maps[i][k] = d.text()
		}
	}
	for i, places := range l.Places {
		j.Places[i] = make([][3]int64, len(places))
		for k, p := range places {
			j.Places[i][k] = [3]int64{int64(p.Region), p.Offset, int64(p.Map)}
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the canonical form and checks the layout as Validate
// does. White space is no part of the form; anything else that MarshalJSON
// would not write is refused.
//
// Errors: *Error.
func (l *Layout) UnmarshalJSON(data []byte) error {
	if len(data) > MaxJSON {
		return bad("json", len(data), "want at most %d bytes", MaxJSON)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return bad("json", "malformed", "%s", clip(err.Error()))
	}
	var j jsonLayout
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return bad("json", "malformed", "%s", clip(err.Error()))
	}
	read, err := j.layout()
	if err != nil {
		return err
	}
	if err := read.Validate(); err != nil {
		return err
	}
	// Equal bytes leave no room for what the decoder forgives: fields twice or
	// in another case, absent or null fields, other forms of numbers.
	again, err := read.MarshalJSON()
	if err != nil {
		return bad("json", "unwritable", "%v", err)
	}
	if !bytes.Equal(again, compact.Bytes()) {
		return bad("json", "not canonical", "a layout has one form: fields once, in order, each as it is written")
	}
	*l = *read
	return nil
}

func (j *jsonLayout) layout() (*Layout, error) {
	l := &Layout{Extent: Extent{Blocks: j.Blocks, Tokens: j.Tokens, Heads: j.Heads, State: j.State}}
	var err error
	if l.Extent.Layers, err = parseRanges(j.Layers); err != nil {
		return nil, err
	}
	// The sizes of lists are bounded here, what is in them by Validate.
	if len(j.Components) > geometry.MaxComponents || len(j.Places) > geometry.MaxComponents {
		return nil, bad("components", len(j.Components), "want at most %d", geometry.MaxComponents)
	}
	if len(j.Maps) > MaxMaps {
		return nil, bad("maps", len(j.Maps), "want at most %d", MaxMaps)
	}
	for i, c := range j.Components {
		d, err := geometry.ParseDType(c.DType)
		if err != nil {
			return nil, bad(fmt.Sprintf("components[%d].dtype", i), fmt.Sprintf("%q", clip(c.DType)), "no such dtype")
		}
		l.Extent.Components = append(l.Extent.Components, geometry.Component{Name: c.Name, Heads: c.Heads, Dim: c.Dim, DType: d, Unit: c.Unit, Entry: c.Entry, Scales: c.Scales})
	}
	for _, r := range j.Regions {
		l.Regions = append(l.Regions, Region(r))
	}
	for i, m := range j.Maps {
		if len(m) > MaxDigits {
			return nil, bad(fmt.Sprintf("maps[%d]", i), len(m), "want at most %d digits", MaxDigits)
		}
		var digits []Digit
		for _, text := range m {
			d, err := parseDigit(text)
			if err != nil {
				return nil, bad(fmt.Sprintf("maps[%d]", i), fmt.Sprintf("%q", clip(text)), "want axis%%mod/div*stride")
			}
			digits = append(digits, d)
		}
		l.Maps = append(l.Maps, digits)
	}
	for ci, places := range j.Places {
		l.Places = append(l.Places, make([]Place, len(places)))
		for li, p := range places {
			if p[0] < 0 || p[0] > MaxPlaces || p[2] < 0 || p[2] > MaxMaps {
				return nil, bad(fmt.Sprintf("places[%d][%d]", ci, li), p, "want [region, offset, map]")
			}
			l.Places[ci][li] = Place{int(p[0]), p[1], int(p[2])}
		}
	}
	return l, nil
}

// text is the digit as Text and the JSON form write it.
func (d Digit) text() string {
	b := append(make([]byte, 0, 32), d.Axis.String()...)
	b = strconv.AppendInt(append(b, '%'), d.Mod, 10)
	b = strconv.AppendInt(append(b, '/'), d.Div, 10)
	b = strconv.AppendInt(append(b, '*'), d.Stride, 10)
	return string(b)
}

func parseDigit(text string) (Digit, error) {
	var d Digit
	name, rest, _ := strings.Cut(text, "%")
	mod, rest, _ := strings.Cut(rest, "/")
	div, stride, _ := strings.Cut(rest, "*")
	var ok bool
	if d.Axis, ok = geometry.ParseAxis(name); !ok {
		return d, strconv.ErrSyntax
	}
	for _, n := range []struct {
		to   *int64
		text string
	}{{&d.Mod, mod}, {&d.Div, div}, {&d.Stride, stride}} {
		var err error
		if *n.to, err = strconv.ParseInt(n.text, 10, 64); err != nil {
			return d, err
		}
	}
	return d, nil
}

// parseRanges reads what geometry.Ranges writes.
func parseRanges(text string) ([]int, error) {
	refuse := func() ([]int, error) {
		return nil, bad("layers", fmt.Sprintf("%q", clip(text)), "want ranges of layer numbers like 0-3,7")
	}
	var out []int
	for word := range strings.SplitSeq(text, ",") {
		from, to, many := strings.Cut(word, "-")
		lo, err := strconv.Atoi(from)
		if err != nil || lo < 0 || lo >= geometry.MaxLayers {
			return refuse()
		}
		hi := lo
		if many {
			if hi, err = strconv.Atoi(to); err != nil || hi <= lo || hi >= geometry.MaxLayers {
				return refuse()
			}
		}
		if len(out)+hi-lo >= geometry.MaxLayers {
			return refuse()
		}
		for n := lo; n <= hi; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}
