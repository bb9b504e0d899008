package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/plan/sample"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/runtime/policy/fixture"
	"github.com/kvferry/kvferry/runtime/policy/generation"
	"github.com/kvferry/kvferry/runtime/policy/store"
)

// A test starts its own program with this as another user.
const strangerOf = "KVFERRY_TEST_CONTROL"

func TestMain(m *testing.M) {
	if path := os.Getenv(strangerOf); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		if err := writeFrame(c, sent{protocol, Request{Verb: List}}, nil); err != nil {
			fmt.Println(err)
		}
		var r received
		if _, err := readFrame(c, &r, 0); err != nil || r.Error == nil {
			fmt.Println("answered:", r, err)
			os.Exit(4)
		}
		fmt.Println(r.Error)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// rig is a process on a store.
type rig struct {
	*generation.Manager
	t      testing.TB
	folder string
	store  *store.Store
	server *Server
	ended  bool
}

func run(t testing.TB, folder string) *rig {
	t.Helper()
	s, err := store.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, folder: folder, store: s}
	if r.server, err = Listen(s); err != nil {
		t.Fatal(err)
	}
	if r.Manager, err = generation.New(context.Background(), generation.Options{Policy: policy.Options{InProcess: true}, Store: s, Events: r.server.Tell}); err != nil {
		t.Fatal(err)
	}
	r.server.Serve(r.Manager)
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	if r.ended {
		return
	}
	r.ended = true
	if err := errors.Join(r.server.Close(), r.Close(), r.store.Close()); err != nil {
		r.t.Error(err)
	}
}

func heads(version string) []byte {
	wasm, ok := policies.Get("heads")
	if !ok {
		panic("no policy heads")
	}
	return fixture.Rename(wasm, "heads", version)
}

// ask sends a request that must do.
func ask(t testing.TB, folder string, q *Request) *Answer {
	t.Helper()
	out, err := try(t, folder, q)
	if err != nil {
		t.Fatalf("%s: %v", q.Verb, err)
	}
	return out
}

func try(t testing.TB, folder string, q *Request) (*Answer, error) {
	t.Helper()
	return Send(t.Context(), folder, q, generation.Options{Policy: policy.Options{InProcess: true}})
}

// The same requests go to a process, and where there is none to the store; the
// answers say which, and are alike.
func TestLiveAndAtRest(t *testing.T) {
	for _, live := range []bool{true, false} {
		folder := filepath.Join(t.TempDir(), "store")
		if live {
			run(t, folder)
		}
		if out := ask(t, folder, &Request{Verb: Load, Module: heads("1.0.0"), Source: "a file", Keys: []string{"ops"}}); out.Live != live || out.Generation != 1 || out.Stage != generation.Loaded || out.Store != folder || (out.Process == os.Getpid()) != live {
			t.Errorf("%+v", out)
		}
		if _, err := try(t, folder, &Request{Verb: Shadow, Generation: 1}); err == nil || !strings.Contains(err.Error(), "no generation is active") || blame.Of(err) != blame.Operator {
			t.Errorf("shadow of nothing: %v", err)
		}
		ask(t, folder, &Request{Verb: Activate, Generation: 1})
		ask(t, folder, &Request{Verb: Load, Module: heads("1.0.1")})
		ask(t, folder, &Request{Verb: Shadow, Generation: 2})
		ask(t, folder, &Request{Verb: Canary, Generation: 2, Percent: 25, By: generation.ByPair})
		if out := ask(t, folder, &Request{Verb: Load, Module: heads("1.0.1")}); out.Generation != 2 || out.Stage != generation.Canary {
			t.Errorf("a module that is in already: %+v", out)
		}
		s := ask(t, folder, &Request{Verb: List}).Status
		if len(s.Generations) != 2 || s.Generations[1].Percent != 25 || s.Generations[1].By != generation.ByPair || s.Generations[0].Source != "a file" || (s.Generations[0].Counters != nil) != live || (s.Fallback == "none") != live {
			t.Errorf("%+v", s)
		}
		if out := ask(t, folder, &Request{Verb: Promote}); out.Generation != 2 || out.Stage != generation.Active {
			t.Errorf("%+v", out)
		}
		if _, err := try(t, folder, &Request{Verb: Load, Module: heads("1.0.0")}); err == nil || !strings.Contains(err.Error(), "lower than 1.0.1") {
			t.Errorf("a downgrade: %v", err)
		}
		if out := ask(t, folder, &Request{Verb: Load, Module: heads("1.0.0"), AllowDowngrade: true}); out.Generation != 3 {
			t.Errorf("an allowed one: %+v", out)
		}
		ask(t, folder, &Request{Verb: Drop, Generation: 3})
		if out := ask(t, folder, &Request{Verb: Rollback, Reason: "a wish"}); out.Generation != 4 || out.Stage != generation.Active {
			t.Errorf("%+v", out)
		}
		if _, err := try(t, folder, &Request{Verb: Rollback}); err == nil || !strings.Contains(err.Error(), "no last good policy") {
			t.Errorf("once more: %v", err)
		}
		if _, err := try(t, folder, &Request{Verb: "moon"}); err == nil || !strings.Contains(err.Error(), `unknown verb "moon"`) {
			t.Errorf("an unknown verb: %v", err)
		}
		events := ask(t, folder, &Request{Verb: History}).Events
		last := ask(t, folder, &Request{Verb: History, Last: 2}).Events
		if len(events) < 10 || len(last) != 2 {
			t.Fatalf("%d events, of 2 %d", len(events), len(last))
		}
		found := false
		for _, e := range events {
			found = found || e.Kind == generation.RolledBack && e.Generation == 2 && e.Reason == "a wish"
		}
		if !found {
			t.Errorf("the rollback is not in %+v", events)
		}
		if _, err := try(t, folder, &Request{Verb: Record, For: time.Millisecond}); errors.Is(err, ErrNotLive) == live {
			t.Errorf("record: %v", err)
		}
	}
}

func TestNoStore(t *testing.T) {
	for _, folder := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := try(t, folder, &Request{Verb: List}); err == nil || blame.Of(err) != blame.Operator {
			t.Errorf("%s: %v", folder, err)
		}
		if left, err := os.ReadDir(folder); err == nil && len(left) > 0 {
			t.Errorf("looking made %v", left)
		}
	}
}

// A store that somebody has who does not listen is an error that names who it
// is; one that is free a moment later is none.
func TestLockedWithoutSocket(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, err = send(t.Context(), folder, &Request{Verb: List}, generation.Options{}, 50*time.Millisecond)
	if !errors.Is(err, store.ErrLocked) || blame.Of(err) != blame.Operator || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(err.Error(), socketName) {
		t.Errorf("%v", err)
	}
	closed := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { closed <- s.Close() })
	if out := ask(t, folder, &Request{Verb: List}); out.Live {
		t.Errorf("%+v", out)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A socket of a process that is dead makes way; what is none does not. A path
// that is too long for a socket is no obstacle.
func TestSocketFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	s, err := store.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.Rename(short, filepath.Join(folder, socketName)), s.Close()); err != nil {
		t.Fatal(err)
	}
	if out := ask(t, folder, &Request{Verb: List}); out.Live {
		t.Errorf("a dead process answers: %+v", out)
	}
	r := run(t, folder)
	if out := ask(t, folder, &Request{Verb: List}); !out.Live {
		t.Errorf("%+v", out)
	}
	info, err := os.Lstat(filepath.Join(folder, socketName))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	r.end()
	if _, err := os.Lstat(filepath.Join(folder, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it stays: %v", err)
	}
	if err := r.server.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(folder); err != nil {
		t.Fatal(err)
	}
	var file *store.FileError
	if _, err := Listen(s); !errors.As(err, &file) {
		t.Errorf("a file in its place: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Whatever comes over the socket, the process answers the next request.
func TestGarbage(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	path := filepath.Join(r.folder, socketName)
	frame := func(v any, more []byte) []byte {
		var b bytes.Buffer
		if err := writeFrame(&b, v, more); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	head := func(text, more uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, text), more)
	}
	random := rand.NewChaCha8([32]byte{7})
	noise := make([]byte, 4096)
	if _, err := random.Read(noise); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]struct {
		send []byte
		want string // in the error; empty: nothing is answered
	}{
		"nothing":               {nil, ""},
		"a head cut short":      {head(10, 0)[:5], "ends within its head"},
		"text":                  {[]byte("GET / HTTP/1.1\r\n\r\n"), "bytes of JSON, want 2 to"},
		"noise":                 {noise, "of JSON, want 2 to"},
		"no JSON at all":        {head(0, 0), "0 bytes of JSON"},
		"a large message":       {head(1<<31, 0), "bytes of JSON, want 2 to"},
		"a large module":        {head(2, 1<<31), "bytes more, at most"},
		"a message cut short":   {append(head(100, 0), "{}"...), "ends after 2 bytes of 100"},
		"a module cut short":    {append(head(2, 100), "{}x"...), "ends after 1 bytes of 100"},
		"broken JSON":           {append(head(4, 0), "{,,}"...), "is no message"},
		"another type":          {append(head(8, 0), `{"verb"}`...), "is no message"},
		"no protocol":           {frame(Request{Verb: List}, nil), `of "", this process speaks "control/1"`},
		"another protocol":      {frame(sent{"control/2", Request{Verb: List}}, nil), `of "control/2"`},
		"a module that is none": {frame(sent{protocol, Request{Verb: Load}}, noise), "load a policy"},
		"a canary of NaN":       {frame(map[string]any{"kvferry": protocol, "verb": "canary", "percent": 1e308}, nil), "no share"},
		"recording for ever":    {frame(sent{protocol, Request{Verb: Record, For: 1 << 60}}, nil), "at most 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(q.send); err != nil {
				t.Fatal(err)
			}
			if q.want == "" || strings.Contains(name, "cut short") {
				if err := c.(*net.UnixConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			var got received
			_, err = readFrame(c, &got, maxBytesOut)
			if q.want == "" {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%+v, %v", got, err)
				}
			} else if err != nil || got.Error == nil || !strings.Contains(got.Error.Message, q.want) || !got.Error.Fault.Valid() {
				t.Errorf("%+v, %v, want %q", got.Error, err, q.want)
			}
			if out := ask(t, r.folder, &Request{Verb: List}); !out.Live || len(out.Status.Generations) != 0 {
				t.Errorf("afterwards: %+v", out)
			}
		})
	}
}

// Many that say nothing take their turns and hold up nobody for longer than a
// request may take; who comes when all turns are taken is told so.
func TestSilentConnections(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	var silent []net.Conn
	for range maxConnections {
		c, err := net.Dial("unix", filepath.Join(r.folder, socketName))
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	for end := time.Now().Add(10 * time.Second); len(r.server.turns) < maxConnections && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if _, err := send(t.Context(), r.folder, &Request{Verb: List}, generation.Options{}, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "too many connections") {
		t.Errorf("one more: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		for _, c := range silent {
			_ = c.Close() // it was only held
		}
	})
	ask(t, r.folder, &Request{Verb: List}) // comes again until there is room
	for end := time.Now().Add(10 * time.Second); len(r.server.turns) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	ask(t, r.folder, &Request{Verb: List})
}

// Close ends what is going on: a request half sent, a recording, a follower.
func TestCloseEndsAll(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	c, err := net.Dial("unix", filepath.Join(r.folder, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if out, err := try(t, r.folder, &Request{Verb: Record}); err != nil || out.Journal == nil {
			t.Errorf("a recording: %+v, %v", out, err)
		}
	})
	wg.Go(func() {
		if _, err := try(t, r.folder, &Request{Verb: History, Follow: true, Events: func(generation.Event) error { return nil }}); err != nil {
			t.Errorf("a follower: %v", err)
		}
	})
	for len(r.server.turns) < 3 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // they are where they wait, on a busy host too
	began := time.Now()
	r.end()
	if d := time.Since(began); d > readTime {
		t.Errorf("it took %v", d)
	}
	wg.Wait()
}

// Who follows the history sees what was and what comes, each once.
func TestFollow(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	ask(t, r.folder, &Request{Verb: Load, Module: heads("1.0.0")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan generation.Event, 100)
	done := make(chan error, 1)
	go func() {
		_, err := Send(ctx, r.folder, &Request{Verb: History, Follow: true, Events: func(e generation.Event) error { events <- e; return nil }}, generation.Options{})
		done <- err
	}()
	if e := <-events; e.Generation != 1 || e.To != generation.Loaded {
		t.Errorf("%+v", e)
	}
	ask(t, r.folder, &Request{Verb: Activate, Generation: 1})
	if e := <-events; e.Generation != 1 || e.To != generation.Active {
		t.Errorf("%+v", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(events) > 0 {
		t.Errorf("and %+v", <-events)
	}
	stop := errors.New("enough")
	if _, err := try(t, r.folder, &Request{Verb: History, Follow: true, Events: func(generation.Event) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

// A recording has what the guests were asked, until there are enough calls, the
// time is over, or who asked for it has enough.
func TestRecord(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	ask(t, r.folder, &Request{Verb: Load, Module: heads("1.0.0")})
	ask(t, r.folder, &Request{Verb: Activate, Generation: 1})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := uint64(1); ; n = n%5 + 1 {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.Remap(t.Context(), sample.New(n).Pair()); err != nil {
				t.Errorf("remap: %v", err)
				return
			}
		}
	})
	out := ask(t, r.folder, &Request{Verb: Record, Calls: 3})
	if n := len(out.Journal.Entries); n != 3 || out.Journal.Entries[0].Hook != "remap" || out.Journal.Entries[0].Policy != r.Digest() {
		t.Errorf("%d entries of 3 calls: %+v", n, out.Journal.Entries)
	}
	out = ask(t, r.folder, &Request{Verb: Record, For: 300 * time.Millisecond})
	if n := len(out.Journal.Entries); n != 5 {
		t.Errorf("%d entries of 5 questions", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	out, err := Send(ctx, r.folder, &Request{Verb: Record}, generation.Options{})
	if err != nil || len(out.Journal.Entries) != 5 {
		t.Errorf("interrupted: %+v, %v", out, err)
	}
	close(stop)
	wg.Wait()
}

// Changes from many at once are made one after the other.
func TestManyAtOnce(t *testing.T) {
	r := run(t, filepath.Join(t.TempDir(), "store"))
	ask(t, r.folder, &Request{Verb: Load, Module: heads("1.0.0")})
	ask(t, r.folder, &Request{Verb: Activate, Generation: 1})
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[uint64]int{}
	for n := range 6 {
		wg.Go(func() {
			out, err := try(t, r.folder, &Request{Verb: Load, Module: heads(fmt.Sprintf("1.1.%d", n))})
			if err == nil {
				mu.Lock()
				ids[out.Generation]++
				mu.Unlock()
				_, err = try(t, r.folder, &Request{Verb: Activate, Generation: out.Generation})
			}
			var said *Error
			if err != nil && (!errors.As(err, &said) || said.Fault != blame.Operator) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	active := 0
	for _, g := range ask(t, r.folder, &Request{Verb: List}).Status.Generations {
		if g.Stage == generation.Active {
			active++
		}
	}
	if active != 1 || len(ids) < 2 {
		t.Errorf("%d are active, generations %v", active, ids)
	}
}

// Another user is refused, whatever the file's mode.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	// Root's own folders are closed to others, the socket is not meant to be.
	folder, err := os.MkdirTemp("/tmp", "kvferry-control-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	r := run(t, filepath.Join(folder, "store"))
	program := filepath.Join(folder, "test")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, b, 0o755)
	}
	if err = errors.Join(err, os.Chmod(folder, 0o755), os.Chmod(r.folder, 0o755), os.Chmod(filepath.Join(r.folder, socketName), 0o777)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), strangerOf+"="+filepath.Join(r.folder, socketName))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the other end runs as user 65534") {
		t.Errorf("%v: %s", err, out)
	}
	r.end()
}

// FuzzFrame: whatever is read as a request is written and read as the same.
func FuzzFrame(f *testing.F) {
	for _, q := range []Request{{Verb: List}, {Verb: Canary, Generation: 3, Percent: 2.5, By: generation.ByPair}, {Verb: Load, Keys: []string{"ops"}, Source: "a file"}} {
		var b bytes.Buffer
		if err := writeFrame(&b, sent{protocol, q}, []byte("module")); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var q sent
		more, err := readFrame(bytes.NewReader(b), &q, 1<<10)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeFrame(&again, q, more); err != nil {
			if strings.Contains(err.Error(), "at most") { // escapes take more room
				return
			}
			t.Fatalf("%+v was read and cannot be written: %v", q, err)
		}
		var back sent
		rest, err := readFrame(&again, &back, 1<<10)
		if err != nil || !reflect.DeepEqual(back, q) || !bytes.Equal(rest, more) {
			t.Errorf("%+v was read as %+v (%v)", q, back, err)
		}
	})
}
