"""Tests of the tiers: a logic test that starts a process, sleeps or opens a socket fails."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from pytest_socket import SocketBlockedError

from tiers import NotLogicError


@pytest.mark.parametrize(
    "act",
    [
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("true"),
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
        lambda: time.sleep(0.01),
    ],
    ids=["a process", "a shell", "a worker", "sleep"],
)
def test_a_logic_test_must_not_start_a_process_or_sleep(act: Callable[[], object]) -> None:
    with pytest.raises(NotLogicError, match="mark it integration"):
        act()


def test_a_logic_test_must_not_open_a_socket() -> None:
    with pytest.raises(SocketBlockedError):
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)


@pytest.mark.integration
def test_an_integration_test_may_do_so() -> None:
    subprocess.run(["true"], check=True)
    time.sleep(0.001)
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
