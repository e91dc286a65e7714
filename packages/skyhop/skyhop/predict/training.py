"""Plans of training: parameters, and the parts of the data. skyhop-lab has the trainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np

from skyhop.errors import InputError, RunError
from skyhop.install import how_to_install
from skyhop.predict.baselines import BASELINES
from skyhop.predict.model import Evaluation, Model, evaluate
from skyhop.predict.sources import Data
from skyhop.predict.split import (
    LEAST_OTHERS,
    LEAST_TRAIN,
    TRAIN_SHARE,
    Bounds,
    bounds_of,
    parts_of,
)
from skyhop.predict.windows import (
    LONGEST_HORIZON_S,
    TARGETS,
    USUAL,
    Features,
    Target,
    Windows,
    features_of,
    target_column,
    windows_of,
)

Report = Callable[[str], None]
"""Function that receives lines about the progress."""

Predicts: TypeAlias = Literal["change", "value"]

_GROUP = "skyhop.training"
"""Entry point group of the function that trains predictors."""


@dataclass(frozen=True)
class Plan:
    """Parameters of training.

    Attributes:
        target: "latency" or "throughput".
        horizons: horizons in seconds; each gets a file of its own in the model.
        groups: groups of features, from `windows.GROUPS`.
        seed: seed of all random numbers.
        train_share: share of each node's seconds to train with; the rest is the test part.
        predicts: what models are trained to predict: the change from the last value, or the value.
            ARIMA decides on differences itself.
    """

    target: Target = "latency"
    horizons: Sequence[int] = (1,)
    groups: Sequence[str] = USUAL
    seed: int = 1
    train_share: float = TRAIN_SHARE
    predicts: Predicts = "change"

    def check(self) -> None:
        """Check the values; raise an InputError about an invalid one."""
        if self.target not in TARGETS:
            raise InputError(f'--target: expected {" or ".join(TARGETS)}, not "{self.target}"')
        if not self.horizons or not all(1 <= h <= LONGEST_HORIZON_S for h in self.horizons):
            raise InputError(f"--horizon: expected seconds from 1 to {LONGEST_HORIZON_S}")
        if not 0 <= self.seed < 2**32:
            raise InputError("--seed: expected a number from 0 to 4294967295")
        if self.predicts not in get_args(Predicts):
            raise InputError(
                f'--predicts: expected {" or ".join(get_args(Predicts))}, not "{self.predicts}"'
            )
        if not 0.1 <= self.train_share <= 0.95:  # noqa: PLR2004
            raise InputError("--train-share: expected a share from 0.1 to 0.95")


@dataclass(frozen=True)
class Parts:
    """Windows of one horizon, split into parts."""

    fit: Windows
    check: Windows
    test: Windows
    bounds: list[Bounds]

    @staticmethod
    def of(data: Data, features: Features, horizon_s: int, plan: Plan) -> Parts:
        """Return the parts of one horizon; raise an InputError if the data are too short."""
        names = data.frame["node"].to_numpy()
        nodes = np.concatenate(([0], np.cumsum(names[1:] != names[:-1]))).astype(np.int64)
        bounds = bounds_of(nodes, data.frame["time_ns"].to_numpy(), plan.train_share)
        windows = windows_of(data.frame, features, horizon_s)
        fit, check, test = (windows.select(part) for part in parts_of(windows, bounds))
        if len(fit) < LEAST_TRAIN or min(len(check), len(test)) < LEAST_OTHERS:
            raise InputError(
                f"the data are too short: {len(fit):,}, {len(check):,} and {len(test):,} windows "
                f"of {horizon_s} s to train, to check and to test with; it takes {LEAST_TRAIN}, "
                f"{LEAST_OTHERS} and {LEAST_OTHERS} at least, without gaps"
            )
        return Parts(fit, check, test, bounds)


class Train(Protocol):
    """Function that trains models and writes each to the directory `output`/NAME."""

    def __call__(
        self,
        data: Data,
        names: Sequence[str],
        output: str | Path,
        plan: Plan | None = None,
        report: Report = ...,
    ) -> list[Model]:
        """Return the models, read from their directories; see `skyhop_lab.predict.training`."""
        ...


def trainer() -> Train:
    """Return the function that trains models.

    Raises:
        RunError: skyhop-lab is not installed.
    """
    for point in entry_points(group=_GROUP, name="predictors"):
        found: Train = point.load()
        return found
    raise RunError(
        "training of predictors comes with skyhop-lab, which is not installed: "
        f"run {how_to_install('skyhop-lab[predict]')}"
    )


def evaluate_baseline(data: Data, name: str, plan: Plan) -> Evaluation:
    """Evaluate a baseline on the test part, for the first horizon of the plan.

    Raises:
        InputError: the data are too short or lack the target.
    """
    plan.check()
    column = target_column(data.frame, plan.target, data.options.direction)
    features = features_of(data.frame, plan.target, column, plan.groups)
    return evaluate(BASELINES[name], Parts.of(data, features, plan.horizons[0], plan).test)
