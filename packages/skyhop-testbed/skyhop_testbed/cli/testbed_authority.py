"""`skyhop testbed authority` and `approve`: keys of a testbed, and expired certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_rows
from skyhop_testbed.cli.testbed_shared import opened, print_json, print_outcome, when

if TYPE_CHECKING:
    from skyhop_testbed.api import AuthorityStatus

As = Annotated[
    Path | None, typer.Option("--as", metavar="FILE", help="Credential of an administrator.")
]
authority_app = group("The keys that sign certificates and orders, and their rotation.")


@authority_app.command()
def status(credential: As = None, as_json: Json = False) -> None:
    """Show which authorities are trusted, and which nodes lack a certificate of the newest."""
    with opened(credential) as testbed:
        _print(testbed.authority(), as_json)


@authority_app.command()
def rotate(credential: As = None, as_json: Json = False) -> None:
    """Let new keys sign certificates and orders; the former ones stay trusted until they retire.

    Nodes that are connected get a certificate of the new authority within minutes. Users' commands
    note the new authority in their credential files. Make a backup afterwards.
    """
    with opened(credential) as testbed:
        _print(testbed.rotate_authority(), as_json)


@authority_app.command()
def retire(
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if nodes have no certificate of the new authority."),
    ] = False,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """End the trust in the former authority, and remove its keys.

    A node without a certificate of the new authority needs an invitation afterwards, and a user who
    has used no command since the rotation needs a new credential file.
    """
    with opened(credential) as testbed:
        _print(testbed.retire_authority(force=force), as_json)


def approve(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Give a node whose certificate has expired the new one that it asks for.

    The node has proved that it holds the expired certificate's key; it gets the new certificate
    within an hour.
    """
    with opened(credential) as testbed:
        testbed.approve(node)
    print_outcome({"approved": node}, f"{node} gets its certificate within an hour", as_json)


def _print(found: AuthorityStatus, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "authority": each.name,
            "use": use,
            "from_(UTC)": when(each.from_ns),
            "until_(UTC)": when(each.to_ns),
            "sha256": each.sha256[:16],
        }
        for each, use in ((found.signing, "signs"), (found.former, "is trusted until it retires"))
        if each is not None
    ]
    print_rows(rows, as_json=False)
    behind = found.nodes_behind
    if behind:
        print(
            f"{len(behind)} nodes have no certificate of {found.signing.name}: {', '.join(behind)}"
        )
