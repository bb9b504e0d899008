#!/bin/sh
# Builds the policy's module: heads.wasm in the folder given, or here.
set -eu
out=$(cd "${1:-$(dirname "$0")}" && pwd)/heads.wasm
cd "$(dirname "$0")"
GOOS=wasip1 GOARCH=wasm ${GO:-go} build -buildmode=c-shared -trimpath -ldflags="-s -w -buildid=" -o "$out" .
chmod 644 "$out"
