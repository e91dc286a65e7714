"""Commands with too few resources: they give a result, or an error line that names the resource."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import skyhop_command

import skyhop as sh
import small_study
from needs import kills, missing, needs_program, needs_root, recorded

pytestmark = pytest.mark.soak

INTERRUPTED = 130
ABORTED = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
IN_MAIN = ", in main\n"
"""Text in the traceback of a command that has begun its work."""

SEED = int(os.environ.get("SKYHOP_SEED") or random.SystemRandom().randrange(2**32))

SCENARIO = """
[path]
from = "Seattle"
to = "New York"
relay = "access"
[link]
rate = "20 Mbit/s"
[run]
duration = "20 s"
[[flow]]
"""

COMMANDS: dict[str, list[str]] = {
    "sim": ["sim", "s.toml", "-o", "out", "--force"],
    "sim --repeat": ["sim", "s.toml", "-o", "out", "--repeat", "2", "--force"],
    "path": ["path", "s.toml", "-o", "p.parquet", "--plot", "p.png"],
    "report": ["report", "run", "-o", "page.html"],
    "study run": ["study", "run", "study.toml", "-o", "study", "--jobs", "2"],
    "list": ["list", "constellations"],
}
SOAK_ONLY: dict[str, list[str]] = {
    "live": ["live", "live.toml", "-o", "out", "--force"],
    "signal serve": ["signal", "serve", "--socket", "s", "--period", "1 s", "--lead", "0.4 s"],
}
"""Commands that run in real time; `signal serve` does not end by itself."""
if kills() > 1:
    COMMANDS.update(SOAK_ONLY)
FILES = ("s.toml", "live.toml", "study.toml", "run")
"""Input files of the commands."""
SERVES_S = 3.0
"""Time after which a command that does not end by itself is stopped, s."""

LIVE = """
[path]
kind = "fixed"
rtt = "20 ms"
[link]
rate = "20 Mbit/s"
[run]
duration = "1 s"
[[flow]]
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scarce")
    (place / "s.toml").write_text(SCENARIO, "utf-8")
    (place / "live.toml").write_text(LIVE, "utf-8")
    small_study.write(place / "study.toml")
    sh.sim(place / "s.toml", place / "run")
    return place


def fill(place: Path, whole: Path) -> None:
    """Copy the input files to the working directory of the commands."""
    for file in FILES:
        (place / file).symlink_to(whole / file)


def check(name: str, with_what: str, result: subprocess.CompletedProcess[str]) -> None:
    """Check that a command succeeded, or printed one line with the reason."""
    told = f"{name} with {with_what}: {result.returncode}\n{result.stderr[-3000:]}"
    assert result.returncode in (0, 1, 2), told
    assert "Traceback" not in result.stderr, told
    assert "panicked" not in result.stderr, told
    said = "skyhop: " in result.stderr or "runs failed" in result.stderr
    assert result.returncode == 0 or said, told
    # A reason follows.
    assert not result.stderr.rstrip().endswith(":"), told


def check_little(name: str, most_mb: int, result: subprocess.CompletedProcess[str]) -> None:
    """Check a command with little memory, if it has begun its work.

    Before that Python prints its own errors, and libraries that get no memory may end the process.

    """
    has_begun = "Traceback" not in result.stderr or IN_MAIN in result.stderr
    if result.returncode in ABORTED or not has_begun:
        assert "panicked" not in result.stderr, result.stderr[-3000:]
        return
    check(name, f"{most_mb} MB of memory", result)


def limited(number: int, most: int) -> Callable[[], None]:
    """Return a function for a new process that limits one of its resources."""
    return lambda: resource.setrlimit(number, (most, most))


def run(
    place: Path, name: str, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of the commands; stop it after a while if it serves."""
    command = [*skyhop_command(), *COMMANDS[name]]
    with subprocess.Popen(
        command,
        cwd=place,
        preexec_fn=before,  # noqa: PLW1509 - no other thread runs
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if name == "signal serve":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SERVES_S)
            process.send_signal(signal.SIGINT)
        try:
            printed, said = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    status = (
        0 if name == "signal serve" and process.returncode == INTERRUPTED else process.returncode
    )
    return subprocess.CompletedProcess(command, status, printed, said)


@pytest.mark.parametrize("name", COMMANDS)
def test_few_descriptors(tmp_path: Path, whole: Path, name: str) -> None:
    fill(tmp_path, whole)
    draw = random.Random(SEED)
    with recorded("descriptors", name, kills(), SEED):
        for _ in range(kills()):
            most = draw.randint(8, 40)
            done = run(tmp_path, name, limited(resource.RLIMIT_NOFILE, most))
            check(name, f"{most} descriptors", done)


@pytest.mark.parametrize("name", COMMANDS)
def test_little_memory(tmp_path: Path, whole: Path, name: str) -> None:
    fill(tmp_path, whole)
    draw = random.Random(SEED)
    with recorded("memory", name, kills(), SEED):
        for _ in range(kills()):
            most_mb = draw.randint(120, 1500)
            done = run(tmp_path, name, limited(resource.RLIMIT_AS, most_mb << 20))
            check_little(name, most_mb, done)
            whole_or_none(tmp_path)
        assert run(tmp_path, name).returncode == 0
        assert not [*tmp_path.rglob(".skyhop-*"), *tmp_path.rglob(".run.partial-*")]


@pytest.fixture
def few_processes() -> Iterator[Callable[[int], Callable[[], None]]]:
    """Create a control group that limits the number of processes and threads."""
    needs_root()
    group = Path(f"/sys/fs/cgroup/pids/skyhop-test-{os.getpid()}")
    if not group.parent.is_dir():
        missing("root", "there is no cgroup for numbers of processes")
    group.mkdir()

    def limited_to(most: int) -> Callable[[], None]:
        (group / "pids.max").write_text(str(most), "utf-8")
        return lambda: (group / "cgroup.procs").write_text(str(os.getpid()), "utf-8") and None

    yield limited_to
    deadline = time.monotonic() + 10
    while (group / "cgroup.procs").read_text("utf-8") and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.parametrize("name", COMMANDS)
def test_few_processes(
    tmp_path: Path,
    whole: Path,
    few_processes: Callable[[int], Callable[[], None]],
    name: str,
) -> None:
    fill(tmp_path, whole)
    draw = random.Random(SEED)
    with recorded("processes", name, kills(), SEED):
        for _ in range(kills()):
            most = draw.randint(1, 100)
            done = run(tmp_path, name, few_processes(most))
            check(name, f"{most} processes", done)
            assert len(done.stderr.splitlines()) < 10, done.stderr[-3000:]


def whole_or_none(place: Path) -> None:
    """Check that existing output can be read."""
    for summary in place.glob("out*/**/summary.json"):
        run = sh.read_run(summary.parent)
        assert run.flows.height == round(10 * run.summary["virtual_s"])
    for page in place.glob("*.html"):
        assert page.read_text("utf-8").rstrip().endswith("</html>")
    for path in place.glob("*.parquet"):
        assert sh.read_path(path).frames.height


@pytest.mark.parametrize("name", ["sim", "sim --repeat", "path", "report", "study run"])
def test_small_disks(tmp_path: Path, whole: Path, name: str) -> None:
    needs_root()
    draw = random.Random(SEED)
    unshare, mount = needs_program("unshare"), needs_program("mount")
    place = tmp_path / "disk"
    place.mkdir()
    with recorded("disk", name, kills(), SEED):
        for _ in range(kills()):
            size_kb = 4 * draw.randint(1, 50)
            links = " ".join(f"ln -s {whole / file} {file};" for file in FILES)
            script = (
                f'{mount} -t tmpfs -o size={size_kb}k none "{place}" && cd "{place}" && {links}'
                ' "$@"; status=$?; find . -name ".skyhop-*" -o -name ".run.partial-*"; exit $status'
            )
            result = subprocess.run(
                [unshare, "--mount", "sh", "-c", script, "sh", *skyhop_command(), *COMMANDS[name]],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if "mount:" in result.stderr:
                missing("root", result.stderr.strip())
            check(name, f"a disk of {size_kb} kB", result)
            assert ".skyhop-" not in result.stdout
            assert ".run.partial" not in result.stdout
