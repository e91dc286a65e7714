"""`python -m skyhop_testbed.agent.prediction < ORDER`: run the prediction models, line by line.

It is a separate process, so that an agent without models loads neither numpy nor polars. The first
line of its input is the order; the answer says whether the models are loaded. Each further line
holds samples of telemetry and the known fields of the seconds ahead; the answer is the prediction
at the newest sample. The process ends at the end of its input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection

from skyhop.errors import InputError, RunError
from skyhop.predict.live import SKY, Live
from skyhop.predict.model import load_model
from skyhop.predict.windows import LOOK_BACK_S, SECOND_NS
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed.agent.predicting import ModelOrder, PredictionAnswer, PredictionRequest

_SKY: dict[str, Collection[str]] = {
    "nothing": (), "grid": ("handover_in_s",), "satellites": tuple(SKY)
}  # fmt: skip
"""Telemetry fields known for the seconds ahead, by the node's source of orbits."""


def load_models(order: ModelOrder) -> list[Live]:
    """Load the models of an order, and run each once, as a model's first prediction is slow.

    Raises:
        InputError: a model is missing, damaged, or needs other fields than telemetry has; or two
            models predict the same field.
        RunError: a model cannot be read.
    """
    found: dict[str, Live] = {}
    for name in order["models"]:
        live = _load(name, order)
        if live.field in found:
            raise InputError(f"{name}: two models of {live.field}: give one")
        _load(name, order).add(_WARM_UP)
        found[live.field] = live
    return list(found.values())


_WARM_UP: list[Sample] = [
    {TIME: at * SECOND_NS, "pop_ping_latency_ms": 30.0, "downlink_throughput_bps": 1e6,
     "uplink_throughput_bps": 1e6} for at in range(1, LOOK_BACK_S + 1)
]  # fmt: skip


def _load(name: str, order: ModelOrder) -> Live:
    return Live(load_model(name), order["horizon_s"], _SKY[order["sky"]])


def answer(models: list[Live], request: PredictionRequest) -> PredictionAnswer:
    """Return the predictions at the newest sample of a request, and that sample's time in ns."""
    for live in models:
        live.add(request["samples"])
    predicted = {live.field: live.predict(request["ahead"][: live.horizon_s]) for live in models}
    newest_ns = max(time_of(sample) for sample in request["samples"])
    return {"at_ns": newest_ns, "predicted": {n: v for n, v in predicted.items() if v is not None}}


def main(read: Callable[[], str], say: Callable[[str], object]) -> None:
    """Answer each line of the input until the input ends."""
    order = json.loads(read())
    try:
        models = load_models(order)
    except (InputError, RunError) as error:
        say(json.dumps({"error": str(error), "is_input": isinstance(error, InputError)}))
        return
    say(json.dumps({"ahead_s": max(live.horizon_s for live in models)}))
    while line := read():
        say(json.dumps(answer(models, json.loads(line)), allow_nan=False))


if __name__ == "__main__":
    main(sys.stdin.readline, lambda line: print(line, flush=True))
