package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func benchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measures this machine: ratios within one run, never absolute claims",
		Args:  cobra.ArbitraryArgs,
		RunE:  verbNeeded,
	}
	cmd.PersistentFlags().BoolVar(&a.verify, "verify", false, "end with status 1 where a floor is missed")
	cmd.AddCommand(benchPlanCommand(a), benchCopyCommand(a), benchDigestCommand(a), benchPolicyCommand(a), benchRooflineCommand(a), benchTCPCommand(a), benchCompareCommand(a))
	return cmd
}

// row is one measured figure. Ratios compare medians of variants that ran
// interleaved in one process; an absolute figure is shown and never judged.
type row struct {
	Name     string    `json:"name"`
	Seconds  float64   `json:"seconds,omitempty"` // median
	Best     float64   `json:"best_seconds,omitempty"`
	Bytes    int64     `json:"bytes,omitempty"`
	Pieces   int64     `json:"pieces,omitempty"`
	GBps     float64   `json:"gb_per_second,omitempty"` // 1e9 bytes
	Value    float64   `json:"value,omitempty"`         // where the figure is no time
	Unit     string    `json:"unit,omitempty"`
	Compared []compare `json:"compared,omitempty"`
}

// compare is a figure against another: with Floor's sense "least", Ratio must
// not fall below Floor; with "most", not rise above it.
type compare struct {
	With   string  `json:"with"`
	Ratio  float64 `json:"ratio"`
	Sense  string  `json:"sense"` // "least" or "most"
	Target float64 `json:"target,omitempty"`
	Floor  float64 `json:"floor"`
	OK     bool    `json:"ok"`
}

func judge(with string, ratio float64, sense string, target, floor float64) compare {
	return compare{with, ratio, sense, target, floor, sense == "least" && ratio >= floor || sense == "most" && ratio <= floor}
}

// report is what a bench prints.
type report struct {
	Bench    string      `json:"bench"`
	Case     string      `json:"case"`
	Small    bool        `json:"small,omitempty"`
	Rounds   int         `json:"rounds"`
	Rows     []row       `json:"rows"`
	Verified bool        `json:"verified"`
	OK       bool        `json:"ok"`
	Machine  machineJSON `json:"machine"`
	Memory   string      `json:"memory,omitempty"` // what the pools lie on
	Notes    []string    `json:"notes,omitempty"`  // what was not measured, and why
}

func (a *app) report(r *report) error {
	r.OK = r.Verified
	for _, row := range r.Rows {
		for _, c := range row.Compared {
			r.OK = r.OK && c.OK
		}
	}
	r.Machine = machine()
	a.step("")
	if a.json() {
		return errors.Join(a.emit(r), a.verdict(r))
	}
	m := r.Machine
	fmt.Fprintf(a.out, "%s: %s\n%s, %d cpus, kernel %s, %s", r.Bench, r.Case, m.CPU, m.CPUs, m.Kernel, m.Go)
	if r.Memory != "" {
		fmt.Fprintf(a.out, ", %s", r.Memory)
	}
	fmt.Fprintf(a.out, ", median of %d\n\n", r.Rounds)
	name := 0
	for _, row := range r.Rows {
		name = max(name, len(row.Name))
	}
	for _, row := range r.Rows {
		figure := ""
		switch {
		case row.Unit != "":
			figure = fmt.Sprintf("%.4g %s", row.Value, row.Unit)
		case row.GBps > 0:
			figure = fmt.Sprintf("%s  %.1f GB/s", duration(row.Seconds), row.GBps)
		default:
			figure = duration(row.Seconds)
		}
		if row.Pieces > 0 {
			figure += fmt.Sprintf("  %d pieces", row.Pieces)
		}
		fmt.Fprintf(a.out, "%-*s  %s\n", name, row.Name, figure)
		for _, c := range row.Compared {
			verdict := map[bool]string{true: "ok", false: "MISSED"}[c.OK]
			goal := ""
			if c.Target > 0 {
				goal = fmt.Sprintf("target %g, ", c.Target)
			}
			fmt.Fprintf(a.out, "%-*s    %.3g x %s (%sat %s %g): %s\n", name, "", c.Ratio, c.With, goal, c.Sense, c.Floor, verdict)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(a.out, "\n%s\n", n)
	}
	verified := "bytes and plans verified"
	if !r.Verified {
		verified = "VERIFICATION FAILED"
	}
	fmt.Fprintf(a.out, "\n%s; floors %s\n", verified, map[bool]string{true: "held", false: "missed"}[r.OK])
	return a.verdict(r)
}

// verdict is how a bench ends: with --verify a missed floor is a failure.
func (a *app) verdict(r *report) error {
	if a.verify && !r.OK || !r.Verified {
		return errReported
	}
	return nil
}

func duration(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.2f ms", s*1e3)
	case s >= 1e-6:
		return fmt.Sprintf("%.2f us", s*1e6)
	}
	return fmt.Sprintf("%.0f ns", s*1e9)
}

// variant is one way to do a job; repeat (0: 1) is how often it runs within
// one sample, for jobs too short for the clock.
type variant struct {
	name   string
	repeat int
	run    func() error
}

// timing is what a variant took, a run.
type timing struct{ median, best float64 }

// interleave runs every variant once to warm up, then rounds times in turn,
// so that a slow second of the machine hits them all.
func (a *app) interleave(ctx context.Context, rounds int, variants ...variant) ([]timing, error) {
	samples := make([][]float64, len(variants))
	for round := range rounds + 1 {
		for i, v := range variants {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("bench stopped: %w", err)
			}
			a.step("round %d of %d: %s", round, rounds, v.name)
			runtime.GC() // the garbage of one variant is not the next one's pause
			n := max(v.repeat, 1)
			began := time.Now()
			for range n {
				if err := v.run(); err != nil {
					return nil, fmt.Errorf("bench %s: %w", v.name, err)
				}
			}
			if took := time.Since(began).Seconds() / float64(n); round > 0 {
				samples[i] = append(samples[i], took)
			}
		}
	}
	out := make([]timing, len(variants))
	for i, s := range samples {
		slices.Sort(s)
		out[i] = timing{s[len(s)/2], s[0]}
	}
	return out, nil
}

func timed(name string, t timing) row { return row{Name: name, Seconds: t.median, Best: t.best} }

func moved(name string, t timing, bytes, pieces int64) row {
	r := timed(name, t)
	r.Bytes, r.Pieces, r.GBps = bytes, pieces, float64(bytes)/t.median/1e9
	return r
}

func (r row) against(c ...compare) row {
	r.Compared = append(r.Compared, c...)
	return r
}

// allocated runs f and returns what it allocated, in bytes and objects.
// Nothing else may run meanwhile.
func allocated(f func() error) (bytes, objects uint64, err error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	err = f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs, err
}

// reference writes the pair file of the reference case: 80 layers, 8 kv heads
// of 128, bf16, block 16, TP 2 -> 4, K and V halves in each block, so that a
// 4,096-token request is 40,960 pieces of 8 KiB a destination rank with HND on
// both sides. Flat, with blocks in order, all tokens of a head follow each other.
func reference(layers, sourceBlocks, destinationBlocks int, source, destination string) []byte {
	order := map[string]string{"hnd": "[block, component, head, token, dim]", "nhd": "[block, component, token, head, dim]", "flat": "[component, head, block, token, dim]"}
	return []byte(strings.NewReplacer("LAYERS", fmt.Sprint(layers), "SB", fmt.Sprint(sourceBlocks), "DB", fmt.Sprint(destinationBlocks), "SOURCE", order[source], "DESTINATION", order[destination]).Replace(`kvferry: pair/1
model:
  name: llama-70b
  layers: LAYERS
  components:
    - {name: k, heads: 8, dim: 128, dtype: bf16}
    - {name: v, heads: 8, dim: 128, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 2}
  block: 16
  blocks: SB
  layout: {order: SOURCE}
destination:
  engine: decode
  shard: {tp: 4}
  block: 16
  blocks: DB
  layout: {order: DESTINATION}
`))
}
