"""The orchestrator as one thing: its database, keys, files and telemetry, and who waits for news.

Whoever serves it (`rpc`, the page) asks for a desk, does one matter at it, and leaves; those who
wait for news of a node or a run are told once the transaction is written.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import Sample
from skyhop.telemetry.store import Store
from skyhop.testbed.clock import Clock
from skyhop.testbed.orchestrator import people, planning, runs
from skyhop.testbed.orchestrator.authority import Authority, open_authority
from skyhop.testbed.orchestrator.desk import ITSELF, Caller, Desk, settings_of
from skyhop.testbed.orchestrator.uploads import Uploads
from skyhop.testbed.store.database import Database, lies_in_a_file, open_database

_DAY_NS = 86_400 * 1_000_000_000


class Office:
    """An orchestrator's state directory, opened.

    Args:
        directory: for keys, files, telemetry and, unless `database` says otherwise, tables.
        names: host names and addresses under which it is reached.
        clock: the time of all that is decided, and the measure of requests per minute.
        database: where the tables are, as SQLAlchemy writes it.

    Raises:
        InputError, RunError: the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        names: list[str],
        *,
        clock: Clock,
        database: str | None = None,
    ) -> None:
        self.directory = directory
        self.clock = clock
        url = database or f"sqlite:///{directory}/testbed.sqlite"
        if lies_in_a_file(url):
            _make(directory)
        # First: where the database cannot be had, no keys are made.
        self.database: Database = open_database(url)
        try:
            self.authority: Authority = open_authority(directory / "keys", names, self.now())
        except BaseException:
            self.database.close()
            raise
        self.objects = directory / "objects"
        self.uploads = Uploads(directory / "runs")
        self.telemetry = Store(directory / "telemetry")
        self._telemetry_lock = threading.Lock()
        self._listeners: list[Callable[[set[str], set[str]], None]] = []

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self.clock.now_ns()

    def now(self) -> dt.datetime:
        """Return the time with its zone, as certificates want it."""
        return dt.datetime.fromtimestamp(self.now_ns() / 1e9, dt.UTC)

    @contextmanager
    def reading(self, caller: Caller) -> Iterator[Desk]:
        """Give a desk that changes nothing."""
        with self.database.reading() as connection:
            yield Desk(connection, self.now_ns(), caller, settings_of(connection))

    @contextmanager
    def writing(self, caller: Caller) -> Iterator[Desk]:
        """Give a desk whose changes are made together; then tell those who wait for them."""
        with self.database.writing() as connection:
            desk = Desk(connection, self.now_ns(), caller, settings_of(connection))
            yield desk
        for act in desk.afterwards:
            act()
        if desk.changed or desk.watched:
            for tell in list(self._listeners):
                tell(desk.changed, desk.watched)

    def listen(self, tell: Callable[[set[str], set[str]], None]) -> Callable[[], None]:
        """Have nodes and runs of which there is news told, from any thread; return what ends it."""
        self._listeners.append(tell)
        return lambda: self._listeners.remove(tell)

    def caller_of_token(self, token: str, kind: str = people.TOKEN) -> Caller:
        """Return whose a token or session is.

        Raises:
            UnknownCallerError: nobody's.
        """
        with self.reading(ITSELF) as desk:
            caller, is_noted = people.caller_of_token(desk, token, kind)
        if not is_noted:
            with self.writing(ITSELF) as desk:
                people.note_use(desk, token)
        return caller

    def keep_telemetry(self, node: str, samples: list[dict[str, object]]) -> None:
        """Keep samples of a node: without columns that are not ours, and none that is no sample."""
        from skyhop.telemetry.columns import checked, time_of
        from skyhop.telemetry.fields import BY_NAME, TIME

        kept: list[Sample] = []
        for sample in samples:
            known = {k: v for k, v in sample.items() if k in BY_NAME or k == TIME}
            # One that is wrong must not keep back all that its node tells.
            with suppress(InputError):
                whole = checked(known)  # type: ignore[arg-type]
                # Each day has its file: a node whose clock is years ahead would make thousands.
                if time_of(whole) < self.now_ns() + _DAY_NS:
                    kept.append(whole)
        with self._telemetry_lock:
            self.telemetry.append(node, kept)

    def tick(self) -> None:
        """Do what time brings: plan on, give up what was lost, delete what has had its time."""
        with self.writing(ITSELF) as desk:
            planning.go_on(desk)
            runs.find_lost(desk)
            people.forget_expired(desk)
            self.uploads.expire(desk)

    def first_administrator(self, name: str = "admin") -> str | None:
        """Return a token of a new administrator where there are no users yet."""
        with self.writing(ITSELF) as desk:
            if people.users(desk):
                return None
            people.put_user(desk, {"name": name, "role": "admin"})
            return people.issue(desk, people.TOKEN, of_user=name, label="first")

    def close(self) -> None:
        """Close everything."""
        self.telemetry.close()
        self.database.close()


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{directory}: {error.strerror}") from None
