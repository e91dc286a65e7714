"""The testbed's web pages.

The pages run in a process of their own, which reads the orchestrator's database. The orchestrator
checks permissions and changes states; the pages send it requests and show the results. Every page
works without scripts and loads nothing from other hosts.

    process       the process: `make_app` of `app` on the pages' port, and its limits
    supervision   start of the process, and a new start when it has ended or hangs
    changes       requests to the orchestrator over its Unix socket

    guard         security headers of every response, limits on a request's size
    session       sessions in cookies, CSRF tokens of forms
    page_request  one request as the page handlers receive it
    rendering     templates and the formats of times, sizes and rates
    pages/        page handlers, one module per subject
    reasons       why a run failed, in a sentence with links
    queries       read-only database queries that only pages need
    recent        newest telemetry, read without polars
    drawings      cache of figures and reports, which `figure` makes in subprocesses
    plots, map    inline SVG charts and the map
"""
