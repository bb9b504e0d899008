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

const packedJSON = `{"layers":"41-42","blocks":3,"tokens":4,"heads":2,` +
	`"components":[{"name":"k","heads":8,"dim":8,"dtype":"bf16"},{"name":"v","heads":8,"dim":8,"dtype":"bf16"}],` +
	`"regions":[{"name":"layer41","bytes":768},{"name":"layer42","bytes":768}],` +
	`"maps":[["block%3/1*2048","head%2/1*1024","token%4/1*256","dim%8/1*16"]],` +
	`"places":[[[0,0,0],[1,0,0]],[[0,128,0],[1,128,0]]]}`

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
	for name, change := range map[string][2]string{
		"unknown field":         {`"blocks":3`, `"blocks":3,"more":1`},
		"unknown field inside":  {`"name":"k"`, `"name":"k","scale":1`},
		"field twice":           {`"blocks":3`, `"blocks":3,"blocks":3`},
		"field in another case": {`"blocks":3`, `"Blocks":3`},
		"field absent":          {`"heads":2,"components"`, `"components"`},
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
	} {
		data := strings.Replace(packedJSON, change[0], change[1], 1)
		if data == packedJSON {
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
	var l layout.Layout
	var e *layout.Error
	if err := l.UnmarshalJSON(bytes.Repeat([]byte{' '}, layout.MaxJSON+1)); !errors.As(err, &e) || e.Field != "json" {
		t.Errorf("too long: got %v", err)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(packedJSON))
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
