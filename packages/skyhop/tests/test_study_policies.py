"""User's cards as senders of a study: `skyhop study run STUDY --policy NAME=CARD`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from onnx_file import linear
from skyhop.errors import InputError
from skyhop.study import load_study
from small_study import CARD

STUDY = """\
title = "Two senders"
question = "Which has more?"
[scenario.path]
kind = "fixed"
rtt = "50 ms"
[scenario.link]
rate = "20 Mbit/s"
[scenario.run]
duration = "5 s"
[[scenario.flow]]
[[axis]]
name = "sender"
[axis.points]
"Cubic" = { "flow.0.cc" = "cubic" }
"SaTCP" = { "flow.0.cc" = "satcp", "signal.source" = "path" }
[[claim]]
text = "the learned one has the least"
check = 'goodput(sender="Learned") < goodput(sender="Cubic")'
policy = "Learned"
cannot_be_told = "its weights are the user's"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write a study, and a card with its network in the same directory."""
    (tmp_path / "card.toml").write_text(CARD, "utf-8")
    (tmp_path / "forty.onnx").write_bytes(linear([-1.0], 1.0))
    (tmp_path / "study.toml").write_text(STUDY, "utf-8")
    return tmp_path / "study.toml"


def test_a_card_becomes_a_sender_and_its_claim_is_checked(study: Path, skyhop: Skyhop) -> None:
    run = ("study", "run", str(study), "--json", "-o")
    without = skyhop(*run, "without")
    assert without.returncode == 0, without.stderr
    assert json.loads(without.stdout)["claims"][0]["verdict"] == "cannot be told"
    # The case of the name does not matter; the report uses that of the claim.
    done = skyhop(*run, "with", "--policy", "learned=card.toml")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["claims"][0]["verdict"] == "holds"
    page = (study.parent / "with" / "report.html").read_text("utf-8")
    assert "--policy learned=card.toml" in page
    told = {run: (study.parent / run / "report-figures/claims.tex").read_text("utf-8")
            for run in ("without", "with")}  # fmt: skip
    assert "cannot be told: its weights are the user's" in told["without"]
    assert "its weights are the user" not in told["with"]
    assert "against" in told["with"], "the numbers stand there"
    points = load_study(study, {"learned": study.with_name("card.toml")}).points
    assert [dict(point.labels) for point in points] == [
        {"sender": "Cubic"}, {"sender": "SaTCP"}, {"sender": "Learned"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "card", "expected"),
    [
        ("learned", "none.toml", "--policy learned=none.toml: there is no such file"),
        ("Cubic", "card.toml", "--policy Cubic: the study has a sender of that name"),
    ],
)
def test_a_wrong_card_is_refused(study: Path, name: str, card: str, expected: str) -> None:
    place = study.with_name(card) if study.with_name(card).exists() else Path(card)
    with pytest.raises(InputError, match=expected.replace(".", r"\.")) as caught:
        load_study(study, {name: place})
    assert "\n" not in str(caught.value)


def test_a_study_without_senders_says_so(study: Path, skyhop: Skyhop) -> None:
    text = study.read_text("utf-8").replace("flow.0.cc", "flow.0.ecn").replace('"cubic"', "true")
    study.write_text(text.replace('"satcp"', "false"), "utf-8")
    done = skyhop("study", "run", str(study), "-o", "out", "--policy", "a=card.toml")
    assert done.returncode == 2
    assert "no axis of senders" in done.stderr
    wrong = skyhop("study", "run", str(study), "-o", "out", "--policy", "card.toml")
    assert "expected NAME=CARD.toml" in wrong.stderr


@pytest.mark.parametrize(("name", "claims"), [("Astraea", 26), ("Sage", 15)])
def test_every_claim_about_a_learned_sender_is_checked_with_its_card(
    study: Path, name: str, claims: int
) -> None:
    """Use another card, because the authors' weights are not available here."""
    card, told = study.with_name("card.toml"), 0
    for file in sorted((ROOT / "studies").glob("leo-fig*.toml")):
        if f'policy = "{name}"' not in file.read_text("utf-8"):
            continue
        for checked in load_study(file, {name.lower(): card}).claims:
            if checked.claim.policy == name:
                assert checked.expression is not None, checked.claim.text
                told += 1
            elif checked.claim.policy:
                assert checked.expression is None, checked.claim.text
    assert told == claims
