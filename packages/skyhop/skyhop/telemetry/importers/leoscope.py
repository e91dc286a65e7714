"""LEOScope: grpc.csv of a run, the terminal's status at 1 Hz.

LEOScope's executor writes the header line and the rows of starlink-grpc-tools' `dish_grpc_text.py
status -t 1` (class TerminalGrpcDataCsv of LEOScope's common/utils.py). The version of
starlink-grpc-tools depends on the image.
"""

from __future__ import annotations

from skyhop.telemetry.importers import grpc_tools
from skyhop.telemetry.importers.input_file import Importer

FORMAT = Importer(
    "leoscope",
    "LEOScope: a run's grpc.csv",
    lambda source: grpc_tools.CLOCK in source.columns and source.file.name == "grpc.csv",
    grpc_tools.samples,
    basis="code",
)
