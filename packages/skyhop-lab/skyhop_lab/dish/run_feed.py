"""Feed of an emulated terminal at the end `from` of a run; at its end, the run starts again.

Throughput is the traffic that the link "path" delivered; the downlink is the link's direction back.
Latency and loss are those of the run's probes. For a run without probes, the latency is the mean
smoothed RTT of its flows, and the loss is the share of packets that the link lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.telemetry.gps import SECOND_NS
from skyhop_lab.dish.feed import Interruption, Second
from skyhop_testbed.dish.device_pb2 import DishOutage

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data.arrays import FloatArray
    from skyhop.data.runs import Run

_PACKET_BYTES = 1500


class RunFeed:
    """Feed of the measurements of a run.

    Args:
        run: a finished run.

    Raises:
        InputError: the run has no link "path", or lasted less than a second.
    """

    lag_s = 0

    def __init__(self, run: Run) -> None:
        import numpy as np

        link = _rows(run.link, "link", "path")
        self.duration_s = int(link["t_ns"].to_numpy().max(initial=0)) // SECOND_NS
        if not self.duration_s:
            raise InputError(f'{run.directory}: has no full second of the link "path"')
        self._down_bps = self._delivered_bps(_rows(link, "direction", "back"))
        self._up_bps = self._delivered_bps(_rows(link, "direction", "forward"))
        if run.probes.height:
            self._rtt_ms, self._loss = self._probes_rtt_and_loss(run.probes)
        else:
            self._rtt_ms, self._loss = self._flows_rtt_ms(run.flows), self._link_loss(link)
        self._loss = np.clip(self._loss, 0.0, 1.0)

    def is_known(self, _index: int) -> bool:
        """Return True: every second is known at its end."""
        return True

    def second(self, index: int) -> Second:
        """Return the measurements of a second of the repeated run."""
        place = index % self.duration_s
        rtt_ms, loss = float(self._rtt_ms[place]), float(self._loss[place])
        # The RTT is NaN if the second has no measurement.
        silent = loss >= 1.0 or rtt_ms != rtt_ms  # noqa: PLR0124
        whole = Interruption(index * SECOND_NS, (index + 1) * SECOND_NS, DishOutage.NO_PINGS)
        return Second(
            drop_rate=1.0 if silent else loss,
            latency_ms=None if silent else rtt_ms,
            downlink_bps=float(self._down_bps[place]),
            uplink_bps=float(self._up_bps[place]),
            interruptions=(whole,) if silent else (),
        )

    def _delivered_bps(self, link: pl.DataFrame) -> FloatArray:
        return 8 * self._summed(link, link["delivered_bytes"].to_numpy())

    def _probes_rtt_and_loss(self, probes: pl.DataFrame) -> tuple[FloatArray, FloatArray]:
        import numpy as np

        rtt_ms = probes["rtt_ns"].cast(float).to_numpy() / 1e6
        back = ~np.isnan(rtt_ms)
        sent, answered = (
            self._summed(probes, np.ones(len(back))),
            self._summed(probes, back.astype(float)),
        )
        total_ms = self._summed(probes, np.where(back, rtt_ms, 0.0))
        return _divided(total_ms, answered), 1 - _divided(answered, sent)

    def _flows_rtt_ms(self, flows: pl.DataFrame) -> FloatArray:
        import numpy as np

        rtt_ms = flows["srtt_us"].cast(float).to_numpy() / 1e3
        known = ~np.isnan(rtt_ms) & (rtt_ms > 0)
        total_ms = self._summed(flows, np.where(known, rtt_ms, 0.0))
        return _divided(total_ms, self._summed(flows, known.astype(float)))

    def _link_loss(self, link: pl.DataFrame) -> FloatArray:
        import numpy as np
        import polars as pl

        names = [name for name in link.columns if name.startswith("drops_")]
        dropped = link.select(pl.sum_horizontal(names).cast(float)).to_series().to_numpy()
        packets = link["delivered_bytes"].to_numpy() / _PACKET_BYTES
        lost = self._summed(link, dropped)
        share = _divided(lost, lost + self._summed(link, packets))
        return np.nan_to_num(share)

    def _summed(self, table: pl.DataFrame, values: FloatArray) -> FloatArray:
        """Return the sum of values in each second; a row at the end of a second belongs to it."""
        import numpy as np

        seconds = (table["t_ns"].to_numpy() - 1).clip(0) // SECOND_NS
        inside = seconds < self.duration_s
        weights = np.asarray(values, float)[inside]
        summed = np.bincount(seconds[inside], weights=weights, minlength=self.duration_s)
        return summed.astype(np.float64)


def _rows(table: pl.DataFrame, column: str, value: str) -> pl.DataFrame:
    import polars as pl

    return table.filter(pl.col(column) == value)


def _divided(total: FloatArray, count: FloatArray) -> FloatArray:
    """Return `total` / `count` of each second; NaN where `count` is 0."""
    import numpy as np

    means = np.full(len(total), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means
