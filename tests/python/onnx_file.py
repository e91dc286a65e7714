"""A network for tests: one matrix and what is added; and the card of docs/policies.md with one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from skyhop.policies.onnx import SAID, SEEN, Node, encode


def linear(weights: Sequence[float], bias: float) -> bytes:
    """Return the ONNX file of a network that says weights x seen + bias."""
    constants = {"w": [[weight] for weight in weights], "b": [bias]}
    return encode([Node("Gemm", (SEEN, "w", "b"), SAID)], constants, len(weights), 1)


def forty_packets(directory: Path) -> Path:
    """Write the page's card, which moves the window to 40 packets, with its network."""
    page = Path(__file__).parents[2] / "docs" / "policies.md"
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    file = directory / "forty.toml"
    file.write_text(next(block for block in blocks if "[observation]" in block), "utf-8")
    # As good as the logarithm of what is missing, near 40 packets.
    (directory / "forty.onnx").write_bytes(linear([-1.0], 1.0))
    return file
