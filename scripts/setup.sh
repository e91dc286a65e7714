#!/usr/bin/env bash
# Creates .venv with the packages that a make target needs, from requirements.lock, and builds the core into it.
# Installs system packages if it can become root. Writes missing optional packages to build/missing: a line each, with
# the features that do not work without the package. `make demo` and `make test` print these lines at their end.
# Usage: setup.sh demo|dev|soak|wheel
#   demo   packages of `make demo`               dev    these, and the packages of `make lint` and `make test`
#   soak   all these, and those of `make soak`   wheel  packages to build a wheel, without a core in .venv
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build

level=${1:-dev}
# iperf3 is for the page on arbitrary programs over a path, which users read after the demo.
DEMO="compiler python libelf clang programs iperf3"
TOOLS="autoconf automake autopoint flex bison gawk make pkg-config"
case $level in
    demo)  WANTED="$DEMO" REQUIRED="" CHOSEN="--group build" ;;
    dev)   WANTED="$DEMO slirp4netns" REQUIRED=""
           CHOSEN="--group build --group lint --group test --group docs"
           MEMBERS="skyhop-testbed skyhop-lab[convert,dish,gym]" ;;
    soak)  WANTED="$DEMO slirp4netns bwrap chromium curl ffmpeg ping podman traceroute tshark" REQUIRED=""
           CHOSEN="--group build --group lint --group test --group docs --group soak --extra ray"
           MEMBERS="skyhop-testbed skyhop-lab[convert,dish,gym,xgboost]" ;;
    # libelf's build needs all of these except clang.
    wheel) WANTED="compiler python clang $TOOLS" REQUIRED="clang $TOOLS" CHOSEN="--group build --group wheel --group protocols" ;;
    *) echo "setup: no level $level; there are demo, dev, soak and wheel" >&2; exit 2 ;;
esac

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

SECONDS=$(($(date +%s) - ${SKYHOP_BEGAN:-$(date +%s)}))
# step TEXT: prints a line with the time since the start; progress TEXT: overwrites the line on a terminal.
step() { printf '[%2d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$1"; }
progress() { [ ! -t 1 ] || printf '\r[%2d:%02d] %s ' $((SECONDS / 60)) $((SECONDS % 60)) "$1"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

# --- system packages ---

# packages_of NAME: prints the Debian packages of a need. lost_without NAME: prints the features that do not work without
# it; nothing for required needs, because the set-up fails without them.
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
        iperf3) echo "the example that runs it over a path, and its test, are skipped" ;;
        slirp4netns) echo "programs cannot reach the real network through a path (skyhop live --internet)" ;;
        *) echo "tests that need it are skipped" ;;
    esac
}
is_there() {
    case $1 in
        compiler) command -v cc >/dev/null ;;
        python) python=$(find_python) && "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
        # libbpf, which loads congestion controls into the kernel, is built from source with libelf.
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

# Prints the package with ensurepip for the installed Python: Debian and its derivatives split the standard library.
venv_package() {
    local name
    name=$(find_python) || name=python3
    "$name" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' 2>/dev/null || echo python3-venv
}

missing() { for name in $WANTED; do is_there "$name" || echo "$name"; done; }

packages() { for name in "$@"; do packages_of "$name"; done | xargs; }

# apt PACKAGE...: installs packages if this user can become root; waits for a running installation.
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
        step "installing $(packages $names)"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >build/packages.log 2>&1 || true
        # One call installs all; if it fails, one call per package, so that an unavailable package does not block the others.
        apt $(packages $names) || for name in $(missing); do apt $(packages_of "$name") || true; done
    }
}

how_to_install() {
    if command -v apt-get >/dev/null; then echo "run 'sudo apt-get install $*', then run this again"
    else echo "install the equivalent of $* with your system's package manager, then run this again"
    fi
}

# Writes a line for each optional need that is still missing; fails for required ones.
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
    local how="install one with rustup, or 'sudo apt-get install rustup && rustup default stable'"
    command -v cargo >/dev/null || fail "missing a Rust toolchain (1.89 or newer): $how"
    command -v rustup >/dev/null && how="run 'rustup update'"
    cargo --version | awk '{split($2, v, "."); exit !(v[1] > 1 || v[2] >= 89)}' \
        || fail "$(cargo --version) is too old: skyhop needs Rust 1.89 or newer; $how"
}

# Creates the virtual environment with the locked uv, the only package that pip installs.
make_venv() {
    [ -x .venv/bin/python ] || { rm -rf .venv && "$(find_python)" -m venv .venv; }
    awk '/^[^ ]/ { inside = /^uv==/ } inside' requirements.lock >build/uv.lock
    cmp -s build/uv.lock .venv/uv.lock && return
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r build/uv.lock \
        || fail "pip could not install uv; its message is above"
    cp build/uv.lock .venv/uv.lock
}

# install ARGUMENT...: installs packages with the versions and hashes of requirements.lock.
install() {
    .venv/bin/uv --quiet pip install --python .venv/bin/python --constraint requirements.lock "$@" \
        || fail "the installation of Python packages failed; its message is above"
}

# Installs the workspace's other packages in place, so that changes of them are seen at once. `--no-sources`: they depend on
# the core that maturin has just installed, and do not build it again.
install_members() {
    local member arguments=()
    for member in ${MEMBERS:-}; do arguments+=(-e "packages/$member"); done
    [ ${#arguments[@]} = 0 ] || install --no-sources "${arguments[@]}"
}

# Cargo features of the core: without libelf's headers it cannot load modules into the kernel. The Makefile reads them.
choose_features() {
    features=""
    is_there libelf || features="--no-default-features"
    echo "$features" >build/features
}

# maturin ARGUMENT...: builds the core with the Cargo profile PROFILE; the log is build/setup.log.
maturin() {
    # shellcheck disable=SC2086  # the features are words
    (cd packages/skyhop && VIRTUAL_ENV="$root/.venv" "$root/.venv/bin/maturin" develop --profile "${PROFILE:-dev}" --locked --uv $features "$@" 2>&1)
}

# Shows cargo's progress: number of compiled crates, out of the total.
crates_compiled() {
    local line total n=0
    total=$(cargo tree --locked -p skyhop-python -e normal,build --prefix none 2>/dev/null | sed 's/ (.*//' | sort -u | wc -l)
    while IFS= read -r line; do
        printf '%s\n' "$line" >>build/setup.log
        [[ $line == *"Compiling "* ]] || continue
        n=$((n + 1))
        progress "compiling: crate $n of about $total"
        [ -t 1 ] || [ $((n % 60)) != 0 ] || step "compiling: crate $n of about $total"
    done
    [ ! -t 1 ] || [ "$n" = 0 ] || echo
}

# Compiles the core while Python's packages are installed.
build_core() {
    local status=0
    : >build/setup.log
    # shellcheck disable=SC2086  # words
    install -r packages/skyhop/pyproject.toml $CHOSEN &
    packages=$!
    trap 'kill "$packages" 2>/dev/null || true' EXIT
    maturin --skip-install | crates_compiled || status=$?
    wait "$packages" || exit 1
    [ "$status" != 0 ] || maturin >>build/setup.log || status=$?
    [ "$status" != 0 ] || install_members
    [ "$status" = 0 ] || {
        tail -n 40 build/setup.log >&2
        fail "the build failed; its last messages are above, all messages are in build/setup.log"
    }
    tell_cargo
}

# Writes the variables with which maturin calls cargo: with the same ones clippy does not recompile all crates.
tell_cargo() {
    local config version
    config=$(find target/maturin -name "pyo3-config-*.txt" | sort | tail -n 1)
    version=$(.venv/bin/python -c 'import struct, sys; print("cpython-%d.%d-%dbit" % (*sys.version_info[:2], 8 * struct.calcsize("P")))')
    cat >build/cargo-env <<END
export PYO3_PYTHON="$PWD/.venv/bin/python" PYO3_BUILD_EXTENSION_MODULE=1
export PYO3_ENVIRONMENT_SIGNATURE="$version" PYO3_CONFIG_FILE="$PWD/$config"
END
}

# Writes the cities that places are found by.
write_cities() {
    local file=packages/skyhop/skyhop/data/cities.dat
    [ "$file" -nt requirements.lock ] && [ "$file" -nt scripts/cities.py ] || .venv/bin/python scripts/cities.py || fail "the cities could not be written"
}

# Generates the modules of the terminals' protocol (dish/device.proto), and their types.
generate_protocols() {
    local file TESTBED=packages/skyhop-testbed
    while read -r file; do
        [ "${file%.proto}_pb2.py" -ot "$file" ] || [ "${file%.proto}_pb2.py" -ot requirements.lock ] || continue
        PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m grpc_tools.protoc -I$TESTBED --python_out=$TESTBED \
            --grpc_python_out=$TESTBED --mypy_out=quiet:$TESTBED --mypy_grpc_out=quiet:$TESTBED "$file" \
            || fail "the build of $file failed; its messages are above"
    done < <(find $TESTBED -name "*.proto")
}

install_missing
report_missing
check_rust
make_venv
if [ "$level" = wheel ]; then
    # shellcheck disable=SC2086  # words
    install $CHOSEN
else
    step "installing Python packages, and building skyhop"
    install --group build
    choose_features
    build_core
fi
write_cities
[ "$level" = demo ] || generate_protocols
step "set up"
