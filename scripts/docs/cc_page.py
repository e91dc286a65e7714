"""Documentation page of congestion controls; parameters come from the compiled tables of cc/*.c."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from markup import cell, code, page, prose, table

CC = Path(__file__).resolve().parents[2] / "cc"
FLAGS = ("-O0", "-w", "-DSKYHOP_SHARED", "-fPIC", "-shared", "-Wl,-z,defs")
"""Compiler flags of crates/ccfile for the simulator, but without optimisation, as only the tables
are read.
"""
GROUPS = {
    "Loss": ("reno", "cubic", "hybla"),
    "Delay": ("vegas", "copa"),
    "Model of the path": ("bbr", "bbr2", "bbr3", "leocc"),
    "Trials (PCC)": ("vivace", "vivudt"),
    "Announced handovers": ("satcp", "satpipe"),
    "A network": ("policy",),
}
"""Senders grouped by the signal to which they react."""


class Row(ctypes.Structure):
    """Mirror of `struct skyhop_param` in cc/skyhop_cc.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("unit", ctypes.c_char_p),
        ("about", ctypes.c_char_p),
        ("scale", ctypes.c_uint64),
        ("initial", ctypes.c_int64),
        ("least", ctypes.c_int64),
        ("most", ctypes.c_int64),
    ]


class Module(ctypes.Structure):
    """Mirror of `struct skyhop_module` in cc/skyhop_cc.h."""

    _fields_ = [
        ("about", ctypes.c_char_p),
        ("ops", ctypes.c_void_p),
        ("params", ctypes.POINTER(Row)),
        ("params_len", ctypes.c_uint64),
        ("state_bytes", ctypes.c_uint64),
    ]


@dataclass
class Described:
    """Congestion control: its description, its parameters, and its file's opening comment."""

    about: str
    parameters: list[tuple[str, str, str, str, str]]
    source: str


def cc_page(cards: dict[str, Any]) -> str:
    """Return the page of all congestion controls and policy cards."""
    modules = {file.stem: described(file) for file in sorted(CC.glob("*.c"))}
    grouped = [name for names in GROUPS.values() for name in names]
    rest = [name for name in modules if name not in grouped]
    groups = {**GROUPS, **({"Others": tuple(rest)} if rest else {})}
    rows = [
        (follows, f"[{name}](#{name})", modules[name].about)
        for follows, names in groups.items()
        for name in names
        if name in modules
    ]
    parts = [table(("follows", "name", "what it is"), rows)]
    for name in [*grouped, *rest]:
        if name in modules:
            parts.append(section(name, modules[name]))
    parts.append(
        "## Cards {#cards}\n\n"
        + CARDS
        + "\n\n"
        + table(("card", "what it is", "weights", "licence"), card_rows(cards))
    )
    return page(
        "Congestion controls",
        "For everyone who chooses or tunes a sender: each congestion control that comes with "
        "skyhop, with its parameters, "
        "their units, defaults and bounds, and its source.",
        'A flow names one, `cc = "cubic"`; its parameters go under that name: `cubic.beta = 0.7`. '
        "One C file of `cc/` serves "
        "the simulator, Linux in virtual time and the running kernel. Live runs take the kernel's "
        "own where it has one; "
        '`cc = "skyhop:cubic"` is always the one below. [Your own](../tutorials/first-cc.md) is '
        "one more file.",
        *parts,
    )


CARDS = (
    "A card is a TOML file that says what a network sees of a connection and what its output "
    'means; `cc = "policy"` with '
    '`policy = "NAME"`, or `cc = "NAME.toml"`, runs it. [The policy card](policy-card.md) lists '
    "its keys."
)


def card_rows(cards: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return one table row per policy card."""
    return [
        (code(name), f"{card['title']}: {card['about']}", card["weights"], card.get("licence", ""))
        for name, card in cards.items()
    ]


def section(name: str, module: Described) -> str:
    """Return the section of one congestion control."""
    rows = [
        (code(key), f"{code(initial)} {unit}".rstrip(), bounds, about)
        for key, initial, unit, bounds, about in module.parameters
    ]
    shown = (
        table(("parameter", "default, unit", "from, to", "meaning"), rows)
        if rows
        else "It has no parameters."
    )
    example = f"A flow sets one as `{name}.{module.parameters[0][0]} = …`. " if rows else ""
    return (
        f"## {name} {{#{name}}}\n\n{prose(module.source)}\n\n{shown}\n\n"
        f"{example}Source file: `cc/{name}.c`."
    )


def described(file: Path) -> Described:
    """Compile a module as the simulator does, and read its tables."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("the page of congestion controls needs a C compiler")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / f"{file.stem}.so"
        subprocess.run([compiler, *FLAGS, f"-I{CC}", "-o", str(library), str(file)], check=True)
        module = Module.in_dll(ctypes.CDLL(str(library)), "skyhop_module")
        rows = [parameter(module.params[i]) for i in range(module.params_len)]
        return Described(module.about.decode(), rows, opening(file))


def parameter(row: Row) -> tuple[str, str, str, str, str]:
    """Return a parameter's name, default, unit, bounds and meaning."""
    unit = row.unit.decode()
    names = unit.split("|") if "|" in unit else []

    def value(raw: int) -> str:
        if names:
            return names[raw - row.least]
        number = Fraction(raw, row.scale)
        return str(number.numerator) if number.denominator == 1 else f"{float(number):.4g}"

    bounds = ", ".join(names) if names else f"{value(row.least)}, {value(row.most)}"
    return (
        row.name.decode(),
        value(row.initial),
        "" if names else unit,
        bounds,
        cell(row.about.decode()),
    )


def opening(file: Path) -> str:
    """Return the comment at the top of a file, as paragraphs."""
    comments = re.findall(r"/\*(.*?)\*/", file.read_text("utf-8"), re.DOTALL)
    text = next(one for one in comments if "SPDX" not in one)
    lines = [re.sub(r"^ ?\* ?", "", line.strip()) for line in text.strip().splitlines()]
    # Markdown needs an empty line before a list.
    return re.sub(r"(?<=[^\n])\n(?=- )", "\n\n", "\n".join(lines).strip())
