"""Command line of the results: a table of commands, each of which is loaded when it runs."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from skyhop.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG_INPUT, print_error
from skyhop.errors import InputError, SkyhopError

COMMANDS = {
    "bench": ("bench.parts", "speed, compared with the previous release"),
    "kernel-costs": ("bench.kernel", "CPU time and latency of skyhop's code in the kernel"),
    "same-results": ("same_results", "two builds simulate the same, to the last bit"),
    "reference": ("reference", "download of the published files that results are compared with"),
    "measured-paths": ("measured_paths", "published measurements as path files and frames"),
    "access-profiles": ("access_profiles", "data/access, fitted to published logs"),
    "ns3 packets": ("ns3.packets", "packets over satellites that stand still, and in ns-3"),
    "pings": ("pings", "senders over paths that are rebuilt from fewer pings"),
    "validate": ("validate", "docs/results/validation.md, or some of its sections"),
    "this-kernel": ("this_kernel", "simulator and this machine's kernel over a fixed path"),
    "kernels": ("linux.engines", "simulator, and kernels of Linux in virtual time"),
    "linux guests": ("linux.guests", "scenarios of tests/linux on a built kernel"),
    "linux modules": ("linux.modules", "congestion controls of cc/ as modules of a kernel"),
    "linux traces": ("linux.traces", "tests/linux/traces.json, live on this machine's kernel"),
    "films-in-browsers": ("films_in_browsers", "films in virtual time and in Chromium"),
    "reproduce": ("reproduce", "studies of papers, and docs/results/reproduced"),
    "triggered-starts": ("triggered_starts", "start times of uploads in studies of triggers"),
    "which-sender": ("which_sender.page", "docs/results/which-sender.md, from runs of studies"),
    "sensitivity": ("sensitivity.page", "docs/results/sensitivity.md, from runs of studies"),
    "skyhop-leo": ("skyhop_leo", "tables of docs/results/skyhop-leo.md, from runs of studies"),
    "starlink-user": ("starlink_user", "docs/starlink-user.png, a download over Starlink"),
    "fleet": ("fleet.page", "docs/results/fleet.md, a simulated testbed of 200 nodes"),
    "relays": ("relays", "figures and tables of docs/explanation/relays-and-handovers.md"),
}
"""Module and summary of each command; a module has the command as its function `main`."""


def main() -> int:
    """Run the command that the arguments name; return its exit code."""
    words = sys.argv[1:]
    name = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), None)
    if name is None:
        print(overview())
        return 0 if words in ([], ["-h"], ["--help"]) else EXIT_WRONG_INPUT
    module = import_module(f"validation.{COMMANDS[name][0]}")
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    # The mark \b keeps the lines of examples, which are indented.
    text = (module.__doc__ or "").replace("\n\n    ", "\n\n\b\n    ")
    app.command(help=text, context_settings={"help_option_names": ["-h", "--help"]})(module.main)
    try:
        own = words[len(name.split()) :]
        return app(own, prog_name=f"python -m validation {name}", standalone_mode=False) or 0
    except typer.TyperException as error:
        print_error(f"{error.format_message()} (see python -m validation {name} --help)")
        return EXIT_WRONG_INPUT
    except (SkyhopError, OSError) as error:
        print_error(str(error))
        return EXIT_WRONG_INPUT if isinstance(error, InputError) else EXIT_FAILED
    except KeyboardInterrupt:
        print_error("interrupted")
        return EXIT_INTERRUPTED


def overview() -> str:
    """Return the help: how to call a command, and all commands."""
    lines = [f"  {name:17}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(["Usage: python -m validation NAME ... (NAME --help has its options)", *lines])


if __name__ == "__main__":
    sys.exit(main())
