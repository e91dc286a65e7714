"""Registration of all commands, and the mapping of errors to messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import dropwhile
from typing import Annotated, Any

import typer

from skyhop import errors
from skyhop.cli import (
    access,
    app_,
    blind,
    cc,
    dissect,
    docs,
    linux_,
    list_,
    live,
    network,
    path,
    policy,
    report,
    signal_,
    sim,
    study,
    telemetry_,
    video,
)
from skyhop.cli.packages import add_commands, is_own_module, package_of
from skyhop.cli.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WRONG_INPUT,
    is_directory_gone,
    print_error,
    print_failure,
)
from skyhop.data.processes import check_processes
from skyhop.install import how_to_install

app = typer.Typer(
    name="skyhop",
    help=(
        "The workbench for transport over satellite networks.\n\n"
        "Turn a constellation into the time-varying path between two places, run real TCP over it, "
        "and see what happens.\n\n"
        'Start with: skyhop path --from "San Diego" --to "New York" --duration "10 min" '
        "-o path.parquet --plot path.png"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(path.app, name="path")
app.command("live", help=live.HELP)(live.live)
app.command("sim", help=sim.HELP)(sim.sim)
app.add_typer(network.app, name="network")
app.add_typer(linux_.app, name="linux")
app.add_typer(study.app, name="study")
app.command("report", help=report.HELP)(report.report)
app.add_typer(app_.app, name="app")
app.add_typer(cc.app, name="cc")
app.add_typer(policy.app, name="policy")
app.add_typer(signal_.app, name="signal")
app.command("blind", help=blind.HELP)(blind.blind)
app.add_typer(video.app, name="video")
app.add_typer(access.app, name="access")
app.command("dissect", help=dissect.HELP)(dissect.dissect)
app.add_typer(telemetry_.app, name="telemetry")
app.add_typer(list_.app, name="list")
app.command("docs", help=docs.HELP)(docs.docs)
_OPEN_GROUPS = {"policy": policy.app, "video": video.app}
"""Groups to which other packages add commands."""
_ALONE = (
    {command.name for command in app.registered_commands}
    | {group.name for group in app.registered_groups}
) - _OPEN_GROUPS.keys()
"""Commands that no other package changes: they start without a search for packages (20 ms)."""


@cache
def complete_app() -> typer.Typer:
    """Return the application with the commands of all installed packages."""
    add_commands(app, _OPEN_GROUPS)
    return app


def _app_for(words: Sequence[str]) -> typer.Typer:
    is_alone = bool(words) and words[0] in _ALONE and "_SKYHOP_COMPLETE" not in os.environ
    return app if is_alone else complete_app()


def _print_version(wanted: bool) -> None:
    if wanted:
        import skyhop

        print(f"skyhop {skyhop.__version__}")
        raise typer.Exit


@app.callback()
def skyhop(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            show_default=False,
            help="Log the steps of a live run or service to standard error; -vv: each decision.",
        ),
    ] = 0,
) -> None:
    """Accept the options of `skyhop` itself, before a command."""
    if verbose or os.environ.get("SKYHOP_LOG"):
        from skyhop import logs

        logs.configure(verbose)


def run() -> None:
    """Run the command of the command line, and exit.

    Exit code 0, 1 (the run failed), 2 (the input was wrong), 130 (the user interrupted it), or the
    exit code of the program of a live run.
    """
    # The matrices are too small for threads of BLAS to be faster.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        check_processes()
        status = _app_for(sys.argv[1:])(standalone_mode=False)
        # After Ctrl-C, Typer returns 130 instead of raising an exception.
        if status == EXIT_INTERRUPTED:
            print_error("interrupted")
        sys.exit(status)
    except typer.TyperException as error:
        # A command group without a subcommand: print the help of the group.
        if error.format_message().startswith("Usage:"):
            print(error.format_message())
            sys.exit()
        print_error(_wrong_command_line(error))
        sys.exit(EXIT_WRONG_INPUT)
    except UnicodeError:
        print_error("an argument is not valid UTF-8: rename the file, or retype the argument")
        sys.exit(EXIT_WRONG_INPUT)
    except ModuleNotFoundError as error:
        print_error(_not_installed(error))
        sys.exit(EXIT_FAILED)
    except (MemoryError, ImportError, OSError, SystemError, NameError) as error:
        print_error(_lacking(error))
        sys.exit(EXIT_FAILED)
    except errors.SkyhopError as error:
        print_failure(error)
        sys.exit(_status(error))
    except (typer.Abort, KeyboardInterrupt):
        print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _wrong_command_line(error: typer.TyperException) -> str:
    """Return Typer's message, with the commands that an unknown word may stand for."""
    context: Any = getattr(error, "ctx", None)
    message, path = error.format_message(), "skyhop"
    if context is not None:
        path = context.command_path
        if message.startswith("No such command") and message.endswith("."):
            word = message.split("'")[1]
            named = list(_commands_called(word, context.command, path))
            hint = (
                f"did you mean {' or '.join(named)}?"
                if named
                else f"expected one of {', '.join(sorted(context.command.commands))}"
            )
            message = f"{message.removesuffix('.')}; {hint}"
    return f"{message} (see {path} --help)"


def _commands_called(word: str, group: Any, path: str) -> Iterator[str]:
    """Yield the command lines of all commands with this name below a group."""
    for name, command in getattr(group, "commands", {}).items():
        if name == word:
            yield f"{path} {name}"
        yield from _commands_called(word, command, f"{path} {name}")


def _not_installed(error: ModuleNotFoundError) -> str:
    """Return a message that names a missing package and the command that installs it."""
    name = (error.name or "").partition(".")[0]
    if not name or is_own_module(error):
        raise error
    words = list(dropwhile(lambda word: word.startswith("-"), sys.argv[1:]))
    return f"the Python package {name} is not installed: run {how_to_install(package_of(words))}"


_TOO_LITTLE = ("failed to map", "without exception set", "without setting an exception", "name 'Py")
"""Messages of errors that mean lack of memory: unmapped library, or C code without an error.

polars goes on without its unmapped library, whose classes have names that begin with Py.
"""


def _lacking(error: MemoryError | ImportError | OSError | SystemError | NameError) -> str:
    """Return a message for a missing resource: memory, or a file that cannot be used."""
    if isinstance(error, OSError):
        if is_directory_gone():
            return "the working directory no longer exists: change to another one"
        return (
            errors.described(error) if error.filename else f"the output: {errors.described(error)}"
        )
    is_memory = any(words in str(error) for words in _TOO_LITTLE)
    if not isinstance(error, MemoryError) and not is_memory:
        raise error
    return "too little memory: end other programs, or raise the memory limit"


def _status(error: errors.SkyhopError) -> int:
    if isinstance(error, errors.ProgramError):
        return error.status
    if isinstance(error, errors.InterruptedRunError):
        return EXIT_INTERRUPTED
    return EXIT_WRONG_INPUT if isinstance(error, errors.InputError) else EXIT_FAILED
