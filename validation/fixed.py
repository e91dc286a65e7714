"""Scenario of flows over a fixed path, which most measurements use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def over_fixed_path(
    rate: str, rtt: str, duration: str, *flows: Mapping[str, Any], **link: str
) -> dict[str, Any]:
    """Return a scenario of flows over a fixed path; `link` has further keys of its link."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": {"rate": rate, **link},
        "flow": list(flows),
        "run": {"duration": duration},
    }
