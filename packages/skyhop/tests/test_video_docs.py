"""docs/how-to/video.md: run its commands and its code in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Skyhop

from skyhop import _core
from skyhop.study.films import METRICS

PAGE = (ROOT / "docs" / "how-to" / "video.md").read_text("utf-8")


@pytest.mark.soak
def test_the_pages_commands_run_in_order(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Packets of 1500 bytes at a varying rate: about 6 Mbit/s for 150 s.
    draws = np.random.default_rng(1).exponential(2.0, 75_000).cumsum().astype(int) + 1
    (tmp_path / "downlink.trace").write_text("".join(f"{t}\n" for t in draws), "utf-8")
    commands = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        # The command for a browser takes longer and needs programs; test_video.py tests it.
        if not command.startswith("video watch"):
            done = skyhop(*shlex.split(command))
            assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "film.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/how-to/video.md", "exec"), {})


def test_the_film_of_the_page_is_valid() -> None:
    film = next(b for b in re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL) if "[[track]]" in b)
    read = _core.Film.of_toml(film, "lecture.toml")
    assert (read.chunks, read.bitrates_bps) == (150, [300_000, 900_000])


def test_the_page_names_the_metrics_of_films() -> None:
    for metric in METRICS:
        if not metric.name.startswith("qoe_"):
            assert f"`{metric.name}`" in PAGE, metric.name
