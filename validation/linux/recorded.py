"""Reader of results of Linux's TCP: recorded in tests/linux (see its README), or newer."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation import ROOT

FOLDER = ROOT / "tests" / "linux"
"""Folder from which results are read: the recorded ones, until `use` selects another folder."""
GENERATED = ROOT / "runs" / "linux"
"""Results of `linux guests`: one folder per kernel, by the kernel's name."""
DISCIPLINES = "disciplines.json"
"""Generated results with several starts of the second flow; tests/linux has no such file."""
TRACES = FOLDER / "traces.json"
"""Results of live runs, which are not measured in guests."""
INTERVAL_S = 0.1


@dataclass(frozen=True)
class Series:
    """TCP_INFO samples of a flow every 100 ms, the first of them 100 ms after the flow's start."""

    t_s: list[float]
    cwnd_packets: list[int]
    srtt_us: list[int]
    retransmits: list[int]


PACKET_BYTES = 1514
"""Size of a full packet in bytes, with its Ethernet header."""


def use(folder: Path) -> None:
    """Select the folder from which all later results are read."""
    global FOLDER  # noqa: PLW0603 - a program decides this once, before it reads
    FOLDER = folder


def summary(folder: Path | None = None) -> dict[str, Any]:
    """Return the parameters of every scenario and the results of its flows."""
    return _read("summary.json", folder)


def our_link(scenario: Mapping[str, Any]) -> tuple[float, int]:
    """Return RTT (us) and queue (bytes) with which skyhop's link equals Linux's token bucket.

    Skyhop's link serialises packets. The token bucket sends the first packet on an idle link at
    once, and the packet that waits for tokens still occupies its FIFO.
    """
    rtt_us = 2 * scenario["one_way_us"] - PACKET_BYTES * 8000 / scenario["rate_kbps"]
    waiting_bytes = 0 if "aqm" in scenario else PACKET_BYTES
    return rtt_us, scenario["queue_bytes"] - waiting_bytes


def draws() -> dict[str, Any]:
    """Return the random scenarios, each with the flows of several draws."""
    return _read("draws.json")


def short() -> dict[str, Any]:
    """Return the durations of short transfers and of short answers."""
    return _read("short.json")


def disciplines() -> dict[str, Any]:
    """Return the runs over queue disciplines, by scenario: flows and marks of each run.

    Generated results have one run per start of the second flow, the recorded results a single run.
    """
    if (FOLDER / DISCIPLINES).exists():
        return _read(DISCIPLINES)
    return {name: [linux] for name, linux in summary().items() if "aqm" in linux}


def traces() -> dict[str, Any]:
    """Return a kernel's runs over paths that reorder, stall or slow down, with their scenarios."""
    return _read("traces.json", TRACES.parent)


def series(name: str, flow: int) -> Series:
    """Return the samples of a flow in a scenario."""
    file = FOLDER / "series" / f"{name}.flow{flow}.csv"
    rows = list(csv.DictReader(file.read_text("utf-8").splitlines()))
    return Series(
        [round(INTERVAL_S * (1 + index), 1) for index in range(len(rows))],
        [int(row["cwnd_packets"]) for row in rows],
        [int(row["srtt_us"]) for row in rows],
        [int(row["retransmits"] or 0) for row in rows],
    )


def _read(name: str, folder: Path | None = None) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(((folder or FOLDER) / name).read_text("utf-8"))
    return read
