package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What commands print for pairs of several kinds of groups.
func TestTranscripts(t *testing.T) {
	for _, name := range glob(t, pairs+"show/*.txt", 4) {
		transcript(t, name, func(s string) string { return s })
	}
}

var digests = regexp.MustCompile("sha256:[0-9a-f]{64}")

// transcript compares a file of commands and their output with what they print.
// -rewrite keeps the commands and writes the rest. plain replaces what differs
// from run to run.
func transcript(t *testing.T, name string, plain func(string) string) {
	t.Run(filepath.Base(name), func(t *testing.T) {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for line := range strings.Lines(string(want)) {
			command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ kvferry ")
			if !ok {
				continue
			}
			args := shellWords(command)
			for i, a := range args {
				if strings.HasSuffix(a, ".yaml") {
					args[i] = pairs + a
				}
			}
			code, out, errs := kvferry(args...)
			out = digests.ReplaceAllString(strings.ReplaceAll(out+errs, pairs, ""), "sha256:...")
			out = strings.ReplaceAll(strings.ReplaceAll(out, "},{", "},\n {"), `],"`, "],\n \"") // a copy a line
			fmt.Fprintf(&got, "%s%s", line, plain(out))
			if code != 0 {
				fmt.Fprintf(&got, "exit status %d\n", code)
			}
		}
		if *rewrite {
			if err := os.WriteFile(name, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if got.String() != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	})
}

// shellWords splits a command as a shell would that knows single quotes only.
func shellWords(command string) []string {
	var out []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
