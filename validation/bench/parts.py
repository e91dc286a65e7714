"""Benchmarks: speed of start, paths, simulations, studies, video, guests; lateness live."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from skyhop.errors import InputError
from validation.bench.measure import earlier

PARTS = {
    "start": "calls",
    "paths": "calls",
    "sim": "sim",
    "networks": "networks",
    "studies": "studies",
    "video": "calls",
    "linux": "kernel",
    "policies": "calls",
    "gym": "calls",
    "live": "kernel",
}
"""Module of each part; `bench_PART` there prints its tables."""


def main(
    parts: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(PARTS)}; default: all")
    ] = None,
) -> None:
    """Print the tables of the named parts, or of all."""
    chosen = parts or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        raise InputError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    print(f"Figures of before: {earlier()['when']}, {earlier()['machine']}")
    for part in chosen:
        getattr(import_module(f"validation.bench.{PARTS[part]}"), f"bench_{part}")()
