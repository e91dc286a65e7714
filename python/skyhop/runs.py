"""Runs: what an engine measured, read from a run directory."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop import _core
from skyhop.errors import InputError

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import pyarrow as pa


class Run:
    """One finished run.

    Tables are pyarrow tables whose columns carry their units; `polars.from_arrow(run.flows)` or
    `run.flows.to_pandas()` turn them into frames.
    """

    def __init__(
        self, directory: str | os.PathLike[str], keep: TemporaryDirectory[str] | None = None
    ) -> None:
        self.directory = Path(directory)
        # Holding it keeps a directory that nobody asked for until the run is forgotten.
        self._keep = keep
        if not (self.directory / "summary.json").is_file():
            raise InputError(f"{self.directory}: not a run directory (no summary.json in it)")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        return self._json("summary.json")

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of run.json: scenario, seed, version, engine, kernel, timing."""
        return self._json("run.json")

    @cached_property
    def flows(self) -> pa.Table:
        """One row per TCP flow and sample."""
        return self._table("flows.parquet")

    @cached_property
    def link(self) -> pa.Table:
        """One row per direction and sample: backlog and drops."""
        return self._table("link.parquet")

    @cached_property
    def events(self) -> pa.Table:
        """Handovers, changes and losses, one row each."""
        return self._table("events.parquet")

    @cached_property
    def probes(self) -> pa.Table:
        """One row per probe packet."""
        return self._table("probes.parquet")

    @cached_property
    def apps(self) -> dict[str, pa.Table]:
        """By name, those of `_core.APP_TABLES` that the run has: one row per transaction."""
        return {
            name: self._table(f"{name}.parquet")
            for name in _core.APP_TABLES
            if (self.directory / f"{name}.parquet").exists()
        }

    def _json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.directory / name).read_text("utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.directory / name}: missing") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.directory / name}: cannot read as JSON: {error}") from error
        version = content.get("schema", 0) if isinstance(content, dict) else 0
        if version > _core.RUN_SCHEMA:
            raise InputError(
                f"{self.directory / name}: version {version}, but this skyhop reads up to "
                f"{_core.RUN_SCHEMA}; update skyhop"
            )
        return content

    def _table(self, name: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # Not read_table: its threads may outlive the interpreter, which then aborts.
            with pq.ParquetFile(self.directory / name) as file:
                return file.read()
        except FileNotFoundError:
            raise InputError(f"{self.directory / name}: missing") from None
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.directory / name}: cannot read: {error}") from error

    def __repr__(self) -> str:
        return f"<skyhop.Run {self.directory} ({self.summary['engine']})>"


def read_run(directory: str | os.PathLike[str]) -> Run:
    """Return the run in `directory`.

    Raises:
        InputError: it is not a run directory.
    """
    return Run(directory)
