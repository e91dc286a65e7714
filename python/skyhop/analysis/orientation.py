"""Does it matter where a terminal looks? Latency by the direction of its boresight.

As the T3P paper's figure 4: how often each cell of azimuth and elevation occurred, and the 95th
percentile of the latency to the point of presence there. That some orientations are worse is
tested, by permutation: the 15 s slots of the operator's schedule are what varies together, so the
latency of whole slots is dealt out anew among the orientations, many times. What a slot is like is
the rank of its own 95th percentile; how bad a cell is, is the mean rank of its slots in units of
its spread. The worst of all cells in each deal is what a cell is compared with, so that the worst
of many is not called bad because there are many.

Slots are taken to be exchangeable. Where neighbours are alike (`alike`), because latency has a
course over minutes or hours, chance finds bad cells more often than it should: in one case of
seven, not of twenty, where each slot has half of its neighbour's latency. Longer blocks are the
remedy. Where a cell was visited once only (`visits`), its time cannot be told from its orientation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray, IntArray
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME

CELL_DEG = 0.1
LEAST_SAMPLES = 30
"""Cells with fewer are grey."""
BLOCK_S = 15.0
GRID_OFFSET_S = 12.0
"""Slots begin at seconds 12, 27, 42, 57."""
PERMUTATIONS = 999
WORST = 10
LATENCY, DROP = "pop_ping_latency_ms", "pop_ping_drop_rate"
FIELDS = ("direction_azimuth", "direction_elevation", LATENCY, DROP, "tilt", "attitude_uncertainty")
"""What is read of telemetry."""
_FEWEST_IN_BLOCK = 3
_FEWEST_PAIRS = 30
_ALIKE = 0.1
_EDGE = 1e-6
_SLEW_NS = 2_000_000_000
"""Samples further apart say nothing about how fast it turns."""


@dataclass(frozen=True)
class Orientation:
    """Latency by orientation.

    Attributes:
        cells: a row per cell, the worst first: `azimuth_deg` and `elevation_deg` of its middle,
            `n`, `share`, `p50_ms`, `p95_ms`, `drop`, `visits`; `worse_by` (standard deviations) and
            `p`, both null where `n` is too small.
        samples: with latency and orientation.
        azimuth_deg: from the 5th to the 95th percentile.
        elevation_deg: likewise.
        slew_deg_per_s: medians, of azimuth and of elevation.
        uncertainty_deg: the median of what the terminal says of its own attitude, None where it
            does not.
        alike: the correlation of neighbouring blocks' ranks; above 0.1 blocks are too short.
        node: whose.
        block_s: how long what was dealt out together is.
    """

    cells: pl.DataFrame
    samples: int
    azimuth_deg: tuple[float, float]
    elevation_deg: tuple[float, float]
    slew_deg_per_s: tuple[float, float]
    uncertainty_deg: float | None
    alike: float
    node: str
    block_s: float

    @property
    def worst(self) -> pl.DataFrame:
        """The cells with the highest 95th percentile, of those with enough samples."""
        return self.cells.filter(pl.col("p").is_not_null()).head(WORST)

    def significant(self, alpha: float = 0.05) -> pl.DataFrame:
        """Return the cells that are worse than the rest."""
        return self.cells.filter(pl.col("p") <= alpha)

    @property
    def caution(self) -> str | None:
        """What to do where neighbouring blocks are too much alike for the test; else None."""
        if self.alike <= _ALIKE:
            return None
        longer = f"{4 * self.block_s:g} s"
        return (
            f"what is {self.block_s:g} s apart is alike (correlation {self.alike:.2f}), so chance "
            f'finds more than it should: give a longer block, such as --block "{longer}"'
        )

    @property
    def title(self) -> str:
        """What a figure of it is called."""
        return f"{self.node}: latency by orientation, {self.samples:,} s"

    @property
    def notes(self) -> list[str]:
        """What to know about a figure of it."""
        few = self.cells.filter(pl.col("p").is_null()).height
        found = self.significant().height
        return [
            f"grey: fewer than {LEAST_SAMPLES} samples ({few} of {self.cells.height} cells)",
            f"ringed: worse than the rest at 5 %, by pieces of {self.block_s:g} s dealt out anew "
            f"({found} {'cell' if found == 1 else 'cells'})",
        ]


def by_orientation(
    frame: pl.DataFrame,
    *,
    seed: int = 1,
    permutations: int = PERMUTATIONS,
    block_s: float = BLOCK_S,
) -> Orientation:
    """Return latency by orientation.

    Args:
        frame: of `Store.read`, of one node, with `FIELDS`.
        seed: of the permutations.
        permutations: how many; a chance of 5 % needs 19, its estimate hundreds.
        block_s: how long what varies together is.

    Raises:
        InputError: the frame is of several nodes, or has no latency with an orientation.
    """
    nodes = frame["node"].unique().to_list()
    if len(nodes) > 1:
        raise InputError(f"orientation is of one terminal: name one of {', '.join(sorted(nodes))}")
    known = frame.filter(
        pl.all_horizontal(pl.col(name).is_not_null() for name in FIELDS[:2]),
        pl.col(LATENCY).is_not_null() | pl.col(DROP).is_not_null(),
    ).sort(TIME)
    if known[LATENCY].drop_nulls().is_empty():
        raise InputError(f"there is no {LATENCY} with {FIELDS[0]} and {FIELDS[1]} in these times")
    block_ns, offset_ns = round(block_s * 1e9), round(GRID_OFFSET_S * 1e9)
    azimuth = _around_its_mean(known["direction_azimuth"].to_numpy())
    known = known.with_columns(
        azimuth=pl.Series(azimuth),
        cell_x=pl.Series(_cell(azimuth)),
        cell_y=pl.Series(_cell(known["direction_elevation"].to_numpy())),
        # A second is told by its end: one that ends on the grid belongs to the slot before.
        block=(pl.col(TIME) - 1 - offset_ns) // block_ns,
    )
    slots = _slots(known)
    cells = _tested(known, slots, _cells(known), seed, permutations)
    uncertainty = known["attitude_uncertainty"].median()
    return Orientation(
        cells,
        known.height,
        _middle(azimuth),
        _middle(known["direction_elevation"].to_numpy()),
        (_slew(known, "azimuth"), _slew(known, "direction_elevation")),
        uncertainty if isinstance(uncertainty, float) else None,
        _alike(slots),
        str(nodes[0]),
        block_s,
    )


def _around_its_mean(azimuth_deg: FloatArray) -> FloatArray:
    """Return azimuths without the jump at 180 degrees, which may then be exceeded."""
    middle = np.degrees(np.angle(np.exp(1j * np.radians(azimuth_deg)).mean()))
    return np.asarray(middle + (azimuth_deg - middle + 180) % 360 - 180)


def _cell(degrees: FloatArray) -> IntArray:
    # What lies on an edge in decimal belongs above it, whatever it is in binary.
    return np.floor(degrees / CELL_DEG + _EDGE).astype(np.int64)


def _cells(known: pl.DataFrame) -> pl.DataFrame:
    """Return what is seen in each cell, the worst first."""
    blocks = pl.col("block").unique().sort()
    return (
        known.group_by("cell_x", "cell_y")
        .agg(
            n=pl.len(),
            share=pl.len() / known.height,
            p50_ms=pl.col(LATENCY).median(),
            p95_ms=pl.col(LATENCY).quantile(0.95, "linear"),
            drop=pl.col(DROP).mean(),
            visits=(blocks.diff() > 1).sum() + 1,
            timed=pl.col(LATENCY).count(),
        )
        .with_columns(
            azimuth_deg=((pl.col("cell_x") + 0.5) * CELL_DEG).round(6),
            elevation_deg=((pl.col("cell_y") + 0.5) * CELL_DEG).round(6),
        )
        .sort("p95_ms", "n", "cell_x", "cell_y", descending=[True, True, False, False],
              nulls_last=True)
    )  # fmt: skip


def _slots(known: pl.DataFrame) -> pl.DataFrame:
    """Return blocks with enough samples, in their order: `slot` (0, 1, ...), `block`, `rank`."""
    return (
        known.filter(pl.col(LATENCY).is_not_null())
        .group_by("block")
        .agg(p95=pl.col(LATENCY).quantile(0.95, "linear"), count=pl.len())
        .filter(pl.col("count") >= _FEWEST_IN_BLOCK)
        .sort("block")
        .with_row_index("slot")
        .select("slot", "block", rank=pl.col("p95").rank())
    )


def _alike(slots: pl.DataFrame) -> float:
    """Return the correlation of blocks with those before them, of what no gap is between."""
    ranks, blocks = slots["rank"].to_numpy(), slots["block"].to_numpy()
    follows = np.diff(blocks) == 1
    before, after = ranks[:-1][follows], ranks[1:][follows]
    if len(before) < _FEWEST_PAIRS or not (before.std() > 0 and after.std() > 0):
        return 0.0
    return float(np.corrcoef(before, after)[0, 1])


def _tested(
    known: pl.DataFrame, slots: pl.DataFrame, cells: pl.DataFrame, seed: int, permutations: int
) -> pl.DataFrame:
    """Add how much worse a cell is than the rest, and how often chance does as much."""
    timed = known.filter(pl.col(LATENCY).is_not_null())
    tried = cells.filter(pl.col("timed") >= LEAST_SAMPLES).with_row_index("row")
    counts = (
        timed.join(slots, on="block")
        .join(tried, on=["cell_x", "cell_y"])
        .group_by("row", "slot")
        .agg(count=pl.len())
        .sort("row", "slot")
    )
    worse_by, p = _permuted(slots["rank"].to_numpy(), counts, tried.height, seed, permutations)
    found = tried.select("cell_x", "cell_y", worse_by=pl.Series(worse_by), p=pl.Series(p))
    columns = ["azimuth_deg", "elevation_deg", "n", "share", "p50_ms", "p95_ms", "drop", "visits",
               "worse_by", "p"]  # fmt: skip
    return cells.join(found, on=["cell_x", "cell_y"], how="left", maintain_order="left").select(
        columns
    )


def _permuted(
    ranks: FloatArray, counts: pl.DataFrame, cells: int, seed: int, permutations: int
) -> tuple[FloatArray, FloatArray]:
    """Return how bad cells are, and the chance that the worst of all is as bad by chance.

    Args:
        ranks: of the slots, shape (slots,).
        counts: how many samples a cell (`row`) has in a slot: `row`, `slot`, `count`.
        cells: how many there are.
        seed: of the deals.
        permutations: how many.

    Returns:
        Of each cell, the sum of its samples' ranks in units of its spread under chance, and the
        probability, both of shape (cells,).
    """
    from scipy.sparse import csr_array

    spread = ranks.std()
    if cells == 0 or not spread > 0:
        return np.zeros(cells), np.ones(cells)
    even = (ranks - ranks.mean()) / spread
    weights = csr_array(
        (counts["count"].to_numpy().astype(float), (counts["row"], counts["slot"])),
        shape=(cells, len(ranks)),
    )
    norms = np.maximum(np.sqrt((weights * weights).sum(axis=1)), 1e-300)
    observed = weights @ even / norms
    draw = np.random.default_rng(seed)
    exceeded = np.zeros(cells)
    for _ in range(permutations):
        exceeded += (weights @ draw.permutation(even) / norms).max() >= observed
    return np.asarray(observed), np.asarray((1 + exceeded) / (1 + permutations))


def _middle(degrees: FloatArray) -> tuple[float, float]:
    low, high = np.percentile(degrees, (5, 95))
    return float(low), float(high)


def _slew(known: pl.DataFrame, name: str) -> float:
    """Return the median of how fast it turns, in degrees per second."""
    since_ns = pl.col(TIME).diff()
    speed = pl.col(name).diff().abs() / (since_ns / 1e9)
    found = known.select(speed.filter(since_ns <= _SLEW_NS)).to_series().median()
    return found if isinstance(found, float) else 0.0
