"""Adaptive video in the core: films, sessions over a rate trace, and the player for browsers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import skyhop
from skyhop import _core
from skyhop.errors import InputError

LINEAR = "pensieve-linear"
WHOLE = [
    "session",
    "chunk",
    "track",
    "bitrate_bps",
    "size_bytes",
    "asked_ns",
    "arrived_ns",
    "stall_ns",
    "buffer_ns",
    "waited_ns",
    "abandoned_bytes",
]


def steady(bps: float) -> _core.RateTrace:
    """Return a trace with a constant rate."""
    return _core.RateTrace("steady", [0.0], [bps], 100.0)


def wavy() -> _core.RateTrace:
    """Return a trace whose rate changes each second."""
    draws = np.random.default_rng(1).gamma(4.0, 0.6e6, 300)
    return _core.RateTrace("wavy", [float(s) for s in range(300)], draws.tolist(), 300.0)


def columns(sessions: _core.Sessions) -> dict[str, np.ndarray]:
    """Return the columns of the chunks as arrays."""
    real = {"predicted_bps"}
    return {
        name: np.frombuffer(data, np.float64 if name in real else np.int64)
        for name, data in sessions.chunks().items()
    }


def test_films_controllers_and_qoe_models_are_listed_once() -> None:
    films, qoes = _core.list_films(), _core.list_qoes()
    assert [film.name for film in films] == ["pensieve", "satpipe", "six-tracks"]
    assert all(film.source and film.description for film in films)
    assert len({qoe.name for qoe in qoes}) == len(qoes) == 12
    controllers = {one.name: dict(one.parameters) for one in _core.list_controllers()}
    assert controllers["robust-mpc"] == {"horizon": "5", "window": "5", "ties": "last"}


def test_sessions_have_a_row_for_each_chunk_and_their_sums() -> None:
    film = _core.Film.read("pensieve")
    sessions = _core.play_over_rate(film, "bola", LINEAR, wavy(), [0.0, 10.0, 20.5], [1, 2, 3])
    chunks = columns(sessions)
    assert set(chunks) == {*WHOLE, "predicted_bps"}
    assert all(len(column) == 3 * 48 for column in chunks.values())
    assert chunks["session"].tolist() == [0] * 48 + [1] * 48 + [2] * 48
    assert np.isnan(chunks["predicted_bps"][0])
    assert (chunks["arrived_ns"] > chunks["asked_ns"]).all()
    summaries = sessions.summaries()
    stalls = np.frombuffer(summaries["stall_ns"], np.int64)
    assert stalls.tolist() == chunks["stall_ns"].reshape(3, 48).sum(axis=1).tolist()
    qoe = np.frombuffer(summaries["qoe"], np.float64).tolist()
    assert qoe == sessions.scores(LINEAR)
    of_first = (chunks["track"][:48].tolist(), chunks["stall_ns"][:48].tolist())
    assert _core.score_chunks(film, LINEAR, *of_first) == pytest.approx(qoe[0])


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    film, offsets = _core.Film.read("six-tracks", top="4 Mbit/s"), [float(n) for n in range(20)]
    one, four = (
        _core.play_over_rate(
            film, "festive", LINEAR, wavy(), offsets, list(range(20)), threads=threads
        )
        for threads in (1, 4)
    )
    assert one.chunks() == four.chunks()


def test_the_external_player_decides_like_a_session() -> None:
    film = _core.Film.read("pensieve")
    played = columns(_core.play_over_rate(film, "robust-mpc", LINEAR, wavy(), [0.0], [1]))
    player = _core.Player(film, "robust-mpc", LINEAR)
    for chunk in range(1, 48):
        before = {name: int(played[name][chunk - 1]) for name in WHOLE}
        took_s = (before["arrived_ns"] - before["asked_ns"]) / 1e9
        player.arrived(chunk - 1, before["track"], before["size_bytes"], took_s)
        now_s = played["asked_ns"][chunk] / 1e9
        buffer_s = (before["buffer_ns"] - played["waited_ns"][chunk]) / 1e9
        track, believed_bps, wait_s = player.next(now_s, buffer_s, chunk, before["track"])
        assert (track, wait_s) == (played["track"][chunk], 0.0)
        assert believed_bps == pytest.approx(played["predicted_bps"][chunk], rel=1e-5)


def test_predictions_affect_planning_controllers_from_their_time_on() -> None:
    film, trace = _core.Film.read("pensieve"), steady(6e6)
    low = ([50.0], 1.0, [[0.3e6]])
    blind, told = (
        columns(_core.play_over_rate(film, "mpc-l", LINEAR, trace, [0.0], [1], predicted=rows))
        for rows in (([1e6], 1.0, [[1e6]]), low)
    )
    early = blind["asked_ns"] < 50e9
    assert blind["track"][early].tolist() == told["track"][early].tolist()
    assert blind["track"][~early].mean() > told["track"][~early].mean()


def test_no_controller_beats_the_optimum() -> None:
    film = _core.Film.read("pensieve")
    [most] = _core.optimum_over_rate(film, LINEAR, wavy(), [0.0], resolution_s=0.5)
    for controller in ("robust-mpc", "mpc-o", "bba"):
        sessions = _core.play_over_rate(film, controller, LINEAR, wavy(), [0.0], [1])
        assert sessions.scores(LINEAR)[0] <= most


def test_films_are_read_from_files(tmp_path: Path) -> None:
    for track in range(6):
        sizes = "\n".join(str((track + 1) * 1000 + chunk) for chunk in range(49))
        (tmp_path / f"video_size_{track}").write_text(sizes, "utf-8")
    film = _core.Film.read(str(tmp_path))
    assert (film.chunks, film.chunk_s, film.bitrates_bps[5]) == (49, 4.0, 4_300_000)
    assert film.sizes_bytes(5)[48] == 6048
    toml = tmp_path / "mine.toml"
    toml.write_text('chunk = "2 s"\nchunks = 3\n[[track]]\nbitrate = "1 Mbit/s"\n', "utf-8")
    assert _core.Film.read("mine.toml", base=str(tmp_path)).sizes_bytes(0) == [250_000] * 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda _: _core.Film.read("bunny"),
            'bunny: film: unknown film "bunny"; expected pensieve,',
        ),
        (lambda _: steady(0.0), "its rate is 0 bit/s throughout, so that nothing ever arrives"),
        (
            lambda film: _core.Player(film, "bolla", LINEAR),
            'unknown controller "bolla" (did you mean bola?); expected rate,',
        ),
        (lambda film: _core.Player(film, '{"kind": "bba", "x": 1}', LINEAR), "unknown field `x`"),
        (lambda film: _core.Player(film, "bba", "linear"), 'unknown QoE "linear"; expected'),
        (lambda film: _core.Player(film, "bba", LINEAR).next(0.0, 1.0, 48), "has 48 chunks, not"),
        (lambda film: film.qualities("satpipe"), "unknown QoE"),
        (lambda film: film.sizes_bytes(6), "has no track 6; expected 0 to 5"),
        (lambda film: play(film, playing={"buffer_cap": "0 s"}), "buffer_cap is 0 s; expected"),
        (lambda film: play(film, environment={"payload_share": 2}), "payload_share is 2; expected"),
        (lambda film: play(film, cap=3), "unknown field `cap`"),
    ],
)
def test_wrong_input_is_an_error_of_one_line(wrong, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as error:
        wrong(_core.Film.read("pensieve"))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def play(film: _core.Film, **options: object) -> _core.Sessions:
    """Play a session with these options."""
    return _core.play_over_rate(film, "bba", LINEAR, steady(1e6), [0.0], [1], json.dumps(options))


VIDEO = {
    "path": {"kind": "fixed", "rtt": "40 ms"},
    "link": {"rate": "6 Mbit/s"},
    "flow": [{"from": "to", "app": {"kind": "dash", "controller": "rate"}}],
    "run": {"duration": "220 s"},
}


def test_a_film_over_simulated_tcp_is_played_as_over_the_rate_of_its_payload() -> None:
    run = skyhop.sim(VIDEO)
    table = run.apps["chunks"]
    assert set(WHOLE) - {"session"} < set(table.columns)
    chunks = {name: np.asarray(table[name]) for name in WHOLE if name != "session"}
    assert chunks["chunk"].tolist() == list(range(48))
    assert chunks["asked_ns"][0] == 0
    # 1,448 of 1,514 B are payload; each request costs a round trip, and some slow start.
    options = {
        "environment": {"payload_share": 1448 / 1514, "delay": "60 ms"},
        "playing": {"wait_step": "0 s"},
    }
    film = _core.Film.read("pensieve")
    played = columns(
        _core.play_over_rate(
            film, "rate", LINEAR, steady(6e6), [0.0], [1], options=json.dumps(options)
        )
    )
    assert chunks["bitrate_bps"].mean() == pytest.approx(played["bitrate_bps"].mean(), rel=0.05)
    assert abs(int(chunks["stall_ns"].sum()) - int(played["stall_ns"].sum())) < 1e9
    [summary] = run.summary["apps"]
    assert summary["kind"] == "dash"
    assert (summary["completed"], summary["stall_ns"]) == (48, int(chunks["stall_ns"].sum()))
    tracks, stalls = chunks["track"].tolist(), chunks["stall_ns"].tolist()
    assert summary["qoe"] == pytest.approx(_core.score_chunks(film, LINEAR, tracks, stalls))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"film": "bunny"}, 'flow.0.app.film: unknown film "bunny"; expected pensieve,'),
        ({"qoe": "joy"}, 'flow.0.app.qoe: unknown QoE "joy"; expected'),
        (
            {"film": "satpipe", "qoe": "pensieve-hd"},
            "is a table of 6 tracks; the film satpipe has 7",
        ),
        ({"controller": "mpc-o"}, "mpc-o plans with predictions; expected `predicted`"),
        ({"controller": {"kind": "bba", "cushion_s": 0}}, "bba.cushion_s is 0; expected"),
    ],
)
def test_a_film_that_cannot_be_played_is_an_error_of_one_line(
    keys: dict[str, object], said: str
) -> None:
    wrong = VIDEO | {"flow": [{"app": {"kind": "dash"} | keys}]}
    with pytest.raises(InputError) as error:
        skyhop.sim(wrong)
    assert said in str(error.value)
