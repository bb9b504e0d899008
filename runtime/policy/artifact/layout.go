package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kvferry/kvferry/runtime/blame"
)

// layout is a place in a folder. It is read and written here, not by a library:
// what a library loads of an index before anybody can bound it is a stranger's
// to choose.
type layout struct{ root *os.Root }

// maxLayoutManifests bounds the manifests of an index that are looked at.
const maxLayoutManifests = 4096

const layoutFile = `{"imageLayoutVersion":"1.0.0"}`

func openLayout(dir string, write bool) (*layout, error) {
	fail := func(why string, err error) (*layout, error) {
		return nil, &Error{Reference{Scheme: Layout, Path: dir}, "layout", why, blame.Operator, err}
	}
	if write {
		if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
			return fail("cannot be made", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return fail("cannot be opened", err)
	}
	l := &layout{root}
	b, err := l.read(v1.ImageLayoutFile, 4096)
	if write && errors.Is(err, fs.ErrNotExist) {
		if err = l.write(v1.ImageLayoutFile, []byte(layoutFile)); err == nil {
			b = []byte(layoutFile)
		}
	}
	var version v1.ImageLayout
	switch {
	case err != nil:
		return fail("is no OCI layout", errors.Join(err, root.Close()))
	case json.Unmarshal(b, &version) != nil || version.Version != v1.ImageLayoutVersion:
		return fail(fmt.Sprintf("%s says %.80q, want version %s", v1.ImageLayoutFile, b, v1.ImageLayoutVersion), root.Close())
	}
	return l, nil
}

func (l *layout) close() error { return l.root.Close() }

// read reads a plain file of the layout. Links are not followed.
func (l *layout) read(name string, most int64) ([]byte, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return drain(f, name, most)
}

// write puts a file of the layout in place whole or not at all.
func (l *layout) write(name string, b []byte) error {
	fresh := fmt.Sprintf("%s.%d.new", name, os.Getpid())
	if err := l.root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := l.root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, l.root.Remove(fresh))
	}
	return l.root.Rename(fresh, name)
}

func (l *layout) index() (v1.Index, error) {
	var x v1.Index
	b, err := l.read(v1.ImageIndexFile, maxIndex)
	if err != nil {
		return x, err
	}
	if err := json.Unmarshal(b, &x); err != nil {
		return x, fmt.Errorf("%s is no OCI index: %w", v1.ImageIndexFile, err)
	}
	if n := len(x.Manifests); n > maxLayoutManifests {
		return x, fmt.Errorf("%s names %d manifests, at most %d are read", v1.ImageIndexFile, n, maxLayoutManifests)
	}
	return x, nil
}

func (l *layout) resolve(_ context.Context, ref Reference) (v1.Descriptor, error) {
	x, err := l.index()
	if err != nil {
		return v1.Descriptor{}, err
	}
	for _, d := range x.Manifests {
		if ref.Pinned() && string(d.Digest) == ref.Digest.String() || !ref.Pinned() && d.Annotations[v1.AnnotationRefName] == ref.Tag {
			return d, nil
		}
	}
	return v1.Descriptor{}, fmt.Errorf("%w: %s does not name it", ErrNotFound, v1.ImageIndexFile)
}

func (l *layout) fetch(ctx context.Context, d descriptor) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := l.read(digestName(d.digest), d.size)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	return verified(b, d)
}

func (l *layout) referrers(ctx context.Context, subject descriptor) ([]v1.Descriptor, error) {
	x, err := l.index()
	if err != nil {
		return nil, err
	}
	var out []v1.Descriptor
	for _, d := range x.Manifests {
		m, err := readable(d, "manifest", MaxManifest)
		if err != nil || m.mediaType != v1.MediaTypeImageManifest {
			continue
		}
		b, err := l.fetch(ctx, m)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			continue
		}
		if _, ok := readSignature(b, subject); ok && len(out) < MaxSignatures {
			out = append(out, d)
		}
	}
	return out, nil
}

func (l *layout) push(ctx context.Context, d descriptor, b []byte, tag string) error {
	if _, err := l.fetch(ctx, d); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.write(digestName(d.digest), b); err != nil {
			return err
		}
	}
	if d.mediaType != v1.MediaTypeImageManifest {
		return nil
	}
	x, err := l.index()
	if errors.Is(err, fs.ErrNotExist) {
		x, err = v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}, nil
	}
	if err != nil {
		return err
	}
	entry := d.oci()
	if tag != "" {
		entry.Annotations = map[string]string{v1.AnnotationRefName: tag}
	}
	x.Manifests = listed(x.Manifests, entry, tag)
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if len(text) > maxIndex || len(x.Manifests) > maxLayoutManifests {
		return fmt.Errorf("%s would have %d bytes and %d manifests, at most %d and %d are read", v1.ImageIndexFile, len(text), len(x.Manifests), maxIndex, maxLayoutManifests)
	}
	return l.write(v1.ImageIndexFile, text)
}

// listed adds a manifest to an index: once without a tag, or once for each of its
// tags. A tag is one manifest's.
func listed(list []v1.Descriptor, entry v1.Descriptor, tag string) []v1.Descriptor {
	same := func(d v1.Descriptor) bool { return d.Digest == entry.Digest }
	list = slices.DeleteFunc(slices.Clone(list), func(d v1.Descriptor) bool {
		name := d.Annotations[v1.AnnotationRefName]
		return tag != "" && (name == tag || name == "" && same(d))
	})
	if tag == "" && slices.ContainsFunc(list, same) {
		return list
	}
	return append(list, entry)
}
