"""Report timing errors of handover announcements that are predicted from element sets.

SaTCP, section V-B: the older of two snapshots predicts the position of each satellite, and the
newer snapshot gives the actual position. The report timing error is the time in which the
satellite's coverage moves by the distance between the two. If the whole distance lay along the
track, a handover would be announced too early or too late by this time. The paper uses this upper
bound.
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
"""Quantile of the errors that SaTCP uses as T_err: 90 % of the errors do not exceed it."""

SHARES = (0.1, 0.25, 0.5, 0.75, T_ERR_SHARE, 0.95, 0.99, 1.0)
"""Quantiles that the table shows."""

_SHOWN_SHARE = 0.98

_STEP_S = 1
"""Time in s between the two positions from which a satellite's speed is computed."""
_HOUR_NS = 3.6e12


@dataclass(frozen=True)
class ReportTiming:
    """Report timing errors of the satellites that two snapshots have in common.

    Satellites with the same element set in both snapshots are left out, as they have no error.
    """

    at: str
    """Time (UTC) for which positions are predicted."""
    catalogue_numbers: list[int]
    errors_s: FloatArray
    """Report timing error of each satellite in s, shape (n,)."""
    position_errors_m: FloatArray
    """Distance between predicted and actual position of each satellite in m, shape (n,)."""
    age_h: float
    """Median age of the older element sets at `at`, in hours."""
    newer_by_h: float
    """Median time between a satellite's older and newer element set, in hours."""
    left_out: int
    """Number of satellites that were left out because their error exceeds `up_to_s`."""

    def quantile_s(self, share: float) -> float:
        """Return the error in s that this share of the satellites does not exceed."""
        return float(np.quantile(self.errors_s, share))

    @property
    def t_err_s(self) -> float:
        """SaTCP's T_err: the 90th percentile of the errors, rounded up to a tenth of a second."""
        return math.ceil(round(self.quantile_s(T_ERR_SHARE) * 10, 6)) / 10


@dataclass(frozen=True)
class TimingView:
    """View model of the errors' ECDF, as in SaTCP's Figure 4."""

    title: str
    errors_s: FloatArray
    """Errors in s in ascending order, shape (n,)."""
    shares: FloatArray
    """Share of satellites at or below each error, shape (n,)."""
    marked: Mapping[str, tuple[float, float]]
    """Marked points by their labels: error (s) and share."""
    t_err_s: float
    right_s: float
    """End of the axis in s; larger errors are of satellites that manoeuvre."""


def timing_view(found: ReportTiming) -> TimingView:
    """Return the ECDF of the errors, with the median and T_err marked."""
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
        at: time for which positions are predicted, such as "2021-11-22T10:57:50Z"; by default the
            median epoch of the newer element sets.
        up_to_s: leave out satellites with larger errors, because they manoeuvre.

    Raises:
        InputError: a file has no element sets; the snapshots have no satellite in common or are in
            the wrong order; or `at` is not a time.
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
    numbers = np.array(after.satellites["catalogue_number"].to_list())[newer]
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
    """Return the ids, in each snapshot, of the satellites whose element set in `after` is newer."""
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
    numbers = of.satellites["catalogue_number"].to_list()
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
