"""Periodic housekeeping of a served orchestrator continues after a failed round."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from testbed_harness import local_orchestrator

from skyhop.errors import RunError
from skyhop.telemetry import tidying
from skyhop_testbed import serve
from skyhop_testbed.orchestrator.watch import Watch
from skyhop_testbed.orchestrator.webhooks import Sender, post


def test_housekeeping_goes_on_until_the_service_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds, tidied, waits = 0, list[int](), list[float]()

    with local_orchestrator(tmp_path / "state") as at:

        def tick() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 2:
                raise RunError("the testbed's database is away")
            if rounds == 3:
                raise ZeroDivisionError

        async def tick_until_the_end() -> None:
            stopping = asyncio.Event()

            async def wait(event: asyncio.Event, seconds: float) -> None:
                assert event is stopping
                waits.append(seconds)
                if len(waits) == 242:
                    event.set()

            sender = Sender(at.orchestrator, post)
            await serve._tick(at.orchestrator, stopping, wait, Watch(at.orchestrator, sender))

        monkeypatch.setattr(at.orchestrator, "tick", tick)
        monkeypatch.setattr(tidying, "tidy_in_subprocess", lambda _directory: tidied.append(rounds))
        with caplog.at_level(logging.ERROR, "skyhop_testbed"):
            asyncio.run(tick_until_the_end())
    assert rounds == 242
    assert waits == [15.0] * 242
    assert tidied == [1, 241], "journals are folded once an hour"
    assert "the testbed's database is away" in caplog.text
    assert "a round of housekeeping failed" in caplog.text


@pytest.mark.parametrize(
    ("addresses", "names", "said"),
    [
        (serve.Addresses(), [], None),
        (serve.Addresses(), ["localhost", "127.0.0.1"], None),
        (serve.Addresses(), ["t.example.org"], "--users, --agents, --web: for t.example.org give"),
        (serve.Addresses("0.0.0.0:1", "[::]:2", "10.0.0.1:3"), ["t.example.org"], None),
        (serve.Addresses("0.0.0.0:1", "[::1]:2", "[::]:3"), ["t"], "such as --agents 0.0.0.0:2"),
    ],
)
def test_a_name_that_others_use_needs_addresses_that_others_reach(
    addresses: serve.Addresses, names: list[str], said: str | None
) -> None:
    note = serve.local_only_note(addresses, names)
    assert (said is None) == (note is None)
    assert said is None or said in (note or "")
