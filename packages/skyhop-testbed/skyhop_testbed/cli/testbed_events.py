"""Output of a run's events for `skyhop testbed run`, one line per event."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skyhop.cli.terminal import shown_text
from skyhop_testbed.cli.testbed_shared import when
from skyhop_testbed.event_details import without_repetitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skyhop_testbed.api import RunEvent


def print_events(events: Sequence[RunEvent], shown: int = 0) -> None:
    """Print the events of a run after those that are `shown` already.

    A line has time, state, reason, actor, and the details that no earlier event had.
    """
    details = without_repetitions(each.details for each in events)
    for each, said in zip(events[shown:], details[shown:], strict=True):
        reason = f"({each.reason})" if each.reason else ""
        words = [each.state, reason, each.actor, "; ".join(said.values())]
        print(f"{when(each.at_ns)}  {shown_text(' '.join(word for word in words if word))}")
    sys.stdout.flush()
