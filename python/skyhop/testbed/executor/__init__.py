"""The executor: a process per run, which lives beside the agent and not below it.

`python -m skyhop.testbed.executor RUNDIR` does what `RUNDIR/run.json` says (`assignment`), once and
never again (`journal`), inside a sandbox (`sandbox`) or a container (`backends`), within limits
(`limits`), and leaves a result and a manifest of what is kept (`keep`).
"""
