"""`skyhop dish`: read a satellite terminal on this network, or emulate one."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import group
from skyhop.cli.stopping import until_signal
from skyhop.cli.terminal import print_note, print_rows, shown_text
from skyhop.errors import InputError

if TYPE_CHECKING:
    from skyhop.telemetry.fields import Sample, Value
    from skyhop.telemetry.obstruction import ObstructionMap
    from skyhop_testbed.dish.client import Dish
    from skyhop_testbed.dish.readings import Outage
    from skyhop_testbed.triggers.alarm import Alarm

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
_NODE, _COOLDOWN = "dish", "60 s"
"""Defaults of --node and --cooldown."""
_LAST_COMMAND_S = 5
"""Longest time in s for which a watch waits at its end for a command of --run."""

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
    from skyhop_testbed.dish.readings import sample_of

    location: dict[str, Value] | None = None
    if file is not None:
        from skyhop_testbed.dish.messages import read_status

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
    from skyhop_testbed.dish.readings import Follower, events_of, outages_of, ring_length, rows_of

    if file is not None:
        from skyhop_testbed.dish.messages import read_history

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
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    as_json: AsJson = False,
) -> None:
    """Print or draw the obstruction map of a terminal.

    Example: skyhop dish map -o sky.png
    """
    figure = figure_file_or_none(output, width, height, footer=footer)
    if file is not None:
        from skyhop_testbed.dish.messages import read_obstruction_map

        seen = read_obstruction_map(file, status_file)
    else:
        with _dish(address, timeout) as dish:
            seen = dish.obstruction_map()
    if figure is not None:
        from skyhop.figures.obstruction import draw_obstruction

        figure.write(partial(draw_obstruction, seen, _map_title(seen)))
    if as_json:
        print(json.dumps(_map_of(seen)))
        return
    print(_map_title(seen))
    if figure is None:
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
        str | None,
        typer.Option(
            metavar="NAME", help="With --record: the name of the terminal's node (default: dish)."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N seconds.")
    ] = None,
    when: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="With --run: the condition, in the language of the testbed's triggers.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="With --when: the command that the shell runs when the condition becomes true.",
        ),
    ] = None,
    cooldown: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="With --run: shortest time between two commands (default: 60 s)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the status of a terminal once per second, until Ctrl-C or SIGTERM.

    A recording also has the earlier seconds in the terminal's history. If the terminal does not
    answer for a while, the gap is filled from its history afterwards.

    With --when and --run, the shell runs a command when a condition becomes true, for example
    --when 'state != "CONNECTED"'. The variables DISH_STATE, DISH_POP_PING_LATENCY_MS, … contain the
    fields of the status. While the terminal does not answer, state is DISH_UNREACHABLE.

    Example: skyhop dish watch --when 'pop_ping_latency_ms > 100' --run 'echo $DISH_STATE'
    """
    alarm = _alarm(when, run, cooldown)
    if node is not None and record is None:
        raise InputError("--node names the node of a recording: give --record DIR too")
    with until_signal(), _dish(address, timeout) as dish:
        recorder = None if record is None else _Recorder(record, node or _NODE, dish)
        try:
            for second in _seconds(count):
                sample = _sample_or_none(dish, second)
                if sample is None:
                    if alarm is not None:
                        alarm.add_unanswered(time.time_ns())
                    continue
                if recorder is not None:
                    recorder.add(sample, second)
                print(json.dumps(sample) if as_json else _line(sample), flush=True)
                if alarm is not None:
                    alarm.add(sample)
        finally:
            if recorder is not None:
                recorder.close()
            if alarm is not None:
                _wait_for_command(alarm)


@app.command()
def serve(
    address: Address = _ADDRESS,
    # A scrape makes three requests, and Prometheus waits no longer than its interval, 5 s in the
    # documentation: it would not get the answer that the terminal is not up.
    timeout: Timeout = 1.5,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Listening address; port 0: any free port.")
    ] = "127.0.0.1:9817",
) -> None:
    """Serve a terminal's metrics for Prometheus over HTTP, until Ctrl-C or SIGTERM.

    Each scrape asks the terminal. If the terminal does not answer, starlink_dish_up is 0.

    Example: skyhop dish serve --listen 127.0.0.1:9817
    """
    from skyhop_testbed.addresses import listening_address
    from skyhop_testbed.dish.metrics_server import start_server

    host, port = listening_address("--listen", listen)
    with until_signal(), _dish(address, timeout) as dish:
        server = start_server(dish, host, port)
        shown = f"[{host}]" if ":" in host else host
        print(f"serving metrics at http://{shown}:{server.server_port}/metrics", flush=True)
        try:
            # A signal that another thread receives does not end a sleep.
            while True:
                time.sleep(0.5)
        finally:
            server.shutdown()


def _alarm(when: str | None, run: str | None, cooldown: str | None) -> Alarm | None:
    """Return the alarm of --when and --run, or None without them."""
    from skyhop.data.quantities import seconds_or_none

    if when is None and run is None:
        if cooldown is not None:
            raise InputError("--cooldown is for --when and --run: give both too")
        return None
    if when is None or run is None:
        missing = "--when EXPR" if when is None else "--run CMD"
        raise InputError(f"--when and --run belong together: give {missing} too")
    if not run.strip():
        raise InputError("--run: is empty: give a command")
    cooldown = _COOLDOWN if cooldown is None else cooldown
    cooldown_s = seconds_or_none(cooldown)
    if cooldown_s is None:
        raise InputError(f'--cooldown "{cooldown}": expected a time, such as "60 s"')
    from skyhop_testbed.triggers.alarm import Alarm, ShellCommand

    return Alarm(when, cooldown_s, lambda extra: ShellCommand(run, extra), print_note)


def _wait_for_command(alarm: Alarm) -> None:
    """Wait a short time for a running command, to report its failure."""
    end_s = time.monotonic() + _LAST_COMMAND_S
    while alarm.is_running:
        if time.monotonic() > end_s:
            print_note("--run: the command still runs; it goes on without this command")
            return
        time.sleep(0.05)


def _dish(address: str, timeout_s: float) -> Dish:
    from skyhop_testbed.dish.client import Dish

    return Dish(address, timeout_s)


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


def _figures(rows: Sequence[Sample]) -> list[dict[str, str]]:
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


def _map_of(seen: ObstructionMap) -> dict[str, object]:
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
    """Yield the number of each second of UTC in its middle, the first at once.

    Seconds during which the loop was busy are skipped.
    """
    begin_s, second = time.monotonic() - time.time() % 1 + 0.5, 0
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
