"""Import of LEOScope's jobs: values, notes on the rest, and the meaning of triggers."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Skyhop

from damaged import Trial
from needs import missing
from skyhop.errors import InputError
from skyhop_testbed.client import read_files
from skyhop_testbed.job import When
from skyhop_testbed.leoscope import CONFIG, Imported, Overrides, import_job
from skyhop_testbed.triggers import Trigger

S = 1_000_000_000
LATENCY = "pop_ping_latency_ms"

EXPERIMENT = """\
docker:
  image: measurements/latency:3
  deploy:
  execute:
    name: latency
    ports: {5201/tcp: 5201}
  finish:
tests:
  short:            # twenty echoes
    runner: ping
    entry_point: PingClient
    count: 20
artifacts:
  path_local: /artifacts
"""
BESIDE = Overrides(nodes=("bcn-1",), length="5 min", at="now")
_INDENTED = EXPERIMENT.replace("\n", "\n  ").rstrip()
CRON = f"""\
id: Spikes of latency
nodeid: bcn-1
userid: ann
type: cron
params: {{mode: docker, deploy: params_deploy, execute: params_execute, finish: params_finish}}
schedule: {{minute: '*/15', hour: 8-18, day_of_month: '*', month: '*', day_of_week: mon-fri}}
start_date: '2026-12-01T00:00:00'
end_date: '2026-12-08T00:00:00'
length_secs: 300
overhead: false
server: ams-1
trigger:
expire_at: '2026-12-08T00:00:00'
config: |
  {_INDENTED}
"""
ATQ = """\
jobid: once
nodeid: bcn-1
type: atq
schedule: ''
start_date: 2026-12-01 06:30:00
end_date: 2026-12-02
length: '90'
overhead: true
server:
docker: {image: registry.example.org:5000/a/b}
"""
TRIGGERED = CRON.replace("trigger:", f'trigger: "{LATENCY} > 100"')


@pytest.fixture(autouse=True)
def reads_yaml() -> None:
    if importlib.util.find_spec("yaml") is None:
        missing("pyyaml", "it is not installed")


def imported(text: str, given: Overrides | None = None) -> Imported:
    return import_job(text, "job.yaml", "job", given)


def test_an_experiment_file_with_what_it_does_not_say() -> None:
    made = imported(EXPERIMENT, BESIDE)
    job = made.job
    assert (job.id, job.nodes, job.length_s, job.when.at) == ("job", ["bcn-1"], 300.0, "now")
    assert (job.run.backend, job.run.image) == ("podman", "docker.io/measurements/latency:3")
    assert job.run.client == ["--test-config", f"/artifacts/{CONFIG}"], "for its entry point"
    assert job.run.files == [CONFIG]
    assert made.files == {CONFIG: EXPERIMENT.encode()}, "as it was written, comments too"
    said = "\n".join(made.notes)
    assert "docker.execute.ports: {'5201/tcp': 5201}" in said
    assert "docker.execute.name" in said
    assert "--client" in said
    assert all(f"# {note}\n" in made.toml for note in made.notes)


def test_a_job_of_cron_with_its_server() -> None:
    made = imported(CRON)
    job = made.job
    assert (job.id, job.nodes, job.server) == ("spikes-of-latency", ["bcn-1"], "ams-1")
    assert (job.when.cron, job.when.trigger) == ("*/15 8-18 * * mon-fri", None)
    assert job.when.end is not None
    assert job.when.start is not None
    assert job.when.end - job.when.start == 7 * 86_400 * S
    assert (job.length_s, job.overhead) == (300.0, False)
    assert job.run.serve == job.run.client
    assert made.files[CONFIG].decode() == _as_block(CRON)
    said = "\n".join(made.notes)
    assert "Spikes of latency is named spikes-of-latency here" in said
    assert "ann" in said
    assert "params" not in said, "what LEOScope's command writes by itself is nothing to tell"


def _as_block(text: str) -> str:
    """Return the literal block at a document's end."""
    return "".join(f"{line[2:]}\n" for line in text.split("config: |\n")[1].splitlines())


def test_a_job_of_at() -> None:
    made = imported(ATQ)
    when = made.job.when
    assert 'at = "2026-12-01T06:30:00Z"' in made.toml
    assert (when.start, when.end) == (None, 1_796_169_600 * S)
    assert (made.job.length_s, made.job.overhead, made.job.server) == (90.0, True, None)
    assert made.job.run.image == "registry.example.org:5000/a/b"


def test_a_trigger_takes_the_place_of_its_cron_line_and_says_so() -> None:
    made = imported(TRIGGERED)
    assert made.job.when.trigger == f"{LATENCY} > 100"
    assert made.job.when.max_runs is None
    assert any("*/15 8-18" in note and "not carried over" in note for note in made.notes)
    once = imported(ATQ + f'trigger: "{LATENCY} > 100"\n')
    assert once.job.when.max_runs == 1


def test_what_is_given_beside_a_file_comes_first() -> None:
    given = Overrides(
        id="other",
        nodes=("a", "b"),
        server="c",
        length="1 min",
        cron="0 * * * *",
        start="2026-12-02T00:00:00Z",
        client=("python3", "-m", "measure"),
        backend="docker",
    )
    job = imported(CRON, given).job
    assert (job.id, job.nodes, job.server, job.length_s) == ("other", ["a", "b"], "c", 60.0)
    assert job.when.cron == "0 * * * *"
    assert job.run.client == ["python3", "-m", "measure"] == job.run.serve
    assert job.run.backend == "docker"


def test_the_keys_of_an_account_stay_here() -> None:
    account = "cloud_config: {connection_string: AccountKey=hush, container: c}\n"
    for text, given in (
        (EXPERIMENT + account, BESIDE),
        (CRON + "  " + account, None),
        (ATQ + account, None),
    ):
        made = imported(text, given)
        assert "hush" not in made.toml + made.files[CONFIG].decode() + "".join(made.notes)
        assert any(note.startswith("cloud_config") for note in made.notes)


@pytest.mark.parametrize(
    ("text", "given", "why"),
    [
        ("a: [", None, "line 1: is no YAML"),
        ("", None, "the file: expected keys and values"),
        ("- 1", None, "the file: expected keys and values"),
        (EXPERIMENT, None, "nodeid is missing: give --node"),
        (EXPERIMENT, Overrides(nodes=("a",)), "length_secs is missing: give --length"),
        (
            EXPERIMENT,
            Overrides(nodes=("a",), length="1 s"),
            "schedule is missing: give --cron or --at",
        ),
        (CRON.replace("image:", "img:"), None, "docker.image is missing"),
        (CRON.replace("mode: docker", "mode: vm"), None, "params.mode: vm is unknown"),
        (CRON.replace("type: cron", "type: batch"), None, "type: batch is unknown"),
        (CRON.replace("*/15", "*/x"), None, 'cron: "\\*/x'),
        (CRON.replace("*/15", "1 2"), None, "schedule.minute: 1 2 is no field of cron"),
        (CRON.replace("minute:", "second:"), None, "schedule: second is unknown"),
        (CRON.replace("300", "soon"), None, "length_secs: soon is no number of seconds"),
        (CRON.replace("300", "-3"), None, "length: .*is not a duration"),
        (CRON.replace("'2026-12-01T00:00:00'", "tomorrow"), None, "start_date: tomorrow is no"),
        (CRON.replace("'2026-12-08T00:00:00'", "'2026-11-08'"), None, "the end is not after"),
        (CRON.replace("overhead: false", "overhead: maybe"), None, "overhead: expected true or"),
        (CRON.replace("ams-1", "bcn-1"), None, "server: may not be one of the nodes"),
        (TRIGGERED.replace("> 100", "> "), None, "trigger: column 22: expected a number"),
        (TRIGGERED.replace("> 100", "< 3 < 4"), None, "comparisons do not chain"),
        (
            TRIGGERED.replace("end_date: '2026-12-08T00:00:00'", ""),
            None,
            "a trigger needs it: give",
        ),
    ],
)
def test_what_is_refused_and_what_is_said(text: str, given: Overrides | None, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        imported(text, given)
    assert str(caught.value).startswith("job.yaml: ")
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused_in_a_line() -> None:
    def read(content: bytes) -> None:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InputError("is no text") from None
        made = import_job(text, "job.yaml", "job", BESIDE)
        assert all(note.isprintable() for note in made.notes)
        made.toml.encode()

    samples = [text.encode() for text in (EXPERIMENT, CRON, ATQ, TRIGGERED)]
    Trial("job of leoscope", samples, usual=150).run(read)


# Meaning of imported triggers, compared with references over the whole past: `past[name][0]` is
# the current value of a field and `past[name][k]` the one k updates ago; None where unknown.

Past = dict[str, list[Any]]
Meaning = Callable[[Past], bool | None]


def _jump(past: Past) -> bool | None:
    now, before = (*past[LATENCY], None, None)[:2]
    if now is None or before is None or before == 0:
        return None
    return abs(before - now) / before * 100 > 60


def _spike(past: Past) -> bool | None:
    # LEOScope's mean is wrong: each of F_2 to F_5 is F_1 of the update before.
    values = past[LATENCY][:6]
    return values[0] * 6 > 2 * math.fsum(values) if len(values) == 6 else None


def _fifth(past: Past) -> bool | None:
    values = past[LATENCY]
    return values[0] > values[5] if len(values) > 5 else None


def _volunteer(past: Past) -> bool:
    up = past["uplink_throughput_bps"][0] - past["exp_tx_rate_bytes"][0] * 8
    down = past["downlink_throughput_bps"][0] - past["exp_rx_rate_bytes"][0] * 8
    return bool(up > 100_000 and down > 40_000)


def _calm(past: Past) -> bool:
    return past[LATENCY][0] < 60 or past["currently_obstructed"][0]


_VOLUNTEER = (
    "(uplink_throughput_bps - exp_tx_rate_bytes*8 > 100000)"
    " & (downlink_throughput_bps - exp_rx_rate_bytes*8 > 40000)"
)
MEANINGS: list[tuple[str, Meaning]] = [
    (f"|{LATENCY}_1 - {LATENCY}| / {LATENCY}_1 * 100 > 60 // a jump", _jump),
    (f"{LATENCY} > 2 * {LATENCY}_avg", _spike),
    (f"{LATENCY} > {LATENCY}_5", _fifth),
    (_VOLUNTEER, _volunteer),
    # LEOScope drops a minus sign there.
    ("direction_azimuth > -10", lambda past: past["direction_azimuth"][0] > -10),
    (f"!({LATENCY} >= 60) | currently_obstructed", _calm),
    # LEOScope takes false as true there.
    ("currently_obstructed === 1", lambda past: past["currently_obstructed"][0]),
    ("direction_elevation !== 60", lambda past: past["direction_elevation"][0] != 60),
    (
        "direction_azimuth < 0 | direction_elevation > 60 & currently_obstructed",
        lambda past: (
            past["direction_azimuth"][0] < 0
            or (past["direction_elevation"][0] > 60 and past["currently_obstructed"][0])
        ),
    ),
    ("direction_azimuth + 2 * 3 - 4 / 2 <= 5", lambda past: past["direction_azimuth"][0] + 4 <= 5),
]


def _series() -> list[dict[str, Any]]:
    """Return 200 seconds in which each condition is true now and then."""
    return [
        {
            LATENCY: [30.0, 31.0, 80.0, 29.0, 110.0, 30.0, 45.0][second % 7] + second // 50,
            "uplink_throughput_bps": 50_000.0 * (second % 9),
            "downlink_throughput_bps": 20_000.0 * (second % 5),
            "exp_tx_rate_bytes": 5_000.0 * (second % 4),
            "exp_rx_rate_bytes": 1_000.0 * (second % 3),
            "direction_azimuth": float(second % 41 - 20),
            "direction_elevation": float(58 + second % 5),
            "currently_obstructed": second % 11 == 0,
        }
        for second in range(200)
    ]


@pytest.mark.parametrize(("expression", "meaning"), MEANINGS)
def test_an_imported_trigger_means_what_it_was_meant_to(expression: str, meaning: Meaning) -> None:
    text = TRIGGERED.replace(f"{LATENCY} > 100", expression)
    when: When = imported(text).job.when
    assert when.trigger is not None
    trigger = Trigger(when.trigger)
    past: Past = {}
    seen = set()
    for second, sample in enumerate(_series()):
        for name, value in sample.items():
            past.setdefault(name, []).insert(0, value)
        look = trigger.update(1_800_000_000 * S + second * S, sample)
        assert look is not None
        expected = meaning(past)
        assert look.value is expected or look.value == expected, (second, look.why)
        seen.add(expected)
    assert {True, False} <= seen


def test_a_trigger_with_history_says_how_its_pace_differs() -> None:
    assert not [note for note in imported(TRIGGERED).notes if note.startswith("trigger")]
    text = TRIGGERED.replace("> 100", f"> {LATENCY}_avg")
    assert len([note for note in imported(text).notes if note.startswith("trigger")]) == 2


def test_the_command_writes_a_job_that_can_be_submitted(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    command = ["testbed", "import", "exp.yaml", "--node", "bcn-1"]
    command += ["--length", "5 min", "--at", "now"]
    printed = skyhop(*command)
    assert printed.returncode == 0, printed.stderr
    assert 'id = "exp"' in printed.stdout
    assert "note: docker.execute.ports" in printed.stderr
    assert not (tmp_path / CONFIG).exists()
    written = skyhop(*command, "-o", "job.toml")
    assert (written.returncode, written.stdout) == (0, "")
    assert (tmp_path / "job.toml").read_text() == printed.stdout
    text, files = read_files(tmp_path / "job.toml")
    assert files == {CONFIG: EXPERIMENT.encode()}
    (tmp_path / CONFIG).write_text("mine")
    refused = skyhop(*command, "-o", "job.toml")
    assert refused.returncode == 2
    assert "a different file exists already" in refused.stderr
    assert (tmp_path / CONFIG).read_text() == "mine"
    assert text == (tmp_path / "job.toml").read_text()
