"""`skyhop testbed import`: LEOScope's jobs as job files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.options import Json
from skyhop.cli.terminal import print_note

_MUST = "Where the file does not say it, or in its place."


def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.yaml", help="An experiment file of LEOScope's, or a job's."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="JOB.toml",
            help="Written with the files that it names beside it; else the job file is printed.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help="The job's name. " + _MUST)] = None,
    node: Annotated[list[str] | None, typer.Option(help="A client's node. " + _MUST)] = None,
    server: Annotated[str | None, typer.Option(metavar="NODE", help="Who serves. " + _MUST)] = None,
    length: Annotated[str | None, typer.Option(metavar="TIME", help='Of a run: "5 min".')] = None,
    cron: Annotated[str | None, typer.Option(metavar="LINE", help="When: five fields.")] = None,
    at: Annotated[str | None, typer.Option(metavar="INSTANT", help='When: once, or "now".')] = None,
    trigger: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="When: it fires.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="INSTANT", help="From when.")] = None,
    end: Annotated[str | None, typer.Option(metavar="INSTANT", help="Until when.")] = None,
    client: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="What runs in the container.")
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="podman|docker", help="What keeps it.")
    ] = "podman",
    as_json: Json = False,
) -> None:
    """Make a job file of one of LEOScope's, and say what could not be carried over.

    Example: skyhop testbed import config.yaml --node bcn-1 --length "5 min" --at now -o job.toml
    """
    from skyhop.errors import InputError
    from skyhop.testbed.leoscope import Given, import_job

    given = Given(
        id=name,
        nodes=tuple(node or ()),
        server=server,
        length=length,
        cron=cron,
        at=at,
        trigger=trigger,
        start=start,
        end=end,
        client=_words(client),
        backend=backend,
    )
    try:
        text = file.read_bytes().decode()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no text") from None
    made = import_job(text, str(file), file.stem, given)
    if as_json:
        values = {"toml": made.toml, "files": sorted(made.files), "notes": list(made.notes)}
        print(json.dumps(values, indent=2))
    else:
        for note in made.notes:
            print_note(f"note: {note}")
    if output is not None:
        _write(output, made.toml.encode(), anew=True)
        for each, content in made.files.items():
            _write(output.parent / each, content, anew=False)
    elif not as_json:
        print(made.toml, end="")


def _words(command: str | None) -> tuple[str, ...]:
    from skyhop.errors import InputError

    try:
        return tuple(shlex.split(command)) if command else ()
    except ValueError as error:
        raise InputError(f"--client: {error}") from None


def _write(path: Path, content: bytes, *, anew: bool) -> None:
    """Write a file, but over no other one unless it is the one that was named."""
    from skyhop.errors import InputError, RunError

    try:
        if not anew and path.exists():
            if path.read_bytes() != content:
                raise InputError(f"{path}: is there and is another file: give -o another directory")
            return
        path.write_bytes(content)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
