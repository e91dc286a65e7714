"""Python's readers on damaged files: studies, paths, runs, places, users' files."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import skyhop as sh
import small_study
from damaged import Trial
from skyhop.data import quantities
from skyhop.data.run_headers import read_run_headers
from skyhop.data.scenarios import load_scenario
from skyhop.data.toml import toml_text
from skyhop.errors import InputError
from skyhop.report.latex_text import escaped
from skyhop.study.execution import Failure, Recipe, Task, execute
from skyhop.study.worker_context import WorkerContext

MOST_RUNS = 30
"""Number of runs above which a damaged study is not planned further, to save time."""


def text_of(content: bytes) -> str:
    """Decode the text of a file; refuse what is not UTF-8 as its reader would."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8 text") from None


def studies() -> list[bytes]:
    shipped = sorted((ROOT / "studies").glob("*.toml"), key=lambda file: file.stat().st_size)
    small = toml_text(
        small_study.content(
            claim=[
                {"text": "BBR is faster", "check": 'goodput(cc="bbr") > goodput(cc="cubic")'},
                {"text": "Sage is slower", "cannot_be_told": "no weights"},
            ],
            metric=[
                {
                    "name": "ratio",
                    "kind": "flows",
                    "over": "one/others",
                    "flow": 0,
                    "bin": "1 s",
                    "flows": [0, 1],
                    "from": "75 %",
                    "until": "-1 s",
                    "pool": True,
                    "ddof": 0,
                    "least": 1,
                    "truncate": True,
                    "series": "srtt_over_base",
                },
                {
                    "name": "steady",
                    "kind": "rate_over_bytes",
                    "after_bytes": "1 MB",
                    "bytes": "2 MB",
                    "cut": "1 s",
                },
                {
                    "name": "gain",
                    "kind": "relative",
                    "of": "goodput",
                    "to": {"cc": "cubic"},
                    "by": "difference",
                },
            ],
            panel=[
                {
                    "kind": "scatter",
                    "title": "",
                    "x": "srtt",
                    "y": "ratio",
                    "per": "run",
                    "ellipses": True,
                    "zero": False,
                },
                {
                    "kind": "comparison",
                    "title": "",
                    "metric": "ratio",
                    "by": "cc",
                    "against": "cubic",
                    "test": "both",
                },
                {"kind": "lines", "title": "", "metric": "ratio", "x": "loss", "spread": "pooled"},
            ],
            axis=[
                {
                    "name": "draw",
                    "values": [1],
                    "changes": {
                        "every": "1 s",
                        "count": 2,
                        "first": "500 ms",
                        "draw": [
                            {
                                "law": "uniform",
                                "low": 1,
                                "high": 9,
                                "digits": 1,
                                "unit": "Mbit/s",
                                "key": "rate",
                                "link": "path",
                            },
                        ],
                    },
                },
                {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"]},
                {
                    "name": "loss",
                    "key": "link.loss",
                    "range": {"from": 0.5, "to": 1, "step": 0.5, "unit": "%"},
                },
            ],
        )
    )
    return [small.encode(), *(file.read_bytes() for file in shipped[:3])]


def test_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    from skyhop.study import load_study

    # Scenarios that a study names are next to it; nothing is downloaded.
    monkeypatch.chdir(ROOT / "studies")
    file = ROOT / "build" / f"damaged-{os.getpid()}.toml"
    file.parent.mkdir(exist_ok=True)

    def read(content: bytes) -> None:
        file.write_bytes(content)
        study = load_study(file)
        if study.run_count <= MOST_RUNS:
            assert len(list(study.runs())) <= study.run_count

    try:
        Trial("study", studies(), usual=20).run(read)
    finally:
        file.unlink(missing_ok=True)


def test_expressions() -> None:
    from skyhop.study.expression import UnknownValueError, parse_expression

    samples = [
        b'goodput(cc="bbr", loss=["0.1 %", "1 %"]) > 1.5 * goodput(cc="cubic") and not a == b',
        b"mean(srtt, -2e6, max(a, b)) / (c - 1) <= 20 or abs(x) != 3",
    ]

    def read(content: bytes) -> None:
        expression = parse_expression(text_of(content), "claim.0.holds")
        list(expression.calls())
        try:
            if expression.is_comparison():
                expression.check(lambda _name, _selected: 1.0)
            else:
                expression.number(dict.fromkeys(expression.names(), 2.0), lambda _n, _s: 1.0)
        except UnknownValueError:
            pass

    Trial("expression", samples, usual=200).run(read)


def test_path_files(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    sh.path("Seattle", "New York", duration="3 s", constellation="iridium-next").write(file)
    computed = file.read_bytes()

    def read(content: bytes) -> None:
        file.write_bytes(content)
        path = sh.read_path(file)
        assert path.frames.height > 0
        assert path.segments.height == path.frames.height

    Trial("path file in python", [computed], is_text=False, usual=30).run(read)


def test_files_of_all_pairs(tmp_path: Path) -> None:
    from skyhop.data.pairs import read_all_pairs

    file = tmp_path / "pairs.parquet"
    sites = ["Seattle", "New York", "San Diego"]
    sh.all_pairs(sites, file, duration="3 s", constellation="iridium-next")

    def read(content: bytes) -> None:
        file.write_bytes(content)
        pairs = read_all_pairs(file)
        assert pairs.delays_ns.shape == (len(pairs.times_ns), len(pairs.pairs))
        pairs.routes(0, 1)

    Trial("all pairs", [file.read_bytes()], is_text=False, usual=30).run(read)


SCENARIO = {
    "path": {"from": "Seattle", "to": "New York", "relay": "access"},
    "link": {"rate": "5 Mbit/s", "loss": "0.1 %"},
    "flow": [{"cc": "satcp"}, {"kind": "probe"}],
    "signal": {"source": "path", "lead": "0.5 s"},
    "run": {"duration": "3 s"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "run"
    sh.sim(SCENARIO, place)
    return place


def view(run: Path) -> None:
    """Build a run's report without drawing it."""
    from skyhop.analysis.run_page import runs_page
    from skyhop.data.reading import read_runs

    runs_page(read_runs([run]))


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_json_of_runs(whole: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)

    def read(content: bytes) -> None:
        (run / name).write_bytes(content)
        read_run_headers([run])
        view(run)

    Trial(name, [(whole / name).read_bytes()], usual=20).run(read)


def test_tables_of_runs(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    tables = sorted(file.name for file in whole.glob("*.parquet"))
    # Each sample is a file's name and its content.
    samples = [name.encode() + b"\n" + (whole / name).read_bytes() for name in tables]

    def read(content: bytes) -> None:
        name, _, table = content.partition(b"\n")
        place = name.decode("latin-1")
        if place not in tables:
            raise InputError("it is no table of a run")
        (run / place).write_bytes(table)
        try:
            view(run)
        finally:
            shutil.copyfile(whole / place, run / place)

    Trial("tables of runs", samples, is_text=False, usual=30).run(read)


def test_rows_of_an_axis(tmp_path: Path) -> None:
    from skyhop.study import load_study
    from skyhop.study.changes import read_table

    axis = [
        {"name": "how", "points": {"triggered": {}, "random": {}}},
        {"name": "start", "csv": "starts.csv"},
    ]
    study = small_study.write(tmp_path / "study.toml", axis=axis, repeats=1)
    samples = [
        b"how,start,flow.0.start,link.loss\ntriggered,1,1 s,\nrandom,1,2 s,1 %\nrandom,2,0 s,\n"
    ]

    def read(content: bytes) -> None:
        read_table.cache_clear()
        (tmp_path / "starts.csv").write_bytes(content)
        found = load_study(study)
        assert len(list(found.runs())) == found.run_count

    Trial("rows of an axis", samples, usual=40).run(read)


def run_here(
    recipe: Recipe, tasks: Iterator[Task], root: Path, _jobs: int
) -> Iterator[Failure | None]:
    """Run a study's tasks one after the other in this process."""
    context = WorkerContext(root)
    return (execute(recipe, task, context) for task in tasks)


def test_rows_of_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skyhop.study import load_study, run_study

    monkeypatch.setattr("skyhop.study.running.run_locally", run_here)
    study = load_study(small_study.write(tmp_path / "study.toml", repeats=1, axis=[
        {"name": "cc", "key": "flow.0.cc", "values": ["cubic"]},
    ]))  # fmt: skip
    out = tmp_path / "out"
    run_study(study, out, jobs=1)
    (rows,) = out.glob("runs/*/rows-*.json")
    samples = [rows.read_bytes()]

    def read(content: bytes) -> None:
        rows.write_bytes(content)
        run_study(study, out, jobs=1)

    Trial("rows of studies", samples, usual=10).run(read)


def test_scenarios_from_dictionaries() -> None:
    flows = [{"cc": "cubic", "cubic": {"beta": 0.7}, "count": 2}, {"kind": "probe"}]
    samples = [
        repr({**SCENARIO, "flow": flows, "change": [{"at": "1 s", "rate": "1 Mbit/s"}]}).encode(),
        repr({"path": {"kind": "fixed", "rtt": "20 ms"}, "flow": [{"bytes": "1 MB"}]}).encode(),
    ]
    nothing: dict[str, Any] = {"__builtins__": {}, "nan": float("nan"), "inf": float("inf")}

    def read(content: bytes) -> None:
        text = text_of(content)
        # Accept only short literals, such as a program would pass, because the text is evaluated.
        if not re.fullmatch(r"[\s\w'\"{}\[\],:.%/+-]*", text) or "**" in text:
            raise InputError("it is no dictionary")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scenario = eval(text, nothing)
        except Exception as error:
            raise InputError("it is no dictionary") from error
        if not isinstance(scenario, Mapping):
            raise InputError("it is no dictionary")
        load_scenario(scenario)

    Trial("scenario dictionary", samples, usual=100).run(read)


def test_places() -> None:
    from skyhop.data import places

    def read(content: bytes) -> None:
        place = places.find_place(text_of(content))
        assert -90 <= place.latitude_deg <= 90
        assert -1e5 <= place.altitude_m <= 1e6

    def read_position(content: bytes) -> None:
        # Only positions: other texts are searched in a long list of names, see test_cities.
        if not places._POSITION.match(text_of(content)):
            raise InputError("it is no position")
        read(content)

    samples = [b"47.6,-122.3", b"-33.9, 151.2, 58", b"12,2", b"0,-0.5,1"]
    Trial("position", samples, usual=100).run(read_position)


def test_cities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from skyhop.data import places
    from skyhop.data.folding import folded
    from skyhop.data.gazetteer import Gazetteer, write_gazetteer

    # A search for similar names among all 30,000 cities takes a tenth of a second.
    all_cities = places._gazetteer()
    known = sorted(all_cities.cities(), key=lambda city: city.population, reverse=True)[:200]
    known += all_cities.named("zurich")
    regions = {"countries": all_cities.countries, "states": all_cities.states}
    few = tmp_path / "few.dat"
    write_gazetteer(few, known, [[folded(city.name)] for city in known], regions, "test")
    # Clear the caches, so that neither this test nor others see results of the other list.
    forget = [finder.cache_clear for finder in (places.find_place, places._largest_city)]
    monkeypatch.setattr(places, "_gazetteer", lambda: Gazetteer(few))

    def read(content: bytes) -> None:
        place = places.find_place(text_of(content))
        assert -90 <= place.latitude_deg <= 90

    for clear in forget:
        clear()
    try:
        Trial("city", ["Zürich, Switzerland".encode(), b"Paris"], usual=20).run(read)
    finally:
        for clear in forget:
            clear()


def test_quantities() -> None:
    samples = [b"150 Mbit/s", b"0.5kbps", b"20 ms", b"1.5 h"]

    def read(content: bytes) -> None:
        text = text_of(content)
        found = [quantities.mbps_or_none(text), quantities.seconds_or_none(text)]
        if found == [None, None]:
            raise InputError("it is neither a rate nor a duration")
        assert all(value is None or value >= 0 for value in found)
        assert quantities.leading_number(text) is None or text.strip()

    Trial("quantities in python", samples, usual=100).run(read)


def test_texts_in_papers() -> None:
    samples = ["50 % of 3 \N{MULTIPLICATION SIGN} 10² µs_x & {y} ~ #1 ^2 \\ <a>|b".encode()]

    def read(content: bytes) -> None:
        text = text_of(content)
        written = escaped(text)
        accents = r"\\[`'^~\"=.a-zA-Z]\{[A-Za-z]\}|\\hspace\{0pt\}"
        commands = r"\\[A-Za-z]+\{\}|\\[&%$#_{}`]|\{\}|\$[\\A-Za-z^_\-0-9]*\$"
        plain = re.sub(f"{accents}|{commands}", "", written)
        assert not set(plain) & set("&%$#_{}~^\\"), (text, written)
        assert plain.isprintable() or not text.isprintable(), (text, written)
        if not text.strip():
            raise InputError("it is empty")

    Trial("text for latex", samples, usual=100).run(read)


def test_lines_of_the_service(tmp_path: Path) -> None:
    """A socket in the service's place sends damaged lines to a listener."""
    from skyhop.cli.signal_ import watch

    hello = {"type": "hello", "v": 1, "source": "schedule", "clock": "CLOCK_MONOTONIC",
             "period_ns": 15_000_000_000, "offset_ns": 12_000_000_000}  # fmt: skip
    handover = {"type": "handover", "v": 1, "at_ns": 5, "at_utc": "2026-01-01T00:00:12Z",
                "outage_ns": 30_000_000, "error_ns": 0, "kind": "end"}  # fmt: skip
    sample = "".join(json.dumps(line) + "\n" for line in (hello, handover)).encode()
    place = tmp_path / "socket"

    def speak(listener: socket.socket, content: bytes) -> None:
        connection, _ = listener.accept()
        # The listener may close the connection after a bad line.
        with connection, suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(content)

    def read(content: bytes) -> None:
        place.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen()
            speaker = threading.Thread(target=speak, args=(listener, content))
            speaker.start()
            try:
                watch(place)
            finally:
                speaker.join()

    Trial("lines of the service", [sample], usual=50).run(read)
