"""README's number of published claims that hold, against the pages of reproduced papers."""

from __future__ import annotations

import re
from pathlib import Path

from validation import starlink_user

ROOT = Path(__file__).parents[2]
REPRODUCED = ROOT / "docs" / "results" / "reproduced"
OWN = "skyhop"
"""Page of the studies that are no paper's."""


def counts(page: str) -> tuple[int, ...]:
    """Return how many claims of a page hold, do not hold, and cannot be told: sums of its table."""
    row = re.compile(r"^\| \[[^|]+\| [\d,]+ \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
    rows = [tuple(map(int, found)) for found in row.findall(page)]
    assert rows, "the page has no table of studies"
    return tuple(map(sum, zip(*rows, strict=True)))


def test_readme_has_the_number_of_published_claims_that_hold() -> None:
    pages = [page for page in REPRODUCED.glob("*.md") if page.stem not in ("index", OWN)]
    by_paper = [counts(page.read_text("utf-8")) for page in pages]
    hold, fail, untold = map(sum, zip(*by_paper, strict=True))
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    claims = hold + fail + untold
    assert f"**{hold} of {claims} claims of six papers hold**" in readme
    assert f"{fail} do not, {untold} cannot be told" in readme
    assert len(pages) == len(("LEO", "GEO", "SaTCP", "SatPipe", "T3P", "Hypatia"))


def test_readme_has_the_goodputs_of_the_picture_of_starlink() -> None:
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    found = [
        starlink_user.simulate(cc).summary["flows"][0]["goodput_bps"] / 1e6
        for cc in starlink_user.SENDERS
    ]
    assert "CUBIC {:.1f} Mbit/s, BBR {:.1f}.".format(*found) in readme
