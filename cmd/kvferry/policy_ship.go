package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/artifact"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/signature"
	"github.com/kvferry/kvferry/wasm/module"
)

// policyShipCommands carry policies from who writes them to who runs them.
func policyShipCommands(a *app) []*cobra.Command {
	return []*cobra.Command{policyKeygenCommand(a), policySignCommand(a), policyVerifyCommand(a), policyPushCommand(a), policyPullCommand(a)}
}

func policyKeygenCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "makes a key that policies are signed with",
		Long: "keygen writes a private Ed25519 key (PKCS #8, PEM) into FILE, which only its owner\n" +
			"can read, and prints the public key as a trust file has it. A file that is there\n" +
			"is never written over.",
		Example: "  kvferry policy keygen platform.key",
		Args:    arguments(1, 1, "FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.policyKeygen(args[0]) },
	}
}

func (a *app) policyKeygen(file string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := signature.FormatPrivate(private)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Clean(file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return blame.On(blame.Operator, fmt.Errorf("%s is there already: choose another name; a key that is lost cannot be made again", file))
	} else if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if a.json() {
		return a.emit(struct {
			File string `json:"file"`
			ID   string `json:"key_id"`
			Key  string `json:"key"`
		}{file, signature.KeyID(public), signature.FormatPublic(public)})
	}
	fmt.Fprintf(a.out, "%s: the private key %s; keep it secret\nin the trust file of who runs policies:\n\n", file, signature.KeyID(public))
	fmt.Fprintf(a.out, "kvferry: trust/1\nkeys:\n- name: %s\n  key: %s\n  policies: [\"*\"]   # names of policies that it may sign\n", name, signature.FormatPublic(public))
	return nil
}

// readKey reads a private key that is its owner's alone.
func readKey(file string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, blame.On(blame.Operator, fmt.Errorf("%s holds a private key and has mode %#o: others can read or change it; chmod it to 0600", file, mode))
	}
	text, err := readAll(file, signature.MaxEnvelope)
	if err != nil {
		return nil, err
	}
	key, err := signature.ParsePrivate(text)
	if err != nil {
		return nil, blame.On(blame.Operator, fmt.Errorf("%s: %w", file, err))
	}
	return key, nil
}

// shippedJSON is a policy that was signed, verified, pushed or pulled.
type shippedJSON struct {
	Reference string   `json:"reference"` // with its digest
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Digest    string   `json:"digest"` // of the module
	Keys      []string `json:"keys,omitempty"`
	KeyID     string   `json:"key_id,omitempty"` // of the key that signed it now
	File      string   `json:"file,omitempty"`   // it was written to
}

func shipped(ref artifact.Reference, s signature.Statement) shippedJSON {
	return shippedJSON{Reference: ref.String(), Name: s.Name, Version: s.Version, Digest: s.Digest.String()}
}

func (a *app) say(v shippedJSON, format string, args ...any) error {
	if a.json() {
		return a.emit(v)
	}
	_, err := fmt.Fprintf(a.out, format+"\n", args...)
	return err
}

// place is the reference that an argument means: one, or a file or a folder of a
// policy.
func place(arg string) (artifact.Reference, error) {
	if remote(arg) {
		return artifact.ParseReference(arg)
	}
	file, err := moduleFile(arg)
	if err != nil {
		return artifact.Reference{}, err
	}
	return artifact.Reference{Scheme: artifact.File, Path: file}, nil
}

func policySignCommand(a *app) *cobra.Command {
	var flags registryFlags
	var key string
	cmd := &cobra.Command{
		Use:   "sign FILE.wasm|DIR|REFERENCE...",
		Short: "signs policies: their names, versions and digests",
		Long: "sign reads a policy and puts a signature beside it: in FILE.wasm.sig, or in the\n" +
			"layout or registry as a referrer. It covers the policy's name, version and\n" +
			"digest. Several keys may sign the same policy.",
		Example: "  kvferry policy sign mine/ --key platform.key\n  kvferry policy sign oci://registry.example/policies/mine@sha256:... --key platform.key",
		Args:    arguments(1, -1, "FILE.wasm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return usagef("--key is missing: \"kvferry policy keygen FILE\" makes one")
			}
			private, err := readKey(key)
			if err != nil {
				return err
			}
			o, err := flags.options()
			if err != nil {
				return err
			}
			o.AllowUnsigned = true
			return a.eachFile(cmd.Context(), args, func(arg string) error { return a.policySign(cmd.Context(), arg, private, o) })
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the `FILE` of the private key")
	flags.add(cmd)
	return cmd
}

func (a *app) policySign(ctx context.Context, arg string, key ed25519.PrivateKey, o artifact.Options) error {
	ref, err := place(arg)
	if err != nil {
		return err
	}
	p, err := artifact.Fetch(ctx, ref, o)
	if err != nil {
		return hinted(err)
	}
	if err := attach(ctx, p.Reference, p.Statement(), key, o); err != nil {
		return err
	}
	v := shipped(p.Reference, p.Statement())
	v.KeyID = keyID(key)
	return a.say(v, "%s: signed %s with key %s", p.Reference, p.Statement(), v.KeyID)
}

func keyID(key ed25519.PrivateKey) string {
	public, _ := key.Public().(ed25519.PublicKey) // what an Ed25519 key has
	return signature.KeyID(public)
}

// attach signs a policy where it lies.
func attach(ctx context.Context, ref artifact.Reference, s signature.Statement, key ed25519.PrivateKey, o artifact.Options) error {
	envelope, err := signature.Sign(s, key)
	if err != nil {
		return err
	}
	return artifact.Attach(ctx, ref, envelope, o)
}

func policyVerifyCommand(a *app) *cobra.Command {
	var flags originFlags
	cmd := &cobra.Command{
		Use:   "verify FILE.wasm|DIR|REFERENCE...",
		Short: "says whether policies are signed by keys that a trust file trusts with them",
		Long: "verify reads a policy and its signatures, and says which trusted keys signed it.\n" +
			"One is enough; none is exit status 1.",
		Example: "  kvferry policy verify mine/ --trust keys.yaml\n  kvferry policy verify oci://registry.example/policies/mine@sha256:... --trust keys.yaml",
		Args:    arguments(1, -1, "FILE.wasm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.trust == "" {
				return usagef("--trust is missing: the file that says whose signatures count")
			}
			o, err := flags.options()
			if err != nil {
				return err
			}
			return a.eachFile(cmd.Context(), args, func(arg string) error {
				ref, err := place(arg)
				if err != nil {
					return err
				}
				p, err := artifact.Fetch(cmd.Context(), ref, o)
				if err != nil {
					return err // --allow-unsigned would be no verification
				}
				v := shipped(p.Reference, p.Statement())
				v.Keys = p.Keys
				return a.say(v, "%s: %s, signed by %s", p.Reference, p.Statement(), strings.Join(p.Keys, ", "))
			})
		},
	}
	cmd.Flags().StringVar(&flags.trust, "trust", "", "the trust `FILE` that says whose signatures count")
	flags.registryFlags.add(cmd)
	return cmd
}

func policyPushCommand(a *app) *cobra.Command {
	var flags registryFlags
	var key string
	cmd := &cobra.Command{
		Use:   "push NAME|FILE.wasm|DIR REFERENCE",
		Short: "puts a policy into a registry, an OCI layout or a file",
		Long: "push packs a policy as an OCI artifact of the CNCF's Wasm types and stores it under\n" +
			"the reference's tag. It prints the reference with the digest, which is the one to\n" +
			"use. Signatures beside the file go with it; --key signs it at once.",
		Example: "  kvferry policy push mine/ oci://registry.example/policies/mine:1.0.0 --key platform.key",
		Args:    arguments(2, 2, "NAME and REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.policyPush(cmd.Context(), args[0], args[1], key, flags)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "sign it with the private key in `FILE`")
	flags.add(cmd)
	return cmd
}

func (a *app) policyPush(ctx context.Context, name, to, keyFile string, flags registryFlags) error {
	ref, err := artifact.ParseReference(to)
	if err != nil {
		return usagef("%v", err)
	}
	var key ed25519.PrivateKey
	if keyFile != "" { // before anything is stored
		if key, err = readKey(keyFile); err != nil {
			return err
		}
	}
	o, err := flags.options()
	if err != nil {
		return err
	}
	wasm, envelopes, err := a.pushed(ctx, name, o)
	if err != nil {
		return err
	}
	statement, err := artifact.Statement(wasm)
	if err != nil {
		return err
	}
	a.step("pushing to %s", ref)
	pinned, err := artifact.Push(ctx, ref, wasm, o)
	a.step("")
	if err != nil {
		return err
	}
	for _, e := range envelopes {
		if err := artifact.Attach(ctx, pinned, e, o); err != nil {
			return err
		}
	}
	v := shipped(pinned, statement)
	text := "unsigned"
	if len(envelopes) > 0 {
		text = "with the signatures beside it"
	}
	if key != nil {
		if err := attach(ctx, pinned, statement, key, o); err != nil {
			return err
		}
		v.KeyID = keyID(key)
		text = "signed with key " + v.KeyID
	}
	return a.say(v, "%s\n  %s, %s", pinned, statement, text)
}

// pushed is the module that push was given, with the signatures of this very
// module that lie with it.
func (a *app) pushed(ctx context.Context, name string, o artifact.Options) (wasm []byte, envelopes [][]byte, err error) {
	if module, ok := policies.Get(name); ok {
		return module, nil, nil
	}
	ref, err := place(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w, and no policy of that name is built in (%s)", err, strings.Join(policies.Names(), ", "))
	} else if err != nil {
		return nil, nil, err
	}
	o.AllowUnsigned, o.Signatures = true, true
	p, err := artifact.Fetch(ctx, ref, o)
	if err != nil {
		return nil, nil, hinted(err)
	}
	return p.Module, p.Signatures, nil
}

func policyPullCommand(a *app) *cobra.Command {
	var flags originFlags
	var out string
	var downgrade bool
	cmd := &cobra.Command{
		Use:   "pull REFERENCE --out FILE.wasm",
		Short: "fetches a policy and checks who signed it",
		Long: "pull fetches a policy, checks its signatures and writes it with those that count\n" +
			"beside it. A policy of the same name with a higher version is not written over.",
		Example: "  kvferry policy pull oci://registry.example/policies/mine@sha256:... --trust keys.yaml --out mine.wasm",
		Args:    arguments(1, 1, "REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("--out is missing: the file that the module is written to")
			}
			return a.policyPull(cmd.Context(), args[0], out, downgrade, flags)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the `FILE` that the module is written to")
	cmd.Flags().BoolVar(&downgrade, "allow-downgrade", false, "write over a higher version of the same policy")
	flags.add(cmd)
	return cmd
}

func (a *app) policyPull(ctx context.Context, from, out string, downgrade bool, flags originFlags) error {
	ref, err := place(from)
	if err != nil {
		return err
	}
	o, err := flags.options()
	if err != nil {
		return err
	}
	a.step("fetching %s", ref)
	p, err := artifact.Fetch(ctx, ref, o)
	a.step("")
	if err != nil {
		return hinted(err)
	}
	to := artifact.Reference{Scheme: artifact.File, Path: filepath.Clean(out)}
	if !downgrade {
		if err := notLower(to.Path, p); err != nil {
			return err
		}
	}
	// The old signatures are of the old module; whatever happens in between, no
	// module stands beside a signature that does not count for it and is trusted
	// for that: it is refused.
	if err := os.Remove(to.Path + artifact.SignatureSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := artifact.Push(ctx, to, p.Module, o); err != nil {
		return err
	}
	for _, e := range p.Signatures {
		if o.Trust == nil {
			break
		}
		if _, err := o.Trust.Verify(p.Statement(), [][]byte{e}, time.Now()); err != nil {
			continue // of another key, or of nobody: what counts is kept
		}
		if err := artifact.Attach(ctx, to, e, o); err != nil {
			return err
		}
	}
	v := shipped(p.Reference, p.Statement())
	v.Keys, v.File = p.Keys, to.Path
	by := "signed by " + strings.Join(p.Keys, ", ")
	if len(p.Keys) == 0 {
		by = "nobody's signature was checked"
	}
	return a.say(v, "%s: %s, %s\n  from %s", to.Path, p.Statement(), by, p.Reference)
}

// notLower refuses to replace a policy with a lower version of it.
func notLower(file string, p *artifact.Policy) error {
	wasm, err := readModule(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	there, err := module.ReadManifest(wasm)
	if err != nil || there.Name != p.Manifest.Name {
		return blame.On(blame.Operator, fmt.Errorf("%s holds something else than policy %s: choose another file, or remove it", file, p.Manifest.Name))
	}
	if module.Lower(p.Manifest.Version, there.Version) {
		return &hint{&generation.DowngradeError{Name: there.Name, Version: p.Manifest.Version, Active: there.Version}, "--allow-downgrade takes it"}
	}
	return nil
}
