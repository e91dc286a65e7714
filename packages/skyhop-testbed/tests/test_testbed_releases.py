"""Releases of skyhop: signed by an administrator, stored and offered by the orchestrator."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from packaging.tags import Tag
from release_wheels import Signer, contents, write_wheels
from testbed_harness import ADMIN, LocalOrchestrator, local_orchestrator
from testbed_line import Local, local

from damaged import Trial
from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed import api, differences
from skyhop_testbed.agent import schedule
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.backup.restoring import restore
from skyhop_testbed.backup.writing import write_backup
from skyhop_testbed.free_space import Space
from skyhop_testbed.orchestrator import nodes, releases
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.node_orders import NodeOrders
from skyhop_testbed.orchestrator.request_context import Caller, NotFoundError
from skyhop_testbed.releases import (
    FILE,
    MOST_BYTES,
    Release,
    ReleaseError,
    SignedRelease,
    Wheel,
    check_wheels,
    make_key,
    public_key,
    read_key,
    sign,
)
from skyhop_testbed.words import Role

A = Caller("a", Role.NODE)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "orchestrator") as made:
        yield made


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


# --- signing ---


def test_a_signed_release_says_what_it_has(signer: Signer) -> None:
    made = signer.release("1.2", protocol="X = 1\nOLDEST, PROTOCOL = 2, 5\n", tag="cp312-abi3-any")
    signed = SignedRelease.loads((made / FILE).read_bytes())
    release = signed.verified(read_key(signer.public))
    assert release == signed.verified_by_itself()
    assert (release.version, release.requires_python) == ("1.2", ">=3.11")
    assert (release.lowest_protocol, release.highest_protocol) == (2, 5)
    names = [each.name for each in release.wheels]
    assert names == ["skyhop-1.2-cp312-abi3-any.whl", "skyhop_testbed-1.2-py3-none-any.whl"]
    check_wheels(made, release.wheels)
    # The signed text is canonical: the same wheels give the same text and signature.
    assert signed.manifest == json.dumps(
        json.loads(signed.manifest), sort_keys=True, separators=(",", ":")
    )
    before = (made / FILE).read_bytes()
    sign(made, signer.file)
    assert (made / FILE).read_bytes() == before


def test_only_the_signers_key_verifies(signer: Signer, tmp_path: Path) -> None:
    signed = SignedRelease.loads((signer.release("1.2") / FILE).read_bytes())
    other = Signer(tmp_path, "other")
    with pytest.raises(ReleaseError, match="not signed by the key"):
        signed.verified(read_key(other.public))
    # An orchestrator's signature over the same text is none: the signed bytes begin differently.
    key = releases_key(signer)
    plain = base64.b64encode(key.sign(signed.manifest.encode())).decode()
    with pytest.raises(ReleaseError, match="not signed by the key"):
        signed.model_copy(update={"signature": plain}).verified(read_key(signer.public))


def releases_key(signer: Signer) -> Any:
    return load_pem_private_key(signer.file.read_bytes(), None)


def test_the_key_is_private_and_kept(signer: Signer, tmp_path: Path) -> None:
    assert signer.file.stat().st_mode & 0o777 == 0o600
    assert public_key(signer.file) == signer.public
    with pytest.raises(InputError, match="exists already"):
        make_key(signer.file)
    assert public_key(signer.file) == signer.public
    signer.file.chmod(0o640)
    with pytest.raises(InputError, match="other users may read"):
        sign(write_wheels(tmp_path / "w", "1.2"), signer.file)
    (tmp_path / "no.key").write_text("x")
    (tmp_path / "no.key").chmod(0o600)
    with pytest.raises(InputError, match="is no key of"):
        public_key(tmp_path / "no.key")


def test_wheels_that_are_no_release_are_not_signed(signer: Signer, tmp_path: Path) -> None:
    def refusal(change: Callable[[Path], object]) -> str:
        place = write_wheels(tmp_path / "w", "1.2")
        change(place)
        with pytest.raises(InputError) as refused:
            sign(place, signer.file)
        assert not (place / FILE).exists()
        return str(refused.value)

    testbed, skyhop = "skyhop_testbed-1.2-py3-none-any.whl", "skyhop-1.2-py3-none-any.whl"
    assert "0 wheels of skyhop-testbed" in refusal(lambda place: (place / testbed).unlink())
    assert "no skyhop of this version" in refusal(lambda place: (place / skyhop).unlink())
    other = skyhop.replace("1.2", "1.1")
    said = refusal(lambda place: (place / skyhop).rename(place / other))
    assert said == "release 1.2 has no skyhop of this version"
    assert "is no wheel" in refusal(lambda place: (place / testbed).write_bytes(b"x"))
    assert "name of a wheel" in refusal(lambda place: shutil.copy(place / skyhop, place / "x.whl"))


def test_the_best_wheel_of_each_project_is_chosen() -> None:
    def wheel(name: str) -> Wheel:
        return Wheel(name=name, size=1, sha256="0" * 64)

    names = [
        "skyhop-1.2-cp311-abi3-linux_aarch64.whl",
        "skyhop-1.2-cp311-abi3-linux_x86_64.whl",
        "skyhop-1.2-py3-none-any.whl",
        "skyhop_testbed-1.2-py3-none-any.whl",
    ]
    release = Release(
        version="1.2",
        requires_python=">=3.11",
        lowest_protocol=1,
        highest_protocol=2,
        wheels=tuple(wheel(name) for name in names),
    )
    release.check()
    arm, intel = (Tag("cp311", "abi3", f"linux_{each}") for each in ("aarch64", "x86_64"))
    general = Tag("py3", "none", "any")
    for tags, expected in (
        ([arm, general], [names[0], names[3]]),
        ([intel, general], [names[1], names[3]]),
        ([general], [names[2], names[3]]),
        ([general, arm], [names[2], names[3]]),
    ):
        assert [each.name for each in release.wheels_for(tags)] == expected
    with pytest.raises(ReleaseError, match=r"no wheel of skyhop-testbed for this machine \(cp311"):
        release.wheels_for([arm])
    twice = release.model_copy(update={"wheels": (*release.wheels, release.wheels[0])})
    with pytest.raises(ReleaseError, match="names a wheel twice"):
        twice.check()
    large = wheel("big-1.0-py3-none-any.whl").model_copy(update={"size": MOST_BYTES})
    with pytest.raises(ReleaseError, match="is larger than"):
        release.model_copy(update={"wheels": (*release.wheels, large)}).check()
    for name in ("../skyhop-1.2-py3-none-any.whl", "a/b-1-py3-none-any.whl", "x.whl"):
        with pytest.raises(ValueError, match="is no name"):
            wheel(name)


def test_damaged_lists_are_refused(signer: Signer) -> None:
    key = read_key(signer.public)
    sample = (signer.release("1.2") / FILE).read_bytes()
    release = SignedRelease.loads(sample).verified(key)

    def read(content: bytes) -> None:
        # Whatever is damaged: either a refusal, or the release that was signed.
        assert SignedRelease.loads(content).verified(key) == release

    Trial("release", [sample]).run(read)


# --- the orchestrator ---


def publish(at: LocalOrchestrator, directory: Path) -> bool:
    files = contents(directory)
    version = directory.name.removeprefix("wheels-")
    text = files.pop(FILE).decode()
    here = call(at.orchestrator, api.PUBLISH_RELEASE, ADMIN, api.PublishRelease(signed=text))
    for name, content in files.items():
        offset = here.get(name, 0)
        releases.write_piece(at.orchestrator, version, name, offset, content[offset:])
    return releases.finish(at.orchestrator, ADMIN, version)


def fetched(at: LocalOrchestrator, version: str, name: str) -> bytes:
    request = api.FetchRelease(version=version, name=name)
    with at.orchestrator.reading(A) as ctx:
        return releases._fetch(at.orchestrator, ctx, request).read_bytes()


def offered(at: LocalOrchestrator, asked: api.Follow) -> str:
    """Return the release in the orders that a node gets."""
    node = NodeOrders(at.orchestrator, A, asked, {})
    (order,) = node.due()
    body = json.loads(order.content())
    settings = body["parts"]["settings"] if "parts" in body else body["settings"]
    return str(settings["release"])


def test_a_published_release_is_offered_to_all_nodes(at: LocalOrchestrator, signer: Signer) -> None:
    before = at.orchestrator.now_ns()
    assert offered(at, api.Follow(revision=0, digest="")) == ""
    with at.writing(ADMIN) as ctx:
        revisions = [nodes.get(ctx, name)["revision"] for name in ("a", "b", "s")]
    made = signer.release("1.2")
    assert publish(at, made)
    with at.writing(ADMIN) as ctx:
        later = [nodes.get(ctx, name)["revision"] for name in ("a", "b", "s")]
        status = releases.status(ctx)
    assert later == [each + 1 for each in revisions]
    assert offered(at, api.Follow(revision=0, digest="")) == "1.2"
    # An agent that reads no differences gets it in its whole schedule, and ignores it.
    assert offered(at, api.Follow(revision=0)) == "1.2"
    for name, content in contents(made).items():
        if name == FILE:
            signed = SignedRelease.loads(fetched(at, "1.2", name))
            assert signed == SignedRelease.loads(content)
        else:
            assert fetched(at, "1.2", name) == content
    assert (status.version, status.key, status.published_ns) == ("1.2", signer.public, before)
    assert status.size == sum(each.stat().st_size for each in made.glob("*.whl"))


def test_only_files_of_the_published_release_are_served(
    at: LocalOrchestrator, signer: Signer
) -> None:
    publish(at, signer.release("1.2"))
    for version, name in (
        ("1.2", "../../keys/orders.key"),
        ("1.2", "../incoming"),
        ("..", "testbed.sqlite"),
        ("1.3", FILE),
        ("incoming", FILE),
    ):
        with pytest.raises(NotFoundError):
            fetched(at, version, name)


def test_an_upload_goes_on_where_it_ended(at: LocalOrchestrator, signer: Signer) -> None:
    made = signer.release("1.2")
    files = contents(made)
    text = files.pop(FILE).decode()
    begin = api.PublishRelease(signed=text)
    assert call(at.orchestrator, api.PUBLISH_RELEASE, ADMIN, begin) == {}
    name = min(files)
    releases.write_piece(at.orchestrator, "1.2", name, 0, files[name][:100])
    # Pieces that do not fit, or come twice, are ignored.
    releases.write_piece(at.orchestrator, "1.2", name, 0, files[name][:100])
    releases.write_piece(at.orchestrator, "1.2", name, 150, b"x")
    assert call(at.orchestrator, api.PUBLISH_RELEASE, ADMIN, begin) == {name: 100}
    assert not releases.finish(at.orchestrator, ADMIN, "1.2")
    assert offered(at, api.Follow(revision=0, digest="")) == ""
    assert publish(at, made)
    assert offered(at, api.Follow(revision=0, digest="")) == "1.2"


def test_a_damaged_wheel_is_not_published_and_can_be_sent_again(
    at: LocalOrchestrator, signer: Signer
) -> None:
    made = signer.release("1.2")
    (wheel,) = made.glob("skyhop_testbed*")
    content = wheel.read_bytes()
    wheel.write_bytes(content[:-1] + b"x")
    with pytest.raises(InputError, match="is damaged: send it again"):
        publish(at, made)
    assert offered(at, api.Follow(revision=0, digest="")) == ""
    wheel.write_bytes(content)
    assert publish(at, made)


def test_what_is_refused_before_an_upload(at: LocalOrchestrator, signer: Signer) -> None:
    with pytest.raises(InputError, match="speaks protocols 3 to 4, and this orchestrator 1 to 2"):
        publish(at, signer.release("1.2", protocol="OLDEST, PROTOCOL = 3, 4\n"))
    publish(at, signer.release("1.2"))
    with pytest.raises(InputError, match=r"which is newer than 1\.1: nodes never go back"):
        publish(at, signer.release("1.1"))
    made = signer.release("1.3")
    values = json.loads((made / FILE).read_text())
    values["manifest"] = values["manifest"].replace("1.3", "1.4")
    (made / FILE).write_text(json.dumps(values))
    with pytest.raises(InputError, match="not signed by the key"):
        publish(at, made)
    for name, offset in (("other-1.0-py3-none-any.whl", 0), ("../x", 0)):
        made = signer.release("1.3")
        call(at.orchestrator, api.PUBLISH_RELEASE, ADMIN,
             api.PublishRelease(signed=(made / FILE).read_text()))  # fmt: skip
        with pytest.raises(InputError, match=r"is not in release 1\.3"):
            releases.write_piece(at.orchestrator, "1.3", name, offset, b"x")
    wheel = next(made.glob("*.whl"))
    with pytest.raises(InputError, match="longer than listed"):
        releases.write_piece(at.orchestrator, "1.3", wheel.name, wheel.stat().st_size, b"x")
    size = sum(each.stat().st_size for each in made.glob("*.whl"))
    at.orchestrator.space_of = lambda _: Space(10**11, 10**9 + size)
    releases.begin(at.orchestrator, (made / FILE).read_text())
    at.orchestrator.space_of = lambda _: Space(10**11, 10**9 + size - 1)
    with pytest.raises(RunError, match="takes nothing new"):
        releases.begin(at.orchestrator, (made / FILE).read_text())


def test_a_release_takes_the_place_of_the_former_and_can_be_withdrawn(
    at: LocalOrchestrator, signer: Signer
) -> None:
    publish(at, signer.release("1.2"))
    publish(at, signer.release("1.3"))
    place = at.orchestrator.directory / "releases"
    assert {each.name for each in place.iterdir() if each.is_dir()} == {"1.3", "incoming"}
    with pytest.raises(NotFoundError):
        releases.withdraw(at.orchestrator, ADMIN, "1.2")
    assert releases.withdraw(at.orchestrator, ADMIN, "1.3") == "1.3"
    assert offered(at, api.Follow(revision=0, digest="")) == ""
    assert not (place / "1.3").exists()
    with pytest.raises(NotFoundError):
        fetched(at, "1.3", FILE)


def test_the_status_shows_what_nodes_say(at: LocalOrchestrator, signer: Signer) -> None:
    publish(at, signer.release("1.2"))
    told = {"release": "1.2", "state": "failed", "why": "release 1.2 was tried"}
    at.report("a", ("health", {"version": "1.1", "update": told}))
    at.report("b", ("health", {"version": "1.0"}))
    at.report("s", ("health", {"version": "1.0", "update": "x" * 999}))
    with at.writing(ADMIN) as ctx:
        found = releases.status(ctx).nodes
    assert [each.model_dump() for each in found] == [
        {"node": "a", "version": "1.1", "state": "failed", "why": "release 1.2 was tried"},
        {"node": "b", "version": "1.0", "state": "", "why": ""},
        {"node": "s", "version": "1.0", "state": "", "why": ""},
    ]


def test_an_agent_ignores_settings_that_it_does_not_know(at: LocalOrchestrator) -> None:
    """The present agent stands for one before releases, and a later setting for `release`."""
    node = NodeOrders(at.orchestrator, A, api.Follow(revision=0, digest=""), {})
    (order,) = node.due()
    body = json.loads(order.content())
    settings = {**body["parts"]["settings"], "colour": "red"}
    parts = {**body["parts"], "settings": settings}
    body |= {"parts": parts, "digest": differences.digest(differences.digests_of(parts))}
    text = json.dumps(body).encode()
    authority = at.orchestrator.authority
    found, is_whole = schedule.read_change(
        authority.orders_key, "a", text, authority.sign_order(text), schedule.Schedule()
    )
    assert is_whole
    assert found.settings.heartbeat_s == settings["heartbeat_s"]


@pytest.mark.parametrize("kind", ["backup", "backup.tar"])
def test_a_backup_has_the_published_release(
    at: LocalOrchestrator, signer: Signer, tmp_path: Path, kind: str
) -> None:
    publish(at, signer.release("1.2"))
    later = signer.release("1.3")
    releases.begin(at.orchestrator, (later / FILE).read_text())
    manifest = write_backup(at.orchestrator.directory, tmp_path / kind, at.now_ns).manifest
    assert not manifest.missing
    names = {each.name for each in manifest.files if each.name.startswith("releases/1")}
    assert len(names) == 3
    assert not [each for each in manifest.files if "incoming" in each.name]
    restore(tmp_path / kind, tmp_path / "new", at.now_ns)
    with local_orchestrator(tmp_path / "new") as new:
        assert offered(new, api.Follow(revision=0, digest="")) == "1.2"
        assert SignedRelease.loads(fetched(new, "1.2", FILE)).key == signer.public
        assert publish(new, later)


# --- the commands ---


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path / "state") as made:
        yield made


def test_the_commands_of_a_release(
    testbed: Local, tmp_path: Path, skyhop: Callable[..., Any]
) -> None:
    key, wheels = tmp_path / "release.key", write_wheels(tmp_path / "dist", "1.2")
    made = skyhop("testbed", "release", "key", key)
    assert made.returncode == 0
    public = public_key(key)
    assert f'key = "{public}"' in made.stdout
    assert key.stat().st_mode & 0o777 == 0o600
    assert skyhop("testbed", "release", "key", key).returncode == 2
    shown = skyhop("testbed", "release", "key", key, "--show", "--json")
    assert json.loads(shown.stdout)["key"] == public

    admin = ("--as", testbed.directory / "admin.json")
    unsigned = skyhop("testbed", "release", "publish", wheels, *admin)
    assert (unsigned.returncode, "sign the wheels first" in unsigned.stderr) == (2, True)
    signed = skyhop("testbed", "release", "sign", wheels, "--key", key)
    assert "release 1.2, 2 wheels" in signed.stdout
    agent = testbed.agent("a")
    published = skyhop("testbed", "release", "publish", wheels, *admin)
    assert published.returncode == 0, published.stderr
    assert "release 1.2 is published" in published.stdout
    for name, content in contents(wheels).items():
        asked = api.FetchRelease(version="1.2", name=name, offset=5)
        assert b"".join(agent.download(api.FETCH_RELEASE, asked, 10.0)) == content[5:]

    status = skyhop("testbed", "release", "status", *admin)
    assert public in status.stdout
    found = json.loads(skyhop("testbed", "release", "status", *admin, "--json").stdout)
    assert [each["node"] for each in found["nodes"]] == ["a"]
    with testbed.testbed() as admin_client:
        audited = [(each.what, each.target) for each in admin_client.audit()]
    assert ("UploadRelease", "1.2") in audited

    # A wheel that has changed since the signature is not sent.
    wheel = next(wheels.glob("*.whl"))
    wheel.write_bytes(b"x")
    changed = skyhop("testbed", "release", "publish", wheels, *admin)
    assert "is not the wheel that was signed" in changed.stderr
    gone = skyhop("testbed", "release", "withdraw", "1.2", *admin)
    assert gone.returncode == 0
    with pytest.raises(ApiError) as caught:
        next(agent.download(api.FETCH_RELEASE, api.FetchRelease(version="1.2", name=FILE), 10.0))
    assert caught.value.kind is ErrorKind.NOT_FOUND
    assert isinstance(caught.value, SkyhopError)
