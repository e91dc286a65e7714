"""Decisions of the orchestrator: jobs, states of runs, schedules, files, users and credentials."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from testbed_harness import (
    ADMIN,
    ANN,
    BEGIN_NS,
    BOB,
    PIA,
    LocalOrchestrator,
    S,
    StandingClock,
    job,
    local_orchestrator,
)

from needs import cases
from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.agent.deciding import Situation, hindrance
from skyhop_testbed.agent.schedule import read_schedule
from skyhop_testbed.ids import is_id, new_id
from skyhop_testbed.orchestrator import accounts, handlers, jobs, nodes, runs, uploads
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    ConflictError,
    DeniedError,
    NotFoundError,
    UnknownCallerError,
)
from skyhop_testbed.states import Change, fold
from skyhop_testbed.store.database import VERSION, open_database
from skyhop_testbed.store.tables import event, run
from skyhop_testbed.words import ENDED, JobKind, Reason, Role, State

A, B, SERVER = Caller("a", Role.NODE), Caller("b", Role.NODE), Caller("s", Role.NODE)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def only_run(at: LocalOrchestrator, of: str) -> str:
    return str(next(row["id"] for row in all_runs(at) if row["job"] == of))


def all_runs(at: LocalOrchestrator) -> list[dict[str, Any]]:
    with at.orchestrator.reading(ADMIN) as ctx:
        return [dict(row) for row in ctx.all(sa.select(run).order_by(run.c.start_ns, run.c.id))]


def state_of(at: LocalOrchestrator, name: str) -> tuple[str, str | None]:
    row = next(row for row in all_runs(at) if row["id"] == name)
    return row["state"], row["reason"]


# --- jobs and their times ---


def test_a_repeated_jobs_runs_are_planned_a_fortnight_ahead_and_on(at: LocalOrchestrator) -> None:
    made = at.submit(job(when='cron = "0 * * * *"'))
    starts = [row["start_ns"] for row in all_runs(at)]
    assert made.runs == len(starts) == 14 * 24
    assert starts == [BEGIN_NS + hour * 3600 * S for hour in range(14 * 24)]
    at.pass_s(2 * 86_400)
    at.orchestrator.tick()
    later = [row["start_ns"] for row in all_runs(at)]
    assert len(later) == 16 * 24
    assert sorted(set(later)) == [BEGIN_NS + hour * 3600 * S for hour in range(16 * 24)]


def test_a_job_that_meets_another_is_refused_whole(at: LocalOrchestrator) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'))
    before = all_runs(at)
    with pytest.raises(ConflictError, match="ann's job hourly on a") as caught:
        at.submit(job("other", 'at = "2027-01-01T05:00:30Z"', nodes='["b", "a"]'), BOB)
    assert caught.value.conflicts[0].theirs.start_ns == BEGIN_NS + 5 * 3600 * S
    assert all_runs(at) == before
    # Adjacent times do not conflict, nor do jobs that do not load the link.
    at.submit(job("touching", 'at = "2027-01-01T05:01:00Z"'), BOB)
    at.submit(job("light", 'at = "2027-01-01T05:00:30Z"', overhead="false"), BOB)


def test_a_cancelled_jobs_time_is_free_again(at: LocalOrchestrator) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'))
    with at.writing(BOB) as ctx, pytest.raises(NotFoundError):
        jobs.cancel(ctx, "hourly")
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, "hourly")
    assert {row["state"] for row in all_runs(at)} == {"skipped"}
    at.submit(job("hourly", 'cron = "0 * * * *"'), BOB)
    at.submit(job("hourly", 'cron = "30 * * * *"'))


def test_the_server_is_reserved_too(at: LocalOrchestrator) -> None:
    serve = {"server": '"s"', "run": 'client = ["true"]\nserve = ["true"]'}
    at.submit(job("one", 'at = "2027-01-01T05:00:00Z"', **serve))
    with pytest.raises(ConflictError, match="on s"):
        at.submit(job("two", 'at = "2027-01-01T05:00:30Z"', nodes='["b"]', **serve))


def test_a_job_may_be_put_in_anothers_place(at: LocalOrchestrator) -> None:
    at.submit(job("mine", 'cron = "0 * * * *"'))
    with at.writing(ANN) as ctx:
        jobs.modify(ctx, "mine", job("mine", 'cron = "0 */2 * * *"'), {}, at.orchestrator.objects)
    planned = [row for row in all_runs(at) if row["state"] == "planned"]
    assert len(planned) == 14 * 12
    with pytest.raises(ConflictError):
        at.submit(job("b", 'at = "2027-01-01T02:00:00Z"'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (job(nodes='["nowhere"]'), "there is no node nowhere"),
        (job(when='trigger = "nonsense >"\nend = "2028-01-01T00:00:00Z"'), "trigger"),
        (job(when='cron = "61 * * * *"'), "cron"),
        (job(when='at = "2020-01-01T00:00:00Z"\nend = "2020-01-02T00:00:00Z"'), "would never run"),
        (job(server='"b"', run='client = ["x"]\nserve = ["x"]'), "b has no address"),
        (job(run='client = ["x"]\nfiles = ["f"]'), "f is either not listed there or was not sent"),
    ],
)
def test_an_invalid_job_is_refused_in_a_line(at: LocalOrchestrator, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        at.submit(text)
    assert "\n" not in str(caught.value)
    assert not all_runs(at)


def test_kernel_requests_need_the_role_user_priv(at: LocalOrchestrator) -> None:
    text = job(run='client = ["x"]\nnetwork = "veth"\n[kernel]\ncc = "bbr"')
    with pytest.raises(DeniedError, match="user-priv"):
        at.submit(text)
    at.submit(text, PIA)


# --- runs ---


def test_a_claim_is_granted_once_and_to_its_node(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    with at.writing(B) as ctx:
        assert runs.claim(ctx, name, 5, at.now_ns) == (False, "it is another node's")
    with at.writing(A) as ctx:
        assert runs.claim(ctx, name, 7, at.now_ns) == (True, "")
        # The reply was lost: a repeated claim with the same fence is granted again.
        assert runs.claim(ctx, name, 7, at.now_ns) == (True, "")
        assert runs.claim(ctx, name, 8, at.now_ns)[0] is False
    with at.writing(ADMIN) as ctx:
        assert [e.state for e in runs.document(ctx, name).events] == ["claimed"]


def test_an_event_that_is_reported_twice_is_applied_once(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    body = {"run": name, "change": vars(Change(at.now_ns, State.CLAIMED, ""))}
    assert at.report("a", ("run", body), ("health", {"load": 1})) == 2
    assert at.report("a", ("run", body), ("health", {"load": 2}), first=1) == 2
    with at.writing(ADMIN) as ctx:
        assert len(runs.document(ctx, name).events) == 1
        assert nodes.document(ctx, "a").health == {"load": 1}


def test_a_malformed_event_does_not_block_later_ones(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    wrong: list[tuple[str, Any]] = [
        ("run", {"run": name}),
        (
            "run",
            {"run": new_id(at.now_ns), "change": {"at_ns": 1, "state": "claimed", "actor": ""}},
        ),
        ("run", {"run": name, "change": {"at_ns": "x", "state": "dancing", "actor": ""}}),
        ("dancing", {}),
        ("scavenger", {}),
        ("trigger", {"job": "nobody's"}),
        ("task", {"task": "none"}),
        ("telemetry", {}),
        ("health", []),
    ]
    last = at.report("a", *wrong, ("health", {"load": 3}))
    assert last == len(wrong) + 1
    with at.writing(ADMIN) as ctx:
        assert nodes.document(ctx, "a").health == {"load": 3}
    assert state_of(at, name) == ("planned", None)


@pytest.mark.parametrize("way", ["claim", "told"])
def test_a_clock_that_is_off_is_warned_of(at: LocalOrchestrator, way: str) -> None:
    for number, (offset_ms, warned) in enumerate([(99.0, None), (-250.0, -250.0), ("x", None)]):
        at.report("a", ("health", {"clock_offset_ms": offset_ms}))
        name = only_run(at, at.submit(job(f"j{number}", overhead="false")).id)
        if way == "claim":
            with at.writing(A) as ctx:
                assert runs.claim(ctx, name, 1, at.now_ns)[0]
        else:
            at.change("a", name, "claimed", fence=1)
        with at.writing(ANN) as ctx:
            (event,) = runs.document(ctx, name).events
            assert event.details.get("clock_offset_ms") == warned
            assert nodes.document(ctx, "a").clock_off_ms == warned


def test_a_node_reports_only_on_its_own_runs(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    at.change("b", name, "claimed")
    assert state_of(at, name)[0] == "planned"


def test_a_preempted_run_is_moved(at: LocalOrchestrator) -> None:
    made = at.submit(job(when='at = "now"\nend = "2027-01-01T02:00:00Z"'))
    at.submit(job("later", 'at = "2027-01-01T00:30:20Z"'))
    name = only_run(at, made.id)
    at.change("a", name, "claimed", fence=1)
    at.change("a", name, "deploying")
    at.change("a", name, "executing")
    at.pass_s(10)
    at.change("a", name, "aborted", "scavenger")
    assert state_of(at, name) == ("rescheduled", "scavenger")
    moved = next(row for row in all_runs(at) if row["after"] == name)
    # At least half an hour later, and after the reservations at that time.
    assert moved["start_ns"] == BEGIN_NS + (30 * 60 + 20 + 60) * S
    assert moved["end_ns"] - moved["start_ns"] == 60 * S
    with pytest.raises(ConflictError):
        at.submit(job("onto", 'at = "2027-01-01T00:31:50Z"'))


def test_a_preempted_run_without_free_time_left_says_so(at: LocalOrchestrator) -> None:
    made = at.submit(job(when='at = "now"\nend = "2027-01-01T00:20:00Z"'))
    name = only_run(at, made.id)
    at.change("a", name, "skipped", "scavenger")
    assert state_of(at, name) == ("skipped", "no-slot")


def test_a_preempted_run_of_a_repeated_job_is_not_moved(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job(when='cron = "0 * * * *"')).id)
    at.change("a", name, "claimed", fence=1)
    at.change("a", name, "aborted", "scavenger")
    assert state_of(at, name) == ("aborted", "scavenger")


def test_a_run_without_reports_is_lost_and_settled_later(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    at.pass_s(60 + 590)
    at.orchestrator.tick()
    assert state_of(at, name)[0] == "planned"
    at.pass_s(20)
    at.orchestrator.tick()
    assert state_of(at, name) == ("lost", "offline")
    for state in ("claimed", "deploying", "executing", "finishing", "complete"):
        at.change("a", name, state)
    assert state_of(at, name) == ("complete", None)


def test_a_run_with_reports_is_not_lost(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    for state in ("claimed", "deploying", "executing", "finishing"):
        at.pass_s(400)
        at.change("a", name, state)
        at.orchestrator.tick()
    assert state_of(at, name)[0] == "finishing"


def test_a_stopped_run_stays_stopped_whatever_its_node_says_later(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    at.change("a", name, "claimed", fence=1)
    with at.writing(BOB) as ctx, pytest.raises(DeniedError):
        runs.abort(ctx, name, "")
    with at.writing(ANN) as ctx:
        runs.abort(ctx, name, "enough")
    at.change("a", name, "executing")
    with at.writing(ANN) as ctx:
        document = runs.document(ctx, name)
        assert (document.state, document.reason) == ("aborted", "user")
        assert [e.applied for e in document.events] == [True, True, False]
        with pytest.raises(InputError, match="has ended"):
            runs.abort(ctx, name, "")


def test_a_planned_run_is_moved_to_the_nearest_free_time(at: LocalOrchestrator) -> None:
    mine = at.submit(job("mine", 'at = "2027-01-01T05:00:00Z"'))
    name = only_run(at, mine.id)
    begin_ns = next(row for row in all_runs(at) if row["id"] == name)["start_ns"]
    taken = at.submit(job("taken", 'at = "2027-01-01T04:30:00Z"'))
    with at.writing(BOB) as ctx, pytest.raises(DeniedError):
        runs.reschedule(ctx, name)
    with at.writing(ANN) as ctx:
        wanted_ns = begin_ns - 1800 * S
        moved = runs.reschedule(ctx, name, wanted_ns)
        # Half an hour earlier, another job has reserved the node for a minute.
        (other,) = runs.listing(ctx, of_job=taken.id)
        assert moved.start_ns == other.end_ns
        assert (moved.state, moved.after, moved.job) == ("planned", name, mine.id)
    assert state_of(at, name) == ("rescheduled", "user")
    with at.writing(ANN) as ctx:
        # A run's own reservation does not count, and a moved run cannot be moved again.
        again = runs.reschedule(ctx, moved.id, moved.start_ns + 30 * S)
        assert again.start_ns == moved.start_ns + 30 * S
        with pytest.raises(InputError, match="is rescheduled: only planned runs"):
            runs.reschedule(ctx, name)
        soonest = runs.reschedule(ctx, again.id)
        assert soonest.start_ns >= ctx.now_ns + 1800 * S
    at.change("a", soonest.id, "claimed", fence=1)
    with at.writing(ANN) as ctx, pytest.raises(InputError, match="is claimed"):
        runs.reschedule(ctx, soonest.id)


def test_runs_of_other_jobs_than_at_are_not_moved(at: LocalOrchestrator) -> None:
    name = only_run(
        at, at.submit(job(when='trigger = "tilt > 3"\nend = "2027-01-02T00:00:00Z"')).id
    )
    with at.writing(ANN) as ctx, pytest.raises(InputError, match="only runs of jobs with `at`"):
        runs.reschedule(ctx, name)
    last = at.submit(job("last", 'at = "2027-01-01T05:00:00Z"\nend = "2027-01-01T05:10:00Z"'))
    name = only_run(at, last.id)
    with at.writing(ANN) as ctx, pytest.raises(InputError, match="no free time left"):
        runs.reschedule(ctx, name, at.now_ns + 86_400 * S)


def test_a_trigger_window_continues_in_a_run_that_the_node_makes(at: LocalOrchestrator) -> None:
    window = 'trigger = "pop_ping_latency_ms > 50"\nend = "2027-01-02T00:00:00Z"'
    name = only_run(at, at.submit(job(when=window)).id)
    at.change("a", name, "armed")
    follower = new_id(at.now_ns)
    new = {"run": follower, "after": name, "start_ns": at.now_ns, "end_ns": BEGIN_NS + 86_400 * S}
    change = vars(Change(at.now_ns, State.ARMED, ""))
    at.report("a", ("run", {"run": follower, "change": change, "new": new}))
    assert state_of(at, follower) == ("armed", None)
    # A triggered run reserves its own length, no longer the whole window.
    times = {"start_ns": at.now_ns + 5 * S, "end_ns": at.now_ns + 65 * S}
    at.change("a", name, "claimed", fence=3, **times)
    row = next(row for row in all_runs(at) if row["id"] == name)
    assert (row["start_ns"], row["end_ns"]) == (times["start_ns"], times["end_ns"])
    # Neither a run of another node nor an unknown run can have a follow-up.
    stolen = {**new, "run": new_id(at.now_ns)}
    at.report("b", ("run", {"run": stolen["run"], "change": change, "new": stolen}))
    assert len(all_runs(at)) == 2


def test_a_server_gets_its_tasks_and_its_client_the_result(at: LocalOrchestrator) -> None:
    serve = {"server": '"s"', "run": 'client = ["true"]\nserve = ["true"]'}
    name = only_run(at, at.submit(job(**serve)).id)
    for state in ("claimed", "deploying", "waiting-server"):
        at.change("a", name, state)
    with at.orchestrator.reading(SERVER) as ctx:
        (asked,) = nodes.tasks(ctx, "s")
    assert (asked["kind"], asked["run"], asked["job"]["owner"]) == ("start", name, "ann")
    at.report("b", ("task", {"task": asked["task"], "ok": True, "port": 1}))
    with at.orchestrator.reading(A) as ctx:
        assert nodes.results(ctx, "a") == []
    at.report("s", ("task", {"task": asked["task"], "ok": True, "port": 5201}))
    with at.orchestrator.reading(A) as ctx:
        assert nodes.results(ctx, "a") == [{"run": name, "ready": True, "port": 5201}]
    at.change("a", name, "executing")
    at.change("a", name, "finishing")
    with at.orchestrator.reading(SERVER) as ctx:
        assert [each["kind"] for each in nodes.tasks(ctx, "s")] == ["stop"]
    # The run's end, reported before the server was reached, does not withdraw the stop.
    at.change("a", name, "complete")
    with at.orchestrator.reading(SERVER) as ctx:
        assert [each["kind"] for each in nodes.tasks(ctx, "s")] == ["stop"]


def test_the_state_is_the_fold_of_what_happened(at: LocalOrchestrator) -> None:
    """The stored state equals the fold of the run's events, for any sequence of reports."""
    chance = random.Random(17)
    for number in range(cases(30)):
        name = only_run(at, at.submit(job(f"j{number}")).id)
        for _ in range(chance.randrange(1, 12)):
            state = chance.choice(list(State))
            reason = chance.choice([None, *Reason])
            at.pass_s(chance.random())
            at.change(chance.choice("ab"), name, state.value, reason.value if reason else None)
        with at.orchestrator.reading(ADMIN) as ctx:
            rows = ctx.all(sa.select(event).where(event.c.run == name).order_by(event.c.id))
        told = [Change(row["at_ns"], State(row["state"]), row["actor"]) for row in rows]
        assert state_of(at, name)[0] == fold(told)
        for row in [row for row in all_runs(at) if State(row["state"]) not in ENDED]:
            with at.writing(ADMIN) as ctx:
                runs.abort(ctx, row["id"], "tidied up")
        at.pass_s(100)


# --- schedules ---


def test_a_schedule_holds_what_a_node_has_to_do_and_nothing_else(at: LocalOrchestrator) -> None:
    mine = at.submit(job("mine", 'at = "2027-01-01T05:00:00Z"'))
    at.submit(job("others", 'at = "2027-01-01T05:00:00Z"', nodes='["b"]'))
    with at.orchestrator.reading(A) as ctx:
        before, body = nodes.schedule(ctx, "a")
    assert [each["job"] for each in body["runs"]] == [mine.id] == list(body["jobs"])
    assert body["node"] == "a"
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, "mine")
    with at.orchestrator.reading(A) as ctx:
        after, body = nodes.schedule(ctx, "a")
    assert after > before
    assert body["runs"] == []


def test_a_node_knows_what_it_will_serve_and_keeps_the_time_free(at: LocalOrchestrator) -> None:
    """The schedule of a server has its reserved times, so that its own triggers avoid them."""
    revisions = []
    both = {"server": '"s"', "nodes": '["b"]', "run": 'client = ["true"]\nserve = ["true"]'}
    served = at.submit(job("served", 'at = "2027-01-01T05:00:00Z"', **both))
    for _ in range(2):
        with at.orchestrator.reading(SERVER) as ctx:
            revision, body = nodes.schedule(ctx, "s")
        revisions.append(revision)
        if len(revisions) == 1:
            (run,) = body["runs"]
            assert (run["client"], run["server"], list(body["jobs"])) == ("b", "s", [served.id])
            text = json.dumps(body).encode()
            key, signature = (
                at.orchestrator.authority.orders_key,
                at.orchestrator.authority.sign_order(text),
            )
            (planned,) = read_schedule(key, "s", text, signature).planned
            assert not planned.is_client
            waiting = replace(planned, run="w", is_client=True, kind=JobKind.TRIGGER)
            for before_s, is_free in ((61, True), (59, False)):
                now_ns = planned.start_ns - before_s * S
                window = replace(waiting, start_ns=now_ns, end_ns=now_ns + 3600 * S)
                found = hindrance(Situation(now_ns, [planned, window], {}), window)
                assert (found is None) == is_free, found
            with at.writing(ANN) as ctx:
                jobs.cancel(ctx, "served")
    assert revisions[1] > revisions[0]
    assert body["runs"] == []


def test_an_owner_sets_what_his_node_allows(at: LocalOrchestrator) -> None:
    with at.writing(ANN) as ctx:
        nodes.set_policy(ctx, "a", {"programs": ["ping"]})
        nodes.set_scavenger(ctx, "a", "on")
        with pytest.raises(InputError, match="not known"):
            nodes.set_policy(ctx, "a", {"anything": 1})
    with at.writing(BOB) as ctx:
        with pytest.raises(DeniedError):
            nodes.set_policy(ctx, "a", {})
        with pytest.raises(DeniedError):
            nodes.set_scavenger(ctx, "a", "off")
        seen = nodes.document(ctx, "a")
        assert seen.policy is None
        assert "policy" not in seen.as_json()
        # All users, including the owner, see the location rounded to 0.1 degrees.
        assert seen.latitude_deg == 41.4
    with at.orchestrator.reading(A) as ctx:
        body = nodes.schedule(ctx, "a")[1]
    assert (body["policy"], body["scavenger_mode"]) == ({"programs": ["ping"]}, "on")


# --- files ---


def manifest(files: dict[str, bytes]) -> bytes:
    listed = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return json.dumps({"files": listed}).encode()


def upload(at: LocalOrchestrator, name: str, files: dict[str, bytes], caller: Caller = A) -> bool:
    for each, data in {**files, "manifest.json": manifest(files)}.items():
        at.orchestrator.uploads.write_piece(name, "client", each, 0, data)
    with at.writing(caller) as ctx:
        row = uploads.check_uploader(ctx, name, "client")
        return at.orchestrator.uploads.complete(ctx, row, "client")


def test_files_are_seen_when_all_are_there_by_those_who_may(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    files = {"out.txt": b"x" * 1000, "dir/more.json": b"{}"}
    store = at.orchestrator.uploads
    assert store.write_piece(name, "client", "out.txt", 0, files["out.txt"][:400]) == 400
    # A piece with a wrong offset is ignored; the sender continues at the end of the file.
    assert store.write_piece(name, "client", "out.txt", 700, b"?") == 400
    assert store.offsets(name, "client") == {"out.txt": 400}
    assert store.write_piece(name, "client", "out.txt", 400, files["out.txt"][400:]) == 1000
    with at.writing(A) as ctx:
        assert not store.complete(ctx, uploads.check_uploader(ctx, name, "client"), "client")
    assert upload(at, name, files)
    with at.writing(ANN) as ctx:
        listed = runs.document(ctx, name).files
        assert [f.name for f in listed] == ["dir/more.json", "manifest.json", "out.txt"]
        path, size, digest = store.file(ctx, name, "client", "out.txt")
        assert (path.read_bytes(), size) == (files["out.txt"], 1000)
        assert digest == hashlib.sha256(files["out.txt"]).hexdigest()
    with at.writing(BOB) as ctx, pytest.raises(DeniedError):
        store.file(ctx, name, "client", "out.txt")


def test_a_file_that_is_not_what_its_manifest_says_is_refused(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    store = at.orchestrator.uploads
    store.write_piece(name, "client", "out.txt", 0, b"damaged!")
    store.write_piece(name, "client", "manifest.json", 0, manifest({"out.txt": b"original"}))
    with at.writing(A) as ctx:
        row = uploads.check_uploader(ctx, name, "client")
        with pytest.raises(InputError, match="send it again"):
            store.complete(ctx, row, "client")
    assert upload(at, name, {"out.txt": b"original"})


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", "", ".", "a//b", "a\nb", "x" * 500, "a\0b", "./a"]
)
def test_no_files_name_leaves_its_run(at: LocalOrchestrator, name: str) -> None:
    run_name = only_run(at, at.submit(job()).id)
    with pytest.raises(InputError, match="name"):
        at.orchestrator.uploads.write_piece(run_name, "client", name, 0, b"x")
    for wrong in ("../../keys", "client/../..", "x"):
        with pytest.raises(InputError, match="no such run"):
            at.orchestrator.uploads.write_piece(run_name, wrong, "x", 0, b"x")
        with pytest.raises(InputError, match="no such run"):
            at.orchestrator.uploads.write_piece(wrong, "client", "x", 0, b"x")


def test_only_its_node_sends_a_runs_files(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job()).id)
    for caller, side in ((B, "client"), (A, "server"), (SERVER, "server")):
        with at.orchestrator.reading(caller) as ctx, pytest.raises(DeniedError):
            uploads.check_uploader(ctx, name, side)


def test_files_are_deleted_after_their_retention_time(at: LocalOrchestrator) -> None:
    name = only_run(at, at.submit(job(retention='"1 h"')).id)
    assert upload(at, name, {"out.txt": b"x"})
    with at.orchestrator.reading(ANN) as ctx:
        path = at.orchestrator.uploads.file(ctx, name, "client", "out.txt")[0]
    at.pass_s(3000)
    at.orchestrator.tick()
    assert path.exists()
    at.pass_s(1000)
    at.orchestrator.tick()
    assert not path.exists()
    with at.orchestrator.reading(ANN) as ctx:
        assert runs.document(ctx, name).files == []


# --- users and credentials ---


def test_tokens_are_kept_as_hashes_and_end(at: LocalOrchestrator, tmp_path: Path) -> None:
    with at.writing(ADMIN) as ctx:
        token = accounts.issue(ctx, "token", of_user="ann", expires_ns=at.now_ns + 10 * S)
    assert at.orchestrator.caller_of_token(token) == ANN
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert token.encode() not in kept
    with pytest.raises(UnknownCallerError, match="not known"):
        at.orchestrator.caller_of_token(token[:-1] + ("a" if token[-1] != "a" else "b"))
    with pytest.raises(UnknownCallerError, match="session is not known"):
        at.orchestrator.caller_of_token(token, "session")
    at.pass_s(10)
    with pytest.raises(UnknownCallerError, match="expired"):
        at.orchestrator.caller_of_token(token)


def test_a_disabled_user_cannot_log_in_and_the_last_administrator_stays(
    at: LocalOrchestrator,
) -> None:
    with at.writing(ADMIN) as ctx:
        token = accounts.issue(ctx, "token", of_user="bob")
        accounts.put_user(ctx, api.PutUser(name="bob", disabled=True))
        with pytest.raises(InputError, match="last administrator"):
            accounts.put_user(ctx, api.PutUser(name="root", role="user"))
        with pytest.raises(InputError, match="last administrator"):
            accounts.delete_user(ctx, "root")
    with pytest.raises(UnknownCallerError, match="disabled"):
        at.orchestrator.caller_of_token(token)


@pytest.mark.parametrize("way", ["removed", "disabled"])
def test_disabling_or_deleting_a_user_cancels_the_jobs(at: LocalOrchestrator, way: str) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'), BOB)
    going = only_run(at, at.submit(job("going", nodes='["b"]'), BOB).id)
    others = at.submit(job("others", 'at = "2027-01-01T05:01:00Z"')).id
    for state in ("claimed", "deploying", "executing"):
        at.change("b", going, state)
    with at.writing(BOB) as ctx:
        # The replacing job is cancelled too; the run of the replaced job is in progress.
        text = job("going", 'at = "2027-01-01T07:00:00Z"', nodes='["b"]')
        jobs.modify(ctx, "going", text, {}, at.orchestrator.objects)
    with at.writing(ADMIN) as ctx:
        if way == "removed":
            assert accounts.delete_user(ctx, "bob") == 3
        else:
            assert accounts.put_user(ctx, api.PutUser(name="bob", disabled=True)).jobs_ended == 3
    assert state_of(at, going) == ("aborted", "user")
    left = [row for row in all_runs(at) if State(row["state"]) not in ENDED]
    assert [row["job"] for row in left] == [others]
    with at.orchestrator.reading(B) as ctx:
        assert nodes.schedule(ctx, "b")[1]["runs"] == []
    with at.writing(ADMIN) as ctx:
        (bobs,) = [row for row in accounts.users(ctx) if row.name == "bob"]
        assert bobs.disabled
        # A user who is enabled again has no jobs.
        accounts.put_user(ctx, api.PutUser(name="bob", disabled=False))
        assert jobs.listing(ctx, user="bob") == []


def test_an_invitation_is_for_one_node_once_and_for_a_quarter_of_an_hour(
    at: LocalOrchestrator,
) -> None:
    def invite(name: str) -> str:
        with at.writing(ADMIN) as ctx:
            expires_ns = at.now_ns + accounts.INVITATION_NS
            return accounts.issue(ctx, "invitation", of_node=name, expires_ns=expires_ns)

    first, second = invite("a"), invite("a")
    with at.writing(ADMIN) as ctx:
        with pytest.raises(UnknownCallerError, match="not for b"):
            accounts.redeem_invitation(ctx, first, "b")
        accounts.redeem_invitation(ctx, first, "a")
        with pytest.raises(UnknownCallerError, match="used before"):
            accounts.redeem_invitation(ctx, first, "a")
    at.pass_s(15 * 60)
    with at.writing(ADMIN) as ctx, pytest.raises(UnknownCallerError, match="expired"):
        accounts.redeem_invitation(ctx, second, "a")


def test_settings_are_checked_and_take_effect(at: LocalOrchestrator) -> None:
    with at.writing(ADMIN) as ctx:
        for wrong in ({"nonsense": 1}, {"late_s": -1}, {"late_s": "x"}, {"late_s": True}):
            with pytest.raises(InputError):
                handlers.put_config(ctx, wrong)
        handlers.put_config(ctx, {"reschedule_after_s": 60})
    name = only_run(at, at.submit(job()).id)
    at.change("a", name, "skipped", "busy")
    moved = next(row for row in all_runs(at) if row["after"] == name)
    assert moved["start_ns"] == BEGIN_NS + 60 * S


def test_a_node_with_jobs_stays_and_one_without_goes(at: LocalOrchestrator) -> None:
    at.submit(job())
    with at.writing(ADMIN) as ctx:
        with pytest.raises(InputError, match="job j uses this node"):
            nodes.delete(ctx, "a")
        nodes.delete(ctx, "b")
        with pytest.raises(NotFoundError):
            nodes.get(ctx, "b")


def test_ids_sort_by_their_time() -> None:
    made = [new_id(n * 1_000_000) for n in (0, 1, 31, 32, 10**12)]
    assert made == sorted(made)
    assert all(map(is_id, made))
    assert not any(map(is_id, ["", "0" * 25, "U" * 26, "../" + "0" * 23]))


def test_a_database_of_a_newer_skyhop_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "testbed.sqlite"
    open_database(file).close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(InputError, match=r"testbed.sqlite: made by a newer skyhop"):
        open_database(file)
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    open_database(file).close()


def test_an_unusable_database_is_reported_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "state" / "testbed.sqlite").mkdir(parents=True)
    with pytest.raises(RunError, match="the testbed's database: unable to open") as caught:
        Orchestrator(tmp_path / "state", ["localhost"], clock=StandingClock())
    assert "\n" not in str(caught.value)
    # No keys are generated if the database cannot be opened.
    assert not list(tmp_path.rglob("*.key"))


def test_one_of_many_concurrent_submissions_gets_the_time(at: LocalOrchestrator) -> None:
    """Concurrent submissions are serialised: exactly one of six gets the time."""
    together = threading.Barrier(6)

    def submit(number: int) -> bool:
        together.wait(10)
        try:
            at.submit(job(f"j{number}", 'at = "2027-01-01T05:00:00Z"'), (ANN, BOB)[number % 2])
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(submit, range(6))).count(True) == 1


def test_a_reader_sees_one_state_of_everything(at: LocalOrchestrator) -> None:
    count = sa.select(sa.func.count()).select_from(run)
    with at.orchestrator.reading(ANN) as ctx:
        assert ctx.connection.scalar(count) == 0
        at.submit(job())
        assert ctx.connection.scalar(count) == 0
    with at.orchestrator.reading(ANN) as ctx:
        assert ctx.connection.scalar(count) == 1


def test_others_may_not_read_the_keys(tmp_path: Path) -> None:
    with local_orchestrator(tmp_path / "state"):
        pass
    keys = tmp_path / "state" / "keys"
    for file in keys.glob("*.key"):
        assert file.stat().st_mode & 0o077 == 0, file
    (keys / "orders.key").chmod(0o644)
    with (
        pytest.raises(InputError, match="other users may read"),
        local_orchestrator(tmp_path / "state"),
    ):
        pass


def test_an_administrator_who_mends_a_job_does_not_take_it_over(at: LocalOrchestrator) -> None:
    made = at.submit(job("mine", 'cron = "0 * * * *"'))
    with at.writing(ADMIN) as ctx:
        text = job("mine", 'cron = "30 * * * *"')
        mended = jobs.modify(ctx, made.id, text, {}, at.orchestrator.objects)
    assert mended.owner == "ann"


def test_a_job_is_found_by_those_who_may_see_it(at: LocalOrchestrator) -> None:
    theirs = at.submit(job("hidden", 'at = "2027-02-01T00:00:00Z"'), BOB).id
    for caller in (ADMIN, BOB, ANN):
        # The job runs on a node that ann owns.
        with at.writing(caller) as ctx:
            assert jobs.get(ctx, theirs)["owner"] == "bob"
    with at.writing(PIA) as ctx:
        with pytest.raises(DeniedError, match="is not yours"):
            jobs.get(ctx, theirs)
        with pytest.raises(NotFoundError):
            jobs.get(ctx, "hidden")


def test_why_a_trigger_fired_is_for_its_user(at: LocalOrchestrator) -> None:
    when = f'trigger = "tilt > 3"\nend = {BEGIN_NS + 86_400 * S}'
    theirs = at.submit(job("watching", when), BOB).id
    at.report("a", ("trigger", {"job": theirs, "fired": False, "why": "false"}))
    for caller, seen in ((ADMIN, 1), (BOB, 1), (ANN, 0), (PIA, 0)):
        # Ann owns the node: she may see the job, but not its evaluations.
        with at.writing(caller) as ctx:
            assert len(nodes.trigger_evaluations(ctx, of_job=theirs)) == seen, caller
            assert len(nodes.trigger_evaluations(ctx)) == seen, caller
    # A node that does not run the job may not report evaluations of it.
    at.report("b", ("trigger", {"job": theirs, "fired": True}))
    with at.writing(BOB) as ctx:
        assert len(nodes.trigger_evaluations(ctx)) == 1
