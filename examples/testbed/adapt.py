"""Experiment that reads the signals of its node: it runs a command when a fast link is predicted.

    python3 adapt.py --above 20e6 --clear 5 -- iperf3 -c SERVER -p PORT -t 5 --json

It needs Python's standard library alone. The socket's path is in SKYHOP_SIGNAL; the lines are those
of skyhop docs signal-socket. `signals.jsonl` gets every line, `decisions.csv` one row per second.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def lines(path: str) -> Iterator[dict]:
    """Yield the lines of the socket, and connect again when the node's agent has restarted."""
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(path)
            except OSError:
                time.sleep(0.5)
                continue
            with connection.makefile(encoding="utf-8") as stream:
                for line in stream:
                    yield json.loads(line)


def main() -> int:
    """Decide each second until the command has run often enough."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--above", type=float, default=20e6, help="predicted bit/s to wait for")
    options.add_argument(
        "--clear", type=float, default=5.0, help="s without a handover to wait for"
    )
    options.add_argument("--runs", type=int, default=3, help="number of times to run the command")
    options.add_argument("command", nargs="+")
    wanted = options.parse_args()
    done, handover_ns = 0, 0
    with Path("signals.jsonl").open("w") as log, Path("decisions.csv").open("w") as table:
        print("time_ns,predicted_throughput_bps,handover_in_s,decision", file=table)
        for line in lines(os.environ["SKYHOP_SIGNAL"]):
            print(json.dumps(line), file=log, flush=True)
            if line["type"] == "handover":
                handover_ns = line["at_ns"]
            if line["type"] != "prediction":
                continue
            in_s = (handover_ns - time.monotonic_ns()) / 1e9
            predicted_bps = line["predicted_throughput_bps"] or 0.0
            # A handover that has passed says nothing about the next one.
            is_clear = in_s < 0 or in_s >= wanted.clear
            is_good = predicted_bps >= wanted.above and is_clear
            row = (line["time_ns"], predicted_bps, round(in_s, 3), "run" if is_good else "wait")
            print(*row, sep=",", file=table, flush=True)
            if is_good:
                subprocess.run(wanted.command, check=True)
                done += 1
            if done == wanted.runs:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
