"""Kinds of runs: the table of engines, and engines of other packages."""

from __future__ import annotations

import typing
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from skyhop.errors import InputError
from skyhop.study import load_study, run_kinds
from skyhop.study.file import StudyFile
from skyhop.study.run_kinds import RUN_KINDS
from skyhop.study.scenario_runs import ScenarioKind
from small_study import content

IN_ANOTHER_PACKAGE = ScenarioKind("browser")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Return the entry points of other packages, to which a test adds its own."""
    found: list[EntryPoint] = []
    monkeypatch.setattr(run_kinds, "entry_points", lambda **_: EntryPoints(found))
    return found


def test_every_engine_of_study_files_has_a_kind() -> None:
    assert set(RUN_KINDS) == set(typing.get_args(StudyFile.model_fields["engine"].annotation))
    tables = [kind.table for kind in RUN_KINDS.values() if kind.table]
    assert set(tables) == StudyFile(title="", question="").engine_tables.keys()


@pytest.mark.usefixtures("elsewhere")
def test_an_engine_of_a_missing_package_names_the_package() -> None:
    with pytest.raises(InputError, match=r"browser comes with skyhop-lab, .*: run make setup"):
        load_study(content(engine="browser"))
    with pytest.raises(InputError, match="goes with another engine"):
        load_study(content(browser={}))


def test_an_entry_point_adds_an_engine(elsewhere: list[EntryPoint]) -> None:
    place = f"{__name__}:IN_ANOTHER_PACKAGE"
    elsewhere.append(EntryPoint("browser", place, "skyhop.run_kinds"))
    study = load_study(content(engine="browser"))
    assert study.kind is IN_ANOTHER_PACKAGE
    assert list(RUN_KINDS)[-1] == "browser"
