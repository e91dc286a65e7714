"""Upload of a run's files to the orchestrator: in pieces, resumed after interruptions.

The first attempt writes the manifest, the list of files, to `upload.json`, so that every attempt
sends the same: the manifest, the files that the job keeps, the program's output, and the terminal's
telemetry. Manifest and files are read in pieces, so that the memory that an upload needs does not
depend on the number of files. An upload keeps to the owner's rate, and pauses while the allowance
of the node holds it back.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from skyhop.errors import RunError
from skyhop.telemetry import maps
from skyhop.version import __version__
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node, clock_offset_ms
from skyhop_testbed.agent.samples import WITHOUT_TRAFFIC
from skyhop_testbed.api import frame
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import RESULT_FILE, WORK, open_durably, write_durably
from skyhop_testbed.manifests import ListedFile, read_files, write_manifest
from skyhop_testbed.words import Side

FILE = "upload.json"
MANIFEST = "manifest.json"
TELEMETRY_FILE = "telemetry.parquet"
_OF_AGENT = ("stdout", "stderr", TELEMETRY_FILE, maps.FILE)
"""Files of a run's directory that are uploaded with those of its program."""
_PATIENCE_SHARE = 2.0
"""Longest time of an attempt, as a multiple of the time at the owner's rate."""
_SECONDS_PER_BYTE = 1 / 10_000
"""Reciprocal of the slowest rate, 10 kB/s: an attempt that is slower is given up, and the next one
resumes the upload.
"""
_LEAST_PATIENCE_S = 60.0
_TELEMETRY_PATIENCE_S = 120.0


def send(node: Node, local_run: LocalRun, stopped: Callable[[], bool]) -> bool:
    """Upload the bytes that the orchestrator does not have yet; return whether all files are there.

    The upload ends early, and returns `False`, when `stopped` returns true or the owner's traffic
    comes first.

    Raises:
        RefusedError: the orchestrator refuses these files for good.
        RunError: the upload failed.
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    directory = local_run.directory(node.runs)
    if not (directory / FILE).exists():
        _write_manifest(node, local_run, directory)
    missing = _missing(node, local_run, directory)
    pace = node.allowance.pace()
    patience_s = _LEAST_PATIENCE_S + missing.bytes(directory) * max(
        _SECONDS_PER_BYTE, _PATIENCE_SHARE * pace.seconds_per_byte
    )
    end_s, is_early = node.clock.monotonic_s() + patience_s, False

    def pieces() -> Iterator[bytes]:
        nonlocal is_early
        for name, offset, data in _pieces(directory, missing, pace.piece_bytes):
            if stopped() or node.allowance.held_back():
                is_early = True
                return
            if node.clock.monotonic_s() > end_s:
                raise RunError(f"the upload took longer than {patience_s:.0f} s")
            yield frame(name, offset, data)
            pace.wait_for(len(data))

    try:
        return node.link.upload(local_run.run, local_run.side.value, pieces())
    except RunError:
        if is_early:
            # The orchestrator misses the files that this attempt has left for the next one.
            return False
        raise


@dataclass(frozen=True)
class _Missing:
    """Part of an upload that the orchestrator does not have."""

    manifest_offset: int
    """Bytes of the manifest that it has."""
    is_wanted: Callable[[int, ListedFile], int | None]
    """Function that returns, for a file's index and entry, the offset from which it is to be sent;
    `None` if it is not to be sent."""

    def bytes(self, directory: Path) -> int:
        """Return the number of bytes to send."""
        total = (directory / FILE).stat().st_size - self.manifest_offset
        with (directory / FILE).open("rb") as manifest:
            for index, entry in enumerate(read_files(manifest)):
                offset = self.is_wanted(index, entry)
                total += 0 if offset is None else entry["size"] - offset
        return max(0, total)


def _missing(node: Node, local_run: LocalRun, directory: Path) -> _Missing:
    progress = node.link.progress(local_run.run, local_run.side.value)
    if progress is None:
        return _missing_at_old(node, local_run)
    size = (directory / FILE).stat().st_size
    if progress.manifest_bytes < size or progress.missing is None:
        return _Missing(
            0 if progress.manifest_bytes > size else progress.manifest_bytes, lambda *_: 0
        )
    ranges, offset = progress.missing, progress.offset

    def offset_of(index: int, _entry: ListedFile) -> int | None:
        if not any(first <= index < end for first, end in ranges):
            return None
        return offset if index == ranges[0][0] else 0

    return _Missing(size, offset_of)


def _missing_at_old(node: Node, local_run: LocalRun) -> _Missing:
    """Return what an orchestrator lacks that tells the offsets of all files only."""
    received = node.link.offsets(local_run.run, local_run.side.value)

    def offset_of(_index: int, entry: ListedFile) -> int | None:
        offset = received.get(entry["name"], 0)
        return None if offset >= entry["size"] and entry["name"] in received else offset

    return _Missing(0, offset_of)


def _pieces(
    directory: Path, missing: _Missing, piece_bytes: int
) -> Iterator[tuple[str, int, bytes]]:
    """Yield file name, offset and data of the bytes that the orchestrator does not have yet.

    The manifest comes first, so that the orchestrator knows what follows.
    """
    with (directory / FILE).open("rb") as manifest:
        size = os.fstat(manifest.fileno()).st_size
        if missing.manifest_offset < size:
            for offset, data in _read_from(manifest, missing.manifest_offset, piece_bytes, size):
                yield MANIFEST, offset, data
        manifest.seek(0)
        programs = _programs_own(directory)
        for index, entry in enumerate(read_files(manifest)):
            begin = missing.is_wanted(index, entry)
            if begin is None:
                continue
            with os.fdopen(_open_listed(directory, entry["name"], programs), "rb") as stream:
                for offset, data in _read_from(stream, begin, piece_bytes, entry["size"]):
                    yield entry["name"], offset, data


def _read_from(
    stream: BinaryIO, offset: int, piece_bytes: int, size: int
) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a file of `size` bytes with their offsets, at least one."""
    stream.seek(offset)
    while True:
        data = stream.read(min(piece_bytes, size - offset))
        yield offset, data
        offset += len(data)
        if not data or offset >= size:
            return


def _open_listed(directory: Path, name: str, programs: frozenset[str]) -> int:
    """Open a file of the manifest, in the run's directory or below its work directory."""
    if name in _OF_AGENT and name not in programs:
        return os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return keep.open_kept(directory / WORK, name)


def _write_manifest(node: Node, local_run: LocalRun, directory: Path) -> None:
    """Decide which files are uploaded, and write their manifest."""
    result = json.loads((directory / RESULT_FILE).read_bytes())
    programs = _programs_own(directory)
    if local_run.side is Side.CLIENT and keep.TELEMETRY in local_run.spec.run.keep:
        node.store_telemetry()
        _write_telemetry(node, local_run, directory / TELEMETRY_FILE)
        _copy_map(node, directory / maps.FILE)

    def files() -> Iterator[ListedFile]:
        yield from _kept_files(directory)
        for name in _OF_AGENT:
            if name not in programs and (directory / name).exists():
                yield _listed(directory / name, name)

    above = {
        "run": local_run.run,
        "side": local_run.side.value,
        "node": node.name,
        "job": local_run.job,
        "clock_offset_ms": clock_offset_ms(),
        "versions": {"skyhop": __version__, "kernel": os.uname().release},
        "result": result,
    }
    with open_durably(directory / FILE) as stream:
        write_manifest(stream, above, files())


def _kept_files(directory: Path) -> Iterator[ListedFile]:
    """Yield the files that the executor has chosen."""
    try:
        with (directory / keep.FILE).open("rb") as manifest:
            # A program's own file named like the manifest would be mistaken for it.
            yield from (each for each in read_files(manifest) if each["name"] != MANIFEST)
    except (FileNotFoundError, ValueError):
        return


def _programs_own(directory: Path) -> frozenset[str]:
    """Return the names of the program's files that are named like those of the agent."""
    return frozenset(e["name"] for e in _kept_files(directory) if e["name"] in _OF_AGENT)


def _listed(file: Path, name: str) -> ListedFile:
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return {"name": name, "size": stream.tell(), "sha256": digest}


def _copy_map(node: Node, file: Path) -> None:
    """Copy the terminal's present obstruction map into the run's files, if the terminal has one."""
    try:
        write_durably(file, (node.telemetry / node.name / maps.FILE).read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        node.say(f"the obstruction map cannot be stored with a run: {error.strerror}")


def _write_telemetry(node: Node, local_run: LocalRun, file: Path) -> None:
    """Write the telemetry of a run's time in a separate process, as polars needs much memory."""
    command = [sys.executable, "-m", "skyhop_testbed.agent.samples", str(node.telemetry)]
    command += [node.name, str(local_run.start_ns), str(local_run.end_ns), str(file)]
    command += [] if node.policy.shares_traffic else [WITHOUT_TRAFFIC]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TELEMETRY_PATIENCE_S, check=False
        )
        said = done.stderr.strip().splitlines() if done.returncode else []
    except (OSError, subprocess.TimeoutExpired) as error:
        said = [str(error)]
    if said:
        node.say(f"run {local_run.run}: no telemetry of its time: {said[-1][:200]}")
