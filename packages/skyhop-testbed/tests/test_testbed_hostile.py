"""Hostile input: job files, events of a faulty node, uploads, orders to an agent."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa
from testbed_harness import (
    ADMIN,
    BEGIN_NS,
    LocalOrchestrator,
    S,
    Served,
    event,
    job,
    local_orchestrator,
    served,
)
from testbed_machine import Machine, machine

from damaged import Trial
from needs import cases, needs_namespaces
from skyhop.errors import InputError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.calendar import occurrences
from skyhop_testbed.client import Testbed, read_files
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import job_of, read_job
from skyhop_testbed.orchestrator import nodes
from skyhop_testbed.orchestrator.request_context import Caller
from skyhop_testbed.orchestrator.uploads import checked_name
from skyhop_testbed.store.tables import audit, run
from skyhop_testbed.wire import Wire
from skyhop_testbed.words import Role
from waiting import wait_for

_WHOLE_JOBS = [
    b"""id = "bbr2-on-spikes"
nodes = ["bcn-1", "edh"]
server = "ams-1"
length = "4 min"
overhead = true
data_cap = "200 MB"
retention = "30 days"
description = "Of spikes"
[when]
trigger = "pop_ping_latency_ms >= 2 * before_avg(pop_ping_latency_ms, 5 s)"
start = "2026-12-01T00:00:00Z"
end = 2026-12-08T00:00:00Z
for = "2 s"
cooldown = "10 min"
max_runs = 20
seed = 7
[run]
client = ["iperf3", "-c", "{server}", "-p", "{port}", "--json", "--logfile", "out.json"]
serve = ["iperf3", "-s", "-1", "-p", "{port}"]
network = "veth"
files = []
keep = ["*.json", "telemetry"]
timeout = "success"
[run.env]
A = "1"
[kernel]
cc = "skyhop:bbr2"
qdisc = "fq"
[kernel.parameters]
probe_rtt_ms = 200
[kernel.qdisc_parameters]
limit = 1000
[kernel.sysctl]
tcp_ecn = 1
""",
    b"""id = "hourly"
nodes = ["a"]
length = 30.5
overhead = false
[when]
cron = "*/15 8-18 * * mon-fri"
[run]
scenario = "handover"
engine = "sim"
""",
    b"""id = "once"
nodes = ["a"]
length = "1 h"
[when]
at = "now"
[run]
client = ["sh", "-c", "true"]
image = "docker.io/library/alpine"
backend = "podman"
network = "none"
""",
]


def test_damaged_job_files_are_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        text, _ = read_files(file)
        made = read_job(text)
        assert job_of(json.loads(json.dumps(made.as_json()))) == made
        occurrences(made, BEGIN_NS, BEGIN_NS + 86_400 * S, submitted_ns=BEGIN_NS)

    Trial("job", _WHOLE_JOBS, usual=120).run(read)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def _files(*names: str) -> str:
    return f'client = ["x"]\nfiles = {json.dumps(names)}'


_HOSTILE_JOBS = {
    "a path that leaves": job(run=_files("../../etc/passwd")),
    "a path from the root": job(run=_files("/etc/passwd")),
    "a path to itself": job(run=_files(".")),
    "a path with a line's end": job(run=_files("a\nb")),
    "a path with an escape": job(run=_files("\x1b[2Jb")),
    "a path that is turned around": job(run=_files("a\u202egpj.sh")),
    "a path of half a letter": job(run='client = ["x"]\nfiles = ["a\\uD800"]'),
    "a long path": job(run=_files("a" * 5000)),
    "a pattern that leaves": job(run='client = ["x"]\nkeep = ["../*"]'),
    "a variable that loads": job(run='client = ["x"]\nenv = {LD_PRELOAD = "x.so"}'),
    "a variable of Python's": job(run='client = ["x"]\nenv = {PYTHONPATH = "x"}'),
    "a variable of two": job(run='client = ["x"]\nenv = {"A=B\\nC" = "x"}'),
    "a variable with a zero": job(run='client = ["x"]\nenv = {A = "\\u0000"}'),
    "a program with a zero": job(run='client = ["x\\u0000y"]'),
    "a name with a line's end": job('a\\nb'),
    "a name in other letters": job("\uff4aob"),
    "a name that looks like another": job("j\u043eb"),
    "a name that leaves": job("../j"),
    "nodes by the thousand": job(nodes=json.dumps([f"n{i}" for i in range(1001)])),
    "a node twice": job(nodes='["a", "a"]'),
    "a node that leaves": job(nodes='["../a"]'),
    "no length": job(length="0"),
    "a length below nothing": job(length="-1"),
    "an endless length": job(length="inf"),
    "a length that is no number": job(length="nan"),
    "a length of ages": job(length='"1e300 s"'),
    "a length of many digits": job(length="9" * 5000),
    "a size of ages": job(data_cap='"1e300 GB"'),
    "a size of many digits": job(data_cap="9" * 4000),
    "a time of ages": job(when="at = " + "9" * 30),
    "a time before time": job(when='at = "0001-01-01T00:00:00+14:00"'),
    "a cron of other letters": job(when='cron = "٣ * * * *"'),
    "a cron of seconds": job(when='cron = "* * * * * *"'),
    "a cron of days that never are": job(when='cron = "0 0 31 2 *"'),
    "a cron of many words": job(when=f'cron = "{"0,0," * 70}0 * * * *"'),
    "a cron of its own": job(when='cron = "@reboot"'),
    "a cron of no step": job(when='cron = "*/0 * * * *"'),
    "a cron that meets itself": job(when='cron = "* * * * *"', length='"30 days"'),
    "tables in tables": "a = " + "[" * 30_000 + "]" * 30_000,
    "tables by their names": ".".join("a" * 20_000) + " = 1",
    "tables of tables": "\n".join("[" + ".".join("ab"[i % 2] * 3 for i in range(n)) + "]"
                                  for n in range(1, 120)),
    "a table on the line": "a = " + "{a = " * 5000 + "1" + "}" * 5000,
    "laughs": "\n".join(f"l{i} = [{', '.join([repr('ha' * 10)] * 300)}]" for i in range(9)),
    "a long file": job() + "# " + "x" * 70_000,
    "a trigger that nests": job(
        when=f'trigger = "{"(" * 9000}1{")" * 9000} > 0"\nend = "2028-01-01T00:00:00Z"'
    ),
    "a trigger of many turns": job(
        when=f'trigger = "{"!" * 4000}true"\nend = "2028-01-01T00:00:00Z"'
    ),
    "a trigger over ages": job(
        when='trigger = "avg(uptime_s, 99999999999 s) > 0"\nend = "2028-01-01T00:00:00Z"'
    ),
    "a parameter that nests": job(run='client = ["x"]\nnetwork = "veth"')
    + '[kernel]\ncc = "bbr"\nparameters = {a = {b = 1}}',
}  # fmt: skip


@pytest.mark.parametrize("which", sorted(_HOSTILE_JOBS))
def test_a_hostile_job_is_refused_in_a_line(at: LocalOrchestrator, which: str) -> None:
    with pytest.raises(SkyhopError) as caught:
        at.submit(_HOSTILE_JOBS[which])
    said = str(caught.value)
    assert said.strip()
    assert said.isprintable(), said
    assert len(said) < 2500
    with at.orchestrator.reading(ADMIN) as ctx:
        assert not ctx.all(sa.select(run))


@pytest.mark.soak
def test_no_hostile_job_takes_long(at: LocalOrchestrator) -> None:
    for which, text in _HOSTILE_JOBS.items():
        began = time.process_time()
        with pytest.raises(SkyhopError):
            at.submit(text)
        assert time.process_time() - began < 5, which


# --- a faulty node: its certificate is valid, its messages are not ---


def _change(name: str, state: str = "aborted", **others: Any) -> str:
    change = {"at_ns": BEGIN_NS, "state": state, "actor": "", "reason": "user", "details": {}}
    return json.dumps({"run": name, "change": {**change, **others}})


def _hostile_events(theirs: str, mine: str, job_id: str) -> list[tuple[str, str]]:
    new = {"run": new_id(BEGIN_NS), "after": theirs, "start_ns": 0, "end_ns": 1}
    own = {"run": new_id(BEGIN_NS), "after": mine, "start_ns": 0, "end_ns": 1}
    return [
        ("run", _change(theirs)),
        ("run", _change(theirs, "complete", reason=None)),
        ("run", _change(theirs, "claimed", details={"fence": 2**62})),
        ("run", _change("../../x")),
        ("run", _change(new_id(BEGIN_NS))),
        ("run", _change(mine, "nonsense")),
        ("run", _change(mine, at_ns=-1)),
        ("run", _change(mine, at_ns=2**63)),
        ("run", _change(mine, at_ns=10**400)),
        ("run", _change(mine, at_ns="now")),
        ("run", _change(mine).replace(str(BEGIN_NS), "NaN")),
        ("run", _change(mine).replace(str(BEGIN_NS), "1e999")),
        ("run", _change(mine).replace(str(BEGIN_NS), "9" * 5000)),
        ("run", _change(mine, "claimed", details={"fence": 2**70}, reason=None)),
        ("run", _change(mine, "claimed", details={"fence": -1}, reason=None)),
        ("run", _change(mine, details=[1])),
        ("run", _change(mine, details={"text": "\ud800"})),
        ("run", json.dumps({**json.loads(_change(mine)), "new": new})),
        ("run", json.dumps({**json.loads(_change(mine)), "new": {**own, "end_ns": 2**80}})),
        ("run", json.dumps({**json.loads(_change(mine)), "new": [1]})),
        ("run", "[" * 100_000),
        ("run", '{"run":' * 30_000),
        ("run", json.dumps({"run": mine, "change": {}, "x": "y" * 300_000})),
        ("run", "null"),
        ("run", ""),
        ("task", json.dumps({"task": new_id(BEGIN_NS), "run": theirs, "ok": True})),
        ("task", json.dumps({"task": "x' or 1=1 --", "run": theirs, "ok": True})),
        ("trigger", json.dumps({"job": "nobody's", "fired": True, "run": theirs})),
        ("trigger", json.dumps({"job": job_id, "fired": True, "run": "x" * 1000})),
        ("scavenger", "{}"),
        ("telemetry", '{"samples": 7}'),
        ("telemetry", json.dumps({"samples": [{"time_ns": 2**80}]})),
        ("telemetry", json.dumps({"samples": [{"time_ns": "x"}, {"time_ns": -(2**70)}]})),
        ("telemetry", '{"samples": [{"time_ns": NaN, "pop_ping_latency_ms": NaN}]}'),
        ("telemetry", json.dumps({"samples": [{"time_ns": BEGIN_NS, "uptime_s": "'; drop"}]})),
        ("telemetry", json.dumps({"samples": [{"time_ns": BEGIN_NS, "../x": 1}]})),
        ("telemetry", json.dumps({"samples": [{"time_ns": BEGIN_NS + 86_400 * S * 400}]})),
        ("telemetry", json.dumps({"samples": [{"time_ns": BEGIN_NS, "uptime_s": 10**400}]})),
        ("telemetry", json.dumps({"samples": [{"time_ns": [[1]], "uptime_s": {"a": 1}}]})),
        ("nonsense", "{}"),
        ("x" * 1000, "{}"),
    ]


def _planned(at: LocalOrchestrator, name: str, node: str) -> tuple[str, str]:
    made = at.submit(job(name, 'at = "2027-01-01T05:00:00Z"', nodes=f'["{node}"]'))
    with at.orchestrator.reading(ADMIN) as ctx:
        row = ctx.first(sa.select(run).where(run.c.job == made.id))
    assert row is not None
    return str(made.id), str(row.id)


def test_a_rogue_nodes_events_change_nothing_and_hold_up_nothing(at: LocalOrchestrator) -> None:
    _, theirs = _planned(at, "theirs", "b")
    own_job, mine = _planned(at, "mine", "a")
    with at.orchestrator.reading(ADMIN) as ctx:
        before = ctx.all(sa.select(run).order_by(run.c.id))
    refused = 0
    for place, (kind, text) in enumerate(_hostile_events(theirs, mine, own_job)):
        with at.writing(Caller("a", Role.NODE)) as ctx:
            last, samples = nodes.report(ctx, [event(place + 1, BEGIN_NS, kind, text)])
            if samples:
                at.orchestrator.store_telemetry("a", samples)
        assert last == place + 1, (kind, text[:100])
        with at.orchestrator.reading(ADMIN) as ctx:
            rows = ctx.all(sa.select(run).order_by(run.c.id))
            refused = len(ctx.all(sa.select(audit).where(audit.c.outcome.startswith("refused"))))
        assert [dict(row) for row in rows] == [dict(row) for row in before], (kind, text[:200])
    assert refused > 20
    days = {path.stem for path in at.orchestrator.telemetry.directory.rglob("*.jsonl")}
    assert days <= {"2027-01-01"}
    at.change("a", mine, "claimed", fence=1)
    with at.orchestrator.reading(ADMIN) as ctx:
        found = ctx.first(sa.select(run.c.state).where(run.c.id == mine))
    assert found is not None
    assert found["state"] == "claimed"


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("hostile") / "state") as made:
        yield made


def _claimed(testbed: Served, node: Wire, name: str) -> str:
    """Claim a run of a new job on a node; return its id."""
    with testbed.testbed() as user:
        text = job(name, nodes=f'["{name}"]', overhead="false")
        path = testbed.directory / "job.toml"
        path.write_text(text)
        user.submit(path)
        row = user.runs(node=name, limit=1)[0]
    assert node.call(api.CLAIM, api.Claim(run=row.id, fence=1, at_ns=time.time_ns())).granted
    return row.id


def _reported(node: Wire, *events: api.Event) -> int:
    """Report events of a node; return the last number that the orchestrator has."""
    return node.call(api.REPORT, api.Batch(events=list(events)), 120.0)


@pytest.mark.soak
def test_numbers_and_sizes_that_no_node_sends(testbed: Served) -> None:
    rogue, good = testbed.agent("rogue"), testbed.agent("good")
    assert _reported(rogue, event(10**9, -1, "health", "{}")) == 10**9
    for seq in (2**63 - 1, -(2**63), 0, 5):
        _reported(rogue, event(seq, 2**63 - 1, "x", "{"))
    for seq, body in ((1, "x" * (65 << 20)), (2**63, "{}"), (10**400, "{}")):
        with pytest.raises(ApiError) as caught:
            _reported(rogue, api.Event.model_construct(seq=seq, at_ns=1, kind="x", body=body))
        assert caught.value.kind is ErrorKind.INVALID
    many = [event(i + 1, 0, "health", "[" * 5000) for i in range(200)]
    assert _reported(good, *many) == 200
    run_id = _claimed(testbed, good, "good")
    for fence in (-(2**63), -1, 0, 2**63 - 1):
        claim = api.Claim(run=run_id, fence=fence, at_ns=-5)
        assert not rogue.call(api.CLAIM, claim).granted
    with testbed.testbed() as user:
        assert user.run(run_id).state == "claimed"
        assert user.node("good").online


def _upload(node: Wire, run: str, *frames: bytes, side: str = "client") -> bool:
    """Upload frames of a side of a run; return whether it is complete."""
    of = api.RunSide(run=run, side=side)
    return node.upload(api.UPLOAD, of, iter(frames), 120.0)


def _frame(name: str, data: bytes, offset: int = 0) -> bytes:
    return api.frame(name, offset, data)


def _manifest(*files: dict[str, Any]) -> bytes:
    return json.dumps({"files": files}).encode()


def _said(name: str, data: bytes, **others: Any) -> dict[str, Any]:
    return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **others}


_UPLOADS: dict[str, list[bytes]] = {
    "a name that leaves": [_frame("../../../../x", b"1")],
    "a name from the root": [_frame("/tmp/skyhop-hostile", b"1")],
    "a name with its parts": [_frame("a/../../b", b"1")],
    "a name with backslashes and a zero": [_frame("..\\..\\x\0", b"1")],
    "a name with a line's end": [_frame("a\nb", b"1")],
    "a name that is long": [_frame("a" * 3000, b"1")],
    "no name": [_frame("", b"1")],
    "a name that is a directory": [_frame("a", b"1"), _frame("a/b", b"1")],
    "a header that is none": [b"[1]\n"],
    "a header that nests": [b"[" * 4000 + b"\n"],
    "a header without an end": [b"x" * 100_000],
    "a header of a negative length": [b'{"name": "a", "offset": 0, "length": -1}\n'],
    "a header of an endless offset": [b'{"name": "a", "offset": 1e999, "length": 1}\nx'],
    "a large piece": [b'{"name": "a", "offset": 0, "length": %d}\n' % (api.LARGEST_PIECE + 1)],
    "a manifest that is none": [_frame("manifest.json", b"[[[")],
    "a manifest that nests": [_frame("manifest.json", b"[" * 100_000)],
    "a manifest of a missing file": [_frame("manifest.json", _manifest(_said("not there", b"1")))],
    "a manifest of other sizes": [
        _frame("a", b"1"),
        _frame("manifest.json", _manifest(_said("a", b"1", size=2))),
    ],
    "a manifest of endless sizes": [
        _frame("a", b"1"),
        _frame("manifest.json", _manifest(_said("a", b"1")).replace(b": 1,", b": 1e999,")),
    ],
    "a manifest of other digests": [
        _frame("a", b"1"),
        _frame("manifest.json", _manifest(_said("a", b"2"))),
    ],
    "a manifest that leaves": [
        _frame("manifest.json", _manifest(_said("../../../keys/authority.key", b"1")))
    ],
    "a manifest of a file twice": [
        _frame("a", b"1"),
        _frame("manifest.json", _manifest(_said("a", b"1"), _said("a", b"1"))),
    ],
    "a manifest of itself": [_frame("manifest.json", _manifest(_said("manifest.json", b"1")))],
}


@pytest.mark.integration
def test_rogue_uploads_are_refused_and_nothing_of_them_is_seen(testbed: Served) -> None:
    node, other = testbed.agent("up"), testbed.agent("other")
    run_id = _claimed(testbed, node, "up")
    for offset in (-1, 1, 2**62):
        assert not _upload(node, run_id, _frame("late", b"1", offset))
    for which, frames in _UPLOADS.items():
        with pytest.raises(ApiError) as caught:
            _upload(node, run_id, *frames)
        assert caught.value.kind in {ErrorKind.INVALID, ErrorKind.INTERNAL}, which
        assert "internal error" not in str(caught.value), (which, str(caught.value))
        with testbed.testbed() as user:
            assert user.run(run_id).files == [], which
    for name, side in (("../../x", "client"), (run_id, "../.."), (run_id, "server"), ("..", "..")):
        place = f"/v1/runs/{quote(name, safe='')}/uploads/{quote(side, safe='')}"
        answer = node._http.post(place, content=_frame("a", b"1"))
        assert answer.status_code in {403, 404}, (name, side)
        with pytest.raises(ApiError) as caught:
            _upload(node, name, _frame("a", b"1"), side=side)
        assert caught.value.kind in {ErrorKind.DENIED, ErrorKind.NOT_FOUND}, (name, side)
    for name in (run_id, "../x"):
        with pytest.raises(ApiError):
            other.call(api.UPLOAD_STATE, api.RunSide(run=name, side="client"))
    with pytest.raises(ApiError):
        _upload(other, run_id, _frame("a", b"1"))
    assert not Path("/tmp/skyhop-hostile").exists()
    data = b"whole"
    # The correct files of the same run are accepted after the hostile ones.
    manifest = _frame("manifest.json", _manifest(_said("a", data)))
    assert _upload(node, run_id, _frame("a", data), manifest)
    with testbed.testbed() as user:
        assert {file.name for file in user.run(run_id).files} == {"a", "manifest.json"}
        (path, *_) = user.fetch(run_id, testbed.directory / "fetched")
        assert path.read_bytes() == data
        # An interrupted download goes on where it ended.
        aside = path.with_name(f".a.{hashlib.sha256(data).hexdigest()[:16]}.partial")
        path.rename(aside).write_bytes(data[:2])
        with mock.patch.object(user._wire, "download", wraps=user._wire.download) as asked:
            user.fetch(run_id, testbed.directory / "fetched")
        assert [call.args[1].offset for call in asked.call_args_list] == [2]
        assert path.read_bytes() == data
    found = {path.name for path in (testbed.directory / "runs").rglob("*") if path.is_file()}
    assert found == {".skyhop", "a", "manifest.json"}


@pytest.mark.parametrize("name", ["a", "a/b", "ä.txt", "..a", "a..", "a b"])
def test_names_of_files_that_are_fine(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/..", "a//b", "/a", "a/", "./a", "a\0", "a\u202e", "\ud800", "\x1b[2J"],
)
def test_names_of_files_that_are_not(name: str) -> None:
    with pytest.raises(InputError):
        checked_name(name)


# --- an experiment that searches for secrets, and leaves files with odd names ---

_SNOOPS = r"""
env -0 > env.bin; cat /proc/*/environ /proc/*/cmdline > seen.bin 2> /dev/null
cat /etc/shadow {place}/*/identity/node.key {place}/orchestrator/keys/* {place}/*.json \
  > stolen.bin 2> /dev/null
ln -s /etc/shadow link; mkfifo pipe; echo 1 > one; ln one two; mkdir -p a/b/c; echo x > a/b/c/x
mknod device c 1 3 2> /dev/null; ln -s / root
echo n > "$(printf 'line\nend')"; echo e > "$(printf 'esc\033[2J')"; echo ok > "\"quoted\" ü.txt"
echo m > manifest.json
for i in $(seq {files}); do echo $i > f$i; done
sleep 1.5"""


@pytest.mark.soak
def test_no_secret_is_where_others_look(tmp_path: Path) -> None:
    needs_namespaces()
    count = 500 if cases(1) == 1 else 3000
    with machine(tmp_path) as made:
        made.configure()
        agent = made.agent("a")
        invited = json.loads((tmp_path / "a.invitation").read_bytes())["token"]
        (tmp_path / "a.invitation").unlink()
        agent.start()
        with made.testbed() as user:
            user.put_user(api.PutUser(name="ann", role="user"))
            ann = user.credential("ann")
            wait_for(lambda: user.node("a").online, why=lambda: made.log)
        ann.write(tmp_path / "ann.json")
        place = str(tmp_path).replace("\\", "\\\\")
        text = json.dumps(
            ["bash", "-c", _SNOOPS.replace("{place}", place).replace("{files}", str(count))]
        )
        made.submit(job("snoops", overhead="false", run=f"client = {text}"))
        (name,) = made.runs()
        wait_for(lambda: agent.executor(name), why=lambda: made.log)
        secrets = _secrets(made, {"invitation": invited, "ann's token": ann.token})
        secrets["session"], pages = _browse(made, ann.token, name)
        _check_processes(secrets, str(tmp_path))
        runs = made.wait_ended()
        with made.testbed() as user:
            files = {file.name for file in user.run(name).files}
            said = json.loads(_fetched(user, name, tmp_path, "manifest.json"))
            stolen = _fetched(user, name, tmp_path, "stolen.bin")
        assert runs[name]["state"] == "complete"
        # Of its files, the plain ones with plain names are kept.
        assert {"a/b/c/x", '"quoted" ü.txt', "f1", f"f{count}", "env.bin"} <= files
        assert not files & {"link", "pipe", "one", "two", "root", "device"}
        assert all(each.isprintable() for each in files)
        assert said["result"]["state"] == "complete"
        assert stolen == b""
        assert b"SKYHOP_TESTBED" not in (tmp_path / "got" / "client" / "env.bin").read_bytes()
        _check_files(secrets, tmp_path)
        for which, secret in secrets.items():
            assert secret.encode() not in pages, which


def _fetched(user: Testbed, name: str, place: Path, file: str) -> bytes:
    user.fetch(name, place / "got")
    return (place / "got" / "client" / file).read_bytes()


def _secrets(made: Machine, others: dict[str, str]) -> dict[str, str]:
    """Return all tokens and private keys of the session by name; of a key its first line."""
    found = dict(others)
    found["admin's token"] = json.loads((made.state / "admin.json").read_bytes())["token"]
    for file in (*made.state.glob("keys/*"), *made.directory.glob("*/identity/*")):
        text = file.read_text(errors="replace")
        if "PRIVATE KEY" in text:
            found[file.name] = text.splitlines()[1]
    assert len(found) >= 6, found
    return found


def _browse(made: Machine, token: str, name: str) -> tuple[str, bytes]:
    """Log in and open pages; return the session's secret, and the content of all pages."""
    trusted = ssl.create_default_context(cadata=made.served.authority_pem.decode())
    with httpx.Client(base_url=f"https://{made.served.web}", verify=trusted) as client:
        form = client.get("/login").text
        csrf = re.search(r'name="csrf" value="([^"]+)"', form)
        assert csrf, form
        done = client.post("/login", data={"csrf": csrf[1], "token": token})
        assert done.status_code == 303, done.text
        pages = [form.encode(), done.content]
        for address in ("/", "/nodes", "/jobs", "/runs", f"/runs/{name}", "/nodes/a", "/me"):
            answer = client.get(address)
            pages += [answer.content, str(answer.headers.get("location", "")).encode()]
        return client.cookies["__Host-skyhop"], b"".join(pages)


def _check_processes(secrets: dict[str, str], about: str) -> None:
    """Check command lines and environments of all processes, including the experiment's."""
    seen = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            for kind in ("cmdline", "environ"):
                try:
                    content = (place / kind).read_bytes()
                except OSError:
                    continue
                seen += about.encode() in content
                for which, secret in secrets.items():
                    assert secret.encode() not in content, (which, kind)
    assert seen >= 2


def _check_files(secrets: dict[str, str], place: Path) -> None:
    """Check all files except those that exist to hold one of the secrets."""
    own = {"admin.json", "ann.json", "node.key", *secrets}
    files = [file for file in place.rglob("*") if file.is_file() and file.name not in own]
    assert len(files) > 500
    for file in files:
        content = file.read_bytes()
        for which, secret in secrets.items():
            assert secret.encode() not in content, (which, file)
