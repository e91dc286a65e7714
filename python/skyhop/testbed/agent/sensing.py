"""What host and terminal do, second by second: rates, telemetry, whether runs make room.

What is around them, satellites and weather, comes from `surroundings`.

Totals come from an interface's counters, or else from what the terminal says it moves. Runs and the
agent itself are counted by their TCP sockets in the host's network, headers reckoned, and by their
devices in namespaces of their own. UDP of runs in the host's network is not counted: it looks like
the host's own traffic, and such runs end for it; so may those with many short connections, as a
connection's bytes after the last look at it are missing.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skyhop.errors import RunError
from skyhop.telemetry import maps
from skyhop.telemetry.collector import Collector
from skyhop.telemetry.columns import checked, time_of
from skyhop.telemetry.fields import BY_NAME, TIME, Sample
from skyhop.testbed.clock import Clock
from skyhop.testbed.executor.traffic import Moved, OfSockets
from skyhop.testbed.scavenger import Counters, Decision, Meter, Rates, Rule, Scavenger
from skyhop.testbed.words import Network

_S = 1_000_000_000
_HEADER_BYTES = 66
"""Of a segment at a device: Ethernet 14, IPv4 20, TCP with time stamps 32."""
_HOST_SLACK = 0.1
"""Sockets and devices are not read at the same moment, and segments not as they are on the wire."""
_LARGEST_FILE = 100_000


@dataclass(frozen=True)
class Counted:
    """A run whose traffic is counted."""

    key: str
    pid: int
    """Of its executor."""
    network: str


class Host:
    """Counters of the host, and what follows from them.

    Args:
        interface: whose counters are the link's; `None` where the terminal says it.
        net_dev: where they stand.
        clock: what time it is.
    """

    def __init__(
        self, interface: str | None, net_dev: Path = Path("/proc/net/dev"), *, clock: Clock
    ) -> None:
        self._interface, self._net_dev, self._clock = interface, net_dev, clock
        self._meter, self._scavenger = Meter(), Scavenger()
        self._own, self._of_runs = OfSockets(_HEADER_BYTES), OfSockets(_HEADER_BYTES)
        self._of_devices: dict[str, Moved] = {}
        self._counted: set[str] = set()
        self.decision: Decision | None = None
        self.rates: Rates | None = None

    @property
    def is_active(self) -> bool:
        """Whether runs make room now."""
        return self.decision is not None and self.decision.active

    def look(
        self, now_ns: int, runs: Sequence[Counted], rule: Rule, sample: Sample | None
    ) -> Decision:
        """Count once more, and decide.

        Args:
            now_ns: the time.
            runs: whose executors live.
            rule: the owner's.
            sample: the terminal's newest; `None` where it is none of this second.
        """
        in_host = any(run.network == Network.HOST for run in runs)
        if in_host:
            rule = replace(rule, slack=max(rule.slack, _HOST_SLACK))
        if rule != self._scavenger.rule:
            self._scavenger.change(rule)
        total = self._totals()
        moved, own = self._runs(runs), self._own.look([os.getpid()])
        counters = Counters(
            None if total is None else total.rx_bytes,
            None if total is None else total.tx_bytes,
            moved.rx_bytes,
            moved.tx_bytes,
            own.rx_bytes,
            own.tx_bytes,
        )
        rates = self._with_terminal(self._meter.update(now_ns, counters), sample)
        keys = {run.key for run in runs}
        if rates is not None and self._counted - keys:
            # What a run moved between the last look and its end was not counted.
            rates = replace(rates, runs_rx_bps=None, runs_tx_bps=None)
        self._counted, self.rates = keys, rates
        self.decision = self._scavenger.update(now_ns, self.rates)
        return self.decision

    def values(self) -> Sample:
        """Return what the last second adds to telemetry."""
        hour = time.gmtime(self._clock.now_ns() / _S)
        values: Sample = {"hour": float(hour.tm_hour) + hour.tm_min / 60}
        values["node_load"] = round(os.getloadavg()[0] / (os.cpu_count() or 1), 3)
        rates = self.rates
        if rates is not None:
            if self._interface is not None:
                values["host_rx_bps"], values["host_tx_bps"] = (
                    rates.total_rx_bps,
                    rates.total_tx_bps,
                )
            values["user_rx_bps"], values["user_tx_bps"] = rates.user_rx_bps, rates.user_tx_bps
            for name, bps in (
                ("exp_rx_rate_bytes", rates.runs_rx_bps),
                ("exp_tx_rate_bytes", rates.runs_tx_bps),
            ):
                values[name] = None if bps is None else bps / 8
        return {name: value for name, value in values.items() if value is not None}

    def _with_terminal(self, rates: Rates | None, sample: Sample | None) -> Rates | None:
        """Return rates with the terminal's totals, where no interface has them."""
        if rates is None or self._interface is not None:
            return rates
        down, up = (
            (sample or {}).get(f"{way}link_throughput_bps") for way in ("down", "up")
        )  # fmt: skip
        return replace(rates, total_rx_bps=_number(down), total_tx_bps=_number(up))

    def _totals(self) -> Moved | None:
        if self._interface is None:
            return None
        return device_counters(self._net_dev, {self._interface})

    def _runs(self, runs: Sequence[Counted]) -> Moved:
        """Return what all runs have moved since the agent began."""
        below = descendants(run.pid for run in runs) if runs else {}
        in_host = [
            pid for run in runs if run.network == Network.HOST for pid in below.get(run.pid, ())
        ]
        total = self._of_runs.look(in_host)
        for run in runs:
            if run.network == Network.VETH:
                moved = _of_other_namespace(below.get(run.pid, ()))
                before = self._of_devices.get(run.key, Moved())
                self._of_devices[run.key] = max(before, moved, key=lambda each: each.bytes)
        return Moved(
            total.rx_bytes + sum(moved.rx_bytes for moved in self._of_devices.values()),
            total.tx_bytes + sum(moved.tx_bytes for moved in self._of_devices.values()),
        )


def device_counters(net_dev: Path, names: set[str] | None) -> Moved | None:
    """Return what devices have moved; all but the loopback where none is named."""
    try:
        lines = net_dev.read_text("ascii").splitlines()[2:]
    except (OSError, ValueError):
        return None
    rx = tx = 0
    is_there = names is None
    for line in lines:
        name, _, counters = line.partition(":")
        if (name.strip() in names) if names is not None else name.strip() != "lo":
            numbers = counters.split()
            rx, tx, is_there = rx + int(numbers[0]), tx + int(numbers[8]), True
    return Moved(rx, tx) if is_there else None


def descendants(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return processes with all that they started, as this machine numbers them."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            words = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(words[1]), []).append(int(place.name))
        except (OSError, ValueError, IndexError):
            continue
    found: dict[int, list[int]] = {}
    for pid in pids:
        below, waiting = [], [pid]
        while waiting:
            each = waiting.pop()
            below.append(each)
            waiting += children.get(each, [])
        found[pid] = below
    return found


def _of_other_namespace(pids: Iterable[int]) -> Moved:
    """Return what the devices of a namespace that is not ours moved; nothing without one."""
    try:
        own = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return Moved()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/ns/net").stat().st_ino == own:
                continue
        except OSError:
            continue
        moved = device_counters(Path(f"/proc/{pid}/net/dev"), None)
        if moved is not None and moved.bytes:
            return moved
    return Moved()


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


class _Silent:
    """No terminal: there is the host alone."""

    map_every_s: float | None = None

    def status(self) -> Sample:
        return {}

    def history(self) -> Sequence[Sample]:
        return ()

    def map(self) -> object:
        return None


class FromFile(_Silent):
    """A terminal of another kind: a program writes what it says into a file, each second anew.

    One JSON object of telemetry's fields; others are left out.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def status(self) -> Sample:
        """Return what stands there.

        Raises:
            RunError: it cannot be read.
            InputError: a value is of another type than its field's.
        """
        try:
            with self._file.open("rb") as stream:
                values = json.loads(stream.read(_LARGEST_FILE))
            known = {name: value for name, value in values.items() if name in BY_NAME}
            return {n: v for n, v in checked({**known, TIME: 0}).items() if n != TIME}
        except (OSError, ValueError, AttributeError) as error:
            raise RunError(f"{self._file}: {error}") from None


class _OfDish:
    """A Starlink terminal, as collectors ask."""

    map_every_s = maps.EVERY_S

    def __init__(self, address: str, clock: Clock) -> None:
        from skyhop.dish.client import Dish

        self._dish = Dish(address, now_ns=clock.now_ns)

    def status(self) -> Sample:
        return self._dish.sample()

    def history(self) -> Sequence[Sample]:
        joined: Any = self._dish.new_rows()
        rows: Sequence[Sample] = joined.rows
        return rows

    def map(self) -> object:
        return self._dish.obstruction_map()


class Watch:
    """A thread that asks the terminal every second, and hands on what it says.

    Args:
        dish: a Starlink terminal's address.
        file: or where another one's values stand.
        add: returns what the host adds to the newest sample.
        above: returns what is known of a second's sky, by its time in ns.
        take: takes samples, usually one per second.
        take_map: takes the file of the terminal's obstruction map when it has changed.
        say: takes lines.
        clock: what time it is, and how to wait.
    """

    def __init__(
        self,
        dish: str | None,
        file: Path | None,
        *,
        add: Callable[[], Sample],
        above: Callable[[int], Sample] = lambda _time_ns: {},
        take: Callable[[Sequence[Sample]], None],
        take_map: Callable[[bytes], None] = lambda _content: None,
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        terminal = _OfDish(dish, clock) if dish else FromFile(file) if file else _Silent()
        self._add, self._above, self._take, self._say = add, above, take, say
        self._take_map, self._map, self._clock = take_map, b"", clock
        self._collector = Collector(
            terminal, self._deliver, on_map=self._on_map, say=lambda line: say(f"dish {line}")
        )
        self._collector.map_every_s = terminal.map_every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._collector.run(self._clock.now_ns, self._sleep, self._stopped.is_set)
            except Exception as error:  # telemetry goes on, whatever it was.
                self._say(f"telemetry: {type(error).__name__}: {error}")
                self._clock.wait(self._stopped, 1.0)

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._stopped, seconds)

    def _on_map(self, _time_ns: int, seen: Any) -> None:
        """Hand on what the terminal has seen of the sky, where that is news."""
        from skyhop.dish.messages import recorded_map

        content = recorded_map(seen)
        if content != self._map:
            self._take_map(content)
            self._map = content

    def _deliver(self, samples: Sequence[Sample]) -> None:
        newest = max(samples, key=lambda sample: int(sample[TIME] or 0))
        whole = {**self._add(), **newest}
        self._take(
            [
                {**self._above(time_of(each)), **(whole if each is newest else each)}
                for each in samples
            ]
        )
