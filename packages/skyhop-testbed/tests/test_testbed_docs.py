"""docs/testbed: the first five minutes run in order; the page of the job file is whole."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, skyhop_command

from needs import needs_namespaces
from waiting import wait_for

TESTBED = ROOT / "docs" / "testbed"
FIVE_MINUTES = (TESTBED / "index.md").read_text("utf-8").split("## Your own")[1].split("## ")[0]
JOB_FILE = (TESTBED / "job-file.md").read_text("utf-8")
COMMANDS = re.findall(r"^    skyhop (.+)$", FIVE_MINUTES, re.MULTILINE)
SERVICES = ("testbed serve", "testbed agent")


@contextlib.contextmanager
def started(words: list[str], where: Path, until: str) -> Iterator[None]:
    """Start a service, and wait until it has said something."""
    log = where / f"{words[1]}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*skyhop_command(), *words], cwd=where, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for(lambda: until in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


@pytest.mark.soak
@pytest.mark.alone
def test_the_first_five_minutes_run_in_order(tmp_path: Path) -> None:
    needs_namespaces()
    (job,) = re.findall(r"```toml\n(.+?)```", FIVE_MINUTES, re.DOTALL)
    (tmp_path / "hello.toml").write_text(job, "utf-8")
    environment = {**os.environ, "SKYHOP_TESTBED": "testbed/admin.json"}
    free = ["--users=127.0.0.1:0", "--agents=127.0.0.1:0", "--web=127.0.0.1:0"]
    done = []
    run = "RUN"
    with contextlib.ExitStack() as services:
        for command in COMMANDS:
            words = shlex.split(command.replace("RUN", run))
            if command.startswith("testbed serve"):
                services.enter_context(started([*words, *free], tmp_path, "serving users at"))
            elif command.startswith("testbed agent"):
                services.enter_context(started(words, tmp_path, "follows"))
            else:
                result = subprocess.run(
                    [*skyhop_command(), *words],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert result.returncode == 0, (command, result.stdout, result.stderr)
                found = re.search(r"^([0-9A-Z]{26}) +hello", result.stdout, re.MULTILINE)
                run = found[1] if found else run
            done.append(command)
    assert len(done) == 11
    assert (tmp_path / "hello.html").stat().st_size > 100_000


def test_every_key_of_a_job_is_on_the_page() -> None:
    from skyhop_testbed.job import Job, Kernel, Run, When

    shown = set(re.findall(r"[\w.]+", JOB_FILE))
    for part in (Job, When, Run, Kernel):
        for name, field in part.model_fields.items():
            word = field.alias or name
            if word not in ("description", "seed", "engine"):
                assert {word, f"run.{word}", f"when.{word}"} & shown, word


def test_every_end_and_reason_is_on_the_page() -> None:
    from skyhop_testbed.words import Reason, State

    for word in (*State, *Reason):
        assert re.search(rf"\b{word}\b", JOB_FILE), word
