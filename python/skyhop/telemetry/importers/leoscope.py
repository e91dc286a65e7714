"""LEOScope: a run's grpc.csv, the terminal's status at 1 Hz.

Its executor writes the head and then the rows of starlink-grpc-tools' `dish_grpc_text.py status -t
1` (class TerminalGrpcDataCsv of its common/utils.py), of whatever version the image held.
"""

from __future__ import annotations

from skyhop.telemetry.importers import grpc_tools
from skyhop.telemetry.importers.source import Importer

FORMAT = Importer(
    "leoscope",
    "LEOScope: a run's grpc.csv",
    lambda source: grpc_tools.CLOCK in source.columns and source.file.name == "grpc.csv",
    grpc_tools.samples,
    basis="code",
)
