package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/cmd/kvferry/sandbox"
)

// Statuses of a check. Nothing that doctor finds is a failure of doctor.
const (
	statusOK      = "ok"
	statusLimited = "limited" // works, slower or with less
	statusMissing = "missing"
)

// check is one thing that this host can or cannot do.
type check struct {
	Area   string `json:"area"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Use    string `json:"use"`            // what kvferry wants it for
	Do     string `json:"do,omitempty"`   // what to do where it is not ok
	Path   string `json:"path,omitempty"` // of a library or tool
}

func doctorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "what this host can do for moving caches, and what to do about the rest",
		Args:  arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := diagnose(cmd.Context())
			if a.json() {
				return a.emit(map[string]any{"checks": checks, "machine": machine()})
			}
			area := ""
			for _, c := range checks {
				if c.Area != area {
					area = c.Area
					fmt.Fprintln(a.out, area)
				}
				fmt.Fprintf(a.out, "  %s %-22s %s\n", a.mark(c.Status), c.Name, c.Found)
				if a.verbose {
					fmt.Fprintf(a.out, "  %-30s  for: %s\n", "", c.Use)
				}
				if c.Do != "" && c.Status != statusOK {
					fmt.Fprintf(a.out, "  %-30s  do:  %s\n", "", c.Do)
				}
			}
			return nil
		},
	}
}

func (a *app) mark(status string) string {
	text := fmt.Sprintf("%-7s", status)
	if !a.colour() {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", map[string]int{statusOK: 32, statusLimited: 33, statusMissing: 31}[status], text)
}

func diagnose(ctx context.Context) []check {
	var out []check
	out = append(out, checkCPU()...)
	out = append(out, checkPages()...)
	out = append(out, checkHostMemory()...)
	out = append(out, checkSockets()...)
	out = append(out, checkBPF()...)
	out = append(out, checkLibraries()...)
	out = append(out, checkPolicies()...)
	return append(out, checkCompiler(ctx))
}

// word reads a small file of /proc or /sys; "" where there is none.
func word(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// chosen returns the bracketed choice of a file such as "always [madvise]
// never".
func chosen(path string) string {
	s := word(path)
	if _, rest, ok := strings.Cut(s, "["); ok {
		if in, _, ok := strings.Cut(rest, "]"); ok {
			return in
		}
	}
	return s
}

func (c check) when(ok bool, otherwise string) check {
	c.Status = statusOK
	if !ok {
		c.Status = otherwise
	}
	return c
}

func checkCPU() []check {
	var kernels []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx512", cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL}, {"avx2", cpu.X86.HasAVX2},
		{"erms", cpu.X86.HasERMS}, {"sse2", cpu.X86.HasSSE2}, {"neon", cpu.ARM64.HasASIMD}, {"sve", cpu.ARM64.HasSVE},
	} {
		if f.has {
			kernels = append(kernels, f.name)
		}
	}
	wide := slices.Contains(kernels, "avx512") || slices.Contains(kernels, "avx2") || slices.Contains(kernels, "neon")
	m := machine()
	return []check{
		check{Area: "processor", Name: "model", Found: fmt.Sprintf("%s, %d cpus, %s", m.CPU, m.CPUs, runtime.GOARCH), Use: "copies run on one or two cores", Do: "give the agent at least two cpus"}.when(m.CPUs >= 2, statusLimited),
		check{Area: "processor", Name: "vector copies", Found: or(strings.Join(kernels, " "), "none"), Use: "short pieces copy faster with wide non-temporal stores", Do: "copies fall back to the portable loop: expect less for pieces below 64 KiB"}.when(wide, statusLimited),
		check{Area: "processor", Name: "last-level cache", Found: or(m.Cache, "not shown by this kernel"), Use: "bench pools should be at least four times as large", Do: "bench takes 1 GiB pools; raise them with --pool where the machine is larger"}.when(m.Cache != "", statusLimited),
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func checkPages() []check {
	huge := "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	total, _ := strconv.Atoi(word(huge + "nr_hugepages"))  // absent: 0
	free, _ := strconv.Atoi(word(huge + "free_hugepages")) // absent: 0
	thp := chosen("/sys/kernel/mm/transparent_hugepage/enabled")
	shmem := chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return []check{
		check{Area: "pages", Name: "hugetlb 2 MiB", Found: fmt.Sprintf("%d reserved, %d free", total, free), Use: "pools on huge pages: faster first touch and scattered copies", Do: "sysctl -w vm.nr_hugepages=N, N = pool bytes / 2 MiB"}.when(free > 0, statusLimited),
		check{Area: "pages", Name: "transparent huge pages", Found: or(thp, "not in this kernel"), Use: "private memory on huge pages", Do: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"}.when(thp == "always" || thp == "madvise", statusLimited),
		check{Area: "pages", Name: "huge pages for memfd", Found: or(shmem, "not in this kernel"), Use: "pools shared between processes on huge pages; off by default in Linux", Do: "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"}.when(slices.Contains([]string{"always", "advise", "within_size", "force"}, shmem), statusLimited),
	}
}

func checkHostMemory() []check {
	m := machine()
	out := []check{
		check{Area: "memory", Name: "available", Found: fmt.Sprintf("%s of %s", size(m.MemoryAvailable), size(m.Memory)), Use: "pools are pre-faulted when they are opened", Do: "bench needs about 2.5 GiB; use --small with less"}.when(m.MemoryAvailable >= 5<<29, statusLimited),
		memfd(),
		limit("locked memory", unix.RLIMIT_MEMLOCK, 64<<20, "RDMA registration and BPF maps count against it", "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit"),
		limit("open files", unix.RLIMIT_NOFILE, 4096, "a descriptor for each region and connection", "ulimit -n 65536, or LimitNOFILE=65536 in the unit"),
	}
	scope := word("/proc/sys/kernel/yama/ptrace_scope")
	return append(out, check{Area: "memory", Name: "process_vm_readv", Found: "ptrace_scope " + or(scope, "absent"), Use: "reading memory that an engine owns", Do: "sysctl -w kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE for the agent"}.when(scope == "" || scope == "0" || capable(unix.CAP_SYS_PTRACE), statusLimited))
}

// memfd tries what memory/host relies on.
func memfd() check {
	c := check{Area: "memory", Name: "memfd with seals", Use: "memory shared with another process that cannot be cut short under it", Do: "needs Linux 3.17 or later, and a seccomp profile that allows memfd_create"}
	fd, err := unix.MemfdCreate("kvferry-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		c.Found = err.Error()
		return c.when(false, statusMissing)
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		c.Found = "seal: " + err.Error()
		return c.when(false, statusMissing)
	}
	c.Found = "works"
	return c.when(true, "")
}

func limit(name string, resource int, want uint64, use, do string) check {
	c := check{Area: "memory", Name: name, Use: use, Do: do}
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		c.Found = err.Error()
		return c.when(false, statusLimited)
	}
	switch {
	case l.Cur == unix.RLIM_INFINITY:
		c.Found = "unlimited"
	case resource == unix.RLIMIT_MEMLOCK:
		c.Found = size(int64(l.Cur))
	default:
		c.Found = fmt.Sprint(l.Cur)
	}
	return c.when(l.Cur >= want, statusLimited)
}

func checkSockets() []check {
	cc := word("/proc/sys/net/ipv4/tcp_congestion_control")
	rmem, _ := strconv.Atoi(word("/proc/sys/net/core/rmem_max")) // absent: 0
	wmem, _ := strconv.Atoi(word("/proc/sys/net/core/wmem_max"))
	queue := word("/proc/sys/net/unix/max_dgram_qlen")
	c := check{Area: "sockets", Name: "unix, passing files", Use: "descriptors of pools go to peers over a Unix socket", Do: "a seccomp profile or container forbids AF_UNIX socket pairs: allow them"}
	if err := passFile(); err != nil {
		c.Found = err.Error()
		c = c.when(false, statusMissing)
	} else {
		c.Found = fmt.Sprintf("works; paths up to 107 bytes, 253 descriptors a message, queue %s", or(queue, "unknown"))
		c = c.when(true, "")
	}
	return []check{
		c,
		check{Area: "sockets", Name: "socket buffers", Found: fmt.Sprintf("rmem_max %s, wmem_max %s", size(int64(rmem)), size(int64(wmem))), Use: "tcp wants 1 to 2 MiB", Do: "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304"}.when(rmem >= 1<<20 && wmem >= 1<<20, statusLimited),
		check{Area: "sockets", Name: "congestion control", Found: or(cc, "unknown"), Use: "bbr halves tcp on loopback and inside one host", Do: "kvferry sets cubic on its own sockets where the kernel has it: modprobe tcp_cubic"}.when(cc != "bbr", statusLimited),
	}
}

// passFile sends a descriptor through a socket pair to itself.
func passFile() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(pair[0]), nil, 0); err != nil {
		return fmt.Errorf("send a descriptor: %w", err)
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return fmt.Errorf("receive a descriptor: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("receive a descriptor: no rights in the message")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return fmt.Errorf("receive a descriptor: %w", err)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return nil
}

// capable reports whether the process has an effective capability.
func capable(c int) bool {
	for line := range strings.Lines(word("/proc/self/status")) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && bits>>c&1 == 1
		}
	}
	return false
}

func checkBPF() []check {
	kernel := machine().Kernel
	major, minor := 0, 0
	fmt.Sscanf(kernel, "%d.%d", &major, &minor) // stays 0 where the name is odd
	caps := capable(unix.CAP_BPF) && capable(unix.CAP_PERFMON) || capable(unix.CAP_SYS_ADMIN)
	_, btf := os.Stat("/sys/kernel/btf/vmlinux")
	found := "CAP_BPF and CAP_PERFMON held"
	if !caps {
		found = fmt.Sprintf("not held; unprivileged_bpf_disabled %s, perf_event_paranoid %s", or(word("/proc/sys/kernel/unprivileged_bpf_disabled"), "unknown"), or(word("/proc/sys/kernel/perf_event_paranoid"), "unknown"))
	}
	btfFound := "present"
	if btf != nil {
		btfFound = "absent"
	}
	return []check{
		check{Area: "bpf", Name: "permission", Found: found, Use: "trace attaches to a live process", Do: "setcap cap_bpf,cap_perfmon+ep on kvferry, or run trace as root; histograms in shared memory work without"}.when(caps, statusLimited),
		check{Area: "bpf", Name: "kernel types", Found: btfFound, Use: "probes on tcp and scheduling", Do: "needs a kernel built with CONFIG_DEBUG_INFO_BTF"}.when(btf == nil, statusLimited),
		check{Area: "bpf", Name: "uprobe_multi", Found: "kernel " + kernel, Use: "one attachment for all probe sites", Do: "needs Linux 6.6 or later; older kernels attach one by one"}.when(major > 6 || major == 6 && minor >= 6, statusLimited),
	}
}

// libraryFolders are the places that the dynamic linker and Python wheels use.
func libraryFolders() []string {
	var dirs []string
	dirs = append(dirs, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	conf, _ := filepath.Glob("/etc/ld.so.conf.d/*.conf") // the pattern is well formed
	for _, f := range append([]string{"/etc/ld.so.conf"}, conf...) {
		for line := range strings.Lines(word(f)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				dirs = append(dirs, line)
			}
		}
	}
	dirs = append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/cuda/lib64", "/opt/ucx/lib", "/opt/nvidia/nvda_nixl/lib64", "/opt/nvidia/nvda_nixl/lib/x86_64-linux-gnu")
	for _, pattern := range []string{"/usr/lib/*-linux-gnu", "/usr/local/lib/python3*/*-packages/*nixl*.libs", "/usr/lib/python3*/*-packages/*nixl*.libs", "/usr/local/lib/python3*/*-packages/.*nixl*.libs"} {
		m, _ := filepath.Glob(pattern) // the pattern is well formed
		dirs = append(dirs, m...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func library(dirs []string, patterns ...string) string {
	for _, p := range patterns {
		for _, d := range dirs {
			if m, err := filepath.Glob(filepath.Join(d, p)); err == nil && len(m) > 0 {
				return m[0]
			}
		}
	}
	return ""
}

func checkLibraries() []check {
	dirs := libraryFolders()
	var out []check
	for _, l := range []struct {
		name, use, do string
		patterns      []string
	}{
		{"UCX", "provider ucx: RDMA and CUDA memory", "install ucx (Debian: libucx0)", []string{"libucp.so.0*", "libucp-*.so.0*", "libucp.so*"}},
		{"NIXL", "provider nixl: peers that speak NIXL", "pip install nixl, which brings libnixl_capi", []string{"libnixl_capi*.so*", "libnixl*.so*"}},
		{"CUDA driver", "caches in GPU memory", "install the NVIDIA driver; nothing is needed for host memory", []string{"libcuda.so.1*"}},
		{"ibverbs", "RDMA devices", "install rdma-core (Debian: libibverbs1)", []string{"libibverbs.so.1*"}},
	} {
		path := library(dirs, l.patterns...)
		c := check{Area: "libraries", Name: l.name, Found: or(path, "not found"), Use: l.use, Do: l.do, Path: path}
		out = append(out, c.when(path != "", statusMissing))
	}
	verbs, _ := filepath.Glob("/dev/infiniband/uverbs*") // the pattern is well formed
	return append(out, check{Area: "libraries", Name: "RDMA devices", Found: or(strings.Join(verbs, " "), "none"), Use: "moving caches between hosts without the peer's cpu", Do: "tcp is used without; rdma link show lists devices"}.when(len(verbs) > 0, statusMissing))
}

func checkPolicies() []check {
	var out []check
	for _, p := range builtin() {
		c := check{Area: "policies", Name: "built-in " + p.Name, Found: p.Digest, Use: "decides layouts and ranks; nothing is moved without a policy", Do: "the module is empty: rebuild it with make policies, then kvferry"}
		out = append(out, c.when(p.Digest != "", statusMissing))
		if p.Digest == "" {
			out[len(out)-1].Found = "empty"
		}
	}
	for _, t := range []struct {
		name string
		try  []string
	}{{"clang", []string{"clang"}}, {"wasm-ld", []string{"wasm-ld"}}} {
		path := ""
		for _, name := range t.try {
			if p, err := exec.LookPath(name); err == nil {
				path = p
				break
			}
		}
		out = append(out, check{Area: "policies", Name: t.name, Found: or(path, "not found"), Use: "building policies written in C", Do: "install clang and lld; running policies needs neither", Path: path}.when(path != "", statusLimited))
	}
	return out
}

// checkCompiler compiles a module as untrusted ones are.
func checkCompiler(ctx context.Context) check {
	c := check{Area: "policies", Name: "compiling in a child", Use: "a policy that is not built in is compiled in a process of its own, with limits",
		Do: "needs Linux 5.13 with Landlock and seccomp, on amd64 or arm64, and a container that allows both; what is missing keeps a subverted compiler from less"}
	p, err := sandbox.Check(ctx)
	if err != nil {
		c.Found = err.Error()
		c.Do = "policies that are not built in cannot be compiled here"
		return c.when(false, statusMissing)
	}
	var held, not []string
	for _, k := range []struct {
		name string
		ok   bool
	}{{"limits", p.Limits}, {"no new privileges", p.NoNew}, {"landlock", p.Landlock}, {"seccomp", p.Seccomp}} {
		if k.ok {
			held = append(held, k.name)
		} else {
			not = append(not, k.name)
		}
	}
	c.Found = strings.Join(held, ", ")
	if len(not) > 0 {
		c.Found += "; not here: " + strings.Join(not, ", ")
	}
	return c.when(len(not) == 0, statusLimited)
}
