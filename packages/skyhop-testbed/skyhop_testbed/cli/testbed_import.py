"""`skyhop testbed import`: convert LEOScope's jobs to job files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.options import Json
from skyhop.cli.terminal import print_note

_OVERRIDES = "Overrides the file."


def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.yaml", help="Experiment or job file of LEOScope."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="JOB.toml",
            help="Job file to write, with its inputs in the same directory; default: print it.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help="Name of the job. " + _OVERRIDES)] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Client node (repeatable). " + _OVERRIDES)
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="NODE", help="Server node. " + _OVERRIDES)
    ] = None,
    length: Annotated[
        str | None, typer.Option(metavar="TIME", help='Length of a run, such as "5 min".')
    ] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="LINE", help="Cron line of five fields.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="INSTANT", help='Time of the only run, or "now".')
    ] = None,
    trigger: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="Trigger that starts runs.")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="INSTANT", help="Start of the job.")] = None,
    end: Annotated[str | None, typer.Option(metavar="INSTANT", help="End of the job.")] = None,
    client: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Command to run in the container.")
    ] = None,
    backend: Annotated[
        str, typer.Option(metavar="podman|docker", help="Container program.")
    ] = "podman",
    as_json: Json = False,
) -> None:
    """Convert a job of LEOScope to a job file, and note what could not be converted.

    Example: skyhop testbed import config.yaml --node bcn-1 --length "5 min" --at now -o job.toml
    """
    from skyhop.errors import InputError
    from skyhop_testbed.leoscope import Overrides, import_job

    given = Overrides(
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
        raise InputError(f"{file}: not a UTF-8 text file") from None
    made = import_job(text, str(file), file.stem, given)
    if as_json:
        values = {"toml": made.toml, "files": sorted(made.files), "notes": list(made.notes)}
        print(json.dumps(values, indent=2))
    else:
        for note in made.notes:
            print_note(f"note: {note}")
    if output is not None:
        _write(output, made.toml.encode(), overwrite=True)
        for each, content in made.files.items():
            _write(output.parent / each, content, overwrite=False)
    elif not as_json:
        print(made.toml, end="")


def _words(command: str | None) -> tuple[str, ...]:
    from skyhop.errors import InputError

    try:
        return tuple(shlex.split(command)) if command else ()
    except ValueError as error:
        raise InputError(f"--client: {error}") from None


def _write(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file; without `overwrite`, a different existing file is an error."""
    from skyhop.errors import InputError, RunError

    try:
        if not overwrite and path.exists():
            if path.read_bytes() != content:
                raise InputError(
                    f"{path}: a different file exists already: give -o in another directory"
                )
            return
        path.write_bytes(content)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
