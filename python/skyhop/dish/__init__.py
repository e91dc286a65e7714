"""A user terminal ("dish"): read, and emulated.

`client` asks one on the network, `messages` reads recorded answers, `readings` says what either
means in the words of `skyhop.telemetry.fields`, and `emulate` is a terminal that programs cannot
tell from a real one.
"""
