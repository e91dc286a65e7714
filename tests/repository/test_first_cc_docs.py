"""docs/tutorials/first-cc.md: run its commands in order, with the files that it shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop, skyhop_command

import skyhop as sh
from guest_kernels import needs_module_kernel
from needs import missing, needs_namespaces, needs_program, needs_root, unless_impossible
from skyhop.data.templates import template

PAGE = (ROOT / "docs" / "tutorials" / "first-cc.md").read_text("utf-8")
COMMANDS = re.findall(r"^    (?:sudo )?skyhop (.+)$", PAGE, re.MULTILINE)
AS_ROOT = re.findall(r"^    sudo skyhop (.+)$", PAGE, re.MULTILINE)
IN_GUEST = [
    command for command in COMMANDS if command.startswith("linux ") or "--kernel" in command
]


def write_inputs(directory: Path) -> None:
    """Write the page's scenario and study with a shorter duration and fewer seeds."""
    scenario, study = re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL)
    scenario = scenario.replace("60 s", "25 s")
    study = study.replace("repeats = 5", "repeats = 1").replace("30 s", "5 s")
    (directory / "first.toml").write_text(scenario, "utf-8")
    (directory / "first-study.toml").write_text(study, "utf-8")


def shortened(command: str) -> list[str]:
    """Return the arguments of a command, with a duration of seconds."""
    return shlex.split(command.replace("=10 s", "=3 s").replace("=5 s", "=1 s"))


@pytest.mark.soak
def test_the_pages_commands_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    needs_program("cc")
    write_inputs(tmp_path)
    commands = [command for command in COMMANDS if command not in (*AS_ROOT, *IN_GUEST)]
    assert len(commands) >= 9
    for command in commands:
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
    goodput = {
        name: sh.read_run(tmp_path / "runs" / name).summary["flows"][0]["goodput_bps"]
        for name in ("myidea", "careful", "cubic", "sketch")
    }
    # The page's congestion control, which gains 8 of 18 Mbit/s in the page's minute.
    assert goodput["myidea"] > 1.05 * goodput["cubic"]
    assert goodput["careful"] != goodput["myidea"]
    assert goodput["sketch"] > 0.7 * goodput["myidea"]
    (file,) = sh.read_run(tmp_path / "runs" / "myidea").info["cc_files"]
    assert file == str(tmp_path / "myidea.c")
    assert (tmp_path / "first.html").stat().st_size > 100_000
    assert "myidea.c" in (tmp_path / "results" / "report.html").read_text("utf-8")


@pytest.mark.soak
def test_the_command_for_a_guest_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    needs_module_kernel()
    write_inputs(tmp_path)
    assert skyhop("cc", "new", "myidea.c").returncode == 0
    run, check = IN_GUEST
    # test_linux_cc.py tests the other command.
    assert check.startswith("cc check myidea.c --kernel ")
    done = skyhop(*shortened(run))
    assert done.returncode == 0, done.stderr
    assert sh.read_run(tmp_path / "runs" / "linux").summary["flows"][0]["cc"] == "myidea.c"


@pytest.mark.soak
@pytest.mark.alone
def test_the_commands_for_the_kernel_run_in_order(skyhop: Skyhop, tmp_path: Path) -> None:
    needs_root()
    needs_namespaces()
    needs_program("cc")
    needs_program("clang", "clang")
    unless_impossible(skyhop("cc", "check", "reno"))
    write_inputs(tmp_path)
    assert skyhop("cc", "new", "myidea.c").returncode == 0
    done = {command: skyhop(*shortened(command)) for command in AS_ROOT}
    assert len(done) == 4
    for command, result in done.items():
        assert result.returncode == 0, (command, result.stderr)
    load = next(command for command in AS_ROOT if command.startswith("cc load"))
    assert done[load].stdout.strip() == "myidea"
    run = sh.read_run(tmp_path / "runs" / "live")
    assert run.summary["flows"][0]["cc"] == "myidea.c"
    assert run.summary["flows"][0]["goodput_bps"] > 5e6
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    assert "myidea" not in offered


def test_the_page_shows_the_files_that_it_uses() -> None:
    (shown,) = re.findall(r"```c\n(.+?)```", PAGE, re.DOTALL)
    assert shown in template(Path("myidea.c"))


def test_the_class_of_the_page_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    (tmp_path / "sketch.py").write_text(code, "utf-8")
    result = skyhop("cc", "check", "sketch.py", "--json")
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["repeats itself"]["ok"] == "yes"
    assert checks["shares with its like"]["ok"] == "yes"


@pytest.mark.soak
def test_gdb_shows_the_line_of_a_crash(tmp_path: Path, skyhop: Skyhop) -> None:
    needs_program("cc")
    gdb = needs_program("gdb")
    text = template(Path("myidea.c")).replace("my->min_rtt_us = ~0U;", "*(volatile u32 *)0 = 1;")
    (tmp_path / "myidea.c").write_text(text, "utf-8")
    write_inputs(tmp_path)
    crashed = skyhop("sim", "first.toml", "-o", "run")
    assert crashed.returncode < 0
    assert "the process crashed while it ran" in crashed.stderr
    line = next(i for i, row in enumerate(text.splitlines(), start=1) if "volatile" in row)
    command = [gdb, "-batch", "-ex", "run", "-ex", "bt", "--args", sys.executable]
    shown = subprocess.run(
        [*command, *skyhop_command(), "sim", "first.toml", "-o", "run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "ptrace" in shown.stderr:
        missing("programs", "gdb may not trace here")
    assert f"myidea.c:{line}" in shown.stdout, shown.stdout
