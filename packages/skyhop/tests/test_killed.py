"""Commands killed at any moment leave no partial output and nothing that blocks another run."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT, skyhop_command
from test_dissection import round_trips, traceroute
from test_telemetry_importers import STATUS

import skyhop as sh
import small_study
from kernel_objects import bpf_objects
from needs import kills, needs_root, recorded, unless_impossible
from skyhop.errors import InputError
from skyhop.telemetry.store import Store

pytestmark = pytest.mark.soak

SEED = int(os.environ.get("SKYHOP_SEED", "1"))

SCENARIO = """
[path]
from = "Seattle"
to = "New York"
relay = "access"
[link]
rate = "50 Mbit/s"
[run]
duration = "60 s"
sample = "10 ms"
[[flow]]
[[flow]]
kind = "probe"
"""

LIVE = """
[path]
kind = "fixed"
rtt = "30 ms"
[link]
rate = "20 Mbit/s"
[run]
duration = "3 s"
[[flow]]
cc = "{cc}"
"""

LIVE_LEFT_S = 20.0
"""Limit in seconds until a live run's namespaces have ended."""

REMAINS = (".skyhop-", ".run.partial-", ".new-")
"""Prefixes of the names of unfinished files and directories."""


@dataclass
class Killing:
    """Command in a directory of its own, which can be killed and started again.

    Attributes:
        place: its working directory.
        arguments: its arguments.
        outputs: names of the files and directories that it writes.
        left_s: limit in seconds until its child processes have ended.
        is_fresh: whether its outputs have to be removed before each start.

    """

    place: Path
    arguments: Sequence[object]
    outputs: Sequence[str]
    left_s: float = 2.0
    is_fresh: bool = False
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command; its processes carry a mark in their environment."""
        temporary, cache = self.place.parent / "tmp", self.place.parent / "cache"
        for directory in (temporary, cache):
            directory.mkdir(exist_ok=True)
        for output in self.outputs if self.is_fresh else ():
            (self.place / output).unlink(missing_ok=True)
        return subprocess.Popen(
            [*skyhop_command(), *map(str, self.arguments)],
            cwd=self.place,
            env={
                **os.environ,
                "SKYHOP_KILLED": self._mark,
                "TMPDIR": str(temporary),
                "XDG_CACHE_HOME": str(cache),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def undisturbed(self) -> float:
        """Run it to its end, check that exactly its outputs exist; return the seconds it took."""
        began = time.monotonic()
        process = self.start()
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
        missing = [name for name in self.outputs if not (self.place / name).exists()]
        assert not missing, missing
        assert not self.remains()
        return time.monotonic() - began

    def kill(self, after_s: float) -> None:
        """Kill it after a time, and check that none of its processes survives."""
        process = self.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.kill()
        process.wait()
        deadline = time.monotonic() + self.left_s
        while left := list(self.processes()):
            assert time.monotonic() < deadline, f"killed after {after_s:.3f} s: {left}"
            time.sleep(0.02)

    def processes(self) -> Iterator[str]:
        """Yield the command lines of all processes that descend from it."""
        mark = f"SKYHOP_KILLED={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes():
                        yield (entry / "cmdline").read_text("utf-8", "replace").replace("\0", " ")

    def remains(self) -> list[str]:
        """Return the unfinished files in all directories that it may write to."""
        everything = self.place.parent.rglob("*")
        temporary = (self.place.parent / "tmp").iterdir()
        left = {file for file in everything if file.name.startswith(REMAINS)} | set(temporary)
        return sorted(str(file.relative_to(self.place.parent)) for file in left)

    def trial(self, name: str, check: object = None) -> None:
        """Kill it at random moments; each output is complete or absent, and it runs again."""
        chance, times = random.Random(SEED), kills()
        with recorded("kill", name, times, SEED):
            usual_s = self.undisturbed()
            for number in range(times):
                after_s = chance.uniform(0, 1.05 * usual_s)
                self.kill(after_s)
                if callable(check):
                    check()
                # Every tenth time, run it over the remains of several kills.
                if number % 10 == 9:
                    self.undisturbed()
            self.undisturbed()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "s.toml").write_text(SCENARIO, "utf-8")
    return directory


def whole_run(directory: Path) -> None:
    """Check that a run, if it exists, is complete."""
    with contextlib.suppress(InputError):
        run = sh.read_run(directory)
        summary, info = run.summary, run.info
        assert run.flows.height == round(100 * summary["virtual_s"]), info
        assert run.link.height
        assert run.probes.height
        assert run.path.frames.height


def test_sim(place: Path) -> None:
    killing = Killing(place, ["sim", "s.toml", "-o", "out", "--force"], ["out/summary.json"])
    killing.trial("sim", lambda: whole_run(place / "out"))


def test_sim_with_repeats(place: Path) -> None:
    arguments = ["sim", "s.toml", "-o", "out", "--repeat", 3, "--force"]
    outputs = [f"out/seed-{seed}/summary.json" for seed in (1, 2, 3)]
    killing = Killing(place, arguments, outputs)

    def check() -> None:
        for output in outputs:
            whole_run((place / output).parent)

    killing.trial("sim --repeat", check)


def test_own_congestion_control(place: Path) -> None:
    sh_source = (ROOT / "cc" / "reno.c").read_text("utf-8")
    (place / "mine.c").write_text(sh_source, "utf-8")
    arguments = ["sim", "s.toml", "--set", "flow.0.cc=./mine.c", "-o", "out", "--force"]
    killing = Killing(place, arguments, ["out/summary.json"])

    def check() -> None:
        whole_run(place / "out")
        # Remove compiled files, which the next run would use again.
        for kept in (place.parent / "cache/skyhop/cc").glob("*.so"):
            kept.unlink()

    killing.trial("sim, cc = FILE", check)


def test_path(place: Path) -> None:
    arguments = ["path", "--from", "Seattle", "--to", "New York", "--relay", "isl"]
    arguments += ["--duration", "20 min", "-o", "path.parquet", "--plot", "path.png"]

    def check() -> None:
        file = place / "path.parquet"
        assert not file.exists() or sh.read_path(file).frames.height
        picture = place / "path.png"
        assert not picture.exists() or b"IEND" in picture.read_bytes()[-12:]

    Killing(place, arguments, ["path.parquet", "path.png"]).trial("path", check)


def test_path_export(place: Path) -> None:
    made = Killing(place, ["path", "s.toml", "-o", "path.parquet"], ["path.parquet"])
    made.undisturbed()
    arguments = ["path", "export", "path.parquet", "--format", "csv", "-o", "path.csv"]
    killing = Killing(place, arguments, ["path.csv"])
    killing.undisturbed()
    whole = (place / "path.csv").read_bytes()

    def check() -> None:
        assert (place / "path.csv").read_bytes() == whole

    killing.trial("path export", check)
    arguments = ["path", "import", "path.csv", "--format", "csv", "-o", "again.parquet"]
    Killing(place, arguments, ["again.parquet"]).trial("path import")


def test_path_animate(place: Path) -> None:
    made = Killing(place, ["path", "s.toml", "-o", "path.parquet"], ["path.parquet"])
    made.undisturbed()
    arguments = ["path", "animate", "path.parquet", "--every", "20 s", "-o", "path.gif"]
    killing = Killing(place, arguments, ["path.gif"])

    def check() -> None:
        file = place / "path.gif"
        assert not file.exists() or file.read_bytes().endswith(b";")

    killing.trial("path animate", check)


ENDS = {"svg": b"</svg>", "png": b"IEND\xaeB\x60\x82", "pdf": b"%%EOF"}
"""Last bytes of complete figures, by format."""


def whole_figures(directory: Path) -> None:
    """Check that all figures in a directory are complete."""
    for kind, end in ENDS.items():
        for figure in directory.glob(f"*.{kind}"):
            assert figure.read_bytes().rstrip().endswith(end), figure


@pytest.mark.parametrize("kind", ENDS if kills() > 1 else ["svg"])
def test_report(place: Path, kind: str) -> None:
    sh.sim(place / "s.toml", place / "run")
    arguments = ["report", "run", "-o", "page.html", "--figures", "paper", "--format", kind]
    (place / "paper").mkdir()
    killing = Killing(place, arguments, ["page.html"])

    def check() -> None:
        page = place / "page.html"
        assert not page.exists() or page.read_text("utf-8").rstrip().endswith("</html>")
        whole_figures(place / "paper")

    killing.trial(f"report, figures as {kind}", check)


BETWEEN = ["--from", "Seattle", "--to", "New York"]

WRITERS: dict[str, tuple[list[str], str]] = {
    "cc new": (["cc", "new", "mine.c", "--from", "cubic"], "mine.c"),
    "path compare": (
        ["path", "compare", "isl", "access", *BETWEEN, "--duration", "1 min", "-o", "both.png"],
        "both.png",
    ),
    "dissect": (["dissect", "traces.txt", "-o", "segments.png"], "segments.png"),
    "telemetry import": (
        ["telemetry", "import", "status.csv", "--node", "one", "-o", "kept"],
        "kept",
    ),
}
"""Commands that write one output, and its name; `make test` runs only `cc new`."""


@pytest.mark.parametrize("name", WRITERS if kills() > 1 else ["cc new"])
def test_commands_that_write_one_thing(place: Path, name: str) -> None:
    (place / "traces.txt").write_text(traceroute(round_trips(60, 3)), "utf-8")
    (place / "status.csv").write_text(STATUS, "utf-8")
    arguments, output = WRITERS[name]
    killing = Killing(place, arguments, [output], is_fresh=name == "cc new")
    killing.undisturbed()
    whole = content_of(place / output)

    def check() -> None:
        whole_figures(place)
        found = content_of(place / output)
        assert found in (None, whole) or output.endswith(".png")

    killing.trial(name, check)


def content_of(output: Path) -> object:
    """Return the content of a command's output, None if there is none."""
    if not output.is_dir():
        return output.read_bytes() if output.exists() else None
    return Store(output).read().to_dicts() or None


def test_an_emulated_terminal(place: Path) -> None:
    Killing(place, ["path", "s.toml", "-o", "p.parquet"], ["p.parquet"]).undisturbed()
    arguments = ["dish", "emulate", "--path", "p.parquet", "--listen", "127.0.0.1:0"]
    killing, chance = Killing(place, arguments, []), random.Random(SEED)
    with recorded("kill", "dish emulate", kills(), SEED):
        for _ in range(kills()):
            killing.kill(chance.uniform(0, 3))
            assert not killing.remains()


def test_study(place: Path) -> None:
    small_study.write(place / "study.toml")
    arguments = ["study", "run", "study.toml", "-o", "study", "--jobs", 2]
    killing = Killing(place, arguments, ["study/results.parquet", "study/report.html"])
    reference = Killing(place, [*arguments[:4], "reference"], ["reference/results.parquet"])
    reference.undisturbed()

    def rows(name: str) -> bytes:
        return (place / name / "results.parquet").read_bytes()

    usual_s, chance, times = killing.undisturbed(), random.Random(SEED), kills()
    with recorded("kill", "study run", times, SEED):
        for number in range(times):
            if number % 3 == 0:
                (place / "study").rename(place / f"done-{number}")
            killing.kill(chance.uniform(0, 1.05 * usual_s))
        killing.undisturbed()
        assert rows("study") == rows("reference")


# --- objects in the kernel ---


def gone_after(before: object, seconds: float) -> None:
    """Wait until the kernel has the same BPF objects as before."""
    deadline = time.monotonic() + seconds
    while (now := bpf_objects()) != before:
        assert time.monotonic() < deadline, f"{before} before, {now} now"
        time.sleep(0.2)


@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("cc", ["cubic", "skyhop:satpipe"])
def test_live(place: Path, cc: str) -> None:
    before = None
    if cc != "cubic":
        needs_root()
        checked = [*skyhop_command(), "cc", "check", "satpipe"]
        unless_impossible(subprocess.run(checked, capture_output=True, text=True, check=False))
        before = bpf_objects()
    devices = Path("/proc/net/dev").read_text("utf-8").count(":")
    (place / "live.toml").write_text(LIVE.format(cc=cc), "utf-8")
    arguments = ["live", "live.toml", "-o", "out", "--force"]
    killing = Killing(place, arguments, ["out/summary.json"], LIVE_LEFT_S)
    killing.trial(f"live ({cc})")
    assert Path("/proc/net/dev").read_text("utf-8").count(":") == devices
    if before is not None:
        # Docs promise ten seconds; programs are freed an RCU grace period after their sockets.
        gone_after(before, 10)


@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_live_with_a_program_that_hides(place: Path) -> None:
    (place / "live.toml").write_text(LIVE.format(cc="cubic"), "utf-8")
    program = ["sh", "-c", "setsid sleep 600 & sleep 2"]
    arguments = ["live", "live.toml", "-o", "out", "--force", "--", *program]
    Killing(place, arguments, ["out/summary.json"], LIVE_LEFT_S).trial("live -- PROGRAM")


@pytest.mark.alone
def test_loading_into_the_kernel(place: Path) -> None:
    needs_root()
    checked = [*skyhop_command(), "cc", "check", "hybla"]
    unless_impossible(subprocess.run(checked, capture_output=True, text=True, check=False))
    before = bpf_objects()
    load = Killing(place, ["cc", "load", "hybla"], [])
    unload = Killing(place, ["cc", "unload", "hybla"], [])
    chance, times = random.Random(SEED), kills()
    usual_s = load.undisturbed()
    unload.undisturbed()
    with recorded("kill", "cc load, cc unload", times, SEED):
        for number in range(times):
            load.kill(chance.uniform(0, 1.05 * usual_s))
            if number % 2:
                unload.kill(chance.uniform(0, 1.05 * usual_s))
            # Whatever the kill has left, loading and unloading work.
            again = load.start()
            _, errors = again.communicate(timeout=60)
            assert again.returncode == 0 or b"loaded" in errors, errors
            unload.undisturbed()
            gone_after(before, 10)
