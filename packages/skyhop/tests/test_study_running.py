"""Running of studies: the dataset, failures, and interruption at any time."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Skyhop, skyhop_command

import skyhop as sh
from needs import needs_ray
from reference_files import reference
from skyhop.data.scenarios import load_scenario
from skyhop.errors import InputError
from skyhop.study import load_study, run_study
from skyhop.study.metric_kinds import ExpressionMetric
from skyhop.study.metrics import MetricSet
from skyhop.study.worker_context import WorkerContext
from small_study import content, write
from synthetic_run import SyntheticRun
from waiting import wait_for


def run(output: Path, study: dict[str, Any], **options: Any) -> pl.DataFrame:
    done = run_study(load_study(study), output, **options)
    assert not done.failures
    return pl.read_parquet(output / "results.parquet")


@pytest.mark.integration
def test_the_dataset_has_a_row_per_run(tmp_path: Path) -> None:
    metric = {"name": "p10", "kind": "samples", "stat": "p10", "bin": "1 s", "unit": "Mbit/s"}
    per_s = {"name": "per_s", "kind": "expression", "value": "goodput / srtt"}
    frame = run(tmp_path / "out", content(metric=[metric, per_s]), jobs=2)
    assert frame.columns[:4] == ["cc", "loss", "seed", "run"]
    assert frame.height == 8
    assert frame.get_column("cc").unique(maintain_order=True).to_list() == ["cubic", "bbr"]
    first = frame.row(0, named=True)
    alone = sh.sim(content()["scenario"], sets=["link.loss=0.1 %"], seed=1).summary
    assert first["goodput_bps"] == alone["flows"][0]["goodput_bps"]
    assert first["srtt_mean_us"] == alone["flows"][0]["srtt_mean_us"]
    assert 0 < first["p10_mbps"] <= first["goodput_bps"] / 1e6
    ratio = first["goodput_bps"] / 1e6 / (first["srtt_mean_us"] / 1e3)
    assert first["per_s"] == pytest.approx(ratio)
    # Any reader of Parquet will do.
    assert frame.to_pandas().shape == frame.shape


def test_samples_count_within_the_flows_lifetime(tmp_path: Path) -> None:
    study = content(axis=[], repeats=1)
    study["scenario"]["flow"].append({"cc": "bbr", "start": "1 s"})
    study["metric"] = [
        {"name": "early", "kind": "samples", "until": "1 s"},
        {"name": "late", "kind": "samples", "from": "1 s"},
        {"name": "after", "kind": "transient", "after": "change", "window": "500 ms"},
    ]
    study["scenario"]["change"] = [{"at": "2 s", "rate": "1 Mbit/s"}]
    first, second = run(tmp_path, study).rows(named=True)
    assert first["early"] > 1
    assert second["early"] is None
    assert second["late"] > 0
    assert first["after"] + second["after"] < 2


def test_the_time_after_outages_is_not_that_after_other_changes(tmp_path: Path) -> None:
    study = content(axis=[], repeats=1)
    study["metric"] = [
        {"name": after, "kind": "transient", "after": after, "window": "500 ms"}
        for after in ("change", "outage")
    ]
    study["scenario"]["change"] = [
        {"at": "1 s", "outage": "1 ms", "rate": "5 Mbit/s"},
        {"at": "1.5 s", "rate": "0.5 Mbit/s"},
    ]
    (row,) = run(tmp_path, study).rows(named=True)
    assert row["change"] < 0.75 * row["outage"]


def test_metrics_of_applications_belong_to_the_rows_flow(tmp_path: Path) -> None:
    made = SyntheticRun(("cubic", "bbr"), duration_s=6.0, apps=(None, "messages"))
    slowest = ExpressionMetric(name="slowest", kind="expression", value="latency_p99 / latency_p50")
    metrics = MetricSet.build([slowest], "x")
    bulk, messages = metrics.rows(made.write(tmp_path / "run"))
    (app,) = made.summary_json()["apps"]
    for name, value in (
        ("latency_p50", app["latency_p50_us"] / 1e3),
        ("latency_p95", app["latency_p95_us"] / 1e3),
        ("latency_p99", app["latency_p99_us"] / 1e3),
        ("completed", 29),
        ("failed", 1),
    ):
        info = metrics.find(name, "x")
        assert messages[info.column] * info.factor == pytest.approx(value)
        assert bulk[info.column] is None
    assert messages["slowest"] == pytest.approx(app["latency_p99_us"] / app["latency_p50_us"])
    assert bulk["slowest"] is None


def test_an_axis_over_applications_can_be_called_app(tmp_path: Path) -> None:
    axis = {"name": "app", "key": "flow.0.cc", "values": ["cubic", "bbr"]}
    frame = run(tmp_path, content(axis=[axis], repeats=1))
    assert frame.get_column("app").to_list() == ["cubic", "bbr"]


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    run(tmp_path, content(), jobs=2)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.*")}
    assert before
    reports: list[tuple[int, int]] = []
    run(tmp_path, content(), progress=lambda done, total: reports.append((done, total)))
    assert reports == []
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.*")}
    run(tmp_path, content(repeats=3), progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (4, 4), "only the new seed"


def test_new_metrics_are_measured_without_new_runs(tmp_path: Path) -> None:
    run(tmp_path, content(), jobs=2)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.parquet")}
    metric = {"name": "p10", "kind": "samples", "stat": "p10"}
    frame = run(tmp_path, content(metric=[metric]), jobs=2)
    assert frame.get_column("p10").null_count() == 0
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.parquet")}
    assert before == after


def test_finished_runs_of_another_study_are_reused(tmp_path: Path) -> None:
    metric = {"name": "p10", "kind": "samples", "stat": "p10"}
    first = run(tmp_path / "first", content(), jobs=2)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "first").rglob("*.*")}
    # The first study finished two of three seeds, and measured other metrics.
    wider = content(repeats=3, metric=[metric], title="Another")
    frame = run(tmp_path / "second", wider, jobs=2, reuse=[tmp_path / "first"])
    assert frame.height == 12
    assert frame.equals(run(tmp_path / "alone", wider, jobs=2))
    shared = set(first.get_column("run"))
    assert shared < set(frame.get_column("run"))
    for run_id in frame.get_column("run"):
        table = tmp_path / "second" / "runs" / run_id / "flows.parquet"
        assert table.stat().st_nlink == (2 if run_id in shared else 1)
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "first").rglob("*.*")}
    # Removing the first study leaves the second complete.
    shutil.rmtree(tmp_path / "first")
    reports: list[tuple[int, int]] = []
    run(tmp_path / "second", wider, progress=lambda *progress: reports.append(progress))
    assert reports == []


def test_rows_without_tables_are_reused_for_the_same_metrics(tmp_path: Path) -> None:
    rows = content(keep="rows")
    first = run(tmp_path / "first", rows, jobs=2)
    reports: list[tuple[int, int]] = []

    def again(name: str, study: dict[str, Any]) -> pl.DataFrame:
        return run(tmp_path / name, study, reuse=[tmp_path / "first"], jobs=2,
                   progress=lambda *progress: reports.append(progress))  # fmt: skip

    assert again("same", rows).equals(first)
    assert reports == []
    again("other", content(metric=[{"name": "p10", "kind": "samples", "stat": "p10"}]))
    assert reports[-1] == (8, 8)
    with pytest.raises(InputError, match="no study has been run there"):
        run(tmp_path / "third", rows, reuse=[tmp_path / "nowhere"])


def test_keep_rows_keeps_only_rows(tmp_path: Path) -> None:
    metric = {"name": "p10", "kind": "samples", "stat": "p10"}
    rows = run(tmp_path / "rows", content(metric=[metric], keep="rows"), jobs=2)
    series = run(tmp_path / "series", content(metric=[metric]), jobs=2)
    assert rows.equals(series)
    # Without a metric of samples, runs write nothing but their summary.
    summary_rows = run(tmp_path / "summary", content(keep="rows"), jobs=2)
    assert summary_rows.equals(series.drop("p10"))
    kept = [
        file.name
        for name in ("rows", "summary")
        for file in (tmp_path / name / "runs").rglob("*.*")
    ]
    assert kept
    assert all(name.startswith("rows-") for name in kept)


@pytest.mark.usefixtures("pictures")
def test_a_failed_run_is_reported_and_the_others_continue(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "psychic"]}
    write(tmp_path / "study.toml", axis=[axis])
    done = skyhop("study", "run", "study.toml", "-o", "out", "--jobs", 2)
    assert done.returncode == 1
    assert "failed: 2 runs (cc = psychic): " in done.stderr
    failures = json.loads((tmp_path / "out" / "failures.json").read_text("utf-8"))
    assert [failure["at"] for failure in failures] == [{"cc": "psychic"}] * 2
    assert 'cc = "psychic"' in failures[0]["scenario"]
    frame = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert frame.get_column("cc").to_list() == ["cubic", "cubic"]
    assert not (tmp_path / "out" / "unfinished").exists()
    write(tmp_path / "study.toml", axis=[{**axis, "values": ["cubic", "reno"]}])
    assert skyhop("study", "run", "study.toml", "-o", "out").returncode == 0
    assert not (tmp_path / "out" / "failures.json").exists()


def test_shared_paths_do_not_change_results(tmp_path: Path) -> None:
    scenario = {
        "path": {"from": "San Diego", "to": "New York", "relay": "bent-pipe"},
        "flow": [{"cc": "bbr"}],
        "run": {"duration": "8 s"},
    }
    axes = [
        {"name": "relay", "key": "path.relay", "values": ["bent-pipe", "isl"]},
        {"name": "during", "key": "path.during_outage", "values": ["drop", "hold"]},
    ]
    frame = run(tmp_path, content(scenario=scenario, axis=axes, repeats=1), jobs=2)
    assert len(list((tmp_path / "paths").glob("*.parquet"))) == 2
    for row in frame.iter_rows(named=True):
        sets = [f"path.relay={row['relay']}", f"path.during_outage={row['during']}"]
        summary = sh.sim(scenario, sets=sets).summary
        assert row["goodput_bps"] == summary["flows"][0]["goodput_bps"]
        assert row["srtt_mean_us"] == summary["flows"][0]["srtt_mean_us"]
        assert row["drops_dismantled"] == summary["link"]["drops"]["dismantled"]
        assert row["handovers_end"] == summary["handovers"]["end"]
    shared = {file.stat().st_ino for file in (tmp_path / "paths").glob("*.parquet")}
    copies = list((tmp_path / "runs").glob("*/path.parquet"))
    assert len(copies) == 4
    assert {file.stat().st_ino for file in copies} == shared, "one file of each path"


@pytest.mark.parametrize(
    "path",
    [
        {"kind": "access", "profile": "lagos", "dish": "to"},
        {"relay": "starlink", "from": "San Diego", "to": "San Francisco"},
    ],
)
def test_each_seed_draws_its_own_path_from_an_access_profile(
    tmp_path: Path, path: dict[str, str]
) -> None:
    scenario = {"path": path, "flow": [{"cc": "reno"}], "run": {"duration": "3 s"}}
    axes = [{"name": "cc", "key": "flow.0.cc", "values": ["reno", "cubic"]}]
    frame = run(tmp_path, content(scenario=scenario, axis=axes, repeats=2), jobs=2)
    assert len(list((tmp_path / "paths").glob("*.parquet"))) == 2, "one path per seed"
    for row in frame.iter_rows(named=True):
        sets = [f"flow.0.cc={row['cc']}", f"run.seed={row['seed']}"]
        alone = sh.sim(scenario, sets=sets).summary
        assert row["goodput_bps"] == alone["flows"][0]["goodput_bps"]
        assert row["srtt_mean_us"] == alone["flows"][0]["srtt_mean_us"]


def test_runs_over_a_measured_path_share_it_unless_they_change_it(tmp_path: Path) -> None:
    sh.path("32.7,-117.2", "40.7,-74", duration="5 s").write(tmp_path / "measured.parquet")
    scenario = content()["scenario"]
    scenario["path"] = {"kind": "trace", "file": str(tmp_path / "measured.parquet")}
    scenario["change"] = [{"at": "1 s", "rate": "5 Mbit/s"}]
    points = {"as it is": {"change.0.at": "1 s"}, "another RTT": {"change.0.rtt": "90 ms"}}
    axis = {"name": "change", "points": points}
    frame = run(tmp_path / "out", content(scenario=scenario, axis=[axis]), jobs=2)
    (file,) = (tmp_path / "out" / "paths").glob("*.parquet")
    for row in frame.iter_rows(named=True):
        sets = [f"{key}={json.dumps(value)}" for key, value in points[row["change"]].items()]
        alone = sh.sim(scenario, sets=sets, seed=row["seed"])
        assert row["goodput_bps"] == alone.summary["flows"][0]["goodput_bps"]
        kept = tmp_path / "out" / "runs" / row["run"] / "path.parquet"
        assert kept.read_bytes() == (alone.directory / "path.parquet").read_bytes()
        assert kept.samefile(file) == (row["change"] == "as it is")


def test_a_process_caches_the_last_used_path_and_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("paths", "unfinished"):
        (tmp_path / part).mkdir()
    scenarios = {
        f"path-{seconds}": load_scenario(
            {"path": {"from": "1,2", "to": "3,4"}, "run": {"duration": f"{seconds} s"}}
        )
        for seconds in (4, 5, 6)
    }
    context = WorkerContext(tmp_path)
    four, five, six = (len(context.path(*entry)) for entry in scenarios.items())
    assert four < five < six
    monkeypatch.setattr("skyhop.study.worker_context._MOST_FRAMES", four + six)
    first = context.path("path-6", scenarios["path-6"])
    assert context.path("path-4", scenarios["path-4"]) is not None
    assert context.path("path-6", scenarios["path-6"]) is first, "it fits"
    monkeypatch.setattr("skyhop.study.worker_context._MOST_FRAMES", 1)
    assert context.path("path-6", scenarios["path-6"]) is first, "the last one stays"
    other = context.path("path-5", scenarios["path-5"])
    assert context.path("path-5", scenarios["path-5"]) is other
    assert context.path("path-6", scenarios["path-6"]) is not first


def test_other_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", "utf-8")
    with pytest.raises(InputError, match="holds other files than a study's"):
        run_study(load_study(content()), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def long_study() -> dict[str, Any]:
    """Return a study of 16 runs that take long enough to be interrupted."""
    study = content(repeats=4)
    study["scenario"]["run"]["duration"] = "30 s"
    study["scenario"]["link"]["rate"] = "100 Mbit/s"
    return study


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of the long study's dataset without interruptions."""
    place = tmp_path_factory.mktemp("undisturbed")
    run(place, long_study(), jobs=2)
    return (place / "results.parquet").read_bytes()


def children(process: int) -> list[int]:
    """Return the ids of a process's children."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text("utf-8").split()]


def workers(process: int) -> list[int]:
    """Return the ids of a process's workers, without Python's resource tracker."""
    found = []
    for child in children(process):
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in command:
            found.append(child)
    return found


def start(place: Path) -> subprocess.Popen[str]:
    if not (place / "study.toml").exists():
        study = long_study()
        write(place / "study.toml", repeats=study["repeats"], scenario=study["scenario"])
    return subprocess.Popen(
        [*skyhop_command(), "study", "run", "study.toml", "-o", "out", "--jobs", "2"],
        cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(place: Path) -> int:
    runs = place / "out" / "runs"
    return len(list(runs.iterdir())) if runs.exists() else 0


def alive(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_stopped_study_continues(how: signal.Signals, tmp_path: Path, undisturbed: bytes) -> None:
    generator = random.Random(how)
    for stop in range(2):
        process = start(tmp_path)
        target = finished(tmp_path) + generator.randrange(1, 5)
        wait_for(lambda t=target, p=process: finished(tmp_path) >= t or p.poll() is not None)
        time.sleep(generator.uniform(0, 0.1))
        pool = workers(process.pid)
        process.send_signal(how)
        process.wait(timeout=120)
        wait_for(lambda pool=pool: not any(alive(pid) for pid in pool), 120)
        assert process.returncode == (-how if how == signal.SIGKILL else 130), f"stop {stop}"
        if how != signal.SIGKILL and process.stderr is not None:
            assert "missing are done; repeat the command to continue" in process.stderr.read()
    assert 0 < finished(tmp_path) < 16
    last = start(tmp_path)
    assert last.wait(timeout=240) == 0
    assert (tmp_path / "out" / "results.parquet").read_bytes() == undisturbed
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.soak
def test_a_killed_worker_does_not_change_results(tmp_path: Path, undisturbed: bytes) -> None:
    process = start(tmp_path)
    # Two kills at most: a run that crashes three workers counts as failed.
    for count in (1, 7):
        wait_for(lambda c=count: finished(tmp_path) >= c and bool(workers(process.pid)))
        os.kill(random.Random(count).choice(workers(process.pid)), signal.SIGKILL)
    assert process.wait(timeout=240) == 0, process.stderr and process.stderr.read()
    assert (tmp_path / "out" / "results.parquet").read_bytes() == undisturbed


@pytest.mark.integration
def test_workers_that_cannot_start_stop_the_study(tmp_path: Path) -> None:
    write(tmp_path / "study.toml")
    code = "from skyhop.study import *; run_study(load_study('study.toml'), 'out', jobs=2)"
    done = subprocess.run(
        [sys.executable, "-"], input=code, cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "RunError: processes for the runs cannot start" in done.stderr


def test_two_studies_do_not_share_a_directory(tmp_path: Path) -> None:
    study = load_study(content())

    def begin_another(*_: int) -> None:
        with pytest.raises(InputError, match="another process runs a study there"):
            run_study(study, tmp_path)

    assert not run_study(study, tmp_path, progress=begin_another).failures


def test_an_interrupted_study_continues(tmp_path: Path) -> None:
    class Interrupted(KeyboardInterrupt):
        pass

    def interrupt(done: int, _total: int) -> None:
        if done == 3:
            raise Interrupted

    whole = run(tmp_path / "whole", content())
    with pytest.raises(Interrupted):
        run(tmp_path / "out", content(), progress=interrupt)
    assert finished(tmp_path) == 3
    reports: list[tuple[int, int]] = []
    frame = run(tmp_path / "out", content(), progress=lambda *progress: reports.append(progress))
    assert reports[-1] == (5, 5)
    assert frame.equals(whole)
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.soak
def test_ray_gives_identical_rows(tmp_path: Path) -> None:
    needs_ray()
    metric = {"name": "p10", "kind": "samples", "stat": "p10"}
    axis = {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "psychic"]}
    study = load_study(content(metric=[metric], axis=[axis]))
    local = run_study(study, tmp_path / "local", jobs=2)
    ray = run_study(study, tmp_path / "ray", jobs=2, engine="ray")
    names = ("results.parquet", "failures.json")
    for name in names:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert [str(f) for f in ray.failures] == [str(f) for f in local.failures]
    assert len(ray.failures) == 2


def test_missing_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes the import fail even where ray is installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="ray is not installed"):
        run_study(load_study(content()), tmp_path, engine="ray")


def test_the_command_line_lists_and_shows_studies(skyhop: Skyhop, tmp_path: Path) -> None:
    write(tmp_path / "study.toml")
    shown = json.loads(skyhop("study", "show", "study.toml", "--json").stdout)
    assert (shown["runs"], shown["distinct"]) == (8, 8)
    assert "BBR" in skyhop("study", "show", "study.toml").stdout
    # Values with a comma are separated by semicolons.
    points = {"none, or nearly": {"link.loss": "0 %"}, "some": {"link.loss": "1 %"}}
    write(tmp_path / "other.toml", axis=[{"name": "loss", "points": points}])
    assert "none, or nearly; some" in skyhop("study", "show", "other.toml").stdout
    assert skyhop("study", "list").returncode == 0
    wrong = skyhop("study", "run", "missing", "-o", "out")
    assert wrong.returncode == 2
    assert "missing: no such study" in wrong.stderr


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.usefixtures("namespaces")
def test_live_studies_run_one_at_a_time(tmp_path: Path) -> None:
    study = content(engine="live", repeats=1)
    study["axis"] = [{"name": "rtt", "key": "path.rtt", "values": ["20 ms", "40 ms"]}]
    study["scenario"]["run"]["duration"] = "2 s"
    frame = run(tmp_path, study, jobs=8)
    assert frame.get_column("base_rtt_mean_us").to_list() == [20_000, 40_000]
    infos = [json.loads(f.read_text("utf-8")) for f in (tmp_path / "runs").glob("*/run.json")]
    assert {info["engine"] for info in infos} == {"live"}
    with pytest.raises(InputError, match="live runs need this machine"):
        run_study(load_study({**study, "repeats": 2}), tmp_path, engine="ray")


def test_element_sets_are_compared(skyhop: Skyhop, tmp_path: Path) -> None:
    missing = skyhop("study", "run", "satcp-fig4", "-o", "out")
    assert missing.returncode == 2
    assert "give --elements OLD NEW" in missing.stderr
    snapshots = [reference(f"leoem/starlink_{age}.tle.gz") for age in ("old", "new")]
    done = skyhop("study", "run", "satcp-fig4", "-o", "out", "--elements", *snapshots)
    assert done.returncode == 0, done.stderr
    errors_s = pl.read_parquet(tmp_path / "out" / "results.parquet")["report_timing_error_s"]
    assert len(errors_s) > 1600
    # Propagation of both snapshots to the newer epoch with sgp4 gives 0.080 and 0.53 s.
    assert errors_s.median() == pytest.approx(0.08, abs=0.02)
    assert errors_s.quantile(0.9) == pytest.approx(0.53, abs=0.1)


@pytest.mark.usefixtures("pictures")
def test_warnings_of_runs_are_printed_once_and_on_the_page(skyhop: Skyhop, tmp_path: Path) -> None:
    axes = [
        {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "satcp"]},
        {"name": "loss", "key": "link.loss", "values": ["0.5 %", "1 %"]},
    ]
    claims = [{"text": "SaTCP wins", "check": 'goodput(cc="satcp") > goodput(cc="cubic")'}]
    write(tmp_path / "s.toml", axis=axes, claim=claims, keep="rows")
    done = skyhop("study", "run", "s.toml", "-o", "out")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(said) == 1
    assert said[0].startswith(
        "warning: 4 of 8 runs (cc = satcp): satcp: gets no handover announcements"
    )
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "4 of 8 runs (cc = satcp): satcp: gets no handover announcements" in page
    again = json.loads(skyhop("study", "run", "s.toml", "-o", "out", "--json").stdout)
    (warning,) = again["warnings"]
    assert (warning["runs"], warning["at"]) == (4, {"cc": "satcp"})
    (claim,) = again["claims"]
    (comparison,) = claim["findings"][0]["comparisons"]
    assert comparison["low"] <= comparison["left"] - comparison["right"] <= comparison["high"]
    assert "warnings" not in pl.read_parquet(tmp_path / "out" / "results.parquet").columns


@pytest.mark.usefixtures("pictures")
def test_seeds_without_a_random_part_are_told_of(skyhop: Skyhop, tmp_path: Path) -> None:
    axes = [{"name": "loss", "key": "link.loss", "values": ["0 %", "1 %"]}]
    write(tmp_path / "s.toml", axis=axes, keep="rows", repeats=3)
    done = skyhop("study", "run", "s.toml", "-o", "out", "--json")
    (warning,) = json.loads(done.stdout)["warnings"]
    assert (warning["runs"], warning["at"]) == (3, {"loss": "0 %"})
    assert warning["text"].startswith("all seeds give the same result, because nothing in the run")
    write(tmp_path / "once.toml", axis=axes, keep="rows", repeats=1)
    done = skyhop("study", "run", "once.toml", "-o", "once", "--json")
    assert json.loads(done.stdout)["warnings"] == []


@pytest.mark.usefixtures("pictures")
def test_an_unchecked_claim_gives_its_reason_as_text_and_json(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    claims = [{"text": "Sage is slowest", "cannot_be_told": "its weights are not to be had"}]
    axis = [{"name": "cc", "key": "flow.0.cc", "values": ["cubic"]}]
    write(tmp_path / "s.toml", axis=axis, claim=claims, keep="rows", repeats=1)
    done = skyhop("study", "run", "s.toml", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "cannot be told: its weights are not to be had" in done.stdout
    again = json.loads(skyhop("study", "run", "s.toml", "-o", "out", "--json").stdout)
    (claim,) = again["claims"]
    assert claim["verdict"] == "cannot be told"
    assert claim["cannot_be_told"] == "its weights are not to be had"
    assert [finding["why"] for finding in claim["findings"]] == ["its weights are not to be had"]


ONE_AXIS = [{"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"]}]


def test_a_key_that_the_user_sets_holds_in_all_runs(skyhop: Skyhop, tmp_path: Path) -> None:
    claim = {"text": "…", "check": "goodput() > 5", "each": {"cc": ["cubic", "bbr"]}}
    write(tmp_path / "s.toml", repeats=1, axis=ONE_AXIS, claim=[claim])
    command = ("study", "run", "s.toml", "-o", "out")
    slow = ("--set", "link.rate=4 Mbit/s")
    found = {}
    for name, sets in (("slow", slow), ("as given", ()), ("slow again", slow)):
        done = skyhop(*command, *sets)
        assert done.returncode == 0, done.stderr
        found[name] = pl.read_parquet(tmp_path / "out" / "results.parquet")
        page = (tmp_path / "out" / "report.html").read_text("utf-8")
        assert ("link.rate=4 Mbit/s" in page) == bool(sets)
        assert ("0 of 1 claims hold" in done.stdout.replace("claim ", "claims ")) == bool(sets)
        assert "- cc = cubic" in done.stdout, "the numbers of each combination"
        assert "more than 5.00 was asked" in " ".join(done.stdout.split())
    assert found["slow"].equals(found["slow again"])
    assert found["slow"].get_column("goodput_bps").max() < 4e6
    assert found["as given"].get_column("goodput_bps").min() > 5e6
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4, "no run is made twice"
    shown = skyhop("study", "show", "s.toml", *slow, "--json")
    assert json.loads(shown.stdout)["set"] == ["link.rate=4 Mbit/s"]
    assert json.loads(shown.stdout)["file"] == str(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("flow.0.cc=reno", "--set flow.0.cc: the axis `cc` sets `flow.0.cc`: change the values"),
        ("flow.0={ cc = 'reno' }", "--set flow.0: the axis `cc` sets `flow.0.cc`"),
        ("link.rat=4 Mbit/s", "link.rat: unknown field `rat`"),
        ("link.rate", '--set "link.rate": expected KEY=VALUE'),
        ("flow.7.start=1 s", 'there is no entry "7"'),
    ],
)
def test_a_wrong_override_is_named(
    override: str, expected: str, skyhop: Skyhop, tmp_path: Path
) -> None:
    write(tmp_path / "s.toml", repeats=1, axis=ONE_AXIS)
    shown = skyhop("study", "show", "s.toml", "--set", override)
    assert shown.returncode == 2
    assert expected in shown.stderr.replace(
        "--set link.rate: expected", '--set "link.rate": expected'
    )


def test_a_set_key_changes_part_of_an_axis_table() -> None:
    paths = {
        name: {"path": {"kind": "fixed", "rtt": rtt}}
        for name, rtt in (("a", "20 ms"), ("b", "40 ms"))
    }
    study = content(axis=[{"name": "path", "points": paths}], repeats=1)
    runs = load_study(study, sets=["path.from=here"]).runs()
    assert [run.resolved["path"]["from"] for run in runs] == ["here", "here"]


def test_studies_say_where_their_files_are(skyhop: Skyhop) -> None:
    listed = skyhop("list", "studies", "--json")
    entries = json.loads(listed.stdout)
    assert all(Path(entry["file"]).is_file() for entry in entries)
    assert str(Path(entries[0]["file"]).parent) in skyhop("study", "list").stderr
    assert entries[0]["file"] in skyhop("study", "show", entries[0]["name"]).stderr


def test_one_cause_of_many_failures_is_one_box(skyhop: Skyhop, tmp_path: Path) -> None:
    axis = {"name": "via", "points": {"ok": {}, "bad": {"flow.0.cc": "no_such_sender"}}}
    study = write(tmp_path / "s.toml", repeats=3, axis=[axis],
                  claim=[{"text": "…", "check": "goodput() > 1"}])  # fmt: skip
    done = skyhop("study", "run", study, "-o", "out")
    assert done.returncode == 1
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert page.count("<details><summary>3 runs (via = bad)") == 1
    assert "<strong>3 runs failed" in page
    assert "1 of 1 hold" in page
    assert "holds, of those that ran (3 runs failed: via = bad)" in page


def test_runs_of_a_study_start_at_different_times_of_a_path_file(tmp_path: Path) -> None:
    whole = sh.path("32.7,-117.2", "40.7,-74", duration="40 s")
    whole.write(tmp_path / "measured.parquet")
    scenario = content()["scenario"]
    scenario["path"] = {"kind": "trace", "file": str(tmp_path / "measured.parquet")}
    offsets = [0, 7, 30.5]
    axis = {"name": "offset", "key": "path.offset", "values": [f"{at} s" for at in offsets]}
    frame = run(tmp_path / "out", content(scenario=scenario, axis=[axis], repeats=1), jobs=1)
    assert frame.get_column("run").n_unique() == len(offsets)
    delays = dict(whole.frames.select("t_ns", "delay_ns").iter_rows())
    for at_s, row in zip(offsets, frame.iter_rows(named=True), strict=True):
        kept = sh.read_path(tmp_path / "out" / "runs" / row["run"] / "path.parquet")
        found = dict(kept.frames.select("t_ns", "delay_ns").iter_rows())
        assert found[0] == delays[int(at_s) * 10**9]
        assert kept.header["duration_ns"] == (40 - at_s) * 10**9
        begin = pl.Series([kept.header["start"], whole.header["start"]]).str.to_datetime()
        assert (begin[0] - begin[1]).total_seconds() == at_s


@pytest.mark.parametrize("loop", [False, True])
def test_an_offset_lies_within_the_path_file(loop: bool, tmp_path: Path) -> None:
    whole = sh.path("32.7,-117.2", "40.7,-74", duration="4 s")
    whole.write(tmp_path / "m.parquet")
    trace = {"kind": "trace", "file": str(tmp_path / "m.parquet"), "loop": loop}
    scenario = {"path": trace, "flow": [{"cc": "cubic"}], "run": {"duration": "6 s"}}
    sets = ["path.offset=3 s"]
    found = sh.sim(scenario, sets=sets).path.frames["delay_ns"].to_list()
    delays = whole.frames["delay_ns"].to_list()
    assert found == ([delays[(3 + k) % 4] for k in range(6)] if loop else delays[3:])
    with pytest.raises(
        InputError, match=r"path\.offset: 4 s is not before the end of the path file"
    ):
        sh.sim(scenario, sets=["path.offset=4 s"])
