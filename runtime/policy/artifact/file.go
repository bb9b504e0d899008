package artifact

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy/signature"
)

// fetchFile reads a module and the signature beside it, where there is one.
func fetchFile(ref Reference) (*Policy, [][]byte, error) {
	b, err := readFile(ref.Path, MaxModule)
	if err != nil {
		return nil, nil, failed(ref, "module", blame.Operator, err)
	}
	p := &Policy{Module: b, Digest: sha256.Sum256(b), Reference: ref}
	if ref.Pinned() && p.Digest != ref.Digest {
		return nil, nil, &Error{ref, "module", "the file holds " + p.Digest.String(), blame.Operator, nil}
	}
	p.Reference.Digest = p.Digest
	envelope, err := readFile(ref.Path+SignatureSuffix, signature.MaxEnvelope)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil, nil
	}
	if err != nil {
		return nil, nil, failed(ref, "signature", blame.Operator, err)
	}
	return p, [][]byte{envelope}, nil
}

// readFile reads a plain file of at most so many bytes. A pipe under the name
// blocks nobody.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	return drain(f, path, most)
}

// drain reads an open file to its end and closes it, where it is a plain one of
// at most so many bytes. name is for messages.
func drain(f *os.File, name string, most int64) (_ []byte, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no plain file", name)
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", name, info.Size(), most)
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, err
}

// writeFile puts a file in place whole or not at all.
func writeFile(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// attachFile writes the signature of a file. Signatures of the same statement
// that stand there already stay.
func attachFile(ref Reference, envelope []byte) error {
	fail := func(err error) error { return failed(ref, "signature", blame.Operator, err) }
	fresh, err := signature.Parse(envelope)
	if err != nil {
		return fail(err)
	}
	path := ref.Path + SignatureSuffix
	there, err := readFile(path, signature.MaxEnvelope)
	if err == nil {
		if old, err := signature.Parse(there); err == nil && slices.Equal(old.Payload, fresh.Payload) {
			for _, s := range old.Signatures {
				if !slices.ContainsFunc(fresh.Signatures, func(f signature.Signature) bool { return f.KeyID == s.KeyID }) {
					fresh.Signatures = append(fresh.Signatures, s)
				}
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	b, err := fresh.Encode()
	if err != nil {
		return fail(err)
	}
	if _, err := signature.Parse(b); err != nil {
		return fail(err)
	}
	if err := writeFile(path, b); err != nil {
		return fail(err)
	}
	return nil
}

// digestName is the file of a blob in a layout.
func digestName(d geometry.Digest) string {
	return filepath.Join("blobs", "sha256", d.String()[len("sha256:"):])
}
