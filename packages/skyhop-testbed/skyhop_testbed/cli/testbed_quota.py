"""Commands of `skyhop testbed` about quotas: `me`, `quota` and `drop`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop_testbed.cli.testbed_shared import opened, print_found, print_json, print_outcome

if TYPE_CHECKING:
    from skyhop_testbed.api import QuotaLine

As = Annotated[
    Path | None, typer.Option("--as", metavar="FILE", help="Credential of a user or administrator.")
]
OfUser = Annotated[str, typer.Option("--user", metavar="USER", help="Name of a user.")]
OfNode = Annotated[str, typer.Option("--node", metavar="NODE", help="Name of a node.")]
_USUAL = "default"

quota_app = group("Quotas of users and nodes.")


def register(app: typer.Typer) -> None:
    """Add the commands to `skyhop testbed`."""
    app.command("me")(me)
    app.command("drop")(drop)
    app.add_typer(quota_app, name="quota")


def me(credential: As = None, as_json: Json = False) -> None:
    """Show your user, and what you use of your quotas."""
    with opened(credential) as testbed:
        user = testbed.profile()
        found = testbed.quotas("user", user.name)
    if as_json:
        print_json({**user.as_json(), "quotas": [each.as_json() for each in found]})
        return
    print(f"{user.name}, {user.role}" + (f", {user.full_name}" if user.full_name else ""))
    print_found(found, _row, as_json, "no quotas")


def drop(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs.")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Delete files of your runs before their retention time; the runs themselves stay listed."""
    with opened(credential) as testbed:
        freed = {run: testbed.drop(run) for run in runs}
    said = f"{sum(freed.values()):,} bytes are free again"
    print_outcome({"freed_bytes": freed}, said, as_json)


@quota_app.command("show")
def show(
    user: OfUser = "", node: OfNode = "", credential: As = None, as_json: Json = False
) -> None:
    """Show the quotas of a user or a node: used and allowed."""
    kind, name = _chosen(user, node)
    with opened(credential) as testbed:
        found = testbed.quotas(kind, name)
    print_found(found, _row, as_json, "no quotas")


@quota_app.command("set")
def set_(
    quotas: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help=f"Quotas; {_USUAL} restores the setting."),
    ],
    user: OfUser = "",
    node: OfNode = "",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Set quotas of one user or node; `config set` sets those of all."""
    from skyhop.errors import InputError

    kind, name = _chosen(user, node)
    values: dict[str, float | None] = {}
    for each in quotas:
        key, _, value = each.partition("=")
        try:
            values[key] = None if value == _USUAL else float(value)
        except ValueError:
            raise InputError(f"{each}: expected KEY=NUMBER or KEY={_USUAL}") from None
    with opened(credential) as testbed:
        found = testbed.put_quotas(kind, name, values)
    print_found(found, _row, as_json, "no quotas")


def _chosen(user: str, node: str) -> tuple[str, str]:
    from skyhop.errors import InputError

    if bool(user) == bool(node):
        raise InputError("give either --user or --node")
    return ("user", user) if user else ("node", node)


def _row(each: QuotaLine) -> dict[str, object]:
    return {
        "quota": each.key,
        "used": "" if each.used is None else f"{each.used:,.0f}",
        "allowed": f"{each.allowed:,.0f}",
        "set": "for this one" if each.is_own else "",
    }
