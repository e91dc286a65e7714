"""Round trips between all pairs of sites under handover policies, as rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from skyhop.data.pairs import AllPairs

_HOUR_NS = 3600e9


def pair_rows(pairs: AllPairs, policy: str, names: list[str]) -> list[dict[str, Any]]:
    """Return one row per pair, with units in the names of the keys; unknown values are None.

    Args:
        pairs: routes between all pairs of sites.
        policy: the handover policy with which they were computed.
        names: names of the sites for readers, in the order of the sites.
    """
    length_ns = float(pairs.times_ns[-1] - pairs.times_ns[0])
    rows = []
    for place, (one, other) in enumerate(pairs.pairs):
        delays_ns = pairs.delays_ns[:, place]
        rtt_ms = 2 * delays_ns[delays_ns > 0] / 1e6
        per_hour = [
            round(count * _HOUR_NS / length_ns, 3) if length_ns else None
            for count in pairs.handovers[place].tolist()
        ]
        rows.append(
            {
                "policy": policy,
                "from": names[one],
                "to": names[other],
                "rtt_min_ms": _rounded(rtt_ms.min()) if len(rtt_ms) else None,
                "rtt_median_ms": _rounded(np.median(rtt_ms)) if len(rtt_ms) else None,
                "rtt_max_ms": _rounded(rtt_ms.max()) if len(rtt_ms) else None,
                "without_route": round(float((delays_ns == 0).mean()), 6),
                "handovers_per_hour_from": per_hour[0],
                "handovers_per_hour_to": per_hour[1],
            }
        )
    return rows


def policy_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per policy: means over all pairs of `pair_rows`."""
    found = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        ends = [row[f"handovers_per_hour_{end}"] for row in own for end in ("from", "to")]
        found.append(
            {
                "policy": policy,
                "pairs": len(own),
                "rtt_median_ms": _mean([row["rtt_median_ms"] for row in own]),
                "without_route": _mean([row["without_route"] for row in own]),
                "handovers_per_hour": _mean(ends),
            }
        )
    return found


def _rounded(value: float) -> float:
    return round(float(value), 6)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
