"""Routes between all pairs of sites, computed together and stored in one compact file."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from skyhop import _core, tables, views
from skyhop.data.missing_links import Gap, gap_note
from skyhop.data.near_names import did_you_mean
from skyhop.data.places import position_of
from skyhop.data.progress import Progress, progress_or_bar
from skyhop.data.scenarios import load_scenario
from skyhop.errors import InputError


class AllPairs:
    """Routes between all pairs of sites over time.

    Attributes:
        header: constellation, relay, start, step and sites.
        sites: the sites' names.
        pairs: the pairs in the order of arrays, each as two indices into `sites`.
        times_ns: times of the steps in ns since the start.
        notes: warnings from the computation of the routes, such as pairs that shells separate.
    """

    def __init__(self, table: pl.DataFrame, header: dict[str, Any]) -> None:
        self._table = table
        self.header = header
        self.sites: list[str] = [site["name"] for site in header["sites"]]
        self.pairs = list(combinations(range(len(self.sites)), 2))
        self.times_ns: npt.NDArray[np.int64] = table["t_ns"].to_numpy()
        self.notes: list[str] = []

    @cached_property
    def delays_ns(self) -> npt.NDArray[np.int64]:
        """One-way delays in ns, an array of shape (steps, pairs); 0 where a pair has no path."""
        flat = self._table["delay_dd_ns"].explode().to_numpy()
        differences = flat.reshape(self._table.height, len(self.pairs))
        return np.cumsum(np.cumsum(differences, axis=0), axis=0)

    @cached_property
    def changes(self) -> pl.DataFrame:
        """Changes of routes, one row each: `t_ns`, `pair`, `nodes` (empty without a path)."""
        rows = self._table.select("t_ns", "changes").filter(pl.col("changes").list.len() > 0)
        return rows.explode("changes").unnest("changes")

    @cached_property
    def handovers(self) -> npt.NDArray[np.int64]:
        """End handovers of each pair at its two sites, an array of shape (pairs, 2).

        An end handover is a change of the satellite that serves a site, from one route directly to
        the next; a change over a time without a path is none.
        """
        ends = self.changes.select(
            "pair", pl.col("nodes").list.first().alias("0"), pl.col("nodes").list.last().alias("1")
        )
        counts = np.zeros((len(self.pairs), 2), np.int64)
        for end in (0, 1):
            satellite = pl.col(str(end))
            # A time without a path has no satellite, and a difference to nothing is nothing.
            changed = ends.filter(satellite != satellite.shift(1).over("pair"))
            np.add.at(counts[:, end], changed["pair"].to_numpy(), 1)
        return counts

    @cached_property
    def rtt_matrix_ms(self) -> npt.NDArray[np.float64]:
        """Median RTT between each two sites over the steps with a path, in ms; NaN without any."""
        matrix = np.full((len(self.sites), len(self.sites)), np.nan)
        np.fill_diagonal(matrix, 0.0)
        for (one, other), delays_ns in zip(self.pairs, self.delays_ns.T, strict=True):
            with_path = delays_ns[delays_ns > 0]
            if with_path.size:
                matrix[one, other] = matrix[other, one] = 2 * np.median(with_path) / 1e6
        return matrix

    def routes(self, from_: str | int, to: str | int) -> list[tuple[int, list[int]]]:
        """Return the routes of a pair over time: start (ns), and node ids of the route.

        Args:
            from_: name or index of the site where routes begin.
            to: name or index of the site where routes end.

        Raises:
            InputError: there is no such pair.
        """
        ends = [self._index(from_), self._index(to)]
        if ends[0] == ends[1]:
            raise InputError(f"{from_} and {to} are the same site")
        pair = self.pairs.index((min(ends), max(ends)))
        rows = self.changes.filter(pl.col("pair") == pair).iter_rows(named=True)
        step = 1 if ends[0] < ends[1] else -1
        return [(row["t_ns"], row["nodes"][::step]) for row in rows]

    def _index(self, site: str | int) -> int:
        if isinstance(site, int) and 0 <= site < len(self.sites):
            return site
        name = site if site in self.sites else position_of(str(site))[0]
        if name in self.sites:
            return self.sites.index(str(name))
        hint = did_you_mean(site, self.sites)
        raise InputError(f'no site "{site}"{hint}; expected one of {", ".join(self.sites[:10])}')

    def _repr_html_(self) -> str:
        return views.html(self)

    def __repr__(self) -> str:
        return f"<skyhop.AllPairs {len(self.sites)} sites, {len(self.times_ns)} steps>"


def all_pairs(
    sites: Sequence[str],
    file: str | os.PathLike[str],
    *,
    duration: str = "60 s",
    failures: Sequence[Mapping[str, object]] = (),
    progress: Progress | None = None,
    **keys: str,
) -> AllPairs:
    """Compute the routes between all pairs of sites, write them to a file, and read it.

    Each pair uses the satellites over which its path is shortest at each step, or with `handover`
    those that the policy chooses, as `skyhop.path` does. A warning says if a pair has no path
    because no inter-satellite links join its satellites.

    Args:
        sites: at least two places: cities, sites, or "lat,lon".
        file: the Parquet file to write; steps are written as they come, so that any duration fits
            in memory.
        duration: time that the routes cover.
        failures: what fails, as tables with the keys of `[[failure]]`, such as
            `{"satellites": "10 %", "seed": 7}` or `{"laser": [84, 85], "from": "10 s"}`; a
            `site` is one of `sites` by its whole name.
        progress: callback (steps done, all steps); a progress bar by default.
        keys: keys of `[path]`: relay ("isl" by default, or "bent-pipe"), constellation, satellites,
            start, step, compat, minimum_elevation, geo_avoidance, stale_after, handover
            ("immediate" by default); with "isl" also isl_seam, isl_clearance and isl_shells, with
            "bent-pipe" also gateways, with handover policies on a grid also grid_period and
            grid_offset.

    Raises:
        InputError: a place, key or value is wrong, or a key has no effect on these routes.
        RunError: the file cannot be written.
    """
    if len(sites) < 2:  # noqa: PLR2004 - a pair
        raise InputError(f"all pairs of {len(sites)} sites; expected at least two")
    path = {"from": sites[0], "to": sites[1], "relay": "isl", **keys}
    scenario = load_scenario(
        {"path": path, "run": {"duration": duration}}, origin="all pairs' options"
    )
    _check_keys(path["relay"], keys)
    target = os.fspath(file)
    with progress_or_bar(progress, "computing all pairs") as report:
        _core.write_all_pairs(
            scenario, position_of, list(sites), json.dumps(list(failures)), target, report
        )
    pairs = read_all_pairs(file)
    if pairs.header["relay"] == "isl" and pairs.header["compat"] == "none":
        # With an avoidance of the geostationary arc or failures, a site may not use all it sees.
        gaps = () if "geo_avoidance" in keys or failures else _gaps(pairs)
        pairs.notes = gap_note(
            _core.Constellation.of(scenario), pairs.header["start"], gaps,
            keys.get("isl_shells", "apart"),
        )  # fmt: skip
    for note in pairs.notes:
        warnings.warn(note, stacklevel=2)
    return pairs


def _gaps(pairs: AllPairs) -> Iterator[Gap]:
    """Yield the beginning of each time without a path: first of pairs that begin without one."""
    sites = pairs.header["sites"]
    places = [(site["latitude_deg"], site["longitude_deg"]) for site in sites]
    first_ns = int(pairs.times_ns[0])
    begun = {*pairs.changes.filter(pl.col("t_ns") == first_ns)["pair"]}
    never = ((first_ns, pair) for pair in range(len(pairs.pairs)) if pair not in begun)
    ended = pairs.changes.filter(pl.col("nodes").list.len() == 0).select("t_ns", "pair")
    for time_ns, pair in chain(never, ended.iter_rows()):
        one, other = pairs.pairs[pair]
        names = (pairs.sites[one], pairs.sites[other])
        yield Gap(time_ns / 1e9, places[one], places[other], names)


_KEYS = frozenset(
    {
        "relay",
        "constellation",
        "satellites",
        "start",
        "step",
        "compat",
        "minimum_elevation",
        "geo_avoidance",
        "stale_after",
        "handover",
    }
)
"""Keys of `[path]` on which all routes between pairs depend."""
_RELAY_KEYS = {
    "isl": frozenset({"isl_seam", "isl_clearance", "isl_shells"}),
    "bent-pipe": frozenset({"gateways"}),
}
"""Further keys by relay; other relays have no routes between arbitrary sites."""
_GRID_KEYS = frozenset({"grid_period", "grid_offset"})
"""Further keys of the policies that choose satellites on a grid, whose names end in `_ON_GRID`."""
_ON_GRID = "-grid"


def _check_keys(relay: str, keys: Mapping[str, str]) -> None:
    """Refuse a relay without such routes, and keys that have no effect on them."""
    if relay not in _RELAY_KEYS:
        raise InputError(
            f'all_pairs(relay="{relay}"): expected "isl" or "bent-pipe"; for other relays compute '
            "each pair with skyhop.path"
        )
    on_grid = str(keys.get("handover", "")).endswith(_ON_GRID)
    unused = sorted(keys.keys() - _KEYS - _RELAY_KEYS[relay] - (_GRID_KEYS if on_grid else set()))
    if unused:
        raise InputError(
            f"all_pairs({', '.join(f'{key}=…' for key in unused)}): has no effect with relay "
            f'"{relay}" and this handover policy: leave it out, or compute each pair with '
            "skyhop.path"
        )


def read_all_pairs(file: str | os.PathLike[str], *, force_size: bool = False) -> AllPairs:
    """Read a file of all pairs.

    Args:
        file: name of the file.
        force_size: read the file even if it takes more than a gigabyte of memory.

    Raises:
        InputError: the file is missing, cut off, too large, or not a file of all pairs.
    """
    name = os.fspath(file)
    try:
        parquet = _core.ParquetFile(Path(file))
        header = json.loads(parquet.header or "{}")
        if not _says_all_pairs(header):
            raise _not_all_pairs(name)
        most = None if force_size else tables.MOST_BYTES
        table = pl.DataFrame(parquet.read_all_pairs(most))
    except _core.TooLargeError as error:
        raise InputError(f"{name}: {error}: read it with force_size=True") from None
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name}: cannot read: {reason}") from None
    if not _has_all_pairs(table, header):
        raise _not_all_pairs(name)
    return AllPairs(table, header)


def _not_all_pairs(name: str) -> InputError:
    return InputError(f"{name}: not a file of all pairs, or damaged: compute it again")


def _says_all_pairs(header: Any) -> bool:
    """Return whether a header is that of a file of all pairs."""
    if not isinstance(header, dict) or header.get("source") != "skyhop all pairs":
        return False
    sites = header.get("sites")
    return isinstance(sites, list) and all(
        isinstance(site, dict) and isinstance(site.get("name"), str) for site in sites
    )


def _has_all_pairs(table: pl.DataFrame, header: dict[str, Any]) -> bool:
    """Return whether the table has a delay of every pair at every step, and no nulls."""
    count = len(header["sites"]) * (len(header["sites"]) - 1) // 2
    delays = table["delay_dd_ns"]
    has_nulls = any(column.null_count() for column in (*table, delays.explode()))
    return not has_nulls and bool((delays.list.len() == count).all())
