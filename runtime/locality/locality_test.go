package locality_test

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/kvferry/kvferry/runtime/locality"
)

func machine(boot, status, space string) fstest.MapFS {
	m := fstest.MapFS{}
	if boot != "" {
		m["proc/sys/kernel/random/boot_id"] = &fstest.MapFile{Data: []byte(boot + "\n")}
	}
	if status != "" {
		m["proc/self/status"] = &fstest.MapFile{Data: []byte("Name:\tx\n" + status + "\n")}
	}
	if space != "" {
		m["proc/self/ns/pid"] = &fstest.MapFile{Data: []byte(space), Mode: fs.ModeSymlink}
	}
	return m
}

func TestLocality(t *testing.T) {
	all := locality.Of(machine("b1", "Mems_allowed_list:\t1", "pid:[1]"), 7)
	if all.Machine == "" || all.Process == "" || all.NUMA != 2 {
		t.Errorf("%+v", all)
	}
	for _, c := range []struct {
		name                   string
		of                     fstest.MapFS
		pid                    int
		numa                   int
		sameMachine, sameThere bool
	}{
		{"another process", machine("b1", "Mems_allowed_list:\t1", "pid:[1]"), 8, 2, true, false},
		{"the same number in another namespace", machine("b1", "", "pid:[2]"), 7, 0, true, false},
		{"another boot", machine("b2", "Mems_allowed_list:\t0-1", "pid:[1]"), 7, 0, false, false},
		{"two nodes", machine("b1", "Mems_allowed_list:\t0,3", "pid:[1]"), 7, 0, true, true},
		{"no namespace to be seen", machine("b1", "Mems_allowed_list:\t0", ""), 7, 1, true, false},
	} {
		got := locality.Of(c.of, c.pid)
		if got.NUMA != c.numa || (got.Machine == all.Machine) != c.sameMachine || (got.Process == all.Process) != c.sameThere {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := locality.Of(machine("", "Mems_allowed_list:\t1", "pid:[1]"), 7); got != (locality.Locality{}) {
		t.Errorf("without the kernel's word: %+v", got)
	}
}

func TestHere(t *testing.T) {
	a, b := locality.Here(), locality.Here()
	if a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err == nil && (a.Machine == "" || a.Process == "" || a.Host == "") {
		t.Errorf("%+v", a)
	}
}
