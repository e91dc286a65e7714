"""What starts runs: conditions over telemetry, as LEOScope has them, with units and null.

`parse` makes a checked tree (`tree`) of a text, `units` converts what stands in it, `windows` keep
of the past what it needs, `evaluate` says each second whether it fires and why not, `replay` does
so over archived telemetry. docs/triggers.md is the language for users.
"""

from skyhop.testbed.triggers.evaluate import Evaluation, Outcome, Trigger
from skyhop.testbed.triggers.parse import parse

__all__ = ["Evaluation", "Outcome", "Trigger", "parse"]
