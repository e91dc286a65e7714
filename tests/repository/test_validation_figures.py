"""Figures of docs/results/validation.md: a panel for each flow, and for each sender."""

from __future__ import annotations

from pathlib import Path

import pytest

import skyhop
from skyhop.analysis.styles import COLOURS
from validation import this_kernel
from validation.linux import recorded, scenarios

SHORT = {"duration": "2 s"}


def test_each_flow_has_a_panel_with_linuxs_window_and_ours() -> None:
    names = ("single-cubic-50m-40ms-1bdp", "fair-cubic-50m-40ms-1bdp")
    rows = []
    for name in names:
        linux = recorded.summary()[name]
        text = scenarios.scenario(name, linux)
        flows = [{**flow, "start": "0 ms"} for flow in text["flow"]]
        ours = scenarios.simulate({**text, "flow": flows, "run": SHORT})
        rows.append(scenarios.Row(name, linux["flows"], [ours]))
    figure = scenarios.draw(rows)
    titles = [ax.get_title() for ax in figure.axes if ax.lines]
    assert titles == [names[0], f"{names[1]}, cubic 0", f"{names[1]}, cubic 1"]
    assert all(len(ax.lines) == 2 for ax in figure.axes if ax.lines)
    assert figure.pixels().std() > 1


def test_each_sender_has_a_panel_with_both_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_kernel, "devices", lambda: ["tun"])
    monkeypatch.setattr(this_kernel, "SHOWN_S", (0.0, 2.0))
    flow = {"path": {"kind": "fixed", "rtt": "40 ms"}, "flow": [{"cc": "cubic"}], "run": SHORT}
    run = skyhop.sim(flow)
    sender = this_kernel.SENDERS[0]
    pair = this_kernel.Pair(sender, "tun", run, run, late=False)
    figure = this_kernel.draw([pair, pair])
    assert [ax.get_title() for ax in figure.axes] == [sender.name] * 2
    assert {line.get_color() for line in figure.axes[0].lines} == {"#999999", COLOURS[1]}
    assert figure.pixels().std() > 1


def test_the_page_shows_them() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "results"
    page = (docs / "validation.md").read_text("utf-8")
    for name in ("validation-cwnd.png", "validation-kernel.png"):
        assert f"({name})" in page
        assert (docs / name).is_file()
