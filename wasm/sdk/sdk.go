// Package sdk holds what policies are written with: for each language its SDK
// and a template, as files. It makes the folder that a new policy begins as; it
// runs no compiler and no policy.
package sdk

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed c/*.h c/template
//go:embed rust/Cargo.toml rust/src rust/template
//go:embed go/kvferry/abi_gen.go go/kvferry/guest_unsafe.go go/kvferry/kvferry.go go/kvferry/native.go go/template
//go:embed template
//go:embed assemblyscript/package.json assemblyscript/assembly assemblyscript/template
var files embed.FS

// BuildScript is the file of a new policy's folder that builds it, run with sh:
// it leaves Built in the folder, which is not sealed yet. Manifest is what it is to
// be sealed with.
const (
	BuildScript = "build.sh"
	Built       = "policy.wasm"
	Manifest    = "manifest.json"
)

// language is where the files of one lie: folders and files below dir that a
// policy's folder has in kvferry/, without the prefix strip.
type language struct {
	name, dir string
	sdk       []string
	strip     string
}

func languages() []language {
	return []language{
		{"as", "assemblyscript", []string{"package.json", "assembly"}, ""},
		{"c", "c", []string{"kvferry.h", "kvferry_abi_gen.h", "kvferry_json.h"}, ""},
		{"go", "go", []string{"kvferry"}, "kvferry/"},
		{"rust", "rust", []string{"Cargo.toml", "src"}, ""},
	}
}

// Languages are the names that New takes, in ascending order.
func Languages() []string {
	var out []string
	for _, l := range languages() {
		out = append(out, l.name)
	}
	return out
}

// ErrUnknownLanguage is a language that there is no SDK for.
var ErrUnknownLanguage = errors.New("wasm/sdk: there is no SDK for this language")

// ErrName is a name that no policy can have.
var ErrName = errors.New("wasm/sdk: a policy's name is a small letter, then small letters, digits and -, 63 at most")

// File is a file of a new policy's folder.
type File struct {
	Path       string // slash-separated, below the folder
	Data       []byte
	Executable bool
}

// nameForm is that of the manifest.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// New returns the files that a policy of this name begins as: a template that
// builds as it is, and the SDK beside it, so that nothing needs to be fetched. They
// are in ascending order of their paths.
//
// Errors: ErrUnknownLanguage, ErrName.
func New(lang, name string) ([]File, error) {
	i := slices.IndexFunc(languages(), func(l language) bool { return l.name == lang })
	if i < 0 {
		return nil, fmt.Errorf("%w: %q, want one of %s", ErrUnknownLanguage, lang, strings.Join(Languages(), ", "))
	}
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("%w: %q", ErrName, name)
	}
	l := languages()[i]
	var out []File
	add := func(dir, root string, to func(string) string, change func([]byte) []byte) {
		err := fs.WalkDir(files, path.Join(dir, root), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := files.ReadFile(p)
			if err != nil {
				return err
			}
			p = to(strings.TrimPrefix(p, dir+"/"))
			out = append(out, File{p, change(b), path.Ext(p) == ".sh"})
			return nil
		})
		if err != nil {
			panic("sdk: an embedded file cannot be read: " + err.Error())
		}
	}
	// Some files of a template have .txt at their end, so that no tool takes them
	// for its own here.
	filled := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("{{NAME}}"), []byte(name)) }
	add(l.dir, "template", func(p string) string { return strings.TrimSuffix(strings.TrimPrefix(p, "template/"), ".txt") }, filled)
	add(".", "template", func(p string) string { return strings.TrimPrefix(p, "template/") }, filled) // the cases that are the same for all
	for _, root := range l.sdk {
		add(l.dir, root, func(p string) string { return "kvferry/" + strings.TrimPrefix(p, l.strip) }, bytes.Clone)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}
