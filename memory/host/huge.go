package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Outcome says what pages a pool has. Huge is measured in /proc/self/smaps
// after every page was touched, never assumed.
type Outcome struct {
	Pages string `json:"pages"` // "hugetlb", "thp" or "small": the best that any part has
	Bytes int64  `json:"bytes"` // of the pool
	Huge  int64  `json:"huge"`  // bytes that lie in huge pages
	// Tried is every way that was tried, in order. An empty Reason: it is the
	// one in use.
	Tried []Attempt `json:"tried"`
}

// Attempt is one way to get pages, and why it did not do.
type Attempt struct {
	How    string `json:"how"`
	Reason string `json:"reason,omitempty"`
}

func (o Outcome) String() string {
	s := fmt.Sprintf("%s pages, %d of %d bytes huge", o.Pages, o.Huge, o.Bytes)
	for _, a := range o.Tried {
		if a.Reason != "" {
			s += fmt.Sprintf("; %s: %s", a.How, a.Reason)
		}
	}
	return s
}

// The ways to get pages.
const (
	hugetlb = "hugetlb"
	thp     = "thp"
	small   = "small"
)

// openHuge maps size bytes, rounded up to whole pages of the kind it got, and
// touches them all.
func openHuge(name string, size int64, opt Options) (mapping, int64, Outcome, error) {
	var tried []Attempt
	if !opt.SmallPages {
		m, n, reason := openHugetlb(name, size)
		if reason == "" {
			o := Outcome{Pages: hugetlb, Bytes: n, Tried: []Attempt{{How: hugetlb}}}
			if _, o.Huge = measure(m.bytes); o.Huge == 0 {
				o.Pages = small // the kernel says otherwise: believe it
				o.Tried = []Attempt{{hugetlb, "mapped, but smaps shows no huge page"}, {How: small}}
			}
			return m, n, o, nil
		}
		tried = append(tried, Attempt{hugetlb, reason})
	}
	m, err := openSmall(name, size)
	if err != nil {
		return mapping{}, size, Outcome{}, err
	}
	advised := ""
	if !opt.SmallPages {
		if err := unix.Madvise(m.bytes, unix.MADV_HUGEPAGE); err != nil {
			advised = fmt.Sprintf("madvise: %v", err)
		}
	}
	if err := populate(m.bytes); err != nil {
		m.close()
		return mapping{}, size, Outcome{}, fmt.Errorf("touch the memory: %w", err)
	}
	o := Outcome{Pages: small, Bytes: size, Tried: tried}
	if !opt.SmallPages {
		var known bool
		known, o.Huge = measure(m.bytes)
		switch {
		case o.Huge > 0:
			o.Pages, advised = thp, ""
		case advised != "":
		case !known:
			advised = "smaps cannot be read, so nothing is known"
		default:
			advised = "advised, but smaps shows none: shmem_enabled is " + setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
		}
		o.Tried = append(o.Tried, Attempt{thp, advised})
	}
	if o.Pages == small {
		o.Tried = append(o.Tried, Attempt{How: small})
	}
	return m, size, o, nil
}

// openHugetlb maps reserved huge pages, or says why it cannot.
func openHugetlb(name string, size int64) (mapping, int64, string) {
	info := meminfo()
	page, free := info["Hugepagesize"], info["HugePages_Free"]-info["HugePages_Rsvd"]
	if page == 0 {
		return mapping{}, 0, "the kernel has no hugetlb pages"
	}
	n := (size + page - 1) / page * page
	if need := n / page; free < need {
		return mapping{}, 0, fmt.Sprintf("%d pages of %d bytes needed, %d reserved and free (vm.nr_hugepages)", need, page, max(free, 0))
	}
	m, err := openMemfd(name, n, unix.MFD_HUGETLB)
	if err == nil {
		// Pages are reserved by the mapping, so that touching them cannot fail
		// for want of a page, only for a cgroup's limit.
		if err = populate(m.bytes); err == nil {
			return m, n, ""
		}
		m.close()
	}
	return mapping{}, 0, err.Error()
}

func openSmall(name string, size int64) (mapping, error) { return openMemfd(name, size, 0) }

func openMemfd(name string, size int64, flags int) (mapping, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return mapping{}, fmt.Errorf("create a memfd: %w", err)
	}
	m := mapping{file: os.NewFile(uintptr(fd), name)}
	if err := unix.Ftruncate(fd, size); err != nil {
		m.close()
		return mapping{}, fmt.Errorf("size a memfd: %w", err)
	}
	if m.bytes, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.close()
		return mapping{}, fmt.Errorf("map a memfd: %w", err)
	}
	return m, nil
}

// populate gives every page of b its memory now: a page's first touch costs
// several times a copy of it, and a transfer would pay that while blocks wait.
func populate(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if !errors.Is(err, unix.EINVAL) { // before Linux 5.14
		return err
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 0
	}
	return nil
}

// measure returns how many bytes of b the kernel maps with huge pages, and
// whether it could be found out.
func measure(b []byte) (known bool, huge int64) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return false, 0
	}
	defer f.Close()
	lo := address(b)
	hi := lo + uint64(len(b))
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") { // the head of a mapping
			from, to, _ := strings.Cut(fields[0], "-")
			x, errX := strconv.ParseUint(from, 16, 64)
			y, errY := strconv.ParseUint(to, 16, 64)
			inside = errX == nil && errY == nil && x >= lo && y <= hi
			known = known || inside
			continue
		}
		if !inside || len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:":
			if kb, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				huge += kb << 10
			}
		}
	}
	return known, huge
}

// meminfo returns /proc/meminfo; sizes in bytes, counts as they are.
func meminfo() map[string]int64 {
	out := map[string]int64{}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) == 3 && fields[2] == "kB" {
			n <<= 10
		}
		out[strings.TrimSuffix(fields[0], ":")] = n
	}
	return out
}

// available is what the host can still give, hugetlb pages included.
func available() (int64, bool) {
	info := meminfo()
	n, ok := info["MemAvailable"]
	return n + info["HugePages_Free"]*info["Hugepagesize"], ok
}

// setting returns the chosen word of a sysfs file that lists its choices.
func setting(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "not readable"
	}
	_, rest, _ := strings.Cut(string(text), "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}
