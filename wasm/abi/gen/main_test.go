package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The generated files are what the schema says.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("%d files are generated, want Go records, a C header, golden values and their messages", len(files))
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join("..", f.path))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(have, f.data) {
			t.Errorf("%s is not what the schema gives: run \"go run ./wasm/abi/gen\"", f.path)
		}
	}
}

func TestSchemaErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"keyword", "thing x\n", `schema line 1: unknown keyword`},
		{"number", "magic zero\n", `schema line 1: no number`},
		{"hook", "message m\n", `schema line 1: a message names its hook`},
		{"kind", "record r\n  u16 x\n", `schema line 2: unknown field kind`},
		{"record unknown", "record r\n  list x other\n", `schema line 2: a list names a record that stands above it`},
		{"name taken", "record r\n  u32 x\n  u32 x\n", `schema line 3: the name is taken`},
		{"name missing", "record\n", `schema line 1: a keyword and a name are due`},
		{"hook unknown", "enum hook\n  a 1\nmessage m b\n", `schema line 3: a message names a hook of enum hook`},
		{"record twice", "record r\n  u32 x\nrecord r\n", `schema line 3: stands twice`},
		{"record and message of one name", "enum hook\n  a 1\nrecord r\n  u32 x\nmessage r a\n", `schema line 5: stands twice`},
		{"enum twice", "enum e\n  a 1\nenum e\n", `schema line 3: stands twice`},
		{"magic twice", "magic 1\nmagic 2\n", `schema line 2: stands twice`},
		{"enum number twice", "enum e\n  a 1\n  b 1\n", `schema line 3: the name or the number is taken`},
		{"enum name twice", "enum e\n  a 1\n  a 2\n", `schema line 3: the name or the number is taken`},
		{"enum number missing", "enum e\n  a\n", `schema line 2: a name and a number are due`},
		{"value outside an enum", "  a 1\n", `schema line 1: no number`},
		{"field outside a record", "enum e\n  u32 x\n", `schema line 2: no number`},
		{"unaligned", "record r\n  u32 x\n  u64 y\n", `record r: y is not aligned at 4`},
	} {
		if _, err := parse(c.text); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
	}
}
