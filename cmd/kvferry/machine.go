package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineJSON describes the machine that figures come from.
type machineJSON struct {
	CPU             string `json:"cpu"`
	CPUs            int    `json:"cpus"`
	Cache           string `json:"last_level_cache,omitempty"`
	CacheBytes      int64  `json:"last_level_cache_bytes,omitempty"`
	Memory          int64  `json:"memory_bytes"`
	MemoryAvailable int64  `json:"memory_available_bytes"`
	Kernel          string `json:"kernel"`
	OS              string `json:"os"`
	Arch            string `json:"arch"`
	Go              string `json:"go"`
	Shmem           string `json:"shmem_huge_pages,omitempty"`
	Load            string `json:"load,omitempty"`
}

func machine() machineJSON {
	m := machineJSON{CPU: "unknown", CPUs: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	for line := range strings.Lines(word("/proc/cpuinfo")) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = strings.TrimSpace(v)
			break
		}
	}
	for i := 4; i >= 0 && m.Cache == ""; i-- {
		m.Cache = word(fmt.Sprintf("/sys/devices/system/cpu/cpu0/cache/index%d/size", i))
	}
	m.CacheBytes = cacheBytes(m.Cache)
	for line := range strings.Lines(word("/proc/meminfo")) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64) // not a number: 0
		switch f[0] {
		case "MemTotal:":
			m.Memory = kib << 10
		case "MemAvailable:":
			m.MemoryAvailable = kib << 10
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Shmem = chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	if f := strings.Fields(word("/proc/loadavg")); len(f) > 0 {
		m.Load = f[0]
	}
	return m
}

// cacheBytes reads sysfs sizes such as "32768K"; 0 where it cannot.
func cacheBytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimRight(s, "KM"), 10, 64)
	if err != nil {
		return 0
	}
	switch {
	case strings.HasSuffix(s, "K"):
		return n << 10
	case strings.HasSuffix(s, "M"):
		return n << 20
	}
	return n
}

// size writes bytes in the largest unit of 1024 that keeps a whole part.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
