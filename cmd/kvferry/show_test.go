package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
)

// spread lists where every byte that the copies write comes from.
func spread(copies []plan.Copy) map[plan.Place]plan.Place {
	out := map[plan.Place]plan.Place{}
	for _, c := range copies {
		each(c.Loops, c.Source.Offset, c.Destination.Offset, func(so, do int64) {
			from, to := c.Source, c.Destination
			for b := range c.Bytes {
				from.Offset, to.Offset = so+b, do+b
				out[to] = from
			}
		})
	}
	return out
}

// Both forms of every pair's copies say the same of every byte, what they say
// adds up to the edges and to the proof's elements, and the expanded form is
// sorted and maximal.
func TestPlanShowFormsAgree(t *testing.T) {
	for _, name := range glob(t, pairs+"*.yaml", 45) {
		if strings.Contains(name, "llama-70b") || strings.Contains(name, "mla") {
			continue // the same runs as the small ones, many times over
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			args := []string{"plan", "show", name, "--source-blocks", "1,2,0", "--destination-blocks", "2,1", "--from", "3"}
			loops, expanded := show(t, args...), show(t, append(args, "--expand")...)
			var edges, copies int64
			for _, e := range loops.Edges {
				edges += e.Bytes
				if e.Bytes < 1 || e.Segments < 1 {
					t.Errorf("edge %+v carries nothing", e)
				}
			}
			for i, c := range expanded.Copies {
				copies += c.Bytes
				if len(c.Loops) > 0 {
					t.Errorf("copy %v has loops", c)
				}
				if i == 0 {
					continue
				}
				p := expanded.Copies[i-1]
				if p.Destination.Rank > c.Destination.Rank || p.Destination.Rank == c.Destination.Rank && p.Destination.Region == c.Destination.Region && p.Destination.Offset+p.Bytes > c.Destination.Offset {
					t.Errorf("not sorted: %v before %v", p, c)
				}
				if p.Source.Rank == c.Source.Rank && p.Source.Region == c.Source.Region && p.Source.Offset+p.Bytes == c.Source.Offset &&
					p.Destination.Rank == c.Destination.Rank && p.Destination.Region == c.Destination.Region && p.Destination.Offset+p.Bytes == c.Destination.Offset {
					t.Errorf("not maximal: %v and %v", p, c)
				}
			}
			a, b := spread(loops.Copies), spread(expanded.Copies)
			if edges != copies || int64(len(a)) != copies || len(a) != len(b) {
				t.Fatalf("edges carry %d bytes, copies %d, loops %d, expanded %d", edges, copies, len(a), len(b))
			}
			for to, from := range a {
				if b[to] != from {
					t.Fatalf("byte %v comes from %v with loops, from %v expanded", to, from, b[to])
				}
			}
			f, err := pairfile.Parse(name, readFile(t, name))
			if err != nil {
				t.Fatal(err)
			}
			var bits, n int64 // of one row of every component
			for _, c := range f.SideModel(&f.Destination).Groups[0].Components {
				bits += c.RowBits()
				n += int64(c.Dim)
			}
			if !loops.Proof.OK || loops.Proof.Elements*bits != copies*8*n || expanded.Proof.Elements != loops.Proof.Elements {
				t.Errorf("proof says %d elements, %d bytes move in rows of %d elements and %d bits", loops.Proof.Elements, copies, n, bits)
			}
		})
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The object of section 13, field by field.
func TestPlanShowJSON(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"seed.yaml", "--source-blocks", "1,3", "--destination-blocks", "2,0", "-o", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit status %d, stderr %q", code, errs)
	}
	for _, want := range []string{
		`"edges":[{"source":0,"destination":0,"bytes":32768,"segments":2},{"source":0,"destination":1,"bytes":32768,"segments":2},`,
		`{"source":{"rank":0,"region":"layer0","offset":114688},"destination":{"rank":1,"region":"layer0","offset":0},"bytes":16384}`,
		`"proof":{"ok":true,"elements":65536}`,
		`"policy":{"name":"heads","digest":"sha256:`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	code, out, _ = kvferry("plan", "show", pairs+"seed-nhd.yaml", "-o", "json")
	if want := `"bytes":1024,"loops":[{"count":16,"source_stride":2048,"destination_stride":1024}]}`; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit status %d, no %s in %s", code, want, out)
	}
}

func TestPlanShowText(t *testing.T) {
	code, out, errs := kvferry("plan", "show", pairs+"seed.yaml")
	want := `prefill (tp 2, block 16) -> decode (tp 4, block 16)
             heads  0  1  2  3  4  5  6  7
rank 0    layers 0  0  0  .  .  .  .  .  .
rank 1    layers 0  .  .  0  0  .  .  .  .
rank 2    layers 0  .  .  .  .  1  1  .  .
rank 3    layers 0  .  .  .  .  .  .  1  1
tokens 0 to 15: 65536 bytes in 4 segments over 4 edges, 32768 elements, proved
`
	if code != 0 || errs != "" || out != want {
		t.Errorf("exit status %d, stderr %q, got\n%s\nwant\n%s", code, errs, out, want)
	}
	code, out, errs = kvferry("plan", "show", pairs+"seed.yaml", "--expand", "-v")
	for _, want := range []string{"  rank 0 layer0+16384 -> rank 1 layer0+0, 16384 bytes\n", "  policy heads sha256:", "  assign rank 1 <- rank 0: k v, layers 0, heads 2-3\n", "  plan sha256:"} {
		if code != 0 || errs != "" || !strings.Contains(out, want) {
			t.Errorf("exit status %d, stderr %q, no %q in\n%s", code, errs, want, out)
		}
	}
}

// Without tables one full block each; a range given is the range moved; dcp
// ranks hold their share.
func TestPlanShowTokens(t *testing.T) {
	row := int64(2 * 16) // elements of k and v of a (token, head, layer)
	for _, c := range []struct {
		file string
		args []string
		want int64 // tokens x heads x layers, replicas counted
	}{
		{"block-16-64", nil, 16 * 4 * 2},
		{"block-64-16", nil, 16 * 4 * 2},
		{"block-16-64", []string{"--source-blocks", "3,1,2"}, 48 * 4 * 2},
		{"block-48-32", []string{"--tokens", "7"}, 7 * 4 * 2},
		{"block-48-32", []string{"--source-blocks", "3,1", "--destination-blocks", "0,1,2", "--from", "31", "--tokens", "70"}, 39 * 4 * 2},
		{"dcp-source", []string{"--destination-blocks", "0,1"}, 32 * 4 * 2},
		{"dcp-both", []string{"--source-blocks", "0,1,2"}, 96 * 4 * 2},
		{"tp1-tp16-h16", nil, 16 * 16 * 2},
		{"replicas-both", nil, 16 * 4 * 2},
	} {
		if got := show(t, append([]string{"plan", "show", pairs + c.file + ".yaml"}, c.args...)...); got.Proof.Elements != c.want*row {
			t.Errorf("%s %v: %d elements, want %d", c.file, c.args, got.Proof.Elements, c.want*row)
		}
	}
}

// A request that the pair cannot serve is refused with its place; it is no
// wrong flag, since it depends on the file.
func TestPlanShowRefusesRequests(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--tokens", "17"}, []string{"source table", "16 tokens"}},
		{[]string{"--source-blocks", "0,1", "--tokens", "17"}, []string{"destination table", "16 tokens"}},
		{[]string{"--from", "16"}, []string{"tokens", "[16, 16)"}},
		{[]string{"--source-blocks", "4"}, []string{"source table", "pool of 4"}},
		{[]string{"--destination-blocks", "4"}, []string{"destination table", "pool of 4"}},
		{[]string{"--source-blocks", "0,1", "--destination-blocks", "3,3"}, []string{"destination table", "repeats"}},
	} {
		args := append([]string{"plan", "show", pairs + "seed.yaml"}, c.args...)
		code, out, errs := kvferry(args...)
		if code != 1 || out != "" || !strings.Contains(errs, "(fault: operator)") {
			t.Errorf("%v: exit status %d, stdout %q, stderr %q", c.args, code, out, errs)
		}
		code, out, errs = kvferry(append(args, "-o", "json")...)
		v := decode[shown](t, out)
		if code != 1 || errs != "" || v.Error == nil || v.Error.Kind != "request" || v.Error.Fault != "operator" || len(v.Error.Fields) != 1 || len(v.Copies) > 0 {
			t.Fatalf("%v: exit status %d, stderr %q, JSON %s", c.args, code, errs, out)
		}
		for _, want := range c.want {
			if !strings.Contains(v.Error.Message, want) {
				t.Errorf("%v: %q does not say %q", c.args, v.Error.Message, want)
			}
		}
	}
	// Surplus entries are legal, and the source may read a block twice.
	if got := show(t, "plan", "show", pairs+"seed.yaml", "--source-blocks", "1,1,2", "--destination-blocks", "3,0"); got.Proof.Elements != 65536 {
		t.Errorf("%d elements, want 65536", got.Proof.Elements)
	}
}

// Sides that differ name every field, with both values.
func TestPlanCheckNamesEveryMismatch(t *testing.T) {
	code, out, _ := kvferry("plan", "check", pairs+"bad/identity-differs.yaml", "-o", "json")
	v := decode[shown](t, out)
	if code != 1 || v.Error == nil || v.Error.Kind != "mismatch" {
		t.Fatalf("exit status %d, %s", code, out)
	}
	var got []string
	for _, f := range v.Error.Fields {
		got = append(got, f.Field+" "+f.Source+" "+f.Destination)
	}
	want := []string{"model.identity.rope.theta 500000 10000", "model.identity.window (not declared) 4096"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("fields %q, want %q", got, want)
	}
	_, _, errs := kvferry("plan", "check", pairs+"bad/identity-differs.yaml", "-v")
	for _, line := range []string{"model.identity.rope.theta: source 500000, destination 10000", "model.identity.window: source (not declared), destination 4096"} {
		if !strings.Contains(errs, line) {
			t.Errorf("no %q in %q", line, errs)
		}
	}
}

func TestPlanPresets(t *testing.T) {
	code, out, errs := kvferry("plan", "presets", "-o", "json")
	v := decode[struct{ Presets []presetJSON }](t, out)
	if code != 0 || errs != "" || len(v.Presets) < 10 {
		t.Fatalf("exit status %d, stderr %q, %d presets", code, errs, len(v.Presets))
	}
	_, text, _ := kvferry("plan", "presets")
	found := false
	for _, p := range v.Presets {
		if p.Name == "vllm/packed-hnd" {
			found = p.Order == "[block, head, token, component, dim]" && p.Claim == "HND"
		}
		if !strings.Contains(text, p.Name+"\n") || p.Order == "" || p.Doc == "" {
			t.Errorf("preset %+v", p)
		}
	}
	if !found {
		t.Error("vllm/packed-hnd is not [block, head, token, component, dim] with the claim HND")
	}
}

// The benches run, verify what they moved and report every figure that the
// design asks for. How fast this machine is today is no test.
func TestBenchSmall(t *testing.T) {
	for _, c := range []struct {
		bench string
		rows  []string
	}{
		{"plan", []string{"contiguous copy, 1 thread", "build", "prove", "build and prove", "planning allocates", "cached lookup", "plan runs", "plain loop", "stamp, one rank's request", "stamping allocates"}},
		{"copy", []string{"HND -> HND, 8192 B, contiguous", "HND -> HND, 8192 B, Go copy()", "HND -> HND, 8192 B, copy seam", "NHD -> NHD, 512 B, loop", "NHD -> HND, 256 B, shm"}},
	} {
		code, out, errs := kvferry("bench", c.bench, "--small", "--rounds", "1", "-o", "json")
		r := decode[report](t, out)
		if code != 0 || errs != "" || !r.Verified || r.Machine.CPUs < 1 || r.Rounds != 1 {
			t.Fatalf("%s: exit status %d, stderr %q, %s", c.bench, code, errs, out)
		}
		for _, want := range c.rows {
			found := false
			for _, row := range r.Rows {
				found = found || row.Name == want
			}
			if !found {
				t.Errorf("%s: no row %q in %s", c.bench, want, out)
			}
		}
		for _, row := range r.Rows {
			if row.Seconds <= 0 && row.Unit == "" {
				t.Errorf("%s: %s took %v s", c.bench, row.Name, row.Seconds)
			}
			for _, cmp := range row.Compared {
				if strings.Contains(cmp.With, "segments") || strings.Contains(cmp.With, "MB") || strings.Contains(cmp.With, "object") || strings.Contains(cmp.With, "runs") {
					if !cmp.OK { // counts, not times
						t.Errorf("%s: %s is %v x %s", c.bench, row.Name, cmp.Ratio, cmp.With)
					}
				}
			}
		}
	}
}
