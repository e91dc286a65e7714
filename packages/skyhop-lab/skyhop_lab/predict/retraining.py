"""Online retraining, evaluated by walking forward over data.

T3P leaves online retraining to future work. After each period, a candidate is trained on the newest
hours before that period. Candidate and model in use are then compared on that period, and the one
with the lower mean absolute error predicts the next period. The given model predicts the first
period. No prediction uses its own or a later second. As in the split, lengths count known seconds,
without gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import IntArray
from skyhop.errors import InputError
from skyhop.predict.model import Evaluation, Model, evaluate
from skyhop.predict.models import ModelKind, Predictor, kinds
from skyhop.predict.sources import Data
from skyhop.predict.split import CHECK_SHARE, GAP_S, LEAST_OTHERS, LEAST_TRAIN
from skyhop.predict.training import Predicts
from skyhop.predict.windows import SECOND_NS, Windows, windows_of
from skyhop_lab.predict.kinds import trainers
from skyhop_lab.predict.kinds.trainer import check_libraries, train_predictor

SLIDING_S = 86_400
"""Default length in seconds of the past on which candidates are trained."""
LEAST_PERIOD_S = 60


@dataclass(frozen=True)
class WalkForward:
    """Result of online retraining for one horizon.

    Attributes:
        once: evaluation of the given model, without retraining.
        retrained: evaluation of the models in use, on the same seconds.
        periods: number of periods.
        trained: number of trained candidates; there is none for a period with too short a past.
        kept: number of candidates that were better than the model in use.
    """

    once: Evaluation
    retrained: Evaluation
    periods: int
    trained: int
    kept: int


def walk_forward(
    model: Model,
    data: Data,
    every_s: int,
    sliding_s: int = SLIDING_S,
    report: Callable[[str], None] = lambda _line: None,
) -> list[WalkForward]:
    """Evaluate online retraining on data, for each horizon of a model.

    The predicted seconds are those of `Model.test`; candidates are also trained on earlier seconds.
    Candidates are trained on all nodes together.

    Args:
        model: the model of the first period.
        data: result of `read_data`.
        every_s: length of a period in s.
        sliding_s: length in s of the past on which candidates are trained.
        report: function that receives lines about the progress.

    Raises:
        InputError: the data lack features of the model or are too short, a library is missing, or
            a length is too short.
        RunError: training failed.
    """
    if every_s < LEAST_PERIOD_S:
        raise InputError(f"--retrain: expected {LEAST_PERIOD_S} s at least")
    if sliding_s < 2 * every_s:
        raise InputError("--sliding: expected twice the time of --retrain at least")
    kind = kinds()[model.card.model]
    check_libraries(trainers()[kind.name])
    found = []
    for once in model.test(data):
        if len(once.truth):
            windows = windows_of(data.frame, model.features, once.horizon_s)
            wanted = model.unseen(data.frame, windows)
            walk = _Walk(model, kind, windows, every_s, sliding_s)
            found.append(walk.forward(once, wanted, report))
    return found


class _Walk:
    """Walk over the data for one horizon: the model in use, and the training of candidates."""

    def __init__(
        self, model: Model, kind: ModelKind, windows: Windows, every_s: int, sliding_s: int
    ) -> None:
        self._kind, self._seed, self._windows = kind, model.card.seed, windows
        of_values = all(each.last_at_most is None for each in model.card.horizons)
        self._predicts: Predicts = "value" if of_values else "change"
        self._every_s, self._sliding_s = every_s, sliding_s
        self._known_ns = np.unique(_made_ns(windows))
        self._in_use: Predictor = model.predict
        self._trained = self._kept = 0

    def forward(
        self, once: Evaluation, wanted: Windows, report: Callable[[str], None]
    ) -> WalkForward:
        """Predict the windows of an evaluation, period by period."""
        # A prediction is by the model that is in use when it is made, not in the predicted second.
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
                report(
                    f"{once.horizon_s} s ahead, period {number + 1} of {len(begins)}: "
                    f"{self._kept} of {self._trained} candidates kept so far"
                )
            if is_now.any():
                predicted[is_now] = self._in_use(wanted.select(is_now))
        retrained = evaluate(lambda _windows: predicted, wanted)
        return WalkForward(once, retrained, len(begins), self._trained, self._kept)

    def _train(self, begin: int) -> None:
        """Train a candidate on data from before a period, and use it if it is better."""
        now_ns, judge_ns, from_ns = (
            int(self._known_ns[max(begin - ago_s, 0)])
            for ago_s in (0, self._every_s, self._sliding_s)
        )
        judging = self._between(judge_ns, now_ns)
        # The gap keeps seconds of the training part out of windows of the comparison's period.
        fit, check = self._parts(from_ns, judge_ns - GAP_S * SECOND_NS)
        if len(fit) < LEAST_TRAIN or min(len(check), len(judging)) < LEAST_OTHERS:
            return
        candidate = train_predictor(
            trainers()[self._kind.name], fit, check, self._seed, predicts=self._predicts
        ).predict
        self._trained += 1
        errors = [
            float(np.abs(predict(judging) - judging.truth).mean())
            for predict in (candidate, self._in_use)
        ]
        if errors[0] < errors[1]:
            self._in_use = candidate
            self._kept += 1

    def _parts(self, from_ns: int, to_ns: int) -> tuple[Windows, Windows]:
        """Split the windows of a period into a training part and, at its end, a check part."""
        period = self._between(from_ns, to_ns)
        if not len(period):
            return period, period
        check_ns = int(np.quantile(period.end_ns, 1 - CHECK_SHARE, method="nearest"))
        is_check = period.end_ns >= check_ns + GAP_S * SECOND_NS
        return period.select(period.end_ns < check_ns), period.select(is_check)

    def _between(self, from_ns: int, to_ns: int) -> Windows:
        end_ns = self._windows.end_ns
        return self._windows.select((end_ns >= from_ns) & (end_ns < to_ns))


def _made_ns(windows: Windows) -> IntArray:
    """Return the times at which predictions are made: the end of the last second that each uses."""
    return windows.end_ns - windows.horizon_s * SECOND_NS
