"""Access control of the API: every role with every operation, and every wrong credential.

All calls are within this process; test_testbed_served.py tests TLS and subprocesses.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from testbed_harness import event, job
from testbed_line import Local, local

from command_line import run_here
from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.api import ApiError, ErrorKind, Operation
from skyhop_testbed.cli.testbed_events import print_events
from skyhop_testbed.client import VARIABLE, Testbed
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import read_job
from skyhop_testbed.keys import is_signed, make_request
from skyhop_testbed.orchestrator import archive, handlers, page_port
from skyhop_testbed.orchestrator.request_context import ITSELF
from skyhop_testbed.wire import Lines, Wire
from skyhop_testbed.words import Reason, Role, State

_OUT = (ErrorKind.UNAUTHENTICATED, ErrorKind.DENIED)

_OFTEN = 100_000.0
"""Rate limit for tests, which send more requests than users do."""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """Yield a testbed in this process."""
    with local(tmp_path_factory.mktemp("testbed") / "state") as made:
        with made.testbed() as admin:
            admin.put_config({"requests_per_minute": _OFTEN, "refused_per_minute": _OFTEN})
            for name, role in (("ann", "user"), ("pia", "user-priv")):
                admin.put_user(api.PutUser(name=name, role=role))
            admin.put_node(api.PutNode(name="a", owner="ann"))
        yield made


def asked(wire: Wire, operation: Operation[Any, Any], request: Any) -> ErrorKind | None:
    """Return the kind of the error with which a request ends; of a stream, its first answer."""
    try:
        if operation.uploads:
            wire.upload(operation, request, iter([]), 10.0)
        elif operation.answer is bytes:
            list(wire.download(operation, request))
        elif operation.lines:
            next(iter(wire.stream(operation, request)))
        else:
            wire.call(operation, request, 10.0)
    except ApiError as error:
        return error.kind
    return None


def bare(operation: Operation[Any, Any]) -> Any:
    """Return a request of an operation in which the fields of the path name nothing."""
    known: dict[str, Any] = {"policy": {}, "values": {}, "fence": 1, "at_ns": 1, "length_ns": 1}
    fields = operation.request.model_fields
    required = {name: known.get(name, "x") for name, field in fields.items() if field.is_required()}
    return operation.request.model_validate(required)


def test_every_operation_is_for_those_that_the_table_says(testbed: Local) -> None:
    with testbed.testbed() as admin:
        tokens = {
            Role.ADMIN: admin.issue_token("admin"),
            Role.USER: admin.issue_token("ann"),
            Role.USER_PRIV: admin.issue_token("pia"),
        }
    agent = testbed.agent("roles")
    seen = 0
    for name, operation in api.OPERATIONS.items():
        if operation.roles == api.INVITED:
            continue
        request = bare(operation)
        if operation.roles == api.NODES:
            assert asked(agent, operation, request) not in _OUT, name
            # The users' port does not offer the operations of nodes.
            users = testbed.wire(testbed.users, token=tokens[Role.ADMIN])
            with pytest.raises(ApiError, match="no such operation"):
                users.call(operation, request)
            continue
        for role, token in tokens.items():
            kind = asked(testbed.wire(testbed.users, token=token), operation, request)
            assert (kind is ErrorKind.DENIED) == (role not in operation.roles), (name, role, kind)
            seen += 1
        for wrong in (None, "", "x" * 43, tokens[Role.USER][:-2]):
            kind = asked(testbed.wire(testbed.users, token=wrong), operation, request)
            assert kind is ErrorKind.UNAUTHENTICATED, name
            seen += 1
        with pytest.raises(ApiError, match="no such operation"):
            agent.call(operation, request)
    of_nodes = sum(operation.roles == api.NODES for operation in api.OPERATIONS.values())
    invited = sum(o.roles == api.INVITED for o in api.OPERATIONS.values())
    assert seen == 7 * (len(api.OPERATIONS) - of_nodes - invited)


def test_every_operation_has_one_handler(testbed: Local) -> None:
    tables = [handlers.READING, handlers.WRITING, handlers.ACTING, handlers.FILES]
    tables.append(testbed.service._handlers)
    of_pages = {each.name for each in page_port.OPERATIONS}
    names = [name for table in tables for name in table if name not in of_pages]
    names += [api.UPLOAD.name, api.UPLOAD_RELEASE.name]
    assert sorted(names) == sorted(api.OPERATIONS)
    changing = ({*handlers.WRITING} - of_pages) | {*handlers.ACTING}
    of_users = {name for name in changing if api.OPERATIONS[name].roles != api.NODES}
    assert all(api.OPERATIONS[name].is_audited for name in of_users)
    assert not any(api.OPERATIONS[name].is_audited for name in handlers.READING)


def test_an_invitation_enrols_once(testbed: Local) -> None:
    with testbed.testbed() as admin:
        admin.put_node(api.PutNode(name="new"))
        token = admin.invitation("new")["token"]
    for node, secret in (("new", "x" * 43), ("a", token)):
        with pytest.raises(ApiError) as caught:
            testbed.enrol(node, secret)
        assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    first = testbed.enrol("new", token)
    with pytest.raises(ApiError, match="used before"):
        testbed.enrol("new", token)
    # Enrolling the node again revokes its old certificate.
    with testbed.testbed() as admin:
        second = testbed.enrol("new", admin.invitation("new")["token"])
    old, new = (testbed.wire(testbed.agents, identity_pem) for identity_pem in (first, second))
    assert asked(new, api.REPORT, api.Batch()) is None
    assert asked(old, api.REPORT, api.Batch()) is ErrorKind.UNAUTHENTICATED


def test_a_request_for_another_name_gets_a_certificate_of_the_nodes_own(testbed: Local) -> None:
    with testbed.testbed() as admin:
        admin.put_node(api.PutNode(name="honest"))
        token = admin.invitation("honest")["token"]
    key, request = make_request("a")
    enrol = api.Enrol(node="honest", token=token, csr_pem=request)
    pem = testbed.wire(testbed.users).call(api.ENROL, enrol).certificate_pem
    agent = testbed.wire(testbed.agents, key + pem)
    order = next(iter(agent.stream(api.FOLLOW, api.Follow())))
    assert b'"node":"honest"' in order.body


def test_a_renewed_certificate_is_good_beside_the_old_one(testbed: Local) -> None:
    agent = testbed.agent("renewed")
    key, request = make_request("renewed")
    pem = agent.call(api.RENEW, api.Renew(csr_pem=request)).certificate_pem
    renewed = testbed.wire(testbed.agents, key + pem)
    for each in (agent, renewed):
        assert asked(each, api.REPORT, api.Batch()) is None
    with pytest.raises(ApiError, match="certificate request"):
        agent.call(api.RENEW, api.Renew(csr_pem=b"nonsense"))


def test_orders_are_signed(testbed: Local) -> None:
    with testbed.testbed() as admin:
        admin.put_node(api.PutNode(name="signed"))
        token = admin.invitation("signed")["token"]
    key, request = make_request("signed")
    enrol = api.Enrol(node="signed", token=token, csr_pem=request)
    given = testbed.wire(testbed.users).call(api.ENROL, enrol)
    agent = testbed.wire(testbed.agents, key + given.certificate_pem)
    schedule = next(iter(agent.stream(api.FOLLOW, api.Follow())))
    assert schedule.kind is api.OrderKind.SCHEDULE
    assert is_signed(given.orders_key, schedule.body, schedule.signature)
    assert not is_signed(given.orders_key, schedule.body + b" ", schedule.signature)


def test_a_token_that_was_taken_back_is_refused(testbed: Local) -> None:
    with testbed.testbed() as admin:
        credential = admin.credential("pia", "to be revoked")
        with Testbed(credential) as pia:
            assert pia.profile().name == "pia"
            assert admin.revoke_tokens("pia", "to be revoked") == 1
            with pytest.raises(InputError, match="not known"):
                pia.profile()


@contextlib.contextmanager
def limited(testbed: Local, **limits: float) -> Iterator[None]:
    """Set rate limits of a testbed for the duration of the context."""

    def put(values: dict[str, float]) -> None:
        with testbed.orchestrator.writing(ITSELF) as ctx:
            handlers.put_config(ctx, values)
        testbed.clock.sleep(61)

    put(limits)
    try:
        yield
    finally:
        put(dict.fromkeys(limits, _OFTEN))


def test_requests_are_limited_per_minute(testbed: Local) -> None:
    with testbed.testbed() as admin:
        credential = admin.credential("ann")
    with Testbed(credential) as ann, limited(testbed, requests_per_minute=5):
        said = [_said(ann) for _ in range(7)]
        testbed.clock.sleep(59)
        said.append(_said(ann))
        testbed.clock.sleep(2)
        then = _said(ann)
    assert said[:5] == ["ann"] * 5
    assert all("more than 5 requests per minute" in each for each in said[5:])
    assert then == "ann"


def test_wrong_tokens_are_limited_per_minute(testbed: Local) -> None:
    with testbed.testbed() as admin:
        token = admin.issue_token("ann")
    guess, good = (testbed.wire(testbed.users, token=each) for each in ("x" * 43, token))
    with limited(testbed, refused_per_minute=3):
        kinds = [asked(guess, api.LIST_NODES, api.ListNodes()) for _ in range(5)]
        known = asked(good, api.LIST_NODES, api.ListNodes())
    assert kinds[:3] == [ErrorKind.UNAUTHENTICATED] * 3
    assert kinds[3:] == [ErrorKind.TOO_OFTEN] * 2
    assert known is None, "one who guesses keeps out no other"


def _said(user: Testbed) -> str:
    try:
        return user.profile().name
    except RunError as error:
        return str(error)


def test_a_new_schedule_reaches_all_who_follow(testbed: Local) -> None:
    names = [f"f{number}" for number in range(10)]
    with testbed.testbed() as admin:
        streams = [followed(testbed.agent(name)) for name in names]
        first = [json.loads(next(orders).body)["revision"] for _, orders in streams]
        for number in range(20):
            when = f'at = "2099-01-01T{number:02}:00:00Z"'
            admin_submit(admin, job(f"f{number}", when, nodes=f'["{names[number % 10]}"]'))
        listed = ", ".join(f'"{name}"' for name in names)
        admin_submit(admin, job("all", 'at = "2099-01-02T00:00:00Z"', nodes=f"[{listed}]"))
    testbed.silences.clear()
    for revision, (_, orders) in zip(first, streams, strict=True):
        schedule = next(orders)
        assert json.loads(schedule.body)["revision"] > revision
        assert b'"id":"all"' in schedule.body
        assert len(json.loads(schedule.body)["runs"]) == 3
    assert testbed.silences == [], "all streams were notified, none fell back to polling"


def test_a_missed_notification_is_made_up_for_by_polling(testbed: Local) -> None:
    _, orders = followed(testbed.agent("untold"))
    next(orders)
    testbed.silences.clear()
    with mock.patch.object(testbed.orchestrator, "_listeners", []), testbed.testbed() as admin:
        admin_submit(admin, job("unheard", 'at = "2099-01-01T00:00:00Z"', nodes='["untold"]'))
    assert b'"id":"unheard"' in next(orders).body
    assert testbed.silences == [20.0]


def followed(agent: Wire) -> tuple[Lines[api.Order], Iterator[api.Order]]:
    """Return the stream of a node's orders, and an iterator over it."""
    stream = agent.stream(api.FOLLOW, api.Follow())
    return stream, iter(stream)


def admin_submit(admin: Testbed, text: str) -> api.SubmittedJob:
    return admin._call(api.SUBMIT_JOB, api.SubmitJob(toml=text))


_YES, _NO, _NONE = (None, ErrorKind.DENIED, ErrorKind.NOT_FOUND)
_OTHERS: list[tuple[Operation[Any, Any], Any, dict[str, ErrorKind | None]]] = [
    (api.GET_RUN, lambda it: api.NamedRun(run=it.run), {"stranger": _NO, "priv": _NO}),
    (api.LIST_FILES, lambda it: api.ListFiles(run=it.run), {"stranger": _NO, "priv": _NO}),
    (api.WATCH_RUN, lambda it: api.NamedRun(run=it.run), {"stranger": _NO, "priv": _NO}),
    (
        api.FETCH,
        lambda it: api.Fetch(run=it.run, side="client", name="x"),
        # Only the user reads the files; node owners see that they exist.
        {
            "user": _NONE,
            "admin": _NONE,
            **dict.fromkeys(("host", "server", "stranger", "priv"), _NO),
        },
    ),
    (
        api.SET_SCAVENGER,
        lambda it: api.SetScavenger(node=it.node, mode="auto"),
        dict.fromkeys(("user", "server", "stranger", "priv"), _NO),
    ),
    (
        api.SET_POLICY,
        lambda it: api.SetPolicy(node=it.node, policy={}),
        dict.fromkeys(("user", "server", "stranger", "priv"), _NO),
    ),
    (
        api.DROP_FILES,
        lambda it: api.NamedRun(run=it.run),
        dict.fromkeys(("host", "server", "stranger", "priv"), _NO),
    ),
    (
        api.MODIFY_JOB,
        lambda it: api.ModifyJob(job=it.job, toml=it.text),
        dict.fromkeys(("host", "server", "stranger", "priv"), _NO),
    ),
    (
        api.ABORT_RUN,
        lambda it: api.AbortRun(run=it.run),
        {"stranger": _NO, "priv": _NO},
    ),
    (
        api.RESCHEDULE_RUN,
        lambda it: api.RescheduleRun(run=it.run),
        dict.fromkeys(("host", "server", "stranger", "priv"), _NO),
    ),
    (
        api.CANCEL_JOB,
        lambda it: api.NamedJob(job=it.job),
        # The owner of the server node may abort a run there, but not cancel the job.
        {"server": _NO, "stranger": _NO, "priv": _NO},
    ),
]
"""Calls that name a job, run, file or node, and the status codes other than OK by role.

The job belongs to `user`; `host` owns its client node, and `server` its server node.
"""
_ROLES = ("stranger", "priv", "server", "host", "user", "admin")
_LISTS: list[tuple[Operation[Any, Any], Any, set[str]]] = [
    (api.LIST_JOBS, lambda _: api.ListJobs(user="user"), {"user", "host", "server", "admin"}),
    (api.LIST_JOBS, lambda it: api.ListJobs(node=it.node), {"user", "host", "server", "admin"}),
    (api.LIST_RUNS, lambda it: api.ListRuns(job=it.job), {"user", "host", "server", "admin"}),
    (api.LIST_RUNS, lambda _: api.ListRuns(user="user"), {"user", "host", "server", "admin"}),
    (api.LIST_RUNS, lambda it: api.ListRuns(node=it.node), {"user", "host", "server", "admin"}),
]
"""Listing calls, and the roles that see the job or its run in them."""


@dataclass(frozen=True)
class _Others:
    """Another user's job, its run, its client node and its job file."""

    job: str
    run: str
    node: str
    text: str


@pytest.fixture
def others_job(testbed: Local) -> Iterator[tuple[_Others, dict[str, Testbed]]]:
    """Yield a job of `user` on a node of `host` with a server of `server`, and all clients."""
    roles = {"user": "user", "host": "user", "server": "user", "stranger": "user"}
    with contextlib.ExitStack() as stack, testbed.testbed() as admin:
        for name, role in (*roles.items(), ("priv", "user-priv")):
            admin.put_user(api.PutUser(name=name, role=role))
        admin.put_node(api.PutNode(name="client-node", owner="host"))
        admin.put_node(api.PutNode(name="server-node", owner="server", address="192.0.2.7"))
        users = {"admin": admin}
        for name in (*roles, "priv"):
            users[name] = stack.enter_context(Testbed(admin.credential(name)))
        keys = {"nodes": '["client-node"]', "server": '"server-node"'}
        run = 'client = ["true"]\nserve = ["true"]'
        text = job("theirs", 'at = "2099-03-01T00:00:00Z"', **keys, run=run)
        admin_submit(users["user"], text)
        (row,) = users["user"].runs(job="theirs")
        yield _Others(row.job, row.id, "client-node", text), users
        with contextlib.suppress(InputError):
            users["user"].cancel("theirs")


def test_access_to_another_users_objects_is_as_in_the_tables(
    others_job: tuple[_Others, dict[str, Testbed]],
) -> None:
    theirs, users = others_job
    for name, ask, codes in _OTHERS[:6]:
        for role in _ROLES:
            code = asked(users[role]._wire, name, ask(theirs))
            assert code is codes.get(role, _YES), (name, role, code)
    for name, ask, seen in _LISTS:
        for role in _ROLES:
            rows = users[role]._call(name, ask(theirs))
            assert bool(rows) == (role in seen), (name, role, rows)
    # The changing operations: roles without permission first, then one with it.
    for name, ask, codes in _OTHERS[6:]:
        for role in _ROLES:
            if codes.get(role, _YES) is not _YES:
                code = asked(users[role]._wire, name, ask(theirs))
                assert code is codes[role], (name, role, code)
    (row,) = users["user"].runs(job="theirs")
    assert (row.id, row.state) == (theirs.run, "planned"), "refused calls have no effect"
    # The tables cover each operation that names a job, run or user.
    named = {
        operation.name
        for operation in api.OPERATIONS.values()
        if operation.roles == api.USERS
        and operation.request.model_fields.keys() & {"job", "run", "user"}
    }
    tested = {operation.name for operation, *_ in (*_OTHERS[:4], *_OTHERS[6:], *_LISTS)}
    assert named == tested | {"TriggerLog"}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *(("AbortRun", role) for role in ("server", "host", "user", "admin")),
        *(("CancelJob", role) for role in ("host", "user", "admin")),
        *(("ModifyJob", role) for role in ("user", "admin")),
    ],
)
def test_who_may_abort_or_change_another_users_objects(
    others_job: tuple[_Others, dict[str, Testbed]], name: str, role: str
) -> None:
    theirs, users = others_job
    ((operation, ask),) = ((o, ask) for o, ask, _ in _OTHERS if o.name == name)
    assert asked(users[role]._wire, operation, ask(theirs)) is _YES


def test_nodes_take_part_in_their_own_runs_alone(
    testbed: Local, others_job: tuple[_Others, dict[str, Testbed]]
) -> None:
    theirs, users = others_job
    other = testbed.agent("other-node")
    claimed = other.call(api.CLAIM, api.Claim(run=theirs.run, fence=1, at_ns=1))
    assert (claimed.granted, claimed.reason) == (False, "it is another node's")
    assert asked(other, api.INPUT, api.Input(job=theirs.job, name="x")) is _NONE
    for side in ("client", "server"):
        named = api.RunSide(run=theirs.run, side=side)
        assert asked(other, api.UPLOAD_STATE, named) is _NO
        with pytest.raises(ApiError) as caught:
            other.upload(api.UPLOAD, named, iter([api.frame("x", 0, b"x")]), 5.0)
        assert caught.value.kind is _NO
    (row,) = users["user"].runs(job="theirs")
    assert row.state == "planned"


def test_planned_runs_are_listed_once_per_job_and_node(testbed: Local) -> None:
    with testbed.testbed() as admin:
        for node in ("early", "late"):
            admin.put_node(api.PutNode(name=node))
        when = 'cron = "30 * * * *"'
        admin_submit(admin, job("hourly", when, nodes='["early", "late"]'))
        found = admin.runs(job="hourly")
        assert sorted(each.client for each in found) == ["early", "late"]
        planned = admin.runs(job="hourly", states=["planned"], limit=1000)
        assert len(planned) > 2 * 24
        first_ns = min(each.start_ns for each in planned)
        assert {each.start_ns for each in found} == {first_ns}


def test_other_users_job_names_are_hidden(testbed: Local) -> None:
    with testbed.testbed() as admin:
        admin.put_user(api.PutUser(name="ben", role="user"))
        with Testbed(admin.credential("ben")) as ben:
            text = job("secret", 'at = "2099-02-01T00:00:00Z"', nodes='["a"]')
            admin_submit(ben, text)
        admin.put_user(api.PutUser(name="eve", role="user"))
        (row,) = admin.runs(job="secret", states=["planned"])
        with Testbed(admin.credential("eve")) as eve:
            assert eve.runs(node="a", states=["planned"]) == eve.runs(job=row.job) == []
            with pytest.raises(InputError, match="there is no job secret of yours"):
                eve.runs(job="secret")
            assert eve.jobs() == []
            with pytest.raises(InputError, match="not yours"):
                eve.run(row.id)
            with pytest.raises(InputError, match="not yours"):
                eve.abort(row.id)
            with pytest.raises(InputError, match="not yours"):
                eve.fetch(row.id, Path("nowhere"))
            # All users see that the node is reserved, and by whom.
            (booked,) = [r for r in eve.calendar(["a"], 0, 2**62) if r.id == row.id]
            assert (booked.owner, booked.job_name) == ("ben", "")
            with pytest.raises(InputError, match="there is no run"):
                eve.run(new_id(0))


@pytest.fixture
def answers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer queries of stored telemetry in this process instead of a subprocess."""

    def answer(
        command: list[str], *, stdout: Any, **others: Any
    ) -> subprocess.CompletedProcess[bytes]:
        errors = io.StringIO()
        status = archive.respond(archive.Query(**json.loads(others["input"])), stdout, errors)
        return subprocess.CompletedProcess(command, status, None, errors.getvalue().encode())

    monkeypatch.setattr(archive.subprocess, "run", answer)


@pytest.mark.usefixtures("answers_here")
def test_stored_telemetry_is_read_in_steps_and_by_triggers(testbed: Local) -> None:
    now_ns = testbed.clock.ns // 10**9 * 10**9
    agent = testbed.agent("measured")
    samples = [{"time_ns": now_ns + n * 10**9, "pop_ping_latency_ms": 20.0 * n} for n in range(4)]
    told = event(1, now_ns, "telemetry", json.dumps({"samples": samples}))
    agent.call(api.REPORT, api.Batch(events=[told]))
    with testbed.testbed() as admin:
        fields, end_ns = ["pop_ping_latency_ms"], now_ns + 10**10
        frame = admin.telemetry("measured", now_ns, end_ns, fields)
        assert frame["pop_ping_latency_ms"].to_list() == [0.0, 20.0, 40.0, 60.0]
        assert admin.telemetry("measured", now_ns, end_ns, fields, 2 * 10**9).height < 4
        looks = admin.test_trigger("pop_ping_latency_ms > 30", "measured", now_ns, end_ns)
        assert [look.outcome for look in looks].count("fired") == 1
        for wrong, said in (
            (lambda: admin.telemetry("measured", 0, end_ns, ["bogus"]), 'no field "bogus"'),
            (lambda: admin.test_trigger("tilt >", "measured", 0, end_ns), "trigger"),
            (lambda: admin.telemetry("a", 0, end_ns), 'the testbed: .* no telemetry of a node "a"'),
            (lambda: admin.telemetry("nowhere", 0, end_ns), "there is no node nowhere"),
        ):
            with pytest.raises(InputError, match=said) as caught:
                wrong()
            assert "\n" not in str(caught.value)
            assert str(testbed.directory) not in str(caught.value)


def skyhop(testbed: Local, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a `skyhop testbed` command as an administrator."""
    with mock.patch.dict(os.environ, {VARIABLE: str(testbed.directory / "admin.json")}):
        return run_here(testbed.directory.parent, "testbed", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trigger test tilt>1 --history nowhere", "nowhere: there is no such directory"),
        ("runs --state bogus", 'state: "bogus" is not a state; choose from planned, armed, '),
        ("runs --job nope", "there is no job nope of yours"),
        ("trigger log --job nope", "there is no job nope of yours"),
        ("trigger log --node nope", "there is no node nope"),
        ("jobs --node nope", "there is no node nope"),
        ("tokens revoke ann nope", 'ann has no token with the label or id "nope"'),
        ("tokens revoke absent", "there is no user absent"),
        (
            "tokens issue ann -o ann.testbed --days -1",
            "the expiry of a credential must be in the future",
        ),
        ("check wrong.toml --offline", 'kernel: cc "nonsense;rm": expected a congestion control'),
        ("policy a wrong.toml", "wrong.toml: not a JSON object; skyhop testbed policy a prints"),
        ("policy a nowhere.json", "nowhere.json: No such file"),
        ("serve --users nonsense --state new", '--users "nonsense": expected HOST:PORT'),
        ("serve --web 127.0.0.1:99999 --state new", '--web "127.0.0.1:99999": expected HOST'),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(testbed: Local, words: str, said: str) -> None:
    wrong = job("x", run='client = ["true"]\nnetwork = "veth"\n[kernel]\ncc = "nonsense;rm"')
    (testbed.directory.parent / "wrong.toml").write_text(wrong)
    done = skyhop(testbed, *words.split())
    assert (done.returncode, done.stdout) == (2, ""), done
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (testbed.directory.parent / "new").exists()


def test_commands_print_json_and_events_in_words(testbed: Local) -> None:
    place = testbed.directory.parent
    (place / "mine.toml").write_text(job("mine", 'at = "2099-05-01T00:00:00Z"', length='"90 s"'))
    with testbed.testbed() as admin:
        made = admin.submit(place / "mine.toml")
        (planned,) = admin.runs(job="mine")
    printed = skyhop(testbed, "job", "mine").stdout
    assert read_job(printed) == read_job((place / "mine.toml").read_text())
    slot = json.loads(skyhop(testbed, "next", "a", "--json").stdout)
    assert slot["nodes"] == ["a"]
    modified = json.loads(skyhop(testbed, "modify", "mine", "mine.toml", "--json").stdout)
    assert modified["id"] != made.id
    assert json.loads(skyhop(testbed, "cancel", "mine", "--json").stdout)["state"] == "cancelled"
    assert json.loads(skyhop(testbed, "scavenger", "a", "auto", "--json").stdout)["name"] == "a"
    shown = skyhop(testbed, "run", planned.id)
    assert "skipped (job-ended) user:admin" in shown.stdout


def test_events_of_a_run_are_printed_in_words_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    moved: api.Document = {
        "rx_bytes": 12_345_678,
        "tx_bytes": 999,
        "counted": "bytes of its sockets",
    }
    details: api.Document = {
        "exit": 1,
        "traffic": moved,
        "began_ns": 10**9,
        "ended_ns": 3 * 10**9,
        "fence": 7,
    }
    failed = api.RunEvent(
        id=1,
        run="r",
        at_ns=0,
        received_ns=0,
        actor="node:a",
        state=State.FAILED,
        reason=Reason.EXIT,
        details=details,
        applied=True,
    )
    clock: api.Document = {"clock_offset_ms": 250.4}
    claimed = failed.model_copy(update={"state": State.CLAIMED, "reason": None, "details": clock})
    print_events([failed, claimed])
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(
        "failed (exit) node:a exit status 1; received 12.3 MB, sent 999 byte "
        "(bytes of its sockets); ran for 2.0 s"
    )
    assert second.endswith("claimed node:a its clock is +250 ms off")
