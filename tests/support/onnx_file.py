"""Networks for tests: a linear layer, and the documentation's card with such a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from skyhop_lab.policies.onnx import INPUT_NAME, OUTPUT_NAME, Node, encode


def linear(weights: Sequence[float], bias: float) -> bytes:
    """Return the ONNX file of a network with the output weights x inputs + bias."""
    constants = {"w": [[weight] for weight in weights], "b": [bias]}
    return encode([Node("Gemm", (INPUT_NAME, "w", "b"), OUTPUT_NAME)], constants, len(weights), 1)


def forty_packets(directory: Path) -> Path:
    """Write the card of policy-card.md, which moves the window to 40 packets, with its network."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "policy-card.md"
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    file = directory / "forty.toml"
    file.write_text(next(block for block in blocks if "[observation]" in block), "utf-8")
    # Near 40 packets 1 - x approximates the logarithm of 1 / x, x the share of 40 packets.
    (directory / "forty.onnx").write_bytes(linear([-1.0], 1.0))
    return file
