#!/usr/bin/env bash
# Makes .venv with everything skyhop needs, from lock files, and builds the core into it.
# Installs system packages where it may; names the command where it may not.
# Usage: setup.sh [PROGRAM...]: programs that the tests use too, each named like its package.
#        setup.sh --tools [PROGRAM...]: the tools alone, no build; it needs all of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."

tools_only=""
[ "${1:-}" != --tools ] || { tools_only=yes; shift; }

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_updated=""
# install PACKAGE...: with apt, where this user may; otherwise says how.
install() {
    command -v apt-get >/dev/null || fail "missing $*: install the equivalent with your system's package manager"
    local command="apt-get install -y --no-install-recommends $*"
    if [ -z "$apt_updated" ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null || true
        apt_updated=yes
    fi
    # shellcheck disable=SC2086  # the packages are words
    as_root env DEBIAN_FRONTEND=noninteractive $command >/dev/null \
        || fail "missing $*: run 'sudo $command', then this again"
}

find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

for program in "$@"; do
    command -v "$program" >/dev/null || (install "$program") || [ -z "$tools_only" ] || exit 1
    command -v "$program" >/dev/null \
        || echo "setup: going on without $program; the tests that need it skip" >&2
done
command -v cc >/dev/null || install build-essential

# Loading congestion controls into the kernel needs libbpf, which is built from its source here.
has_libbpf_needs() {
    command -v make >/dev/null && command -v pkg-config >/dev/null \
        && printf '#include <libelf.h>\n#include <zlib.h>\n' | cc -E - >/dev/null 2>&1
}
features=()
has_libbpf_needs || (install make pkg-config libelf-dev zlib1g-dev) || true
has_libbpf_needs || {
    echo "setup: going on without libelf or zlib headers; skyhop cc load will not work" >&2
    features=(--no-default-features --features extension-module)
}

command -v cargo >/dev/null || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH="$HOME/.cargo/bin:$PATH"
command -v cargo >/dev/null || fail "missing a Rust toolchain (1.85 or newer): install one with rustup, or 'sudo apt-get install rustup && rustup default stable'"
cargo --version | awk '{split($2, v, "."); exit !(v[1] > 1 || v[2] >= 85)}' \
    || fail "$(cargo --version) is too old: skyhop needs Rust 1.85 or newer; run 'rustup update'"
python=$(find_python) || { install python3 python3-venv; cargo --version | awk '{split($2, v, "."); exit !(v[1] > 1 || v[2] >= 85)}' \
    || fail "$(cargo --version) is too old: skyhop needs Rust 1.85 or newer; run 'rustup update'"
python=$(find_python); } \
    || fail "missing Python 3.11 or newer: install it with your system's package manager"

if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv 2>/dev/null || {
        rm -rf .venv
        install "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        "$python" -m venv .venv
    }
fi

# Python packages: again only when the lock file has changed.
stamp=.venv/requirements.sha256
if ! sha256sum --status -c "$stamp" 2>/dev/null; then
    echo "setup: installing the Python packages of requirements.lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
    sha256sum requirements.lock > "$stamp"
fi

[ -z "$tools_only" ] || exit 0

echo "setup: building skyhop (the first time takes some minutes)"
mkdir -p build
VIRTUAL_ENV="$PWD/.venv" .venv/bin/maturin develop --release --locked "${features[@]}" >build/setup.log 2>&1 || {
    tail -n 40 build/setup.log >&2
    fail "the build failed; its last messages are above, all of them in build/setup.log"
}
