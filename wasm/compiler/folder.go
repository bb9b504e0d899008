package compiler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// folder is where compiled modules are kept. Processes of one user may share it.
//
// The engine names its entries by what it compiles and for which processor. A
// note for each, named by a hash of the module as it was and as it is metered,
// says which entry is the module's and what it holds. It is written before the entry is put in place and
// removed after it, so that an entry without a note is none that a child made.
type folder struct {
	dir    string
	engine string // the engine's own folder in it
	keep   int
}

const (
	notesFolder = "known"
	lockFile    = "lock" // held by who loads; by one alone who removes what was not used for long
)

// openFolder makes a folder that is this user's alone, or refuses one that is
// not.
func openFolder(dir string, keep int) (*folder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, setup(err, "find the folder of compiled modules %s", dir)
	}
	for _, d := range []string{dir, filepath.Join(dir, notesFolder)} {
		if err := private(d); err != nil {
			return nil, err
		}
	}
	return &folder{dir: dir, keep: keep}, nil
}

// private makes one folder that is this user's alone.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return setup(err, "make the folder of compiled modules")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return setup(err, "look at the folder of compiled modules")
	}
	const why = "the code that lies there runs in this process"
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return setup(nil, "%s is no folder, and %s", dir, why).fixed("name a folder that is this user's alone, and no link to one")
	case info.Mode().Perm()&0o077 != 0:
		return setup(nil, "%s has mode %04o, and %s", dir, info.Mode().Perm(), why).fixed("look at what lies there, then chmod 0700 it, or name another")
	case ok && int(stat.Uid) != os.Geteuid():
		return setup(nil, "%s belongs to user %d, this process is user %d, and %s", dir, stat.Uid, os.Geteuid(), why).fixed("name a folder of this user's")
	}
	return nil
}

// sample is a module of one function that does nothing.
func sample() []byte {
	return []byte("\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x04\x01\x02\x00\x0b")
}

// fingerprint compiles the sample in a folder of its own, which is to be
// removed: the names of what that leaves say which engine this process runs,
// for which processor and in which manner, as far as it tells entries of its
// cache apart. Two processes with one fingerprint find each other's entries.
func fingerprint(ctx context.Context, dir string) (version, entry string, err error) {
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return "", "", err
	}
	rt := wazero.NewRuntimeWithConfig(ctx, engineConfig(cache, 1))
	_, err = rt.CompileModule(ctx, sample())
	if err = errors.Join(err, rt.Close(ctx), cache.Close(ctx)); err != nil {
		return "", "", err
	}
	made, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil || len(made) != 1 || !isEntry(filepath.Base(made[0])) {
		return "", "", fmt.Errorf("the engine left %d files for a module (%v)", len(made), err)
	}
	return filepath.Base(filepath.Dir(made[0])), filepath.Base(made[0]), nil
}

// engineConfig is how a child compiles. Package host, which loads what it
// compiled, has to agree in all that the engine tells entries of its cache apart
// by: neither listeners nor an end with the context.
func engineConfig(cache wazero.CompilationCache, pages uint32) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(pages).WithDebugInfoEnabled(false).WithCompilationCache(cache)
}

// isEntry reports whether a name is one of the engine's cache.
func isEntry(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == sha256.Size && strings.ToLower(name) == name
}

// note says which entry is a module's, and what is in it.
type note struct {
	entry string
	sum   [sha256.Size]byte
}

func (n note) encode() []byte { return []byte(n.entry + " " + hex.EncodeToString(n.sum[:]) + "\n") }

// parseNote reads one strictly.
func parseNote(b []byte) (n note, ok bool) {
	const digits = 2 * sha256.Size
	if len(b) != 2*digits+2 || b[digits] != ' ' || b[2*digits+1] != '\n' {
		return note{}, false
	}
	sum := string(b[digits+1 : 2*digits+1])
	if n.entry = string(b[:digits]); !isEntry(n.entry) || !isEntry(sum) {
		return note{}, false
	}
	hex.Decode(n.sum[:], []byte(sum)) // isEntry: it is one
	return n, true
}

func (f *folder) note(module [sha256.Size]byte) string {
	return filepath.Join(f.dir, notesFolder, hex.EncodeToString(module[:]))
}

func (f *folder) entry(name string) string { return filepath.Join(f.dir, f.engine, name) }

// sumFile is the SHA-256 of a file.
func sumFile(name string) (sum [sha256.Size]byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// has reports whether a module's entry is there and as it was made, and marks it
// as used.
func (f *folder) has(module [sha256.Size]byte) bool {
	b, err := os.ReadFile(f.note(module))
	if err != nil {
		return false
	}
	n, ok := parseNote(b)
	if !ok {
		return false
	}
	sum, err := sumFile(f.entry(n.entry))
	if err != nil || sum != n.sum {
		return false
	}
	now := time.Now()
	return os.Chtimes(f.entry(n.entry), now, now) == nil
}

// take moves what a child left in a folder into this one.
func (f *folder) take(work, entry string, module [sha256.Size]byte) error {
	from := filepath.Join(work, f.engine, entry)
	sum, err := sumFile(from)
	if err != nil {
		return setup(err, "read what the child compiled")
	}
	draft := filepath.Join(work, "note")
	if err := os.WriteFile(draft, note{entry, sum}.encode(), 0o600); err != nil {
		return setup(err, "note what was compiled")
	}
	if err := os.MkdirAll(filepath.Join(f.dir, f.engine), 0o700); err != nil {
		return setup(err, "make the folder of the engine")
	}
	if err := os.Rename(draft, f.note(module)); err != nil {
		return setup(err, "note what was compiled")
	}
	if err := os.Rename(from, f.entry(entry)); err != nil {
		return setup(err, "take over what the child compiled")
	}
	return nil
}

// lock keeps other processes from removing entries (unix.LOCK_SH), or all of
// them out (unix.LOCK_EX). release ends it.
func (f *folder) lock(how int) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, setup(err, "lock the folder of compiled modules")
	}
	for {
		err = unix.Flock(int(file.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(setup(err, "lock the folder of compiled modules"), file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks it
}

// notes reads them all, by their files.
func (f *folder) notes() (map[string]note, error) {
	files, err := os.ReadDir(filepath.Join(f.dir, notesFolder))
	if err != nil {
		return nil, setup(err, "read the notes of compiled modules")
	}
	out := map[string]note{}
	for _, e := range files {
		name := filepath.Join(f.dir, notesFolder, e.Name())
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process removed it
		}
		if err != nil {
			return nil, setup(err, "read the notes of compiled modules")
		}
		n, _ := parseNote(b) // one that cannot be read is of no entry
		out[name] = n
	}
	return out, nil
}

// strays names the entries that have no note: no child made them.
func (f *folder) strays() (map[string]bool, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, f.engine))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, setup(err, "read the folder of the engine")
	}
	notes, err := f.notes()
	if err != nil {
		return nil, err
	}
	noted := map[string]bool{}
	for _, n := range notes {
		noted[n.entry] = true
	}
	out := map[string]bool{}
	for _, e := range entries {
		if !noted[e.Name()] {
			out[e.Name()] = true
		}
	}
	return out, nil
}

// drop removes entries.
func (f *folder) drop(names []string) error {
	for _, n := range names {
		if err := os.Remove(f.entry(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return setup(err, "remove what no child made")
		}
	}
	return nil
}

// prune removes what was not used for longest, beyond what is kept, unless
// another process is loading. What fails is tried again later.
func (f *folder) prune() {
	files, err := os.ReadDir(filepath.Join(f.dir, notesFolder))
	if err != nil || len(files) <= f.keep {
		return
	}
	release, err := f.lock(unix.LOCK_EX | unix.LOCK_NB)
	if err != nil {
		return
	}
	defer release()
	type kept struct {
		note, entry string
		used        time.Time
	}
	notes, err := f.notes()
	if err != nil {
		return
	}
	var all []kept
	for name, n := range notes {
		k := kept{note: name}
		if n.entry != "" {
			k.entry = f.entry(n.entry)
			if info, err := os.Stat(k.entry); err == nil {
				k.used = info.ModTime()
			}
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all[:max(0, len(all)-f.keep)] {
		if k.entry != "" {
			_ = os.Remove(k.entry)
		}
		_ = os.Remove(k.note)
	}
}

// tidy removes what a process that was killed left behind, unless another is
// loading: entries that no child made, and folders of children that are long
// gone. What fails is tried again later.
func (f *folder) tidy(now time.Time) {
	release, err := f.lock(unix.LOCK_EX | unix.LOCK_NB)
	if err != nil {
		return
	}
	defer release()
	if strays, err := f.strays(); err == nil {
		_ = f.drop(slices.Sorted(maps.Keys(strays)))
	}
	all, _ := os.ReadDir(f.dir)
	for _, e := range all {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), workPrefix) && now.Sub(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(f.dir, e.Name()))
		}
	}
}

// workPrefix is what the folders of children begin with.
const workPrefix = "work-"
