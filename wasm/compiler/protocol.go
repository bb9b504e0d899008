package compiler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// protocol is the version of what parent and child say to each other.
const protocol = 2

const (
	magic     = "kvfcomp2"
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
	Pages    uint32
	Original []byte // to be validated
	Metered  []byte // to be compiled
}

const headSize = len(magic) + 3*4

func (r request) encode() []byte {
	b := make([]byte, headSize, headSize+len(r.Original)+len(r.Metered))
	copy(b, magic)
	for i, n := range []int{int(r.Pages), len(r.Original), len(r.Metered)} {
		binary.LittleEndian.PutUint32(b[len(magic)+4*i:], uint32(n))
	}
	return append(append(b, r.Original...), r.Metered...)
}

// readRequest reads all of one, and nothing else may follow.
func readRequest(in io.Reader) (request, error) {
	head := make([]byte, headSize)
	if _, err := io.ReadFull(in, head); err != nil {
		return request{}, fmt.Errorf("read the head of a request: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return request{}, errors.New("this is no request to compile: the command is for kvferry's own use")
	}
	field := func(i int) int { return int(binary.LittleEndian.Uint32(head[len(magic)+4*i:])) }
	original, metered := field(1), field(2)
	if original > maxModule || metered > maxModule {
		return request{}, fmt.Errorf("a module of %d bytes, at most %d are compiled", max(original, metered), maxModule)
	}
	r := request{Pages: uint32(field(0))}
	if r.Pages > 1<<16 {
		return request{}, fmt.Errorf("a memory of %d pages, there are %d at most", r.Pages, 1<<16)
	}
	b, err := io.ReadAll(io.LimitReader(in, int64(original)+int64(metered)+1))
	if err != nil {
		return request{}, fmt.Errorf("read the modules of a request: %w", err)
	}
	if len(b) != original+metered {
		return request{}, fmt.Errorf("modules of %d and %d bytes were announced, %d bytes came", original, metered, len(b))
	}
	r.Original, r.Metered = b[:original], b[original:]
	return r, nil
}

// reply is what a child answers.
type reply struct {
	Protocol    int         `json:"protocol"`
	Version     string      `json:"version"`           // of the engine and the processor, as the cache names it
	Sample      string      `json:"sample"`            // the entry of the sample, as fingerprint has it
	Refused     string      `json:"refused,omitempty"` // why the engine does not take the module
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
