package compiler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// protocol is the version of what parent and child say to each other.
const protocol = 1

const (
	magic     = "kvfcomp1"
	maxModule = 32 << 20 // metering makes a module larger, to several times what the preflight lets through
	maxReply  = 16 << 10
)

// Variables of the child's environment.
const (
	memoryVariable = "KVFERRY_COMPILE_MEMORY"
	timeVariable   = "KVFERRY_COMPILE_SECONDS"
	stageVariable  = "KVFERRY_COMPILE_CONFINED"
)

// Exit statuses of the child.
const (
	exitOK    = 0
	exitInput = 3 // nobody asked it as a parent does
	exitSetup = 4 // it cannot protect itself
)

// request is what a child reads.
type request struct {
	Pages uint32
	Wasm  []byte
}

func (r request) encode() []byte {
	b := append([]byte(magic), make([]byte, 8)...)
	binary.LittleEndian.PutUint32(b[8:], r.Pages)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(r.Wasm)))
	return append(b, r.Wasm...)
}

// readRequest reads all of one, and nothing else may follow.
func readRequest(in io.Reader) (request, error) {
	head := make([]byte, len(magic)+8)
	if _, err := io.ReadFull(in, head); err != nil {
		return request{}, fmt.Errorf("read the head of a request: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return request{}, errors.New("this is no request to compile: the command is for kvferry's own use")
	}
	r := request{Pages: binary.LittleEndian.Uint32(head[8:])}
	n := binary.LittleEndian.Uint32(head[12:])
	if n > maxModule {
		return request{}, fmt.Errorf("a module of %d bytes, at most %d are compiled", n, maxModule)
	}
	if r.Pages > 1<<16 {
		return request{}, fmt.Errorf("a memory of %d pages, there are %d at most", r.Pages, 1<<16)
	}
	var err error
	if r.Wasm, err = io.ReadAll(io.LimitReader(in, int64(n)+1)); err != nil {
		return request{}, fmt.Errorf("read the module of a request: %w", err)
	}
	if len(r.Wasm) != int(n) {
		return request{}, fmt.Errorf("a module of %d bytes was announced, %d came", n, len(r.Wasm))
	}
	return r, nil
}

// reply is what a child answers.
type reply struct {
	Protocol    int         `json:"protocol"`
	Version     string      `json:"version"`           // of the engine and the processor, as the cache names it
	Sample      string      `json:"sample"`            // the entry of the sample, as fingerprint has it
	Refused     string      `json:"refused,omitempty"` // why the engine does not compile the module
	Protections Protections `json:"protections"`
}

// Protections say what keeps a child in its place. What is false is what the
// kernel does not offer.
type Protections struct {
	Limits   bool `json:"limits"`   // on memory, time, files and their size
	NoNew    bool `json:"no_new"`   // no rights by running another program
	Landlock bool `json:"landlock"` // no file is written outside its folder, few are read
	Seccomp  bool `json:"seccomp"`  // no network, no other program, no look into other processes
}
