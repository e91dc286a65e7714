"""`skyhop cc`: congestion controls in the running kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from skyhop.cli import completing
from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_note, print_rows

app = group(
    "Load skyhop's congestion controls into the running kernel, for any program to use.\n\n"
    "Needs root, and a kernel with BTF that takes them from BPF (6.1 or newer).\n\n"
    "Example: sudo skyhop cc load cubic --set beta=0.8"
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="One of skyhop cc list.",
        autocompletion=completing.modules,
    ),
]


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
def check(name: Name, as_json: Json = False) -> None:
    """Have this kernel's verifier look at a congestion control, and load nothing.

    Prints for each hook its BPF instructions, and how many of them the verifier looked at on all
    paths through the hook. A hook that the kernel or the simulator never calls is refused.

    Example: sudo skyhop cc check bbr
    """
    from skyhop import _core

    rows = [
        {"hook": hook, "instructions": instructions, "verified": verified}
        for hook, instructions, verified in _core.check_cc(name)
    ]
    print_rows(rows, as_json=as_json)
