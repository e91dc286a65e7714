"""`skyhop testbed backup` and `restore` of the orchestrator's state directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json
from skyhop.cli.terminal import print_note
from skyhop_testbed.cli.testbed_shared import now_ns, print_outcome, when

if TYPE_CHECKING:
    from skyhop_testbed.backup.manifest import Manifest

State = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="State directory of the orchestrator.")
]


def backup(
    place: Annotated[
        Path,
        typer.Argument(metavar="DIR|FILE.tar", help="New directory, or new tar file."),
    ],
    state: State = Path("testbed"),
    since: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Former backup: files that have not changed since become hard links to its files.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Back up the orchestrator's state while it runs: database, keys, results and telemetry.

    The backup gets its name when it is complete and was read again. It holds the testbed's keys:
    only its owner may read it.

    Example: skyhop testbed backup backups/tue --since backups/mon --state /var/lib/skyhop-testbed
    """
    from skyhop_testbed.backup.writing import write_backup

    made = write_backup(state.absolute(), place.absolute(), now_ns(), since)
    lacking = made.manifest.missing
    if lacking:
        print_note(
            f"{len(lacking)} files that the database names are not in {state}, such as {lacking[0]}"
        )
    linked = f", {made.linked:,} of them linked to {since}" if since is not None else ""
    said = f"{place}: {_content(made.manifest)}{linked}"
    print_outcome({**_values(place, made.manifest), "linked": made.linked}, said, as_json)


def restore(
    place: Annotated[Path, typer.Argument(metavar="DIR|FILE.tar", help="A backup.")],
    state: State = Path("testbed"),
    check: Annotated[
        bool, typer.Option("--check", help="Only compare the backup with its list.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a backup into an empty state directory; users and nodes then work as before.

    Stop the old orchestrator first. Changes since the backup are unknown to the restored one: nodes
    report again what became of their runs, but users, tokens and jobs are those of the backup.

    Example: skyhop testbed restore backups/monday --state /var/lib/skyhop-testbed
    """
    from skyhop_testbed.backup.restoring import check_backup
    from skyhop_testbed.backup.restoring import restore as restore_backup

    if check:
        found = check_backup(place.absolute())
        said = f"{place}: is complete: {_content(found)}"
    else:
        found = restore_backup(place.absolute(), state.absolute(), now_ns())
        said = f"{state}: restored: {_content(found)}"
    print_outcome(_values(place, found), said, as_json)


def _content(manifest: Manifest) -> str:
    size_mb = manifest.size / 1e6
    return f"{len(manifest.files):,} files, {size_mb:,.1f} MB, of {when(manifest.created_ns)} UTC"


def _values(place: Path, manifest: Manifest) -> dict[str, object]:
    return {
        "backup": str(place),
        "files": len(manifest.files),
        "bytes": manifest.size,
        "created_ns": manifest.created_ns,
        "skyhop": manifest.skyhop,
        "missing": manifest.missing,
    }
