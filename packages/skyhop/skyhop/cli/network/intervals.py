"""Run over a network as the argument of a command, and intervals of its loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from skyhop.data.networks import Network
    from skyhop.data.records import RunRecord

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Run directory of a network (skyhop sim).")
]
Every = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Length of an interval; default: about 100 intervals."),
]

_INTERVALS = 100
"""Largest default number of intervals."""

_MOST_INTERVALS = 2000


def network_run(directory: Path, *, force_size: bool) -> tuple[RunRecord, Network]:
    """Return a run over a network, and its network.

    Raises:
        InputError: the directory is not that of one run over a network, or a file that its scenario
            names is missing.
    """
    from skyhop.data.networks import network_of
    from skyhop.data.reading import read_runs
    from skyhop.errors import InputError

    runs = read_runs([directory], force_size=force_size)
    if len(runs) > 1:
        raise InputError(f"{directory}: holds {len(runs)} runs: name one of them")
    try:
        return runs[0], network_of(runs[0].scenario)
    except InputError as error:
        raise InputError(f"{directory}: {error}") from None


def times_s(
    run: RunRecord, begin: str, until: str | None, every: str | None
) -> tuple[list[float], float]:
    """Return the begins and the length of intervals from `begin` to `until`, in s.

    Raises:
        InputError: the times are not within the run, an interval is shorter than the time between
            two samples, or there are too many intervals.
    """
    from skyhop import _core
    from skyhop.analysis.binning import round_step
    from skyhop.analysis.network_loads import sample_s
    from skyhop.errors import InputError

    begin_s = _core.duration_s("--from", begin)
    end_s = run.duration_s if until is None else _core.duration_s("--until", until)
    if not begin_s < end_s <= run.duration_s:
        raise InputError(
            f"--from, --until: {begin_s:g} s to {end_s:g} s is not within the run, which lasts "
            f"{run.duration_s:g} s"
        )
    length_s = end_s - begin_s
    least_s = max(sample_s(run), length_s / _MOST_INTERVALS)
    step_s = max(round_step(length_s / _INTERVALS), sample_s(run))
    if every is not None:
        step_s = _core.duration_s("--every", every)
    if step_s < least_s * (1 - 1e-9):
        raise InputError(
            f"--every: {step_s:g} s is too short; expected at least {least_s:.3g} s, of which the "
            "run has samples"
        )
    count = max(int(length_s / step_s + 1e-9), 1)
    return [round(begin_s + place * step_s, 9) for place in range(count)], step_s
