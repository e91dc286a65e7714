"""Commands of docs/tutorials/class.md, run in order, with the results that the page gives."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Skyhop

PAGE = (ROOT / "docs" / "tutorials" / "class.md").read_text("utf-8")
FILES = ("sawtooth.toml", "bloat.toml", "handover.toml", "told.toml")


@pytest.mark.soak
def test_the_pages_commands_run_in_order_with_its_results(skyhop: Skyhop, tmp_path: Path) -> None:
    texts = re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL)
    for name, text in zip(FILES, texts, strict=True):
        (tmp_path / name).write_text(text, "utf-8")
    commands = re.findall(r"^    skyhop (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 12
    for command in commands:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    summaries: dict[str, dict[str, Any]] = {
        place.parent.name: json.loads(place.read_text("utf-8"))
        for place in tmp_path.glob("runs/*/summary.json")
    }
    # Reno fills the link in spite of the sawtooth of its window.
    assert summaries["reno"]["link"]["utilisation"] > 0.98
    call_ms = {
        name: summaries[name]["probes"][0]["rtt_p50_us"] / 1e3 for name in ("fifo", "codel", "bbr")
    }
    assert call_ms["fifo"] > 250
    assert max(call_ms["codel"], call_ms["bbr"]) < 60
    goodput = {
        name: summaries[name]["flows"][0]["goodput_bps"]
        for name in ("unaware", "told", "unaware-deep", "told-deep")
    }
    # Announcements help with a short queue, and not where even a halved window fills the link.
    assert goodput["told"] > 1.05 * goodput["unaware"]
    assert abs(goodput["told-deep"] / goodput["unaware-deep"] - 1) < 0.01
    assert (tmp_path / "sawtooth.html").stat().st_size > 100_000
    assert (tmp_path / "runs" / "told-or-not" / "report.html").exists()
