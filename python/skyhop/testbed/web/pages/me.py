"""One's own profile, tokens and sessions."""

from __future__ import annotations

from starlette.responses import Response

from skyhop.errors import InputError
from skyhop.testbed.ids import is_id
from skyhop.testbed.orchestrator import people
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask

_DAY_NS = 86_400 * 10**9
DAYS = (1, 30, 90, 365)
"""How long tokens may be good for; and for ever."""


def show(ask: Ask) -> Response:
    """Show who one is, and which secrets of one's own are good."""
    return _me(ask, 200)


def _me(ask: Ask, status: int, *, said: str = "", secret: str = "") -> Response:
    assert ask.session is not None
    with ask.reading() as desk:
        profile = people.profile(desk)
        kept = queries.credentials(desk, ask.caller.name)
        here = queries.key_of_secret(desk, ask.session.secret)
    return ask.page(
        "me.html",
        status,
        title="You",
        profile=profile,
        tokens=[each for each in kept if each["kind"] == people.TOKEN],
        open_sessions=[each for each in kept if each["kind"] == people.SESSION],
        this_session=here,
        days=DAYS,
        said=said,
        secret=secret,
    )


def change(ask: Ask) -> Response:
    """Change what one may change about oneself."""
    values = {key: ask.field(key).strip() for key in ("full_name", "team")}
    try:
        ask.act("PutProfile", ask.caller.name, lambda desk: people.put_profile(desk, values))
    except InputError as error:
        return _me(ask, 400, said=str(error))
    return ask.go("/me", "profile")


def make_token(ask: Ask) -> Response:
    """Make a token, which is shown this once."""
    label, days = ask.field("label").strip(), ask.field("days")
    if not label:
        return _me(ask, 400, said="give the token a label, by which you will know it")
    if days not in ("", *map(str, DAYS)):
        return _me(ask, 400, said="choose for how many days it is good")
    expires_ns = ask.office.now_ns() + int(days) * _DAY_NS if days else None
    secret = ask.do(
        "IssueToken",
        ask.caller.name,
        lambda desk: people.issue(
            desk,
            people.TOKEN,
            of_user=ask.caller.name,
            expires_ns=expires_ns,
            label=label,
        ),
    )
    return _me(ask, 200, secret=secret)


def revoke(ask: Ask) -> Response:
    """Take one of one's own secrets away."""
    which = ask.field("which")
    if not is_id(which):
        raise InputError("there is no such token")
    name = ask.caller.name
    ask.do("RevokeToken", name, lambda desk: people.revoke(desk, name, which))
    return ask.go("/me", "revoked")
