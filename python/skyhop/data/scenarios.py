"""Scenarios from files or dictionaries."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from skyhop import _core
from skyhop.data.downloads import downloaded, is_address
from skyhop.data.shipped import find_scenario
from skyhop.errors import InputError

Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | _core.Scenario


def load_scenario(
    scenario: Scenario, sets: Sequence[str] = (), *, origin: str = "the scenario"
) -> _core.Scenario:
    """Return the checked scenario of a file or a dictionary.

    Args:
        scenario: the file or an example's name, the content as the file would have it, or what is
            checked already.
        sets: overrides, each "KEY=VALUE"; a path's start may be "now"; what is checked already takes
            none.
        origin: what errors call a scenario that is not a file.

    Element sets that are an address are downloaded first.

    Raises:
        InputError: one line that names the file, the key and what was expected.
    """
    if isinstance(scenario, _core.Scenario):
        if sets:
            raise InputError(f"{origin}: is already checked: give overrides when loading it")
        return scenario
    sets = [_with_now(one) for one in sets]
    loaded = _loaded(scenario, sets, origin)
    downloads = download_sets(loaded)
    return _loaded(scenario, [*sets, *downloads], origin) if downloads else loaded


def _with_now(override: str) -> str:
    """Return an override in which a start of "now" is this second."""
    key, _, value = override.partition("=")
    if key.strip().split(".")[-1] != "start" or value.strip().strip("\"'") != "now":
        return override
    now = datetime.now(UTC).replace(microsecond=0)
    return f'{key.strip()}="{now.isoformat().replace("+00:00", "Z")}"'


def download_sets(scenario: _core.Scenario) -> list[str]:
    """Download all element sets that are an address; return the overrides that name the copies.

    Raises:
        InputError: an address cannot be reached or answers with an error.
        RunError: a copy cannot be written.
    """
    resolved = json.loads(scenario.to_json())
    named = {
        f"{key}.constellation": path.get("constellation", "")
        for key, path in path_sections(resolved).items()
    }
    named["signal.elements"] = resolved["signal"].get("elements", "")
    return [
        f"{key}={json.dumps(os.fspath(downloaded(name)))}"
        for key, name in named.items()
        if is_address(name)
    ]


def path_sections(resolved: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return every path of a checked scenario by its key: `path`, `links.NAME.path`."""
    of_links = {
        f"links.{name}.path": link["path"]
        for name, link in resolved.get("links", {}).items()
        if "path" in link
    }
    return {"path": resolved["path"], **of_links}


def _loaded(
    scenario: str | os.PathLike[str] | Mapping[str, Any], sets: Sequence[str], origin: str
) -> _core.Scenario:
    if isinstance(scenario, Mapping):
        return _core.Scenario.from_json(json.dumps(scenario), origin, list(sets))
    return _core.Scenario.read(str(find_scenario(scenario)), list(sets))
