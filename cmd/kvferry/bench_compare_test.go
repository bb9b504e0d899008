package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestBenchCompare(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	run := func(cpu string, ratio float64, ok bool, more string) string {
		return asText(t, report{Bench: "bench copy", Machine: machineJSON{CPU: cpu, CPUs: 2}, Rows: []row{
			{Name: "shm", Seconds: ratio / 100, Compared: []compare{{With: "contiguous", Ratio: ratio, OK: ok}}}, {Name: more, Seconds: 1},
		}}) + "\n"
	}
	old := file("old", run("a", 0.7, true, "loop"))
	for _, c := range []struct {
		name, text string
		code       int
		want       []string
	}{
		{"as before", run("a", 0.71, true, "loop"), 0, []string{"3 figures, 3 of them as before within a tenth"}},
		{"better", run("a", 0.9, true, "loop"), 0, []string{"shm against contiguous: 0.9, was 0.7 (1.29 of it)", "shm: 9.00 ms, was 7.00 ms", "3 figures, 1 of them"}},
		{"a floor that holds no more", run("a", 0.4, false, "loop"), 1, []string{"shm against contiguous: 0.4, was 0.7: holds its floor no more"}},
		{"another machine", run("b", 0.7, true, "loop"), 0, []string{"1 figures, 1 of them", "times are not compared"}},
		{"other figures", run("a", 0.7, true, "tcp"), 0, []string{"loop: gone, was 1.00 s", "tcp: new, 1.00 s"}},
	} {
		code, out, errs := kvferry("bench", "compare", old, file("new", c.text))
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in %s%s", c.name, want, out, errs)
			}
		}
		if code != c.code {
			t.Errorf("%s: exit status %d, want %d", c.name, code, c.code)
		}
	}
	changes := lines[changeJSON](t, ran(t, "bench", "compare", old, old, "-o", "json"))
	if len(changes) != 3 || changes[0].Change != 1 || changes[0].Old == nil || changes[0].Broken {
		t.Errorf("%+v", changes)
	}
	for text, want := range map[string]string{"": "holds no report", "{}": "report 0: it names no bench", "not JSON": "report 0: invalid character", run("a", 1, true, "x") + "{": "report 1: unexpected EOF"} {
		refusedWith(t, want, "bench", "compare", old, file("bad", text))
	}
	if code, _, _ := kvferry("bench", "compare", old); code != 2 {
		t.Errorf("exit status %d", code)
	}
}
