"""Kernel service: the few operations of runs that need root.

`service` answers typed requests (`requests`) on a Unix socket; `network` and `uplinks` give a run
its device; `congestion`, `queues` and `settings` change only the run's own network namespace.
`journal` has every change on disk before it is made, so that a restarted service can undo the
changes of a killed one. `client` is used by the executor and the agent.
"""
