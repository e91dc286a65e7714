"""Lab: making of policies and predictors, films in browsers, and emulation of terminals.

`gym` has environments to train policies in, `policies` converts published checkpoints, `predict`
trains predictors, `browser` plays films in Chromium, `dish` emulates terminals, and `testbed_demo`
is a testbed on one machine.
"""
