"""Commands of skyhop's other packages, which join by the entry point group `skyhop.commands`.

The name of an entry point is the command's words, joined by dots: "testbed", "video.watch". Its
value is a `typer.Typer` for a group of commands, or a `Command`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from skyhop.errors import RunError
from skyhop.install import how_to_install

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "skyhop.commands"

PACKAGES: Mapping[str, str] = {
    "dish": "skyhop-testbed",
    "testbed": "skyhop-testbed",
    "dish.emulate": "skyhop-lab[dish]",
    "policy.convert": "skyhop-lab[convert]",
    "policy.look": "skyhop-lab",
    "policy.rewards": "skyhop-lab",
    "policy.train": "skyhop-lab[train]",
    "predict": "skyhop-lab",
    "testbed.demo": "skyhop-lab[dish]",
    "video.watch": "skyhop-lab",
}
"""Package of each command that skyhop itself does not have, by the entry point's name."""


@dataclass(frozen=True)
class Command:
    """A function as a command, and its help (default: the function's docstring)."""

    function: Callable[..., None]
    help: str | None = None


def add_commands(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add the commands of the installed packages, and for others a command that names the package.

    Args:
        app: the application.
        groups: groups of commands that packages add commands to, by name.
    """
    from importlib.metadata import entry_points

    installed = {point.name: point for point in entry_points(group=GROUP)}
    known = dict(groups)
    # A group is added before the commands in it.
    for name in sorted({*installed, *PACKAGES}, key=lambda name: (name.count("."), name)):
        parent, _, word = name.rpartition(".")
        if parent and parent not in known:
            continue
        target = known[parent] if parent else app
        command = _loaded(installed[name]) if name in installed else None
        if command is None:
            _add_missing(target, name, word)
        elif isinstance(command, typer.Typer):
            target.add_typer(command, name=word)
            known[name] = command
        else:
            target.command(word, help=command.help)(command.function)


def package_of(words: Sequence[str]) -> str:
    """Return the package of a command line's command, with the extra that it needs."""
    commands = (".".join(words[:length]) for length in (2, 1))
    return next((PACKAGES[name] for name in commands if name in PACKAGES), "skyhop")


def is_own_module(error: ModuleNotFoundError) -> bool:
    """Whether a module within skyhop's packages is missing: a bug, and not a missing package."""
    package, _, module = (error.name or "").partition(".")
    return package == "skyhop" or (package.startswith("skyhop_") and bool(module))


def _loaded(point: EntryPoint) -> typer.Typer | Command | None:
    """Load a command; return None if a library of an extra of its package is not installed."""
    try:
        loaded: Any = point.load()
    except ModuleNotFoundError as error:
        if is_own_module(error):
            raise
        return None
    return loaded if isinstance(loaded, typer.Typer | Command) else Command(loaded)


def _add_missing(target: typer.Typer, name: str, word: str) -> None:
    package = PACKAGES.get(name)
    how = f"run {how_to_install(package)}" if package else "install all that its package needs"

    def missing(_context: typer.Context) -> None:
        raise RunError(
            f"skyhop {name.replace('.', ' ')} comes with {package or 'another package'}, which is "
            f"not installed: {how}"
        )

    target.command(
        word,
        help=f"Not installed: {how}",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(missing)
