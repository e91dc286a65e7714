"""Services of the testbed remove nothing that is not theirs from a directory of the user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from skyhop.errors import SkyhopError
from skyhop_testbed.agent.housekeeping import Housekeeping
from skyhop_testbed.agent.service import _FILES
from skyhop_testbed.agent.triggering import FILE, Publisher
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.keys import write_private
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.web.drawings import Drawings


def expire_uploads(state: Path) -> None:
    """Remove abandoned uploads of runs."""
    orchestrator = Orchestrator(state, ["localhost"], clock=SYSTEM_CLOCK)
    try:
        orchestrator.tick()
    finally:
        orchestrator.close()


def tidy_drawings(state: Path) -> None:
    """Remove all drawings beyond a limit of none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skyhop_testbed.web.drawings._MOST_DRAWINGS", 0)
        patch.setattr(subprocess, "run", mock.Mock(side_effect=OSError(12, "no memory")))
        Drawings(state / "drawings", state, SYSTEM_CLOCK).get("sky", file="one")


def clean_inputs(state: Path) -> None:
    """Remove old input files of an agent."""
    _FILES.make_own(state / "inputs")
    node = SimpleNamespace(inputs=state / "inputs", clock=SYSTEM_CLOCK)
    Housekeeping(cast(Any, node), cast(Any, None), cast(Any, None))._clean_inputs()


def publish(state: Path) -> None:
    """Listen on the socket of triggers, and end."""
    Publisher(state / FILE).close()


def store_key(state: Path) -> None:
    """Write a private file to the directory."""
    write_private(state / "key", b"key")


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (expire_uploads, "runs/incoming/thesis/chapter4.tex"),
        (expire_uploads, "runs/incoming/.skyhop"),
        (tidy_drawings, "drawings/thesis/chapter4.tex"),
        (clean_inputs, "inputs/chapter4.tex"),
        (publish, FILE),
        (store_key, ".key.partial"),
    ],
)
def test_a_users_files_in_a_state_directory_stay(
    tmp_path: Path, use: Callable[[Path], None], name: str
) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("three months of work", "utf-8")
    os.utime(mine, (0, 0))
    with suppress(SkyhopError):
        use(tmp_path)
    assert mine.read_text("utf-8") == "three months of work"
