"""File of cities: its writer, for builds, and its reader, which reads what a search needs.

Layout: a line of JSON that says where each block begins, then the blocks, each compressed alone.

block       content
regions     countries and states of the US, as JSON
cities      `CITIES_PER_BLOCK` consecutive cities, as JSON
names       some lines of all names in the order of code points: a folded name, `NAME_END`, and the
            numbers of the cities that have it
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

NAME_END = "\t"
"""Character between a name and the numbers of its cities; a folded name has no such character."""
CITIES_PER_BLOCK = 256
_NAMES_PER_BLOCK = 1_024

_Item = TypeVar("_Item")


class City(NamedTuple):
    """City with at least 15,000 inhabitants, in GeoNames' terms."""

    name: str
    country: str
    """ISO code of the country."""
    admin1: str
    """Code of the first-level division: in the US, of the state."""
    latitude_deg: float
    longitude_deg: float
    population: int


class Gazetteer:
    """Cities, countries and states of the US in a file that `write_gazetteer` has written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with file.open("rb") as content:
            self._header: dict[str, Any] = json.loads(content.readline())
            self._begin = content.tell()
        self._cities: dict[int, list[City]] = {}

    @cached_property
    def countries(self) -> list[tuple[str, str, str]]:
        """Countries: ISO code, name and ISO code of three letters."""
        countries: list[tuple[str, str, str]] = self._regions["countries"]
        return countries

    @cached_property
    def states(self) -> list[tuple[str, str]]:
        """States of the US: name and code."""
        states: list[tuple[str, str]] = self._regions["states"]
        return states

    def named(self, name: str) -> list[City]:
        """Return the cities of which `name` is the folded name or an alternate one."""
        block = bisect_right(self._header["first_names"], name) - 1
        if block < 0:
            return []
        lines = "\n" + self._read("names", block)
        begin = lines.find(f"\n{name}{NAME_END}")
        if begin < 0:
            return []
        line = lines[begin + 1 : lines.index("\n", begin + 1)]
        return [self._city(int(number)) for number in line.partition(NAME_END)[2].split(",")]

    def cities(self) -> list[City]:
        """Return all cities, in the order of their numbers."""
        blocks = range(len(self._header["cities"]))
        return list(chain.from_iterable(map(self._cities_of, blocks)))

    def _city(self, number: int) -> City:
        block, place = divmod(number, CITIES_PER_BLOCK)
        return self._cities_of(block)[place]

    def _cities_of(self, block: int) -> list[City]:
        if block not in self._cities:
            self._cities[block] = [City(*row) for row in json.loads(self._read("cities", block))]
        return self._cities[block]

    @cached_property
    def _regions(self) -> dict[str, Any]:
        regions: dict[str, Any] = json.loads(self._read("regions", 0))
        return regions

    def _read(self, kind: str, block: int) -> str:
        begin, length = self._header[kind][block]
        with self._file.open("rb") as content:
            content.seek(self._begin + begin)
            return zlib.decompress(content.read(length)).decode()


def write_gazetteer(
    file: Path,
    cities: Sequence[City],
    names: Sequence[Iterable[str]],
    regions: dict[str, Any],
    source: str,
) -> None:
    """Write the file; the same arguments give the same bytes.

    Args:
        file: file to write.
        cities: all cities.
        names: folded names of each city, alternate ones included.
        regions: `countries` and `states`, as `Gazetteer` returns them.
        source: source of the data.
    """
    numbers: dict[str, list[str]] = {}
    for number, of_city in enumerate(names):
        for name in dict.fromkeys(of_city):
            numbers.setdefault(name, []).append(str(number))
    sorted_names = list(_batches(sorted(numbers), _NAMES_PER_BLOCK))
    blocks: dict[str, list[str]] = {
        "regions": [_compact(regions)],
        "cities": [_compact(some) for some in _batches(cities, CITIES_PER_BLOCK)],
        "names": [
            "".join(f"{name}{NAME_END}{','.join(numbers[name])}\n" for name in some)
            for some in sorted_names
        ],
    }
    header: dict[str, Any] = {"source": source, "first_names": [some[0] for some in sorted_names]}
    content = b""
    for kind, texts in blocks.items():
        header[kind] = []
        for text in texts:
            compressed = zlib.compress(text.encode(), 9)
            header[kind].append([len(content), len(compressed)])
            content += compressed
    file.write_bytes(_compact(header).encode() + b"\n" + content)


def _batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
