"""The web pages as an ASGI application: routes, middleware and error pages."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from skyhop_testbed.orchestrator.core import View
from skyhop_testbed.web.changes import Changes
from skyhop_testbed.web.drawings import Drawings
from skyhop_testbed.web.guard import Guard
from skyhop_testbed.web.page_request import AppState, Page, PageRequest, endpoint, refused
from skyhop_testbed.web.pages import admin, calendar, home, jobs, login, me, nodes, runs, submit
from skyhop_testbed.web.recent import RecentTelemetry
from skyhop_testbed.web.rendering import Renderer

_OPEN: dict[str, tuple[Page | None, Page | None]] = {
    "/login": (login.show, login.log_in),
    "/look": (None, login.set_theme),
}
"""Routes that need no login: by path, the handlers of GET and POST."""

_PAGES: dict[str, tuple[Page | None, Page | None]] = {
    "/": (home.show, None),
    "/logout": (None, login.log_out),
    "/nodes": (nodes.listing, None),
    "/nodes/{node}": (nodes.show, None),
    "/nodes/{node}/live.json": (nodes.live, None),
    "/nodes/{node}/history": (nodes.history, None),
    "/nodes/{node}/figure/{kind}": (nodes.figure, None),
    "/nodes/{node}/scavenger": (None, nodes.set_scavenger),
    "/nodes/{node}/policy": (None, nodes.set_policy),
    "/calendar": (calendar.show, None),
    "/submit": (submit.show, submit.submit),
    "/submit/fill": (None, submit.fill),
    "/submit/check": (None, submit.check),
    "/jobs": (jobs.listing, None),
    "/jobs/{job}": (jobs.show, None),
    "/jobs/{job}/cancel": (None, jobs.cancel),
    "/jobs/{job}/modify": (submit.show_change, submit.change),
    "/runs": (runs.listing, None),
    "/runs/{run}": (runs.show, None),
    "/runs/{run}/state": (runs.state, None),
    "/runs/{run}/abort": (None, runs.abort),
    "/runs/{run}/reschedule": (None, runs.reschedule),
    "/runs/{run}/log/{side}/{name:path}": (runs.log, None),
    "/runs/{run}/file/{side}/{name:path}": (runs.download, None),
    "/runs/{run}/report/{side}/{name:path}": (runs.report, None),
    "/runs/{run}/figure/{kind}/{side}/{name:path}": (runs.figure, None),
    "/runs/{run}/telemetry": (runs.telemetry, None),
    "/triggers": (jobs.triggers, None),
    "/me": (me.show, me.change),
    "/me/tokens": (None, me.make_token),
    "/me/revoke": (None, me.revoke),
    "/admin": (admin.show, None),
    "/admin/users": (admin.users, admin.put_user),
    "/admin/users/{name}/delete": (None, admin.delete_user),
    "/admin/users/{name}/token": (None, admin.make_token),
    "/admin/users/{name}/revoke": (None, admin.revoke_tokens),
    "/admin/nodes": (admin.nodes, admin.put_node),
    "/admin/nodes/{name}/invite": (None, admin.invite),
    "/admin/nodes/{name}/delete": (None, admin.delete_node),
    "/admin/config": (admin.config, None),
    "/admin/audit": (admin.audit, None),
}
"""Routes for logged-in users: by path, the handlers of GET and POST."""


_SLOW = (nodes.history, nodes.figure, runs.report, runs.figure, runs.telemetry)
"""Handlers that wait for drawings."""


def make_app(orchestrator: View, changes: Changes) -> Starlette:
    """Return the ASGI application of an orchestrator's pages, to be served over TLS.

    Its cookies are `Secure`, so that they need TLS. Figures are cached in the directory `drawings`
    of the orchestrator's state directory.

    Args:
        orchestrator: what the pages read.
        changes: performs the changes that users make.
    """
    telemetry = orchestrator.telemetry.directory
    drawings = Drawings(orchestrator.directory / "drawings", telemetry, orchestrator.clock)
    state = AppState(orchestrator, changes, Renderer(), drawings, RecentTelemetry(telemetry))
    routes: list[Route | Mount] = []
    for pages, is_open in ((_OPEN, True), (_PAGES, False)):
        for address, (shown, done) in pages.items():
            if shown is not None:
                answer = endpoint(state, shown, is_open=is_open, is_slow=shown in _SLOW)
                routes.append(Route(address, answer, methods=["GET"]))
            if done is not None:
                answer = endpoint(state, done, is_open=is_open)
                routes.append(Route(address, answer, methods=["POST"]))
    static = Path(str(files("skyhop_testbed.web"))) / "static"
    routes.append(Mount("/static", _Static(directory=static)))

    async def unknown(http: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refused(PageRequest(state, http), HTTPException(error.status_code, _plain(error)))

    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard)],
        exception_handlers={HTTPException: unknown},
    )


class _Static(StaticFiles):
    """Static files, which browsers may cache for an hour."""

    def file_response(self, *arguments: object, **named: object) -> Response:
        response = super().file_response(*arguments, **named)  # type: ignore[arg-type]
        response.headers["cache-control"] = "public, max-age=3600"
        return response


def _plain(error: HTTPException) -> str:
    return {404: "there is no page at this address", 405: "this address only accepts forms"}.get(
        error.status_code, str(error.detail)
    )
