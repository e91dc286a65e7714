"""Files of runs in a bucket: moved in the background, read through, deleted, and never lost."""

from __future__ import annotations

import hashlib
import itertools
import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from bucket_store import NAME, Store, store
from conftest import Skyhop
from test_testbed_access import admin_submit
from test_testbed_orchestrator import manifest, only_run, upload
from testbed_harness import ANN, BOB, LocalOrchestrator, S, job, local_orchestrator, served

from damaged import Trial
from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.orchestrator import bucket as buckets
from skyhop_testbed.orchestrator.bucket import Bucket, BucketSettings, read_bucket_settings
from skyhop_testbed.orchestrator.bucket_mover import BucketMover
from skyhop_testbed.orchestrator.request_context import DeniedError, NotFoundError
from skyhop_testbed.store.database import VERSION, open_database
from skyhop_testbed.store.tables import bucket_object
from waiting import wait_for

SETTINGS = """
endpoint = "https://s3.example.org"
bucket = "results"
prefix = "testbed/"
region = "eu-west-1"
access_key = "AK"
secret_key = "s3cret"
path_style = false
part = "8 MB"
keep_local = "2 days"
read_back = false
"""
FILES = {"out.txt": b"x" * 1000, "dir/naïve name+.json": b"{}", "empty": b""}


# --- settings, without a store ---


def written(directory: Path, text: str, mode: int = 0o600) -> Path:
    file = directory / "bucket.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_the_administrators_settings_are_read(tmp_path: Path) -> None:
    assert read_bucket_settings(tmp_path / "none.toml") is None
    assert read_bucket_settings(written(tmp_path, SETTINGS)) == BucketSettings(
        "results", "https://s3.example.org", "testbed/", "eu-west-1", "AK", "s3cret",
        path_style=False, part_bytes=8_000_000, keep_local_s=172_800.0, reads_back=False,
    )  # fmt: skip
    # Without keys in the file, boto3 finds them in its environment, and the file is no secret.
    plain = read_bucket_settings(written(tmp_path, 'bucket = "b"\n', 0o644))
    assert plain == BucketSettings("b", path_style=False, part_bytes=64_000_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bucket: is missing"),
        ('bucket = "b"\nbuckets = 1\n', "buckets: unknown key"),
        ('bucket = "b"\nendpoint = "s3.example.org"\n', "expected a URL"),
        ('bucket = "b"\nendpoint = "http://s3.example.org"\n', "use https://"),
        ('bucket = "b"\naccess_key = "k"\n', "go together"),
        ('bucket = "b"\npart = "1 MB"\n', "part: expected at least"),
        ('bucket = "b"\nprefix = "/x"\n', "prefix: expected"),
        ('bucket = "b"\nread_back = 1\n', "read_back: expected true or false"),
    ],
)
def test_wrong_settings_are_refused_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_bucket_settings(written(tmp_path, text))


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="chmod 600"):
        read_bucket_settings(written(tmp_path, SETTINGS, 0o640))


def test_damaged_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        file = written(tmp_path, "")
        file.write_bytes(content)
        read_bucket_settings(file)

    Trial("bucket", [SETTINGS.encode()], usual=200).run(read)


def test_without_boto3_the_settings_name_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with local_orchestrator(tmp_path / "state"):
        pass
    written(tmp_path / "state", SETTINGS)
    with pytest.raises(InputError, match=r"needs boto3: .*skyhop-testbed\[s3\]"):
        local_orchestrator(tmp_path / "state").__enter__()


def test_a_database_of_the_first_version_gets_the_table_and_keeps_its_rows(tmp_path: Path) -> None:
    with local_orchestrator(tmp_path / "state") as at:
        name = only_run(at, at.submit(job()).id)
    file = tmp_path / "state" / "testbed.sqlite"
    with sqlite3.connect(file) as old:
        old.execute("DROP TABLE bucket_object")
        old.execute("PRAGMA user_version = 1")
    open_database(file).close()
    with sqlite3.connect(file) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert new.execute("SELECT count(*) FROM bucket_object").fetchone() == (0,)
        assert new.execute("SELECT id FROM run").fetchall() == [(name,)]


# --- a store that verifies signatures ---


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    with store() as made:
        yield made


@pytest.fixture
def at(tmp_path: Path, s3: Store) -> Iterator[LocalOrchestrator]:
    """Yield an orchestrator with a bucket that is empty."""
    for key in s3.objects():
        s3.client.delete_object(Bucket=NAME, Key=key)
    with local_orchestrator(tmp_path / "state"):
        pass
    s3.write_settings(tmp_path / "state", keep_local="1 h", part="6 MB")
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def mover(at: LocalOrchestrator) -> BucketMover:
    assert at.orchestrator.bucket is not None
    return BucketMover(at.orchestrator, at.orchestrator.bucket)


def read(at: LocalOrchestrator, run: str, name: str, offset: int = 0) -> bytes:
    with at.orchestrator.reading(ANN) as ctx:
        found = at.orchestrator.uploads.stored(ctx, run, "client", name)
    with found.open() as stream:
        stream.seek(offset)
        return stream.read()


def local_files(at: LocalOrchestrator) -> list[str]:
    runs = at.orchestrator.directory / "runs" / "a"
    return sorted(each.name for each in runs.rglob("*") if each.is_file())


def rows(at: LocalOrchestrator) -> list[dict[str, Any]]:
    with at.orchestrator.reading(ANN) as ctx:
        return [dict(row) for row in ctx.all(sa.select(bucket_object))]


@pytest.mark.integration
def test_files_move_are_read_through_and_are_deleted_in_time(
    at: LocalOrchestrator, s3: Store
) -> None:
    run = only_run(at, at.submit(job(retention='"2 h"')).id)
    assert upload(at, run, FILES)
    moving = mover(at)
    assert moving.waiting() == (4, 1002 + len(manifest(FILES)))
    assert moving.do_round() == 4
    assert moving.waiting() == (0, 0)
    objects = s3.objects()
    assert {key.rpartition(f"{run}/client/")[2] for key in objects} == {*FILES, "manifest.json"}
    assert all(key.startswith("testbed/a/") for key in objects)
    assert moving.do_round() == 0
    # Local copies stay for an hour, and the bucket serves the files afterwards.
    assert len(local_files(at)) == 4
    at.pass_s(3601)
    moving.do_round()
    assert local_files(at) == []
    assert not any(row["is_local"] for row in rows(at))
    for name, content in FILES.items():
        assert read(at, run, name) == content
    assert read(at, run, "out.txt", 990) == b"x" * 10
    with at.orchestrator.reading(BOB) as ctx, pytest.raises(DeniedError):
        at.orchestrator.uploads.stored(ctx, run, "client", "out.txt")
    with at.orchestrator.reading(ANN) as ctx:
        with pytest.raises(NotFoundError):
            at.orchestrator.uploads.stored(ctx, run, "client", "other")
        with pytest.raises(InputError, match="has moved to the testbed's bucket"):
            at.orchestrator.uploads.file(ctx, run, "client", "out.txt")
    # Retention: the rows go first, then the objects.
    at.pass_s(3700)
    at.orchestrator.tick()
    assert len(s3.objects()) == 4
    moving.do_round()
    assert (s3.objects(), rows(at)) == ({}, [])


@pytest.mark.integration
def test_a_large_file_goes_in_parts_and_is_read_from_any_place(
    at: LocalOrchestrator, s3: Store
) -> None:
    content = random.Random(1).randbytes(13_000_000)
    run = only_run(at, at.submit(job()).id)
    assert upload(at, run, {"large.bin": content})
    assert mover(at).do_round() == 2
    (key,) = (key for key in s3.objects() if key.endswith("large.bin"))
    stored = s3.client.head_object(Bucket=NAME, Key=key)
    assert stored["ETag"].endswith('-3"'), "it has three parts"
    assert stored["Metadata"]["sha256"] == hashlib.sha256(content).hexdigest()
    at.pass_s(3601)
    mover(at).do_round()
    assert hashlib.sha256(read(at, run, "large.bin")).digest() == hashlib.sha256(content).digest()
    assert read(at, run, "large.bin", 12_345_678) == content[12_345_678:]


@pytest.mark.integration
def test_a_store_that_is_away_leaves_files_on_the_disk(
    at: LocalOrchestrator, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = only_run(at, at.submit(job()).id)
    assert upload(at, run, FILES)
    moving = mover(at)
    client = moving._bucket._client
    asked = []

    def refuse(*_: object, **__: object) -> None:
        asked.append(at.now_ns)
        raise buckets.RunError("the bucket: no answer")

    with monkeypatch.context() as away:
        away.setattr(client, "upload_file", refuse)
        for _ in range(60):
            assert moving.do_round() == 0
            at.pass_s(60)
        assert len(local_files(at)) == 4
        assert read(at, run, "out.txt") == FILES["out.txt"]
        # Three attempts in a round, and rounds that become rarer: 15 s, 30 s, ... 10 min.
        assert sorted(set(asked)) == asked[::3]
        waits_s = [(b - a) // S for a, b in itertools.pairwise(asked[::3])]
        assert waits_s == [60, 60, 60, 120, 240, 480, 600, 600, 600, 600]
    at.pass_s(600)
    assert moving.do_round() == 4
    assert len(s3.objects()) == 4


@pytest.mark.integration
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"secret_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"access_key": "nobody"}, "InvalidAccessKeyId"),
        ({"bucket": "another"}, "NoSuchBucket"),
        ({"endpoint": "http://127.0.0.1:9"}, "Could not connect"),
    ],
)
def test_wrong_credentials_are_named_in_a_line(
    tmp_path: Path, s3: Store, wrong: dict[str, str], message: str
) -> None:
    s3.write_settings(tmp_path, **wrong)
    settings = read_bucket_settings(tmp_path / "bucket.toml")
    assert settings is not None
    with pytest.raises(RunError, match=message) as caught:
        Bucket(settings).check()
    assert "\n" not in str(caught.value)
    assert s3.secret_key not in str(caught.value)


@pytest.mark.integration
def test_an_object_that_is_not_the_file_does_not_replace_it(
    at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = only_run(at, at.submit(job()).id)
    assert upload(at, run, {"out.txt": b"x" * 1000})
    moving = mover(at)
    client = moving._bucket._client
    put = client.upload_file

    def damage(file: str, *others: Any, **named: Any) -> None:
        content = Path(file).read_bytes()
        damaged = Path(file).with_name("damaged")
        damaged.write_bytes(b"?" + content[1:])
        put(str(damaged), *others, **named)
        damaged.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(client, "upload_file", damage)
        assert moving.do_round() == 0
    assert rows(at) == []
    at.pass_s(7200)
    assert read(at, run, "out.txt") == b"x" * 1000
    assert moving.do_round() == 2
    assert read(at, run, "out.txt") == b"x" * 1000


@pytest.mark.integration
def test_a_round_that_is_killed_at_any_step_is_repeated(
    at: LocalOrchestrator, s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step may be the last of a killed process; afterwards every file is read as it was."""

    class KilledError(BaseException):
        pass

    steps = [
        (Bucket, "put"), (Bucket, "_digest"), (type(at.orchestrator.database), "writing"),
        (type(at.orchestrator.uploads), "delete_local"),
    ]  # fmt: skip
    made = []
    for owner, name in steps:
        keys = {"overhead": "false", "retention": '"30 h"'}
        made.append(only_run(at, at.submit(job(name.strip("_"), **keys)).id))
        assert upload(at, made[-1], FILES)
        if name == "delete_local":
            mover(at).do_round()
            at.pass_s(3601)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _fails_after(1, getattr(owner, name), KilledError))
            with pytest.raises(KilledError):
                mover(at).do_round()
        assert all(read(at, run, each) == FILES[each] for run in made for each in FILES)
    for _ in range(2):
        mover(at).do_round()
        at.pass_s(3601)
        mover(at).do_round()
    assert local_files(at) == []
    assert all(read(at, run, each) == FILES[each] for run in made for each in FILES)
    assert len(s3.objects()) == len(rows(at)) == 4 * len(made)


def _fails_after(count: int, real: Any, error: type[BaseException]) -> Any:
    """Return a method that works `count` times."""
    calls = iter(range(count))

    def call(*given: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return real(*given)

    return call


@pytest.mark.integration
def test_a_side_that_arrives_again_replaces_its_objects(at: LocalOrchestrator, s3: Store) -> None:
    run = only_run(at, at.submit(job()).id)
    assert upload(at, run, {"out.txt": b"old", "gone.txt": b"gone"})
    mover(at).do_round()
    at.pass_s(3601)
    mover(at).do_round()
    assert upload(at, run, {"out.txt": b"new"})
    assert read(at, run, "out.txt") == b"new"
    mover(at).do_round()
    at.pass_s(3601)
    mover(at).do_round()
    assert read(at, run, "out.txt") == b"new"
    # The same content again, as after a lost answer, does not stay on the disk.
    at.pass_s(1)
    assert upload(at, run, {"out.txt": b"new"})
    mover(at).do_round()
    at.pass_s(3601)
    mover(at).do_round()
    assert sorted(key.rpartition("/")[2] for key in s3.objects()) == ["manifest.json", "out.txt"]
    assert local_files(at) == []


@pytest.mark.integration
def test_a_testbed_with_a_bucket_serves_its_users(
    tmp_path: Path, s3: Store, skyhop: Skyhop
) -> None:
    state = tmp_path / "state"
    s3.write_settings(state, keep_local="0 s", prefix="served/")
    checked = skyhop("testbed", "bucket", "--state", state)
    assert checked.returncode == 0, checked.stderr
    assert "an object was written, read and deleted" in checked.stdout
    missing = skyhop("testbed", "bucket", "--state", tmp_path)
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)
    content = random.Random(2).randbytes(700_000)
    files = {"out.bin": content, "stdout": b"hello\n"}
    with served(state) as testbed:
        agent = testbed.agent("a")
        with testbed.testbed() as admin:
            made = admin_submit(admin, job())
            (row,) = admin.runs(job=made.id)
            of = api.RunSide(run=row.id, side="client")
            frames = [
                api.frame(n, 0, d) for n, d in {**files, "manifest.json": manifest(files)}.items()
            ]
            assert agent.upload(api.UPLOAD, of, iter(frames), 60.0)
            keys = lambda: [k for k in s3.objects() if k.startswith("served/")]  # noqa: E731
            wait_for(lambda: len(keys()) == 3)
            admin.fetch(row.id, tmp_path / "first")
            # The local copies go after a minute; without them the bucket alone has the files.
            for each in (state / "runs" / "a").rglob("*"):
                if each.is_file():
                    each.unlink()
            admin.fetch(row.id, tmp_path / "second")
            got = {p.name: p.read_bytes() for p in (tmp_path / "second").rglob("*") if p.is_file()}
            assert {name: got[name] for name in files} == files
