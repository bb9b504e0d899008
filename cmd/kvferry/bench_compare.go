package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/blame"
)

func benchCompareCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "compare OLD.json NEW.json",
		Short: "shows what changed between two runs of benches",
		Long: "compare reads what benches printed with -o json, one report a line, and shows for\n" +
			"each figure how its ratios changed. Absolute times are compared only where both\n" +
			"runs were on the same kind of machine, and judged nowhere: two runs are never\n" +
			"equally quiet. A ratio that held its floor and holds it no more is exit status 1.",
		Example: "  kvferry bench copy -o json > old.json\n  kvferry bench compare old.json new.json",
		Args:    arguments(2, 2, "OLD.json and NEW.json"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.benchCompare(args[0], args[1]) },
	}
}

// maxReports bounds a file of reports.
const maxReports = 16 << 20

// reports reads a file of reports.
func reports(name string) ([]report, error) {
	text, err := readAll(name, maxReports)
	if err != nil {
		return nil, err
	}
	var out []report
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var r report
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && r.Bench == "" {
			err = errors.New("it names no bench")
		}
		if err != nil {
			return nil, blame.On(blame.Operator, fmt.Errorf("%s: report %d: %w", name, len(out), err))
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, blame.On(blame.Operator, fmt.Errorf("%s holds no report: write it with kvferry bench ... -o json", name))
	}
	return out, nil
}

// changeJSON is one figure in two runs. Ratios of times are new by old.
type changeJSON struct {
	Bench  string   `json:"bench"`
	Name   string   `json:"name"`
	With   string   `json:"with,omitempty"` // what the figure is compared with; empty: a time
	Old    *float64 `json:"old,omitempty"`  // nil: the run has it not
	New    *float64 `json:"new,omitempty"`
	Change float64  `json:"change,omitempty"` // new by old
	Broken bool     `json:"broken,omitempty"` // it held its floor, and holds it no more
}

// figures are all that a run says, by what says it.
func figures(rs []report, times bool) (keys [][3]string, values map[[3]string]float64, held map[[3]string]bool) {
	values, held = map[[3]string]float64{}, map[[3]string]bool{}
	put := func(k [3]string, v float64, ok bool) {
		if _, twice := values[k]; !twice {
			keys = append(keys, k)
		}
		values[k], held[k] = v, ok
	}
	for _, r := range rs {
		for _, row := range r.Rows {
			if times && row.Seconds > 0 {
				put([3]string{r.Bench, row.Name, ""}, row.Seconds, true)
			}
			for _, c := range row.Compared {
				put([3]string{r.Bench, row.Name, c.With}, c.Ratio, c.OK)
			}
		}
	}
	return keys, values, held
}

func (a *app) benchCompare(oldName, newName string) error {
	before, err := reports(oldName)
	if err != nil {
		return err
	}
	after, err := reports(newName)
	if err != nil {
		return err
	}
	times := before[0].Machine.CPU == after[0].Machine.CPU && before[0].Machine.CPUs == after[0].Machine.CPUs && before[0].Small == after[0].Small
	keys, was, held := figures(before, times)
	fresh, is, holds := figures(after, times)
	for _, k := range fresh {
		if _, ok := was[k]; !ok {
			keys = append(keys, k)
		}
	}
	var out []changeJSON
	broken := false
	for _, k := range keys {
		c := changeJSON{Bench: k[0], Name: k[1], With: k[2]}
		if v, ok := was[k]; ok {
			c.Old = &v
		}
		if v, ok := is[k]; ok {
			c.New = &v
		}
		if c.Old != nil && c.New != nil {
			c.Broken = held[k] && !holds[k]
			broken = broken || c.Broken
			if *c.Old != 0 {
				c.Change = *c.New / *c.Old
			}
		}
		out = append(out, c)
	}
	if a.json() {
		for _, c := range out {
			if err := a.emit(c); err != nil {
				return err
			}
		}
	} else if err := a.changes(out, times); err != nil {
		return err
	}
	if broken {
		return errReported
	}
	return nil
}

// changes prints them for people: what changed by a tenth and more, what is new
// and what is gone.
func (a *app) changes(all []changeJSON, times bool) error {
	shown := 0
	for _, c := range all {
		figure := c.Name
		if c.With != "" {
			figure += " against " + c.With
		}
		switch {
		case c.Old == nil:
			fmt.Fprintf(a.out, "%s: %s: new, %s\n", c.Bench, figure, c.value(c.New))
		case c.New == nil:
			fmt.Fprintf(a.out, "%s: %s: gone, was %s\n", c.Bench, figure, c.value(c.Old))
		case c.Broken:
			fmt.Fprintf(a.out, "%s: %s: %s, was %s: holds its floor no more\n", c.Bench, figure, c.value(c.New), c.value(c.Old))
		case math.Abs(c.Change-1) >= 0.1:
			fmt.Fprintf(a.out, "%s: %s: %s, was %s (%.2f of it)\n", c.Bench, figure, c.value(c.New), c.value(c.Old), c.Change)
		default:
			continue
		}
		shown++
	}
	fmt.Fprintf(a.out, "%d figures, %d of them as before within a tenth\n", len(all), len(all)-shown)
	if !times {
		fmt.Fprintln(a.out, "the runs were on different machines, or of different sizes: times are not compared")
	}
	return nil
}

func (c *changeJSON) value(v *float64) string {
	if c.With == "" {
		return duration(*v)
	}
	return fmt.Sprintf("%.3g", *v)
}
