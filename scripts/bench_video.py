"""Benchmark of adaptive video: number of sessions over a rate trace per minute."""

from __future__ import annotations

import random
import time

from bench_previous import previous
from skyhop import _core
from skyhop.cli.terminal import print_rows

TRACE_S = 3600
SESSIONS = {"robust-mpc": 6_000, "bola": 20_000, "mpc-o": 1_000}


def _trace() -> _core.RateTrace:
    """Return an hour of random rates around the film's bitrates, one per second."""
    draws = random.Random(1)
    rates_bps = [draws.gammavariate(4.0, 0.6e6) for _ in range(TRACE_S)]
    return _core.RateTrace(
        "bench", [float(second) for second in range(TRACE_S)], rates_bps, TRACE_S
    )


def video_row(controller: str, sessions: int) -> dict[str, object]:
    """Measure sessions that play Pensieve's film, on all cores."""
    film, trace = _core.Film.read("pensieve"), _trace()
    offsets_s = [TRACE_S * number / sessions for number in range(sessions)]
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    _core.play_over_rate(
        film, controller, "pensieve-linear", trace, offsets_s, list(range(sessions))
    )
    took_s, cpu_s = time.monotonic() - started_s, time.process_time() - started_cpu_s
    return {
        "controller": controller,
        "sessions": sessions,
        "sessions per minute": round(60 * sessions / took_s),
        "before": previous("video", controller, "sessions_per_minute"),
        "of CPU": round(60 * sessions / cpu_s),
    }


def bench_video() -> None:
    """Print the rows of some controllers."""
    rows = [video_row(controller, sessions) for controller, sessions in SESSIONS.items()]
    print_rows(rows, as_json=False, title="sessions of 48 chunks over a rate trace, all cores")
