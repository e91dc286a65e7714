"""Output of ping with times, such as LENS' raw files and LEOViz' latency files."""

from __future__ import annotations

from skyhop.telemetry.importers.input_file import round_trip_importer

FORMAT = round_trip_importer(
    "ping",
    "output of ping with times (ping -D, fping -D, ts): LENS' raw files, LEOViz' latency files",
)
