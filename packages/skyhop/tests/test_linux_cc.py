"""Congestion controls in C as kernel modules: compiled against stub headers, and in a guest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from guest_kernels import needs_module_kernel, stand_in
from needs import ROOT, cases, needs_program
from skyhop import _core, sim
from skyhop.cli.cc_check import check_in_guest
from skyhop.data.progress import ignore_progress
from skyhop.data.runs import Run
from skyhop.data.templates import template
from skyhop.engines import Observer
from skyhop.errors import CompileError, InputError
from skyhop.linux import Kernel, modules, run
from skyhop.linux.modules import BUILD, Source, modules_of
from waiting import wait_for

CC = ROOT / "cc"
STUB = Path(__file__).with_name("kernel_stub.h")
OWN = [name for name, _ in _core.own_cc()]
KERNEL_HAS = {"jiffies", *re.findall(r"(\w+)\(", STUB.read_text("utf-8"))}
"""Symbols that a module may leave undefined, as kernels have them."""
QUIET = Observer(run=ignore_progress)


def kernels_part(header: str) -> str:
    """Return the parts of skyhop_cc.h that kernels have in their own headers."""
    kept, depth, inside = [], 0, 0
    for line in header.splitlines():
        word = line.split()[0] if line.split() else ""
        if line == "#ifndef __KERNEL__":
            inside = depth + 1
        depth += (word in ("#if", "#ifdef", "#ifndef")) - (word == "#endif")
        if inside and depth < inside:
            inside = 0
        elif inside and line != "#ifndef __KERNEL__":
            kept.append(line)
    return "\n".join(kept)


REPLACED = {
    "struct sock {": "struct sock {\n\tu32 sk_daddr;\n\tu16 sk_num, sk_dport;",
    "struct inet_connection_sock {": (
        "struct inet_connection_sock {\n\tconst struct tcp_congestion_ops *icsk_ca_ops;"
    ),
    "\tu32 flags;\n": "\tu32 flags;\n\tvoid *owner;\n",
}
"""Fields of a kernel's structs that modules need and skyhop_cc.h lacks."""
FOUR = "(*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);"
TWO = "(*cong_control)(struct sock *sk, const struct rate_sample *rs);"


ALONE = "\tvoid (*cwnd_event_tx_start)(struct sock *sk);\n"
TX_START = "\tvoid (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);\n"


@pytest.fixture(scope="module")
def kernel_headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with stubs of the headers of Linux 6.12."""
    return headers_of("6.12", tmp_path_factory.mktemp("kernel"))


def headers_of(version: str, place: Path) -> Path:
    """Write stubs of the headers of a kernel of this version into a directory."""
    needs_program("gcc")
    header, module = ((CC / name).read_text("utf-8") for name in ("skyhop_cc.h", "kernel_module.h"))
    for name in re.findall(r"#include <((?:linux|net)/\w+\.h)>", header + module):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("", "utf-8")
    structs = kernels_part(header)
    changed = {"6.6": {FOUR: TWO}, "7.2": {TX_START: f"{TX_START}{ALONE}"}}.get(version, {})
    for old, new in (REPLACED | changed).items():
        assert old in structs
        structs = structs.replace(old, new)
    (place / "net/tcp.h").write_text(
        STUB.read_text("utf-8").replace("/* STRUCTS */", structs), "utf-8"
    )
    major, minor = version.split(".")
    code = (int(major) << 16) + (int(minor) << 8)
    (place / "linux/version.h").write_text(f"#define LINUX_VERSION_CODE {code}\n", "utf-8")
    return place


def compiled(source: Path, headers: Path, made: Path, *defines: str) -> str:
    """Compile a file with the flags of a kernel's build; return the compiler's messages."""
    flags = ["-std=gnu11", "-O1", "-ffreestanding", "-mgeneral-regs-only", "-fno-common"]
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-sign-compare"]
    defined = ["-D__KERNEL__", '-DKBUILD_MODNAME="skyhop_it"', *defines]
    places = [f"-I{headers}", f"-I{CC}", "-c", str(source), "-o", str(made)]
    done = subprocess.run(
        ["gcc", *flags, *warnings, *defined, *places], capture_output=True, text=True, check=False
    )
    return done.stderr


REPRESENTATIVE = "bbr"
"""Module that `make test` compiles: it uses the most of a kernel's interface."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.integration if name == REPRESENTATIVE else pytest.mark.soak
        )
        for name in OWN
    ],
)
def test_every_module_compiles_and_needs_only_symbols_of_kernels(
    name: str, kernel_headers: Path, tmp_path: Path
) -> None:
    made = tmp_path / "it.o"
    assert compiled(CC / f"{name}.c", kernel_headers, made) == ""
    needs_program("nm")
    listed = subprocess.run(["nm", "-u", made], capture_output=True, text=True, check=True)
    # For example no 128-bit division and no floating point, which kernels do not have.
    assert {line.split()[-1] for line in listed.stdout.splitlines()} <= KERNEL_HAS


@pytest.mark.soak
@pytest.mark.parametrize(("version", "defines"), [("6.6", []), ("7.2", ["-DSKYHOP_HAS_TX_START"])])
def test_hooks_match_older_and_newer_kernels(
    version: str, defines: list[str], tmp_path: Path
) -> None:
    headers = headers_of(version, tmp_path)
    assert compiled(CC / "bbr.c", headers, tmp_path / "it.o", *defines) == ""


@pytest.mark.integration
def test_a_symbol_that_kernels_lack_is_detected(kernel_headers: Path, tmp_path: Path) -> None:
    source = tmp_path / "wide.c"
    text = template(Path("wide.c")).replace(
        "u64 cwnd = tcp_sk(sk)->snd_cwnd;",
        "u64 cwnd = (((unsigned __int128)tcp_sk(sk)->snd_cwnd << 64) - 1) / skyhop_now_ns(sk);",
    )
    source.write_text(text, "utf-8")
    assert compiled(source, kernel_headers, tmp_path / "it.o") == ""
    listed = subprocess.run(
        ["nm", "-u", tmp_path / "it.o"], capture_output=True, text=True, check=True
    )
    assert "__udivti3" in listed.stdout


def test_only_congestion_controls_that_a_kernel_lacks_are_compiled(tmp_path: Path) -> None:
    kernel = stub_kernel(tmp_path, config="CONFIG_TCP_CONG_CUBIC=y\n")
    assert modules_of(kernel, ["cubic", "reno", "", "unknown"]) == []
    with pytest.raises(InputError, match=r"build it again: skyhop linux kernel build 6\.12"):
        modules_of(kernel, ["skyhop:cubic"])
    # Without the files to compile with, a plain name is left to the kernel.
    assert modules_of(kernel, ["satcp"]) == []
    assert modules_of(kernel, ["sketch.py"]) == []


NEEDS_FILES = """\
#!/bin/sh
printf '%s\\n' '***' '***  ERROR: Kernel configuration is invalid. These are missing:' \\
    '***    - include/generated/rustc_cfg' '***' >&2
exit 2
"""
NEVER_DONE = """\
#!/bin/sh
echo $$ > "$0.pid"
exec sleep 600
"""


def with_make(script: str, tmp_path: Path) -> tuple[Kernel, Path]:
    """Return a stub kernel, and the file of a `make` that is this script."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "make").write_text(script, "utf-8")
    (programs / "make").chmod(0o755)
    kernel = stub_kernel(tmp_path / "cache", config="")
    (kernel.directory / BUILD).mkdir()
    (kernel.directory / BUILD / "Makefile").touch()
    return kernel, programs / "make"


@pytest.mark.integration
def test_a_missing_file_of_a_kernels_build_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, make = with_make(NEEDS_FILES, tmp_path)
    monkeypatch.setenv("PATH", f"{make.parent}:{os.environ['PATH']}")
    with pytest.raises(InputError, match=r"are missing: - include/generated/rustc_cfg$"):
        modules_of(kernel, ["skyhop:cubic"])
    assert list(kernel.directory.parent.iterdir()) == [kernel.directory]


@pytest.mark.soak
def test_a_killed_compilation_leaves_no_process_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, make = with_make(NEVER_DONE, tmp_path)
    monkeypatch.setenv("PATH", f"{make.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(make.parent))
    asks = f"""
from pathlib import Path
from skyhop.linux import Kernel
from skyhop.linux.modules import modules_of
modules_of(Kernel("6.12", "", "", "", 100, [], Path({str(kernel.directory)!r})), ["skyhop:cubic"])
"""
    noted = make.with_name("make.pid")
    with subprocess.Popen([sys.executable, "-c", asks]) as asking:
        wait_for(lambda: noted.exists() and noted.read_text("utf-8").strip() != "")
        asking.kill()
    process = Path("/proc", noted.read_text("utf-8").strip())
    wait_for(lambda: is_gone(process))
    assert {file.name for file in make.parent.iterdir()} == {"make", "make.pid"}
    make.write_text(NEEDS_FILES, "utf-8")
    with pytest.raises(InputError):
        modules_of(kernel, ["skyhop:cubic"])
    assert list(kernel.directory.parent.iterdir()) == [kernel.directory]


def is_gone(process: Path) -> bool:
    """Return whether a process has ended, by its directory in /proc."""
    try:
        return "(zombie)" in (process / "status").read_text("utf-8")
    except FileNotFoundError:
        return True


@pytest.mark.integration
def test_modules_are_named_by_their_source(tmp_path: Path) -> None:
    needs_program("cc")
    one, other = tmp_path / "idea.c", tmp_path / "other" / "idea.c"
    other.parent.mkdir()
    for file in (one, other):
        file.write_text(template(file), "utf-8")
    first, second = (Source.of(str(file)) for file in (one, other))
    assert first is not None
    assert second is not None
    assert re.fullmatch("skyhop_idea_[0-9a-f]{8}", first.name)
    assert first.name != second.name
    one.write_text(one.read_text("utf-8") + "\n", "utf-8")
    changed = Source.of(str(one))
    assert changed is not None
    assert (changed.name, changed.digest == first.digest) == (first.name, False)
    own = Source.of("satcp")
    assert own is not None
    assert (own.name, own) == ("skyhop_satcp", Source.of("skyhop:satcp"))
    assert Source.of("westwood") is None
    one.write_text("int x", "utf-8")
    with pytest.raises(CompileError):
        Source.of(str(one))


def test_only_old_versions_of_the_same_module_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = stub_kernel(tmp_path / "cache", "CONFIG_MODULES=y\n")
    (kernel.directory / "build").mkdir()
    (kernel.directory / "build" / "Makefile").touch()
    (tmp_path / "skyhop_satcp.ko").touch()
    monkeypatch.setattr("skyhop.linux.modules._compiled", lambda *_: nullcontext(tmp_path))
    kept = kernel.directory / "modules"
    modules.MARK.make(kept)
    new, other = "skyhop_satcp-new.ko", f"skyhop_satcp-two-{0:016x}.ko"
    for name in (old := f"skyhop_satcp-{0:016x}.ko", new, other):
        (kept / name).touch()
        if name != new:
            os.utime(kept / name, (0, 0))
    (place,) = modules_of(kernel, ["skyhop:satcp"])
    assert {file.name for file in kept.iterdir()} == {
        place.name, ".skyhop", new, other
    }  # fmt: skip
    assert not (kept / old).exists()


def stub_kernel(cache: Path, config: str) -> Kernel:
    """Create a kernel that cannot be booted, with this configuration."""
    directory = stand_in(cache, "exit 1")
    (directory / "config").write_text(config, "utf-8")
    return Kernel("6.12", "6.12.99", "a script", "0" * 64, 100, [], directory)


# --- in a guest ---

SCENARIO = {
    "path": {"kind": "fixed", "rtt": "30 ms"},
    "link": {"rate": "10 Mbit/s", "queue": "1 BDP"},
    "run": {"duration": "3 s"},
}


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    """Return a built kernel that supports modules, or skip the test."""
    return needs_module_kernel()


@pytest.mark.soak
def test_every_module_carries_data_in_a_guest(kernel: Kernel) -> None:
    flows = [{"cc": f"skyhop:{name}"} for name in OWN]
    link = {"rate": "100 Mbit/s", "queue": "4 BDP"}
    done = run({**SCENARIO, "link": link, "flow": flows}, kernel=kernel.name, observer=QUIET)
    got = {flow["cc"]: flow["goodput_bps"] for flow in done.summary["flows"]}
    assert set(got) == {f"skyhop:{name}" for name in OWN}
    # All modules share the link: each gets little, and over a slower link one would get nothing.
    assert [cc for cc, goodput_bps in got.items() if not goodput_bps] == []
    # These checks take minutes for each module.
    for name in OWN if cases(1) > 1 else []:
        checks = check_in_guest(name, kernel.name)
        assert [check.name for check in checks if not check.ok] == [], name


@pytest.mark.soak
def test_our_reno_equals_the_kernels_own(kernel: Kernel) -> None:
    of_kernel, ours = (
        run({**SCENARIO, "flow": [{"cc": cc}]}, kernel=kernel.name, observer=QUIET)
        for cc in ("reno", "skyhop:reno")
    )
    windows = [done.flows["cwnd_packets"].to_list() for done in (of_kernel, ours)]
    # A sample may be some microseconds earlier, before the window grows.
    assert all(abs(one - other) <= 1 for one, other in zip(*windows, strict=True))
    flows = [done.summary["flows"][0] for done in (of_kernel, ours)]
    assert flows[0]["retransmits"] == flows[1]["retransmits"] > 0


@pytest.mark.soak
def test_flows_have_own_parameters_get_announcements_and_report_phases(
    kernel: Kernel,
) -> None:
    announced = {
        "signal": {"source": "path", "lead": "0.3 s"},
        "change": [{"at": "2 s", "rtt": "40 ms"}],
    }
    flows = [
        {"cc": "skyhop:satcp", "satcp": {"hold": "200 ms"}},
        {"cc": "skyhop:satcp", "satcp": {"hold": "700 ms"}},
        {"cc": "satpipe"},
    ]
    scenario = {**SCENARIO, **announced, "flow": flows}
    guest, simulated = run(scenario, kernel=kernel.name, observer=QUIET), sim(scenario)
    seen, expected = phases(guest), phases(simulated)
    assert [(flow, kind) for flow, kind, _ in seen] == [(flow, kind) for flow, kind, _ in expected]
    assert {kind for flow, kind, _ in seen if flow == 2} == {"drain", "probe-rtt"}
    holds = [(flow, length_ms) for flow, kind, length_ms in seen if kind == "hold"]
    assert holds == [(0, 200), (1, 700)]


def phases(done: Run) -> list[tuple[int, str, float]]:
    """Return flow, kind and length in ms of each phase, sorted."""
    named = [
        event for event in done.events.to_dicts() if event["kind"] in ("hold", "drain", "probe-rtt")
    ]
    return sorted((event["flow"], event["kind"], event["length_ns"] / 1e6) for event in named)


@pytest.mark.soak
def test_a_file_of_the_users_is_compiled_for_the_guest(kernel: Kernel, tmp_path: Path) -> None:
    file = tmp_path / "myidea.c"
    file.write_text(template(file), "utf-8")
    done = run({**SCENARIO, "flow": [{"cc": str(file)}]}, kernel=kernel.name, observer=QUIET)
    assert done.summary["flows"][0]["goodput_bps"] > 8e6
    assert str(file) in done.info["cc_files"]
    file.write_text("#include <stdio.h>\n" + file.read_text("utf-8"), "utf-8")
    with pytest.raises(InputError, match=rf"{file}: does not compile as a module .*stdio\.h"):
        modules_of(kernel, [str(file)])
