"""`skyhop video`: films over a path's rate, in studies, and in a browser over a live run."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ROOT, Skyhop

import skyhop
from needs import missing, needs_program
from skyhop import _core
from skyhop.analysis.run_timeline import run_timeline
from skyhop.data.reading import run_record
from skyhop.data.toml import toml_text
from skyhop.errors import InputError, RunError
from skyhop.predict import frame
from skyhop.study import films, load_study, run_study
from skyhop.study.claims import judge
from skyhop.video import playing
from skyhop_lab.browser import clip, downloads, server, table, viewer, watching
from skyhop_lab.browser.film_folder import ServedFilm
from validation import films_in_browsers

EXAMPLES = ROOT / "examples"
RATES = np.tile([6.0, 6.0, 1.0, 3.0], 150)
"""Rates of consecutive seconds in Mbit/s."""


@pytest.fixture
def steady(skyhop: Skyhop, tmp_path: Path) -> Path:
    """Create the file of a path with 12 Mbit/s: a packet of 1500 bytes per millisecond."""
    (tmp_path / "steady.trace").write_text("".join(f"{t}\n" for t in range(1, 1001)), "utf-8")
    done = skyhop("path", "import", "steady.trace", "--format", "mahimahi", "-o", "steady.parquet")
    assert done.returncode == 0, done.stderr
    return tmp_path / "steady.parquet"


def test_a_film_over_a_steady_rate_matches_arithmetic(
    skyhop: Skyhop, steady: Path, tmp_path: Path
) -> None:
    done = skyhop(
        "video", "play", steady, "--controller", "mpc-o", "--controller", "bba",
        "-o", "chunks.parquet", "--plot", "film.png", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row["controller"]: row for row in json.loads(done.stdout)}
    # 12 Mbit/s carry the highest track of 4.3 from the second chunk on.
    assert rows["mpc-o"]["bitrate_mbps"] == pytest.approx((47 * 4.3 + 0.75) / 48)
    assert rows["mpc-o"]["switches"] == 1
    assert rows["mpc-o"]["stall_s"] == 0
    # 3 Mbit of 0.75 Mbit/s, of which 95 % is payload, and 80 ms.
    assert rows["mpc-o"]["startup_s"] == pytest.approx(3 / (0.95 * 12) + 0.08, rel=0.02)
    assert rows["mpc-o"]["qoe"] <= rows["mpc-o"]["qoe_bound"] + 1e-9
    assert rows["bba"]["qoe"] <= rows["mpc-o"]["qoe"]
    chunks = pl.read_parquet(tmp_path / "chunks.parquet")
    assert chunks.group_by("controller").len()["len"].to_list() == [48, 48]
    assert (tmp_path / "film.png").read_bytes().startswith(b"\x89PNG")
    shown = skyhop("video", "play", steady)
    assert "robust-mpc" in shown.stdout
    assert "QoE" in shown.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--film", "gone"), 'unknown film "gone"'),
        (("--controller", "mind"), 'unknown controller "mind"'),
        (("--qoe", "joy"), "joy"),
        (("--top", "fast"), "top"),
        (("--every", "9 h"), "expected more than 0 s and at most"),
        (("--every", "1 s", "--sessions", "2"), "either --sessions or --every"),
        (("-o", "x.txt"), ".parquet or .csv"),
        (("--plot", "x.txt"), "x.txt"),
    ],
)
def test_wrong_options_of_a_film_are_an_error_of_one_line(
    skyhop: Skyhop, steady: Path, words: tuple[str, ...], expected: str
) -> None:
    done = skyhop("video", "play", steady, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_path_without_a_rate_is_refused(skyhop: Skyhop) -> None:
    made = skyhop(
        "path", "--from", "Oslo", "--to", "Bergen", "--duration", "5 s", "-o", "p.parquet"
    )
    assert made.returncode == 0, made.stderr
    done = skyhop("video", "play", "p.parquet")
    assert done.returncode == 2
    assert "has no rate" in done.stderr


@pytest.mark.usefixtures("pictures")
def test_a_film_over_tcp_is_in_tables_and_figures(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop("sim", EXAMPLES / "video.toml", "-o", "run", "--set", "run.duration=30 s")
    assert done.returncode == 0, done.stderr
    run = skyhop_run(tmp_path)
    app = run.summary["apps"][0]
    chunks = run.apps["chunks"]
    whole = chunks.drop_nulls("arrived_ns")
    assert whole["bitrate_bps"].mean() == pytest.approx(app["mean_bitrate_bps"], abs=1)
    assert whole["stall_ns"].sum() == app["stall_ns"]
    film = _core.Film.read("pensieve", "12 Mbit/s")
    scored = _core.score_chunks(
        film, "pensieve-linear", whole["track"].to_list(), whole["stall_ns"].to_list()
    )
    assert scored == pytest.approx(app["qoe"])
    report = skyhop("report", "run", "-o", "report.html", "--csv")
    assert report.returncode == 0, report.stderr
    assert "mean_bitrate_bps" in report.stdout
    panels = [panel.what for panel in run_timeline(run_record(run)).panels]
    assert panels[:2] == ["bitrate of chunks", "buffer"]
    assert "latency of chunks" not in panels


def skyhop_run(place: Path) -> skyhop.Run:
    return skyhop.read_run(place / "run")


# --- studies ---


def seconds(tmp_path: Path) -> Path:
    """Write a data frame with the rate of each second, which rises and falls."""
    begin = int(dt.datetime(2026, 5, 1, tzinfo=dt.UTC).timestamp())
    rows = pl.DataFrame(
        {
            "node": ["site"] * len(RATES),
            "time_ns": [(begin + second) * 10**9 for second in range(len(RATES))],
            "capacity_bps": RATES * 1e6,
        }
    )
    frame.write_frame(frame.complete_frame(rows), tmp_path / "seconds.parquet")
    return tmp_path / "seconds.parquet"


def content(tmp_path: Path, **others: Any) -> dict[str, Any]:
    return {
        "title": "Films", "question": "Which?", "engine": "video", "repeats": 2,
        "video": {"data": str(seconds(tmp_path)), "top": "median", "every": "1 min"},
        "axis": [{"name": "who", "key": "controller", "values": ["mpc-d", "mpc-o", "bola"]}],
        "metric": [
            {"name": "gain", "kind": "relative", "of": "qoe", "to": {"who": "mpc-d"},
             "by": "difference"},
        ],
        "claim": [
            {"text": "they begin alike", "check": 'startup(who="mpc-o") <= startup(who="bola")'},
            {"text": "to a point", "check": 'qoe() <= qoe_bound()',
             "each": {"who": ["mpc-d", "mpc-o", "bola"]}},
            {"text": "all bitrates are high", "check": 'bitrate() > 1000'},
        ],
        "panel": [{"kind": "table", "title": "All", "metrics": ["qoe", "gain", "stalled"],
                   "by": ["who"]}],
        **others,
    }  # fmt: skip


def test_a_study_of_films_plays_a_session_per_seed(tmp_path: Path) -> None:
    done = run_study(load_study(content(tmp_path)), tmp_path / "study", jobs=1)
    assert not done.failures
    rows = done.results.frame
    assert rows.height == 6
    assert [v.verdict for v in judge(load_study(content(tmp_path)).claims, done.results)] == [
        "holds", "holds", "does not hold",
    ]  # fmt: skip
    gains = rows.filter(pl.col("who") == "mpc-d")["gain"].to_list()
    assert gains == [0.0, 0.0]
    # The second session begins a minute later within the second half of the data.
    one = rows.filter((pl.col("who") == "mpc-o") & (pl.col("seed") == 2))
    played = RATES[300 + 60 :]
    trace = _core.RateTrace("x", [float(t) for t in range(240)], (played * 1e6).tolist(), 240.0)
    options = playing.PlaybackOptions("six-tracks", f"{np.median(played) * 1e6:.0f} bit/s")
    again = playing.play(trace, "mpc-o", options, offsets=[60.0], seed=2)
    assert one["qoe"][0] == pytest.approx(again.sessions["qoe"][0])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"video": {}}, "video.data"),
        ({"video": {"data": "x", "tpo": 3}}, "video.tpo"),
        ({"video": None}, "[video] goes with"),
        ({"scenario": {"path": {}}}, "takes no scenario"),
    ],
)
def test_errors_of_a_study_of_films_name_the_key(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    wrong = {key: value for key, value in (content(tmp_path) | change).items() if value is not None}
    with pytest.raises(InputError) as refused:
        list(load_study(wrong).runs())
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_sessions_than_the_data_has_room_for_fail(tmp_path: Path) -> None:
    axis = [{"name": "who", "key": "controller", "values": ["bola"]}]
    of_one = {"axis": axis, "metric": [], "claim": [], "panel": []}
    few = {"data": str(seconds(tmp_path)), "top": "median", "every": "2 min"}
    long = load_study(content(tmp_path, repeats=3, video=few, **of_one))
    done = run_study(long, tmp_path / "study", jobs=1)
    assert len(done.failures) == 1
    assert "too few for seed 3 with sessions every 2 min" in str(done.failures)
    gone = load_study(content(tmp_path, video={"data": "gone.parquet"}, **of_one))
    lost = run_study(gone, tmp_path / "lost", jobs=1)
    assert len(lost.failures) == 2
    assert "gone.parquet" in str(lost.failures)


# --- in a browser ---


FILM = ServedFilm(
    2.0, [100_000, 400_000], [[25_000, 100_000], [25_000, 100_000], [30_000, 110_000]]
)


def test_the_manifest_describes_the_served_film(tmp_path: Path) -> None:
    (tmp_path / "film.mpd").write_text(FILM.manifest(), "utf-8")
    film = _core.Film.read(str(tmp_path / "film.mpd"))
    assert film.bitrates_bps == FILM.bitrates_bps
    assert (film.chunk_s, film.chunks) == (2.0, 3)
    FILM.write(tmp_path)
    assert ServedFilm.read(tmp_path) == FILM


@pytest.fixture
def address(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a server of a film with stub chunks."""
    FILM.write(tmp_path)
    (tmp_path / clip.INIT).write_bytes(b"init")
    for chunk in (1, 2, 3):
        (tmp_path / f"{chunk}.m4s").write_bytes(b"\0\0\0\x0cmdatabcd")
    with ThreadingHTTPServer(("127.0.0.1", 0), server.handler_type(tmp_path)) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served.server_port
        served.shutdown()


@pytest.mark.integration
def test_chunks_have_the_films_sizes_and_nothing_else_is_served(address: int) -> None:
    asked = http.client.HTTPConnection("127.0.0.1", address, timeout=60)

    def get(path: str) -> tuple[int, bytes]:
        asked.request("GET", path)
        answer = asked.getresponse()
        return answer.status, answer.read()

    for chunk in (0, 1, 2):
        for track in (0, 1):
            status, body = get(f"/{track}/{chunk + 1}.m4s")
            assert (status, len(body)) == (200, FILM.sizes_bytes[chunk][track])
            # A box with the video, and one that players skip.
            assert body[4:8] == b"mdat"
            assert body[12:20] == (len(body) - 12).to_bytes(4, "big") + b"free"
    assert get("/film.mpd")[1].decode() == FILM.manifest()
    assert get("/0/init.mp4") == (200, b"init")
    for path in ("/2/1.m4s", "/0/0.m4s", "/0/4.m4s", "/film.json", "/../film.json", "/0/../1.m4s"):
        assert get(path)[0] == 404, path


def browser_session(**others: Any) -> dict[str, Any]:
    def came(chunk: int, track: int, asked_s: float, arrived_s: float) -> dict[str, Any]:
        return {
            "chunk": chunk, "track": track, "size_bytes": FILM.sizes_bytes[chunk][track],
            "asked_s": asked_s, "arrived_s": arrived_s, "buffer_s": 1.5,
        }  # fmt: skip

    return {
        "chunks": [came(0, 0, 0.1, 0.5), came(0, 1, 0.5, 0.9), came(1, 0, 1.0, 4.0),
                   came(2, 1, 4.5, 5.0)],
        "stalls": [{"at_s": 3.0, "took_s": 1.1}],
        "abandoned": [{"chunk": 2, "received_bytes": 77, "at_s": 4.4}],
        "predicted_bps": {"1": 5e6}, "started_s": 0.6, "how": "ended", "why": "", **others,
    }  # fmt: skip


def test_a_browser_session_becomes_rows() -> None:
    rows = table.chunk_rows(browser_session(), FILM.bitrates_bps)
    assert [(row["chunk"], row["track"]) for row in rows] == [(0, 1), (1, 0), (2, 1)]
    assert rows[0]["abandoned_bytes"] == 25_000, "bytes of the chunk that another track replaced"
    assert rows[2]["abandoned_bytes"] == 77
    assert [row["stall_ns"] for row in rows] == [0, 1_100_000_000, 0]
    assert rows[2]["waited_ns"] == 500_000_000
    assert [row["predicted_bps"] for row in rows] == [None, 5_000_000, None]


def test_missing_programs_are_named_with_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SKYHOP_DASH_JS", str(tmp_path / "dash.js"))
    with pytest.raises(RunError, match="apt-get install chromium"):
        watching.watch("any-program", None, watching.WatchOptions())
    with pytest.raises(RunError, match="apt-get install ffmpeg"):
        clip.make_clip(tmp_path, 4.0, 2, least_bytes=50_000)
    with pytest.raises(RunError, match=r"npm install --prefix ~/\.local/share/skyhop dashjs@"):
        watching.dash_js()
    with pytest.raises(InputError, match=r"expected rate, bba, .*dash\.js-bola"):
        watching.watch("any-program", None, watching.WatchOptions(controller="mind"))


@pytest.mark.integration
def test_downloads_run_until_the_film_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PORT", 0)
    # Outside a namespace of its own, an ordinary user may use only allowed congestion controls.
    monkeypatch.setattr(downloads, "CC", "reno")
    with downloads.DownloadServer() as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        monkeypatch.setattr(downloads, "PORT", served.server_address[1])
        with downloads.Downloads("127.0.0.1", 2) as going:
            assert not going.ended.wait(0.2)
        served.shutdown()
    assert not going.ended.is_set()


@pytest.mark.integration
def test_a_download_that_ends_too_early_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(downloads, "PORT", listening.getsockname()[1])
        with downloads.Downloads("127.0.0.1", 1) as going:
            listening.accept()[0].close()
            assert going.ended.wait(60)


def needs_browser() -> None:
    """Skip the test where browser, ffmpeg or dash.js is missing."""
    needs_program("ffmpeg", "ffmpeg")
    if viewer.browser() is None:
        missing("chromium", "there is no browser")
    try:
        watching.dash_js()
    except RunError as error:
        missing("dash.js", str(error))


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_film_in_a_browser_over_a_live_run(skyhop: Skyhop, tmp_path: Path) -> None:
    # The next two tests have controllers of skyhop.
    needs_browser()
    film = "chunk = '1 s'\nchunks = 8\n" + "".join(
        f"[[track]]\nbitrate = '{kbps} kbit/s'\n" for kbps in (200, 400, 800)
    )
    (tmp_path / "short.toml").write_text(f"description = 'x'\nsource = 'x'\n{film}", "utf-8")
    done = skyhop(
        "video", "watch", "any-program", "-o", "run", "--film", "short.toml",
        "--controller", "dash.js", "--set", "link.loss=0 %",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = skyhop_run(tmp_path)
    (app,) = run.summary["apps"]
    assert (app["kind"], app["completed"]) == ("dash", 8)
    chunks = run.apps["chunks"]
    assert chunks["chunk"].to_list() == list(range(8))
    assert set(chunks["bitrate_bps"].to_list()) <= {200_000, 400_000, 800_000}
    assert chunks["bitrate_bps"][-1] == 800_000, "20 Mbit/s carry the highest track"
    assert run.info["film"]["controller"] == "dash.js"
    drawn = skyhop("report", "run", "-o", "report.html")
    assert drawn.returncode == 0, drawn.stderr


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_film_stalls_equally_in_a_browser_and_over_simulated_tcp(tmp_path: Path) -> None:
    needs_browser()
    path = replace(films_in_browsers.PATHS[0], chunks=6)
    film = path.write_film(tmp_path)
    seen, _ = films_in_browsers.in_browser(path, film, attempts=1)
    ours, over_rate = (way(path, film) for way in (films_in_browsers.over_tcp,
                                                   films_in_browsers.over_rate))  # fmt: skip
    # Loading 2.4 Mbit takes 2.5 s and a round trip, playing them 2 s.
    assert over_rate.stall_s == pytest.approx(5 * (2.4 * 1514 / 1448 + 0.1 - 2), rel=0.01)
    assert seen.stall_s > 2
    assert films_in_browsers.is_within(ours, seen), (ours, seen)
    assert films_in_browsers.is_within(over_rate, seen), (over_rate, seen)


FIXED = {"path": {"kind": "fixed", "rtt": "20 ms"}, "run": {"duration": "1 min"}}


def browser_study(tmp_path: Path, **others: Any) -> dict[str, Any]:
    film = {"description": "x", "source": "x", "chunk": "1 s", "chunks": 4,
            "track": [{"bitrate": "200 kbit/s"}, {"bitrate": "800 kbit/s"}]}  # fmt: skip
    (tmp_path / "short.toml").write_text(toml_text(film), "utf-8")
    return {
        "title": "Browsers", "question": "Which?", "engine": "browser",
        "browser": {
            "film": str(tmp_path / "short.toml"), "controller": "rate", "cc": "reno",
            "scenario": FIXED,
        },
        "axis": [
            {"name": "load", "points": {
                "none": {"downloads": 0, "scenario.link.rate": "8 Mbit/s"},
                "one": {"downloads": 1, "scenario.link.rate": "9 Mbit/s"},
            }},
        ],
        "claim": [{"text": "all is used", "check": 'downloads(load="one") > 1'}],
        **others,
    }  # fmt: skip


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_study_in_a_browser_plays_a_session_per_run(tmp_path: Path) -> None:
    needs_browser()
    study = load_study(browser_study(tmp_path))
    done = run_study(study, tmp_path / "study", jobs=2)
    assert not done.failures
    rows = {row["load"]: row for row in done.results.frame.to_dicts()}
    assert rows["none"]["beside_bps"] < 1e5
    assert [v.verdict for v in judge(study.claims, done.results)] == ["holds"]
    assert 200_000 <= rows["one"]["mean_bitrate_bps"] <= 800_000
    assert rows["one"]["qoe_pensieve_hd"] is None, "this QoE model is defined for six tracks"
    assert rows["one"]["qoe"] == rows["one"]["qoe_pensieve_linear"]
    again = run_study(study, tmp_path / "study")
    assert again.results.frame.equals(done.results.frame)


def test_ids_of_runs_in_a_browser_depend_on_all_options(tmp_path: Path) -> None:
    def ids(**others: Any) -> set[str]:
        return {run.run_id for run in load_study(browser_study(tmp_path, **others)).runs()}

    usual, base = ids(), browser_study(tmp_path)["browser"]
    assert len(usual) == 2
    scenario = base["scenario"]
    for other in (
        {**base, "cc": "bbr"}, {**base, "chunks": 3},
        {**base, "scenario": {**scenario, "path": {"kind": "fixed", "rtt": "21 ms"}}},
    ):  # fmt: skip
        assert not usual & ids(browser=other)
    assert usual < ids(repeats=2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"scenario": {}, "flim": "x"}, "browser.flim"),
        ({}, "browser.scenario"),
        ({"scenario": {"paht": {}}}, "paht"),
        ({"scenario": FIXED, "controller": "mind"}, 'no controller "mind"'),
        ({"scenario": FIXED, "film": "gone"}, 'unknown film "gone"'),
        ({"scenario": {}, "downloads": -1}, "browser.downloads"),
    ],
)
def test_errors_of_a_study_in_a_browser_name_the_key(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as refused:
        list(load_study(browser_study(tmp_path, browser=change, axis=[], claim=[])).runs())
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("top", "mbps"), [("median", 5.0), ("2 x median", 10.0), ("0.5 x median", 2.5), ("8 Mbit/s", 8)]
)
def test_a_films_top_may_be_a_multiple_of_the_median_rate(top: str, mbps: float) -> None:
    assert films._top_bps(top, np.array([1e6, 5e6, 9e6])) == pytest.approx(1e6 * mbps)


def test_another_top_is_refused() -> None:
    with pytest.raises(InputError, match='expected a rate, "median" or "2 x median", not "twice"'):
        films._top_bps("twice", np.array([1e6]))
