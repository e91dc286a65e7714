"""File system of a sandbox: the part of the machine's files that is visible to a program.

Visible are the system's programs and libraries, read-only; a few files of /etc that programs need;
harmless devices such as /dev/null; /proc with only the sandbox's processes; the work directory and
an empty /tmp, both writable. Home directories, other runs and keys are not visible.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from skyhop_testbed import linux, signals
from skyhop_testbed.packages import package_directories

HOME = "/home/run"
"""Mount point of the work directory in the sandbox."""
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix/store", "gnu/store")
_ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "gai.conf", "host.conf", "hosts",
    "iproute2", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types",
    "nsswitch.conf", "os-release", "pki/tls/certs", "pki/ca-trust", "protocols", "resolv.conf",
    "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LARGEST_TMP_BYTES = 256_000_000
_OLD = "/old"
_RESOLVER = "/etc/resolv.conf"


@dataclass(frozen=True)
class BindMount:
    """File or directory of the machine, and its path in the sandbox."""

    source: str
    target: str


def system_mounts() -> list[BindMount]:
    """Return the system's directories and files of /etc, which every program needs."""
    names = [*(f"/{name}" for name in _SYSTEM), *(f"/etc/{name}" for name in _ETC)]
    return _existing(names)


def skyhop_mounts() -> list[BindMount]:
    """Return skyhop's directories: its interpreter, its packages, and a checkout's data."""
    return _existing([sys.prefix, sys.base_prefix, *package_directories()])


def live_mounts() -> list[BindMount]:
    """Return the mounts that live runs need in addition: /dev/net/tun and /sys."""
    return _existing(["/dev/net/tun", "/sys"])


def _existing(names: list[str]) -> list[BindMount]:
    return [BindMount(os.path.realpath(name), name) for name in names if Path(name).exists()]


def build_root(
    mounts: list[BindMount],
    work: Path,
    user: int | None,
    disk_bytes: int,
    resolver: str | None = None,
) -> None:
    """Build the sandbox's file system, and make it the root of this process's mount namespace.

    Args:
        mounts: files and directories of the machine that are visible to the program.
        work: the work directory.
        user: the program's uid, if the executor runs as root.
        disk_bytes: limit on the files that the program writes.
        resolver: content of /etc/resolv.conf; `None` keeps this machine's.

    Raises:
        OSError: the machine forbids a mount.
    """
    os.umask(0o022)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.MS_NOSUID, "size=4m,mode=0755")
    os.chdir("/tmp")
    Path(_OLD[1:]).mkdir()
    linux.pivot_root(".", _OLD[1:])
    os.chdir("/")
    _bind_all([each for each in mounts if resolver is None or each.target != _RESOLVER])
    if Path(signals.DIRECTORY).is_dir():
        # Programs that read announcements of `skyhop signal serve` find the socket at its path.
        Path(signals.USUAL_PATH).symlink_to(f"{signals.DIRECTORY}/{signals.SOCKET}")
    _make_proc()
    _make_devices()
    for name in ("/tmp", "/dev/shm"):
        _make_scratch(name, min(disk_bytes, _LARGEST_TMP_BYTES))
    _write_etc(user, resolver)
    Path(HOME).mkdir(parents=True)
    linux.mount(f"{_OLD}{work}", HOME, None, linux.MS_BIND)
    linux.restrict_mount(HOME, linux.ATTR_NOSUID | linux.ATTR_NODEV)
    # LEOScope's images write their results to /artifacts.
    Path("/artifacts").symlink_to(HOME)
    linux.unmount(_OLD)
    Path(_OLD).rmdir()
    linux.restrict_mount("/", linux.ATTR_RDONLY, below=False)


def _bind_all(mounts: list[BindMount]) -> None:
    """Bind-mount files and directories read-only, parents before children."""
    for bind in sorted(mounts, key=lambda each: each.target):
        source, target = f"{_OLD}{bind.source}", Path(bind.target)
        is_below = any(bind.target.startswith(f"{above.target}/") for above in mounts)
        if is_below and target.exists():
            continue
        link = f"{_OLD}{bind.target}"
        if target.parent == Path("/") and Path(link).is_symlink():
            target.symlink_to(Path(link).readlink())
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        linux.mount(source, str(target), None, linux.MS_BIND | linux.MS_REC)
        is_device = bind.target.startswith("/dev/")
        attributes = linux.ATTR_NOSUID | (0 if is_device else linux.ATTR_NODEV | linux.ATTR_RDONLY)
        linux.restrict_mount(str(target), attributes)


def _make_proc() -> None:
    Path("/proc").mkdir()
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", "/proc", "proc", flags)


def _make_devices() -> None:
    Path("/dev").mkdir(exist_ok=True)
    for name in _DEVICES:
        Path(f"/dev/{name}").touch()
        linux.mount(f"{_OLD}/dev/{name}", f"/dev/{name}", None, linux.MS_BIND)
    Path("/dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path(f"/dev/{name}").symlink_to(f"/proc/self/fd/{number}")


def _make_scratch(name: str, size_bytes: int) -> None:
    Path(name).mkdir(exist_ok=True)
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", name, "tmpfs", flags, f"size={size_bytes},mode=1777")


def _write_etc(user: int | None, resolver: str | None) -> None:
    """Write passwd and group files that contain only the program's user, and resolv.conf."""
    own = os.geteuid() if user is None else user
    etc = Path("/etc")
    etc.mkdir(exist_ok=True)
    (etc / "passwd").write_text(f"run:x:{own}:{own}::{HOME}:/bin/sh\n")
    (etc / "group").write_text(f"run:x:{own}:\n")
    if resolver is not None:
        Path(_RESOLVER).write_text(resolver)
