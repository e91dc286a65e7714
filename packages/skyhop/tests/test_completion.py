"""Completions of the shell for options and arguments."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Skyhop, skyhop_command

from needs import needs_program


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["si"], {"sim", "signal"}),
        (["sim", "s.toml", "--rep"], {"--repeat"}),
        (["sim", "par"], {"parking-lot", "part.toml"}),
        (["path", "compute", "par"], {"parking-lot", "part.toml"}),
        (["live", "par"], {"parking-lot", "part.toml"}),
        (["study", "run", "satcp-table"], {"satcp-table1", "satcp-table2"}),
        (["path", "compute", "--constellation", "starlink-s"], {"starlink-shell1"}),
        (["list", "constellations", "one"], {"oneweb"}),
        (["path", "compute", "--handover", "near"], {"nearest-grid"}),
        (["path", "compute", "--relay", "b"], {"bent-pipe"}),
        (["path", "compute", "--relay", "st"], {"starlink"}),
        (["path", "compute", "--access", "vic"], {"victoria-2024"}),
        (["path", "compute", "--dish", "t"], {"to"}),
        (["list", "access", "starl"], {"starlink", "starlink-mobility"}),
        (["path", "import", "x", "--format", "m"], {"mahimahi"}),
        (["cc", "load", "satp"], {"satpipe"}),
        (["live", "x", "--cc", "cub"], {"cubic"}),
        # If skyhop offers no completions, the shell offers files.
        (["sim", "own"], set()),
        (["report", "ru"], set()),
    ],
)
def test_names_are_completed(
    skyhop: Skyhop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    expected: set[str],
) -> None:
    for name in ("part.toml", "own.toml"):
        (tmp_path / name).write_text("", "utf-8")
    (tmp_path / "parts").mkdir()
    # Environment variables with which bash requests completions of the last word.
    monkeypatch.setenv("_SKYHOP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["skyhop", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    done = skyhop()
    assert done.stderr == ""
    assert set(done.stdout.split()) == expected


@pytest.mark.integration
def test_a_shell_takes_the_script(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the option searches its parent processes for a shell, and may find that of make.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = skyhop("--show-completion", "bash")
    assert script.returncode == 0
    (tmp_path / "complete.sh").write_text(script.stdout, "utf-8")
    # The call of bash for "skyhop study run satcp-fi".
    asks = "; ".join([
        f"PATH={Path(skyhop_command()[0]).parent}:$PATH", ". ./complete.sh",
        "COMP_WORDS=(skyhop study run satcp-fig7)", "COMP_CWORD=3",
        "_skyhop_completion skyhop", 'printf "%s\\n" "${COMPREPLY[@]}"',
    ])  # fmt: skip
    command = [needs_program("bash"), "-c", asks]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("satcp-fig7\n", "")
