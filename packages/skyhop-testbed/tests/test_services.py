"""All services end in the normal way at SIGTERM, Ctrl-C and SIGHUP, and print which it was."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
from conftest import skyhop_command
from testbed_fake_orchestrator import FakeOrchestrator
from typer.core import TyperGroup

import inherited_signals
from needs import needs_namespaces, needs_program, needs_root, unless_impossible
from onnx_file import forty_packets
from skyhop.cli.commands import complete_app
from skyhop.cli.stopping import stop_on_signals
from skyhop_testbed.agent.identity import enrol
from waiting import wait_for


@dataclass
class Started:
    """Process of a service, and the file with all that it prints."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return what the service has printed."""
        return self.log.read_text("utf-8")

    def is_ready(self, ready: str) -> bool:
        """Whether the service has printed a text; skip or fail the test if it has ended instead."""
        status = self.process.poll()
        if status is not None:
            unless_impossible(subprocess.CompletedProcess([], status, "", self.said()))
            pytest.fail(f"ended with status {status}: {self.said()}")
        return ready in self.said()


class Starter:
    """Starts services in a directory, and kills what is left of them at the end."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place, self.stack = place, stack

    def start(self, *words: object, ready: str, inside: Sequence[str] = ()) -> Started:
        """Start a service, and wait until it has printed that it is ready."""
        command = [*inside, *skyhop_command(), *map(str, words)]
        log = self.place / f"{words[0]}-{words[1]}.log"
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self.place)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        made = Started(process, log)
        wait_for(lambda: made.is_ready(ready), why=made.said)
        return made

    def emulated(self) -> tuple[Started, str]:
        """Start an emulated terminal; return it and its address."""
        (self.place / "status.json").write_text('{"dishGetStatus": {"popPingLatencyMs": 26.5}}')
        source = ("--json", "status.json", "--listen", "127.0.0.1:0")
        made = self.start("dish", "emulate", *source, ready="Ctrl-C ends it\n")
        return made, re.findall(r"listens at (\S+);", made.said())[0]


def _signal_serve(at: Starter) -> Started:
    return at.start("signal", "serve", "--socket", "s.sock", ready="announcing on")


def _signal_watch(at: Starter) -> Started:
    _signal_serve(at)
    return at.start("signal", "watch", "--socket", "s.sock", ready="listening to")


def _policy_serve(at: Starter) -> Started:
    card, name = forty_packets(at.place), f"ends.{os.getpid()}"
    return at.start("policy", "serve", card, "--name", name, ready="Ctrl-C ends it")


def _testbed_serve(at: Starter) -> Started:
    ports = [f"--{name}=127.0.0.1:0" for name in ("users", "agents", "web")]
    return at.start("testbed", "serve", "--state", "state", *ports, ready="serving users at")


def _testbed_agent(at: Starter) -> Started:
    orchestrator = FakeOrchestrator(at.place / "orchestrator")
    at.stack.callback(orchestrator.stop)
    (at.place / "agent").mkdir()
    enrol(orchestrator.invitation(), at.place / "agent")
    return at.start("testbed", "agent", "--state", "agent", ready="follows localhost")


def _testbed_kernel(at: Starter) -> Started:
    needs_root()
    needs_namespaces()
    own = [needs_program("unshare"), "--net"]
    files = ("--socket", "kernel.sock", "--state", "state")
    return at.start("testbed", "kernel", *files, ready="serves on", inside=own)


def _dish_emulate(at: Starter) -> Started:
    return at.emulated()[0]


def _dish_watch(at: Starter) -> Started:
    return at.start("dish", "watch", "--address", at.emulated()[1], "--json", ready="}\n")


def _dish_serve(at: Starter) -> Started:
    options = ("--address", "127.0.0.1:1", "--listen", "127.0.0.1:0")
    return at.start("dish", "serve", *options, ready="serving metrics at")


STARTS: dict[str, Callable[[Starter], Started]] = {
    "dish emulate": _dish_emulate,
    "dish serve": _dish_serve,
    "dish watch": _dish_watch,
    "policy serve": _policy_serve,
    "signal serve": _signal_serve,
    "signal watch": _signal_watch,
    "testbed agent": _testbed_agent,
    "testbed kernel": _testbed_kernel,
    "testbed serve": _testbed_serve,
}
"""How to start each service."""
NAMES = {
    signal.SIGTERM: "SIGTERM",
    signal.SIGINT: "Ctrl-C (SIGINT)",
    signal.SIGHUP: "a closed terminal (SIGHUP)",
}


def commands() -> Iterator[tuple[str, typer.main.TyperCommand]]:
    """Yield all commands of all packages, each with its words."""

    def below(command: object, words: list[str]) -> Iterator[tuple[str, typer.main.TyperCommand]]:
        if isinstance(command, TyperGroup):
            for name, each in command.commands.items():
                yield from below(each, [*words, name])
        elif isinstance(command, typer.main.TyperCommand):
            yield " ".join(words), command

    yield from below(typer.main.get_command(complete_app()), [])


def test_every_service_is_among_these() -> None:
    documented, written = set(), set()
    for words, command in commands():
        if re.search(r"until [^.]*Ctrl-C or SIGTERM", " ".join((command.help or "").split())):
            documented.add(words)
        if command.callback and "until_signal()" in inspect.getsource(command.callback):
            written.add(words)
    assert documented == written == STARTS.keys()


@contextmanager
def started(name: str, place: Path) -> Iterator[Started]:
    """Start a service, and end all that it needed after the block."""
    with ExitStack() as stack:
        yield STARTS[name](Starter(place, stack))


@pytest.mark.integration
@pytest.mark.xdist_group("kernel")
@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, marks=pytest.mark.soak),
    ],
)
def test_a_service_ends_at_a_signal_and_says_so(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    with started(name, tmp_path) as service:
        service.process.send_signal(number)
        assert service.process.wait(120) == 0, service.said()
        assert f"ended by {NAMES[number]}" in service.said().splitlines()
        assert "Traceback" not in service.said()


@pytest.mark.integration
def test_what_the_parent_ignores_stays_ignored_except_sigterm(tmp_path: Path) -> None:
    script = (
        "import json, os, signal, sys; from skyhop.cli.stopping import *\n"
        "for number in map(int, sys.argv[1:]): signal.signal(number, signal.SIG_IGN)\n"
        "with until_signal():\n"
        "    for number in map(int, sys.argv[1:]): os.kill(os.getpid(), number)\n"
        "    print('goes on', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    ignored = [str(int(signal.SIGINT)), str(int(signal.SIGHUP))]
    done = subprocess.run(
        [sys.executable, "-c", script, *ignored],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "ended by SIGTERM\n")


@pytest.mark.integration
def test_processes_of_tests_do_not_inherit_ignored_signals(tmp_path: Path) -> None:
    script = "import signal, json; print(json.dumps([int(signal.getsignal(n)) for n in {!r}]))"
    numbers = [signal.SIGHUP, signal.SIGTERM]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        inherited_signals.restore()
        done = subprocess.run(
            [sys.executable, "-c", script.format(list(map(int, numbers)))],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert json.loads(done.stdout) == [int(signal.SIG_DFL)] * 2


def test_a_second_signal_is_ignored() -> None:
    before = {number: signal.getsignal(number) for number in NAMES}
    try:
        stop_on_signals()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
