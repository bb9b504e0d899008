// Command seal adds the manifest and the marker of the ABI to a linked policy
// module, in place: seal MODULE.wasm MANIFEST.json.
package main

import (
	"fmt"
	"os"

	"github.com/kvferry/kvferry/wasm/abi"
	"github.com/kvferry/kvferry/wasm/module"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "seal:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want a module and a manifest, got %d arguments", len(args))
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	out, err := module.Seal(b, manifest, abi.Minor)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], out, 0o644)
}
