"""Testbed: nodes at satellite terminals that run experiments, and the orchestrator of their runs.

`words` and `states` define a run's states, `job` the job file, `calendar` the times at which jobs
may run, and `triggers` the conditions that start runs; `api` is the network protocol and `wire` its
caller; `store` and `orchestrator` are the service; `agent` and `executor` are a node, `kernel` its
privileged service; `web` is the web page; `dish` reads terminals.
"""

import os
import sys

# gRPC restarts its threads in a forked child. The live engine is such a child, and it closes all
# files that are not its own: gRPC's threads would then abort it. No child of skyhop uses gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Errors of calls to a terminal are printed as one line; suppress the gRPC library's own log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# httpx imports its own command line if it can, with rich and pygments: 5 MB in every agent.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
