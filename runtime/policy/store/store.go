// Package store keeps policies on disk: modules by their digests, and which
// generation each is and what it is for.
//
// A store is a folder of one process:
//
//	lock           held for as long as the store is open
//	state          which generations there are (see Decode)
//	state.backup   the same, written after it
//	history        one JSON line an event, oldest first
//	modules/HEX    a module, HEX the SHA-256 of its bytes
//
// Other names in it are left alone; control.sock is package control's.
//
// Every file is written under another name, synced, and renamed: whenever the
// machine stops, what stands under a name is whole and is the old content or
// the new. A state that cannot be read is an error that names its file, and
// changes nothing: no module is removed before both copies of a state that does
// not name it are on disk, so Recover finds the last good policy.
//
// Nothing in the folder is believed. Links and everything that is no plain file
// are refused, sizes are bounded before anything is read, a module is compared
// with its name whenever it is read, and a folder that others may write to is
// not used at all.
package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/runtime/blame"
)

const (
	lockName    = "lock"
	stateName   = "state"
	backupName  = "state.backup"
	historyName = "history"
	modulesName = "modules"
	newSuffix   = ".new"
	brokenName  = "state.broken"
)

// MaxModule bounds a module in a store.
const MaxModule = 8 << 20

// ErrLocked is a store that another process, or another Store of this one, has
// open.
var ErrLocked = errors.New("policy store: in use by another process")

// ErrClosed is returned after Close.
var ErrClosed = errors.New("policy store: closed")

// ErrUnknown is a module that the store does not have.
var ErrUnknown = errors.New("policy store: no such module")

// FileError is a file of a store that cannot be used as it is. The fault is the
// operator's.
type FileError struct {
	File   string // path
	Reason string
	Err    error // what it holds that cannot be; may be nil
	// Recoverable says that Recover can go back to a state from before.
	Recoverable bool
}

func (e *FileError) Error() string {
	s := fmt.Sprintf("policy store: file %s: %s", e.File, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Recoverable {
		s += "; its backup is whole: recover the store to go back to it"
	}
	return s
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Blame is the operator.
func (e *FileError) Blame() blame.Party { return blame.Operator }

// Store is an open store. Safe for concurrent use.
type Store struct {
	dir  string
	root *os.Root
	lock *os.File
	// between is called between any two operations on files that write, with what
	// was done last; nil: not at all. Tests end the process in it.
	between func(done string)

	mu     sync.Mutex
	closed bool
	state  State
}

// Present refuses a folder that holds no store: fs.ErrNotExist where there is
// nothing yet. The fault is the operator's.
func Present(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return blame.On(blame.Operator, fmt.Errorf("policy store: %w", err))
	case !info.IsDir():
		return blame.On(blame.Operator, fmt.Errorf("policy store: %s is no folder", folder))
	}
	if _, err := os.Lstat(filepath.Join(folder, lockName)); err != nil {
		return blame.On(blame.Operator, fmt.Errorf("policy store: %s holds none (%w): load a policy into it, or start a process on it", folder, err))
	}
	return nil
}

// Open opens the store in folder dir, and makes it where there is none. What a
// process that died left half written is removed.
//
// Errors: ErrLocked; *FileError; those of the file system.
func Open(dir string) (*Store, error) {
	s, err := enter(dir)
	if err != nil {
		return nil, err
	}
	if s.state, err = s.read(stateName); err != nil {
		var broken *FileError
		missing := errors.Is(err, fs.ErrNotExist)
		if missing && s.empty() {
			err = nil // a new store
		} else if missing {
			broken = &FileError{File: s.path(stateName), Reason: "is missing, though the folder holds policies"}
			err = broken
		} else {
			errors.As(err, &broken)
		}
		if err != nil {
			if broken != nil {
				_, backup := s.read(backupName)
				broken.Recoverable = backup == nil
			}
			return nil, errors.Join(err, s.leave())
		}
	}
	if err := s.prune(); err != nil {
		return nil, errors.Join(err, s.leave())
	}
	return s, nil
}

// Recover opens a store whose state cannot be read, from the state's backup.
// The broken file is kept beside it under the name that is returned; a
// generation whose module is not whole is left out, and where that was the
// active one, the last good one is active. A store that is sound is opened as
// it is, and set is empty.
//
// Errors: ErrLocked; *FileError where the backup cannot be read either; those
// of the file system.
func Recover(dir string) (s *Store, set string, err error) {
	if s, err = enter(dir); err != nil {
		return nil, "", err
	}
	fail := func(err error) (*Store, string, error) { return nil, "", errors.Join(err, s.leave()) }
	state, err := s.read(stateName)
	if err == nil || errors.Is(err, fs.ErrNotExist) && s.empty() {
		s.state = state
		if err := s.prune(); err != nil {
			return fail(err)
		}
		return s, "", nil
	}
	if state, err = s.read(backupName); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &FileError{File: s.path(backupName), Reason: "is missing"}
		}
		return fail(err)
	}
	var sound []Generation
	for _, g := range state.Generations {
		if _, err := s.module(g.Digest); err == nil {
			sound = append(sound, g)
		}
	}
	state.Generations = sound
	keep := func(role *uint64) {
		if _, ok := state.Find(*role); !ok {
			*role = 0
		}
	}
	for _, role := range []*uint64{&state.Active, &state.LastGood, &state.Shadow, &state.Canary} {
		keep(role)
	}
	if state.Canary == 0 {
		state.Percent, state.By = 0, ""
	}
	if state.Active == 0 {
		state.Active, state.LastGood = state.LastGood, 0
	}
	for n := 1; set == ""; n++ {
		name := fmt.Sprintf("%s.%d", brokenName, n)
		if _, err := s.root.Lstat(name); err == nil {
			continue
		}
		if err := s.root.Rename(stateName, name); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fail(fmt.Errorf("set a broken policy state aside: %w", err))
		}
		set = s.path(name)
	}
	if err := s.Save(state); err != nil {
		return fail(err)
	}
	return s, set, nil
}

// enter takes the folder and its lock.
func enter(dir string) (_ *Store, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open a policy store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a policy store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open a policy store: %w", err)
	}
	s := &Store{dir: dir, root: root}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.leave())
		}
	}()
	if err := s.own("."); err != nil {
		return nil, err
	}
	if s.lock, err = s.open(lockName, os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s%s", ErrLocked, s.path(lockName), s.holder())
		}
		return nil, fmt.Errorf("lock a policy store: %w", err)
	}
	// The number is for people only; the lock is what counts.
	if err := s.lock.Truncate(0); err != nil {
		return nil, fmt.Errorf("write the lock of a policy store: %w", err)
	}
	if _, err := s.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return nil, fmt.Errorf("write the lock of a policy store: %w", err)
	}
	if err := root.Mkdir(modulesName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a policy store: %w", err)
	}
	if err := s.own(modulesName); err != nil {
		return nil, err
	}
	return s, nil
}

// leave gives everything back.
func (s *Store) leave() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close() // and with it the lock
	}
	return errors.Join(err, s.root.Close())
}

// holder is who has the lock, as far as it says.
func (s *Store) holder() string {
	var b [16]byte
	n, _ := s.lock.ReadAt(b[:], 0) // what cannot be read is not said
	if pid := strings.TrimSpace(string(b[:n])); pid != "" && strings.Trim(pid, "0123456789") == "" {
		return " is held by process " + pid
	}
	return ""
}

// own refuses a folder that is none, that is another user's, or that others may
// write to: they could exchange what is in it.
func (s *Store) own(name string) error {
	info, err := s.root.Lstat(name)
	if err != nil {
		return fmt.Errorf("open a policy store: %w", err)
	}
	if !info.IsDir() {
		return &FileError{File: s.path(name), Reason: fmt.Sprintf("is a %s, want a folder", kindOf(info))}
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &FileError{File: s.path(name), Reason: fmt.Sprintf("others may write to it (mode %v): want 0700", info.Mode().Perm())}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != uint32(os.Geteuid()) {
		return &FileError{File: s.path(name), Reason: fmt.Sprintf("is user %d's, this process runs as user %d", st.Uid, os.Geteuid())}
	}
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func kindOf(info fs.FileInfo) string {
	switch t := info.Mode().Type(); {
	case t == 0:
		return "plain file"
	case t&fs.ModeSymlink != 0:
		return "link"
	case t&fs.ModeDir != 0:
		return "folder"
	case t&fs.ModeNamedPipe != 0:
		return "pipe"
	case t&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// open opens a plain file of the store and nothing else: no link is followed,
// and a pipe under its name blocks nobody.
//
// Errors: *FileError; fs.ErrNotExist and others of the file system.
func (s *Store) open(name string, how int) (*os.File, error) {
	refuse := func(info fs.FileInfo) error {
		return &FileError{File: s.path(name), Reason: fmt.Sprintf("is a %s, want a plain file", kindOf(info))}
	}
	if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, refuse(info)
	}
	f, err := s.root.OpenFile(name, how|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// slurp reads a whole plain file of at most so many bytes.
func (s *Store) slurp(name string, most int64) (_ []byte, err error) {
	f, err := s.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path(name), err)
	}
	if int64(len(b)) > most {
		return nil, &FileError{File: s.path(name), Reason: fmt.Sprintf("has more than %d bytes", most)}
	}
	return b, nil
}

// put writes a file so that it is the old one or the new one, whole, whenever
// the machine stops.
func (s *Store) put(name string, b []byte) (err error) {
	fresh := name + newSuffix
	if err := s.root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	f, err := s.open(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	s.did("create " + fresh)
	err = s.write(f, b)
	if err == nil {
		err = f.Sync()
		s.did("sync " + fresh)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), errors.Join(err, s.root.Remove(fresh)))
	}
	if err := s.root.Rename(fresh, name); err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	s.did("rename to " + name)
	err = s.sync(filepath.Dir(name))
	s.did("sync the folder of " + name)
	return err
}

// write writes b, in two parts where somebody looks.
func (s *Store) write(f *os.File, b []byte) error {
	if s.between != nil {
		half := len(b) / 2
		if _, err := f.Write(b[:half]); err != nil {
			return err
		}
		s.did("write half of " + filepath.Base(f.Name()))
		b = b[half:]
	}
	_, err := f.Write(b)
	s.did("write " + filepath.Base(f.Name()))
	return err
}

func (s *Store) did(what string) {
	if s.between != nil {
		s.between(what)
	}
}

// sync makes the names in a folder last.
func (s *Store) sync(folder string) error {
	d, err := s.root.Open(folder)
	if err != nil {
		return fmt.Errorf("sync %s: %w", s.path(folder), err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(folder), err)
	}
	return nil
}

// read reads a copy of the state.
//
// Errors: fs.ErrNotExist; *FileError.
func (s *Store) read(name string) (State, error) {
	b, err := s.slurp(name, MaxState)
	if err != nil {
		return State{}, err
	}
	state, err := Decode(b)
	if err != nil {
		return State{}, &FileError{File: s.path(name), Reason: "cannot be read", Err: err}
	}
	return state, nil
}

// empty reports whether nothing was ever kept here.
func (s *Store) empty() bool {
	for _, name := range []string{stateName, backupName} {
		if _, err := s.root.Lstat(name); err == nil {
			return false
		}
	}
	names, err := s.list(modulesName)
	return err == nil && len(names) == 0
}

// maxFiles bounds how many names of a folder are looked at.
const maxFiles = 1 << 12

func (s *Store) list(folder string) ([]string, error) {
	d, err := s.root.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.path(folder), err)
	}
	names, err := d.Readdirnames(maxFiles)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, fmt.Errorf("list %s: %w", s.path(folder), err)
	}
	return names, nil
}

// prune removes the modules that no generation has, and what was half written.
// Names that this package does not give are left alone.
// Preconditions: s.state is on disk, twice or as it was found.
func (s *Store) prune() error {
	for _, name := range []string{stateName + newSuffix, backupName + newSuffix, historyName + newSuffix} {
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean a policy store: %w", err)
		}
	}
	keep := map[string]bool{}
	for _, g := range s.state.Generations {
		keep[hex.EncodeToString(g.Digest[:])] = true
	}
	names, err := s.list(modulesName)
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err := hex.DecodeString(strings.TrimSuffix(name, newSuffix))
		ours := err == nil && len(strings.TrimSuffix(name, newSuffix)) == 2*sha256.Size
		if !ours || keep[name] {
			continue
		}
		if err := s.root.Remove(filepath.Join(modulesName, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean a policy store: %w", err)
		}
		s.did("remove module " + name[:8])
	}
	return nil
}

// Folder is where the store is.
func (s *Store) Folder() string { return s.dir }

// State is the state as it was last saved. Its slices must not be modified.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Save makes a state the store's: it is on disk when Save returns. Modules that
// no generation of it has are removed. After an error the store holds the old
// state or the new one on disk; in memory it keeps the old until both copies of
// the new one are written.
//
// Errors: *StateError; ErrUnknown for a generation whose module was not put;
// ErrClosed; those of the file system.
func (s *Store) Save(state State) error {
	b, err := state.Encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	for _, g := range state.Generations {
		if _, err := s.root.Lstat(moduleName(g.Digest)); err != nil {
			return fmt.Errorf("%w: %s of generation %d", ErrUnknown, g.Digest, g.ID)
		}
	}
	if err := s.put(stateName, b); err != nil {
		return err
	}
	if err := s.put(backupName, b); err != nil {
		return err
	}
	s.state = state
	return s.prune()
}

func moduleName(d geometry.Digest) string {
	return filepath.Join(modulesName, hex.EncodeToString(d[:]))
}

// Put keeps a module, which stays for as long as a state names it; one that no
// state names goes with the next Save. Putting what is there already is no
// error, and mends it where it is not whole.
//
// Errors: *FileError where it is too large; ErrClosed; those of the file
// system.
func (s *Store) Put(module []byte) (geometry.Digest, error) {
	d := geometry.Digest(sha256.Sum256(module))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return d, ErrClosed
	}
	name := moduleName(d)
	if len(module) > MaxModule {
		return d, &FileError{File: s.path(name), Reason: fmt.Sprintf("has %d bytes, at most %d are kept", len(module), MaxModule)}
	}
	if _, err := s.module(d); err == nil {
		return d, nil
	}
	// What stands under the name and is not whole makes way: a folder or a link
	// cannot be renamed over, or must not.
	if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		if err := s.root.RemoveAll(name); err != nil {
			return d, fmt.Errorf("write %s: %w", s.path(name), err)
		}
	}
	return d, s.put(name, module)
}

// Module reads a module and compares it with its digest.
//
// Errors: ErrUnknown; *FileError for one that is not what its name says;
// ErrClosed; those of the file system.
func (s *Store) Module(d geometry.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.module(d)
}

func (s *Store) module(d geometry.Digest) ([]byte, error) {
	b, err := s.slurp(moduleName(d), MaxModule)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, s.path(moduleName(d)))
	}
	if err != nil {
		return nil, err
	}
	if got := geometry.Digest(sha256.Sum256(b)); got != d {
		return nil, &FileError{File: s.path(moduleName(d)), Reason: fmt.Sprintf("holds %d bytes with SHA-256 %s, its name says %s: it was cut or changed", len(b), got, d)}
	}
	return b, nil
}

// Close gives the folder back. A second Close returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.closed = true
	return s.leave()
}
