"""Importers of published data: each format from small files of its own, and real ones."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import Skyhop

from damaged import Trial
from needs import needs_program
from reference_files import reference
from skyhop.data.paths import import_path
from skyhop.errors import InputError
from skyhop.telemetry.columns import checked
from skyhop.telemetry.fields import TIME, UNREACHABLE, Sample
from skyhop.telemetry.importers import Options, formats, import_samples

S = 10**9
AT_NS = 1_700_000_000 * S
"""Begin of the files' data, 2023-11-14T22:13:20Z."""

STATUS = """\
datetimestamp_utc,id,hardware_version,software_version,state,uptime,snr,\
seconds_to_first_nonempty_slot,pop_ping_drop_rate,downlink_throughput_bps,uplink_throughput_bps,\
pop_ping_latency_ms,alerts,fraction_obstructed,currently_obstructed,seconds_obstructed,\
obstruction_duration,obstruction_interval,direction_azimuth,direction_elevation,\
is_snr_above_noise_floor,gps_ready,gps_enabled,gps_sats
2023-11-14T22:13:20.400000,ut1,rev3,2023.1,CONNECTED,1000,,0.0,0.05,1000000.0,20000.0,35.5,72,\
0.001,False,,,,-0.5,64.5,True,True,True,14
2023-11-14T22:13:21,,,,DISH_UNREACHABLE
"""
BULK = """\
datetimestamp_utc,pop_ping_drop_rate,pop_ping_latency_ms,downlink_throughput_bps,\
uplink_throughput_bps,snr,scheduled,obstructed,power_w
2023-11-14T22:13:20.4,0.0,30.5,1000.0,2000.0,,,,61.5
datetimestamp_utc,pop_ping_drop_rate,pop_ping_latency_ms,downlink_throughput_bps,\
uplink_throughput_bps,snr,scheduled,obstructed,power_w
2023-11-14T22:13:21.4,1.0,,0.0,0.0,,,,60.5
"""
LEOVIZ = """\
timestamp,hardwareVersion,sinr,popPingLatencyMs,downlinkThroughputBps,uplinkThroughputBps,\
tiltAngleDeg,boresightAzimuthDeg,boresightElevationDeg,attitudeEstimationState,attitudeUncertaintyDeg
1700000000.71,rev3,13.0,27.5,58000.5,178000.25,27.4,-0.13,62.64,FILTER_CONVERGED,0.58
"""
ANSWER = json.dumps(
    {
        "apiVersion": "31",
        "dishGetStatus": {
            "deviceState": {"uptimeS": "398465"},
            "obstructionStats": {"validS": 7797, "fractionObstructed": 0.01},
            "alerts": {"obstructionMapReset": True},
            "popPingLatencyMs": 27.9,
            "boresightAzimuthDeg": -0.15,
            "outage": {"cause": "NO_SCHEDULE"},
            "gpsStats": {"gpsValid": True, "gpsSats": 16},
            "alignmentStats": {"tiltAngleDeg": 27.4},
        },
    },
    indent=2,
)
HISTORY = json.dumps(
    {
        "id": "0",
        "dishGetHistory": {
            "current": "5",
            "popPingDropRate": [1, 0.5, 0],
            "popPingLatencyMs": [30.5, 31.5, 29.5],
            "downlinkThroughputBps": [3e6, 4e6, 2e6],
            "uplinkThroughputBps": [3e5, 4e5, 2e5],
        },
    },
    indent=2,
)
PING = """\
PING 192.0.2.1 (192.0.2.1) from 192.0.2.7 eth0: 56(84) bytes of data.
[1700000000.100000] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=62 time=30.0 ms
[1700000000.500000] 64 bytes from 192.0.2.1: icmp_seq=3 ttl=62 time=40.0 ms
[1700000000.510000] 64 bytes from 192.0.2.1: icmp_seq=2 ttl=62 time=50.0 ms
[1700000001.500000] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=62 time=20 ms
"""
IPERF3 = json.dumps(
    {
        "start": {
            "connected": [{"socket": 5}],
            "timestamp": {"timesecs": 1_700_000_000},
            "test_start": {"protocol": "TCP", "reverse": 1, "target_bitrate": 0},
        },
        "intervals": [
            {"sum": {"start": 0, "end": 0.5, "bits_per_second": 1e7, "omitted": True}},
            {"sum": {"start": 0.5, "end": 1.0001, "bits_per_second": 2e7, "omitted": False},
             "sum_bidir_reverse": {"bits_per_second": 3e6}},
            {"sum": {"start": 1.0001, "end": 3.0, "bits_per_second": 4e7, "omitted": False}},
        ],
        "end": {},
    },
    indent=1,
)  # fmt: skip
IRTT = json.dumps(
    {
        "round_trips": [
            {
                "seqno": n,
                "lost": "true" if n == 1 else "false",
                "timestamps": {"client": {"send": {"wall": AT_NS + n * S // 4}}},
                "delay": {} if n == 1 else {"rtt": 30_000_000 + n * 1_000_000},
            }
            for n in range(4)
        ]
    },
    indent=1,
)
ATLAS = [
    {
        "fw": 5080, "af": 4, "dst_name": "192.0.2.1", "dst_addr": "192.0.2.1", "msm_id": 1,
        "prb_id": 7, "timestamp": AT_NS // S + 240 * n, "type": "ping",
        "result": [{"rtt": 30.5 + n}, {"x": "*"}, {"rtt": 31.5 + n}],
    }
    for n in range(3)
]  # fmt: skip
FILES = {
    "atlas": {
        "ping.json": json.dumps(ATLAS),
        "ping.ndjson": "".join(json.dumps(result) + "\n" for result in ATLAS),
    },
    "irtt": {"irtt.json": IRTT},
    "grpc-tools": {"status.csv": STATUS, "bulk.csv": BULK},
    "leoscope": {"grpc.csv": STATUS},
    "rtt": {
        "rtt.csv": "1700000000100000000,30.5\n1700000000200000000,31.5\n1700000001000000000,40\n",
        "named.csv": "unix_ns,rtt_ms\n1700000000100000000,30.5\n",
        "latency.csv": (
            "seq,sent_s,rtt_ms\n0,1700000000.05,30\n1,1700000000.1,\n2,1700000000.99,40.5\n"
        ),
    },
    "iperf3": {"down.json": IPERF3},
    "autobahn": {
        "throughput.csv": (
            ",timestamp_start_dl,timestamp_end_dl,download,timestamp_start_ul,timestamp_end_ul,"
            "upload,Latitude\n0,2023-11-14 22:13:20.001039872,2023-11-14 22:13:21.001035008,17.5,"
            "2023-11-14 22:13:20.000116224,2023-11-14 22:13:21.000148992,12.25,52.2\n"
        ),
        "RTT_Loss.csv": (
            "timestamp,destination_IP,icmp_seq,ttl,time,lost\n"
            "2023-11-14 22:13:20.081057024,100.64.0.1,1,64,20.5,False\n"
            "2023-11-14 22:13:20.091149056,100.64.0.1,2,64,-1.0,True\n"
        ),
    },
    "nuwins": {
        "starlink_metric.app_tput_filtered.csv": (
            "req_time,utc_ts,latency_ms,tput_dl_bps,tput_ul_bps,snr_above_noise_floor,"
            "snr_persistently_low,outage_cause,obstruction_flag,obstruction_fraction\n"
            "x,1700000000.1,30.5,1000000,20000,True,False,,False,0.25\n"
            "x,1700000000.6,31.5,3000000,40000,True,False,NO_SCHEDULE,True,0.25\n"
        ),
        "icmp_ping.starlink.normal.csv": (
            "local_dt,utc_ts,rtt_ms,run_id\nx,1700000000.2,40.5,1\nx,1700000000.4,,1\n"
        ),
        "starlink_tcp_uplink.csv": (
            "time,throughput_mbps,retrans,cwnd_kb,weather,area\n"
            "2023-11-14T12:13:20.5-10:00,14.5,0,100,rain,urban\n"
        ),
    },
    "grpcurl": {"get_history.json": HISTORY},
    "ping": {"ping-10ms.txt": PING},
    "lens": {
        "ping.csv": "timestamp,rtt\n1700000000.53,91.8\n1700000000.55,96.5\n",
        "irtt.csv": (
            "timestamp,rtt,uplink,downlink\n1700000000616897349,0,0,-1\n"
            "1700000000626565141,120.0,72.4,47.6\n"
        ),
    },
    "lagos": {"lagos.csv": "26.5,48.1,80.0,90.0,0.0,0.0,0\n28.5,50.1,82,88,0.5,0.0,100\n"},
    "mahimahi": {"down.trace": "".join(f"{n}\n" for n in range(4, 2001, 4))},
    "leocc": {"bw_x.txt": "".join(f"{n}\n" for n in range(4, 2001, 4))},
    "drive": {
        "drive_up.csv": "segment,unix_s,mbps,speed\n0,1700000000,14.5,63.0\n0,1700000001,0,62.3\n",
        "mob_all.csv": "time,throughput,speed,area\n2023-11-14 17:13:20 EST,100.5,10,x\n",
    },
    "wetlinks": {
        "starlink.csv": (
            "site_name,timestamp,state,uplink,downlink,pop_ping_latency,ping_drop,"
            "mean_ping_latency,ping_stdvar,fraction_obstructed,obstruction_duration,"
            "obstruction_interval,direction_azimuth,direction_elevation\n"
            "Enschede,2023-11-14T22:13:20+00:00,CONNECTED,1.5,2.5,40.5,10,41,3,0.5,,,1.5,64.5\n"
        ),
        "net_ping.csv": (
            "site_name,timestamp_start,timestamp_end,target,ip_protocol,packet_loss,packets_send,"
            "ping_avg,ping_worst,ping_best,ping_stddev\n"
            "Enschede,2023-11-14T22:13:10,2023-11-14T22:13:20,x,IPv4,10.0,10,45.5,60,40,3\n"
        ),
        "net_iperf.csv": (
            "site_name,timestamp_start,timestamp_end,server,ip_protocol,transport_protocol,"
            "download,upload\n"
            "Enschede,2023-11-14T22:13:19,2023-11-14T22:13:20,x,IPv4,TCP,1.5e8,1e7\n"
        ),
        "froggit.csv": (
            "site_name,timestamp,temp,humidity,dewpt,windchill,winddir,windspeed,windgust,rain,"
            "barom\nEnschede,2023-11-14 22:13:20,10.0,80,5,9,270,3.5,7.5,0.1,1013.25\n"
        ),
    },
    "table": {
        "own.csv": "time_ns,state,gps_sats,tilt\n1700000001000000000,CONNECTED,14,25.5\n",
        "logger.csv": "datetime,latency_ms,drop_rate\n2023-11-14 22:13:20.5,30.5,0\n",
    },
    "leoviz": {
        "GRPC_STATUS-2023-11-14-22-13-20.csv": LEOVIZ,
        "GetStatus-2023-11-14-22-13-20.txt": ANSWER,
    },
}  # fmt: skip


def read(directory: Path, name: str, file: str, **options: object) -> list[Sample]:
    (directory / file).write_text(FILES[name][file], "utf-8")
    (directory / "delay_x.txt").write_text("10.5\n" * 200)
    return list(import_samples(directory / file, name, Options(**options)))  # type: ignore[arg-type]


def test_every_format_is_here_and_known_by_its_file() -> None:
    assert set(formats()) == set(FILES)
    assert all(
        importer.basis in ("files", "code", "documentation") for importer in formats().values()
    )


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_recognised_and_its_samples_can_be_kept(name: str, tmp_path: Path) -> None:
    for file in FILES[name]:
        asked = read(tmp_path, name, file)
        assert list(import_samples(tmp_path / file)) == asked, file
        assert [checked(sample) for sample in asked]
        packed = tmp_path / "packed" / file
        packed.parent.mkdir(exist_ok=True)
        packed.write_bytes(gzip.compress(FILES[name][file].encode()))
        (packed.parent / "delay_x.txt").write_text("10.5\n" * 200)
        assert list(import_samples(packed)) == asked, file


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    names = list(FILES[name])
    (tmp_path / "delay_x.txt").write_text("10.5\n" * 200)

    def tried(content: bytes) -> None:
        for file in names[:1] if name != "wetlinks" else ["starlink.csv"]:
            (tmp_path / file).write_bytes(content)
            for sample in import_samples(tmp_path / file, name, Options(start_ns=0)):
                checked(sample)

    samples = [text.encode() for text in FILES[name].values()]
    Trial(f"telemetry {name}", samples, usual=40).run(tried)


def test_what_the_tools_for_grpc_write(tmp_path: Path) -> None:
    first, second = read(tmp_path, "grpc-tools", "status.csv")
    assert first == {
        TIME: AT_NS, "state": "CONNECTED", "uptime_s": 1000.0,
        "seconds_to_first_nonempty_slot": 0.0, "pop_ping_drop_rate": 0.05,
        "pop_ping_latency_ms": 35.5, "downlink_throughput_bps": 1e6,
        "uplink_throughput_bps": 20000.0, "fraction_obstructed": 0.001,
        "direction_azimuth": -0.5, "direction_elevation": 64.5, "gps_sats": 14,
        "currently_obstructed": False, "snr_above_noise": True, "gps_valid": True,
        "alerts": "unexpected_location,roaming",
    }  # fmt: skip
    assert second == {TIME: AT_NS + S, "state": UNREACHABLE}
    first, second = read(tmp_path, "grpc-tools", "bulk.csv")
    assert (first["pop_ping_latency_ms"], first["power_w"]) == (30.5, 61.5)
    assert second == {TIME: AT_NS + S, "pop_ping_drop_rate": 1.0, "power_w": 60.5,
                      "downlink_throughput_bps": 0.0, "uplink_throughput_bps": 0.0}  # fmt: skip


def test_statistics_of_a_history_are_those_of_their_seconds(tmp_path: Path) -> None:
    content = (
        "datetimestamp_utc,samples,end_counter,total_ping_drop,mean_all_ping_latency,"
        "download_usage,mean_power\n"
        "2023-11-14T22:13:22.3,2,9,0.5,31.5,1000,60\n"
        # The seconds of this row overlap with those of the row before.
        "2023-11-14T22:13:24.3,3,12,3,,3000,61\n"
    )
    (tmp_path / "history.csv").write_text(content, "utf-8")
    accounts: list[str] = []
    first, second, third, fourth = import_samples(tmp_path / "history.csv", accounts=accounts)
    means = {"pop_ping_latency_ms": 31.5, "pop_ping_drop_rate": 0.25, "power_w": 60.0,
             "downlink_throughput_bps": 4000.0}  # fmt: skip
    assert first == {TIME: AT_NS + S, **means}
    assert second == {TIME: AT_NS + 2 * S, **means}
    lost = {"pop_ping_drop_rate": 1.0, "power_w": 61.0, "downlink_throughput_bps": 8000.0}
    assert [third, fourth] == [{TIME: AT_NS + n * S, **lost} for n in (3, 4)]
    assert accounts == ["means of several seconds, which count in each of them; "
                        "not used: end_counter"]  # fmt: skip


def test_tables_of_the_sqlite_of_the_tools_for_grpc(tmp_path: Path) -> None:
    rows = "time,id,pop_ping_drop_rate,pop_ping_latency_ms,counter\n1700000001,ut1,0.5,30.5,1\n"
    (tmp_path / "history.csv").write_text(rows, "utf-8")
    expected = {TIME: AT_NS + S, "pop_ping_drop_rate": 0.5, "pop_ping_latency_ms": 30.5}
    assert list(import_samples(tmp_path / "history.csv")) == [expected]


def test_a_table_of_telemetry_comes_back_as_it_was_written(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(HISTORY, "utf-8")
    answers = ("history.json", "--start", "2023-11-14T22:13:20Z")
    assert skyhop("telemetry", "import", *answers, "--node", "a", "-o", "kept").returncode == 0
    shown = skyhop("telemetry", "show", "kept", "--csv").stdout
    (tmp_path / "own.csv").write_text(shown, "utf-8")
    done = skyhop("telemetry", "import", "own.csv", "--node", "a", "-o", "again")
    assert done.returncode == 0, done.stderr
    assert skyhop("telemetry", "show", "again", "--csv").stdout == shown
    (tmp_path / "two.csv").write_text("node,time_ns,tilt\na,1,2\nb,2,3\n", "utf-8")
    done = skyhop("telemetry", "import", "two.csv", "--node", "a", "-o", "again")
    assert 'line 3: is of the node "b", and others of "a"' in done.stderr


def test_a_table_of_the_users_own_has_means_of_seconds_and_last_flags(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text(
        "unix_s,latency_ms,drop_rate,currently_obstructed,uptime_s,colour\n"
        "1700000000.1,30,0,False,5,red\n"
        "1700000000.9,40,0.5,True,6,red\n"
        "1700000001.2,-1,1,False,,red\n"
        "1700000002.2,,,True,,red\n",
        "utf-8",
    )
    accounts: list[str] = []
    samples = list(import_samples(file, accounts=accounts))
    assert samples == [
        {TIME: AT_NS + S, "pop_ping_latency_ms": 35.0, "pop_ping_drop_rate": 0.25,
         "uptime_s": 5.5, "currently_obstructed": True},
        {TIME: AT_NS + 2 * S, "pop_ping_drop_rate": 1.0, "currently_obstructed": False},
        {TIME: AT_NS + 3 * S, "currently_obstructed": True},
    ]  # fmt: skip
    assert accounts == ["not used: colour"]


def test_a_table_of_a_time_and_a_round_trip_is_read_as_a_paths(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("time_s,RTT_ms\n1700000000.5,30\n1700000001.5,\n1700000002.5,32\n", "utf-8")
    rtts = [sample.get("probe_rtt_ms") for sample in import_samples(file)]
    assert [rtt for rtt in rtts if rtt is not None] == [30.0, 32.0]


@pytest.mark.parametrize("before", ["", "[2024-05-27 11:23:28.725881] "])
def test_traces_of_the_route_are_said_to_be_for_dissect(tmp_path: Path, before: str) -> None:
    (tmp_path / "t").write_text(
        f"{before}traceroute to 192.0.2.1 (192.0.2.1), 30 hops max\n{before} 1  * * *\n", "utf-8"
    )
    with pytest.raises(InputError, match="holds traces of the route: skyhop dissect reads it"):
        list(import_samples(tmp_path / "t"))


def test_rows_without_names_of_columns_are_said_to_lack_them(tmp_path: Path) -> None:
    (tmp_path / "status.csv").write_text("\n".join(STATUS.splitlines()[-2:]), "utf-8")
    with pytest.raises(InputError, match=r"no names of columns .*dish_grpc_text.py -H"):
        list(import_samples(tmp_path / "status.csv"))


def test_a_file_without_any_known_value_is_refused(tmp_path: Path) -> None:
    content = (
        "datetimestamp_utc,samples,stdev_full_ping_latency\n"
        "2026-05-27T11:00:00,60,1.5\n2026-05-27T11:01:00,60,1.5\n"
    )
    (tmp_path / "history.csv").write_text(content, "utf-8")
    with pytest.raises(
        InputError, match="holds no value that the format grpc-tools knows"
    ) as raised:
        list(import_samples(tmp_path / "history.csv"))
    assert "datetimestamp_utc,samples" in str(raised.value)


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"\xfd7zXZ\0", "is compressed by xz: unpack it"),
        (b"\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it"),
        (b"PK\x03\x04", "is a zip archive"),
        (b"SQLite format 3\0", "is an SQLite database: export the table as CSV"),
        (b"#EXTM3U\n", "is an HLS playlist"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(
    tmp_path: Path, begin: bytes, what: str
) -> None:
    (tmp_path / "log").write_bytes(begin + b"more")
    with pytest.raises(InputError, match=what):
        list(import_samples(tmp_path / "log"))
    for read_path in ("ping", "csv"):
        with pytest.raises(InputError, match=what):
            import_path(tmp_path / "log", read_path)


def test_round_trips_become_means_of_seconds(tmp_path: Path) -> None:
    rtt = read(tmp_path, "rtt", "rtt.csv")
    assert rtt == [{TIME: AT_NS + S, "probe_rtt_ms": 31.0},
                   {TIME: AT_NS + 2 * S, "probe_rtt_ms": 40.0}]  # fmt: skip
    # The third probe was sent in the first second and answered in the next.
    assert read(tmp_path, "rtt", "latency.csv") == [
        {TIME: AT_NS + S, "probe_rtt_ms": 30.0, "probe_loss": 0.5},
        {TIME: AT_NS + 2 * S, "probe_rtt_ms": 40.5, "probe_loss": 0.0},
    ]
    # An answer that another one overtook is late and not lost.
    assert read(tmp_path, "ping", "ping-10ms.txt") == [
        {TIME: AT_NS + S, "probe_rtt_ms": 40.0, "probe_loss": 0.0},
        {TIME: AT_NS + 2 * S, "probe_rtt_ms": 20.0, "probe_loss": 0.0},
    ]
    lens = read(tmp_path, "lens", "irtt.csv")
    assert lens == [{TIME: AT_NS + S, "probe_rtt_ms": 120.0, "probe_loss": 0.5}]


def test_rates_that_filled_the_link_are_capacities(tmp_path: Path) -> None:
    assert read(tmp_path, "lagos", "lagos.csv", start_ns=AT_NS) == [
        {TIME: AT_NS + S, "downlink_capacity_bps": pytest.approx(49.1e6), "probe_loss": 0.25,
         "uplink_capacity_bps": 27.5e6, "probe_rtt_ms": 170.0},
    ]  # fmt: skip
    # 250 packets per second.
    rates = read(tmp_path, "leocc", "bw_x.txt", direction="up")
    expected = {"uplink_capacity_bps": 250 * 1514 * 8.0, "probe_rtt_ms": 21.0}
    assert rates == [{TIME: S, **expected}, {TIME: 2 * S, **expected}]
    assert read(tmp_path, "drive", "drive_up.csv") == [
        {TIME: AT_NS + S, "uplink_capacity_bps": 14.5e6},
        {TIME: AT_NS + 2 * S, "uplink_capacity_bps": 0.0},
    ]
    published = read(tmp_path, "drive", "mob_all.csv")
    assert published == [{TIME: AT_NS + S, "downlink_capacity_bps": 100.5e6}]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("grpc-tools", "status.csv"), ("grpc-tools", "bulk.csv"), ("rtt", "rtt.csv"),
        ("lens", "ping.csv"), ("lagos", "lagos.csv"), ("drive", "mob_all.csv"),
    ],
)  # fmt: skip
def test_a_last_line_that_is_cut_off_is_left_out(name: str, file: str, tmp_path: Path) -> None:
    whole = FILES[name][file]
    last = whole.rstrip().splitlines()[-1]
    place, accounts = tmp_path / file, list[str]()
    place.write_text(whole, "utf-8")
    expected = list(import_samples(place, name))
    place.write_text(whole + last[: len(last) // 3], "utf-8")
    assert list(import_samples(place, name, accounts=accounts))[:-1] == expected[:-1]
    assert "cut off" in accounts[0] or "1 line passed over" in accounts[0]
    # A line with an end is whole, and so is the only one.
    place.write_text(f"{whole}{last[: len(last) // 3]}\n", "utf-8")
    with pytest.raises(InputError, match="line"):
        list(import_samples(place, name))


def test_the_first_row_is_an_error_although_it_may_be_cut_off(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("time,throughput,speed\n2023-11-14 17:13:20 E", "utf-8")
    with pytest.raises(InputError, match="line 2: 1 cells, expected 3"):
        list(import_samples(tmp_path / "x.csv", "drive"))


def test_traces_of_mahimahi_are_read_as_paths_are(tmp_path: Path) -> None:
    for text, said in [
        ("5\n4\n", "line 2: 4 ms is before 5 ms"), ("5\nx\n", 'line 2: "x" where a time'),
        ("14400001\n", "line 1: 14400001 ms is more than four hours"),
    ]:  # fmt: skip
        (tmp_path / "x.trace").write_text(text)
        with pytest.raises(InputError, match=f"x.trace: {said}"):
            list(import_samples(tmp_path / "x.trace"))
    for times_ms, packets in [
        (range(10, 1981, 10), [100]), (range(10, 1991, 10), [100, 99 / 0.99]),
        ((500, 2500), [1, 0]),
    ]:  # fmt: skip
        (tmp_path / "x.trace").write_text("".join(f"{at_ms}\n" for at_ms in times_ms))
        rates = [sample["downlink_capacity_bps"] for sample in import_samples(tmp_path / "x.trace")]
        assert rates == [pytest.approx(count * 1514 * 8) for count in packets]
    (tmp_path / "bw_x.txt").write_text("5\n1000\n")
    (tmp_path / "delay_x.txt").write_text("10\n-1\n")
    with pytest.raises(InputError, match=r"delay_x\.txt: line 2: the one-way delay in ms is -1"):
        list(import_samples(tmp_path / "bw_x.txt"))


def test_an_iperf3_report_is_by_direction_and_second(tmp_path: Path) -> None:
    # -O omits the first half second; the last interval has two seconds.
    assert read(tmp_path, "iperf3", "down.json") == [
        {TIME: AT_NS + S, "downlink_capacity_bps": 2e7, "uplink_capacity_bps": 3e6},
        {TIME: AT_NS + 2 * S, "downlink_capacity_bps": 4e7},
        {TIME: AT_NS + 3 * S, "downlink_capacity_bps": 4e7},
    ]
    failed = {"start": {"connected": []}, "intervals": [], "error": "unable to connect"}
    (tmp_path / "failed.json").write_text(json.dumps(failed))
    with pytest.raises(InputError, match="did not measure: unable to connect"):
        list(import_samples(tmp_path / "failed.json"))


def iperf3_server(program: str) -> tuple[subprocess.Popen[str], str]:
    """Start an iperf3 server for one test; return it and its port, which was free."""
    for _ in range(10):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        command = [program, "-s", "-1", "-p", port, "--forceflush"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout
        if any("listening" in line for line in server.stdout):
            return server, port
        server.wait()
    raise AssertionError("iperf3 found no port to listen on")


@pytest.mark.integration
def test_a_report_of_the_iperf3_that_is_here_is_read(tmp_path: Path) -> None:
    program = needs_program("iperf3", "iperf3")
    begin_ns = time.time_ns()
    server, port = iperf3_server(program)
    command = [program, "-c", "127.0.0.1", "-p", port, "-t", "1", "-i", "0.5", "-b", "8M"]
    with server:
        done = subprocess.run([*command, "--json"], capture_output=True, check=False, timeout=60)
        server.terminate()
    (tmp_path / "up.json").write_bytes(done.stdout)
    samples = list(import_samples(tmp_path / "up.json"))
    rates_bps = [each["sum"]["bits_per_second"] for each in json.loads(done.stdout)["intervals"]]
    assert 1 <= len(samples) <= len(rates_bps)
    for sample in samples:
        time_ns, rate_bps = sample[TIME], sample["uplink_capacity_bps"]
        assert isinstance(time_ns, int)
        assert isinstance(rate_bps, float)
        # A report has its start in whole seconds.
        assert begin_ns - S <= time_ns <= time.time_ns() + S
        assert min(rates_bps) <= rate_bps <= max(rates_bps)


def test_the_autobahns_rates_and_pings(tmp_path: Path) -> None:
    assert read(tmp_path, "autobahn", "throughput.csv") == [
        {TIME: AT_NS + S, "downlink_capacity_bps": 17.5e6},
        {TIME: AT_NS + S, "uplink_capacity_bps": 12.25e6},
    ]
    assert read(tmp_path, "autobahn", "RTT_Loss.csv") == [
        {TIME: AT_NS + S, "probe_rtt_ms": 20.5, "probe_loss": 0.5}
    ]


def test_the_drives_of_nuwins(tmp_path: Path) -> None:
    (metric,) = read(tmp_path, "nuwins", "starlink_metric.app_tput_filtered.csv")
    assert metric == {
        TIME: AT_NS + S, "pop_ping_latency_ms": 31.0, "downlink_throughput_bps": 2e6,
        "uplink_throughput_bps": 30_000.0, "fraction_obstructed": 0.25, "snr_above_noise": True,
        "snr_persistently_low": False, "currently_obstructed": True, "outage": True,
        "state": "SEARCHING",
    }  # fmt: skip
    ping = read(tmp_path, "nuwins", "icmp_ping.starlink.normal.csv")
    assert [sample[TIME] for sample in ping] == [AT_NS + S, AT_NS + 2 * S]
    assert (ping[0]["probe_rtt_ms"], ping[1]["probe_loss"]) == (40.5, 1.0), "empty: lost"
    rate = read(tmp_path, "nuwins", "starlink_tcp_uplink.csv")
    assert rate == [{TIME: AT_NS + S, "uplink_capacity_bps": 14.5e6}]


def test_units_of_wetlinks_become_ours(tmp_path: Path) -> None:
    (status,) = read(tmp_path, "wetlinks", "starlink.csv")
    assert status[TIME] == AT_NS
    assert (status["pop_ping_drop_rate"], status["fraction_obstructed"]) == (0.1, 0.005)
    assert status["downlink_throughput_bps"] == 2.5e6
    (weather,) = read(tmp_path, "wetlinks", "froggit.csv")
    assert (weather["weather_temp"], weather["weather_pressure"]) == (283.15, 1013.25)
    (ping,) = read(tmp_path, "wetlinks", "net_ping.csv")
    assert ping == {TIME: AT_NS, "probe_rtt_ms": 45.5, "probe_loss": pytest.approx(0.1)}


def test_leoviz_says_what_the_terminal_said(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "leoviz", "GRPC_STATUS-2023-11-14-22-13-20.csv")
    assert (row[TIME], row["tilt"], row["direction_azimuth"]) == (AT_NS, 27.4, -0.13)
    (answer,) = read(tmp_path, "leoviz", "GetStatus-2023-11-14-22-13-20.txt")
    assert answer[TIME] == AT_NS
    assert (answer["state"], answer["outage"], answer["gps_sats"]) == ("SEARCHING", True, 16)
    assert answer["alerts"] == "obstruction_map_reset"
    assert answer["uplink_throughput_bps"] == 0.0, "zeros are left out of JSON"


def test_the_rings_of_a_recorded_history_begin_with_their_oldest_second(tmp_path: Path) -> None:
    rows = read(tmp_path, "grpcurl", "get_history.json", start_ns=AT_NS)
    assert [row[TIME] for row in rows] == [AT_NS, AT_NS + S, AT_NS + 2 * S]
    # Of five seconds three are kept: the third stands last.
    assert [row["downlink_throughput_bps"] for row in rows] == [2e6, 3e6, 4e6]
    assert [row["pop_ping_latency_ms"] for row in rows] == [29.5, None, 31.5]
    assert [row["power_w"] for row in rows] == [None] * 3


@pytest.mark.parametrize(
    ("file", "count"),
    [("rtt/victoria_1.csv.gz", 801), ("throughput/lagos_isl_100ms.csv.gz", 5445),
     ("throughput/leocc_bw_example.txt.gz", 120), ("throughput/drive_udp_up.csv.gz", 3480),
     ("dish/get_history.json.gz", 900 + 21)],
)  # fmt: skip
def test_published_files_are_read_whole(file: str, count: int) -> None:
    samples = list(import_samples(reference(file)))
    assert len(samples) == count
    assert len({sample[TIME] for sample in samples}) == count


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "is empty"), (b"hello\n", "is of no known format"), (b"\xff\xfea", "is not UTF-8"),
     (b"\x1f\x8b\0", "compressed file ends early"),
     (gzip.compress(b"1", mtime=0)[:-8] + bytes(8), "cannot read it: is damaged gzip data")],
)  # fmt: skip
def test_what_is_of_no_format_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=what):
        list(import_samples(tmp_path / "file"))
    with pytest.raises(InputError, match="expected one of atlas, autobahn, drive, grpc-tools"):
        list(import_samples(tmp_path / "file", "x"))
