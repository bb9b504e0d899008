// Package host is memory of this host that other processes can map: the pool
// of one rank, all regions of all its groups in one memfd, and the generation
// of every block in a second one.
//
// A Pool is opened by its owner, pre-faulted, and sealed against shrinking and
// growing before anything else can hold a descriptor of it, so that no reader
// of it can be made to fault. Huge pages are tried and what came of it is
// measured, because a memfd silently gets none on most hosts. Other processes
// Export and Import; what they import is a View, read-only.
//
// The package knows no layouts: where a block's bytes lie is told to it.
package host

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory"
)

// Limits on a specification. They keep sums of sizes within int64.
const (
	MaxRegionBytes = int64(1) << 46
	MaxRegions     = 1 << 16 // of one rank, all groups together
	MaxGroups      = 64
	MaxBlocks      = 1 << 28 // of one group
	MaxName        = 256
)

// Spec says what a rank's pool holds.
type Spec struct {
	Engine string
	Rank   int
	Groups []Group
}

// Group is the part of a pool that belongs to one group of the model.
type Group struct {
	Blocks  int
	Regions []Region // in the order of the group's Layout.Regions
	// Spans yields the byte spans of block id in the group's regions, by index
	// into Regions, until yield returns false. Only builds with the tag
	// "invariants" call it, to poison what is given back; nil poisons nothing.
	Spans func(id uint32, yield func(region int, offset, bytes int64) bool)
}

// Region is one named span of memory.
type Region struct {
	Name  string
	Bytes int64
}

// Error is something that could not be had. Fault says whose doing it is:
// "local" (this process's code), "operator" (the host's configuration) or
// "peer" (the process that exported).
type Error struct {
	Op     string // "open", "export", "import", "release"
	Fault  string
	Field  string
	Value  any
	Reason string
	Err    error // the cause, where the system gave one
}

func (e *Error) Error() string {
	s := fmt.Sprintf("memory/host: %s (fault: %s): %s is %v", e.Op, e.Fault, e.Field, e.Value)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Owner keeps the books of the pools and views opened through it. The zero
// value is ready. Safe for concurrent use; must not be copied.
type Owner struct {
	mu   sync.Mutex
	open map[any]Leak
}

// Leak is a pool or view that was not closed, with the stack that opened it.
type Leak struct {
	What   string // "pool" or "view"
	Engine string
	Rank   int
	Bytes  int64
	frames []uintptr
}

// Stack is the stack that opened it, one frame on two lines, innermost first.
func (l Leak) Stack() string {
	var b strings.Builder
	frames := runtime.CallersFrames(l.frames)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

func (l Leak) String() string {
	return fmt.Sprintf("%s of %q rank %d, %d bytes, opened at\n%s", l.What, l.Engine, l.Rank, l.Bytes, l.Stack())
}

// Leaks returns what is open, in the order of engine, rank and kind.
func (o *Owner) Leaks() []Leak {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]Leak, 0, len(o.open))
	for _, l := range o.open {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Leak) int {
		if c := strings.Compare(a.Engine, b.Engine); c != 0 {
			return c
		}
		if a.Rank != b.Rank {
			return a.Rank - b.Rank
		}
		return strings.Compare(a.What, b.What)
	})
	return out
}

func (o *Owner) add(key any, l Leak) {
	pcs := make([]uintptr, 32)
	l.frames = pcs[:runtime.Callers(3, pcs)]
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[any]Leak{}
	}
	o.open[key] = l
}

func (o *Owner) remove(key any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, key)
}

// Options of Open. The zero value tries huge pages.
type Options struct {
	SmallPages bool // do not try huge pages
}

// Pool is the memory of one rank. It is safe for concurrent use; the bytes
// are the engine's and the provider's to order. Its owner must Close it, after
// every provider has Unregistered it.
type Pool struct {
	owner    *Owner
	manifest Manifest // without a token
	spec     Spec
	outcome  Outcome

	mu      sync.Mutex // guards what follows
	closed  bool
	memory  mapping
	words   mapping
	tables  []*table
	buffers [][]*buffer
}

// mapping is a mapped memfd. file is nil for a view, which needs none.
type mapping struct {
	file  *os.File
	bytes []byte
}

func (m *mapping) close() error {
	var err error
	if m.bytes != nil {
		err = unix.Munmap(m.bytes)
		m.bytes = nil
	}
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
		m.file = nil
	}
	return err
}

// Open makes the memory that s describes: zeroed, mapped, pre-faulted and
// sealed, with every generation 0.
//
// Errors: *Error.
func (o *Owner) Open(s Spec, opt Options) (*Pool, error) {
	m, err := s.place()
	if err != nil {
		return nil, err
	}
	if free, ok := available(); ok && m.Bytes+m.GenerationBytes > free {
		return nil, &Error{"open", "operator", "bytes", m.Bytes + m.GenerationBytes, fmt.Sprintf("the host has %d available", free), nil}
	}
	p := &Pool{owner: o, spec: s}
	if err := p.mapAll(m, opt); err != nil {
		p.memory.close()
		p.words.close()
		return nil, err
	}
	p.tables = tables(p.words.bytes, p.manifest, true)
	p.buffers = buffers(p.memory.bytes, p.manifest)
	o.add(p, Leak{What: "pool", Engine: s.Engine, Rank: s.Rank, Bytes: p.manifest.Bytes})
	return p, nil
}

func (p *Pool) mapAll(m Manifest, opt Options) error {
	fail := func(field string, value any, err error) error {
		return &Error{Op: "open", Fault: "operator", Field: field, Value: value, Err: err}
	}
	name := fmt.Sprintf("kvferry:%.100s:%d", strings.ReplaceAll(p.spec.Engine, "\x00", "?"), p.spec.Rank)
	var err error
	if p.memory, m.Bytes, p.outcome, err = openHuge(name, m.Bytes, opt); err != nil {
		return fail("bytes", m.Bytes, err)
	}
	if p.words, err = openSmall(name+":generations", m.GenerationBytes); err != nil {
		return fail("generation bytes", m.GenerationBytes, err)
	}
	if err := populate(p.words.bytes); err != nil {
		return fail("generation bytes", m.GenerationBytes, fmt.Errorf("touch the memory: %w", err))
	}
	// The generation table can be written through this mapping only, whoever
	// holds a descriptor of it; kernels before 5.1 lack that seal and rely on
	// the read-only reopening in Export.
	fixed := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	if _, err := unix.FcntlInt(p.words.file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fail("seals", "future write", err)
	}
	for _, f := range []*os.File{p.memory.file, p.words.file} {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, fixed|unix.F_SEAL_SEAL); err != nil {
			return fail("seals", "shrink, grow", err)
		}
		// Whoever reopens a descriptor by its /proc name gets what the mode
		// allows.
		if err := f.Chmod(0o400); err != nil {
			return fail("mode", "0400", err)
		}
	}
	p.manifest = m
	return nil
}

// place checks s and lays its regions out, each on a page of its own.
func (s *Spec) place() (Manifest, error) {
	bad := func(field string, v any, why string, args ...any) (Manifest, error) {
		return Manifest{}, &Error{"open", "local", field, v, fmt.Sprintf(why, args...), nil}
	}
	m := Manifest{Engine: s.Engine, Rank: s.Rank}
	if len(s.Groups) == 0 {
		return bad("groups", 0, "want at least one")
	}
	page := int64(os.Getpagesize())
	for g, group := range s.Groups {
		if group.Blocks < 1 || group.Blocks > MaxBlocks {
			return bad(fmt.Sprintf("groups[%d].blocks", g), group.Blocks, "want 1 to %d", MaxBlocks)
		}
		placed := PlacedGroup{Blocks: group.Blocks, Generations: m.GenerationBytes}
		m.GenerationBytes += 8 * int64(group.Blocks)
		for i, r := range group.Regions {
			if r.Bytes < 1 || r.Bytes > MaxRegionBytes {
				return bad(fmt.Sprintf("groups[%d].regions[%d].bytes", g, i), r.Bytes, "want 1 to %d", MaxRegionBytes)
			}
			if m.Bytes > MaxRegionBytes {
				return bad("bytes", m.Bytes, "want at most %d in all", MaxRegionBytes)
			}
			placed.Regions = append(placed.Regions, PlacedRegion{Name: r.Name, Offset: m.Bytes, Bytes: r.Bytes})
			m.Bytes += (r.Bytes + page - 1) / page * page
		}
		m.Groups = append(m.Groups, placed)
	}
	m.GenerationBytes = (m.GenerationBytes + page - 1) / page * page
	if m.Bytes == 0 {
		return bad("regions", 0, "the rank holds nothing: it needs no pool")
	}
	if err := m.validate("open", "local"); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// Outcome says what pages the pool got, as measured after it was touched.
func (p *Pool) Outcome() Outcome { return p.outcome }

// Engine is the name of the engine whose memory it is.
func (p *Pool) Engine() string { return p.spec.Engine }

// Index is the rank's number in its engine.
func (p *Pool) Index() int { return p.spec.Rank }

// Buffer returns the buffer of a region, by group and the region's index.
// Preconditions: both are inside the Spec.
func (p *Pool) Buffer(group, region int) memory.Buffer { return p.buffers[group][region] }

// Generations returns the generation table of a group.
func (p *Pool) Generations(group int) memory.Generations { return p.tables[group] }

// Rank returns the pool as providers register it. Its Export is p.
func (p *Pool) Rank() memory.Rank {
	r := rank(p.spec.Engine, p.spec.Rank, p.buffers, p.tables)
	r.Export = p
	return r
}

func rank(engine string, n int, bufs [][]*buffer, tabs []*table) memory.Rank {
	r := memory.Rank{Engine: engine, Rank: n}
	for _, group := range bufs {
		list := make([]memory.Buffer, len(group))
		for i, b := range group {
			list[i] = b
		}
		r.Buffers = append(r.Buffers, list)
	}
	for _, t := range tabs {
		r.Generations = append(r.Generations, t)
	}
	return r
}

// Release gives blocks of a group back: it bumps their generations and then,
// in builds with the tag "invariants", overwrites their bytes, so that whoever
// still reads them shows it. The blocks are the engine's to reuse afterwards.
//
// Errors: *Error for a block outside the pool (nothing is bumped then),
// memory.ErrClosed.
func (p *Pool) Release(group int, blocks []uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return memory.ErrClosed
	}
	if group < 0 || group >= len(p.tables) {
		return &Error{"release", "local", "group", group, fmt.Sprintf("the pool has %d", len(p.tables)), nil}
	}
	for _, b := range blocks {
		if int64(b) >= int64(p.spec.Groups[group].Blocks) {
			return &Error{"release", "local", "block", b, fmt.Sprintf("the group has %d", p.spec.Groups[group].Blocks), nil}
		}
	}
	p.tables[group].Bump(blocks)
	poison(p, group, blocks)
	return nil
}

// Close unmaps and closes the pool. Processes that imported it keep what they
// mapped. A second Close is memory.ErrClosed.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return memory.ErrClosed
	}
	p.closed = true
	p.owner.remove(p)
	closeAll(p.buffers, p.tables)
	return errors.Join(p.memory.close(), p.words.close())
}

func closeAll(bufs [][]*buffer, tabs []*table) {
	for _, group := range bufs {
		for _, b := range group {
			b.bytes.Store(nil)
		}
	}
	for _, t := range tabs {
		t.words.Store(nil)
	}
}
