"""Congestion controls in C as modules of a guest's kernel.

A guest's kernel takes none from BPF, so that skyhop's own and files of the user's are compiled as
modules of it (cc/kernel_module.h) and put into it as it boots. Of a kernel's build, `build` beside
the kernel keeps what that takes: the makefiles, and the headers that the congestion controls'
header includes. What was compiled is kept in `modules` beside it, each under a digest of what it
was made of.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop import _core
from skyhop.data.files import Scratch
from skyhop.errors import InputError, RunError
from skyhop.linux.held import held

if TYPE_CHECKING:
    from skyhop.linux.kernels import Kernel

BUILD = "build"
KEPT = "modules"
SAMPLE = "reno"
"""What is compiled to see what compiling takes."""
ALWAYS = (
    "Makefile", ".config", "Module.symvers", "include/config/auto.conf",
    "include/config/kernel.release", "include/generated/autoconf.h",
    "include/generated/rustc_cfg", "scripts/*",
    "scripts/basic/fixdep", "scripts/mod/modpost",
    "arch/um/Makefile*", "arch/x86/Makefile*", "arch/um/scripts/*",
)  # fmt: skip
"""What every build of a module reads beside headers."""
CONTROL = re.compile(r"^CONFIG_TCP_CONG_(?!ADVANCED)(\w+)=y$", re.MULTILINE)
"""A congestion control in a kernel's configuration."""
OTHER_NAMES = {"hstcp": "highspeed"}
"""What the configuration calls otherwise than sockets do."""
HEADER = re.compile(r"^  (\S+\.h)(?: \\)?$", re.MULTILINE)
"""A line of what kbuild notes of an object: a file that it depends on."""


HAS_TX_START = (
    "ccflags-y += $(if $(shell grep cwnd_event_tx_start $(srctree)/include/net/tcp.h),"
    "-DSKYHOP_HAS_TX_START)"
)
"""A line of a makefile of the kernel's: patched trees may have it whatever they call themselves."""
ERROR = re.compile(r"\b(error|ERROR): ")
"""In what the compiler and the kernel's build say."""
RECENT_S = 3600
"""A module that was made since may be wanted yet."""
SYS_FINIT_MODULE = 313
"""asm/unistd_64.h"""


@dataclass(frozen=True)
class Source:
    """A congestion control that is to become a module."""

    name: str
    """The module's, and its file's in /proc."""
    origin: str
    """What messages call it: the file, or cc/NAME.c."""
    text: str
    """What is compiled: its text, or the one line that includes the user's file."""
    digest: str

    @classmethod
    def of(cls, cc: str) -> Source | None:
        """Return what a scenario's word means; None: no file in C."""
        found = _core.kernel_module_source(cc)
        return None if found is None else cls(*found)


def modules_of(kernel: Kernel, ccs: Sequence[str]) -> list[Path]:
    """Return the modules that a guest needs for these congestion controls.

    They are compiled now where that is yet to be done.

    Raises:
        InputError: a file does not compile; the kernel was built without what it takes.
        RunError: a program is missing, the disk is full, …
    """
    for cc in ccs:
        _check_known(kernel, cc)
    named = [Source.of(cc) for cc in ccs if not _is_kernels(kernel, cc)]
    sources = {source.name: source for source in named if source is not None}
    places = {name: _place(kernel, source) for name, source in sources.items()}
    missing = [sources[name] for name, place in places.items() if not place.exists()]
    if missing:
        with _compiled(kernel, missing) as made:
            for source in missing:
                _keep(made / f"{source.name}.ko", places[source.name])
    return list(places.values())


def _check_known(kernel: Kernel, cc: str) -> None:
    """Refuse a name that the guest would: a patched tree may have any."""
    is_word = kernel.is_packaged and cc.isidentifier()
    if is_word and cc not in _own(kernel) and Source.of(cc) is None:
        raise InputError(
            f"cc: {cc!r} is neither in the kernel {kernel.name} ({', '.join(_own(kernel))}) nor "
            "one of skyhop's (skyhop list cc)"
        )


def _is_kernels(kernel: Kernel, cc: str) -> bool:
    """Return whether a plain name is left to the kernel: its own, or what it cannot be given."""
    if not cc.isidentifier():
        return False
    return cc in _own(kernel) or not _can_compile(kernel)


def _own(kernel: Kernel) -> list[str]:
    """Return the congestion controls that a kernel has been built with."""
    found = map(str.lower, CONTROL.findall(kernel.config.read_text("utf-8")))
    return ["reno", *(OTHER_NAMES.get(name, name) for name in found)]


def _can_compile(kernel: Kernel) -> bool:
    return (kernel.directory / BUILD / "Makefile").exists()


def _place(kernel: Kernel, source: Source) -> Path:
    return kernel.directory / KEPT / f"{source.name}-{source.digest[:16]}.ko"


def _keep(made: Path, place: Path) -> None:
    """Put a module where it is found, whole or not at all, in the place of its older ones."""
    try:
        place.parent.mkdir(exist_ok=True)
        with Scratch(place.parent) as staging:
            staged = staging / place.name
            shutil.copy(made, staged)
            staged.rename(place)
        of_name = place.name.rpartition("-")[0]
        for other in set(place.parent.glob(f"{of_name}-*.ko")) - {place}:
            # Another process may be about to boot a guest with it, or to remove it, too.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - other.stat().st_mtime > RECENT_S:
                    other.unlink()
    except OSError as error:
        raise RunError(f"{place}: {error.strerror or error}") from error


def check_place(directory: Path) -> None:
    """Make sure that a kernel's build can work in a directory.

    Raises:
        InputError: it has a space or a colon in its name, which the kernel's makefiles split.
    """
    if re.search(r"[\s:]", str(directory)):
        raise InputError(
            f"{directory}: a kernel's build takes no space and no colon in a directory's name; "
            "set XDG_CACHE_HOME to another"
        )


@contextmanager
def _compiled(kernel: Kernel, sources: Sequence[Source]) -> Iterator[Path]:
    """Yield a directory with a module of each."""
    if not _can_compile(kernel):
        raise InputError(
            f"kernel: {kernel.name} was built without what compiling modules takes; "
            f"build it again: skyhop linux kernel build {kernel.name}"
        )
    check_place(kernel.directory)
    with Scratch(kernel.directory.parent) as work:
        _compile(["-C", str(kernel.directory / BUILD)], sources, work)
        yield work


def _compile(kbuild: Sequence[str], sources: Sequence[Source], work: Path) -> None:
    headers = _core.cc_headers()
    if headers is None:
        raise RunError("kernel: skyhop's headers cannot be kept: is the cache writable?")
    for source in sources:
        (work / f"{source.name}.c").write_text(source.text, "utf-8")
    objects = " ".join(f"{source.name}.o" for source in sources)
    lines = [f"obj-m := {objects}", f"ccflags-y := -I{headers}", HAS_TX_START]
    (work / "Kbuild").write_text("\n".join([*lines, ""]), "utf-8")
    _make([*kbuild, f"M={work}", "modules"], ", ".join(source.origin for source in sources))


def _make(words: Sequence[str], files: str) -> None:
    if not shutil.which("make"):
        raise RunError("make: not found; apt-get install make gcc")
    with held(["make", "-s", "ARCH=um", *words]) as making:
        lines = making.stdout.read().splitlines() if making.stdout else []
        status = making.wait()
    if status:
        # What follows an announcement names what it is about.
        said = [line.strip("* \t") for line in lines if line.strip("* \t")]
        place = next((number for number, line in enumerate(said) if ERROR.search(line)), None)
        first = " ".join(said)[-300:] if place is None else said[place]
        if place is not None and first.endswith(":"):
            first = " ".join(said[place : place + 2])
        raise InputError(f"{files}: does not compile as a module of the guest's kernel: {first}")


def keep_build(tree: Path, objects: Path, words: Sequence[str], place: Path) -> None:
    """Keep of a kernel's build what its modules are compiled with: nothing where it takes none.

    Args:
        tree: the kernel's source.
        objects: where it was built.
        words: how make was told of the compiler, and of what the tree may be configured to.
        place: the kernel's directory.

    Raises:
        RunError: the sample does not compile, there or with what is kept.
    """
    (place / BUILD).mkdir()
    if "CONFIG_MODULES=y\n" not in (objects / ".config").read_text("utf-8"):
        return
    sample = Source.of(SAMPLE)
    if sample is None:
        raise RunError(f"kernel: this skyhop has no cc/{SAMPLE}.c")
    if not (objects / "Module.symvers").exists():
        shutil.copy(objects / "vmlinux.symvers", objects / "Module.symvers")
    kbuild = ["-C", str(tree), *([] if objects == tree else [f"O={objects}"]), *words]
    with Scratch(place) as work:
        try:
            _make([*kbuild, "modules_prepare"], "the kernel")
            _compile(kbuild, [sample], work)
        except InputError as error:
            raise RunError(f"kernel: {error}") from error
        noted = [file.read_text("utf-8") for file in work.glob(".*.o.cmd")]
    headers = {objects / name for text in noted for name in HEADER.findall(text)}
    for root in (tree, objects):
        always = {file for pattern in ALWAYS for file in root.glob(pattern)}
        # The makefile beside the objects only names the tree.
        beside = {root / "Makefile"} if root != tree else set()
        for file in sorted((always | headers) - beside):
            if file.is_file() and file.resolve().is_relative_to(root.resolve()):
                target = place / BUILD / file.resolve().relative_to(root.resolve())
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    with Scratch(place) as work:
        try:
            _compile(["-C", str(place / BUILD)], [sample], work)
        except InputError as error:
            # Another version of Linux may read what no other does.
            raise RunError(f"kernel: with what is kept of its build {error}") from error


def put_into_kernel(modules: Sequence[str]) -> None:
    """Put modules into the running kernel, which is a guest's.

    Raises:
        RunError: it refuses one.
    """
    kernel = ctypes.CDLL(None, use_errno=True)
    for module in modules:
        with Path(module).open("rb") as file:
            if kernel.syscall(SYS_FINIT_MODULE, file.fileno(), b"", 0):
                reason = os.strerror(ctypes.get_errno())
                raise RunError(f"{module}: the guest's kernel does not take it: {reason}")
