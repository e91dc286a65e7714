"""`skyhop signal`: the service and its clients, as users see them."""

import configparser
import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from conftest import Skyhop, skyhop_command

from needs import missing, needs_program
from signal_service import TIMEOUT_S, announced, await_note, service
from skyhop.cli.signal_ import _text


@pytest.mark.integration
def test_a_schedule_is_announced_in_order(tmp_path: Path) -> None:
    options = ["--period", "1 s", "--offset", "0.25 s", "--lead", "0.5 s"]
    with service(tmp_path, *options) as (_, place):
        hello, *handovers = announced(place, 3)
    assert (hello["type"], hello["v"], hello["period_ns"]) == ("hello", 1, 1_000_000_000)
    times = [datetime.fromisoformat(str(handover["at_utc"])) for handover in handovers]
    assert times == sorted(set(times))
    # A quarter of a second after each full second.
    assert {time.microsecond for time in times} == {250_000}


@pytest.mark.soak
@pytest.mark.alone
def test_a_schedule_is_announced_ahead_on_the_monotonic_clock(tmp_path: Path) -> None:
    options = ["--period", "1 s", "--offset", "0.25 s", "--lead", "0.5 s"]
    with service(tmp_path, *options) as (_, place):
        hello, *handovers = announced(place, 4)
        now_ns = time.monotonic_ns()
    assert (hello["type"], hello["v"], hello["period_ns"]) == ("hello", 1, 1_000_000_000)
    at_ns = [int(str(handover["at_ns"])) for handover in handovers]
    ahead_ns = at_ns[-1] - now_ns
    assert 0 < ahead_ns <= 500_000_000
    assert [late - early for early, late in itertools.pairwise(at_ns)] == pytest.approx(
        [1e9, 1e9], abs=2e6
    )
    # The same time in UTC: a quarter of a second after each full second.
    utc_ns = time.time_ns() - time.monotonic_ns() + at_ns[-1]
    assert (utc_ns / 1e9) % 1 == pytest.approx(0.25, abs=0.01)
    assert str(handovers[-1]["at_utc"]).endswith(".250Z")


@pytest.mark.integration
def test_watch_prints_what_is_announced(tmp_path: Path) -> None:
    with service(tmp_path, "--period", "1 s", "--offset", "0 s") as (process, place):
        # Listening needs no permission.
        assert place.stat().st_mode & 0o777 == 0o666
        watch = subprocess.Popen(
            [*skyhop_command(), "signal", "watch", "--socket", str(place)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watch.stdout is not None
        first = watch.stdout.readline()
        second = watch.stdout.readline()
        process.send_signal(signal.SIGINT)
        # The service ends and removes its socket, and its client ends with it.
        assert watch.wait(TIMEOUT_S) == 0
        assert process.wait(TIMEOUT_S) == 0
        assert not place.exists()
    assert first == "listening to grid\n"
    # Without NTP the error of the clock may exceed a second.
    assert second.startswith(("handover (unknown) at 20", "no use: a handover at 20"))


@pytest.mark.integration
def test_a_second_service_is_refused(tmp_path: Path, skyhop: Skyhop) -> None:
    with service(tmp_path) as (_, place):
        result = skyhop("signal", "serve", "--socket", place)
        assert result.returncode == 2
        assert "is in use" in result.stderr


@pytest.mark.soak
def test_a_killed_service_is_replaced(tmp_path: Path) -> None:
    with service(tmp_path) as (process, place):
        process.kill()
        process.wait()
        assert place.exists()
    with service(tmp_path) as (_, place):
        assert announced(place, 1)[0]["type"] == "hello"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--source", "oracle"], "schedule"),
        (["--source", "path"], "--file"),
        (["--source", "path", "--file", "nosuch.parquet"], "nosuch.parquet"),
        (["--source", "blind", "--file", "nosuch.csv"], "nosuch.csv"),
        (["--source", "blind"], "--interface"),
        (["--source", "blind", "--file", "x.csv", "--interface", "lo"], "--interface"),
        (["--source", "blind", "--interface", "nosuch0"], "nosuch0"),
        (["--source", "blind", "--interface", "lo", "--offset", "3 s"], "--offset"),
        (["--source", "schedule", "--file", "x.csv"], "--file"),
        (["--source", "path", "--file", "x.parquet", "--period", "15 s"], "--period"),
        (["--period", "0 s"], "--period"),
        (["--lead", "soon"], "--lead"),
        (["--error", "much"], "--error"),
        (["--error=-2 s", "--period", "2 s"], "--error -2 s: is not less than the period of 2 s"),
        (["--destination", "everyone"], "--destination"),
    ],
)
def test_wrong_input_is_an_error_of_one_line(
    skyhop: Skyhop, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    result = skyhop("signal", "serve", "--socket", tmp_path / "x.sock", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_log_with_an_unknown_clock_is_refused(skyhop: Skyhop, tmp_path: Path) -> None:
    log = tmp_path / "ping.log"
    answers = (f"64 bytes from 192.0.2.1: icmp_seq={n} ttl=50 time=31.5 ms" for n in range(1, 99))
    log.write_text("\n".join(["PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.", *answers]))
    place = tmp_path / "x.sock"
    result = skyhop("signal", "serve", "--socket", place, "--source", "blind", "--file", log)
    assert result.returncode == 2
    assert "ping -D" in result.stderr
    assert len(result.stderr.splitlines()) == 1


_LOOPBACK = """
import socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end_s = time.time() + float(sys.argv[1])
while time.time() < end_s:
    if (time.time() - 0.3) % 1 >= 0.08:
        sender.sendto(b"x", receiver.getsockname())
        receiver.recv(1)
    time.sleep(0.002)
"""


@pytest.mark.soak
@pytest.mark.alone
def test_a_grid_is_learned_from_arrivals_at_an_interface(tmp_path: Path) -> None:
    # Root of a user namespace of its own, whose loopback device has no other traffic.
    needs_program("ip")
    isolated = [needs_program("unshare"), "-rn", "sh", "-c"]
    probe = subprocess.run(
        [*isolated, "ip link set lo up"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        missing("namespaces", probe.stderr.strip())
    place = tmp_path / "signal.sock"
    options = ["--source", "blind", "--interface", "lo", "--period", "1 s", "--lead", "0.2 s"]
    serve = shlex.join([*skyhop_command(), "signal", "serve", "--socket", str(place), *options])
    traffic = shlex.join([sys.executable, "-c", _LOOPBACK, "60"])
    command = [*isolated, f"ip link set lo up; {traffic} & traffic=$!; {serve}; kill $traffic"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"announcing on {place}\n"
        hello, *handovers = announced(place, 4)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert (hello["source"], hello["period_ns"]) == ("blind", None)
    for handover in handovers:
        assert handover["error_ns"] == 10_000_000
        second = datetime.fromisoformat(str(handover["at_utc"])).timestamp() % 1
        assert second == pytest.approx(0.3, abs=0.03)


def test_watch_without_a_service_is_an_error_of_one_line(skyhop: Skyhop, tmp_path: Path) -> None:
    result = skyhop("signal", "watch", "--socket", tmp_path / "nobody.sock")
    assert result.returncode == 1
    assert "signal serve" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.integration
def test_systemd_accepts_the_unit(skyhop: Skyhop, tmp_path: Path) -> None:
    options = ["--source", "forecast", "--elements", "/x/50%.tle", "--site", 'Victoria, "CA" $X']
    printed = skyhop("signal", "unit", "--", *options)
    assert (printed.returncode, printed.stderr) == (0, "")
    (tmp_path / "skyhop-signal.service").write_text(printed.stdout, "utf-8")
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(printed.stdout)
    assert set(parser) == {"DEFAULT", "Unit", "Service", "Install"}
    started = shlex.split(parser["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$"))
    assert started == [*map(os.path.abspath, skyhop_command()), "signal", "serve", *options]
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run(
            [analyze, "verify", "--man=no", tmp_path / "skyhop-signal.service"],
            capture_output=True,
            text=True,
            check=False,
        )
        # Other units of the machine may have errors.
        assert "skyhop" not in done.stderr


def test_watch_ignores_unknown_lines() -> None:
    assert _text({"type": "hello", "v": 1, "source": "grid"}) == "listening to grid"
    assert _text({"type": "weather", "v": 1}) is None


def test_watch_reports_useless_announcements() -> None:
    said = {"type": "handover", "at_utc": "2026-01-01T00:00:12Z", "outage_ns": 0, "kind": "end"}
    exact = _text({**said, "error_ns": 2_000_000}, 15_000_000_000)
    assert exact == "handover (end) at 2026-01-01T00:00:12Z, down for 0 ms, wrong by 2 ms at most"
    vague = _text({**said, "error_ns": 16_000_000_000}, 15_000_000_000)
    assert vague is not None
    assert vague.startswith("no use: a handover at 2026-01-01T00:00:12Z that may be wrong by 16 s")
    assert str(_text({**said, "error_ns": 16_000_000_000})).startswith("handover")


@pytest.mark.soak
def test_a_service_with_few_descriptors_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "signal.sock"
    # The descriptors that Python and the service need, and a few more.
    limited = ["sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *skyhop_command()]
    process = subprocess.Popen(
        [*limited, "signal", "serve", "--socket", str(place), "--period", "1 s"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await_note(process, "only 12 programs")
        with contextlib.ExitStack() as callers:
            for _ in range(200):
                caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                caller.settimeout(60)
                caller.connect(str(place))
            # The last client gets announcements, although no other one reads.
            with caller.makefile(encoding="utf-8") as lines:
                said = [json.loads(next(lines))["type"] for _ in range(2)]
        assert said == ["hello", "handover"]
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak
def test_clients_do_not_wait_for_a_stopped_service(tmp_path: Path) -> None:
    with service(tmp_path, "--source", "schedule") as (process, place):
        process.send_signal(signal.SIGSTOP)
        with contextlib.ExitStack() as callers:
            with contextlib.suppress(BlockingIOError):
                while True:
                    caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                    caller.setblocking(False)
                    caller.connect(str(place))
            for command in (["watch"], ["serve"]):
                result = subprocess.run(
                    [*skyhop_command(), "signal", *command, "--socket", str(place)],
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                assert result.returncode != 0
                assert "does not answer" in result.stderr, result.stderr
                assert len(result.stderr.splitlines()) == 1
