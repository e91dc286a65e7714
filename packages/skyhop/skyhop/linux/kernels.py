"""Kernels that guests boot: the cache of kernels, and how they are built.

A kernel is User-Mode Linux, built from the distribution's source package of a version or from a
source tree of the user. Each kernel is a directory below `$XDG_CACHE_HOME/skyhop/kernels`, whose
name ends in a digest of source and configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from skyhop.data.downloads import cache_directory, cache_error
from skyhop.data.files import Scratch
from skyhop.data.marks import Mark
from skyhop.data.progress import Progress, ignore_progress
from skyhop.errors import InputError, RunError
from skyhop.linux.child import child_process
from skyhop.linux.entropy import DISABLED_FUNCTIONS, check_entropy_source, disable_host_entropy
from skyhop.linux.modules import ALWAYS, BUILD, MODULES, check_build_path, save_build
from skyhop.linux.registers import BYTES, compiler

DEFAULT_KERNEL = "6.12"
"""Version that is built if the user names none."""

PACKAGE = "linux-source-"
"""Prefix of the names of the distribution's source packages."""
BINARY = "linux"
CARD = "kernel.json"
_CARD_TYPES = {
    "name": str, "release": str, "source": str, "digest": str, "hz": int, "options": list,
}  # fmt: skip
CONFIG = "config"
OPTION = re.compile(r"(?:CONFIG_)?(?P<key>[A-Z0-9_]+)=(?P<value>[yn]|\d+|\"[^\"\n]*\")")
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,39}")
VERSION = re.compile(r"\d+\.\d+")
DIRECTORY_NAME = re.compile(rf"(?P<name>{NAME.pattern})-[0-9a-f]{{12}}")
"""Name of a kernel's directory: the kernel's name, and the first 12 digits of its digest."""
MARK = Mark("a kernel for guests; skyhop linux kernel remove removes it")
"""Mark of a kernel's directory."""
LOG = "build.log"
ESSENTIAL = ("UML_TIME_TRAVEL_SUPPORT", "HOSTFS", "TUN", "NET_NS", "DEVTMPFS", "INET_TCP_DIAG")
BUILD_BYTES = {"package": 2_500_000_000, "tree": 700_000_000}
"""Disk space that a build needs in bytes, by kind of source; an unpacked source package takes most
of it.
"""
OBJECTS = 1_600
"""Approximate number of files that a build compiles, to show its progress."""

_HZ = """\
config HZ
	int "Ticks in a second"
"""
"""Kconfig entry that makes HZ configurable; the default stays that of the source tree, 100."""
FRAGMENT = Path(__file__).with_name("guest.config")
"""Options that differ from User-Mode Linux's defaults; its text is part of the digest."""

NEEDED = {
    "make": "make", "gcc": "gcc", "flex": "flex", "bison": "bison", "bc": "bc", "xz": "xz-utils",
    "tar": "tar", "strip": "binutils",
}  # fmt: skip
"""Programs that a build runs, each with the Debian package that contains it."""


@dataclass(frozen=True)
class Kernel:
    """A built kernel in the cache."""

    name: str
    """Name on the command line: a version, or a name that the user chose."""
    release: str
    """Release of the kernel, as `uname -r` prints it."""
    source: str
    """Source package with its version, or the absolute path of the user's source tree."""
    digest: str
    """SHA-256 of the source and the configuration from which the kernel was built."""
    hz: int
    options: Sequence[str]
    """Configuration options that the user set, each KEY=VALUE."""
    directory: Path

    @property
    def is_packaged(self) -> bool:
        """Whether the source is the distribution's package, not a tree of the user."""
        return self.source.startswith(PACKAGE)

    @property
    def binary(self) -> Path:
        """Return the executable that boots the kernel."""
        return self.directory / BINARY

    @property
    def config(self) -> Path:
        """Return the file with the kernel's complete configuration."""
        return self.directory / CONFIG


def kernels_directory() -> Path:
    """Return the directory of all kernels, which is in the cache."""
    return cache_directory() / "kernels"


def built() -> list[Kernel]:
    """Return the complete kernels in the cache, sorted by name."""
    kernels = (_load(place, name) for place, name in _kernel_directories().items())
    return sorted(filter(None, kernels), key=lambda kernel: kernel.name)


def damaged() -> dict[Path, str]:
    """Return the names of damaged or incomplete kernels, by their directories."""
    kernels = _kernel_directories()
    return {place: name for place, name in kernels.items() if _load(place, name) is None}


def find(name: str | None) -> Kernel:
    """Return the kernel named `name`; without a name, the kernel that was built last.

    Raises:
        InputError: there is no such kernel, or it is damaged.
    """
    kernels = [kernel for kernel in built() if name in (None, kernel.name)]
    if kernels:
        return max(kernels, key=lambda kernel: kernel.binary.stat().st_mtime_ns)
    for directory, called in damaged().items():
        if name in (None, called):
            raise InputError(f"kernel: {directory}: is damaged; {repair_hint(called)}")
    raise _not_built(name)


def repair_hint(name: str) -> str:
    """Return a hint that tells users how to repair a damaged kernel."""
    return f"skyhop linux kernel remove {name}, and build it again"


def _not_built(name: str | None) -> InputError:
    if name is None:
        return InputError(f"kernel: none is built; {_build_hint(DEFAULT_KERNEL)}")
    if not NAME.fullmatch(name):
        return _invalid_name(name)
    there = ", ".join(kernel.name for kernel in built()) or "none"
    return InputError(f"kernel: {name} is not built (there: {there}); {_build_hint(name)}")


def _build_hint(name: str) -> str:
    # A source package exists only for versions; a kernel with any other name needs a source tree.
    source = "" if VERSION.fullmatch(name) else " --source TREE"
    return f"skyhop linux kernel build {name}{source} takes some ten minutes"


def _invalid_name(name: str) -> InputError:
    return InputError(f"kernel: {name!r} cannot be a kernel's name; 6.12, for example, can")


def remove(name: str) -> None:
    """Remove a kernel, complete or damaged.

    Raises:
        InputError: there is no kernel of this name, or its directory is not skyhop's.
        RunError: its directory cannot be removed.
    """
    names = _kernel_directories().values()
    if name not in names:
        there = ", ".join(names) or "none"
        raise InputError(f"kernel: {name} is not built (there: {there})")
    kernels = _kernel_directories()
    _remove_directories(place for place, called in kernels.items() if called == name)


def _remove_directories(directories: Iterable[Path]) -> None:
    for directory in directories:
        if not MARK.is_on(directory):
            raise InputError(f"{directory}: is not a kernel of skyhop's: move it, or remove it")
        names = (BINARY, CARD, CONFIG, BUILD, MODULES)
        try:
            MARK.remove(directory, [directory / name for name in names])
        except OSError as error:
            raise RunError(f"{directory}: cannot remove: {error.strerror or error}") from error


def _kernel_directories() -> dict[Path, str]:
    """Return the names of all kernels, complete or not, by their directories."""
    places = sorted(kernels_directory().glob("*"))
    found = {place: DIRECTORY_NAME.fullmatch(place.name) for place in places}
    return {place: match["name"] for place, match in found.items() if match}


def build(
    name: str,
    *,
    source: Path | None = None,
    options: Sequence[str] = (),
    progress: Progress = ignore_progress,
) -> Kernel:
    """Build a kernel from the distribution's source package linux-source-NAME, or from a tree.

    A kernel that was built from the same source and options is returned as it is.

    Raises:
        InputError: name, tree or an option is wrong; programs or packages are missing.
        RunError: the build failed; the message names the log, in the directory of kernels.
    """
    if not NAME.fullmatch(name):
        raise _invalid_name(name)
    fragment = _fragment(options)
    given = _check_tree(source) if source else None
    _check_programs()
    with _scratch_directory() as work:
        origin = str(given) if given else _download_package(name, work)
        digest = _digest(origin, fragment, given)
        place = kernels_directory() / f"{name}-{digest[:12]}"
        if (existing := _load(place, name)) and (place / BUILD).exists():
            return existing
        _check_disk_space(work, BUILD_BYTES["tree" if given else "package"])
        tree = given or _unpack_package(name, work)
        check_entropy_source(tree)
        objects = work / "objects"
        variables = [
            compiler(work),
            *([_write_hz_kconfig(tree, work)] if _sets_hz(options) else []),
        ]
        release = _compile(
            tree, objects, variables, fragment=fragment, options=options, progress=progress
        )
        config = (objects / ".config").read_text("utf-8")
        hz = re.search(r"^CONFIG_HZ=(\d+)$", config, re.MULTILINE)
        kernel = Kernel(
            name, release, origin, digest, int(hz[1]) if hz else 100, list(options), place
        )
        return _install(kernel, tree, objects, variables)


def _fragment(options: Sequence[str]) -> str:
    lines = [FRAGMENT.read_text("utf-8")]
    return "\n".join([*lines, *map(_config_line, options)]) + "\n"


def _config_line(option: str) -> str:
    """Return the line of .config for one of the user's options, KEY=VALUE."""
    match = OPTION.fullmatch(option)
    if match is None:
        raise InputError(f"--config {option}: expected KEY=y, n, a number or text in quotes")
    key, value = match["key"], match["value"]
    return f"# CONFIG_{key} is not set" if value == "n" else f"CONFIG_{key}={value}"


def _check_programs() -> None:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise InputError("kernel: guests need Linux on x86-64")
    lacking = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if lacking:
        raise InputError(
            f"kernel: programs are missing; install them first: apt-get install {' '.join(lacking)}"
        )


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """Yield a temporary directory next to the kernels, so that a rename moves a kernel in place."""
    kernels = kernels_directory()
    check_build_path(kernels)
    try:
        kernels.mkdir(parents=True, exist_ok=True)
        with Scratch(kernels) as work:
            yield work
    except OSError as error:
        raise cache_error(kernels, error) from error


def _check_disk_space(work: Path, needed: int) -> None:
    """Check the free disk space before a build, which would fail late with obscure errors."""
    free = shutil.disk_usage(work).free
    if free < needed:
        raise RunError(
            f"{work.parent.parent}: building a kernel takes {needed / 1e9:.1f} GB there, and "
            f"{free / 1e9:.1f} GB are free"
        )


def _check_tree(source: Path) -> Path:
    if not (source / "arch/um/Makefile").is_file():
        raise InputError(f"--source {source}: is no Linux tree (there is no arch/um/Makefile)")
    if (source / ".config").exists():
        raise InputError(
            f"--source {source}: has been built in place; make -C {source} ARCH=um mrproper first"
        )
    return source.resolve()


def _download_package(version: str, work: Path) -> str:
    """Download a source package; return its file name without .deb.

    The file name contains the package's version.
    """
    package = f"{PACKAGE}{version}"
    command, environment = ["apt-get", "download", package], {**os.environ, "LC_ALL": "C"}
    fetched = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, check=False
    ) if shutil.which("apt-get") else None  # fmt: skip
    if fetched is None or "Unable to locate package" in fetched.stderr:
        raise InputError(
            f"kernel: there is no package {package} here; name a source tree: "
            f"skyhop linux kernel build {version} --source DIRECTORY"
        )
    found = list(work.glob("*.deb"))
    if fetched.returncode or not found:
        last = " ".join(fetched.stderr.split())[-200:]
        raise RunError(f"kernel: cannot download {package}: {last}")
    return found[0].name.removesuffix(".deb").replace("%3a", ":")


def _unpack_package(version: str, work: Path) -> Path:
    """Unpack the downloaded source package; return the source tree."""
    (package,) = work.glob("*.deb")
    _run(["dpkg-deb", "-x", str(package), str(work / "package")], "cannot unpack the package")
    archives = list((work / "package/usr/src").glob(f"{PACKAGE}*.tar.*"))
    if not archives:
        raise RunError(f"kernel: {package.stem} contains no source tree")
    _run(["tar", "-C", str(work), "-xf", str(archives[0])], "cannot unpack the tree")
    return work / f"{PACKAGE}{version}"


def _digest(origin: str, fragment: str, tree: Path | None) -> str:
    """Return the SHA-256 of everything that a kernel depends on.

    Of a source tree, the content of its files is included.
    """
    settings = f"{origin}\n{fragment}\n{DISABLED_FUNCTIONS}\n{BYTES}\n{ALWAYS}"
    digest = hashlib.sha256(settings.encode())
    if tree is not None:
        for file in sorted(tree.rglob("*")):
            if file.is_file() and ".git" not in file.relative_to(tree).parts[:1]:
                digest.update(str(file.relative_to(tree)).encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _sets_hz(options: Sequence[str]) -> bool:
    return any(found["key"] == "HZ" for found in map(OPTION.fullmatch, options) if found)


def _write_hz_kconfig(tree: Path, work: Path) -> str:
    """Write a Kconfig file with an option HZ, which is a constant in User-Mode Linux.

    Returns:
        the variable assignment with which make uses that file.
    """
    file = work / "Kconfig.guest"
    file.write_text(f"{(tree / 'Kconfig').read_text('utf-8')}\n{_HZ}", "utf-8")
    return f"KBUILD_KCONFIG={file}"


def _compile(
    tree: Path,
    objects: Path,
    variables: Sequence[str],
    *,
    fragment: str,
    options: Sequence[str],
    progress: Progress,
) -> str:
    """Compile a source tree with the given variables of make; return the kernel's release."""
    objects.mkdir()
    make = ["make", "-C", str(tree), f"O={objects}", "ARCH=um", *variables]
    _run([*make, "defconfig"], "cannot configure the kernel")
    (objects / "fragment").write_text(fragment, "utf-8")
    merge = [str(tree / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(objects)]
    _run([*merge, str(objects / ".config"), str(objects / "fragment")], "cannot configure it")
    _run([*make, "olddefconfig"], "cannot configure the kernel")
    _check_config((objects / ".config").read_text("utf-8"), options)
    _run_make([*make, f"-j{os.cpu_count() or 1}", "linux"], progress)
    return (objects / "include/config/kernel.release").read_text("utf-8").strip()


def _check_config(config: str, options: Sequence[str]) -> None:
    """Check that the configuration has all options that guests need, and all that the user set."""
    has = set(config.splitlines())
    for key in ESSENTIAL:
        if f"CONFIG_{key}=y" not in has:
            raise InputError(f"kernel: the tree has no option {key}, which guests need")
    for option, line in zip(options, map(_config_line, options), strict=True):
        if line not in has and not (line.startswith("#") and line.split()[1] not in config):
            raise InputError(
                f"--config {option}: the tree has no such option, or not what it depends on"
            )


def _run_make(command: list[str], progress: Progress) -> None:
    log = kernels_directory() / LOG
    done = 0
    with log.open("w", encoding="utf-8") as kept, child_process(command) as building:
        for line in building.stdout or ():
            kept.write(line)
            done += line.lstrip().startswith("CC")
            progress(min(done, OBJECTS), OBJECTS)
        status = building.wait()
    if status:
        raise RunError(f"kernel: the build failed; {log} has what it printed")


def _install(kernel: Kernel, tree: Path, objects: Path, variables: Sequence[str]) -> Kernel:
    """Move a kernel into its directory atomically, and remove older kernels of the same name."""
    with Scratch(kernels_directory()) as staging:
        staged = staging / "kernel"
        MARK.make(staged)
        disable_host_entropy(objects / "linux")
        _run(["strip", "-o", str(staged / BINARY), str(objects / "linux")], "cannot strip it")
        shutil.copy(objects / ".config", staged / CONFIG)
        save_build(tree, objects, variables, staged)
        card = {key: value for key, value in asdict(kernel).items() if key != "directory"}
        (staged / CARD).write_text(json.dumps(card, indent=2) + "\n", "utf-8")
        older = [place for place, name in _kernel_directories().items() if name == kernel.name]
        if kernel.directory in older:
            _remove_directories([kernel.directory])
        staged.rename(kernel.directory)
        # If this process is killed here, both kernels stay; `find` returns the newer one.
        others = [place for place in older if place != kernel.directory]
        _remove_directories(place for place in others if MARK.is_on(place))
    return kernel


def _load(directory: Path, name: str) -> Kernel | None:
    """Return the kernel of this name in a directory; `None` if it is damaged."""
    try:
        card = json.loads((directory / CARD).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(card, dict):
        return None
    if {key: type(value) for key, value in card.items()} != _CARD_TYPES:
        return None
    if not all(isinstance(option, str) for option in card["options"]):
        return None
    kernel = Kernel(**card, directory=directory)
    is_complete = os.access(kernel.binary, os.X_OK) and kernel.config.is_file()
    return kernel if is_complete and kernel.name == name else None


def _run(command: Sequence[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).split())[-200:]
        raise RunError(f"kernel: {failure}: {last}")
