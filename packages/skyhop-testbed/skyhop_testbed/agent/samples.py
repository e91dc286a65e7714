"""`python -m skyhop_testbed.agent.samples STORE NODE FROM_NS TO_NS FILE`: write a run's telemetry.

With a further argument `without-traffic`, the file does not contain the traffic of the node's
owner. It is a separate process, so that the agent does not load polars.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from skyhop.errors import SkyhopError
from skyhop_testbed.privacy import OWNERS_TRAFFIC

WITHOUT_TRAFFIC = "without-traffic"
"""Last argument of the command, for files that other users than the node's owner read."""
NONE: frozenset[str] = frozenset()


def write_samples(  # noqa: PLR0917 (one for each argument of the command)
    store: Path, node: str, from_ns: int, to_ns: int, file: Path, hidden: frozenset[str] = NONE
) -> None:
    """Write a node's samples of a time range into a Parquet file, without all-null columns.

    Args:
        store: directory of the node's telemetry.
        node: name of the node.
        from_ns: start of the time range.
        to_ns: end of the time range.
        file: the Parquet file.
        hidden: fields that the file does not contain.

    Raises:
        InputError: there are no samples, or a file of the store is damaged.
        RunError: the file cannot be written.
    """
    from skyhop.data.files import write_file
    from skyhop.telemetry.store import Store

    frame = Store(store).read([node], None, from_ns, to_ns).drop("node")
    shown = [name for name in frame.columns if name not in hidden]
    known = [name for name in shown if frame[name].null_count() < frame.height]
    sink = io.BytesIO()
    frame.select(known or ["time_ns"]).write_parquet(sink, compression="zstd")
    write_file(file, sink.getvalue())


def main(arguments: list[str]) -> None:
    """Write the samples that the arguments name."""
    store, node, from_ns, to_ns, file, *options = arguments
    hidden = OWNERS_TRAFFIC if WITHOUT_TRAFFIC in options else NONE
    write_samples(Path(store), node, int(from_ns), int(to_ns), Path(file), hidden)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SkyhopError as error:
        sys.exit(str(error))
