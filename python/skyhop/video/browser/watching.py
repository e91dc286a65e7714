"""A film in a browser over a live run's path, from its encoding to the table of its chunks."""

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
from skyhop.data.scenarios import Scenario
from skyhop.engines import Observer, Program, live
from skyhop.errors import InputError, ProgramError, RunError
from skyhop.runs import Run
from skyhop.video.browser.clip import encoder, make_clip
from skyhop.video.browser.film_folder import Offer
from skyhop.video.browser.table import add_film, chunk_rows
from skyhop.video.browser.viewer import BUFFER_CAP_S, FAILED, SESSION, Viewing, browser

DASH_JS = "5.2.1"
"""The version that is asked for."""
_HOME = "~/.local/share/skyhop"
_BUNDLE = Path("node_modules", "dashjs", "dist", "modern", "umd", "dash.all.min.js")
_VARIABLE = "SKYHOP_DASH_JS"

OWN_RULES: dict[str, dict[str, bool]] = {
    "dash.js": {},
    "dash.js-throughput": {"throughputRule": True, "bolaRule": False},
    "dash.js-bola": {"throughputRule": False, "bolaRule": True},
}
"""What dash.js decides by itself, by the names it has here; the first is its DYNAMIC."""
_ALL_RULES = (
    "throughputRule", "bolaRule", "insufficientBufferRule", "switchHistoryRule",
    "droppedFramesRule", "abandonRequestsRule", "l2ARule", "loLPRule",
)  # fmt: skip
_PATIENCE = 4.0
"""So many times its own length a film may take."""
_START_S = 60.0


@dataclass(frozen=True)
class Wish:
    """What is watched, and who decides.

    Attributes:
        film: one that comes with skyhop, or a file.
        top: the bitrate of its top track, where it is to be another.
        controller: one of skyhop's, or one of `OWN_RULES`.
        qoe: what a controller that plans wants.
        chunks: no more of the film than that.
        buffer_cap_s: how much is kept ahead; where not given, 60 s, or dash.js's own where it
            decides.
        seed: of what a controller draws.
        downloads: how many go on beside the film, from the same host, with CUBIC.
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
    wish: Wish,
    *,
    sets: Sequence[str] = (),
    cc: str | None = None,
    force: bool = False,
    observer: Observer | None = None,
    is_quiet: bool = False,
) -> Run:
    """Play a film in a browser at the near end, from a server at the far end.

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; a temporary one, removed with the result, where not given.
        wish: what is watched, and who decides.
        sets: overrides, each "KEY=VALUE".
        cc: the congestion control of the server's side, and of the browser's.
        force: use `output` even if it is not empty.
        observer: is told how far the path's computation is; a bar where not given.
        is_quiet: whether nothing is printed.

    Raises:
        InputError: scenario, film or controller are wrong.
        RunError: the browser, ffmpeg or dash.js is not there, or the run failed.
    """
    film, offer = _offer(wish)
    viewing = _viewing(wish, offer, is_quiet=is_quiet)
    # Both ends of a run see this machine's files.
    with tempfile.TemporaryDirectory(prefix="skyhop-film-") as place:
        folder = Path(place)
        least = min(min(sizes) for sizes in offer.sizes_bytes)
        make_clip(folder, offer.chunk_s, len(offer.sizes_bytes), least_bytes=least)
        offer.write(folder)
        viewing.write(folder)
        module = [sys.executable, "-m"]
        program = Program(
            [*module, "skyhop.video.browser.viewer", place],
            shlex.join([*module, "skyhop.video.browser.server", place]),
        )
        try:
            run = live(
                scenario, output, sets=sets, program=program, cc=cc, force=force, observer=observer
            )
        except ProgramError:
            if (folder / FAILED).is_file():
                raise RunError((folder / FAILED).read_text("utf-8")) from None
            raise
        told = json.loads((folder / SESSION).read_text("utf-8"))
    watched = {**asdict(wish), "player": "dash.js"}
    add_film(run, watched, film, chunk_rows(told, offer.bitrates_bps), told["started_s"])
    return Run(run.directory, run)


def _offer(wish: Wish) -> tuple[_core.Film, Offer]:
    film = _core.Film.read(wish.film, wish.top)
    chunks = min(film.chunks, wish.chunks or film.chunks)
    by_track = [film.sizes_bytes(track)[:chunks] for track in range(len(film.bitrates_bps))]
    return film, Offer(
        film.chunk_s, film.bitrates_bps, [list(s) for s in zip(*by_track, strict=True)]
    )


def check_controller(name: str) -> None:
    """Check that there is a controller of that name for a browser.

    Raises:
        InputError: there is none.
    """
    names = [*(entry.name for entry in _core.list_controllers()), *OWN_RULES]
    if name not in names:
        raise InputError(f'no controller "{name}"; expected {", ".join(names)}')


def _viewing(wish: Wish, offer: Offer, *, is_quiet: bool) -> Viewing:
    is_own = wish.controller in OWN_RULES
    check_controller(wish.controller)
    rules = OWN_RULES[wish.controller] if is_own else dict.fromkeys(_ALL_RULES, False)
    check_programs()
    return Viewing(
        controller=wish.controller, rules=rules, is_asking=not is_own,
        film=_from_anywhere(wish.film), top=wish.top, qoe=wish.qoe,
        chunk_s=offer.chunk_s, dash_js=str(dash_js()),
        limit_s=_START_S + _PATIENCE * offer.chunk_s * len(offer.sizes_bytes),
        buffer_cap_s=wish.buffer_cap_s or (None if is_own else BUFFER_CAP_S), seed=wish.seed,
        downloads=wish.downloads, is_quiet=is_quiet,
    )  # fmt: skip


def check_programs() -> None:
    """Check that what plays a film is on this machine.

    Raises:
        RunError: chromium, ffmpeg or dash.js is not; the message says how to get it.
    """
    if browser() is None:
        raise RunError("there is no browser: sudo apt-get install chromium")
    encoder()
    dash_js()


def _from_anywhere(film: str) -> str:
    """Return a film's file by its whole name; a shipped one's name as it is."""
    return str(Path(film).resolve()) if Path(film).exists() else film


def dash_js() -> Path:
    """Return where dash.js is.

    Raises:
        RunError: it is not there.
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
        f"dash.js is not there{f' ({named})' if named else ''}: "
        f"npm install --prefix {_HOME} dashjs@{DASH_JS}"
    )
