"""A year of keys: certificates that expire while a node is off, and rotation of the authority."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography import x509
from node_here import NodeHere, Script
from test_testbed_node import job as node_job
from testbed_fake_orchestrator import NODE
from testbed_harness import (
    ADMIN,
    BEGIN_NS,
    LocalOrchestrator,
    S,
    job,
    local_orchestrator,
    served,
)

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.agent import housekeeping, schedule
from skyhop_testbed.agent import identity as identities
from skyhop_testbed.agent.agent_db import AgentDb, OutboxEntry
from skyhop_testbed.agent.identity import Identity, enrol, read_identity, reenrol, renew
from skyhop_testbed.agent.lock import locked
from skyhop_testbed.agent.reports import TelemetryReport
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.client import Testbed
from skyhop_testbed.keys import fingerprint, make_request, sign_request
from skyhop_testbed.orchestrator import accounts, authority, nodes
from skyhop_testbed.orchestrator.authority import common_name, issued_ns
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    DeniedError,
    NotFoundError,
    UnknownCallerError,
    as_json,
)
from skyhop_testbed.store.tables import audit, credential
from skyhop_testbed.wire import Wire, client_context, open_http
from waiting import wait_for

DAY_S = 86_400
_KINDS = {InputError: ErrorKind.INVALID, DeniedError: ErrorKind.DENIED}


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


class Line:
    """Connection to an orchestrator in this process, with the interface of `wire.Wire`.

    It checks the certificates of both sides like TLS, by the clock of the orchestrator.
    """

    def __init__(self, at: LocalOrchestrator, identity: Identity, *, of_nodes: bool) -> None:
        self._at, self._identity, self._of_nodes = at, identity, of_nodes

    def call(self, operation: api.Operation[Any, Any], request: Any, _timeout_s: float = 0) -> Any:
        """Call an operation of the port."""
        caller = ITSELF
        try:
            if self._of_nodes:
                caller = self.connected()
            else:
                self._check_server()
            text = request.model_dump(mode="json", exclude_unset=True)
            made = call(self._at.orchestrator, operation, caller, operation.request(**text))
            return operation.adapter.validate_json(operation.adapter.dump_json(made))
        except SkyhopError as error:
            kind = _KINDS.get(type(error), ErrorKind.UNAUTHENTICATED)
            raise ApiError(kind, str(error)) from error

    def close(self) -> None:
        """Do nothing, as there is no connection."""

    def _check_server(self) -> None:
        pem = (self._at.orchestrator.directory / "keys" / "server.pem").read_bytes()
        trusted = x509.load_pem_x509_certificates(self._identity.authority_pem)
        if not _is_signed_by_any(x509.load_pem_x509_certificate(pem), trusted):
            raise UnknownCallerError("the server's authority is not trusted")

    def connected(self) -> Caller:
        """Connect to the agents' port; return the node as the port authenticates it."""
        self._check_server()
        pem = self._identity.certificate_pem
        certificate = x509.load_pem_x509_certificate(pem)
        trusted = (self._at.orchestrator.directory / "keys" / authority.TRUSTED).read_bytes()
        if not _is_signed_by_any(certificate, x509.load_pem_x509_certificates(trusted)):
            raise UnknownCallerError("TLS: the client's authority is not trusted")
        if self._at.orchestrator.now() > certificate.not_valid_after_utc:
            raise UnknownCallerError("TLS: the client's certificate has expired")
        with self._at.writing(ITSELF) as ctx:
            caller = accounts.caller_of_certificate(
                ctx, self._identity.node, fingerprint(pem), issued_ns(certificate)
            )
        return Caller(caller.name, caller.role, common_name(certificate.issuer))


def _is_signed_by_any(certificate: x509.Certificate, trusted: list[x509.Certificate]) -> bool:
    for each in trusted:
        try:
            certificate.verify_directly_issued_by(each)
        except Exception:
            continue
        return True
    return False


def invited(at: LocalOrchestrator, node: str, place: Path) -> Path:
    """Write an invitation of a node; return its path."""
    token = call(at.orchestrator, api.INVITE, ADMIN, api.NamedNode(node=node))
    pem = at.orchestrator.authority.certificate_pem.decode()
    values = {"node": node, "token": token, "address": "testbed:7400", "agents": "testbed:7401"}
    file = place / f"{node}.invitation"
    file.write_text(json.dumps({**values, "authority_pem": pem}))
    return file


@pytest.fixture
def enrolling(at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let enrolment call the orchestrator in this process."""

    def ask(values: dict[str, str], request: bytes, _proxy: str | None) -> api.Certificate:
        asked = api.Enrol(node=values["node"], token=values["token"], csr_pem=request)
        return call(at.orchestrator, api.ENROL, ITSELF, asked)

    monkeypatch.setattr(identities, "_request_certificate", ask)


# --- a node that was off for long ---


@pytest.mark.usefixtures("enrolling")
def test_enrolment_in_place_keeps_results_and_ends_the_old_certificate(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    state = tmp_path / "agent"
    first = enrol(invited(at, "a", tmp_path), state)
    db = AgentDb(state, at.now_ns)
    db.add(OutboxEntry(at.now_ns, TelemetryReport([{"time_ns": at.now_ns, "uptime_s": 5.0}])))
    db.put("fence", "17")
    db.close()
    (state / "runs" / "r").mkdir(parents=True)
    (state / "runs" / "r" / "out.txt").write_text("result")
    at.pass_s(100 * DAY_S)
    with pytest.raises(ApiError, match="expired"):
        Line(at, first, of_nodes=True).call(api.REPORT, api.Batch())
    second = enrol(invited(at, "a", tmp_path), state)
    assert second.key_pem != first.key_pem
    assert (state / "runs" / "r" / "out.txt").read_text() == "result"
    db = AgentDb(state, at.now_ns)
    assert db.get("fence") == "17"
    events = [api.Event(seq=s, at_ns=t, kind=k, body=b) for s, t, k, b in db.next_batch()]
    db.close()
    assert len(events) == 1
    line = Line(at, second, of_nodes=True)
    assert line.call(api.REPORT, api.Batch(events=events)) == events[0].seq
    kept = at.orchestrator.telemetry.read(["a"], ["uptime_s"])
    assert kept["uptime_s"].to_list() == [5.0]
    with at.writing(ITSELF) as ctx, pytest.raises(UnknownCallerError, match="not known"):
        accounts.caller_of_certificate(ctx, "a", fingerprint(first.certificate_pem))


@pytest.mark.usefixtures("enrolling")
def test_enrolment_in_place_refuses_what_is_not_the_same(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    state = tmp_path / "agent"
    first = enrol(invited(at, "a", tmp_path), state)
    with pytest.raises(InputError, match="is enrolled as a, and the invitation is for b"):
        enrol(invited(at, "b", tmp_path), state)
    again = invited(at, "a", tmp_path)
    with locked(state), pytest.raises(InputError, match=r"another agent uses this .*stop it first"):
        enrol(again, state)
    other = json.loads(again.read_text()) | {"address": "else:7400"}
    request_of_another = authority.open_authority(tmp_path / "k", ["x"], at.orchestrator.now())
    other["authority_pem"] = request_of_another.certificate_pem.decode()
    (tmp_path / "other").write_text(json.dumps(other))
    with pytest.raises(InputError, match="invitation is of another testbed at else:7400"):
        enrol(tmp_path / "other", state)
    assert read_identity(state) == first
    # None of these has used the invitation up; a damaged identity is replaced.
    (state / "identity" / "node.json").write_text("{")
    assert enrol(again, state).certificate_pem != first.certificate_pem


@pytest.mark.usefixtures("enrolling")
def test_a_node_proves_its_expired_key_and_an_administrator_agrees(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    state = tmp_path / "agent"
    old = enrol(invited(at, "a", tmp_path), state)
    line = Line(at, old, of_nodes=False)
    with pytest.raises(ApiError, match="has not expired"):
        reenrol(state, old, line)  # type: ignore[arg-type]
    at.pass_s(100 * DAY_S)
    at.orchestrator.tick()
    with pytest.raises(NotFoundError, match="has not asked"):
        call(at.orchestrator, api.APPROVE, ADMIN, api.NamedNode(node="a"))
    asked = [reenrol(state, old, line) for _ in range(3)]  # type: ignore[arg-type]
    assert asked == [None, None, None]
    with at.writing(ADMIN) as ctx:
        assert [each.name for each in nodes.listing(ctx) if each.is_waiting] == ["a"]
        rows = ctx.all(sa.select(credential).where(credential.c.kind == accounts.REQUEST))
        assert len(rows) == 1
    call(at.orchestrator, api.APPROVE, ADMIN, api.NamedNode(node="a"))
    new = reenrol(state, old, line)  # type: ignore[arg-type]
    assert new is not None
    assert new == read_identity(state)
    assert Line(at, new, of_nodes=True).call(api.REPORT, api.Batch()) == 0
    assert not (state / "identity" / "next.key").exists()
    # The approval counted once, for this one request.
    at.pass_s(100 * DAY_S)
    assert reenrol(state, new, line) is None  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="not known"):
        reenrol(state, old, line)  # type: ignore[arg-type]


@pytest.mark.usefixtures("enrolling")
def test_an_expired_certificate_alone_is_not_enough(at: LocalOrchestrator, tmp_path: Path) -> None:
    old = enrol(invited(at, "a", tmp_path), tmp_path / "agent")
    at.pass_s(100 * DAY_S)
    thief, request = make_request("a")
    good = {"node": "a", "certificate_pem": old.certificate_pem, "csr_pem": request}
    wrong = [
        (good | {"signature": sign_request(thief, request)}, DeniedError),
        (good | {"signature": b""}, DeniedError),
        (good | {"signature": sign_request(old.key_pem, request + b" ")}, DeniedError),
        (good | {"node": "b", "signature": sign_request(old.key_pem, request)}, UnknownCallerError),
        (good | {"node": "no", "signature": b""}, NotFoundError),
        (good | {"certificate_pem": b"x", "signature": b""}, InputError),
    ]
    for values, error in wrong:
        with pytest.raises(error):
            call(at.orchestrator, api.REENROL, ITSELF, api.Reenrol(**values))
    with at.writing(ITSELF) as ctx:
        assert not accounts.waiting_nodes(ctx)
    # Another request than the approved one, by the same key, needs another approval.
    for _ in range(2):
        asked = good | {"csr_pem": make_request("a")[1]}
        asked["signature"] = sign_request(old.key_pem, asked["csr_pem"])
        made = call(at.orchestrator, api.REENROL, ITSELF, api.Reenrol(**asked))
        assert made.certificate is None
        call(at.orchestrator, api.APPROVE, ADMIN, api.NamedNode(node="a"))
    with at.writing(ITSELF) as ctx:
        accounts.delete_certificates(ctx, "a")
    with pytest.raises(UnknownCallerError, match="not known"):
        call(at.orchestrator, api.REENROL, ITSELF, api.Reenrol(**asked))


def test_an_agent_that_was_off_for_100_days_asks_and_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodeHere(tmp_path, monkeypatch)
    answers: list[api.Reenrolment] = []
    asked: list[api.Reenrol] = []

    class Public:
        def call(self, operation: object, request: api.Reenrol, _timeout_s: float) -> Any:
            assert operation is api.REENROL
            asked.append(request)
            return answers[-1]

        def close(self) -> None:
            pass

    try:
        (node.state / "identity").mkdir()
        own = node._identity
        (node.state / "identity" / "node.json").write_text(
            json.dumps({"node": NODE, "agents": own.agents, "address": "localhost:2"})
        )
        monkeypatch.setattr(housekeeping, "open_public_wire", lambda _identity: Public())
        node.scripts["cat"] = Script(2.0, writes={"out.txt": b"x"})
        node.start()
        run = node.orchestrator.plan(node_job("cat", run={"keep": ["*"]}), 3.0)
        node.until(lambda: node.orchestrator.states(run)[-1:] == ["executing"])
        node.orchestrator.stop()
        node.clock.advance(30)
        node.kill()
        node.clock.set_wall(node.clock.now_ns() + 100 * DAY_S * S)
        node.orchestrator.start()
        # The orchestrator refuses the expired certificate.
        node.orchestrator.is_away = True
        answers.append(api.Reenrolment())
        node.start()
        node.clock.advance(2 * 3600 + 60)
        assert len(asked) == 3
        assert len({each.csr_pem for each in asked}) == 1
        waiting = [line for line in node.said if f"skyhop testbed approve {NODE}" in line]
        assert len(waiting) == 1
        made = node.orchestrator.authority
        now = dt.datetime.fromtimestamp(node.clock.now_ns() / S, dt.UTC)
        issued = api.Certificate(
            certificate_pem=made.sign_node(NODE, asked[0].csr_pem, now),
            authority_pem=made.certificate_pem,
            orders_key=made.orders_key,
        )
        answers.append(api.Reenrolment(certificate=issued))
        connected: list[Identity] = []
        assert node.agent is not None
        link = node.agent._node.link

        def connect(identity: Identity) -> None:
            connected.append(identity)
            node.orchestrator.is_away = False

        monkeypatch.setattr(link, "connect", connect)
        node.until(lambda: connected, 3700)
        node.until_settled(run)
        assert node.orchestrator.files[f"{run}/client/out.txt"] == b"x"
        assert connected[0].certificate_pem == issued.certificate_pem
        assert len(node.started(run)) == 1
        assert len(asked) == 4
    finally:
        node.close()


# --- rotation ---


class FleetNode:
    """Node with an identity on the disk, which renews like an agent and reports events."""

    def __init__(self, at: LocalOrchestrator, name: str, place: Path) -> None:
        self._at, self.state = at, place / name
        self.identity = enrol(invited(at, name, place), self.state)
        self.revision, self.sent, self.renewals = 0, 0, 0
        self.trust, self.is_on, self.troubles = "", True, list[str]()

    @property
    def line(self) -> Line:
        """Connection to the agents' port with the present identity."""
        return Line(self._at, self.identity, of_nodes=True)

    def hour(self) -> None:
        """Do what an agent does in an hour: follow, report, renew."""
        if not self.is_on:
            return
        try:
            self._follow()
            self._report()
            now = self._at.orchestrator.now()
            outdated = bool(self.trust) and self.trust != self.identity.trust
            if self.identity.is_to_renew(now) or outdated:
                self.identity = renew(self.state, self.identity, self.line)  # type: ignore[arg-type]
                self.renewals += 1
                self._follow()
        except SkyhopError as error:
            self.troubles.append(str(error))

    def _follow(self) -> None:
        caller = self.line.connected()
        with self._at.writing(caller) as ctx:
            revision, values = nodes.schedule(ctx, caller.name)
        if revision != self.revision:
            body = as_json(values).encode()
            signature = self._at.orchestrator.authority.sign_order(body, caller.issuer)
            key = self.identity.orders_key
            found = schedule.read_schedule(key, caller.name, body, signature, self.revision)
            self.revision, self.trust = found.revision, found.settings.trust

    def _report(self) -> None:
        body = json.dumps({"samples": [{"time_ns": self._at.now_ns, "uptime_s": 1.0}]})
        event = api.Event(seq=self.sent + 1, at_ns=self._at.now_ns, kind="telemetry", body=body)
        assert self.line.call(api.REPORT, api.Batch(events=[event])) == self.sent + 1
        self.sent += 1


@pytest.fixture
def fleet(at: LocalOrchestrator, tmp_path: Path, request: pytest.FixtureRequest) -> list[FleetNode]:
    request.getfixturevalue("enrolling")
    with at.writing(ITSELF) as ctx:
        for number in range(6):
            nodes.put(ctx, api.PutNode(name=f"n{number}"))
    return [FleetNode(at, f"n{number}", tmp_path) for number in range(6)]


def live(at: LocalOrchestrator, fleet: list[FleetNode], hours: int, step: int = 6) -> None:
    for _ in range(0, hours, step):
        at.pass_s(3600 * step)
        for each in fleet:
            each.hour()


def test_a_fleet_passes_through_a_rotation_without_loss(
    at: LocalOrchestrator, fleet: list[FleetNode]
) -> None:
    old = at.orchestrator.authority
    live(at, fleet, 24)
    fleet[5].is_on = False
    call(at.orchestrator, api.ROTATE_AUTHORITY, ADMIN, api.Nothing())
    status = call(at.orchestrator, api.AUTHORITY, ADMIN, api.Nothing())
    assert status.nodes_behind == [f"n{number}" for number in range(6)]
    with pytest.raises(InputError, match="retire it first"):
        call(at.orchestrator, api.ROTATE_AUTHORITY, ADMIN, api.Nothing())
    # A schedule changes before and after the nodes have renewed.
    at.submit(job("before", nodes='["n0"]', when='cron = "0 0 * * *"'))
    live(at, fleet, 24)
    at.submit(job("after", nodes='["n0"]', when='cron = "0 3 * * *"'))
    live(at, fleet, 24)
    assert [each.renewals for each in fleet] == [1, 1, 1, 1, 1, 0]
    status = call(at.orchestrator, api.AUTHORITY, ADMIN, api.Nothing())
    assert status.nodes_behind == ["n5"]
    with pytest.raises(InputError, match="n5: 1 nodes have no certificate of the new authority"):
        call(at.orchestrator, api.RETIRE_AUTHORITY, ADMIN, api.Retire())
    call(at.orchestrator, api.RETIRE_AUTHORITY, ADMIN, api.Retire(force=True))
    live(at, fleet, 100 * 24, 12)
    fleet[5].is_on = True
    live(at, fleet, 24)
    for each in fleet[:5]:
        assert not each.troubles
        assert each.sent == (24 * 3) // 6 + 100 * 2 + 24 // 6
        assert each.identity.trust == at.orchestrator.authority.trust
        for pem in (old.certificate_pem, old.orders_key):
            assert pem not in each.identity.authority_pem + each.identity.orders_key
    assert set(fleet[5].troubles) == {"the server's authority is not trusted"}
    with at.writing(ADMIN) as ctx:
        refused = [r["outcome"] for r in ctx.all(sa.select(audit)) if "refused" in r["outcome"]]
        assert not refused


@pytest.mark.usefixtures("enrolling")
def test_a_node_that_missed_the_rotation_enrols_in_place(
    at: LocalOrchestrator, fleet: list[FleetNode], tmp_path: Path
) -> None:
    at.orchestrator.rotate_authority()
    at.orchestrator.retire_authority()
    lost = fleet[0]
    lost.hour()
    assert lost.troubles == ["the server's authority is not trusted"]
    lost.identity = enrol(invited(at, "n0", tmp_path), lost.state)
    lost.hour()
    assert (lost.sent, len(lost.troubles)) == (1, 1)


def test_a_restarted_orchestrator_has_the_keys_of_its_rotation(at: LocalOrchestrator) -> None:
    keys = at.orchestrator.directory / "keys"
    first = at.orchestrator.authority
    for turn in range(3):
        at.orchestrator.rotate_authority()
        opened = authority.open_authority(keys, ["localhost"], at.orchestrator.now())
        assert opened.trust == at.orchestrator.authority.trust
        assert opened.former is not None
        assert opened.former.name != opened.signing.name
        assert len(opened.orders_keys) == 2
        # Former and new clients trust the server meanwhile.
        server = x509.load_pem_x509_certificate(opened.server_certificate_pem)
        server.verify_directly_issued_by(opened.former.certificate)
        at.orchestrator.retire_authority()
        opened = authority.open_authority(keys, ["localhost"], at.orchestrator.now())
        assert opened.former is None
        server = x509.load_pem_x509_certificate(opened.server_certificate_pem)
        server.verify_directly_issued_by(opened.signing.certificate)
        assert (keys / "authority.pem").read_bytes() == opened.signing.certificate_pem
        left = {path.relative_to(keys).as_posix() for path in keys.rglob("*") if path.is_file()}
        generation = {f"{turn + 2}/{n}" for n in ("authority.key", "authority.pem", "orders.key")}
        others = {"authorities.json", "authority.pem", "server.key", "server.pem", "trusted.pem"}
        assert left == generation | others
        with pytest.raises(InputError, match="nothing to retire"):
            at.orchestrator.retire_authority()
    assert not any(first.orders_key == key for key in at.orchestrator.authority.orders_keys)
    modes = {path.stat().st_mode & 0o077 for path in keys.rglob("*.key")}
    assert modes == {0}


def test_a_rotation_that_is_interrupted_counts_whole_or_not_at_all(
    at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, before = at.orchestrator.directory / "keys", at.orchestrator.authority.trust

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(authority, "_write_places", interrupted)
        with pytest.raises(KeyboardInterrupt):
            at.orchestrator.rotate_authority()
    opened = authority.open_authority(keys, ["localhost"], at.orchestrator.now())
    assert opened.trust == before
    at.orchestrator.rotate_authority()
    with monkeypatch.context() as patch:
        patch.setattr(authority, "_remove_retired", interrupted)
        with pytest.raises(KeyboardInterrupt):
            at.orchestrator.retire_authority()
    opened = authority.open_authority(keys, ["localhost"], at.orchestrator.now())
    assert opened.former is None
    assert not (keys / "orders.key").exists()


def test_certificates_are_remembered_after_their_end(at: LocalOrchestrator) -> None:
    with at.writing(ITSELF) as ctx:
        end_ns = BEGIN_NS + 90 * DAY_S * S
        accounts.register_certificate(ctx, "a", b"d" * 32, end_ns)
        accounts.issue(ctx, accounts.TOKEN, of_user="ann", expires_ns=end_ns)
    for days, kinds in ((100, ["certificate"]), (489, ["certificate"]), (491, [])):
        at.clock.ns = BEGIN_NS + days * DAY_S * S
        with at.writing(ITSELF) as ctx:
            accounts.delete_expired(ctx)
            found = [*ctx.connection.scalars(sa.select(credential.c.kind))]
            assert [each for each in found if each in ("certificate", "token")] == kinds


@pytest.mark.integration
def test_a_served_testbed_rotates_its_authority(tmp_path: Path) -> None:
    with served(tmp_path / "state") as made:
        own = tmp_path / "own.json"
        own.write_bytes((made.directory / "admin.json").read_bytes())
        own.chmod(0o600)
        idle = tmp_path / "idle.json"
        idle.write_bytes(own.read_bytes())
        idle.chmod(0o600)
        with made.testbed() as admin:
            admin.put_node(api.PutNode(name="a"))
            first = made.enrol("a", admin.invitation("a")["token"])
        old = made.wire(made.agents, first)
        old_pem = made.authority_pem
        with Testbed.of_file(own) as admin:
            status = admin.rotate_authority()
            assert status.nodes_behind == ["a"]
        assert json.loads(own.read_text())["authority_pem"].count("BEGIN") == 2
        key, request = make_request("a")
        issued = old.call(api.RENEW, api.Renew(csr_pem=request))
        assert issued.authority_pem.count(b"BEGIN") == 2
        new = key + issued.certificate_pem
        # The server accepts both on new connections, within seconds of the rotation.
        agents = []
        for identity_pem in (first, new):
            context = client_context(issued.authority_pem, identity_pem)
            agents.append(_answered(made.agents, context))
        with Testbed.of_file(own) as admin:
            assert admin.authority().nodes_behind == []
            assert admin.retire_authority().former is None
        context = client_context(issued.authority_pem, new)
        _answered(made.agents, context)
        with pytest.raises(ApiError, match="not known"):
            old.call(api.REPORT, api.Batch())
        # A client that trusts the retired authority alone is told what to do.
        said: list[str] = []

        def is_refused() -> bool:
            try:
                Testbed.of_file(idle).nodes()
            except SkyhopError as error:
                said.append(str(error))
            return bool(said)

        wait_for(is_refused)
        assert "get a new invitation and enrol again" in said[0]
        with Testbed.of_file(own) as admin:
            assert [each.name for each in admin.nodes()] == ["a"]
        assert json.loads(own.read_text())["authority_pem"].count("BEGIN") == 1
        assert old_pem.decode() not in own.read_text()


def _answered(address: str, context: Any) -> Any:
    """Call until the server knows a certificate's authority, which it reads every second."""

    def try_it() -> bool:
        wire = Wire(open_http(address, context))
        try:
            wire.call(api.REPORT, api.Batch())
        except ApiError:
            return False
        finally:
            wire.close()
        return True

    wait_for(try_it)
