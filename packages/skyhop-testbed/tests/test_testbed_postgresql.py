"""The orchestrator over PostgreSQL: all tests of decisions over SQLite, and the differences."""

from __future__ import annotations

import inspect
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
import test_testbed_orchestrator
from conftest import skyhop_command
from testbed_harness import ANN, BOB, LocalOrchestrator, job, local_orchestrator, served
from testbed_postgresql import Cluster, cluster

from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.orchestrator import jobs
from skyhop_testbed.orchestrator.request_context import ConflictError
from skyhop_testbed.store import database as store
from skyhop_testbed.store.tables import metadata, run

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with cluster() as made:
        store.open_database(made.make("migrated")).close()
        yield made


@pytest.fixture
def url(server: Cluster) -> str:
    """Return the URL of a database with empty tables."""
    names = ", ".join(f'"{name}"' for name in metadata.tables)
    server.execute(f"TRUNCATE {names} RESTART IDENTITY CASCADE", "migrated")
    return server.url("migrated")


@pytest.fixture
def at(tmp_path: Path, url: str) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state", url) as made:
        yield made


_NOT_HERE = {"test_the_state_is_the_fold_of_what_happened", "test_no_files_name_leaves_its_run"}
"""Excluded tests: the first is long, the second does not use the database."""


def _those_over_sqlite() -> dict[str, object]:
    return {
        name: test
        for name, test in vars(test_testbed_orchestrator).items()
        if name.startswith("test_") and "at" in inspect.signature(test).parameters
        if name not in _NOT_HERE
    }


globals().update(_those_over_sqlite())
"""pytest collects them here with this module's fixture `at`."""


def test_all_tests_over_sqlite_run_here() -> None:
    assert len(_those_over_sqlite()) > 30


def test_tables_are_those_that_the_migrations_make(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    database = store.open_database(url)
    with database.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == store.HEAD
    database.close()


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

    for _ in range(3):
        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(submit, range(6))).count(True) == 1
        with at.orchestrator.reading(ANN) as ctx:
            (kept,) = jobs.listing(ctx, user="ann") + jobs.listing(ctx, user="bob")
        with at.writing(ANN if kept.owner == "ann" else BOB) as ctx:
            jobs.cancel(ctx, kept.id)


def test_a_reader_sees_one_state_of_everything_and_changes_nothing(at: LocalOrchestrator) -> None:
    count = sa.select(sa.func.count()).select_from(run)
    with at.orchestrator.reading(ANN) as ctx:
        assert ctx.connection.scalar(count) == 0
        at.submit(job())
        assert ctx.connection.scalar(count) == 0
    with at.orchestrator.reading(ANN) as ctx:
        assert ctx.connection.scalar(count) == 1
    with (
        pytest.raises(RunError, match="read-only transaction") as caught,
        at.orchestrator.reading(ANN) as ctx,
    ):
        ctx.execute(sa.delete(run))
    assert "\n" not in str(caught.value)


def test_a_long_name_may_be_used_again(at: LocalOrchestrator) -> None:
    name = "n" * 63
    at.submit(job(name, 'at = "2027-01-01T05:00:00Z"'))
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, name)
    at.submit(job(name, 'at = "2027-01-01T05:00:00Z"'))


def test_text_that_postgresql_cannot_store_is_refused_in_a_line(at: LocalOrchestrator) -> None:
    with (
        pytest.raises(InputError, match="the database cannot store this value") as caught,
        at.writing(ANN) as ctx,
    ):
        jobs.cancel(ctx, "a\0b")
    assert "\n" not in str(caught.value)


def test_a_testbed_serves_over_it_and_goes_on_after_a_restart(
    server: Cluster, url: str, tmp_path: Path
) -> None:
    with served(tmp_path / "state", "--database", url) as made:
        follow = iter(made.agent("a").stream(api.FOLLOW, api.Follow()))
        assert next(follow).kind is api.OrderKind.SCHEDULE
        text = tmp_path / "job.toml"
        text.write_text(job())
        with made.testbed() as testbed:
            testbed.submit(text)
            (planned,) = testbed.runs()
            assert next(follow).kind is api.OrderKind.SCHEDULE
            agent = made.agent("a")
            claim = api.Claim(run=planned.id, fence=1, at_ns=time.time_ns())
            assert agent.call(api.CLAIM, claim).granted
            server.stop()
            with pytest.raises(RunError, match="the testbed's database") as caught:
                testbed.runs()
            assert "\n" not in str(caught.value)
            server.start()
            assert testbed.run(planned.id).state == "claimed"
        assert not (tmp_path / "state" / "testbed.sqlite").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("postgresql://a@127.0.0.1:1/x", "Connection refused"),
        ("{nowhere}", 'database "nowhere" does not exist'),
        ("{password}", 'password authentication failed for user "guarded"'),
    ],
)
def test_a_refused_connection_is_reported_in_a_line(
    server: Cluster, tmp_path: Path, wrong: str, said: str
) -> None:
    urls = {
        "nowhere": server.url("nowhere"),
        "password": server.url("migrated", server.guarded, "wr0ng"),
    }
    command = [*skyhop_command(), "testbed", "serve", "--state", str(tmp_path / "state")]
    command += ["--database", wrong.format(**urls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the testbed's database" in done.stderr
    assert said in done.stderr
    assert "wr0ng" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_password_protected_server_is_reached(server: Cluster) -> None:
    server.make("theirs")
    store.open_database(server.url("theirs", server.guarded, "right")).close()
