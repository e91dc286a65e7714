"""Cost of failed satellites, sites and gateways: round trips and availability with and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.site_routes import SiteRoutes

GATEWAYS = "gateways"
"""Name of the end of routes to the nearest gateway."""


@dataclass(frozen=True)
class Cost:
    """Round trips of n pairs of places at k times: over the whole, and without what failed."""

    pairs: Sequence[tuple[str, str]]
    """Names of the two places of each pair; the second one is "gateways" for all gateways."""
    whole_ms: FloatArray
    """Round trips with everything in ms, (times, pairs), NaN without a route."""
    without_ms: FloatArray
    """Round trips without what failed, as `whole_ms`."""


def cost_of(names: Sequence[str], whole: SiteRoutes, without: SiteRoutes) -> Cost:
    """Return what failures cost.

    Args:
        names: names of the sites.
        whole: routes with everything, between all pairs of the sites (each site is an end), or to
            one end, the gateways.
        without: the same routes without what failed.
    """
    if whole.delays_s.shape[1] == 1:
        pairs = [(name, GATEWAYS) for name in names]
        from_, to = list(range(len(names))), [0] * len(names)
    else:
        pairs = list(combinations(names, 2))
        from_, to = (list(ends) for ends in zip(*combinations(range(len(names)), 2), strict=True))
    whole_ms, without_ms = (2e3 * routes.delays_s[:, to, from_] for routes in (whole, without))
    return Cost(pairs, whole_ms, without_ms)


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
