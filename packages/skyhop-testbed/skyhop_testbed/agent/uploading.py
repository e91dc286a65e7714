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
from typing import Any

from skyhop.telemetry import maps
from skyhop.version import __version__
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node, clock_offset_ms
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import RESULT_FILE, WORK, write_durably
from skyhop_testbed.protocol import testbed_pb2 as wire
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
    left = sum(int(f["size"]) for f in manifest["files"]) - sum(received.values()) + len(content)
    patience_s = _LEAST_PATIENCE_S + max(0, left) * _SECONDS_PER_BYTE
    chunks = (
        _chunk(local_run, *piece) for piece in _pieces(directory, manifest, content, received)
    )
    return node.link.upload(_until(stopped, chunks), patience_s)


def _until(stopped: Callable[[], bool], chunks: Iterator[Any]) -> Iterator[Any]:
    for chunk in chunks:
        if stopped():
            return
        yield chunk


def _pieces(
    directory: Path, manifest: dict[str, Any], content: bytes, received: dict[str, int]
) -> Iterator[tuple[dict[str, Any], int, bytes]]:
    """Yield file entry, offset and data of the bytes that the orchestrator does not have yet.

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
                yield entry, offset, data
                offset += len(data)
                if not data or offset >= entry["size"]:
                    break
    digest = hashlib.sha256(content).hexdigest()
    yield {"name": MANIFEST, "size": len(content), "sha256": digest}, 0, content


def _chunk(local_run: LocalRun, entry: dict[str, Any], offset: int, data: bytes) -> Any:
    return wire.Chunk(
        run=local_run.run,
        side=local_run.side.value,
        name=entry["name"],
        offset=offset,
        size=entry["size"],
        sha256=bytes.fromhex(entry["sha256"]),
        data=data,
    )


def _open_listed(directory: Path, name: str) -> int:
    """Open a file of the manifest, in the run's directory or below its work directory."""
    if name in (*_outputs(directory), *_OF_TERMINAL) and not _is_programs(directory, name):
        return os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return keep.open_kept(directory / WORK, name)


def _manifest(node: Node, local_run: LocalRun, directory: Path) -> dict[str, Any]:
    """Return the manifest; the first call decides which files it lists and writes `upload.json`."""
    try:
        decided: dict[str, Any] = json.loads((directory / FILE).read_bytes())
        return decided
    except (FileNotFoundError, ValueError):
        pass
    result = json.loads((directory / RESULT_FILE).read_bytes())
    files = list(_kept_files(directory))
    names = {entry["name"] for entry in files}
    if local_run.side is Side.CLIENT and keep.TELEMETRY in local_run.spec.run.keep:
        _write_telemetry(node, local_run, directory / TELEMETRY_FILE)
        _copy_map(node, directory / maps.FILE)
    for name in (*_outputs(directory), *_OF_TERMINAL):
        if name not in names and (directory / name).exists():
            files.append({"name": name, **_size_and_digest(directory / name)})
    manifest = {
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


def _kept_files(directory: Path) -> list[dict[str, Any]]:
    try:
        listed = json.loads((directory / keep.FILE).read_bytes())["files"]
    except (FileNotFoundError, ValueError, KeyError):
        return []
    # A program's own file named like the manifest would be mistaken for it.
    return [{k: f[k] for k in ("name", "size", "sha256")} for f in listed if f["name"] != MANIFEST]


def _is_programs(directory: Path, name: str) -> bool:
    return any(entry["name"] == name for entry in _kept_files(directory))


def _outputs(directory: Path) -> tuple[str, ...]:
    return tuple(name for name in ("stdout", "stderr") if (directory / name).exists())


def _size_and_digest(file: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return {"size": size, "sha256": digest.hexdigest()}


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
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TELEMETRY_PATIENCE_S, check=False
        )
        said = done.stderr.strip().splitlines() if done.returncode else []
    except (OSError, subprocess.TimeoutExpired) as error:
        said = [str(error)]
    if said:
        node.say(f"run {local_run.run}: no telemetry of its time: {said[-1][:200]}")
