"""Log lines: off by default, chosen by -v and SKYHOP_LOG, in one format of Python and the core."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Skyhop
from skyhop import logs
from skyhop.errors import InputError

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (?P<level>ERROR| WARN| INFO|DEBUG|TRACE) "
    r"(?P<target>[\w.:]+): (?P<message>.+)"
)

SCENARIO = """
[path]
kind = "fixed"
rtt = "20 ms"
[link]
rate = "10 Mbit/s"
[[flow]]
[run]
duration = "1 s"
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the variable, the root logger's level and its handlers."""
    monkeypatch.setenv(logs.VARIABLE, "")
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def lines_of(text: str) -> list[re.Match[str]]:
    """Return the log lines of a text."""
    return [found for line in text.splitlines() if (found := LINE.fullmatch(line))]


def logged(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, ...]]:
    """Log at each level of three loggers; return level and target of the lines."""
    for name in ("skyhop_testbed.agent.link", "skyhop_testbed.web", "another"):
        for level in ("error", "warning", "info", "debug"):
            getattr(logging.getLogger(name), level)("%s", level)
    written = capsys.readouterr()
    found = lines_of(written.err)
    assert len(found) == len(written.err.splitlines())
    assert written.out == ""
    return [(each["level"].strip(), each["target"]) for each in found]


def test_without_a_switch_only_warnings_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    assert {level for level, _ in logged(capsys)} == {"ERROR", "WARN"}
    assert os.environ[logs.VARIABLE] == ""


@pytest.mark.parametrize(
    ("count", "level"), [(1, "info"), (2, "debug"), (3, "trace"), (9, "trace")]
)
def test_v_raises_the_level_of_skyhop_alone_and_of_children(
    capsys: pytest.CaptureFixture[str], count: int, level: str
) -> None:
    logs.configure(count)
    found = logged(capsys)
    assert ("INFO", "skyhop_testbed.web") in found
    assert (("DEBUG", "skyhop_testbed.web") in found) == (count > 1)
    assert {each for each, target in found if target == "another"} == {"ERROR", "WARN"}
    assert os.environ[logs.VARIABLE] == f"skyhop={level}"


def test_the_variable_wins_and_its_longest_target_applies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    os.environ[logs.VARIABLE] = "info,skyhop_testbed=off,skyhop_testbed.agent=DEBUG"
    logs.configure(3, otherwise="trace")
    assert logged(capsys) == [
        *[(level, "skyhop_testbed.agent.link") for level in ("ERROR", "WARN", "INFO", "DEBUG")],
        *[(level, "another") for level in ("ERROR", "WARN", "INFO")],
    ]


def test_a_message_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    logging.getLogger("skyhop").error("from %s", "ä\nb\x1b[0m")
    (line,) = lines_of(capsys.readouterr().err)
    assert line["message"] == r"from ä\nb\x1b[0m"


@pytest.mark.parametrize(
    "wrong", ["loud", "info,", "=info", "a=b=info", "skyhop=", "a b=info", " "]
)
def test_a_wrong_directive_is_one_line(skyhop: Skyhop, wrong: str) -> None:
    os.environ[logs.VARIABLE] = wrong
    with pytest.raises(InputError, match="TARGET=LEVEL"):
        logs.configure()
    done = skyhop("list", "examples", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("skyhop: SKYHOP_LOG: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_live_run_logs_its_steps_to_standard_error(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SCENARIO, "utf-8")
    command = ("live", "short.toml", "--json", "-o")
    silent = skyhop(*command, "silent")
    assert silent.returncode == 0, silent.stderr
    assert lines_of(silent.stderr) == []

    told = skyhop("-v", *command, "told")
    assert told.returncode == 0, told.stderr
    found = lines_of(told.stderr)
    assert {each["level"] for each in found} <= {" INFO", " WARN"}
    steps = [each["message"] for each in found]
    assert 'queue discipline link="path" direction="forward" qdisc="fifo"' in "\n".join(steps)
    assert [step.split()[1] for step in steps if step.startswith("traffic")] == ["starts", "stops"]
    assert told.stdout == (tmp_path / "told" / "summary.json").read_text("utf-8")

    os.environ[logs.VARIABLE] = "off,skyhop_host::namespace=debug"
    filtered = skyhop(*command, "filtered")
    found = lines_of(filtered.stderr)
    assert {each["target"] for each in found} == {"skyhop_host::namespace"}
    created = [each for each in found if each["message"].startswith("network namespace created")]
    assert len(created) >= 2


@pytest.mark.integration
def test_the_simulator_has_no_log_lines(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SCENARIO, "utf-8")
    done = skyhop("-vvv", "sim", "short.toml", "--json", "-o", "run")
    assert (done.returncode, lines_of(done.stderr)) == (0, []), done.stderr
    assert done.stdout == (tmp_path / "run" / "summary.json").read_text("utf-8")
