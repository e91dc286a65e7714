"""Plan of a study: its points, metrics and claims, checked as far as possible without runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skyhop.data.scenarios import resolved_sets
from skyhop.errors import InputError
from skyhop.study.axes import expand
from skyhop.study.claims import CheckedClaim, check_claims
from skyhop.study.file import StudyFile, parse_study, read_study_file
from skyhop.study.key_errors import entry
from skyhop.study.metrics import MetricSet
from skyhop.study.panels import check_panels, check_published
from skyhop.study.relative import check_relative
from skyhop.study.run_ids import PlannedRun
from skyhop.study.run_kinds import run_kind
from skyhop.study.senders import with_policies


class Study:
    """Study that was read and checked, as far as this is possible without running it.

    Attributes:
        file: content of the study file; the axis of senders includes the `policies`.
        origin: name of the study in error messages: its file.
        kind: kind of the runs.
        base: scenario, or table of the engine, whose keys the axes set; unchecked.
        scenario_origin: file of `base`; relative names in `base` resolve against its directory.
        points: points of the study, each of which runs with every seed.
        metrics: built-in metrics, and those of the file.
        claims: claims of the file with their parsed expressions.
        sets: overrides of every run, each KEY=VALUE; they follow the values of the axes.
        policies: learned senders that the user added: name and card.
    """

    def __init__(
        self,
        file: StudyFile,
        origin: str,
        sets: Sequence[str] = (),
        policies: Mapping[str, Path] | None = None,
    ) -> None:
        self.policies = dict(policies or {})
        file = with_policies(file, self.policies, origin)
        self.file = file
        self.origin = origin
        self.sets = tuple(sets)
        self.kind = run_kind(file.engine)
        if self.sets and self.kind.compares_elements:
            raise InputError(f"{origin}: has no runs whose keys change: leave --set out")
        self.base, self.scenario_origin = self.kind.base(file, origin)
        self.points = expand(file, origin, [text.partition("=")[0].strip() for text in self.sets])
        self.metrics = MetricSet.build(file.metric, origin, self.kind.metrics)
        _check_axis_names(file, self.metrics, origin)
        check_relative(file, origin)
        self.claims: list[CheckedClaim] = check_claims(file, self.metrics, origin)
        check_published(file, self.metrics, origin)
        check_panels(file, self.metrics, origin)

    @property
    def run_count(self) -> int:
        """Number of points times number of seeds, even if some runs have the same scenario."""
        return 0 if self.kind.compares_elements else len(self.points) * self.file.repeats

    def runs(self) -> Iterator[PlannedRun]:
        """Yield the study's runs: for each point, one run per seed.

        Raises:
            InputError: the scenario of a point is invalid; the message names the point.
        """
        return self.kind.plan(self)


def load_study(
    source: str | os.PathLike[str] | Mapping[str, Any],
    policies: Mapping[str, Path] | None = None,
    sets: Sequence[str] = (),
) -> Study:
    """Read a study from a file, or from a dictionary with the content of a file.

    Args:
        source: study file, or its content.
        policies: learned senders to add: name, and card file or name of a shipped card.
        sets: overrides of the scenario in all runs, each "KEY=VALUE".

    Raises:
        InputError: a key is wrong; one line names the file, the key and what was expected.
    """
    if isinstance(source, Mapping):
        file, origin = parse_study(dict(source), "the study"), "the study"
    else:
        file, origin = read_study_file(source), os.fspath(source)
    return Study(file, origin, resolved_sets(sets), policies)


def _check_axis_names(file: StudyFile, metrics: MetricSet, origin: str) -> None:
    for place, axis in enumerate(file.axis):
        if axis.name in metrics.columns:
            raise InputError(
                f"{origin}: {entry('axis', place)}.name: `{axis.name}` is a column of the results: "
                "choose another name"
            )
