"""Commands that install skyhop's packages: no package index has them.

A checkout installs them in place; otherwise they come from the wheels that `make wheel` builds.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3]
_SET_UP = ("", "convert", "dish", "gym")
"""Extras of skyhop-lab that `make setup` installs; "" is the package alone."""


def how_to_install(package: str) -> str:
    """Return what to run to install a package of skyhop, such as "skyhop-lab[train]"."""
    if (_CHECKOUT / "requirements.lock").is_file():
        return f"{_in_checkout(package)} in the checkout"
    return f"pip install {_wheels(package)} where the wheels of skyhop are (make wheel builds them)"


def _in_checkout(package: str) -> str:
    extra = package.partition("[")[2].rstrip("]")
    if extra in _SET_UP:
        return "make setup"
    files = shlex.quote(f"packages/{package}")
    return f".venv/bin/uv pip install -c requirements.lock --no-sources -e {files}"


def _wheels(package: str) -> str:
    """Return the files of a package's wheel and of the wheels that it needs, with its extra."""
    from importlib.metadata import version

    name, _, extra = package.partition("[")
    if name == "skyhop":
        return f"skyhop-{version('skyhop')}-*.whl"
    file = f"{name.replace('-', '_')}-{version('skyhop')}-py3-none-any.whl"
    words = [shlex.quote(file + (f"[{extra}" if extra else ""))]
    # Emulated terminals use the package of the testbed.
    if extra == "dish]":
        words.insert(0, f"skyhop_testbed-{version('skyhop')}-py3-none-any.whl")
    return " ".join(words)
