"""Output of a program: kept up to a limit, and drained beyond it.

Without draining, a program with much output would block.
"""

from __future__ import annotations

import os
from pathlib import Path

_PIECE_BYTES = 1 << 18


class Output:
    """Pipe from one of a program's output streams into a file.

    Attributes:
        bytes: number of bytes that the program wrote.
        kept: number of bytes in the file.
    """

    def __init__(self, file: Path, most_bytes: int) -> None:
        self._reads, self.writes = os.pipe()
        os.set_blocking(self._reads, False)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(file, flags, 0o644)
        self._most = most_bytes
        self.bytes = 0
        self.kept = 0

    def fileno(self) -> int:
        """Return the descriptor of the pipe's reading end."""
        return self._reads

    def close_writing(self) -> None:
        """Close the executor's copy of the writing end; the program has its own."""
        os.close(self.writes)

    def read(self) -> bool:
        """Read the bytes in the pipe; return whether more may follow."""
        try:
            piece = os.read(self._reads, _PIECE_BYTES)
        except BlockingIOError:
            return True
        self.bytes += len(piece)
        room = self._most - self.kept
        if room > 0 and piece:
            try:
                self.kept += os.write(self._file, piece[:room])
            except OSError:
                self._most = self.kept  # The disk is full: write no more.
        return bool(piece)

    def close(self) -> None:
        """Read the rest of the pipe, and close both descriptors."""
        while self._unread():
            pass
        os.close(self._reads)
        os.close(self._file)

    def _unread(self) -> bool:
        before = self.bytes
        return self.read() and self.bytes > before
