"""Commands of docs/how-to/applications.md, run in order on the files that the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from skyhop import _core

PAGE = (ROOT / "docs" / "how-to" / "applications.md").read_text("utf-8")
COMMANDS = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)


@pytest.mark.soak
def test_the_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "sizes.csv").write_text("20000\n5000\n800\n", "utf-8")
    for file in re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL):
        (tmp_path / file.split()[1]).write_text(file, "utf-8")
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    (code,) = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.count("2 ")) == (0, 3), done.stderr


def test_the_page_names_every_application() -> None:
    assert all(f"| `{entry.name}` |" in PAGE for entry in _core.list_apps())
