package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/demo"
	"github.com/kvferry/kvferry/cmd/kvferry/tinyllm"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
)

// keeper is a shape whose cache a preset can hold, and the key that tells it; ""
// where none can.
func keeper(t *testing.T, p preset.Preset) (shape tinyllm.Shape, key string) {
	t.Helper()
	for _, shape := range []tinyllm.Shape{tinyllm.Llama, tinyllm.MLA, tinyllm.FP8, tinyllm.Hybrid} {
		c := demo.Default()
		c.Shape = shape
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range m.Geometry().Groups {
			e := layout.Extent{Layers: g.Layers, Blocks: 2, Tokens: 16, Components: g.Components, State: g.State}
			key := "layout"
			if g.State {
				e.Tokens, key = 1, "state"
			}
			for _, c := range g.Components {
				e.Heads = append(e.Heads, c.Heads)
			}
			if _, err := p.Resolve(e); err == nil {
				return shape, key
			}
		}
	}
	return "", ""
}

// Every preset that can hold a cache of some shape, at either end; the others
// are refused before an engine starts.
func TestDemoEveryLayout(t *testing.T) {
	shapes := map[tinyllm.Shape]int{}
	for i, p := range preset.All() {
		shape, key := keeper(t, p)
		shapes[shape]++
		for _, side := range []string{"source", "destination"} {
			if testing.Short() && (i+len(side))%8 != 0 {
				continue
			}
			t.Run(p.Name+" "+side, func(t *testing.T) {
				args := []string{"--transport", "loop", "--requests", "1", "--tokens", "4", "--" + side, key + "=" + p.Name}
				if shape == "" {
					args[len(args)-1] = "layout=" + p.Name
					code, out, errs := kvferry(append([]string{"demo"}, args...)...)
					if code != 2 || out != "" || !strings.Contains(errs, "layout "+p.Name+" does not fit") || !strings.Contains(errs, "--"+side) {
						t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
					}
					return
				}
				v := right(t, append(args, "--model-shape", string(shape))...)
				if got := map[string]string{"source": v.Layouts.Source, "destination": v.Layouts.Destination}[side]; !slices.Contains(strings.Split(got, " + "), p.Name) {
					t.Errorf("the %s keeps its cache as %s", side, got)
				}
			})
		}
	}
	if shapes[tinyllm.Llama] < 20 || shapes[tinyllm.MLA] < 2 || shapes[tinyllm.FP8] < 2 || shapes[tinyllm.Hybrid] < 2 {
		t.Errorf("presets by the shape that they hold: %v", shapes)
	}
}

// Every shape of cache between engines of every kind, each over another
// transport, in another mode, and with another part of it compared.
func TestDemoShapes(t *testing.T) {
	pairs := map[tinyllm.Shape][]string{
		tinyllm.Llama: {"--source tp=4 --destination tp=2"},
		tinyllm.Sliding: {
			"--source tp=2,layout=hnd --destination tp=4", "--source tp=4 --destination tp=2,pp=2", "--source tp=1,pp=4,block=5 --destination tp=2,block=7",
			"--source tp=2,dcp=2,layout=cpu-vec --destination tp=4,layout=x-packed", "--source block=64 --destination tp=1,dcp=4,block=16", "--source tp=16,block=1 --destination block=1",
		},
		tinyllm.MLA: {
			"--source tp=2 --destination tp=4", "--source tp=4,pp=2 --destination tp=2", "--source tp=1,layout=sglang/mla --destination tp=2,pp=3",
			"--source tp=2,dcp=2,layout=mla-parts --destination layout=mla,block=24", "--heads 3 --source tp=7,block=5 --destination tp=2,block=3", "--source tp=1 --destination tp=8,dcp=2",
		},
		tinyllm.FP8: {
			"--source tp=2 --destination tp=4", "--source tp=4,pp=2 --destination tp=2", "--source tp=1,layout=sglang --destination tp=2,pp=3,layout=token-head-scales-nhd",
			"--source tp=2,dcp=2 --destination tp=16", "--heads 6 --source tp=3,layout=cross-layer,block=5 --destination block=7,tp=2", "--source layout=joint-hnd --destination layout=trtllm",
		},
		tinyllm.Hybrid: {
			"--source tp=2,layout=hnd,state=gdn-ds --destination tp=4", "--source tp=4,pp=2 --destination tp=2,state=gdn-ds", "--source tp=1,pp=4 --destination tp=2,pp=3",
			"--source tp=2,dcp=2 --destination tp=16", "--heads 3 --source tp=1,block=5 --destination block=7,tp=3,dcp=2", "--heads 2 --source tp=16,state=gdn-ds --destination tp=1",
		},
	}
	modes := []string{"pull", "push", "layers", "chunks"}
	transports := []string{"loop", "shm", "tcp"}
	levels := []string{"full", "sample", "off"}
	for k, shape := range tinyllm.Shapes() {
		for i, line := range pairs[tinyllm.Shape(shape)] {
			if testing.Short() && i != k {
				continue
			}
			args := append(words(line), "--model-shape", shape, "--mode", modes[(i+k)%4], "--transport", transports[(i+2*k)%3], "--integrity", levels[(i+i/3+k)%3])
			t.Run(strings.Join(args, " "), func(t *testing.T) { right(t, small(args...)...) })
		}
	}
	for k, shape := range tinyllm.Shapes() {
		line := fmt.Sprintf("--model-shape %s --integrity full --requests %d --tokens 6 --mode %s --transport loop", shape, 5+k, modes[(k+1)%4])
		if testing.Short() {
			break
		}
		t.Run(line, func(t *testing.T) { right(t, words(line)...) })
	}
}

// Each mode of each shape, whatever the rotation above leaves out, in one
// process.
func TestDemoShapesInEveryMode(t *testing.T) {
	for i, shape := range tinyllm.Shapes()[1:] {
		for k, mode := range []string{"pull", "push", "layers", "chunks"} {
			if testing.Short() && i != k {
				continue
			}
			t.Run(shape+" "+mode, func(t *testing.T) {
				right(t, "--transport", "loop", "--requests", "1", "--tokens", "4", "--model-shape", shape, "--mode", mode, "--integrity", "full")
			})
		}
	}
}

// The command lines that the README shows: the run is whole, and what was
// compared is said in one line.
func TestDemoComparesWhatArrived(t *testing.T) {
	for shape, want := range map[string]string{"hybrid": "48", "mla": "32", "fp8": "64", "sliding": "32"} {
		code, out, errs := kvferry("demo", "--model-shape", shape, "--integrity", "full", "--requests", "1", "--tokens", "4")
		line := "integrity full: " + want + " digests of the source and the destination are equal"
		if code != 0 || errs != "" || !strings.Contains(out, line) || !strings.Contains(out, "model shape "+shape) || !strings.Contains(out, "layouts measured, and probed") {
			t.Errorf("%s: exit status %d, stderr %q, stdout %s", shape, code, errs, out)
		}
	}
}

// A kernel that does not write what its engine declared is found before
// anything is, and both places are named.
func TestDemoLyingKernel(t *testing.T) {
	for _, c := range []struct{ line, declared, measured string }{
		// Of a (token, head) row, 64 bytes of k and v, the one that lies behind
		// the first is that of another head, or of another token.
		{"", "256", "64"},
		{"--transport loop --source layout=hnd", "64", "256"},
		{"--transport loop --model-shape hybrid", "256", "64"},
		{"--transport loop --model-shape sliding --source pp=2", "256", "64"},
		{"--transport loop --model-shape fp8", "", ""},
		{"--transport loop --model-shape mla", "64", "48"}, // rows of latent and rope, or all latents first
		{"--transport loop --heads 1 --source tp=1", "", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			temporary(t)
			args := append([]string{"demo", "--lie-kernel"}, words(c.line)...)
			if c.line == "" {
				code, out, errs := kvferry(args...)
				if code != 1 || out != "" || !strings.Contains(errs, "(fault: local)") || !strings.Contains(errs, "component k layer 0 block 0 token 1 head 0 dim 0 lies at byte 64 of layer0, declared at byte 256 of layer0") {
					t.Errorf("exit status %d, stdout %q, stderr %q", code, out, errs)
				}
			}
			code, out, errs := kvferry(append(args, "-o", "json")...)
			v := decode[demoJSON](t, out)
			if code != 1 || errs != "" || len(v.Requests) != 0 || v.Error == nil || v.Error.Kind != "kernel" || v.Error.Fault != "local" || len(v.Error.Fields) != 2 {
				t.Fatalf("exit status %d, stderr %q, JSON %s", code, errs, out)
			}
			declared, measured := v.Error.Fields[0], v.Error.Fields[1]
			if !strings.HasPrefix(declared.Field, "declared place of rank 0 component ") || !strings.HasPrefix(measured.Field, "measured place of rank 0 component ") || declared.Source == measured.Source {
				t.Errorf("fields %+v", v.Error.Fields)
			}
			if c.declared != "" && (!strings.Contains(declared.Source, "byte "+c.declared+" of layer") || !strings.Contains(measured.Source, "byte "+c.measured+" of layer")) {
				t.Errorf("places %q and %q, want bytes %s and %s", declared.Source, measured.Source, c.declared, c.measured)
			}
			nothingLeft(t)
		})
	}
}
