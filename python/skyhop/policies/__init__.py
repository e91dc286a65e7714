"""Published networks of learned congestion controls, as the ONNX files that cards name.

They are read with numpy alone, and nothing of what they came from is needed or run.

    wire.py         protocol buffers, which TensorFlow's and ONNX's files are made of
    bundle.py       TensorFlow's checkpoints
    torch_file.py   PyTorch's
    checkpoint.py   either, from what a user points at
    tensors.py      its tensors, as somebody expects them
    networks.py     which tensors are whose layers
    sage.py         those of Sage, whose network remembers
    onnx.py         the file that comes of them
"""

from skyhop.policies.checkpoint import open_checkpoint
from skyhop.policies.networks import NETWORKS, Activation, Network, plain

__all__ = ["NETWORKS", "Activation", "Network", "open_checkpoint", "plain"]
