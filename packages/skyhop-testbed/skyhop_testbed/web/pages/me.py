"""Page of the caller's own profile, quotas, tokens and sessions."""

from __future__ import annotations

from starlette.responses import Response

from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.ids import is_id
from skyhop_testbed.orchestrator import accounts, page_port, quotas
from skyhop_testbed.web import queries
from skyhop_testbed.web.page_request import PageRequest

_DAY_NS = 86_400 * 10**9
DAYS = (1, 30, 90, 365)
"""Offered lifetimes of tokens in days; unlimited is offered as well."""


def show(request: PageRequest) -> Response:
    """Show the caller's profile, quotas, valid tokens and sessions."""
    return _me(request, 200)


def _me(request: PageRequest, status: int, *, problem: str = "", secret: str = "") -> Response:
    assert request.session is not None
    with request.reading() as ctx:
        profile = accounts.profile(ctx)
        kept = queries.credentials(ctx, request.caller.name)
        limits = quotas.lines(ctx, quotas.USER, request.caller.name)
        here = queries.key_of_secret(ctx, request.session.secret)
    return request.render(
        "me.html",
        status,
        title="Your account",
        profile=profile,
        quotas=limits,
        tokens=[each for each in kept if each["kind"] == accounts.TOKEN],
        open_sessions=[each for each in kept if each["kind"] == accounts.SESSION],
        this_session=here,
        days=DAYS,
        problem=problem,
        secret=secret,
    )


def change(request: PageRequest) -> Response:
    """Change the caller's full name and team."""
    names = {key: request.form_field(key).strip() for key in ("full_name", "team")}
    values = api.PutProfile(**names)
    try:
        request.change(api.PUT_PROFILE, values)
    except InputError as error:
        return _me(request, 400, problem=str(error))
    return request.redirect("/me", "profile")


def make_token(request: PageRequest) -> Response:
    """Create a token, and show it on this one page only."""
    label, days = request.form_field("label").strip(), request.form_field("days")
    if not label:
        return _me(request, 400, problem="give the token a label, to recognise it by")
    if days not in ("", *map(str, DAYS)):
        return _me(request, 400, problem="choose the lifetime of the token")
    expires_ns = request.orchestrator.now_ns() + int(days) * _DAY_NS if days else 0
    asked = page_port.OwnToken(label=label, expires_ns=expires_ns)
    secret = request.change(page_port.OWN_TOKEN, asked)
    return _me(request, 200, secret=secret)


def revoke(request: PageRequest) -> Response:
    """Revoke one of the caller's tokens or sessions."""
    which = request.form_field("which")
    if not is_id(which):
        raise InputError("there is no such token")
    request.change(page_port.REVOKE_OWN, page_port.OwnCredential(id=which))
    return request.redirect("/me", "revoked")
