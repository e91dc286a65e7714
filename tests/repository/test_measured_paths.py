"""Measured paths: imported from files as other tools write them, simulated, exported."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import Skyhop

import skyhop as sh
from reference_files import reference
from skyhop.errors import InputError
from validation import measured_paths

QUANTILES = (50, 95, 99)


def rows_of(path: Path) -> np.ndarray:
    """Return the numbers of a gzipped csv, shape (rows, columns)."""
    with gzip.open(path, "rt") as text:
        return np.loadtxt(text, delimiter=",")


def events_of(path: sh.Path, kind: str) -> list[float]:
    """Return the times of the events of a kind in s."""
    rows = path.frames["events"].to_list()
    return [event["t_ns"] / 1e9 for row in rows for event in row if event["kind"] == kind]


def simulated(path: Path, seconds: int, flow: dict[str, object], **link: object) -> sh.Run:
    scenario = {
        "path": {"kind": "trace", "file": str(path)},
        "link": link,
        "flow": [flow],
        "run": {"duration": f"{seconds} s"},
    }
    return sh.sim(scenario, seed=1)


@pytest.mark.parametrize("interval", ["10 ms", "20 ms", "50 ms"])
def test_a_probe_over_victoria_sees_its_distribution(tmp_path: Path, interval: str) -> None:
    log = reference("rtt/victoria_1.csv.gz")
    path = sh.import_path(log, "csv")
    path.write(tmp_path / "x.parquet")
    seconds = path.header["duration_ns"] // 10**9
    run = simulated(tmp_path / "x.parquet", seconds, {"kind": "probe", "interval": interval})
    seen_ms = np.array(run.probes["rtt_ns"].drop_nulls().to_list()) / 1e6
    difference_ms = np.percentile(seen_ms, QUANTILES) - np.percentile(rows_of(log)[:, 1], QUANTILES)
    assert np.abs(difference_ms).max() < 0.5, difference_ms


@pytest.mark.parametrize("name", ["victoria_1", "victoria_2", "victoria_3", "oneweb_iowa"])
def test_a_csv_export_reads_back_as_the_same_path(tmp_path: Path, name: str) -> None:
    path = sh.import_path(reference(f"rtt/{name}.csv.gz"), "csv", from_="Victoria, CA")
    path.export(tmp_path / "x.csv", "csv")
    again = sh.import_path(tmp_path / "x.csv", "csv")
    assert again.header == path.header
    assert again.frames.equals(path.frames)


def test_handovers_are_marked_where_there_is_a_grid() -> None:
    for name in ("victoria_1", "victoria_2", "victoria_3"):
        path = sh.import_path(reference(f"rtt/{name}.csv.gz"), "csv")
        start_s = np.datetime64(path.header["start"].rstrip("Z"), "ns").astype(np.int64) / 1e9
        marked = (np.array(events_of(path, "end")) + start_s) % 15
        assert len(marked) >= 20, name
        # Starlink's handovers are at UTC seconds 12, 27, 42, 57.
        assert np.abs(marked - 12).max() < 1.0, (name, marked)
    oneweb = sh.import_path(reference("rtt/oneweb_iowa.csv.gz"), "csv")
    assert events_of(oneweb, "end") == []


def test_a_measured_rate_limits_a_flow(tmp_path: Path) -> None:
    log = reference("throughput/lagos_isl_100ms.csv.gz")
    path = sh.import_path(log, "csv", direction="down")
    path.write(tmp_path / "x.parquet")
    rows = rows_of(log)
    assert path.frames.height == len(rows)
    first = path.frames.row(0, named=True)
    assert first["rate_bps"] == round(rows[0, 1] * 1e6)
    assert (first["delay_ns"], first["delay_back_ns"]) == (
        round(rows[0, 3] * 1e6),
        round(rows[0, 2] * 1e6),
    )
    run = simulated(tmp_path / "x.parquet", 60, {"kind": "tcp"}, loss="0 %", queue="500 ms")
    measured_bps = rows[:600, 1].mean() * 1e6
    goodput_bps = run.summary["flows"][0]["goodput_bps"]
    # 1448 of 1514 bytes are payload.
    assert 0.7 * measured_bps < goodput_bps < 1448 / 1514 * measured_bps
    fixed = simulated(tmp_path / "x.parquet", 60, {"kind": "tcp"}, loss="0 %", rate="5 Mbit/s")
    assert fixed.summary["flows"][0]["goodput_bps"] < 5e6, "a rate that is given counts"


def test_leoccs_example_carries_a_flow(tmp_path: Path) -> None:
    packets = reference("throughput/leocc_bw_example.txt.gz")
    # The importer finds this file next to the other.
    delays = reference("throughput/leocc_delay_example.txt")
    path = sh.import_path(packets, "leocc")
    path.write(tmp_path / "x.parquet")
    delays_ms = np.loadtxt(delays)
    with gzip.open(packets, "rt") as text:
        times_ms = np.loadtxt(text)
    assert path.frames.height == len(delays_ms)
    assert path.frames["delay_ns"].to_numpy()[:500].tolist() == (delays_ms[:500] * 1e6).tolist()
    passed = np.sum(times_ms <= 10 * len(delays_ms))
    rates_bps = path.frames["rate_bps"].to_numpy()
    assert rates_bps.sum() * 0.01 == pytest.approx(passed * 1514 * 8, rel=1e-6)
    run = simulated(tmp_path / "x.parquet", 60, {"kind": "tcp"}, queue="200 ms")
    goodput_bps = run.summary["flows"][0]["goodput_bps"]
    assert 0.7 * rates_bps[:6000].mean() < goodput_bps < 1448 / 1514 * rates_bps[:6000].mean()


def test_a_mahimahi_export_lets_the_same_packets_pass(tmp_path: Path) -> None:
    lines = [str(ms) for ms in range(1, 2001) for _ in range(1 + (ms // 500) % 3)]
    (tmp_path / "in.trace").write_text("\n".join(lines) + "\n", "utf-8")
    path = sh.import_path(tmp_path / "in.trace", "mahimahi", rtt="40 ms")
    path.export(tmp_path / "out.trace", "mahimahi")
    out = (tmp_path / "out.trace").read_text("utf-8").split()
    assert abs(len(out) - len(lines)) <= 1
    # Delays equal the original's up to the size of the bins.
    pairs = zip(lines, out, strict=False)
    assert max(abs(int(a) - int(b)) for a, b in pairs) <= 10


def test_an_export_needs_what_the_path_lacks(skyhop: Skyhop, tmp_path: Path) -> None:
    assert skyhop("path", "--kind", "fixed", "--rtt", "30 ms", "--duration", "2 s", "-o",
                  "x.parquet").returncode == 0  # fmt: skip
    command = ("path", "export", "x.parquet", "--format", "mahimahi", "-o", "x.trace")
    refused = skyhop(*command)
    assert refused.returncode == 2
    assert 'say which to assume, such as --rate "150 Mbit/s"' in refused.stderr
    assert skyhop(*command, "--rate", "12.112 Mbit/s").returncode == 0
    # One packet of 1514 bytes per ms.
    assert (tmp_path / "x.trace").read_text("utf-8") == "".join(f"{m}\n" for m in range(1, 2001))
    unknown = skyhop("path", "export", "x.parquet", "--format", "morse", "-o", "x")
    assert unknown.returncode == 2
    assert "expected one of csv, mahimahi" in unknown.stderr


@pytest.mark.integration
def test_a_netem_script_calls_tc_at_its_times(skyhop: Skyhop, tmp_path: Path) -> None:
    rows = ["10,20,31,30,0,0,0", "10,20,31,30,0,0,100", "10,0,31,35,0,0.25,200"]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n", "utf-8")
    imported = ("path", "import", "x.csv", "--format", "csv", "-o", "x.parquet")
    assert skyhop(*imported).returncode == 0
    done = skyhop("path", "export", "x.parquet", "--format", "netem", "-o", "x.sh")
    assert done.returncode == 0, done.stderr
    # A stub of tc that records its arguments.
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "tc").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n', "utf-8")
    (bin_directory / "tc").chmod(0o755)
    environment = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    shell = shutil.which("sh")
    assert shell is not None
    ran = subprocess.run([shell, "x.sh", "up0", "down0"], cwd=tmp_path, env=environment,
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text("utf-8").splitlines()
    begin = "qdisc replace dev {} root netem limit 100000 delay {}us loss {}%"
    assert calls[0] == begin.format("up0", 30000, 0) + " rate 20000000bit"
    assert calls[1] == begin.format("down0", 31000, 0)
    # A rate of 0 in one direction is no outage of the other.
    assert calls[2:4] == [begin.format("up0", 35000, 100), begin.format("down0", 31000, 0)]


PING = """\
PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.
[1700000000.040000] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 time=40.0 ms
[1700000001.050000] 64 bytes from 192.0.2.1: icmp_seq=2 ttl=56 time=50.0 ms
"""


def test_ends_may_be_named(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "ping.txt").write_text(PING, "utf-8")
    done = skyhop(
        *("path", "import", "ping.txt", "--format", "ping", "-o", "x.parquet"),
        *("--from", "Seattle", "--to", "51.5,-0.1"),
    )
    assert done.returncode == 0, done.stderr
    assert "x.parquet: 3 frames, mean base RTT 47.4 ms, events: none" in done.stderr
    header = json.loads(pq.read_schema(tmp_path / "x.parquet").metadata[b"skyhop"])
    assert header["from"]["name"] == "Seattle, US"
    assert header["to"]["latitude_deg"] == 51.5
    assert header["start"] == "2023-11-14T22:13:20Z"


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ping.txt").write_text(PING, "utf-8")
    with pytest.raises(InputError, match="--rtt: the format ping does not use it"):
        sh.import_path(tmp_path / "ping.txt", "ping", rtt="40 ms")
    with pytest.raises(InputError, match=r"--interval: .*soon.*; expected a duration"):
        sh.import_path(tmp_path / "ping.txt", "ping", interval="soon")
    (tmp_path / "x.csv").write_text("1,2,3,4,0,0,5\n", "utf-8")
    with pytest.raises(InputError, match=r"--direction: .*expected down or up"):
        sh.import_path(tmp_path / "x.csv", "csv", direction="sideways")


@pytest.mark.parametrize("log_format", ["ping", "irtt", "csv", "mahimahi", "leocc"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "x.log: "),
        (b"<!DOCTYPE html><html><body>404</body></html>\n", "x.log: line 1: "),
        (b"\xff\xfe\x00\x01", "x.log: line 1: "),
        (b"1700000000000000000,nan\n", "x.log: line 1: "),
    ],
    ids=["empty", "html", "binary", "NaN"],
)
def test_files_of_another_format_are_refused(
    tmp_path: Path, log_format: str, content: bytes, expected: str
) -> None:
    (tmp_path / "x.log").write_bytes(content)
    (tmp_path / "delays").write_text("20\n" * 100, "utf-8")
    options = {"delay_file": str(tmp_path / "delays")} if log_format == "leocc" else {}
    with pytest.raises(InputError) as raised:
        sh.import_path(tmp_path / "x.log", log_format, **options)
    message = str(raised.value)
    assert expected in message
    assert "\n" not in message


def test_a_file_of_200_mb_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "big.gz", "wb", compresslevel=1) as big:
        for _ in range(200):
            big.write(b"1700000000000000000,20.5\n" * 40_000)
    with pytest.raises(InputError, match="line 1000001: more than 1000000 samples"):
        sh.import_path(tmp_path / "big.gz", "csv")


def test_the_delay_file_of_leocc_is_found_next_to_the_packet_file(tmp_path: Path) -> None:
    (tmp_path / "bw_1.txt").write_text("1\n2\n3\n", "utf-8")
    with pytest.raises(InputError, match="--delay-file: no file of delays in the same directory"):
        sh.import_path(tmp_path / "bw_1.txt", "leocc")
    (tmp_path / "delay_1.txt").write_text("20\nx\n", "utf-8")
    with pytest.raises(InputError, match=r"delay_1.txt: line 2: the one-way delay in ms has .x."):
        sh.import_path(tmp_path / "bw_1.txt", "leocc")


WINDOWS_PING = """
Ping wird ausgeführt für example.net [192.0.2.1] mit 32 Bytes Daten:
Antwort von 192.0.2.1: Bytes=32 Zeit=20ms TTL=117
Zeitüberschreitung der Anforderung.
Antwort von 192.0.2.1: Bytes=32 Zeit=40ms TTL=117

Ping-Statistik für 192.0.2.1:
    Pakete: Gesendet = 3, Empfangen = 2, Verloren = 1
    (33% Verlust),
Ca. Zeitangaben in Millisek.:
    Minimum = 20ms, Maximum = 40ms, Mittelwert = 30ms
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp850"])
def test_files_of_windows_are_read_in_its_encoding(tmp_path: Path, encoding: str) -> None:
    text = WINDOWS_PING.replace("\n", "\r\n")
    (tmp_path / "ping.txt").write_bytes(text.encode(encoding))
    path = sh.import_path(tmp_path / "ping.txt", "ping")
    # The second probe timed out after 4 s, the third was sent then, 5 s from the start: the probes
    # are 2.5 s apart.
    assert path.header["duration_ns"] == pytest.approx(7.5e9)
    delays_ms = path.frames["delay_ns"].to_numpy() / 1e6
    assert (delays_ms[0], delays_ms[-1]) == (10, 20)
    assert path.frames["loss"][0] == pytest.approx(1 / 3)


def test_csvs_name_their_columns_in_any_order(skyhop: Skyhop, tmp_path: Path) -> None:
    rows = [f"host,{20 + i % 5},2026-05-01 12:00:{i:02d}" for i in range(50)]
    named = "\n".join(["Host,Latency (ms),Date", *rows])
    (tmp_path / "named.csv").write_bytes(named.encode("utf-8-sig"))
    done = skyhop("path", "import", "named.csv", "--format", "csv", "-o", "named.parquet")
    assert done.returncode == 0, done.stderr
    path = sh.read_path(tmp_path / "named.parquet")
    assert path.header["start"] == "2026-05-01T11:59:59.980Z"
    plain = [f"{1_777_636_800 + i}000000000,{20 + i % 5}" for i in range(50)]
    (tmp_path / "plain.csv").write_text("\n".join(plain), "utf-8")
    assert sh.import_path(tmp_path / "plain.csv", "csv").frames.equals(path.frames)
    (tmp_path / "odd.csv").write_text("size,colour\n1,2\n", "utf-8")
    done = skyhop("path", "import", "odd.csv", "--format", "csv", "-o", "odd.parquet")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert 'odd.csv: line 1: "size,colour" needs a column for the time' in done.stderr


def test_a_terminals_answers_join_its_history_and_filled_seconds_are_kept(tmp_path: Path) -> None:
    history = ["unix_s,latency_ms,drop_rate,down_bps,up_bps"]
    history += [
        f"{1_716_821_500 + s},{30 + s % 3},0,{1e8 if 20 <= s < 60 else 1e6:.0f},1000"
        for s in range(80)
    ]
    status = ["unix_s,latency_ms,drop_rate,azimuth_deg,elevation_deg,fraction_obstructed"]
    status += [f"{1_716_821_500 + s}.2,31,0,{s / 10},65,0.01" for s in range(40)]
    for name, lines in (("history", history), ("status", status)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    frame = measured_paths.terminal_frame(tmp_path / "history.csv", tmp_path / "status.csv")
    assert frame.height == 80
    assert frame["azimuth"].null_count() == 40
    assert frame["latency_ms"].null_count() == 0
    filled = measured_paths.filled_frame(frame)
    assert (filled["capacity_bps"] == filled["rx_bps"]).all()
    # The mean of 10 s is above 20 Mbit/s from two seconds after the begin to before the end.
    assert 30 <= filled.height <= 40
    assert filled["rx_bps"].min() == 1e8
