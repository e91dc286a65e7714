"""Pages and calls: times on fixed paths equal computed ones, and both engines agree."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, Skyhop

import skyhop as sh
from damaged import Trial
from skyhop import _core
from skyhop.analysis.run_tables import run_tables
from skyhop.analysis.summary import summary_rows
from skyhop.data.run_headers import read_run_headers
from skyhop.errors import InputError

MS = 1_000_000
ONE_WAY_MS = 25.0
FIXED = """\
[path]
kind = "fixed"
rtt = "50 ms"
[link]
rate = "100 Mbit/s"
[run]
duration = "{duration} s"
[[flow]]
{flow}
"""


def scenario(directory: Path, flow: str, duration: int = 10) -> Path:
    file = directory / "x.toml"
    file.write_text(FIXED.format(duration=duration, flow=flow), "utf-8")
    return file


def simulated(directory: Path, flow: str, duration: int = 10, **sets: str) -> sh.Run:
    file = scenario(directory, flow, duration)
    changes = [f"{key.replace('__', '.')}={value}" for key, value in sets.items()]
    return sh.sim(file, directory / "run", sets=changes, force=True)


def page(directory: Path, keys: str, **sets: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Simulate a flow that loads one page; return the page's row and its objects."""
    run = simulated(directory, f"app = {{ kind = 'page', pages = 1, {keys} }}", **sets)
    (row,) = run.apps["pages"].to_dicts()
    return row, run.apps["objects"].to_dicts()


# --- pages ---


def test_a_page_of_one_document_takes_as_long_as_a_request(tmp_path: Path) -> None:
    row, objects = page(tmp_path, "document = '80 kB', objects = 0, handshakes = 0")
    app = "app = { kind = 'request-response', response = '80 kB', requests = 1 }"
    (request,) = simulated(tmp_path, app).apps["requests"].to_dicts()
    for key in (
        "t_ns",
        "sent_bytes",
        "answered_bytes",
        "connect_ns",
        "first_byte_ns",
        "latency_ns",
    ):
        assert row[key] == request[key] == objects[0][key], key
    assert (row["objects"], objects[0]["page"]) == (0, 0)
    # The handshake, then slow start: 10, 20 and 26 of 56 segments, a round trip each.
    assert 4 * 50 * MS < row["latency_ns"] < 4.2 * 50 * MS


def test_each_round_trip_of_tls_delays_by_a_round_trip(tmp_path: Path) -> None:
    keys = "document = '5 kB', objects = 0"
    none, one, two = (
        page(tmp_path, f"{keys}, handshakes = {count}")[0]["latency_ns"] for count in (0, 1, 2)
    )
    assert 2 * 50 * MS < none < 2.05 * 50 * MS
    # Bytes of certificates take a part of a millisecond.
    assert 50 * MS < one - none < 50.7 * MS
    assert 50 * MS < two - one < 50.1 * MS


def test_six_connections_request_six_objects_at_a_time(tmp_path: Path) -> None:
    row, objects = page(tmp_path, "document = '1 kB', objects = 11, size = '1 kB'")
    document, rest = objects[0], objects[1:]
    assert len(rest) == 11
    assert document["latency_ns"] == pytest.approx(3 * 50 * MS, rel=0.02)
    assert {one["t_ns"] for one in rest} == {document["t_ns"] + document["latency_ns"]}
    assert {one["connection"] for one in rest} == {0, 1, 2, 3, 4, 5}
    # The first connection requests at once, the others after two handshakes (TCP and TLS).
    first = [one["latency_ns"] / (50 * MS) for one in rest if one["connection"] == 0]
    others = [one["latency_ns"] / (50 * MS) for one in rest if one["connection"] == 1]
    assert np.allclose(first, np.arange(1, len(first) + 1), rtol=0.03)
    assert np.allclose(others, np.arange(3, len(others) + 3), rtol=0.03)
    last = max(one["t_ns"] + one["latency_ns"] for one in rest)
    assert row["t_ns"] + row["latency_ns"] == last
    assert row["answered_bytes"] == 12_000 + 6 * 4000


def test_many_requests_on_one_connection_take_a_round_trip_together(tmp_path: Path) -> None:
    keys = "document = '1 kB', objects = 8, size = '1 kB', connections = 1"
    row, objects = page(tmp_path, f"{keys}, parallel = 100")
    assert {one["connection"] for one in objects} == {0}
    assert row["latency_ns"] == pytest.approx(4 * 50 * MS, rel=0.03)
    # Eight sequential requests would take eight round trips.
    assert page(tmp_path, keys)[0]["latency_ns"] == pytest.approx(11 * 50 * MS, rel=0.03)


def test_pages_follow_each_other_after_a_think_time(tmp_path: Path) -> None:
    app = "app = { kind = 'page', document = '1 kB', objects = 7, size = '9 kB', think = '1 s' }"
    run = simulated(tmp_path, app)
    rows = run.apps["pages"].to_dicts()
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    for before, after in itertools.pairwise(rows):
        assert after["t_ns"] == before["t_ns"] + before["latency_ns"] + 1000 * MS
    connections = {(one["page"], one["connection"]) for one in run.apps["objects"].to_dicts()}
    assert all(connection // 6 == page for page, connection in connections)
    (summary,) = run.summary["apps"]
    assert (summary["kind"], summary["completed"], summary["failed"]) == ("page", len(rows), 0)


def test_a_page_in_an_outage_fails_and_the_next_one_loads(tmp_path: Path) -> None:
    app = "app = { kind = 'page', objects = 5, size = '500 kB', timeout = '1 s', think = '100 ms' }"
    change = "\n[[change]]\nat = '3 s'\noutage = '2 s'\n"
    rows = simulated(tmp_path, app + change).apps["pages"].to_dicts()
    failed = [row for row in rows if row["latency_ns"] is None]
    assert failed
    assert all(1.9e9 < row["t_ns"] < 5e9 for row in failed)
    assert rows[-1]["latency_ns"] is not None


def test_random_sizes_have_the_published_means(tmp_path: Path) -> None:
    run = simulated(
        tmp_path, "app = { kind = 'page', connections = 1, parallel = 100, pages = 400 }", 60,
        link__rate="1 Gbit/s", path__rtt="1 ms",
    )  # fmt: skip
    pages, rows = run.apps["pages"], run.apps["objects"]
    sizes = rows["answered_bytes"].to_numpy()
    documents = np.unique(rows["page"].to_numpy(), return_index=True)[1]
    assert pages.height == 400
    # Pries et al.: 31.9 objects, a document of 31.6 kB; exp(9.17979 + 1.24646^2 / 2) = 21.1 kB.
    assert np.mean(pages["objects"].to_numpy()) == pytest.approx(32, rel=0.15)
    assert np.mean(sizes[documents]) == pytest.approx(31_561, rel=0.2)
    assert np.mean(np.delete(sizes, documents)) == pytest.approx(21_090, rel=0.1)


def test_sizes_come_from_a_file_next_to_the_scenario(tmp_path: Path) -> None:
    listed = "bytes,what\n# a page\n5000,document\n1 kB\n2000\n"
    (tmp_path / "sizes.csv").write_text(listed, "utf-8")
    row, objects = page(tmp_path, "file = 'sizes.csv'")
    assert objects[0]["answered_bytes"] == 5000
    assert sorted(one["answered_bytes"] for one in objects) == [1000, 2000, 5000]
    assert row["objects"] == 2


def test_damaged_lists_of_sizes_are_refused_in_a_line(tmp_path: Path) -> None:
    file = scenario(tmp_path, "app = { kind = 'page', file = 'sizes.csv' }")

    def read(content: bytes) -> None:
        (tmp_path / "sizes.csv").write_bytes(content)
        _core.Scenario.read(str(file), [])

    Trial("page-sizes", [b"5000\n1000\n200\n", b"bytes,what\n1 kB,a\n2 MB,b\n"]).run(read)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (
            "app = { kind = 'page', connections = 0 }",
            "flow.0.app.connections: is 0; expected 1 to 64",
        ),
        ("app = { kind = 'page', parallel = 0 }", "flow.0.app.parallel: is 0; expected 1 to 10000"),
        ("app = { kind = 'page', objects = 20000 }", "flow.0.app.objects: is 20000; expected 0 to"),
        ("app = { kind = 'page', timeout = '0 s' }", "flow.0.app.timeout: must be above 0 s"),
        ("app = { kind = 'page', file = 'no.csv' }", "flow.0.app.file: there is no file"),
        ("app = { kind = 'page', file = 'x.toml' }", 'x.toml: line 1: "[path]" is not the size'),
        (
            "app = { kind = 'page', file = 'x.toml', size = '1 kB' }",
            "flow.0.app.size: is given together with `file`",
        ),
        ("app = { kind = 'call' }", 'flow.0.app.kind: is "call", which does not run over TCP'),
        ("kind = 'call'\nplayout = '2 s'", "flow.0.playout: is 2 s; expected at most 1 s"),
        ("kind = 'call'\nwindow = '1 ms'", "flow.0.window: is 1 ms; expected 100 ms to 60 s"),
        ("kind = 'call'\nframe_rate = 0", "flow.0.frame_rate: is 0; expected 1 to 120"),
        ("kind = 'call'\nvideo = '1 Gbit/s'", "flow.0.video: is 1 Gbit/s; expected at most"),
        ("kind = 'call'\ncodec = 'opus'", "codec"),
        ("kind = 'call'\ncc = 'cubic'", "cc"),
    ],
)
def test_impossible_keys_are_refused_in_a_line(tmp_path: Path, flow: str, message: str) -> None:
    file = scenario(tmp_path, flow)
    with pytest.raises(InputError) as caught:
        _core.Scenario.read(str(file), [])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- calls ---


def opinion(delay_ms: float, lost: float, ie: float = 0.0, bpl: float = 25.1) -> float:
    """Return the MOS of ITU-T G.107 with its default parameters, restated."""
    idd = 0.0
    if delay_ms > 100:
        x = math.log(delay_ms / 100) / math.log(2)
        idd = 25 * ((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2)
    percent = 100 * lost
    r = 93.2 - idd - (ie + (95 - ie) * percent / (percent / 1.0 + bpl))
    if r <= 0:
        return 1.0
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def calls(run: sh.Run, direction: str) -> list[dict[str, Any]]:
    return [row for row in run.apps["calls"].to_dicts() if row["direction"] == direction]


def test_a_call_over_a_clean_path_has_the_computed_mos(tmp_path: Path) -> None:
    run = simulated(tmp_path, "kind = 'call'")
    # An audio packet has 160 B of speech and 12 of RTP, 8 of UDP, 20 of IP.
    on_wire_ms = 200 * 8 / 100e3
    for direction in ("forward", "back"):
        rows = calls(run, direction)
        assert len(rows) == 10
        assert all(row["audio_frames"] == 50 and row["video_frames"] == 30 for row in rows[:-1])
        for row in rows:
            lost = [
                row[f"{medium}_{fate}"]
                for medium in ("audio", "video")
                for fate in ("late", "lost")
            ]
            assert lost == [0, 0, 0, 0]
            # The tolerance covers the 14 B of an Ethernet header.
            heard_ms = row["latency_ns"] / MS
            assert heard_ms == pytest.approx(ONE_WAY_MS + on_wire_ms + 20 + 60, abs=0.01)
            assert row["mos"] == pytest.approx(opinion(heard_ms, 0), abs=1e-9)
    # An audio frame that coincides with a video frame is sent first, so it never waits.
    assert all(row["jitter_ns"] < 10_000 for row in run.apps["calls"].to_dicts())
    (summary,) = run.summary["apps"]
    assert summary["mos_mean"] == pytest.approx(opinion(105.02, 0), abs=0.001)
    assert summary["mos_forward"] == pytest.approx(summary["mos_back"])


def test_one_percent_of_loss_is_counted_and_lowers_the_mos(tmp_path: Path) -> None:
    run = simulated(
        tmp_path, "kind = 'call'\nvideo = '0 bit/s'\ncodec = 'g729a'", 120, link__loss="1 %"
    )
    # The link loses packets in its forward direction only.
    rows = calls(run, "forward")
    lost, due = (sum(row[key] for row in rows) for key in ("audio_lost", "audio_frames"))
    assert due == pytest.approx(50 * 120, abs=10)
    assert lost / due == pytest.approx(0.01, rel=0.35)
    assert sum(row["audio_late"] + row["video_frames"] for row in rows) == 0
    for row in rows:
        share = row["audio_lost"] / row["audio_frames"]
        expected = opinion(row["latency_ns"] / MS, share, ie=11, bpl=19)
        assert row["mos"] == pytest.approx(expected, abs=1e-9)


def test_frames_delayed_by_more_than_the_buffer_are_late(tmp_path: Path) -> None:
    jitter = "{ every = '100 ms', below = '20 ms', above = '40 ms' }"
    run = simulated(
        tmp_path, "kind = 'call'\nvideo = '0 bit/s'\nplayout = '10 ms'", 60, path__jitter=jitter
    )
    frames = pq.read_table(run.directory / "path.parquet")
    begins, delays = frames["t_ns"].to_numpy(), frames["delay_ns"].to_numpy()
    due = np.arange(0, 60 * 50) * 20 * MS
    # A packet gets the path's delay when it leaves the queue, some microseconds later.
    met = delays[np.searchsorted(begins, due + 16_000, side="right") - 1]
    expected = np.mean(met > met[0] + 10 * MS)
    rows = calls(run, "forward")
    late, frames_due = (sum(row[key] for row in rows) for key in ("audio_late", "audio_frames"))
    assert 0.05 < expected < 0.95
    assert late / frames_due == pytest.approx(expected, abs=0.02)
    assert sum(row["audio_lost"] for row in rows) == 0


def test_playout_adapts_to_a_longer_path_within_a_second(tmp_path: Path) -> None:
    change = "\n[[change]]\nat = '4 s'\nrtt = '400 ms'\n"
    rows = calls(simulated(tmp_path, "kind = 'call'" + change), "forward")
    assert [row["audio_late"] for row in rows] == [0, 0, 0, 0, 50, 0, 0, 0, 0, 0]
    assert rows[4]["latency_ns"] is None
    assert rows[4]["mos"] == 1.0
    assert rows[6]["latency_ns"] == pytest.approx((200 + 80) * MS, rel=0.001)


def test_reports_show_calls_and_pages_with_other_applications(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    flow = "kind = 'call'\n[[flow]]\napp = { kind = 'page', think = '200 ms' }"
    run = simulated(tmp_path, flow)
    call, pages = summary_rows([tmp_path / "run"])
    assert (call["app"], call["cc"], pages["app"]) == ("call", None, "page")
    assert call["mos_mean"] == run.summary["apps"][0]["mos_mean"]
    shown = run_tables(read_run_headers([tmp_path / "run"])).flows
    assert {"MOS mean", "latency p50"} <= {column.title for column in shown.columns}
    done = skyhop("report", "run", "-o", "report.html")
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "report.html").read_text("utf-8")
    assert all(word in made for word in ("MOS mean", "application"))


# --- the command ---


def test_the_command_lists_applications_and_their_keys(skyhop: Skyhop) -> None:
    listed = json.loads(skyhop("app", "list", "--json").stdout)
    assert listed == json.loads(skyhop("list", "apps", "--json").stdout)
    names = [one["name"] for one in listed]
    assert {"bulk", "page", "call", "probe"} <= set(names)
    for name in names:
        keys = json.loads(skyhop("app", "show", name, "--json").stdout)
        assert keys, name
        assert all(key["meaning"] for key in keys)
    page_keys = {one["key"]: one["default"] for one in keys_of(skyhop, "page")}
    assert (page_keys["connections"], page_keys["timeout"]) == ("6", '"60 s"')
    assert {one["key"]: one["default"] for one in keys_of(skyhop, "call")}["playout"] == '"60 ms"'
    refused = skyhop("app", "show", "telnet")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def keys_of(skyhop: Skyhop, name: str) -> list[dict[str, Any]]:
    return list(json.loads(skyhop("app", "show", name, "--json").stdout))


# --- both engines ---


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_live_and_simulated_pages_and_calls_agree(tmp_path: Path) -> None:
    flow = (
        "kind = 'call'\n[[flow]]\nfrom = 'to'\napp = { kind = 'page', think = '100 ms', pages = 4,"
        " document = '20 kB', objects = 12, size = '10 kB' }"
    )
    file = scenario(tmp_path, flow, 6)
    simulated_run = sh.sim(file, tmp_path / "sim")
    runs = [simulated_run, sh.live(file, tmp_path / "live")]
    sim, live = ([row["latency_ns"] for row in run.apps["pages"].to_dicts()] for run in runs)
    assert len(sim) == len(live) == 4
    assert np.median(live) == pytest.approx(np.median(sim), rel=0.15)
    in_sim, in_live = (run.apps["objects"].to_dicts() for run in runs)
    keys = ("page", "connection", "answered_bytes")
    assert sorted(tuple(one[k] for k in keys) for one in in_sim) == sorted(
        tuple(one[k] for k in keys) for one in in_live
    )
    for run in runs:
        for direction in ("forward", "back"):
            rows = calls(run, direction)
            assert [row["seq"] // 2 for row in rows] == list(range(6))
    simulated_call, live_call = (run.summary["apps"][0] for run in runs)
    assert live_call["mos_mean"] == pytest.approx(simulated_call["mos_mean"], abs=0.1)
    assert live_call["audio_lost"] + live_call["audio_late"] < 0.02


@pytest.mark.parametrize("example", ["page", "call"])
def test_examples_also_run_over_a_geostationary_satellite(
    skyhop: Skyhop, tmp_path: Path, example: str
) -> None:
    sets = ("path.constellation=geo:-101", "path.relay=geo", "run.duration=45 s")
    given = [part for one in sets for part in ("--set", one)]
    done = skyhop("sim", ROOT / "examples" / f"{example}.toml", "-o", "run", *given)
    assert done.returncode == 0, done.stderr
    assert sh.read_run(tmp_path / "run").apps
