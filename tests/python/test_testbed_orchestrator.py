"""What the orchestrator decides: jobs, runs and what becomes of them, files, people."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from needs import cases
from testbed_office import ADMIN, ANN, BEGIN_NS, BOB, PIA, Desks, S, StandingClock, desks, job

from skyhop.errors import InputError, SkyhopError
from skyhop.testbed.agent.deciding import Situation, hindrance
from skyhop.testbed.agent.schedule import read_schedule
from skyhop.testbed.ids import is_id, new_id
from skyhop.testbed.orchestrator import jobs, nodes, people, procedures, runs, uploads
from skyhop.testbed.orchestrator.desk import (
    Caller,
    ConflictError,
    DeniedError,
    NotFoundError,
    UnknownCallerError,
)
from skyhop.testbed.orchestrator.office import Office
from skyhop.testbed.states import Change, fold
from skyhop.testbed.store.tables import event, run
from skyhop.testbed.words import ENDED, JobKind, Reason, Role, State

A, B, SERVER = Caller("a", Role.NODE), Caller("b", Role.NODE), Caller("s", Role.NODE)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Desks]:
    with desks(tmp_path / "state") as made:
        yield made


def only_run(at: Desks, of: str) -> str:
    return str(next(row["id"] for row in all_runs(at) if row["job"] == of))


def all_runs(at: Desks) -> list[dict[str, Any]]:
    with at.office.reading(ADMIN) as desk:
        return [dict(row) for row in desk.all(sa.select(run).order_by(run.c.start_ns, run.c.id))]


def state_of(at: Desks, name: str) -> tuple[str, str | None]:
    row = next(row for row in all_runs(at) if row["id"] == name)
    return row["state"], row["reason"]


# --- jobs and their times ---


def test_a_repeated_jobs_runs_are_planned_a_fortnight_ahead_and_on(at: Desks) -> None:
    made = at.submit(job(when='cron = "0 * * * *"'))
    starts = [row["start_ns"] for row in all_runs(at)]
    assert made["runs"] == len(starts) == 14 * 24
    assert starts == [BEGIN_NS + hour * 3600 * S for hour in range(14 * 24)]
    at.pass_s(2 * 86_400)
    at.office.tick()
    later = [row["start_ns"] for row in all_runs(at)]
    assert len(later) == 16 * 24
    assert sorted(set(later)) == [BEGIN_NS + hour * 3600 * S for hour in range(16 * 24)]


def test_a_job_that_meets_another_is_refused_whole(at: Desks) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'))
    before = all_runs(at)
    with pytest.raises(ConflictError, match="ann's job hourly on a") as caught:
        at.submit(job("other", 'at = "2027-01-01T05:00:30Z"', nodes='["b", "a"]'), BOB)
    assert caught.value.conflicts[0]["theirs"]["start_ns"] == BEGIN_NS + 5 * 3600 * S
    assert all_runs(at) == before
    # Touching is no conflict, nor is what does not load the link.
    at.submit(job("touching", 'at = "2027-01-01T05:01:00Z"'), BOB)
    at.submit(job("light", 'at = "2027-01-01T05:00:30Z"', overhead="false"), BOB)


def test_a_cancelled_jobs_time_is_free_again(at: Desks) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'))
    with at.at(BOB) as desk, pytest.raises(NotFoundError):
        jobs.cancel(desk, "hourly")
    with at.at(ANN) as desk:
        jobs.cancel(desk, "hourly")
    assert {row["state"] for row in all_runs(at)} == {"skipped"}
    at.submit(job("hourly", 'cron = "0 * * * *"'), BOB)
    at.submit(job("hourly", 'cron = "30 * * * *"'))


def test_the_server_is_reserved_too(at: Desks) -> None:
    serve = {"server": '"s"', "run": 'client = ["true"]\nserve = ["true"]'}
    at.submit(job("one", 'at = "2027-01-01T05:00:00Z"', **serve))
    with pytest.raises(ConflictError, match="on s"):
        at.submit(job("two", 'at = "2027-01-01T05:00:30Z"', nodes='["b"]', **serve))


def test_a_job_may_be_put_in_anothers_place(at: Desks) -> None:
    at.submit(job("mine", 'cron = "0 * * * *"'))
    with at.at(ANN) as desk:
        jobs.modify(desk, "mine", job("mine", 'cron = "0 */2 * * *"'), {}, at.office.objects)
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
        (job(run='client = ["x"]\nfiles = ["f"]'), "f is either not named there or not sent"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(at: Desks, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        at.submit(text)
    assert "\n" not in str(caught.value)
    assert not all_runs(at)


def test_the_kernel_is_for_those_who_may(at: Desks) -> None:
    text = job(run='client = ["x"]\nnetwork = "veth"\n[kernel]\ncc = "bbr"')
    with pytest.raises(DeniedError, match="user-priv"):
        at.submit(text)
    at.submit(text, PIA)


# --- runs ---


def test_a_claim_is_granted_once_and_to_its_node(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    with at.at(B) as desk:
        assert runs.claim(desk, name, 5, at.now_ns) == (False, "it is another node's")
    with at.at(A) as desk:
        assert runs.claim(desk, name, 7, at.now_ns) == (True, "")
        # Its word of it was lost: the same claim again is the same.
        assert runs.claim(desk, name, 7, at.now_ns) == (True, "")
        assert runs.claim(desk, name, 8, at.now_ns)[0] is False
    with at.at(ADMIN) as desk:
        assert [e["state"] for e in runs.document(desk, name)["events"]] == ["claimed"]


def test_what_is_told_twice_is_entered_once(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    body = {"run": name, "change": Change(at.now_ns, State.CLAIMED, "").as_json()}
    assert at.report("a", ("run", body), ("health", {"load": 1})) == 2
    assert at.report("a", ("run", body), ("health", {"load": 2}), first=1) == 2
    with at.at(ADMIN) as desk:
        assert len(runs.document(desk, name)["events"]) == 1
        assert nodes.document(desk, "a")["health"] == {"load": 1}


def test_a_wrong_event_keeps_nothing_back(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
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
    with at.at(ADMIN) as desk:
        assert nodes.document(desk, "a")["health"] == {"load": 3}
    assert state_of(at, name) == ("planned", None)


@pytest.mark.parametrize("way", ["claim", "told"])
def test_a_clock_that_is_off_is_warned_of(at: Desks, way: str) -> None:
    for number, (offset_ms, warned) in enumerate([(99.0, None), (-250.0, -250.0), ("x", None)]):
        at.report("a", ("health", {"clock_offset_ms": offset_ms}))
        name = only_run(at, at.submit(job(f"j{number}", overhead="false"))["id"])
        if way == "claim":
            with at.at(A) as desk:
                assert runs.claim(desk, name, 1, at.now_ns)[0]
        else:
            at.change("a", name, "claimed", fence=1)
        with at.at(ANN) as desk:
            (event,) = runs.document(desk, name)["events"]
            assert event["details"].get("clock_offset_ms") == warned
            assert nodes.document(desk, "a")["clock_off_ms"] == warned


def test_a_node_tells_only_of_its_own(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    at.change("b", name, "claimed")
    assert state_of(at, name)[0] == "planned"


def test_a_run_that_makes_room_is_given_another_time(at: Desks) -> None:
    made = at.submit(job(when='at = "now"\nend = "2027-01-01T02:00:00Z"'))
    at.submit(job("later", 'at = "2027-01-01T00:30:20Z"'))
    name = only_run(at, made["id"])
    at.change("a", name, "claimed", fence=1)
    at.change("a", name, "deploying")
    at.change("a", name, "executing")
    at.pass_s(10)
    at.change("a", name, "aborted", "scavenger")
    assert state_of(at, name) == ("rescheduled", "scavenger")
    moved = next(row for row in all_runs(at) if row["after"] == name)
    # Half an hour later at the earliest, and behind what has the node then.
    assert moved["start_ns"] == BEGIN_NS + (30 * 60 + 20 + 60) * S
    assert moved["end_ns"] - moved["start_ns"] == 60 * S
    with pytest.raises(ConflictError):
        at.submit(job("onto", 'at = "2027-01-01T00:31:50Z"'))


def test_one_without_room_left_says_so(at: Desks) -> None:
    made = at.submit(job(when='at = "now"\nend = "2027-01-01T00:20:00Z"'))
    name = only_run(at, made["id"])
    at.change("a", name, "skipped", "scavenger")
    assert state_of(at, name) == ("skipped", "no-slot")


def test_a_repeated_one_that_makes_room_is_not_moved(at: Desks) -> None:
    name = only_run(at, at.submit(job(when='cron = "0 * * * *"'))["id"])
    at.change("a", name, "claimed", fence=1)
    at.change("a", name, "aborted", "scavenger")
    assert state_of(at, name) == ("aborted", "scavenger")


def test_what_is_never_heard_of_is_lost_and_settled_later(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    at.pass_s(60 + 590)
    at.office.tick()
    assert state_of(at, name)[0] == "planned"
    at.pass_s(20)
    at.office.tick()
    assert state_of(at, name) == ("lost", "offline")
    for state in ("claimed", "deploying", "executing", "finishing", "complete"):
        at.change("a", name, state)
    assert state_of(at, name) == ("complete", None)


def test_what_is_heard_of_is_not_lost(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    for state in ("claimed", "deploying", "executing", "finishing"):
        at.pass_s(400)
        at.change("a", name, state)
        at.office.tick()
    assert state_of(at, name)[0] == "finishing"


def test_a_stopped_run_stays_stopped_whatever_its_node_says_later(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    at.change("a", name, "claimed", fence=1)
    with at.at(BOB) as desk, pytest.raises(DeniedError):
        runs.abort(desk, name, "")
    with at.at(ANN) as desk:
        runs.abort(desk, name, "enough")
    at.change("a", name, "executing")
    with at.at(ANN) as desk:
        document = runs.document(desk, name)
        assert (document["state"], document["reason"]) == ("aborted", "user")
        assert [e["applied"] for e in document["events"]] == [True, True, False]
        with pytest.raises(InputError, match="has ended"):
            runs.abort(desk, name, "")


def test_a_run_to_come_is_moved_to_the_nearest_free_time(at: Desks) -> None:
    mine = at.submit(job("mine", 'at = "2027-01-01T05:00:00Z"'))
    name = only_run(at, mine["id"])
    begin_ns = next(row for row in all_runs(at) if row["id"] == name)["start_ns"]
    taken = at.submit(job("taken", 'at = "2027-01-01T04:30:00Z"'))
    with at.at(BOB) as desk, pytest.raises(DeniedError):
        runs.reschedule(desk, name)
    with at.at(ANN) as desk:
        wanted_ns = begin_ns - 1800 * S
        moved = runs.reschedule(desk, name, wanted_ns)
        # Half an hour earlier another job has the node for a minute.
        (other,) = runs.listing(desk, of_job=taken["id"])
        assert moved["start_ns"] == other["end_ns"]
        assert (moved["state"], moved["after"], moved["job"]) == ("planned", name, mine["id"])
    assert state_of(at, name) == ("rescheduled", "user")
    with at.at(ANN) as desk:
        # Its own time is no hindrance, and what has been moved is moved no more.
        again = runs.reschedule(desk, moved["id"], moved["start_ns"] + 30 * S)
        assert again["start_ns"] == moved["start_ns"] + 30 * S
        with pytest.raises(InputError, match="is rescheduled: only what is still to come"):
            runs.reschedule(desk, name)
        soonest = runs.reschedule(desk, again["id"])
        assert soonest["start_ns"] >= desk.now_ns + 1800 * S
    at.change("a", soonest["id"], "claimed", fence=1)
    with at.at(ANN) as desk, pytest.raises(InputError, match="is claimed"):
        runs.reschedule(desk, soonest["id"])


def test_runs_of_other_jobs_than_at_are_not_moved(at: Desks) -> None:
    name = only_run(
        at, at.submit(job(when='trigger = "tilt > 3"\nend = "2027-01-02T00:00:00Z"'))["id"]
    )
    with at.at(ANN) as desk, pytest.raises(InputError, match="only runs of jobs with `at`"):
        runs.reschedule(desk, name)
    last = at.submit(job("last", 'at = "2027-01-01T05:00:00Z"\nend = "2027-01-01T05:10:00Z"'))
    name = only_run(at, last["id"])
    with at.at(ANN) as desk, pytest.raises(InputError, match="no room left"):
        runs.reschedule(desk, name, at.now_ns + 86_400 * S)


def test_a_window_goes_on_in_a_run_of_the_nodes_making(at: Desks) -> None:
    window = 'trigger = "pop_ping_latency_ms > 50"\nend = "2027-01-02T00:00:00Z"'
    name = only_run(at, at.submit(job(when=window))["id"])
    at.change("a", name, "armed")
    follower = new_id(at.now_ns)
    new = {"run": follower, "after": name, "start_ns": at.now_ns, "end_ns": BEGIN_NS + 86_400 * S}
    change = Change(at.now_ns, State.ARMED, "").as_json()
    at.report("a", ("run", {"run": follower, "change": change, "new": new}))
    assert state_of(at, follower) == ("armed", None)
    # What a trigger started has the time of its length, no longer that of its window.
    times = {"start_ns": at.now_ns + 5 * S, "end_ns": at.now_ns + 65 * S}
    at.change("a", name, "claimed", fence=3, **times)
    row = next(row for row in all_runs(at) if row["id"] == name)
    assert (row["start_ns"], row["end_ns"]) == (times["start_ns"], times["end_ns"])
    # Another node cannot hang its own onto it, nor can a run be made of nothing.
    stolen = {**new, "run": new_id(at.now_ns)}
    at.report("b", ("run", {"run": stolen["run"], "change": change, "new": stolen}))
    assert len(all_runs(at)) == 2


def test_a_server_is_asked_and_told(at: Desks) -> None:
    serve = {"server": '"s"', "run": 'client = ["true"]\nserve = ["true"]'}
    name = only_run(at, at.submit(job(**serve))["id"])
    for state in ("claimed", "deploying", "waiting-server"):
        at.change("a", name, state)
    with at.office.reading(SERVER) as desk:
        (asked,) = nodes.tasks(desk, "s")
    assert (asked["kind"], asked["run"], asked["job"]["owner"]) == ("start", name, "ann")
    at.report("b", ("task", {"task": asked["task"], "ok": True, "port": 1}))
    with at.office.reading(A) as desk:
        assert nodes.results(desk, "a") == []
    at.report("s", ("task", {"task": asked["task"], "ok": True, "port": 5201}))
    with at.office.reading(A) as desk:
        assert nodes.results(desk, "a") == [{"run": name, "ready": True, "port": 5201}]
    at.change("a", name, "executing")
    at.change("a", name, "finishing")
    with at.office.reading(SERVER) as desk:
        assert [each["kind"] for each in nodes.tasks(desk, "s")] == ["stop"]


def test_the_state_is_the_fold_of_what_happened(at: Desks) -> None:
    """Whatever is told by whomever, the kept state is what its events come to."""
    chance = random.Random(17)
    for number in range(cases(30)):
        name = only_run(at, at.submit(job(f"j{number}"))["id"])
        for _ in range(chance.randrange(1, 12)):
            state = chance.choice(list(State))
            reason = chance.choice([None, *Reason])
            at.pass_s(chance.random())
            at.change(chance.choice("ab"), name, state.value, reason.value if reason else None)
        with at.office.reading(ADMIN) as desk:
            rows = desk.all(sa.select(event).where(event.c.run == name).order_by(event.c.id))
        told = [Change(row["at_ns"], State(row["state"]), row["actor"]) for row in rows]
        assert state_of(at, name)[0] == fold(told)
        for row in [row for row in all_runs(at) if State(row["state"]) not in ENDED]:
            with at.at(ADMIN) as desk:
                runs.abort(desk, row["id"], "tidied up")
        at.pass_s(100)


# --- what nodes are told ---


def test_a_schedule_holds_what_a_node_has_to_do_and_nothing_else(at: Desks) -> None:
    mine = at.submit(job("mine", 'at = "2027-01-01T05:00:00Z"'))
    at.submit(job("others", 'at = "2027-01-01T05:00:00Z"', nodes='["b"]'))
    with at.office.reading(A) as desk:
        before, body = nodes.schedule(desk, "a")
    assert [each["job"] for each in body["runs"]] == [mine["id"]] == list(body["jobs"])
    assert body["node"] == "a"
    with at.at(ANN) as desk:
        jobs.cancel(desk, "mine")
    with at.office.reading(A) as desk:
        after, body = nodes.schedule(desk, "a")
    assert after > before
    assert body["runs"] == []


def test_a_node_knows_what_it_will_serve_and_keeps_the_time_free(at: Desks) -> None:
    """Else what it starts on a trigger of its own would meet what it has promised."""
    revisions = []
    both = {"server": '"s"', "nodes": '["b"]', "run": 'client = ["true"]\nserve = ["true"]'}
    served = at.submit(job("served", 'at = "2027-01-01T05:00:00Z"', **both))
    for _ in range(2):
        with at.office.reading(SERVER) as desk:
            revision, body = nodes.schedule(desk, "s")
        revisions.append(revision)
        if len(revisions) == 1:
            (run,) = body["runs"]
            assert (run["client"], run["server"], list(body["jobs"])) == ("b", "s", [served["id"]])
            text = json.dumps(body).encode()
            key, signature = at.office.authority.orders_key, at.office.authority.sign_order(text)
            (planned,) = read_schedule(key, "s", text, signature).planned
            assert not planned.is_client
            waiting = replace(planned, run="w", is_client=True, kind=JobKind.TRIGGER)
            for before_s, is_free in ((61, True), (59, False)):
                now_ns = planned.start_ns - before_s * S
                window = replace(waiting, start_ns=now_ns, end_ns=now_ns + 3600 * S)
                found = hindrance(Situation(now_ns, [planned, window], {}), window)
                assert (found is None) == is_free, found
            with at.at(ANN) as desk:
                jobs.cancel(desk, "served")
    assert revisions[1] > revisions[0]
    assert body["runs"] == []


def test_an_owner_sets_what_his_node_allows(at: Desks) -> None:
    with at.at(ANN) as desk:
        nodes.set_policy(desk, "a", {"programs": ["ping"]})
        nodes.set_scavenger(desk, "a", "on")
        with pytest.raises(InputError, match="not known"):
            nodes.set_policy(desk, "a", {"anything": 1})
    with at.at(BOB) as desk:
        with pytest.raises(DeniedError):
            nodes.set_policy(desk, "a", {})
        with pytest.raises(DeniedError):
            nodes.set_scavenger(desk, "a", "off")
        seen = nodes.document(desk, "a")
        assert "policy" not in seen
        # A tenth of a degree is all that anybody is told of where it is.
        assert seen["latitude_deg"] == 41.4
    with at.office.reading(A) as desk:
        body = nodes.schedule(desk, "a")[1]
    assert (body["policy"], body["scavenger_mode"]) == ({"programs": ["ping"]}, "on")


# --- files ---


def manifest(files: dict[str, bytes]) -> bytes:
    listed = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return json.dumps({"files": listed}).encode()


def upload(at: Desks, name: str, files: dict[str, bytes], caller: Caller = A) -> bool:
    for each, data in {**files, "manifest.json": manifest(files)}.items():
        at.office.uploads.take(name, "client", each, 0, data)
    with at.at(caller) as desk:
        row = uploads.check_uploader(desk, name, "client")
        return at.office.uploads.complete(desk, row, "client")


def test_files_are_seen_when_all_are_there_by_those_who_may(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    files = {"out.txt": b"x" * 1000, "dir/more.json": b"{}"}
    store = at.office.uploads
    assert store.take(name, "client", "out.txt", 0, files["out.txt"][:400]) == 400
    # A piece from elsewhere is not written; the sender goes on from where the file ends.
    assert store.take(name, "client", "out.txt", 700, b"?") == 400
    assert store.offsets(name, "client") == {"out.txt": 400}
    assert store.take(name, "client", "out.txt", 400, files["out.txt"][400:]) == 1000
    with at.at(A) as desk:
        assert not store.complete(desk, uploads.check_uploader(desk, name, "client"), "client")
    assert upload(at, name, files)
    with at.at(ANN) as desk:
        listed = runs.document(desk, name)["files"]
        assert [f["name"] for f in listed] == ["dir/more.json", "manifest.json", "out.txt"]
        path, size, digest = store.file(desk, name, "client", "out.txt")
        assert (path.read_bytes(), size) == (files["out.txt"], 1000)
        assert digest == hashlib.sha256(files["out.txt"]).hexdigest()
    with at.at(BOB) as desk, pytest.raises(DeniedError):
        store.file(desk, name, "client", "out.txt")


def test_a_file_that_is_not_what_its_manifest_says_is_refused(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    store = at.office.uploads
    store.take(name, "client", "out.txt", 0, b"damaged!")
    store.take(name, "client", "manifest.json", 0, manifest({"out.txt": b"original"}))
    with at.at(A) as desk:
        row = uploads.check_uploader(desk, name, "client")
        with pytest.raises(InputError, match="send it again"):
            store.complete(desk, row, "client")
    assert upload(at, name, {"out.txt": b"original"})


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", "", ".", "a//b", "a\nb", "x" * 500, "a\0b", "./a"]
)
def test_no_files_name_leaves_its_run(at: Desks, name: str) -> None:
    run_name = only_run(at, at.submit(job())["id"])
    with pytest.raises(InputError, match="name"):
        at.office.uploads.take(run_name, "client", name, 0, b"x")
    for wrong in ("../../keys", "client/../..", "x"):
        with pytest.raises(InputError, match="no such run"):
            at.office.uploads.take(run_name, wrong, "x", 0, b"x")
        with pytest.raises(InputError, match="no such run"):
            at.office.uploads.take(wrong, "client", "x", 0, b"x")


def test_only_its_node_sends_a_runs_files(at: Desks) -> None:
    name = only_run(at, at.submit(job())["id"])
    for caller, side in ((B, "client"), (A, "server"), (SERVER, "server")):
        with at.office.reading(caller) as desk, pytest.raises(DeniedError):
            uploads.check_uploader(desk, name, side)


def test_files_go_when_their_time_is_over(at: Desks) -> None:
    name = only_run(at, at.submit(job(retention='"1 h"'))["id"])
    assert upload(at, name, {"out.txt": b"x"})
    with at.office.reading(ANN) as desk:
        path = at.office.uploads.file(desk, name, "client", "out.txt")[0]
    at.pass_s(3000)
    at.office.tick()
    assert path.exists()
    at.pass_s(1000)
    at.office.tick()
    assert not path.exists()
    with at.office.reading(ANN) as desk:
        assert runs.document(desk, name)["files"] == []


# --- people ---


def test_tokens_are_kept_as_hashes_and_end(at: Desks, tmp_path: Path) -> None:
    with at.at(ADMIN) as desk:
        token = people.issue(desk, "token", of_user="ann", expires_ns=at.now_ns + 10 * S)
    assert at.office.caller_of_token(token) == ANN
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert token.encode() not in kept
    with pytest.raises(UnknownCallerError, match="not known"):
        at.office.caller_of_token(token[:-1] + ("a" if token[-1] != "a" else "b"))
    with pytest.raises(UnknownCallerError, match="session is not known"):
        at.office.caller_of_token(token, "session")
    at.pass_s(10)
    with pytest.raises(UnknownCallerError, match="expired"):
        at.office.caller_of_token(token)


def test_a_disabled_user_is_out_and_the_last_administrator_stays(at: Desks) -> None:
    with at.at(ADMIN) as desk:
        token = people.issue(desk, "token", of_user="bob")
        people.put_user(desk, {"name": "bob", "disabled": True})
        with pytest.raises(InputError, match="last administrator"):
            people.put_user(desk, {"name": "root", "role": "user"})
        with pytest.raises(InputError, match="last administrator"):
            people.delete_user(desk, "root")
    with pytest.raises(UnknownCallerError, match="disabled"):
        at.office.caller_of_token(token)


@pytest.mark.parametrize("way", ["removed", "disabled"])
def test_the_jobs_of_a_user_who_is_out_end(at: Desks, way: str) -> None:
    at.submit(job("hourly", 'cron = "0 * * * *"'), BOB)
    going = only_run(at, at.submit(job("going", nodes='["b"]'), BOB)["id"])
    others = at.submit(job("others", 'at = "2027-01-01T05:01:00Z"'))["id"]
    for state in ("claimed", "deploying", "executing"):
        at.change("b", going, state)
    with at.at(BOB) as desk:
        # What was put in its place does not know of the run that goes on.
        text = job("going", 'at = "2027-01-01T07:00:00Z"', nodes='["b"]')
        jobs.modify(desk, "going", text, {}, at.office.objects)
    with at.at(ADMIN) as desk:
        if way == "removed":
            assert people.delete_user(desk, "bob") == 3
        else:
            assert people.put_user(desk, {"name": "bob", "disabled": True})["jobs_ended"] == 3
    assert state_of(at, going) == ("aborted", "user")
    left = [row for row in all_runs(at) if State(row["state"]) not in ENDED]
    assert [row["job"] for row in left] == [others]
    with at.office.reading(B) as desk:
        assert nodes.schedule(desk, "b")[1]["runs"] == []
    with at.at(ADMIN) as desk:
        (bobs,) = [row for row in people.users(desk) if row["name"] == "bob"]
        assert bobs["disabled"]
        # Who comes back begins anew.
        people.put_user(desk, {"name": "bob", "disabled": False})
        assert jobs.listing(desk, user="bob") == []


def test_an_invitation_is_for_one_node_once_and_for_a_quarter_of_an_hour(at: Desks) -> None:
    def invite(name: str) -> str:
        with at.at(ADMIN) as desk:
            expires_ns = at.now_ns + people.INVITATION_NS
            return people.issue(desk, "invitation", of_node=name, expires_ns=expires_ns)

    first, second = invite("a"), invite("a")
    with at.at(ADMIN) as desk:
        with pytest.raises(UnknownCallerError, match="not for b"):
            people.take_invitation(desk, first, "b")
        people.take_invitation(desk, first, "a")
        with pytest.raises(UnknownCallerError, match="used before"):
            people.take_invitation(desk, first, "a")
    at.pass_s(15 * 60)
    with at.at(ADMIN) as desk, pytest.raises(UnknownCallerError, match="expired"):
        people.take_invitation(desk, second, "a")


def test_settings_are_checked_and_take_effect(at: Desks) -> None:
    with at.at(ADMIN) as desk:
        for wrong in ({"nonsense": 1}, {"late_s": -1}, {"late_s": "x"}, {"late_s": True}):
            with pytest.raises(InputError):
                procedures.put_config(desk, wrong)
        procedures.put_config(desk, {"reschedule_after_s": 60})
    name = only_run(at, at.submit(job())["id"])
    at.change("a", name, "skipped", "busy")
    moved = next(row for row in all_runs(at) if row["after"] == name)
    assert moved["start_ns"] == BEGIN_NS + 60 * S


def test_a_node_with_jobs_stays_and_one_without_goes(at: Desks) -> None:
    at.submit(job())
    with at.at(ADMIN) as desk:
        with pytest.raises(InputError, match="job j names it"):
            nodes.delete(desk, "a")
        nodes.delete(desk, "b")
        with pytest.raises(NotFoundError):
            nodes.get(desk, "b")


def test_ids_sort_by_their_time() -> None:
    made = [new_id(n * 1_000_000) for n in (0, 1, 31, 32, 10**12)]
    assert made == sorted(made)
    assert all(map(is_id, made))
    assert not any(map(is_id, ["", "0" * 25, "U" * 26, "../" + "0" * 23]))


def test_tables_are_those_that_the_migrations_make(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from skyhop.testbed.store.database import HEAD, open_database
    from skyhop.testbed.store.tables import metadata

    database = open_database(f"sqlite:///{tmp_path}/t.sqlite")
    with database.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == HEAD
    database.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "no address of one; there are sqlite:.* and postgresql:"),
        ("postgresql://ann:secret@host:port/x", "no address of one"),
        ("sqlite:////nowhere/at/all.sqlite", "unable to open"),
        ("oracle://x/y", '"oracle" is not known; there are sqlite and postgresql'),
        ("foo://", '"foo" is not known; there are sqlite and postgresql'),
        ("postgresql://x/y", r"pip install 'skyhop\[postgresql\]'"),
        ("postgresql+psycopg2://x/y", "no driver psycopg2"),
    ],
)
def test_a_database_that_cannot_be_is_said_in_a_line(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SkyhopError, match=f"the testbed's database: .*{said}") as caught:
        Office(tmp_path / "state", ["localhost"], clock=StandingClock(), database=url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    # Nothing was made: no keys of a testbed that there is not.
    assert not list(tmp_path.rglob("*.key"))


def test_others_may_not_read_the_keys(tmp_path: Path) -> None:
    with desks(tmp_path / "state"):
        pass
    keys = tmp_path / "state" / "keys"
    for file in keys.glob("*.key"):
        assert file.stat().st_mode & 0o077 == 0, file
    (keys / "orders.key").chmod(0o644)
    with pytest.raises(InputError, match="others may read"), desks(tmp_path / "state"):
        pass


def test_an_administrator_who_mends_a_job_does_not_take_it_over(at: Desks) -> None:
    made = at.submit(job("mine", 'cron = "0 * * * *"'))
    with at.at(ADMIN) as desk:
        text = job("mine", 'cron = "30 * * * *"')
        mended = jobs.modify(desk, made["id"], text, {}, at.office.objects)
    assert mended["owner"] == "ann"


def test_a_job_is_found_by_those_who_may_see_it(at: Desks) -> None:
    theirs = at.submit(job("hidden", 'at = "2027-02-01T00:00:00Z"'), BOB)["id"]
    for caller in (ADMIN, BOB, ANN):
        # It runs on a node of ann's.
        with at.at(caller) as desk:
            assert jobs.get(desk, theirs)["owner"] == "bob"
    with at.at(PIA) as desk:
        with pytest.raises(DeniedError, match="is not yours"):
            jobs.get(desk, theirs)
        with pytest.raises(NotFoundError):
            jobs.get(desk, "hidden")


def test_why_a_trigger_fired_is_for_its_user(at: Desks) -> None:
    when = f'trigger = "tilt > 3"\nend = {BEGIN_NS + 86_400 * S}'
    theirs = at.submit(job("watching", when), BOB)["id"]
    at.report("a", ("trigger", {"job": theirs, "fired": False, "why": "false"}))
    for caller, seen in ((ADMIN, 1), (BOB, 1), (ANN, 0), (PIA, 0)):
        # The node is ann's: what she may know is that the job is there.
        with at.at(caller) as desk:
            assert len(nodes.log_of_triggers(desk, of_job=theirs)) == seen, caller
            assert len(nodes.log_of_triggers(desk)) == seen, caller
    # Who does not run it has nothing to say of it.
    at.report("b", ("trigger", {"job": theirs, "fired": True}))
    with at.at(BOB) as desk:
        assert len(nodes.log_of_triggers(desk)) == 1
