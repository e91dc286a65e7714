"""What can go wrong, as one tree of exceptions.

`InputError` is for what the user gave (exit code 2), `RunError` for what happened while it was
used (exit code 1). Every message is one line that says what, where and what to do.
"""


class SkyhopError(Exception):
    """Anything that skyhop reports about itself or its input."""


class InputError(SkyhopError):
    """The input was wrong: a file, a key, a name, a value."""


class RunError(SkyhopError):
    """The input was right, but the run failed."""
