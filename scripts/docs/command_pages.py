"""Documentation pages of commands, from Typer's tree.

Each command has a page, and each subcommand a section of that page.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from markup import cell, code, page, prose, sentence, table


@functools.cache
def command_pages() -> dict[str, str]:
    """Return the pages by name; the page "index" lists all commands."""
    import typer

    from skyhop.cli import commands

    root: Any = typer.main.get_command(commands.complete_app())
    shown = {name: command for name, command in root.commands.items() if not command.hidden}
    rows = [
        (f"[skyhop {words}]({words.split()[0]}.md#{anchor(words)})", first_line(command))
        for name, top in shown.items()
        for words, command in walk(name, top)
        if not hasattr(command, "commands")
    ]
    index = page(
        "Commands",
        "For everyone at a terminal: every command of `skyhop`, each with its options on a page of "
        "its own.",
        "`skyhop COMMAND --help` prints the same. A command ends with exit code 0; with 1 if the "
        "run failed, 2 if "
        "the input was wrong, and 130 if you stopped it. `skyhop -v COMMAND` logs the steps of a "
        "live run or a service ([log lines](../logging.md)). `skyhop --install-completion` lets "
        "TAB complete commands, options "
        "and the names of examples, studies, constellations and congestion controls in new shells "
        "(bash, zsh, fish).",
        table(("command", "what it does"), rows),
    )
    pages = {name: command_page(name, top) for name, top in shown.items()}
    return {"index": index, **pages}


def command_page(name: str, command: Any) -> str:
    """Return the page of one command and all its subcommands."""
    parts = []
    for words, one in walk(name, command):
        level = "##" if words != name or hasattr(command, "commands") else None
        if words == name and level:
            continue
        heading = [f"{level} skyhop {words} {{#{anchor(words)}}}"] if level else []
        parts.append(
            "\n\n".join(
                [*heading, *([help_text(one)] if level else []), usage(words, one), *options(one)]
            )
        )
    return (
        f"# skyhop {name} {{#{anchor(name)}}}\n\n"
        + "\n\n".join([help_text(command), *parts])
        + "\n"
    )


def walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and all its subcommands, each with the words by which it is called."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from walk(f"{words} {name}", inner)


def anchor(words: str) -> str:
    """Return the anchor of a command's section."""
    return "skyhop-" + words.replace(" ", "-")


def first_line(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return (command.help or "").split("\n\n")[0]


def help_text(command: Any) -> str:
    """Return a command's help as Markdown, with its examples as code blocks."""
    parts = []
    for part in (command.help or "").replace("\b", "").split("\n\n"):
        text = part.strip("\n")
        match = re.match(r"\s*(Examples?):\s*(\S.*)?$", text, re.DOTALL)
        if match and match[2]:
            parts.append(
                f"{match[1]}:\n\n"
                + block(re.split(r";\s+(?=(?:sudo )?skyhop )", " ".join(match[2].split())))
            )
        elif match:
            parts.append(f"{match[1]}:")
        elif re.match(r"\s+(sudo )?skyhop ", text):
            parts.append(block(line.strip() for line in text.splitlines()))
        else:
            parts.append(prose(text))
    return "\n\n".join(parts).replace("\n```\n\n```sh\n", "\n")


def block(lines: Any) -> str:
    """Return lines of terminal text as a code block."""
    return "```sh\n" + "\n".join(lines) + "\n```"


def usage(words: str, command: Any) -> str:
    """Return the usage line of a command, with its arguments."""
    arguments = [
        (metavar(one) if one.required else f"[{metavar(one).strip('[]')}]")
        + ("..." if one.nargs == -1 else "")
        for one in command.params
        if one.param_type_name == "argument"
    ]
    return block([" ".join(["skyhop", words, *arguments, "[OPTIONS]"])])


def metavar(parameter: Any) -> str:
    """Return the placeholder for a parameter's value."""
    return str(parameter.metavar or parameter.name.upper())


def options(command: Any) -> list[str]:
    """Return the tables of a command's arguments and options."""
    arguments, rows = [], []
    for one in command.params:
        if getattr(one, "hidden", False) or one.name == "help":
            continue
        meaning = sentence(one.help or "")
        if one.param_type_name == "argument":
            arguments.append((code(metavar(one)), meaning))
        else:
            value = "" if one.is_flag or one.count else " " + metavar(one)
            names = " or ".join(code(name + value) for name in one.opts)
            names += "".join(f" / {code(name)}" for name in one.secondary_opts)
            rows.append((names, meaning, default_of(one)))
    found = [table(("argument", "meaning"), arguments)] if arguments else []
    return [*found, table(("option", "meaning", "default"), rows)] if rows else found


def default_of(option: Any) -> str:
    """Return an option's default as code, or the note that it is required."""
    if option.required:
        return "required"
    value = option.default
    if value is None or value is False or value in ((), []) or callable(value):
        return ""
    return code(cell(getattr(value, "value", value)))
