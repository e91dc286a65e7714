"""Content and files of a small study, which tests vary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skyhop.data.toml import toml_text


def content(**changes: Any) -> dict[str, Any]:
    """Return the content of a study file: two congestion controls, two losses, two seeds."""
    study: dict[str, Any] = {
        "title": "CUBIC and BBR with loss",
        "question": "Which of them fills a lossy link?",
        "repeats": 2,
        "scenario": {
            "path": {"kind": "fixed", "rtt": "20 ms"},
            "link": {"rate": "10 Mbit/s"},
            "flow": [{"cc": "cubic"}],
            "run": {"duration": "3 s"},
        },
        "axis": [
            {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"]},
            {"name": "loss", "key": "link.loss", "values": ["0.1 %", "1 %"]},
        ],
    }
    return {**study, **changes}


def write(file: Path, **changes: Any) -> Path:
    """Write the small study with these changes to a TOML file; return the file."""
    file.write_text(toml_text(content(**changes)), "utf-8")
    return file


CARD = """\
title = "Forty packets"
[observation]
features = [{ of = "cwnd", times = 0.025 }]
[network]
file = "forty.onnx"
[action]
moves = "cwnd"
shape = "power"
"""
"""Card of a learned sender that always has forty packets in flight."""
