"""`skyhop dish` through the command line."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ROOT, Skyhop, skyhop_command

from command_line import run_here
from dish_sources import (
    MADE_UP,
    PATIENCE_S,
)
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed.cli.dish import watch


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a terminal that the command line emulates; Ctrl-C ends it."""
    directory = tmp_path_factory.mktemp("emulated")
    history = {"dishGetHistory": {**MADE_UP["dishGetHistory"]}}
    (directory / "history.json").write_text(json.dumps(history), "utf-8")
    status = {"dishGetStatus": {"deviceInfo": {"id": "ut-cli"}, "popPingLatencyMs": 26.5}}
    (directory / "status.json").write_text(json.dumps(status), "utf-8")
    files = ["--json", "status.json", "--history", "history.json", "--allow-location", "41.4,2.15"]
    process = subprocess.Popen(
        [*skyhop_command(), "dish", "emulate", *files, "--listen", "127.0.0.1:0"],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("a terminal listens at 127.0.0.1:"), line
        yield line.split()[4].rstrip(";")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "ended by Ctrl-C (SIGINT)\n")
    finally:
        process.kill()
        process.wait()


@pytest.mark.integration
def test_the_command_line_reads_a_terminal(skyhop: Skyhop, emulated: str, tmp_path: Path) -> None:
    told = skyhop("dish", "status", "--address", emulated)
    skyhop = partial(run_here, tmp_path)
    assert told.returncode == 0, told.stderr
    assert "ut-cli" in told.stdout
    assert "41.4000, 2.1500" in told.stdout
    sample = json.loads(skyhop("dish", "status", "--address", emulated, "--json").stdout)
    assert sample["state"] == "CONNECTED"
    assert sample["location"] == {"latitude_deg": 41.4, "longitude_deg": 2.15, "altitude_m": 0}
    history = json.loads(skyhop("dish", "history", "--address", emulated, "--json").stdout)
    assert (history["ring"], len(history["seconds"])) == (3, 3)
    assert history["outages"][0]["cause"] == "NO_PINGS"


@pytest.mark.integration
def test_watching_prints_a_line_a_second_until_ctrl_c(emulated: str) -> None:
    watch = subprocess.Popen(
        [*skyhop_command(), "dish", "watch", "--address", emulated, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    try:
        samples = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=PATIENCE_S)
    finally:
        watch.kill()
    assert (watch.returncode, errors) == (0, "ended by Ctrl-C (SIGINT)\n")
    assert samples[1][TIME] >= samples[0][TIME], "equal only where the first answer was late"


@pytest.mark.integration
def test_what_is_watched_is_kept_with_what_was_before(
    emulated: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept: list[tuple[str, list[Sample]]] = []

    class Store:
        def __init__(self, directory: Path) -> None:
            assert directory == tmp_path / "telemetry"

        def append(self, node: str, samples: list[Sample]) -> None:
            kept.append((node, samples))

        def close(self) -> None:
            kept.append(("closed", []))

    # pytest has its own handlers of signals.
    monkeypatch.setattr("skyhop_testbed.cli.dish.until_signal", contextlib.nullcontext)
    monkeypatch.setattr(
        "skyhop_testbed.cli.dish.import_module", lambda _: SimpleNamespace(Store=Store)
    )
    watch(emulated, record=tmp_path / "telemetry", node="bcn-1", count=1, as_json=True)
    (printed,) = capsys.readouterr().out.splitlines()
    (node, samples), _, (end, _) = kept
    assert (node, end) == ("bcn-1", "closed")
    assert len(samples) == 3 + 1, "the terminal remembers three seconds"
    assert samples[-1] == json.loads(printed)
    # Samples of status and of history have the same seconds.
    assert all(int(sample[TIME] or 0) % 10**9 == 0 for sample in samples)


@pytest.mark.soak
def test_the_pages_commands_run(skyhop: Skyhop, emulated: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "dish.md").read_text("utf-8")
    part = page.partition("These commands run as they stand")[2].partition("## ")[0]
    path, emulate, *commands = re.findall(r"^    skyhop (.+)$", part, re.MULTILINE)
    for command in (path.replace("10 min", "10 s"), *commands):
        shorter = command.replace("--count 4", "--count 1")
        told = skyhop(*shlex.split(shorter.replace("127.0.0.1:9201", emulated)))
        assert told.returncode == 0, (command, told.stderr)
    # Run it up to its error: the address is not one of this machine.
    wrong = skyhop(*shlex.split(emulate.replace("127.0.0.1:9201", "192.0.2.1:0")))
    assert "cannot listen" in wrong.stderr
    assert (tmp_path / "sky.png").stat().st_size > 5000
    assert (tmp_path / "sky.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("status", "--address", "127.0.0.1:1"), 1, "no terminal answers there"),
        (("status", "--address", "a b"), 2, "not an address"),
        (("history", "--file", "missing.json"), 2, "missing.json: cannot read"),
        (("map", "--address", "127.0.0.1:1", "-o", "sky.gif"), 2, "sky.gif"),
        (("emulate",), 2, "give one of"),
        (("emulate", "--path", "x.parquet", "--run", "y"), 2, "give one of"),
        (("emulate", "--path", "x.parquet", "--probe", "a"), 2, "--probe is for --interface"),
        (("emulate", "--interface", "lo"), 2, "--interface needs --probe"),
        (("emulate", "--interface", "none0", "--probe", "127.0.0.1"), 2, "no such interface"),
        (("emulate", "--json", "s", "--allow-location", "95,0"), 2, "LAT,LON"),
        (("emulate", "--json", "s", "--listen", "nowhere"), 2, "expected HOST:PORT"),
        (("emulate", "--path", "x.parquet", "--obstruct", "1-2"), 2, "such as 90-150:45"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    skyhop: Skyhop, words: Sequence[str], status: int, said: str
) -> None:
    done = skyhop("dish", *words)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert said in done.stderr
