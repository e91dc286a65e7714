"""Plan of a study: its runs with resolved scenarios, each identified by a hash of its content."""

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
from skyhop.data.scenarios import PATH_FILES, download_element_sets, path_sections
from skyhop.data.toml import toml_value
from skyhop.errors import InputError
from skyhop.study.axes import Point, expand
from skyhop.study.claims import CheckedClaim, check_claims
from skyhop.study.file import StudyFile, parse_study, read_scenario_table, read_study_file
from skyhop.study.keys import Value
from skyhop.study.metrics import BUILT_IN, MetricSet
from skyhop.study.panels import check_panels, check_published
from skyhop.study.prediction import find_data
from skyhop.study.relative import check_relative
from skyhop.study.senders import with_policies
from skyhop.study.table_engines import TABLE_ENGINES, engine_module


@dataclass(frozen=True)
class PlannedRun:
    """Planned run of a study: one point with one seed."""

    run_id: str
    """Hash of all that determines the result: scenario, seed, files, engine, kernel, core."""
    labels: Mapping[str, Value]
    seed: int
    sets: tuple[str, ...]
    """Overrides of the study's scenario or table, each KEY=VALUE."""
    path_id: str | None
    """Hash of the path, by which runs share it; None if the path cannot be shared."""
    resolved: Mapping[str, Any]
    """Scenario, or table of the engine, with all defaults filled in."""


class Study:
    """Study that was read and checked, as far as this is possible without running it.

    Attributes:
        file: content of the study file; the axis of senders includes the `policies`.
        origin: name of the study in error messages: its file.
        base: scenario, or table of the engine, whose keys the axes set; unchecked.
        scenario_origin: file of `base`; relative names in `base` resolve against its directory.
        points: points of the study, each of which runs with every seed.
        metrics: built-in metrics, and those of the file.
        claims: claims of the file with their parsed expressions.
        sets: overrides of every run, each KEY=VALUE.
        policies: learned senders that the user added: name and card.
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
        engine = engine_module(file)
        built_in = BUILT_IN if engine is None else engine.METRICS
        self.metrics = MetricSet.build(file.metric, origin, built_in)
        _check_axis_names(file, self.metrics, origin)
        check_relative(file, origin)
        self.claims: list[CheckedClaim] = check_claims(file, self.metrics, origin)
        check_published(file, self.metrics, origin)
        check_panels(file, self.metrics, origin)

    @property
    def run_count(self) -> int:
        """Number of points times number of seeds, even if some runs have the same scenario."""
        return 0 if self.file.engine == "elements" else len(self.points) * self.file.repeats

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the study's runs: for each point, one run per seed.

        Raises:
            InputError: the scenario of a point is invalid; the message names the point.
        """
        if self.file.engine == "elements":
            return
        digests: dict[Path, str] = {}
        engine = engine_module(self.file)
        if engine is not None:
            yield from self._table_runs(engine, digests)
            return
        for point in self.points:
            sets, loaded = self._resolve(point)
            resolved = json.loads(loaded.to_json())
            files = _named_files(resolved, Path(self.scenario_origin).parent, digests)
            cc_files = loaded.cc_file_digests()
            if cc_files:
                # The run's id depends on the name and content of a file, not on its directory.
                contents = sorted((Path(name).name, digest) for name, digest in cc_files.items())
                files["cc"] = {f"{place} {name}": d for place, (name, d) in enumerate(contents)}
            first = int(resolved["run"]["seed"])
            for seed in range(first, first + self.file.repeats):
                sets_of_run = (*sets, f"run.seed={seed}")
                seeded = {**resolved, "run": {**resolved["run"], "seed": seed}}
                yield self._planned(point, sets_of_run, seeded, files)

    def _table_runs(self, engine: ModuleType, digests: dict[Path, str]) -> Iterator[PlannedRun]:
        """Yield the runs of a study with a table engine."""
        study_dir = Path(self.origin).parent
        for point in self.points:
            sets = [f"{key}={toml_value(value)}" for key, value in point.sets.items()]
            config = engine.resolve(self.base, [*self.sets, *sets], self.origin)
            resolved = engine.config_dict(config)
            files = {
                name: _digests({"data": str(find_data(name, study_dir))}, Path(), digests)
                for name in engine.input_files(config)
            }
            for seed in range(1, self.file.repeats + 1):
                table = TABLE_ENGINES[self.file.engine].table
                what = {table: resolved, "seed": seed, "files": files,
                        "engine": self.file.engine, "layout": engine.LAYOUT}  # fmt: skip
                if engine.IS_LIVE:
                    what |= {"kernel": os.uname().release}
                if engine.NEEDS_CORE:
                    what |= {"core": core_digest()}
                yield PlannedRun(_digest(what), point.labels, seed, (*self.sets, *sets), None,
                                 {**resolved, "seed": seed})  # fmt: skip

    def _resolve(self, point: Point) -> tuple[list[str], _core.Scenario]:
        """Return a point's overrides, including the paths of downloads, and its scenario."""
        own = (f"{key}={toml_value(self._absolute_cc(key, v))}" for key, v in point.sets.items())
        sets = [*self.sets, *own]
        text = json.dumps(self.base)
        try:
            loaded = _core.Scenario.from_json(text, self.scenario_origin, sets)
            downloads = download_element_sets(loaded)
            if downloads:
                sets += downloads
                loaded = _core.Scenario.from_json(text, self.scenario_origin, sets)
        except InputError as error:
            raise InputError(f"{error} (at {describe(point.labels)})") from None
        return sets, loaded

    def _absolute_cc(self, key: str, value: Any) -> Any:
        """Return a key's value; a `cc` file in the study's directory becomes an absolute path.

        The scenario file may be in another directory, against which relative names resolve.
        """
        study_dir = Path(self.origin).parent
        # `os.path.isfile` is False for values that are no valid file names; `Path.is_file` raises.
        is_file = key.endswith(".cc") and os.path.isfile(study_dir / str(value))  # noqa: PTH113
        if not is_file or Path(self.scenario_origin).parent == study_dir:
            return value
        return str((study_dir / str(value)).absolute())

    def _planned(
        self,
        point: Point,
        sets: tuple[str, ...],
        seeded: dict[str, Any],
        files: Mapping[str, Mapping[str, str]],
    ) -> PlannedRun:
        what = {
            "scenario": seeded,
            # A rate or loss that the user gives overrides the one measured in a path file; a
            # default does not. So runs with the same values can differ: hash the given keys.
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
    """Read a study from a file, or from a dictionary with the content of a file.

    Args:
        source: study file, or its content.
        policies: learned senders to add: name, and card file or name of a shipped card.

    Raises:
        InputError: a key is wrong; one line names the file, the key and what was expected.
    """
    if isinstance(source, Mapping):
        file, origin = parse_study(dict(source), "the study"), "the study"
    else:
        file, origin = read_study_file(source), os.fspath(source)
    return Study(file, origin, policies=policies)


def describe(labels: Mapping[str, object]) -> str:
    """Return a point as text, such as "pair = SD-NY, cc = cubic"."""
    return ", ".join(f"{name} = {value}" for name, value in labels.items()) or "the only point"


@cache
def core_digest() -> str:
    """Return a hash of the compiled core: after a change of the core, runs get other ids."""
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
    if file.engine in TABLE_ENGINES:
        return getattr(file, TABLE_ENGINES[file.engine].table), origin
    if file.scenario is not None:
        return file.scenario, origin
    place = Path(origin).parent / (file.base or "")
    return read_scenario_table(place), str(place)


def _kernel(engine: str, resolved: Mapping[str, Any]) -> str | None:
    """Return the version or hash of the kernel that a run uses; None without a kernel.

    Raises:
        InputError: the kernel for engine "linux" is not built.
    """
    if engine == "linux":
        from skyhop.linux import find

        return find(resolved.get("linux", {}).get("kernel")).digest
    return os.uname().release if engine == "live" else None


def _path_id(resolved: Mapping[str, Any], files: Mapping[str, str]) -> str | None:
    """Return a hash of the run's path; None if it cannot be shared, or is quick to compute.

    A forecast computes the path again from its own element sets, so such a path is not shared.
    """
    path = resolved["path"]
    if path["kind"] == "fixed" or resolved.get("signal", {}).get("source") == "forecast":
        return None
    if path["kind"] == "trace" and not files:
        # A file is missing; the run itself will report it.
        return None
    keys = {key: value for key, value in path.items() if key != "during_outage"}
    what: dict[str, Any] = {"path": keys, "files": files, "core": core_digest()}
    if path["kind"] == "constellation" or path.get("loop"):
        what["duration"] = resolved["run"]["duration"]
    if path["kind"] == "constellation":
        what["seed"] = None if _is_seedless(path) else resolved["run"]["seed"]
    return _digest(what)


def _is_seedless(path: Mapping[str, Any]) -> bool:
    """Return whether a path does not depend on the seed; only outages can be random."""
    return path["outage"] in ("leoem", "none") or seconds_or_none(path["outage"]) is not None


def _named_files(
    resolved: Mapping[str, Any], directory: Path, digests: dict[Path, str]
) -> dict[str, dict[str, str]]:
    """Return a digest of each file that a scenario names, by section and key.

    The digests enter the run's id, so that changed content makes another run. Sections are the
    paths, `signal`, and flows. `digests` caches the digests of files that were read before.
    """
    found: dict[str, dict[str, str]] = {}
    for section, path in path_sections(resolved).items():
        found[section] = _digests({key: path.get(key) for key in PATH_FILES}, directory, digests)
    elements = resolved.get("signal", {}).get("elements")
    if elements is not None:
        found["signal"] = _digests({"elements": elements}, directory, digests)
    for place, flow in enumerate(resolved.get("flow", ())):
        named = {key: flow.get("app", {}).get(key) for key in ("file", "film")}
        if of_flow := _digests(named, directory, digests):
            found[f"flow.{place}"] = of_flow
    return found


_CHUNK_BYTES = 1 << 20
"""Size from which a file of a film's directory counts as a chunk; others may be manifests."""


def _digests(named: Mapping[str, Any], directory: Path, digests: dict[Path, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, name in named.items():
        places = [directory / name, Path(name)] if isinstance(name, str) else []
        # `os.path` functions return False for invalid names; films and data may be directories.
        is_there = os.path.exists if key in ("data", "film") else os.path.isfile
        place = next(filter(is_there, places), None)
        if place is not None:
            if place not in digests:
                digests[place] = _content(place)
            found[key] = digests[place]
    return found


def _content(place: Path) -> str:
    """Return a digest of a file's content, or of the files in a film's directory."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    files = sorted(file for file in place.rglob("*") if file.is_file())
    sizes = [file.stat().st_size for file in files]
    # Sessions depend only on the sizes of chunks; reading all chunks would be slow.
    contents = [_content(file) if size < _CHUNK_BYTES else str(size)
                for file, size in zip(files, sizes, strict=True)]  # fmt: skip
    return _digest([[str(file.relative_to(place)) for file in files], contents])


def _digest(what: object) -> str:
    text = json.dumps(what, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
