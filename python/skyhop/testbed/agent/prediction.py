"""`python -m skyhop.testbed.agent.prediction < ORDER`: what is foretold, second by second.

A process of its own for as long as the agent lives, so that an agent without models needs the
memory of neither arrays nor frames. The first line that it reads is the order, and what it answers
says whether the models can be asked; each further line brings samples of telemetry and what is
known of the seconds to come, and is answered by what is foretold at the newest. It ends with its
input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from skyhop.errors import InputError, RunError
from skyhop.predict.live import SKY, Live
from skyhop.predict.model import load_model
from skyhop.predict.windows import LOOK_BACK_S, SECOND_NS
from skyhop.telemetry.fields import TIME, Sample

_SKY: dict[str, Collection[str]] = {
    "nothing": (), "grid": ("handover_in_s",), "satellites": tuple(SKY)
}  # fmt: skip
"""What is known of seconds to come, by what a node looks at."""


def opened(order: Mapping[str, Any]) -> list[Live]:
    """Return the models of an order, each asked once: what is slow the first time is over then.

    Args:
        order: `models`, `horizon_s` (None is each one's shortest) and `sky`, of `_SKY`.

    Raises:
        InputError: one is none, is damaged, or cannot be asked with telemetry; or two predict the
            same.
        RunError: one cannot be read.
    """
    found: dict[str, Live] = {}
    for name in order["models"]:
        live = _loaded(name, order)
        if live.field in found:
            raise InputError(f"{name}: two models of {live.field}: give one")
        _loaded(name, order).take(_MADE_UP)
        found[live.field] = live
    return list(found.values())


_MADE_UP: list[Sample] = [
    {TIME: at * SECOND_NS, "pop_ping_latency_ms": 30.0, "downlink_throughput_bps": 1e6,
     "uplink_throughput_bps": 1e6} for at in range(1, LOOK_BACK_S + 1)
]  # fmt: skip


def _loaded(name: str, order: Mapping[str, Any]) -> Live:
    return Live(load_model(name), order["horizon_s"], _SKY[order["sky"]])


def answer(models: list[Live], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is foretold once a line has been taken, and of which second it is the end."""
    for live in models:
        live.take(told["samples"])
    foretold = {live.field: live.predict(told["ahead"][: live.horizon_s]) for live in models}
    newest_ns = max(sample[TIME] for sample in told["samples"])
    return {"at_ns": newest_ns, "foretold": {n: v for n, v in foretold.items() if v is not None}}


def main(read: Callable[[], str], say: Callable[[str], object]) -> None:
    """Answer lines until there are none."""
    order = json.loads(read())
    try:
        models = opened(order)
    except (InputError, RunError) as error:
        say(json.dumps({"error": str(error), "is_input": isinstance(error, InputError)}))
        return
    say(json.dumps({"ahead_s": max(live.horizon_s for live in models)}))
    while line := read():
        say(json.dumps(answer(models, json.loads(line)), allow_nan=False))


if __name__ == "__main__":
    main(sys.stdin.readline, lambda line: print(line, flush=True))
