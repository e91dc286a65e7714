"""Measurements of host and terminal, each second: rates, telemetry, and whether runs give way.

Satellites and weather come from `surroundings`.

Total traffic comes from an interface's counters, or, if the owner names no interface, from the
terminal's throughput. Traffic of runs and of the agent is counted per TCP socket in the host's
network namespace, with headers estimated, and per device in network namespaces of runs. UDP traffic
of runs in the host's namespace is not counted: it looks like the host's own traffic, and so stops
these runs. Runs with many short connections may be stopped for the same reason, as the bytes of a
connection after its last reading are missing.
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
from skyhop.telemetry.columns import checked, time_of
from skyhop.telemetry.fields import BY_NAME, TIME, Sample
from skyhop_testbed.clock import Clock
from skyhop_testbed.dish.collector import Collector
from skyhop_testbed.executor.sandbox import descendant_pids
from skyhop_testbed.executor.traffic import (
    SocketCounters,
    Traffic,
    device_counters,
    namespace_traffic,
)
from skyhop_testbed.scavenger import Counters, Decision, Meter, Rates, Rule, Scavenger
from skyhop_testbed.words import Network

_S = 1_000_000_000
_HEADER_BYTES = 66
"""Header bytes of a segment, as a device counts them: Ethernet 14, IPv4 20, TCP with timestamps 32.
"""
_HOST_SLACK = 0.1
"""Minimum slack of the scavenger's rule while runs use the host's network namespace: sockets and
devices are not read at the same moment, and sockets do not count the segments on the wire."""
_LARGEST_FILE = 100_000


@dataclass(frozen=True)
class CountedRun:
    """Run whose traffic is counted."""

    key: str
    pid: int
    """Process id of the run's executor."""
    network: str


class Host:
    """Traffic counters of the host, and the scavenger's decision based on them.

    Args:
        interface: device whose counters are the link's traffic; `None` uses the terminal's
            throughput.
        net_dev: file with the counters.
        clock: time and waiting.
    """

    def __init__(
        self, interface: str | None, net_dev: Path = Path("/proc/net/dev"), *, clock: Clock
    ) -> None:
        self._interface, self._net_dev, self._clock = interface, net_dev, clock
        self._meter, self._scavenger = Meter(), Scavenger()
        self._own, self._of_runs = SocketCounters(_HEADER_BYTES), SocketCounters(_HEADER_BYTES)
        self._of_devices: dict[str, Traffic] = {}
        self._counted: set[str] = set()
        self.decision: Decision | None = None
        self.rates: Rates | None = None

    @property
    def is_active(self) -> bool:
        """Whether runs must give way to the host's traffic now."""
        return self.decision is not None and self.decision.active

    def measure(
        self, now_ns: int, runs: Sequence[CountedRun], rule: Rule, sample: Sample | None
    ) -> Decision:
        """Read the counters, and decide whether runs must give way to the host's traffic.

        Args:
            now_ns: the time.
            runs: the runs with a living executor.
            rule: the owner's rule.
            sample: the terminal's newest sample; `None` if it is outdated.
        """
        in_host = any(run.network == Network.HOST for run in runs)
        if in_host:
            rule = replace(rule, slack=max(rule.slack, _HOST_SLACK))
        if rule != self._scavenger.rule:
            self._scavenger.change(rule)
        total = self._totals()
        moved, own = self._runs(runs), self._own.read([os.getpid()])
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
            # A run has ended, and its traffic since the previous reading was not counted.
            rates = replace(rates, runs_rx_bps=None, runs_tx_bps=None)
        self._counted, self.rates = keys, rates
        self.decision = self._scavenger.update(now_ns, self.rates)
        return self.decision

    def values(self) -> Sample:
        """Return the host's telemetry fields of the last second."""
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
        """Return the rates, with the terminal's totals if no interface counts total traffic."""
        if rates is None or self._interface is not None:
            return rates
        down, up = (
            (sample or {}).get(f"{way}link_throughput_bps") for way in ("down", "up")
        )  # fmt: skip
        return replace(rates, total_rx_bps=_number(down), total_tx_bps=_number(up))

    def _totals(self) -> Traffic | None:
        if self._interface is None:
            return None
        return device_counters(self._net_dev, self._interface)

    def _runs(self, runs: Sequence[CountedRun]) -> Traffic:
        """Return the bytes of all runs since the agent started."""
        below = {run.pid: [run.pid, *descendant_pids([run.pid])] for run in runs}
        in_host = [pid for run in runs if run.network == Network.HOST for pid in below[run.pid]]
        total = self._of_runs.read(in_host)
        for run in runs:
            if run.network == Network.VETH:
                moved = _of_other_namespace(below[run.pid])
                before = self._of_devices.get(run.key, Traffic())
                self._of_devices[run.key] = max(before, moved, key=lambda each: each.bytes)
        return Traffic(
            total.rx_bytes + sum(moved.rx_bytes for moved in self._of_devices.values()),
            total.tx_bytes + sum(moved.tx_bytes for moved in self._of_devices.values()),
        )


def _of_other_namespace(pids: Iterable[int]) -> Traffic:
    """Return the bytes of all devices in the processes' network namespace; 0 for the host's."""
    try:
        own = Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return Traffic()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/ns/net").stat().st_ino == own:
                continue
        except OSError:
            continue
        moved = namespace_traffic(pid)
        if moved.bytes:
            return moved
    return Traffic()


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


class _NoTerminal:
    """Stand-in for the terminal on a node that has none: only the host is measured."""

    map_every_s: float | None = None

    def status(self) -> Sample:
        return {}

    def history(self) -> Sequence[Sample]:
        return ()

    def map(self) -> object:
        return None


class FileTerminal(_NoTerminal):
    """Terminal of another make, whose values some program writes into a file each second.

    The file holds one JSON object of telemetry fields; unknown fields are ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def status(self) -> Sample:
        """Return the telemetry fields in the file.

        Raises:
            RunError: the file cannot be read, or is no JSON object.
            InputError: a value has another type than its field.
        """
        try:
            with self._file.open("rb") as stream:
                values = json.loads(stream.read(_LARGEST_FILE))
            known = {name: value for name, value in values.items() if name in BY_NAME}
            return {n: v for n, v in checked({**known, TIME: 0}).items() if n != TIME}
        except (OSError, ValueError, AttributeError) as error:
            raise RunError(f"{self._file}: {error}") from None


class _StarlinkTerminal:
    """Starlink terminal, in the form that `Collector` polls."""

    map_every_s = maps.EVERY_S

    def __init__(self, address: str, clock: Clock) -> None:
        from skyhop_testbed.dish.client import Dish

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
    """Thread that polls the terminal every second and passes on its samples.

    Args:
        dish: address of a Starlink terminal.
        file: without `dish`, file with another terminal's values.
        host_fields: returns the host's fields, which are added to the newest sample.
        fields_of_second: returns a second's fields of satellites and probe, given its time in ns.
        on_samples: called with new samples, usually one per second.
        on_map: called with the content of the terminal's obstruction map when it has changed.
        say: function for log lines.
        clock: time and waiting.
    """

    def __init__(
        self,
        dish: str | None,
        file: Path | None,
        *,
        host_fields: Callable[[], Sample],
        fields_of_second: Callable[[int], Sample] = lambda _time_ns: {},
        on_samples: Callable[[Sequence[Sample]], None],
        on_map: Callable[[bytes], None] = lambda _content: None,
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        terminal = (
            _StarlinkTerminal(dish, clock)
            if dish
            else FileTerminal(file)
            if file
            else _NoTerminal()
        )
        self._host_fields, self._fields_of_second, self._on_samples, self._say = (
            host_fields,
            fields_of_second,
            on_samples,
            say,
        )
        self._on_changed_map, self._map, self._clock = on_map, b"", clock
        self._collector = Collector(
            terminal, self._deliver, on_map=self._on_map, say=lambda line: say(f"dish {line}")
        )
        self._collector.map_every_s = terminal.map_every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start the polling thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, without waiting for it."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._collector.run(self._clock.now_ns, self._sleep, self._stopped.is_set)
            except Exception as error:  # telemetry must go on after any failure.
                self._say(f"telemetry: {type(error).__name__}: {error}")
                self._clock.wait(self._stopped, 1.0)

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._stopped, seconds)

    def _on_map(self, _time_ns: int, obstruction_map: Any) -> None:
        """Pass on the terminal's obstruction map, if it has changed."""
        from skyhop.telemetry.maps import recorded_map

        content = recorded_map(obstruction_map)
        if content != self._map:
            self._on_changed_map(content)
            self._map = content

    def _deliver(self, samples: Sequence[Sample]) -> None:
        newest = max(samples, key=lambda sample: int(sample[TIME] or 0))
        whole = {**self._host_fields(), **newest}
        self._on_samples(
            [
                {**self._fields_of_second(time_of(each)), **(whole if each is newest else each)}
                for each in samples
            ]
        )
