"""Retention and floors of free space: what goes, what stays, and what is refused meanwhile."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from testbed_harness import (
    ADMIN,
    ANN,
    LocalOrchestrator,
    S,
    StandingClock,
    event,
    job,
    local_orchestrator,
)

from skyhop.errors import RunError
from skyhop_testbed import api
from skyhop_testbed.free_space import Space, floor_bytes, shortage
from skyhop_testbed.orchestrator import handlers, jobs, nodes, quotas, uploads
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import Caller
from skyhop_testbed.orchestrator.upload_quota import UploadQuota
from skyhop_testbed.store import tables
from skyhop_testbed.store.database import VERSION, open_database
from skyhop_testbed.words import Role, Side

A = Caller("a", Role.NODE)
DAY_S = 86_400
CLIENT = Side.CLIENT.value
INPUT = b"the input"


@dataclass
class Disk:
    """Disk of a test: its size and its free space in bytes."""

    total: int = 100_000_000_000
    free: int = 50_000_000_000

    def space(self, _path: Path) -> Space:
        """Return the disk's space."""
        return Space(self.total, self.free)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def at(tmp_path: Path, disk: Disk) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        made.orchestrator.space_of = disk.space
        yield made


def count(at: LocalOrchestrator, table: sa.Table) -> int:
    with at.orchestrator.reading(ADMIN) as ctx:
        return int(ctx.connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def sample(time_ns: int) -> dict[str, object]:
    return {"time_ns": time_ns, "pop_ping_latency_ms": 30.0}


def live_a_day(at: LocalOrchestrator, name: str) -> str:
    """Run a job whose results are kept for 2 days; report telemetry, a preemption and a trigger."""
    text = job(name, run='client = ["true"]\nfiles = ["in"]', retention='"2 days"')
    with at.writing(ANN) as ctx:
        made = jobs.submit(ctx, text, {"in": INPUT + name.encode()}, at.orchestrator.objects)
        run = ctx.connection.scalar(sa.select(tables.run.c.id).where(tables.run.c.job == made.id))
    for state in ("claimed", "deploying", "executing", "finishing", "complete"):
        at.change("a", str(run), state, fence=1)
    with at.writing(A) as ctx:
        row = ctx.first(sa.select(tables.run).where(tables.run.c.id == run))
        assert row is not None
        content = b"result"
        digest = hashlib.sha256(content).hexdigest()
        listed = {"files": [{"name": "out", "size": len(content), "sha256": digest}]}
        write = at.orchestrator.uploads.write_piece
        write(str(run), CLIENT, "out", 0, content)
        write(str(run), CLIENT, uploads.MANIFEST, 0, json.dumps(listed).encode())
        at.orchestrator.uploads.complete(ctx, row, CLIENT)
    at.report("a", ("scavenger", {"active": False}), ("trigger", {"job": made.id, "fired": False}))
    at.orchestrator.store_telemetry("a", [sample(at.now_ns)])
    with at.writing(ADMIN) as ctx:
        ctx.audit("test", name)
    return made.id


def test_a_year_later_only_what_is_young_enough_is_left(at: LocalOrchestrator) -> None:
    old = live_a_day(at, "old")
    at.pass_s(200 * DAY_S)
    middle = live_a_day(at, "middle")
    at.pass_s(201 * DAY_S)
    new = live_a_day(at, "new")
    at.orchestrator.tick()
    at.orchestrator.tick()
    with at.orchestrator.reading(ADMIN) as ctx:
        left = set(ctx.connection.scalars(sa.select(tables.job.c.id)))
        of_runs = set(ctx.connection.scalars(sa.select(tables.run.c.job)))
        audited = set(
            ctx.connection.scalars(
                sa.select(tables.audit.c.target).where(tables.audit.c.what == "test")
            )
        )
        files = set(ctx.connection.scalars(sa.select(tables.artefact.c.name)))
        kept_of = {
            row["job"]
            for row in ctx.all(sa.select(tables.run.c.job).join(tables.artefact).distinct())
        }
    assert old not in left
    assert left == of_runs == {middle, new}
    assert audited == {"middle", "new"}
    assert (files, kept_of) == ({"out", uploads.MANIFEST}, {new})
    for table, per_day in ((tables.event, 5), (tables.trigger_log, 1), (tables.preemption, 1)):
        assert count(at, table) == 2 * per_day, table.name
    assert count(at, tables.job_node) == count(at, tables.job_file) == 2
    inputs = {path.read_bytes() for path in (at.orchestrator.objects / "inputs").iterdir()}
    assert inputs == {INPUT + b"middle", INPUT + b"new"}
    assert len(at.orchestrator.telemetry.days("a")) == 2
    results = list((at.orchestrator.directory / "runs").rglob("out"))
    assert len(results) == 1
    assert new in results[0].parts


def test_telemetry_and_logs_have_their_own_retention(at: LocalOrchestrator) -> None:
    live_a_day(at, "j")
    with at.writing(ADMIN) as ctx:
        handlers.put_config(ctx, {"telemetry_retention_s": 10.0 * DAY_S, "log_retention_s": 60.0})
    at.pass_s(5 * DAY_S)
    at.orchestrator.tick()
    assert len(at.orchestrator.telemetry.days("a")) == 1
    assert count(at, tables.trigger_log) == count(at, tables.preemption) == 0
    assert count(at, tables.run) == 1
    at.pass_s(6 * DAY_S)
    at.orchestrator.tick()
    assert at.orchestrator.telemetry.days("a") == []


def test_deletion_is_in_steps_and_gives_the_space_back(at: LocalOrchestrator) -> None:
    lines = 15_000
    with at.writing(ADMIN) as ctx:
        row = {
            "at_ns": at.now_ns,
            "who": "w" * 100,
            "what": "w",
            "target": "",
            "outcome": "o" * 100,
        }
        ctx.connection.execute(sa.insert(tables.audit), [row] * lines)
    file = at.orchestrator.directory / "testbed.sqlite"
    base = sqlite3.connect(file)
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    full = file.stat().st_size
    at.pass_s(401 * DAY_S)
    at.orchestrator.tick()
    assert count(at, tables.audit) == 0
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert base.execute("PRAGMA freelist_count").fetchone() == (0,)
    base.close()
    assert file.stat().st_size < full / 2


def test_one_round_deletes_a_bounded_number_of_rows(at: LocalOrchestrator) -> None:
    lines = 30_000
    with at.writing(ADMIN) as ctx:
        row = {"at_ns": at.now_ns, "who": "", "what": "w", "target": "", "outcome": ""}
        ctx.connection.execute(sa.insert(tables.audit), [row] * lines)
    at.pass_s(401 * DAY_S)
    left = lines
    for _ in range(2):
        at.orchestrator.tick()
        before, left = left, count(at, tables.audit)
        assert 0 < before - left <= 20_000
    assert left == 0


def test_a_file_of_the_first_version_gets_its_additions(tmp_path: Path) -> None:
    """Open a database with the first version's tables, which never gave space back."""
    file = tmp_path / "old.sqlite"
    open_database(file).close()
    base = sqlite3.connect(file)
    base.executescript(
        """
        DROP TABLE quota; DROP TABLE usage;
        DROP TRIGGER usage_of_stored; DROP TRIGGER usage_of_deleted;
        DROP INDEX ix_job_state_extend_ns; ALTER TABLE job DROP COLUMN extend_ns;
        INSERT INTO user VALUES ('ann', '', '', 'user', 1, 0);
        INSERT INTO node (name, created_ns, description, provider, address, policy, health,
            scavenger_mode, scavenger_active, last_seq, revision)
            VALUES ('a', 1, '', '', '', '{}', '{}', 'auto', 0, 0, 1);
        INSERT INTO job VALUES ('J', 'ann', 'j', '{}', 'cron', 0, 'active', 1, 1);
        INSERT INTO job VALUES ('K', 'ann', 'k', '{}', 'at', 0, 'active', 1, 4611686018427387904);
        INSERT INTO run VALUES ('R', 'J', 'a', NULL, 1, 2, 'complete', NULL, 1, NULL, 1);
        INSERT INTO artefact VALUES ('R', 'client', 'x', 70, '', 1, 9);
        PRAGMA user_version = 1;
        """
    )
    base.execute("PRAGMA auto_vacuum = 0")
    base.execute("VACUUM")
    assert base.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    base.close()
    for _ in range(2):  # the second time, nothing is left to do.
        database = open_database(file)
        with database.writing() as connection:
            said = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("user_version", "auto_vacuum")
            }
            assert said == {"user_version": VERSION, "auto_vacuum": 2}
            rows = connection.exec_driver_sql("SELECT kind, name, amount FROM usage ORDER BY kind")
            assert [tuple(row) for row in rows] == [("node", "a", 70), ("user", "ann", 70)]
            due = connection.exec_driver_sql("SELECT id FROM job WHERE extend_ns = 0")
            assert [row[0] for row in due] == ["J"]
        database.close()
    with open_database(file).writing() as connection:
        connection.exec_driver_sql("DELETE FROM artefact")
        assert connection.exec_driver_sql("SELECT sum(amount) FROM usage").scalar_one() == 0


# --- floors of free space ---


def test_a_floor_is_the_larger_of_bytes_and_share() -> None:
    space = Space(100_000, 5_000)
    assert floor_bytes(space, 4_000, 1.0) == 4_000
    assert floor_bytes(space, 500, 6.0) == 6_000
    assert shortage(space, 5_000, "it") is None
    assert shortage(space, 5_001, "the disk") == (
        "the disk has 5,000 bytes free, less than its floor of 5,001: it takes nothing new until "
        "there is room"
    )
    assert shortage(space, 4_000, "it", needed=1_001)


def test_a_full_disk_takes_no_jobs_and_uploads_until_there_is_room(
    at: LocalOrchestrator, disk: Disk
) -> None:
    orchestrator = at.orchestrator
    made = at.submit(job("before"))
    with orchestrator.reading(ADMIN) as ctx:
        row = ctx.first(sa.select(tables.run).where(tables.run.c.job == made.id))
    assert row is not None
    submit = handlers.WRITING[api.SUBMIT_JOB.name]
    asked = api.SubmitJob(toml=job("j", 'at = "2027-01-02T00:00:00Z"'), files={})

    def config() -> api.Config:
        with orchestrator.reading(ADMIN) as ctx:
            found = handlers.READING[api.GET_CONFIG.name](orchestrator, ctx, api.Nothing())
        assert isinstance(found, api.Config)
        return found

    assert config().shortage == ""
    disk.free = 999_999_999  # 1 % of the disk is 1 GB.
    said = "the testbed's disk has 999,999,999 bytes free, less than its floor of 1,000,000,000"
    with at.writing(ANN) as ctx, pytest.raises(RunError, match=said):
        submit(orchestrator, ctx, asked)
    with pytest.raises(RunError, match=said):
        UploadQuota(orchestrator, row, CLIENT)
    assert config().shortage.startswith(said)
    # Reports of runs are small, and always accepted.
    at.change("a", row["id"], "claimed", fence=1)
    orchestrator.tick()
    orchestrator.tick()
    disk.free = 2_000_000_000
    orchestrator.tick()
    with at.writing(ANN) as ctx:
        submit(orchestrator, ctx, asked)
    UploadQuota(orchestrator, row, CLIENT).charge("x", 0, 1)
    with orchestrator.reading(ADMIN) as ctx:
        log = ctx.all(sa.select(tables.audit).where(tables.audit.c.what == "disk"))
    assert [line["outcome"][: len(said)] for line in log] == [said, "there is room again"]


def test_an_upload_ends_when_the_disk_becomes_full_meanwhile(
    at: LocalOrchestrator, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop_testbed.orchestrator.upload_quota._STEP_BYTES", 1_000)
    made = at.submit(job())
    with at.orchestrator.reading(ADMIN) as ctx:
        row = ctx.first(sa.select(tables.run).where(tables.run.c.job == made.id))
    assert row is not None
    quota = UploadQuota(at.orchestrator, row, CLIENT)
    quota.charge("x", 0, 1_000)
    disk.free = 0
    with pytest.raises(RunError, match="0 bytes free"):
        quota.charge("x", 1_000, 1_000)


def test_a_full_disk_loses_the_oldest_telemetry_but_not_the_last_thirty_days(
    at: LocalOrchestrator, disk: Disk
) -> None:
    store = at.orchestrator.telemetry
    for _ in range(40):
        at.orchestrator.store_telemetry("a", [sample(at.now_ns)])
        at.orchestrator.store_telemetry("b", [sample(at.now_ns)])
        at.pass_s(DAY_S)
    disk.free = 600_000_000
    newest = store.days("a")[-1]
    # A sample is stored as long as half the floor is free.
    at.orchestrator.store_telemetry("a", [sample(at.now_ns)])
    at.orchestrator.tick()
    assert len(store.days("a")) == 31
    assert len(store.days("b")) == 30
    assert store.days("b")[-1] == newest
    disk.free = 400_000_000
    at.orchestrator.store_telemetry("b", [sample(at.now_ns)])
    assert store.days("b")[-1] == newest
    disk.free = 50_000_000_000
    at.orchestrator.store_telemetry("b", [sample(at.now_ns)])
    assert len(store.days("b")) == 31


def test_telemetry_goes_only_until_there_is_room(at: LocalOrchestrator, disk: Disk) -> None:
    for _ in range(60):
        at.orchestrator.store_telemetry("a", [sample(at.now_ns)])
        at.pass_s(DAY_S)

    def space(_path: Path) -> Space:
        days = len(at.orchestrator.telemetry.days("a"))
        return Space(disk.total, 1_000_000_000 + (50 - days) * 10)

    at.orchestrator.space_of = space
    at.orchestrator.tick()
    assert len(at.orchestrator.telemetry.days("a")) == 50


def test_the_page_and_a_report_say_what_is_short(tmp_path: Path) -> None:
    """Store a node's report about its full disk, which its page shows."""
    with local_orchestrator(tmp_path / "state") as at:
        body = {"disk_free_bytes": 1, "shortage": "the node's disk has 1 bytes free"}
        with at.writing(A) as ctx:
            nodes.report(ctx, [event(1, at.now_ns, "health", json.dumps(body))])
            found = nodes.document(ctx, "a")
    assert found.health["shortage"] == "the node's disk has 1 bytes free"


def test_an_orchestrator_with_default_floors_opens_on_this_machine(tmp_path: Path) -> None:
    made = Orchestrator(tmp_path / "state", ["localhost"], clock=StandingClock())
    try:
        space = made.space_of(made.directory)
        assert 0 < space.free <= space.total
        with made.reading(ADMIN) as ctx:
            assert quotas.allowed(ctx, "user", "x", "kept_bytes") == api.Settings().user_kept_bytes
            assert ctx.settings.free_floor_bytes < 10 * S
    finally:
        made.close()
