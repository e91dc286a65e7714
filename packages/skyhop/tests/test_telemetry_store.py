"""Storage of telemetry: across days, duplicates, killed processes, full disks."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from damaged import Trial
from needs import cases
from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import FIELDS, TIME, Sample, Type, Value
from skyhop.telemetry.gaps import gaps, missing_from_status
from skyhop.telemetry.store import DAY_NS, Store
from skyhop.telemetry.tidying import tidy_in_subprocess

S = 10**9
DAY = 20_000 * DAY_NS
"""Begin of a day, 2024-10-04."""


def sample(second: float, **values: Value) -> Sample:
    return {TIME: DAY + int(second * S), **values}


@contextmanager
def full_disk() -> Iterator[None]:
    """Make writes beyond 8 kB of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def test_what_was_appended_is_read_by_node_time_and_field(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    store.append("edh", [sample(2, state="CONNECTED", gps_sats=9), sample(1, gps_valid=True)])
    store.append("bcn-1", [sample(1, pop_ping_latency_ms=30.5)])
    frame = store.read()
    assert frame["node"].to_list() == ["bcn-1", "edh", "edh"]
    assert frame[TIME].to_list() == [DAY + S, DAY + S, DAY + 2 * S]
    assert frame.columns == ["node", TIME, *(field.name for field in FIELDS)]
    types = {Type.NUMBER: pl.Float64, Type.INTEGER: pl.Int64,
             Type.BOOLEAN: pl.Boolean, Type.TEXT: pl.String}  # fmt: skip
    assert [frame.schema[f.name] for f in FIELDS] == [types[f.type] for f in FIELDS]
    some = store.read(["edh"], ["gps_sats", "state"], from_ns=DAY + 2 * S)
    assert some.rows() == [("edh", DAY + 2 * S, 9, "CONNECTED")]
    assert store.read(to_ns=DAY + 2 * S).height == 2
    assert store.read(from_ns=DAY + 3 * S).schema == frame.schema
    assert store.nodes() == ["bcn-1", "edh"]


def test_a_time_twice_is_complemented_by_what_came_later(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(1, tilt=1.0, state="CONNECTED"), sample(1, tilt=2.0, state=None)])
    expected = [("a", DAY + S, 2.0, "CONNECTED")]
    assert store.read(fields=["tilt", "state"]).rows() == expected
    store.close()
    assert store.read(fields=["tilt", "state"]).rows() == expected
    store.append("a", [sample(1, state="SEARCHING")])
    assert store.read(fields=["tilt", "state"]).rows() == [("a", DAY + S, 2.0, "SEARCHING")]


def test_random_batches_are_read_as_a_dictionary_would_keep_them(tmp_path: Path) -> None:
    draw = random.Random(17)
    for case in range(cases(10)):
        store = Store(tmp_path / str(case))
        kept: dict[tuple[str, int], dict[str, Value]] = {}
        for _ in range(12):
            node = draw.choice(["a", "b"])
            batch = []
            for _ in range(draw.randrange(8)):
                # Times are around midnight, so that batches span two days.
                values: dict[str, Value] = {
                    "tilt": draw.choice([None, draw.random()]),
                    "gps_sats": draw.choice([None, draw.randrange(20)]),
                    "outage": draw.choice([None, True, False]),
                    "state": draw.choice([None, "CONNECTED", "BOOTING"]),
                }
                of = sample(draw.randrange(-10, 10), **values)
                batch.append(of)
                row = kept.setdefault((node, int(of[TIME] or 0)), dict.fromkeys(values))
                row.update({name: value for name, value in values.items() if value is not None})
            store.append(node, batch)
            if draw.random() < 0.3:
                store.tidy(DAY + draw.choice([0, 2]) * DAY_NS)
            if draw.random() < 0.1:
                store.close()
        frame = store.read(fields=["tilt", "gps_sats", "outage", "state"])
        assert frame.rows() == [(*key, *kept[key].values()) for key in sorted(kept)]


def test_steps_have_means_of_numbers_and_the_last_of_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [
        sample(0, tilt=1.0, gps_sats=4, state="BOOTING"),
        sample(4.5, tilt=2.0, gps_sats=5),
        sample(5, tilt=None, state="CONNECTED"),
    ])  # fmt: skip
    frame = store.read(fields=["tilt", "gps_sats", "state"], step_ns=5 * S)
    assert frame.rows() == [("a", DAY, 1.5, 5, "BOOTING"),
                            ("a", DAY + 5 * S, None, None, "CONNECTED")]  # fmt: skip


def test_a_day_that_is_over_becomes_one_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(-1, tilt=1.0), sample(1, tilt=2.0)])
    assert store.days("a") == [date(2024, 10, 3), date(2024, 10, 4)]
    assert not store.tidy(DAY + 30 * S), "what is late may still come"
    assert store.tidy(DAY + 61 * S)
    assert not store.tidy(DAY + 61 * S)
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == [
        ".skyhop", "2024-10-03.parquet", "2024-10-04.jsonl"]  # fmt: skip
    assert store.read(fields=["tilt"])["tilt"].to_list() == [1.0, 2.0]
    assert store.expire(DAY) == 1
    assert store.days("a") == [date(2024, 10, 4)]
    store.delete("a")
    store.delete("a")
    assert store.nodes() == []


@pytest.mark.integration
def test_another_process_tidies_up_what_is_due(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for node in ("a", "b"):
        store.append(node, [sample(1, tilt=1.0)])
    now_ns = time.time_ns()
    store.append("b", [{TIME: now_ns, "tilt": 2.0}])
    store.append("c", [sample(1, tilt=3.0)])
    (tmp_path / "a" / "2024-10-04.parquet").write_bytes(b"damaged")
    with pytest.raises(RunError, match=r"cannot tidy up: .*a/2024-10-04.parquet: is damaged"):
        tidy_in_subprocess(tmp_path)
    # The first of each directory is its mark.
    assert [f.suffix for f in sorted((tmp_path / "b").iterdir())][1:] == [".parquet", ".jsonl"]
    assert [f.suffix for f in sorted((tmp_path / "c").iterdir())][1:] == [".parquet"]
    assert store.read(["b", "c"], ["tilt"])["tilt"].to_list() == [1.0, 2.0, 3.0]
    (tmp_path / "a" / "2024-10-04.parquet").unlink()
    tidy_in_subprocess(tmp_path)
    assert store.read(["a"], ["tilt"])["tilt"].to_list() == [1.0]


@pytest.mark.parametrize(
    "wrong",
    [{"tilt": 1.0}, sample(1, height=3), sample(1, state=3), sample(1, gps_sats=1.5),
     sample(1, outage=1), sample(1, tilt="high"), {TIME: -1}, {TIME: 2**63}],
)  # fmt: skip
def test_a_wrong_sample_is_refused_with_its_batch(tmp_path: Path, wrong: Sample) -> None:
    store = Store(tmp_path)
    with pytest.raises(InputError, match="telemetry: "):
        store.append("a", [sample(1, tilt=1.0), wrong])
    assert store.nodes() == []


@pytest.mark.parametrize("name", ["", "..", "../a", "A", "a/b", ".a", "a" * 64])
def test_names_of_nodes_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / "kept")
    with pytest.raises(InputError, match="cannot be a node's name"):
        store.append(name, [sample(1)])
    with pytest.raises(InputError, match="cannot be a node's name"):
        store.delete(name)


def test_what_is_no_number_is_not_known(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(1, tilt=float("nan"), power_w=float("inf"), gps_sats=3)])
    assert store.read(fields=["tilt", "power_w", "gps_sats"]).rows()[0][2:] == (None, None, 3)


def test_half_a_line_is_not_read_and_not_built_upon(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(1, tilt=1.0), sample(2, tilt=2.0)])
    journal = tmp_path / "a" / "2024-10-04.jsonl"
    journal.write_bytes(journal.read_bytes()[:-5])
    assert store.read(fields=["tilt"])["tilt"].to_list() == [1.0]
    store.append("a", [sample(3, tilt=3.0)])
    assert store.read(fields=["tilt"])["tilt"].to_list() == [1.0, 3.0]
    store.close()
    assert store.read(fields=["tilt"])["tilt"].to_list() == [1.0, 3.0]


_WRITER = """
import sys
from pathlib import Path
from skyhop.telemetry.store import Store
store = Store(Path(sys.argv[1]))
for number in range(10**6):
    store.append("a", [{"time_ns": %d + number * 10**9, "tilt": float(number)}])
    print(number, flush=True)
    if number %% 7 == 6:
        store.close()
"""


@pytest.mark.soak
def test_a_killed_writer_loses_nothing_that_it_had_written(tmp_path: Path) -> None:
    draw = random.Random(int(time.time()))
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER % DAY, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(draw.randrange(20, 60))]
    time.sleep(draw.random() * 0.02)
    writer.send_signal(signal.SIGKILL)
    # Read what the writer printed between the last line and its end.
    said += writer.stdout
    writer.wait()
    last = int(said[-1])
    tilts = Store(tmp_path).read(fields=["tilt"])["tilt"].to_list()
    assert tilts in ([float(n) for n in range(last + 1)], [float(n) for n in range(last + 2)])


def test_writers_folders_and_readers_do_not_lose_each_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    seen = []

    def write(first: int) -> None:
        for number in range(first, first + 60):
            store.append("a", [sample(number, tilt=float(number))])

    def fold() -> None:
        for _ in range(20):
            Store(tmp_path).close()
            seen.append(store.read(fields=["tilt"]).height)

    store.append("a", [sample(9999, tilt=9999.0)])
    threads = [threading.Thread(target=write, args=(1000 * n,)) for n in range(3)]
    threads.append(threading.Thread(target=fold))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read().height == 181
    assert seen == sorted(seen), "rows came and went"


def test_a_full_disk_is_one_line_and_costs_nothing_that_was_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(n, tilt=float(n)) for n in range(100)])
    cannot_write = r"2024-10-04\.jsonl: cannot write: "
    with full_disk(), pytest.raises(RunError, match=cannot_write) as raised:
        store.append("a", [sample(n, tilt=float(n)) for n in range(100, 1000)])
    assert "\n" not in str(raised.value)
    assert store.read().height == 100
    store.append("a", [sample(100, tilt=0.0)])
    assert store.read().height == 101


def test_a_disk_that_is_too_full_to_tidy_up_costs_nothing_either(tmp_path: Path) -> None:
    store = Store(tmp_path)
    draw = random.Random(17)
    store.append("a", [sample(n, tilt=draw.random()) for n in range(2000)])
    with full_disk(), pytest.raises(RunError, match=r"2024-10-04\.parquet: "):
        store.close()
    assert store.read().height == 2000
    store.close()
    assert {f.name for f in (tmp_path / "a").iterdir()} == {".skyhop", "2024-10-04.parquet"}
    assert store.read().height == 2000


def test_a_journal_without_a_whole_line_is_an_empty_day(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "2024-10-04.jsonl").write_bytes(b'{"time_ns":17280')
    store = Store(tmp_path)
    assert store.read().height == 0
    store.close()
    assert store.read(step_ns=S).height == 0


@pytest.mark.parametrize(
    ("count", "most_bytes"),
    [(3600, 130_000), pytest.param(86_400, 2_200_000, marks=pytest.mark.soak)],
    ids=["hour", "day"],
)
def test_a_day_of_a_terminal_takes_about_two_megabytes(
    tmp_path: Path, count: int, most_bytes: int
) -> None:
    import numpy as np

    draw = np.random.default_rng(17)
    # A terminal's numbers have 24 significant bits.
    latency = draw.gamma(9, 3, count).astype(np.float32)
    down = (10 ** draw.normal(5, 1, count)).astype(np.float32)
    up = (10 ** draw.normal(4, 1, count)).astype(np.float32)
    drop = np.where(draw.random(count) < 0.03, draw.random(count), 0).astype(np.float32)
    walk = np.repeat(np.cumsum(draw.normal(0, 0.001, count // 60)), 60).astype(np.float32)
    store = Store(tmp_path)
    columns = {"pop_ping_latency_ms": latency, "pop_ping_drop_rate": drop,
               "downlink_throughput_bps": down, "uplink_throughput_bps": up,
               "direction_azimuth": walk, "direction_elevation": walk + 64,
               "tilt": walk + 20}  # fmt: skip
    steady: dict[str, Value] = {
        "currently_obstructed": False, "fraction_obstructed": 0.001, "state": "CONNECTED",
        "outage": False, "alerts": "", "gps_valid": True, "gps_sats": 14, "eth_speed_mbps": 1000,
    }  # fmt: skip
    store.append("a", [
        {TIME: DAY + n * S, "uptime_s": float(n), **steady,
         **{name: float(values[n]) for name, values in columns.items()}}
        for n in range(count)
    ])  # fmt: skip
    store.close()
    size = (tmp_path / "a" / "2024-10-04.parquet").stat().st_size
    assert size < most_bytes
    assert store.read().height == count


def test_a_damaged_day_is_refused_in_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(n, tilt=float(n), state="CONNECTED") for n in range(20)])
    store.close()
    file = tmp_path / "a" / "2024-10-04.parquet"

    def read(content: bytes) -> None:
        file.write_bytes(content)
        store.read(step_ns=S)

    Trial("telemetry day", [file.read_bytes()], is_text=False, usual=60).run(read)


def test_a_damaged_journal_is_read_without_its_torn_lines(tmp_path: Path) -> None:
    store = Store(tmp_path)
    whole = b'{"time_ns":1,"tilt":1.0}\n'
    (tmp_path / "a").mkdir()
    for torn in [b"\0" * 50, b"{}", b"[]", b'{"time_ns":2,"tilt":"x"}', b"\xff", b"[" * 100_000]:
        (tmp_path / "a" / "1970-01-01.jsonl").write_bytes(whole + torn + b"\n" + whole)
        assert store.read(fields=["tilt"]).rows() == [("a", 1, 1.0)]


def test_history_fills_what_status_missed_and_adds_what_it_does_not_say() -> None:
    status = [sample(1, tilt=1.0, pop_ping_latency_ms=30.0), sample(2.9, state=None),
              sample(4, pop_ping_latency_ms=31.0)]  # fmt: skip
    history = [sample(n + 0.4, pop_ping_latency_ms=40.0 + n, power_w=50.0) for n in range(1, 5)]
    assert list(missing_from_status(status, history)) == [
        sample(1, power_w=50.0),
        sample(2, pop_ping_latency_ms=42.0, power_w=50.0),
        sample(3, pop_ping_latency_ms=43.0, power_w=50.0),
        sample(4, power_w=50.0),
    ]
    assert list(missing_from_status(status, [])) == []


def test_gaps_are_found_by_node(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("a", [sample(1, tilt=1.0), sample(2.0, state="X"), sample(4.2, tilt=1.0)])
    store.append("b", [sample(8, tilt=1.0)])
    assert gaps(store.read()).rows() == [("a", DAY + 2 * S, DAY + 3 * S, 1)]
    assert gaps(store.read(), "tilt").rows() == [("a", DAY + S, DAY + 3 * S, 2)]
