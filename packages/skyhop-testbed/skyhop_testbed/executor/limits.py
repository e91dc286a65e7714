"""Resource usage of a run, and the limits that it has exceeded."""

from __future__ import annotations

import os
from pathlib import Path

from skyhop_testbed.executor.assignment import Limits
from skyhop_testbed.executor.traffic import Traffic
from skyhop_testbed.words import Reason

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512
"""Bytes per unit of `st_blocks` (stat(2))."""
LEAST_ROOM_BYTES = 50_000_000
"""Free space on the node's disk below which a run is stopped."""


def size_of(directory: Path) -> tuple[int, int]:
    """Return the disk usage of a directory in bytes, and its number of files."""
    total = files = 0
    waiting = [str(directory)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
            except OSError:
                continue
            files += 1
    return total, files


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of processes in bytes, excluding shared pages."""
    total = 0
    for pid in pids:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except (OSError, ValueError):
            continue
        total += (int(resident) - int(shared)) * _PAGE
    return total


def killed_for_memory() -> int:
    """Return the number of the kernel's OOM kills since boot (`oom_kill` in /proc/vmstat).

    Kills caused by a container's memory limit count too.
    """
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def exceeded(
    limits: Limits, work: Path, pids: list[int], moved: Traffic, data_cap: int | None
) -> tuple[Reason, str] | None:
    """Return reason and message of the first exceeded limit; `None` if no limit is exceeded."""
    if data_cap is not None and moved.bytes > data_cap:
        return Reason.DATA_CAP, f"moved {moved.bytes:,} bytes of {data_cap:,}"
    size, files = size_of(work)
    room = os.statvfs(work)
    memory = resident_bytes(pids)
    for reason, what, taken, most in (
        (Reason.DISK, "bytes written", size, limits.disk_bytes),
        (Reason.DISK, "files made", files, limits.files),
        (Reason.MEMORY, "bytes of memory", memory, limits.memory_bytes),
        (Reason.PROCESSES, "processes", len(pids), limits.processes),
    ):
        if taken > most:
            return reason, f"{taken:,} {what}, of {most:,}"
    if room.f_bavail * room.f_frsize < LEAST_ROOM_BYTES:
        return Reason.DISK, "the node's disk is full"
    return None
