"""docs/how-to/prediction.md: its commands run, in order, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from needs import needs_predict
from predictors import levels, write_rtt
from skyhop.predict import frame
from skyhop.predict.models import kinds
from skyhop.predict.windows import GROUPS
from skyhop.study.prediction import METRICS

PAGE = (ROOT / "docs" / "how-to" / "prediction.md").read_text("utf-8")


@pytest.mark.soak
def test_the_pages_commands_run_in_order_and_print_what_it_says(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_predict("xgboost")
    monkeypatch.setenv("COLUMNS", "130")
    write_rtt(tmp_path / "site.csv", levels(1800))
    write_rtt(tmp_path / "other.csv", levels(400, seed=9))
    blocks = re.findall(r"```console\n(.+?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        command = re.findall(r"^\$ skyhop (.+)$", block, re.MULTILINE)[0]
        done = skyhop(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
        printed = " ".join((done.stdout + done.stderr).split())
        for line in block.splitlines()[1:]:
            assert " ".join(line.split()) in printed, (command, line)
    assert (tmp_path / "predicted.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/how-to/prediction.md", "exec"), {})


def test_the_page_lists_every_group_model_column_and_metric() -> None:
    for name in GROUPS:
        assert re.search(rf"^\| {name} \|", PAGE, re.MULTILINE), name
    for name in kinds():
        assert re.search(rf"^\| {name} \|", PAGE, re.MULTILINE), name
    for name in frame.COLUMNS:
        stem = re.sub(r"_\d+_.*|_(min|mean|max)$", "", name)
        assert f"`{stem}" in PAGE, name
    for metric in METRICS:
        assert re.sub("^(best|grid)_", "", metric.name) in PAGE, metric.name
