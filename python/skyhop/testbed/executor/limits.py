"""What a run takes, and which limit it has passed."""

from __future__ import annotations

import os
from pathlib import Path

from skyhop.testbed.executor.assignment import Limits
from skyhop.testbed.executor.traffic import Moved
from skyhop.testbed.words import Reason

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512
"""What `st_blocks` counts in (stat(2))."""
LEAST_ROOM_BYTES = 50_000_000
"""What a run leaves free on the node's disk."""
MOST_FILES = 100_000


def size_of(directory: Path) -> tuple[int, int]:
    """Return how many bytes of the disk a directory takes, and how many files it has."""
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
    """Return what processes have in memory, files that they share left out."""
    total = 0
    for pid in pids:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except (OSError, ValueError):
            continue
        total += (int(resident) - int(shared)) * _PAGE
    return total


def killed_for_memory() -> int:
    """Return how many processes the kernel has killed for want of memory, since it started.

    Those that had passed the limit of their container are among them.
    """
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def passed(
    limits: Limits, work: Path, pids: list[int], moved: Moved, data_cap: int | None
) -> tuple[Reason, str] | None:
    """Return why a run has to end, and what to say of it; `None` while it keeps within limits."""
    if data_cap is not None and moved.bytes > data_cap:
        return Reason.DATA_CAP, f"moved {moved.bytes:,} bytes of {data_cap:,}"
    size, files = size_of(work)
    room = os.statvfs(work)
    memory = resident_bytes(pids)
    for reason, what, taken, most in (
        (Reason.DISK, "bytes written", size, limits.disk_bytes),
        (Reason.DISK, "files made", files, MOST_FILES),
        (Reason.MEMORY, "bytes of memory", memory, limits.memory_bytes),
        (Reason.PROCESSES, "processes", len(pids), limits.processes),
    ):
        if taken > most:
            return reason, f"{taken:,} {what}, of {most:,}"
    if room.f_bavail * room.f_frsize < LEAST_ROOM_BYTES:
        return Reason.DISK, "the node's disk is full"
    return None
