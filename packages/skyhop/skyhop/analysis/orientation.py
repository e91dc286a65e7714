"""Latency by the direction of a terminal's boresight, and a test whether directions differ.

As in the T3P paper's figure 4, orientations are counted in cells of azimuth and elevation: how
often each cell occurred, and the 95th percentile of the latency to the point of presence there. A
permutation test determines whether some orientations are worse. Latencies correlate within the 15 s
slots of the operator's schedule, so each permutation shuffles whole slots among the orientations. A
slot has the rank of its own 95th percentile; a cell's score is the mean rank of its slots in units
of the spread that chance gives. Each cell is compared with the worst of all cells in each
permutation, which corrects for the number of cells.

The test assumes that slots are exchangeable. If neighbouring slots correlate (`alike`), because
latency changes over minutes or hours, the test finds bad cells too often by chance: in one case of
seven instead of one of twenty, if half of a slot's latency is that of its neighbour. Longer blocks
avoid this. For a cell that was visited only once (`visits`), the test cannot separate the effect of
time from that of orientation.
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
"""Least number of samples of a cell; cells with fewer samples are drawn grey."""
BLOCK_S = 15.0
GRID_OFFSET_S = 12.0
"""Start of the first slot of a minute in s: slots begin at seconds 12, 27, 42 and 57."""
PERMUTATIONS = 999
WORST = 10
LATENCY, DROP = "pop_ping_latency_ms", "pop_ping_drop_rate"
FIELDS = ("direction_azimuth", "direction_elevation", LATENCY, DROP, "tilt", "attitude_uncertainty")
"""Telemetry fields that are read."""
_FEWEST_IN_BLOCK = 3
_FEWEST_PAIRS = 30
_ALIKE = 0.1
_EDGE = 1e-6
_SLEW_NS = 2_000_000_000
"""Largest time in ns between two samples from which a turning speed is computed."""


@dataclass(frozen=True)
class Orientation:
    """Latency by orientation.

    Attributes:
        cells: one row per cell, the worst first: `azimuth_deg` and `elevation_deg` of its middle,
            `n`, `share`, `p50_ms`, `p95_ms`, `drop`, `visits`; `worse_by` (standard deviations) and
            `p`, both null if `n` is too small.
        samples: number of samples with latency and orientation.
        azimuth_deg: 5th and 95th percentile of the boresight's azimuth.
        elevation_deg: 5th and 95th percentile of the boresight's elevation.
        slew_deg_per_s: median turning speeds of azimuth and elevation.
        uncertainty_deg: median of the attitude uncertainty that the terminal reports; None if the
            terminal reports none.
        alike: correlation of the ranks of neighbouring blocks; above 0.1, blocks are too short.
        node: name of the terminal's node.
        block_s: length in s of the blocks that are permuted.
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
        """Cells with the highest 95th percentile, among the cells with enough samples."""
        return self.cells.filter(pl.col("p").is_not_null()).head(WORST)

    def significant(self, alpha: float = 0.05) -> pl.DataFrame:
        """Return the cells that are significantly worse than the others, at level `alpha`."""
        return self.cells.filter(pl.col("p") <= alpha)

    @property
    def caution(self) -> str | None:
        """Advice if neighbouring blocks correlate too much for the test; otherwise None."""
        if self.alike <= _ALIKE:
            return None
        longer = f"{4 * self.block_s:g} s"
        return (
            f"samples {self.block_s:g} s apart correlate ({self.alike:.2f}), so the test finds "
            f'more than it should: give a longer block, such as --block "{longer}"'
        )

    @property
    def title(self) -> str:
        """Title of the figure."""
        return f"{self.node}: latency by orientation, {self.samples:,} s"

    @property
    def notes(self) -> list[str]:
        """Notes below the figure."""
        few = self.cells.filter(pl.col("p").is_null()).height
        found = self.significant().height
        return [
            f"grey: fewer than {LEAST_SAMPLES} samples ({few} of {self.cells.height} cells)",
            f"ringed: worse than the rest at 5 %, by permuting pieces of {self.block_s:g} s "
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
        frame: telemetry of one node with `FIELDS`, as `Store.read` returns it.
        seed: seed of the permutations.
        permutations: number of permutations: at least 19 for a level of 5 %, better hundreds.
        block_s: length in s of the blocks within which latencies correlate.

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
        # The time of a sample is its end: a second that ends on the grid is in the earlier slot.
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
    """Return azimuths near their mean, without the jump at 180 degrees; they may exceed 180."""
    middle = np.degrees(np.angle(np.exp(1j * np.radians(azimuth_deg)).mean()))
    return np.asarray(middle + (azimuth_deg - middle + 180) % 360 - 180)


def _cell(degrees: FloatArray) -> IntArray:
    # A value that is an edge in decimal belongs to the cell above, despite binary rounding.
    return np.floor(degrees / CELL_DEG + _EDGE).astype(np.int64)


def _cells(known: pl.DataFrame) -> pl.DataFrame:
    """Return the statistics of each cell, the highest 95th percentile first."""
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
    """Return the blocks with enough samples, in order: `slot` (0, 1, ...), `block`, `rank`."""
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
    """Return the correlation of the ranks of neighbouring blocks, without pairs across gaps."""
    ranks, blocks = slots["rank"].to_numpy(), slots["block"].to_numpy()
    follows = np.diff(blocks) == 1
    before, after = ranks[:-1][follows], ranks[1:][follows]
    if len(before) < _FEWEST_PAIRS or not (before.std() > 0 and after.std() > 0):
        return 0.0
    return float(np.corrcoef(before, after)[0, 1])


def _tested(
    known: pl.DataFrame, slots: pl.DataFrame, cells: pl.DataFrame, seed: int, permutations: int
) -> pl.DataFrame:
    """Add the results of the permutation test, `worse_by` and `p`, to the cells."""
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
    """Return the scores of cells, and the probability that the worst cell by chance reaches each.

    Args:
        ranks: ranks of the slots, shape (slots,).
        counts: samples of each cell (`row`) in each slot: columns `row`, `slot`, `count`.
        cells: number of cells.
        seed: seed of the permutations.
        permutations: number of permutations.

    Returns:
        For each cell, the sum of its samples' ranks in units of the spread that chance gives the
        sum, and the probability; both of shape (cells,).
    """
    spread = ranks.std()
    if cells == 0 or not spread > 0:
        return np.zeros(cells), np.ones(cells)
    even = (ranks - ranks.mean()) / spread
    rows, slots = (counts[name].to_numpy().astype(np.intp) for name in ("row", "slot"))
    weights = counts["count"].to_numpy().astype(float)
    norms = np.maximum(np.sqrt(np.bincount(rows, weights**2, cells)), 1e-300)

    def scores(dealt: FloatArray) -> FloatArray:
        return np.bincount(rows, weights * dealt[slots], cells) / norms

    observed = scores(even)
    draw = np.random.default_rng(seed)
    exceeded = np.zeros(cells)
    for _ in range(permutations):
        exceeded += scores(draw.permutation(even)).max() >= observed
    return observed, np.asarray((1 + exceeded) / (1 + permutations))


def _middle(degrees: FloatArray) -> tuple[float, float]:
    low, high = np.percentile(degrees, (5, 95))
    return float(low), float(high)


def _slew(known: pl.DataFrame, name: str) -> float:
    """Return the median turning speed, in degrees per second."""
    since_ns = pl.col(TIME).diff()
    speed = pl.col(name).diff().abs() / (since_ns / 1e9)
    found = known.select(speed.filter(since_ns <= _SLEW_NS)).to_series().median()
    return found if isinstance(found, float) else 0.0
