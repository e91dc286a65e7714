"""The testbed's web pages over a real orchestrator: permissions, refusals, forms and rendering."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient
from test_testbed_maps import seen
from testbed_harness import StandingClock, event

from damaged import Trial
from needs import missing
from skyhop.errors import InputError, RunError
from skyhop.telemetry.maps import recorded_map
from skyhop_testbed import api
from skyhop_testbed.orchestrator import accounts, alerts, jobs, nodes, runs, webhooks
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.page_port import PagePort
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller
from skyhop_testbed.states import Change
from skyhop_testbed.store import tables
from skyhop_testbed.web import drawings, figure, reasons
from skyhop_testbed.web.app import make_app
from skyhop_testbed.web.drawings import Drawings
from skyhop_testbed.web.guard import LARGEST_FORM
from skyhop_testbed.web.map import node_map
from skyhop_testbed.web.plots import Chart, Line
from skyhop_testbed.web.recent import RecentTelemetry, columns
from skyhop_testbed.web.toml import to_toml
from skyhop_testbed.words import Reason, Role, Side, State

S = 10**9
HOUR = 3600 * S
NOW = 1_796_040_000 * S
"""2026-11-30 12:00 UTC."""
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
STATIC = Path(str(files("skyhop_testbed.web"))) / "static"


def job(name: str, when: str, more: str = "", run: str = "") -> str:
    return (
        f'id = "{name}"\nnodes = ["bcn-1"]\nlength = "10 min"\n{more}\n[when]\n{when}\n'
        f'[run]\nclient = ["ping", "-c", "9", "{{node}}"]\n{run}\n'
    )


@dataclass
class Testbed:
    """An orchestrator with users, nodes, jobs and a run with files; its clock stands still."""

    __test__ = False
    directory: Path
    orchestrator: Orchestrator
    clock: StandingClock
    tokens: dict[str, str]
    job: str = ""
    run: str = ""
    app: Any = None
    clients: dict[str, TestClient] = field(default_factory=dict)

    @property
    def now_ns(self) -> int:
        """Time of the orchestrator's clock in ns."""
        return self.clock.ns

    @now_ns.setter
    def now_ns(self, ns: int) -> None:
        self.clock.ns = ns

    def client(self, name: str = "") -> TestClient:
        """Return the client of a logged-in user, or one without a session."""
        if name not in self.clients or not name:
            client = TestClient(
                self.app,
                base_url="https://testserver",
                follow_redirects=False,
                raise_server_exceptions=True,
                client=(f"10.0.0.{len(self.clients) % 250}", 4000),
            )
            if name:
                assert log_in(client, self.tokens[name]).status_code == 303
            self.clients[name] = client
        return self.clients[name]

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table that forms write."""
        chosen = (tables.job, tables.run, tables.credential, tables.user, tables.node)
        with self.orchestrator.reading(ITSELF) as ctx:
            return {
                table.name: ctx.connection.scalar(sa.select(sa.func.count()).select_from(table))
                or 0
                for table in chosen
            }


def csrf(html: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', html)
    assert found, html[:500]
    return found[1]


def log_in(client: TestClient, token: str) -> Any:
    page = client.get("/login")
    return client.post("/login", data={"csrf": csrf(page.text), "token": token})


def post(client: TestClient, path: str, page: str = "/me", /, **values: Any) -> Any:
    """Submit a form with the CSRF token of a page of the same session."""
    return client.post(path, data={"csrf": csrf(client.get(page).text), **values})


def fill(directory: Path) -> Testbed:
    clock = StandingClock(NOW)
    orchestrator = Orchestrator(directory, ["localhost", "127.0.0.1"], clock=clock)
    bed = Testbed(directory, orchestrator, clock, {})
    token = orchestrator.create_first_administrator()
    assert token is not None
    bed.tokens["admin"] = token
    with orchestrator.writing(ITSELF) as ctx:
        for name, role in (("ann", "user"), ("bob", "user-priv"), ("cem", "user")):
            accounts.put_user(ctx, api.PutUser(name=name, role=role, full_name=f"{name} {HOSTILE}"))
            bed.tokens[name] = accounts.issue(ctx, accounts.TOKEN, of_user=name, label=HOSTILE)
        place: dict[str, Any] = {"latitude_deg": 41.41, "longitude_deg": 2.1}
        about = {"description": HOSTILE, "provider": HOSTILE, **place}
        nodes.put(ctx, api.PutNode(name="bcn-1", owner="ann", **about))
        nodes.put(ctx, api.PutNode(name="ams-1", address="192.0.2.7"))
        nodes.set_policy(ctx, "bcn-1", {"programs": ["ping", "only-its-owner-reads-this"]})
    _add_job(bed, directory)
    bed.app = make_app(orchestrator, PagePort(orchestrator))
    return bed


def _add_job(bed: Testbed, directory: Path) -> None:
    described = f"description = {json.dumps(HOSTILE)}"
    with bed.orchestrator.writing(Caller("bob", Role.USER_PRIV)) as ctx:
        made = jobs.submit(ctx, job("pings", 'cron = "0 * * * *"', described), {}, directory)
        armed = 'trigger = "tilt > 3"\nend = "2026-12-08T00:00:00Z"'
        trigger = jobs.submit(ctx, job("tilted", armed), {}, directory)
        first = runs.listing(ctx, of_job=made.id, limit=1000)[-1]
    bed.job, bed.run = made.id, first.id
    bed.now_ns = first.start_ns + 60 * S
    with bed.orchestrator.writing(Caller("bcn-1", Role.NODE)) as ctx:
        row = runs.get(ctx, bed.run)
        for state in (State.CLAIMED, State.DEPLOYING, State.EXECUTING, State.FINISHING):
            runs.apply(ctx, runs.get(ctx, bed.run), Change(bed.now_ns, state, "node:bcn-1"))
        said = Change(bed.now_ns, State.FAILED, "node:bcn-1", Reason.EXIT, {"text": HOSTILE})
        runs.apply(ctx, runs.get(ctx, bed.run), said)
        told = {"job": trigger.id, "fired": False, "why": f"busy {HOSTILE}"}
        health = {"version": HOSTILE, "programs": [HOSTILE], "kernel": {"release": HOSTILE}}
        events = [("trigger", told), ("health", health), ("scavenger", {"active": True})]
        numbered = [event(n, bed.now_ns, k, json.dumps(b)) for n, (k, b) in enumerate(events, 1)]
        nodes.report(ctx, numbered)
    contents = {"stdout": f"seq=1 {HOSTILE}\n".encode(), "page.html": HOSTILE.encode()}
    listed = []
    for name, content in contents.items():
        bed.orchestrator.uploads.write_piece(bed.run, "client", name, 0, content)
        digest = hashlib.sha256(content).hexdigest()
        listed.append({"name": name, "size": len(content), "sha256": digest})
    manifest = json.dumps({"files": listed}).encode()
    bed.orchestrator.uploads.write_piece(bed.run, "client", "manifest.json", 0, manifest)
    with bed.orchestrator.writing(ITSELF) as ctx:
        assert bed.orchestrator.uploads.complete(ctx, row, "client")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Return a shared testbed that tests only read; tests that change it use `own`."""
    made = fill(tmp_path_factory.mktemp("testbed"))
    yield made
    made.orchestrator.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Testbed:
    """Return a closed testbed, from which `own` copies."""
    made = fill(tmp_path_factory.mktemp("filled"))
    made.orchestrator.close()
    return made


@pytest.fixture
def own(filled: Testbed, tmp_path: Path) -> Iterator[Testbed]:
    """Return a copy of the testbed that a test may change."""
    directory = shutil.copytree(filled.directory, tmp_path / "testbed")
    clock = StandingClock(filled.now_ns)
    orchestrator = Orchestrator(directory, ["localhost", "127.0.0.1"], clock=clock)
    made = replace(
        filled,
        directory=directory,
        orchestrator=orchestrator,
        clock=clock,
        app=make_app(orchestrator, PagePort(orchestrator)),
        clients={},
    )
    yield made
    orchestrator.close()


# --- what is wrong


def test_a_failed_run_says_why_and_shows_its_details_once(own: Testbed) -> None:
    traffic = {"rx_bytes": 12_345_678, "tx_bytes": 999}
    result = {"exit": 3, "traffic": traffic, "began_ns": S, "ended_ns": 3 * S, "partial": False}
    with own.orchestrator.writing(Caller("bob", Role.USER_PRIV)) as ctx:
        made = jobs.submit(ctx, job("fails", 'at = "2026-11-30T12:30:00Z"'), {}, own.directory)
        run = runs.listing(ctx, of_job=made.id)[0].id
    own.now_ns += HOUR // 2
    states = (State.CLAIMED, State.EXECUTING, State.FINISHING, State.FAILED)
    with own.orchestrator.writing(Caller("bcn-1", Role.NODE)) as ctx:
        for state in states:
            details = result if state in states[2:] else {}
            reason = Reason.EXIT if state is State.FAILED else None
            change = Change(own.now_ns, state, "node:bcn-1", reason, details)
            runs.apply(ctx, runs.get(ctx, run), change)
    page = own.client("bob").get(f"/runs/{run}").text
    for raw in ("began_ns", "partial", "rx_bytes", "traffic:"):
        assert raw not in page, raw
    for said in ("exit status 3", "received 12.3 MB, sent 999 byte", "ran for 2.0 s"):
        assert page.count(said) == 1, said
    assert "The program ended with an error; its output says more." in page
    # The run of the fixture has left its output.
    page = own.client("bob").get(f"/runs/{own.run}").text
    assert f'<a href="/runs/{own.run}/log/client/stdout">stdout of the client</a>' in page
    assert "stdout of the client" not in own.client("ann").get(f"/runs/{own.run}").text


def test_every_reason_has_a_sentence() -> None:
    assert set(reasons._SENTENCES) == set(Reason)


def test_a_failed_server_leads_to_its_output() -> None:
    common: dict[str, Any] = {"id": "R", "job": "J", "client": "c", "server": "s", "spec": {}}
    run = api.RunDocument.model_construct(
        **common, state=State.FAILED, reason=Reason.SERVER, events=[], files=[]
    )
    files = [
        api.RunFile.model_construct(side=side, name=name, size=size)
        for side, name, size in (
            (Side.SERVER, "stdout", 5), (Side.SERVER, "stderr", 7), (Side.CLIENT, "stderr", 0),
            (Side.CLIENT, "stdout", 1), (Side.CLIENT, "other", 9),
        )
    ]  # fmt: skip
    found = reasons.why(run, files)
    assert found
    assert [label for label, _ in found.links] == [
        "stderr of the server", "stdout of the server", "the server's node s",
        "stdout of the client", "the node c",
    ]  # fmt: skip
    whole = run.model_copy(update={"state": State.COMPLETE, "reason": None})
    assert reasons.why(whole, files) is None


def test_trouble_is_on_the_list_of_nodes_and_the_overview(own: Testbed) -> None:
    health = {"version": "0.1.0", "disk_free_bytes": 1.5e9, "clock_offset_ms": -250.0, "load": 0.25}
    with own.orchestrator.writing(Caller("bcn-1", Role.NODE)) as ctx:
        nodes.report(ctx, [event(9, own.now_ns, "health", json.dumps(health))])
    with own.orchestrator.writing(ITSELF) as ctx:
        accounts.register_certificate(ctx, "bcn-1", b"d" * 32, ctx.now_ns + 90 * 24 * HOUR)
        facts = alerts.Facts(ctx.now_ns, 10**12, 2**62, 2**62, failed_pages=3)
        alerts.update(ctx, alerts.findings(ctx, facts))
        webhooks.put(ctx, api.PutWebhook(name="ops", url="https://ops.test/secret-part"))
    listed = own.client("cem").get("/nodes").text
    for said in ('<tr class="trouble">', ">disk</span>", ">clock</span>", "1.5 GB", "-250.0 ms",
                 "0.25", "0.1.0"):  # fmt: skip
        assert said in listed, said
    assert listed.count('class="trouble"') == 1
    overview = {name: own.client(name).get("/").text for name in ("admin", "ann", "cem")}
    assert "the process of the web pages ends again" in overview["admin"]
    assert "1.5 GB of disk space are free" in overview["ann"]
    assert "the process of the web pages" not in overview["ann"]
    assert "Alerts" not in overview["cem"]
    page = own.client("admin").get("/admin").text
    assert "https://ops.test/…" in page
    assert "secret-part" not in page
    for html in (listed, page, *overview.values()):
        Checker(html)


# --- permissions

USER_PAGES = [
    "/", "/?region=asia", "/nodes", "/nodes?active=1", "/nodes/bcn-1", "/nodes/ams-1", "/calendar",
    "/calendar?node=bcn-1&length=30", "/calendar?from=2027-01-01", "/submit",
    "/submit?node=bcn-1&at=2026-12-01T00:00:00Z&length=5+min", "/jobs", "/jobs?ended=1&node=bcn-1",
    "/runs", "/runs?state=ended&job=pings&page=0&from=2026-11-01", "/triggers", "/me",
]  # fmt: skip
ADMIN_PAGES = [
    "/admin", "/admin/users", "/admin/users?edit=ann", "/admin/nodes", "/admin/nodes?edit=bcn-1",
    "/admin/config", "/admin/audit", "/admin/audit?who=bob",
]  # fmt: skip


def pages_of(bed: Testbed, name: str) -> list[str]:
    """Return all pages that a user may see."""
    pages = [*USER_PAGES]
    if name != "cem":
        pages += [f"/jobs/{bed.job}", f"/runs/{bed.run}", f"/runs/{bed.run}/state"]
    if name in ("bob", "admin"):
        pages += [f"/jobs/{bed.job}/modify", f"/runs/{bed.run}/log/client/stdout"]
    return pages + (ADMIN_PAGES if name == "admin" else [])


@pytest.mark.parametrize("name", ["admin", "ann", "bob", "cem"])
def test_each_role_sees_its_pages_and_no_others(bed: Testbed, name: str) -> None:
    client, mine = bed.client(name), pages_of(bed, name)
    for page in pages_of(bed, "admin"):
        answer = client.get(page)
        assert answer.status_code == (200 if page in mine else 403), page
        if page not in mine and not page.startswith("/admin"):
            assert "not yours" in answer.text


def test_a_client_without_a_session_is_sent_to_log_in(bed: Testbed) -> None:
    client = bed.client()
    for page in pages_of(bed, "admin"):
        answer = client.get(page)
        path = page.partition("?")[0]
        assert answer.status_code == 303, page
        assert answer.headers["location"] == ("/login" if path == "/" else f"/login?next={path}")
        assert "bcn-1" not in answer.text
    assert client.get("/nodes/bcn-1/live.json").status_code == 401
    assert client.post("/jobs/x/cancel").status_code == 401
    assert client.get("/login").status_code == 200


def test_policy_and_scavenger_forms_are_shown_to_the_owner_alone(bed: Testbed) -> None:
    shown = {name: bed.client(name).get("/nodes/bcn-1").text for name in ("ann", "admin", "bob")}
    for name, html in shown.items():
        owns = name != "bob"
        assert ("only-its-owner-reads-this" in html) is owns
        assert ("Set the mode" in html) is owns
        assert ("began: runs yield" in html) is owns
    # Only the user sees a run's output; the node's owner sees that there was a run.
    host, user = (bed.client(n).get(f"/runs/{bed.run}").text for n in ("ann", "bob"))
    assert "seq=1" in user
    assert "page.html" in user
    assert "seq=1" not in host
    assert "page.html" not in host
    assert "failed" in host


def test_pages_that_are_not_there_say_so_in_a_line(bed: Testbed) -> None:
    client = bed.client("admin")
    for page in ("/nodes/none", "/jobs/none", "/runs/none", f"/runs/{'0' * 26}", "/nowhere"):
        answer = client.get(page)
        assert answer.status_code == 404
        assert "Traceback" not in answer.text
        assert 'role="alert"' in answer.text
    assert client.get("/jobs/none/cancel").status_code == 405
    for damaged in ("/runs?page=x", "/calendar?from=9999-99-99", "/calendar?length=-1",
                    "/runs?from=0001-01-01&to=9999-12-31", "/?region=%00"):  # fmt: skip
        assert client.get(damaged).status_code == 200, damaged


# --- refusals


def test_forms_without_the_sessions_token_are_refused(own: Testbed) -> None:
    client, other = own.client("bob"), own.client("ann")
    before = own.rows()
    foreign = csrf(other.get("/me").text)
    forms = [
        ("/jobs/" + own.job + "/cancel", {}), ("/runs/" + own.run + "/abort", {}),
        ("/runs/" + own.run + "/reschedule", {}),
        ("/me/tokens", {"label": "x", "days": "1"}), ("/logout", {}), ("/submit", {"toml": "x"}),
        ("/look", {"look": "dark"}),
    ]  # fmt: skip
    for path, values in forms:
        for token in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": foreign}, {"csrf": "ü"}):
            answer = client.post(path, data={**values, **token})
            assert answer.status_code == 403, (path, token)
    good = csrf(client.get("/me").text)
    elsewhere = ({"origin": "https://elsewhere.example"}, {"sec-fetch-site": "cross-site"},
                 {"origin": "null"}, {"origin": "null", "sec-fetch-site": "same-site"})  # fmt: skip
    for headers in elsewhere:
        answer = client.post("/logout", data={"csrf": good}, headers=headers)
        assert answer.status_code == 403
    assert own.rows() == before
    assert client.get("/").status_code == 200
    # htmx sends the token in a header.
    checked = client.post(
        "/submit/check",
        data={"toml": job("x", 'at = "now"')},
        headers={"x-csrf-token": good, "hx-request": "true"},
    )
    assert checked.status_code == 200
    assert "<html" not in checked.text


def test_every_form_holds_the_token(bed: Testbed) -> None:
    for name in ("admin", "bob"):
        for page in pages_of(bed, name):
            for form in re.findall(r"<form.*?</form>", bed.client(name).get(page).text, re.S):
                if 'method="post"' in form:
                    assert 'name="csrf" value="' in form, (page, form[:200])


def test_sessions_end_by_time_by_logging_out_and_with_their_user(own: Testbed) -> None:
    client = own.client("bob")
    cookie = client.cookies["__Host-skyhop"]
    assert own.client("cem").get("/").status_code == 200
    assert own.client("ann").get("/").status_code == 200
    answer = post(client, "/logout")
    assert answer.headers["location"] == "/login"
    kept = TestClient(own.app, base_url="https://testserver", follow_redirects=False)
    kept.cookies.set("__Host-skyhop", cookie)
    assert kept.get("/").status_code == 303, "a stolen cookie is invalid after the log-out"
    with own.orchestrator.writing(ITSELF) as ctx:
        accounts.put_user(ctx, api.PutUser(name="cem", disabled=True))
    assert own.client("cem").get("/").status_code == 303
    own.now_ns += 12 * HOUR - S
    assert own.client("ann").get("/").status_code == 200
    own.now_ns += 2 * S
    assert own.client("ann").get("/").status_code == 303


def test_cookies_are_for_this_server_over_tls_and_not_for_scripts(bed: Testbed) -> None:
    client = bed.client()
    page = client.get("/login")
    answer = client.post("/login", data={"csrf": csrf(page.text), "token": bed.tokens["cem"]})
    for header in [*page.headers.get_list("set-cookie"), *answer.headers.get_list("set-cookie")]:
        assert header.startswith("__Host-")
        for word in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
            assert word in header
    assert bed.tokens["cem"] not in str(answer.headers)


def test_logging_in_is_refused_without_a_token_and_when_tried_too_often(own: Testbed) -> None:
    client = own.client()
    assert client.post("/login", data={"token": own.tokens["ann"]}).status_code == 403
    statuses = [log_in(client, f"guess {n}").status_code for n in range(12)]
    assert statuses[:10] == [401] * 10
    assert statuses[10:] == [429] * 2
    assert log_in(client, own.tokens["ann"]).status_code == 429
    assert own.client("ann").get("/").status_code == 200, "others may still"
    own.now_ns += 60 * S
    answer = log_in(client, own.tokens["ann"])
    assert answer.status_code == 303
    # A session's secret is not accepted as a token, nor a token as a session.
    session = client.cookies["__Host-skyhop"]
    assert log_in(own.client(), session).status_code == 401


@pytest.mark.parametrize("goal", ["//evil.example", "https://evil.example", "/\\evil", "/\n/x"])
def test_the_redirect_after_log_in_stays_on_this_site(bed: Testbed, goal: str) -> None:
    client = bed.client()
    page = client.get("/login", params={"next": goal})
    answer = client.post(
        "/login", data={"csrf": csrf(page.text), "token": bed.tokens["cem"], "next": goal}
    )
    assert answer.headers["location"] == "/"


def test_answers_forbid_what_pages_do_not_need(bed: Testbed) -> None:
    client = bed.client("admin")
    for page in ("/", "/nodes/bcn-1", "/nowhere", "/nodes/bcn-1/live.json"):
        headers = client.get(page).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
    assert "max-age" in client.get("/static/page.css").headers["cache-control"]


def test_requests_that_bring_too_much_are_refused(bed: Testbed) -> None:
    client = bed.client("bob")
    assert post(client, "/me", full_name="x" * LARGEST_FORM).status_code == 413
    token = csrf(client.get("/me").text)

    def pieces() -> Iterator[bytes]:
        yield f"csrf={token}&full_name=".encode()
        for _ in range(40):
            yield b"x" * 20_000

    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/me", content=pieces(), headers=form).status_code == 413
    assert client.get("/runs?job=" + "x" * 5000).status_code == 414


def test_a_fault_is_told_in_a_line_and_says_nothing_else(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError("the secret of the state directory")

    monkeypatch.setattr(runs, "listing", broken)
    answer = bed.client("bob").get("/runs")
    assert answer.status_code == 500
    assert "internal error of the testbed" in answer.text
    assert "secret" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


# --- actions


def test_a_job_in_the_way_of_another_is_not_submitted_and_told_a_time(own: Testbed) -> None:
    client, before = own.client("cem"), own.rows()
    start = own.now_ns // HOUR * HOUR + HOUR
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start // S + 300))
    text = job("mine", f'at = "{at}"')
    answer = post(client, "/submit", toml=text)
    assert answer.status_code == 409
    assert "bob's job <b>pings</b>" in answer.text
    assert "1 conflict" in answer.text
    assert own.rows() == before
    slot = re.search(r'name="use_at" value="(\d+)"', answer.text)
    assert slot is not None
    assert int(slot[1]) == start + 600 * S, "pings takes ten minutes of each hour"
    filled = post(client, "/submit/fill", toml=text, use_at=slot[1])
    again = re.search(r"<textarea[^>]*>(.*?)</textarea>", filled.text, re.S)
    assert again is not None
    assert "It can be submitted" in filled.text
    accepted = post(client, "/submit", toml=again[1].replace("&#34;", '"'))
    assert accepted.status_code == 303
    assert own.rows()["job"] == before["job"] + 1
    shown = client.get(accepted.headers["location"])
    assert "is accepted" in shown.text
    cancelled = post(client, accepted.headers["location"].partition("?")[0] + "/cancel")
    assert cancelled.status_code == 303
    assert "cancelled" in client.get(cancelled.headers["location"]).text


def test_the_small_form_writes_the_file_that_the_job_needs(own: Testbed) -> None:
    client = own.client("cem")
    values = {"id": "flow", "nodes": "bcn-1", "length": "2 min", "client": "iperf3 -c '{server} x'",
              "server": "ams-1", "serve": "iperf3 -s", "kind": "cron", "cron": "30 4 * * *",
              "light": "yes"}  # fmt: skip
    html = post(client, "/submit/fill", **values).text
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", html, re.S)
    assert text is not None
    spec = jobs.read(text[1].replace("&#34;", '"').replace("&#39;", "'"))
    assert spec.run.client == ["iperf3", "-c", "{server} x"]
    assert (spec.server, spec.overhead, spec.when.cron) == ("ams-1", False, "30 4 * * *")
    assert "no closing quotation" in post(client, "/submit/fill", client="a 'b").text.lower()


def test_a_job_brings_its_files_and_is_changed(own: Testbed) -> None:
    client = own.client("cem")
    text = job("brings", 'cron = "20 3 * * *"', run='files = ["a.py"]')
    values = {"csrf": csrf(client.get("/me").text), "toml": text}
    lacking = client.post("/submit", data=values)
    assert lacking.status_code == 400
    assert "a.py is either not listed there or was not sent" in lacking.text
    sent = {"files": ("a.py", b"print(1)")}
    made = client.post("/submit", data=values, files=sent)
    assert made.status_code == 303
    path = made.headers["location"].partition("?")[0]
    assert "20 3 * * *" in client.get(f"{path}/modify").text
    values["toml"] = text.replace("20 3", "40 3")
    changed = client.post(f"{path}/modify", data=values, files=sent)
    assert changed.status_code == 303
    assert "40 3 * * *" in client.get(changed.headers["location"]).text
    other = own.client("ann")
    assert post(other, f"{path}/modify", toml=text).status_code == 403


def test_owners_set_policy_and_switch_and_others_cannot(own: Testbed) -> None:
    owner, other = own.client("ann"), own.client("cem")
    assert post(owner, "/nodes/bcn-1/scavenger", mode="on").status_code == 303
    assert post(owner, "/nodes/bcn-1/policy", policy="kernel = true").status_code == 303
    wrong = post(owner, "/nodes/bcn-1/policy", policy="nonsense = 1")
    assert wrong.status_code == 400
    assert "nonsense = 1" in wrong.text
    for text in ("[", "x = 9" + "9" * 5000, "a." * 20_000 + "a = 1"):
        assert post(owner, "/nodes/bcn-1/policy", policy=text).status_code == 400, text[:20]
    for path, values in (("scavenger", {"mode": "off"}), ("policy", {"policy": ""})):
        assert post(other, f"/nodes/bcn-1/{path}", **values).status_code == 403
    with own.orchestrator.reading(ITSELF) as ctx:
        node = nodes.document(ctx, "bcn-1")
    assert (node.scavenger_mode, node.policy) == ("on", {"kernel": True})


def test_a_planned_run_is_moved_by_its_user_alone(own: Testbed) -> None:
    text = (
        'id = "later"\nnodes = ["bcn-1"]\nlength = "1 min"\n'
        '[when]\nat = "2099-01-01T00:00:00Z"\n[run]\nclient = ["true"]\n'
    )
    bob = own.client("bob")
    assert post(bob, "/submit", toml=text).status_code == 303
    with own.orchestrator.reading(ITSELF) as ctx:
        (row,) = runs.listing(ctx, of_job="later")
    place = f"/runs/{row.id}"
    assert 'reschedule"' in bob.get(place).text
    # The node's owner sees the run, but may not move it.
    assert 'reschedule"' not in own.client("ann").get(place).text
    assert post(own.client("ann"), f"{place}/reschedule").status_code == 403
    moved = post(bob, f"{place}/reschedule")
    assert moved.status_code == 303
    page = bob.get(moved.headers["location"]).text
    assert "The run is moved; this page shows its replacement." in page
    assert f'href="{place}">the run before it' in page
    assert post(bob, f"{place}/reschedule").status_code == 400


def test_runs_are_stopped_by_their_user_and_their_host_alone(own: Testbed) -> None:
    with own.orchestrator.reading(ITSELF) as ctx:
        ahead = [r.id for r in runs.listing(ctx, states=["planned"], limit=9)]
    assert post(own.client("cem"), f"/runs/{ahead[0]}/abort", why="x").status_code == 403
    assert post(own.client("ann"), f"/runs/{ahead[0]}/abort", why=HOSTILE).status_code == 303
    assert post(own.client("bob"), f"/runs/{ahead[1]}/abort").status_code == 303
    again = post(own.client("bob"), f"/runs/{ahead[1]}/abort")
    assert again.status_code == 400
    assert "has ended" in again.text
    assert "<img" not in own.client("bob").get(f"/runs/{ahead[0]}").text


def test_secrets_are_shown_once_and_never_in_addresses_or_the_log(own: Testbed) -> None:
    client, admin = own.client("cem"), own.client("admin")
    shown = [
        post(client, "/me/tokens", label="laptop", days="30"),
        post(admin, "/admin/users/bob/token"),
        post(admin, "/admin/nodes/bcn-1/invite"),
    ]
    for answer, again in zip(shown, ("/me", "/admin/users", "/admin/nodes"), strict=True):
        assert answer.status_code == 200
        secret = re.search(r'<pre tabindex="0">([\w-]{43})</pre>', answer.text)
        assert secret is not None
        assert secret[1] not in admin.get("/admin/audit").text
        assert secret[1] not in (client if again == "/me" else admin).get(again).text
    token = re.search(r'<pre tabindex="0">([\w-]{43})</pre>', shown[0].text)
    assert token is not None
    assert own.orchestrator.caller_of_token(token[1]).name == "cem"
    listed = client.get("/me").text
    which = re.findall(r'name="which" value="(\w{26})"', listed)
    for each in which:
        post(client, "/me/revoke", which=each)
    assert log_in(own.client(), token[1]).status_code == 401
    assert client.get("/me").status_code == 200, "the session that asked goes on"
    # Another user's token is not revoked.
    theirs = re.findall(r'name="which" value="(\w{26})"', own.client("bob").get("/me").text)
    post(client, "/me/revoke", which=theirs[0])
    assert own.orchestrator.caller_of_token(own.tokens["bob"]).name == "bob"
    assert post(client, "/me/revoke", which="*").status_code == 400


def test_only_administrators_make_users_and_nodes(own: Testbed) -> None:
    admin, other = own.client("admin"), own.client("ann")
    forms: list[tuple[str, dict[str, str]]] = [
        ("/admin/users", {"name": "eve", "role": "user"}),
        ("/admin/nodes", {"name": "osl-2", "owner": "ann", "latitude_deg": "59.91"}),
        ("/admin/users/eve/token", {}), ("/admin/users/eve/revoke", {}),
        ("/admin/nodes/osl-2/invite", {}), ("/admin/users/eve/delete", {}),
        ("/admin/nodes/osl-2/delete", {}),
    ]  # fmt: skip
    for path, values in forms:
        assert post(other, path, **values).status_code == 403, path
        assert post(admin, path, **values).status_code in (200, 303), path
    assert post(admin, "/admin/nodes", name="x", latitude_deg="north").status_code == 400
    assert "last administrator" in post(admin, "/admin/users", name="admin", role="user").text
    log = admin.get("/admin/audit").text
    assert "refused: " in log
    assert "PutUser" in log


def test_files_are_kept_and_not_shown(bed: Testbed) -> None:
    client = bed.client("bob")
    answer = client.get(f"/runs/{bed.run}/file/client/page.html")
    assert answer.status_code == 200
    assert answer.content == HOSTILE.encode()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert "sandbox" in answer.headers["content-security-policy"]
    assert bed.client("ann").get(f"/runs/{bed.run}/file/client/page.html").status_code == 403
    for name in ("%2e%2e/%2e%2e/keys/server.key", "none", "/etc/passwd"):
        assert client.get(f"/runs/{bed.run}/file/client/{name}").status_code == 404
    assert client.get(f"/runs/{bed.run}/file/other/stdout").status_code == 404


def test_a_report_can_do_nothing(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bed.directory / "report.html"
    made.write_text("<h1>report</h1>", "utf-8")
    monkeypatch.setattr(Drawings, "get", lambda _self, _kind, **_asked: made)
    address = f"/runs/{bed.run}/report/client"
    assert bed.client("bob").get(f"{address}/stdout").status_code == 400
    monkeypatch.setattr(
        type(bed.orchestrator.uploads),
        "file",
        lambda _self, _desk, _run, _side, _name: (made, 1, ""),
    )
    answer = bed.client("bob").get(f"{address}/run/summary.json")
    assert answer.text == "<h1>report</h1>"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script" not in policy


# --- HTML and assets

VOID = {"meta", "link", "input", "img", "br", "source", "rect", "line", "circle", "path", "use"}


class Checker(HTMLParser):
    """Parser that checks that tags are closed and that controls have labels."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.controls: list[dict[str, str]] = []
        self.tables = self.captions = 0
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check a start tag and its attributes."""
        values = {name: value or "" for name, value in attrs}
        assert "style" not in values
        assert not [name for name in values if name.startswith("on")], values
        assert tag != "style"
        assert tag != "script" or values.get("src"), "scripts stand in files"
        for name in ("src", "href", "action", "srcset", "formaction", "hx-get", "hx-post"):
            assert values.get(name, "/")[0] in "/#", (tag, values)
            assert not values.get(name, "/").startswith("//"), (tag, values)
        self.ids += [values["id"]] if "id" in values else []
        if tag == "label" and "for" in values:
            self.labelled.add(values["for"])
        self.tables += tag == "table"
        self.captions += tag == "caption"
        is_control = tag in ("select", "textarea") or (
            tag == "input" and values.get("type") != "hidden"
        )
        if is_control and "label" not in self.open:
            self.controls.append(values)
        if tag == "img":
            assert values.get("alt")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        """Check a self-closing tag like a start tag."""
        assert tag in VOID

    def handle_endtag(self, tag: str) -> None:
        """Check that an end tag closes the last open tag."""
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["admin", "bob"])
def test_pages_are_well_formed_labelled_escaped_and_from_here(bed: Testbed, name: str) -> None:
    client = bed.client(name)
    for page in [*pages_of(bed, name), "/nodes/none"]:
        html = client.get(page).text
        checked = Checker(html)
        assert len(checked.ids) == len(set(checked.ids)), page
        for control in checked.controls:
            named = control.get("id") in checked.labelled or control.get("aria-label")
            assert named, (page, control)
        assert checked.tables == checked.captions
        assert "<script>alert" not in html, page
        assert "<img src=x" not in html
    login = Checker(bed.client().get("/login").text)
    assert all(control["id"] in login.labelled for control in login.controls)


def test_hostile_words_are_shown_as_words(bed: Testbed) -> None:
    for page in ("/nodes", f"/jobs/{bed.job}", f"/runs/{bed.run}", "/triggers", "/me"):
        assert "&lt;script&gt;alert(1)" in bed.client("bob").get(page).text, page


def test_assets_load_nothing_from_elsewhere() -> None:
    for file in STATIC.rglob("*.*s"):
        text = re.sub(r"/\*.*?\*/", "", file.read_text("utf-8"), flags=re.S)
        assert not re.search(r"url\(|@import|(src|href)\s*=\s*.https?:", text), file
        assert not re.search(r"https?://(?!www\.w3\.org)", text), file
        assert file.stat().st_size < 200_000


def test_third_party_files_match_their_table() -> None:
    table = (STATIC / "third-party" / "README.md").read_text("utf-8")
    told = dict(re.findall(r"\| `([^`]+)` \|.*`([0-9a-f]{64})` \|", table))
    there = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (STATIC / "third-party").iterdir()
        if file.suffix in (".js", ".css")
    }
    assert told == there


def test_light_and_dark_are_chosen_without_a_script(bed: Testbed) -> None:
    client = bed.client("cem")
    assert 'data-look="' not in client.get("/").text
    answer = post(client, "/look", look="dark", here="/nodes")
    assert answer.headers["location"] == "/nodes"
    assert 'data-look="dark"' in client.get("/").text
    post(client, "/look", look="auto", here="//evil")
    assert 'data-look="' not in client.get("/").text


# --- telemetry, figures, maps


def samples(begin_ns: int, count: int) -> list[dict[str, object]]:
    return [
        {"time_ns": begin_ns + n * S, "pop_ping_latency_ms": 30.0 + n % 7,
         "pop_ping_drop_rate": 0.0, "downlink_throughput_bps": 1e6 * n, "state": HOSTILE}
        for n in range(count)
    ]  # fmt: skip


def test_live_telemetry_is_read_on_and_survives_folding(own: Testbed) -> None:
    own.now_ns = own.now_ns // S * S
    begin = own.now_ns - 100 * S
    own.orchestrator.store_telemetry("bcn-1", samples(begin, 50))
    client = own.client("cem")
    assert len(client.get("/nodes/bcn-1/live.json").json()["time_s"]) == 50
    own.orchestrator.telemetry.close()
    own.orchestrator.store_telemetry("bcn-1", samples(begin + 50 * S, 51))
    found = client.get("/nodes/bcn-1/live.json").json()
    assert found["time_s"] == [begin / S + n for n in range(101)]
    assert found["pop_ping_latency_ms"][8] == 31.0
    assert "user_rx_bps" not in found, "cem does not own the node"
    assert own.client("ann").get("/nodes/bcn-1/live.json").json()["user_rx_bps"] == [None] * 101
    page = client.get("/nodes/bcn-1").text
    assert "31.0 ms" in page
    assert 'class="line k0"' in page, "charts are there without scripts"
    assert "<script>alert" not in page
    own.now_ns += 3600 * S
    assert client.get("/nodes/bcn-1/live.json").json()["time_s"] == []
    assert client.get("/nodes/none/live.json").status_code == 404


def test_a_torn_journal_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    journal = tmp_path / "a" / time.strftime("%Y-%m-%d.jsonl", time.gmtime(NOW // S))
    journal.parent.mkdir()
    lines = [b'{"time_ns": %d}\n' % NOW, b"nonsense\n", b"[]\n", b'{"time_ns": "x"}\n',
             b'{"time_ns": %d, "pop' % (NOW - S)]  # fmt: skip
    journal.write_bytes(b"".join(lines))
    recent = RecentTelemetry(tmp_path)
    assert recent.samples("a", NOW) == [{"time_ns": NOW}]
    with journal.open("ab") as file:
        file.write(b'_ping_latency_ms": 3}\n')
    assert len(recent.samples("a", NOW)) == 2


def test_a_damaged_journal_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    lines = [json.dumps(each) for each in samples(NOW - 5 * S, 5)]
    journal = tmp_path / "a" / time.strftime("%Y-%m-%d.jsonl", time.gmtime(NOW // S))
    journal.parent.mkdir()

    def read(content: bytes) -> None:
        journal.write_bytes(content)
        found = RecentTelemetry(tmp_path).samples("a", NOW)
        json.dumps(columns(found), allow_nan=False)
        if len(found) < 5:
            raise InputError("lines are missing")

    Trial("journal", [("\n".join(lines) + "\n").encode()]).run(read)


@pytest.fixture
def drawn_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make drawings in this process instead of a subprocess; return the kinds that were made."""
    kinds: list[str] = []

    def make(command: list[str], **others: Any) -> subprocess.CompletedProcess[str]:
        asked = json.loads(others["input"])
        kinds.append(asked["kind"])
        figure.make(figure.Query(**asked), Path(command[-1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(drawings.subprocess, "run", make)
    return kinds


def history_of_twenty_minutes(own: Testbed) -> tuple[TestClient, Any]:
    """Store 1,200 samples of a node; return a user's client and the history page."""
    own.now_ns = own.now_ns // (600 * S) * 600 * S
    own.orchestrator.store_telemetry("bcn-1", samples(own.now_ns - 1200 * S, 1200))
    client = own.client("cem")
    page = client.get("/nodes/bcn-1/history?hours=1")
    assert page.status_code == 200
    assert "1,200 samples" in page.text
    return client, page


@pytest.mark.integration
def test_history_is_drawn_by_a_process_of_its_own(own: Testbed) -> None:
    client, _ = history_of_twenty_minutes(own)
    assert "there is no telemetry" in client.get("/nodes/ams-1/history").text


def test_history_is_drawn_once_and_kept(own: Testbed, drawn_here: list[str]) -> None:
    client, page = history_of_twenty_minutes(own)
    assert "Distribution of the latency" in page.text
    Checker(page.text)
    assert client.get("/nodes/bcn-1/history?hours=1").text == page.text
    assert drawn_here == ["series"]
    said = client.get("/nodes/bcn-1/figure/orientation?hours=1")
    assert said.headers["content-type"] == "image/svg+xml"
    assert "direction_azimuth" in said.text
    assert client.get("/nodes/bcn-1/figure/passwd").status_code == 400


def test_a_failed_drawing_is_tried_again_soon(own: Testbed, drawn_here: list[str]) -> None:
    """A failed drawing is repeated after a few seconds, since a new node may have data by then."""
    own.now_ns = own.now_ns // (600 * S) * 600 * S + 30 * S
    client = own.client("cem")
    for _ in range(2):
        assert "there is no telemetry" in client.get("/nodes/ams-1/history").text
    assert drawn_here == ["series"]
    own.orchestrator.store_telemetry("ams-1", samples(own.now_ns - 5 * S, 5))
    own.clock.sleep(4.9)
    assert "there is no telemetry" in client.get("/nodes/ams-1/history").text
    own.clock.sleep(0.2)
    assert "5 samples" in client.get("/nodes/ams-1/history").text
    assert drawn_here == ["series"] * 2


def test_waiting_too_long_for_other_drawings_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Drawings(tmp_path / "drawings", tmp_path, StandingClock(), timeout_s=0.0)
    said: list[str] = []

    def endless(command: list[str], **others: Any) -> None:
        with pytest.raises(RunError, match="busy with other figures") as caught:
            made.get("sky", file="other")
        said.append(str(caught.value))
        raise subprocess.TimeoutExpired(command, others["timeout"])

    monkeypatch.setattr(drawings.subprocess, "run", endless)
    with pytest.raises(RunError, match="took too long to draw"):
        made.get("sky", file="one")
    assert len(said) == 1
    assert [file.name for file in (tmp_path / "drawings").iterdir()] == [".skyhop"]


def test_a_young_nodes_history_fills_its_axis(own: Testbed, drawn_here: list[str]) -> None:
    own.now_ns = own.now_ns // (600 * S) * 600 * S
    own.orchestrator.store_telemetry("bcn-1", samples(own.now_ns - 1200 * S, 1200))
    page = own.client("cem").get("/nodes/bcn-1/history?hours=24").text
    assert drawn_here == ["series"]
    # 1,200 s in 288 bins are of 5 s, not of the 300 s of a whole day.
    assert "each point is the mean of 5 s" in page
    (first, *_, last) = re.findall(
        r'<path class="line k0" d="M([\d.]+) [^"]*L([\d.]+) [^"]*"/>', page
    )
    assert float(first[0]) < 60
    assert float(last[1]) > 300


def test_a_picture_says_that_it_is_drawn_or_why_not(own: Testbed, drawn_here: list[str]) -> None:
    client, page = history_of_twenty_minutes(own)
    assert page.text.count('<p class="drawing" aria-hidden="true">drawing…</p>') == 2
    said = client.get("/nodes/bcn-1/figure/orientation?hours=1").text
    assert "not enough data yet: there is no pop_ping_latency_ms" in " ".join(
        re.findall(r"<text[^>]*>([^<]*)</text>", said)
    )
    assert 'fill="#fff"/>' in said
    assert drawn_here == ["series", "orientation"]


def test_pages_are_shown_while_drawings_are_awaited(
    own: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, begun = threading.Event(), threading.Semaphore(0)

    def wait(*_: Any, **__: Any) -> Path:
        begun.release()
        assert end.wait(60)
        raise InputError("no data")

    monkeypatch.setattr(Drawings, "get", wait)
    client = own.client("cem")
    # One event loop for all requests, as in the service.
    with client:
        waiting = [
            threading.Thread(target=client.get, args=["/nodes/bcn-1/figure/spikes"])
            for _ in range(8)
        ]
        for each in waiting:
            each.start()
        try:
            for _ in range(4):
                assert begun.acquire(timeout=60)
            assert client.get("/nodes").status_code == 200
        finally:
            end.set()
            for each in waiting:
                each.join()


@pytest.mark.usefixtures("drawn_here")
def test_a_reported_obstruction_map_is_drawn(own: Testbed) -> None:
    client = own.client("cem")
    assert "Obstruction map" not in client.get("/nodes/bcn-1/history").text
    assert client.get("/nodes/bcn-1/figure/sky").status_code == 404
    own.orchestrator.telemetry.write_map("bcn-1", recorded_map(seen()))
    page = client.get("/nodes/bcn-1/history")
    Checker(page.text)
    assert "/nodes/bcn-1/figure/sky" in page.text
    drawn = client.get("/nodes/bcn-1/figure/sky")
    assert drawn.headers["content-type"] == "image/png"


def test_names_on_the_map_cover_no_pin_and_no_other_name() -> None:
    listed = [placed(f"node-{n}", 52.0 + n, 4.0 + n % 2) for n in range(6)]
    drawn = node_map([*listed, placed("x", None, None)])
    assert drawn.region == "europe"
    assert drawn.without_place == ["x"]
    assert len({pin.text_y for pin in drawn.sizes[0].pins}) == 6
    all_nodes = [*listed, placed("far", 52.0, -179.0)]
    far = node_map(all_nodes)
    assert far.region == "world"
    assert all(0 <= pin.x <= 720 for pin in far.sizes[0].pins)
    assert "far" in node_map(all_nodes, "europe").elsewhere
    assert 1000 < len(drawn.land) < 60_000


def placed(name: str, latitude_deg: float | None, longitude_deg: float | None) -> api.NodeInfo:
    return api.NodeInfo.model_construct(
        name=name, latitude_deg=latitude_deg, longitude_deg=longitude_deg, online=True
    )


def test_a_line_is_broken_where_nothing_is_known() -> None:
    chart = Chart("t", "u", [0, 1, 2, 3], [Line("a", [1.0, 2.0, None, 3.0])], (0, 3))
    path = chart.sizes[0].paths[0][0]
    assert path.count("M") == 2
    assert chart.sizes[0].y_ticks[0][1] == "0"
    assert Chart("t", "u", [0], [Line("a", [None])], (0, 1)).is_empty


def test_lists_are_written_in_a_line_and_mean_the_same() -> None:
    import tomllib

    values = {"a": ["x, ]", "y\n=", 'q"'], "b": {"c": [1, 2]}, "d": ["z" * 200], "e": [[1], [2]]}
    text = to_toml({**values, "gone": None})
    assert tomllib.loads(text) == values
    assert 'a = ["x, ]", "y\\n=", "q\\""]' in text


# --- in a browser


class Browser:
    """Headless Chromium, controlled over its debugging pipe."""

    def __init__(self, program: str, home: Path) -> None:
        theirs, self._write = os.pipe()
        self._read, ours = os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
                   "--disable-component-update", "--ignore-certificate-errors",
                   "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                   f"--user-data-dir={home}", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *options],
            pass_fds=(theirs, ours),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(ours)
        self._number, self._buffer, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol; return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + 30
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser says nothing"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def go(self, address: str) -> None:
        """Load a page, and wait for its load event."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        self.loaded()

    def loaded(self) -> None:
        """Wait for the load event of a page."""
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        """Evaluate a JavaScript expression; return its value."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[Any]:
        """Return console messages and uncaught exceptions."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        said = [e["params"] for e in self.events if e.get("method") in kinds]
        return [each for each in said if each.get("entry", {}).get("level") != "verbose"]

    def close(self) -> None:
        """Kill the browser and all of its processes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def served(own: Testbed) -> Iterator[str]:
    """Serve the pages over TLS on a free port; return the URL."""
    import uvicorn

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        keys = own.directory / "keys"
        config = uvicorn.Config(
            own.app,
            log_level="warning",
            ssl_keyfile=str(keys / "server.key"),
            ssl_certfile=str(keys / "server.pem"),
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.mark.soak
def test_a_browser_shows_the_pages_without_complaint(own: Testbed, served: str) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        missing("chromium", "there is no chromium")
    own.orchestrator.store_telemetry("bcn-1", samples(own.now_ns - 60 * S, 60))
    home = Path(tempfile.mkdtemp())
    browser = Browser(program, home)
    try:
        browser.go(f"{served}/login")
        assert browser.complaints() == []
        # A real browser sets `Origin` and `Sec-Fetch-Site` of the form itself.
        browser.events.clear()
        browser.value(
            f"document.getElementById('token').value = {json.dumps(own.tokens['admin'])};"
            " document.querySelector('main form button').click()"
        )
        browser.loaded()
        assert browser.value("document.querySelector('h1').textContent") == "Overview"
        pages = ["/", "/nodes/bcn-1", "/calendar", "/calendar?node=bcn-1", "/submit", "/runs",
                 f"/runs/{own.run}", "/me", "/admin/users"]  # fmt: skip
        for width, dark in ((1280, False), (390, False), (360, True), (1280, True)):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                         deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
            look = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            browser.call("Emulation.setEmulatedMedia", features=[look])
            for page in pages[:3] if dark else pages:
                browser.go(served + page)
                wide = browser.value(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert wide == 0, (page, width, wide)
                assert browser.complaints() == [], (page, width)
            background = browser.value("getComputedStyle(document.body).backgroundColor")
            assert background == ("rgb(20, 23, 27)" if dark else "rgb(246, 247, 249)")
        _check_scripts(browser, served)
    finally:
        browser.close()
        shutil.rmtree(home, ignore_errors=True)


def _check_scripts(browser: Browser, served: str) -> None:
    """Check that the live charts are drawn, and that a job is checked while it is edited."""
    browser.go(f"{served}/nodes/bcn-1")
    wait = (
        "new Promise(done => {{ const look = () => {0} ? done(true) : setTimeout(look, 50);"
        " setTimeout(() => done(false), 8000); look(); }})"
    )
    assert browser.value(wait.format("document.querySelectorAll('canvas').length == 4"))
    browser.go(f"{served}/submit")
    browser.value(
        "{ const text = document.getElementById('toml'); text.value = 'nonsense';"
        " text.dispatchEvent(new Event('input', {bubbles: true})); 0 }"
    )
    told = "document.querySelector('#verdict .wrong')"
    assert browser.value(wait.format(told))
    shot = browser.call("Page.captureScreenshot", format="png")
    assert len(base64.b64decode(shot["data"])) > 10_000
    assert browser.complaints() == []
