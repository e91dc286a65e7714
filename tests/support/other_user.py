"""Runs commands as an unprivileged user, for tests that run as root.

A checkout, its Python or a test's directory may lie below directories that are closed to other
users, such as a home of mode 700. As a program, this file therefore replaces such directories, in
a mount namespace of its own, by ones that show nothing but these places; then it changes its user
and executes a command.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from needs import ROOT, missing
from skyhop_testbed import linux
from skyhop_testbed.packages import import_path

USER = 65534
"""Uid and gid of the unprivileged user."""


def as_other_user(*places: Path) -> list[str]:
    """Return the prefix of a command that runs it as an unprivileged user.

    It is empty if the tests run as one. Skip the test if that user cannot read skyhop's own files.

    Args:
        places: directories that the command also uses, which are open to `USER`.
    """
    if os.geteuid() != 0:
        return []
    why = _unreadable()
    if why:
        missing("readable", why)
    return [sys.executable, __file__, *map(str, places), "--"]


@functools.cache
def _unreadable() -> str:
    """Return why `USER` cannot import skyhop, in one line; empty if it can."""
    tried = subprocess.run(
        [sys.executable, __file__, "--", sys.executable, "-c", "import skyhop._core"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return (tried.stderr.strip().splitlines() or ["it fails"])[-1] if tried.returncode else ""


def main(words: list[str]) -> None:
    """Execute a command as `USER`: PLACE ... -- COMMAND ..."""
    end = words.index("--")
    command = words[end + 1 :]
    packages = map(Path, import_path().split(":"))
    places = [ROOT, Path(sys.prefix), Path(sys.base_prefix), *packages, *map(Path, words[:end])]
    closed: dict[Path, list[Path]] = {}
    for place in places:
        top = _closed_top(place)
        if top is not None:
            closed.setdefault(top, []).append(place)
    if closed:
        here = Path.cwd()
        linux.unshare(linux.NEWNS)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        for top, shown in closed.items():
            _show_only(top, shown)
        os.chdir(here)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    # Files that this user cannot write would be tried for each module.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.execvp(command[0], command)


def _closed_top(place: Path) -> Path | None:
    """Return the outermost directory on the way to a place that is closed to `USER`."""
    way = [*reversed(place.parents), place]
    return next((each for each in way if _is_closed(each, last=each == place)), None)


def _is_closed(directory: Path, *, last: bool) -> bool:
    entry = directory.stat()
    needed = stat.S_IXOTH | (stat.S_IROTH if last else 0)
    return entry.st_uid != USER and entry.st_mode & needed != needed


def _show_only(top: Path, places: Iterable[Path]) -> None:
    """Mount a directory over `top` that shows nothing of it but some places."""
    entries = [
        (entry, os.open(entry, os.O_PATH | os.O_NOFOLLOW))
        for place in places
        for entry in _entries(place)
    ]
    linux.mount("none", str(top), "tmpfs", linux.MS_NOSUID, "mode=755")
    for entry, descriptor in entries:
        kind, origin = os.fstat(descriptor).st_mode, f"/proc/self/fd/{descriptor}"
        if os.path.lexists(entry):
            continue
        entry.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(kind):
            entry.symlink_to(os.readlink("", dir_fd=descriptor))
            continue
        if stat.S_ISDIR(kind):
            entry.mkdir()
        else:
            entry.touch()
        linux.mount(origin, str(entry), None, linux.MS_BIND | linux.MS_REC)


def _entries(place: Path) -> Iterator[Path]:
    """Yield what to mount for a place: itself, or its entries if it is closed itself."""
    if _is_closed(place, last=True):
        yield from place.iterdir()
    else:
        yield place


if __name__ == "__main__":
    main(sys.argv[1:])
