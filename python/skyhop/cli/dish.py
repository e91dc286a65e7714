"""`skyhop dish`: read a satellite terminal on this network, or emulate one."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.options import group
from skyhop.cli.stopping import stop_on_signals
from skyhop.cli.terminal import print_note, print_rows, shown_text

if TYPE_CHECKING:
    from skyhop.dish.client import Dish
    from skyhop.dish.emulate.device import Place
    from skyhop.dish.emulate.feed import AnswerSource
    from skyhop.dish.emulate.measuring import Prober
    from skyhop.dish.emulate.path_feed import Obstacle
    from skyhop.dish.readings import ObstructionMap, Outage
    from skyhop.telemetry.fields import Sample, Value

app = group(
    "Read a satellite terminal on this network, or emulate one.\n\n"
    "Example: skyhop dish watch --json"
)

_ADDRESS = "192.168.100.1:9200"
_SECOND_NS = 10**9
_HISTORY_S = 300
"""Interval in s at which a recording reads the history; it fills gaps and has the power."""
_LONG_S = 3600
_SHOWN_OUTAGES = 10
_MAP_COLUMNS, _MAP_ROWS = 61, 31

Address = Annotated[
    str, typer.Option("--address", metavar="HOST[:PORT]", help="Address of the terminal.")
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="S", min=0.1, max=60, help="Time limit of each request."),
]
Recording = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Recorded answer (grpcurl's JSON) to read instead of a terminal.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(
    address: Address = _ADDRESS,
    timeout: Timeout = 5.0,
    file: Recording = None,
    as_json: AsJson = False,
) -> None:
    """Print the current status of a terminal.

    Example: skyhop dish status --address 127.0.0.1:9200
    """
    from skyhop.dish.readings import sample_of

    location: dict[str, Value] | None = None
    if file is not None:
        from skyhop.dish.messages import read_status

        message: Any = read_status(file)
        # A recorded status has no timestamp.
        sample = {name: v for name, v in sample_of(message, 0).items() if name != "time_ns"}
    else:
        with _dish(address, timeout) as dish:
            message = dish.status()
            sample = sample_of(message, time.time_ns())
            place = dish.location()
        location = None if place is None else dict(vars(place))
    about: dict[str, Value] = {
        name: getattr(message.device_info, name)
        for name in ("id", "hardware_version", "software_version")
    }
    if as_json:
        print(json.dumps({**about, **sample, "location": location}, indent=2))
        return
    _print_status({**about, **sample}, is_file=file is not None, location=location)


@app.command()
def history(
    address: Address = _ADDRESS,
    timeout: Timeout = 5.0,
    file: Recording = None,
    as_json: AsJson = False,
) -> None:
    """Print statistics over the seconds in a terminal's history, and the terminal's outages.

    --json prints every second. A recorded answer has no time: time_ns of its newest second is 0.

    Example: skyhop dish history --json
    """
    from skyhop.dish.readings import Follower, events_of, outages_of, ring_length, rows_of

    if file is not None:
        from skyhop.dish.messages import read_history

        message: Any = read_history(file)
        rows = rows_of(message, 0)
    else:
        with _dish(address, timeout) as dish:
            message = dish.history()
        rows = Follower().join(message, time.time_ns()).rows
    outages = outages_of(message)
    if as_json:
        print(
            json.dumps(
                {
                    "current": message.current,
                    "ring": ring_length(message),
                    "seconds": rows,
                    "outages": [vars(one) for one in outages],
                    "events": [vars(one) for one in events_of(message)],
                },
            )
        )
        return
    print(
        f"{message.current:,} s since its start, {len(rows)} of them remembered, "
        f"{len(outages)} outages"
    )
    print_rows(_figures(rows), as_json=False)
    _print_outages(outages)


@app.command("map")
def map_(
    address: Address = _ADDRESS,
    timeout: Timeout = 5.0,
    file: Recording = None,
    status_file: Annotated[
        Path | None,
        typer.Option(
            "--status-file",
            metavar="FILE",
            help="With --file: recorded status, for the terminal's boresight.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Draw the map: PNG, SVG or PDF."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print or draw the obstruction map of a terminal.

    Example: skyhop dish map -o sky.png
    """
    if output is not None:
        from skyhop.data.figure_files import figure_kind

        figure_kind(output)
    if file is not None:
        from skyhop.dish.messages import read_obstruction_map

        seen = read_obstruction_map(file, status_file)
    else:
        with _dish(address, timeout) as dish:
            seen = dish.obstruction_map()
    if output is not None:
        from skyhop.figures.obstruction import draw_obstruction
        from skyhop.figures.style import save

        save(draw_obstruction(seen, _map_title(seen)), output)
    if as_json:
        print(json.dumps(_map_of(seen)))
    elif output is not None:
        print(f"{output}: {_map_title(seen)}")
    else:
        print(_map_title(seen))
        print("\n".join(_map_lines(seen)))


@app.command()
def watch(
    address: Address = _ADDRESS,
    timeout: Timeout = 5.0,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory to store the samples in, a Parquet file per day."
        ),
    ] = None,
    node: Annotated[
        str, typer.Option(metavar="NAME", help="With --record: the name of the terminal's node.")
    ] = "dish",
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N seconds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the status of a terminal once per second, until Ctrl-C.

    A recording also has the earlier seconds in the terminal's history. If the terminal does not
    answer for a while, the gap is filled from its history afterwards.

    Example: skyhop dish watch --record telemetry --node bcn-1
    """
    stop_on_signals()
    with _dish(address, timeout) as dish:
        recorder = None if record is None else _Recorder(record, node, dish)
        try:
            # Ctrl-C is the normal end.
            with suppress(KeyboardInterrupt):
                for second in _seconds(count):
                    sample = _sample_or_none(dish, second)
                    if sample is None:
                        continue
                    if recorder is not None:
                        recorder.add(sample, second)
                    print(json.dumps(sample) if as_json else _line(sample), flush=True)
        finally:
            if recorder is not None:
                recorder.close()


@app.command()
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
    """Emulate a terminal until Ctrl-C, for programs that read terminals.

    Example: skyhop dish emulate --path sd-ny.parquet --listen 127.0.0.1:9200

    Example: skyhop dish emulate --interface eth0 --probe 100.64.0.1
    """
    from skyhop.dish.emulate.device import Device
    from skyhop.dish.emulate.server import Server, scaled_clock
    from skyhop.errors import InputError

    files = {"--history": history_file, "--map": map_file}
    _check_sources(
        {"--json": status_file, "--path": path_file, "--run": run, "--interface": interface},
        {**files, "--probe": probe, "--obstruct": obstruct},
        {**dict.fromkeys(files, "--json"), "--probe": "--interface", "--obstruct": "--path"},
    )
    place = None if allow_location is None else _place(allow_location)
    _check_listen(listen)
    stop_on_signals()
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
    try:
        with Server(Device(source, place), listen, scaled_clock(speed, begin_ns)) as server:
            print(f"a terminal listens at {server.address}; Ctrl-C ends it", flush=True)
            while True:
                time.sleep(_LONG_S)
    except KeyboardInterrupt:
        # Ctrl-C is the normal end.
        return
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


def _dish(address: str, timeout_s: float) -> Dish:
    from skyhop.dish.client import Dish

    return Dish(address, timeout_s)


def _recorded(
    status_file: Path, history_file: Path | None, map_file: Path | None, begin_ns: int
) -> AnswerSource:
    from skyhop.dish.emulate.recorded import RecordedAnswers
    from skyhop.dish.messages import read_history, read_map, read_status

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
    from skyhop.dish.emulate.feed import Feed
    from skyhop.dish.emulate.terminal import Terminal
    from skyhop.dish.sky import Frame
    from skyhop.errors import InputError

    if frame not in list(Frame):
        raise InputError(f'--frame "{frame}": expected {" or ".join(Frame)}')
    feed: Feed
    if path_file is not None:
        from skyhop.data.paths import read_path
        from skyhop.dish.emulate.path_feed import PathFeed

        feed = PathFeed(read_path(path_file), seed=seed, obstacles=obstacles)
    else:
        from skyhop.dish.emulate.run_feed import RunFeed
        from skyhop.runs import Run

        assert run is not None, "checked before"
        feed = RunFeed(Run(run))
    return Terminal(feed, begin_ns, seed=seed, frame=Frame(frame))


def _measured(interface: str, probe: str, begin_ns: int, seed: int) -> tuple[AnswerSource, Prober]:
    """Return a terminal that measures from now on, and its prober; the caller stops the prober."""
    from skyhop.dish.emulate.measuring import Counters, Meter, Prober
    from skyhop.dish.emulate.terminal import Terminal

    started_ns = time.monotonic_ns()
    meter = Meter()
    prober = Prober(meter, probe, Counters(interface), lambda: time.monotonic_ns() - started_ns)
    prober.start()
    return Terminal(meter, begin_ns, seed=seed), prober


def _obstacles(texts: Sequence[str]) -> list[Obstacle]:
    from skyhop.dish.emulate.path_feed import Obstacle
    from skyhop.errors import InputError

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
    from skyhop.dish.emulate.device import Place
    from skyhop.errors import InputError

    words = text.split(",")
    try:
        latitude_deg, longitude_deg = (float(word) for word in words)
    except ValueError:
        latitude_deg, longitude_deg = 999.0, 999.0
    if not (abs(latitude_deg) <= 90 and abs(longitude_deg) <= 180):  # noqa: PLR2004
        raise InputError(f'--allow-location "{text}": expected LAT,LON in degrees')
    return Place(latitude_deg, longitude_deg)


def _check_listen(listen: str) -> None:
    from skyhop.errors import InputError

    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port[:9]) > 65_535:  # noqa: PLR2004
        raise InputError(f'--listen "{listen}": expected HOST:PORT')


def _print_status(
    values: dict[str, Value], *, is_file: bool, location: dict[str, Value] | None
) -> None:
    from skyhop.telemetry.fields import BY_NAME

    rows = [
        {
            "field": name.replace("_", " "),
            "value": _text(value),
            "unit": BY_NAME[name].unit if name in BY_NAME else "",
        }
        for name, value in values.items()
        if name != "time_ns"
    ]
    if not is_file:
        where = (
            "not allowed by its owner"
            if location is None
            else f"{location['latitude_deg']:.4f}, {location['longitude_deg']:.4f}"
        )
        rows.append({"field": "location", "value": where, "unit": ""})
    print_rows(rows, as_json=False)


def _text(value: Value) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"  # noqa: PLR2004
    return f"{value:,}" if isinstance(value, int) else value or "none"


def _figures(rows: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return mean, quantiles and maximum of each column over the seconds with a value."""
    columns = (
        ("pop_ping_latency_ms", "latency (ms)", 1.0),
        ("pop_ping_drop_rate", "ping loss (%)", 100.0),
        ("downlink_throughput_bps", "down (Mbit/s)", 1e-6),
        ("uplink_throughput_bps", "up (Mbit/s)", 1e-6),
        ("power_w", "power (W)", 1.0),
    )
    figures = []
    for name, title, scale in columns:
        known = sorted(float(v) * scale for row in rows if (v := row[name]) is not None)
        figures.append(
            {
                "measure": title,
                "mean": f"{sum(known) / len(known):.2f}" if known else "not known",
                **{
                    f"p{share}": f"{known[min(len(known) * share // 100, len(known) - 1)]:.2f}"
                    if known
                    else ""
                    for share in (50, 95)
                },
                "max": f"{known[-1]:.2f}" if known else "",
            }
        )
    return figures


def _print_outages(outages: Sequence[Outage]) -> None:
    if not outages:
        return
    causes = Counter(one.cause for one in outages)
    print(", ".join(f"{count} {cause}" for cause, count in causes.most_common()))
    rows = [
        {
            "began (UTC)": _utc(one.start_ns),
            "lasted (s)": round(one.duration_ns / _SECOND_NS, 2),
            "cause": one.cause,
        }
        for one in outages[-_SHOWN_OUTAGES:]
    ]
    print_rows(rows, as_json=False, title=f"the last {len(rows)}")


def _utc(time_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns / _SECOND_NS, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _map_title(seen: ObstructionMap) -> str:
    share = f", {seen.obstructed / seen.seen:.0%} obstructed" if seen.seen else ""
    return (
        f"obstruction map in the {seen.grid.frame}'s frame: {seen.seen:,} of "
        f"{len(seen.snr):,} directions seen{share}"
    )


def _map_of(seen: ObstructionMap) -> dict[str, Any]:
    return {
        "rows": seen.grid.rows,
        "columns": seen.grid.columns,
        "frame": seen.grid.frame,
        "min_elevation_deg": seen.min_elevation_deg,
        "max_theta_deg": seen.grid.max_theta_deg,
        "seen": seen.seen,
        "obstructed": seen.obstructed,
        "snr": [list(row) for row in seen.rows()],
    }


def _map_lines(seen: ObstructionMap) -> Iterator[str]:
    """Yield the map as lines of characters: # obstructed, . clear, blank never observed."""
    cells: dict[tuple[int, int], float] = {}
    for row, values in enumerate(seen.rows()):
        for column, value in enumerate(values):
            if value >= 0:
                place = row * _MAP_ROWS // seen.grid.rows, column * _MAP_COLUMNS // len(values)
                cells[place] = min(cells.get(place, 1.0), value)
    for row in range(_MAP_ROWS):
        letters = [cells.get((row, column)) for column in range(_MAP_COLUMNS)]
        yield "".join(
            " " if value is None else "#" if value < 0.5 else "."  # noqa: PLR2004
            for value in letters
        ).rstrip()


def _seconds(count: int | None) -> Iterator[int]:
    """Yield the number of each second at its start; skip seconds during which the loop was busy."""
    begin_s, second = time.monotonic(), 0
    while count is None or second < count:
        yield second
        second = max(second + 1, int(time.monotonic() - begin_s))
        if count is None or second < count:
            time.sleep(max(begin_s + second - time.monotonic(), 0))


class _Recorder:
    """Recorder of watched samples; the terminal's history fills gaps and adds the power."""

    def __init__(self, directory: Path, node: str, dish: Dish) -> None:
        self._store: Any = import_module("skyhop.telemetry.store").Store(directory)
        self._node, self._dish = node, dish

    def add(self, sample: Sample, second: int) -> None:
        rows = self._new_rows() if second % _HISTORY_S == 0 else []
        self._store.append(self._node, [*rows, sample])

    def close(self) -> None:
        self._store.append(self._node, self._new_rows())
        self._store.close()

    def _new_rows(self) -> list[Sample]:
        from skyhop.errors import RunError

        try:
            joined = self._dish.new_rows()
        except RunError:
            # The next read of the history will also return these rows.
            return []
        if joined.rebooted:
            print_note("the terminal has restarted")
        return joined.rows


def _sample_or_none(dish: Dish, second: int) -> Sample | None:
    """Return the current sample; if the terminal does not answer, print a note and return None."""
    from skyhop.errors import RunError

    try:
        return dish.sample()
    except RunError as error:
        # No answer to the first request is an error, not a gap.
        if second == 0:
            raise
        print_note(str(error))
        return None


def _line(sample: Sample) -> str:
    """Format a sample as one line."""
    latency_ms, drop_rate = sample["pop_ping_latency_ms"], sample["pop_ping_drop_rate"]
    down_bps, up_bps = sample["downlink_throughput_bps"], sample["uplink_throughput_bps"]
    words = [
        _utc(int(sample["time_ns"] or 0)),
        f"{sample['state']!s:12}",
        "   -   ms" if latency_ms is None else f"{latency_ms:7.1f} ms",
        "  -  % lost" if drop_rate is None else f"{100 * float(drop_rate):5.1f} % lost",
        "down -" if down_bps is None else f"down {float(down_bps) / 1e6:8.2f} Mbit/s",
        "up -" if up_bps is None else f"up {float(up_bps) / 1e6:7.2f} Mbit/s",
        "obstructed" if sample["currently_obstructed"] else "",
        str(sample["alerts"] or ""),
    ]
    return shown_text("  ".join(word for word in words if word).rstrip())
