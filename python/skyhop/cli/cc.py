"""`skyhop cc`: congestion controls of one's own, and in the running kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli import completing
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

if TYPE_CHECKING:
    from skyhop.cli.cc_check import Check

app = group(
    "Begin and check a congestion control of your own, and load it or skyhop's into the running "
    "kernel, for any program to use.\n\n"
    "Loading needs root, and a kernel with BTF that takes them from BPF (6.1 or newer).\n\n"
    "Examples: skyhop cc new myidea.c; sudo skyhop cc load cubic --set beta=0.8"
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE.c",
        help="One of skyhop cc list, or a file of yours.",
        autocompletion=completing.modules,
    ),
]


@app.command()
def new(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file: NAME.c, or NAME.py for the simulator.")
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="Begin with one of skyhop's, such as cubic."),
    ] = None,
) -> None:
    """Write a congestion control to begin with: it works, and is yours to change.

    In C it runs in the simulator and in the kernel, in Python in the simulator alone.

    Example: skyhop cc new myidea.c --from cubic
    """
    from skyhop import _core
    from skyhop.data.templates import template
    from skyhop.errors import InputError

    text = template(file, source)
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise InputError(f"{file}: is there already: give another name") from None
    print_note(f"{file}: written; skyhop cc check {file} checks it, and flows take it as their cc")
    headers = _core.cc_headers() if file.suffix == ".c" else None
    if headers is not None:
        print_note(f"the headers that it includes, for your editor: {headers}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List what the kernel offers and what can be loaded, and how many sockets use it.

    Sockets are counted in the network namespaces that this user may look into.

    Example: skyhop cc list --json
    """
    print_congestion_controls(as_json=as_json)


def print_congestion_controls(*, as_json: bool) -> None:
    """Print all congestion controls, where each is, and how many sockets use it."""
    from skyhop import _core

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


@app.command()
def load(
    name: Name,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAM=VALUE", help="Set a parameter, such as beta=0.8."),
    ] = None,
) -> None:
    """Load a congestion control until it is unloaded or the machine restarts.

    It is called NAME, or skyhop_NAME where the kernel has one of its own; what it is called is
    printed.

    Example: sudo skyhop cc load cubic --set beta=0.8
    """
    from skyhop import _core

    kernel_name, mounted_bpffs = _core.load_cc(name, [_parameter(text) for text in sets or []])
    if mounted_bpffs:
        print_note("the BPF file system was not mounted: it is now, at /sys/fs/bpf")
    print(kernel_name)
    print_note(
        f"loaded: a program chooses it with setsockopt(TCP_CONGESTION, {kernel_name!r}); "
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
    """Remove a congestion control from the kernel: new connections cannot choose it any more.

    Connections that use it keep it until they are closed.

    Example: sudo skyhop cc unload cubic
    """
    from skyhop import _core

    kernel_name, sockets = _core.unload_cc(name)
    print_note(f"{kernel_name}: unloaded")
    if sockets:
        users = "1 socket uses" if sockets == 1 else f"{sockets} sockets use"
        print_note(f"{users} it until closed; the name is gone for new ones")


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE", help="One of skyhop cc list, or a file in C or Python."
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Do the runs in a guest with this kernel."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a congestion control, and have this kernel's verifier look at it; load nothing.

    Of a file it says whether it compiles for the simulator and the kernel, whether a hook is
    missing or never called, and how it does over a clean link, after an outage, beside its like.

    Prints for each hook its BPF instructions, and how many of them the verifier looked at on all
    paths through the hook. A hook that the kernel or the simulator never calls is refused.

    With --kernel it is compiled for one of skyhop linux kernel list in place of the verifier's, and
    does the same runs there, which takes some minutes.

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
        raise RunError(f"{name}: of {len(checks)} checks these failed: {', '.join(failed)}")
