"""Model cards: training data and parameters of a model, its errors, and those of baselines.

A model is a directory with `card.json` and one file per horizon; the card has their digests.
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
    """Errors of predictions, as in a card; the fields are those of `measures.Errors`."""

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
        """Convert errors to the form of cards."""
        return Measures(**errors.as_dict())


class Comparison(_Strict):
    """Errors of a model and of the baselines over the same seconds."""

    model: Measures
    baselines: dict[Text, Measures]


class BetterBaseline(_Strict):
    """Error measure by which a baseline is better than the model, with both values."""

    measure: Text
    baseline: Text
    its: Figure
    the_models: Figure


class HorizonCard(_Strict):
    """Part of a card about one horizon of the model."""

    horizon_s: int = Field(ge=1, le=LONGEST_HORIZON_S)
    file: str = Field(pattern=r"^[a-z0-9-]{1,40}\.(json|npz)$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    train_seconds: int = Field(ge=0)
    check_seconds: int = Field(ge=0)
    last_at_most: Figure | None = None
    """Largest last value to which the predicted change is added, in the column's unit; None if the
    model predicts the value itself."""
    details: dict[str, Any]
    """Results of training that depend on the kind of model: chosen parameters, steps, …."""
    all_seconds: Comparison
    """Comparison over all seconds of the test part."""
    grid_seconds: Comparison
    """Comparison over those seconds of the test part that contain a moment of the 15 s grid."""
    worse: list[BetterBaseline]
    """Measures by which the best baseline is better, over all seconds of the test part."""


class SourceCard(_Strict):
    """Source of the data: a file or directory, with its digest."""

    name: Text
    kind: Text
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    seconds: int = Field(ge=0)


class PartCard(_Strict):
    """Division of one node's time into parts; times are ends of seconds, in ns since 1970 (UTC)."""

    node: Text
    first_ns: Time
    check_ns: Time
    test_ns: Time
    last_ns: Time


class Card(_Strict):
    """Card of a model, the content of card.json."""

    schema_: int = Field(alias="schema", ge=1)
    skyhop: Text
    model: Text
    target: Literal["latency", "throughput"]
    column: Text
    """Column of the data frame that is predicted."""
    unit: Text
    direction: Literal["down", "up"]
    per_second: Literal["median", "mean", "first"]
    features: list[Text]
    """Groups of features for which the data had values."""
    past: list[Text] = Field(min_length=1, max_length=20)
    """Columns whose past values are features (see `windows.Features`)."""
    beside: list[Text] = Field(max_length=200)
    """Names of the covariates, see `windows.Features`."""
    seed: int = Field(ge=0, lt=2**32)
    train_share: float = Field(gt=0, lt=1)
    gap_s: int = Field(ge=0)
    sources: list[SourceCard]
    parts: list[PartCard]
    libraries: dict[Text, Text]
    horizons: list[HorizonCard] = Field(min_length=1, max_length=LONGEST_HORIZON_S)
    notes: list[str]

    def text(self) -> bytes:
        """Return the content of card.json."""
        content = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def better_baselines(comparison: Comparison) -> list[BetterBaseline]:
    """Return the error measures by which the best baseline is better than the model."""
    found = []
    for measure in LOWER_IS_BETTER:
        own: float | None = getattr(comparison.model, measure)
        best = best_baseline(comparison.baselines, measure)
        if best is None or own is None:
            continue
        name, its = best
        if is_better(measure, its, own):
            found.append(BetterBaseline(measure=measure, baseline=name, its=its, the_models=own))
    return found


def best_baseline(baselines: Mapping[str, Measures], measure: str) -> tuple[str, float] | None:
    """Return the name and the value of the best baseline by a measure; None if none has one."""
    best: tuple[str, float] | None = None
    for name, measures in baselines.items():
        value: float | None = getattr(measures, measure)
        if value is not None and (best is None or is_better(measure, value, best[1])):
            best = name, value
    return best


def read_card(file: Path) -> Card:
    """Read and check a model's card.

    Raises:
        InputError: the file is not a card, is damaged, or was written by a newer skyhop.
        RunError: the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise InputError(f"{file}: is larger than {_LARGEST_FILE >> 20} MB: is no model card")
        content = json.loads(text.decode())
        # Refuse lone surrogates ("\ud800"), which JSON may contain and which cannot be printed.
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
