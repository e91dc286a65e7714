"""Published file of a run, on the orchestrator's disk or in its bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from skyhop.errors import InputError
from skyhop_testbed.orchestrator.bucket import Bucket
from skyhop_testbed.orchestrator.request_context import NotFoundError


@dataclass(frozen=True)
class StoredFile:
    """Published file of a run."""

    path: Path
    """Path on the orchestrator's disk, where the file is unless it has moved to the bucket."""
    size: int
    sha256: str
    key: str | None = None
    """Key of the object in the bucket; `None` if only the disk has the file."""
    bucket: Bucket | None = None

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        """Open the file for reading, on the disk if it is there.

        Raises:
            NotFoundError: the file has been deleted, or the bucket is not configured any more.
        """
        if not self.path.is_symlink():
            try:
                return self.path.open(mode)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise NotFoundError(f"{self.path.name}: {error.strerror}") from None
        if self.key is None:
            raise NotFoundError(f"{self.path.name}: the file has been deleted")
        if self.bucket is None:
            raise NotFoundError(f"{self.path.name}: is in a bucket that is not configured any more")
        return self.bucket.open(self.key, self.size)

    def local_path(self) -> Path:
        """Return the path on disk, for programs that need one.

        Raises:
            NotFoundError: the file has been deleted.
            InputError: only the bucket has the file.
        """
        if self.path.is_file() and not self.path.is_symlink():
            return self.path
        if self.key is None:
            raise NotFoundError(f"{self.path.name}: the file has been deleted")
        raise InputError(
            f"{self.path.name} has moved to the testbed's bucket: download it, or use skyhop "
            "testbed fetch"
        )
