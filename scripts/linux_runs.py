"""What Linux's TCP did: tests/linux, whose README says how it was asked."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "linux"
"""Recorded once."""
ANEW = ROOT / "runs" / "linux"
"""Made anew: a folder for each kernel, by its name (scripts/linux_anew.py)."""
DISCIPLINES = "disciplines.json"
"""There: what disciplines did with several starts of the second flow, not in tests/linux."""
TRACES = FOLDER / "traces.json"
"""Of live runs; no guest makes them."""
INTERVAL_S = 0.1


@dataclass(frozen=True)
class Series:
    """TCP_INFO of a flow every 100 ms, the first 100 ms after its start."""

    t_s: list[float]
    cwnd_packets: list[int]
    srtt_us: list[int]
    retransmits: list[int]


PACKET_BYTES = 1514
"""A full packet with its Ethernet header."""


def use(folder: Path) -> None:
    """Have all that follows read what was made anew."""
    global FOLDER  # noqa: PLW0603 - a program decides this once, before it reads
    FOLDER = folder


def summary(folder: Path | None = None) -> dict[str, Any]:
    """Return every scenario with its terms and what its flows came to."""
    return _read("summary.json", folder)


def our_link(scenario: Mapping[str, Any]) -> tuple[float, int]:
    """Return the round trip in us and the queue in bytes of a link that sends packet after packet.

    Linux's token bucket lets the first packet of an idle link pass at once, and has the one that it
    waits for in its FIFO still.
    """
    rtt_us = 2 * scenario["one_way_us"] - PACKET_BYTES * 8000 / scenario["rate_kbps"]
    waits = 0 if "aqm" in scenario else PACKET_BYTES
    return rtt_us, scenario["queue_bytes"] - waits


def draws() -> dict[str, Any]:
    """Return scenarios that hang on chance with the flows of several draws."""
    return _read("draws.json")


def short() -> dict[str, Any]:
    """Return what short connections and short answers took."""
    return _read("short.json")


def disciplines() -> dict[str, Any]:
    """Return what each discipline did with several starts, or else in the one run of the summary.

    By scenario a list of flows and marks.
    """
    if (FOLDER / DISCIPLINES).exists():
        return _read(DISCIPLINES)
    return {name: [linux] for name, linux in summary().items() if "aqm" in linux}


def traces() -> dict[str, Any]:
    """Return what a kernel did on paths that misbehave, with the scenarios."""
    return _read("traces.json", TRACES.parent)


def series_file(name: str, flow: int) -> Path:
    """Return where the samples of a scenario's flow lie."""
    return FOLDER / "series" / f"{name}.flow{flow}.csv"


def series(name: str, flow: int) -> Series:
    """Return the samples of a scenario's flow."""
    with series_file(name, flow).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return Series(
        [round(INTERVAL_S * (1 + index), 1) for index in range(len(rows))],
        [int(row["cwnd_packets"]) for row in rows],
        [int(row["srtt_us"]) for row in rows],
        [int(row["retransmits"] or 0) for row in rows],
    )


def _read(name: str, folder: Path | None = None) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(((folder or FOLDER) / name).read_text("utf-8"))
    return read
