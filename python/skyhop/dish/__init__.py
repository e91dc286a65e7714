"""User terminals ("dishes"): reading and emulation.

`client` queries a terminal on the network, `messages` reads recorded answers, `readings` converts
both to the fields of `skyhop.telemetry.fields`, and `emulate` is a terminal that answers programs
like a real one.
"""
