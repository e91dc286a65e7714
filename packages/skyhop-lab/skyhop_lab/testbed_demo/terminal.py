"""Terminal of a site, like `skyhop dish emulate --interface`, with a chosen phase."""

from __future__ import annotations

import sys
import time

from skyhop_lab.dish.device import Device
from skyhop_lab.dish.measuring import Counters, Meter, Prober
from skyhop_lab.dish.server import Server
from skyhop_lab.dish.terminal import Terminal
from skyhop_lab.testbed_demo import plan

_SEED = 1
_LONG_S = 3600


def main() -> None:
    """Emulate the terminal until a signal ends the process."""
    meter, counters = Meter(), Counters(plan.LINK)
    # Wait for the phase here, after the imports, as the duration of imports varies.
    time.sleep((plan.TERMINALS_PHASE_S - time.time()) % 1)
    begin_ns, started_ns = time.time_ns(), time.monotonic_ns()
    prober = Prober(meter, plan.POP, counters, lambda: time.monotonic_ns() - started_ns)
    prober.start()
    source = Terminal(meter, begin_ns, seed=_SEED)
    with Server(Device(source, None), f"{plan.DISH}:{plan.DISH_PORT}") as server:
        print(f"a terminal listens at {server.address}", file=sys.stderr)
        while True:
            time.sleep(_LONG_S)


if __name__ == "__main__":
    main()
