"""Engine "browser" of studies: each run plays a film in a real browser over a live run.

A run takes as long as the film. Runs execute one after another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from skyhop import _core
from skyhop.data.quantities import seconds
from skyhop.data.scenarios import path_files, path_sections
from skyhop.errors import InputError, RunError
from skyhop.study.films import SESSION_METRICS, scores_by_qoe, user_films
from skyhop.study.keys import Duration, StrictModel
from skyhop.study.metrics import MetricInfo
from skyhop.study.table_runs import TableKind, find_data, json_values, validated_table

METRICS: tuple[MetricInfo, ...] = (
    *SESSION_METRICS,
    MetricInfo("goodput", "goodput_bps", "film's goodput", "Mbit/s", 1e-6),
    MetricInfo("srtt", "srtt_mean_us", "film's mean srtt", "ms", 1e-3),
    MetricInfo("retransmits", "retransmits", "film's retransmits", "packets"),
    MetricInfo("downloads", "beside_bps", "goodput of downloads", "Mbit/s", 1e-6),
    MetricInfo("utilisation", "utilisation_back", "utilisation", "%", 100),
    MetricInfo("late", "lateness_p99_us", "lateness p99", "ms", 1e-3),
)
_SCENARIO = "scenario."


class Browser(StrictModel):
    """Table [browser] of a study file; axes set its keys, such as `scenario.link.rate`."""

    scenario: dict[str, Any]
    """Scenario that provides the path and the links; its flows do not run."""
    film: str = "pensieve"
    top: str | None = None
    """Bitrate of the film's top track, which scales all tracks; the film's own by default."""
    chunks: int | None = Field(None, ge=1)
    """Number of chunks to play; the whole film by default."""
    controller: str = "dash.js"
    """Bitrate controller: of `skyhop list controllers`, or dash.js, dash.js-throughput, -bola."""
    qoe: str = "pensieve-linear"
    buffer_cap: Duration | None = None
    """Largest playback buffer; default 60 s, for controllers of dash.js the default of dash.js."""
    cc: str = "cubic"
    """Congestion control of the server that sends the film."""
    downloads: int = Field(0, ge=0, le=100)
    """Number of concurrent downloads; they use CUBIC."""


@dataclass(frozen=True)
class BrowserRun:
    """Configuration of one run: the checked table [browser] and overrides of its scenario."""

    table: Browser
    sets: tuple[str, ...]
    origin: str

    @property
    def film(self) -> str:
        """Name of the film, or the path of its file in the study's directory."""
        return str(find_data(self.table.film, Path(self.origin).parent))

    def scenario(self, seed: int) -> _core.Scenario:
        """Return the checked scenario of the run with this seed.

        Raises:
            InputError: a key of the scenario is wrong.
        """
        text = json.dumps(self.table.scenario)
        return _core.Scenario.from_json(text, self.origin, [*self.sets, f"run.seed={seed}"])


class _BrowserKind(TableKind[BrowserRun]):
    """Kind of runs that play a film in a real browser."""

    engine = "browser"
    table = "browser"
    model = Browser
    metrics = METRICS
    layout = 1
    needs_core = True
    is_live = True

    def resolve(self, base: Mapping[str, Any], sets: Sequence[str], origin: str) -> BrowserRun:
        from skyhop_lab.browser.watching import check_controller

        own = [text for text in sets if not text.startswith(_SCENARIO)]
        of_scenario = [text.removeprefix(_SCENARIO) for text in sets if text.startswith(_SCENARIO)]
        table = validated_table(Browser, base, own, f"{origin}: browser")
        run_config = BrowserRun(table, tuple(of_scenario), origin)
        run_config.scenario(seed=1)
        try:
            check_controller(table.controller)
            _core.Film.read(run_config.film, table.top)
        except InputError as error:
            raise InputError(f"{origin}: browser: {error}") from None
        return run_config

    def config_dict(self, config: BrowserRun) -> dict[str, Any]:
        scenario = json.loads(config.scenario(seed=1).to_json())
        return {**json_values(config.table), "scenario": scenario}

    def input_files(self, config: BrowserRun) -> Sequence[str]:
        paths = path_sections(json.loads(config.scenario(seed=1).to_json())).values()
        named = [name for path in paths for name in path_files(path).values()]
        study_dir = Path(config.origin).parent
        files = [name for name in named if os.path.isfile(find_data(name, study_dir))]  # noqa: PTH113
        return [*user_films(config.table.film), *files]

    def row(
        self, config: BrowserRun, seed: int, _study_dir: Path
    ) -> tuple[dict[str, Any], list[str]]:

        from skyhop.engines import Observer
        from skyhop_lab.browser.watching import WatchOptions, watch

        table = config.table
        cap_s = None if table.buffer_cap is None else seconds(table.buffer_cap)
        options = WatchOptions(
            config.film, table.top, table.controller, table.qoe, table.chunks, cap_s, seed,
            table.downloads,
        )  # fmt: skip
        run = watch(
            config.scenario(seed), None, options, cc=table.cc, observer=Observer(), is_quiet=True
        )
        (app,) = run.summary["apps"]
        film = _core.Film.read(config.film, table.top)
        if app["completed"] < (expected := min(film.chunks, table.chunks or film.chunks)):
            raise RunError(f"the film ended after {app['completed']} of {expected} chunks")
        chunks = run.apps["chunks"]
        tracks, stalls = (chunks[name].to_list() for name in ("track", "stall_ns"))
        row = {
            **{info.column: app[info.column] for info in SESSION_METRICS if info.column in app},
            **scores_by_qoe(film, tracks, stalls),
            **_transport_values(run.summary, app["id"]),
        }
        return row, list(run.summary["warnings"])


BROWSER = _BrowserKind()


def _transport_values(summary: Mapping[str, Any], film: int) -> dict[str, Any]:
    """Return transport values of the film's connection and link, and the downloads' goodput."""
    from skyhop_lab.browser import downloads

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
