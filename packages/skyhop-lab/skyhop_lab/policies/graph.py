"""Graphs of operators over rows of numbers, written as ONNX files."""

from __future__ import annotations

from onnx import NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from skyhop.data.arrays import FloatArray

INPUT_NAME = "seen"
"""Name of a network's input in ONNX files."""
OUTPUT_NAME = "said"
"""Name of a network's output in ONNX files."""
_IR, _OPERATORS = 8, 17
"""Versions of the format (IR) and of the operator set."""


class Graph:
    """Network under construction, with the input `INPUT_NAME` and the output `OUTPUT_NAME`.

    Both are rows of numbers, of the lengths `inputs` and `outputs`.
    """

    def __init__(self, inputs: int, outputs: int = 1) -> None:
        self.inputs = inputs
        self.parts: list[str] = []
        """Descriptions of the network's parts, shown to users."""
        self._rows = [_row(INPUT_NAME, inputs)], [_row(OUTPUT_NAME, outputs)]
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def __str__(self) -> str:
        return " -> ".join([str(self.inputs), *self.parts])

    def add(
        self, operator: str, *inputs: str | FloatArray, output: str = "", **attributes: float
    ) -> str:
        """Add an operator; its inputs are constants or names of other outputs.

        `attributes` are those of the operator, such as the slope `alpha` of `LeakyRelu`. Return the
        output's name.
        """
        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        made = output or f"made{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, names, [made], **attributes))
        return made

    def _constant(self, numbers: FloatArray) -> str:
        name = f"held{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(numbers.astype("<f4"), name))
        return name

    def remember(self, state: str, next_state: str, size: int) -> None:
        """Declare a recurrent state: the input with the previous, the output with the next one."""
        for rows, name in zip(self._rows, (state, next_state), strict=True):
            rows.append(_row(name, size))

    def onnx(self) -> bytes:
        """Encode the network as an ONNX file, with its operators and shapes checked."""
        graph = helper.make_graph(self._nodes, "policy", *self._rows, self._constants)
        operators = [helper.make_opsetid("", _OPERATORS)]
        model = helper.make_model(graph, ir_version=_IR, opset_imports=operators)
        checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def _row(name: str, size: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size))
