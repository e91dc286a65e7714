"""Measurements of host and terminal, each second: rates, telemetry, and whether runs give way.

Satellites and weather come from `surroundings`.

Total traffic comes from an interface's counters, or, if the owner names no interface, from the
terminal's throughput. `own_traffic` counts what the testbed itself moves. UDP traffic of runs in
the host's namespace that no control group counts looks like the host's own traffic, and so stops
these runs. Runs with many connections of less than a second may be stopped for the same reason.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from skyhop.errors import RunError
from skyhop.telemetry import maps
from skyhop.telemetry.columns import checked, time_of
from skyhop.telemetry.fields import BY_NAME, TIME, Sample
from skyhop_testbed.agent.own_traffic import CountedRun, OwnTraffic, Reading
from skyhop_testbed.clock import Clock
from skyhop_testbed.dish.collector import Collector
from skyhop_testbed.executor.traffic import Traffic, device_counters
from skyhop_testbed.scavenger import Counters, Decision, Meter, Rates, Rule, Scavenger

_S = 1_000_000_000
_RUNS_SLACK = 0.05
"""Minimum slack of the scavenger's rule while runs are active: their headers on the wire, 4.6 % of
full segments, are known only approximately, because the kernel hands several segments to a device
as one packet."""
_LONGEST_SAMPLE_NS = 2 * _S
_TERMINAL_LAG = 2
"""Seconds by which a terminal's rate may be behind this host's counters."""
_LARGEST_FILE = 100_000


class Host:
    """Traffic counters of the host, and the scavenger's decision based on them.

    Args:
        interface: device whose counters are the link's traffic; `None` uses the terminal's
            throughput.
        net_dev: file with the counters.
        own: counters of the testbed's own traffic.
        clock: time and waiting.
    """

    def __init__(
        self,
        interface: str | None,
        net_dev: Path = Path("/proc/net/dev"),
        *,
        own: OwnTraffic | None = None,
        clock: Clock,
    ) -> None:
        self._interface, self._net_dev, self._clock = interface, net_dev, clock
        self._own = own or OwnTraffic()
        self._meter = Meter(0 if interface else _TERMINAL_LAG)
        self._scavenger = Scavenger()
        self._terminal = _TerminalTotal()
        self.decision: Decision | None = None
        self.rates: Rates | None = None
        self.agent_bytes = 0
        """Bytes of the agent's connections since it started, without those to the terminal."""

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
        reading = self._own.read(runs, self._interface_bytes)
        if reading.is_approximate:
            rule = replace(rule, slack=max(rule.slack, _RUNS_SLACK))
        if rule != self._scavenger.rule:
            self._scavenger.change(rule)
        self.agent_bytes = reading.agent.bytes
        self.rates = self._meter.update(now_ns, self._counters(reading, sample))
        self.decision = self._scavenger.update(now_ns, self.rates)
        return self.decision

    def _counters(self, reading: Reading, sample: Sample | None) -> Counters:
        runs, agent = reading.runs, reading.agent
        counters = Counters(
            total_rx=None,
            total_tx=None,
            runs_rx=runs.rx_bytes,
            runs_tx=runs.tx_bytes,
            agent_rx=agent.rx_bytes,
            agent_tx=agent.tx_bytes,
            has_lost=reading.has_lost,
        )
        if self._interface is None:
            # The agent's requests to the terminal do not pass the terminal's link.
            rx, tx = self._terminal.add(sample)
            return replace(counters, total_rx=rx, total_tx=tx)
        agent += reading.terminal
        before, after = reading.before, reading.after
        if before is None or after is None:
            return counters
        return replace(
            counters,
            total_rx=before.rx_bytes,
            total_tx=before.tx_bytes,
            agent_rx=agent.rx_bytes,
            agent_tx=agent.tx_bytes,
            later_rx=after.rx_bytes,
            later_tx=after.tx_bytes,
        )

    def _interface_bytes(self) -> Traffic | None:
        if self._interface is None:
            return None
        return device_counters(self._net_dev, self._interface)

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


class _TerminalTotal:
    """Bytes of a terminal's link: the sum of its rates over the seconds of its samples."""

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._total = Traffic()

    def add(self, sample: Sample | None) -> tuple[int | None, int | None]:
        """Return received and sent bytes up to a sample; a number is `None` if its rate is unknown.

        The numbers begin again after a time without samples.
        """
        if sample is None:
            self._last_ns = None
            return None, None
        now_ns = time_of(sample)
        last_ns = now_ns if self._last_ns is None else self._last_ns
        span_ns = min(max(0, now_ns - last_ns), _LONGEST_SAMPLE_NS)
        self._last_ns = max(now_ns, last_ns)
        rates = [_number(sample.get(f"{way}link_throughput_bps")) for way in ("down", "up")]
        self._total += Traffic(*(round((bps or 0.0) * span_ns / (8 * _S)) for bps in rates))
        rx, tx = rates
        return (
            None if rx is None else self._total.rx_bytes,
            None if tx is None else self._total.tx_bytes,
        )


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
