"""The testbed's web pages.

`make_app` returns an ASGI application for an `Orchestrator`; `orchestrator.serve` runs it. Every
page works without scripts and loads nothing from other hosts. The orchestrator checks permissions
and changes states; this package sends it requests and shows the results.

    guard         security headers of every response, limits on a request's size
    session       sessions in cookies, CSRF tokens of forms
    page_request  one request as the page handlers receive it
    rendering     templates and the formats of times, sizes and rates
    pages/        page handlers, one module per subject
    queries       read-only database queries that only pages need
    recent        newest telemetry, read without polars
    drawings      cache of figures and reports, which `figure` makes in subprocesses
    plots, map    inline SVG charts and the map
"""
