"""The testbed: terminals' hosts that run experiments, and the orchestrator that schedules them.

`words` and `states` are a run's life, `job` is the job file, `calendar` says who may run when and
`triggers` what starts runs; `protocol` is what is said over the net, `store` and `orchestrator` are
the service, `agent` and `executor` a node, `kernel` what a node does as root, `web` is the page.
"""
