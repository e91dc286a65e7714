"""`skyhop cc`: create and check congestion controls, and load them into the running kernel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completion
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop.cli.cc_check import Check

app = group(
    "Create and check a congestion control of your own, and load it or one of skyhop's into the "
    "running kernel, for any program to use.\n\n"
    "Loading needs root, and a kernel (6.1 or newer) with BTF and BPF congestion controls.\n\n"
    "Examples: skyhop cc new myidea.c; sudo skyhop cc load cubic --set beta=0.8"
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE.c",
        help="A congestion control of skyhop cc list, or your file.",
        autocompletion=completion.modules,
    ),
]


@app.command()
def new(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="File to write: NAME.c, or NAME.py for the simulator."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Copy one of skyhop's congestion controls, such as cubic.",
        ),
    ] = None,
) -> None:
    """Write a working congestion control as a starting point for your own.

    A C file runs in the simulator and in the kernel, a Python file only in the simulator.

    Example: skyhop cc new myidea.c --from cubic
    """
    from skyhop import _core
    from skyhop.data.files import as_argument
    from skyhop.data.templates import template
    from skyhop.errors import InputError

    text = template(file, source)
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise InputError(f"{file}: exists already: give another name") from None
    check = f"skyhop cc check {shlex.quote(as_argument(file))}"
    print_note(f"{file}: written; check it with {check}, use it as the cc of a flow")
    headers = _core.cc_headers() if file.suffix == ".c" else None
    if headers is not None:
        print_note(f"include directory of its headers, for your editor: {headers}")


OneName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="A congestion control or your file, to show its parameters.",
        autocompletion=completion.modules,
    ),
]


@app.command("list")
def list_(name: OneName = None, as_json: Json = False) -> None:
    """List congestion controls in the kernel and those that can be loaded, with numbers of sockets.

    Sockets are counted in the network namespaces that this user may access. With NAME, show the
    parameters of one congestion control.

    Example: skyhop cc list cubic
    """
    print_congestion_controls(name, as_json=as_json)


def print_congestion_controls(name: str | None = None, *, as_json: bool) -> None:
    """Print all congestion controls, or the parameters of one."""
    from skyhop import _core

    if name is not None:
        _print_parameters(name, as_json=as_json)
        return
    rows = [
        {
            "name": entry.name,
            "place": entry.place,
            "sockets": entry.sockets,
            "description": entry.description,
            "source": entry.source,
        }
        for entry in _core.list_cc()
    ]
    print_rows(rows, as_json=as_json)


def _print_parameters(name: str, *, as_json: bool) -> None:
    """Print the description of a congestion control and its parameters."""
    from skyhop import _core
    from skyhop.errors import InputError

    try:
        own, description, parameters = _core.cc_parameters(name)
    except InputError:
        of_kernel = next((entry for entry in _core.list_cc() if entry.name == name), None)
        if of_kernel is None:
            raise
        own, description, parameters = name, of_kernel.description, []
    titles = ("parameter", "default", "unit", "from", "to", "meaning")
    rows = [dict(zip(titles, row, strict=True)) for row in parameters]
    if as_json:
        whole = {"name": own, "description": description, "parameters": rows}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
        return
    print(f"{own}: {description}")
    if not rows:
        print("it has no parameters")
        return
    for row in rows:
        if "|" in row["unit"]:
            row |= {"unit": "", "from": "", "to": "", "meaning": f"{row['unit']}: {row['meaning']}"}
    print_rows(rows, as_json=False)
    print_note(f"a flow sets one below its congestion control: {own}.{rows[0]['parameter']} = …")


@app.command()
def load(
    name: Name,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAM=VALUE", help="Set a parameter, such as beta=0.8."),
    ] = None,
) -> None:
    """Load a congestion control into the kernel, until it is unloaded or the machine restarts.

    In the kernel, its name is NAME, or skyhop_NAME if the kernel has a NAME of its own; the command
    prints the name.

    Example: sudo skyhop cc load cubic --set beta=0.8
    """
    from skyhop import _core

    kernel_name, mounted_bpffs = _core.load_cc(name, [_parameter(text) for text in sets or []])
    if mounted_bpffs:
        print_note("mounted the BPF file system at /sys/fs/bpf")
    print(kernel_name)
    print_note(
        f"loaded: programs select it with setsockopt(TCP_CONGESTION, {kernel_name!r}); "
        f"skyhop cc unload {name} removes it"
    )


def _parameter(text: str) -> tuple[str, str]:
    from skyhop.errors import InputError

    parameter, equals, value = text.partition("=")
    if not equals or not parameter.strip():
        raise InputError(f"--set {text}: expected PARAM=VALUE, such as beta=0.8")
    return parameter.strip(), value.strip()


@app.command()
def unload(name: Name) -> None:
    """Remove a congestion control from the kernel: new connections can no longer select it.

    Existing connections keep it until they are closed.

    Example: sudo skyhop cc unload cubic
    """
    from skyhop import _core

    kernel_name, sockets = _core.unload_cc(name)
    print_note(f"{kernel_name}: unloaded")
    if sockets:
        users = "1 socket uses" if sockets == 1 else f"{sockets} sockets use"
        print_note(f"{users} it until closed; new ones can no longer select it")


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A congestion control of skyhop cc list, or a C or Python file.",
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel", metavar="NAME", help="Run the checks in a guest with this kernel."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a congestion control without loading it, also with the verifier of this kernel.

    For a file, check whether it compiles for the simulator and the kernel, whether a hook is
    missing or never called, and how it performs on a clean link, after an outage, and in
    competition with a flow of its kind.

    Prints for each hook the number of its BPF instructions, and the number of instructions that the
    verifier processed on all paths through the hook. A hook that the kernel or the simulator never
    calls is refused.

    With --kernel, compile it for a kernel of skyhop linux kernel list instead of the running one,
    and execute the same runs in a guest with that kernel, which takes some minutes.

    Examples: skyhop cc check ./myidea.c; sudo skyhop cc check bbr; skyhop cc check bbr --kernel
    6.12
    """
    from skyhop import _core

    if kernel is not None:
        from skyhop.cli.cc_check import check_in_guest

        _print_checks(name, check_in_guest(name, kernel), [], as_json=as_json)
        return
    if Path(name).suffix in (".c", ".py"):
        _check_file(Path(name), as_json=as_json)
        return
    rows = [
        {"hook": hook, "instructions": instructions, "verified": verified}
        for hook, instructions, verified in _core.check_cc(name)
    ]
    print_rows(rows, as_json=as_json)


def _check_file(file: Path, *, as_json: bool) -> None:
    from skyhop.cli.cc_check import check_file

    checks, hooks = check_file(file)
    _print_checks(str(file), checks, hooks, as_json=as_json)


def _print_checks(
    name: str, checks: Sequence[Check], hooks: Sequence[Mapping[str, Any]], *, as_json: bool
) -> None:
    import json

    from skyhop.errors import RunError

    rows = [check.row() for check in checks]
    if as_json:
        print(json.dumps({"checks": rows, "hooks": hooks}, indent=2, ensure_ascii=False))
    else:
        print_rows(rows, as_json=False)
        if hooks:
            print_rows(hooks, as_json=False)
    failed = [check.name for check in checks if not check.ok]
    if failed:
        raise RunError(f"{name}: {len(failed)} of {len(checks)} checks failed: {', '.join(failed)}")
