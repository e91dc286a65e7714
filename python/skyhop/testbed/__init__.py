"""Testbed: nodes at satellite terminals that run experiments, and the orchestrator of their runs.

`words` and `states` define a run's states, `job` the job file, `calendar` the times at which jobs
may run, and `triggers` the conditions that start runs; `protocol` is the network protocol; `store`
and `orchestrator` are the service; `agent` and `executor` are a node, `kernel` its privileged
service; `web` is the web page.
"""
