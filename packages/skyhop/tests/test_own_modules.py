"""Modules that congestion controls in Python import from their own directory.

The modules of each file are its own, are read each time, and are part of the digests of its runs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import skyhop as sh
from skyhop.data.python_cc import own_modules, read_class
from skyhop.data.scenarios import load_scenario
from skyhop.study import load_study, run_study

IDEA = """
import helper
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = helper.CWND
"""
LAZY = """
class CongestionControl:
    def on_ack(self, ack):
        import helper
        self.cwnd = helper.CWND
"""
INSERTED = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n" + IDEA
DYNAMIC = """
import importlib
helper = importlib.import_module("helper")
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = helper.CWND
"""
PACKAGE = """
from parts.inner import CWND
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = CWND
"""


def write_files(directory: Path, **files: str) -> Path:
    """Write files of these names, without their suffix; return the first one."""
    directory.mkdir(exist_ok=True, parents=True)
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text, "utf-8")
    return directory / f"{next(iter(files))}.py"


def scenario(*files: Path) -> dict[str, object]:
    """Return a scenario of a second with a flow per file."""
    return {
        "path": {"kind": "fixed", "rtt": "100 ms"},
        "link": {"rate": "100 Mbit/s"},
        "flow": [{"cc": str(file)} for file in files],
        "run": {"duration": "1 s"},
    }


def windows(*files: Path) -> list[float]:
    """Return the last congestion window of each flow."""
    flows = sh.sim(scenario(*files)).flows
    return [flows.filter(flows["flow"] == i)["cwnd_packets"][-1] for i in range(len(files))]


@pytest.mark.parametrize("idea", [IDEA, LAZY, INSERTED, DYNAMIC])
def test_a_changed_module_is_read_again(tmp_path: Path, idea: str) -> None:
    file = write_files(tmp_path, idea=idea, helper="CWND = 20")
    assert windows(file) == [20]
    before = load_scenario(scenario(file)).cc_file_digests()
    helper = tmp_path / "helper.py"
    times = helper.stat()
    helper.write_text("CWND = 40", "utf-8")
    # A file of the same time and size, as from an archive.
    os.utime(helper, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert windows(file) == [40]
    after = load_scenario(scenario(file)).cc_file_digests()
    assert sorted(Path(name).name for name in after) == ["helper.py", "idea.py"]
    assert [name for name in before if before[name] != after[name]] == [str(helper)]
    assert "helper" not in sys.modules
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("idea", [IDEA, LAZY, INSERTED, DYNAMIC])
def test_files_in_two_directories_have_modules_of_their_own(tmp_path: Path, idea: str) -> None:
    a = write_files(tmp_path / "a", idea=idea, helper="CWND = 20")
    b = write_files(tmp_path / "b", idea=idea, helper="CWND = 40")
    assert windows(a, b) == [20, 40]
    assert windows(b, a) == [40, 20]


def test_modules_of_modules_and_of_packages_count(tmp_path: Path) -> None:
    file = write_files(tmp_path, idea=PACKAGE)
    parts = tmp_path / "parts"
    write_files(parts, __init__="", inner="from .deep import CWND", deep="from other import *")
    write_files(tmp_path, other="CWND = 30", never="")
    assert windows(file) == [30]
    names = [str(module.relative_to(tmp_path)) for module in own_modules(file)]
    assert names == ["other.py", "parts/__init__.py", "parts/deep.py", "parts/inner.py"]


def test_installed_modules_are_shared_and_not_shadowed(tmp_path: Path) -> None:
    text = "import json, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: 'int' = 1\n" + IDEA
    file = write_files(tmp_path, idea=text, helper="CWND = 20\nimport json", json="1 / 0")
    module = sys.modules["json"]
    read_class(str(file))
    assert sys.modules["json"] is module
    assert [module.name for module in own_modules(file)] == ["helper.py"]


def test_a_study_does_not_take_runs_of_an_older_module(tmp_path: Path) -> None:
    file = write_files(tmp_path, idea=IDEA, helper="CWND = 20")
    content = {"title": "t", "question": "q", "scenario": scenario(file)}
    for cwnd in (20, 40):
        (tmp_path / "helper.py").write_text(f"CWND = {cwnd}", "utf-8")
        done = run_study(load_study(content), tmp_path / "out", jobs=1)
        # The mean includes the first window, of 10 packets.
        assert cwnd - 10 < done.results.frame["cwnd_mean_packets"][0] <= cwnd
    digests = [json.loads(f.read_text())["cc_files"] for f in tmp_path.glob("out/runs/*/run.json")]
    assert all(str(tmp_path / "helper.py") in files for files in digests)


TABLES = {
    "top": """
import json, pathlib
TABLE = json.loads(pathlib.Path(__file__).with_name({name}).read_text())
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = TABLE[0]
""",
    "init": """
import json, os
class CongestionControl:
    def __init__(self):
        with open(os.path.join(os.path.dirname(__file__), {name})) as file:
            self.table = json.load(file)
    def on_ack(self, ack):
        self.cwnd = self.table[0]
""",
    "on_ack": """
import json, os
class CongestionControl:
    def on_ack(self, ack):
        fd = os.open(os.path.join(os.path.dirname(__file__), "table.json"), os.O_RDONLY)
        with os.fdopen(fd) as file:
            self.cwnd = json.load(file)[0]
""",
    "executed": """
exec(open(__file__.replace("idea.py", {name})).read())
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = TABLE[0]
""",
    "loaded": """
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("table", __file__.replace("idea.py", {name}))
module = module_from_spec(spec)
spec.loader.exec_module(module)
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = module.TABLE[0]
""",
    "lib": """
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), os.pardir, "lib"))
import table
class CongestionControl:
    def on_ack(self, ack):
        self.cwnd = table.TABLE[0]
""",
}
"""Congestion controls that read a table, by when they do; `{name}` is a text that they compute."""


@pytest.mark.parametrize("when", TABLES)
def test_a_study_does_not_take_runs_of_older_data(tmp_path: Path, when: str) -> None:
    is_code = when in ("executed", "loaded", "lib")
    name = "table.py" if is_code else "table.json"
    table = tmp_path / ("lib" if when == "lib" else "ideas") / name
    table.parent.mkdir()
    text = TABLES[when].replace("{name}", f"{name[:3]!r} + {name[3:]!r}")
    file = write_files(tmp_path / "ideas", idea=text)
    content = {"title": "t", "question": "q", "scenario": scenario(file)}
    path = list(sys.path)
    for cwnd in (20, 40):
        table.write_text(f"TABLE = [{cwnd}]" if is_code else f"[{cwnd}]", "utf-8")
        done = run_study(load_study(content), tmp_path / "out", jobs=1)
        # The mean includes the first window, of 10 packets.
        assert cwnd - 10 < done.results.frame["cwnd_mean_packets"][0] <= cwnd
        assert own_modules(file) == [table]
    assert sys.path == path


def test_what_installed_modules_open_is_no_data(tmp_path: Path) -> None:
    text = "import zoneinfo, mimetypes\nmimetypes.init()\nopen('/proc/self/stat').close()\n"
    writes = "open(__file__ + '.log', 'w').close()\n"
    file = write_files(tmp_path, idea=text + writes + IDEA, helper="CWND = 20")
    first = own_modules(file)
    assert own_modules(file) == first
    assert "helper.py" in [each.name for each in first]
    assert not [each for each in first if each.suffix == ".log" or each.is_relative_to("/proc")]
