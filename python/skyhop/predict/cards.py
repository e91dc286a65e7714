"""Model cards: what a model was trained on, how, and how well it does beside the baselines.

A model is a directory: `card.json`, and a file per horizon beside it, whose digests the card has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skyhop.errors import InputError, RunError
from skyhop.predict.measures import LOWER_IS_BETTER, Errors, is_better
from skyhop.predict.windows import LONGEST_HORIZON_S

FILE = "card.json"
SCHEMA = 1
_LARGEST_FILE = 20 << 20

Figure = Annotated[float, Field(ge=0, le=1e300)]
Text = Annotated[str, Field(max_length=300)]
Time = Annotated[int, Field(ge=0, lt=2**63)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False, strict=False
    )


class Measures(_Strict):
    """As `measures.Errors`."""

    seconds: int = Field(ge=0)
    nonzero_seconds: int = Field(ge=0)
    mape_pct: Figure | None
    weighted_ape_pct: Figure | None
    rmse: Figure | None
    mae: Figure | None
    within_5_pct: Figure | None
    within_10_pct: Figure | None
    ape_p50_pct: Figure | None
    ape_p95_pct: Figure | None
    ape_p99_pct: Figure | None

    @staticmethod
    def of(errors: Errors) -> Measures:
        """Return errors as they stand in cards."""
        return Measures(**errors.as_dict())


class Compared(_Strict):
    """A model and the baselines over the same seconds."""

    model: Measures
    baselines: dict[Text, Measures]


class Worse(_Strict):
    """A measure by which a baseline is better than the model."""

    measure: Text
    baseline: Text
    its: Figure
    the_models: Figure


class HorizonCard(_Strict):
    """One horizon of a model."""

    horizon_s: int = Field(ge=1, le=LONGEST_HORIZON_S)
    file: str = Field(pattern=r"^[a-z0-9-]{1,40}\.(json|npz)$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    train_seconds: int = Field(ge=0)
    check_seconds: int = Field(ge=0)
    details: dict[str, Any]
    """What training chose, and how far it went."""
    all_seconds: Compared
    """Over the test part."""
    grid_seconds: Compared
    """Over those of its seconds that hold a moment of the grid of 15 s."""
    worse: list[Worse]
    """By which measures the best baseline is better, over all seconds of the test part."""


class SourceCard(_Strict):
    """One of the data."""

    name: Text
    kind: Text
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    seconds: int = Field(ge=0)


class PartCard(_Strict):
    """How one node's time was divided: ends of seconds in ns of UTC."""

    node: Text
    first_ns: Time
    check_ns: Time
    test_ns: Time
    last_ns: Time


class Card(_Strict):
    """A model's card."""

    schema_: int = Field(alias="schema", ge=1)
    skyhop: Text
    model: Text
    target: Literal["latency", "throughput"]
    column: Text
    """Of the data frame: what was predicted."""
    unit: Text
    direction: Literal["down", "up"]
    per_second: Literal["median", "mean", "first"]
    features: list[Text]
    """Groups that the data knew something of."""
    past: list[Text] = Field(min_length=1, max_length=20)
    beside: list[Text] = Field(max_length=200)
    seed: int = Field(ge=0, lt=2**32)
    train_share: float = Field(gt=0, lt=1)
    gap_s: int = Field(ge=0)
    sources: list[SourceCard]
    parts: list[PartCard]
    libraries: dict[Text, Text]
    horizons: list[HorizonCard] = Field(min_length=1, max_length=LONGEST_HORIZON_S)
    notes: list[str]

    def text(self) -> bytes:
        """Return the file's content."""
        content = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def worse_than(compared: Compared) -> list[Worse]:
    """Return by which measures the best baseline is better than the model."""
    found = []
    for measure in LOWER_IS_BETTER:
        own: float | None = getattr(compared.model, measure)
        best = best_baseline(compared.baselines, measure)
        if best is None or own is None:
            continue
        name, its = best
        if is_better(measure, its, own):
            found.append(Worse(measure=measure, baseline=name, its=its, the_models=own))
    return found


def best_baseline(baselines: Mapping[str, Measures], measure: str) -> tuple[str, float] | None:
    """Return the name and the value of the best baseline by a measure."""
    best: tuple[str, float] | None = None
    for name, measures in baselines.items():
        value: float | None = getattr(measures, measure)
        if value is not None and (best is None or is_better(measure, value, best[1])):
            best = name, value
    return best


def read_card(file: Path) -> Card:
    """Read a card.

    Raises:
        InputError: it is none, damaged, or of a newer skyhop.
        RunError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise InputError(f"{file}: is larger than {_LARGEST_FILE >> 20} MB: is no model card")
        content = json.loads(text.decode())
        # Halves of letters, which JSON can write and nothing can print.
        json.dumps(content, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file: give a directory of a model") from None
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is no model card: {error}") from None
    version = content.get("schema") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA:
        raise InputError(f"{file}: version {version}; this skyhop reads {SCHEMA}: update skyhop")
    try:
        card = Card.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "the whole"
        raise InputError(f"{file}: is no model card: {where}: {first['msg']}") from None
    horizons = [each.horizon_s for each in card.horizons]
    if len(set(horizons)) < len(horizons):
        raise InputError(f"{file}: is no model card: a horizon is there twice")
    return card
