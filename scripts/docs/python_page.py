"""Documentation page of `import skyhop`, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

from markup import page, prose

TITLES = re.compile(r"^(Args|Returns|Raises|Attributes|Yields|Examples?|Note):$")


def python_page() -> str:
    """Return the page of all public names."""
    import skyhop

    names = [name for name in skyhop.__all__ if name != "__version__"]
    things = {name: getattr(skyhop, name) for name in names}
    order = (callable_of, class_of, module_of)
    sections = {
        "Functions": [name for name, thing in things.items() if inspect.isfunction(thing)],
        "Classes": [
            name for name, thing in things.items() if inspect.isclass(thing) and not is_error(thing)
        ],
        "Packages": [name for name, thing in things.items() if isinstance(thing, ModuleType)],
        "Errors": [name for name, thing in things.items() if is_error(thing)],
    }
    parts = []
    for title, members in sections.items():
        parts.append(f"## {title}")
        for name in sorted(members, key=str.lower):
            thing = things[name]
            write = (
                order[0]
                if inspect.isfunction(thing)
                else order[1]
                if inspect.isclass(thing)
                else order[2]
            )
            parts.append(write(f"skyhop.{name}", thing, 3))
    return page(
        "Python",
        "For everyone who scripts: every public name of `import skyhop`, generated from signatures "
        "and docstrings.",
        "[From Python, and in notebooks](../how-to/python.md) shows these names at work.",
        *parts,
    )


def is_error(thing: Any) -> bool:
    """Return whether a name is an exception."""
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def module_of(name: str, module: Any, level: int) -> str:
    """Return the section of a package and its public functions and classes."""
    parts = [f"{'#' * level} {name} {{#{name}}}", docstring(module)]
    for member in getattr(module, "__all__", ()):
        thing = getattr(module, member)
        if inspect.isfunction(thing):
            parts.append(callable_of(f"{name}.{member}", thing, level + 1))
        elif inspect.isclass(thing):
            parts.append(class_of(f"{name}.{member}", thing, level + 1))
    return "\n\n".join(part for part in parts if part)


def class_of(name: str, cls: Any, level: int) -> str:
    """Return the section of a class, with its public methods and properties."""
    parts = [f"{'#' * level} {name} {{#{name}}}", docstring(cls)]
    if not is_error(cls):
        for member, thing in vars(cls).items():
            if member.startswith("_"):
                continue
            plain = thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing
            if inspect.isfunction(plain):
                parts.append(callable_of(f"{name}.{member}", plain, level + 1))
            elif isinstance(thing, property) or hasattr(thing, "func"):
                getter = thing.fget if isinstance(thing, property) else thing.func
                parts.append(
                    f"{'#' * (level + 1)} {name}.{member} "
                    f"{{#{name}.{member}}}\n\n{docstring(getter)}"
                )
    return "\n\n".join(part for part in parts if part)


def callable_of(name: str, function: Any, level: int) -> str:
    """Return the section of a function."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = None
    shown = f"```python\n{name}{written(signature)}\n```" if signature else ""
    return "\n\n".join(
        p for p in [f"{'#' * level} {name} {{#{name}}}", shown, docstring(function)] if p
    )


def written(signature: inspect.Signature) -> str:
    """Return a signature, with one parameter per line if it is too long for a line."""
    text = str(signature).replace("'", "")
    if len(text) < 60:  # noqa: PLR2004 -- a line of a phone, roughly
        return text
    parameters, star = [], False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            parameters.append("*")
            star = True
        parameters.append(str(one).replace("'", ""))
    result = text.rpartition(" -> ")[2] if " -> " in text else ""
    return (
        "(\n"
        + "".join(f"    {one},\n" for one in parameters)
        + ")"
        + (f" -> {result}" if result else "")
    )


def docstring(thing: Any) -> str:
    """Return a docstring as Markdown: its sections become lists, its doctests code blocks."""
    text = inspect.getdoc(thing) or ""
    parts: list[str] = []
    for part in text.split("\n\n"):
        lines = part.splitlines()
        if lines and TITLES.match(lines[0]):
            parts.append(f"**{lines[0]}**\n\n" + "\n".join(items(lines[1:])))
        elif lines and lines[0].lstrip().startswith(">>>"):
            shown = (line.replace("  # doctest: +SKIP", "") for line in lines)
            parts.append("```pycon\n" + "\n".join(shown) + "\n```")
        else:
            parts.append(prose(part.replace("``", "`")))
    return "\n\n".join(parts)


def items(lines: list[str]) -> list[str]:
    """Return the entries of a docstring section as a list."""
    found: list[str] = []
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        if line.startswith(" ") and found:
            found[-1] += " " + line.strip()
            continue
        name, colon, rest = line.partition(": ")
        known = colon and re.fullmatch(r"[\w*]+", name)
        found.append(f"- `{name}`: {prose(rest)}" if known else f"- {prose(line)}")
    return found
