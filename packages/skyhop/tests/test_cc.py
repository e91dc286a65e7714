"""`skyhop cc`: congestion controls in the running kernel, as a user sees it."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import Skyhop, skyhop_command

from needs import needs_program, unless_impossible
from other_user import as_other_user


def test_list_shows_the_kernels_and_ours(skyhop: Skyhop) -> None:
    result = skyhop("cc", "list", "--json")
    assert result.returncode == 0, result.stderr
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["reno"]["place"] == "kernel"
    ours = [row for row in rows.values() if row["source"] == "cc/cubic.c"]
    assert ours
    assert all(row["description"].startswith("CUBIC") for row in ours)
    names = {row["name"] for row in json.loads(skyhop("list", "cc", "--json").stdout)}
    assert {"reno", "skyhop:bbr"} <= names


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["load", "nosuch"], "nosuch"),
        (["check", "nosuch"], "nosuch"),
        (["unload", "nosuch"], "nosuch"),
        (["load", "cubic", "--set", "beta"], "PARAM=VALUE"),
    ],
)
def test_wrong_input_is_an_error_of_one_line(
    skyhop: Skyhop, arguments: list[str], expected: str
) -> None:
    result = skyhop("cc", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.integration
def test_without_root_one_line_says_so() -> None:
    result = subprocess.run(
        [*as_other_user(), *skyhop_command(), "cc", "load", "cubic"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert result.returncode == 1
    assert "needs root" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.integration
def test_check_prints_the_instructions_of_each_hook(skyhop: Skyhop) -> None:
    result = skyhop("cc", "check", "cubic", "--json")
    unless_impossible(result)
    assert result.returncode == 0, result.stderr
    rows = {row["hook"]: row for row in json.loads(result.stdout)}
    assert rows["cubic_cong_avoid"]["instructions"] > 100
    assert all(row["verified"] is None or row["verified"] > 0 for row in rows.values())


def _in_own_mounts(steps: str) -> subprocess.CompletedProcess[str]:
    """Run shell commands in a mount namespace of their own, with which all BPF pins disappear."""
    return subprocess.run(
        [needs_program("unshare"), "--mount", "--propagation", "private", "sh", "-c", steps],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.soak
@pytest.mark.alone
def test_unload_removes_all_that_a_killed_load_leaves(skyhop: Skyhop) -> None:
    unless_impossible(skyhop("cc", "check", "reno"))
    command = " ".join(skyhop_command())
    # Times of the kill: from before the interpreter runs until after the module is loaded.
    steps = f"""
        for seconds in 0.3 0.6 0.8 1.0 1.2 1.6 2.4; do
            timeout -s KILL $seconds {command} cc load reno
            {command} cc unload reno
            ls /sys/fs/bpf/skyhop 2>/dev/null && echo left after $seconds
        done
        true
    """
    result = _in_own_mounts(steps)
    assert result.returncode == 0, result.stderr
    assert "left after" not in result.stdout
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    assert "skyhop_reno" not in offered.split()


@pytest.mark.integration
@pytest.mark.xdist_group("kernel")
def test_load_list_unload(skyhop: Skyhop) -> None:
    unless_impossible(skyhop("cc", "check", "cubic"))
    command = " ".join(skyhop_command())
    steps = f"""
        set -e
        {command} cc load cubic --set beta=0.8
        {command} cc load cubic && exit 1
        {command} cc list --json
        {command} cc unload cubic
        {command} cc unload cubic && exit 1
        exit 0
    """
    result = _in_own_mounts(steps)
    assert result.returncode == 0, result.stderr
    name, _, listed = result.stdout.partition("\n")
    assert name == "skyhop_cubic"
    row = next(row for row in json.loads(listed) if row["name"] == name)
    assert (row["place"], row["source"]) == ("loaded", "cc/cubic.c")
    assert "is already loaded" in result.stderr
    assert "is not loaded" in result.stderr
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    assert name not in offered.split()


@pytest.mark.parametrize("command", [("list", "cc"), ("cc", "list")])
def test_one_congestion_control_is_shown_with_its_parameters(
    skyhop: Skyhop, command: tuple[str, str]
) -> None:
    shown = skyhop(*command, "cubic")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("cubic: ")
    assert re.search(r"^beta +0\.7002 ", shown.stdout, re.MULTILINE)
    assert "cubic.beta = …" in shown.stderr
    whole = json.loads(skyhop(*command, "skyhop:cubic", "--json").stdout)
    beta = next(row for row in whole["parameters"] if row["parameter"] == "beta")
    assert whole["name"] == "cubic"
    assert {*beta} == {"parameter", "default", "unit", "from", "to", "meaning"}
    none = skyhop(*command, "reno")
    assert (none.returncode, none.stdout.splitlines()[-1]) == (0, "it has no parameters")
    wrong = skyhop(*command, "cubik")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("kind", ["qdiscs", "controllers"])
def test_one_entry_of_a_list_is_shown_with_its_parameters(skyhop: Skyhop, kind: str) -> None:
    rows = json.loads(skyhop("list", kind, "--json").stdout)
    name = next(row["name"] for row in rows if row["parameters"])
    shown = skyhop("list", kind, name)
    assert shown.stdout.startswith(f"{name}: ")
    (one,) = json.loads(skyhop("list", kind, name, "--json").stdout)
    assert all(parameter in shown.stdout for parameter in one["parameters"])
    wrong = skyhop("list", kind, "nothing")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert f"skyhop list {kind}" in wrong.stderr
