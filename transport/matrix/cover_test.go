package matrix_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The factors of the covering table, as places in a row.
const (
	inShape = iota
	inSourceTP
	inDestinationTP
	inSourceStages
	inDestinationStages
	inSourceBlock
	inDestinationBlock
	inSourceLayout
	inDestinationLayout
	inSourceDCP
	inDestinationDCP
	inQuantisation
	inCount
)

// dealing is how tokens are dealt over ranks.
type dealing struct{ size, interleave int }

func (d dealing) String() string {
	if d.size == 1 {
		return "none"
	}
	return fmt.Sprintf("%dx%d", d.size, d.interleave)
}

// levels are what each factor can be.
var levels = struct {
	tps      []int
	stages   []string
	blocks   []int
	dealings []dealing
}{
	tps:      []int{1, 2, 4, 8},
	stages:   []string{"1", "2", "uneven"},
	blocks:   []int{8, 16, 32, 48},
	dealings: []dealing{{1, 1}, {2, 1}, {2, 4}, {4, 1}},
}

// factor is one of the table's, with the names of its levels.
type factor struct {
	name   string
	levels []string
}

func table() []factor {
	each := func(n int, f func(i int) any) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprint(f(i)))
		}
		return out
	}
	both := func(name string, levels []string) []factor {
		return []factor{{name + " at the source", levels}, {name + " at the destination", levels}}
	}
	return slices.Concat(
		[]factor{{"shape", each(len(shapes), func(i int) any { return shapes[i].name })}},
		both("TP", each(len(levels.tps), func(i int) any { return levels.tps[i] })),
		both("PP", levels.stages),
		both("block", each(len(levels.blocks), func(i int) any { return levels.blocks[i] })),
		both("layout", kindsOfLayout),
		both("DCP", each(len(levels.dealings), func(i int) any { return levels.dealings[i] })),
		[]factor{{"quantisation", quantisations}},
	)
}

// choice is one row of the table: a level of each factor.
type choice [inCount]int

func (c choice) shape() *shape { return &shapes[c[inShape]] }

func (c choice) quantisation() string { return quantisations[c[inQuantisation]] }

// two is a level of each of two factors, i below j.
type two struct{ i, a, j, b int }

// excluded says why two levels cannot be in one row, or nothing.
func (t two) excluded() string {
	if t.i == inShape {
		s := &shapes[t.a]
		states := true
		for _, g := range s.groups(plain) {
			states = states && g.State
		}
		switch {
		case t.j == inQuantisation && states && quantisations[t.b] != plain:
			return "states are not quantised"
		case t.j == inQuantisation && strings.HasPrefix(s.name, "MLA, rows of several types") && !scaled(quantisations[t.b]):
			return "the row is one of values, their scales and what has none"
		case (t.j == inSourceDCP || t.j == inDestinationDCP) && s.name == "compressed entries" && levels.dealings[t.b].parts():
			return "a rank would hold part of a compressed entry"
		}
	}
	if t.j == inQuantisation && quantisations[t.b] == blockScale && (t.i == inSourceDCP || t.i == inDestinationDCP) && levels.dealings[t.a].parts() {
		return "a rank would hold part of the tokens that share a scale"
	}
	return ""
}

// packedTransposed says of two levels that most rows with both are refused.
func (t two) packedTransposed() bool {
	return (t.i == inSourceLayout || t.i == inDestinationLayout) && kindsOfLayout[t.a] == "transposed" && t.j == inQuantisation && quantisations[t.b] == packed
}

// parts reports whether tokens that share an entry fall to several ranks.
func (d dealing) parts() bool { return d.size > 1 && d.interleave%tokensPerEntry != 0 }

// maxRanks bounds the ranks of an engine in the table.
const maxRanks = 32

// legal reports whether a row can be.
func (c choice) legal() bool {
	for _, s := range [][3]int{{inSourceTP, inSourceStages, inSourceDCP}, {inDestinationTP, inDestinationStages, inDestinationDCP}} {
		if ranks := levels.tps[c[s[0]]] * min(c[s[1]]+1, 2) * levels.dealings[c[s[2]]].size; ranks > maxRanks {
			return false
		}
	}
	for i := range c {
		for j := i + 1; j < len(c); j++ {
			if (two{i, c[i], j, c[j]}).excluded() != "" {
				return false
			}
		}
	}
	return true
}

// pairwise returns rows in which every two levels that go together meet.
func pairwise(t testing.TB, factors []factor, seed uint64) []choice {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0x7072))
	left := map[two]bool{}
	var order []two
	for i := range factors {
		for j := i + 1; j < len(factors); j++ {
			for a := range factors[i].levels {
				for b := range factors[j].levels {
					if w := (two{i, a, j, b}); w.excluded() == "" {
						left[w] = true
						order = append(order, w)
					}
				}
			}
		}
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	each := func(c choice, f func(two)) {
		for i := range c {
			for j := i + 1; j < len(c); j++ {
				f(two{i, c[i], j, c[j]})
			}
		}
	}
	var rows []choice
	for _, first := range order {
		if !left[first] {
			continue
		}
		best, most := choice{}, 0
		// Of some legal rows that have the first of what is left, the one with
		// the most of it.
		for tries, found := 0, 0; found < 30 && tries < 3000; tries++ {
			var c choice
			for i := range c {
				c[i] = rng.IntN(len(factors[i].levels))
			}
			c[first.i], c[first.j] = first.a, first.b
			if !c.legal() {
				continue
			}
			found++
			gain := 0
			each(c, func(w two) {
				if left[w] {
					gain++
				}
			})
			if gain > most {
				best, most = c, gain
			}
		}
		if most == 0 {
			t.Fatalf("no row has %s %s with %s %s, and nothing says why", factors[first.i].name, factors[first.i].levels[first.a], factors[first.j].name, factors[first.j].levels[first.b])
		}
		each(best, func(w two) { delete(left, w) })
		rows = append(rows, best)
	}
	return rows
}

// The table has at least so many rows that are moved.
const leastRows = 500

// TestCover moves every row of a pairwise-covering table, over loop and over
// shared memory: any two levels of any two factors meet in several of them.
func TestCover(t *testing.T) {
	factors := table()
	var rows []choice
	for seed := range uint64(100) {
		if sparse() && seed > 0 || len(rows) > leastRows*21/20 { // some are refused
			break
		}
		rows = append(rows, pairwise(t, factors, seed)...)
	}
	if sparse() {
		rows = rows[:len(rows)/3]
	}
	p := heads(t)
	var mu sync.Mutex
	moved, refused := 0, 0
	has := map[string]int{}
	count := make([][]int, len(factors))
	for i := range factors {
		count[i] = make([]int, len(factors[i].levels))
	}
	met := map[two]bool{}
	t.Run("rows", func(t *testing.T) {
		for n, c := range rows {
			var name []string
			for i := range c {
				name = append(name, factors[i].levels[c[i]])
			}
			t.Run(fmt.Sprintf("%d/%s", n, strings.Join(name, "/")), func(t *testing.T) {
				t.Parallel()
				traits, err := c.move(p, uint64(n))
				if err != nil {
					t.Fatalf("%+v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if traits == nil {
					refused++
					return
				}
				moved++
				for _, trait := range traits {
					has[trait]++
				}
				for i := range c {
					count[i][c[i]]++
					for j := i + 1; j < len(c); j++ {
						met[two{i, c[i], j, c[j]}] = true
					}
				}
			})
		}
	})
	if filtered() {
		return
	}
	t.Logf("%d rows moved over loop and shm, %d refused since elements that share a byte would come apart", moved, refused)
	for i, f := range factors {
		var line []string
		for k, level := range f.levels {
			line = append(line, fmt.Sprintf("%s %d", level, count[i][k]))
		}
		t.Logf("%s: %s", f.name, strings.Join(line, ", "))
	}
	for _, trait := range coverTraits {
		t.Logf("%4d  %s", has[trait], trait)
		if has[trait] == 0 && !sparse() {
			t.Errorf("no row has: %s", trait)
		}
	}
	if moved+refused != len(rows) {
		t.Errorf("%d of %d rows were right", moved+refused, len(rows))
	}
	if sparse() {
		return
	}
	if moved < leastRows {
		t.Errorf("%d rows were moved, want at least %d", moved, leastRows)
	}
	// Any two that go together have been moved together, but where the only
	// such rows part elements that share a byte.
	for i := range factors {
		for j := i + 1; j < len(factors); j++ {
			for a := range factors[i].levels {
				for b := range factors[j].levels {
					w := two{i, a, j, b}
					if w.excluded() == "" && !met[w] && !w.packedTransposed() {
						t.Errorf("%s %s and %s %s were never moved together", factors[i].name, factors[i].levels[a], factors[j].name, factors[j].levels[b])
					}
				}
			}
		}
	}
}
