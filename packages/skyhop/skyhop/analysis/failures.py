"""Cost of failed satellites and gateways: round trips and availability with and without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.mesh import Ground, Mesh, MeshAt, ground
from skyhop.data.places import Place


@dataclass(frozen=True)
class Cost:
    """Round trips of n pairs of places at k times: over the whole, and without what failed."""

    pairs: Sequence[tuple[str, str]]
    """Names of the two places of each pair; the second one is "gateways" for all gateways."""
    whole_ms: FloatArray
    """Round trips with everything in ms, (times, pairs), NaN without a route."""
    without_ms: FloatArray
    """Round trips without what failed, as `whole_ms`."""
    failed_satellites: int
    failed_gateways: Sequence[str]


def cost_of(
    mesh: Mesh,
    sites: Sequence[Place],
    times_s: Sequence[float],
    failed: BoolArray,
    gateways: tuple[Sequence[Place], BoolArray] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Cost:
    """Return what failed satellites and gateways cost on the shortest routes.

    Args:
        mesh: the satellites.
        sites: the places between which routes run; with `gateways`, at which they begin.
        times_s: times at which routes are computed, in s.
        failed: which satellites fail, shape (satellites,).
        gateways: the gateways to the nearest of which routes run, and which of them fail; None for
            routes between all pairs of sites.
        progress: callback (times done, all times).
    """
    begins = ground(sites)
    ends, ends_left = None, None
    if gateways is not None:
        left = [place for place, fails in zip(*gateways, strict=True) if not fails]
        ends, ends_left = ground(gateways[0]), ground(left)
    whole, without = [], []
    for row, at_s in enumerate(times_s):
        whole.append(_pairs_ms(mesh.at(at_s), begins, ends))
        without.append(_pairs_ms(mesh.at(at_s, failed), begins, ends_left))
        if progress is not None:
            progress(row + 1, len(times_s))
    names = [site.name for site in sites]
    pairs = (
        [(name, "gateways") for name in names]
        if gateways is not None
        else list(combinations(names, 2))
    )
    lost = [] if gateways is None else [g.name for g, f in zip(*gateways, strict=True) if f]
    return Cost(pairs, np.array(whole), np.array(without), int(failed.sum()), lost)


def _pairs_ms(now: MeshAt, sites: Ground, gateways: Ground | None) -> FloatArray:
    """Return the round trips in ms at one time, by pair; NaN without a route."""
    up_s = now.up_s(sites)
    if gateways is not None:
        begins_s = now.up_s(gateways).min(axis=0, keepdims=True, initial=np.inf)
        delays_s = (up_s + now.from_all_s(begins_s)).min(axis=1)
    else:
        onward_s = now.from_all_s(up_s)
        rows = combinations(range(len(up_s)), 2)
        delays_s = np.array([(up_s[other] + onward_s[one]).min() for one, other in rows])
    return np.asarray(np.where(np.isfinite(delays_s), 2e3 * delays_s, np.nan))


def cost_rows(cost: Cost) -> list[dict[str, Any]]:
    """Return one row per pair, those that lose most first; unknown values are None."""
    rows: list[dict[str, Any]] = []
    for place, (one, other) in enumerate(cost.pairs):
        whole, without = cost.whole_ms[:, place], cost.without_ms[:, place]
        both = np.isfinite(whole) & np.isfinite(without)
        rows.append(
            {
                "from": one,
                "to": other,
                "rtt_median_ms": _median(whole),
                "rtt_median_without_ms": _median(without),
                "rtt_added_mean_ms": _mean((without - whole)[both]),
                "availability": float(np.isfinite(whole).mean()),
                "availability_without": float(np.isfinite(without).mean()),
            }
        )
    rows.sort(
        key=lambda row: (
            row["availability_without"] - row["availability"], -(row["rtt_added_mean_ms"] or 0.0),
        )
    )  # fmt: skip
    return rows


def cost_summary(cost: Cost) -> list[dict[str, Any]]:
    """Return the values over all pairs: one row for the whole, one without, and the difference."""
    cases = [_over_pairs(cost.whole_ms), _over_pairs(cost.without_ms)]
    change = {
        key: None if None in (cases[0][key], cases[1][key]) else cases[1][key] - cases[0][key]
        for key in cases[0]
    }
    names = ("whole", "without", "difference")
    return [{"case": n, **values} for n, values in zip(names, [*cases, change], strict=True)]


def _over_pairs(rtt_ms: FloatArray) -> dict[str, Any]:
    has_route = np.isfinite(rtt_ms)
    known = rtt_ms[has_route]
    return {
        "rtt_mean_ms": _mean(known),
        "rtt_median_ms": _median(known),
        "rtt_p95_ms": float(np.quantile(known, 0.95)) if len(known) else None,
        "availability_percent": 100 * float(has_route.mean()),
        "pairs_always": int(has_route.all(axis=0).sum()),
        "pairs_sometimes": int((has_route.any(axis=0) & ~has_route.all(axis=0)).sum()),
        "pairs_never": int((~has_route.any(axis=0)).sum()),
    }


def _median(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None
