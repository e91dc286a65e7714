"""Mark of an interrupted `sim --repeat`, by which it finds the seeds that it has finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from skyhop.errors import InputError

_NAME = ".repeat"
_FORMAT = "skyhop repeat 1"
"""Value by which skyhop recognises the file."""


class Mark:
    """Mark file in the directory of a repeat.

    It holds a digest of the scenario, all files that it names and skyhop itself, and the digests of
    the runs that were in the seeds' directories before. A seed is finished if its directory holds
    another run than before, with the scenario, seed and files of the repeat; times of files do not
    matter.

    Args:
        output: directory of the repeat, which is created.
        scenario: the scenario file.
        sets: overrides, each KEY=VALUE.

    Raises:
        InputError: a file of the user has the mark's name, or the scenario is wrong.
    """

    def __init__(self, output: Path, scenario: Path, sets: Sequence[str]) -> None:
        from skyhop.data.files import write_file

        self._file = output / _NAME
        self._run = _run_of(scenario, sets)
        repeat = _digest([self._run, *_inputs(scenario, sets)])
        found = self._read()
        if found.get("repeat") != repeat:
            earlier = {run.parent.name: _file_digest(run) for run in output.glob("*/summary.json")}
            found = {"format": _FORMAT, "repeat": repeat, "earlier": earlier}
            output.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(found).encode())
        self._earlier: dict[str, str] = found["earlier"]

    def is_done(self, seed: int, place: Path) -> bool:
        """Return whether this repeat has finished a seed in the directory `place`."""
        summary = place / "summary.json"
        # A run directory appears when it is complete.
        if not summary.is_file() or _file_digest(summary) == self._earlier.get(place.name):
            return False
        with suppress(OSError, ValueError):
            content = json.loads((place / "run.json").read_bytes())
            return bool(content["seed"] == seed and _identity(content) == self._run)
        return False

    def remove(self) -> None:
        """Remove the mark, so that the same command runs all seeds again."""
        self._file.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            content = None
        if (
            not isinstance(content, dict)
            or content.get("format") != _FORMAT
            or not isinstance(content.get("earlier"), dict)
        ):
            raise InputError(
                f"{self._file}: is not skyhop's mark of a repeat: move it away, or give another "
                "directory"
            )
        return content


def _run_of(scenario: Path, sets: Sequence[str]) -> dict[str, Any]:
    """Return what run.json says about a run of a scenario, apart from the seed."""
    import skyhop
    from skyhop.data.scenarios import load_scenario

    loaded = load_scenario(scenario, sets)
    return _identity(
        {
            "version": skyhop.__version__,
            "scenario": json.loads(loaded.to_json()),
            "cc_files": loaded.cc_file_digests(),
        }
    )


_WITH_FILES = ("path", "links", "signal")
"""Tables of a scenario whose file names are absolute only in run.json."""


def _identity(run: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies a run apart from its seed and the names of its files."""
    scenario = {key: value for key, value in run["scenario"].items() if key not in _WITH_FILES}
    scenario["run"] = {key: v for key, v in scenario["run"].items() if key != "seed"}
    scenario["flow"] = [
        {**{key: v for key, v in flow.items() if key != "app"}, "cc": Path(flow.get("cc", "")).name}
        for flow in scenario.get("flow", ())
    ]
    return {
        "version": run["version"],
        "scenario": scenario,
        "cc_files": run.get("cc_files", {}),
    }


def _inputs(scenario: Path, sets: Sequence[str]) -> list[Any]:
    """Return the tables of a scenario with names of files, and digests of files and of skyhop."""
    from skyhop.data.scenarios import load_scenario
    from skyhop.study.run_ids import FileDigests, core_digest
    from skyhop.study.scenario_runs import named_files

    loaded = load_scenario(scenario, sets)
    resolved = json.loads(loaded.to_json())
    tables = {key: resolved.get(key) for key in _WITH_FILES}
    files = named_files(resolved, Path(loaded.origin).parent, FileDigests())
    return [tables, files, core_digest()]


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
