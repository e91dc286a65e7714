"""Benchmarks: what calls, simulations, studies and live runs cost; `parts` has the table."""
