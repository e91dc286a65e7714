"""Congestion controls in the user's files: search, compilation, runs, records and errors."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_again import run_again

import skyhop as sh
from command_line import Skyhop, run_here
from needs import missing, needs_namespaces, needs_program, needs_root, unless_impossible
from skyhop import _core
from skyhop.data.templates import template
from skyhop.errors import CompileError, InputError, RunError
from skyhop.study.plan import load_study

SKETCH = """\
class CongestionControl:
    cut = 0.5
    whole = 3
    on = True

    def on_ack(self, ack):
        self.cwnd += ack.acked / self.cwnd

    def on_loss(self):
        self.cwnd = self.ssthresh = max(self.cwnd * self.cut, 2)
"""


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_program("cc")


@pytest.fixture
def skyhop(tmp_path: Path) -> Skyhop:
    """Run the command line in this process; the compiler is a process of its own."""
    return partial(run_here, tmp_path)


def scenario(cc: str, **flow: Any) -> dict[str, Any]:
    """Return the scenario of a short run over a link with loss."""
    return {
        "path": {"kind": "fixed", "rtt": "20 ms"},
        "link": {"rate": "10 Mbit/s", "loss": "0.1 %"},
        "flow": [{"cc": cc, **flow}],
        "run": {"duration": "4 s"},
    }


def write(directory: Path, name: str, *replacements: tuple[str, str]) -> Path:
    """Write the template into a file, with some of its text replaced."""
    file = directory / name
    text = template(file)
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, "utf-8")
    return file


def write_scenario(file: Path, cc: str) -> Path:
    file.write_text(
        '[path]\nkind = "fixed"\nrtt = "20 ms"\n[link]\nrate = "10 Mbit/s"\nloss = "0.1 %"\n'
        f'[[flow]]\ncc = "{cc}"\n[run]\nduration = "4 s"\n',
        "utf-8",
    )
    return file


def goodput(run: sh.Run) -> int:
    rate: int = run.summary["flows"][0]["goodput_bps"]
    return rate


@pytest.mark.integration
def test_a_copy_of_ours_has_equal_results_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "mine.c"
    file.write_text(template(file, "cubic"), "utf-8")
    own = sh.sim(scenario("cubic", cubic={"beta": 0.8}))
    copy = sh.sim(scenario(str(file), mine={"beta": 0.8}))
    assert own.flows.equals(copy.flows)
    assert not own.flows.equals(sh.sim(scenario(str(file))).flows)
    assert copy.summary["flows"][0]["cc"] == "mine.c"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert copy.info["cc_files"] == {str(file): digest}
    assert "cc_files" not in own.info
    with pytest.raises(InputError, match="mine has no parameter"):
        sh.sim(scenario(str(file), mine={"nosuch": 1}))


@pytest.mark.integration
def test_files_are_relative_to_the_scenario_or_the_command_and_reports_repeat_runs(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    write(tmp_path / "there", "idea.c", ("tcp_reno_cong_avoid(sk, ack, acked)", "(void)acked"))
    write(tmp_path, "idea.c")
    write_scenario(tmp_path / "there" / "x.toml", "./idea.c")
    relative = skyhop("sim", "there/x.toml", "-o", "relative")
    here = skyhop("sim", "there/x.toml", "-o", "here", "--set", "flow.0.cc=./idea.c")
    assert (relative.returncode, here.returncode) == (0, 0), relative.stderr + here.stderr
    runs = {name: sh.read_run(tmp_path / name) for name in ("relative", "here")}
    (where,) = runs["relative"].info["cc_files"]
    assert where == str(tmp_path / "there" / "idea.c")
    # The file next to the scenario never increases its window.
    assert goodput(runs["here"]) > 2 * goodput(runs["relative"])
    assert skyhop("report", "here", "-o", "page.html").returncode == 0
    again = run_again(tmp_path / "page.html", tmp_path / "elsewhere")
    assert again.returncode == 0, again.stderr
    assert sh.read_run(tmp_path / "elsewhere" / "here").flows.equals(runs["here"].flows)


def refused(skyhop: Skyhop, *arguments: object) -> list[str]:
    """Return the error lines of a run that is refused with exit code 2."""
    result = skyhop(*arguments)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()


@pytest.mark.integration
def test_errors_of_the_compiler_precede_one_line_of_ours(skyhop: Skyhop, tmp_path: Path) -> None:
    write(tmp_path, "idea.c", ("tcp_sk(sk)->snd_cwnd;", "tcp_sk(sk)->no_such_field;"))
    write_scenario(tmp_path / "x.toml", "./idea.c")
    said = [
        refused(skyhop, "sim", "x.toml", "-o", "run"),
        refused(skyhop, "sim", "x.toml", "-o", "runs", "--repeat", 2),
        refused(skyhop, "cc", "check", "idea.c"),
    ]
    for lines in said:
        assert lines[0].startswith("idea.c:"), "nothing before what the compiler says"
        assert any("no_such_field" in line for line in lines)
        assert [line for line in lines if line.startswith("skyhop: ")] == lines[-1:]
    assert not (tmp_path / "run").exists()
    with pytest.raises(CompileError, match="no_such_field") as raised:
        sh.sim(tmp_path / "x.toml")
    assert raised.value.line.startswith(str(tmp_path / "idea.c"))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (".undo_cwnd = SKYHOP_FN(idea_undo_cwnd)", ".release = SKYHOP_FN(idea_init)", "undo_cwnd"),
        (".ssthresh =", ".ssthres =", "ssthres is not a hook"),
        ("SKYHOP_MODULE(", "#define GONE(...)\nGONE(", "SKYHOP_MODULE"),
    ],
)
def test_a_hook_that_is_missing_or_unknown_is_named_in_a_line(
    skyhop: Skyhop, tmp_path: Path, old: str, new: str, expected: str
) -> None:
    write(tmp_path, "idea.c", (old, new))
    write_scenario(tmp_path / "x.toml", "./idea.c")
    for command in (["sim", "x.toml", "-o", "run"], ["cc", "check", "idea.c"]):
        # Warnings of the compiler, such as unused hooks, may precede it.
        lines = refused(skyhop, *command)
        assert expected in lines[-1]
        assert sum("skyhop: " in line for line in lines) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nosuch.c", "there is no file"), ("my-idea.c", "at most 15"), ("sixteen_letters_.c", "15")],
)
def test_wrong_names_are_an_error_of_one_line(
    skyhop: Skyhop, tmp_path: Path, name: str, expected: str
) -> None:
    if name != "nosuch.c":
        shutil.copy(write(tmp_path, "idea.c"), tmp_path / name)
    write_scenario(tmp_path / "x.toml", name)
    lines = refused(skyhop, "sim", "x.toml", "-o", "run")
    assert len(lines) == 1
    assert expected in lines[0]


def test_without_a_compiler_one_line_says_what_to_install(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "idea.c")
    write_scenario(tmp_path / "x.toml", "./idea.c")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = skyhop("sim", "x.toml", "-o", "run")
    assert result.returncode == 1
    assert "apt-get install gcc" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name", [pytest.param("fifteen_letters.c", marks=pytest.mark.integration), "sketch.py"]
)
def test_templates_pass_the_checks(skyhop: Skyhop, name: str) -> None:
    assert skyhop("cc", "new", name).returncode == 0
    result = skyhop("cc", "check", name, "--json")
    assert result.returncode == 0, result.stderr
    checks = json.loads(result.stdout)["checks"]
    assert all(check["ok"] == "yes" for check in checks)
    assert len(checks) >= 5


def test_new_replaces_nothing(skyhop: Skyhop, tmp_path: Path) -> None:
    for name in ("fifteen_letters.c", "sketch.py"):
        assert skyhop("cc", "new", name).returncode == 0
        (line,) = refused(skyhop, "cc", "new", name)
        assert "already" in line
    for arguments in (["idea.rs"], ["idea.c", "--from", "nosuch"], ["my-idea.c"]):
        (line,) = refused(skyhop, "cc", "new", *arguments)
        assert arguments[-1] in line
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fifteen_letters.c", "sketch.py"]


def test_a_check_that_fails_is_named(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "still.py").write_text(
        "class CongestionControl:\n    def on_ack(self, ack):\n        self.cwnd = 2\n", "utf-8"
    )
    result = skyhop("cc", "check", "still.py")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith(
        "fills a clean link, recovers from an outage, shares with its like"
    )


@pytest.mark.integration
def test_files_of_sweeps_are_relative_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    write_scenario(tmp_path / "there" / "x.toml", "cubic")
    write(tmp_path, "idea.c")
    (tmp_path / "idea.py").write_text(SKETCH, "utf-8")
    monkeypatch.chdir(tmp_path)
    frame = sh.sweep("there/x.toml", {"flow.0.cc": ["cubic", "./idea.c", "idea.py"]})
    assert frame["cc"].to_list() == ["cubic", "idea.c", "idea.py"]
    repeated = sh.sim("there/x.toml", repeat=2, sets=["flow.0.cc=./idea.c"])
    assert set(repeated["cc"]) == {"idea.c"}


def study_of(*values: str) -> str:
    return (
        'title = "Ideas"\nquestion = "Which?"\nrepeats = 1\n[scenario]\n'
        'path = { kind = "fixed", rtt = "20 ms" }\nlink = { rate = "10 Mbit/s" }\n'
        'flow = [{ cc = "cubic" }]\nrun = { duration = "2 s" }\n'
        f'[[axis]]\nname = "cc"\nkey = "flow.0.cc"\nvalues = {json.dumps(values)}\n'
    )


@pytest.mark.integration
def test_ids_of_runs_depend_on_the_content_of_the_file(tmp_path: Path) -> None:
    def ids() -> list[str]:
        return [run.run_id for run in load_study(tmp_path / "study.toml").runs()]

    (tmp_path / "study.toml").write_text(study_of("cubic", "./idea.c"), "utf-8")
    write(tmp_path, "idea.c")
    before = ids()
    write(tmp_path, "idea.c", ("819", "900"))
    changed = ids()
    assert (changed[0] == before[0], changed[1] == before[1]) == (True, False)
    text = (tmp_path / "idea.c").read_text("utf-8")
    (tmp_path / "own.h").write_text("\n", "utf-8")
    (tmp_path / "idea.c").write_text(f'#include "own.h"\n{text}', "utf-8")
    with_header = ids()
    (tmp_path / "own.h").write_text("/* changed */\n", "utf-8")
    assert ids()[1] != with_header[1]


@pytest.mark.integration
def test_a_study_continues_after_a_file_that_crashes(skyhop: Skyhop, tmp_path: Path) -> None:
    write(tmp_path, "idea.c")
    write(tmp_path, "crash.c", ("my->min_rtt_us = ~0U;", "*(volatile u32 *)0 = 1;"))
    (tmp_path / "study.toml").write_text(study_of("./idea.c", "./crash.c"), "utf-8")
    result = skyhop("study", "run", "study.toml", "-o", "results", "--jobs", 2)
    assert result.returncode == 1, result.stderr
    assert "crash.c" in result.stderr
    assert "killed by SIGSEGV" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(list((tmp_path / "results" / "runs").iterdir())) == 1
    write_scenario(tmp_path / "x.toml", "./crash.c")
    repeated = skyhop("sim", "x.toml", "-o", "runs", "--repeat", 2)
    assert repeated.returncode == 1
    assert repeated.stderr.splitlines()[-1].startswith("skyhop: a repeat's process was killed")


def test_python_gets_acks_losses_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "idea.py"
    file.write_text(SKETCH, "utf-8")
    usual, gentle = sh.sim(scenario(str(file))), sh.sim(scenario(str(file), idea={"cut": 0.9}))
    assert goodput(gentle) > goodput(usual)
    assert usual.info["cc_files"] == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    assert usual.flows.equals(sh.sim(scenario(str(file))).flows)
    # The same process loads an edited file again.
    file.write_text(SKETCH.replace("cut = 0.5", "cut = 0.9"), "utf-8")
    assert sh.sim(scenario(str(file))).flows.equals(gentle.flows)


def test_python_paces_and_draws_random_numbers_that_repeat(tmp_path: Path) -> None:
    file = tmp_path / "paced.py"
    file.write_text(
        "class CongestionControl:\n    def on_ack(self, ack):\n        self.cwnd = 200\n"
        "        self.pacing_rate_bps = 4e6 + 2e6 * self.random.random()\n"
        "    def on_loss(self):\n        pass\n",
        "utf-8",
    )
    first, again = sh.sim(scenario(str(file))), sh.sim(scenario(str(file)))
    assert first.flows.equals(again.flows)
    assert 4e6 < goodput(first) < 6e6
    rates = {r for r in first.flows["pacing_rate_bps"].to_list()[2:] if r is not None}
    assert len(rates) > 10
    assert all(4e6 <= rate <= 6e6 for rate in rates)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("x = (", InputError, "idea.py:1: SyntaxError"),
        ("import nosuch_module", InputError, "idea.py:1: ModuleNotFoundError"),
        ("x = 1", InputError, "defines no class CongestionControl"),
        ("class CongestionControl:\n    pass", InputError, r"lacks on_ack\(self, ack\)"),
        (SKETCH + "\n    def __init__(self):\n        1 / 0", InputError, "idea.py:13: ZeroDiv"),
        (SKETCH.replace("ack.acked", "ack.nosuch"), RunError, "idea.py:7: AttributeError.*on_ack"),
        (SKETCH.replace("max(", "nosuch("), RunError, "idea.py:10: NameError.*in on_loss, at "),
        (SKETCH.replace("ack.acked / self.cwnd", "float('nan')"), RunError, "cwnd is nan"),
    ],
)
def test_errors_of_python_files_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "idea.py").write_text(text, "utf-8")
    with pytest.raises(kind, match=expected) as raised:
        sh.sim(scenario("idea.py"), tmp_path / "run")
    assert len(str(raised.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"nosuch": 1}, 'no parameter "nosuch"; it has: cut, whole, on'),
        ({"cut": "much"}, "expected a number"),
        ({"whole": 1.5}, "expected a whole number"),
        ({"on": 1}, "expected true or false"),
    ],
)
def test_parameters_in_python_are_checked(
    tmp_path: Path, given: dict[str, object], expected: str
) -> None:
    (tmp_path / "idea.py").write_text(SKETCH, "utf-8")
    with pytest.raises(InputError, match=expected):
        sh.sim(scenario(str(tmp_path / "idea.py"), idea=given))


def test_live_refuses_python(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "idea.py").write_text(SKETCH, "utf-8")
    write_scenario(tmp_path / "x.toml", "./idea.py")
    for more in (["-o", "run"], ["--cc", "idea.py", "--", "true"]):
        (line,) = refused(skyhop, "live", "x.toml", *more)
        assert "simulator alone" in line


@pytest.mark.integration
def test_an_experiment_for_another_machine_contains_its_files(tmp_path: Path) -> None:
    file = write(tmp_path, "idea.c")
    loaded = _core.Scenario.from_json(json.dumps(scenario(str(file))), "x", [])
    text = _core.Experiment.build(loaded, lambda _: ("", 0.0, 0.0, 0.0), lambda *_: None).to_json()
    assert json.loads(text)["cc_files"].keys() == {str(file)}
    _core.Experiment.from_json(text)
    file.unlink()
    with pytest.raises(InputError, match=r"idea\.c"):
        _core.Experiment.from_json(text)


@pytest.mark.soak
@pytest.mark.alone
def test_the_kernel_takes_names_of_fifteen_letters(skyhop: Skyhop, tmp_path: Path) -> None:
    needs_root()
    needs_namespaces()
    needs_program("clang", "clang")
    unless_impossible(skyhop("cc", "check", "reno"))
    write(tmp_path, "fifteen_letters.c")
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    if "fifteen_letters" in offered.read_text():
        missing("kernel", "another process has loaded fifteen_letters")
    loaded = skyhop("cc", "load", "./fifteen_letters.c")
    try:
        assert loaded.stdout.strip() == "fifteen_letters", loaded.stderr
        rows = {row["name"]: row for row in json.loads(skyhop("cc", "list", "--json").stdout)}
        assert rows["fifteen_letters"]["place"] == "loaded"
        again = skyhop("cc", "load", "./fifteen_letters.c")
        assert again.returncode == 2
        assert "already loaded" in again.stderr
    finally:
        unloaded = skyhop("cc", "unload", "./fifteen_letters.c")
    assert unloaded.returncode == 0, unloaded.stderr
    assert "fifteen_letters" not in offered.read_text()
    write_scenario(tmp_path / "x.toml", "./fifteen_letters.c")
    live = skyhop("live", "x.toml", "-o", "run", "--set", "run.duration=1 s")
    assert live.returncode == 0, live.stderr


@pytest.mark.integration
def test_live_runs_compile_for_the_kernel_before_anything_else(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    needs_namespaces()
    needs_program("clang", "clang")
    write(tmp_path, "idea.c", ("(u32)(cwnd * ", "(u32)(1.0 * cwnd * "))
    write_scenario(tmp_path / "x.toml", "./idea.c")
    assert skyhop("sim", "x.toml", "-o", "run").returncode == 0, "the simulator has floats"
    lines = refused(skyhop, "live", "x.toml", "-o", "live")
    assert lines[0].startswith("idea.c:")
    assert "for the kernel's BPF" in lines[-1]
