"""Hypatia's experiments with cross traffic, with the parameters of its scripts."""
