"""Launcher of a node's agent: which version it starts, and when it leaves one that fails."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from needs import cases
from skyhop_testbed import launcher
from skyhop_testbed.launcher import (
    COMPLETE,
    FILE,
    LINK,
    MOST_SILENT,
    MOST_STARTS,
    VARIABLE,
    Choice,
    Launched,
    choice_to_start,
    is_complete,
    main,
    prepared,
    program_of,
    read_choice,
    write_choice,
)

BASE, OTHER_BASE = "/opt/skyhop.1 1.0", "/opt/skyhop.2 1.3"
CONFIRMED = Choice(current="1.1", former="", base=BASE)
TRIAL = CONFIRMED.switched("1.2", "1.1", BASE)


def all_whole(_version: str) -> bool:
    return True


def add_release(releases: Path, version: str) -> None:
    """Write the files by which the launcher knows a complete release."""
    program = program_of(releases / version)
    program.parent.mkdir(parents=True)
    program.write_text("")
    (releases / version / COMPLETE).write_text("x")


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    place = tmp_path / launcher.DIRECTORY
    place.mkdir()
    for version in ("1.1", "1.2"):
        add_release(place, version)
    return place


def test_without_a_choice_the_base_starts(tmp_path: Path) -> None:
    assert prepared(tmp_path / "none", BASE) == Choice()
    assert not (tmp_path / "none").exists()


def test_starts_of_a_trial_are_counted_and_limited(releases: Path) -> None:
    write_choice(releases, TRIAL)
    for start in range(1, MOST_STARTS + 1):
        found = prepared(releases, BASE)
        assert (found.current, found.starts) == ("1.2", start)
        assert read_choice(releases) == found
    found = prepared(releases, BASE)
    assert (found.current, found.former, found.is_trial) == ("1.1", "", False)
    assert found.failed == {"1.2": f"it ended {MOST_STARTS} times before it had reported"}
    assert read_choice(releases) == found == prepared(releases, BASE)


def test_a_trial_without_a_report_goes_back_and_is_judged_by_the_former_version() -> None:
    back = TRIAL.gone_back()
    assert (back.current, back.former, back.is_trial, back.suspect) == ("1.1", "", False, "1.2")
    assert (back.failed, back.silent) == ({}, {"1.2": 0})
    # An outage of the orchestrator, which the former version meets too, counts for nothing.
    outage = back.judged(is_reachable=False)
    assert (outage.suspect, outage.failed, outage.silent) == ("", {}, {"1.2": 0})
    # Trials count while the orchestrator can be reached; an outage between them changes nothing.
    choice = outage
    for count in range(1, MOST_SILENT):
        choice = choice.switched("1.2", "1.1", BASE).gone_back().judged(is_reachable=True)
        assert (choice.failed, choice.silent) == ({}, {"1.2": count})
        choice = choice.switched("1.2", "1.1", BASE).gone_back().judged(is_reachable=False)
    choice = choice.switched("1.2", "1.1", BASE).gone_back().judged(is_reachable=True)
    assert choice.failed == {"1.2": f"it did not reach the orchestrator in {MOST_SILENT} trials"}
    # A trial that succeeds is the end of it.
    assert outage.switched("1.2", "1.1", BASE).confirmed().silent == {}


def test_starts_after_the_trial_are_not_counted(releases: Path) -> None:
    write_choice(releases, replace(TRIAL, starts=2).confirmed())
    for _ in range(2 * MOST_STARTS):
        assert prepared(releases, BASE).current == "1.2"
    assert read_choice(releases) == Choice(current="1.2", former="1.1", base=BASE)


def test_a_base_that_the_owner_has_installed_since_wins() -> None:
    failed = replace(TRIAL, failed={"0.9": "x"}, silent={"1.2": 2})
    found = choice_to_start(failed, OTHER_BASE, all_whole)
    assert found == Choice(failed={"0.9": "x"}, silent={"1.2": 2})


@pytest.mark.parametrize("missing", [{"1.2"}, {"1.2", "1.1"}])
def test_an_incomplete_release_is_not_started(missing: set[str]) -> None:
    found = choice_to_start(TRIAL, BASE, lambda version: version not in missing)
    assert found.current == ("" if "1.1" in missing else "1.1")
    assert found.failed == {"1.2": "its files are incomplete"}
    assert not found.is_trial


def test_what_a_complete_release_has(releases: Path) -> None:
    assert is_complete(releases, "1.1")
    for name in ("", "..", "../releases/1.1", FILE, LINK, "1.3"):
        assert not is_complete(releases, name), name
    (releases / "1.1" / COMPLETE).unlink()
    program_of(releases / "1.2").unlink()
    assert not is_complete(releases, "1.1")
    assert not is_complete(releases, "1.2")


def test_a_damaged_choice_is_the_base(releases: Path) -> None:
    text = json.dumps(asdict(replace(TRIAL, failed={"0.9": "x"}, silent={"1.2": 1})))
    (releases / FILE).write_text(text)
    assert read_choice(releases).current == "1.2"
    chance = random.Random(7)
    for _ in range(cases(300)):
        damaged = bytearray(text.encode())
        if chance.random() < 0.5:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (releases / FILE).write_bytes(damaged)
        found = prepared(releases, BASE)
        assert not found.current or is_complete(releases, found.current)
    for wrong in ("[]", "null", '{"current": 7}', '{"starts": "1"}', '{"failed": []}',
                  '{"silent": {"1.2": "1"}}'):  # fmt: skip
        (releases / FILE).write_text(wrong)
        assert read_choice(releases) == Choice(), wrong
    # A later launcher may add keys.
    (releases / FILE).write_text('{"current": "1.1", "colour": "red"}')
    assert read_choice(releases) == Choice(current="1.1")


def test_a_trial_whose_start_cannot_be_counted_is_put_off(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_choice(releases, TRIAL)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "write_choice", full)
        assert prepared(releases, BASE).current == "1.1"
    # The disk has room again, and the trial goes on.
    assert prepared(releases, BASE).current == "1.2"


def test_the_agent_starts_in_the_launchers_process(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class StartedError(Exception):
        pass

    def execute(program: str, command: list[str], environment: dict[str, str]) -> None:
        started.append((program, command, json.loads(environment[VARIABLE])))
        raise StartedError

    monkeypatch.setattr(launcher.os, "execve", execute)
    monkeypatch.setattr(launcher, "base_of", lambda _prefix: BASE)
    for choice in (Choice(), CONFIRMED):
        write_choice(releases, choice)
        for arguments in (["--dish", "x:1", "--state", str(releases.parent)],
                          [f"--state={releases.parent}"]):  # fmt: skip
            with pytest.raises(StartedError):
                main(arguments)
            program, command, told = started.pop()
            assert command == [program, "testbed", "agent", *arguments]
            assert told["version"] == choice.current
            place = releases / "1.1" if choice.current else Path(launcher.sys.prefix)
            assert program == str(place / "bin" / "skyhop")
            monkeypatch.setenv(VARIABLE, json.dumps(told))
            assert Launched.of_environment() == Launched(
                str(releases), launcher.sys.executable, BASE, choice.current
            )
    assert (releases / LINK).readlink() == Path("1.1")
    write_choice(releases, Choice())
    with pytest.raises(StartedError):
        main([f"--state={releases.parent}"])
    assert not (releases / LINK).is_symlink()


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"releases": "x"}', "{"])
def test_an_agent_without_a_launcher_knows_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert Launched.of_environment() is None
    monkeypatch.delenv(VARIABLE)
    assert Launched.of_environment() is None
