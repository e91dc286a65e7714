"""Live runs through the command line: results as documented, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import skyhop as sh
from command_line import Skyhop, run_here, skyhop_command
from needs import needs_program
from other_user import USER, as_other_user
from waiting import wait_for

SCENARIO = """\
[path]
kind = "fixed"
rtt = "30 ms"
[link]
rate = "20 Mbit/s"
[[flow]]
cc = "cubic"
[[flow]]
kind = "probe"
[run]
duration = "2 s"
"""

# Documented fields of summary.json.
SUMMARY = {
    *("engine", "seed", "virtual_s", "wall_s", "data_packets", "flows", "probes", "link"),
    *("handovers", "lateness_us"),
}
FLOW = {
    *("id", "cc", "start_s", "stop_s", "goodput_bps", "srtt_mean_us", "rtt_p95_us"),
    *("base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "marks", "sent_packets"),
    "completion_s",
}
PROBE = {"id", "sent", "lost", "rtt_p50_us", "rtt_p95_us", "rtt_p99_us"}
DROPS = {"queue", "loss", "outage", "dismantled", "device"}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "x.toml"
    file.write_text(SCENARIO, "utf-8")
    return file


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_run_has_the_documented_files_and_fields(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    done = skyhop("live", scenario, "-o", "run", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert json.loads(done.stdout) == summary
    assert set(summary) >= SUMMARY
    assert summary["engine"] == "live"
    (flow,) = summary["flows"]
    assert set(flow) == FLOW
    # 20 Mbit/s on the wire is at most 19.1 Mbit/s of payload.
    assert 0 < flow["goodput_bps"] < 19.2e6
    assert flow["base_rtt_mean_us"] == 30_000
    (probe,) = summary["probes"]
    assert set(probe) == PROBE
    assert probe["id"] == 1
    assert probe["sent"] > 0
    assert set(summary["link"]["drops"]) == DROPS
    assert set(summary["lateness_us"]) == {"p50", "p99", "max"}
    run = sh.read_run(tmp_path / "run")
    assert run.info["scenario"]["link"]["queue"] == "1 BDP"
    assert run.info["kernel"]
    assert run.info["device"] in ("tun", "packet")
    assert set(run.flows["flow"].to_list()) == {0}
    assert set(run.link["direction"].to_list()) == {"forward", "back"}
    assert run.probes.height == probe["sent"]


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_flow_and_a_probe_get_what_the_link_carries(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    done = skyhop("live", scenario, "-o", "run", "--set", "run.duration=4 s")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    # Slow start costs some of 4 s.
    assert 15e6 < summary["flows"][0]["goodput_bps"] < 19.2e6
    assert summary["probes"][0]["sent"] >= 350


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
def test_a_packet_device_is_used_where_it_is_asked_for(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    sets = ("--set", "live.device=packet", "--set", "run.duration=2 s")
    done = skyhop("live", scenario, "-o", "run", *sets)
    assert done.returncode == 0, done.stderr
    info = sh.read_run(tmp_path / "run").info
    assert info["device"] == "packet"
    assert info["scenario"]["live"] == {"device": "packet"}
    for count in info["packets"].values():
        assert count["device_sent"] == count["enqueued"] > 100
        assert count["delivered"] == count["device_received"] + count["refused"]


def test_a_device_that_does_not_exist_is_named(skyhop: Skyhop, scenario: Path) -> None:
    done = skyhop("live", scenario, "--set", "live.device=tap")
    assert done.returncode == 2
    assert "live.device: unknown variant `tap`" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


BESIDE_GRPC = """
from concurrent import futures
import skyhop, grpc
server = grpc.server(futures.ThreadPoolExecutor(2))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpc.channel_ready_future(grpc.insecure_channel(f"127.0.0.1:{port}")).result(120)
path, run = {"kind": "fixed", "rtt": "20 ms"}, {"duration": "0.3 s"}
done = skyhop.live({"path": path, "link": {"rate": "10 Mbit/s"}, "flow": [{}], "run": run})
print(len(done.summary["flows"]))
"""


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_live_run_works_in_a_process_with_threads_of_grpc() -> None:
    command = [sys.executable, "-c", BESIDE_GRPC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_python_runs_a_dictionary_and_keeps_nothing() -> None:
    scenario = {
        "path": {"kind": "fixed", "rtt": "20 ms"},
        "link": {"rate": "10 Mbit/s"},
        "flow": [{"bytes": "500 kB"}],
        "run": {"duration": "1 s"},
    }
    run = sh.live(scenario)
    directory = run.directory
    assert run.summary["flows"][0]["goodput_bps"] > 0
    assert run.flows.height > 0
    del run
    assert not directory.exists()


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_the_duration_of_a_transfer_matches_the_link() -> None:
    scenario = {
        "path": {"kind": "fixed", "rtt": "20 ms"},
        "link": {"rate": "10 Mbit/s"},
        "flow": [{"bytes": "500 kB"}],
        "run": {"duration": "3 s"},
    }
    assert sh.live(scenario).summary["flows"][0]["completion_s"] < 2


@pytest.mark.integration
def test_a_table_needs_no_drawing_library() -> None:
    code = "import sys; from skyhop.report import summary_rows; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_any_program_runs_over_the_path(skyhop: Skyhop, scenario: Path) -> None:
    needs_program("iperf3", "iperf3")
    done = skyhop(
        *("live", scenario, "--server-cmd", "iperf3 -s -1", "--cc", "reno", "--"),
        *("iperf3", "-c", "{server}", "-t", "2", "--json"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["end"]
    assert result["sender_tcp_congestion"] == "reno"
    assert 10e6 < result["sum_received"]["bits_per_second"] < 19.2e6


# Fetches a megabyte, selects a congestion control itself, and sends a few datagrams.
CLIENT = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    for _ in range(7):
        datagrams.sendto(bytes(100), (sys.argv[1], 5300))
with socket.create_connection((sys.argv[1], 5200)) as stream:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    stream.sendall(b"give me some" * 1000)
    stream.shutdown(socket.SHUT_WR)
    print("got", sum(len(piece) for piece in iter(lambda: stream.recv(65536), b"")))
"""
SERVER = """
import socket
with socket.create_server(("", 5200)) as listener:
    stream, _ = listener.accept()
    print("a client connected", flush=True)
    while stream.recv(65536):
        pass
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    stream.sendall(bytes(1_000_000))
    stream.close()
"""


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_programs_own_connections_are_reported(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT, "utf-8")
    (tmp_path / "server.py").write_text(SERVER, "utf-8")
    done = skyhop(
        *("live", scenario, "-o", "run", "--set", "run.duration=60 s"),
        *("--server-cmd", f"{sys.executable} server.py"),
        *("--", sys.executable, "client.py", "{server}"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "got 1000000\n"
    run = sh.read_run(tmp_path / "run")
    request, answer = run.summary["flows"]
    assert request["connection"].endswith(" -> to:5200")
    assert answer["connection"].startswith("to:5200 -> from:")
    assert (request["cc"], answer["cc"]) == ("reno", "cubic")
    carried = answer["goodput_bps"] * (answer["stop_s"] - answer["start_s"]) / 8
    assert carried == pytest.approx(1e6, rel=0.01)
    assert answer["sent_packets"] > 600
    assert set(run.flows["flow"].to_list()) <= {request["id"], answer["id"]}
    assert run.info["printed"]["client"] == "got 1000000\n"
    assert "a client connected" in run.info["printed"]["server"]
    assert run.info["program_status"] == 0
    assert run.info["packets"]["forward"]["udp_sent"] == 7
    assert run.info["packets"]["forward"]["udp_delivered"] == 7
    assert run.info["packets"]["back"]["udp_sent"] == 0
    assert run.summary["link"]["utilisation_back"] > run.summary["link"]["utilisation"] > 0
    # Messages of skyhop go to standard error.
    assert "to:5200 -> from:" in done.stderr
    # The line may break anywhere: its other numbers have no fixed width.
    assert "7 of 7 UDP datagrams arrived from -> to" in " ".join(done.stderr.split())
    page = tmp_path / "report.html"
    assert run_here(tmp_path, "report", "run", "-o", page).returncode == 0
    assert "got 1000000" in page.read_text("utf-8")
    assert "a client connected" in page.read_text("utf-8")


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
def test_the_path_lasts_as_long_as_the_program(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        """\
[path]
from = "Seattle"
to = "New York"
[run]
duration = "1 s"
""",
        "utf-8",
    )
    done = skyhop("live", "x.toml", "-o", "run", "--", "sleep", "3")
    assert done.returncode == 0, done.stderr
    run = sh.read_run(tmp_path / "run")
    assert run.summary["virtual_s"] > 2.9
    assert run.info["scenario"]["run"]["duration"] == "1 s"
    path = sh.read_path(tmp_path / "run" / "path.parquet")
    assert path.header["duration_ns"] == 3_600_000_000_000
    assert not any("last state" in text for text in run.summary["warnings"])


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_the_exit_status_of_a_failing_program_is_returned(skyhop: Skyhop, scenario: Path) -> None:
    done = skyhop("live", scenario, "--", "sh", "-c", "echo $SKYHOP_SERVER {server}; exit 3")
    assert done.returncode == 3
    assert "the program ended with status 3" in done.stderr
    one, other = done.stdout.split()
    assert one == other


def test_a_program_that_is_missing_is_named(skyhop: Skyhop, scenario: Path) -> None:
    done = skyhop("live", scenario, "--", "no-such-program")
    assert done.returncode in (1, 2)
    assert "no-such-program" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_an_unknown_congestion_control_is_named(skyhop: Skyhop, scenario: Path) -> None:
    done = skyhop("live", scenario, "-o", "run", "--set", "flow.0.cc=psychic")
    assert done.returncode == 2
    assert "psychic" in done.stderr
    assert "cubic" in done.stderr, "it says what there is"
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_an_interrupted_run_is_kept(scenario: Path, tmp_path: Path) -> None:
    program = ("--", "sh", "-c", "touch begun; exec sleep 600")
    process = begun(scenario, "-o", "run", *program)
    wait_for((tmp_path / "begun").exists, 60)
    everyone = family(process.pid)
    assert len(everyone) >= 3
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted after" in errors
    wait_for(lambda: all(map(is_gone, everyone)), 60)
    run = sh.read_run(tmp_path / "run")
    assert 0 < run.summary["virtual_s"] < 60


def started(scenario: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a long run in a process group of its own, and wait until it is under way."""
    process = begun(scenario, *arguments)
    deadline = time.monotonic() + 30
    while len(family(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    return process


def begun(scenario: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a long run in a process group of its own."""
    return subprocess.Popen(
        [
            *skyhop_command(),
            *("live", str(scenario), "--set", "run.duration=60 s", *arguments),
        ],
        cwd=scenario.parent,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def family(pid: int) -> set[int]:
    """Return the ids of a process and its living descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if stat[0] != "Z":
                parents[int(entry.name)] = int(stat[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found & parents.keys()
        found |= more


def alive(pids: set[int]) -> set[int]:
    """Return the processes that still run after a short wait."""
    deadline = time.monotonic() + 5
    left = pids
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if not is_gone(pid)}
        time.sleep(0.05)
    return left


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),
        (signal.SIGTERM, os.killpg),
        (signal.SIGTERM, os.kill),
        (signal.SIGHUP, os.killpg),
    ],
)
def test_an_interrupted_run_keeps_what_it_measured(
    scenario: Path, tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    process = started(scenario, "-o", "run")
    everyone = family(process.pid)
    send(process.pid, number)
    # A second signal loses nothing.
    time.sleep(0.05)
    send(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted after" in errors
    assert not alive(everyone)
    run = sh.read_run(tmp_path / "run")
    assert 0.5 < run.summary["virtual_s"] < 55
    assert run.flows.height > 5


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_killed_run_leaves_no_process(scenario: Path) -> None:
    """Kill a run whose program has a grandchild in another session, as daemons do."""
    mark = f"61.{os.getpid()}"
    daemon = f"setsid sh -c 'sleep {mark} & exec sleep {mark}' & exec sleep {mark}"
    process = started(scenario, "--", "sh", "-c", daemon)
    everyone = family(process.pid) | sleepers(mark)
    assert len(everyone) >= 5
    process.kill()
    process.communicate(timeout=120)
    assert not alive(everyone)


def sleepers(mark: str) -> set[int]:
    """Return the ids of processes with this duration of sleep as an argument."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_text("utf-8", errors="replace").split("\0")
        except OSError:
            continue
        if mark in words:
            found.add(int(entry.parent.name))
    return found


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_run_does_not_change_the_host(skyhop: Skyhop, scenario: Path) -> None:
    def host() -> list[str]:
        settings = ("tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_no_metrics_save")
        values = [Path(f"/proc/sys/net/ipv4/{name}").read_text("utf-8") for name in settings]
        return [*values, *sorted(path.name for path in Path("/sys/class/net").iterdir())]

    before = host()
    assert skyhop("live", scenario, "--set", "run.duration=1 s").returncode == 0
    assert host() == before


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_live_runs_work_without_root(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        "path = {kind = 'fixed', rtt = '30 ms'}\nlink.rate = '20 Mbit/s'\n"
        "flow = [{cc = 'reno'}, {kind = 'probe'}]\nrun.duration = '3 s'\n",
        "utf-8",
    )
    if os.getuid() == 0:
        os.chown(tmp_path, USER, USER)
    done = subprocess.run(
        [*as_other_user(tmp_path), *skyhop_command(), "live", "x.toml", "-o", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sh.read_run(tmp_path / "run").summary["flows"][0]["goodput_bps"] > 10e6
    if os.getuid() == 0:
        assert (tmp_path / "run" / "summary.json").stat().st_uid == USER


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_a_probe_sees_the_scheduled_round_trip(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = SCENARIO.replace('[[flow]]\ncc = "cubic"\n', "")
    (tmp_path / "x.toml").write_text(scenario, "utf-8")
    assert skyhop("live", "x.toml", "-o", "run").returncode == 0
    probes = pq.ParquetFile(tmp_path / "run" / "probes.parquet").read()
    rtt_ms = sorted(rtt / 1e6 for rtt in probes["rtt_ns"].to_pylist() if rtt is not None)
    assert abs(rtt_ms[len(rtt_ms) // 2] - 30) < 1
