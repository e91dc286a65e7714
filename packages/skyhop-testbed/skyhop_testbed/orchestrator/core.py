"""The orchestrator object: database, keys, files, telemetry store and change listeners.

A front end (`service`, the web page) opens a request context for each request, which is one
transaction. Listeners are notified of changed nodes and runs after the transaction has been
committed.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import Sample
from skyhop.telemetry.store import Store
from skyhop_testbed.api import PutUser
from skyhop_testbed.clock import Clock
from skyhop_testbed.free_space import SpaceOf, floor_bytes, shortage, space_of
from skyhop_testbed.orchestrator import accounts, authority
from skyhop_testbed.orchestrator.authority import Authority, open_authority
from skyhop_testbed.orchestrator.bucket import FILE as BUCKET_FILE
from skyhop_testbed.orchestrator.bucket import Bucket, read_bucket_settings
from skyhop_testbed.orchestrator.housekeeping import Housekeeping
from skyhop_testbed.orchestrator.limits import RateLimiter
from skyhop_testbed.orchestrator.marks import put_trust
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller, RequestContext, settings_of
from skyhop_testbed.orchestrator.uploads import Uploads
from skyhop_testbed.store.database import Database, open_database
from skyhop_testbed.store.tables import node
from skyhop_testbed.words import Role

_LOG = logging.getLogger(__name__)
_DAY_NS = 86_400 * 1_000_000_000
_LAST_SHARE = 0.5
"""Share of the floor of free space below which not even telemetry is stored."""


class View:
    """Stored state of an orchestrator, to read: database, files of runs, telemetry.

    The process of the web pages has a view only, of the directory of a running orchestrator.

    Args:
        directory: directory of keys, files, telemetry and tables.
        database: the opened database.
        clock: source of the time for all decisions and rate limits.
        bucket: bucket to which files of runs move; `None` if they stay on disk.
        space_of: function that returns the space of the directory's disk.
    """

    def __init__(
        self,
        directory: Path,
        database: Database,
        clock: Clock,
        bucket: Bucket | None,
        space_of: SpaceOf = space_of,
    ) -> None:
        self.space_of = space_of
        self.directory = directory
        self.database = database
        self.clock = clock
        self.rates = RateLimiter(clock)
        self.bucket = bucket
        self.uploads = Uploads(directory / "runs", bucket)
        self.telemetry = Store(directory / "telemetry")

    @property
    def authority_pem(self) -> bytes:
        """Certificate of the testbed's authority, PEM."""
        return (self.directory / "keys" / "authority.pem").read_bytes()

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self.clock.now_ns()

    def now(self) -> dt.datetime:
        """Return the time as a timezone-aware datetime, for certificates."""
        return dt.datetime.fromtimestamp(self.now_ns() / 1e9, dt.UTC)

    @contextmanager
    def reading(self, caller: Caller) -> Iterator[RequestContext]:
        """Open a read-only request context."""
        with self.database.reading() as connection:
            yield RequestContext(connection, self.now_ns(), caller, settings_of(connection))

    def shortage(self) -> str | None:
        """Return, as one line, why the disk of the state directory is too full; None if it is not.

        Jobs and uploads are refused then.
        """
        return self._below_floor(1.0)

    def check_room(self, needed: int = 0) -> None:
        """Refuse what fills the disk if free space is below its floor after `needed` more bytes.

        Raises:
            RunError: the disk is too full.
        """
        why = self._below_floor(1.0, needed)
        if why is not None:
            raise RunError(why)

    def _below_floor(self, share: float, needed: int = 0) -> str | None:
        with self.reading(ITSELF) as ctx:
            settings = ctx.settings
        space = self.space_of(self.directory)
        floor = floor_bytes(space, settings.free_floor_bytes, settings.free_floor_percent)
        return shortage(space, round(share * floor), "the testbed's disk", needed)


class Orchestrator(View):
    """An orchestrator with its opened state directory and database.

    Args:
        directory: directory of keys, files, telemetry and tables.
        names: host names and addresses under which clients reach the orchestrator.
        clock: source of the time for all decisions and rate limits.
        space_of: function that returns the space of the directory's disk.

    Raises:
        InputError, RunError: the directory or the database cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        names: list[str],
        *,
        clock: Clock,
        space_of: SpaceOf = space_of,
    ) -> None:
        self._listeners: list[Callable[[set[str], set[str]], None]] = []
        self.observe_write: Callable[[float], object] = lambda _: None
        """Called with the duration of each write transaction in s, for metrics."""
        _make(directory)
        bucket = open_bucket(directory)
        # Open the database first: if that fails, no keys are generated.
        database = open_database(directory / "testbed.sqlite")
        super().__init__(directory, database, clock, bucket, space_of)
        try:
            self._names = names
            self.authority: Authority = open_authority(directory / "keys", names, self.now())
            self._publish_trust()
        except BaseException:
            self.database.close()
            raise
        self.objects = directory / "objects"
        self._telemetry_lock = threading.Lock()
        self._housekeeping = Housekeeping(self)

    @contextmanager
    def writing(self, caller: Caller) -> Iterator[RequestContext]:
        """Open a request context for writing; commit on exit, then notify the listeners."""
        begun_s = self.clock.monotonic_s()
        with self.database.writing() as connection:
            ctx = RequestContext(connection, self.now_ns(), caller, settings_of(connection))
            yield ctx
        self.observe_write(self.clock.monotonic_s() - begun_s)
        for act in ctx.after_commit:
            act()
        if ctx.changed_nodes or ctx.changed_runs:
            for notify in list(self._listeners):
                notify(ctx.changed_nodes, ctx.changed_runs)

    def listen(self, notify: Callable[[set[str], set[str]], None]) -> Callable[[], None]:
        """Register a listener for changes; return a function that removes the listener.

        Args:
            notify: called, from any thread, with names of changed nodes and ids of changed runs.
        """
        self._listeners.append(notify)
        return lambda: self._listeners.remove(notify)

    def caller_of_token(self, token: str, kind: str = accounts.TOKEN) -> Caller:
        """Return the caller that a token or session secret belongs to, and record its use.

        Raises:
            UnknownCallerError: the secret is unknown or expired, or its user is disabled.
        """
        with self.reading(ITSELF) as ctx:
            caller, is_noted = accounts.caller_of_token(ctx, token, kind)
        if not is_noted:
            with self.writing(ITSELF) as ctx:
                accounts.record_use(ctx, token)
        return caller

    def store_telemetry(self, node: str, samples: Sequence[Mapping[str, object]]) -> None:
        """Append a node's samples to the store; drop unknown columns and invalid samples.

        While free space is below half its floor, all samples are dropped: the node has its own.
        """
        from skyhop.telemetry.columns import checked, time_of
        from skyhop.telemetry.fields import BY_NAME, TIME

        kept: list[Sample] = []
        for sample in samples:
            known = {k: v for k, v in sample.items() if k in BY_NAME or k == TIME}
            # Only the invalid sample is dropped, not the others.
            with suppress(InputError):
                whole = checked(known)  # type: ignore[arg-type]
                # The store has a file per day: a node whose clock is wrong could create thousands.
                if time_of(whole) < self.now_ns() + _DAY_NS:
                    kept.append(whole)
        if self._below_floor(_LAST_SHARE):
            _LOG.warning("node %s: %s samples are dropped: the disk is full", node, len(kept))
            return
        with self._telemetry_lock:
            self.telemetry.append(node, kept)

    def tick(self) -> None:
        """Do a round of the periodic housekeeping."""
        self._housekeeping.do_round()

    def rotate_authority(self) -> None:
        """Let new keys sign certificates and orders; the former ones stay trusted until `retire`.

        Raises:
            InputError: former keys are still trusted.
        """
        authority.rotate(self.directory / "keys", self.now())
        self._reopen_authority()

    def retire_authority(self) -> None:
        """End the trust in the former keys, and in certificates that they signed.

        Raises:
            InputError: no former keys are trusted.
        """
        authority.retire(self.directory / "keys")
        self._reopen_authority()
        with self.writing(ITSELF) as ctx:
            accounts.delete_certificates_of_others(ctx, self.authority.signing.name)

    def _reopen_authority(self) -> None:
        self.authority = open_authority(self.directory / "keys", self._names, self.now())
        self._publish_trust()

    def _publish_trust(self) -> None:
        """Have all nodes learn the keys that they are to trust, if these have changed."""
        with self.writing(ITSELF) as ctx:
            if put_trust(ctx.connection, self.authority.trust):
                ctx.bump_revision({row["name"] for row in ctx.all(sa.select(node.c.name))})

    def create_first_administrator(self, name: str = "admin") -> str | None:
        """Create an administrator if there are no users yet; return its token, otherwise `None`."""
        with self.writing(ITSELF) as ctx:
            if accounts.users(ctx):
                return None
            accounts.put_user(ctx, PutUser(name=name, role=Role.ADMIN))
            return accounts.issue(ctx, accounts.TOKEN, of_user=name, label="first")

    def close(self) -> None:
        """Close the telemetry store and the database."""
        self.telemetry.close()
        self.database.close()


def open_bucket(directory: Path) -> Bucket | None:
    """Return the bucket that the administrator has set in a state directory, if any.

    Raises:
        InputError: the file of its settings cannot be read.
    """
    settings = read_bucket_settings(directory / BUCKET_FILE)
    return None if settings is None else Bucket(settings)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory}: {error.strerror}") from None
