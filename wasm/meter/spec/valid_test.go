package spec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/wasm/meter"
	"github.com/kvferry/kvferry/wasm/meter/sample"
)

// valid reports whether the engine takes a module. A panic of the engine, which
// bytes that nobody checked may provoke, is a refusal.
func valid(r wazero.Runtime, wasm []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the engine panicked: %v", p)
		}
	}()
	c, err := r.CompileModule(ctx, wasm)
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// What is valid is valid metered, what is not stays so, and what the preflight
// passes makes no engine panic. The mutations are the fuzzer's.
func FuzzValidity(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(sample.Random(seed).Wasm)
	}
	heads, _ := policies.Get("heads")
	f.Add(heads)
	for _, name := range []string{"block.0", "br_table.0", "bulk.0", "simd_lane.0", "custom.0", "exports.0", "elem.0", "data.0", "unreached-valid.0"} {
		b, err := os.ReadFile(filepath.Join(versions[1].folder(f), name+".wasm"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	f.Cleanup(func() {
		if err := r.Close(ctx); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, wasm []byte) {
		limits := meter.Policy()
		limits.AnyImport, limits.Start, limits.Tables = true, true, 8
		checked := meter.Check(wasm, limits)
		var e *meter.Error
		if errors.As(checked, &e) && e.Kind == meter.OverLimit {
			return // what the engine does with it is what the preflight is for
		}
		metered, err := meter.Meter(wasm, meter.Options{})
		if err != nil && checked == nil {
			t.Fatalf("Check passes it, Meter says: %v", err)
		}
		if err != nil {
			return // the engine may be less strict
		}
		before, after := valid(r, wasm), valid(r, metered)
		if before != nil && strings.Contains(before.Error(), "failed to read custom section name") {
			return // an empty custom section at the end, which the format allows
		}
		if (before == nil) != (after == nil) {
			t.Errorf("validity: %v before, %v metered", before, after)
		}
		if checked == nil && before != nil && strings.HasPrefix(before.Error(), "the engine panicked") {
			t.Errorf("what passed: %v", before)
		}
	})
}
