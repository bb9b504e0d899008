package shm

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// conn sends and receives frames on a Unix socket. Sending never blocks: one
// goroutine writes what is queued. Receiving is one goroutine's.
type conn struct {
	c *net.UnixConn

	mu     sync.Mutex
	work   sync.Cond
	queue  []outgoing
	size   int
	closed bool

	// Of the receiver.
	buf   []byte
	at    int // first byte not yet taken
	files []*os.File
	oob   []byte
}

type outgoing struct {
	bytes []byte
	files []*os.File
}

// maxQueue bounds what waits for a peer that does not read: it is then taken
// for gone.
const maxQueue = 64 << 20

func newConn(c *net.UnixConn) *conn {
	x := &conn{c: c, oob: make([]byte, unix.CmsgSpace(4*8))}
	x.work.L = &x.mu
	return x
}

// frame puts a header before a body.
func frame(kind uint8, body []byte, files int) []byte {
	b := make([]byte, headerSize, headerSize+len(body))
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	b[4], b[5] = kind, uint8(files)
	return append(b, body...)
}

// send queues a frame and takes ownership of the files.
func (x *conn) send(kind uint8, body []byte, files ...*os.File) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || len(body) > maxBody {
		closeFiles(files)
		return
	}
	if x.size += len(body) + headerSize; x.size > maxQueue {
		closeFiles(files)
		x.shut()
		return
	}
	x.queue = append(x.queue, outgoing{frame(kind, body, len(files)), files})
	x.work.Signal()
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// write sends what is queued until the connection is closed.
func (x *conn) write() {
	for {
		x.mu.Lock()
		for len(x.queue) == 0 && !x.closed {
			x.work.Wait()
		}
		if len(x.queue) == 0 {
			x.mu.Unlock()
			return
		}
		out := x.queue[0]
		x.queue[0] = outgoing{}
		x.queue = x.queue[1:]
		x.size -= len(out.bytes)
		x.mu.Unlock()
		err := x.writeFrame(out)
		closeFiles(out.files)
		if err != nil {
			x.close()
		}
	}
}

func (x *conn) writeFrame(out outgoing) error {
	b := out.bytes
	if len(out.files) > 0 {
		fds := make([]int, len(out.files))
		for i, f := range out.files {
			fds[i] = int(f.Fd())
		}
		// The descriptors go with the first byte; the rest may follow later.
		n, _, err := x.c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := x.c.Write(b)
	return err
}

// close ends both directions and drops what is queued.
func (x *conn) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shut()
}

func (x *conn) shut() {
	if x.closed {
		return
	}
	x.closed = true
	for _, out := range x.queue {
		closeFiles(out.files)
	}
	x.queue = nil
	x.c.Close()
	x.work.Broadcast()
}

// receive returns the next frame. The caller owns its files; the body is valid
// until the next call.
func (x *conn) receive() (kind uint8, body []byte, files []*os.File, err error) {
	head, err := x.need(headerSize)
	if err != nil {
		return 0, nil, nil, err
	}
	n, kind, want := binary.LittleEndian.Uint32(head), head[4], int(head[5])
	switch {
	case n > maxBody:
		return 0, nil, nil, &FrameError{kind, "length", fmt.Sprintf("%d bytes, want at most %d", n, maxBody)}
	case want > maxFiles:
		return 0, nil, nil, &FrameError{kind, "descriptors", fmt.Sprintf("%d, want at most %d", want, maxFiles)}
	case head[6] != 0 || head[7] != 0:
		return 0, nil, nil, &FrameError{kind, "header", "its last bytes are not zero"}
	}
	if body, err = x.need(int(n)); err != nil {
		return 0, nil, nil, err
	}
	if len(x.files) < want {
		return 0, nil, nil, &FrameError{kind, "descriptors", fmt.Sprintf("%d came, the header says %d", len(x.files), want)}
	}
	files, x.files = x.files[:want:want], x.files[want:]
	return kind, body, files, nil
}

// need returns the next n bytes of the stream.
func (x *conn) need(n int) ([]byte, error) {
	for len(x.buf)-x.at < n {
		if x.at > 0 {
			x.buf = x.buf[:copy(x.buf, x.buf[x.at:])]
			x.at = 0
		}
		// Grow with what arrives, not with what a header promises.
		if cap(x.buf)-len(x.buf) < 32<<10 {
			x.buf = append(make([]byte, 0, 2*cap(x.buf)+64<<10), x.buf...)
		}
		room := x.buf[len(x.buf):cap(x.buf)]
		got, oob, flags, _, err := x.c.ReadMsgUnix(room, x.oob)
		// Descriptors first: they are ours to close whatever else happened.
		if e := x.keep(x.oob[:oob]); err == nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return nil, &FrameError{0, "descriptors", "more than this side takes"}
		}
		if got == 0 {
			if len(x.buf) > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, io.EOF
		}
		x.buf = x.buf[:len(x.buf)+got]
	}
	out := x.buf[x.at : x.at+n : x.at+n]
	x.at += n
	return out, nil
}

// keep takes the descriptors of one message (close-on-exec, as net receives
// them) and refuses more than two frames could have.
func (x *conn) keep(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return &FrameError{0, "control message", err.Error()}
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			continue // credentials and the like carry no descriptor
		}
		for _, fd := range fds {
			x.files = append(x.files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(x.files) > maxFiles {
		return &FrameError{0, "descriptors", fmt.Sprintf("%d that no frame has announced", len(x.files))}
	}
	return nil
}

// drop closes descriptors that no frame took. Preconditions: nobody receives
// any more.
func (x *conn) drop() {
	closeFiles(x.files)
	x.files = nil
}

// sameUser refuses a peer that runs as another user.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if self := os.Geteuid(); int(cred.Uid) != self {
		return &UserError{Peer: int(cred.Uid), Self: self}
	}
	return nil
}

// UserError is a peer that runs as another user. Pools are shared within one
// user only.
type UserError struct{ Peer, Self int }

func (e *UserError) Error() string {
	return fmt.Sprintf("transport/shm: the peer runs as user %d, this process as %d", e.Peer, e.Self)
}
