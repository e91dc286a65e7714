"""Executor: a process per run, in a session of its own, so that it outlives the agent.

`python -m skyhop_testbed.executor RUNDIR` executes the assignment in `RUNDIR/run.json`
(`assignment`) at most once (`journal`), inside a sandbox (`sandbox`) or a container (`backends`),
within limits (`limits`), and leaves a result and a manifest of the files to keep (`keep`).
"""
