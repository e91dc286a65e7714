"""Options of commands about a constellation without a run: sites, times, and satellites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion

if TYPE_CHECKING:
    from skyhop.data.places import Place

Constellation = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Name in skyhop list constellations, or a file or URL of element sets (TLE, OMM).",
        autocompletion=completion.constellations,
    ),
]
Sites = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SITE...",
        help='Places; or one of "top-N" (cities), a list of skyhop list sites, a CSV file. '
        "Default: top-20.",
    ),
]
Gateways = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="List of gateways (skyhop list sites), or a CSV file."),
]
Handovers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POLICY",
        help="Handover policy (skyhop list handovers); repeatable. Default: immediate.",
        autocompletion=completion.handovers,
    ),
]
Duration = Annotated[str, typer.Option(metavar="TIME", help="Time that the routes cover.")]
Step = Annotated[str, typer.Option(metavar="TIME", help="Time between two computations.")]
Start = Annotated[
    str | None,
    typer.Option(metavar="UTC", help="Time of the first routes; default: the constellation's."),
]
Elevation = Annotated[
    str | None,
    typer.Option(metavar="ANGLE", help="Lowest elevation at which a satellite is used: 25 deg."),
]

Shells = Annotated[
    str | None,
    typer.Option(
        "--isl-shells",
        metavar="RULE",
        help="Lasers between shells: apart (none) or nearest. Default: apart.",
        autocompletion=completion.one_of("apart", "nearest"),
    ),
]

_TOP = re.compile(r"top-(\d+)")
_MOST_SITES, _MOST_TIMES = 1000, 100_000
DEFAULT_SITES = "top-20"


def places_of(sites: Sequence[str] | None) -> list[Place]:
    """Return the places of the argument SITE..., with different names.

    Raises:
        InputError: a place or a list is unknown, there are fewer than two sites or too many, or two
            have the same name.
    """
    from skyhop.analysis.sentence_words import counted
    from skyhop.data.places import find_place
    from skyhop.errors import InputError

    given = list(sites or [DEFAULT_SITES])
    found = _listed(given[0]) if len(given) == 1 else None
    places = found if found is not None else [find_place(text) for text in given]
    if not 1 < len(places) <= _MOST_SITES:
        raise InputError(
            f"{', '.join(given[:3])}: {counted(len(places), 'site')}; expected 2 to {_MOST_SITES:,}"
        )
    names = [place.name for place in places]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f'two sites are named "{twice}": leave one out')
    return places


def _listed(text: str) -> list[Place] | None:
    """Return the places of a list; None for the name of a single place."""
    from skyhop import _core
    from skyhop.data.places import Place, largest_cities
    from skyhop.errors import InputError

    top = _TOP.fullmatch(text)
    if top is not None:
        cities = largest_cities(int(top[1])) if int(top[1]) <= _MOST_SITES else []
        if not cities:
            raise InputError(f"{text}: expected top-2 to top-{_MOST_SITES:,}")
        return [Place(*city) for city in cities]
    is_list = text.endswith(".csv") or text in {entry.name for entry in _core.list_sites()}
    return gateways_of(text) if is_list else None


def gateways_of(name: str) -> list[Place]:
    """Return the sites of a list, or of a CSV file.

    Raises:
        InputError: there is no such list.
    """
    from skyhop import _core
    from skyhop.data.places import Place

    return [Place(*row) for row in _core.sites(name)]


def position_text(place: Place) -> str:
    """Return a place as the text of its position, which no other place has."""
    return f"{place.latitude_deg:.9f},{place.longitude_deg:.9f},{place.altitude_m:.3f}"


def check_times(duration: str, step: str) -> None:
    """Check `--duration` and `--step`.

    Raises:
        InputError: one of them is not a time, the step is 0, or there are too many times.
    """
    from skyhop import _core
    from skyhop.errors import InputError

    duration_s, step_s = _core.duration_s("--duration", duration), _core.duration_s("--step", step)
    if step_s <= 0 or duration_s / step_s > _MOST_TIMES:
        raise InputError(
            f"--step: {step_s:g} s is too short; expected at least {duration_s / _MOST_TIMES:g} s"
        )


def keys_of(
    constellation: str, step: str, start: str | None, elevation: str | None, shells: str | None
) -> dict[str, Any]:
    """Return the keys of `[path]` that the options set."""
    from skyhop.data.scenarios import with_now

    given = {
        "constellation": constellation,
        "step": step,
        "start": None if start is None else with_now(f"start={start}").partition("=")[2].strip('"'),
        "minimum_elevation": elevation,
        "isl_shells": shells,
    }
    return {key: value for key, value in given.items() if value is not None}


_OF_KEY = {
    "path.constellation": "--constellation",
    "path.start": "--start",
    "path.step": "--step",
    "path.minimum_elevation": "--elevation",
    "path.handover": "--handover",
    "path.isl_shells": "--isl-shells",
    "run.duration": "--duration",
}
_KEY = re.compile(r"^[^:]*: ((?:path|run)\.\w+|failure\.(\d+)(?:\.(\w+))?): ")


@contextmanager
def errors_with_options(of_failures: Sequence[str] = ()) -> Iterator[None]:
    """Name in errors the option in place of the key that it sets.

    Args:
        of_failures: options that set the entries of `[[failure]]`, in their order.
    """
    from skyhop.errors import InputError

    try:
        yield
    except InputError as error:
        found = _KEY.match(str(error))
        if found is None:
            raise
        option = of_failures[int(found[2])] if found[2] else _OF_KEY.get(found[1])
        if option is None:
            raise
        # `--plane SHELL:N` sets two keys.
        key = "shell " if found[3] == "shell" else ""
        raise InputError(f"{option}: {key}{str(error)[found.end() :]}") from None


def print_notes(notes: Sequence[str]) -> None:
    """Print notes on routes, each once."""
    from skyhop.cli.terminal import print_note

    for note in dict.fromkeys(notes):
        print_note(f"warning: {note}")
