package compiler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child runs one.
func (c *Compiler) child(ctx context.Context, r request, work string) (reply, error) {
	// The child dies with the thread that started it, so that no parent that is
	// killed leaves one behind.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.mu.Lock()
	c.ran++
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, c.cfg.Time)
	defer cancel()
	cmd := exec.CommandContext(limited, c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir = work
	cmd.Env = []string{
		fmt.Sprintf("%s=%d", memoryVariable, c.cfg.Memory),
		fmt.Sprintf("%s=%d", timeVariable, c.seconds()),
		"GOTRACEBACK=none", "GOMAXPROCS=1",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Stdin = bytes.NewReader(r.encode())
	var out, complaint tail
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return reply{}, c.ended(ctx)
	}
	if limited.Err() != nil {
		return reply{}, c.slow()
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		return reply{}, c.died(exit, complaint.String())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return reply{}, setup(err, "start the child %s", strings.Join(c.cfg.Command, " "))
	default:
		return reply{}, setup(err, "run the child %s", strings.Join(c.cfg.Command, " "))
	}
	answer, err := decodeReply(out.b)
	if err != nil {
		return reply{}, &Error{Kind: Protocol, Reason: fmt.Sprintf("the child %s does not answer as one", strings.Join(c.cfg.Command, " ")), Operator: true, Err: err}
	}
	c.mu.Lock()
	c.report = answer.Protections
	c.mu.Unlock()
	if answer.Refused != "" {
		return reply{}, &Error{Kind: Invalid, Reason: answer.Refused}
	}
	return answer, nil
}

// seconds are those of the processor that a child may use.
func (c *Compiler) seconds() int64 { return max(1, int64((c.cfg.Time+time.Second-1)/time.Second)) }

const simpler = "make the module smaller or its functions simpler"

func (c *Compiler) slow() error {
	e := &Error{Kind: Time, Reason: fmt.Sprintf("compiling takes more than %v", c.cfg.Time), Limit: uint64(c.cfg.Time.Milliseconds())}
	return e.fixed(simpler)
}

// died says why a child ended without an answer.
func (c *Compiler) died(exit *exec.ExitError, complaint string) error {
	if line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n"); line != "" {
		complaint = line
	}
	memory := false
	for _, sign := range []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "failed to reserve"} {
		memory = memory || strings.Contains(complaint, sign)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case memory:
		e := &Error{Kind: Memory, Reason: fmt.Sprintf("compiling takes more than %d bytes of address space", c.cfg.Memory), Limit: c.cfg.Memory}
		return e.fixed(simpler)
	case ok && status.Signaled() && exit.UserTime()+exit.SystemTime() >= time.Duration(c.seconds())*time.Second/2:
		return c.slow() // the kernel kills who has used up its time, which it counts in two ways that differ where the host is busy
	case ok && status.Signaled():
		e := &Error{Kind: Crashed, Reason: fmt.Sprintf("the compiler was ended by the signal %q", status.Signal())}
		return e.fixed(simpler + "; where other modules fare alike, see whether the host is short of memory")
	case ok && status.ExitStatus() == exitSetup:
		return setup(nil, "the child cannot protect itself: %s", complaint)
	}
	e := &Error{Kind: Crashed, Reason: fmt.Sprintf("the compiler ended with status %d: %s", exit.ExitCode(), complaint)}
	return e.fixed(simpler)
}

// tail keeps the first bytes that a child writes and drops the rest.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), max(0, maxReply-len(t.b)))]...)
	return len(p), nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.b), "?") }

// decodeReply reads a child's answer strictly.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if len(b) >= maxReply {
		return r, fmt.Errorf("it wrote %d bytes or more, at most %d are read", len(b), maxReply-1)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return reply{}, fmt.Errorf("it wrote no answer: %w", err)
	}
	if d.More() {
		return reply{}, errors.New("it wrote more than an answer")
	}
	if r.Protocol != protocol {
		return reply{}, fmt.Errorf("it speaks protocol %d, this process %d", r.Protocol, protocol)
	}
	return r, nil
}
