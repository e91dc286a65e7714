"""Triggers: conditions over telemetry that start runs, as in LEOScope, with units and null.

`parse` turns a text into a checked tree (`tree`), `units` converts its numbers, and `windows` keeps
the past values that it needs. `evaluate` decides each second whether the trigger fires and why not;
`replay` does so over archived telemetry. docs/testbed/triggers.md describes the language for users.
"""

from skyhop_testbed.triggers.evaluate import Evaluation, Outcome, Trigger
from skyhop_testbed.triggers.parse import parse

__all__ = ["Evaluation", "Outcome", "Trigger", "parse"]
