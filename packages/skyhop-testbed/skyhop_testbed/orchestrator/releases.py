"""Releases of skyhop for nodes: uploaded in pieces, and published when all wheels have arrived.

The orchestrator stores what an administrator sends. It compares the wheels with their signed list,
which finds damage; whom to trust is decided by the owner of each node.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from packaging.version import Version

from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop_testbed import api, protocol
from skyhop_testbed.orchestrator.agents import agent_of
from skyhop_testbed.orchestrator.handlers import acting, file, reading
from skyhop_testbed.orchestrator.marks import PublishedRelease, published_release, put_release
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    NotFoundError,
    RequestContext,
)
from skyhop_testbed.releases import FILE, Release, SignedRelease, is_missing, sha256_of
from skyhop_testbed.store.tables import node

if TYPE_CHECKING:
    from skyhop_testbed.orchestrator.core import Orchestrator

DIRECTORY, _INCOMING = "releases", "incoming"
_MARK = Mark("releases of skyhop for nodes; the orchestrator removes those that are not published")
_LONGEST_TEXT = 300


def begin(of: Orchestrator, signed_text: str) -> dict[str, int]:
    """Begin or resume the upload of a release; return the bytes that have arrived of each wheel.

    Raises:
        InputError: the release is damaged, older than the published one, or needs another protocol.
        RunError: the disk is too full.
    """
    signed = SignedRelease.loads(signed_text.encode())
    release = signed.verified_by_itself()
    with of.reading(ITSELF) as ctx:
        present = published_release(ctx.connection)
    _check_fits(release, present)
    of.check_room(release.size)
    place = _incoming(of, release.version)
    content = signed.dumps()
    try:
        _MARK.make_own(place.parent.parent, 0o700)
        for other in place.parent.glob("*"):
            if other.name != release.version:
                shutil.rmtree(other, ignore_errors=True)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / FILE).is_file() or (place / FILE).read_bytes() != content:
            (place / FILE).write_bytes(content)
    except OSError as error:
        raise RunError(f"{place}: {error.strerror}") from None
    return _sizes(place)


def _check_fits(release: Release, present: PublishedRelease | None) -> None:
    if present is not None and Version(present.version) > Version(release.version):
        raise InputError(
            f"release {present.version} is published, which is newer than {release.version}: nodes "
            "never go back; sign a higher version, or withdraw that one first"
        )
    if release.highest_protocol < protocol.OLDEST or release.lowest_protocol > protocol.PROTOCOL:
        raise InputError(
            f"release {release.version} speaks protocols {release.lowest_protocol} to "
            f"{release.highest_protocol}, and this orchestrator {protocol.OLDEST} to "
            f"{protocol.PROTOCOL}: upgrade the orchestrator first"
        )


def write_piece(of: Orchestrator, version: str, name: str, offset: int, data: bytes) -> None:
    """Append a piece to a wheel; a piece whose offset is not the wheel's present size is ignored.

    Raises:
        InputError: the release does not list the wheel, or the wheel is longer than listed.
        RunError: the wheel cannot be written.
    """
    place, release = _begun(of, version)
    sizes = {each.name: each.size for each in release.wheels}
    if name not in sizes or offset + len(data) > sizes[name]:
        raise InputError(f"{name[:80]}: is not in release {version}, or longer than listed there")
    try:
        with (place / name).open("ab") as stream:
            if stream.tell() == offset:
                stream.write(data)
    except OSError as error:
        raise RunError(f"{name}: {error.strerror}") from None


def finish(of: Orchestrator, caller: Caller, version: str) -> bool:
    """Publish a release if all its wheels have arrived; return whether it is published.

    Raises:
        InputError: a wheel is damaged; it is deleted, and can be sent again.
    """
    place, release = _begun(of, version)
    if is_missing(_sizes(place), release):
        return False
    files = {}
    for wheel in release.wheels:
        if sha256_of(place / wheel.name) != wheel.sha256:
            (place / wheel.name).unlink()
            raise InputError(f"{wheel.name}: is damaged: send it again")
        files[f"{DIRECTORY}/{version}/{wheel.name}"] = (wheel.size, wheel.sha256)
    listed = place / FILE
    files[f"{DIRECTORY}/{version}/{FILE}"] = (listed.stat().st_size, sha256_of(listed))
    key = SignedRelease.loads(listed.read_bytes()).key
    goal = _published(of, version)
    shutil.rmtree(goal, ignore_errors=True)
    place.replace(goal)
    _publish(of, caller, PublishedRelease(version, key, of.now_ns(), files))
    return True


def withdraw(of: Orchestrator, caller: Caller, version: str) -> str:
    """End the offer of the published release; nodes that have installed it keep it.

    Raises:
        NotFoundError: the version is not published.
    """
    with of.reading(caller) as ctx:
        _check_published(ctx, version)
    _publish(of, caller, None)
    return version


def _publish(of: Orchestrator, caller: Caller, release: PublishedRelease | None) -> None:
    """Store the published release, let all nodes learn of it, and delete other releases."""
    with of.writing(caller) as ctx:
        put_release(ctx.connection, release)
        ctx.bump_revision({row["name"] for row in ctx.all(sa.select(node.c.name))})
    kept = (_INCOMING, release.version if release else "")
    for other in (of.directory / DIRECTORY).glob("*"):
        if other.is_dir() and other.name not in kept:
            shutil.rmtree(other, ignore_errors=True)


def _begun(of: Orchestrator, version: str) -> tuple[Path, Release]:
    """Return directory and list of a release whose upload has begun.

    Raises:
        NotFoundError: no upload of this release has begun.
    """
    place = _incoming(of, version)
    try:
        content = (place / FILE).read_bytes()
    except OSError:
        raise NotFoundError(f"no upload of release {version[:40]} has begun") from None
    return place, SignedRelease.loads(content).verified_by_itself()


def _sizes(place: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in place.iterdir() if each.name != FILE}


def _incoming(of: Orchestrator, version: str) -> Path:
    return of.directory / DIRECTORY / _INCOMING / _checked(version)


def _published(of: Orchestrator, version: str) -> Path:
    return of.directory / DIRECTORY / _checked(version)


def _checked(version: str) -> str:
    """Return a version that is no path.

    Raises:
        NotFoundError: it is no version of a release.
    """
    if not version[:1].isdigit() or "/" in version:
        raise NotFoundError(f"there is no release {version[:40]}")
    return version


def _check_published(ctx: RequestContext, version: str) -> PublishedRelease:
    found = published_release(ctx.connection)
    if found is None or found.version != version:
        raise NotFoundError(f"release {version[:40]} is not published")
    return found


def status(ctx: RequestContext) -> api.ReleaseStatus:
    """Return the published release, and which node has which version and waits for what."""
    release = published_release(ctx.connection)
    files = release.files if release else {}
    return api.ReleaseStatus(
        version=release.version if release else "",
        size=sum(size for name, (size, _) in files.items() if not name.endswith(FILE)),
        key=release.key if release else "",
        published_ns=release.published_ns if release else 0,
        nodes=[_of_node(row) for row in ctx.all(sa.select(node).order_by(node.c.name))],
    )


def _of_node(row: sa.RowMapping) -> api.NodeRelease:
    health, agent = json.loads(row["health"]), agent_of(row)
    told = health.get("update")
    update: Mapping[str, object] = told if isinstance(told, dict) else {}
    return api.NodeRelease(
        node=row["name"],
        version=(agent and agent.version) or str(health.get("version", "")),
        state=str(update.get("state", ""))[:_LONGEST_TEXT],
        why=str(update.get("why", ""))[:_LONGEST_TEXT],
    )


@acting(api.PUBLISH_RELEASE)
def _begin(of: Orchestrator, _caller: Caller, request: api.PublishRelease) -> dict[str, int]:
    return begin(of, request.signed)


@acting(api.WITHDRAW_RELEASE)
def _withdraw(of: Orchestrator, caller: Caller, request: api.NamedRelease) -> str:
    return withdraw(of, caller, request.version)


@reading(api.RELEASE_STATUS)
def _status(_: Orchestrator, ctx: RequestContext, _request: api.Nothing) -> api.ReleaseStatus:
    return status(ctx)


@file(api.FETCH_RELEASE)
def _fetch(of: Orchestrator, ctx: RequestContext, request: api.FetchRelease) -> Path:
    release = _check_published(ctx, request.version)
    if f"{DIRECTORY}/{request.version}/{request.name}" not in release.files:
        raise NotFoundError(f"release {request.version[:40]} has no file {request.name[:80]}")
    return _published(of, request.version) / request.name
