package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unicode/utf8"
)

// Bounds on the history: once it is larger than MaxHistory, its older half
// goes.
const (
	MaxHistory = 256 << 10
	MaxLine    = 8 << 10
)

// Append adds one JSON object to the history. It is on disk when Append
// returns.
//
// Errors: *FileError for what is no JSON object of at most MaxLine bytes on one
// line; ErrClosed; those of the file system.
func (s *Store) Append(line []byte) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if !isLine(line) {
		return &FileError{File: s.path(historyName), Reason: fmt.Sprintf("%.40q is no JSON object of at most %d bytes on one line", line, MaxLine)}
	}
	f, err := s.open(historyName, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.path(historyName), err)
	}
	if info.Size()+int64(len(line)) >= MaxHistory {
		kept, err := s.history()
		if err != nil {
			return err
		}
		var b []byte
		for _, old := range append(kept[len(kept)/2:], line) {
			b = append(append(b, old...), '\n')
		}
		return s.put(historyName, b)
	}
	text := append(bytes.Clone(line), '\n')
	var last [1]byte
	if info.Size() > 0 {
		if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
			return fmt.Errorf("read %s: %w", s.path(historyName), err)
		}
		if last[0] != '\n' { // what a process wrote last when it died
			text = append([]byte{'\n'}, text...)
		}
	}
	if err := s.write(f, text); err != nil {
		return fmt.Errorf("write %s: %w", s.path(historyName), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", s.path(historyName), err)
	}
	s.did("sync " + historyName)
	return nil
}

// History is every line that was appended and is still kept, oldest first. A
// line that is no JSON object, such as one that was cut, is left out.
//
// Errors: ErrClosed; *FileError; those of the file system.
func (s *Store) History() ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	return s.history()
}

func (s *Store) history() ([][]byte, error) {
	b, err := s.slurp(historyName, 2*MaxHistory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if isLine(line) {
			out = append(out, line)
		}
	}
	return out, nil
}

func isLine(line []byte) bool {
	return len(line) <= MaxLine && len(line) > 1 && line[0] == '{' && !bytes.ContainsRune(line, '\n') && utf8.Valid(line) && json.Valid(line)
}
