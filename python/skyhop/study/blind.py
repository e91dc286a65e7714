"""How well the handover grid is found from a run's probe alone."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from skyhop import _core
from skyhop.plot.records import ProbeSeries, RunRecord
from skyhop.quantities import seconds


def grid_error_ms(record: RunRecord, period: str, offset_s: float) -> float | None:
    """Return how far the estimated grid is from the true one, None where none is found.

    Args:
        record: a run with a probe; its first one is taken for what a user would have logged.
        period: the time between handovers, such as "15 s".
        offset_s: a moment of the true grid, in seconds of UTC.
    """
    if not record.probes or record.path is None:
        return None
    start = datetime.fromisoformat(str(record.path.header["start"]))
    probe = record.probes[min(record.probes)]
    with TemporaryDirectory(prefix="skyhop-") as directory:
        log = Path(directory) / "probe.csv"
        log.write_text(_log(probe, round(start.timestamp() * 1e9)), "utf-8")
        found = _core.estimate_blindly(str(log), "csv", period)
    if found.offset_s is None:
        return None
    period_s = seconds(period)
    apart_s = (found.offset_s - offset_s) % period_s
    return 1e3 * min(apart_s, period_s - apart_s)


def _log(probe: ProbeSeries, start_unix_ns: int) -> str:
    """Return what `ping -D` would have logged: when each answer came, and its round trip in ms."""
    answered = np.isfinite(probe.rtt_ms)
    sent_ns = np.round(probe.t_s[answered] * 1e9).astype(np.int64)
    rtt_ms = probe.rtt_ms[answered]
    arrived_ns = start_unix_ns + sent_ns + np.round(rtt_ms * 1e6).astype(np.int64)
    rows = (f"{at},{rtt:.6f}" for at, rtt in zip(arrived_ns.tolist(), rtt_ms.tolist(), strict=True))
    return "\n".join(["unix_ns,rtt_ms", *rows]) + "\n"
