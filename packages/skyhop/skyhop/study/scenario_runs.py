"""Kinds of runs that execute a scenario: in virtual time, on this machine's kernel, in a guest."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skyhop import _core
from skyhop.data.scenarios import (
    download_element_sets,
    forces_size,
    is_seedless,
    load_cc_files,
    path_files,
    path_sections,
)
from skyhop.data.toml import toml_text, toml_value
from skyhop.errors import InputError
from skyhop.study.axes import Point, axis_values
from skyhop.study.execution import Recipe, Task
from skyhop.study.file import StudyFile, read_table
from skyhop.study.key_errors import entry
from skyhop.study.metrics import BUILT_IN
from skyhop.study.plan import Study
from skyhop.study.run_ids import FileDigests, PlannedRun, core_digest, describe, digest
from skyhop.study.run_kinds import RunKind, check_tables
from skyhop.study.worker_context import WorkerContext


class ScenarioKind(RunKind):
    """Kind of runs that execute a scenario, whose keys the axes set; here in virtual time."""

    metrics = BUILT_IN
    can_omit_files = True
    """Whether a run can return its summary without writing files."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def base(self, file: StudyFile, origin: str) -> tuple[dict[str, Any], str]:
        """Return the scenario of the study, and the file that it is in."""
        check_tables(file, self, origin)
        if (file.base is None) == (file.scenario is None):
            raise InputError(f"{origin}: expected either `base`, a scenario file, or a [scenario]")
        if file.scenario is not None:
            return file.scenario, origin
        place = Path(origin).parent / (file.base or "")
        return read_table(place), str(place)

    def plan(self, study: Study) -> Iterator[PlannedRun]:
        """Yield the runs of a study: for each point, one run per seed."""
        digests, of_cc_files = FileDigests(), dict[str, dict[str, str]]()
        for point in study.points:
            sets, loaded = _resolved_point(study, point)
            resolved = json.loads(loaded.to_json())
            files = named_files(resolved, Path(study.scenario_origin).parent, digests)
            # The compiler and Python list the files' dependencies: once for each set of files.
            named = json.dumps(loaded.congestion_controls())
            if named not in of_cc_files:
                of_cc_files[named] = loaded.cc_file_digests()
            cc_files = of_cc_files[named]
            if cc_files:
                # The run's id depends on the name and content of a file, not on its directory.
                contents = sorted((Path(name).name, digest) for name, digest in cc_files.items())
                files["cc"] = {f"{place} {name}": d for place, (name, d) in enumerate(contents)}
            first = int(resolved["run"]["seed"])
            for seed in range(first, first + study.file.repeats):
                seeded = {**resolved, "run": {**resolved["run"], "seed": seed}}
                sets_of_run = (*sets, f"run.seed={seed}")
                yield PlannedRun(
                    run_id=self._run_id(study, sets_of_run, seeded, files),
                    labels=point.labels,
                    seed=seed,
                    sets=sets_of_run,
                    path_id=_path_id(seeded, files.get("path", {})),
                    resolved=seeded,
                )

    def prepare(self, study: Study, runs: Sequence[PlannedRun]) -> None:
        """Compile the files of congestion controls."""
        of_each = {json.dumps([f.get("cc") for f in _flows(run.resolved)]): run for run in runs}
        for run in of_each.values():
            scenario = _core.Scenario.from_json(
                json.dumps(study.base), study.scenario_origin, list(run.sets)
            )
            load_cc_files(scenario, for_kernel=self.is_live)

    def run(
        self, recipe: Recipe, task: Task, context: WorkerContext, staged: Path
    ) -> list[dict[str, Any]]:
        """Execute a run and return its rows; write the files that are kept to `staged`."""
        requested = _core.Scenario.from_json(
            json.dumps(recipe.base), recipe.origin, list(task.sets)
        )
        scenario, path = _with_shared_path(recipe, task, context, requested)
        if self.can_omit_files and recipe.keep == "rows" and not recipe.metrics.needs_series:
            from skyhop.engines import run_for_summary

            return recipe.metrics.rows_of(run_for_summary(self.engine, scenario, path))
        self._run_into(staged, scenario, path, requested)
        rows = recipe.metrics.rows(staged, force_size=forces_size(requested))
        if recipe.keep == "rows":
            for file in staged.iterdir():
                file.unlink()
        else:
            text = toml_text(json.loads(requested.to_json()))
            (staged / "scenario.toml").write_text(text, "utf-8")
        return rows

    def _run_into(
        self,
        staged: Path,
        scenario: _core.Scenario,
        path: _core.PathTrace | None,
        _requested: _core.Scenario,
    ) -> None:
        """Execute a scenario, and write its files.

        Args:
            staged: an empty directory.
            scenario: scenario whose path may be a shared file.
            path: the path, if it is already computed.
            _requested: scenario with its path as the user gave it.
        """
        from skyhop.engines import run_into

        run_into(self.engine, scenario, staged, path)

    def _run_id(
        self,
        study: Study,
        sets: Sequence[str],
        seeded: Mapping[str, Any],
        files: Mapping[str, Mapping[str, str]],
    ) -> str:
        what = {
            "scenario": seeded,
            # A rate or loss that the user gives overrides the one measured in a path file; a
            # default does not. So runs with the same values can differ: hash the given keys.
            "given": sorted({*study.base.get("link", {}), *(s.split("=")[0] for s in sets)}),
            "files": files,
            "engine": self.engine,
            "kernel": self._kernel(seeded),
            "core": core_digest(),
        }
        return digest(what)

    def _kernel(self, _resolved: Mapping[str, Any]) -> str | None:
        """Return the version or hash of the kernel that a run uses; None without a kernel."""
        return None


class _LiveKind(ScenarioKind):
    """Kind of runs that execute a scenario in real time on this machine's kernel."""

    is_live = True

    def _kernel(self, _resolved: Mapping[str, Any]) -> str:
        return os.uname().release


class _GuestKind(ScenarioKind):
    """Kind of runs that execute a scenario on a kernel in a guest."""

    can_omit_files = False

    def _run_into(
        self,
        staged: Path,
        scenario: _core.Scenario,
        _path: _core.PathTrace | None,
        requested: _core.Scenario,
    ) -> None:
        from skyhop.linux import run_into

        run_into(scenario, staged, requested)

    def _kernel(self, resolved: Mapping[str, Any]) -> str:
        from skyhop.linux import find

        return find(resolved.get("linux", {}).get("kernel")).digest


SIM = ScenarioKind("sim")
LIVE = _LiveKind("live")
LINUX = _GuestKind("linux")


def _resolved_point(study: Study, point: Point) -> tuple[list[str], _core.Scenario]:
    """Return a point's overrides, including the paths of downloads, and its scenario."""
    own = {f"{key}={toml_value(_absolute_cc(study, key, v))}": key for key, v in point.sets.items()}
    sets = [*own, *study.sets]
    text = json.dumps(study.base)
    try:
        loaded = _core.Scenario.from_json(text, study.scenario_origin, sets)
        downloads = download_element_sets(loaded)
        if downloads:
            sets += downloads
            loaded = _core.Scenario.from_json(text, study.scenario_origin, sets)
    except InputError as error:
        what = _of_axis(str(error), study, own)
        raise InputError(f"{what} (at {describe(point.labels)})") from None
    return sets, loaded


def _of_axis(error: str, study: Study, own: Mapping[str, str]) -> str:
    """Return an error; if it is about an override that an axis makes, it names the axis.

    `own`: key of each override of the axes.
    """
    for text, key in own.items():
        about = f"--set {text}: "
        for place, axis in enumerate(study.file.axis if error.startswith(about) else ()):
            if axis.csv or axis.key == key or any(key in sets for _, sets in axis_values(axis)):
                where = f"{study.origin}: {entry('axis', place)} (`{axis.name}`)"
                return f"{where}: key `{key}`: {error.removeprefix(about)}"
    return error


def _absolute_cc(study: Study, key: str, value: Any) -> Any:
    """Return a key's value; a `cc` file in the study's directory becomes an absolute path.

    The scenario file may be in another directory, against which relative names resolve.
    """
    study_dir = Path(study.origin).parent
    # `os.path.isfile` is False for values that are no valid file names; `Path.is_file` raises.
    is_file = key.endswith(".cc") and os.path.isfile(study_dir / str(value))  # noqa: PTH113
    if not is_file or Path(study.scenario_origin).parent == study_dir:
        return value
    return str((study_dir / str(value)).absolute())


def _flows(resolved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the keys of a scenario's flows, those of a network's traffic last."""
    traffic = resolved.get("network", {}).get("traffic")
    return [*resolved.get("flow", ()), *([traffic] if traffic else [])]


def _path_id(resolved: Mapping[str, Any], files: Mapping[str, str]) -> str | None:
    """Return a hash of the run's path; None if it cannot be shared, or is quick to compute.

    A forecast computes the path again from its own element sets, so such a path is not shared.
    """
    path = resolved.get("path")
    if (
        path is None
        or path["kind"] == "fixed"
        or resolved.get("signal", {}).get("source") == "forecast"
    ):
        return None
    if path["kind"] == "trace" and not files:
        # A file is missing; the run itself will report it.
        return None
    keys = {key: value for key, value in path.items() if key != "during_outage"}
    what: dict[str, Any] = {"path": keys, "files": files, "core": core_digest()}
    is_computed = path["kind"] != "trace"
    if is_computed or path.get("loop"):
        what["duration"] = resolved["run"]["duration"]
    if is_computed:
        what["seed"] = None if is_seedless(path) else resolved["run"]["seed"]
    return digest(what)


def named_files(
    resolved: Mapping[str, Any], directory: Path, digests: FileDigests
) -> dict[str, dict[str, str]]:
    """Return a digest of each file that a scenario names, by section and key.

    The digests enter the run's id, so that changed content makes another run. Sections are the
    paths or the network, `signal`, and flows.
    """
    found: dict[str, dict[str, str]] = {}
    if network := resolved.get("network"):
        named = {key: network.get(key) for key in ("constellation", "sites")}
        named["traffic"] = network.get("traffic", {}).get("file")
        if isinstance(routing := network.get("routing"), dict):
            named["routing"] = routing.get("file")
        found["network"] = digests.of(
            {key: value for key, value in named.items() if isinstance(value, str)}, directory
        )
    for section, path in path_sections(resolved).items():
        found[section] = digests.of(path_files(path), directory)
    elements = resolved.get("signal", {}).get("elements")
    if elements is not None:
        found["signal"] = digests.of({"elements": elements}, directory)
    for place, flow in enumerate(_flows(resolved)):
        named = {key: flow.get("app", {}).get(key) for key in ("file", "film")}
        if of_flow := digests.of(named, directory):
            found[f"flow.{place}"] = of_flow
    return found


def _with_shared_path(
    recipe: Recipe, task: Task, context: WorkerContext, requested: _core.Scenario
) -> tuple[_core.Scenario, _core.PathTrace | None]:
    """Return the scenario to run, and its path if several runs share the path."""
    if task.path_id is None:
        return requested, None
    path, resolved = context.path(task.path_id, requested), json.loads(requested.to_json())["path"]
    if resolved["kind"] == "trace":
        return requested, path
    # With the path as a file, run.json can be run again without computing the constellation.
    trace = {"kind": "trace", "file": str(context.path_file(task.path_id).resolve())}
    if "during_outage" in resolved:
        trace["during_outage"] = resolved["during_outage"]
    sets = [text for text in task.sets if not text.startswith(("path.", "path="))]
    # Relative file names in the scenario resolve against `origin`, as in the first check.
    text = json.dumps({**recipe.base, "path": trace})
    return _core.Scenario.from_json(text, recipe.origin, sets), path
