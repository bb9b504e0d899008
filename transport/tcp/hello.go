package tcp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magic       = "KVFY"
	version     = 1
	prologue    = 6 // magic and version: the same in every version
	helloSize   = 48
	welcomeSize = 32
	maxStreams  = 16
)

type role uint8

const (
	roleControl role = 1
	roleData    role = 2
)

// status is what an acceptor says to a hello.
type status uint8

const (
	statusOK      status = 0
	statusVersion status = 1 // another version
	statusHello   status = 2 // a field of the hello is wrong
	statusToken   status = 3 // the token is in use
	statusBusy    status = 4 // too many peers
	statusUnknown status = 5 // data: no such token, secret or stream
)

func (s status) String() string {
	if n := [...]string{"accepted", "another version", "a malformed hello", "the token is in use", "too many peers", "no such connection to join"}; int(s) < len(n) {
		return n[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// HandshakeError is a connection that was refused before it carried a frame.
// Ours and Theirs are the values of the field on both sides.
type HandshakeError struct {
	Field  string // "magic", "version", "status", "role", ...
	Ours   string
	Theirs string
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("transport/tcp: handshake: %s: ours is %s, the peer's is %s", e.Field, e.Ours, e.Theirs)
}

func handshake(field string, ours, theirs any) error {
	return &HandshakeError{field, fmt.Sprint(ours), fmt.Sprint(theirs)}
}

// key is a token or a secret.
type key [16]byte

func (k key) String() string { return fmt.Sprintf("%x", k[:]) }

type hello struct {
	version  uint16
	role     role
	streams  uint8
	token    key
	secret   key
	progress uint32 // milliseconds
}

func (h *hello) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, helloSize)
	copy(b, magic)
	le.PutUint16(b[4:], h.version)
	b[6], b[7] = uint8(h.role), h.streams
	copy(b[8:], h.token[:])
	copy(b[24:], h.secret[:])
	le.PutUint32(b[40:], h.progress)
	le.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
	return b
}

// readPrologue reads magic and version into b and compares them with ours.
func readPrologue(r io.Reader, b []byte) error {
	if _, err := io.ReadFull(r, b[:prologue]); err != nil {
		return fmt.Errorf("transport/tcp: handshake: read the version: %w", err)
	}
	if string(b[:4]) != magic {
		return handshake("magic", fmt.Sprintf("%x", magic), fmt.Sprintf("%x", b[:4]))
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != version {
		return handshake("version", version, v)
	}
	return nil
}

// readRest reads a hello or welcome after its prologue and checks its CRC.
func readRest(r io.Reader, b []byte) error {
	if _, err := io.ReadFull(r, b[prologue:]); err != nil {
		return fmt.Errorf("transport/tcp: handshake: read %d bytes: %w", len(b), err)
	}
	n := len(b) - 4
	if got, want := binary.LittleEndian.Uint32(b[n:]), crc32.Checksum(b[:n], castagnoli); got != want {
		return handshake("crc", fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got))
	}
	return nil
}

// readHello also returns what to answer: an error with statusOK is not
// answered.
func readHello(r io.Reader) (h hello, s status, err error) {
	var b [helloSize]byte
	if err := readPrologue(r, b[:]); err != nil {
		if e, ok := err.(*HandshakeError); ok && e.Field == "version" {
			return hello{}, statusVersion, err
		}
		return hello{}, statusOK, err // not one of us
	}
	if err := readRest(r, b[:]); err != nil {
		return hello{}, statusHello, err
	}
	le := binary.LittleEndian
	h = hello{version: version, role: role(b[6]), streams: b[7], token: key(b[8:24]), secret: key(b[24:40]), progress: le.Uint32(b[40:])}
	switch {
	case h.role != roleControl && h.role != roleData:
		err = handshake("role", "1 or 2", h.role)
	case h.token == key{}:
		err = handshake("token", "not zero", "zero")
	case h.role == roleControl && (h.streams < 1 || h.streams > maxStreams):
		err = handshake("streams", fmt.Sprintf("1 to %d", maxStreams), h.streams)
	case h.role == roleControl && h.secret != key{}:
		err = handshake("secret", "zero", "not zero")
	case h.role == roleControl && h.progress == 0:
		err = handshake("progress", "at least 1 ms", 0)
	case h.role == roleData && h.streams >= maxStreams:
		err = handshake("stream", fmt.Sprintf("below %d", maxStreams), h.streams)
	case h.role == roleData && h.progress != 0:
		err = handshake("progress", 0, h.progress)
	}
	if err != nil {
		return hello{}, statusHello, err
	}
	return h, statusOK, nil
}

type welcome struct {
	version  uint16
	status   status
	secret   key
	progress uint32
}

func (w *welcome) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, welcomeSize)
	copy(b, magic)
	le.PutUint16(b[4:], w.version)
	b[6] = uint8(w.status)
	copy(b[8:], w.secret[:])
	le.PutUint32(b[24:], w.progress)
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

// readWelcome returns an error unless the hello, which had the given role, was
// accepted.
func readWelcome(r io.Reader, of role) (w welcome, err error) {
	var b [welcomeSize]byte
	if err := readPrologue(r, b[:]); err != nil {
		return welcome{}, err
	}
	if err := readRest(r, b[:]); err != nil {
		return welcome{}, err
	}
	w = welcome{version, status(b[6]), key(b[8:24]), binary.LittleEndian.Uint32(b[24:])}
	switch {
	case w.status != statusOK:
		return welcome{}, handshake("status", statusOK, w.status)
	case b[7] != 0:
		return welcome{}, handshake("byte 7", 0, b[7])
	case of == roleControl && w.secret == key{}:
		return welcome{}, handshake("secret", "not zero", "zero")
	case of == roleData && w.secret != key{}:
		return welcome{}, handshake("secret", "zero", "not zero")
	case w.progress == 0:
		return welcome{}, handshake("progress", "at least 1 ms", 0)
	}
	return w, nil
}
