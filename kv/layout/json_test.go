package layout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
)

const packedJSON = `{"layers":"41-42","blocks":3,"tokens":4,"heads":[2,2],` +
	`"components":[{"name":"k","heads":8,"dim":8,"dtype":"bf16"},{"name":"v","heads":8,"dim":8,"dtype":"bf16"}],` +
	`"regions":[{"name":"layer41","bytes":768},{"name":"layer42","bytes":768}],` +
	`"maps":[["block%3/1*2048","head%2/1*1024","token%4/1*256","dim%8/1*16"]],` +
	`"places":[[[0,0,0],[1,0,0]],[[0,128,0],[1,128,0]]]}`

// What components and groups can say beyond that: a unit, entries of several
// tokens, scales; and states.
const (
	scaledJSON = `{"layers":"3","blocks":2,"tokens":4,"heads":[4,0],` +
		`"components":[{"name":"k","heads":8,"dim":8,"dtype":"fp8_e4m3","unit":2},{"name":"s","heads":0,"dim":1,"dtype":"fp32","tokens_per_entry":2,"scales":"k"}],` +
		`"regions":[{"name":"layer3.k+s","bytes":272}],` +
		`"maps":[["block%2/1*1088","head%4/1*256","token%4/1*64","dim%8/1*8"],["block%2/1*1088","token%2/1*32"]],` +
		`"places":[[[0,0,0]],[[0,1024,1]]]}`
	stateJSON = `{"layers":"0,2","blocks":3,"tokens":1,"heads":[8,4,4,2],"state":true,` +
		`"components":[{"name":"x","heads":32,"dim":3,"dtype":"bf16"},{"name":"B","heads":16,"dim":3,"dtype":"bf16","unit":4},{"name":"C","heads":16,"dim":3,"dtype":"bf16","unit":4},{"name":"ssm","heads":8,"dim":5,"dtype":"fp32"}],` +
		`"regions":[{"name":"layer0","bytes":408},{"name":"layer2","bytes":408}],` +
		`"maps":[["block%3/1*1088","dim%3/1*256","head%8/1*16"],["block%3/1*1088","dim%3/1*256","head%4/1*16"],["block%3/1*1088","head%2/1*160","dim%5/1*32"]],` +
		`"places":[[[0,0,0],[1,0,0]],[[0,128,1],[1,128,1]],[[0,192,1],[1,192,1]],[[0,768,2],[1,768,2]]]}`
)

// TestJSONFields has the fields that are left out where they are zero.
func TestJSONFields(t *testing.T) {
	e := layout.Extent{Layers: []int{3}, Blocks: 2, Tokens: 4, Heads: []int{4, 0}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Unit: 2, Dim: 8, DType: geometry.FP8E4M3}, {Name: "s", Dim: 1, DType: geometry.FP32, Entry: 2, Scales: "k"}}}
	for want, l := range map[string]*layout.Layout{
		scaledJSON: resolve(t, e, "block {k,s: component {k: head token dim; s: token dim}}", nil),
		stateJSON:  resolve(t, mamba(), convSD, nil),
	} {
		data, err := json.Marshal(l)
		if err != nil || string(data) != want {
			t.Errorf("got\n%s, %v\nwant\n%s", data, err, want)
		}
		var read layout.Layout
		if err := json.Unmarshal([]byte(want), &read); err != nil || !read.Equal(l) || read.Text() != l.Text() {
			t.Errorf("got %v", err)
		}
	}
	want := `layout layers 3 blocks 2 tokens 4 heads [4 0]
component "k" heads 8 dim 8 dtype fp8_e4m3 unit 2
component "s" heads 0 dim 1 dtype fp32 entry 2 scales "k"
region "layer3.k+s" bytes 272
map block%2/1*1088 head%4/1*256 token%4/1*64 dim%8/1*8
map block%2/1*1088 token%2/1*32
places 0+0@0
places 0+1024@1
`
	if got := resolve(t, e, "block {k,s: component {k: head token dim; s: token dim}}", nil).Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if text := resolve(t, mamba(), convSD, nil).Text(); !strings.HasPrefix(text, "layout layers 0,2 blocks 3 tokens 1 heads [8 4 4 2] state\n") {
		t.Errorf("got\n%s", text)
	}
}

func TestJSON(t *testing.T) {
	l := packed(t, "block head token component dim")
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != packedJSON {
		t.Errorf("got\n%s\nwant\n%s", data, packedJSON)
	}
	// White space is free: a layout can stand in an indented document.
	indented, err := json.MarshalIndent(map[string]*layout.Layout{"l": l}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ L layout.Layout }
	if err := json.Unmarshal(indented, &read); err != nil || !read.L.Equal(l) {
		t.Errorf("got %v", err)
	}
	var order layout.Layout
	down := strings.Replace(packedJSON, "41-42", "42,41", 1)
	if err := json.Unmarshal([]byte(down), &order); err != nil || geometry.Ranges(order.Extent.Layers) != "42,41" {
		t.Errorf("layers in storage order: got %v, %v", order.Extent.Layers, err)
	}
}

func TestJSONRefuses(t *testing.T) {
	refused(t, scaledJSON, map[string][2]string{
		"heads as one number":       {`"heads":[4,0]`, `"heads":4`},
		"heads as null":             {`"heads":[4,0]`, `"heads":null`},
		"heads of one":              {`"heads":[4,0]`, `"heads":[4]`},
		"heads of three":            {`"heads":[4,0]`, `"heads":[4,0,0]`},
		"heads that are fractions":  {`"heads":[4,0]`, `"heads":[4.5,0]`},
		"a huge head count":         {`"heads":[4,0]`, `"heads":[4,99999999999999999999]`},
		"other heads":               {`"heads":[4,0]`, `"heads":[2,0]`},
		"state false":               {`"heads":[4,0]`, `"heads":[4,0],"state":false`},
		"state as a number":         {`"heads":[4,0]`, `"heads":[4,0],"state":1`},
		"a state of tokens":         {`"heads":[4,0]`, `"heads":[4,0],"state":true`},
		"state elsewhere":           {`"tokens":4,`, `"tokens":4,"state":false,`},
		"a unit of zero":            {`"unit":2`, `"unit":0`},
		"a unit of one":             {`"unit":2`, `"unit":1`},
		"a unit of three":           {`"unit":2`, `"unit":3`},
		"a huge unit":               {`"unit":2`, `"unit":9223372036854775807`},
		"an entry of zero":          {`"tokens_per_entry":2`, `"tokens_per_entry":0`},
		"an entry of one":           {`"tokens_per_entry":2`, `"tokens_per_entry":1`},
		"an entry of four":          {`"tokens_per_entry":2`, `"tokens_per_entry":4`},
		"a negative entry":          {`"tokens_per_entry":2`, `"tokens_per_entry":-2`},
		"no entry":                  {`"tokens_per_entry":2,`, ``},
		"a scale of nothing":        {`"scales":"k"`, `"scales":"q"`},
		"a scale of itself":         {`"scales":"k"`, `"scales":"s"`},
		"an empty scale":            {`"scales":"k"`, `"scales":""`},
		"a scale as null":           {`"scales":"k"`, `"scales":null`},
		"another order of fields":   {`"tokens_per_entry":2,"scales":"k"`, `"scales":"k","tokens_per_entry":2`},
		"a field in another case":   {`"tokens_per_entry"`, `"Tokens_per_entry"`},
		"slots in a digit":          {`"block%2/1*1088","token`, `"slot%2/1*1088","token`},
		"channels in a digit":       {`"head%4`, `"channel%4`},
		"a scale on the rows":       {`[0,1024,1]`, `[0,960,1]`},
		"a scale behind the region": {`[0,1024,1]`, `[0,1056,1]`},
	})
	refused(t, packedJSON, map[string][2]string{
		"unknown field":         {`"blocks":3`, `"blocks":3,"more":1`},
		"unknown field inside":  {`"name":"k"`, `"name":"k","scale":1`},
		"field twice":           {`"blocks":3`, `"blocks":3,"blocks":3`},
		"field in another case": {`"blocks":3`, `"Blocks":3`},
		"field absent":          {`"heads":[2,2],"components"`, `"components"`},
		"another order":         {`"blocks":3,"tokens":4`, `"tokens":4,"blocks":3`},
		"null":                  {`"regions":[`, `"regions":null,"x":[`},
		"another number":        {`"blocks":3`, `"blocks":3e0`},
		"a fraction":            {`"blocks":3`, `"blocks":3.5`},
		"a huge number":         {`"blocks":3`, `"blocks":99999999999999999999`},
		"an escaped name":       {`"layer41"`, `"\u006cayer41"`},
		"another dtype name":    {`"bf16"}]`, `"BF16"}]`},
		"an unknown dtype":      {`"bf16"}]`, `"fp2"}]`},
		"layers not as ranges":  {`"41-42"`, `"41,42"`},
		"layers backwards":      {`"41-42"`, `"42-41"`},
		"no layers":             {`"41-42"`, `"-"`},
		"a layer beyond":        {`"41-42"`, `"41-99999"`},
		"many layers":           {`"41-42"`, `"0-16383,0-16383"`},
		"a digit of no axis":    {`"dim%8/1*16"`, `"width%8/1*16"`},
		"a digit without mod":   {`"dim%8/1*16"`, `"dim/1*16"`},
		"a digit in words":      {`"dim%8/1*16"`, `"dim%8/one*16"`},
		"a digit not canonical": {`"dim%8/1*16"`, `"dim%8/1*016"`},
		"a digit too many":      {`"dim%8/1*16"`, `"dim%8/1*16","dim%8/1*16"`},
		"a place too short":     {`[1,128,0]`, `[1,128]`},
		"a place too long":      {`[1,128,0]`, `[1,128,0,0]`},
		"a place of no region":  {`[1,128,0]`, `[2,128,0]`},
		"a negative place":      {`[1,128,0]`, `[1,-128,0]`},
		"overlap":               {`[1,128,0]`, `[1,0,0]`},
		"a region too small":    {`"layer42","bytes":768`, `"layer42","bytes":767`},
		"more behind it":        {`[1,128,0]]]}`, `[1,128,0]]]}{}`},
		"cut short":             {`[1,128,0]]]}`, `[1,128,0]]]`},
	})
	var l layout.Layout
	var e *layout.Error
	if err := l.UnmarshalJSON(bytes.Repeat([]byte{' '}, layout.MaxJSON+1)); !errors.As(err, &e) || e.Field != "json" {
		t.Errorf("too long: got %v", err)
	}
	// The longest list of heads that fits makes a short message.
	long := strings.Replace(packedJSON, `"blocks":3`, `"`+strings.Repeat("x", 1<<20)+`":3`, 1)
	if err := l.UnmarshalJSON([]byte(long)); !errors.As(err, &e) || e.Field != "json" || len(err.Error()) > 300 {
		t.Errorf("a long field: got %.300v", err)
	}
	many := strings.Replace(scaledJSON, "[4,0]", "["+strings.Repeat("1,", 1<<20)+"1]", 1)
	if err := l.UnmarshalJSON([]byte(many)); !errors.As(err, &e) || e.Field != "heads" || len(err.Error()) > 200 {
		t.Errorf("many heads: got %.300v", err)
	}
}

// refused makes one change at a time to a text that is read.
func refused(t *testing.T, text string, changes map[string][2]string) {
	t.Helper()
	if err := new(layout.Layout).UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	for name, change := range changes {
		data := strings.Replace(text, change[0], change[1], 1)
		if data == text {
			t.Errorf("%s: the test changes nothing", name)
		}
		var l layout.Layout
		var e *layout.Error
		if err := l.UnmarshalJSON([]byte(data)); !errors.As(err, &e) {
			t.Errorf("%s: got %v", name, err)
		}
		if l.Text() != new(layout.Layout).Text() {
			t.Errorf("%s: a refused layout was half read", name)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range []string{packedJSON, scaledJSON, stateJSON} {
		f.Add([]byte(text))
	}
	for _, text := range []string{"layer block head token dim", "block head component {k: dim/4 token/2 dim%4 token%2; v: token dim}"} {
		data, err := json.Marshal(packed(f, text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var l layout.Layout
		if err := l.UnmarshalJSON(data); err != nil {
			if n := len(err.Error()); n > 2048 {
				t.Fatalf("a message of %d bytes: %.200v", n, err)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("an invalid layout was read: %v", err)
		}
		again, err := l.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil || !bytes.Equal(compact.Bytes(), again) {
			t.Fatalf("read %s\nwrote %s", data, again)
		}
		var back layout.Layout
		if err := back.UnmarshalJSON(again); err != nil || !back.Equal(&l) || back.Digest() != l.Digest() {
			t.Fatalf("%s is read otherwise the second time: %v", data, err)
		}
		n := 1
		for _, m := range l.Maps {
			for _, d := range m {
				n *= int(min(d.Count(), 1<<12))
				n = min(n, 1<<20)
			}
		}
		if n*len(l.Extent.Layers)*len(l.Extent.Components) < 1<<12 {
			if why := overlap(&l); why != "" {
				t.Fatalf("accepted although %s: %s", why, data)
			}
		}
	})
}
