package compiler

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// filter leaves this process the calls of the kernel that Go's runtime needs and
// those that write a file. What is not among them fails with EPERM: sockets, other
// programs, other processes, mounts, keys, BPF. It reports false where the kernel
// or the architecture has no filters.
func filter() (bool, error) {
	if auditArch == 0 {
		return false, nil
	}
	err := install(rules(append(allowed(), allowedHere()...)))
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("filter calls of the kernel: %w", err)
	}
	return true, nil
}

// Offsets into struct seccomp_data; an argument's low half comes first on the
// architectures here.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
)

// rules is the program of a filter that allows calls.
func rules(calls []uint32) []unix.SockFilter {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k}
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		above = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		any   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	out := []unix.SockFilter{
		stmt(load, dataArch),
		jump(equal, auditArch, 1, 0),
		stmt(ret, unix.SECCOMP_RET_KILL_PROCESS), // another architecture's numbers mean other calls
		stmt(load, dataNumber),
		jump(above, 0x40000000, 0, 1), // x32
		stmt(ret, unix.SECCOMP_RET_KILL_PROCESS),
		// A thread, and no process.
		jump(equal, unix.SYS_CLONE, 0, 4),
		stmt(load, dataArg0),
		jump(any, unix.CLONE_THREAD, 0, 1),
		stmt(ret, unix.SECCOMP_RET_ALLOW),
		stmt(ret, deny),
		// The C library falls back to clone where there is no clone3.
		jump(equal, unix.SYS_CLONE3, 0, 1),
		stmt(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)),
	}
	for _, n := range calls {
		out = append(out, jump(equal, n, 0, 1), stmt(ret, unix.SECCOMP_RET_ALLOW))
	}
	return append(out, stmt(ret, deny))
}

// allowed are the calls of every architecture.
func allowed() []uint32 {
	return []uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_PREAD64, unix.SYS_PWRITE64,
		unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_GETDENTS64,
		unix.SYS_FSYNC, unix.SYS_FTRUNCATE, unix.SYS_FCNTL, unix.SYS_GETCWD, unix.SYS_READLINKAT, unix.SYS_FACCESSAT,
		unix.SYS_COPY_FILE_RANGE,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MREMAP,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
		unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
		unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM, unix.SYS_RESTART_SYSCALL,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
		unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_UNAME,
	}
}
