#!/bin/sh
# Builds the policy's module: heads.wasm in the folder given, or here. The
# committed one is that of rustc 1.63 (Debian 12: rustc and libstd-rust-dev-wasm32).
set -eu
out=$(cd "${1:-$(dirname "$0")}" && pwd)/heads.wasm
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="--edition 2021 --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort -C codegen-units=1 --remap-path-prefix $work=. --remap-path-prefix $PWD=."
${RUSTC:-rustc} $flags --crate-name kvferry --crate-type rlib -C linker-plugin-lto=no -o "$work/libkvferry.rlib" ../../src/lib.rs
${RUSTC:-rustc} $flags --crate-name heads --crate-type cdylib -C lto=fat -C strip=symbols -C link-arg=-zstack-size=65536 --extern kvferry="$work/libkvferry.rlib" -o "$out" src/lib.rs
chmod 644 "$out"
