"""The list of what tests need that not every machine has."""

from __future__ import annotations

import pytest
from needs import NEEDS, missing


def test_every_need_says_what_it_is_and_how_to_get_it() -> None:
    """A name with a dot in it that is not quoted would be a table in a table."""
    assert [name for name, entry in NEEDS.items() if sorted(entry) != ["how", "what"]] == []


def test_a_need_of_any_name_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYHOP_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"needs dash\.js: none"):
        missing("dash.js", "none")
    with pytest.raises(pytest.fail.Exception, match="does not list"):
        missing("luck", "none")
