"""Digest of a study's metrics, which stays the same when the study file gets new kinds or keys.

Rows of finished runs are stored under this digest. So its content keeps the form of the first
version of the study file, in which every metric had the same keys.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from skyhop.study.metric_kinds import MetricBase

_FIRST_KEYS: Mapping[str, Any] = {
    "name": "", "kind": "", "title": None, "unit": "", "value": None, "series": "goodput",
    "stat": "mean", "bin": None, "from_": None, "until": None, "after": "end", "window": "5 s",
    "period": "15 s", "offset": "12 s",
}  # fmt: skip
"""Keys of the first version, with the values that they have for kinds without the key."""
_LATER_KEYS = (
    "within", "ddof", "pool", "over", "flow", "flows", "against", "least", "truncate", "bytes",
    "after_bytes", "cut", "skip", "rise", "above", "upto", "of", "to", "by", "segment", "hops",
    "method", "edge", "largest", "clock", "share", "origin",
)  # fmt: skip
"""Keys of later versions in the order of the digest, which leaves out those with defaults.

A new key of a metric is a new last element of this tuple.
"""


def metrics_digest(layout: int, metrics: Iterable[MetricBase]) -> str:
    """Return the hash of metrics and of the version of the rows' layout."""
    content = [layout, *map(_digest_content, metrics)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]


def _digest_content(metric: MetricBase) -> dict[str, Any]:
    given, changed = metric.model_dump(mode="json"), metric.model_dump(exclude_defaults=True)
    first = {key: given.get(key, default) for key, default in _FIRST_KEYS.items()}
    later = sorted(changed.keys() - first.keys(), key=_LATER_KEYS.index)
    return first | {key: given[key] for key in later}
