package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/trial"
	"github.com/kvferry/kvferry/wasm/host"
	"github.com/kvferry/kvferry/wasm/module"
	"github.com/kvferry/kvferry/wasm/sdk"
)

// policyAuthorCommands are what whoever writes a policy needs.
func policyAuthorCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		policyNewCommand(a), policyBuildCommand(a), policyCheckCommand(a), policyTestCommand(a), policyBenchCommand(a),
		policyExplainCommand(a), policyDiffCommand(a), policyRecordCommand(a), policyReplayCommand(a),
	}
}

// noPolicyFolder is a folder that no policy is written in.
func noPolicyFolder(dir string, err error) error {
	return blame.On(blame.Operator, fmt.Errorf("%s is no policy's folder: %w; \"kvferry policy new --lang c NAME\" makes one, or name a module", dir, err))
}

// folderManifest reads the manifest of the policy that is written in a folder.
func folderManifest(dir string) (module.Manifest, []byte, error) {
	name := filepath.Join(dir, sdk.Manifest)
	text, err := readAll(name, module.MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return module.Manifest{}, nil, noPolicyFolder(dir, err)
	} else if err != nil {
		return module.Manifest{}, nil, err
	}
	text = []byte(strings.TrimSpace(string(text)))
	m, err := module.ParseManifest(text)
	if err != nil {
		return m, nil, blame.On(blame.Operator, fmt.Errorf("%s: %w", name, err))
	}
	return m, text, nil
}

// folderModule is the file of a folder's sealed module.
func folderModule(dir string) (string, error) {
	m, _, err := folderManifest(dir)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, m.Name+".wasm"), nil
}

// moduleFile is the file that an argument means: a module, or the folder of a
// policy.
func moduleFile(arg string) (string, error) {
	info, err := os.Stat(arg)
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return folderModule(arg)
	}
	return arg, nil
}

// readModule reads a module. One that is larger than any that is loaded is read
// as far as shows that.
func readModule(name string) ([]byte, error) {
	b, err := readUpTo(name, module.MaxModule+1)
	if errors.Is(err, fs.ErrNotExist) {
		if _, there := os.Stat(filepath.Join(filepath.Dir(name), sdk.BuildScript)); there == nil {
			return nil, fmt.Errorf("%w: \"kvferry policy build\" makes it", err)
		}
	}
	return b, err
}

// readUpTo reads at most so many bytes of a file.
func readUpTo(name string, most int64) ([]byte, error) {
	f, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// readAll reads a file that has at most so many bytes.
func readAll(name string, most int64) ([]byte, error) {
	b, err := readUpTo(name, most+1)
	if err == nil && int64(len(b)) > most {
		return nil, blame.On(blame.Operator, fmt.Errorf("%s has more than %d bytes, which is all that is read", name, most))
	}
	return b, err
}

// pairFile reads a pair file.
func pairFile(name string) (*pairfile.File, error) {
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	return pairfile.Parse(name, data)
}

// watch sees the calls of a policy. Safe for concurrent use.
type watch struct {
	mu    sync.Mutex
	calls map[string]host.Call // by hook: the costliest since it was last asked
}

// see is the Observe of a policy.
func (w *watch) see(c host.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.In, c.Out = nil, nil // they are the policy's
	if w.calls == nil {
		w.calls = map[string]host.Call{}
	}
	if old, ok := w.calls[c.Hook]; !ok || old.Fuel < c.Fuel {
		w.calls[c.Hook] = c
	}
}

// take gives the costliest call of a hook since it was last asked, if there was
// one.
func (w *watch) take(hook string) (host.Call, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.calls[hook]
	delete(w.calls, hook)
	return c, ok
}

// fuel is what the costliest call spent.
func (w *watch) fuel(hook string) uint64 {
	c, _ := w.take(hook)
	return c.Fuel
}

// spent is what a hook cost, in output.
type spent struct {
	Fuel        uint64 `json:"fuel"`
	Limit       uint64 `json:"fuel_limit"`
	Nanoseconds int64  `json:"nanoseconds"`
}

// costs are the calls of all hooks since they were last asked.
func (w *watch) costs(limits host.Options) map[string]spent {
	out := map[string]spent{}
	for _, hook := range hookNames() {
		if c, ok := w.take(hook); ok {
			out[hook] = spent{c.Fuel, limits.FuelOf(hook), c.Duration.Nanoseconds()}
		}
	}
	return out
}

// hookNames are the hooks, in the order in which they are asked.
func hookNames() []string { return []string{"select_layout", "remap", "route"} }

// siteFlag is where the engines of a pair run.
type siteFlag struct{ file string }

func (f *siteFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "site", "", "where the engines run: a `FILE` (kvferry: site/1) with hosts, NUMA nodes, rails and loads")
}

// mine is the --policy of a command that means the module of the folder one
// stands in, where there is one, and else the built-in policy.
func mine(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	name, err := folderModule(".")
	switch {
	case err == nil:
		return name, nil
	case errors.Is(err, fs.ErrNotExist):
		return defaultPolicy, nil
	}
	return "", err
}

// caseFiles are the files of cases of a policy's folder.
func caseFiles(dir string) ([]string, error) {
	var out []string
	for _, ending := range []string{"*.yaml", "*.yml"} {
		some, err := filepath.Glob(filepath.Join(dir, "tests", ending))
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	slices.SortFunc(out, cmp.Compare[string])
	if len(out) == 0 {
		return nil, blame.On(blame.Operator, fmt.Errorf("%s holds no cases: write some as docs/writing-policies.md shows (kvferry: %s)", filepath.Join(dir, "tests"), trial.Version))
	}
	return out, nil
}
