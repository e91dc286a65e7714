"""Whole `skyhop testbed demo`: its runs, their delays, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from conftest import Skyhop, skyhop_command

import skyhop as sh
from needs import cases, needs_namespaces, needs_program
from skyhop_lab.testbed_demo import jobs, plan
from skyhop_testbed.job import read_job

_LONGEST_S = 100.0


@dataclass
class Demo:
    """Demo in a separate process, with a directory for the files that it might leave behind."""

    directory: Path
    temporary: Path
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    networks: set[str] = field(default_factory=set)

    def read_until(self, text: str) -> str:
        """Read lines until one contains a text; return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return self.lines[-1]
        raise AssertionError(f"{text!r} is not said: {self.lines}, {self._errors()}")

    def read_all(self) -> int:
        """Read to the end of the output; return the exit status."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait(_LONGEST_S)

    def line(self, text: str) -> str:
        """Return the first line that contains a text."""
        found = [line for line in self.lines if text in line]
        assert len(found) == 1, (text, self.lines, self._errors())
        return found[0]

    def _errors(self) -> str:
        return (self.directory / "errors").read_text()

    def note_networks(self) -> int:
        """Record the network namespaces of its processes; return their number."""
        own = Path("/proc/self/ns/net").readlink()
        for place in self._processes():
            with suppress(OSError):
                self.networks.add(str((place / "ns" / "net").readlink()))
        self.networks.discard(str(own))
        return len(self.networks)

    def left(self) -> list[str]:
        """Return the demo's remains on this machine: processes, namespaces, temporary files."""
        found = [each.name for each in self.temporary.iterdir()]
        found += [(place / "cmdline").read_text() for place in self._processes()]
        for place in Path("/proc").glob("[0-9]*/ns/net"):
            with suppress(OSError):
                found += [str(place)] if str(place.readlink()) in self.networks else []
        return found

    def _processes(self) -> Iterator[Path]:
        mark = f"TMPDIR={self.temporary}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            if int(place.name) in (os.getpid(), self.process.pid):
                continue
            with suppress(OSError):
                if mark in (place / "environ").read_bytes():
                    yield place


Start = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    needs_namespaces()
    needs_program("ip")
    started: list[Demo] = []

    def start(*words: str) -> Demo:
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        with (tmp_path / "errors").open("w") as errors:
            process = subprocess.Popen(
                [*skyhop_command(), "testbed", "demo", "--quick", "-o", "out", *words],
                cwd=tmp_path,
                # All of its processes have this in their environment, and their files there.
                env={**os.environ, "TMPDIR": str(temporary)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(Demo(tmp_path, temporary, process))
        return started[-1]

    yield start
    for demo in started:
        demo.process.kill()
        demo.process.communicate()


def is_gone(demo: Demo, patience_s: float = 10.0) -> bool:
    limit = time.monotonic() + patience_s
    while demo.left() and time.monotonic() < limit:
        time.sleep(0.1)
    return not demo.left()


def seconds_before(text: str, line: str) -> float:
    """Return the number that precedes a text in a line."""
    found = re.search(rf"(-?[0-9.]+) s {text}", line)
    assert found is not None, line
    return float(found[1])


def assert_of_path(telemetry: Path, path: Path) -> None:
    """Check that satellites and handovers in telemetry are those of the link's path."""
    frames = sh.read_path(path).frames
    times_ns, nodes = frames["t_ns"].to_list(), frames["nodes"].to_list()
    changes_ns = {
        event["t_ns"]
        for events in frames["events"].to_list()
        for event in events
        if event["kind"] == "end" and event["hop"] == 0
    }
    columns = ["time_ns", "serving_satellite", "handover_in_s"]
    rows = pl.read_parquet(telemetry, columns=columns).drop_nulls().rows()
    assert len(rows) > 1

    def is_so(begin_ns: int) -> bool:
        return all(
            satellite == f"satellite {nodes[bisect_right(times_ns, at_ns - begin_ns) - 1][1]}"
            and any(abs(at_ns + left_s * 1e9 - begin_ns - c) < 1e6 for c in changes_ns)
            for at_ns, satellite, left_s in rows
        )

    # The time of the link's begin is not in its files, so all possible ones are tried.
    at_ns, _, left_s = rows[0]
    begins_ns = [at_ns + round(left_s * 1e9) - change_ns for change_ns in changes_ns]
    assert any(is_so(begin_ns) for begin_ns in begins_ns if begin_ns <= at_ns)


@pytest.mark.soak
@pytest.mark.alone
def test_the_whole_story_comes_about(start: Start) -> None:
    begun = time.monotonic()
    demo = start()
    demo.read_until("loading: ")
    assert demo.note_networks() >= 7
    assert demo.read_all() == 0, demo.lines
    took_s = time.monotonic() - begun
    out = demo.directory / "out"

    # The scheduled run is complete, with its measurements.
    for name in ("latency.csv", "throughput.json", "telemetry.parquet", "manifest.json"):
        assert (out / "runs" / jobs.SCHEDULED / "client" / name).stat().st_size > 0
    throughput = json.loads((out / "runs" / jobs.SCHEDULED / "client/throughput.json").read_text())
    # The rate is at most that of the emulated link.
    assert 1e6 < throughput["upload"]["bps"] < 20e6
    assert 1e6 < throughput["download"]["bps"] < 100e6
    # The triggered run began soon, and measured the raised link: hop 2 is the PoP.
    triggered = demo.line("after the sample")
    assert seconds_before("after the sample", triggered) < 1.2
    assert 0 < seconds_before("after the rise", triggered) <= 2.0
    traces = (out / "runs" / jobs.TRIGGERED / "client" / "stdout").read_text()
    to_pop_ms = [float(rtt) for rtt in re.findall(rf" 2  {plan.POP}  ([0-9.]+) ms", traces)]
    assert to_pop_ms
    assert max(to_pop_ms) > 150
    # The agent knew the satellite of the link.
    assert_of_path(
        out / "runs" / jobs.TRIGGERED / "client" / "telemetry.parquet",
        out / "links" / plan.TRIGGERED.name / "path.parquet",
    )
    # The loading run gave way, and is planned again.
    preempted = demo.line("the run's last packet")
    assert 0 < seconds_before("after the owner's first", preempted) <= 3.0
    assert demo.line("rescheduled (scavenger)")
    assert demo.line("the run is planned again")
    assert {each.name for each in (out / "links").iterdir()} == {site.name for site in plan.SITES}
    # The demo has left nothing behind.
    assert is_gone(demo), demo.left()
    assert took_s < 40


@pytest.mark.soak
@pytest.mark.alone
# Ctrl-C takes the normal way to the end; SIGKILL, which allows no cleanup, is always tried.
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT][: cases(1)])
def test_nothing_is_left_of_one_that_is_stopped(start: Start, how: signal.Signals) -> None:
    demo = start()
    said = demo.read_until("to log in, the token in ")
    token = Path(said.partition("the token in ")[2])
    assert token.stat().st_mode & 0o077 == 0
    assert token.read_text().strip() not in "".join(demo.lines)
    demo.read_until("scheduled: ")
    # A program in its sandbox, in addition to the demo's own processes.
    time.sleep(1.5)
    assert demo.note_networks() >= 7
    assert len(demo.left()) > 10
    demo.process.send_signal(how)
    status = demo.read_all()
    assert status == (130 if how is signal.SIGINT else -signal.SIGKILL)
    assert is_gone(demo), demo.left()
    assert not (demo.directory / "out").exists()


def test_a_directory_with_files_is_not_taken(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_program("ip")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    done = skyhop("testbed", "demo", "--quick", "-o", "out")
    assert done.returncode == 2
    assert "out: is not empty" in done.stderr
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["mine"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("has_iperf3", [False, True])
def test_its_jobs_are_jobs(tmp_path: Path, has_iperf3: bool) -> None:
    programs = jobs.Programs("python3", has_iperf3)
    files = jobs.job_files(tmp_path, plan.QUICK, programs, 1_700_000_000 * 10**9)
    for name, file in files.items():
        job = read_job(file.read_text(), str(file))
        assert job.id == name
        assert all((tmp_path / brought).exists() for brought in job.run.files)
