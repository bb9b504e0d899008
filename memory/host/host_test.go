package host_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/memory"
	"github.com/kvferry/kvferry/memory/host"
)

func spec() host.Spec {
	return host.Spec{Engine: "prefill", Rank: 3, Groups: []host.Group{
		{Blocks: 5, Regions: []host.Region{{Name: "layer0", Bytes: 5000}, {Name: "layer1", Bytes: 1}}},
		{Blocks: 7, Regions: []host.Region{{Name: "pool", Bytes: 1 << 20}}},
	}}
}

func open(t *testing.T, o *host.Owner, s host.Spec) *host.Pool {
	t.Helper()
	p, err := o.Open(s, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc:", err)
	}
	return len(list)
}

func TestPoolIsWhatItsSpecSays(t *testing.T) {
	var o host.Owner
	p := open(t, &o, spec())
	r := p.Rank()
	if r.Engine != "prefill" || r.Rank != 3 || r.Export != any(p) || len(r.Buffers) != 2 || len(r.Generations) != 2 {
		t.Fatalf("rank is %+v", r)
	}
	sizes := [][]int64{{5000, 1}, {1 << 20}}
	for g, group := range r.Buffers {
		for i, b := range group {
			if b.Size() != sizes[g][i] || int64(len(b.Bytes())) != b.Size() || cap(b.Bytes()) != len(b.Bytes()) || b.Kind() != memory.Host {
				t.Errorf("group %d region %d: %d bytes in a slice of %d, %d", g, i, b.Size(), len(b.Bytes()), cap(b.Bytes()))
			}
			for k, v := range b.Bytes() {
				if v != 0 {
					t.Fatalf("group %d region %d byte %d is %d, want 0", g, i, k, v)
				}
			}
			for k := range b.Bytes() {
				b.Bytes()[k] = byte(10*g + i + 1)
			}
		}
	}
	for g, group := range r.Buffers { // none lies over another
		for i, b := range group {
			for _, v := range b.Bytes() {
				if v != byte(10*g+i+1) {
					t.Fatalf("group %d region %d holds another's bytes", g, i)
				}
			}
		}
	}
	gen := r.Generations[1]
	gen.Bump([]uint32{6, 2, 6})
	if gen.Blocks() != 7 || gen.Load(6) != 2 || gen.Load(2) != 1 || gen.Load(0) != 0 || r.Generations[0].Load(2) != 0 {
		t.Errorf("generations are %d, %d, %d; the other group's %d", gen.Load(6), gen.Load(2), gen.Load(0), r.Generations[0].Load(2))
	}
	if err := p.Release(1, []uint32{0}); err != nil || gen.Load(0) != 1 {
		t.Errorf("release: %v, generation %d", err, gen.Load(0))
	}
	var e *host.Error
	if err := p.Release(1, []uint32{1, 7}); !errors.As(err, &e) || e.Field != "block" || gen.Load(1) != 0 {
		t.Errorf("release of a block outside: %v, generation of the other %d", err, gen.Load(1))
	}
	out := p.Outcome()
	if out.Bytes < 1<<20 || out.Huge > out.Bytes || len(out.Tried) == 0 || out.Tried[len(out.Tried)-1].Reason != "" || (out.Pages == "small") != (out.Huge == 0) {
		t.Errorf("outcome %+v", out)
	}
	t.Log(out)
}

// Where the host has huge pages reserved, a pool gets them, can be sealed and
// can be read by another.
func TestReservedHugePages(t *testing.T) {
	free, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil || len(strings.TrimSpace(string(free))) < 1 || strings.TrimSpace(string(free)) == "0" {
		t.Skip("no huge pages are reserved on this host (vm.nr_hugepages)")
	}
	var o host.Owner
	p := open(t, &o, spec())
	out := p.Outcome()
	if out.Pages != "hugetlb" || out.Huge != out.Bytes || out.Bytes%(2<<20) != 0 {
		t.Fatalf("outcome %+v", out)
	}
	m, d, err := p.Export()
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.Import(m, d)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	copy(p.Buffer(1, 0).Bytes(), "sent")
	if got := string(v.Rank().Buffers[1][0].Bytes()[:4]); got != "sent" {
		t.Errorf("the view shows %q", got)
	}
}

func TestSmallPagesAreNotTried(t *testing.T) {
	var o host.Owner
	p, err := o.Open(spec(), host.Options{SmallPages: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if out := p.Outcome(); len(out.Tried) != 1 || out.Tried[0].How != "small" {
		t.Errorf("outcome %+v", out)
	}
}

func TestCloseTwiceAndLeaks(t *testing.T) {
	var o host.Owner
	before := descriptors(t)
	p, err := o.Open(spec(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leaks := o.Leaks()
	if len(leaks) != 1 || leaks[0].Engine != "prefill" || !strings.Contains(leaks[0].String(), "TestCloseTwiceAndLeaks") {
		t.Errorf("leaks %v, want the stack of this test", leaks)
	}
	b, gen := p.Buffer(0, 0), p.Generations(0)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if b.Bytes() != nil || gen.Load(0) != host.Closed || !errors.Is(p.Release(0, []uint32{0}), memory.ErrClosed) {
		t.Error("a closed pool still gives its memory")
	}
	if _, _, err := p.Export(); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("export of a closed pool: %v", err)
	}
	gen.Bump([]uint32{0})
	if n := len(o.Leaks()); n != 0 {
		t.Errorf("%d leaks after close", n)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
}

func TestOpenRefuses(t *testing.T) {
	var o host.Owner
	for _, c := range []struct {
		field string
		fault string
		edit  func(*host.Spec)
	}{
		{"groups", "local", func(s *host.Spec) { s.Groups = nil }},
		{"groups[1].blocks", "local", func(s *host.Spec) { s.Groups[1].Blocks = 0 }},
		{"groups[0].regions[1].bytes", "local", func(s *host.Spec) { s.Groups[0].Regions[1].Bytes = -1 }},
		{"groups[0].regions[1].bytes", "local", func(s *host.Spec) { s.Groups[0].Regions[1].Bytes = 1 << 62 }},
		{"engine", "local", func(s *host.Spec) { s.Engine = "" }},
		{"rank", "local", func(s *host.Spec) { s.Rank = -1 }},
		{"groups[0].regions[0].name", "local", func(s *host.Spec) { s.Groups[0].Regions[0].Name = "" }},
		{"regions", "local", func(s *host.Spec) { s.Groups[0].Regions, s.Groups[1].Regions = nil, nil }},
		{"bytes", "operator", func(s *host.Spec) { s.Groups[0].Regions[0].Bytes = 1 << 45 }},
	} {
		s := spec()
		c.edit(&s)
		_, err := o.Open(s, host.Options{})
		var e *host.Error
		if !errors.As(err, &e) || e.Field != c.field || e.Fault != c.fault {
			t.Errorf("%s: got %v", c.field, err)
		}
	}
	if n := len(o.Leaks()); n != 0 {
		t.Errorf("%d leaks", n)
	}
}

func TestImportSeesTheOwnersMemory(t *testing.T) {
	var o host.Owner
	p := open(t, &o, spec())
	m, d, err := p.Export()
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Text()
	if err != nil {
		t.Fatal(err)
	}
	if m, err = host.ParseManifest(text); err != nil {
		t.Fatal(err)
	}
	// Read-only it is: nobody who holds these can write.
	for i, f := range d.Files {
		if err := f.Truncate(0); err == nil {
			t.Errorf("descriptor %d can be truncated", i)
		}
		if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("descriptor %d can be mapped for writing", i)
		}
	}
	before := descriptors(t)
	v, err := o.Import(m, d)
	if err != nil {
		t.Fatal(err)
	}
	if after := descriptors(t); after != before-2 {
		t.Errorf("%d descriptors after the import, %d before: want 2 fewer", after, before)
	}
	copy(p.Buffer(1, 0).Bytes(), "sent")
	p.Generations(1).Bump([]uint32{4})
	r := v.Rank()
	if got := string(r.Buffers[1][0].Bytes()[:4]); got != "sent" || r.Generations[1].Load(4) != 1 || r.Rank != 3 {
		t.Errorf("the view shows %q, generation %d", got, r.Generations[1].Load(4))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := string(r.Buffers[1][0].Bytes()[:4]); got != "sent" {
		t.Errorf("the view shows %q after its owner closed", got)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); !errors.Is(err, memory.ErrClosed) || r.Buffers[1][0].Bytes() != nil {
		t.Errorf("second close: %v", err)
	}
}

// memfd makes anonymous memory as a peer might.
func memfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("peer", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "peer")
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestImportRefuses(t *testing.T) {
	var o host.Owner
	p := open(t, &o, spec())
	const sealed = unix.F_SEAL_SHRINK
	for _, c := range []struct {
		name  string
		field string
		edit  func(*host.Manifest, *host.Descriptors)
	}{
		{"another's token", "token", func(m *host.Manifest, d *host.Descriptors) { d.Token = strings.Repeat("0", 32) }},
		{"no token", "token", func(m *host.Manifest, d *host.Descriptors) { m.Token, d.Token = "", "" }},
		{"one descriptor", "descriptors", func(m *host.Manifest, d *host.Descriptors) { d.Files[1].Close(); d.Files = d.Files[:1] }},
		{"surplus", "descriptors", func(m *host.Manifest, d *host.Descriptors) { d.Files = append(d.Files, memfd(t, 1, sealed)) }},
		{"not sealed", "memory seals", func(m *host.Manifest, d *host.Descriptors) { d.Files[0] = memfd(t, 1<<21, 0) }},
		{"sealed against growing only", "generations seals", func(m *host.Manifest, d *host.Descriptors) { d.Files[1] = memfd(t, 1<<21, unix.F_SEAL_GROW) }},
		{"too small", "memory size", func(m *host.Manifest, d *host.Descriptors) { d.Files[0] = memfd(t, 4096, sealed) }},
		{"small table", "generations size", func(m *host.Manifest, d *host.Descriptors) { d.Files[1] = memfd(t, 0, sealed) }},
		{"a file", "memory descriptor", func(m *host.Manifest, d *host.Descriptors) {
			f, err := os.Create(t.TempDir() + "/f")
			if err != nil {
				t.Fatal(err)
			}
			f.Truncate(1 << 21)
			d.Files[0] = f
		}},
		{"a pipe", "memory descriptor", func(m *host.Manifest, d *host.Descriptors) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			d.Files[0] = r
		}},
		{"inheritable", "memory descriptor", func(m *host.Manifest, d *host.Descriptors) { unix.FcntlInt(d.Files[0].Fd(), unix.F_SETFD, 0) }},
		{"region outside", "groups[1].regions[0].offset", func(m *host.Manifest, d *host.Descriptors) { m.Groups[1].Regions[0].Offset = 1 << 40 }},
		{"regions overlap", "groups[0].regions[1].offset", func(m *host.Manifest, d *host.Descriptors) { m.Groups[0].Regions[1].Offset = 0 }},
		{"region overflows", "groups[1].regions[0].bytes", func(m *host.Manifest, d *host.Descriptors) { m.Groups[1].Regions[0].Bytes = 1 << 62 }},
		{"table outside", "groups[1].generations", func(m *host.Manifest, d *host.Descriptors) { m.Groups[1].Blocks = 1 << 20 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := descriptors(t)
			m, d, err := p.Export()
			if err != nil {
				t.Fatal(err)
			}
			kept := d.Files // replaced ones are ours to close
			text, _ := m.Text()
			if m, err = host.ParseManifest(text); err != nil { // a copy of its own
				t.Fatal(err)
			}
			old := append([]*os.File{}, kept...)
			c.edit(&m, &d)
			_, err = o.Import(m, d)
			for _, f := range old {
				f.Close()
			}
			var e *host.Error
			if !errors.As(err, &e) || e.Field != c.field {
				t.Errorf("got %v, want a refusal of %s", err, c.field)
			}
			if after := descriptors(t); after != before {
				t.Errorf("%d descriptors open, %d before", after, before)
			}
		})
	}
	if n := len(o.Leaks()); n != 1 {
		t.Errorf("%d open, want the pool alone", n)
	}
}

func FuzzParseManifest(f *testing.F) {
	var o host.Owner
	p, err := o.Open(spec(), host.Options{SmallPages: true})
	if err != nil {
		f.Fatal(err)
	}
	defer p.Close()
	m, d, err := p.Export()
	if err != nil {
		f.Fatal(err)
	}
	d.Close()
	text, _ := m.Text()
	f.Add(text)
	f.Add([]byte(`{"engine":"e","rank":0,"bytes":4096,"generation_bytes":4096,"groups":[{"blocks":1,"generations":0,"regions":[]}],"token":"00000000000000000000000000000000"}`))
	f.Add([]byte(`{"bytes":9223372036854775807}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := host.ParseManifest(text)
		if err != nil {
			var e *host.Error
			if !errors.As(err, &e) || e.Fault != "peer" {
				t.Fatalf("refused with %v, want an *Error naming the peer", err)
			}
			return
		}
		again, err := m.Text()
		if err != nil {
			t.Fatal(err)
		}
		m2, err := host.ParseManifest(again)
		if err != nil || fmt.Sprint(m) != fmt.Sprint(m2) {
			t.Fatalf("round trip: %v, %v, %v", m, m2, err)
		}
		for _, g := range m.Groups { // what passed can be sliced
			for _, r := range g.Regions {
				if r.Offset < 0 || r.Offset+r.Bytes > m.Bytes || r.Offset+r.Bytes < r.Offset {
					t.Fatalf("region %+v outside %d bytes", r, m.Bytes)
				}
			}
		}
	})
}

func TestBlocks(t *testing.T) {
	b := host.NewBlocks(100, 7)
	first, err := b.Alloc(60)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	ascending := 0
	for i, id := range first {
		if id >= 100 || seen[id] {
			t.Fatalf("block %d given twice or outside", id)
		}
		seen[id] = true
		if i > 0 && id > first[i-1] {
			ascending++
		}
	}
	if ascending > 50 || ascending < 10 {
		t.Errorf("%d of 59 neighbours ascend: not a random order", ascending)
	}
	if _, err := b.Alloc(41); !errors.Is(err, host.ErrNoBlocks) || b.Free() != 40 {
		t.Errorf("took 41 of 40: %v, %d left", err, b.Free())
	}
	again, _ := host.NewBlocks(100, 7).Alloc(60)
	if fmt.Sprint(again) != fmt.Sprint(first) {
		t.Error("equal seeds differ")
	}
	for _, bad := range [][]uint32{{first[0], first[0]}, {100}, {first[1], 1 << 31}} {
		var e *host.Error
		if err := b.Release(bad); !errors.As(err, &e) || e.Field != "block" || b.Free() != 40 {
			t.Errorf("release %v: %v, %d free", bad, err, b.Free())
		}
	}
	if err := b.Release(first); err != nil || b.Free() != 100 {
		t.Errorf("release: %v, %d free", err, b.Free())
	}
	if err := b.Release(first[:1]); err == nil {
		t.Error("double free passed")
	}
}

func TestConcurrentUse(t *testing.T) {
	var o host.Owner
	p := open(t, &o, spec())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				p.Generations(1).Bump([]uint32{3})
				p.Generations(1).Load(3)
				p.Buffer(1, 0).Bytes()
			}
		})
	}
	wg.Wait()
	if n := p.Generations(1).Load(3); n != 1600 {
		t.Errorf("generation %d, want 1600", n)
	}
}
