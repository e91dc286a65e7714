"""A small network across the date line, for tests of runs over networks."""

from __future__ import annotations

from typing import Any

PACIFIC: dict[str, Any] = {
    "network": {
        "constellation": "starlink-shell1",
        "sites": ["Auckland", "Honolulu", "Suva", "Tokyo"],
        "lasers": {"rate": "20 Mbit/s", "queue": "100 packets"},
        "user_links": {
            "up": {"rate": "5 Mbit/s", "queue": "20 packets"},
            "down": {"rate": "10 Mbit/s", "queue": "100 packets"},
        },
    },
    "flow": [
        {"between": ["Auckland", "Honolulu"], "cc": "cubic", "count": 2},
        {"between": ["Suva", "Auckland"], "cc": "reno", "start": "1 s"},
        {"between": ["Auckland", "Tokyo"], "kind": "probe"},
    ],
    "run": {"duration": "2 s"},
}
"""Scenario of 2 s: two flows from Auckland to Honolulu, one from Suva after 1 s, and a probe."""
