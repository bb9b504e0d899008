#!/bin/sh
# Builds policy.wasm ("npm install" brings the compiler, or the variable ASC names
# it). "kvferry policy build" runs this and seals the module: adds the manifest and
# the marker of the ABI.
set -eu
cd "$(dirname "$0")"
PATH="$PWD/node_modules/.bin:$PATH"
${ASC:-asc} policy.ts -O3 --runtime ./kvferry/assembly/runtime --stackSize 4096 --use abort= -o policy.wasm
