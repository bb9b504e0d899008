package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy/artifact"
	"github.com/kvferry/kvferry/runtime/policy/signature"
)

// policyForms are the ways to name a policy.
const policyForms = "a built-in `NAME`, FILE.wasm, the folder of a policy, oci-layout:DIR@sha256:... or oci://HOST/REPOSITORY@sha256:..."

// originFlags say what policies from elsewhere need to be believed.
type originFlags struct {
	trust         string // file
	allowUnsigned bool
	registryFlags
}

// registryFlags say how registries are reached.
type registryFlags struct {
	allowTag   bool
	plainHTTP  bool
	tokenHosts []string
}

func (f *originFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.trust, "trust", "", "the trust `FILE` that says whose signatures count; with it every policy that is not built in must be signed")
	cmd.Flags().BoolVar(&f.allowUnsigned, "allow-unsigned", false, "take a policy that no trusted key signed")
	f.registryFlags.add(cmd)
}

func (f *registryFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.allowTag, "allow-tag", false, "follow a tag, which whoever can move it can make mean another policy")
	cmd.Flags().BoolVar(&f.plainHTTP, "plain-http", false, "speak HTTP to a registry that is not on this machine")
	cmd.Flags().StringArrayVar(&f.tokenHosts, "token-host", nil, "a `HOST` besides the registry's own that may see its credential")
}

// options are those of the flags.
func (f *registryFlags) options() (artifact.Options, error) {
	o := artifact.Options{AllowTag: f.allowTag, PlainHTTP: f.plainHTTP, TokenHosts: f.tokenHosts}
	var err error
	o.Credential, err = artifact.DockerCredential()
	return o, err
}

func (f *originFlags) options() (artifact.Options, error) {
	o, err := f.registryFlags.options()
	if err != nil {
		return o, err
	}
	o.AllowUnsigned = f.allowUnsigned
	if f.trust != "" {
		o.Trust, err = readTrust(f.trust)
	}
	return o, err
}

// readTrust reads a trust file.
func readTrust(name string) (*signature.Trust, error) {
	text, err := readAll(name, signature.MaxTrust)
	if err != nil {
		return nil, err
	}
	t, err := signature.ParseTrust(text)
	if err != nil {
		return nil, &fileError{name, err}
	}
	return t, nil
}

// fileError says which file an error is about.
type fileError struct {
	name string
	err  error
}

func (e *fileError) Error() string { return e.name + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// origin is a module and where it came from.
type origin struct {
	wasm []byte
	originJSON
}

// originJSON is where a module came from, in output.
type originJSON struct {
	Source string   `json:"source"`         // "built-in", a path, or a reference with its digest
	Digest string   `json:"digest"`         // of the module
	Keys   []string `json:"keys,omitempty"` // of the trust file, that signed it
}

func originOf(wasm []byte, source string, keys []string) *origin {
	return &origin{wasm, originJSON{source, geometry.Digest(sha256.Sum256(wasm)).String(), keys}}
}

// remote reports whether a name is a reference, not a built-in policy or a path.
func remote(name string) bool {
	for _, scheme := range []artifact.Scheme{artifact.File, artifact.Layout, artifact.Registry} {
		if strings.HasPrefix(name, string(scheme)+":") {
			return true
		}
	}
	return strings.Contains(name, "://")
}

// resolve returns the module that a name stands for. A built-in one is part of
// this program, and is signed with it.
func (f *originFlags) resolve(ctx context.Context, name string) (*origin, error) {
	if module, ok := policies.Get(name); ok {
		return originOf(module, "built-in", nil), nil
	}
	if remote(name) {
		ref, err := artifact.ParseReference(name)
		if err != nil {
			return nil, err
		}
		return f.fetch(ctx, ref)
	}
	file := filepath.Clean(name)
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if file, err = folderModule(name); err != nil {
			return nil, err
		}
	} else if !strings.HasSuffix(name, ".wasm") {
		return nil, usagef("--policy %q: no built-in policy of that name (%s), no .wasm file, no policy's folder and no reference (oci://HOST/REPOSITORY@sha256:...)", name, strings.Join(policies.Names(), ", "))
	}
	if f.trust == "" {
		wasm, err := readModule(file)
		if err != nil {
			return nil, err
		}
		return originOf(wasm, file, nil), nil
	}
	return f.fetch(ctx, artifact.Reference{Scheme: artifact.File, Path: file})
}

func (f *originFlags) fetch(ctx context.Context, ref artifact.Reference) (*origin, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	p, err := artifact.Fetch(ctx, ref, o)
	if err != nil {
		return nil, hinted(err)
	}
	return originOf(p.Module, p.Reference.String(), p.Keys), nil
}

// hinted adds the flags of this program to what a library asks for.
func hinted(err error) error {
	var s *signature.Error
	var a *artifact.Error
	switch {
	case errors.As(err, &s) && s.Kind == signature.Unsigned:
		return &hint{err, "--trust FILE says whose signatures count, --allow-unsigned takes it without one"}
	case errors.As(err, &a) && a.What == "reference" && strings.Contains(a.Reason, "tag"):
		return &hint{err, "--allow-tag follows it; \"kvferry policy pull --allow-tag\" prints the digest"}
	}
	return err
}

// hint is an error and what this program can do about it.
type hint struct {
	err error
	do  string
}

func (e *hint) Error() string { return e.err.Error() + " (" + e.do + ")" }
func (e *hint) Unwrap() error { return e.err }
