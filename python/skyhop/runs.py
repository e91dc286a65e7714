"""Runs: what an engine measured, read from a run directory.

What draws a run stands above this module, and is reached by the package's own names.
"""

from __future__ import annotations

import json
import math
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import skyhop
from skyhop import _core, tables
from skyhop.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


class Run:
    """One finished run.

    Tables are pyarrow tables whose columns carry their units; `polars.from_arrow(run.flows)` or
    `run.flows.to_pandas()` turn them into frames. Times are ns since the run's start; a value that
    is not known is null.

    Attributes:
        directory: where it is.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: object = None,
        *,
        force_size: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self._force_size = force_size
        # Holding it keeps a directory that nobody asked for until the run is forgotten.
        self._keep = keep
        if not (self.directory / "summary.json").is_file():
            raise InputError(f"{self.directory}: not a run directory (no summary.json in it)")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json: `flows`, `link`, `handovers`, `apps`, `warnings`, …."""
        return self._json("summary.json")

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of run.json: scenario, seed, version, engine, kernel, timing."""
        return self._json("run.json")

    @cached_property
    def flows(self) -> pa.Table:
        """One row per TCP flow and sample: `t_ns`, `flow` (its id), and what was so then.

        `goodput_bps` is that of the time since the sample before; `cwnd_packets`,
        `inflight_packets` and `ssthresh_packets` count packets of the flow's MSS, `srtt_us` is in
        microseconds; `retransmits` and `marks` count packets since the sample before;
        `marks` is null where links do not say whose packets they mark.
        """
        return self._table("flows.parquet")

    @cached_property
    def link(self) -> pa.Table:
        """One row per link, direction and sample: `t_ns`, `link`, `direction`, `backlog_bytes`.

        `drops_queue`, `drops_loss`, … and `marks` count packets since the sample before.
        """
        return self._table("link.parquet")

    @cached_property
    def events(self) -> pa.Table:
        """Handovers, changes, announcements, phases and losses, one row each.

        `t_ns`, `kind`, how long the path is down from then on (`outage_ns`), and whose it is.
        """
        return self._table("events.parquet")

    @cached_property
    def probes(self) -> pa.Table:
        """One row per probe packet: `probe` (its flow's id), `seq`, `t_ns` (when it was sent).

        `rtt_ns` is null for a lost one; `scheduled_rtt_ns` is what the path alone would have taken.
        """
        return self._table("probes.parquet")

    @cached_property
    def apps(self) -> dict[str, pa.Table]:
        """By name, the tables of applications that the run has: one row per transaction.

        `flow`, `t_ns` (when it was due), `latency_ns` (from then until it was done, null where it
        failed), …. `calls` has one row per window of time and direction.
        """
        return {
            name: self._table(f"{name}.parquet")
            for name in _core.APP_TABLES
            if (self.directory / f"{name}.parquet").exists()
        }

    @cached_property
    def path(self) -> skyhop.Path | None:
        """The path that it went over; None where the directory holds no copy of it."""
        file = self.directory / "path.parquet"
        return skyhop.read_path(file, force_size=self.is_large) if file.exists() else None

    @property
    def is_large(self) -> bool:
        """Whether it may take more memory than is usual, as its reader or its scenario says."""
        if self._force_size:
            return True
        scenario = self.info.get("scenario")
        section = scenario.get("run") if isinstance(scenario, dict) else None
        return isinstance(section, dict) and section.get("force_size") is True

    def plot(self, output: str | os.PathLike[str] | None = None) -> skyhop.figures.Sheet:
        """Draw what each flow, its application, the probes and the link did over time.

        Args:
            output: a PNG, SVG or PDF file to write the figure to, where one is wanted.

        Returns:
            A matplotlib figure, which a notebook shows.

        Raises:
            InputError: a table is missing or damaged, or `output` is not the name of such a file.
            RunError: `output` cannot be written.
        """
        figure = skyhop.figures.run_figure(self.directory)
        if output is not None:
            skyhop.figures.save(figure, os.fspath(output))
        return figure

    def _json(self, name: str) -> dict[str, Any]:
        try:
            text = (self.directory / name).read_text("utf-8")
            content: dict[str, Any] = json.loads(text, parse_constant=_refuse, parse_float=_finite)
            # Halves of letters, which JSON can write and nothing can print.
            json.dumps(content, ensure_ascii=False).encode()
        except FileNotFoundError:
            raise InputError(f"{self.directory / name}: missing") from None
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{self.directory / name}: cannot read as JSON: {error}") from error
        version = content.get("schema", 0) if isinstance(content, dict) else 0
        if not isinstance(version, int):
            raise InputError(f"{self.directory / name}: `schema` should be a whole number")
        if version > _core.RUN_SCHEMA:
            raise InputError(
                f"{self.directory / name}: version {version}, but this skyhop reads up to "
                f"{_core.RUN_SCHEMA}; update skyhop"
            )
        return content

    def _table(self, name: str) -> pa.Table:
        import pyarrow as pa

        most = None if self.is_large else tables.MOST_BYTES
        file = self.directory / name
        try:
            return tables.read_table(file, _core.RUN_COLUMNS[Path(name).stem], most)
        except FileNotFoundError:
            raise InputError(f"{file}: missing") from None
        except tables.TooLargeError as error:
            raise InputError(
                f"{file}: {error}: read them in pieces (polars.scan_parquet), or say --force-size"
            ) from None
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(f"{file}: cannot read: {error}") from error

    def _repr_html_(self) -> str:
        return skyhop.report.run_html(self)

    def __repr__(self) -> str:
        return f"<skyhop.Run {self.directory} ({self.summary['engine']})>"


def _refuse(word: str) -> float:
    """Refuse NaN and Infinity, which are none of JSON's."""
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    """Return the number, which JSON may write as large as it likes."""
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def read_run(directory: str | os.PathLike[str], *, force_size: bool = False) -> Run:
    """Return the run in `directory`.

    Args:
        directory: where it is.
        force_size: read its tables even if one takes more than a gigabyte of memory.

    Raises:
        InputError: it is not a run directory.
    """
    return Run(directory, force_size=force_size)
