#!/usr/bin/env bash
# Runs a command with a directory as its root file system, in mount and process namespaces of its own.
# Usage: in_root.sh ROOT LAYER COMMAND...
#   ROOT    a root file system, which is not changed
#   LAYER   a directory whose LAYER/upper is mounted over ROOT: the command reads it, and its changes go there
#   IN_ROOT_TUN   mode of /dev/net/tun inside (default 666)
#   IN_ROOT_BIND  directory of this machine to mount at /opt/toolchain, read-only
# Needs root. The network is this machine's; the settings with which pip, cargo and apt reach their indexes are copied.
set -euo pipefail

fail() { printf 'in_root: %s\n' "$1" >&2; exit 1; }

# Environment variables that pip and cargo need, if the files that they name exist.
index_options() {
    env -0 | while IFS='=' read -r -d '' name value; do
        case $name in
            PIP_* | CARGO_HTTP_* | CARGO_REGISTR* | SSL_CERT_FILE | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY)
                [[ $value != /* || -f $value ]] && printf '%s=%s\0' "$name" "$value" ;;
        esac
    done || true
}

copy_into() { # ROOT FILE...: copies existing files of this machine to the same paths
    local root=$1 file
    shift
    for file; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
    done
}

make_devices() { # ROOT
    local dev=$1/dev name major minor mode
    mount -t tmpfs -o mode=755,nosuid tmpfs "$dev"
    mkdir "$dev/net" "$dev/shm" "$dev/pts"
    while read -r name major minor mode; do
        mknod "$dev/$name" c "$major" "$minor"
        chmod "$mode" "$dev/$name"
    done <<< "null 1 3 666
zero 1 5 666
full 1 7 666
random 1 8 666
urandom 1 9 666
tty 5 0 666
net/tun 10 200 ${IN_ROOT_TUN:-666}"
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$dev/pts"
    ln -s pts/ptmx "$dev/ptmx"
    ln -s /proc/self/fd "$dev/fd"
}

enter() { # ROOT LAYER COMMAND...: runs within the namespaces
    local root=$2/root options own
    mkdir -p "$2"/{upper,work,root}
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$root"
    copy_into "$root" /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt
    mapfile -d '' -t options < <(index_options)
    copy_into "$root" "${options[@]#*=}"
    for own in .config/pip/pip.conf .cargo/config.toml; do
        [ ! -f ~/"$own" ] || install -D -m 644 ~/"$own" "$root/root/$own"
    done
    if [ -n "${IN_ROOT_BIND:-}" ]; then
        mkdir -p "$root/opt/toolchain"
        mount --bind "$IN_ROOT_BIND" "$root/opt/toolchain"
        mount -o remount,bind,ro "$root/opt/toolchain"
    fi
    make_devices "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    # Mount a new BPF file system, so that objects pinned on the machine are not visible.
    mount -t bpf bpf "$root/sys/fs/bpf"
    mkdir -p "$root/old"
    cd "$root"
    pivot_root . old
    cd /
    # A bare root file system may have no umount; 2 is MNT_DETACH.
    python3 -c 'import ctypes, sys; sys.exit(-ctypes.CDLL(None).umount2(b"/old", 2))'
    shift 2
    exec env -i "${options[@]}" HOME=/root LANG=C.UTF-8 \
        PATH=/opt/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

[ "${1:-}" != --enter ] || { shift; enter "$@"; }

[ $# -ge 3 ] && [ -d "$1" ] || fail "expected a root file system, a directory for the layer, and a command"
[ "$(id -u)" = 0 ] || fail "needs root: it mounts file systems"
root=$(realpath "$1")
mkdir -p "$2"
layer=$(realpath "$2")
shift 2
exec unshare --mount --pid --fork --kill-child --propagation private "$(realpath "$0")" --enter "$root" "$layer" "$@"
