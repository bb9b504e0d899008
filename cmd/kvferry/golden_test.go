package main

import (
	"fmt"
	"strings"
	"testing"
)

// The worked numbers of one engine's own connector, for its packed, joint and
// split blocks: 16 tokens, dim 128, fp16. Each line is
// "SOURCE RANK region+offset -> DESTINATION RANK region+offset bytes"; a
// source rank "*" is a replica, of which the policy may choose any.
func TestPlanShowWorkedNumbers(t *testing.T) {
	each := func(n int, line func(r int) string) []string {
		var out []string
		for r := range n {
			out = append(out, line(r))
		}
		return out
	}
	at := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	tables := []string{"--source-blocks", "1,3", "--destination-blocks", "2,0"}
	for _, c := range []struct {
		file  string
		args  []string
		rank  int // of the destination; all: -1
		edges int
		want  []string
	}{
		{"seed", tables, -1, 4, []string{
			"0 layer0+98304 -> 0 layer0+0 16384", "0 layer0+32768 -> 0 layer0+32768 16384",
			"0 layer0+114688 -> 1 layer0+0 16384", "0 layer0+49152 -> 1 layer0+32768 16384",
			"1 layer0+98304 -> 2 layer0+0 16384", "1 layer0+32768 -> 2 layer0+32768 16384",
			"1 layer0+114688 -> 3 layer0+0 16384", "1 layer0+49152 -> 3 layer0+32768 16384",
		}},
		{"vllm-joint", tables, 1, 4, []string{
			"0 layer0+106496 -> 1 layer0+0 8192", "0 layer0+122880 -> 1 layer0+8192 8192",
			"0 layer0+40960 -> 1 layer0+32768 8192", "0 layer0+57344 -> 1 layer0+40960 8192",
		}},
		{"vllm-split", tables, 1, 4, []string{
			"0 layer0+57344 -> 1 layer0+0 8192", "0 layer0+24576 -> 1 layer0+16384 8192",
			"0 layer0+122880 -> 1 layer0+32768 8192", "0 layer0+90112 -> 1 layer0+49152 8192",
		}},
		{"vllm-p4-d2-h8", nil, -1, 4, []string{
			"0 layer0+0 -> 0 layer0+0 16384", "1 layer0+0 -> 0 layer0+16384 16384",
			"2 layer0+0 -> 1 layer0+0 16384", "3 layer0+0 -> 1 layer0+16384 16384",
		}},
		{"vllm-p1-d8-h8", nil, -1, 8, each(8, func(r int) string { return at("0 layer0+%d -> %d layer0+0 8192", r*8192, r) })},
		{"vllm-p8-d1-h8", nil, -1, 8, each(8, func(r int) string { return at("%d layer0+0 -> 0 layer0+%d 8192", r, r*8192) })},
		{"vllm-p8-d16-h8", nil, -1, 16, each(16, func(r int) string { return at("%d layer0+0 -> %d layer0+0 8192", r/2, r) })},
		{"vllm-p4-d16-h8", nil, -1, 16, each(16, func(r int) string { return at("%d layer0+%d -> %d layer0+0 8192", r/4, r/2%2*8192, r) })},
		{"vllm-p1-d4-h2", nil, -1, 4, each(4, func(r int) string { return at("0 layer0+%d -> %d layer0+0 8192", r/2*8192, r) })},
		{"vllm-p16-d8-h8", nil, -1, 8, each(8, func(r int) string { return at("* layer0+0 -> %d layer0+0 8192", r) })},
		{"vllm-p8-d2-h4", nil, -1, 4, []string{
			"* layer0+0 -> 0 layer0+0 8192", "* layer0+0 -> 0 layer0+8192 8192",
			"* layer0+0 -> 1 layer0+0 8192", "* layer0+0 -> 1 layer0+8192 8192",
		}},
		{"vllm-n16-n64", []string{"--source-blocks", "0,1,2,3"}, 1, 4, each(8, func(i int) string {
			return at("0 layer0+%d -> 1 layer0+%d 8192", i%4*32768+16384+i/4*8192, i*8192)
		})},
		{"vllm-mla-p8-d2", nil, -1, 2, each(2, func(r int) string { return at("* layer0.latent+0 -> %d layer0.latent+0 73728", r) })},
		{"vllm-mla-p2-d8", nil, -1, 8, each(8, func(r int) string { return at("* layer0.latent+0 -> %d layer0.latent+0 73728", r) })},
	} {
		t.Run(c.file, func(t *testing.T) {
			got := show(t, append([]string{"plan", "show", pairs + c.file + ".yaml", "--expand"}, c.args...)...)
			if len(got.Edges) != c.edges {
				t.Errorf("%d edges %v, want %d", len(got.Edges), got.Edges, c.edges)
			}
			var lines []string
			for _, cp := range got.Copies {
				if cp.Loops != nil {
					t.Errorf("a copy has loops after --expand: %v", cp)
				}
				if c.rank >= 0 && cp.Destination.Rank != c.rank {
					continue
				}
				source, i := fmt.Sprint(cp.Source.Rank), len(lines)
				if i < len(c.want) && strings.HasPrefix(c.want[i], "* ") {
					source = "*"
				}
				lines = append(lines, at("%s %s+%d -> %d %s+%d %d", source, cp.Source.Region, cp.Source.Offset, cp.Destination.Rank, cp.Destination.Region, cp.Destination.Offset, cp.Bytes))
			}
			if g, w := strings.Join(lines, "\n"), strings.Join(c.want, "\n"); g != w {
				t.Errorf("copies\n%s\nwant\n%s", g, w)
			}
		})
	}
}
