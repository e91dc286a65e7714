"""A network for tests: one matrix and what is added."""

from __future__ import annotations

from collections.abc import Sequence

from skyhop.policies.onnx import SAID, SEEN, Node, encode


def linear(weights: Sequence[float], bias: float) -> bytes:
    """Return the ONNX file of a network that says weights x seen + bias."""
    constants = {"w": [[weight] for weight in weights], "b": [bias]}
    return encode([Node("Gemm", (SEEN, "w", "b"), SAID)], constants, len(weights), 1)
