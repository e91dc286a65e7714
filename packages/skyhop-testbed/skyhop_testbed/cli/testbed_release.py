"""`skyhop testbed release`: signed releases of skyhop, which nodes install by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_rows
from skyhop_testbed.cli.testbed_shared import As, opened, print_json, print_outcome, when

if TYPE_CHECKING:
    from skyhop_testbed.api import ReleaseStatus

Wheels = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory with the wheels of one version.")
]
release_app = group("Signed releases of skyhop, which nodes install if their owners allow it.")


@release_app.command()
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of the private key.")],
    show: Annotated[
        bool, typer.Option("--show", help="Print the public key of an existing file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the key that signs releases; print its public part, which owners put in agent.toml.

    Keep the file away from the orchestrator's machine, and a copy of it in a safe place: without it
    no node accepts another release until its owner changes the key.

    Example: skyhop testbed release key release.key
    """
    from skyhop.errors import RunError
    from skyhop_testbed.releases import make_key, public_key

    try:
        public = public_key(file) if show else make_key(file)
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}") from None
    said = f'[update]\nallow = "patch"\nkey = "{public}"'
    print_outcome({"file": str(file), "key": public}, said, as_json)


@release_app.command()
def sign(
    wheels: Wheels,
    signer: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key.")],
    as_json: Json = False,
) -> None:
    """Sign the wheels in a directory as one release; write release.json there.

    The directory has the wheel of skyhop-testbed, those of skyhop for each kind of machine, and
    those of dependencies that the version before did not need.

    Example: skyhop testbed release sign dist --key release.key
    """
    from skyhop.errors import RunError
    from skyhop_testbed.releases import FILE, public_key
    from skyhop_testbed.releases import sign as sign_wheels

    try:
        made = sign_wheels(wheels, signer)
    except OSError as error:
        raise RunError(f"{wheels}: {error.strerror}") from None
    said = (
        f"{wheels / FILE}: release {made.version}, {len(made.wheels)} wheels, {made.size:,} bytes"
    )
    values = {**made.model_dump(mode="json"), "key": public_key(signer)}
    print_outcome(values, said, as_json)


@release_app.command()
def publish(wheels: Wheels, credential: As = None, as_json: Json = False) -> None:
    """Upload a signed release, and offer it to all nodes; it takes the place of the former one.

    Example: skyhop testbed release publish dist
    """
    with opened(credential) as testbed:
        made = testbed.publish_release(wheels)
    said = f"release {made.version} is published: {made.size:,} bytes in {len(made.wheels)} wheels"
    print_outcome({"version": made.version, "size": made.size}, said, as_json)


@release_app.command()
def withdraw(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The published version.")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """End the offer of the published release; nodes that have installed it keep it."""
    with opened(credential) as testbed:
        testbed.withdraw_release(version)
    print_outcome({"withdrawn": version}, f"release {version} is no longer offered", as_json)


@release_app.command()
def status(credential: As = None, as_json: Json = False) -> None:
    """Show which node has which version, and what keeps it from the published release."""
    with opened(credential) as testbed:
        found = testbed.release_status()
    print_json(found) if as_json else _print(found)


def _print(found: ReleaseStatus) -> None:
    if found.version:
        print(
            f"release {found.version}, published {when(found.published_ns)} UTC, "
            f"{found.size:,} bytes, signed by {found.key}"
        )
    else:
        print("no release is published")
    rows = [
        {"node": each.node, "version": each.version, "release": each.state, "why": each.why}
        for each in found.nodes
    ]
    if rows:
        print_rows(rows, as_json=False)
