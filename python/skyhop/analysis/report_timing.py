"""How wrong predictions from element sets are: two snapshots of one fleet compared.

SaTCP, section V-B: the older elements predict where each satellite is, the newer ones say where it
was. The time in which a satellite's coverage moves over the distance between the two is its report
timing error: by so much too early or too late would a handover be announced, if all of the distance
lay along the track. That is the upper bound which the paper takes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from skyhop.analysis.binning import ecdf
from skyhop.data.arrays import FloatArray
from skyhop.data.constellations import Constellation, constellation
from skyhop.errors import InputError

T_ERR_SHARE = 0.9
"""SaTCP takes as T_err what nine in ten predictions do not exceed."""

SHARES = (0.1, 0.25, 0.5, 0.75, T_ERR_SHARE, 0.95, 0.99, 1.0)
"""The quantiles that are worth a table."""

_SHOWN_SHARE = 0.98

_STEP_S = 1
"""Between the two moments that a speed is taken from."""
_HOUR_NS = 3.6e12


@dataclass(frozen=True)
class ReportTiming:
    """The report timing errors of the satellites that two snapshots have in common.

    Satellites whose element set is the same in both say nothing and are not among them.
    """

    at: str
    """The moment of UTC for which satellites are predicted."""
    catalogue_numbers: list[int]
    errors_s: FloatArray
    """Seconds, per satellite."""
    position_errors_m: FloatArray
    """How far off each satellite is."""
    age_h: float
    """How old the older sets are at `at`, in hours (median)."""
    newer_by_h: float
    """By how much a satellite's newer set is younger than its older one, in hours (median)."""
    left_out: int
    """Satellites that are further off than was asked for."""

    def quantile_s(self, share: float) -> float:
        """Return the error that this share of the satellites does not exceed, in seconds."""
        return float(np.quantile(self.errors_s, share))

    @property
    def t_err_s(self) -> float:
        """SaTCP's T_err: the 90 % point, rounded up to a tenth of a second."""
        return math.ceil(round(self.quantile_s(T_ERR_SHARE) * 10, 6)) / 10


@dataclass(frozen=True)
class TimingView:
    """The figure of report timing errors: their eCDF, as in SaTCP's Figure 4."""

    title: str
    errors_s: FloatArray
    """Sorted, shape (n,)."""
    shares: FloatArray
    """Of the satellites at or below each, shape (n,)."""
    marked: Mapping[str, tuple[float, float]]
    """Points of it by their labels: error and share."""
    t_err_s: float
    right_s: float
    """What lies further right belongs to satellites that manoeuvre."""


def timing_view(found: ReportTiming) -> TimingView:
    """Return the share of satellites at or below each error, with the median and T_err marked."""
    right_s = max(found.quantile_s(_SHOWN_SHARE), 1.4 * found.t_err_s)
    names = {"median": 0.5, f"{T_ERR_SHARE:.0%}".replace("%", " %"): T_ERR_SHARE}
    points = {name: (found.quantile_s(share), share) for name, share in names.items()}
    return TimingView(
        _title(found, int((found.errors_s > right_s).sum())),
        *ecdf(found.errors_s),
        marked={f"{name}: {point[0]:.3g} s": point for name, point in points.items()},
        t_err_s=found.t_err_s,
        right_s=right_s,
    )


def report_timing(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    at: str | None = None,
    up_to_s: float = math.inf,
) -> ReportTiming:
    """Compare two snapshots of element sets.

    Args:
        old: the older file, TLE or OMM, plain or gzipped.
        new: the newer file.
        at: for when satellites are predicted, such as "2021-11-22T10:57:50Z"; the median epoch of
            the newer sets where nothing is said.
        up_to_s: leave satellites out that are further off: they manoeuvre, which nobody foretells.

    Raises:
        InputError: a file is no element sets, the snapshots have nothing in common or are in the
            wrong order, the moment cannot be read.
    """
    before, after = constellation(os.fspath(old)), constellation(os.fspath(new))
    moment = after.epoch if at is None else at
    older, newer = _common(before, after, f"{os.fspath(old)}, {os.fspath(new)}")
    predicted, actual = before.positions(moment)[older], after.positions(moment)[newer]
    speeds_m_per_s = _lengths(after.positions(_later(moment))[newer] - actual) / _STEP_S
    apart_m = _lengths(predicted - actual)
    errors_s = apart_m / speeds_m_per_s
    kept = np.isfinite(errors_s) & (errors_s <= up_to_s)
    if not kept.any():
        raise InputError(f"{moment}: no satellite is that near: expected a later --up-to")
    epochs = [np.array(one.element_epochs_ns) for one in (before, after)]
    gaps_h = (epochs[1][newer] - epochs[0][older]) / _HOUR_NS
    moment_ns = datetime.fromisoformat(moment).timestamp() * 1e9
    numbers = np.array(after.satellites["catalogue_number"].to_pylist())[newer]
    return ReportTiming(
        at=moment,
        catalogue_numbers=[int(number) for number in numbers[kept]],
        errors_s=errors_s[kept],
        position_errors_m=apart_m[kept],
        age_h=float(np.median(moment_ns - epochs[0][older])) / _HOUR_NS,
        newer_by_h=float(np.median(gaps_h)),
        left_out=int((~kept).sum()),
    )


def _common(before: Constellation, after: Constellation, files: str) -> tuple[list[int], list[int]]:
    """Return the ids of the satellites that have a newer set, in either snapshot."""
    old_ids, new_ids = _ids(before), _ids(after)
    shared = [number for number in new_ids if number in old_ids]
    if not shared:
        raise InputError(f"{files}: no satellite is in both: give two snapshots of one fleet")
    old_ns, new_ns = before.element_epochs_ns, after.element_epochs_ns
    pairs = [(old_ids[number], new_ids[number]) for number in shared]
    renewed = [(old, new) for old, new in pairs if new_ns[new] > old_ns[old]]
    if 2 * len(renewed) < len(pairs):
        raise InputError(
            f"{files}: only {len(renewed)} of {len(pairs)} satellites have newer elements in the "
            "second file: give the older snapshot first, and two that are hours apart"
        )
    return [old for old, _ in renewed], [new for _, new in renewed]


def _ids(of: Constellation) -> dict[int, int]:
    numbers = of.satellites["catalogue_number"].to_pylist()
    ids = {number: id_ for id_, number in enumerate(numbers) if number is not None}
    if not ids or len(ids) != len(of.element_epochs_ns):
        raise InputError(f"{of.name}: expected a file of element sets, TLE or OMM")
    return ids


def _lengths(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(vectors, axis=1)
    return lengths


def _later(moment: str) -> str:
    return (datetime.fromisoformat(moment) + timedelta(seconds=_STEP_S)).isoformat()


def _title(found: ReportTiming, beyond: int) -> str:
    more = f"; {beyond} lie further right" if beyond else ""
    left_out = f"; {found.left_out} left out" if found.left_out else ""
    return (
        f"{len(found.errors_s)} satellites, predicted for {found.at} from elements "
        f"{found.age_h:.1f} h old{more}{left_out}"
    )
