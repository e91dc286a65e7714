"""Table of senders over modelled and measured access links: differences, verdicts, order."""

from __future__ import annotations

import numpy as np
import pytest

from validation import access_senders
from validation.access_senders import LINKS, SENDERS, Found, Samples, order, row, table


def samples(goodput_mbps: float, inflation: float) -> Samples:
    """Return four runs whose means are the given values."""
    noise = np.array([-0.01, 0.01, -0.02, 0.02])
    return Samples(goodput_mbps + noise, inflation + noise)


def found(**turned: float) -> Found:
    """Return runs in which model and traces agree, but for the model's goodputs in `turned`."""
    values = dict(zip(SENDERS.values(), (80.0, 90.0, 85.0, 20.0, 50.0), strict=True))
    return {
        (link.name, sender): (samples(mbps, 1.5), samples(turned.get(sender, mbps), 1.5))
        for link in LINKS
        for sender, mbps in values.items()
    }


def test_a_row_has_both_means_and_how_far_the_model_is_off() -> None:
    cells = row("Victoria 3", "BBR", samples(80, 1.5), samples(88, 1.35))
    assert cells[:3] == ["Victoria 3", "BBR", "4, 4"]
    assert cells[3:] == [
        "80.0 ± 0.0", "88.0 ± 0.0", "+10.0 %", "1.50 ± 0.02", "1.35 ± 0.02", "-10.0 %", "yes",
    ]  # fmt: skip


@pytest.mark.parametrize(("goodput", "inflation"), [(93.0, 1.5), (80.0, 1.85), (66.0, 1.5)])
def test_a_row_out_of_tolerance_has_its_reason(
    monkeypatch: pytest.MonkeyPatch, goodput: float, inflation: float
) -> None:
    both = samples(80, 1.5), samples(goodput, inflation)
    monkeypatch.setattr(access_senders, "REASONS", {"LeoCC": "its log is short"})
    assert row("LeoCC", "BBR", *both)[-1] == "**no**: its log is short"
    assert row("Lagos, up", "BBR", *both)[-1] == "**no**: open"


def test_a_miss_that_chance_explains_says_so() -> None:
    wide = Samples(np.array([20.0, 60, 100, 120]), np.array([1.5, 1.6, 1.4, 1.5]))
    narrow = Samples(np.array([50.0, 55, 60, 65]), np.array([1.5, 1.6, 1.4, 1.5]))
    assert row("Lagos", "CUBIC", wide, narrow)[-1] == "**no**, but within chance: open"


def test_every_link_and_sender_has_a_row() -> None:
    lines = table(found()).splitlines()
    assert len(lines) == 2 + len(LINKS) * len(SENDERS)


def test_senders_in_the_opposite_order_are_named() -> None:
    assert order(found()).startswith("No two senders have the opposite order")
    assert "BBR and BBRv3 over LeoCC (goodput)" in order(found(BBRv3=95.0))
    assert order(found(BBRv3=90.0)).startswith("No two"), "equal means have no order"


def test_reasons_are_about_rows_of_the_table() -> None:
    assert set(access_senders.REASONS) <= {link.name for link in LINKS}
