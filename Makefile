# Go is all that "make test" needs. The other targets name what they need.

GO        ?= go
FUZZTIME  ?= 10s
# Pinned, so that a lint result is the same everywhere.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: all build static test test-spec race lint generate policies check-generated bench fuzz demo examples clean

all: build

build:
	$(GO) build -o bin/kvferry ./cmd/kvferry

# The default binary: no cgo, no dynamic linker.
static:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kvferry ./cmd/kvferry

test:
	$(GO) test -timeout 20m ./...
	@$(GO) test -v -run '^(TestRandomPairs|TestMutations|TestMatrix)$$' ./plan/proof ./transport/matrix | grep -E '_test.go:|^(ok|FAIL|---)'

# The WebAssembly specification's own tests through the fuel pass, on both engines.
test-spec:
	$(GO) test -count=1 -v -run '^TestSuite$$' ./wasm/meter/spec

# The random suites run in their short form here: the race detector looks for
# races, the plain run for wrong plans.
race:
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

# Poison given-back blocks and check internal invariants.
invariants:
	$(GO) test -short -tags purego ./memory/move ./memory/digest
	$(GO) test -short -tags invariants -timeout 20m ./memory/... ./transport/... ./runtime/...

lint:
	@test -z "$$(gofmt -l .)" || { echo "gofmt these files:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags invariants ./...
	$(GO) run $(STATICCHECK) ./...

# Records, C header and vectors from the ABI's schema, and the policies'
# modules from their sources (needs clang and lld).
generate: policies
	$(GO) generate ./...

policies:
	sh policies/build.sh

# Fails where a generated file differs from what its source gives.
check-generated: generate
	git diff --exit-code -- .
	@test -z "$$(git status --porcelain)" || { echo "generation left new files:"; git status --porcelain; exit 1; }

bench: build
	bin/kvferry bench plan
	bin/kvferry bench copy
	bin/kvferry bench digest

# Every fuzz target for FUZZTIME each.
fuzz:
	.ci/fuzz $(FUZZTIME)

demo:
	$(GO) run ./cmd/kvferry demo

examples:
	@set -e; for dir in examples/*/; do echo "example $$dir"; $(GO) test "./$$dir"; done

clean:
	rm -rf bin
