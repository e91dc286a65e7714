"""`python -m skyhop_testbed.agent.samples STORE NODE FROM_NS TO_NS FILE`: write a run's telemetry.

It is a separate process, so that the agent does not load polars.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from skyhop.errors import SkyhopError


def write_samples(store: Path, node: str, from_ns: int, to_ns: int, file: Path) -> None:
    """Write a node's samples of a time range into a Parquet file, without all-null columns.

    Raises:
        InputError: there are no samples, or a file of the store is damaged.
        RunError: the file cannot be written.
    """
    from skyhop.data.files import write_file
    from skyhop.telemetry.store import Store

    frame = Store(store).read([node], None, from_ns, to_ns).drop("node")
    known = [name for name in frame.columns if frame[name].null_count() < frame.height]
    sink = io.BytesIO()
    frame.select(known or ["time_ns"]).write_parquet(sink, compression="zstd")
    write_file(file, sink.getvalue())


if __name__ == "__main__":
    try:
        write_samples(
            Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
        )
    except SkyhopError as error:
        sys.exit(str(error))
