#!/bin/sh
# Builds the policy's module: heads.wasm in the folder given, or here. The
# committed one is that of AssemblyScript 0.28.20.
set -eu
out=$(cd "${1:-$(dirname "$0")}" && pwd)/heads.wasm
cd "$(dirname "$0")"
${ASC:-asc} heads.ts -O3 --runtime ../../assembly/runtime --stackSize 4096 --use abort= -o "$out"
chmod 644 "$out"
