package host

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory"
)

// Manifest says what lies where in an exported pool. It travels beside the
// descriptors, as JSON; unknown fields are refused, since a reader that
// ignores one would look in the wrong place.
type Manifest struct {
	Engine          string        `json:"engine"`
	Rank            int           `json:"rank"`
	Bytes           int64         `json:"bytes"`            // of the first descriptor
	GenerationBytes int64         `json:"generation_bytes"` // of the second
	Groups          []PlacedGroup `json:"groups"`
	// Token pairs the manifest with its descriptors: 32 hex digits, new for
	// each export.
	Token string `json:"token"`
}

// PlacedGroup is one group's part of the memory.
type PlacedGroup struct {
	Blocks      int            `json:"blocks"`
	Generations int64          `json:"generations"` // offset of its words in the second descriptor
	Regions     []PlacedRegion `json:"regions"`
}

// PlacedRegion is one region's part of the memory.
type PlacedRegion struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"` // in the first descriptor
	Bytes  int64  `json:"bytes"`
}

// Descriptors are the files of one export, in the order memory, generations.
// Whoever holds them must Close them; Import does it in every case.
type Descriptors struct {
	Token string
	Files []*os.File
}

// Close closes every file. It may be called more than once.
func (d *Descriptors) Close() error {
	var err error
	for _, f := range d.Files {
		err = errors.Join(err, f.Close())
	}
	d.Files = nil
	return err
}

// Text is the manifest as it travels.
func (m Manifest) Text() ([]byte, error) { return json.Marshal(m) }

// MaxManifest bounds the text of a manifest.
const MaxManifest = 16 << 20

// ParseManifest reads and checks what Text wrote.
//
// Errors: *Error, the peer's fault.
func ParseManifest(text []byte) (Manifest, error) {
	if len(text) > MaxManifest {
		return Manifest{}, &Error{"import", "peer", "manifest bytes", len(text), fmt.Sprintf("want at most %d", MaxManifest), nil}
	}
	var m Manifest
	if err := decodeStrict(text, &m); err != nil {
		return Manifest{}, &Error{Op: "import", Fault: "peer", Field: "manifest", Value: "unreadable", Err: err}
	}
	if err := m.validate("import", "peer"); err != nil {
		return Manifest{}, err
	}
	if raw, err := hex.DecodeString(m.Token); err != nil || len(raw) != 16 {
		return Manifest{}, &Error{"import", "peer", "token", fmt.Sprintf("%.40q", m.Token), "want 32 hex digits", nil}
	}
	return m, nil
}

// validate refuses what cannot lie inside its descriptors: sums are formed
// only of numbers already bounded.
func (m *Manifest) validate(op, fault string) error {
	bad := func(field string, v any, why string, args ...any) error {
		return &Error{op, fault, field, v, fmt.Sprintf(why, args...), nil}
	}
	page := int64(os.Getpagesize())
	if m.Engine == "" || len(m.Engine) > MaxName {
		return bad("engine", fmt.Sprintf("%.40q", m.Engine), "want 1 to %d bytes", MaxName)
	}
	if m.Rank < 0 || m.Rank >= 1<<12 {
		return bad("rank", m.Rank, "want 0 to 4095")
	}
	if len(m.Groups) < 1 || len(m.Groups) > MaxGroups {
		return bad("groups", len(m.Groups), "want 1 to %d", MaxGroups)
	}
	const most = 2 * MaxRegionBytes
	if m.Bytes < 1 || m.Bytes > most || m.Bytes%page != 0 {
		return bad("bytes", m.Bytes, "want whole pages, at most %d", int64(most))
	}
	if m.GenerationBytes < 1 || m.GenerationBytes > 8*MaxGroups*MaxBlocks || m.GenerationBytes%page != 0 {
		return bad("generation_bytes", m.GenerationBytes, "want whole pages")
	}
	regions, end, words := 0, int64(0), int64(0)
	for g, group := range m.Groups {
		at := fmt.Sprintf("groups[%d]", g)
		if group.Blocks < 1 || group.Blocks > MaxBlocks {
			return bad(at+".blocks", group.Blocks, "want 1 to %d", MaxBlocks)
		}
		if group.Generations != words {
			return bad(at+".generations", group.Generations, "the tables lie one after another, this one at %d", words)
		}
		if words += 8 * int64(group.Blocks); words > m.GenerationBytes {
			return bad(at+".generations", group.Generations, "%d words end after %d bytes", group.Blocks, m.GenerationBytes)
		}
		if regions += len(group.Regions); regions > MaxRegions {
			return bad(at+".regions", len(group.Regions), "want at most %d in all", MaxRegions)
		}
		for i, r := range group.Regions {
			at := fmt.Sprintf("%s.regions[%d]", at, i)
			switch {
			case r.Name == "" || len(r.Name) > MaxName:
				return bad(at+".name", fmt.Sprintf("%.40q", r.Name), "want 1 to %d bytes", MaxName)
			case r.Bytes < 1 || r.Bytes > MaxRegionBytes:
				return bad(at+".bytes", r.Bytes, "want 1 to %d", MaxRegionBytes)
			case r.Offset < end || r.Offset%page != 0:
				return bad(at+".offset", r.Offset, "want the start of a page at or after %d", end)
			case r.Offset > m.Bytes-r.Bytes:
				return bad(at+".offset", r.Offset, "%d bytes from there end after %d", r.Bytes, m.Bytes)
			}
			end = r.Offset + r.Bytes
		}
	}
	return nil
}

// Export makes read-only descriptors of the pool for another process of this
// host, which maps them with Import. The caller must Close them, after
// sending. They are for authenticated agents of one trust group only: whoever
// holds them can read the whole pool.
//
// Errors: *Error, memory.ErrClosed.
func (p *Pool) Export() (Manifest, Descriptors, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Manifest{}, Descriptors{}, memory.ErrClosed
	}
	var token [16]byte
	rand.Read(token[:]) // never fails; it ends the process instead
	m := p.manifest
	m.Token = hex.EncodeToString(token[:])
	d := Descriptors{Token: m.Token}
	for _, f := range []*os.File{p.memory.file, p.words.file} {
		// A duplicate would share the open file description and so its access
		// mode: a reader gets one of its own, opened for reading.
		r, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			d.Close()
			return Manifest{}, Descriptors{}, &Error{Op: "export", Fault: "operator", Field: "descriptor", Value: f.Name(), Reason: "reopen for reading", Err: err}
		}
		d.Files = append(d.Files, r)
	}
	return m, d, nil
}

// View is another process's pool, mapped read-only. It stays readable after
// its owner closed the pool or died. Safe for concurrent use; whoever imported
// it must Close it.
type View struct {
	owner    *Owner
	manifest Manifest

	mu      sync.Mutex
	closed  bool
	memory  mapping
	words   mapping
	tables  []*table
	buffers [][]*buffer
}

// Import maps what another process exported. It refuses descriptors that are
// not paired with the manifest by their token, too few or too many, not
// anonymous memory, not sealed against shrinking (their owner could make every
// reader fault), or smaller than claimed. The descriptors are closed in every
// case.
//
// Errors: *Error.
func (o *Owner) Import(m Manifest, d Descriptors) (*View, error) {
	defer d.Close()
	bad := func(field string, v any, why string, args ...any) error {
		return &Error{"import", "peer", field, v, fmt.Sprintf(why, args...), nil}
	}
	if err := m.validate("import", "peer"); err != nil {
		return nil, err
	}
	if m.Token == "" || subtle.ConstantTimeCompare([]byte(m.Token), []byte(d.Token)) != 1 {
		return nil, bad("token", "another", "the descriptors belong to another manifest")
	}
	if len(d.Files) != 2 {
		return nil, bad("descriptors", len(d.Files), "want 2: memory and generations")
	}
	v := &View{owner: o, manifest: m}
	for i, part := range []struct {
		name string
		size int64
		into *mapping
	}{{"memory", m.Bytes, &v.memory}, {"generations", m.GenerationBytes, &v.words}} {
		fd := int(d.Files[i].Fd())
		if err := checkDescriptor(fd, part.name, part.size); err != nil {
			v.memory.close()
			return nil, err
		}
		b, err := unix.Mmap(fd, 0, int(part.size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			v.memory.close()
			return nil, &Error{Op: "import", Fault: "local", Field: part.name + " bytes", Value: part.size, Reason: "map", Err: err}
		}
		part.into.bytes = b
	}
	v.tables = tables(v.words.bytes, m, false)
	v.buffers = buffers(v.memory.bytes, m)
	o.add(v, Leak{What: "view", Engine: m.Engine, Rank: m.Rank, Bytes: m.Bytes})
	return v, nil
}

func checkDescriptor(fd int, name string, size int64) error {
	bad := func(field string, v any, why string, args ...any) error {
		return &Error{"import", "peer", name + " " + field, v, fmt.Sprintf(why, args...), nil}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &Error{Op: "import", Fault: "peer", Field: name + " descriptor", Value: "unreadable", Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return bad("descriptor", fmt.Sprintf("of mode %#o", st.Mode), "want anonymous memory (a memfd)")
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil { // only memfds have seals
		return &Error{"import", "peer", name + " descriptor", "another file", "want anonymous memory (a memfd)", err}
	}
	if want := unix.F_SEAL_SHRINK; seals&want != want {
		return bad("seals", fmt.Sprintf("%#x", seals), "want F_SEAL_SHRINK: its owner could take the memory away under its readers")
	}
	if st.Size < size {
		return bad("size", st.Size, "the manifest says %d", size)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		return &Error{"import", "local", name + " descriptor", "inheritable", "receive descriptors close-on-exec", err}
	}
	return nil
}

// Rank returns the view in the shape in which its owner registered the pool.
// The buffers must not be written: they are mapped read-only.
func (v *View) Rank() memory.Rank {
	return rank(v.manifest.Engine, v.manifest.Rank, v.buffers, v.tables)
}

// Close unmaps the view. A second Close is memory.ErrClosed.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return memory.ErrClosed
	}
	v.closed = true
	v.owner.remove(v)
	closeAll(v.buffers, v.tables)
	return errors.Join(v.memory.close(), v.words.close())
}

// decodeStrict reads one JSON value with known fields only, and nothing after
// it.
func decodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the manifest")
	}
	return nil
}
