package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A demo that is told to end, by a terminal that closes too, leaves no folder
// behind and ends with status 1.
func TestSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "kvferry")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(program, "demo", "--transport", "tcp", "--requests", "16", "--tokens", "512")
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			folders := func() int { f, _ := filepath.Glob(filepath.Join(dir, "*")); return len(f) }
			for began := time.Now(); folders() == 0 && time.Since(began) < time.Minute; {
				time.Sleep(time.Millisecond)
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its status says more
			if code := cmd.ProcessState.ExitCode(); code != exitFailed || folders() != 0 {
				t.Errorf("%v, exit status %d, want %d; %d folders left", cmd.ProcessState, code, exitFailed, folders())
			}
		})
	}
}
