"""`skyhop dish emulate`: answer as a satellite terminal does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.stopping import until_signal

if TYPE_CHECKING:
    from skyhop_lab.dish.device import Place
    from skyhop_lab.dish.feed import AnswerSource
    from skyhop_lab.dish.measuring import Prober
    from skyhop_lab.dish.path_feed import Obstacle

_LONG_S = 3600


def emulate(
    status_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="STATUS", help="Serve a recorded status (grpcurl's JSON)."),
    ] = None,
    history_file: Annotated[
        Path | None,
        typer.Option("--history", metavar="HISTORY", help="With --json: a recorded history."),
    ] = None,
    map_file: Annotated[
        Path | None, typer.Option("--map", metavar="MAP", help="With --json: a recorded map.")
    ] = None,
    path_file: Annotated[
        Path | None,
        typer.Option("--path", metavar="FILE", help='Emulate the end "from" of a path file.'),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Replay the measurements of a run.")
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="IF", help="Measure the traffic of this interface."),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="With --interface: host to ping, or HOST:PORT for UDP."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Listening address; port 0: any free port.")
    ] = "127.0.0.1:9200",
    allow_location: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON",
            help="Location to report; without it, requests for the location are refused.",
        ),
    ] = None,
    obstruct: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM-TO:UP",
            help="With --path: obstruct azimuths FROM to TO up to elevation UP, in degrees.",
        ),
    ] = None,
    frame: Annotated[
        str,
        typer.Option(metavar="earth|terminal", help="Frame of reference of the obstruction map."),
    ] = "earth",
    seed: Annotated[int, typer.Option(help="Seed of the random losses and of the boresight.")] = 1,
    speed: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0.01,
            max=1000,
            help="Speed of the terminal's clock, as a multiple of real time.",
        ),
    ] = 1.0,
) -> None:
    """Emulate a terminal until Ctrl-C or SIGTERM, for programs that read terminals.

    Example: skyhop dish emulate --path sd-ny.parquet --listen 127.0.0.1:9200

    Example: skyhop dish emulate --interface eth0 --probe 100.64.0.1
    """
    from skyhop.errors import InputError
    from skyhop_lab.dish.device import Device
    from skyhop_lab.dish.server import Server, scaled_clock
    from skyhop_testbed.addresses import listening_address

    files = {"--history": history_file, "--map": map_file}
    _check_sources(
        {"--json": status_file, "--path": path_file, "--run": run, "--interface": interface},
        {**files, "--probe": probe, "--obstruct": obstruct},
        {**dict.fromkeys(files, "--json"), "--probe": "--interface", "--obstruct": "--path"},
    )
    place = None if allow_location is None else _place(allow_location)
    listening_address("--listen", listen)
    begin_ns, prober = time.time_ns(), None
    if interface is not None:
        if probe is None:
            raise InputError("--interface needs --probe: the host to ping through the link")
        if speed != 1:
            raise InputError(
                "--speed: cannot be used with --interface, which measures in real time"
            )
        source, prober = _measured(interface, probe, begin_ns, seed)
    elif status_file is not None:
        source = _recorded(status_file, history_file, map_file, begin_ns)
    else:
        source = _replayed(path_file, run, begin_ns, seed, frame, _obstacles(obstruct or []))
    clock = scaled_clock(speed, begin_ns)
    try:
        with until_signal(), Server(Device(source, place), listen, clock) as server:
            print(f"a terminal listens at {server.address}; Ctrl-C ends it", flush=True)
            while True:
                time.sleep(_LONG_S)
    finally:
        if prober is not None:
            prober.stop()


def _check_sources(
    sources: Mapping[str, object], further: Mapping[str, object], owners: Mapping[str, str]
) -> None:
    """Check that exactly one source is given, and no options that belong to other sources.

    Args:
        sources: values of the options that select the source, by option.
        further: values of the options that belong to one source, by option.
        owners: for each further option, the option of the source that it belongs to.

    Raises:
        InputError: an option is missing or not allowed; the message names it.
    """
    from skyhop.errors import InputError

    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise InputError(f"give one of {', '.join(sources)}: the source of the terminal's answers")
    for name, value in further.items():
        if value and given != [owners[name]]:
            raise InputError(f"{name} is for {owners[name]}; {given[0]} does not use it")


def _recorded(
    status_file: Path, history_file: Path | None, map_file: Path | None, begin_ns: int
) -> AnswerSource:
    from skyhop_lab.dish.recorded import RecordedAnswers
    from skyhop_testbed.dish.messages import read_history, read_map, read_status

    return RecordedAnswers(
        begin_ns,
        read_status(status_file),
        None if history_file is None else read_history(history_file),
        None if map_file is None else read_map(map_file),
    )


def _replayed(
    path_file: Path | None,
    run: Path | None,
    begin_ns: int,
    seed: int,
    frame: str,
    obstacles: Sequence[Obstacle],
) -> AnswerSource:
    from skyhop.errors import InputError
    from skyhop.telemetry.obstruction import Frame
    from skyhop_lab.dish.feed import Feed
    from skyhop_lab.dish.terminal import Terminal

    if frame not in list(Frame):
        raise InputError(f'--frame "{frame}": expected {" or ".join(Frame)}')
    feed: Feed
    if path_file is not None:
        from skyhop.data.paths import read_path
        from skyhop_lab.dish.path_feed import PathFeed

        feed = PathFeed(read_path(path_file), seed=seed, obstacles=obstacles)
    else:
        from skyhop.data.runs import Run
        from skyhop_lab.dish.run_feed import RunFeed

        assert run is not None, "checked before"
        feed = RunFeed(Run(run))
    return Terminal(feed, begin_ns, seed=seed, frame=Frame(frame))


def _measured(interface: str, probe: str, begin_ns: int, seed: int) -> tuple[AnswerSource, Prober]:
    """Return a terminal that measures from now on, and its prober; the caller stops the prober."""
    from skyhop_lab.dish.measuring import Counters, Meter, Prober
    from skyhop_lab.dish.terminal import Terminal

    started_ns = time.monotonic_ns()
    meter = Meter()
    prober = Prober(meter, probe, Counters(interface), lambda: time.monotonic_ns() - started_ns)
    prober.start()
    return Terminal(meter, begin_ns, seed=seed), prober


def _obstacles(texts: Sequence[str]) -> list[Obstacle]:
    from skyhop.errors import InputError
    from skyhop_lab.dish.path_feed import Obstacle

    obstacles = []
    for text in texts:
        sector, _, up_to = text.partition(":")
        begin, _, end = sector.partition("-")
        try:
            degrees = (float(begin), float(end), float(up_to))
        except ValueError:
            degrees = (-1.0, -1.0, -1.0)
        if not all(0 <= value <= most for value, most in zip(degrees, (360, 360, 90), strict=True)):
            raise InputError(
                f'--obstruct "{text}": expected azimuths and an elevation, such as 90-150:45'
            )
        obstacles.append(Obstacle(*degrees))
    return obstacles


def _place(text: str) -> Place:
    from skyhop.errors import InputError
    from skyhop_lab.dish.device import Place

    words = text.split(",")
    try:
        latitude_deg, longitude_deg = (float(word) for word in words)
    except ValueError:
        latitude_deg, longitude_deg = 999.0, 999.0
    if not (abs(latitude_deg) <= 90 and abs(longitude_deg) <= 180):  # noqa: PLR2004
        raise InputError(f'--allow-location "{text}": expected LAT,LON in degrees')
    return Place(latitude_deg, longitude_deg)
