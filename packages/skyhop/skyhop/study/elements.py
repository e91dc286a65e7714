"""Engine "elements" of studies, which has no runs: it compares two snapshots of element sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skyhop.analysis.report_timing import report_timing
from skyhop.errors import InputError
from skyhop.study.execution import Recipe, Task
from skyhop.study.file import StudyFile
from skyhop.study.metrics import BUILT_IN
from skyhop.study.plan import Study
from skyhop.study.run_ids import PlannedRun
from skyhop.study.run_kinds import RunKind, check_tables
from skyhop.study.worker_context import WorkerContext


class _ElementsKind(RunKind):
    """Kind of studies without runs, whose rows are the satellites of two snapshots."""

    metrics = BUILT_IN
    compares_elements = True

    def base(self, file: StudyFile, origin: str) -> tuple[dict[str, Any], str]:
        check_tables(file, self, origin)
        if file.base or file.scenario or file.axis or file.metric:
            raise InputError(f'{origin}: engine = "elements" takes no scenario, axes or metrics')
        return {}, origin

    def plan(self, _study: Study) -> Iterator[PlannedRun]:
        return iter(())

    def prepare(self, study: Study, runs: Sequence[PlannedRun]) -> None:
        """Do nothing, because there are no runs."""

    def run(
        self, _recipe: Recipe, _task: Task, _context: WorkerContext, _staged: Path
    ) -> list[dict[str, Any]]:
        return []


ELEMENTS = _ElementsKind()


def timing_error_rows(old: Path, new: Path) -> list[dict[str, object]]:
    """Return a row per satellite in both files, with timing error in s and position error in m.

    The column `run` holds the satellite's catalogue number.

    Raises:
        InputError: a file holds no element sets, or the files have no satellite in common.
    """
    found = report_timing(old, new)
    return [
        {
            "seed": 0,
            "run": str(number),
            "report_timing_error_s": float(error_s),
            "position_error_m": float(error_m),
        }
        for number, error_s, error_m in zip(
            found.catalogue_numbers, found.errors_s, found.position_errors_m, strict=True
        )
    ]
