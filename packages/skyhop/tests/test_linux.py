"""Runs on Linux in virtual time: with scripts as stub kernels, and with a real kernel."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT

import skyhop as sh
from command_line import Skyhop, run_here, run_process, skyhop_command
from guest_kernels import DIGEST, HERE, PANIC, PRINTS, SLOW, TELLS, needs_guest_kernel, stand_in
from needs import needs_program, needs_root
from other_user import USER, as_other_user
from skyhop.data.toml import toml_text
from skyhop.linux import build, built, damaged, find, remove
from skyhop.linux.processor import own_processor
from skyhop.linux.registers import BYTES, compiler
from waiting import wait_for

SCENARIO = {
    "path": {"kind": "fixed", "rtt": "30 ms"},
    "link": {"rate": "20 Mbit/s"},
    "flow": [{"cc": "cubic"}],
    "run": {"duration": "3 s"},
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache, and the mock engine for runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SKYHOP_MOCK", "1")
    return tmp_path / "cache"


@pytest.fixture
def skyhop(tmp_path: Path) -> Skyhop:
    """Run the command line in this process; its guests are processes of their own."""
    return partial(run_here, tmp_path)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "x.toml"
    file.write_text(toml_text(SCENARIO), "utf-8")
    return file


def left_in(cache: Path) -> list[str]:
    """Return the names of files that guests have left in a cache."""
    return [file.name for file in (cache / "skyhop" / "guests").glob("**/*") if file.is_file()]


def test_concurrent_guests_have_different_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        (tmp_path / f"cpu{number}").mkdir()
    # Guests of other processes may hold locks on this machine's real files.
    monkeypatch.setattr("skyhop.linux.processor._PROCESSOR", f"{tmp_path}/cpu{{number}}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with own_processor() as first, own_processor() as second, own_processor() as third:
        assert (first, second, third) == (1, 0, None)
    with own_processor() as again:
        assert again == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("linux x.toml -o out", "kernel: none is built; skyhop linux kernel build 6.12 takes some"),
        ("linux x.toml -o out --kernel mine", "kernel: mine is not built (there: none)"),
        ("linux y.toml -o out", "y.toml"),
        ("linux x.toml -o out --set link.rates=1", "link.rates"),
        ("linux x.toml -o out --cc bbr", "--server-cmd and --cc need a program"),
        ("linux x.toml -o out --kernel ../x", "kernel: '../x' cannot be a kernel's name"),
        ("linux kernel remove 6.1", "kernel: 6.1 is not built (there: none)"),
        ("linux kernel build ../../etc", "'../../etc' cannot be a kernel's name"),
        ("linux kernel build 6.12 --config hz=1", "--config hz=1: expected KEY=y, n, a number or"),
        ("linux kernel build mine --source .", "is no Linux tree"),
    ],
)
@pytest.mark.usefixtures("cache", "scenario")
def test_wrong_arguments_are_an_error_of_one_line(
    skyhop: Skyhop, arguments: str, says: str
) -> None:
    done = skyhop(*arguments.split())
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("words", "offered", "says"),
    [
        pytest.param((), True, "kernel: none is built", marks=pytest.mark.integration),
        pytest.param(
            *(("--kernel", "mine"), False, "kernel: mine is not built"),
            marks=pytest.mark.integration,
        ),
        pytest.param(
            *(("--set", "linux.kernel=mine"), False, "kernel: mine is not built"),
            marks=pytest.mark.soak,
        ),
        pytest.param(*(("--set", "link.rates=1"), False, "link.rates"), marks=pytest.mark.soak),
    ],
)
@pytest.mark.usefixtures("cache")
def test_building_a_first_kernel_is_offered_where_that_helps(
    scenario: Path, words: tuple[str, ...], offered: bool, says: str
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    with subprocess.Popen(
        [*skyhop_command(), "linux", str(scenario), *words], stdin=theirs, stderr=theirs
    ) as running:
        os.close(theirs)
        said = b""
        # Reading fails with EIO when the other end of the terminal is closed.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 1 << 16):
                said += part
    os.close(ours)
    assert running.returncode == 2
    assert (b"build Linux 6.12 now" in said) == offered
    assert says in said.decode()


def test_a_build_names_the_directory_that_it_cannot_use(
    tmp_path: Path, skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop.linux.kernels._check_programs", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    with pytest.raises(
        sh.InputError, match=r"a cache/skyhop/kernels: a kernel's build fails in a path"
    ):
        build("6.12")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(sh.RunError, match=r"/file/.*Not a directory; XDG_CACHE_HOME may name"):
        build("6.12")
    assert "no kernel is built" in skyhop("linux", "kernel", "list").stderr


def a_tree(place: Path) -> Path:
    """Create the files by which a directory passes for a source tree of Linux."""
    (place / "arch/um/os-Linux").mkdir(parents=True)
    (place / "arch/um/Makefile").touch()
    (place / "arch/um/os-Linux/util.c").write_text("ssize_t os_getrandom();\n", "utf-8")
    (place / "Kconfig").write_text('mainmenu "Linux"\n', "utf-8")
    return place


@pytest.mark.parametrize(
    ("options", "sets_hz"), [((), 0), (("HZ=250",), 1), (("NO_HZ=y", "CONFIG_HZ=250"), 1)]
)
@pytest.mark.usefixtures("cache")
def test_a_tree_named_like_a_package_is_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], sets_hz: int
) -> None:
    tree = a_tree(tmp_path / "linux-source-6.12")

    def compiled(_tree: Path, objects: Path, words: list[str], **_how: object) -> str:
        given = [word for word in words if word.startswith("KBUILD_KCONFIG=")]
        texts = [Path(word.partition("=")[2]).read_text("utf-8") for word in given]
        assert texts == ['mainmenu "Linux"\n\nconfig HZ\n\tint "Ticks in a second"\n'] * sets_hz
        objects.mkdir()
        (objects / ".config").write_text("CONFIG_HZ=250\n", "utf-8")
        return "6.12.99"

    monkeypatch.setattr("skyhop.linux.kernels._check_programs", lambda: None)
    monkeypatch.setattr("skyhop.linux.kernels._check_disk_space", lambda _work, _needed: None)
    monkeypatch.setattr("skyhop.linux.kernels._compile", compiled)
    monkeypatch.setattr("skyhop.linux.kernels._install", lambda kernel, *_of: kernel)
    monkeypatch.chdir(tmp_path)
    kernel = build("patched", source=Path(tree.name), options=options)
    assert (kernel.source, kernel.is_packaged, kernel.hz) == (str(tree), False, 250)


@pytest.mark.usefixtures("cache")
def test_a_build_without_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = a_tree(tmp_path / "tree")
    usage = shutil.disk_usage(tmp_path)._replace(free=99_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(sh.RunError, match=r"takes 0\.7 GB there, and 0\.1 GB are free"):
        build("mine", source=tree)


@pytest.mark.usefixtures("cache")
def test_a_tree_that_is_too_old_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "arch/um/os-Linux/util.c").write_text("void setup_machinename();\n", "utf-8")
    monkeypatch.setattr("skyhop.linux.kernels._check_programs", lambda: None)
    monkeypatch.setattr("skyhop.linux.kernels._check_disk_space", lambda _work, _needed: None)
    with pytest.raises(sh.InputError, match=r"is too old: runs are reproducible with Linux 6\.0"):
        build("old", source=tree)


def test_a_package_that_is_built_is_not_unpacked(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stand_in(cache, HERE)
    (place / "build").mkdir()
    monkeypatch.setattr("skyhop.linux.kernels._check_programs", lambda: None)
    monkeypatch.setattr(
        "skyhop.linux.kernels._download_package", lambda *_: "linux-source-6.12_6.12.99"
    )
    monkeypatch.setattr("skyhop.linux.kernels._digest", lambda *_: DIGEST)
    assert build("6.12").directory == place


@pytest.mark.integration
@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("E: Failed to fetch linux-source-6.12: 28: No space left", "cannot download linux-s"),
        ("E: Unable to locate package linux-source-6.12", "no package linux-source-6.12 here; na"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_failed_download_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, error: str
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "apt-get"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 100\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), os.pathsep)
    monkeypatch.setattr("skyhop.linux.kernels._check_programs", lambda: None)
    with pytest.raises(sh.SkyhopError, match=error):
        build("6.12")


@pytest.mark.usefixtures("cache")
def test_missing_programs_of_a_build_are_named(
    skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    done = skyhop("linux", "kernel", "build", "6.12")
    assert done.returncode == 2
    assert "apt-get install make gcc flex bison bc xz-utils tar binutils" in done.stderr


@pytest.mark.integration
def test_the_compiler_enlarges_the_room_for_registers(tmp_path: Path) -> None:
    needs_program("gcc")
    tree = tmp_path / "a tree" / "arch/x86/um"
    tree.mkdir(parents=True)
    line = "DEFINE_LONGS(HOST_FP_SIZE, 2696);\n"
    for name in ("user-offsets.c", "other.c"):
        (tree / name).write_text(line, "utf-8")
    (work := tmp_path / "its work").mkdir()
    gcc = compiler(work).removeprefix("CC=")
    said = {
        name: subprocess.run(
            [gcc, "-E", "-P", tree / name], capture_output=True, text=True, check=True
        ).stdout
        for name in ("user-offsets.c", "other.c")
    }
    assert said == {"user-offsets.c": line.replace("2696", str(BYTES)), "other.c": line}


@pytest.mark.integration
def test_a_guest_runs_a_scenario(skyhop: Skyhop, cache: Path, scenario: Path) -> None:
    needs_root()  # A guest's threads run first (SCHED_FIFO); a stand-in runs them on this kernel.
    stand_in(cache, HERE)
    done = run_process(scenario.parent, "linux", scenario, "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["virtual_s"] == pytest.approx(3.0)
    simulated = skyhop("sim", scenario, "-o", "again")
    assert simulated.returncode == 0, simulated.stderr
    names = [sorted(file.name for file in (scenario.parent / run).iterdir())
             for run in ("out", "again")]  # fmt: skip
    assert names[0] == names[1]
    assert left_in(cache) == []
    assert sh.linux.run(str(scenario)).directory.name == "run"
    assert "6.12" in skyhop("linux", "kernel", "list").stdout
    # Only --force replaces an existing run.
    assert skyhop("linux", scenario, "-o", "out").returncode == 2
    assert skyhop("linux", scenario, "-o", "out", "--force").returncode == 0
    assert skyhop("linux", "kernel", "remove", "6.12").returncode == 0
    assert "no kernel is built" in skyhop("linux", "kernel", "list").stderr


MINE = "mine-0123456789ab"
"""Name of a kernel that looks like a name with a digest."""


@pytest.mark.parametrize(
    "what",
    ["cut card", "no card", "null", "words", "a list", "no binary", "no right", "other name"],
)
def test_a_damaged_kernel_does_not_affect_others(cache: Path, what: str) -> None:
    stand_in(cache, HERE, "6.1")
    place = stand_in(cache, HERE, MINE)
    card = place / "kernel.json"
    match what:
        case "cut card":
            card.write_text(card.read_text("utf-8")[:40], "utf-8")
        case "no card":
            card.unlink()
        case "null":
            card.write_text(card.read_text("utf-8").replace('["HZ=100"]', "null"), "utf-8")
        case "words":
            card.write_text(card.read_text("utf-8").replace('["HZ=100"]', "[1]"), "utf-8")
        case "a list":
            card.write_text("[]", "utf-8")
        case "no binary":
            (place / "linux").unlink()
        case "no right":
            (place / "linux").chmod(0o644)
        case _:
            card.write_text(card.read_text("utf-8").replace("mine", "yours"), "utf-8")
    assert [kernel.name for kernel in built()] == ["6.1"]
    assert damaged() == {place: MINE}
    assert find(None).name == "6.1"
    how = f"{place}: is damaged; skyhop linux kernel remove {MINE}, and build it again"
    for name in (MINE, None):
        with pytest.raises(sh.InputError, match=re.escape(how)):
            find(name)
        if name is not None:
            remove("6.1")
    remove(MINE)
    assert damaged() == {}
    assert not place.exists()


def test_a_damaged_kernel_is_listed(skyhop: Skyhop, cache: Path) -> None:
    stand_in(cache, HERE, "6.1")
    (stand_in(cache, HERE, MINE) / "linux").unlink()
    listed = skyhop("linux", "kernel", "list")
    assert listed.returncode == 0
    assert "6.1 " in listed.stdout
    assert f"is damaged; skyhop linux kernel remove {MINE}, and build it again" in listed.stderr


def test_a_kernel_that_cannot_be_removed_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stand_in(cache, HERE)

    def refuse(_file: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", "linux")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(sh.RunError, match=f"{place}: cannot remove: Permission denied"):
        remove("6.12")


@pytest.mark.integration
def test_an_unknown_congestion_control_is_an_error_before_boot(
    skyhop: Skyhop, cache: Path, scenario: Path
) -> None:
    stand_in(cache, PANIC, source="linux-source-6.12_6.12.99-1_all")
    done = skyhop("linux", scenario, "-o", "out", "--set", "flow.0.cc=nosuch")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "'nosuch' is neither in the kernel 6.12 (reno, cubic) nor one of skyhop's" in line
    # hstcp in the configuration is highspeed for sockets.
    fast = stand_in(cache, PANIC, "fast", "linux-source-6.1_6.1.99-1_all")
    (fast / "config").write_text("CONFIG_TCP_CONG_HSTCP=y\n", "utf-8")
    errors = {cc: skyhop("linux", scenario, "--kernel", "fast", "--set", f"flow.0.cc={cc}").stderr
              for cc in ("highspeed", "hstcp")}  # fmt: skip
    assert "Kernel panic" in errors["highspeed"]
    assert "'hstcp' is neither in the kernel fast (reno, highspeed)" in errors["hstcp"]
    # A patched tree may have a congestion control with any option's name.
    stand_in(cache, PANIC, "mine", "/src/linux-source-6.12")
    done = skyhop("linux", scenario, "--kernel", "mine", "--set", "flow.0.cc=nosuch")
    assert "Kernel panic" in done.stderr


def test_a_cache_that_cannot_be_written_is_named(
    skyhop: Skyhop, cache: Path, scenario: Path
) -> None:
    stand_in(cache, HERE)
    (cache / "skyhop" / "guests").touch()
    done = skyhop("linux", scenario, "-o", "out")
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert "skyhop/guests: File exists; XDG_CACHE_HOME may name another place" in line
    assert not (scenario.parent / "out").exists()


@pytest.mark.integration
def test_a_guest_that_dies_is_an_error_of_one_line(
    skyhop: Skyhop, cache: Path, scenario: Path
) -> None:
    stand_in(cache, PANIC)
    done = run_process(scenario.parent, "linux", scenario, "-o", "out")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the guest (Linux 6.12.99) ended before its run; it printed: Out of memory" in line
    assert "Kernel panic - not syncing" in line
    assert not (scenario.parent / "out").exists()
    assert left_in(cache) == []
    # The same with a program, whose output comes first.
    done = skyhop("linux", scenario, "-o", "out", "--", "true")
    assert done.stdout.splitlines()[-1].startswith("Kernel panic")
    # A kernel that prints nothing may be damaged.
    stand_in(cache, "#!/bin/sh\n", "cut")
    done = skyhop("linux", scenario, "-o", "out", "--kernel", "cut")
    assert "it printed: nothing (is it damaged? skyhop linux kernel remove cut" in done.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_the_output_of_a_program_is_printed_unchanged(cache: Path, scenario: Path) -> None:
    needs_root()  # A guest's threads run first (SCHED_FIFO); a stand-in runs them on this kernel.
    stand_in(cache, PRINTS)
    command = [*skyhop_command(), "linux", str(scenario), "-o", str(scenario.parent / "out"), "--"]
    done = subprocess.run([*command, "true"], capture_output=True, check=True, timeout=120)
    assert done.stdout == b"half a line\rand more\r\n\xffKernel panic is what this is not\n"


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
def test_a_run_is_kept_when_the_reader_of_its_output_is_gone(cache: Path, scenario: Path) -> None:
    stand_in(cache, PRINTS)
    out = scenario.parent / "out"
    with subprocess.Popen(
        [*skyhop_command(), "linux", str(scenario), "-o", str(out), "--", "true"],
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
    assert running.returncode == 0
    assert sh.read_run(out).info["engine"] == "linux"


def boot_parameters(place: Path) -> dict[str, str]:
    """Return the arguments that a stub kernel was booted with, and its TMPDIR."""
    words = (place / "linux.told").read_text("utf-8").splitlines()
    return {key: value for key, _, value in (word.partition("=") for word in words)}


@pytest.mark.soak
def test_a_guests_clock_starts_with_the_path_also_in_studies(tmp_path: Path, cache: Path) -> None:
    place = stand_in(cache, TELLS)
    start = "2024-05-01T00:00:00Z"
    path = {"from": "London", "to": "Paris", "start": start}
    scenario = {**SCENARIO, "path": path, "run": {"duration": "2 s"}}
    sh.linux.run(scenario)
    alone = boot_parameters(place)
    assert alone["time-travel-start"] == "1714521600000000000"
    study = {"title": "One", "question": "When?", "engine": "linux", "scenario": scenario}
    study["axis"] = [{"name": "cc", "key": "flow.0.cc", "values": ["cubic"]}]
    (tmp_path / "study.toml").write_text(toml_text(study), "utf-8")
    loaded = sh.study.load_study(tmp_path / "study.toml")
    assert not sh.study.run_study(loaded, tmp_path / "runs", progress=nothing).failures
    assert boot_parameters(place)["time-travel-start"] == alone["time-travel-start"]
    for year in ("1960", "2240"):
        with pytest.raises(sh.InputError, match=f"path.start: {year}-05-01T.* 1970 to 2200"):
            sh.linux.run({**scenario, "path": {**path, "start": start.replace("2024", year)}})


@pytest.mark.soak
def test_a_guests_memory_file_avoids_noexec_mounts(
    cache: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = stand_in(cache, TELLS)
    sh.linux.run(str(scenario))
    assert boot_parameters(place)["TMPDIR"] == ""
    here = os.statvfs("/dev/shm")
    values = [*here[:8], here.f_flag | os.ST_NOEXEC, *here[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))
    sh.linux.run(str(scenario))
    assert boot_parameters(place)["TMPDIR"].startswith(str(cache / "skyhop" / "guests"))


def test_directories_that_a_guest_mounts_itself_are_refused(
    cache: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(cache, HERE)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as hidden:
        monkeypatch.chdir(hidden)
        with pytest.raises(sh.InputError, match=f"{hidden}: a guest mounts its own /dev"):
            sh.linux.run(str(scenario))


@pytest.mark.integration
def test_a_cache_may_be_a_relative_path(
    cache: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_root()  # A guest's threads run first (SCHED_FIFO); a stand-in runs them on this kernel.
    stand_in(cache, HERE)
    monkeypatch.chdir(cache.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", cache.name)
    assert sh.linux.run(str(scenario)).summary["virtual_s"] == pytest.approx(3.0)


@pytest.mark.integration
def test_a_guest_refuses_what_the_engine_refuses(
    skyhop: Skyhop, cache: Path, scenario: Path
) -> None:
    stand_in(cache, HERE)
    path = 'path={kind = "trace", file = "gone.parquet"}'
    done = skyhop("linux", scenario, "-o", "out", "--set", path)
    assert done.returncode == 2, done.stderr
    assert "gone.parquet" in done.stderr
    assert not (scenario.parent / "out").exists()


def processes_in(directory: Path) -> list[int]:
    """Return the ids of processes whose working directory is below a directory."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            # A removed directory has " (deleted)" behind its path.
            if str(link.readlink()).startswith(str(directory)):
                found.append(int(link.parent.name))
    return found


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_run_leaves_nothing(cache: Path, scenario: Path, how: signal.Signals) -> None:
    stand_in(cache, SLOW)
    running = subprocess.Popen(
        [*skyhop_command(), "linux", str(scenario), "-o", str(scenario.parent / "out")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    guests = cache / "skyhop" / "guests"
    wait_for(lambda: len(processes_in(guests)) > 1)
    running.send_signal(how)
    _, said = running.communicate(timeout=120)
    wait_for(lambda: processes_in(guests) == [])
    assert not (scenario.parent / "out").exists()
    if how is not signal.SIGKILL:
        assert running.returncode == 130
        assert "interrupted; nothing was kept" in said
        assert left_in(cache) == []
    # The next run removes leftovers from the cache.
    stand_in(cache, PANIC, "5.1")
    subprocess.run(
        [*skyhop_command(), "linux", str(scenario), "--kernel", "5.1"],
        check=False, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert left_in(cache) == []


@pytest.mark.integration
def test_studies_run_in_guests(tmp_path: Path, cache: Path) -> None:
    needs_root()  # A guest's threads run first (SCHED_FIFO); a stand-in runs them on this kernel.
    stand_in(cache, HERE, "stock")
    other = stand_in(cache, HERE, "patched")
    study = {
        "title": "Two kernels", "question": "Do they differ?", "engine": "linux",
        "scenario": SCENARIO,
        "axis": [{"name": "kernel", "key": "linux.kernel", "values": ["stock", "patched"]}],
    }  # fmt: skip
    file = tmp_path / "study.toml"
    file.write_text(toml_text(study), "utf-8")
    done = sh.study.run_study(sh.study.load_study(file), tmp_path / "runs", progress=nothing)
    assert not done.failures
    assert done.results.frame["kernel"].unique(maintain_order=True).to_list() == [
        "stock", "patched",
    ]  # fmt: skip
    # The id of a run depends on the digest of its kernel.
    card = json.loads((other / "kernel.json").read_text("utf-8"))
    before = [run.run_id for run in sh.study.load_study(file).runs()]
    (other / "kernel.json").write_text(json.dumps({**card, "digest": "f" * 64}), "utf-8")
    after = [run.run_id for run in sh.study.load_study(file).runs()]
    assert before[0] == after[0]
    assert before[1] != after[1]
    (other / "kernel.json").unlink()
    with pytest.raises(sh.InputError, match=r"patched-\w+: is damaged"):
        list(sh.study.load_study(file).runs())


def test_the_example_of_a_patched_kernel_is_a_study(tmp_path: Path, cache: Path) -> None:
    for name in ("6.12", "patched"):
        stand_in(cache, HERE, name)
    text = (ROOT / "docs" / "tutorials" / "patched-kernel.md").read_text("utf-8")
    (study,) = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)
    file = tmp_path / "patched.toml"
    file.write_text(study, "utf-8")
    assert len({run.run_id for run in sh.study.load_study(file).runs()}) == 12


def nothing(_done: int, _total: int) -> None:
    """Ignore progress: callback of studies."""


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_run_json_names_the_kernel(
    skyhop: Skyhop, cache: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKYHOP_MOCK")
    stand_in(cache, HERE)
    done = skyhop("linux", scenario, "-o", "out", "--set", "run.duration=1 s")
    assert done.returncode == 0, done.stderr
    run = json.loads((scenario.parent / "out" / "run.json").read_text("utf-8"))
    assert run["engine"] == "linux"
    assert run["guest"]["hz"] == 100
    assert run["guest"]["options"] == ["HZ=100"]
    assert json.loads((scenario.parent / "out/summary.json").read_text())["engine"] == "linux"


# The tests below boot a real kernel.


@pytest.mark.soak
def test_a_run_is_the_same_to_the_last_bit(skyhop: Skyhop, scenario: Path) -> None:
    kernel = needs_guest_kernel()
    for name, duration in (("one", "3 s"), ("two", "3 s"), ("long", "4 s")):
        done = skyhop("linux", scenario, "-o", name, "--set", f"run.duration={duration}")
        assert done.returncode == 0, done.stderr
    one, two, long = (sh.read_run(scenario.parent / name) for name in ("one", "two", "long"))
    for table in ("flows", "link", "events"):
        assert getattr(one, table).equals(getattr(two, table))
    # A longer run has the same beginning.
    flows, longer = (run.flows.to_dicts() for run in (one, long))
    before = [row for row in longer if row["t_ns"] < 3e9]
    assert [row for row in flows if row["t_ns"] < 3e9] == before
    assert one.summary["flows"][0]["goodput_bps"] > 0.85 * 20e6
    run = json.loads((scenario.parent / "one" / "run.json").read_text("utf-8"))
    assert run["guest"]["name"] == kernel.name
    assert run["kernel"] == f"Linux {kernel.release}"


@pytest.mark.soak
def test_an_unprivileged_user_can_run_a_guest(tmp_path: Path, scenario: Path) -> None:
    needs_root()
    kernel = needs_guest_kernel()
    home = tmp_path / "home"
    kernels = home / "skyhop" / "kernels"
    kernels.mkdir(parents=True)
    shutil.copytree(kernel.directory, kernels / kernel.directory.name)
    for place in (home, *home.glob("**/*")):
        os.chown(place, USER, USER)
    shutil.copy(scenario, home)
    done = subprocess.run(
        [*as_other_user(home), *skyhop_command(), "linux", scenario.name, "-o", "out"],
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home)}, cwd=home,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sh.read_run(home / "out").summary["engine"] == "linux"
    assert (home / "out" / "summary.json").stat().st_uid == USER
