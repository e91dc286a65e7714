"""Networks for tests: a linear layer, and the documentation's card with such a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from skyhop_lab.policies.graph import INPUT_NAME, OUTPUT_NAME, Graph


def linear(weights: Sequence[float], bias: float) -> bytes:
    """Return the ONNX file of a network with the output weights x inputs + bias."""
    graph = Graph(len(weights))
    graph.add(
        "Gemm", INPUT_NAME, np.reshape(weights, (-1, 1)), np.array([bias]), output=OUTPUT_NAME
    )
    return graph.onnx()


def forty_packets(directory: Path) -> Path:
    """Write the card of policy-card.md, which moves the window to 40 packets, with its network."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "policy-card.md"
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    file = directory / "forty.toml"
    file.write_text(next(block for block in blocks if "[observation]" in block), "utf-8")
    # Near 40 packets 1 - x approximates the logarithm of 1 / x, x the share of 40 packets.
    (directory / "forty.onnx").write_bytes(linear([-1.0], 1.0))
    return file
