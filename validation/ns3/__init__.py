"""Comparison with ns-3: the same packets over the same satellites, which stand still."""
