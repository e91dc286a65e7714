"""What trials of damaged files find, they name, make small and keep."""

from __future__ import annotations

from pathlib import Path

import pytest

import damaged
from damaged import Trial
from skyhop.errors import InputError

SAMPLE = b"one = 1\ntwo = 2\nthree = 3\n"


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what is found, and said of it, out of the project's."""
    monkeypatch.setattr(damaged, "ROOT", tmp_path)
    monkeypatch.delenv("SKYHOP_TRIALS", raising=False)
    monkeypatch.setenv("SKYHOP_SOAK", "1")
    monkeypatch.setenv("SKYHOP_SEED", "7")


def found(tmp_path: Path, read: damaged.Reader) -> tuple[str, bytes]:
    """Return what a trial says of a reader, and the file that it has kept."""
    with pytest.raises(pytest.fail.Exception) as failed:
        Trial("a test", [SAMPLE]).run(read)
    (kept,) = (tmp_path / "tests/damaged/a-test").iterdir()
    assert str(kept) in str(failed.value)
    return str(failed.value), kept.read_bytes()


def test_the_file_that_takes_memory_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged, "_MEMORY_BYTES", 50 << 20)
    # Before: a peak that is long past is no file's.
    del (bytearray(b"x") * (300 << 20))[:]

    def read(content: bytes) -> None:
        if b"two" not in content:
            assert bytearray(b"x") * (100 << 20)
        if b"three" not in content:
            raise InputError("three is missing")

    said, kept = found(tmp_path, read)
    assert "it takes " in said
    assert " MB of memory" in said
    assert b"two" not in kept
    # The other changes are undone.
    assert b"one = 1" in kept


def test_what_a_reader_keeps_of_every_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged, "_MEMORY_BYTES", 50 << 20)
    left: list[bytearray] = []

    def read(content: bytes) -> None:
        left.append(bytearray(b"x") * (1 << 20))
        if b"three" not in content:
            raise InputError("three is missing")

    with pytest.raises(pytest.fail.Exception, match="the reader has kept"):
        Trial("a test", [SAMPLE]).run(read)
    assert not (tmp_path / "tests").exists()
