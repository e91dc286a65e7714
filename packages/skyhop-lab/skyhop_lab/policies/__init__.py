"""Published networks of learned congestion controls, as the ONNX files that cards name.

export_checkpoint.py is a script for users: it runs where TensorFlow or PyTorch is installed, and
writes the tensors of a checkpoint to a .npz file. Everything else runs without these frameworks.

    tensors.py      reads and checks the tensors of a .npz file
    published.py    the dense networks of published policies, and plain dense networks
    sage.py         the recurrent network of Sage
    networks.py     dense networks, of checkpoints and of skyhop's own training
    graph.py        graphs of operators as ONNX files, with the package `onnx`
"""

from skyhop_lab.policies.networks import Activation, Network
from skyhop_lab.policies.published import NETWORKS, plain_network
from skyhop_lab.policies.tensors import open_checkpoint

__all__ = ["NETWORKS", "Activation", "Network", "open_checkpoint", "plain_network"]
