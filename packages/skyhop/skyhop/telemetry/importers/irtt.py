"""Output of `irtt client -o FILE`: every round trip of one or several measurements, as JSON."""

from __future__ import annotations

from skyhop.telemetry.importers.input_file import round_trip_importer

FORMAT = round_trip_importer(
    "irtt",
    "irtt: output of a client (irtt client -o FILE)",
    lambda source: source.log_format == "irtt" and '"round_trips"' in source.text,
)
