#!/usr/bin/env bash
# Makes .venv with everything skyhop needs, from lock files, and builds the core into it.
# Installs system packages where it may. What it may not install and can do without it writes to
# build/missing, a line each with what does not work then: every command ends with those lines.
# SKYHOP_TOOLS names programs to have besides, for tests that few machines run.
# Usage: setup.sh [LOCK...]                      Python packages of more lock files, too
#        setup.sh --tools "PROGRAM..." [LOCK...]  no build, but programs that have to be there
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

# --- system packages ---

# Each: what it is called here, the packages that bring it, and what does not work without it. What
# cannot be done without says nothing here: its absence ends the set-up.
WANTED="compiler python libelf clang iperf3 slirp4netns programs ${SKYHOP_TOOLS:-}"
REQUIRED="compiler python"
tools_only=""
if [ "${1:-}" = --tools ]; then
    tools_only=yes WANTED="compiler python $2" REQUIRED="compiler python $2"
    shift 2
fi
packages_of() {
    case $1 in
        compiler) echo "build-essential" ;;
        python) echo "python3 $(venv_package)" ;;
        libelf) echo "make pkg-config libelf-dev zlib1g-dev" ;;
        programs) echo "util-linux mount iproute2 gzip" ;;
        podman) echo "podman crun catatonit" ;;
        bwrap) echo "bubblewrap" ;;
        ping) echo "iputils-ping" ;;
        *) echo "$1" ;;
    esac
}
lost_without() {
    case $1 in
        libelf) echo "no congestion control of cc/ can be loaded into the kernel (skyhop cc, cc = \"skyhop:...\" in live runs)" ;;
        clang) echo "cc/*.c is not compiled for the kernel (skyhop cc, cc = \"skyhop:...\" in live runs)" ;;
        iperf3) echo "the example that runs it over a path, and its test, are left out" ;;
        slirp4netns) echo "programs cannot reach the real net through a path (skyhop live --internet)" ;;
        *) echo "tests that want it are left out" ;;
    esac
}
is_there() {
    case $1 in
        compiler) command -v cc >/dev/null ;;
        python) python=$(find_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
        # Loading congestion controls into the kernel needs libbpf, which is built from its source here.
        libelf) command -v make >/dev/null && command -v pkg-config >/dev/null \
            && printf '#include <libelf.h>\n#include <zlib.h>\n' | cc -E - >/dev/null 2>&1 ;;
        programs) for program in unshare setpriv mount ip gzip; do command -v "$program" >/dev/null || return 1; done ;;
        *) command -v "$1" >/dev/null ;;
    esac
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

# Debian and its likes split the standard library: the package with ensurepip of the Python there is.
venv_package() {
    local name
    name=$(find_python) || name=python3
    "$name" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' 2>/dev/null || echo python3-venv
}

missing() { for name in $WANTED; do is_there "$name" || echo "$name"; done; }

packages() { for name in "$@"; do packages_of "$name"; done | xargs; }

# apt PACKAGE...: installs, where this user may; whoever else installs something just now is waited for.
apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y \
        --no-install-recommends "$@" >>build/packages.log 2>&1
}

install_missing() {
    local names name
    names=$(missing)
    [ -n "$names" ] || return 0
    command -v apt-get >/dev/null || return 0
    as_root true || return 0
    # shellcheck disable=SC2086  # names and packages are words
    {
        echo "setup: installing $(packages $names)"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >build/packages.log 2>&1 || true
        # At once where possible; one that cannot be had must not keep the others away.
        apt $(packages $names) || for name in $(missing); do apt $(packages_of "$name") || true; done
    }
}

how_to_install() {
    if command -v apt-get >/dev/null; then echo "run 'sudo apt-get install $*', then this again"
    else echo "install the equivalent of $* with your system's package manager, then run this again"
    fi
}

# A line for each thing that is still missing, or the end where nothing works without it.
report_missing() {
    local name without how
    : >build/missing
    for name in $(missing); do
        # shellcheck disable=SC2046
        how=$(how_to_install $(packages_of "$name"))
        without=$(lost_without "$name")
        case $name in
            compiler) fail "missing a C compiler: $how" ;;
            python) fail "missing Python 3.11 or newer with its venv module: $how" ;;
        esac
        [[ " $REQUIRED " != *" $name "* ]] || fail "missing $name: $how"
        echo "without $name: $without; to have it, $how" >>build/missing
    done
}

# --- Rust, Python, the core ---

check_rust() {
    command -v cargo >/dev/null || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || fail "missing a Rust toolchain (1.89 or newer): install one with rustup, or 'sudo apt-get install rustup && rustup default stable'"
    cargo --version | awk '{split($2, v, "."); exit !(v[1] > 1 || v[2] >= 85)}' \
        || fail "$(cargo --version) is too old: skyhop needs Rust 1.89 or newer; run 'rustup update'"
}

make_venv() {
    [ -x .venv/bin/python ] || { rm -rf .venv && "$(find_python)" -m venv .venv; }
}

# install_locked LOCK: again only when the lock file has changed.
install_locked() {
    local stamp=.venv/$1.sha256
    sha256sum --status -c "$stamp" 2>/dev/null && return
    echo "setup: installing the Python packages of $1"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$1"
    sha256sum "$1" >"$stamp"
}

# What both builds, maturin's and cargo's, are told: written for the Makefile too.
choose_features() {
    features=""
    is_there libelf || features="--no-default-features --features skyhop-python/extension-module"
    echo "$features" >build/features
}

# The first time the core is compiled while Python's packages are unpacked: maturin then finds most of it done. What is
# wrong with it maturin says.
build_ahead() {
    [ ! -d target/release ] || return 0
    # shellcheck disable=SC2086  # the features are words
    PYO3_PYTHON="$PWD/.venv/bin/python" cargo build --release --locked -p skyhop-python $features >build/ahead.log 2>&1 &
    ahead=$!
    trap 'kill "$ahead" 2>/dev/null || true' EXIT
}

# What python/skyhop/**/*.proto describes, as modules beside them, and their types.
generate_protocols() {
    local file
    while read -r file; do
        [ "${file%.proto}_pb2.py" -ot "$file" ] || [ "${file%.proto}_pb2.py" -ot requirements.lock ] || continue
        PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m grpc_tools.protoc -Ipython --python_out=python \
            --grpc_python_out=python --mypy_out=quiet:python --mypy_grpc_out=quiet:python "$file" \
            || fail "the build of $file failed; its messages are above"
    done < <(find python -name "*.proto")
}

build_core() {
    echo "setup: building skyhop (the first time takes some minutes)"
    # shellcheck disable=SC2086  # the features are words
    VIRTUAL_ENV="$PWD/.venv" .venv/bin/maturin develop --release --locked $features >build/setup.log 2>&1 || {
        tail -n 40 build/setup.log >&2
        fail "the build failed; its last messages are above, all of them in build/setup.log"
    }
}

install_missing
report_missing
check_rust
make_venv
ahead=""
[ -n "$tools_only" ] || { choose_features; build_ahead; }
for lock in requirements.lock "$@"; do install_locked "$lock"; done
[ -z "$ahead" ] || wait "$ahead" || true
generate_protocols
[ -n "$tools_only" ] || build_core
