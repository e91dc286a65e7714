"""Predictions while telemetry arrives, second by second, for the testbed's agent.

The functions that training uses convert telemetry to the frame and the windows, so that a model
gets the same features. Features that orbits determine are in the samples of future seconds, which
the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from skyhop.errors import InputError
from skyhop.predict.frame import DISH, MEASURED, OBSTRUCTION
from skyhop.predict.model import Model
from skyhop.predict.sources import Options, fields_of_telemetry, seconds_of_telemetry
from skyhop.predict.windows import (
    CLOCK_FEATURES,
    LOOK_BACK_S,
    SECOND_NS,
    Target,
    Windows,
    windows_of,
)
from skyhop.telemetry.columns import checked, merge_by_time, table_of, time_of
from skyhop.telemetry.fields import TIME, Sample

FIELDS: dict[Target, str] = {
    "latency": "predicted_latency_ms",
    "throughput": "predicted_throughput_bps",
}
"""Fields of telemetry that hold predictions, by target."""
SKY = {
    "sat_count": "sat_count",
    "sat_dist_min": "sat_dist_min",
    "sat_dist_mean": "sat_dist_mean",
    "sat_dist_max": "sat_dist_max",
    "serving_elevation": "serving_el",
    "handover_in_s": "serving_changes_in_s",
}
"""Fields of telemetry that orbits determine for future seconds, with their columns of the frame."""
_FROM_TELEMETRY = (*MEASURED, *DISH, *OBSTRUCTION, *CLOCK_FEATURES)


class Live:
    """Model that predicts while telemetry arrives.

    Args:
        model: a model of latency or throughput.
        horizon_s: horizon in s; by default the model's shortest.
        sky: fields of `SKY` that are known for future seconds.

    Raises:
        InputError: the model has no such horizon, needs features that telemetry does not have, or
            is damaged.
        RunError: the model cannot be read.

    Attributes:
        horizon_s: the horizon in seconds.
        field: field of telemetry for the predictions.
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
        # Load the file now, so that a damaged file is reported at once.
        model.load(self.horizon_s)

    def _check(self, sky: Collection[str]) -> None:
        model = self._model
        if self.horizon_s not in model.horizons:
            raise InputError(
                f"{model.directory}: the model has no horizon of {self.horizon_s} s; it has "
                f"{', '.join(map(str, model.horizons))}"
            )
        given = (*model.features.past, *model.features.covariates)
        lacking = [name for name in given if name not in (*_FROM_TELEMETRY, *SKY.values())]
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

    def add(self, samples: Sequence[Sample]) -> None:
        """Add new samples, in any order; samples of the same time are merged.

        Raises:
            InputError: a sample is not valid.
        """
        self._samples += map(checked, samples)
        newest_ns = max(map(time_of, self._samples), default=0)
        from_ns = newest_ns // SECOND_NS * SECOND_NS - (LOOK_BACK_S - 1) * SECOND_NS
        self._samples = [each for each in self._samples if time_of(each) >= from_ns]

    def window(self, ahead: Sequence[Sample] = ()) -> Windows:
        """Return the window of the newest second; empty if one of its last 30 seconds is unknown.

        Args:
            ahead: samples of future seconds, with their times and fields of `SKY`.
        """
        import polars as pl

        fields = fields_of_telemetry(self._options)
        newest_ns = max(map(time_of, self._samples), default=0) // SECOND_NS * SECOND_NS
        future: list[Sample] = [
            {TIME: time_of(each), **{name: each.get(name) for name in SKY}}
            for each in ahead
            if time_of(each) // SECOND_NS * SECOND_NS > newest_ns
        ]
        rows = merge_by_time([table_of([*self._samples, *map(checked, future)], fields)])
        table = rows.select(pl.lit("node").alias("node"), pl.all())
        frame = seconds_of_telemetry(table, self._options)
        found = windows_of(frame, self._model.features, self.horizon_s, with_unknown=True)
        return found.select(found.end_ns == newest_ns + self.horizon_s * SECOND_NS)

    def predict(self, ahead: Sequence[Sample] = ()) -> float | None:
        """Return the prediction for the second that ends `horizon_s` after the newest one.

        The result is None if one of the last 30 seconds is unknown.

        Args:
            ahead: samples of future seconds, with their times and fields of `SKY`.
        """
        if not self._samples:
            return None
        window = self.window(ahead)
        return float(self._model.predict(window)[0]) if len(window) else None
