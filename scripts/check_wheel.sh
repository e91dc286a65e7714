#!/usr/bin/env bash
# Installs the wheel of dist/ where nothing but Python is, and uses it: runs, the kernel, a study, reports.
# Usage: check_wheel.sh ROOT [WHEEL]: ROOT is the directory of a bare root file system, which stays as it is:
#   mmdebstrap --variant=apt --include=python3,python3-venv,ca-certificates trixie ROOT
# Works as root, in mount and process namespaces of its own; only pip uses the network.
set -euo pipefail

fail() { printf 'check_wheel: %s\n' "$1" >&2; exit 1; }

# What pip needs of this machine to reach its index: the options, and the files that they name.
pip_options() {
    env -0 | while IFS='=' read -r -d '' name value; do
        case $name in
            PIP_* | SSL_CERT_FILE | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY)
                [[ $value != /* || -f $value ]] && printf '%s=%s\0' "$name" "$value" ;;
        esac
    done || true
}

copy_into() { # ROOT FILE...: files of this machine, those that exist, to the same places
    local root=$1 file
    shift
    for file; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
    done
}

make_devices() { # ROOT
    local dev=$1/dev name major minor
    mount -t tmpfs -o mode=755,nosuid tmpfs "$dev"
    mkdir "$dev/net" "$dev/shm" "$dev/pts"
    while read -r name major minor; do
        mknod -m 666 "$dev/$name" c "$major" "$minor"
    done <<< "null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
net/tun 10 200"
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$dev/pts"
    ln -s pts/ptmx "$dev/ptmx"
    ln -s /proc/self/fd "$dev/fd"
}

# In namespaces of its own: ROOT under a layer that takes what is written, as the root of everything.
enter() { # ROOT LAYER WHEEL
    local root=$2/root
    mkdir "$2"/{upper,work,root}
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$root"
    copy_into "$root" /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt
    local options
    mapfile -d '' -t options < <(pip_options)
    copy_into "$root" "${options[@]#*=}"
    local own=.config/pip/pip.conf
    [ ! -f ~/"$own" ] || install -D -m 600 ~/"$own" "$root/root/$own"
    mkdir -p "$root/check"
    cp "$3" "$root/check/"
    cp "$0" "$root/check/check_wheel.sh"
    make_devices "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    # Pins of its own: those of the machine are not seen.
    mount -t bpf bpf "$root/sys/fs/bpf"
    mkdir "$root/old"
    cd "$root"
    pivot_root . old
    cd /
    # A bare root file system may hold no umount; 2 is MNT_DETACH.
    python3 -c 'import ctypes, sys; sys.exit(-ctypes.CDLL(None).umount2(b"/old", 2))'
    exec env -i "${options[@]}" HOME=/root LANG=C.UTF-8 PATH=/check/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        /bin/bash /check/check_wheel.sh --inside
}

step() { # COMMAND...
    printf '\n$ %s\n' "$*"
    "$@" || fail "failed: $*"
}

gives() { # PATTERN COMMAND...: and its output has lines with the pattern, which are shown
    local pattern=$1 output
    shift
    printf '\n$ %s\n' "$*"
    output=$("$@") || fail "failed: $*"
    grep -- "$pattern" <<< "$output" || fail "no $pattern in the output of: $*"
}

inside() {
    cd /check
    for tool in rustc cargo clang cc; do
        ! command -v "$tool" || fail "$tool is here: this root file system is not bare"
    done
    step python3 -m venv venv
    step pip install --quiet --disable-pip-version-check skyhop-*.whl
    gives '^skyhop [0-9]' skyhop --version
    gives starlink-shell1 skyhop list constellations
    gives starlink-gateways skyhop list sites
    gives san-diego-new-york skyhop list examples
    gives satcp-table1 skyhop list studies
    gives distinct skyhop study show satcp-table1
    gives '"flow":' python -c 'from skyhop import _core; print(_core.scenario_schema())'
    step skyhop path --from "San Diego" --to "New York" --relay bent-pipe --duration "10 min" \
        -o path.parquet --plot path.png

    # The demo's scenario; as root, and as anybody.
    local announced=(--set signal.source=path --set "signal.lead=0.5 s")
    step skyhop live san-diego-new-york -o runs/live --set "run.duration=5 s"
    step skyhop live san-diego-new-york -o runs/live-satpipe --set "run.duration=5 s" \
        --set flow.0.cc=satpipe "${announced[@]}"
    step setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp \
        skyhop live san-diego-new-york -o /tmp/live --set "run.duration=5 s"
    step skyhop live any-program -- true
    step skyhop sim san-diego-new-york -o runs/sim
    step skyhop sim san-diego-new-york -o runs/sim-satpipe --set flow.0.cc=satpipe "${announced[@]}"
    step skyhop report runs/live runs/live-satpipe runs/sim runs/sim-satpipe -o report.html
    [ -s report.html ] || fail "the report is empty"

    # The kernel.
    gives skyhop:cubic skyhop cc list
    gives satpipe_cong_control skyhop cc check satpipe
    local name
    name=$(skyhop cc load cubic) || fail "failed: skyhop cc load cubic"
    printf '\n$ skyhop cc load cubic\n%s\n' "$name"
    gives " $name " skyhop cc list
    step skyhop cc unload cubic

    cat > study.toml <<'STUDY'
title = "CUBIC and BBR with loss"
question = "Which of them fills a lossy link?"
repeats = 2

[scenario]
path = { kind = "fixed", rtt = "20 ms" }
link = { rate = "10 Mbit/s" }
flow = [{ cc = "cubic" }]
run = { duration = "3 s" }

[[axis]]
name = "cc"
key = "flow.0.cc"
values = ["cubic", "bbr"]

[[axis]]
name = "loss"
key = "link.loss"
values = ["0.1 %", "1 %"]
STUDY
    step skyhop study run study.toml -o runs/study
    [ -s runs/study/report.html ] || fail "the study has no report"
    printf '\ncheck_wheel: %s works where nothing but Python is\n' "$(basename skyhop-*.whl)"
}

[ "${1:-}" != --inside ] || { inside; exit; }
[ "${1:-}" != --enter ] || { shift; enter "$@"; }

[ -d "${1:-}" ] || fail "give the directory of a bare root file system: check_wheel.sh ROOT [WHEEL]"
[ "$(id -u)" = 0 ] || fail "needs root: it mounts file systems and loads into the kernel"
root=$(realpath "$1")
wheel=${2:-$(echo "$(dirname "$0")"/../dist/skyhop-*.whl)}
[ -f "$wheel" ] || fail "$wheel: no such wheel: run make wheel"
wheel=$(realpath "$wheel")
layer=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$layer"' EXIT
unshare --mount --pid --fork --kill-child --propagation private "$(realpath "$0")" --enter "$root" "$layer" "$wheel"
