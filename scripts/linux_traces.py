"""What this machine's kernel does where paths misbehave; writes tests/linux/traces.json."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import linux_runs

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.errors import SkyhopError

FILE = linux_runs.FOLDER / "traces.json"
KEPT = ("goodput_bps", "srtt_mean_us", "retransmits", "cwnd_mean_packets")
LATEST_US = 1000
"""A run whose packets left later than this at the 99th percentile is made again."""
ATTEMPTS = 5


def scenario(
    link: dict[str, Any], rtt: str, seconds: int, *changes: dict[str, str]
) -> dict[str, Any]:
    """Return one CUBIC flow over a fixed path that changes."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": link,
        "change": list(changes),
        "flow": [{"cc": "cubic"}],
        "run": {"duration": f"{seconds} s"},
    }


def by_turns(rtts: tuple[str, str]) -> list[dict[str, str]]:
    """Return changes of the round trip every 5 s."""
    return [{"at": f"{5 * (1 + k)} s", "rtt": rtts[k % 2]} for k in range(7)]


QUEUE_OF_A_BDP = {"rate": "20 Mbit/s", "queue": "1 BDP"}
SCENARIOS = {
    # What leaves after the path became shorter overtakes: less than RACK waits for, and more.
    "reordering": scenario(QUEUE_OF_A_BDP, "100 ms", 40, *by_turns(("84 ms", "100 ms"))),
    "dsack": scenario(QUEUE_OF_A_BDP, "100 ms", 40, *by_turns(("20 ms", "100 ms"))),
    # Longer than the timeout, and nothing is lost.
    "spurious-timeout": scenario(
        {"rate": "20 Mbit/s", "queue": "200 ms"}, "20 ms", 40, *by_turns(("1500 ms", "20 ms"))
    ),
    "ack-bottleneck": scenario(
        {
            "rate": "50 Mbit/s",
            "queue": "1 BDP",
            "back": {"rate": "300 kbit/s", "queue": "50 packets"},
        },
        "40 ms",
        30,
    ),
    "outage-of-10-minutes": scenario(
        QUEUE_OF_A_BDP, "100 ms", 800, {"at": "5 s", "outage": "600 s"}
    ),
}


def take(name: str) -> dict[str, Any]:
    """Return what a live run over this path came to."""
    for _ in range(ATTEMPTS):
        run = skyhop.live(SCENARIOS[name])
        late_us = run.summary["lateness_us"]["p99"]
        if late_us <= LATEST_US:
            break
        print_note(f"traces: {name} was {late_us:.0f} us late, again")
    table = run.flows.to_pydict()
    # The mean of a second is enough to see what happened when.
    cwnd = [round(value) for value in table["cwnd_packets"]]
    seconds = [
        round(sum(cwnd[k : k + 10]) / len(cwnd[k : k + 10])) for k in range(0, len(cwnd), 10)
    ]
    flow = run.summary["flows"][0]
    return {**{key: flow[key] for key in KEPT}, "lateness_p99_us": late_us, "cwnd_by_s": seconds}


def main() -> int:
    """Take the traces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SCENARIOS)}; or all")
    parser.add_argument("--runs", type=int, default=3, help="of each (default 3)")
    arguments = parser.parse_args()
    traces = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    try:
        for name in arguments.names or SCENARIOS:
            print_note(f"traces: {name}")
            runs = [take(name) for _ in range(arguments.runs)]
            kernel = platform.release().split("-")[0]
            traces[name] = {"kernel": kernel, "scenario": SCENARIOS[name], "runs": runs}
    except SkyhopError as error:
        print_note(f"traces: {error}")
        return 1
    lines = (f"{json.dumps(name)}: {json.dumps(trace)}" for name, trace in traces.items())
    Path(FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
