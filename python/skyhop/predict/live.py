"""Predictions while telemetry comes in: what the testbed's agent asks, second by second.

A second becomes what it is in the frame that models are trained on, by the same functions, and its
window is the same. What orbits say of the seconds ahead comes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from skyhop.errors import InputError
from skyhop.predict.frame import DISH, MEASURED, OBSTRUCTION
from skyhop.predict.model import Model
from skyhop.predict.sources import Options, fields_of_telemetry, seconds_of_telemetry
from skyhop.predict.windows import (
    LOOK_BACK_S,
    OF_CLOCK,
    SECOND_NS,
    Target,
    Windows,
    windows_of,
)
from skyhop.telemetry.columns import brought_together, checked, table_of, time_of
from skyhop.telemetry.fields import TIME, Sample

FIELDS: dict[Target, str] = {
    "latency": "predicted_latency_ms",
    "throughput": "predicted_throughput_bps",
}
"""Of telemetry, by what a model predicts."""
SKY = {
    "sat_count": "sat_count",
    "sat_dist_min": "sat_dist_min",
    "sat_dist_mean": "sat_dist_mean",
    "sat_dist_max": "sat_dist_max",
    "serving_elevation": "serving_el",
    "handover_in_s": "serving_changes_in_s",
}
"""Fields of telemetry that are known of seconds to come, and the frame's columns that they are."""
_TOLD = (*MEASURED, *DISH, *OBSTRUCTION, *OF_CLOCK)


class Live:
    """A model that is asked as telemetry comes in.

    Args:
        model: of latency or throughput.
        horizon_s: how far ahead; the shortest that it has where not given.
        sky: which fields of `SKY` come with the seconds ahead.

    Raises:
        InputError: it has no such horizon, is given what telemetry does not tell, or is damaged.
        RunError: it cannot be read.

    Attributes:
        horizon_s: how far ahead.
        field: of telemetry, what it predicts.
    """

    def __init__(
        self, model: Model, horizon_s: int | None = None, sky: Collection[str] = ()
    ) -> None:
        card = model.card
        self._model = model
        self.horizon_s = horizon_s or model.horizons[0]
        self.field = FIELDS[card.target]
        self._options = Options(card.direction, card.per_second)
        self._samples: list[Sample] = []
        self._check(sky)
        # A file that is damaged is found out before it is needed.
        model.load(self.horizon_s)

    def _check(self, sky: Collection[str]) -> None:
        model = self._model
        if self.horizon_s not in model.horizons:
            raise InputError(
                f"{model.directory}: the model has no horizon of {self.horizon_s} s; it has "
                f"{', '.join(map(str, model.horizons))}"
            )
        given = (*model.features.past, *model.features.beside)
        lacking = [name for name in given if name not in (*_TOLD, *SKY.values())]
        if lacking:
            raise InputError(
                f"{model.directory}: the model is given {', '.join(lacking[:5])}"
                f"{' and others' if len(lacking) > 5 else ''}, which telemetry does not tell: "  # noqa: PLR2004
                "train one on a directory of telemetry"
            )
        unknown = [name for field, name in SKY.items() if name in given and field not in sky]
        if unknown:
            raise InputError(
                f"{model.directory}: the model is given {', '.join(unknown)}: say with [orbit] "
                "where satellites are known from"
            )

    def take(self, samples: Sequence[Sample]) -> None:
        """Take what has come in, in any order; a time that is there already is complemented.

        Raises:
            InputError: a sample cannot be.
        """
        self._samples += map(checked, samples)
        newest_ns = max(map(time_of, self._samples), default=0)
        from_ns = newest_ns // SECOND_NS * SECOND_NS - (LOOK_BACK_S - 1) * SECOND_NS
        self._samples = [each for each in self._samples if time_of(each) >= from_ns]

    def window(self, ahead: Sequence[Sample] = ()) -> Windows:
        """Return the window of the newest second; none where seconds before it are not known.

        Args:
            ahead: what is known of the seconds to come, `SKY` and their times.
        """
        import polars as pl

        fields = fields_of_telemetry(self._options)
        newest_ns = max(map(time_of, self._samples), default=0) // SECOND_NS * SECOND_NS
        to_come: list[Sample] = [
            {TIME: time_of(each), **{name: each.get(name) for name in SKY}}
            for each in ahead
            if time_of(each) // SECOND_NS * SECOND_NS > newest_ns
        ]
        rows = brought_together([table_of([*self._samples, *map(checked, to_come)], fields)])
        table = pl.DataFrame(pl.from_arrow(rows)).select(pl.lit("node").alias("node"), pl.all())
        frame = seconds_of_telemetry(table, self._options)
        found = windows_of(frame, self._model.features, self.horizon_s, with_unknown=True)
        return found.chosen(found.end_ns == newest_ns + self.horizon_s * SECOND_NS)

    def predict(self, ahead: Sequence[Sample] = ()) -> float | None:
        """Return what is foretold of the second that ends `horizon_s` after the newest.

        None where one of the 30 seconds before is not known.

        Args:
            ahead: what is known of the seconds to come, `SKY` and their times.
        """
        if not self._samples:
            return None
        window = self.window(ahead)
        return float(self._model.predict(window)[0]) if len(window) else None
