"""Comparison of film playback in virtual time and in a browser, over fixed paths, same controller.

The command prints the table, and replaces its section in docs/results/validation.md.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import skyhop
from skyhop import _core
from skyhop.cli.terminal import print_note
from skyhop.data.toml import toml_text
from skyhop.engines import Observer
from skyhop.errors import RunError
from skyhop.video import playing
from skyhop_lab.browser.watching import WatchOptions, check_programs, watch
from validation import pages
from validation.pages import yes_or_no
from validation.this_kernel import ATTEMPTS, PAYLOAD_SHARE, punctual

CONTROLLER = "robust-mpc"
BITRATE_TOLERANCE = 0.05
STALL_TOLERANCE_S = 1.0


@dataclass(frozen=True)
class FixedPath:
    """Fixed path, and the film that is played over it."""

    rate_mbps: int
    rtt_ms: int
    ladder_kbps: tuple[int, ...]
    chunks: int
    chunk_s: int = 2

    def __str__(self) -> str:
        return f"{self.rate_mbps} Mbit/s, {self.rtt_ms} ms"

    def scenario(self) -> dict[str, Any]:
        """Return the scenario of the path, which is the same in both directions."""
        return {
            "path": {"kind": "fixed", "rtt": f"{self.rtt_ms} ms"},
            "link": {"rate": f"{self.rate_mbps} Mbit/s", "queue": "2 BDP"},
            "run": {"duration": "3 min"},
        }

    def write_film(self, place: Path) -> str:
        """Write the film into a directory; return the path of its file."""
        tracks = [{"bitrate": f"{kbps} kbit/s"} for kbps in self.ladder_kbps]
        content = {
            "description": "for a comparison", "source": "made up", "chunk": f"{self.chunk_s} s",
            "chunks": self.chunks, "track": tracks,
        }  # fmt: skip
        (place / "film.toml").write_text(toml_text(content), "utf-8")
        return str(place / "film.toml")


PATHS = (
    # The lowest track's bitrate exceeds the rate: playback stalls at every chunk.
    FixedPath(1, 100, (1200, 2400), 12),
    FixedPath(6, 40, (300, 750, 1200, 1850, 2850, 4300, 6450), 18),
    FixedPath(20, 60, (1000, 2400, 4800, 9600, 14400), 18),
)


@dataclass(frozen=True)
class Outcome:
    """Metrics of one session that the table compares."""

    bitrate_mbps: float
    stall_s: float
    switches: int
    startup_s: float

    @staticmethod
    def of(summary: dict[str, Any]) -> Outcome:
        """Extract the metrics from an application in summary.json, or from a row of sessions."""
        return Outcome(
            summary["mean_bitrate_bps"] / 1e6,
            summary["stall_ns"] / 1e9,
            round(summary["switches"]),
            summary["startup_ns"] / 1e9,
        )


def over_tcp(path: FixedPath, film: str) -> Outcome:
    """Play the film over the simulator's TCP."""
    app = {"kind": "dash", "film": film, "controller": CONTROLLER, "start_track": 0}
    run = skyhop.sim({**path.scenario(), "flow": [{"app": app}]}, observer=Observer())
    return Outcome.of(run.summary["apps"][0])


def over_rate(path: FixedPath, film: str) -> Outcome:
    """Play the film at the path's rate alone, without TCP."""
    options = playing.PlaybackOptions(
        film,
        playing={"start_track": 0, "wait_step": "0 s"},
        environment={"payload_share": PAYLOAD_SHARE, "delay": f"{path.rtt_ms} ms"},
    )
    trace = _core.RateTrace(str(path), [0.0], [path.rate_mbps * 1e6], 3600.0)
    return Outcome.of(playing.play(trace, CONTROLLER, options).sessions.row(0, named=True))


def in_browser(path: FixedPath, film: str, attempts: int = ATTEMPTS) -> tuple[Outcome, bool]:
    """Play the film in Chromium over a live run; also return whether all attempts were late."""
    options = WatchOptions(film, None, CONTROLLER)
    run, was_late = punctual(
        lambda: watch(path.scenario(), None, options, observer=Observer(), is_quiet=True), attempts
    )
    return Outcome.of(run.summary["apps"][0]), was_late


def is_within(one: Outcome, other: Outcome) -> bool:
    """Return whether two sessions differ by at most the tolerances."""
    return (
        abs(one.bitrate_mbps / other.bitrate_mbps - 1) <= BITRATE_TOLERANCE
        and abs(one.stall_s - other.stall_s) <= STALL_TOLERANCE_S
    )


HEAD = (
    "path", "played", "bitrate (Mbit/s)", "differs by", "stalled (s)", "differs by (s)",
    "switches", "start-up (s)", "within",
)  # fmt: skip


def table(attempts: int = ATTEMPTS) -> str:
    """Return the table; without the needed programs, one line that names the missing one."""
    try:
        check_programs()
    except RunError as error:
        return f"Left out: {error}."
    rows = []
    for path in PATHS:
        with tempfile.TemporaryDirectory(prefix="skyhop-film-") as place:
            film = path.write_film(Path(place))
            print_note(f"a film in a browser: {path}")
            seen, was_late = in_browser(path, film, attempts)
            ways = {"over TCP": over_tcp(path, film), "over the rate": over_rate(path, film)}
        how = "in Chromium, late" if was_late else "in Chromium"
        rows.append([path, how, *_figures(seen, None), ""])
        for name, ours in ways.items():
            rows.append(["", name, *_figures(ours, seen), yes_or_no(is_within(ours, seen))])
    return pages.table(HEAD, rows)


def _figures(ours: Outcome, browser: Outcome | None) -> list[str]:
    bitrate, stall = "", ""
    if browser is not None:
        bitrate = pages.percent(ours.bitrate_mbps / browser.bitrate_mbps - 1)
        stall = f"{ours.stall_s - browser.stall_s:+.2f}"
    stalled = [f"{ours.stall_s:.2f}", stall, str(ours.switches), f"{ours.startup_s:.2f}"]
    return [f"{ours.bitrate_mbps:.2f}", bitrate, *stalled]


def main(
    attempts: Annotated[int, typer.Option(help="Attempts at live runs that are late.")] = ATTEMPTS,
) -> None:
    """Print the table and replace its section in the page."""
    from validation.validate import write

    made = table(attempts)
    print(made)
    write({"films": lambda: made}, ["A film in virtual time"])
