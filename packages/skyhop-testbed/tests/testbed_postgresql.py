"""PostgreSQL server for tests: a cluster in a directory under /tmp, reached by its socket."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from needs import missing, needs_program

_PLACES = "usr/lib/postgresql/*/bin"
"""Directory of PostgreSQL's server programs on Debian, which are not in PATH."""
_USER, _PASSWORD = "guarded", "right"
_QUICK = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "''",
    "max_connections": "40",
    "shared_buffers": "16MB",
}


_AS_OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
"""Prefix that drops root. `subprocess`'s `user=` forks, which gRPC's threads may crash."""


@dataclass
class Cluster:
    """Running PostgreSQL server, and the directory of its programs."""

    directory: Path
    programs: Path

    def url(self, name: str, user: str = "postgres", password: str = "") -> str:
        """Return the URL of a database, as for `--database`."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{name}?host={self.directory}"

    @property
    def guarded(self) -> str:
        """User that must log in with the password "right"."""
        return _USER

    def make(self, name: str) -> str:
        """Create a database; return its URL."""
        self.execute(f'CREATE DATABASE "{name}" OWNER {_USER}')
        return self.url(name)

    def execute(self, statement: str, name: str = "postgres") -> None:
        """Execute an SQL statement as superuser."""
        import psycopg

        with psycopg.connect(
            host=str(self.directory), dbname=name, user="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.run("pg_ctl", "-w", "-l", str(self.directory / "log"), "start")

    def stop(self) -> None:
        """Stop the server at once, without waiting for its clients."""
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")

    def run(self, program: str, *arguments: str) -> None:
        """Run a PostgreSQL program, never as root, which PostgreSQL refuses."""
        command = [self.programs / program, "-D", self.directory / "data", *arguments]
        done = subprocess.run(
            [*(_AS_OTHER_USER if os.geteuid() == 0 else []), *command],
            check=False,
            stdout=subprocess.DEVNULL,
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        )
        log = self.directory / "log"
        said = log.read_text("utf-8")[-2000:] if log.exists() else "nothing"
        assert done.returncode == 0, f"{program}: {done.returncode}; its log: {said}"


def _programs() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    places = sorted(Path("/").glob(_PLACES), key=lambda place: float(place.parent.name))
    return places[-1] if places else missing("postgresql", "there is no initdb")


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a server; skip the test if its programs or the driver are missing."""
    programs = _programs()
    needs_program("setpriv")
    if importlib.util.find_spec("psycopg") is None:
        missing("postgresql", "psycopg is not installed")
    # Not in pytest's directories, which another user cannot read.
    directory = Path(tempfile.mkdtemp(prefix="skyhop-postgresql-", dir="/tmp"))
    made = Cluster(directory, programs)
    try:
        if os.geteuid() == 0:
            os.chown(directory, 65534, 65534)
        made.run("initdb", "-U", "postgres", "-A", "trust", "-N", "--no-instructions")
        _configure(directory)
        made.start()
        try:
            made.execute(f"CREATE ROLE {_USER} LOGIN PASSWORD '{_PASSWORD}'")
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _configure(directory: Path) -> None:
    lines = [f"{key} = {value}" for key, value in _QUICK.items()]
    lines.append(f"unix_socket_directories = '{directory}'")
    with (directory / "data" / "postgresql.conf").open("a") as file:
        file.write("\n".join(lines) + "\n")
    rules = f"local all {_USER} scram-sha-256\nlocal all all trust\n"
    (directory / "data" / "pg_hba.conf").write_text(rules)
