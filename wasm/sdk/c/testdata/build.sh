#!/bin/sh
# Builds the guest that json.c is; with a folder as argument it goes there.
set -eu
cd "$(dirname "$0")"
${CLANG:-clang} --target=wasm32-unknown-unknown -O2 -fno-unroll-loops -std=c11 -Wall -Wextra -Werror -mbulk-memory -nostdlib -fno-ident \
	-Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=65536 -I .. -o "${1:-.}/json.wasm" json.c
chmod 644 "${1:-.}/json.wasm"
