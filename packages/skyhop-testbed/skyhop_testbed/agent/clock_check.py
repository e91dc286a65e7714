"""Waiting for a sane clock at the agent's start.

A machine without a battery-backed clock, such as a Raspberry Pi, starts in the past until NTP has
set its clock. TLS would refuse certificates that are not valid yet, and the agent would skip a run
as late once the clock jumps.
"""

from __future__ import annotations

import datetime as dt

from skyhop_testbed.agent.node import Node
from skyhop_testbed.keys import valid_until

_S = 1_000_000_000
_SLACK_NS = 60 * _S
_EVERY_S = 1.0
_LONGEST_S = 600.0
"""Longest wait in s for a time that only the stored schedule has: the orchestrator's clock may have
been wrong.
"""


def await_clock(node: Node) -> None:
    """Wait until the clock is not before times that this node already knows to be over.

    These are the beginning of its certificate, and the time at which the orchestrator signed the
    stored schedule. The log says once what the agent waits for.
    """
    begin = valid_until(node.identity.certificate_pem)[0]
    certain_ns = round(begin.timestamp() * 1e9)
    known_ns = max(certain_ns, node.schedule.issued_ns - _SLACK_NS)
    began_s, is_said = node.clock.monotonic_s(), False
    while (now_ns := node.clock.now_ns()) < known_ns and not node.closing.is_set():
        waited_s = node.clock.monotonic_s() - began_s
        if now_ns >= certain_ns and waited_s > _LONGEST_S:
            node.say("the clock is still before the stored schedule: the agent starts nevertheless")
            return
        if not is_said:
            node.say(
                f"the clock says {_shown(now_ns)} UTC, before {_shown(known_ns)} UTC, which this "
                "node knows to be over: the agent waits until NTP has set the clock"
            )
            is_said = True
        node.clock.wait(node.closing, _EVERY_S)
    if is_said and not node.closing.is_set():
        node.say(f"the clock is set: {_shown(node.clock.now_ns())} UTC")


def _shown(time_ns: int) -> str:
    return f"{dt.datetime.fromtimestamp(time_ns / _S, dt.UTC):%Y-%m-%d %H:%M}"
