"""Files from the field: every command reads the same file by the same rules and says what is left.

The rules of each format have their tests in `crates/path/tests/path/field_logs.rs`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from reference_files import reference
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.gps import gps_of_utc_ns
from skyhop.telemetry.importers import Options, import_samples
from skyhop.telemetry.paths import path_from_telemetry
from skyhop.telemetry.store import Store

S = 10**9
AT_S = 1_700_000_000


def pings(runs: int = 6, stamp: str = "[{}.030] ") -> str:
    """Return a log to which ping was appended every minute, with ten answers each time."""
    lines = []
    for run in range(runs):
        lines.append("PING a (192.0.2.1) 56(84) bytes of data.")
        lines += [
            stamp.format(AT_S + 60 * run + n) + f"64 bytes from a: icmp_seq={n} ttl=5 time=30 ms"
            for n in range(1, 11)
        ]
    return "\n".join(lines) + "\n"


def test_every_command_reads_all_runs_of_a_log(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "ping.txt").write_text(pings(), "utf-8")
    imported = skyhop("path", "import", "ping.txt", "-o", "p.parquet")
    assert "ping.txt: 60 answers, 0 lost, 5.2 min; 6 runs of ping" in imported.stderr
    kept = skyhop("telemetry", "import", "ping.txt", "--node", "a", "-o", "kept")
    assert "ping.txt: 60 samples" in kept.stderr
    assert "60 answers, 0 lost, 5.2 min; 6 runs of ping" in kept.stderr
    assert json.loads(skyhop("blind", "ping.txt", "--json").stdout)["samples"] == 60


def test_a_log_without_times_needs_a_start_for_telemetry(tmp_path: Path) -> None:
    (tmp_path / "ping.txt").write_text(pings(1, ""), "utf-8")
    with pytest.raises(InputError, match=r"its lines have no dates: .* ping -D"):
        list(import_samples(tmp_path / "ping.txt"))
    samples = list(import_samples(tmp_path / "ping.txt", options=Options(start_ns=AT_S * S)))
    assert [sample[TIME] for sample in samples] == [(AT_S + n) * S for n in range(1, 11)]


def test_windows_pings_of_any_code_page_are_telemetry_too(tmp_path: Path) -> None:
    answer = "Ответ от 192.0.2.1: число байт=32 время=37мс TTL=56\r\n"  # noqa: RUF001
    text = "\r\nОбмен пакетами с 192.0.2.1 по с 32 байтами данных:\r\n" + answer * 3  # noqa: RUF001
    for encoding in ("cp866", "utf-8", "utf-16"):
        (tmp_path / "ping.txt").write_bytes(text.encode(encoding))
        assert sh.import_path(tmp_path / "ping.txt").account == "3 answers, 0 lost, 3 s"
        samples = list(import_samples(tmp_path / "ping.txt", options=Options(start_ns=AT_S * S)))
        assert [sample["probe_rtt_ms"] for sample in samples] == [37.0] * 3


def packed(content: bytes) -> dict[str, bytes]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("ping.txt", content)
    return {
        "compressed by xz": lzma.compress(content),
        "compressed by bzip2": bz2.compress(content),
        "compressed by zstd": b"\x28\xb5\x2f\xfd" + content,
        "a zip archive": archive.getvalue(),
        "an SQLite database": b"SQLite format 3\0" + bytes(100),
    }


def test_what_cannot_be_read_is_named_for_what_it_is(skyhop: Skyhop, tmp_path: Path) -> None:
    for what, content in packed(pings().encode()).items():
        (tmp_path / "log").write_bytes(content)
        for words in (
            ("path", "import", "log", "-o", "p.parquet"),
            ("telemetry", "import", "log", "--node", "a", "-o", "kept"),
            ("blind", "log"),
        ):
            done = skyhop(*words)
            assert done.returncode == 2, words
            assert f"log: is {what}" in done.stderr, words
            assert done.stderr.count("\n") == 1


def test_a_rate_log_is_a_path(skyhop: Skyhop, tmp_path: Path) -> None:
    rows = [f"2026-05-27T11:18:{n:02d}.000000,{80 + n},0" for n in range(10)]
    (tmp_path / "tcp.csv").write_text("\n".join(["time,throughput_mbps,retrans", *rows]))
    done = skyhop("path", "import", "tcp.csv", "--rtt", "40 ms", "-o", "p.parquet")
    assert "tcp.csv: 10 rates, 10 s; not used: retrans" in done.stderr
    path = sh.read_path(tmp_path / "p.parquet")
    assert path.frames["rate_bps"].to_list() == [(80 + n) * 10**6 for n in range(10)]
    assert "it has no delay" in str(sh.import_path(tmp_path / "tcp.csv").account)


def test_columns_that_telemetry_does_not_use_are_named(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "drive_up.csv").write_text("segment,unix_s,mbps,speed\n0,1700000000,14.5,63.0\n")
    done = skyhop("telemetry", "import", "drive_up.csv", "--node", "a", "-o", "kept")
    assert "; not used: segment, speed" in done.stderr


def test_capacities_are_the_rate_of_a_path(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    rates: list[Sample] = [
        {TIME: (AT_S + n) * S, "downlink_capacity_bps": 1e6 * n} for n in range(1, 6)
    ]
    store.append("a", rates)
    path, used, _ = path_from_telemetry(store.read(["a"]), rtt="40 ms")
    assert used == "downlink_capacity_bps"
    assert path.frames["rate_bps"].to_list() == [10**6 * n for n in range(1, 6)]
    assert path.header["dish"] == "to"
    latency: list[Sample] = [{TIME: (AT_S + n) * S, "probe_rtt_ms": 30.0} for n in range(1, 6)]
    store.append("a", latency)
    path, used, _ = path_from_telemetry(store.read(["a"]))
    assert used == "probe_rtt_ms"
    assert path.frames["rate_bps"].unique().sort().to_list() == [10**6 * n for n in range(1, 6)]
    up, _, _ = path_from_telemetry(store.read(["a"]), direction="up")
    assert (path.header["dish"], up.header["dish"]) == ("to", "from")


OUTAGES = ((100.3, 0.52), (150.25, 24.5), (300.6, 0.88))
"""Begins and lengths of a terminal's outages, in s since its ring buffers begin."""


def history(current: int = 400) -> dict[str, object]:
    """Return a terminal's answer: rings of 400 s, whose drops are those of the outages."""
    drops = [0.0] * 400
    for begin, length in OUTAGES:
        for n in range(400):
            drops[n] += max(0.0, min(begin + length, n + 1) - max(begin, n))
    latency = [2_954.0 if 0.5 <= drop < 1 else 30.0 for drop in drops]
    outages = [
        {
            "cause": "NO_PINGS",
            "startTimestampNs": str(gps_of_utc_ns(AT_S * S + round(begin * S))),
            "durationNs": str(round(length * S)),
        }
        for begin, length in ((-5000.0, 600.0), *OUTAGES)
    ]
    rings = {"popPingDropRate": drops, "popPingLatencyMs": latency}
    return {"dishGetHistory": {"current": str(current), **rings, "outages": outages}}


@pytest.mark.parametrize("start_s", [None, AT_S + 1, AT_S + 1_000_001])
def test_outages_of_a_terminals_history_are_those_of_the_path(
    tmp_path: Path, start_s: int | None
) -> None:
    (tmp_path / "history.json").write_text(json.dumps(history(), indent=1))
    accounts: list[str] = []
    options = Options(start_ns=None if start_s is None else start_s * S)
    samples = list(import_samples(tmp_path / "history.json", options=options, accounts=accounts))
    assert "3 outages, 1 outside these seconds not used" in accounts[0]
    assert samples[0][TIME] == (start_s or AT_S + 1) * S
    store = Store(tmp_path / "kept")
    store.append("a", samples)
    path, _, unknown = path_from_telemetry(store.read(["a"]))
    assert unknown == 0
    found = [
        (event["kind"], event["t_ns"] / S)
        for events in path.frames["events"].to_list()
        for event in events
    ]
    times = [time_s for begin, length in OUTAGES for time_s in (begin, begin + length)]
    assert [kind for kind, _ in found] == ["lost", "restored"] * 3
    # The ring buffers' seconds are found to a quarter of a second.
    assert np.allclose([time_s for _, time_s in found], times, atol=0.3)
    lengths = np.diff([time_s for _, time_s in found])[::2]
    assert np.allclose(lengths, [length for _, length in OUTAGES], atol=1e-3)
    losses = path.frames["loss"].drop_nulls().to_list()
    assert max(losses, default=0.0) == 0.0, "the losses are those of the outages"
    base_ms = (path.frames["delay_ns"] + path.frames["delay_back_ns"]).drop_nulls() / 1e6
    assert base_ms.max() == pytest.approx(30), "a reading inside an outage is not the base RTT"


def test_the_outages_of_the_recorded_terminal_are_all_in_its_path(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    store.append("a", list(import_samples(reference("dish/get_history.json.gz"))))
    path, _, _ = path_from_telemetry(store.read(["a"]))
    kinds = [event["kind"] for events in path.frames["events"].to_list() for event in events]
    assert kinds.count("lost") == 21


def test_appended_answers_of_a_terminal_are_one_history(tmp_path: Path) -> None:
    later = history(400)
    text = json.dumps(history(390)) + "\n" + json.dumps(later)
    (tmp_path / "history.json").write_text(text)
    accounts: list[str] = []
    options = Options(start_ns=AT_S * S)
    samples = list(import_samples(tmp_path / "history.json", options=options, accounts=accounts))
    assert accounts[0].startswith("2 answers")
    seconds = [sample for sample in samples if "pop_ping_drop_rate" in sample]
    assert len(seconds) == 400
    (tmp_path / "history.json").write_text(json.dumps(later) + json.dumps(history(5)))
    with pytest.raises(InputError, match="restarted between two answers"):
        list(import_samples(tmp_path / "history.json"))


def cut_gzip(text: str) -> bytes:
    """Return a gzipped text without its end; a text of random digits fills several blocks."""
    packed = gzip.compress(text.encode())
    return packed[: len(packed) * 3 // 4]


def test_a_compressed_log_that_ends_early_is_read_to_there(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "ping.txt.gz").write_bytes(cut_gzip(pings(60)))
    for words in (
        ("path", "import", "ping.txt.gz", "-o", "p.parquet"),
        ("telemetry", "import", "ping.txt.gz", "--node", "a", "-o", "kept"),
        ("blind", "ping.txt.gz"),
    ):
        done = skyhop(*words)
        assert done.returncode == 0, done.stderr
        assert "the compressed file ends early: what stands whole" in done.stderr, words
        assert "passed over" not in done.stderr
    path = sh.import_path(tmp_path / "ping.txt.gz")
    samples = list(import_samples(tmp_path / "ping.txt.gz"))
    assert f"{len(samples)} answers, 0 lost" in str(path.account)
    assert 300 < len(samples) < 600
    rows = "".join(f"{AT_S + n}.5,{30 + n % 7}.{n:03d}\n" for n in range(900))
    (tmp_path / "rtt.csv.gz").write_bytes(cut_gzip("time,rtt_ms\n" + rows))
    frames = sh.import_path(tmp_path / "rtt.csv.gz").frames
    assert frames["delay_ns"].min() >= 15_000_000, "the number in the cut line is not read"
    (tmp_path / "short.gz").write_bytes(gzip.compress(b"1,2\n")[:12])
    done = skyhop("path", "import", "short.gz", "--format", "csv", "-o", "p.parquet")
    assert done.stderr.endswith("(the compressed file ends early)\n")
    done = skyhop("telemetry", "import", "short.gz", "--node", "a", "-o", "kept")
    assert "the compressed file ends early, before a whole line" in done.stderr


def traceroute_of_atlas(n: int) -> dict[str, object]:
    answer = [{"from": "192.0.2.1", "rtt": 1.0}, {"x": "*"}, {"from": "192.0.2.1", "rtt": 3.0}]
    return {
        "af": 4, "dst_addr": "198.51.100.1", "prb_id": 7, "timestamp": AT_S + n,
        "type": "traceroute",
        "result": [
            {"hop": 1, "result": answer},
            {"hop": 2, "result": [{"x": "*"}] * 3},
            {"hop": 3, "result": [{"from": "198.51.100.1", "rtt": 20 + n}]},
        ],
    }  # fmt: skip


def test_a_compressed_list_of_traces_that_ends_early_is_read_to_there(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    text = json.dumps([traceroute_of_atlas(n * n) for n in range(400)])
    (tmp_path / "traces.json.gz").write_bytes(cut_gzip(text))
    done = skyhop("dissect", "traces.json.gz", "--json")
    assert done.returncode == 0, done.stderr
    assert 100 < json.loads(done.stdout)["traces"] < 400
    assert "the compressed file ends early" in done.stderr
    assert "its last document is cut off" in done.stderr


def test_what_atlas_measured_is_read_by_the_command_for_it(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "traces.json").write_text(json.dumps([traceroute_of_atlas(1)]), "utf-8")
    for words in (
        ("path", "import", "traces.json", "-o", "p.parquet"),
        ("telemetry", "import", "traces.json", "--node", "a", "-o", "kept"),
        ("blind", "traces.json"),
    ):
        assert "holds traceroutes, which skyhop dissect reads" in skyhop(*words).stderr
    ping = {"prb_id": 7, "timestamp": AT_S, "type": "ping", "dst_addr": "a", "result": []}
    (tmp_path / "ping.json").write_text(json.dumps(ping), "utf-8")
    assert "skyhop path import reads ping" in skyhop("dissect", "ping.json").stderr
