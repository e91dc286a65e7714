"""The orchestrator: what it knows and decides, one file per matter; `rpc` and `serve` are its net.

Everything but those two is synchronous and reads no clock: a `Desk` has the open transaction, the
time, and who asks.
"""
