"""Base model of the tables of a study file, and the types of their keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from skyhop.data.quantities import DURATION, MOMENT, SIZE, seconds


def _above_zero(duration: str, key: ValidationInfo) -> str:
    if seconds(duration) <= 0:
        raise ValueError(f"expected `{key.field_name}` above 0 s")
    return duration


Value: TypeAlias = bool | int | float | str
Setting: TypeAlias = Value | list[Value] | dict[str, Any] | list[dict[str, Any]]
"""Value of a scenario key; a table or list given here replaces the scenario's whole one."""
Choice: TypeAlias = dict[str, Value | list[Value]]
"""Selection of runs: names of axes, `seed` or `flow`, each with the value or values to select."""
Duration = Annotated[str, Field(pattern=DURATION)]
Length = Annotated[Duration, AfterValidator(_above_zero)]
"""Duration above 0 s."""
Moment = Annotated[str, Field(pattern=MOMENT)]
"""Time in a run or flow: "20 s" after its start, "-1 s" before its end, "75 %" of its length."""
Size = Annotated[str, Field(pattern=SIZE)]

Series: TypeAlias = Literal[
    "goodput", "cwnd", "srtt", "ack_rtt", "throughput", "retransmit_share", "laser_load"
]
"""Sampled quantity of a flow.

goodput: payload that arrived in order, in Mbit/s. cwnd: congestion window in packets. srtt:
smoothed RTT in ms. ack_rtt: time in ms from the first transmission of the segment with which an
acknowledgement ends until it arrives, mean over the acknowledgements of a sample. throughput: rate
in Mbit/s at which the link of [path] delivered packets of all flows, headers included, in the
direction of this flow. retransmit_share: packets that the flow retransmitted, in % of the packets
that this link delivered (counted as full-sized packets). laser_load: in runs over a network,
utilisation in % of the busiest laser on the route of the flow's data.
"""
Spread: TypeAlias = Literal["interval", "sd", "pooled", "none"]
"""Measure of spread that is shown next to means over runs.

interval: 95 % confidence interval of the mean. sd: standard deviation over runs (n - 1). pooled:
mean and standard deviation over the bins of all runs together, for metrics with `pool = true`.
none: no spread.
"""


class StrictModel(BaseModel):
    """Base model: unknown keys and infinite numbers are errors."""

    # The docstring of each key becomes its description in the JSON Schema and in the reference.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
