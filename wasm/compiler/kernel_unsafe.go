package compiler

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls that golang.org/x/sys has numbers and types for, and no functions.

func landlockVersion() (int, error) {
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

func landlockRules(handled uint64) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	// The first field alone: what every version of the kernel's interface has.
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

func landlockAllow(rules, fd int, access uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

func landlockRestrict(rules int) error {
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); e != 0 {
		return e
	}
	return nil
}

// install puts a seccomp filter on every thread of the process.
func install(program []unix.SockFilter) error {
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	if e != 0 {
		return e
	}
	if thread != 0 { // which has a filter of its own
		return fmt.Errorf("thread %d does not take it", thread)
	}
	return nil
}
