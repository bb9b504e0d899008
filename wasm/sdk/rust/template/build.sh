#!/bin/sh
# Builds policy.wasm with rustc alone; "cargo build --release --target
# wasm32-unknown-unknown" builds it as well, below target/. "kvferry policy build"
# runs this and seals the module: adds the manifest and the marker of the ABI.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="--edition 2021 --target wasm32-unknown-unknown -C opt-level=3 -C panic=abort -C codegen-units=1 --remap-path-prefix $work=. --remap-path-prefix $PWD=."
${RUSTC:-rustc} $flags --crate-name kvferry --crate-type rlib -o "$work/libkvferry.rlib" kvferry/src/lib.rs
${RUSTC:-rustc} $flags --crate-name policy --crate-type cdylib -C lto=fat -C strip=symbols -C link-arg=-zstack-size=65536 \
	--extern kvferry="$work/libkvferry.rlib" -o policy.wasm src/lib.rs
