"""What a program prints: kept up to a size, and read on beyond it so that the program goes on."""

from __future__ import annotations

import os
from pathlib import Path

_PIECE_BYTES = 1 << 18


class Output:
    """One of a program's streams, into a file.

    Attributes:
        bytes: how many the program wrote.
        kept: how many of them stand in the file.
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
        """Return the descriptor to wait for."""
        return self._reads

    def close_writing(self) -> None:
        """Leave the writing end to the program."""
        os.close(self.writes)

    def read(self) -> bool:
        """Take what is there now; return whether more may come."""
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
                self._most = self.kept  # No room on the disk: what is there stays.
        return bool(piece)

    def close(self) -> None:
        """Read what is left in the pipe, and close."""
        while self._unread():
            pass
        os.close(self._reads)
        os.close(self._file)

    def _unread(self) -> bool:
        before = self.bytes
        return self.read() and self.bytes > before
