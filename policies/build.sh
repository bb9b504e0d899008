#!/bin/sh
# Builds every policy's module from its source: clang and lld 14 give the same
# bytes everywhere. Run from any folder.
set -eu
cd "$(dirname "$0")/.."
CLANG=${CLANG:-clang}
for dir in policies/*/; do
	name=$(basename "$dir")
	$CLANG --target=wasm32-unknown-unknown -O2 -std=c11 -Wall -Wextra -Werror -Wno-unused-function \
		-mbulk-memory -nostdlib -fno-ident -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=16384 \
		-I wasm/sdk/c -o "$dir$name.wasm" "$dir$name.c"
	${GO:-go} run ./wasm/module/seal "$dir$name.wasm" "${dir}manifest.json"
done
