package shm

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/transport"
)

// An address is "SOCKET SECRET": the socket's name ("@..." is an abstract one)
// and 32 hex digits that a dialler must show. It travels in the handshake,
// which is authenticated.
type address struct {
	socket string
	secret [16]byte
}

// AddressError is an address that cannot be one.
type AddressError struct{ Field, Reason string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("transport/shm: address: %s: %s", e.Field, e.Reason)
}

const maxSocket = 107 // what sockaddr_un holds, with its ending zero

func (a address) text() []byte { return fmt.Appendf(nil, "%s %x", a.socket, a.secret) }

func parseAddress(a transport.Address) (address, error) {
	if a.Provider != Name {
		return address{}, fmt.Errorf("connect to an address of provider %q: %w", a.Provider, transport.ErrNotSupported)
	}
	var out address
	socket, secret, ok := strings.Cut(string(a.Data), " ")
	if !ok {
		return address{}, &AddressError{"secret", "missing"}
	}
	if len(socket) < 2 || len(socket) > maxSocket || strings.ContainsRune(socket, 0) || socket[0] != '@' && socket[0] != '/' {
		return address{}, &AddressError{"socket", fmt.Sprintf("%.120q is neither an absolute path nor an abstract name", socket)}
	}
	raw, err := hex.DecodeString(secret)
	if err != nil || len(raw) != len(out.secret) || strings.ToLower(secret) != secret {
		return address{}, &AddressError{"secret", "want 32 hex digits"}
	}
	out.socket = socket
	copy(out.secret[:], raw)
	return out, nil
}

// random returns 16 unguessable bytes.
func random() (b [16]byte) {
	rand.Read(b[:]) // never fails; it ends the process instead
	return b
}
