"""`skyhop policy`, and flows with the card of policy-card.md."""

from __future__ import annotations

import json
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Skyhop

import skyhop as sh
from needs import needs_namespaces, unless_impossible
from onnx_file import forty_packets, linear
from skyhop import _core
from skyhop.analysis.summary import untold_senders
from skyhop.errors import InputError, RunError
from skyhop.study.plan import load_study
from skyhop_lab.policies.graph import OUTPUT_NAME, Graph

PAGE = ROOT / "docs" / "reference" / "policy-card.md"
SCENARIO = """\
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "20 Mbit/s"
queue = "125 kB"
[run]
duration = "5 s"
[[flow]]
cc = "policy"
policy = "forty.toml"
"""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    """Write the page's card with its network, and a scenario whose flow uses it."""
    (tmp_path / "scenario.toml").write_text(SCENARIO, "utf-8")
    return forty_packets(tmp_path)


def test_the_card_of_the_page_moves_the_window_to_forty_packets(card: Path) -> None:
    run = sh.sim(card.with_name("scenario.toml"), card.with_name("run"))
    flows = run.flows.to_pandas()
    assert set(flows[flows.t_ns > 2e9].cwnd_packets) == {40}
    files = json.loads((card.with_name("run") / "run.json").read_text("utf-8"))["cc_files"]
    assert {Path(name).name for name in files} == {"forty.toml", "forty.onnx"}


def test_an_unknown_quantity_is_an_error_of_one_line(card: Path, skyhop: Skyhop) -> None:
    card.write_text(card.read_text("utf-8").replace('of = "cwnd"', 'of = "weather"'), "utf-8")
    done = skyhop("policy", "check", str(card))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "observation.features.0.of: `weather` is not a known quantity" in done.stderr


def test_the_cards_that_come_with_skyhop_can_be_written_and_checked(
    tmp_path: Path, skyhop: Skyhop
) -> None:
    for name, text in _core.policy_cards():
        file = tmp_path / f"{name}.toml"
        written = skyhop("policy", "new", str(file), "--from", name)
        assert written.returncode == 0, written.stderr
        assert file.read_text("utf-8") == text
        checked = skyhop("policy", "check", str(file))
        if _core.policy_network(name) is not None:
            assert checked.returncode == 0, checked.stderr
            continue
        assert checked.returncode == 2
        assert "is not here: its authors publish" in checked.stderr
    assert "exists already" in skyhop("policy", "new", str(file)).stderr
    assert "expected one of astraea" in skyhop("policy", "new", "x.toml", "--from", "x").stderr


def test_ids_of_runs_depend_on_the_network(card: Path) -> None:
    def run_ids() -> set[str]:
        study = {
            "title": "t", "question": "q", "engine": "sim",
            "scenario": {"path": {"kind": "fixed", "rtt": "50 ms"},
                         "link": {"rate": "20 Mbit/s"}, "run": {"duration": "1 s"},
                         "flow": [{"cc": str(card)}]},
        }  # fmt: skip
        return {run.run_id for run in load_study(study).runs()}

    before = run_ids()
    card.with_name("forty.onnx").write_bytes(linear([-1.0], 1.5))
    assert run_ids() != before


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('policy = "forty.toml"', 'policy = "none.toml"', "none.toml"),
        ('policy = "forty.toml"', "policy = 3", "policy"),
        ('policy = "forty.toml"', 'policy = "forty.onnx"', "expected a card"),
        ('policy = "forty.toml"', 'policy = { card = "forty.toml", delay = "soon" }', "delay"),
        ('policy = "forty.toml"', 'policy = { card = "forty.toml", speed = 3 }', "speed"),
        ('cc = "policy"', 'cc = "cubic"', 'is for cc = "policy"'),
    ],
)
def test_wrong_policies_of_flows_are_errors_of_one_line(
    card: Path, old: str, new: str, says: str
) -> None:
    scenario = card.with_name("scenario.toml")
    scenario.write_text(SCENARIO.replace(old, new), "utf-8")
    with pytest.raises(InputError, match=re.escape(says)) as raised:
        sh.sim(scenario, card.with_name("run"))
    assert "\n" not in str(raised.value)


def test_a_card_that_observes_handovers_says_which_lead_it_needs(card: Path) -> None:
    def run(changes: dict[str, str], *sets: str) -> sh.Run:
        text = original
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        card.write_text(text, "utf-8")
        handover = ["change=[{at = '1 s', rtt = '60 ms'}]", "run.duration=2 s", *sets]
        return sh.sim(card.with_name("scenario.toml"), sets=handover)

    def lead(run: sh.Run) -> str:
        return str(run.info["scenario"]["signal"]["lead"])

    original = card.read_text("utf-8")
    unaware = run({"quantities = []": "quantities = []"})
    assert unaware.summary["warnings"] == []
    ahead = 'name = "ahead", of = "handover_in_s", least = 1.0, most = 1.0'
    observes = {
        "quantities = []": f"quantities = [{{ {ahead} }}]",
        'of = "cwnd"': 'of = ["cwnd", "ahead"]',
    }
    declares = {'lead = "0 s"': 'lead = "300 ms"'}
    untold = run(observes | declares)
    assert untold.summary["warnings"] == [
        'forty.toml: gets no handover announcements: [signal] source = "none"; '
        "add --set signal.source=path --set signal.lead='300 ms'"
    ]
    assert untold_senders(untold.summary) == {untold.summary["flows"][0]["cc"]}
    told = run(observes | declares, "signal.source=path")
    assert told.summary["warnings"] == []
    assert lead(told) == "300 ms"
    assert lead(run(observes, "signal.source=path")) == "0 s"
    given = "flow.0.policy={card = 'forty.toml', lead = '2 s'}"
    own = run(observes | declares, "signal.source=path", given)
    assert lead(own) == "2 s"


@pytest.mark.parametrize("file", ["../forty.onnx", "/etc/passwd", "", "a/../../b.onnx"])
def test_a_network_outside_its_cards_directory_is_refused(card: Path, file: str) -> None:
    card.write_text(card.read_text("utf-8").replace("forty.onnx", file), "utf-8")
    with pytest.raises(InputError, match="is not in the card's directory or below it"):
        _core.check_policy(str(card))


@pytest.mark.parametrize("name", ["forty.toml", "forty.onnx"])
def test_a_file_of_2_gb_is_refused_before_it_is_read(card: Path, name: str) -> None:
    file = card.with_name(name)
    os.truncate(file, 2 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=rf"{name}: .*larger than") as raised:
        _core.check_policy(str(card))
    assert "\n" not in str(raised.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


def test_flows_have_separate_recurrent_memory(card: Path) -> None:
    remembers = 'file = "forty.onnx"\nmemory = [{ input = "h", output = "h_next", size = 1 }]'
    text = card.read_text("utf-8").replace('file = "forty.onnx"', remembers)
    text = text.replace('moves = "cwnd"', 'moves = "own-cwnd"\nfirst_cwnd = 20.0')
    card.write_text(text, "utf-8")
    # The n-th output is n * 0.0002.
    network = Graph(1)
    network.remember("h", "h_next", 1)
    network.add("Add", "h", np.ones((1, 1)), output="h_next")
    network.add("Mul", "h_next", np.full((1, 1), 0.0002), output=OUTPUT_NAME)
    card.with_name("forty.onnx").write_bytes(network.onnx())
    scenario = card.with_name("scenario.toml")
    later = '[[flow]]\ncc = "policy"\npolicy = "forty.toml"\nstart = "2.5 s"\n'
    scenario.write_text(SCENARIO.replace('"125 kB"', '"10 MB"') + later, "utf-8")
    flows = sh.sim(scenario, card.with_name("run")).flows.to_pandas()
    expected, exponent = [20], 0.0
    for number in range(1, 260):
        exponent += 0.0002 * number
        expected.append(round(20 * 2**exponent))
    for flow, begins_ns in ((0, 0), (1, 2.5e9)):
        of = flows[(flows.flow == flow) & (flows.t_ns > begins_ns + 0.3e9)]
        windows = list(dict.fromkeys(of.cwnd_packets))
        assert set(windows) <= set(expected)
        assert windows == sorted(windows)
        assert len(windows) > 10


def test_a_damaged_network_is_an_error_of_one_line(card: Path) -> None:
    network = card.with_name("forty.onnx")
    whole = network.read_bytes()
    said = []
    for cut in range(0, len(whole), 7):
        network.write_bytes(whole[:cut])
        # The end of the file may be unused.
        with suppress(InputError):
            _core.check_policy(str(card))
            continue
        with pytest.raises(InputError) as raised:
            _core.check_policy(str(card))
        said.append(str(raised.value))
    assert len(said) > len(whole) // 7 // 2
    assert not any("\n" in line for line in said)


@pytest.fixture
def in_python(card: Path) -> Path:
    """Write a card with the page's Python function as its network, and a scenario that uses it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    place = card.parent / "python"
    place.mkdir()
    (place / "decide.py").write_text(code, "utf-8")
    (place / "scenario.toml").write_text(SCENARIO, "utf-8")
    file = place / card.name
    file.write_text(card.read_text("utf-8").replace("forty.onnx", "decide.py"), "utf-8")
    return file


def test_a_function_in_python_decides_as_the_network_does(card: Path, in_python: Path) -> None:
    seen = [[number / 7] for number in range(20)]
    said = _core.ask_policy(str(card), seen)
    assert _core.ask_policy(str(in_python), seen) == pytest.approx(said, abs=1e-5)
    by_network, by_function = (
        sh.sim(file.with_name("scenario.toml"), file.with_name("run")) for file in (card, in_python)
    )
    assert by_function.flows.equals(by_network.flows)
    run = in_python.with_name("run") / "run.json"
    files = json.loads(run.read_text("utf-8"))["cc_files"]
    assert {Path(name).name for name in files} == {"forty.toml", "decide.py"}


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("def decide(seen):\n    return 1 / 0\n", RunError, "decide.py:2: ZeroDivisionError"),
        ("def decide(seen):\n    return 'much'\n", RunError, "decide.py"),
        ("decide = 3\n", InputError, "defines no function decide(seen)"),
        ("import nothing_at_all\n", InputError, "decide.py:1: ModuleNotFoundError"),
        ("def decide(seen)\n", InputError, "SyntaxError"),
    ],
)
def test_errors_of_the_python_function_are_one_line(
    in_python: Path, code: str, error: type[Exception], says: str
) -> None:
    in_python.with_name("decide.py").write_text(code, "utf-8")
    with pytest.raises(error, match=re.escape(says)) as raised:
        sh.sim(in_python.with_name("scenario.toml"), in_python.with_name("run"))
    assert "\n" not in str(raised.value)
    # An error is not cached: the corrected function works.
    in_python.with_name("decide.py").write_text("def decide(seen):\n    return 0\n", "utf-8")
    sh.sim(in_python.with_name("scenario.toml"), in_python.with_name("next"))


def test_an_error_of_the_python_function_is_raised_by_ask_policy(in_python: Path) -> None:
    in_python.with_name("decide.py").write_text("def decide(seen):\n    return seen[9]\n", "utf-8")
    with pytest.raises(RunError, match="IndexError"):
        _core.ask_policy(str(in_python), [[1.0]])
    with pytest.raises(InputError, match="takes 1 numbers per observation, not 2"):
        _core.ask_policy(str(in_python), [[1.0, 2.0]])


@pytest.mark.soak
@pytest.mark.alone
def test_a_card_has_the_same_effect_in_the_kernel(card: Path, skyhop: Skyhop) -> None:
    needs_namespaces()
    scenario = card.with_name("scenario.toml")
    live = skyhop("live", str(scenario), "-o", str(card.with_name("live")))
    unless_impossible(live)
    assert live.returncode == 0, live.stderr
    simulated = sh.sim(scenario).summary["flows"][0]["goodput_bps"]
    run = sh.read_run(card.with_name("live"))
    assert run.summary["flows"][0]["goodput_bps"] == pytest.approx(simulated, rel=0.07)
    flows = run.flows.to_pandas()
    assert flows[flows.t_ns > 2e9].cwnd_packets.median() == 40


@pytest.mark.soak
@pytest.mark.alone
def test_a_live_run_refuses_a_python_function(in_python: Path, skyhop: Skyhop) -> None:
    needs_namespaces()
    out = in_python.with_name("live")
    live = skyhop("live", str(in_python.with_name("scenario.toml")), "-o", str(out))
    unless_impossible(live)
    assert live.returncode != 0
    assert "decides in the simulator alone" in live.stderr.splitlines()[-1]
    assert not out.exists()
