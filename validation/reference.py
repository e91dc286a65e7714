"""Download of the published files that tests use for comparison, listed in tests/reference.toml."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tomllib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pooch
import typer

from skyhop.data.files import write_file
from skyhop.errors import InputError, SkyhopError
from validation import ROOT
from validation.reference_steps import STEPS

LIST = ROOT / "tests" / "reference.toml"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Reference:
    """Entry of tests/reference.toml; a comment in that file explains the keys."""

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
    """Download or conversion of a file failed; the message is one line."""


def listed(file: Path = LIST) -> list[Reference]:
    """Read the entries of tests/reference.toml."""
    table = tomllib.loads(file.read_text("utf-8"))
    return [Reference(name, **entry) for name, entry in table.items()]


def folder() -> Path:
    """Return the directory of the files, by the same rules as crates/needs/src/reference.rs."""
    if named := os.environ.get("SKYHOP_REFERENCE"):
        return ROOT / named
    shared = ROOT.parent / "shared" / "data"
    if shared.is_dir():
        return shared
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "skyhop" / "reference"


def found(name: str) -> Path | None:
    """Return the path of a listed file; `None` if the file is not on this machine.

    Raises:
        KeyError: the file is not listed.
    """
    if name not in {entry.name for entry in listed()}:
        raise KeyError(f"{LIST.name} does not list {name}")
    path = folder() / name
    return path if path.is_file() else None


def required(name: str) -> Path:
    """Return the path of a listed file; an error if the file is not on this machine."""
    path = found(name)
    if path is None:
        raise InputError(f"no {folder() / name}; run make reference")
    return path


def provide(entry: Reference, path: Path, large: bool) -> str:
    """Download a missing file if possible; return its state for the table."""
    if path.is_file():
        return "present" if _has_digest(entry, path) else "altered: remove it and try again"
    if not entry.addresses:
        return f"by hand: {entry.by_hand}"
    if entry.large_mb is not None and not large:
        return f"skipped: --large downloads its {entry.large_mb} MB"
    failures = []
    for address in entry.addresses:
        try:
            _obtain(entry, address, path)
        except NotObtainedError as error:
            failures.append(str(error))
        else:
            return "downloaded"
    return f"failed: {'; '.join(failures)}"


def _has_digest(entry: Reference, path: Path) -> bool:
    content = path.read_bytes()
    try:
        text = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error):  # An incomplete gzip file.
        return False
    return hashlib.sha256(text).hexdigest() == entry.sha256


def _obtain(entry: Reference, address: str, path: Path) -> None:
    """Download the original file, convert it, check the digest of the result, and write it."""
    originals = path.parent / ".originals"
    try:
        content = _convert(entry, _download(address, originals))
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise NotObtainedError(f"{address}: differs from the version that the tests expect")
        write_file(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    except SkyhopError as error:
        raise NotObtainedError(str(error)) from None
    finally:
        shutil.rmtree(originals, ignore_errors=True)


def _download(address: str, originals: Path) -> Path:
    try:
        # `_obtain` checks the digest of the converted file.
        downloaded = pooch.retrieve(
            address,
            known_hash=None,
            fname=address.rpartition("/")[2],
            path=originals,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT_S),
        )
    except Exception as error:  # Exceptions of pooch, requests and urllib3.
        raise NotObtainedError(f"cannot download {address}: {_reason(error)}") from None
    return Path(downloaded)


def _reason(error: Exception) -> str:
    """Return the first line of the innermost cause of an error."""
    cause: BaseException = error
    while (inner := getattr(cause, "reason", None) or cause.__context__) and isinstance(
        inner, BaseException
    ):
        cause = inner
    return str(cause).partition("\n")[0]


def _convert(entry: Reference, original: Path) -> bytes:
    if entry.how is None:
        return original.read_bytes()
    terms = dict(entry.how)
    step = STEPS[terms.pop("step")]
    try:
        return step(original, **terms).encode()
    except Exception as error:  # Any change of the original's format.
        raise NotObtainedError(f"{original.name} is not as expected: {error!r}") from None


def obtain(entries: Iterable[Reference], into: Path, large: bool) -> bool:
    """Download all missing files and print a table.

    Return whether no download failed and no file differs from its digest.
    """
    entries = list(entries)
    width = max(len(entry.name) for entry in entries)
    licences = max(len(entry.licence) for entry in entries)
    well = True
    print(f"{'file':{width}}  {'licence':{licences}}  state")
    for entry in entries:
        outcome = provide(entry, into / entry.name, large)
        well = well and not outcome.startswith(("failed", "altered"))
        print(f"{entry.name:{width}}  {entry.licence:{licences}}  {outcome}", flush=True)
    return well


def main(
    large: Annotated[bool, typer.Option("--large", help="Also download large files.")] = False,
) -> int:
    """Download the missing files."""
    # pooch would announce every download, but the table already does.
    pooch.get_logger().setLevel("ERROR")
    into = folder()
    print(f"Reference files in {into}")
    return 0 if obtain(listed(), into, large) else 1
