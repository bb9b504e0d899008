#!/bin/sh
# Builds policy.wasm. "kvferry policy build" runs this and seals the module: adds
# the manifest and the marker of the ABI.
set -eu
cd "$(dirname "$0")"
GOOS=wasip1 GOARCH=wasm ${GO:-go} build -buildmode=c-shared -trimpath -ldflags="-s -w -buildid=" -o policy.wasm .
