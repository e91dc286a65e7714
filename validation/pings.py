"""Print how well paths that are rebuilt from fewer pings give back the results of senders.

The paths are LeoCC's packet times and delays, and 12 ms pings of Starlink. They are thinned to
coarser pings, and rebuilt from those in several ways.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tomli_w
import typer

import skyhop
from skyhop.analysis.access_profile import fitted_profile
from skyhop.analysis.portrait_grid import find_grid
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.telemetry.measured_link import read_measured_link
from validation import pages, rebuilt_paths
from validation.flows import first_flow
from validation.rebuilt_paths import IMPORTER, WAYS, Curve, Pings
from validation.reference import required

SENDERS = {"cubic": "CUBIC", "bbr": "BBR", "bbr3": "BBRv3", "copa": "Copa", "vivace": "Vivace"}
RATE_BPS = 100e6
RUN_S = 100
DELAY_STEP_NS = 10_000_000
"""Time between two of LeoCC's delays."""
OFFSETS_S = (0, 8, 16)
"""Times of LeoCC's trace, which is 120 s long, at which the runs begin."""
LEOCC_MS = (12, 100, 1000)
PARTS_S = (200, 310)
"""Part of each of Victoria's logs that the runs use."""
EVERY_NTH = (10, 83)
FITTED_FROM_MS = 100
"""Least interval of pings to which a profile is fitted; finer ones take long, and need none."""
PROFILE = "profile fitted to them"
PROFILE_TEXTS = dict.fromkeys(("description", "source", "licence", "date"), "thinned pings")


@dataclass(frozen=True)
class Case:
    """Path of a run: the original, or one that was rebuilt from pings.

    Attributes:
        trace: name of the measurement.
        pings: interval of the pings; "" for the original.
        way: way in which the path was rebuilt.
        path: table `path` of the scenario.
        rtt_ns: mean round trip of the path, if it is not that of the run's summary.
        queue_bytes: size of the queue, one BDP of the original.
    """

    trace: str
    pings: str
    way: str
    path: Mapping[str, Any]
    rtt_ns: float | None
    queue_bytes: int
    seed: int = 1


@dataclass(frozen=True)
class Result:
    """Means of a sender's runs over one kind of path."""

    goodput_mbps: float
    inflation: float

    @property
    def text(self) -> str:
        """Cell of the original's row."""
        return f"{self.goodput_mbps:.1f} Mbit/s, {self.inflation:.2f}"

    def errors(self, original: Result) -> tuple[float, float]:
        """Return the relative errors of goodput and of delay inflation."""
        return (
            self.goodput_mbps / original.goodput_mbps - 1,
            self.inflation / original.inflation - 1,
        )


def main(jobs: Annotated[int, typer.Option(help="Runs at the same time.")] = 2) -> None:
    """Run the senders and print the table."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        print(HEAD)
        print(table(executor))


HEAD = pages.table(["path", "pings", "rebuilt", *SENDERS.values(), "mean error"], [])


def table(executor: Executor) -> str:
    """Return the table's rows: the original, then every interval of pings and way."""
    with tempfile.TemporaryDirectory() as place:
        cases = [*leocc_cases(Path(place)), *victoria_cases(Path(place))]
        runs = [(case, cc) for cc in SENDERS for case in cases]
        found = list(executor.map(simulate, runs, chunksize=4))
    results: dict[tuple[str, str, str, str], list[Result]] = {}
    for (case, cc), result in zip(runs, found, strict=True):
        results.setdefault((case.trace, case.pings, case.way, cc), []).append(result)
    means = {key: _mean(values) for key, values in results.items()}
    kinds = dict.fromkeys((case.trace, case.pings, case.way) for case in cases)
    return "\n".join(_row(kind, means) for kind in kinds)


def simulate(run: tuple[Case, str]) -> Result:
    """Simulate one sender over a path."""
    case, cc = run
    flow = first_flow(
        {
            "path": dict(case.path),
            "link": {"rate": f"{RATE_BPS / 1e6:g} Mbit/s", "queue": f"{case.queue_bytes} B"},
            "flow": [{"cc": cc}],
            "run": {"duration": f"{RUN_S} s", "seed": case.seed},
        }
    )
    rtt_us = flow["base_rtt_mean_us"] if case.rtt_ns is None else case.rtt_ns / 1e3
    return Result(flow["goodput_bps"] / 1e6, flow["srtt_mean_us"] / rtt_us)


def _mean(results: Sequence[Result]) -> Result:
    goodputs = [result.goodput_mbps for result in results]
    return Result(float(np.mean(goodputs)), float(np.mean([one.inflation for one in results])))


def _row(kind: tuple[str, str, str], means: Mapping[tuple[str, str, str, str], Result]) -> str:
    trace, pings, way = kind
    ours = [means[(*kind, cc)] for cc in SENDERS]
    if not pings:
        return pages.row(trace, "", "original", *(result.text for result in ours), None)
    originals = [means[trace, "", "original", cc] for cc in SENDERS]
    errors = [one.errors(original) for one, original in zip(ours, originals, strict=True)]
    cells = [f"{100 * goodput:+.0f} %, {100 * delay:+.0f} %" for goodput, delay in errors]
    goodput, delay = 100 * np.abs(errors).mean(axis=0)
    return pages.row(trace, pings, way, *cells, f"{goodput:.0f} %, {delay:.0f} %")


# --- LeoCC's trace ---


def leocc_cases(place: Path) -> Iterator[Case]:
    """Write LeoCC's path and those rebuilt from its pings; return the cases of all runs."""
    curves, end_ns = leocc_curves()
    original = place / "leocc.parquet"
    rebuilt_paths.write_path(curves, end_ns, original)
    queue_bytes = _bdp_bytes(original)
    yield from _trace_cases("", "original", original, queue_bytes)
    for interval_ms in LEOCC_MS:
        interval, stem = f"{interval_ms} ms", place / f"leocc-{interval_ms}"
        pings = probed(curves, end_ns, interval_ms * 1_000_000)
        for way, file in _rebuilt(pings, end_ns, stem):
            yield from _trace_cases(interval, way, file, queue_bytes)
        if interval_ms >= FITTED_FROM_MS:
            path = {"kind": "access", "profile": str(_fit(pings, stem.with_suffix(".csv")))}
            for seed, _ in enumerate(OFFSETS_S, 1):
                yield Case("LeoCC", interval, PROFILE, path, None, queue_bytes, seed)


def _trace_cases(interval: str, way: str, file: Path, queue_bytes: int) -> Iterator[Case]:
    rtt_ns = rebuilt_paths.mean_rtt_ns(skyhop.read_path(file), RUN_S * 10**9)
    for offset_s in OFFSETS_S:
        path = {"kind": "trace", "file": str(file), "offset": f"{offset_s} s"}
        yield Case("LeoCC", interval, way, path, rtt_ns, queue_bytes)


def leocc_curves() -> tuple[tuple[Curve, Curve], int]:
    """Return the delays of LeoCC's trace there and back, and its end in ns.

    Packets that are sent while the trace delivers nothing arrive when it delivers again.
    """
    delays = str(required("throughput/leocc_delay_example.txt"))
    log = required("throughput/leocc_bw_example.txt.gz")
    frames = skyhop.import_path(log, "leocc", delay_file=delays).frames
    return with_holes(frames["delay_ns"].to_numpy() * 1.0, frames["rate_bps"].to_numpy() == 0)


def with_holes(delay_ns: FloatArray, is_hole: BoolArray) -> tuple[tuple[Curve, Curve], int]:
    """Return the curves of delays in steps of 10 ms, of which some are holes, and their end."""
    begins_ns = DELAY_STEP_NS * np.arange(len(delay_ns), dtype=np.float64)
    ends_ns = begins_ns + DELAY_STEP_NS
    # The step at which packets of each step leave: itself, or the first after the hole.
    steps = np.where(is_hole, len(delay_ns) - 1, np.arange(len(delay_ns)))
    leaves = np.minimum.accumulate(steps[::-1])[::-1]
    waits_ns = np.where(is_hole, begins_ns[leaves] - begins_ns, 0.0)
    first_ns = waits_ns + delay_ns[leaves]
    last_ns = first_ns - np.where(is_hole, DELAY_STEP_NS, 0)
    times_ns = np.ravel(np.column_stack([begins_ns, ends_ns]))
    there = times_ns, np.ravel(np.column_stack([first_ns, last_ns]))
    return (there, (times_ns, np.repeat(delay_ns, 2))), int(ends_ns[-1])


def probed(curves: tuple[Curve, Curve], end_ns: int, interval_ns: int) -> Pings:
    """Return pings over delays there and back, which stay in order."""
    sent_ns = np.arange(0, end_ns - 10**9, interval_ns, dtype=np.float64)
    turns_ns = np.maximum.accumulate(sent_ns + np.interp(sent_ns, *curves[0]))
    answered_ns = np.maximum.accumulate(turns_ns + np.interp(turns_ns, *curves[1]))
    return Pings(sent_ns, answered_ns - sent_ns)


# --- Victoria's pings ---


def victoria_cases(place: Path) -> Iterator[Case]:
    """Write the paths of Victoria's pings and of every n-th of them; return the cases of all runs.

    The original is the importer's path of all pings.
    """
    end_ns = (PARTS_S[1] - PARTS_S[0]) * 10**9
    for number in (1, 2, 3):
        log = victoria(number)
        part = log.between(*(edge * 1e9 for edge in PARTS_S))
        original = place / f"victoria-{number}.parquet"
        rebuilt_paths.import_pings(part, original)
        queue_bytes = _bdp_bytes(original)
        yield _case("", "original", original, queue_bytes)
        for nth in EVERY_NTH:
            interval = f"{12 * nth} ms"
            stem = place / f"victoria-{number}-{nth}"
            for way, file in _rebuilt(part.each(nth), end_ns, stem):
                yield _case(interval, way, file, queue_bytes)
            path = {"kind": "access", "profile": str(_fit(log.each(nth), stem.with_suffix(".csv")))}
            yield Case("Victoria", interval, PROFILE, path, None, queue_bytes)


def victoria(number: int) -> Pings:
    """Return the pings of one of Victoria's logs."""
    lines = gzip.decompress(required(f"rtt/victoria_{number}.csv.gz").read_bytes()).decode()
    rows = [line.split(",") for line in lines.split()]
    answered_ns = np.array([int(answered) for answered, _ in rows])
    rtt_ns = np.array([round(float(rtt_ms) * 1e6) for _, rtt_ms in rows])
    order = np.argsort(answered_ns - rtt_ns, kind="stable")
    sent_ns = (answered_ns - rtt_ns)[order]
    return Pings((sent_ns - sent_ns[0]) * 1.0, rtt_ns[order] * 1.0)


def _case(interval: str, way: str, file: Path, queue_bytes: int) -> Case:
    rtt_ns = rebuilt_paths.mean_rtt_ns(skyhop.read_path(file), RUN_S * 10**9)
    path = {"kind": "trace", "file": str(file)}
    return Case("Victoria", interval, way, path, rtt_ns, queue_bytes)


# --- both ---


def _rebuilt(pings: Pings, end_ns: int, stem: Path) -> Iterator[tuple[str, Path]]:
    """Rebuild a path from pings in every way; return the ways and the files."""
    file = stem.with_name(f"{stem.name}-importer.parquet")
    rebuilt_paths.import_pings(pings, file)
    yield IMPORTER, file
    for number, (way, curves_of) in enumerate(WAYS.items()):
        file = stem.with_name(f"{stem.name}-{number}.parquet")
        rebuilt_paths.write_path(curves_of(pings), end_ns, file, pings.outages_ns())
        yield way, file


def _fit(pings: Pings, log: Path) -> Path:
    """Write the access profile that is fitted to pings; return its file."""
    pings.write_log(log)
    link = read_measured_link(log)
    profile = log.with_suffix(".toml")
    fitted = {**PROFILE_TEXTS, **fitted_profile([(link, find_grid(link, None))])}
    profile.write_text(tomli_w.dumps(fitted), "utf-8")
    return profile


def _bdp_bytes(file: Path) -> int:
    rtt_ns = rebuilt_paths.mean_rtt_ns(skyhop.read_path(file), RUN_S * 10**9)
    return round(RATE_BPS / 8 * rtt_ns / 1e9)
