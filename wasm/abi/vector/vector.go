// Package vector reads the questions that a policy's folder has as vectors. It
// is for tests only; what a policy should answer is looked at where policies are
// examined.
package vector

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/wasm/abi"
)

// Question is the question of one vector.
type Question struct {
	Name       string // of the file, without its ending
	Hook       string
	In         []byte // encoded
	Candidates int    // of a layout selection
}

// Read reads the vectors in a folder, in the order of their names.
func Read(t testing.TB, folder string) []Question {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s (%v)", folder, err)
	}
	var out []Question
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Hook   string              `json:"hook"`
			Select *abi.SelectLayoutIn `json:"select_layout_in"`
			Remap  *abi.RemapIn        `json:"remap_in"`
			Route  *abi.RouteIn        `json:"route_in"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		q := Question{Name: strings.TrimSuffix(filepath.Base(file), ".json"), Hook: v.Hook}
		switch {
		case v.Select != nil:
			q.In, q.Candidates = v.Select.Encode(), len(v.Select.Candidates)
		case v.Remap != nil:
			q.In = v.Remap.Encode()
		case v.Route != nil:
			q.In = v.Route.Encode()
		default:
			t.Fatalf("%s: a vector of hook %q has no question that is read here", file, v.Hook)
		}
		out = append(out, q)
	}
	return out
}
