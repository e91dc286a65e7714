"""Kernels that guests boot: where they are kept, and how they are built.

A kernel is User-Mode Linux of some tree: the distribution's source package of a version, or a
directory of the user's. It is kept below `$XDG_CACHE_HOME/skyhop/kernels`, a directory each, whose
name ends in a digest of what it was made from.
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
from skyhop.data.progress import Progress, ignore_progress
from skyhop.errors import InputError, RunError
from skyhop.linux.chance import TAKEN_OUT, check_asks, take_out
from skyhop.linux.held import held
from skyhop.linux.modules import ALWAYS, BUILD, check_place, keep_build
from skyhop.linux.registers import BYTES, compiler

USUAL = "6.12"
"""What is built where nobody has said which."""

PACKAGE = "linux-source-"
"""What the names of the distribution's source packages begin with."""
BINARY = "linux"
CARD = "kernel.json"
_OF_CARD = {
    "name": str, "release": str, "source": str, "digest": str, "hz": int, "options": list,
}  # fmt: skip
CONFIG = "config"
OPTION = re.compile(r"(?:CONFIG_)?(?P<key>[A-Z0-9_]+)=(?P<value>[yn]|\d+|\"[^\"\n]*\")")
NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,39}")
VERSION = re.compile(r"\d+\.\d+")
PLACE = re.compile(rf"(?P<name>{NAME.pattern})-[0-9a-f]{{12}}")
"""A kernel's directory: its name, and what its digest begins with."""
LOG = "build.log"
ESSENTIAL = ("UML_TIME_TRAVEL_SUPPORT", "HOSTFS", "TUN", "NET_NS", "DEVTMPFS", "INET_TCP_DIAG")
ROOM_BYTES = {"package": 2_500_000_000, "tree": 700_000_000}
"""What a build takes while it goes on: the tree is what is largest."""
OBJECTS = 1_600
"""About how many files a build compiles, for its progress."""

_HZ = """\
config HZ
	int "Ticks in a second"
"""
"""Gives it a prompt; its default stays the tree's, which is 100."""
FRAGMENT = Path(__file__).with_name("guest.config")
"""What is switched on and off beside User-Mode Linux's defaults."""

NEEDED = {
    "make": "make", "gcc": "gcc", "flex": "flex", "bison": "bison", "bc": "bc", "xz": "xz-utils",
    "tar": "tar", "strip": "binutils",
}  # fmt: skip
"""Programs that a build runs, and the packages that bring them."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that is there."""

    name: str
    """What it is called on the command line: a version, or the name that the user gave it."""
    release: str
    """What it says itself, as `uname -r`."""
    source: str
    """The package with its version, or the user's directory, from the root."""
    digest: str
    """Of what it was made from."""
    hz: int
    options: Sequence[str]
    """What the user set, KEY=VALUE."""
    directory: Path

    @property
    def is_packaged(self) -> bool:
        """Return whether it is the distribution's, and none of the user's."""
        return self.source.startswith(PACKAGE)

    @property
    def binary(self) -> Path:
        """Return the program that boots it."""
        return self.directory / BINARY

    @property
    def config(self) -> Path:
        """Return its whole configuration."""
        return self.directory / CONFIG


def kernels_directory() -> Path:
    """Return where kernels are kept."""
    return cache_directory() / "kernels"


def built() -> list[Kernel]:
    """Return the kernels that are there and whole, by name."""
    kernels = (_read(place, name) for place, name in _places().items())
    return sorted(filter(None, kernels), key=lambda kernel: kernel.name)


def damaged() -> dict[Path, str]:
    """Return the directories of kernels that are not whole, and their names."""
    return {place: name for place, name in _places().items() if _read(place, name) is None}


def find(name: str | None) -> Kernel:
    """Return the kernel of this name, or without one any: of several that which was built last.

    Raises:
        InputError: there is none, or it is damaged.
    """
    kernels = [kernel for kernel in built() if name in (None, kernel.name)]
    if kernels:
        return max(kernels, key=lambda kernel: kernel.binary.stat().st_mtime_ns)
    for directory, called in damaged().items():
        if name in (None, called):
            raise InputError(f"kernel: {directory}: is damaged; {how_to_mend(called)}")
    raise _not_built(name)


def how_to_mend(name: str) -> str:
    """Return what to do about a damaged kernel."""
    return f"skyhop linux kernel remove {name}, and build it again"


def _not_built(name: str | None) -> InputError:
    if name is None:
        return InputError(f"kernel: none is built; {_how_to_build(USUAL)}")
    if not NAME.fullmatch(name):
        return _no_name(name)
    there = ", ".join(kernel.name for kernel in built()) or "none"
    return InputError(f"kernel: {name} is not built (there: {there}); {_how_to_build(name)}")


def _how_to_build(name: str) -> str:
    # Only a version is the name of a package, too.
    source = "" if VERSION.fullmatch(name) else " --source TREE"
    return f"skyhop linux kernel build {name}{source} takes some ten minutes"


def _no_name(name: str) -> InputError:
    return InputError(f"kernel: {name!r} cannot be a kernel's name; 6.12, for example, can")


def remove(name: str) -> None:
    """Remove a kernel, whole or damaged.

    Raises:
        InputError: there is none of this name.
        RunError: it cannot be removed.
    """
    names = _places().values()
    if name not in names:
        there = ", ".join(names) or "none"
        raise InputError(f"kernel: {name} is not built (there: {there})")
    _remove(place for place, called in _places().items() if called == name)


def _remove(directories: Iterable[Path]) -> None:
    for directory in directories:
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise RunError(f"{directory}: cannot remove: {error.strerror or error}") from error


def _places() -> dict[Path, str]:
    """Return where kernels are, whole or not, and their names."""
    found = {place: PLACE.fullmatch(place.name) for place in sorted(kernels_directory().glob("*"))}
    return {place: match["name"] for place, match in found.items() if match}


def build(
    name: str,
    *,
    source: Path | None = None,
    options: Sequence[str] = (),
    progress: Progress = ignore_progress,
) -> Kernel:
    """Build a kernel: of the distribution's source package linux-source-NAME, or of a tree.

    One that was made from the same is returned as it is.

    Raises:
        InputError: name, tree or an option are wrong; programs or packages are missing.
        RunError: the build failed; its last lines are in the message, all of it beside the cache.
    """
    if not NAME.fullmatch(name):
        raise _no_name(name)
    fragment = _fragment(options)
    given = _tree(source) if source else None
    _check_programs()
    with _workplace() as work:
        said = str(given) if given else _fetched(name, work)
        digest = _digest(said, fragment, given)
        place = kernels_directory() / f"{name}-{digest[:12]}"
        if (there := _read(place, name)) and (place / BUILD).exists():
            return there
        _check_room(work, ROOM_BYTES["tree" if given else "package"])
        tree = given or _unpacked(name, work)
        check_asks(tree)
        objects = work / "objects"
        words = [compiler(work), *([_with_hz(tree, work)] if _asks_for_hz(options) else [])]
        release = _compile(
            tree, objects, words, fragment=fragment, options=options, progress=progress
        )
        config = (objects / ".config").read_text("utf-8")
        hz = re.search(r"^CONFIG_HZ=(\d+)$", config, re.MULTILINE)
        kernel = Kernel(
            name, release, said, digest, int(hz[1]) if hz else 100, list(options), place
        )
        return _keep(kernel, tree, objects, words)


def _fragment(options: Sequence[str]) -> str:
    lines = [FRAGMENT.read_text("utf-8")]
    return "\n".join([*lines, *map(_config_line, options)]) + "\n"


def _config_line(option: str) -> str:
    """Return the line of a configuration that an option of the user's stands for."""
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
def _workplace() -> Iterator[Path]:
    """Yield a directory beside the kernels for what is worked on; it is gone afterwards."""
    kernels = kernels_directory()
    check_place(kernels)
    try:
        kernels.mkdir(parents=True, exist_ok=True)
        with Scratch(kernels) as work:
            yield work
    except OSError as error:
        raise cache_error(kernels, error) from error


def _check_room(work: Path, needed: int) -> None:
    """Say that there is no room before minutes are spent: what fails for it says other things."""
    free = shutil.disk_usage(work).free
    if free < needed:
        raise RunError(
            f"{work.parent.parent}: building a kernel takes {needed / 1e9:.1f} GB there, and "
            f"{free / 1e9:.1f} GB are free"
        )


def _tree(source: Path) -> Path:
    if not (source / "arch/um/Makefile").is_file():
        raise InputError(f"--source {source}: is no Linux tree (there is no arch/um/Makefile)")
    if (source / ".config").exists():
        raise InputError(
            f"--source {source}: has been built in place; make -C {source} ARCH=um mrproper first"
        )
    return source.resolve()


def _fetched(version: str, work: Path) -> str:
    """Download a source package; return its name with its version."""
    package = f"{PACKAGE}{version}"
    command, told = ["apt-get", "download", package], {**os.environ, "LC_ALL": "C"}
    fetched = subprocess.run(
        command, cwd=work, env=told, capture_output=True, text=True, check=False
    ) if shutil.which("apt-get") else None  # fmt: skip
    if fetched is None or "Unable to locate package" in fetched.stderr:
        raise InputError(
            f"kernel: there is no package {package} here; give a tree: "
            f"skyhop linux kernel build {version} --source DIRECTORY"
        )
    found = list(work.glob("*.deb"))
    if fetched.returncode or not found:
        last = " ".join(fetched.stderr.split())[-200:]
        raise RunError(f"kernel: cannot download {package}: {last}")
    return found[0].name.removesuffix(".deb").replace("%3a", ":")


def _unpacked(version: str, work: Path) -> Path:
    """Unpack the source package that was downloaded; return the tree."""
    (package,) = work.glob("*.deb")
    _run(["dpkg-deb", "-x", str(package), str(work / "package")], "cannot unpack the package")
    archives = list((work / "package/usr/src").glob(f"{PACKAGE}*.tar.*"))
    if not archives:
        raise RunError(f"kernel: {package.stem} holds no tree")
    _run(["tar", "-C", str(work), "-xf", str(archives[0])], "cannot unpack the tree")
    return work / f"{PACKAGE}{version}"


def _digest(said: str, fragment: str, tree: Path | None) -> str:
    """Return a digest of what a kernel is made from: a tree by the content of its files."""
    of = hashlib.sha256(f"{said}\n{fragment}\n{TAKEN_OUT}\n{BYTES}\n{ALWAYS}".encode())
    if tree is not None:
        for file in sorted(tree.rglob("*")):
            if file.is_file() and ".git" not in file.relative_to(tree).parts[:1]:
                of.update(str(file.relative_to(tree)).encode())
                of.update(hashlib.sha256(file.read_bytes()).digest())
    return of.hexdigest()


def _asks_for_hz(options: Sequence[str]) -> bool:
    return any(found["key"] == "HZ" for found in map(OPTION.fullmatch, options) if found)


def _with_hz(tree: Path, work: Path) -> str:
    """Write what a tree may be configured to, with HZ, which User-Mode Linux has as a constant.

    Returns how make is told of it.
    """
    file = work / "Kconfig.guest"
    file.write_text(f"{(tree / 'Kconfig').read_text('utf-8')}\n{_HZ}", "utf-8")
    return f"KBUILD_KCONFIG={file}"


def _compile(
    tree: Path,
    objects: Path,
    words: Sequence[str],
    *,
    fragment: str,
    options: Sequence[str],
    progress: Progress,
) -> str:
    """Compile a tree with these words for make; return the kernel's release."""
    objects.mkdir()
    make = ["make", "-C", str(tree), f"O={objects}", "ARCH=um", *words]
    _run([*make, "defconfig"], "cannot configure the kernel")
    (objects / "fragment").write_text(fragment, "utf-8")
    merge = [str(tree / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(objects)]
    _run([*merge, str(objects / ".config"), str(objects / "fragment")], "cannot configure it")
    _run([*make, "olddefconfig"], "cannot configure the kernel")
    _check_configured((objects / ".config").read_text("utf-8"), options)
    _compiled([*make, f"-j{os.cpu_count() or 1}", "linux"], progress)
    return (objects / "include/config/kernel.release").read_text("utf-8").strip()


def _check_configured(config: str, options: Sequence[str]) -> None:
    """Make sure that the tree knows what guests cannot do without, and what the user asked for."""
    has = set(config.splitlines())
    for key in ESSENTIAL:
        if f"CONFIG_{key}=y" not in has:
            raise InputError(f"kernel: the tree has no {key}, which guests cannot do without")
    for option, line in zip(options, map(_config_line, options), strict=True):
        if line not in has and not (line.startswith("#") and line.split()[1] not in config):
            raise InputError(f"--config {option}: the tree's configuration does not take it")


def _compiled(command: list[str], progress: Progress) -> None:
    log = kernels_directory() / LOG
    done = 0
    with log.open("w", encoding="utf-8") as kept, held(command) as building:
        for line in building.stdout or ():
            kept.write(line)
            done += line.lstrip().startswith("CC")
            progress(min(done, OBJECTS), OBJECTS)
        status = building.wait()
    if status:
        raise RunError(f"kernel: the build failed; {log} has what it printed")


def _keep(kernel: Kernel, tree: Path, objects: Path, words: Sequence[str]) -> Kernel:
    """Put a kernel where it is found, whole or not at all, in the place of those of its name."""
    with Scratch(kernels_directory()) as staging:
        staged = staging / "kernel"
        staged.mkdir()
        take_out(objects / "linux")
        _run(["strip", "-o", str(staged / BINARY), str(objects / "linux")], "cannot strip it")
        shutil.copy(objects / ".config", staged / CONFIG)
        keep_build(tree, objects, words, staged)
        card = {key: value for key, value in asdict(kernel).items() if key != "directory"}
        (staged / CARD).write_text(json.dumps(card, indent=2) + "\n", "utf-8")
        older = [place for place, name in _places().items() if name == kernel.name]
        if kernel.directory in older:
            _remove([kernel.directory])
        staged.rename(kernel.directory)
        # Who is killed before this has both, and finds the one built last.
        _remove(place for place in older if place != kernel.directory)
    return kernel


def _read(directory: Path, name: str) -> Kernel | None:
    """Return the kernel of this name that is in a directory; None: it is damaged."""
    try:
        of = json.loads((directory / CARD).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(of, dict) or {key: type(value) for key, value in of.items()} != _OF_CARD:
        return None
    if not all(isinstance(option, str) for option in of["options"]):
        return None
    kernel = Kernel(**of, directory=directory)
    whole = os.access(kernel.binary, os.X_OK) and kernel.config.is_file()
    return kernel if whole and kernel.name == name else None


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).split())[-200:]
        raise RunError(f"kernel: {what}: {last}")
