"""User terminals ("dishes"): reading over the network, and recording of their telemetry.

`client` queries a terminal on the network, `messages` reads recorded answers, `readings` converts
both to the fields of `skyhop.telemetry.fields`, and `collector` stores them every second.
"""
