"""Online retraining: a model that is trained anew as time goes on, walked forward over data.

T3P leaves it to future work. After each period a candidate is trained on the newest hours but for
the last period, which then judges: of the candidate and the model in use the one with the lower
mean absolute error over it predicts the next period. The first period is the model's own. Nothing
that is predicted is known before it is over. As with the split, seconds that are known count, not
the gaps between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import FloatArray, IntArray
from skyhop.errors import InputError
from skyhop.predict.model import Model, Outcome, outcome_of
from skyhop.predict.models import Kind, Predictor, kinds
from skyhop.predict.models.kind import check_libraries
from skyhop.predict.sources import Data
from skyhop.predict.split import CHECK_SHARE, GAP_S, LEAST_OTHERS, LEAST_TRAIN
from skyhop.predict.windows import SECOND_NS, Windows, windows_of

SLIDING_S = 86_400
"""So much of the past candidates are trained on, where nothing else is said."""
LEAST_PERIOD_S = 60


@dataclass(frozen=True)
class Retrained:
    """What came of one horizon.

    Attributes:
        once: predictions of the model as it was trained, beside what came.
        outcome: the same seconds, predicted by the models that were kept.
        periods: how many there were.
        trained: after how many of them there was enough to train a candidate.
        kept: how many candidates were better than the model in use.
    """

    once: Outcome
    outcome: Outcome
    periods: int
    trained: int
    kept: int


def retrained(
    model: Model,
    data: Data,
    every_s: int,
    sliding_s: int = SLIDING_S,
    told: Callable[[str], None] = lambda _line: None,
) -> list[Retrained]:
    """Return what comes of a model that is trained anew again and again, a horizon each.

    Predicted are the seconds that `Model.test` predicts; candidates are trained on those before
    too. All nodes are trained together.

    Args:
        model: which begins.
        data: of `read_data`.
        every_s: how long a period is.
        sliding_s: so much of the past candidates are trained on.
        told: is told what is under way.

    Raises:
        InputError: the data lack what the model is given or are too short, a library is missing, or
            the times cannot be.
        RunError: training failed.
    """
    if every_s < LEAST_PERIOD_S:
        raise InputError(f"--retrain: expected {LEAST_PERIOD_S} s at least")
    if sliding_s < 2 * every_s:
        raise InputError("--sliding: expected twice the time of --retrain at least")
    kind = kinds()[model.card.model]
    check_libraries(kind)
    found = []
    for once in model.test(data):
        if len(once.truth):
            windows = windows_of(data.frame, model.features, once.horizon_s)
            wanted = model.unseen(data.frame, windows)
            walk = _Walk(model, kind, windows, every_s, sliding_s)
            found.append(walk.forward(once, wanted, told))
    return found


class _Walk:
    """One horizon's way over the data."""

    def __init__(
        self, model: Model, kind: Kind, windows: Windows, every_s: int, sliding_s: int
    ) -> None:
        self._kind, self._seed, self._windows = kind, model.card.seed, windows
        self._shape = windows.past.shape[2], windows.beside.shape[1]
        self._every_s, self._sliding_s = every_s, sliding_s
        self._known_ns = np.unique(_made_ns(windows))
        self._in_use: Predictor = model.predict
        self._trained = self._kept = 0

    def forward(self, once: Outcome, wanted: Windows, told: Callable[[str], None]) -> Retrained:
        """Predict the windows of an outcome, period by period."""
        # A prediction is made by what is in use then, not by what is when its second comes.
        made_ns = _made_ns(wanted)
        predicted = np.full(len(wanted), np.nan)
        first = int(np.searchsorted(self._known_ns, made_ns.min()))
        begins = range(first, len(self._known_ns), self._every_s)
        for number, begin in enumerate(begins):
            is_now = made_ns >= self._known_ns[begin]
            if begin + self._every_s < len(self._known_ns):
                is_now &= made_ns < self._known_ns[begin + self._every_s]
            if number:
                self._train(begin)
                told(
                    f"{once.horizon_s} s ahead, period {number + 1} of {len(begins)}: "
                    f"{self._kept} of {self._trained} candidates kept so far"
                )
            if is_now.any():
                predicted[is_now] = self._in_use(wanted.chosen(is_now))
        walked = outcome_of(lambda _windows: predicted, wanted)
        return Retrained(once, walked, len(begins), self._trained, self._kept)

    def _train(self, begin: int) -> None:
        """Train a candidate on what was over before a period, and use it if it is better."""
        now_ns, judge_ns, from_ns = (
            int(self._known_ns[max(begin - ago_s, 0)])
            for ago_s in (0, self._every_s, self._sliding_s)
        )
        judging = self._between(judge_ns, now_ns)
        # No window of one part has a second of the part before it.
        fit, check = self._parts(from_ns, judge_ns - GAP_S * SECOND_NS)
        if len(fit) < LEAST_TRAIN or min(len(check), len(judging)) < LEAST_OTHERS:
            return
        made = self._kind.train(fit, check, self._seed)
        read = self._kind.read(made.content, *self._shape)
        self._trained += 1

        def candidate(windows: Windows) -> FloatArray:
            return np.maximum(read(windows), 0.0)

        errors = [
            float(np.abs(asked(judging) - judging.truth).mean())
            for asked in (candidate, self._in_use)
        ]
        if errors[0] < errors[1]:
            self._in_use = candidate
            self._kept += 1

    def _parts(self, from_ns: int, to_ns: int) -> tuple[Windows, Windows]:
        """Return windows to train and to check with, the last of them."""
        whole = self._between(from_ns, to_ns)
        if not len(whole):
            return whole, whole
        check_ns = int(np.quantile(whole.end_ns, 1 - CHECK_SHARE, method="nearest"))
        is_check = whole.end_ns >= check_ns + GAP_S * SECOND_NS
        return whole.chosen(whole.end_ns < check_ns), whole.chosen(is_check)

    def _between(self, from_ns: int, to_ns: int) -> Windows:
        end_ns = self._windows.end_ns
        return self._windows.chosen((end_ns >= from_ns) & (end_ns < to_ns))


def _made_ns(windows: Windows) -> IntArray:
    """Return when predictions are made: at the end of the last second that they know."""
    return windows.end_ns - windows.horizon_s * SECOND_NS
