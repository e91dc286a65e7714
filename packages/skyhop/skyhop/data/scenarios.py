"""Loading and checking of scenarios, from files or dictionaries."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from skyhop import _core
from skyhop.data.downloads import download, is_address
from skyhop.data.places import ambiguity_note
from skyhop.data.quantities import seconds_or_none
from skyhop.data.shipped import find_scenario
from skyhop.errors import InputError

Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | _core.Scenario


def load_scenario(
    scenario: Scenario, sets: Sequence[str] = (), *, origin: str = "the scenario"
) -> _core.Scenario:
    """Load and check a scenario from a file or a dictionary.

    Args:
        scenario: a file, the name of an example, a scenario as a dictionary, or an already checked
            scenario.
        sets: overrides, each "KEY=VALUE"; the start of a path may be "now". Not allowed for an
            already checked scenario.
        origin: name for errors of a scenario that is not a file.

    Element sets given by a URL are downloaded first. Names of congestion-control files are relative
    to the scenario's directory; in `sets`, they are relative to the current directory.

    Raises:
        InputError: the scenario is wrong; one line names the file, the key and what was expected.
    """
    if isinstance(scenario, _core.Scenario):
        if sets:
            raise InputError(f"{origin}: is already checked: give overrides when loading it")
        return scenario
    sets = resolved_sets(sets)
    loaded = _loaded(scenario, sets, origin)
    downloads = download_element_sets(loaded)
    return _loaded(scenario, [*sets, *downloads], origin) if downloads else loaded


def resolved_sets(sets: Sequence[str]) -> list[str]:
    """Return the user's overrides without the current time and directory: "now", names of files."""
    return [with_now(with_absolute_cc_file(text)) for text in sets]


def with_now(override: str) -> str:
    """Return an override; a path start of "now" is replaced by the current second of UTC."""
    key, _, value = override.partition("=")
    if key.strip().split(".")[-1] != "start" or value.strip().strip("\"'") != "now":
        return override
    now = datetime.now(UTC).replace(microsecond=0)
    return f'{key.strip()}="{now.isoformat().replace("+00:00", "Z")}"'


def download_element_sets(scenario: _core.Scenario) -> list[str]:
    """Download the element sets given by URL; return overrides that name the local copies.

    Raises:
        InputError: a server cannot be reached or answers with an error.
        RunError: a copy cannot be written.
    """
    resolved = json.loads(scenario.to_json())
    named = {
        f"{key}.constellation": path.get("constellation", "")
        for key, path in path_sections(resolved).items()
    }
    named["network.constellation"] = resolved.get("network", {}).get("constellation", "")
    named["signal.elements"] = resolved["signal"].get("elements", "")
    return [
        f"{key}={json.dumps(os.fspath(download(name)))}"
        for key, name in named.items()
        if is_address(name)
    ]


def forces_size(scenario: _core.Scenario | Mapping[str, Any]) -> bool:
    """Return whether a scenario that the user gave lifts the limits of size."""
    content = scenario if isinstance(scenario, Mapping) else json.loads(scenario.to_json())
    run = content.get("run")
    return isinstance(run, Mapping) and run.get("force_size") is True


def load_cc_files(scenario: _core.Scenario, *, for_kernel: bool = False) -> None:
    """Compile and load the files that flows name as their congestion controls.

    Warnings of the compiler go to standard error.

    Raises:
        CompileError: a file does not compile.
        InputError: a file is wrong in another way.
        RunError: this machine lacks a compiler.
    """
    sys.stderr.write(scenario.load_cc_files(for_kernel))


def absolute_cc_name(cc: str) -> str:
    """Return the name of a congestion control; the name of a file becomes absolute."""
    return str(Path(cc).absolute()) if Path(cc).suffix in _CC_ENDINGS else cc


_CC_ENDINGS = (".c", ".py")
_CC_KEY = re.compile(r"flow\.\d+\.cc")


def with_absolute_cc_file(text: str) -> str:
    """Return an override; if it sets a flow's `cc` to an existing file, make its name absolute."""
    key, _, value = text.partition("=")
    file = Path(value.strip().strip("\"'"))
    if not _CC_KEY.fullmatch(key.strip()) or file.suffix not in _CC_ENDINGS or not file.is_file():
        return text
    return f"{key}={json.dumps(str(file.absolute()))}"


def place_notes(resolved: Mapping[str, Any]) -> list[str]:
    """Return notes on the ends of a checked scenario whose names are ambiguous."""
    ends = [
        path[end]
        for path in path_sections(resolved).values()
        for end in ("from", "to")
        # In other kinds of paths, the ends are only labels.
        if path["kind"] == "constellation"
    ]
    sites = resolved.get("network", {}).get("sites")
    if isinstance(sites, list):
        ends.extend(site for site in sites if isinstance(site, str))
    return [note for note in map(ambiguity_note, dict.fromkeys(ends)) if note is not None]


_PATH_FILES = ("constellation", "gateways", "pops", "file", "profile")


def path_files(path: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a path's keys that may be names of files, by key."""
    profile = path.get("access", {}).get("profile")
    named = {**{key: path.get(key) for key in _PATH_FILES}, "access.profile": profile}
    return {key: value for key, value in named.items() if value is not None}


def is_seedless(path: Mapping[str, Any]) -> bool:
    """Return whether the path of a checked scenario does not depend on the seed."""
    if path["kind"] == "trace":
        return True
    if path.get("jitter") or path["kind"] == "access":
        return False
    if path["kind"] == "fixed":
        return True
    is_drawn = path["relay"] == "starlink" or "access" in path
    outage = path["outage"]
    has_constant_outages = outage in ("leoem", "none") or seconds_or_none(outage) is not None
    return has_constant_outages and not is_drawn


def path_sections(resolved: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the paths of a checked scenario by key: `path`, `links.NAME.path`."""
    of_links = {
        f"links.{name}.path": link["path"]
        for name, link in resolved.get("links", {}).items()
        if "path" in link
    }
    # A scenario with [network] has no [path].
    return {**{key: resolved[key] for key in ("path",) if key in resolved}, **of_links}


def _loaded(
    scenario: str | os.PathLike[str] | Mapping[str, Any], sets: Sequence[str], origin: str
) -> _core.Scenario:
    if isinstance(scenario, Mapping):
        return _core.Scenario.from_json(_as_json(scenario, origin), origin, list(sets))
    return _core.Scenario.read(str(find_scenario(scenario)), list(sets))


def _as_json(scenario: Mapping[str, Any], origin: str) -> str:
    try:
        return json.dumps(scenario, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        what = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{origin}: holds what no scenario file can: {what}") from None
