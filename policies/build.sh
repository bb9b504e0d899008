#!/bin/sh
# Builds every policy's module from its source: clang and lld 14 give the same
# bytes everywhere. Run from any folder; with an absolute folder as argument, the
# modules go there (NAME.wasm) and not beside their sources.
set -eu
cd "$(dirname "$0")/.."
CLANG=${CLANG:-clang}
for dir in policies/*/; do
	name=$(basename "$dir")
	[ -f "$dir$name.c" ] || continue
	out=${1:-policies/$name}/$name.wasm
	$CLANG --target=wasm32-unknown-unknown -O2 -fno-unroll-loops -std=c11 -Wall -Wextra -Werror -Wno-unused-function \
		-mbulk-memory -nostdlib -fno-ident -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=16384 \
		-I wasm/sdk/c -o "$out" "$dir$name.c"
	chmod 644 "$out"
	${GO:-go} run ./wasm/module/seal "$out" "${dir}manifest.json"
done
