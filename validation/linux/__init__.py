"""Comparison with Linux: results of tests/linux, of built kernels, and of this machine."""
