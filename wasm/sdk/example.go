package sdk

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed rust/examples/heads/heads.wasm assemblyscript/examples/heads/heads.wasm
//go:embed go/examples/heads/*.go go/examples/heads/build.sh
var examples embed.FS

// Example is the policy heads in a language, unsealed, as it was built when the
// SDK was made. C has none: the built-in policy is the one.
//
// Errors: ErrUnknownLanguage; for go too, whose module is too large to be kept:
// GoExample builds it.
func Example(lang string) ([]byte, error) {
	for _, l := range languages() {
		if b, err := examples.ReadFile(l.dir + "/examples/heads/heads.wasm"); err == nil && l.name == lang {
			return b, nil
		}
	}
	return nil, fmt.Errorf("%w: there is no example in %q", ErrUnknownLanguage, lang)
}

// GoExample are the files of a folder that holds the policy heads in Go: its
// build script, in the folder of the name script, leaves heads.wasm there,
// unsealed. The Go compiler needs nothing else.
func GoExample() (out []File, script string) {
	const module, dir = "module github.com/kvferry/kvferry\n\ngo 1.24\n", "go/examples/heads"
	out = []File{{Path: "go.mod", Data: []byte(module)}}
	add := func(from fs.ReadFileFS, dir, name string) {
		b, err := from.ReadFile(dir + "/" + name)
		if err != nil {
			panic("sdk: an embedded file cannot be read: " + err.Error())
		}
		out = append(out, File{"wasm/sdk/" + dir + "/" + name, b, strings.HasSuffix(name, ".sh")})
	}
	list, err := examples.ReadDir(dir)
	if err != nil {
		panic("sdk: an embedded folder cannot be read: " + err.Error())
	}
	for _, e := range list {
		add(examples, dir, e.Name())
	}
	for _, name := range []string{"abi_gen.go", "guest_unsafe.go", "kvferry.go", "native.go"} {
		add(files, "go/kvferry", name)
	}
	return out, "wasm/sdk/" + dir
}
