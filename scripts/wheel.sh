#!/usr/bin/env bash
# Builds the wheels of the three packages in dist/. The installation of skyhop's needs neither Rust nor clang: it contains
# libelf, zlib and the BPF objects. zig links it against glibc 2.17, so that it works with that version and any newer one.
# Usage: wheel.sh [TARGET...]: builds skyhop's wheel for these targets of Rust too, such as aarch64-unknown-linux-gnu; the
# wheel for this machine is always built, because the documentation in the others is made with it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

fail() { printf 'wheel: %s\n' "$1" >&2; exit 1; }

scripts/setup.sh wheel
clang --print-targets | grep -w bpf >/dev/null || fail "this clang does not target bpf: install another one"
command -v cargo >/dev/null || PATH="$HOME/.cargo/bin:$PATH"

for target in "$@"; do
    [ -d "$(rustc --print target-libdir --target "$target")" ] || fail "Rust has no standard library for $target: rustup target add $target"
done

# Fetch the sources, so that their directories exist and can be removed from the paths inside the wheel.
cargo fetch --quiet --locked
flags="--remap-path-prefix=$PWD="
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
    flags+=$'\x1f'"--remap-path-prefix=$sources="
done

echo "wheel: building (the first time takes some minutes)"
mkdir -p build dist
rm -f dist/skyhop*.whl
host=$(rustc -vV | sed -n 's/^host: //p')
pack() { # TARGET
    # On arm, libelf is compiled with an option that only gcc knows.
    (cd packages/skyhop && env -u RUSTFLAGS CARGO_ENCODED_RUSTFLAGS="$flags" PATH="$root/.venv/bin:$PATH" \
        "CFLAGS_${1//-/_}=-Wno-unknown-warning-option" VIRTUAL_ENV="$root/.venv" \
        maturin build --release --locked --zig --target "$1" \
        --compatibility manylinux_2_17 --no-default-features --features wheel --out "$root/dist") >build/wheel.log 2>&1 || {
            tail -n 40 build/wheel.log >&2
            fail "the build failed; its last messages are above, all messages are in build/wheel.log"
        }
}
pack "$host"

# The documentation has lists from the core. .venv may have no core, so this wheel is installed into another environment.
# The second build packs the site into the wheel; it compiles nothing again.
echo "wheel: building its documentation"
site=packages/skyhop/skyhop/site
trap 'rm -rf "$site"' EXIT
rm -rf build/docs-env
.venv/bin/uv --quiet venv --python .venv/bin/python build/docs-env
.venv/bin/uv --quiet pip install --python build/docs-env/bin/python --constraint requirements.lock --group docs dist/skyhop-[0-9]*.whl
NO_MKDOCS_2_WARNING=1 build/docs-env/bin/python -m mkdocs build --strict --site-dir "$PWD/$site" \
    || fail "the documentation was not built; its messages are above"
pack "$host"
for target in "$@"; do
    echo "wheel: building for $target"
    [ "$target" = "$host" ] || pack "$target"
done
for member in skyhop-testbed skyhop-lab; do
    .venv/bin/uv --quiet build --wheel --python .venv/bin/python --no-build-isolation --no-sources --out-dir dist "packages/$member" \
        || fail "the build of $member failed; its messages are above"
done
rm -f dist/.gitignore
du -h --apparent-size dist/skyhop*.whl
