"""Scenarios from files or dictionaries."""

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
from skyhop.data.downloads import downloaded, is_address
from skyhop.data.places import taken_as
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
        sets: overrides, each "KEY=VALUE"; a path's start may be "now"; what is checked already
            takes none.
        origin: what errors call a scenario that is not a file.

    Element sets that are an address are downloaded first. A congestion control's file is looked up
    beside the scenario; one that `sets` name, in the current directory.

    Raises:
        InputError: one line that names the file, the key and what was expected.
    """
    if isinstance(scenario, _core.Scenario):
        if sets:
            raise InputError(f"{origin}: is already checked: give overrides when loading it")
        return scenario
    sets = [with_now(with_whole_cc(text)) for text in sets]
    loaded = _loaded(scenario, sets, origin)
    downloads = download_sets(loaded)
    return _loaded(scenario, [*sets, *downloads], origin) if downloads else loaded


def with_now(override: str) -> str:
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


def load_cc_files(scenario: _core.Scenario, *, for_kernel: bool = False) -> None:
    """Compile and load the files that flows name as their congestion controls.

    What a compiler has to say though it did it goes to standard error.

    Raises:
        CompileError: a file does not compile.
        InputError: a file is wrong otherwise.
        RunError: this machine lacks a compiler.
    """
    sys.stderr.write(scenario.load_cc_files(for_kernel))


def whole_cc_name(cc: str) -> str:
    """Return a congestion control as it is called from any directory: a file by its whole name."""
    return str(Path(cc).absolute()) if Path(cc).suffix in _CC_ENDINGS else cc


_CC_ENDINGS = (".c", ".py")
_CC_KEY = re.compile(r"flow\.\d+\.cc")


def with_whole_cc(text: str) -> str:
    """Return an override that names a file here by its whole name."""
    key, _, value = text.partition("=")
    file = Path(value.strip().strip("\"'"))
    if not _CC_KEY.fullmatch(key.strip()) or file.suffix not in _CC_ENDINGS or not file.is_file():
        return text
    return f"{key}={json.dumps(str(file.absolute()))}"


def place_notes(resolved: Mapping[str, Any]) -> list[str]:
    """Return which places a checked scenario's ends were taken for, where that is open."""
    ends = [
        path[end]
        for path in path_sections(resolved).values()
        for end in ("from", "to")
        # The ends of other paths are names alone.
        if path["kind"] == "constellation"
    ]
    return [note for note in map(taken_as, dict.fromkeys(ends)) if note is not None]


PATH_FILES = ("constellation", "gateways", "pops", "file")
"""Keys of a path that may name a file."""


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
        return _core.Scenario.from_json(_as_json(scenario, origin), origin, list(sets))
    return _core.Scenario.read(str(find_scenario(scenario)), list(sets))


def _as_json(scenario: Mapping[str, Any], origin: str) -> str:
    try:
        return json.dumps(scenario, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        what = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{origin}: holds what no scenario file can: {what}") from None
