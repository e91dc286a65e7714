"""An obstruction map for tests."""

from __future__ import annotations

from skyhop.telemetry.obstruction import Frame, Grid, ObstructionMap, Pointing

SIDE = 21


def seen() -> ObstructionMap:
    """Return a map in the terminal's frame: left half unseen, one pixel blocked."""
    snr = [-1.0 if place % SIDE < SIDE // 2 else 1.0 for place in range(SIDE * SIDE)]
    snr[SIDE * SIDE // 2] = 0.25
    return ObstructionMap(Grid(SIDE, SIDE, 80.0, Frame.TERMINAL, Pointing(12.0, 9.0)), snr, 10.0)
