"""Predictions of rates for video players: models and oracles, over TCP and over a rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop

import skyhop
from predictors import levels, tree, write_model, xgboost_file
from skyhop import predict
from skyhop.errors import InputError
from skyhop.video import playing

THROUGHPUT: dict[str, Any] = {
    "target": "throughput", "column": "capacity_bps", "past": ["capacity_bps"], "unit": "bit/s",
}  # fmt: skip
PATH = {"kind": "fixed", "rtt": "40 ms", "start": "2026-01-01T00:00:00Z"}
PAYLOAD = 1448 / 1514
FILM = """
chunk = "4 s"
chunks = 40
ladder = { top = "4300 kbit/s", ratio = 3.0, tracks = 3 }
"""
"""Film with few tracks, for which the optimum is found faster."""


def film(predicted: Any, **others: Any) -> dict[str, Any]:
    """Return a scenario of one film over 8 Mbit/s."""
    app = {"kind": "dash", "controller": "mpc-l", "predicted": predicted}
    return {
        "path": PATH, "link": {"rate": "8 Mbit/s"}, "run": {"duration": "50 s"},
        "flow": [{"app": app}], **others,
    }  # fmt: skip


def believed_mbps(run: skyhop.Run) -> list[tuple[float, float]]:
    """Return for each chunk its request's time (s) and the rate believed then (Mbit/s)."""
    rows = run.apps["chunks"].to_dicts()
    return [
        (row["asked_ns"] / 1e9, row["predicted_bps"] / 1e6)
        for row in rows
        if row["predicted_bps"] is not None
    ]


def constant_model(place: Path, bps: float, **others: Any) -> predict.Model:
    """Write a model that predicts one rate for any features."""
    features = 5 * len(others.get("past", [1])) + len(others.get("beside", []))
    # The tests' tree yields 5, to which ten times the base is added.
    content = xgboost_file([tree()], features, base=(bps - 5) / 10)
    return write_model(place, content=content, **{**THROUGHPUT, **others})


def test_a_model_steers_a_film_over_tcp(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", "arima", (1, 10), **THROUGHPUT)
    run = skyhop.sim(film(str(model.directory)), tmp_path / "run")
    said = believed_mbps(run)
    # The rate is constant; a chunk's throughput also includes the request's round trip.
    assert len(said) > 5
    assert all(1.0 < mbps < 8 * PAYLOAD for at_s, mbps in said if at_s > 1.0), said
    resolved = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["scenario"]
    assert resolved["flow"][0]["app"]["predicted"] == str(model.directory)


def test_a_model_is_asked_with_the_links_schedule(tmp_path: Path) -> None:
    rates = np.concatenate([np.full(40, 8e6), np.full(40, 2e6)])
    path = skyhop.path(scenario={"path": PATH}, duration="80 s")
    model = write_model(tmp_path / "m", "arima", (1, 10), **THROUGHPUT)
    ahead = predict.rates_along_path(model.directory, path, rates)
    assert ahead.tolist() == predict.rates_ahead(model, rates).tolist()
    # Predictions before the drop do not depend on it.
    cut = predict.rates_along_path(model.directory, path, np.full(80, 8e6))
    assert ahead[:40].tolist() == cut[:40].tolist()
    assert ahead[60:].tolist() != cut[60:].tolist()


def test_the_grid_and_the_satellites_are_known_of_a_path(tmp_path: Path) -> None:
    geometry = {
        "beside": ["grid_phase_s", "sat_count"],
        "features": ["history", "grid", "satellites"],
    }
    model = constant_model(tmp_path / "m", 3e6, **geometry)
    path = skyhop.path("San Diego", "New York", duration="45 s", start="2026-01-01T00:00:00Z")
    ahead = predict.rates_along_path(model.directory, path, 1e6 * levels(45))
    assert ahead.shape == (45, 30)
    with pytest.raises(InputError, match="sat_count, which a path and the rate of its link do not"):
        predict.rates_along_path(
            model.directory, skyhop.path(scenario={"path": PATH}, duration="45 s"), np.ones(45)
        )


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"target": "latency", "column": "latency_ms", "past": ["latency_ms"]},
         "predicts latency: give a model of throughput"),
        ({"past": ["capacity_bps", "tx_bps"]},
         "the model is given tx_bps, which a path and the rate of its link do not have"),
        ({"beside": ["azimuth"], "features": ["history", "dish"]}, "the model is given azimuth"),
    ],
)  # fmt: skip
def test_a_model_of_what_only_a_session_knows_is_one_line(
    skyhop: Skyhop, tmp_path: Path, others: dict[str, Any], expected: str
) -> None:
    constant_model(tmp_path / "m", 3e6, **others)
    (tmp_path / "film.toml").write_text(
        '[path]\nkind = "fixed"\nrtt = "40 ms"\n[run]\nduration = "40 s"\n'
        '[[flow]]\napp = { kind = "dash", controller = "mpc-l", predicted = "m" }\n', "utf-8"
    )  # fmt: skip
    done = skyhop("sim", "film.toml", "-o", "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_no_model_and_a_damaged_one_are_one_line(skyhop: Skyhop, tmp_path: Path) -> None:
    write_model(tmp_path / "m", "arima", **THROUGHPUT)
    base = [
        "video",
        "--set",
        "flow.0.app.controller=mpc-l",
        "--set",
        "run.duration=25 s",
        "-o",
        "r",
    ]
    done = skyhop("sim", *base, "--set", "flow.0.app.predicted=nowhere")
    assert done.returncode == 2
    assert 'flow.0.app.predicted: there is no model "nowhere"' in done.stderr
    (tmp_path / "m" / "card.json").write_text("{", "utf-8")
    done = skyhop("sim", *base, "--set", "flow.0.app.predicted=m")
    assert done.returncode == 2
    assert "is no model card" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_model_over_a_rate_on_the_command_line(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "t.trace").write_text("".join(f"{t}\n" for t in range(1, 60_001)), "utf-8")
    made = skyhop("path", "import", "t.trace", "--format", "mahimahi", "-o", "t.parquet")
    assert made.returncode == 0, made.stderr
    constant_model(tmp_path / "low", 0.5e6)
    (tmp_path / "film.toml").write_text(FILM, "utf-8")
    play = ["video", "play", "t.parquet", "--film", "film.toml", "--controller", "mpc-l", "--json"]

    def bitrate(*words: str) -> float:
        done = skyhop(*play, *words)
        assert done.returncode == 0, done.stderr
        return float(json.loads(done.stdout)[0]["bitrate_mbps"])

    # A player that believes in 0.5 Mbit/s plays lower than one that knows of 12.
    knowing = bitrate("--predicted", "oracle")
    assert bitrate("--predicted", "low") < 0.9 * knowing
    assert bitrate("--mean-error", "-0.97") < 0.9 * knowing
    for words, expected in [
        (
            ["--predicted", "low", "--relative-sd", "0.1"],
            "are for the oracle: leave out --predicted",
        ),
        (["--predicted", "nowhere"], "there is no such file: give a directory of a model"),
        (["--compat", "sabre"], "sabre"),
    ]:
        done = skyhop(*play, *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert expected in done.stderr


def test_pensieves_habits_are_one_switch(tmp_path: Path) -> None:
    from skyhop import _core

    rates = (1e6 * (1.0 + np.arange(300) % 7)).tolist()
    trace = _core.RateTrace("rates", [float(s) for s in range(300)], rates, 300.0)
    offsets = np.arange(0.0, 60.0, 20.0)
    (tmp_path / "film.toml").write_text(FILM, "utf-8")
    film = str(tmp_path / "film.toml")
    habits = playing.PlaybackOptions(film, compat="pensieve")
    found = playing.play(trace, "robust-mpc", habits, offsets=offsets)
    apart = playing.PlaybackOptions(
        film,
        without_first=True,
        environment={"stands_still": True},
        playing={"wait_step": "500 ms"},
    )
    assert found.chunks.equals(playing.play(trace, "robust-mpc", apart, offsets=offsets).chunks)
    usual = playing.play(trace, "robust-mpc", playing.PlaybackOptions(film), offsets=offsets)
    assert not found.chunks.equals(usual.chunks)
    bound = playing.optimum(trace, habits, offsets=offsets)
    assert (found.sessions["qoe"].to_numpy() <= bound + 1e-9).all()
