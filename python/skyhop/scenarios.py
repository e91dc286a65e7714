"""Scenarios from files or dictionaries."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from skyhop import _core
from skyhop.downloads import downloaded, is_address
from skyhop.errors import InputError

Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | _core.Scenario


def load_scenario(
    scenario: Scenario, sets: Sequence[str] = (), *, origin: str = "the scenario"
) -> _core.Scenario:
    """Return the checked scenario of a file or a dictionary.

    Args:
        scenario: the file, the content as the file would have it, or what is checked already.
        sets: overrides, each "KEY=VALUE"; what is checked already takes none.
        origin: what errors call a scenario that is not a file.

    A constellation that is an address is downloaded first.

    Raises:
        InputError: one line that names the file, the key and what was expected.
    """
    if isinstance(scenario, _core.Scenario):
        if sets:
            raise InputError(f"{origin}: is checked already: give overrides when it is loaded")
        return scenario
    loaded = _loaded(scenario, sets, origin)
    constellation = json.loads(loaded.to_json())["path"].get("constellation", "")
    if not is_address(constellation):
        return loaded
    file = json.dumps(os.fspath(downloaded(constellation)))
    return _loaded(scenario, [*sets, f"path.constellation={file}"], origin)


def _loaded(
    scenario: str | os.PathLike[str] | Mapping[str, Any], sets: Sequence[str], origin: str
) -> _core.Scenario:
    if isinstance(scenario, Mapping):
        return _core.Scenario.from_json(json.dumps(scenario), origin, list(sets))
    return _core.Scenario.read(os.fspath(scenario), list(sets))
