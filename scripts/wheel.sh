#!/usr/bin/env bash
# Builds the wheel of dist/, which needs neither Rust nor clang where it is installed: libelf, zlib and the
# BPF objects are inside, and zig links it against glibc 2.17, so that any newer one will do.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'wheel: %s\n' "$1" >&2; exit 1; }

scripts/setup.sh wheel
clang --print-targets | grep -w bpf >/dev/null || fail "this clang does not target bpf: install another one"
command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"

# The sources must be there for their directories to be known, which stay out of the wheel.
cargo fetch --quiet --locked
flags="--remap-path-prefix=$PWD="
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
    flags+=$'\x1f'"--remap-path-prefix=$sources="
done

echo "wheel: building (the first time takes some minutes)"
mkdir -p build dist
rm -f dist/skyhop-*.whl
host=$(rustc -vV | sed -n 's/^host: //p')
# On arm, libelf is compiled with an option that only gcc knows.
export "CFLAGS_${host//-/_}=-Wno-unknown-warning-option"
env -u RUSTFLAGS CARGO_ENCODED_RUSTFLAGS="$flags" PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv" \
    maturin build --profile wheel --locked --zig --target "$host" --compatibility manylinux_2_17 \
    --no-default-features --features wheel --out dist >build/wheel.log 2>&1 || {
        tail -n 40 build/wheel.log >&2
        fail "the build failed; its last messages are above, all of them in build/wheel.log"
    }
du -h --apparent-size dist/skyhop-*.whl
