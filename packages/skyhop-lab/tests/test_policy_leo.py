"""skyhop-leo, the card that comes with its network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from guest_kernels import needs_module_kernel
from needs import needs_namespaces, unless_impossible
from skyhop import _core
from skyhop.errors import InputError

SCENARIO: dict[str, Any] = {
    "path": {
        "constellation": "kuiper",
        "from": "Miami, US",
        "to": "Los Angeles",
        "relay": "bent-pipe",
    },
    "link": {"rate": "20 Mbit/s", "queue": "1 BDP"},
    "signal": {"source": "path", "lead": "0.5 s"},
    "run": {"duration": "20 s"},
    "flow": [{"cc": "policy", "policy": "skyhop-leo"}],
}

FIXED = """\
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "20 Mbit/s"
queue = "125 kB"
[run]
duration = "10 s"
[[flow]]
cc = "policy"
policy = "skyhop-leo"
"""


def test_a_flow_can_name_it_in_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = sh.sim(SCENARIO)
    [flow] = run.summary["flows"]
    assert flow["cc"] == "skyhop-leo"
    assert flow["goodput_bps"] > 0.8 * 20e6


def test_a_card_without_weights_cannot_be_named() -> None:
    with pytest.raises(InputError, match=r"astraea\.onnx"):
        sh.sim({**SCENARIO, "flow": [{"cc": "policy", "policy": "astraea"}]})
    with pytest.raises(InputError, match="or one of astraea, aurora, orca"):
        sh.sim({**SCENARIO, "flow": [{"cc": "policy", "policy": "nobody"}]})


def test_its_network_is_small_and_fits() -> None:
    weights = _core.policy_network("skyhop-leo")
    assert weights is not None
    assert len(weights) < 1_000_000
    assert _core.policy_network("astraea") is None
    title, features, steps, digests = _core.check_policy("skyhop-leo")
    assert (title, len(features), steps) == ("skyhop-leo", 21, 4)
    assert sorted(digests) == ["skyhop:skyhop-leo.onnx", "skyhop:skyhop-leo.toml"]


def test_a_card_begun_from_it_has_its_network(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop("policy", "new", str(tmp_path / "mine.toml"), "--from", "skyhop-leo")
    assert done.returncode == 0, done.stderr
    own = {**SCENARIO, "flow": [{"cc": "policy", "policy": str(tmp_path / "mine.toml")}]}
    mine, theirs = sh.sim(own).summary["flows"], sh.sim(SCENARIO).summary["flows"]
    assert mine[0]["cc"] == "mine.toml"
    assert {**mine[0], "cc": ""} == {**theirs[0], "cc": ""}


def test_a_decision_log_equals_the_run_of_the_simulator(skyhop: Skyhop, tmp_path: Path) -> None:
    from skyhop_lab.gym.decision_log import log_decisions

    log = log_decisions("skyhop-leo", SCENARIO)
    run = sh.sim(SCENARIO)
    of = log.figures
    received = float((of["goodput_bps"] * of["interval_s"]).sum())
    goodput = run.summary["flows"][0]["goodput_bps"] * 20.0
    assert received == pytest.approx(goodput, rel=0.01)
    assert log.observations.shape == (len(log.outputs), 21)
    assert np.abs(log.outputs).max() <= 1.0
    assert log.announced_s()
    assert max(of["cwnd_packets"]) >= max(run.flows["cwnd_packets"].to_list()) * 0.9

    figure = tmp_path / "look.png"
    done = skyhop("policy", "look", "skyhop-leo", "announced-handovers", "-o", str(figure),
                  "--set", "run.duration=5 s")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_decision_log_is_of_one_flow() -> None:
    from skyhop_lab.gym.decision_log import log_decisions

    with pytest.raises(InputError, match="expected one flow with count = 1"):
        log_decisions("skyhop-leo", {**SCENARIO, "flow": [{"count": 2}]})
    with pytest.raises(InputError, match="no entry"):
        log_decisions("skyhop-leo", SCENARIO, flow=7)


@pytest.mark.soak
@pytest.mark.parametrize("engine", [pytest.param("live", marks=pytest.mark.alone), "linux"])
def test_linux_agrees_with_the_simulator(engine: str, skyhop: Skyhop, tmp_path: Path) -> None:
    if engine == "live":
        needs_namespaces()
    else:
        needs_module_kernel()
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(FIXED, "utf-8")
    [simulated] = sh.sim(scenario).summary["flows"]
    done = skyhop(engine, scenario, "-o", "run")
    unless_impossible(done)
    assert done.returncode == 0, done.stderr
    [measured] = sh.read_run(tmp_path / "run").summary["flows"]
    assert measured["goodput_bps"] == pytest.approx(simulated["goodput_bps"], rel=0.07)
    cwnd_packets = simulated["cwnd_mean_packets"]
    assert measured["cwnd_mean_packets"] == pytest.approx(cwnd_packets, rel=0.15)
