"""The agent: what runs beside a terminal, and does there what the orchestrator has planned.

It dials out only, keeps all that it has to know on its own disk (`book`), and goes on while nobody
answers. `deciding` says what to do now, without doing anything; `running` takes one run through its
life; `link` speaks with the orchestrator; `sensing` looks at terminal and host, `triggering` at
what starts runs; `service` brings them together. Programs run in executors, which live beside the
agent and not below it: who kills the agent does not stop them, and the next agent finds them.
"""
