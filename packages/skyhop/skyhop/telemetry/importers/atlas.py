"""Results of a ping measurement of RIPE Atlas, as JSON: an array, or one result per line."""

from __future__ import annotations

from skyhop.telemetry.importers.input_file import round_trip_importer

FORMAT = round_trip_importer(
    "atlas", "RIPE Atlas: results of a ping measurement, as JSON", basis="documentation"
)
