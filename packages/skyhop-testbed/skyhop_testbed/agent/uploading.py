"""Upload of a run's files to the orchestrator: in chunks, resumed after interruptions.

The first attempt writes the list of files to `upload.json`, so that every attempt sends the same:
the files that the job keeps, the program's output, the terminal's telemetry, and the manifest last.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

from skyhop.errors import RunError
from skyhop.telemetry import maps
from skyhop.version import __version__
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node, clock_offset_ms
from skyhop_testbed.agent.samples import WITHOUT_TRAFFIC
from skyhop_testbed.api import frame
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import RESULT_FILE, WORK, write_durably
from skyhop_testbed.words import Side

FILE = "upload.json"
MANIFEST = "manifest.json"
TELEMETRY_FILE = "telemetry.parquet"
_OF_TERMINAL = (TELEMETRY_FILE, maps.FILE)
PIECE_BYTES = 256_000
_SECONDS_PER_BYTE = 1 / 10_000
"""Reciprocal of the slowest rate, 10 kB/s: an attempt that is slower is given up, and the next one
resumes the upload.
"""
_LEAST_PATIENCE_S = 60.0
_TELEMETRY_PATIENCE_S = 120.0


class ListedFile(TypedDict):
    """File of an upload, as the manifest lists it."""

    name: str
    size: int
    sha256: str


class Manifest(TypedDict):
    """Manifest of a run's side: its files, and how the run went."""

    run: str
    side: str
    node: str
    job: str
    files: list[ListedFile]
    clock_offset_ms: float | None
    versions: dict[str, str]
    result: object


def send(node: Node, local_run: LocalRun, stopped: Callable[[], bool]) -> bool:
    """Upload the bytes that the orchestrator does not have yet; return whether all files are there.

    Raises:
        RunError: the upload failed.
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    directory = local_run.directory(node.runs)
    manifest = _manifest(node, local_run, directory)
    content = json.dumps(manifest, indent=1).encode()
    received = node.link.offsets(local_run.run, local_run.side.value)
    left = sum(f["size"] for f in manifest["files"]) - sum(received.values()) + len(content)
    patience_s = _LEAST_PATIENCE_S + max(0, left) * _SECONDS_PER_BYTE
    end_s = node.clock.monotonic_s() + patience_s

    def pieces() -> Iterator[bytes]:
        for name, offset, data in _pieces(directory, manifest, content, received):
            if stopped():
                return
            if node.clock.monotonic_s() > end_s:
                raise RunError(f"the upload took longer than {patience_s:.0f} s")
            yield frame(name, offset, data)

    return node.link.upload(local_run.run, local_run.side.value, pieces())


def _pieces(
    directory: Path, manifest: Manifest, content: bytes, received: dict[str, int]
) -> Iterator[tuple[str, int, bytes]]:
    """Yield file name, offset and data of the bytes that the orchestrator does not have yet.

    The manifest comes last. `received` maps a file's name to the bytes that have arrived.
    """
    for entry in manifest["files"]:
        offset = received.get(entry["name"], 0)
        if offset >= entry["size"] and entry["name"] in received:
            continue
        with os.fdopen(_open_listed(directory, entry["name"]), "rb") as stream:
            stream.seek(offset)
            while True:
                data = stream.read(PIECE_BYTES)
                yield entry["name"], offset, data
                offset += len(data)
                if not data or offset >= entry["size"]:
                    break
    yield MANIFEST, 0, content


def _open_listed(directory: Path, name: str) -> int:
    """Open a file of the manifest, in the run's directory or below its work directory."""
    if name in (*_outputs(directory), *_OF_TERMINAL) and not _is_programs(directory, name):
        return os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return keep.open_kept(directory / WORK, name)


def _manifest(node: Node, local_run: LocalRun, directory: Path) -> Manifest:
    """Return the manifest; the first call decides which files it lists and writes `upload.json`."""
    try:
        decided: Manifest = json.loads((directory / FILE).read_bytes())
        return decided
    except (FileNotFoundError, ValueError):
        pass
    result = json.loads((directory / RESULT_FILE).read_bytes())
    files = list(_kept_files(directory))
    names = {entry["name"] for entry in files}
    if local_run.side is Side.CLIENT and keep.TELEMETRY in local_run.spec.run.keep:
        node.store_telemetry()
        _write_telemetry(node, local_run, directory / TELEMETRY_FILE)
        _copy_map(node, directory / maps.FILE)
    for name in (*_outputs(directory), *_OF_TERMINAL):
        if name not in names and (directory / name).exists():
            files.append(_listed(directory / name, name))
    manifest: Manifest = {
        "run": local_run.run,
        "side": local_run.side.value,
        "node": node.name,
        "job": local_run.job,
        "files": files,
        "clock_offset_ms": clock_offset_ms(),
        "versions": {"skyhop": __version__, "kernel": os.uname().release},
        "result": result,
    }
    write_durably(directory / FILE, json.dumps(manifest).encode())
    return manifest


def _kept_files(directory: Path) -> list[ListedFile]:
    try:
        listed = json.loads((directory / keep.FILE).read_bytes())["files"]
    except (FileNotFoundError, ValueError, KeyError):
        return []
    # A program's own file named like the manifest would be mistaken for it.
    return [
        {"name": f["name"], "size": f["size"], "sha256": f["sha256"]}
        for f in listed
        if f["name"] != MANIFEST
    ]


def _is_programs(directory: Path, name: str) -> bool:
    return any(entry["name"] == name for entry in _kept_files(directory))


def _outputs(directory: Path) -> tuple[str, ...]:
    return tuple(name for name in ("stdout", "stderr") if (directory / name).exists())


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
