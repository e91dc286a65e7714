"""Published networks of learned congestion controls, as the ONNX files that cards name.

Checkpoints are read with numpy alone; neither the frameworks that wrote them nor code inside them
is run.

    wire.py         encoding of protocol buffers, the format of TensorFlow's and ONNX's files
    bundle.py       checkpoints of TensorFlow
    torch_file.py   checkpoints of PyTorch
    checkpoint.py   finds and opens either kind, from a path of the user
    tensors.py      reads and checks single tensors of a checkpoint
    networks.py     the dense networks of published policies, and plain dense networks
    sage.py         the recurrent network of Sage
    onnx.py         encoding of ONNX files
"""

from skyhop_lab.policies.checkpoint import open_checkpoint
from skyhop_lab.policies.networks import NETWORKS, Activation, Network, plain_network

__all__ = ["NETWORKS", "Activation", "Network", "open_checkpoint", "plain_network"]
