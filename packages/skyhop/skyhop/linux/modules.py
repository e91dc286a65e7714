"""Congestion controls in C as modules of a guest's kernel.

User-Mode Linux has no BPF congestion controls. Therefore skyhop's own congestion controls and the
user's C files are compiled as kernel modules (cc/kernel_module.h) and loaded when the guest boots.
The kernel's directory has the makefiles and headers for that in `build`, and the compiled modules
in `modules`; a module's name ends in a digest of its source.
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
from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop.linux.child import child_process

if TYPE_CHECKING:
    from skyhop.linux.kernels import Kernel

BUILD = "build"
MODULES = "modules"
MARK = Mark("compiled congestion controls; skyhop removes old versions")
"""Mark of the directory with a kernel's modules."""
SAMPLE = "reno"
"""Congestion control that is compiled to find out which files a compilation needs."""
ALWAYS = (
    "Makefile", ".config", "Module.symvers", "include/config/auto.conf",
    "include/config/kernel.release", "include/generated/autoconf.h",
    "include/generated/rustc_cfg", "scripts/*",
    "scripts/basic/fixdep", "scripts/mod/modpost",
    "arch/um/Makefile*", "arch/x86/Makefile*", "arch/um/scripts/*",
)  # fmt: skip
"""Files that the build of any module reads, in addition to headers."""
CONFIGURED_CC = re.compile(r"^CONFIG_TCP_CONG_(?!ADVANCED)(\w+)=y$", re.MULTILINE)
"""Line of .config that builds a congestion control into the kernel."""
SOCKET_NAMES = {"hstcp": "highspeed"}
"""Names of congestion controls for sockets, by their names in the configuration, where the two
differ.
"""
HEADER = re.compile(r"^  (\S+\.h)(?: \\)?$", re.MULTILINE)
"""Line of kbuild's dependency file (.o.cmd) that names a header on which an object depends."""


HAS_TX_START = (
    "ccflags-y += $(if $(shell grep cwnd_event_tx_start $(srctree)/include/net/tcp.h),"
    "-DSKYHOP_HAS_TX_START)"
)
"""Kbuild line that detects the hook cwnd_event_tx_start by its name, as patched trees of any
version may have it.
"""
ERROR = re.compile(r"\b(error|ERROR): ")
"""Text that marks an error in the output of compiler and kbuild."""
RECENT_S = 3600
"""Age in s of a module up to which another process may be about to load it."""
SYS_FINIT_MODULE = 313
"""Number of the system call finit_module on x86-64 (asm/unistd_64.h)."""


@dataclass(frozen=True)
class Source:
    """Source of a congestion control that is compiled as a module."""

    name: str
    """Name of the module, and of its file in /proc."""
    origin: str
    """Name in messages: the user's file, or cc/NAME.c."""
    text: str
    """C text to compile: the source, or one line that includes the user's file."""
    digest: str

    @classmethod
    def of(cls, cc: str) -> Source | None:
        """Return the source of a scenario's `cc`; `None` if it is no congestion control in C."""
        found = _core.kernel_module_source(cc)
        return None if found is None else cls(*found)


def modules_of(kernel: Kernel, ccs: Sequence[str]) -> list[Path]:
    """Return the modules that a guest needs for these congestion controls; compile missing ones.

    Raises:
        InputError: a file does not compile, or the kernel was built without modules.
        RunError: a program is missing, the disk is full, …
    """
    for cc in ccs:
        _check_available(kernel, cc)
    named = [Source.of(cc) for cc in ccs if not _is_left_to_kernel(kernel, cc)]
    sources = {source.name: source for source in named if source is not None}
    places = {name: _module_file(kernel, source) for name, source in sources.items()}
    missing = [sources[name] for name, place in places.items() if not place.exists()]
    if missing:
        with _compiled(kernel, missing) as compiled:
            for source in missing:
                _install(compiled / f"{source.name}.ko", places[source.name])
    return list(places.values())


def _check_available(kernel: Kernel, cc: str) -> None:
    """Refuse a name that the guest would refuse.

    Names are not checked for kernels from the user's tree, which may have any congestion control.
    """
    is_word = kernel.is_packaged and cc.isidentifier()
    if is_word and cc not in _built_in(kernel) and Source.of(cc) is None:
        raise InputError(
            f"cc: {cc!r} is neither in the kernel {kernel.name} "
            f"({', '.join(_built_in(kernel))}) nor "
            "one of skyhop's (skyhop list cc)"
        )


def _is_left_to_kernel(kernel: Kernel, cc: str) -> bool:
    """Return whether a plain name needs no module: it is built in, or modules are unsupported."""
    if not cc.isidentifier():
        return False
    return cc in _built_in(kernel) or not _can_compile(kernel)


def _built_in(kernel: Kernel) -> list[str]:
    """Return the names of the congestion controls that are built into a kernel."""
    found = map(str.lower, CONFIGURED_CC.findall(kernel.config.read_text("utf-8")))
    return ["reno", *(SOCKET_NAMES.get(name, name) for name in found)]


def _can_compile(kernel: Kernel) -> bool:
    return (kernel.directory / BUILD / "Makefile").exists()


def _module_file(kernel: Kernel, source: Source) -> Path:
    return kernel.directory / MODULES / f"{source.name}-{source.digest[:16]}.ko"


def _install(compiled: Path, place: Path) -> None:
    """Move a compiled module to its place atomically, and remove old versions of the module."""
    try:
        is_own = MARK.make(place.parent)
        with Scratch(place.parent) as staging:
            staged = staging / place.name
            shutil.copy(compiled, staged)
            staged.rename(place)
        for other in _versions(place) - {place} if is_own else ():
            # Another process may be about to load the old version, or may remove it at the same
            # time.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - other.stat().st_mtime > RECENT_S:
                    other.unlink()
    except OSError as error:
        raise RunError(f"{place}: {error.strerror or error}") from error


def _versions(place: Path) -> set[Path]:
    """Return the files of all versions of a module, which differ in the digest of their source."""
    ours = re.compile(rf"{re.escape(place.name.rpartition('-')[0])}-[0-9a-f]{{16}}\.ko")
    return {file for file in place.parent.iterdir() if ours.fullmatch(file.name)}


def check_build_path(directory: Path) -> None:
    """Check that a kernel can be built in a directory.

    Raises:
        InputError: the path has a space or a colon, at which the kernel's makefiles split it.
    """
    if re.search(r"[\s:]", str(directory)):
        raise InputError(
            f"{directory}: a kernel's build fails in a path with a space or a colon; "
            "set XDG_CACHE_HOME to another directory"
        )


@contextmanager
def _compiled(kernel: Kernel, sources: Sequence[Source]) -> Iterator[Path]:
    """Compile sources; yield a temporary directory with one module per source."""
    if not _can_compile(kernel):
        raise InputError(
            f"kernel: {kernel.name} was built without support for modules; "
            f"build it again: skyhop linux kernel build {kernel.name}"
        )
    check_build_path(kernel.directory)
    with Scratch(kernel.directory.parent) as work:
        _compile(["-C", str(kernel.directory / BUILD)], sources, work)
        yield work


def _compile(kbuild: Sequence[str], sources: Sequence[Source], work: Path) -> None:
    headers = _core.cc_headers()
    if headers is None:
        raise RunError("kernel: cannot write skyhop's headers to the cache: is it writable?")
    for source in sources:
        (work / f"{source.name}.c").write_text(source.text, "utf-8")
    objects = " ".join(f"{source.name}.o" for source in sources)
    lines = [f"obj-m := {objects}", f"ccflags-y := -I{headers}", HAS_TX_START]
    (work / "Kbuild").write_text("\n".join([*lines, ""]), "utf-8")
    _make([*kbuild, f"M={work}", "modules"], ", ".join(source.origin for source in sources))


def _make(arguments: Sequence[str], files: str) -> None:
    if not shutil.which("make"):
        raise RunError("make: not found; apt-get install make gcc")
    with child_process(["make", "-s", "ARCH=um", *arguments]) as making:
        lines = making.stdout.read().splitlines() if making.stdout else []
        status = making.wait()
    if status:
        printed = [line.strip("* \t") for line in lines if line.strip("* \t")]
        index = next((number for number, line in enumerate(printed) if ERROR.search(line)), None)
        first = " ".join(printed)[-300:] if index is None else printed[index]
        # If a line ends with a colon, the next line names the missing file.
        if index is not None and first.endswith(":"):
            first = " ".join(printed[index : index + 2])
        raise InputError(f"{files}: does not compile as a module of the guest's kernel: {first}")


def save_build(tree: Path, objects: Path, variables: Sequence[str], place: Path) -> None:
    """Copy those files of a kernel's build that the compilation of modules needs.

    Without CONFIG_MODULES nothing is copied.

    Args:
        tree: the kernel's source tree.
        objects: directory in which the kernel was built.
        variables: make's variables of that build: compiler, Kconfig file.
        place: the kernel's directory in the cache.

    Raises:
        RunError: the sample does not compile, in the tree or with the copied files.
    """
    (place / BUILD).mkdir()
    if "CONFIG_MODULES=y\n" not in (objects / ".config").read_text("utf-8"):
        return
    sample = Source.of(SAMPLE)
    if sample is None:
        raise RunError(f"kernel: this skyhop has no cc/{SAMPLE}.c")
    if not (objects / "Module.symvers").exists():
        shutil.copy(objects / "vmlinux.symvers", objects / "Module.symvers")
    kbuild = ["-C", str(tree), *([] if objects == tree else [f"O={objects}"]), *variables]
    with Scratch(place) as work:
        try:
            _make([*kbuild, "modules_prepare"], "the kernel")
            _compile(kbuild, [sample], work)
        except InputError as error:
            raise RunError(f"kernel: {error}") from error
        dependencies = [file.read_text("utf-8") for file in work.glob(".*.o.cmd")]
    headers = {objects / name for text in dependencies for name in HEADER.findall(text)}
    for root in (tree, objects):
        always = {file for pattern in ALWAYS for file in root.glob(pattern)}
        # The makefile in the objects' directory is generated and only includes the tree's.
        generated = {root / "Makefile"} if root != tree else set()
        for file in sorted((always | headers) - generated):
            if file.is_file() and file.resolve().is_relative_to(root.resolve()):
                target = place / BUILD / file.resolve().relative_to(root.resolve())
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    with Scratch(place) as work:
        try:
            _compile(["-C", str(place / BUILD)], [sample], work)
        except InputError as error:
            # A newer version of Linux may need files that ALWAYS does not list.
            raise RunError(f"kernel: with the saved files of its build: {error}") from error


def load_modules(modules: Sequence[str]) -> None:
    """Load modules into the running kernel; only a guest calls this.

    Raises:
        RunError: the kernel rejects a module.
    """
    kernel = ctypes.CDLL(None, use_errno=True)
    for module in modules:
        with Path(module).open("rb") as file:
            if kernel.syscall(SYS_FINIT_MODULE, file.fileno(), b"", 0):
                reason = os.strerror(ctypes.get_errno())
                raise RunError(f"{module}: the guest's kernel rejects the module: {reason}")
