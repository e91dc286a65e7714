"""Journal of the kernel service: changes in force, written to disk before they are made."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypedDict

FILE = "changes.jsonl"


class DeviceChange(TypedDict):
    """Device of a run: its name on this machine, and the inode of the run's namespace."""

    kind: Literal["device"]
    name: str
    inode: int


class ModuleChange(TypedDict):
    """Congestion control loaded for a run, and the file of its source."""

    kind: Literal["cc"]
    name: str
    file: str


class ProxyChange(TypedDict):
    """Proxy ARP entry of a run's address on an interface."""

    kind: Literal["proxy"]
    address: str
    interface: str


class ForwardingChange(TypedDict):
    """Forwarding of an interface, with its value before the change."""

    kind: Literal["forwarding"]
    interface: str
    before: str


class TableChange(TypedDict):
    """Table of nftables that the service has created."""

    kind: Literal["nft"]
    table: str


class InsideChange(TypedDict):
    """Change inside a run's namespace, with which it vanishes."""

    kind: Literal["inside"]
    name: str
    values: Mapping[str, object]


KernelChange = (
    DeviceChange | ModuleChange | ProxyChange | ForwardingChange | TableChange | InsideChange
)
"""Change, with the values needed to undo it; undoing twice does no harm."""


class ChangeJournal:
    """Journal of changes that are in force.

    Args:
        directory: the service's directory.
        undo: function that undoes a change; it does nothing if the change was never made.
    """

    def __init__(self, directory: Path, undo: Callable[[KernelChange], None]) -> None:
        self._file = directory / FILE
        self._undo = undo
        self._lock = threading.Lock()
        self._open: list[tuple[int, str, KernelChange]] = []
        self._next = 0
        self._descriptor = os.open(
            self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def undo_leftovers(self) -> list[str]:
        """Undo the changes of a killed service, newest first; return a log line per change.

        A change that cannot be undone stays in the journal for the next start.
        """
        said = []
        self._open = self._left()
        for entry in reversed(list(self._open)):
            _, run, change = entry
            what = f"{change['kind']} {change.get('name', '')} of {run}"
            try:
                self._undo(change)
            except Exception as error:
                said.append(f"not undone: {what}: {error}")
                continue
            self._open.remove(entry)
            said.append(f"undone: {what}")
        os.ftruncate(self._descriptor, 0)
        self._open = [(n, run, change) for n, (_, run, change) in enumerate(self._open)]
        for number, run, change in self._open:
            self._write({"number": number, "run": run, "change": change})
        self._next = len(self._open)
        os.fsync(self._descriptor)
        return said

    def _left(self) -> list[tuple[int, str, KernelChange]]:
        left: dict[int, tuple[int, str, KernelChange]] = {}
        for line in self._file.read_bytes().splitlines():
            try:
                values = json.loads(line)
                number = int(values["number"])
                if "undone" in values:
                    left.pop(number, None)
                elif "kind" in values["change"]:
                    change: KernelChange = values["change"]
                    left[number] = (number, str(values["run"]), change)
            except (ValueError, KeyError, TypeError):
                continue  # The change of a partial line was not made.
        return list(left.values())

    def record(self, run: str, change: KernelChange) -> None:
        """Record a change before it is made, and sync the journal to disk."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._open.append((number, run, change))
            self._write({"number": number, "run": run, "change": change})

    def undo_all(self, run: str) -> list[str]:
        """Undo all changes of a run, newest first; return a line per failure."""
        with self._lock:
            own = [entry for entry in self._open if entry[1] == run]
        failed = []
        for entry in reversed(own):
            number, _, change = entry
            try:
                self._undo(change)
            except Exception as error:
                # The change stays in the journal, and the next start of the service tries again.
                failed.append(f"{change['kind']}: {error}")
                continue
            with self._lock:
                self._open.remove(entry)
                self._write({"number": number, "undone": True})
                if not self._open:
                    os.ftruncate(self._descriptor, 0)
        return failed

    def _write(self, values: Mapping[str, object]) -> None:
        os.write(self._descriptor, (json.dumps(values) + "\n").encode())
        os.fdatasync(self._descriptor)
