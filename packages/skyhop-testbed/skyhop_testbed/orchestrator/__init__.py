"""The orchestrator: its state and its decisions, one module per subject.

Only `service`, `http` and `https` do network I/O. All other modules are synchronous and read no
clock: a `RequestContext` carries the open transaction, the time and the caller.
"""
