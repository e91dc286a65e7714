"""Tests of the list of requirements (needs.toml) that some machines lack."""

from __future__ import annotations

import pytest

from needs import NEEDS, missing


def test_every_need_has_a_description_and_instructions() -> None:
    """An unquoted name with a dot would be a nested table of TOML."""
    assert [name for name, entry in NEEDS.items() if sorted(entry) != ["how", "what"]] == []


def test_a_missing_need_skips_and_an_unknown_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYHOP_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"needs dash\.js: none"):
        missing("dash.js", "none")
    with pytest.raises(pytest.fail.Exception, match="does not list"):
        missing("luck", "none")
