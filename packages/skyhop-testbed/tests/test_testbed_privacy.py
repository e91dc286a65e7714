"""Privacy of a node's owner: no operation and no page tells another user the owner's traffic.

The traffic is a number that occurs nowhere else. The tests call every operation and every page as a
user who does not own the node, and search all answers for that number.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient
from test_testbed_web import Testbed as Pages
from test_testbed_web import fill
from testbed_harness import event, job
from testbed_line import Local, local

from skyhop.errors import InputError
from skyhop.telemetry.fields import BY_NAME
from skyhop_testbed import api
from skyhop_testbed.agent.samples import write_samples
from skyhop_testbed.api import ApiError, Operation
from skyhop_testbed.client import Testbed
from skyhop_testbed.orchestrator import archive
from skyhop_testbed.privacy import OWNERS_TRAFFIC, check_share, shares_traffic
from skyhop_testbed.web import app, drawings, figure
from skyhop_testbed.wire import Wire

S = 10**9
TOLD = "9182736"
"""First digits of every number of the owner's traffic."""
RATES = {name: float(f"{TOLD}{place:02}") for place, name in enumerate(sorted(OWNERS_TRAFFIC))}
TRIGGER = "user_rx_bps > 1"
FORM = "pop_ping_latency_ms > 1"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with local(tmp_path_factory.mktemp("testbed") / "state") as made, made.testbed() as admin:
        admin.put_config({"requests_per_minute": 1e5})
        for name in ("ann", "cem"):
            admin.put_user(api.PutUser(name=name, role="user"))
        admin.put_node(api.PutNode(name="home", owner="ann"))
        _report(made, admin)
        yield made


def _report(made: Local, admin: Testbed) -> None:
    """Report telemetry, a preemption and a trigger's evaluation with the owner's traffic."""
    agent = made.wire(made.agents, made.enrol("home", admin.invitation("home")["token"]))
    when = f'trigger = "{TRIGGER}"\nend = "2099-01-01T00:00:00Z"'
    text = job("watched", when, nodes='["home"]', overhead="false")
    with Testbed(admin.credential("ann")) as ann:
        submitted = ann._call(api.SUBMIT_JOB, api.SubmitJob(toml=text))
    now_ns = made.clock.ns // S * S
    samples = [
        {"time_ns": now_ns + n * S, "pop_ping_latency_ms": 30.0, "exp_rx_rate_bytes": 5.0, **RATES}
        for n in range(-5, 1)
    ]
    preempted = {
        "active": True, "since_ns": now_ns, "cause": "traffic", "mode": "auto",
        "user_rx_bps": RATES["user_rx_bps"], "user_tx_bps": RATES["user_tx_bps"],
    }  # fmt: skip
    evaluated = {
        "job": submitted.id, "fired": False, "value": True, "outcome": "busy", "why": "busy",
        "inputs": {"user_rx_bps": RATES["user_rx_bps"]},
    }  # fmt: skip
    health = {"version": "1", "programs": [], "kernel": {"release": "6"}, "networks": ["internet"]}
    told = [("telemetry", {"samples": samples}), ("scavenger", preempted), ("health", health)]
    told.append(("trigger", evaluated))
    events = [event(n, now_ns, kind, json.dumps(body)) for n, (kind, body) in enumerate(told, 1)]
    agent.call(api.REPORT, api.Batch(events=events))


@pytest.fixture(autouse=True)
def answers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer queries of telemetry, and draw series, in this process instead of a subprocess."""

    def answer(command: list[str], **others: Any) -> subprocess.CompletedProcess[Any]:
        if command[-1] == "skyhop_testbed.orchestrator.archive":
            errors, query = io.StringIO(), archive.Query(**json.loads(others["input"]))
            status = archive.respond(query, others["stdout"], errors)
            return subprocess.CompletedProcess(command, status, None, errors.getvalue().encode())
        figure.make(figure.Query(**json.loads(others["input"])), Path(command[-1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(archive.subprocess, "run", answer)
    monkeypatch.setattr(drawings.subprocess, "run", answer)


Ask = Callable[["_Known"], Any]


class _Known:
    """Names that requests contain, and the present time."""

    def __init__(self, testbed: Local) -> None:
        self.now_ns = testbed.clock.ns
        with testbed.testbed() as admin:
            self.job = admin.jobs()[0].id
            self.run = admin.runs()[0].id


_NEW = job("mine", 'at = "2099-01-01T00:00:00Z"', nodes='["home"]')
_ASKED: dict[str, list[Ask]] = {
    "CheckJob": [lambda _: api.CheckJob(toml=_NEW)],
    "SubmitJob": [lambda _: api.SubmitJob(toml=_NEW)],
    "ModifyJob": [lambda it: api.ModifyJob(job=it.job, toml=_NEW)],
    "CancelJob": [lambda it: api.NamedJob(job=it.job)],
    "ListJobs": [lambda _: api.ListJobs(node="home", ended=True), lambda _: api.ListJobs()],
    "NextSlot": [lambda _: api.NextSlot(nodes=["home"], length_ns=S)],
    "Calendar": [lambda _: api.Calendar(nodes=["home"]), lambda _: api.Calendar()],
    "ListRuns": [lambda _: api.ListRuns(node="home"), lambda _: api.ListRuns()],
    "GetRun": [lambda it: api.NamedRun(run=it.run)],
    "WatchRun": [lambda it: api.NamedRun(run=it.run)],
    "AbortRun": [lambda it: api.AbortRun(run=it.run)],
    "RescheduleRun": [lambda it: api.RescheduleRun(run=it.run)],
    "Fetch": [lambda it: api.Fetch(run=it.run, side="client", name="telemetry.parquet")],
    "ListNodes": [lambda _: api.ListNodes(), lambda _: api.ListNodes(active=True)],
    "GetNode": [lambda _: api.NamedNode(node="home")],
    "SetScavenger": [lambda _: api.SetScavenger(node="home", mode="auto")],
    "SetPolicy": [lambda _: api.SetPolicy(node="home", policy={"share": ["traffic"]})],
    "Telemetry": [
        lambda _: api.Telemetry(node="home"),
        lambda _: api.Telemetry(node="home", step_ns=2 * S),
        *(lambda _, n=name: api.Telemetry(node="home", columns=[n]) for name in sorted(RATES)),  # type: ignore[misc]
    ],
    "ObstructionMap": [lambda _: api.NamedNode(node="home")],
    "TestTrigger": [
        lambda _: api.TestTrigger(node="home", expression=FORM),
        *(
            lambda _, n=name: api.TestTrigger(node="home", expression=f"{n} > 1")  # type: ignore[misc]
            for name in sorted(RATES)
        ),
    ],
    "TriggerLog": [lambda _: api.TriggerLog(node="home"), lambda _: api.TriggerLog()],
    "GetProfile": [lambda _: api.Nothing()],
    "Trust": [lambda _: api.Nothing()],
    "ListAlerts": [lambda _: api.ListAlerts(all=True)],
    "GetQuotas": [
        lambda _: api.Quotas(kind="node", name="home"),
        lambda _: api.Quotas(kind="user", name="ann"),
    ],
    "ListFiles": [lambda it: api.ListFiles(run=it.run)],
    "DropFiles": [lambda it: api.NamedRun(run=it.run)],
    "PutProfile": [lambda _: api.PutProfile(full_name="Cem")],
}
"""Requests of each operation for users."""


_TELL = {"GetNode", "Telemetry"}
"""Operations that tell the owner and administrators the owner's traffic."""


def answered(wire: Wire, operation: Operation[Any, Any], request: Any) -> str:
    """Return an answer as text: an error's message, or the values of a table."""
    try:
        if operation.lines:
            return repr(next(iter(wire.stream(operation, request))))
        if operation.answer is not bytes:
            return repr(wire.call(operation, request))
        content = b"".join(wire.download(operation, request, 10.0))
    except (InputError, ApiError) as error:
        return str(error)
    if operation.name != "Telemetry":
        return content.decode(errors="replace")
    return repr(pl.read_ipc_stream(io.BytesIO(content)).to_dicts())


def test_no_operation_tells_another_user_the_owners_traffic(testbed: Local) -> None:
    of_users = {name for name, each in api.OPERATIONS.items() if each.roles == api.USERS}
    assert set(_ASKED) == of_users, "a new operation needs its requests here"
    known = _Known(testbed)
    told: dict[str, list[str]] = {"cem": [], "ann": [], "admin": []}
    with testbed.testbed() as admin:
        users = {name: Testbed(admin.credential(name)) for name in ("cem", "ann")}
        users["admin"] = admin
        for user, seen in told.items():
            for name, requests in _ASKED.items():
                if user != "cem" and name in {"SetPolicy", "CancelJob", "AbortRun", "ModifyJob"}:
                    continue  # They would change what the others see.
                answers = [
                    answered(users[user]._wire, api.OPERATIONS[name], ask(known))
                    for ask in requests
                ]
                seen += [name for answer in answers if TOLD in answer]
    assert told["cem"] == []
    # The search finds the numbers where they are: with the owner and the administrator.
    assert set(told["ann"]) >= _TELL
    assert set(told["admin"]) >= _TELL


def test_a_trigger_over_the_owners_traffic_is_the_owners(testbed: Local) -> None:
    when = f'trigger = "{TRIGGER}"\nend = "2099-01-01T00:00:00Z"'
    text = job("spies", when, nodes='["home"]', overhead="false")
    with testbed.testbed() as admin, Testbed(admin.credential("cem")) as cem:
        check = api.CHECK_JOB, api.CheckJob(toml=text)
        for operation, request in (check, (api.SUBMIT_JOB, api.SubmitJob(toml=text))):
            with pytest.raises(InputError, match="user_rx_bps: tells the traffic of home's owner"):
                cem._call(operation, request)  # type: ignore[arg-type]
        with Testbed(admin.credential("ann")) as ann:
            ann.set_policy("home", {"share": ["traffic"]})
            assert cem._call(*check).kind == "trigger"
            end_ns = testbed.clock.ns + S
            shown = cem.telemetry("home", 0, end_ns)
            assert shown["user_rx_bps"].to_list() == [RATES["user_rx_bps"]] * 6
            ann.set_policy("home", {})
        hidden = cem.telemetry("home", 0, end_ns)
        assert not OWNERS_TRAFFIC & set(hidden.columns)
        assert hidden["pop_ping_latency_ms"].to_list() == [30.0] * 6


def test_fields_of_traffic_are_telemetry_fields() -> None:
    assert set(BY_NAME) >= OWNERS_TRAFFIC
    # A new field about rates is either the owner's, or listed here.
    rates = {name for name, each in BY_NAME.items() if each.unit in {"bit/s", "byte/s"}}
    of_links_and_runs = {
        "exp_rx_rate_bytes", "exp_tx_rate_bytes", "downlink_capacity_bps", "uplink_capacity_bps",
    }  # fmt: skip
    assert rates == OWNERS_TRAFFIC | of_links_and_runs


def test_words_of_share() -> None:
    assert shares_traffic({"share": ["traffic"]})
    assert not shares_traffic({"share": []})
    assert not shares_traffic({"share": "traffic"})
    for wrong in ("traffic", ["all"], 1):
        with pytest.raises(InputError, match="share: expected a list of these words: traffic"):
            check_share(wrong)


def test_a_runs_file_has_no_traffic_of_the_owner(tmp_path: Path) -> None:
    from skyhop.telemetry.store import Store

    store = Store(tmp_path / "telemetry")
    store.append("home", [{"time_ns": S, "pop_ping_latency_ms": 30.0, **RATES}])
    store.close()
    for hidden in (OWNERS_TRAFFIC, frozenset[str]()):
        write_samples(tmp_path / "telemetry", "home", 0, 2 * S, tmp_path / "t.parquet", hidden)
        found = pl.read_parquet(tmp_path / "t.parquet")
        assert set(found.columns) == {"time_ns", "pop_ping_latency_ms", *(RATES.keys() - hidden)}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    bed = fill(tmp_path / "pages")
    bed.now_ns = bed.now_ns // S * S
    sample = {"pop_ping_latency_ms": 30.0, "pop_ping_drop_rate": 0.0, "state": "CONNECTED", **RATES}
    samples = [{"time_ns": bed.now_ns + n * S, **sample} for n in range(-60, 0)]
    bed.orchestrator.store_telemetry("bcn-1", samples)
    yield bed
    bed.orchestrator.close()


_SHOWN = (
    TOLD, "918.27", "918.3", "Owner receives", "own traffic <small>", "What the terminal carries",
)  # fmt: skip
"""Forms of the owner's traffic on pages: as JSON, in Mbit/s, and its headings."""


def _pages_that_tell(bed: Pages, client: TestClient) -> set[str]:
    values = {"node": "bcn-1", "job": bed.job, "run": bed.run, "side": "client", "name": "x"}
    found = set()
    for pattern, (shown, _) in app._PAGES.items():
        if shown is None or "/figure/" in pattern or "/report/" in pattern:
            continue  # Figures have no field of traffic, and run no code of this process.
        path = pattern.replace(":path", "")
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        if any(mark in client.get(path).text for mark in _SHOWN):
            found.add(pattern)
    return found


def test_no_page_shows_another_user_the_owners_traffic(pages: Pages) -> None:
    assert _pages_that_tell(pages, pages.client("cem")) == set()
    assert _pages_that_tell(pages, pages.client("bob")) == set(), "bob has a run there"
    shown = {"/nodes/{node}", "/nodes/{node}/live.json"}
    assert _pages_that_tell(pages, pages.client("ann")) >= shown
