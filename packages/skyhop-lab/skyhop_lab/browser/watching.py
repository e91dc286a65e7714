"""Playback of a film in a browser over a live run: encoding, run, and table of chunks."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from skyhop import _core
from skyhop.data.runs import Run
from skyhop.data.scenarios import Scenario
from skyhop.engines import Observer, Program, live
from skyhop.errors import InputError, ProgramError, RunError
from skyhop_lab.browser.clip import encoder, make_clip
from skyhop_lab.browser.film_folder import ServedFilm
from skyhop_lab.browser.table import add_film, chunk_rows
from skyhop_lab.browser.viewer import BUFFER_CAP_S, FAILED, SESSION, ViewerOptions, browser

DASH_JS = "5.2.1"
"""Version of dash.js that the installation hint names."""
_HOME = "~/.local/share/skyhop"
_BUNDLE = Path("node_modules", "dashjs", "dist", "modern", "umd", "dash.all.min.js")
_VARIABLE = "SKYHOP_DASH_JS"

OWN_RULES: dict[str, dict[str, bool]] = {
    "dash.js": {},
    "dash.js-throughput": {"throughputRule": True, "bolaRule": False},
    "dash.js-bola": {"throughputRule": False, "bolaRule": True},
}
"""Rules of dash.js's own controllers, by skyhop's names for them; the first is its DYNAMIC
strategy.
"""
_ALL_RULES = (
    "throughputRule", "bolaRule", "insufficientBufferRule", "switchHistoryRule",
    "droppedFramesRule", "abandonRequestsRule", "l2ARule", "loLPRule",
)  # fmt: skip
_MOST_LENGTHS = 4.0
"""Upper limit on a session's duration, in durations of the film."""
_START_S = 60.0
"""Additional time in s for the start of browser and server."""


@dataclass(frozen=True)
class WatchOptions:
    """Options of a film in a browser; run.json has them under `film`.

    Attributes:
        film: name of a film that comes with skyhop, or a file.
        top: bitrate of the top track to which the film is scaled; None for its own bitrates.
        controller: one of skyhop's, or one of `OWN_RULES`.
        qoe: QoE model that planning controllers optimise, and that scores the session.
        chunks: upper limit on chunks; None for the whole film.
        buffer_cap_s: capacity of the buffer; None for 60 s, or for dash.js's own if it decides.
        seed: seed of the controller.
        downloads: number of competing downloads from the same host, with CUBIC.
    """

    film: str = "pensieve"
    top: str | None = None
    controller: str = "robust-mpc"
    qoe: str = "pensieve-linear"
    chunks: int | None = None
    buffer_cap_s: float | None = None
    seed: int = 1
    downloads: int = 0


def watch(
    scenario: Scenario,
    output: str | os.PathLike[str] | None,
    options: WatchOptions,
    *,
    sets: Sequence[str] = (),
    cc: str | None = None,
    force: bool = False,
    observer: Observer | None = None,
    is_quiet: bool = False,
) -> Run:
    """Play a film in a browser at the near end of a path, from a server at the far end.

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; by default a temporary one, removed with the result.
        options: film, controller and competing downloads.
        sets: overrides, each "KEY=VALUE".
        cc: congestion control of both the server and the browser.
        force: use `output` even if it is not empty.
        observer: receives the progress of the path's computation; by default a progress bar.
        is_quiet: whether to print nothing.

    Raises:
        InputError: scenario, film or controller is wrong.
        RunError: the browser, ffmpeg or dash.js is missing, or the run failed.
    """
    film, served = _served_film(options)
    viewer_options = _viewer_options(options, served, is_quiet=is_quiet)
    # Both ends of a live run can read this machine's files.
    with tempfile.TemporaryDirectory(prefix="skyhop-film-") as place:
        folder = Path(place)
        least = min(min(sizes) for sizes in served.sizes_bytes)
        make_clip(folder, served.chunk_s, len(served.sizes_bytes), least_bytes=least)
        served.write(folder)
        viewer_options.write(folder)
        module = [sys.executable, "-m"]
        program = Program(
            [*module, "skyhop_lab.browser.viewer", place],
            shlex.join([*module, "skyhop_lab.browser.server", place]),
        )
        try:
            run = live(
                scenario, output, sets=sets, program=program, cc=cc, force=force, observer=observer
            )
        except ProgramError:
            if (folder / FAILED).is_file():
                raise RunError((folder / FAILED).read_text("utf-8")) from None
            raise
        session = json.loads((folder / SESSION).read_text("utf-8"))
    settings = {**asdict(options), "player": "dash.js"}
    rows = chunk_rows(session, served.bitrates_bps)
    add_film(run, settings, film, rows, session["started_s"])
    return Run(run.directory, run)


def _served_film(options: WatchOptions) -> tuple[_core.Film, ServedFilm]:
    film = _core.Film.read(options.film, options.top)
    chunks = min(film.chunks, options.chunks or film.chunks)
    by_track = [film.sizes_bytes(track)[:chunks] for track in range(len(film.bitrates_bps))]
    return film, ServedFilm(
        film.chunk_s, film.bitrates_bps, [list(s) for s in zip(*by_track, strict=True)]
    )


def check_controller(name: str) -> None:
    """Check that there is a controller of that name for playback in browsers.

    Raises:
        InputError: there is no such controller.
    """
    names = [*(entry.name for entry in _core.list_controllers()), *OWN_RULES]
    if name not in names:
        raise InputError(f'no controller "{name}"; expected {", ".join(names)}')


def _viewer_options(options: WatchOptions, served: ServedFilm, *, is_quiet: bool) -> ViewerOptions:
    is_own = options.controller in OWN_RULES
    check_controller(options.controller)
    rules = OWN_RULES[options.controller] if is_own else dict.fromkeys(_ALL_RULES, False)
    check_programs()
    return ViewerOptions(
        controller=options.controller, rules=rules, is_asking=not is_own,
        film=_absolute_film(options.film), top=options.top, qoe=options.qoe,
        chunk_s=served.chunk_s, dash_js=str(dash_js()),
        limit_s=_START_S + _MOST_LENGTHS * served.chunk_s * len(served.sizes_bytes),
        buffer_cap_s=options.buffer_cap_s or (None if is_own else BUFFER_CAP_S), seed=options.seed,
        downloads=options.downloads, is_quiet=is_quiet,
    )  # fmt: skip


def check_programs() -> None:
    """Check that browser, ffmpeg and dash.js are installed.

    Raises:
        RunError: one is missing; the message says how to install it.
    """
    if browser() is None:
        raise RunError("there is no browser: sudo apt-get install chromium")
    encoder()
    dash_js()


def _absolute_film(film: str) -> str:
    """Return the absolute path of a film's file.

    The name of a film that comes with skyhop is returned unchanged.
    """
    return str(Path(film).resolve()) if Path(film).exists() else film


def dash_js() -> Path:
    """Return the path of dash.js.

    Raises:
        RunError: there is no such file.
    """
    named = os.environ.get(_VARIABLE)
    places = (
        [Path(named)]
        if named
        else [
            *(place / _BUNDLE for place in (Path.cwd(), *Path.cwd().parents)),
            Path(_HOME).expanduser() / _BUNDLE,
        ]
    )
    for file in places:
        if file.is_file():
            return file.resolve()
    raise RunError(
        f"dash.js is missing{f' ({named})' if named else ''}: "
        f"npm install --prefix {_HOME} dashjs@{DASH_JS}"
    )
