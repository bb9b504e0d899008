#!/bin/sh
# Builds policy.wasm (clang and lld). "kvferry policy build" runs this and seals
# the module: adds the manifest and the marker of the ABI.
set -eu
cd "$(dirname "$0")"
${CLANG:-clang} --target=wasm32-unknown-unknown -O2 -std=c11 -Wall -Wextra -Werror -Wno-unused-function \
	-mbulk-memory -nostdlib -fno-ident -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=16384 \
	-o policy.wasm policy.c
