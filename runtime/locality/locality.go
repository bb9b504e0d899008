// Package locality finds out where this process runs, as far as the kernel says
// it cheaply. What cannot be found out is not known: nothing is guessed.
package locality

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Locality is where a process runs. Every field may be empty.
type Locality struct {
	Host string // the name that the kernel has for it
	// Machine is equal for processes under one running kernel, whatever their
	// containers call the host, and no others. It is a hash.
	Machine string
	// Process is equal within one process, and in no other. It is a hash.
	Process string
	// NUMA is 1 + the node that all memory of the process comes from; 0: it may
	// come from several, or that is not known.
	NUMA int
}

// Here is where this process runs.
func Here() Locality {
	l := Of(os.DirFS("/"), os.Getpid())
	l.Host, _ = os.Hostname() // not known then
	return l
}

// Of is where the process of that number runs, as the files below root say it;
// Host is left out.
func Of(root fs.FS, pid int) Locality {
	var l Locality
	boot := read(root, "proc/sys/kernel/random/boot_id")
	if boot == "" {
		return l
	}
	l.Machine = hash("machine", boot)
	if fsys, ok := root.(fs.ReadLinkFS); ok {
		// A number is a process's within its namespace only.
		if space, err := fsys.ReadLink("proc/self/ns/pid"); err == nil {
			l.Process = hash("process", boot, space, strconv.Itoa(pid))
		}
	}
	for line := range strings.Lines(read(root, "proc/self/status")) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(list), 10, 15); err == nil {
				l.NUMA = 1 + int(n)
			}
		}
	}
	return l
}

func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func hash(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(h[:12])
}
