"""Bad input: exit code 2 (or 1), one clear line, nothing left behind."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop, skyhop_command

import skyhop as sh
import small_study
from needs import needs_program
from skyhop.data.scenarios import load_scenario
from skyhop.errors import InputError

FIXED = '[path]\nkind = "fixed"\nrtt = "20 ms"\n[run]\nduration = "2 s"\n'
PATH = ("path", "--from", "San Diego", "--to", "New York", "--duration", "5 s", "-o", "x.parquet")


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the only line on standard error, after checking the exit code."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("skyhop: ")
    return lines[0]


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("path", "--from", "Atlantiss", "--to", "Rome", "-o", "x.parquet"), "unknown place"),
        ((*PATH, "--relay", "carrier-pigeon"), "path.relay: unknown variant `carrier-pigeon`"),
        ((*PATH, "--relay", "geo"), "geo:-95"),
        ((*PATH, "--constellation", "geo:west"), "not a longitude"),
        ((*PATH, "--relay", "access", "--pops", "nowhere"), "path.pops: unknown list of sites"),
        ((*PATH, "--relay", "access", "--pops", "a.csv"), 'path.pops: no such file: "a.csv"'),
        ((*PATH, "--start", "yesterday"), 'path.start: "yesterday" is not a date or a time'),
        ((*PATH, "--fibre-stretch", "0.5"), "1 to 10 times"),
        ((*PATH, "--minimum-elevation", "95 deg"), "path.minimum_elevation: is 95 deg"),
        ((*PATH, "--satellites", "moon=1"), "path.satellites"),
        ((*PATH, "--satellites", "name=STARLINK*"), "from element sets only"),
        ((*PATH, "--compat", "hypatio"), "path.compat: unknown variant `hypatio`"),
        ((*PATH, "--step", "1 parsec"), 'path.step: "1 parsec" has the unit "parsec"'),
        ((*PATH, "--outage", "-3 ms"), "path.outage"),
        ((*PATH, "--outage", "starlonk"), "path.outage"),
        ((*PATH, "--handover", "nearest"), "path.handover"),
        ((*PATH, "--constellation", "starlonk"), 'unknown constellation "starlonk"'),
        ((*PATH, "--constellation", "starlonk.tle"), 'constellation: no such file: "starlonk.tle"'),
        ((*PATH, "--gateways", "nowhere.csv"), 'no such file: "nowhere.csv"; expected starlink-'),
        ((*PATH, "--set", "link.rate=-1 Mbit/s"), "link.rate"),
        (
            (*PATH[:6], "100000 h", "-o", "x.parquet"),
            "path.step: makes 360,000,000 steps; at most 2,000,000",
        ),
        ((*PATH, "--set", "nonsense"), "--set nonsense: expected KEY=VALUE"),
        (("path", "-o", "x.parquet"), "nothing to compute"),
        (("path", "missing.toml", "-o", "x.parquet"), "missing.toml: cannot read"),
        (("path", "import", "missing.log", "--format", "leoem", "-o", "x"), "missing.log"),
        (("live", "missing.toml", "-o", "run"), "missing.toml: cannot read"),
        (("report", "nowhere", "-o", "r.html"), "nowhere"),
        (("list", "planets"), "planets"),
        (("fly",), "No such command 'fly'; expected one of"),
        (("compare", "a"), "No such command 'compare'; did you mean skyhop path compare? (see"),
        (("run", "a"), "did you mean skyhop linux run or skyhop study run"),
        (("app", "page"), "No such command 'page'; expected one of list, show (see skyhop app"),
        (("reprot", "a"), "No such command 'reprot'. Did you mean 'report'?"),
    ],
)
def test_wrong_arguments(
    skyhop: Skyhop, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in one_line(skyhop(*arguments), 2)
    assert files(tmp_path) == set()


def test_a_path_that_never_exists(skyhop: Skyhop, tmp_path: Path) -> None:
    # No satellite of a shell at 53 degrees inclination is visible from the poles.
    done = skyhop("path", "--from=89,0", "--to=-89,0", "--duration", "5 s", "-o", "x.parquet")
    assert "none of the 1584 satellites of starlink-shell1 is ever in view of 89,0" in one_line(
        done, 2
    )
    # From the equator there are satellites in view, but no gateway.
    done = skyhop(
        "path", "--from=0,-140", "--to=0,-141", "--relay", "access", "--duration", "5 s",
        "-o", "x.parquet",
    )  # fmt: skip
    assert "never a path between 0,-140 and 0,-141; no gateway may be near enough" in one_line(
        done, 2
    )
    assert files(tmp_path) == set()


SITES = {
    "usual names": ("name,lat,lon\nA,47.6,-122.3\n", ""),
    "a table of Windows": ("\ufeffSite;Latitude;Longitude\r\nA;47.6;-122.3\r\n", ""),
    "other names": ("name,x,y\nA,47.6,-122.3\n", "line 2: no column `latitude_deg`; expected the"),
    "a word": ("name,lat,lon\nA,N47,-122.3\n", 'line 2: latitude_deg is "N47"; expected a number'),
    "a short row": ("name,lat,lon\nA,47\n", "line 2: 2 cells; expected 3, as in the first line"),
    "not on Earth": ("name,lat,lon\nA,200,0\n", "line 2: 200, 0 is not on Earth"),
}


@pytest.mark.parametrize("case", SITES, ids=lambda case: case.replace(" ", "-"))
def test_lists_of_sites(skyhop: Skyhop, tmp_path: Path, case: str) -> None:
    text, expected = SITES[case]
    (tmp_path / "mine.csv").write_text(text, encoding="utf-8", newline="")
    done = skyhop(
        "path", "--from", "Seattle", "--to", "Denver", "--relay", "access", "--duration", "5 s",
        "--gateways", "mine.csv", "-o", "x.parquet",
    )  # fmt: skip
    if expected:
        assert f"mine.csv: {expected}" in one_line(done, 2)
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[path]\nkind = fixed\n", "line 2: not TOML"),
        ("[path]\nkind = 'fixed'\nrtt = '20 ms'\n[link]\nrat = 3\n", "link.rat: unknown field"),
        ("[path]\nkind = 'trace'\nfile = 'gone.parquet'\n", "path.file: no such file"),
        (FIXED + "[link]\nqdisc = 'magic'\n", 'no qdisc "magic"'),
        (FIXED + "[link]\nqdisc = { kind = 'codel', limit = 3 }\n", "unknown field `limit`"),
        (FIXED + "[link]\nqdisc = { ecn = true }\n", "link.qdisc: missing field `kind`"),
        (FIXED + "[[flow]]\nkind = 'probe'\ntcp.ecn = true\n", "flow.0.tcp: does not belong"),
        (FIXED, "flow"),
        (
            FIXED + "[[flow]]\n[signal]\nsource = 'forecast'\n",
            "signal.source: a forecast needs orbits",
        ),
    ],
)
def test_wrong_scenarios(skyhop: Skyhop, tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "x.toml").write_text(content, "utf-8")
    assert expected in one_line(skyhop("live", "x.toml", "-o", "run"), 2)
    assert files(tmp_path) == {"x.toml"}


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("name", ["psychic", "skyhop:psychic"])
def test_a_congestion_control_that_the_kernel_lacks(
    skyhop: Skyhop, tmp_path: Path, name: str
) -> None:
    (tmp_path / "x.toml").write_text(f"{FIXED}[[flow]]\ncc = '{name}'\n", "utf-8")
    assert "psychic" in one_line(skyhop("live", "x.toml", "-o", "run"), 2)
    assert files(tmp_path) == {"x.toml"}


def test_a_truncated_path_file(skyhop: Skyhop, tmp_path: Path) -> None:
    assert skyhop(*PATH).returncode == 0
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[: len(whole) // 2])
    scenario = '[path]\nkind = "trace"\nfile = "x.parquet"\n[[flow]]\n'
    (tmp_path / "x.toml").write_text(scenario, "utf-8")
    message = one_line(skyhop("live", "x.toml", "-o", "run"), 2)
    assert "x.parquet: not a whole Parquet file" in message
    assert files(tmp_path) == {"x.toml", "x.parquet"}


def test_a_log_cut_in_mid_line(skyhop: Skyhop, tmp_path: Path) -> None:
    line = "1$[-1, 7, -2]$3$[0.001, 0.002]$0.003\n"
    (tmp_path / "x.log").write_text(line + line.replace("1$", "2$", 1)[:20], "utf-8")
    done = skyhop("path", "import", "x.log", "--format", "leoem", "-o", "x.parquet")
    assert "x.log: line 2:" in one_line(done, 2)
    assert files(tmp_path) == {"x.log"}


def test_an_unknown_log_format(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("", "utf-8")
    done = skyhop("path", "import", "x.log", "--format", "morse", "-o", "x.parquet")
    assert "expected one of leoem" in one_line(done, 2)


def test_a_constellation_without_planes(skyhop: Skyhop, tmp_path: Path) -> None:
    text = (ROOT / "data" / "constellations" / "starlink-shell1.toml").read_text("utf-8")
    (tmp_path / "empty.toml").write_text(text.replace("planes = 72", "planes = 0"), "utf-8")
    message = one_line(skyhop(*PATH, "--constellation", "empty.toml"), 2)
    assert "empty.toml" in message
    assert "planes" in message
    assert files(tmp_path) == {"empty.toml"}


@pytest.mark.parametrize("bad", ["name,latitude_deg\nx,1\n", "name,latitude_deg,longitude_deg\n"])
def test_an_invalid_list_of_gateways(skyhop: Skyhop, tmp_path: Path, bad: str) -> None:
    (tmp_path / "bad.csv").write_text(bad, "utf-8")
    assert "bad.csv" in one_line(skyhop(*PATH, "--gateways", "bad.csv"), 2)


def test_an_output_directory_in_use(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious").write_text("x", "utf-8")
    (tmp_path / "x.toml").write_text(FIXED + "[[flow]]\n", "utf-8")
    message = one_line(skyhop("live", "x.toml", "-o", "run"), 2)
    assert "run: the output directory is not empty; choose another or add --force" in message
    assert (tmp_path / "run" / "precious").read_text("utf-8") == "x"


@pytest.mark.integration
@pytest.mark.usefixtures("namespaces")
def test_a_full_disk(tmp_path: Path) -> None:
    """Use a small tmpfs in a mount namespace as a disk that fills up."""
    place = tmp_path / "disk"
    place.mkdir()
    command = " ".join([*skyhop_command(), 'path --from "San Diego" --to Seattle'])
    script = (
        f"mount -t tmpfs -o size=4k none {place} && cd {place} && "
        f'{command} --duration "10 min" -o x.parquet; status=$?; ls -A; exit $status'
    )
    needs_program("mount")
    done = subprocess.run(
        [needs_program("unshare"), "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    message = one_line(done, 1)
    assert "x.parquet: cannot write: No space left on device" in message
    assert done.stdout == "", "nothing is left behind"


_STUDY_ON_A_FULL_DISK = """\
mount -t tmpfs -o size=100k none disk
{command} study run study.toml -o disk/out --jobs 2 >&2
echo $?; ls disk/out/runs | wc -l
mount -o remount,size=100m disk
{command} study run study.toml -o disk/out --jobs 2 >&2
echo $?; ls disk/out/runs | wc -l; ls disk/out/report.html
"""


@pytest.mark.soak
@pytest.mark.usefixtures("namespaces")
def test_a_study_on_a_full_disk_continues_when_there_is_space(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    small_study.write(tmp_path / "study.toml")
    needs_program("mount")
    script = _STUDY_ON_A_FULL_DISK.format(command=" ".join(skyhop_command()))
    done = subprocess.run(
        [needs_program("unshare"), "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        cwd=tmp_path,
    )
    failed, kept, again, whole, report = done.stdout.split()
    assert (failed, again, whole, report) == ("1", "0", "8", "disk/out/report.html"), done.stderr
    assert 0 < int(kept) < int(whole), "what was done is kept"
    assert "runs: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_control_characters_of_files_are_not_printed(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[path]\n"M\u00fcnchen\\u001b[2J\\u009b1m" = 1\n', "utf-8")
    message = one_line(skyhop("sim", "x.toml", "-o", "run"), 2)
    assert "M\u00fcnchen\\x1b[2J\\x9b1m" in message


def test_an_output_that_is_no_file(skyhop: Skyhop, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    message = one_line(skyhop(*PATH[:-1], "pipe"), 2)
    assert "pipe: is not a regular file" in message
    assert (tmp_path / "pipe").is_fifo()


def test_a_wrong_figure_format_is_an_error_before_the_work(skyhop: Skyhop, tmp_path: Path) -> None:
    assert "give a name that ends in .png, .svg or .pdf" in one_line(
        skyhop(*PATH, "--plot", "x.xyz"), 2
    )
    assert "no such directory" in one_line(skyhop(*PATH, "--plot", "no/x.png"), 2)
    (tmp_path / "taken.png").mkdir()
    said = one_line(skyhop(*PATH, "--plot", "taken.png"), 2)
    assert "taken.png: is a directory: give the name of a file" in said
    assert files(tmp_path) == {"taken.png"}


def test_an_interrupted_computation_leaves_nothing(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def ctrl_c(_label: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda _done, _total: signal.raise_signal(signal.SIGINT)

    module = importlib.import_module("skyhop.cli.path.compute")
    monkeypatch.setattr(module, "progress_bar", ctrl_c)
    done = skyhop(*PATH)
    assert (done.returncode, done.stderr) == (130, "skyhop: interrupted\n")
    assert files(tmp_path) == set()


@pytest.mark.soak
def test_an_interrupted_process_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*skyhop_command(), *PATH[:6], "200 h", "-o", "x.parquet"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == "skyhop: interrupted\n"
    assert files(tmp_path) == set()


def test_an_unwritable_output(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop(*PATH[:-1], "no/such/place/x.parquet")
    assert "no/such/place/x.parquet: cannot write" in one_line(done, 1)
    assert files(tmp_path) == set()


WRONG_WORDS = re.compile(r"\b(usize|struct|enum|borrowed|os error|serde|unit value)\b")
FLOW = FIXED + "[[flow]]\n"
BROKEN = [
    "path = 3", 'path = "x.parquet"', "[[path]]", "links = []\n" + FIXED, "flow = 3\n" + FIXED,
    "[flow]\ncc = 'bbr'\n" + FIXED, "change = 'x'\n" + FIXED, FIXED + "[run]\nduration = 10",
    FIXED + "[run]\nseed = -1", FIXED + "[run]\nseed = 1.5", FIXED + "[run]\nseed = 'x'",
    FLOW + "count = 'two'", FLOW + "cc = 3", FLOW + "kind = 'udp'", FLOW + "via = 'path'",
    FLOW + "app = 'ftp'", FLOW + "app = { kind = 'request-response' }", FLOW + "bytes = 3.5",
    FLOW + "nope = 3", FIXED + "[link]\nqueue = true", FIXED + "[link]\nback = 3",
    FIXED + "[link]\nqdisc = 3", FIXED + "[signal]\nsource = 'x'", FIXED + "[tcp]\necn = 'maybe'",
    FIXED + "[tcp]\nrmem = [1, 2]", FIXED + "[tcp]\nrmem = 3", FIXED + "[links]\na = 3",
    FIXED + "[[change]]\nflow = '0'",
    FIXED + "rtt = [1]", "[path]\nkind = 'trace'\nloop = 'yes'", "[path]\nfibre_stretch = 'x'",
    "", "flow", "flow =", "[path", "[path]\nkind = 'x", "[path]\nkind = fixed", "x = 1\nx = 2",
    "[[flow]", '{"path":', "= 3", "a = 1 b = 2", "x = 99999999999999999999", "x = [1,", "x = 0x",
    "x = {a = 1", "a.b = 1\na = 2", "x = 1979-13-01",
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_messages_have_no_internal_names(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(InputError) as caught:
        load_scenario(file)
    message = str(caught.value).removeprefix(str(file))
    assert message.startswith(": ")
    assert not WRONG_WORDS.search(message), message


def test_lists_of_tables_are_named_as_they_are_written(tmp_path: Path) -> None:
    for name in ("flow", "change"):
        with pytest.raises(
            InputError, match=rf"{name}: expected \[\[{name}\]\], one for each {name}"
        ):
            load_scenario({"path": {"kind": "fixed", "rtt": "1 ms"}, name: {}})
    (tmp_path / "omm.json").write_text("[{", "utf-8")
    with pytest.raises(InputError, match="EOF while parsing"):
        sh.constellation(str(tmp_path / "omm.json"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_in_place_of_a_path_names_the_import(
    skyhop: Skyhop, tmp_path: Path, packed: bool
) -> None:
    log = b"PING 192.0.2.1\n64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 time=20.0 ms\n"
    (tmp_path / "x.txt").write_bytes(gzip.compress(log) if packed else log)
    scenario = '[path]\nkind = "trace"\nfile = "x.txt"\n[[flow]]\n'
    (tmp_path / "x.toml").write_text(scenario, "utf-8")
    for command in (("sim", "x.toml", "-o", "run"), ("path", "stats", "x.txt")):
        assert "skyhop path import makes a path file of" in one_line(skyhop(*command), 2)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ((*PATH, "--relay", "ISL"), "isl"),
        ((*PATH, "--relay", "bentpipe"), "bent-pipe"),
        ((*PATH, "--handover", "nearest"), "nearest-grid"),
        ((*PATH, "--outage", "LeoEM"), "leoem"),
        ((*PATH, "--compat", "Hypatia"), "hypatia"),
        ((*PATH, "--constellation", "Starlink-Shell1"), "starlink-shell1"),
        (
            (*PATH, "--constellation", "starlink"),
            "starlink-gen1, starlink-shell1 or starlink-550-hypatia",
        ),
        ((*PATH, "--gateways", "Starlink_Gateways"), "starlink-gateways"),
        (("path", "--from", "Londno", "--to", "Rome", "-o", "x.parquet"), "London"),
        (("sim", "x.toml", "-o", "run", "--set", "flow.0.cc=bbrv3"), "bbr3"),
        (("sim", "x.toml", "-o", "run", "--set", "flow.0.cc=BBR"), "bbr"),
        (("sim", "x.toml", "-o", "run", "--set", "flow.0.cc=SatPipe"), "satpipe"),
        (("sim", "x.toml", "-o", "run", "--set", "flow.0.cubic.betta=0.7"), "beta"),
        (("sim", "x.toml", "-o", "run", "--set", "link.qdisc=fq-codel"), "fq_codel"),
        (("sim", "x.toml", "-o", "run", "--set", "link.rate=20 mbps"), "Mbps"),
        (("sim", "x.toml", "-o", "run", "--set", "lnk.rate=20 mbit"), "link"),
        (("sim", "San-Diego-New-York", "-o", "run"), "san-diego-new-york"),
        (("study", "show", "satcp-fig99"), "satcp-fig9"),
        (("path", "import", "x", "--format", "Ping", "-o", "y"), "ping"),
        (("list", "qdiscs", "FQ_Codel"), "fq_codel"),
        (("cc", "new", "x.c", "--from", "Cubic"), "cubic"),
        (("policy", "new", "x.toml", "--from", "Orca"), "orca"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(
    skyhop: Skyhop, tmp_path: Path, arguments: tuple[str, ...], meant: str
) -> None:
    flow = "[[flow]]\ncc = 'cubic'\n[run]\nduration = '1 s'\n"
    (tmp_path / "x.toml").write_text(f"[path]\nkind = 'fixed'\nrtt = '40 ms'\n{flow}", "utf-8")
    assert f"(did you mean {meant}?)" in one_line(skyhop(*arguments), 2)


def test_the_hint_about_a_run_whose_name_looks_like_an_option_works(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    flow = "[[flow]]\n[run]\nduration = '1 s'\n"
    (tmp_path / "x.toml").write_text(f"[path]\nkind = 'fixed'\nrtt = '40 ms'\n{flow}", "utf-8")
    hint = skyhop("sim", "x.toml", "-o", "-run").stderr
    command = re.search("skyhop (report .*) draws it", hint)
    assert command is not None, hint
    assert skyhop(*shlex.split(command[1])).returncode == 0
    assert (tmp_path / "report.html").is_file()


def test_lists_in_errors_are_complete(skyhop: Skyhop, tmp_path: Path) -> None:
    assert skyhop(*PATH).returncode == 0
    for command, expected in [
        (("path", "export", "x.parquet", "--format", "x", "-o", "y"), "csv, mahimahi, netem, czml"),
        (("signal", "serve", "--source", "x", "--socket", "y"), "path, blind or forecast"),
        ((*PATH, "--constellation", "x"), "geo:LONGITUDE, a file, or the address of element sets"),
        (("path", "import", "x", "--format", "x", "-o", "y"), "csv, iperf3, mahimahi, leocc"),
        (("report", "x", "-o", "y.html"), "does not exist"),
    ]:
        assert expected in one_line(skyhop(*command), 2)
    assert "os error" not in skyhop("sim", "none.toml", "-o", "run").stderr
    assert files(tmp_path) == {"x.parquet"}


def test_a_long_message_keeps_its_ends(skyhop: Skyhop) -> None:
    long = "x" * 3000
    for command, status in (
        (("report", long, "-o", "y.html"), 1),
        (("sim", "handover", f"--{long}"), 2),
    ):
        said = one_line(skyhop(*command), status)
        assert len(said) <= len("skyhop: ") + 400
    assert str(InputError("a" * 1000 + " say --force")).endswith("aaa say --force")
    assert len(str(InputError("a" * 1000))) == 400
    assert str(InputError("a" * 400)) == "a" * 400


@pytest.mark.integration
def test_a_missing_working_directory_is_one_line(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    text = 'title = "t"\nquestion = "q"\n[scenario.path]\nkind = "fixed"\nrtt = "20 ms"\n'
    study.write_text(f"{text}[[scenario.flow]]\n", "utf-8")
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *skyhop_command(),
         "study", "run", str(study), "-o", str(tmp_path / "out")],
        cwd=gone, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    expected = "skyhop: the working directory no longer exists: change to another one\n"
    assert done.stderr == expected
