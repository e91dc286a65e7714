"""Runs: the measurements of an engine, read from a run directory."""

from __future__ import annotations

import json
import math
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop import _core, tables, views
from skyhop.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data import paths


class Run:
    """Finished run, read from its run directory.

    Tables are polars frames whose column names end in their units. Times are ns since the run's
    start; unknown values are null.

    Attributes:
        directory: the run directory.
        force_size: whether the reader lifts the limit of memory; what the run's own scenario says
            about its size does not count, because the run may come from others.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: object = None,
        *,
        force_size: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.force_size = force_size
        # Keeps a temporary directory alive as long as the run.
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
    def flows(self) -> pl.DataFrame:
        """Samples of the TCP flows, one row per flow and sample: `t_ns`, `flow` (its id), values.

        `goodput_bps` is the mean since the previous sample. `cwnd_packets`, `inflight_packets` and
        `ssthresh_packets` count packets of the flow's MSS; `srtt_us` is in microseconds, as is
        `ack_rtt_us`, the mean RTT of the acknowledgements since the previous sample.
        `retransmits` and `marks` (ECN) count packets since the previous sample; `marks` is null if
        links do not know to which flows marked packets belong.
        """
        return self._table("flows.parquet")

    @cached_property
    def link(self) -> pl.DataFrame:
        """Samples of the links: `t_ns`, `link`, `direction`, `backlog_bytes`, ….

        The table has one row per link, direction and sample.

        `drops_queue`, `drops_loss`, … and `marks` count packets since the previous sample.
        """
        return self._table("link.parquet")

    @cached_property
    def events(self) -> pl.DataFrame:
        """Handovers, changes, announcements, phases and losses, one row each.

        Columns: `t_ns`, `kind`, `outage_ns` (time for which the path is down after the event), and
        the flow or link that the event is about.
        """
        return self._table("events.parquet")

    @cached_property
    def probes(self) -> pl.DataFrame:
        """Probe packets, one row each: `probe` (its flow's id), `seq`, `t_ns` (sending time).

        `rtt_ns` is null for a lost packet; `scheduled_rtt_ns` is the RTT of the path itself,
        without queueing.
        """
        return self._table("probes.parquet")

    @cached_property
    def routes(self) -> pl.DataFrame:
        """Routes between the sites of a network, one row for each change.

        Columns: `t_ns` (first time at which the route holds), `from`, `to`, `way` (number of the
        way of a routing that spreads flows), `satellites` (numbers joined by "-"; empty without a
        route) and `delay_ns` (one-way, without queueing; null without a route).
        """
        return self._table("routes.parquet")

    @cached_property
    def apps(self) -> dict[str, pl.DataFrame]:
        """Tables of the run's applications, by name: one row per transaction.

        Columns: `flow`, `t_ns` (due time of the transaction), `latency_ns` (from the due time to
        completion, null if it failed), …. The table `calls` has one row per time window and
        direction.
        """
        return {
            name: self._table(f"{name}.parquet")
            for name in _core.APP_TABLES
            if (self.directory / f"{name}.parquet").exists()
        }

    @cached_property
    def path(self) -> paths.Path | None:
        """Path of the run; None if the run directory has no copy of it."""
        from skyhop.data import paths

        file = self.directory / "path.parquet"
        return paths.read_path(file, force_size=self.force_size) if file.exists() else None

    def plot(self, output: str | os.PathLike[str] | None = None) -> views.Drawing:
        """Draw the flows, their applications, the probes and the link over time.

        Args:
            output: PNG, SVG or PDF file to write the figure to; by default none is written.

        Returns:
            A matplotlib figure, which a notebook shows.

        Raises:
            InputError: a table is missing or damaged, or `output` has another suffix.
            RunError: `output` cannot be written.
        """
        return views.plot(self, output=output)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            text = (self.directory / name).read_text("utf-8")
            content: dict[str, Any] = json.loads(text, parse_constant=_refuse, parse_float=_finite)
            # Refuse lone surrogates ("\ud800"), which JSON may contain and which cannot be printed.
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

    def _table(self, name: str) -> pl.DataFrame:
        most = None if self.force_size else tables.MOST_BYTES
        file = self.directory / name
        try:
            return tables.read_table(file, _core.RUN_COLUMNS[Path(name).stem], most)
        except FileNotFoundError:
            raise InputError(f"{file}: missing") from None
        except _core.TooLargeError as error:
            raise InputError(
                f"{file}: {error}: read them in pieces (polars.scan_parquet), or say --force-size"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot read: {error}") from error

    def _repr_html_(self) -> str:
        return views.html(self)

    def __repr__(self) -> str:
        return f"<skyhop.Run {self.directory} ({self.summary['engine']})>"


def _refuse(word: str) -> float:
    """Refuse NaN and Infinity, which JSON does not allow (RFC 8259, section 6)."""
    raise ValueError(f"{word} is not a number")


def _finite(text: str) -> float:
    """Return a JSON number as a float; refuse one that overflows to infinity."""
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def read_run(directory: str | os.PathLike[str], *, force_size: bool = False) -> Run:
    """Return the run in `directory`.

    Args:
        directory: the run directory.
        force_size: read the run's tables even if one takes more than a gigabyte of memory.

    Raises:
        InputError: `directory` is not a run directory.
    """
    return Run(directory, force_size=force_size)
