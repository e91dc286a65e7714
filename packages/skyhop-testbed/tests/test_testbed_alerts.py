"""Alerts: raised and cleared once each, sent to webhooks with retries, and metrics."""

from __future__ import annotations

import asyncio
import http.server
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from testbed_harness import ADMIN, ANN, BOB, LocalOrchestrator, S, local_orchestrator

from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.orchestrator import accounts, alerts, metrics, nodes, webhooks
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import ITSELF, NotFoundError
from skyhop_testbed.orchestrator.watch import LAST_BACKUP, Watch
from skyhop_testbed.orchestrator.webhooks import Sender, post
from skyhop_testbed.store import tables
from skyhop_testbed.store.database import open_database

_MIN, _DAY = 60.0, 86_400.0


class Receiver:
    """Receiver of messages, which may refuse them; replaces HTTP."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.refuses: dict[str, str] = {}
        self.attempts: list[str] = []

    async def post(self, url: str, headers: dict[str, str], content: bytes) -> str:
        """Take a message, or return why not."""
        self.attempts.append(url)
        self.headers.append(headers)
        if self.refuses.get(url):
            return self.refuses[url]
        self.taken.append((url, json.loads(content)))
        return ""

    def said(self) -> list[str]:
        """Return event, kind and subject of each message that was taken."""
        return [f"{m['event']} {m.get('kind')} {m.get('subject')}" for _, m in self.taken]


class Bed:
    """Orchestrator with a webhook, whose rounds of housekeeping a test makes."""

    def __init__(self, at: LocalOrchestrator) -> None:
        self.at, self.receiver = at, Receiver()
        self.failed_pages = 0
        with at.writing(ADMIN) as ctx:
            webhooks.put(ctx, api.PutWebhook(name="ops", url="https://ops.test/x", secret="s3"))
        self.restart()

    def restart(self) -> None:
        """Make a new watch, as the start of the service does."""
        self.sender = Sender(self.at.orchestrator, self.receiver.post)
        self.watch = Watch(self.at.orchestrator, self.sender, lambda: self.failed_pages)

    def rounds(self, count: int, *, has_failed: bool = False, alive: tuple[str, ...] = ()) -> None:
        """Make rounds every 15 s, in which nodes that are alive report; send what is due."""

        async def act() -> None:
            await self.watch.look(has_failed=has_failed)
            await self.sender.send_due()

        for _ in range(count):
            self.at.pass_s(15)
            for name in alive:
                self.at.report(name)
            asyncio.run(act())

    def health(self, node: str, **values: Any) -> None:
        """Report the health of a node."""
        self.at.report(node, ("health", values))

    def firing(self) -> list[tuple[str, str]]:
        """Return kind and subject of the alerts that are not over."""
        with self.at.orchestrator.reading(ADMIN) as ctx:
            return [(each.kind, each.subject) for each in alerts.listing(ctx)]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """Yield an orchestrator with the nodes a and b, which have certificates and reported."""
    with local_orchestrator(tmp_path / "state") as at:
        for name in ("a", "b"):
            with at.writing(ITSELF) as ctx:
                end_ns = ctx.now_ns + round(90 * _DAY) * S
                accounts.register_certificate(ctx, name, name.encode() * 32, end_ns)
            at.report(name)
        yield Bed(at)


def test_a_silent_node_is_told_of_once_and_so_is_its_return(bed: Bed) -> None:
    bed.rounds(59, alive=("b",))
    assert bed.firing() == []
    bed.rounds(200, alive=("b",))
    assert bed.firing() == [("node-silent", "a")]
    assert bed.receiver.said() == ["raised node-silent a"]
    (_, message), (headers, *_) = bed.receiver.taken[0], bed.receiver.headers
    assert message["message"] == "a: has not reported for 15 min"
    assert message["text"] == "skyhop testbed: ALERT: a: has not reported for 15 min"
    assert headers["authorization"] == "Bearer s3"
    # A restart repeats nothing; the node's return is told once it has lasted for a minute.
    bed.restart()
    bed.rounds(100, alive=("b",))
    bed.rounds(4, alive=("a", "b"))
    assert bed.receiver.said() == ["raised node-silent a"]
    bed.rounds(20, alive=("a", "b"))
    assert bed.receiver.said() == ["raised node-silent a", "cleared node-silent a"]
    assert bed.receiver.taken[1][1]["text"].startswith("skyhop testbed: over: a:")
    assert bed.firing() == []


def test_after_a_break_of_the_orchestrator_nodes_have_time_to_report(bed: Bed) -> None:
    bed.at.pass_s(2 * _DAY)
    bed.restart()
    bed.rounds(20)
    bed.rounds(100, alive=("a", "b"))
    assert bed.receiver.said() == []


def test_a_disk_near_the_limit_does_not_flutter(bed: Bed) -> None:
    for free in (1.9e9, 2.1e9, 1.9e9, 2.4e9, 1.5e9, 2.1e9):
        bed.health("a", disk_free_bytes=free, clock_offset_ms=0.0)
        bed.rounds(10, alive=("a", "b"))
    assert bed.receiver.said() == ["raised node-disk a"]
    bed.health("a", disk_free_bytes=3e9, clock_offset_ms=0.0)
    bed.rounds(10, alive=("a", "b"))
    bed.health("a", disk_free_bytes=1e9, clock_offset_ms=0.0)
    bed.rounds(10, alive=("a", "b"))
    assert bed.receiver.said() == [
        "raised node-disk a", "cleared node-disk a", "raised node-disk a",
    ]  # fmt: skip


def test_what_a_silent_node_said_last_stays_as_it_was(bed: Bed) -> None:
    bed.health("a", disk_free_bytes=1e9, clock_offset_ms=-250.0)
    bed.rounds(2, alive=("b",))
    bed.rounds(200, alive=("b",))
    expected = [("node-silent", "a"), ("node-clock", "a"), ("node-disk", "a")]
    assert bed.firing() == expected
    assert len(bed.receiver.taken) == 3
    with bed.at.writing(ADMIN) as ctx:
        nodes.delete(ctx, "a")
    bed.rounds(1, alive=("b",))
    assert bed.firing() == []
    assert sum(each.startswith("cleared") for each in bed.receiver.said()) == 3


def test_a_release_that_does_not_run_on_a_node_is_told_of_once(bed: Bed) -> None:
    def told(state: str, why: str = "") -> None:
        update = {"release": "1.2", "state": state, "why": why} if state else None
        bed.health("a", update=update)
        bed.rounds(6, alive=("a", "b"))

    for state in ("not-allowed", "loading", "trial"):
        told(state)
    assert bed.receiver.said() == []
    # It stays until the release runs: another trial is no end of it.
    for state in ("went-back", "ready", "trial", "went-back"):
        told(state, f"release 1.2 is {state}")
    assert bed.receiver.said() == ["raised node-update a"]
    assert bed.receiver.taken[0][1]["message"] == "a: release 1.2 is went-back"
    told("current")
    assert bed.receiver.said() == ["raised node-update a", "cleared node-update a"]
    # The administrator withdraws a release that failed or was refused.
    for state in ("failed", "", "refused", ""):
        told(state, "x" * 5000)
    assert bed.receiver.said()[2:] == ["raised node-update a", "cleared node-update a"] * 2
    assert len(bed.receiver.taken[2][1]["message"]) < 400
    # Damage in a report is no trouble of the orchestrator.
    for update in ("failed", {"state": ["failed"]}, {"state": "failed"}, 7):
        bed.health("a", update=update)
        bed.rounds(6, alive=("a", "b"))
    assert bed.receiver.said()[6:] == ["raised node-update a", "cleared node-update a"]


def test_certificates_near_their_end_are_told_of(bed: Bed) -> None:
    bed.at.pass_s(77 * _DAY)
    bed.restart()
    bed.rounds(2, alive=("a", "b"))
    assert sorted(bed.firing()) == [("node-certificate", "a"), ("node-certificate", "b")]
    with bed.at.writing(ITSELF) as ctx:
        accounts.register_certificate(ctx, "a", b"n" * 32, ctx.now_ns + round(90 * _DAY) * S)
    bed.rounds(10, alive=("a", "b"))
    assert bed.firing() == [("node-certificate", "b")]
    for days, kind in ((740, "server-certificate"), (2830, "authority-certificate")):
        bed.at.pass_s(days * _DAY)
        bed.rounds(1)
        assert (kind, "") in bed.firing()


def test_the_latest_backup_may_be_too_old(bed: Bed) -> None:
    bed.rounds(2, alive=("a", "b"))
    assert bed.firing() == [], "without a backup its age is not known"
    file = bed.at.orchestrator.directory / LAST_BACKUP
    file.touch()
    now_s = bed.at.now_ns // S
    import os

    os.utime(file, (now_s - 9 * _DAY, now_s - 9 * _DAY))
    bed.rounds(2, alive=("a", "b"))
    assert bed.firing() == [("backup", "")]
    os.utime(file, (now_s, now_s))
    bed.rounds(10, alive=("a", "b"))
    assert bed.receiver.said() == ["raised backup ", "cleared backup "]


def test_failing_housekeeping_and_pages_are_told_of(bed: Bed) -> None:
    bed.failed_pages = 3
    bed.rounds(2, has_failed=True, alive=("a", "b"))
    assert bed.firing() == [("pages", "")]
    bed.rounds(1, has_failed=True, alive=("a", "b"))
    assert sorted(bed.firing()) == [("housekeeping", ""), ("pages", "")]
    bed.failed_pages = 0
    bed.rounds(10, alive=("a", "b"))
    assert bed.firing() == []


def test_a_database_that_fails_is_told_of_without_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.rounds(1, alive=("a", "b"))
    bed.receiver.taken.clear()

    def fail(*_: Any) -> Any:
        raise RunError("the testbed's database: disk I/O error")

    monkeypatch.setattr(Orchestrator, "reading", fail)

    async def act() -> None:
        for _ in range(10):
            await bed.watch.look(has_failed=True)
            with pytest.raises(RunError):
                await bed.sender.send_due()

    asyncio.run(act())
    assert bed.receiver.said() == ["raised housekeeping "]
    assert "disk I/O error" in bed.receiver.taken[0][1]["message"]
    monkeypatch.undo()
    bed.rounds(20, alive=("a", "b"))
    assert bed.receiver.said() == ["raised housekeeping ", "cleared housekeeping "]


def test_a_webhook_gets_its_messages_in_order_after_an_outage(bed: Bed) -> None:
    with bed.at.writing(ADMIN) as ctx:
        webhooks.put(ctx, api.PutWebhook(name="dead", url="http://dead.test/"))
    bed.receiver.refuses = {"http://dead.test/": "status 503"}
    bed.rounds(70, alive=("b",))
    bed.rounds(30, alive=("a", "b"))
    assert bed.receiver.said() == ["raised node-silent a", "cleared node-silent a"]
    with bed.at.orchestrator.reading(ADMIN) as ctx:
        (dead, ops) = webhooks.listing(ctx)
    assert (dead.name, dead.waiting, dead.error) == ("dead", 2, "status 503")
    assert (ops.waiting, ops.error, ops.has_secret) == (0, "", True)
    assert dead.url == "http://dead.test/…"
    # Ten minutes have passed: the waits are 10 s, 30 s, 90 s and 270 s.
    assert 4 <= bed.receiver.attempts.count("http://dead.test/") <= 5
    bed.receiver.refuses = {}
    bed.receiver.taken.clear()
    bed.rounds(60, alive=("a", "b"))
    assert bed.receiver.said() == ["raised node-silent a", "cleared node-silent a"]


def test_messages_that_are_not_taken_are_given_up(bed: Bed) -> None:
    bed.receiver.refuses = {"https://ops.test/x": "status 500"}
    bed.rounds(70, alive=("b",))
    for _ in range(100):
        bed.at.pass_s(3600)
        bed.rounds(1, alive=("b",))
    with bed.at.orchestrator.reading(ADMIN) as ctx:
        assert webhooks.listing(ctx)[0].waiting == 0
    assert 70 <= len(bed.receiver.attempts) <= 90


def test_a_test_of_a_webhook_shows_its_error(bed: Bed) -> None:
    bed.receiver.refuses = {"https://ops.test/x": "ConnectError: refused"}
    with bed.at.writing(ADMIN) as ctx:
        webhooks.test(ctx, "ops")
    bed.rounds(1, alive=("a", "b"))
    with bed.at.orchestrator.reading(ADMIN) as ctx:
        assert webhooks.listing(ctx)[0].error == "ConnectError: refused"
    bed.receiver.refuses = {}
    bed.rounds(3, alive=("a", "b"))
    assert [message["event"] for _, message in bed.receiver.taken] == ["test"]
    with bed.at.writing(ADMIN) as ctx:
        webhooks.remove(ctx, "ops")
        with pytest.raises(NotFoundError, match="no webhook ops"):
            webhooks.test(ctx, "ops")
        with pytest.raises(NotFoundError, match="no webhook ops"):
            webhooks.remove(ctx, "ops")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "x y"}, "name: "),
        ({"url": "ftp://x.test/"}, "url: expected an address"),
        ({"url": "file:///etc/passwd"}, "url: expected an address"),
        ({"url": "https://"}, "url: expected an address"),
        ({"url": "https://x.test:99999/"}, "url: expected an address"),
        ({"url": "https://x.test/\nhost: y"}, "url: expected an address"),
        ({"url": "https://x.test/" + "a" * 2000}, "url: expected an address"),
        ({"secret": "a\nb"}, "secret: expected printable"),
        ({"secret": "ü"}, "secret: expected at most"),
        ({"secret": "a" * 501}, "secret: expected at most"),
    ],
)
def test_wrong_webhooks_are_refused(bed: Bed, values: dict[str, str], said: str) -> None:
    asked = api.PutWebhook(**{"name": "x", "url": "https://x.test/", **values})
    with bed.at.writing(ADMIN) as ctx, pytest.raises(InputError, match=said):
        webhooks.put(ctx, asked)


def test_owners_see_the_alerts_of_their_nodes(bed: Bed) -> None:
    bed.failed_pages = 3
    bed.health("a", disk_free_bytes=1e9)
    bed.rounds(1, alive=("a", "b"))
    with bed.at.orchestrator.reading(ANN) as ctx:
        assert [each.kind for each in alerts.listing(ctx)] == ["node-disk"]
    with bed.at.orchestrator.reading(BOB) as ctx:
        assert alerts.listing(ctx) == []
        # The list of nodes marks trouble for every user.
        marked = {each.name: each.alerts for each in nodes.listing(ctx)}
    assert marked == {"a": ["node-disk"], "b": [], "s": []}


def test_a_database_of_the_first_version_gets_the_new_tables(tmp_path: Path) -> None:
    file = tmp_path / "testbed.sqlite"
    open_database(file).close()
    new = {"alert", "webhook", "delivery"}
    with closing(sqlite3.connect(file)) as old:
        for name in sorted(new, reverse=True):
            old.execute(f"DROP TABLE {name}")
        old.execute("INSERT INTO user (name, full_name, team, role, created_ns, disabled) "
                    "VALUES ('ann', '', '', 'user', 1, 0)")  # fmt: skip
        old.execute("PRAGMA user_version = 1")
        old.commit()
    database = open_database(file)
    with database.reading() as connection:
        assert new <= set(sa.inspect(connection).get_table_names())
        assert connection.scalars(sa.select(tables.user.c.name)).all() == ["ann"]
    database.close()


# --- over HTTP ---


class _Handler(http.server.BaseHTTPRequestHandler):
    seen: list[tuple[str, bytes]]
    status = 200

    def do_POST(self) -> None:
        """Take a message, with a long response."""
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).seen.append((self.headers.get("authorization", ""), body))
        self.send_response(self.status)
        self.send_header("location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"x" * 100_000)

    def log_message(self, *_: Any) -> None:
        """Print nothing about a request."""


@pytest.mark.integration
@pytest.mark.parametrize(("status", "said"), [(204, ""), (302, "status 302"), (500, "status 500")])
def test_a_message_is_one_post(status: int, said: str) -> None:
    handler = type("Handler", (_Handler,), {"seen": [], "status": status})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/x"
        found = asyncio.run(post(url, {"authorization": "Bearer t"}, b"{}"))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (found, handler.seen) == (said, [("Bearer t", b"{}")])  # type: ignore[attr-defined]
    assert asyncio.run(post(url, {}, b"{}")).startswith("ConnectError")


# --- metrics ---


def test_metrics_are_open_metrics_with_a_token(bed: Bed) -> None:
    bed.health("a", disk_free_bytes=1e9, clock_offset_ms=-250.0, load=0.5)
    at = bed.at.orchestrator
    numbers = {"agents": metrics.PortNumbers(3, 9, {"displaced": 4})}
    made = metrics.Metrics(at, lambda: numbers, lambda: 2)
    bed.rounds(1, alive=("a", "b"))
    token = metrics.read_token(at.directory)
    assert token == metrics.read_token(at.directory)
    assert (at.directory / metrics.TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    client = TestClient(metrics.make_app(made, token))
    for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": token}):
        assert client.get("/metrics", headers=wrong).status_code == 401
    answer = client.get("/metrics", headers={"authorization": f"Bearer {token}"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    found = {
        (sample.name.removeprefix("skyhop_testbed_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    expected = {
        ("nodes", "online"): 2, ("nodes", "offline"): 1, ("node_disk_free_bytes", "a"): 1e9,
        ("node_clock_offset_seconds", "a"): -0.25, ("node_last_seen_age_seconds", "b"): 0,
        ("node_load", "a"): 0.5, ("runs", "planned"): 0, ("alerts", "node-disk"): 1,
        ("alerts", "node-clock"): 1, ("connections", "agents"): 3,
        ("connections_accepted_total", "agents"): 9, ("waiting_messages",): 0,
        ("connections_ended_total", "agents", "displaced"): 4, ("page_process_starts_total",): 2,
        ("certificate_expiry_timestamp_seconds", "server"):
            at.authority.signing.certificate.not_valid_before_utc.timestamp() + 600 + 825 * _DAY,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert found["write_seconds_count",] >= 4
    assert found["database_bytes",] > 10_000
