"""Downloads the files that others published and that tests compare with (tests/reference.toml)."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import sys
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pooch
from reference_steps import STEPS

from skyhop.data.files import write_file
from skyhop.errors import SkyhopError

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "reference.toml"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Reference:
    """A file of tests/reference.toml, which says what its keys mean."""

    name: str
    what: str
    licence: str
    sha256: str
    known: str
    addresses: list[str] = field(default_factory=list)
    by_hand: str | None = None
    large_mb: int | None = None
    how: Mapping[str, Any] | None = None


class NotObtainedError(Exception):
    """A file could not be had; the message is one line."""


def listed(file: Path = LIST) -> list[Reference]:
    """Return the files of the list."""
    table = tomllib.loads(file.read_text("utf-8"))
    return [Reference(name, **entry) for name, entry in table.items()]


def folder() -> Path:
    """Return where the files are, as crates/needs/src/reference.rs has it."""
    if named := os.environ.get("SKYHOP_REFERENCE"):
        return ROOT / named
    beside = ROOT.parent / "shared" / "data"
    if beside.is_dir():
        return beside
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "skyhop" / "reference"


def found(name: str) -> Path | None:
    """Return a listed file, or None where this machine does not have it.

    Raises:
        KeyError: the list does not have it.
    """
    if name not in {entry.name for entry in listed()}:
        raise KeyError(f"{LIST.name} does not list {name}")
    path = folder() / name
    return path if path.is_file() else None


def state(entry: Reference, path: Path, large: bool) -> str:
    """Have a file where that is possible; return what came of it."""
    if path.is_file():
        return "there" if _is_right(entry, path) else "altered: remove it and try again"
    if not entry.addresses:
        return f"by hand: {entry.by_hand}"
    if entry.large_mb is not None and not large:
        return f"left out: --large downloads its {entry.large_mb} MB"
    failures = []
    for address in entry.addresses:
        try:
            _obtain(entry, address, path)
        except NotObtainedError as error:
            failures.append(str(error))
        else:
            return "downloaded"
    return f"failed: {'; '.join(failures)}"


def _is_right(entry: Reference, path: Path) -> bool:
    content = path.read_bytes()
    try:
        return (
            _digest(gzip.decompress(content) if path.suffix == ".gz" else content) == entry.sha256
        )
    except (OSError, EOFError, zlib.error):  # No whole gzip file.
        return False


def _obtain(entry: Reference, address: str, path: Path) -> None:
    """Download a file's original, make the file of it and put that in place."""
    originals = path.parent / ".originals"
    try:
        original = _downloaded(address, originals)
        made = _made(entry, original)
        if _digest(made) != entry.sha256:
            raise NotObtainedError(f"{address}: not what the tests were made for")
        packed = gzip.compress(made, mtime=0) if path.suffix == ".gz" else made
        write_file(path, packed)
    except SkyhopError as error:
        raise NotObtainedError(str(error)) from None
    finally:
        _remove(originals)


def _downloaded(address: str, originals: Path) -> Path:
    try:
        # Its digest is checked on what is made of it.
        got = pooch.retrieve(
            address,
            known_hash=None,
            fname=address.rpartition("/")[2],
            path=originals,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
        )
    except Exception as error:  # Of pooch, requests and urllib3.
        raise NotObtainedError(f"cannot download {address}: {_reason(error)}") from None
    return Path(got)


def _reason(error: Exception) -> str:
    """Return the first line of the innermost reason."""
    cause: BaseException = error
    while (inner := getattr(cause, "reason", None) or cause.__context__) and isinstance(
        inner, BaseException
    ):
        cause = inner
    return str(cause).partition("\n")[0]


def _made(entry: Reference, original: Path) -> bytes:
    if entry.how is None:
        return original.read_bytes()
    terms = dict(entry.how)
    step = STEPS[terms.pop("step")]
    try:
        return step(original, **terms).encode()
    except Exception as error:  # Whatever is not as it was.
        raise NotObtainedError(f"{original.name} is not as expected: {error!r}") from None


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _remove(originals: Path) -> None:
    if originals.is_dir():
        for leftover in originals.iterdir():
            leftover.unlink()
        originals.rmdir()


def obtain(entries: Iterable[Reference], into: Path, large: bool) -> bool:
    """Have all files, print a table of them, and return whether none failed or is altered."""
    entries = list(entries)
    width = max(len(entry.name) for entry in entries)
    licences = max(len(entry.licence) for entry in entries)
    well = True
    print(f"{'file':{width}}  {'licence':{licences}}  state")
    for entry in entries:
        outcome = state(entry, into / entry.name, large)
        well = well and not outcome.startswith(("failed", "altered"))
        print(f"{entry.name:{width}}  {entry.licence:{licences}}  {outcome}", flush=True)
    return well


def main() -> int:
    """Download what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="files with large_mb too")
    large = parser.parse_args().large
    # It announces every download, which the table does.
    pooch.get_logger().setLevel("ERROR")
    into = folder()
    print(f"Reference files in {into}")
    return 0 if obtain(listed(), into, large) else 1


if __name__ == "__main__":
    sys.exit(main())
