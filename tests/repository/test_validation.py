"""Commands of `python -m validation`: each has its module, and prints its help."""

from __future__ import annotations

import pytest

from validation.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_prints_its_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["validation", *name.split(), "--help"])
    assert main() == 0
    assert f"Usage: python -m validation {name} [OPTIONS]" in capsys.readouterr().out


def test_an_unknown_command_is_wrong_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["validation", "nonsense"])
    assert main() == 2
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    monkeypatch.setattr("sys.argv", ["validation", "bench", "nonsense"])
    assert main() == 2
    assert "no part nonsense; there are start, paths" in capsys.readouterr().err
