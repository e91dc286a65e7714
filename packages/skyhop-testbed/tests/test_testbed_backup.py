"""Backups of the orchestrator's state: whole or not at all, and what a restored one hands out."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import skyhop_command
from node_here import NodeHere, Script
from test_testbed_node import job as node_job
from testbed_fake_orchestrator import NODE
from testbed_harness import ANN, BEGIN_NS, LocalOrchestrator, S, job, local_orchestrator, served

from needs import needs_namespaces, needs_program
from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.agent.restored import way
from skyhop_testbed.backup import places, restoring, writing
from skyhop_testbed.backup.manifest import FILE, Manifest
from skyhop_testbed.backup.places import DirectoryGoal, manifest_of
from skyhop_testbed.backup.restoring import check_backup, restore
from skyhop_testbed.backup.writing import named_files, write_backup
from skyhop_testbed.client import Testbed
from skyhop_testbed.keys import fingerprint, make_request
from skyhop_testbed.orchestrator import accounts, nodes, runs, uploads
from skyhop_testbed.orchestrator.authority import issued_ns
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller, UnknownCallerError
from skyhop_testbed.orchestrator.watch import LAST_BACKUP
from skyhop_testbed.states import NEXT, Change, fold
from skyhop_testbed.words import ENDED, Role, State

KINDS = ("backup", "backup.tar")


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def store(at: LocalOrchestrator, run: str, **files: bytes) -> None:
    """Upload files of a run's client."""
    manifest = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    listed = {**files, "manifest.json": json.dumps({"files": manifest}).encode()}
    for name, data in listed.items():
        at.orchestrator.uploads.write_piece(run, "client", name, 0, data)
    with at.writing(Caller("a", Role.NODE)) as ctx:
        row = uploads.check_uploader(ctx, run, "client")
        assert at.orchestrator.uploads.complete(ctx, row, "client")


def planned(at: LocalOrchestrator, name: str = "j") -> str:
    """Submit a job; return the id of its run."""
    made = at.submit(job(name, when=f"at = {at.now_ns + 60 * S}", overhead="false"))
    with at.writing(ANN) as ctx:
        return runs.listing(ctx, of_job=made.id)[0].id


def filled(at: LocalOrchestrator) -> tuple[str, str]:
    """Give the orchestrator a token and a run with files and telemetry; return token and run."""
    with at.writing(ITSELF) as ctx:
        token = accounts.issue(ctx, accounts.TOKEN, of_user="ann")
    run = planned(at)
    store(at, run, big=os.urandom(300_000), small=b"x")
    at.orchestrator.store_telemetry("a", [{"time_ns": at.now_ns - S, "uptime_s": 5.0}])
    return token, run


def backed_up(at: LocalOrchestrator, place: Path, since: Path | None = None) -> Manifest:
    return write_backup(at.orchestrator.directory, place, at.now_ns, since).manifest


def content(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory, without database, list and unfinished uploads."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and not path.name.startswith(("testbed.sqlite", FILE, LAST_BACKUP))
        and path.parent.name != "incoming"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_orchestrator_has_everything(
    at: LocalOrchestrator, tmp_path: Path, kind: str
) -> None:
    token, run = filled(at)
    manifest = backed_up(at, tmp_path / kind)
    assert not manifest.missing
    at.pass_s(3600)
    restore(tmp_path / kind, tmp_path / "new", at.now_ns)
    live = content(at.orchestrator.directory)
    assert content(tmp_path / "new") == live
    assert len(live) > 8
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "new").rglob("*")}
    assert modes == {0}
    assert (tmp_path / kind).stat().st_mode & 0o077 == 0
    with local_orchestrator(tmp_path / "new") as new:
        assert new.orchestrator.caller_of_token(token) == ANN
        with new.writing(ANN) as ctx:
            path, size, digest = new.orchestrator.uploads.file(ctx, run, "client", "big")
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
            assert path.stat().st_size == size == 300_000
        rows = new.orchestrator.telemetry.read(["a"], ["uptime_s"])
        assert rows["uptime_s"].to_list() == [5.0]
        assert new.orchestrator.authority.orders_key == at.orchestrator.authority.orders_key


def test_what_nodes_have_seen_is_not_handed_out_again(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    planned(at)
    backed_up(at, tmp_path / "backup")
    for number in range(40):
        at.pass_s(60)
        planned(at, f"later{number}")
    with at.writing(ITSELF) as ctx:
        seen, _ = nodes.schedule(ctx, "a")
        open_invitation = accounts.issue(ctx, accounts.INVITATION, of_node="a")
    revisions = [seen]
    for again in range(2):
        at.pass_s(60)
        restore(tmp_path / "backup", tmp_path / f"new{again}", at.now_ns)
        with local_orchestrator(tmp_path / f"new{again}") as new:
            new.clock.ns = at.now_ns
            for number in range(30):
                planned(new, f"other{number}")
            with new.writing(ITSELF) as ctx:
                revision, schedule = nodes.schedule(ctx, "a")
                with pytest.raises(UnknownCallerError):
                    accounts.redeem_invitation(ctx, open_invitation, "a")
        revisions.append(revision)
        assert schedule["settings"]["restored_from_ns"] == BEGIN_NS
        assert schedule["settings"]["restored_at_ns"] == at.now_ns
    assert revisions == sorted(set(revisions))
    # Each restored orchestrator begins above what the former one handed out last.
    assert all(b - a > 30 for a, b in pairwise(revisions))


def test_an_invitation_of_the_backup_does_not_work(at: LocalOrchestrator, tmp_path: Path) -> None:
    with at.writing(ITSELF) as ctx:
        invitation = accounts.issue(ctx, accounts.INVITATION, of_node="a")
        session = accounts.issue(ctx, accounts.SESSION, of_user="ann")
    backed_up(at, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    with local_orchestrator(tmp_path / "new") as new, new.writing(ITSELF) as ctx:
        with pytest.raises(UnknownCallerError, match="not known"):
            accounts.redeem_invitation(ctx, invitation, "a")
        with pytest.raises(UnknownCallerError):
            accounts.caller_of_token(ctx, session, accounts.SESSION)


def certified(at: LocalOrchestrator, node: str) -> tuple[bytes, int]:
    """Sign a node's certificate; return its digest and the time of its issue."""
    from cryptography import x509

    pem = at.orchestrator.authority.sign_node(node, make_request(node)[1], at.orchestrator.now())
    return fingerprint(pem), issued_ns(x509.load_pem_x509_certificate(pem))


def test_a_certificate_issued_since_the_backup_is_known(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    revoked = certified(at, "a")
    at.pass_s(3600)
    backed_up(at, tmp_path / "backup")
    at.pass_s(3600)
    renewed, stranger = certified(at, "a"), certified(at, "gone")
    at.pass_s(3600)
    restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    at.pass_s(3600)
    afterwards = certified(at, "a")
    with local_orchestrator(tmp_path / "new") as new, new.writing(ITSELF) as ctx:
        assert accounts.caller_of_certificate(ctx, "a", *renewed) == Caller("a", Role.NODE)
        for name, (digest, begin_ns) in (("a", revoked), ("gone", stranger), ("a", afterwards)):
            with pytest.raises(UnknownCallerError, match="not known"):
                accounts.caller_of_certificate(ctx, name, digest, begin_ns)
    with at.writing(ITSELF) as ctx, pytest.raises(UnknownCallerError, match="not known"):
        accounts.caller_of_certificate(ctx, "a", *renewed)


# --- consistency ---


def test_files_that_arrive_during_the_backup_are_in_it(
    at: LocalOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = planned(at), planned(at, "k")
    store(at, first, early=b"early")
    late: list[str] = []
    snapshot = writing.snapshot

    def slow(database: Path, copy: Path) -> int:
        if not late:
            store(at, second, late=b"late")
            late.append(second)
        return snapshot(database, copy)

    monkeypatch.setattr(writing, "snapshot", slow)
    for kind in KINDS:
        late.clear()
        manifest = backed_up(at, tmp_path / kind)
        assert not manifest.missing
        restore(tmp_path / kind, tmp_path / f"of-{kind}", at.now_ns)
        state = tmp_path / f"of-{kind}"
        named = [*named_files(state / "testbed.sqlite")]
        assert {name.rsplit("/", 1)[1] for name, _, _ in named} == {
            "early",
            "late",
            "manifest.json",
        }
        for name, size, digest in named:
            found = (state / name).read_bytes()
            assert (len(found), hashlib.sha256(found).hexdigest()) == (size, digest)


def test_files_that_expire_during_the_backup_are_no_longer_named(
    at: LocalOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned(at)
    store(at, run, old=b"old")
    names = writing._names

    def slow(state: Path) -> list[str]:
        found = [*names(state)]
        at.pass_s(301 * 86_400)
        at.orchestrator.tick()
        return found

    monkeypatch.setattr(writing, "_names", slow)
    manifest = backed_up(at, tmp_path / "backup")
    assert not manifest.missing
    assert not [*named_files(tmp_path / "backup" / "testbed.sqlite")]


def test_a_journal_that_is_folded_during_the_backup_is_not_lost(
    at: LocalOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.orchestrator.store_telemetry("a", [{"time_ns": at.now_ns - S, "uptime_s": 5.0}])
    below = writing._below

    def slow(state: Path, part: str, *rest: Any) -> list[str]:
        found = [*below(state, part, *rest)]
        if any(name.endswith(".jsonl") for name in found):
            at.orchestrator.telemetry.tidy()
        return found

    monkeypatch.setattr(writing, "_below", slow)
    backed_up(at, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    with local_orchestrator(tmp_path / "new") as new:
        assert new.orchestrator.telemetry.read(["a"], ["uptime_s"])["uptime_s"].to_list() == [5.0]


def test_a_file_that_is_gone_is_named(at: LocalOrchestrator, tmp_path: Path) -> None:
    _, run = filled(at)
    (lost,) = at.orchestrator.directory.glob("runs/a/*/*/*/*/*/client/small")
    lost.unlink()
    manifest = backed_up(at, tmp_path / "backup")
    assert manifest.missing == [lost.relative_to(at.orchestrator.directory).as_posix()]
    assert run in manifest.missing[0]


def test_files_of_a_former_backup_are_linked(at: LocalOrchestrator, tmp_path: Path) -> None:
    filled(at)
    first, second, third = (tmp_path / name for name in ("1", "2", "3"))
    backed_up(at, first)
    later = planned(at, "k")
    store(at, later, more=b"more")
    made = write_backup(at.orchestrator.directory, second, at.now_ns, first)
    (big,) = second.glob("runs/a/*/*/*/*/*/client/big")
    former = first / big.relative_to(second)
    assert big.stat().st_ino == former.stat().st_ino
    assert made.linked > 5
    assert {each.name for each in made.manifest.files} > {
        each.name for each in backed_up_files(first)
    }
    check_backup(second)
    # A file that is damaged in the former backup is copied again.
    former.chmod(0o600)
    mtime = former.stat().st_mtime_ns
    former.write_bytes(bytes(300_000))
    os.utime(former, ns=(mtime, mtime))
    assert write_backup(at.orchestrator.directory, third, at.now_ns, first).linked < made.linked
    check_backup(third)
    with pytest.raises(InputError, match="big is damaged"):
        check_backup(first)


def backed_up_files(place: Path) -> list[Any]:
    return manifest_of(place).files


# --- half and damaged backups ---


def test_a_cut_archive_is_refused(at: LocalOrchestrator, tmp_path: Path) -> None:
    filled(at)
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    backed_up(at, whole)
    data = whole.read_bytes()
    # The last blocks of an archive are zeros that say nothing.
    end = len(data.rstrip(b"\0"))
    for size in [0, 1, 511, 512, 513, *range(1024, end, end // 60), end - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises((InputError, RunError)) as refused:
            restore(cut, tmp_path / "new", at.now_ns)
        assert str(refused.value).startswith(str(cut))
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "new").exists()
    restore(whole, tmp_path / "new", at.now_ns)


def refusal(place: Path, state: Path, now_ns: int) -> str:
    """Restore a backup; return the message of its refusal, or ""."""
    try:
        restore(place, state, now_ns)
    except InputError as error:
        return str(error)
    return ""


def test_a_changed_byte_is_noticed_or_without_effect(at: LocalOrchestrator, tmp_path: Path) -> None:
    filled(at)
    whole, changed = tmp_path / "whole.tar", tmp_path / "changed.tar"
    backed_up(at, whole)
    data = bytearray(whole.read_bytes())
    expected, noticed = content(at.orchestrator.directory), 0
    for place in range(3, len(data), len(data) // 80):
        data[place] ^= 0x21
        changed.write_bytes(data)
        data[place] ^= 0x21
        said = refusal(changed, tmp_path / "new", at.now_ns)
        if said:
            assert "\n" not in said
            assert not (tmp_path / "new").exists()
            noticed += 1
            continue
        assert content(tmp_path / "new") == expected
        shutil.rmtree(tmp_path / "new")
    assert noticed > 60


@pytest.mark.parametrize("name", ["keys/orders.key", "testbed.sqlite", FILE])
def test_a_directory_that_lacks_a_file_is_refused(
    at: LocalOrchestrator, tmp_path: Path, name: str
) -> None:
    backed_up(at, tmp_path / "backup")
    (tmp_path / "backup" / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("newer", [{"format": 2, "files": "of another form"}, {"tables": 99}])
def test_a_newer_backup_is_refused(
    at: LocalOrchestrator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    newer: dict[str, Any],
) -> None:
    dumps = Manifest.dumps

    def later(self: Manifest) -> bytes:
        values = json.loads(dumps(self).partition(b"\n")[0]) | {"skyhop": "9.1"}
        line = json.dumps(values | newer).encode()
        return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "dumps", later)
        patch.setattr(writing, "read_backup", lambda _place: None)
        backed_up(at, tmp_path / kind)
    with pytest.raises(InputError, match=r"is a backup of skyhop 9\.1: install that version"):
        restore(tmp_path / kind, tmp_path / "new", at.now_ns)
    assert not (tmp_path / "new").exists()


def test_names_that_leave_the_directory_are_refused(tmp_path: Path) -> None:
    import io
    import tarfile

    for name in ("../x", "/tmp/x", "a/../../x", "a//b"):
        with tarfile.open(tmp_path / "bad.tar", "w") as tar:
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
        with pytest.raises(InputError, match="no path inside"):
            restore(tmp_path / "bad.tar", tmp_path / "deep" / "new", 1)
    assert not (tmp_path / "x").exists()


def test_a_directory_with_content_is_kept(at: LocalOrchestrator, tmp_path: Path) -> None:
    backed_up(at, tmp_path / "backup")
    (tmp_path / "new").mkdir()
    restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    with pytest.raises(InputError, match="has content already"):
        restore(tmp_path / "backup", tmp_path / "new", at.now_ns)
    with pytest.raises(InputError, match="exists already"):
        backed_up(at, tmp_path / "backup")
    with pytest.raises(InputError, match="no state directory"):
        write_backup(tmp_path / "nothing", tmp_path / "b2", 0)


def full_after(failing: int, add: Callable[..., None], count: Iterator[int]) -> Callable[..., None]:
    """Return a method that adds files until the disk is full."""

    def full(*values: object) -> None:
        add(*values)
        if next(count) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return full


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_that_fails_leaves_nothing(
    at: LocalOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    filled(at)
    goal = tmp_path / "backups"
    goal.mkdir()
    number = len(backed_up(at, tmp_path / "whole").files)
    for failing in range(number + 1):
        count = iter(range(1000))
        with monkeypatch.context() as patch:
            for kind_of_goal in (places.DirectoryGoal, places.TarGoal):
                add = kind_of_goal.add

                patch.setattr(kind_of_goal, "add", full_after(failing, add, count))
            with pytest.raises(RunError, match="No space left on device"):
                backed_up(at, goal / kind)
        assert not [*goal.iterdir()]


def test_a_restoring_that_fails_leaves_nothing(
    at: LocalOrchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(at)
    backed_up(at, tmp_path / "backup")
    (tmp_path / "place").mkdir()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module, name in ((DirectoryGoal, "add"), (restoring, "_mark")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(RunError, match="No space left on device"):
                restore(tmp_path / "backup", tmp_path / "place" / "new", at.now_ns)
        assert not [*(tmp_path / "place").iterdir()]


# --- nodes of a restored orchestrator ---


def test_the_way_between_states_is_permitted() -> None:
    found = 0
    for before in State:
        for after in State:
            steps = way(before, after)
            if steps:
                changes = [Change(0, state, "") for state in steps]
                assert fold(changes, before) is after
                assert not ENDED & set(steps[:-1])
                found += 1
            else:
                assert after not in NEXT[before]
    assert found > 30
    assert way(State.LOST, State.COMPLETE) == [State.COMPLETE]
    assert way(State.PLANNED, State.COMPLETE)[0] is State.CLAIMED
    assert set(NEXT) == set(State)


def test_a_node_reports_and_uploads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = NodeHere(tmp_path, monkeypatch)
    try:
        node.scripts["cat"] = Script(2.0, writes={"out.txt": b"x"})
        node.start()
        old = node.orchestrator.plan(node_job("cat", run={"keep": ["*"]}))
        node.until_settled(old)
        node.clock.advance(200)
        backup_ns = node.clock.now_ns()
        node.clock.advance(5)
        ended = node.orchestrator.plan(node_job("cat", run={"keep": ["*"]}))
        node.until_settled(ended)
        going = node.orchestrator.plan(node_job("sleep", "60", length_s=90.0))
        node.until(lambda: node.orchestrator.states(going)[-1:] == ["executing"])
        # The orchestrator forgets everything since the backup.
        node.orchestrator.stop()
        node.orchestrator.files.clear()
        node.orchestrator.events.clear()
        node.clock.advance(3)
        node.orchestrator.start()
        settings = {"heartbeat_s": 1.0, "late_s": 120.0, "restored_from_ns": backup_ns}
        settings["restored_at_ns"] = node.clock.now_ns()
        runs_there = [each | {"state": "planned"} for each in node.orchestrator.runs[1:]]
        node.orchestrator.revision = 10**12
        order = node.orchestrator.schedule(settings=settings, runs=runs_there)
        monkeypatch.setattr(node.orchestrator, "schedule", lambda: order)
        node.until(lambda: node.orchestrator.states(going))
        node.orchestrator.send(order)
        node.until_settled(ended, going)
        node.clock.advance(30)
        states = node.orchestrator.states
        assert states(ended) == ["claimed", "deploying", "finishing", "complete"]
        assert states(going) == ["claimed", "deploying", "executing", "finishing", "complete"]
        assert not states(old), "a run that the backup has is not reported again"
        assert node.orchestrator.files[f"{ended}/client/out.txt"] == b"x"
        assert not any(name.startswith(old) for name in node.orchestrator.files)
        assert len(node.started(going)) == len(node.started(ended)) == 1
    finally:
        node.close()


# --- the commands ---


def run_testbed(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*skyhop_command(), "testbed", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )


@pytest.mark.integration
def test_users_and_nodes_work_after_a_restore(tmp_path: Path) -> None:
    with served(tmp_path / "state") as old:
        with old.testbed() as admin:
            admin.put_node(api.PutNode(name=NODE))
            identity = old.enrol(NODE, admin.invitation(NODE)["token"])
        made = run_testbed("backup", str(tmp_path / "b.tar"), "--state", str(tmp_path / "state"))
        assert made.returncode == 0, made.stderr
        renewed_key, request = make_request(NODE)
        renewed = old.wire(old.agents, identity).call(api.RENEW, api.Renew(csr_pem=request))
        with old.testbed() as admin:
            admin.put_user(api.PutUser(name="later"))
    checked = run_testbed("restore", "--check", str(tmp_path / "b.tar"))
    assert "is complete" in checked.stdout
    done = run_testbed("restore", str(tmp_path / "b.tar"), "--state", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    with served(tmp_path / "new") as new:
        with Testbed.of_file(tmp_path / "state" / "admin.json") as stale:
            token, authority = stale._wire._http.headers["authorization"], stale._authority_pem
        assert authority.encode() == new.authority_pem
        users = new.wire(new.users, token=token.removeprefix("Bearer "))
        assert [each.name for each in users.call(api.LIST_USERS, api.Nothing())] == ["admin"]
        for own in (identity, renewed_key + renewed.certificate_pem):
            agent = new.wire(new.agents, own)
            assert agent.call(api.REPORT, api.Batch()) == 0


@pytest.mark.integration
def test_a_killed_backup_has_no_name(tmp_path: Path) -> None:
    with local_orchestrator(tmp_path / "state") as at:
        run = planned(at)
        store(at, run, **{f"f{number}": os.urandom(2_000_000) for number in range(30)})
    goal = tmp_path / "backups"
    goal.mkdir()
    for kind in KINDS:
        words = ["testbed", "backup", str(goal / kind), "--state", str(tmp_path / "state")]
        with subprocess.Popen([*skyhop_command(), *words], stderr=subprocess.DEVNULL) as process:
            limit = time.monotonic() + 60
            while time.monotonic() < limit and not [*goal.rglob("*backup*")]:
                time.sleep(0.002)
            assert [*goal.rglob("*backup*")]
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        assert not (goal / kind).exists()
        (left,) = goal.iterdir()
        with pytest.raises(InputError):
            check_backup(left / "files" / kind)
        done = run_testbed(*words[1:])
        assert done.returncode == 0, done.stderr
        assert [each.name for each in goal.iterdir()] == [kind], "the killed one's files are gone"
        check_backup(goal / kind)
        shutil.rmtree(goal / kind) if (goal / kind).is_dir() else (goal / kind).unlink()


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(tmp_path: Path, kind: str) -> None:
    needs_namespaces()
    needs_program("mount")
    with local_orchestrator(tmp_path / "state") as at:
        store(at, planned(at), big=os.urandom(3_000_000))
        backed_up(at, tmp_path / kind)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = " ".join([*skyhop_command(), "testbed"])
    state = tmp_path / "state"
    script = (
        f"mount -t tmpfs -o size=2m none {disk}\n"
        f"{command} backup {disk}/{kind} --state {state}; echo $?; ls -A {disk}\n"
        f"{command} restore {tmp_path / kind} --state {disk}/new; echo $?; ls -A {disk}\n"
    )
    done = subprocess.run(
        [needs_program("unshare"), "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert re.fullmatch(r"[12]\n[12]\n", done.stdout), (done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2, lines
    assert all("No space left on device" in line for line in lines)


def test_a_damaged_database_is_not_backed_up(at: LocalOrchestrator, tmp_path: Path) -> None:
    filled(at)
    at.orchestrator.close()
    file = at.orchestrator.directory / "testbed.sqlite"
    with closing(sqlite3.connect(file)) as opened:
        (size,) = opened.execute("PRAGMA page_size").fetchone()
        roots = [row[0] for row in opened.execute("SELECT rootpage FROM sqlite_master") if row[0]]
    data = bytearray(file.read_bytes())
    data[(roots[3] - 1) * size : (roots[3] - 1) * size + 64] = os.urandom(64)
    file.write_bytes(data)
    with pytest.raises((InputError, RunError), match=r"damaged|malformed"):
        backed_up(at, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
