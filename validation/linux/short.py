"""Comparison of durations of short transfers and short answers in Linux and in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

import skyhop
from validation.linux import recorded
from validation.linux.scenarios import Scenario, scenario, verdict
from validation.pages import percent, row

TOLERANCE = 0.05
ANSWERS = 100
LONG_ENOUGH_S = 120
REQUEST, RESPONSE = "300 B", "20 kB"
SHORT, RPC = "short-cubic-50m-40ms-1bdp", "rpc-cubic-50m-40ms-1bdp"


Runner = Callable[[Scenario], skyhop.Run]
"""Function that runs a scenario in one of the engines."""


def transfer(linux: Scenario, size_bytes: int, engine: Runner = skyhop.sim) -> dict[str, float]:
    """Return the times of a transfer over a new connection, in s since connect()."""
    sent = _run(linux, {"bytes": f"{size_bytes} B"}, engine)
    # Run the same transfer again with the shortest possible response, one byte.
    app: dict[str, object] = {
        "kind": "request-response",
        "request": f"{size_bytes} B",
        "response": "1 B",
    }
    answered = _run(linux, {"app": app | {"per_connection": 1, "requests": 1}}, engine)
    request = answered.apps["requests"].row(0, named=True)
    return {
        "connect_s": request["connect_ns"] / 1e9,
        "received_s": float(sent.summary["flows"][0]["completion_s"]),
        "replied_s": request["latency_ns"] / 1e9,
    }


def answers(linux: Scenario, gap_s: str, engine: Runner = skyhop.sim) -> list[float]:
    """Return the latency of each answer in s, excluding the handshake."""
    app: dict[str, object] = {"kind": "request-response", "request": REQUEST, "response": RESPONSE}
    app |= {"think": f"{gap_s} s", "requests": ANSWERS}
    # The client is at the far end of the path, so that its answers cross the bottleneck.
    run = _run(linux, {"from": "to", "app": app}, engine)
    rows = run.apps["requests"].to_dicts()
    return [(row["latency_ns"] - (row["connect_ns"] or 0)) / 1e9 for row in rows]


def _run(linux: Scenario, flow: dict[str, Any], engine: Runner) -> skyhop.Run:
    one = {"cc": linux["cc"], "start_s": 0, "seconds": LONG_ENOUGH_S}
    text = scenario("", {**linux, "flows": [one]})
    return engine({**text, "flow": [{"cc": linux["cc"], **flow}]})


def measured(engine: Runner) -> dict[str, Any]:
    """Measure short transfers and short answers in an engine, in the format of tests/linux."""
    results = recorded.short()
    short, rpc = results[SHORT], results[RPC]
    sizes = sorted({row["bytes"] for row in short["connections"]})
    fresh = [{"bytes": size, **transfer(short, size, engine)} for size in sizes]
    # Readers of tests/linux skip the first connection, which waited for ARP there; so add one.
    results[SHORT] = {**short, "connections": [fresh[0], *fresh]}
    by_gap = {gap_s: answers(rpc, gap_s, engine) for gap_s in rpc["response_s_by_gap_s"]}
    results[RPC] = {**rpc, "response_s_by_gap_s": by_gap}
    return results


def table(executor: Executor) -> str:
    """Return the table rows: transfers by size, and answers by the gap before them."""
    short, rpc = (recorded.short()[name] for name in (SHORT, RPC))
    sizes = sorted({row["bytes"] for row in short["connections"]})
    transfers = [executor.submit(transfer, short, size) for size in sizes]
    gaps = rpc["response_s_by_gap_s"]
    asked = [executor.submit(answers, rpc, gap_s) for gap_s in gaps]
    lines = []
    for size, times in zip(sizes, transfers, strict=True):
        # The very first connection waited for ARP, so it is left out.
        linux = [one for one in short["connections"][1:] if one["bytes"] == size]
        for key, ours_s in times.result().items():
            linux_s = float(np.median([one[key] for one in linux]))
            what = "connected" if key == "connect_s" else key.removesuffix("_s")
            lines.append(_line(f"{size / 1000:,.0f} kB {what}", linux_s, ours_s))
    for (gap_s, recorded_s), run in zip(gaps.items(), asked, strict=True):
        for share in (50, 95):
            both_s = (float(np.percentile(found, share)) for found in (recorded_s, run.result()))
            lines.append(_line(f"answers {gap_s} s after the last, p{share}", *both_s))
    return "\n".join(lines)


def _line(what: str, linux_s: float, ours_s: float) -> str:
    apart = ours_s / linux_s - 1
    within = verdict(what, within=abs(apart) <= TOLERANCE)
    return row(what, f"{1e3 * linux_s:.2f}", f"{1e3 * ours_s:.2f}", percent(apart), within)
