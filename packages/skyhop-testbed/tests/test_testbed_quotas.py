"""Quotas of users and nodes: jobs, runs, bytes kept, uploads; who may read and set them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import Skyhop
from testbed_harness import ADMIN, ANN, BOB, LocalOrchestrator, job, local_orchestrator, served

from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.orchestrator import handlers, jobs, quotas, runs, uploads
from skyhop_testbed.orchestrator.quotas import QuotaError
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    DeniedError,
    NotFoundError,
    TooOftenError,
)
from skyhop_testbed.orchestrator.upload_quota import UploadQuota
from skyhop_testbed.store.tables import run
from skyhop_testbed.words import Role, Side

A = Caller("a", Role.NODE)
CLIENT = Side.CLIENT.value


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def light(name: str, when: str = 'cron = "* * * * *"', **keys: str) -> str:
    return job(name, when, length='"30 s"', overhead="false", **keys)


def set_quotas(at: LocalOrchestrator, kind: str, name: str, **values: float | None) -> None:
    with at.writing(ADMIN) as ctx:
        quotas.put(ctx, kind, name, values)


def used(at: LocalOrchestrator, kind: str, name: str) -> dict[str, float | None]:
    with at.orchestrator.reading(ADMIN) as ctx:
        return {each.key: each.used for each in quotas.lines(ctx, kind, name)}


# --- jobs and runs ahead ---


def test_one_users_jobs_of_each_minute_end_at_the_quota_and_others_go_on(
    at: LocalOrchestrator,
) -> None:
    """Try a user's 67 jobs that run every minute."""
    accepted, refusals = 0, []
    for number in range(67):
        try:
            at.submit(light(f"j{number}"))
            accepted += 1
        except QuotaError as error:
            refusals.append(str(error))
    # 25 jobs with 400 runs each are 10,000 runs.
    assert (accepted, len(refusals)) == (25, 42)
    assert set(refusals) == {
        "quota of user ann: 10,000 of 10,000 runs ahead are used, and this needs 400 more: "
        "cancel a job, or let it run more rarely, or ask an administrator for a larger quota"
    }
    assert used(at, "user", "ann")["jobs"] == 25
    at.submit(light("bobs"), BOB)
    assert used(at, "node", "a") == {
        "jobs": 26,
        "runs_ahead": 26 * 400,
        "kept_bytes": 0,
        "upload_bytes_per_day": 0,
        "files_per_run": None,
        "bytes_per_run": None,
    }


def test_a_job_too_many_is_refused_by_submit_and_by_check(at: LocalOrchestrator) -> None:
    set_quotas(at, "user", "ann", jobs=2)
    for name in ("one", "two"):
        at.submit(light(name, 'cron = "0 0 * * *"'))
    with at.orchestrator.reading(ANN) as ctx, pytest.raises(QuotaError, match="2 of 2 active jobs"):
        jobs.check_job(ctx, light("three", 'cron = "0 0 * * *"'))
    with pytest.raises(QuotaError, match=r"user ann: 2 of 2 active jobs are used: cancel a job"):
        at.submit(light("three", 'cron = "0 0 * * *"'))
    at.submit(light("three", 'cron = "0 0 * * *"'), BOB)
    # A job of the same name takes the place of the old one.
    with at.writing(ANN) as ctx:
        changed = light("two", 'cron = "0 1 * * *"')
        assert jobs.check_job(ctx, changed).conflicts_total == 0
        jobs.modify(ctx, "two", changed, {}, at.orchestrator.objects)
        jobs.cancel(ctx, "one")
    at.submit(light("three", 'cron = "0 0 * * *"'))


def test_a_nodes_quota_counts_the_jobs_of_all_users_there(at: LocalOrchestrator) -> None:
    set_quotas(at, "node", "a", jobs=2)
    at.submit(light("one"))
    at.submit(light("two"), BOB)
    with pytest.raises(QuotaError, match="quota of node a: 2 of 2 active jobs"):
        at.submit(light("three"), BOB)
    at.submit(light("three", nodes='["b"]'), BOB)


def test_plans_grow_no_further_than_a_quota_that_was_lowered(at: LocalOrchestrator) -> None:
    at.submit(light("each-minute"))
    set_quotas(at, "user", "ann", runs_ahead=100)
    for _ in range(10):
        at.pass_s(1800)
        at.orchestrator.tick()
    for _ in range(6):
        at.pass_s(1800)
        at.orchestrator.tick()
        ahead = used(at, "user", "ann")["runs_ahead"]
        assert ahead is not None
        assert 0 < ahead <= 100


def test_a_setting_is_for_all_and_a_quota_for_one(at: LocalOrchestrator) -> None:
    with at.writing(ADMIN) as ctx:
        handlers.put_config(ctx, {"user_jobs": 1.0, "user_kept_bytes": 1e12})
    set_quotas(at, "user", "ann", jobs=3)

    def allowed(name: str) -> tuple[float, bool]:
        with at.orchestrator.reading(ADMIN) as ctx:
            found = next(each for each in quotas.lines(ctx, "user", name) if each.key == "jobs")
        return found.allowed, found.is_own

    assert (allowed("ann"), allowed("bob")) == ((3, True), (1, False))
    set_quotas(at, "user", "ann", jobs=None)
    assert allowed("ann") == (1, False)


def test_quotas_are_read_by_whom_they_concern_and_set_with_sense(at: LocalOrchestrator) -> None:
    ask = handlers.READING[api.GET_QUOTAS.name]
    with at.orchestrator.reading(ANN) as ctx:
        assert ask(at.orchestrator, ctx, api.Quotas(kind="user", name="ann"))
        assert ask(at.orchestrator, ctx, api.Quotas(kind="node", name="a"))
        for kind, name in (("user", "bob"), ("node", "s")):
            with pytest.raises(DeniedError):
                ask(at.orchestrator, ctx, api.Quotas(kind=kind, name=name))
    assert api.PUT_QUOTAS.roles == api.ADMINS
    with at.writing(ADMIN) as ctx:
        for kind, name in (("user", "nemo"), ("node", "nemo")):
            with pytest.raises(NotFoundError, match=f"there is no {kind} nemo"):
                quotas.put(ctx, kind, name, {"jobs": 1})
        for values in ({"job": 1.0}, {"jobs": -1.0}, {"jobs": float("nan")}, {"jobs": 1e16}):
            with pytest.raises(InputError):
                quotas.put(ctx, "user", "ann", values)


# --- uploads ---


def begun_run(at: LocalOrchestrator, name: str = "j") -> sa.RowMapping:
    """Submit a job with one run, and let its node claim it."""
    made = at.submit(light(name, 'at = "now"'))
    with at.writing(A) as ctx:
        row = ctx.first(sa.select(run).where(run.c.job == made.id))
        assert row is not None
        assert runs.claim(ctx, row["id"], 1, at.now_ns) == (True, "")
    return row


def send(at: LocalOrchestrator, row: sa.RowMapping, files: dict[str, bytes]) -> bool:
    """Upload files with their manifest, as the service does."""
    entries = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    content = json.dumps({"files": entries}).encode()
    quota = UploadQuota(at.orchestrator, row, CLIENT)
    try:
        for name, data in {**files, uploads.MANIFEST: content}.items():
            quota.charge(name, 0, len(data))
            at.orchestrator.uploads.write_piece(row["id"], CLIENT, name, 0, data)
    finally:
        quota.count()
    with at.writing(A) as ctx:
        return at.orchestrator.uploads.complete(ctx, row, CLIENT)


def test_published_files_count_until_they_are_dropped_or_expire(at: LocalOrchestrator) -> None:
    first, second = begun_run(at, "one"), begun_run(at, "two")
    for row in (first, second):
        assert send(at, row, {"x": b"x" * 1000, "d/y": b"y" * 500})
    kept = used(at, "user", "ann")["kept_bytes"]
    assert kept is not None
    assert kept > 3000
    assert (
        kept
        == used(at, "node", "a")["kept_bytes"]
        == used(at, "user", "ann")["upload_bytes_per_day"]
    )
    drop = handlers.WRITING[api.DROP_FILES.name]
    with at.writing(BOB) as ctx, pytest.raises(DeniedError):
        drop(at.orchestrator, ctx, api.NamedRun(run=first["id"]))
    with at.writing(ANN) as ctx:
        freed = drop(at.orchestrator, ctx, api.NamedRun(run=first["id"]))
    assert freed == kept / 2 == used(at, "user", "ann")["kept_bytes"]
    at.pass_s(301 * 86_400)
    at.orchestrator.tick()
    assert used(at, "user", "ann")["kept_bytes"] == used(at, "node", "a")["kept_bytes"] == 0
    # Not even empty directories are left, but that of uploads in progress with its mark.
    left = list((at.orchestrator.directory / "runs").iterdir())
    assert [path.name for path in left] == ["incoming"]


def test_an_upload_of_too_many_files_is_refused_for_good_and_leaves_none(
    at: LocalOrchestrator,
) -> None:
    """Try 30,000 files without a manifest."""
    row = begun_run(at)
    set_quotas(at, "user", "ann", files_per_run=50)
    quota = UploadQuota(at.orchestrator, row, CLIENT)
    taken = []

    def flood() -> None:
        for number in range(30_000):
            quota.charge(f"f{number}", 0, 10)
            at.orchestrator.uploads.write_piece(row["id"], CLIENT, f"f{number}", 0, b"0123456789")
            taken.append(number)

    with pytest.raises(DeniedError, match="quota: 51 files of this side of the run, 50 are allo"):
        flood()
    assert len(taken) == 50
    assert at.orchestrator.uploads.offsets(row["id"], CLIENT) == {}


def test_an_upload_that_is_too_large_is_refused_over_several_attempts(
    at: LocalOrchestrator,
) -> None:
    """Try a disk fill: all of a large file arrives in pieces, and in several attempts."""
    row = begun_run(at)
    set_quotas(at, "node", "a", bytes_per_run=1_000_000)
    offsets = [0]

    def fill() -> None:
        write = at.orchestrator.uploads.write_piece
        while offsets[-1] < 2_000_000:
            quota = UploadQuota(at.orchestrator, row, CLIENT)
            for _ in range(2):
                quota.charge("large", offsets[-1], 100_000)
                offsets.append(write(row["id"], CLIENT, "large", offsets[-1], b"x" * 100_000))

    with pytest.raises(DeniedError, match="bytes of this side of the run, 1,000,000 are allowed"):
        fill()
    assert offsets[-1] == 1_000_000


def test_a_file_that_is_sent_again_counts_once(at: LocalOrchestrator) -> None:
    row = begun_run(at)
    set_quotas(at, "user", "ann", bytes_per_run=100_000)
    quota = UploadQuota(at.orchestrator, row, CLIENT)
    for _ in range(20):
        quota.charge("x", 0, 60_000)
        quota.charge("x", 60_000, 30_000)


def test_a_days_bytes_are_refused_until_the_next_day(at: LocalOrchestrator) -> None:
    set_quotas(at, "user", "ann", upload_bytes_per_day=1_000)
    first, second = begun_run(at, "one"), begun_run(at, "two")
    assert send(at, first, {"x": b"x" * 2_000})
    with pytest.raises(TooOftenError, match=r"of 1,000 bytes uploaded today are used.*tomorrow"):
        send(at, second, {"x": b"x"})
    at.pass_s(86_400)
    assert send(at, second, {"x": b"x"})


def test_a_run_whose_results_would_not_be_taken_is_not_granted(at: LocalOrchestrator) -> None:
    """Refuse the run at its claim, so that no node keeps results that cannot go anywhere."""
    row = begun_run(at, "one")
    later = at.submit(light("later", 'at = "2027-01-01T01:00:00Z"'))
    assert send(at, row, {"x": b"x" * 2_000})
    set_quotas(at, "user", "ann", kept_bytes=1_000)
    with at.writing(A) as ctx:
        name = ctx.connection.scalar(sa.select(run.c.id).where(run.c.job == later.id))
        granted, why = runs.claim(ctx, str(name), 2, at.now_ns)
    assert not granted
    assert "of 1,000 bytes kept are used" in why
    with at.orchestrator.reading(ANN) as ctx:
        found = runs.document(ctx, str(name))
    assert (found.state, found.reason, found.events[-1].details["text"]) == (
        "skipped",
        "refused",
        why,
    )
    with pytest.raises(QuotaError, match="skyhop testbed drop"):
        at.submit(light("more"))


def test_an_upload_in_progress_stops_where_what_is_kept_would_exceed_the_quota(
    at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop_testbed.orchestrator.upload_quota._STEP_BYTES", 10_000)
    set_quotas(at, "user", "ann", kept_bytes=50_000)
    row = begun_run(at)
    quota, offsets = UploadQuota(at.orchestrator, row, CLIENT), [0]

    def fill() -> None:
        write = at.orchestrator.uploads.write_piece
        while offsets[-1] < 10**6:
            quota.charge("x", offsets[-1], 5_000)
            offsets.append(write(row["id"], CLIENT, "x", offsets[-1], b"x" * 5_000))

    with pytest.raises(TooOftenError, match="bytes kept"):
        fill()
    assert 40_000 <= offsets[-1] <= 60_000


# --- over the API and on the command line ---


@pytest.mark.integration
def test_quotas_hold_over_the_api_and_are_read_and_set_by_commands(
    tmp_path: Path, skyhop: Skyhop
) -> None:
    with served(tmp_path / "state") as at:
        node, admin_file, file = at.agent("a"), at.directory / "admin.json", tmp_path / "ann"
        with at.testbed() as admin:
            admin.put_user(api.PutUser(name="ann", role="user"))
            admin.credential("ann").write(file)
        words = ("testbed", "quota", "set", "--user", "ann", "files_per_run=50", "jobs=1")
        assert skyhop(*words, "--as", admin_file).returncode == 0
        assert "not for the role user" in skyhop(*words, "--as", file).stderr
        job_file = tmp_path / "job.toml"
        job_file.write_text(light("one", 'at = "now"'))
        with at.testbed(file) as ann:
            made = ann.submit(job_file)
            (found,) = ann.runs(job=made.id, states=["planned"])
        of, now_ns = api.RunSide(run=found.id, side=CLIENT), found.start_ns
        assert node.call(api.CLAIM, api.Claim(run=found.id, fence=1, at_ns=now_ns)).granted
        frames = (api.frame(f"f{number}", 0, b"x" * 100) for number in range(30_000))
        with pytest.raises(ApiError, match="51 files of this side of the run, 50 are") as caught:
            node.upload(api.UPLOAD, of, frames, 60.0)
        assert caught.value.kind is ErrorKind.DENIED
        assert node.call(api.UPLOAD_STATE, of) == {}
        me = json.loads(skyhop("testbed", "me", "--as", file, "--json").stdout)
        rows = {row["key"]: row for row in me["quotas"]}
        assert (me["name"], rows["jobs"]["used"], rows["jobs"]["allowed"]) == ("ann", 1, 1)
        assert rows["upload_bytes_per_day"]["used"] == 51 * 100
        job_file.write_text(light("two", 'at = "2099-01-01T00:00:00Z"'))
        refused = skyhop("testbed", "submit", job_file, "--as", file)
        assert refused.returncode == 2
        assert "quota of user ann: 1 of 1 active jobs are used: cancel a job" in refused.stderr
        assert skyhop("testbed", "cancel", "one", "--as", file).returncode == 0
        freed = json.loads(skyhop("testbed", "drop", found.id, "--as", file, "--json").stdout)
        assert freed == {"freed_bytes": {found.id: 0}}
        words = ("testbed", "quota", "set", "--user", "ann", "jobs=default", "--as", admin_file)
        assert "50" in skyhop(*words).stdout
        assert skyhop("testbed", "quota", "show", "--as", file).returncode == 2
