"""From a study to its runs: each scenario resolved, each run known by what it runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from skyhop import _core
from skyhop.data.quantities import seconds_or_none
from skyhop.data.scenarios import PATH_FILES, download_sets, path_sections
from skyhop.data.toml import toml_value
from skyhop.errors import InputError
from skyhop.study.axes import Point, expand
from skyhop.study.claims import CheckedClaim, check_claims
from skyhop.study.file import StudyFile, Value, parse_study, read_scenario_table, read_study_file
from skyhop.study.metrics import BUILT_IN, MetricSet
from skyhop.study.others import OTHERS, other
from skyhop.study.panels import check_panels, check_published
from skyhop.study.prediction import find_data
from skyhop.study.relative import check_relative
from skyhop.study.senders import with_policies


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, not yet run."""

    run_id: str
    """Names what is run: scenario as resolved, seed, engine, and the core that runs it."""
    labels: Mapping[str, Value]
    seed: int
    sets: tuple[str, ...]
    """Overrides of the study's scenario, each KEY=VALUE."""
    path_id: str | None
    """Names the path where runs can share it."""
    resolved: Mapping[str, Any]
    """The scenario with its defaults."""


class Study:
    """A study, read and checked as far as that goes without running it.

    Attributes:
        file: its content, as written, with those senders.
        origin: what errors call it.
        base: the scenario that the axes change, unchecked.
        points: what is run, seeds apart.
        metrics: every metric, built in or of the file.
        sets: overrides of every run, each KEY=VALUE.
        policies: learned senders that were put among its own: name and card.
    """

    def __init__(
        self,
        file: StudyFile,
        origin: str,
        sets: Sequence[str] = (),
        policies: Mapping[str, Path] | None = None,
    ) -> None:
        self.policies = dict(policies or {})
        file = with_policies(file, self.policies, origin)
        self.file = file
        self.origin = origin
        self.sets = tuple(sets)
        self.base, self.scenario_origin = _base_scenario(file, origin)
        self.points = expand(file, origin)
        by_other = other(file)
        built_in = BUILT_IN if by_other is None else by_other.METRICS
        self.metrics = MetricSet.of(file.metric, origin, built_in)
        _check_axis_names(file, self.metrics, origin)
        check_relative(file, origin)
        self.claims: list[CheckedClaim] = check_claims(file, self.metrics, origin)
        check_published(file, self.metrics, origin)
        check_panels(file, self.metrics, origin)

    @property
    def run_count(self) -> int:
        """How many runs there are, the same scenario counted once per point and seed."""
        return 0 if self.file.engine == "elements" else len(self.points) * self.file.repeats

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the study's runs: point by point, seeds within.

        Raises:
            InputError: a point is no valid scenario; the message names it.
        """
        if self.file.engine == "elements":
            return
        digests: dict[Path, str] = {}
        by_other = other(self.file)
        if by_other is not None:
            yield from self._runs_of_other(by_other, digests)
            return
        for point in self.points:
            sets, loaded = self._resolve(point)
            resolved = json.loads(loaded.to_json())
            files = _named_files(resolved, Path(self.scenario_origin).parent, digests)
            cc_files = loaded.cc_file_digests()
            if cc_files:
                # Files may have the same name; where they lie makes no other run.
                contents = sorted((Path(name).name, digest) for name, digest in cc_files.items())
                files["cc"] = {f"{place} {name}": d for place, (name, d) in enumerate(contents)}
            first = int(resolved["run"]["seed"])
            for seed in range(first, first + self.file.repeats):
                sets_of_run = (*sets, f"run.seed={seed}")
                seeded = {**resolved, "run": {**resolved["run"], "seed": seed}}
                yield self._planned(point, sets_of_run, seeded, files)

    def _runs_of_other(
        self, by_other: ModuleType, digests: dict[Path, str]
    ) -> Iterator[PlannedRun]:
        """Yield runs without a scenario."""
        beside = Path(self.origin).parent
        for point in self.points:
            sets = [f"{key}={toml_value(value)}" for key, value in point.sets.items()]
            asked = by_other.resolve(self.base, [*self.sets, *sets], self.origin)
            resolved = by_other.resolved_dict(asked)
            files = {
                name: _digests({"data": str(find_data(name, beside))}, Path(), digests)
                for name in by_other.data_of(asked)
            }
            for seed in range(1, self.file.repeats + 1):
                what = {OTHERS[self.file.engine][0]: resolved, "seed": seed, "files": files,
                        "engine": self.file.engine, "layout": by_other.LAYOUT}  # fmt: skip
                if by_other.IS_LIVE:
                    what |= {"kernel": os.uname().release}
                if by_other.NEEDS_CORE:
                    what |= {"core": core_digest()}
                yield PlannedRun(_digest(what), point.labels, seed, (*self.sets, *sets), None,
                                 {**resolved, "seed": seed})  # fmt: skip

    def _resolve(self, point: Point) -> tuple[list[str], _core.Scenario]:
        """Return a point's overrides, those for downloaded files among them, and its scenario."""
        own = (f"{key}={toml_value(self._found(key, v))}" for key, v in point.sets.items())
        sets = [*self.sets, *own]
        text = json.dumps(self.base)
        try:
            loaded = _core.Scenario.from_json(text, self.scenario_origin, sets)
            downloads = download_sets(loaded)
            if downloads:
                sets += downloads
                loaded = _core.Scenario.from_json(text, self.scenario_origin, sets)
        except InputError as error:
            raise InputError(f"{error} (at {describe(point.labels)})") from None
        return sets, loaded

    def _found(self, key: str, value: Any) -> Any:
        """Return a value; a file beside the study so that a scenario elsewhere finds it."""
        beside = Path(self.origin).parent
        # What cannot be a file's name is none.
        is_file = key.endswith(".cc") and os.path.isfile(beside / str(value))  # noqa: PTH113
        if not is_file or Path(self.scenario_origin).parent == beside:
            return value
        return str((beside / str(value)).absolute())

    def _planned(
        self,
        point: Point,
        sets: tuple[str, ...],
        seeded: dict[str, Any],
        files: Mapping[str, Mapping[str, str]],
    ) -> PlannedRun:
        what = {
            "scenario": seeded,
            # A rate or loss that is given outranks what a path file measured, one that is a
            # default does not: the same values, another run.
            "given": sorted({*self.base.get("link", {}), *(s.split("=")[0] for s in sets)}),
            "files": files,
            "engine": self.file.engine,
            "kernel": _kernel(self.file.engine, seeded),
            "core": core_digest(),
        }
        return PlannedRun(
            run_id=_digest(what),
            labels=point.labels,
            seed=seeded["run"]["seed"],
            sets=sets,
            path_id=_path_id(seeded, files["path"]),
            resolved=seeded,
        )


def load_study(
    source: str | os.PathLike[str] | Mapping[str, Any],
    policies: Mapping[str, Path] | None = None,
) -> Study:
    """Read a study from a file, or from a dictionary as the file would have it.

    Args:
        source: the file, or its content.
        policies: learned senders that run beside the study's: name and card (`senders`).

    Raises:
        InputError: one line that names the file, the key and what was expected.
    """
    if isinstance(source, Mapping):
        file, origin = parse_study(dict(source), "the study"), "the study"
    else:
        file, origin = read_study_file(source), os.fspath(source)
    return Study(file, origin, policies=policies)


def describe(labels: Mapping[str, object]) -> str:
    """Write a point as text: pair = SD-NY, cc = cubic."""
    return ", ".join(f"{name} = {value}" for name, value in labels.items()) or "the only point"


@cache
def core_digest() -> str:
    """Return what names the compiled core: a changed simulator means other runs."""
    file = _core.__file__
    assert file is not None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _check_axis_names(file: StudyFile, metrics: MetricSet, origin: str) -> None:
    for place, axis in enumerate(file.axis):
        if axis.name in metrics.columns:
            raise InputError(
                f"{origin}: axis.{place}.name: `{axis.name}` is a column of the results: "
                "choose another name"
            )


def _base_scenario(file: StudyFile, origin: str) -> tuple[dict[str, Any], str]:
    if file.engine == "elements":
        return {}, origin
    if file.engine in OTHERS:
        return getattr(file, OTHERS[file.engine][0]), origin
    if file.scenario is not None:
        return file.scenario, origin
    place = Path(origin).parent / (file.base or "")
    return read_scenario_table(place), str(place)


def _kernel(engine: str, resolved: Mapping[str, Any]) -> str | None:
    """Return what names the kernel that a run is made on; None where it is made on none.

    Raises:
        InputError: it is not built.
    """
    if engine == "linux":
        from skyhop.linux import find

        return find(resolved.get("linux", {}).get("kernel")).digest
    return os.uname().release if engine == "live" else None


def _path_id(resolved: Mapping[str, Any], files: Mapping[str, str]) -> str | None:
    """Name the path that a run goes over; None where it cannot be shared, or is quickly made.

    A forecast computes the path again from its own element sets, so it needs the whole [path].
    """
    path = resolved["path"]
    if path["kind"] == "fixed" or resolved.get("signal", {}).get("source") == "forecast":
        return None
    if path["kind"] == "trace" and not files:
        # It is not there, as the run will say.
        return None
    keys = {key: value for key, value in path.items() if key != "during_outage"}
    what: dict[str, Any] = {"path": keys, "files": files, "core": core_digest()}
    if path["kind"] == "constellation" or path.get("loop"):
        what["duration"] = resolved["run"]["duration"]
    if path["kind"] == "constellation":
        what["seed"] = None if _is_seedless(path) else resolved["run"]["seed"]
    return _digest(what)


def _is_seedless(path: Mapping[str, Any]) -> bool:
    """Return whether a path is the same with every seed: its outages are what can be drawn."""
    return path["outage"] in ("leoem", "none") or seconds_or_none(path["outage"]) is not None


def _named_files(
    resolved: Mapping[str, Any], beside: Path, digests: dict[Path, str]
) -> dict[str, dict[str, str]]:
    """Return a digest of each file that a scenario names: changed content is another run.

    `digests` remembers what has been read. The outer keys are those of the paths, and `signal`.
    """
    found: dict[str, dict[str, str]] = {}
    for section, path in path_sections(resolved).items():
        found[section] = _digests({key: path.get(key) for key in PATH_FILES}, beside, digests)
    elements = resolved.get("signal", {}).get("elements")
    if elements is not None:
        found["signal"] = _digests({"elements": elements}, beside, digests)
    for place, flow in enumerate(resolved.get("flow", ())):
        named = {key: flow.get("app", {}).get(key) for key in ("file", "film")}
        if of_flow := _digests(named, beside, digests):
            found[f"flow.{place}"] = of_flow
    return found


_CHUNK_BYTES = 1 << 20
"""What is smaller may be a film's list."""


def _digests(named: Mapping[str, Any], beside: Path, digests: dict[Path, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, name in named.items():
        places = [beside / name, Path(name)] if isinstance(name, str) else []
        # What cannot be a file's name is none; films and data may be directories.
        is_there = os.path.exists if key in ("data", "film") else os.path.isfile
        place = next(filter(is_there, places), None)
        if place is not None:
            if place not in digests:
                digests[place] = _content(place)
            found[key] = digests[place]
    return found


def _content(place: Path) -> str:
    """Return a digest of a file's content, or of what a film's directory has in it."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    files = sorted(file for file in place.rglob("*") if file.is_file())
    sizes = [file.stat().st_size for file in files]
    # Of chunks it is their size that counts.
    contents = [_content(file) if size < _CHUNK_BYTES else str(size)
                for file, size in zip(files, sizes, strict=True)]  # fmt: skip
    return _digest([[str(file.relative_to(place)) for file in files], contents])


def _digest(what: object) -> str:
    text = json.dumps(what, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
