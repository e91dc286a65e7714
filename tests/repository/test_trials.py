"""Trials of damaged files: they name a failure, shrink the damaged file, and keep it."""

from __future__ import annotations

from pathlib import Path

import pytest

import damaged
import tests as runner
from damaged import Trial
from skyhop.errors import InputError

SAMPLE = b"one = 1\ntwo = 2\nthree = 3\n"


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Write kept files and records below the test's directory, not the project's."""
    monkeypatch.setattr(damaged, "ROOT", tmp_path)
    monkeypatch.delenv("SKYHOP_TRIALS", raising=False)
    monkeypatch.setenv("SKYHOP_SOAK", "1")
    monkeypatch.setenv("SKYHOP_SEED", "7")


def found(tmp_path: Path, read: damaged.Reader) -> tuple[str, bytes]:
    """Run a trial of a faulty reader; return its message, and the file that it kept."""
    with pytest.raises(pytest.fail.Exception) as failed:
        Trial("a test", [SAMPLE]).run(read)
    (kept,) = (tmp_path / "tests/damaged/a-test").iterdir()
    assert str(kept) in str(failed.value)
    return str(failed.value), kept.read_bytes()


def seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Run two trials, and return the seeds that they record."""
    record = tmp_path / "trials.tsv"
    monkeypatch.setenv("SKYHOP_TRIALS", str(record))

    def read(content: bytes) -> None:
        if b"three" not in content:
            raise InputError("three is missing")

    for _ in range(2):
        Trial("a test", [SAMPLE], usual=20).run(read)
    return {line.split("\t")[3] for line in record.read_text("utf-8").splitlines()}


def test_seeds_are_fixed_except_in_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYHOP_SEED")
    monkeypatch.delenv("SKYHOP_SOAK")
    assert seeds(tmp_path, monkeypatch) == {"1"}
    monkeypatch.setenv("SKYHOP_SOAK", "1")
    assert len(seeds(tmp_path, monkeypatch)) == 3
    monkeypatch.setenv("SKYHOP_SEED", "7")
    assert "7" in seeds(tmp_path, monkeypatch)


def test_the_file_that_takes_memory_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged, "_MEMORY_BYTES", 50 << 20)
    # An earlier peak of memory must not count for the file.
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
    # Shrinking undoes the changes that do not matter.
    assert b"one = 1" in kept


def test_a_reader_that_leaks_memory_is_found(
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


@pytest.mark.integration
def test_a_late_suite_is_stopped_and_the_table_is_still_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "SKIPPED", tmp_path / "skipped.jsonl")
    monkeypatch.setattr(runner, "TRIALS", tmp_path / "trials.tsv")
    # The runner must also stop the child that the command leaves in the background.
    command = "echo begun; printf 'fuzz\\tx\\t7\\t1\\tok\\n' > $SKYHOP_TRIALS; sleep 3600 & wait"
    monkeypatch.setattr(runner, "rust_commands", lambda _soak: [("Rust", ["sh", "-c", command])])
    monkeypatch.setattr(runner, "python_commands", lambda _soak: [("Python", ["echo", "unused"])])
    assert runner.main(["--soak", "--hours", str(3 / 3600)]) == 1
    said = capfd.readouterr().out
    assert "begun" in said
    assert "unused" not in said
    assert "stopped after the given hours" in said
    assert "fuzz" in said.partition("Trials")[2]
