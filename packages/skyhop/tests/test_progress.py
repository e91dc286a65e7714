"""Progress bars: one at a time on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from skyhop.data import progress
from skyhop.data.progress import Progress, progress_bar


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace bars by a list of the texts that they show; they appear at once."""
    told: list[str] = []

    @contextmanager
    def bar(description: str) -> Iterator[Progress]:
        told.append(f"begin {description}")
        yield lambda done, total: told.append(f"{description} {done}/{total}")
        told.append(f"end {description}")

    monkeypatch.setattr(progress, "_bar", bar)
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    return told


def test_a_bar_ends_when_the_next_begins(shown: list[str]) -> None:
    with progress_bar("path") as path, progress_bar("run") as run:
        path(1, 2)
        path(2, 2)
        run(1, 9)
        path(2, 2)
        run(9, 9)
    assert shown == [
        "begin path", "path 1/2", "path 2/2", "end path",
        "begin run", "run 1/9", "run 9/9", "end run",
    ]  # fmt: skip


def test_a_bar_after_another_is_shown(shown: list[str]) -> None:
    for name in ("first", "second"):
        with progress_bar(name) as report:
            report(1, 1)
    assert shown == [
        "begin first", "first 1/1", "end first", "begin second", "second 1/1", "end second",
    ]  # fmt: skip


def test_an_error_removes_the_bar(shown: list[str]) -> None:
    def fail() -> None:
        with progress_bar("path") as path:
            path(1, 2)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    with progress_bar("run") as run:
        run(1, 1)
    assert shown[-3:] == ["begin run", "run 1/1", "end run"]
