"""A run's files on their way to the orchestrator: in pieces, on from where they stopped.

What is uploaded stands in `upload.json` from the first try on, so that every try sends the same:
what the job asked to keep, the program's output, the terminal's telemetry, the manifest last.
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

import skyhop
from skyhop.telemetry import maps
from skyhop.testbed.agent.life import Life
from skyhop.testbed.agent.node import Node, clock_offset_ms
from skyhop.testbed.executor import keep
from skyhop.testbed.executor.assignment import RESULT_FILE, WORK, write_durably
from skyhop.testbed.protocol import testbed_pb2 as wire
from skyhop.testbed.words import Side

FILE = "upload.json"
MANIFEST = "manifest.json"
TELEMETRY_FILE = "telemetry.parquet"
_OF_TERMINAL = (TELEMETRY_FILE, maps.FILE)
PIECE_BYTES = 256_000
_SECONDS_PER_BYTE = 1 / 10_000
"""Slower than that, an upload is given up and gone on with."""
_LEAST_PATIENCE_S = 60.0
_TELEMETRY_PATIENCE_S = 120.0


def send(node: Node, life: Life, stopped: Callable[[], bool]) -> bool:
    """Upload what is not there yet; return whether all of it is.

    Raises:
        RunError: it did not arrive.
        OSError: a file cannot be read, or the manifest not be written.
    """
    directory = life.directory(node.runs)
    manifest = _manifest(node, life, directory)
    content = json.dumps(manifest, indent=1).encode()
    there = node.link.offsets(life.run, life.side.value)
    left = sum(int(f["size"]) for f in manifest["files"]) - sum(there.values()) + len(content)
    patience_s = _LEAST_PATIENCE_S + max(0, left) * _SECONDS_PER_BYTE
    chunks = (_chunk(life, *piece) for piece in _pieces(directory, manifest, content, there))
    return node.link.upload(_until(stopped, chunks), patience_s)


def _until(stopped: Callable[[], bool], chunks: Iterator[Any]) -> Iterator[Any]:
    for chunk in chunks:
        if stopped():
            return
        yield chunk


def _pieces(
    directory: Path, manifest: dict[str, Any], content: bytes, there: dict[str, int]
) -> Iterator[tuple[dict[str, Any], int, bytes]]:
    """Return pieces of files that are not there yet, the manifest's last."""
    for entry in manifest["files"]:
        offset = there.get(entry["name"], 0)
        if offset >= entry["size"] and entry["name"] in there:
            continue
        with os.fdopen(_opened(directory, entry["name"]), "rb") as stream:
            stream.seek(offset)
            while True:
                data = stream.read(PIECE_BYTES)
                yield entry, offset, data
                offset += len(data)
                if not data or offset >= entry["size"]:
                    break
    digest = hashlib.sha256(content).hexdigest()
    yield {"name": MANIFEST, "size": len(content), "sha256": digest}, 0, content


def _chunk(life: Life, entry: dict[str, Any], offset: int, data: bytes) -> Any:
    return wire.Chunk(
        run=life.run,
        side=life.side.value,
        name=entry["name"],
        offset=offset,
        size=entry["size"],
        sha256=bytes.fromhex(entry["sha256"]),
        data=data,
    )


def _opened(directory: Path, name: str) -> int:
    """Open a file of the manifest: ours beside the work directory, or the program's in it."""
    if name in (*_outputs(directory), *_OF_TERMINAL) and not _is_programs(directory, name):
        return os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return keep.open_kept(directory / WORK, name)


def _manifest(node: Node, life: Life, directory: Path) -> dict[str, Any]:
    """Return what is uploaded, as it was decided at the first try."""
    try:
        decided: dict[str, Any] = json.loads((directory / FILE).read_bytes())
        return decided
    except (FileNotFoundError, ValueError):
        pass
    result = json.loads((directory / RESULT_FILE).read_bytes())
    files = list(_kept(directory))
    names = {entry["name"] for entry in files}
    if life.side is Side.CLIENT and keep.TELEMETRY in life.spec.get("run", {}).get("keep", []):
        _write_telemetry(node, life, directory / TELEMETRY_FILE)
        _copy_map(node, directory / maps.FILE)
    for name in (*_outputs(directory), *_OF_TERMINAL):
        if name not in names and (directory / name).exists():
            files.append({"name": name, **_measured(directory / name)})
    manifest = {
        "run": life.run,
        "side": life.side.value,
        "node": node.name,
        "job": life.job,
        "files": files,
        "clock_offset_ms": clock_offset_ms(),
        "versions": {"skyhop": skyhop.__version__, "kernel": os.uname().release},
        "result": result,
    }
    write_durably(directory / FILE, json.dumps(manifest).encode())
    return manifest


def _kept(directory: Path) -> list[dict[str, Any]]:
    try:
        listed = json.loads((directory / keep.FILE).read_bytes())["files"]
    except (FileNotFoundError, ValueError, KeyError):
        return []
    # A program's own file of the manifest's name would be taken for ours.
    return [{k: f[k] for k in ("name", "size", "sha256")} for f in listed if f["name"] != MANIFEST]


def _is_programs(directory: Path, name: str) -> bool:
    return any(entry["name"] == name for entry in _kept(directory))


def _outputs(directory: Path) -> tuple[str, ...]:
    return tuple(name for name in ("stdout", "stderr") if (directory / name).exists())


def _measured(file: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return {"size": size, "sha256": digest.hexdigest()}


def _copy_map(node: Node, file: Path) -> None:
    """Copy the terminal's obstruction map as it is now, where it has one."""
    try:
        write_durably(file, (node.telemetry / node.name / maps.FILE).read_bytes())
    except FileNotFoundError:
        return
    except OSError as error:
        node.say(f"no obstruction map is kept with a run: {error.strerror}")


def _write_telemetry(node: Node, life: Life, file: Path) -> None:
    """Write the samples of a run's time, in another process: what that needs is large."""
    command = [sys.executable, "-m", "skyhop.testbed.agent.samples", str(node.telemetry)]
    command += [node.name, str(life.start_ns), str(life.end_ns), str(file)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TELEMETRY_PATIENCE_S, check=False
        )
        said = done.stderr.strip().splitlines() if done.returncode else []
    except (OSError, subprocess.TimeoutExpired) as error:
        said = [str(error)]
    if said:
        node.say(f"run {life.run}: no telemetry of its time: {said[-1][:200]}")
