"""Studies with engine = "browser": their runs play a film in a real browser, over a live run.

Each takes as long as the film, and they go on one after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from skyhop import _core
from skyhop.data.quantities import seconds
from skyhop.data.scenarios import PATH_FILES, path_sections
from skyhop.errors import InputError, RunError
from skyhop.study.file import Duration
from skyhop.study.films import SESSION_METRICS, by_every_qoe, own_films
from skyhop.study.metrics import WARNINGS, MetricInfo, MetricSet
from skyhop.study.prediction import find_data, resolved_of

LAYOUT = 1
"""Counts up when sessions change, so that finished runs are made again."""
IS_LIVE = NEEDS_CORE = True

METRICS: tuple[MetricInfo, ...] = (
    *SESSION_METRICS,
    MetricInfo("goodput", "goodput_bps", "film's goodput", "Mbit/s", 1e-6),
    MetricInfo("srtt", "srtt_mean_us", "film's mean srtt", "ms", 1e-3),
    MetricInfo("retransmits", "retransmits", "film's retransmits", "packets"),
    MetricInfo("beside", "beside_bps", "goodput of downloads", "Mbit/s", 1e-6),
    MetricInfo("utilisation", "utilisation_back", "utilisation", "%", 100),
    MetricInfo("late", "lateness_p99_us", "lateness p99", "ms", 1e-3),
)
_SCENARIO = "scenario."


class Browser(BaseModel):
    """What a run plays; axes set its keys, those of the scenario as `scenario.link.rate`."""

    model_config = ConfigDict(extra="forbid")

    scenario: dict[str, Any]
    """The path and its links; its flows do not run."""
    film: str = "pensieve"
    top: str | None = None
    """The bitrate of the film's top track."""
    chunks: int | None = Field(None, ge=1)
    """No more of the film than that."""
    controller: str = "dash.js"
    """One of `skyhop list controllers`, or dash.js's own: dash.js, -throughput, -bola."""
    qoe: str = "pensieve-linear"
    buffer_cap: Duration | None = None
    """How much is kept ahead; where not given, 60 s, or dash.js's own where it decides."""
    cc: str = "cubic"
    """Of the film's server."""
    downloads: int = Field(0, ge=0, le=100)
    """How many go on beside the film, with CUBIC."""


@dataclass(frozen=True)
class Asked:
    """What a run does: its table, and the scenario in it with what axes set."""

    table: Browser
    sets: tuple[str, ...]
    origin: str

    @property
    def film(self) -> str:
        """The film: a file beside the study, or as the table has it."""
        return str(find_data(self.table.film, Path(self.origin).parent))

    def scenario(self, seed: int) -> _core.Scenario:
        """Return the checked scenario of a run.

        Raises:
            InputError: a key is wrong.
        """
        text = json.dumps(self.table.scenario)
        return _core.Scenario.from_json(text, self.origin, [*self.sets, f"run.seed={seed}"])


def resolve(base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Asked:
    """Return what a run does: the study's [browser] with what axes set.

    Raises:
        InputError: a key is wrong.
    """
    from skyhop.video.browser.watching import check_controller

    own = [text for text in sets if not text.startswith(_SCENARIO)]
    of_scenario = [text.removeprefix(_SCENARIO) for text in sets if text.startswith(_SCENARIO)]
    table = resolved_of(Browser, base, own, f"{origin}: browser")
    asked = Asked(table, tuple(of_scenario), origin)
    asked.scenario(seed=1)
    try:
        check_controller(table.controller)
        _core.Film.read(asked.film, table.top)
    except InputError as error:
        raise InputError(f"{origin}: browser: {error}") from None
    return asked


def data_of(asked: Asked) -> Sequence[str]:
    """Return which data a run needs: a film that is not one of skyhop's, and its path's files."""
    paths = path_sections(json.loads(asked.scenario(seed=1).to_json())).values()
    named = [path[key] for path in paths for key in PATH_FILES if path.get(key)]
    beside = Path(asked.origin).parent
    files = [name for name in named if os.path.isfile(find_data(name, beside))]  # noqa: PTH113
    return [*own_films(asked.table.film), *files]


def rows_of(metrics: MetricSet, asked: Asked, seed: int, _beside: Path) -> list[dict[str, Any]]:
    """Watch the film, and return the run's row.

    Raises:
        InputError: film or scenario are wrong.
        RunError: a program is missing, or the film did not come to its end.
    """
    import polars as pl

    from skyhop.engines import Observer
    from skyhop.video.browser.watching import Wish, watch

    table = asked.table
    cap_s = None if table.buffer_cap is None else seconds(table.buffer_cap)
    wish = Wish(
        asked.film, table.top, table.controller, table.qoe, table.chunks, cap_s, seed,
        table.downloads,
    )  # fmt: skip
    run = watch(asked.scenario(seed), None, wish, cc=table.cc, observer=Observer(), is_quiet=True)
    (app,) = run.summary["apps"]
    film = _core.Film.read(asked.film, table.top)
    if app["completed"] < (expected := min(film.chunks, table.chunks or film.chunks)):
        raise RunError(f"the film ended after {app['completed']} of {expected} chunks")
    chunks = pl.DataFrame(pl.from_arrow(run.apps["chunks"]))
    tracks, stalls = (chunks[name].to_list() for name in ("track", "stall_ns"))
    row = {
        "flow": None,
        **{info.column: app[info.column] for info in SESSION_METRICS if info.column in app},
        **by_every_qoe(film, tracks, stalls),
        **_of_transport(run.summary, app["id"]),
    }
    return [{**metrics.with_expressions(row), WARNINGS: list(run.summary["warnings"])}]


def _of_transport(summary: Mapping[str, Any], film: int) -> dict[str, Any]:
    """Return what the film's connection came to, and the downloads beside it."""
    from skyhop.video.browser import downloads

    flows = {flow["id"]: flow for flow in summary["flows"]}
    carried = flows.pop(film)
    return {
        **{key: carried[key] for key in ("goodput_bps", "srtt_mean_us", "retransmits")},
        "beside_bps": sum(
            flow["goodput_bps"] or 0
            for flow in flows.values()
            if f":{downloads.PORT} ->" in flow["connection"]
        ),
        "utilisation_back": summary["link"]["utilisation_back"],
        "lateness_p99_us": (summary.get("lateness_us") or {}).get("p99"),
    }


def resolved_dict(asked: Asked) -> dict[str, Any]:
    """Return what a run does, as it is written down."""
    content: dict[str, Any] = json.loads(asked.table.model_dump_json())
    return {**content, "scenario": json.loads(asked.scenario(seed=1).to_json())}
