package compiler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero"
)

// Child is the main of a child: it confines itself, reads a request, compiles
// the module into the folder that it stands in and answers. It returns the status
// to exit with. command is how it was started, and how it starts itself again
// once it is confined.
func Child(command []string, in io.Reader, out, complaints io.Writer) int {
	fail := func(status int, err error) int {
		fmt.Fprintln(complaints, err)
		return status
	}
	var p Protections
	if confined, again := os.LookupEnv(stageVariable); !again {
		memory, err := strconv.ParseUint(os.Getenv(memoryVariable), 10, 64)
		if err != nil {
			return fail(exitInput, fmt.Errorf("this command is for kvferry's own use: %s says no limit", memoryVariable))
		}
		seconds, err := strconv.ParseUint(os.Getenv(timeVariable), 10, 32)
		if err != nil {
			return fail(exitInput, fmt.Errorf("this command is for kvferry's own use: %s says no limit", timeVariable))
		}
		return fail(exitSetup, confine(command, memory, seconds)) // it returns only where it fails
	} else if err := json.Unmarshal([]byte(confined), &p); err != nil {
		return fail(exitInput, fmt.Errorf("%s: %w", stageVariable, err))
	}
	r, err := readRequest(in)
	if err != nil {
		return fail(exitInput, err)
	}
	if p.Seccomp, err = filter(); err != nil {
		return fail(exitSetup, err)
	}
	answer := reply{Protocol: protocol, Protections: p}
	if answer.Version, answer.Sample, answer.Refused, err = compile(r); err != nil {
		return fail(exitSetup, err)
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return fail(exitSetup, err)
	}
	return exitOK
}

// compile validates the one module and compiles the other into the working
// folder.
func compile(r request) (version, sample, refused string, err error) {
	defer func() {
		if p := recover(); p != nil {
			refused = fmt.Sprintf("the engine panicked: %v", p)
		}
	}()
	ctx := context.Background()
	if version, sample, err = fingerprint(ctx, "sample"); err != nil {
		return "", "", "", fmt.Errorf("ask the engine for its version: %w", err)
	}
	// Nobody has looked yet whether the module is valid. The interpreter does: it
	// compiles next to nothing.
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(r.Pages).WithDebugInfoEnabled(false))
	if _, err := rt.CompileModule(ctx, r.Original); err != nil {
		return version, sample, strings.ToValidUTF8(err.Error(), "?"), nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(".")
	if err != nil {
		return "", "", "", err
	}
	rt = wazero.NewRuntimeWithConfig(ctx, engineConfig(cache, r.Pages))
	if _, err := rt.CompileModule(ctx, r.Metered); err != nil {
		return version, sample, strings.ToValidUTF8(err.Error(), "?"), nil
	}
	return version, sample, "", nil // the process ends: nothing is closed
}
