package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// confine limits this process and starts it again: what it may do with files is
// a matter of a thread, and a new program begins with one.
func confine(command []string, memory, seconds uint64) error {
	runtime.LockOSThread() // until the program is replaced
	p := Protections{Limits: true, NoNew: true}
	for what, n := range map[int]uint64{
		unix.RLIMIT_AS:     memory,
		unix.RLIMIT_CPU:    seconds,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_NOFILE: 64,
		unix.RLIMIT_FSIZE:  256 << 20,
	} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("set limit %d to %d: %w", what, n, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new rights: %w", err)
	}
	var err error
	if p.Landlock, err = landlock(); err != nil {
		return err
	}
	told, err := json.Marshal(p)
	if err != nil {
		panic("compiler: " + err.Error()) // four booleans
	}
	env := []string{stageVariable + "=" + string(told), "GOTRACEBACK=none", "GOMAXPROCS=1"}
	return fmt.Errorf("start again: %w", syscall.Exec(itself, command, env))
}

// itself is the file of this program, though another may lie under its name by
// now.
const itself = "/proc/self/exe"

// landlock allows this thread, and the program that it becomes, to write below
// the working folder only, and to read there, this program and what it is linked
// with. It reports false where the kernel cannot.
func landlock() (bool, error) {
	version, err := landlockVersion()
	if err != nil {
		return false, nil // not in this kernel, or turned off
	}
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	handled := uint64(read | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM)
	if version >= 2 {
		handled |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		handled |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	rules, err := landlockRules(handled)
	if err != nil {
		return false, fmt.Errorf("make rules for files: %w", err)
	}
	defer unix.Close(rules)
	for path, access := range map[string]uint64{
		".":                  handled,
		itself:               unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/lib":               read, // where the program is linked dynamically
		"/lib64":             read,
		"/usr/lib":           read,
		"/etc/ld.so.cache":   unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/sys/kernel/mm":     read, // Go's runtime asks for the size of huge pages
		"/proc/sys/kernel":   read,
		"/sys/devices":       read,
		"/proc/self/cgroup":  unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/proc/self/auxv":    unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/dev/null":          unix.LANDLOCK_ACCESS_FS_READ_FILE,
		"/proc/self/cpuinfo": unix.LANDLOCK_ACCESS_FS_READ_FILE,
	} {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("open %s for a rule: %w", path, err)
		}
		err = landlockAllow(rules, fd, access)
		_ = unix.Close(fd)
		if err != nil {
			return false, fmt.Errorf("allow %s: %w", path, err)
		}
	}
	if err := landlockRestrict(rules); err != nil {
		return false, fmt.Errorf("restrict files: %w", err)
	}
	return true, nil
}
