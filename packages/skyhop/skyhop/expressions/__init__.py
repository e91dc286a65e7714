"""Expressions over named values: syntax, tree and evaluation that all languages of skyhop share.

`parse` has the grammar of operators, brackets and functions, `tree` the nodes that it builds, and
`evaluate` their values, which may be unknown. A language adds its own operands by subclasses: the
claims and metrics of studies (`skyhop.study.expression`), and triggers over telemetry.
"""
