"""`skyhop policy convert`: conversion of checkpoints to the ONNX files of cards."""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Skyhop

import skyhop as sh
from damaged import Trial
from needs import needs_framework
from skyhop import _core
from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop_lab.policies import NETWORKS, Activation, Network, open_checkpoint, plain_network
from skyhop_lab.policies.export_checkpoint import main as export
from skyhop_lab.policies.sage import sage_network
from skyhop_lab.policies.tensors import Checkpoint

Tensors = dict[str, FloatArray]

_PROBE = """\
title = "Probe"
[observation]
steps = {inputs}
features = [{{ of = "cwnd" }}]
[network]
file = "{network}"
[action]
moves = "cwnd"
shape = "step"
"""


def check_outputs(network: Network, reference: Callable[[FloatArray], float], file: Path) -> None:
    """Compare outputs of a network, as flows compute them, with a reference implementation."""
    file.write_bytes(network.onnx())
    card = file.with_suffix(".toml")
    card.write_text(_PROBE.format(inputs=network.inputs, network=file.name), "utf-8")
    seen = rounded(np.random.default_rng(7).normal(size=(50, network.inputs)))
    expected = [reference(row) for row in seen]
    assert _core.ask_policy(str(card), seen.tolist()) == pytest.approx(expected, abs=1e-5)
    assert np.ptp(expected) > 0.05, "outputs depend on inputs"


def dense(draw: np.random.Generator, inputs: int, outputs: int) -> tuple[FloatArray, FloatArray]:
    weight = draw.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return rounded(weight), rounded(draw.normal(size=outputs) * 0.1)


def rounded(values: FloatArray) -> FloatArray:
    """Round values to single precision, as checkpoints store them."""
    return values.astype(np.float32).astype(np.float64)


def actor(sizes: list[int]) -> Tensors:
    """Return the tensors of Astraea's or Orca's actor, with those of target and optimiser."""
    draw = np.random.default_rng(11)
    tensors: Tensors = {"global_step": np.zeros(())}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        is_last = i == len(sizes) - 2
        name = "actor/dense" if is_last else f"actor/fc{i + 1}"
        tensors[f"{name}/kernel"], tensors[f"{name}/bias"] = dense(draw, inputs, outputs)
        tensors[f"{name}/kernel/Adam"] = np.zeros((inputs, outputs))
        tensors[f"target_{name}/kernel"] = np.ones((inputs, outputs))
        if not is_last:
            norm = f"actor/batch_normalization{f'_{i}' if i else ''}"
            tensors[f"{norm}/beta"] = rounded(draw.normal(size=outputs) * 0.1)
            tensors[f"{norm}/moving_mean"] = rounded(draw.normal(size=outputs) * 0.2)
            tensors[f"{norm}/moving_variance"] = rounded(draw.uniform(0.1, 2.0, outputs))
    return tensors


def reference_actor(tensors: Tensors, hidden: int) -> Callable[[FloatArray], float]:
    """Return a reference implementation of the actor, layer by layer as its authors wrote it."""

    def run(x: FloatArray) -> float:
        for i in range(hidden):
            x = x @ tensors[f"actor/fc{i + 1}/kernel"] + tensors[f"actor/fc{i + 1}/bias"]
            norm = f"actor/batch_normalization{f'_{i}' if i else ''}"
            deviation = np.sqrt(tensors[f"{norm}/moving_variance"] + 1e-3)
            x = (x - tensors[f"{norm}/moving_mean"]) / deviation + tensors[f"{norm}/beta"]
            x = np.where(x > 0, x, 0.2 * x)
        x = np.tanh(x @ tensors["actor/dense/kernel"] + tensors["actor/dense/bias"])
        return float(x[0])

    return run


def aurora(names: list[str], weight: str, bias: str) -> Tensors:
    draw = np.random.default_rng(13)
    sizes = [(30, 32), (32, 16), (16, 1)]
    tensors: Tensors = {}
    for name, (inputs, outputs) in zip(names, sizes, strict=True):
        tensors[f"{name}{weight}"], tensors[f"{name}{bias}"] = dense(draw, inputs, outputs)
    return tensors


def chained(
    layers: list[tuple[FloatArray, FloatArray]],
    hidden: Callable[[FloatArray], FloatArray],
    last: Callable[[FloatArray], FloatArray] = lambda x: x,
) -> Callable[[FloatArray], float]:
    def run(x: FloatArray) -> float:
        for i, (weight, bias) in enumerate(layers):
            x = (last if i == len(layers) - 1 else hidden)(x @ weight + bias)
        return float(x[0])

    return run


def in_memory(tensors: Tensors) -> Checkpoint:
    return Checkpoint(Path("memory"), is_torch=False, tensors=tensors)


def write_tensors(file: Path, tensors: Tensors, framework: str = "tensorflow") -> Path:
    """Write tensors in single precision, as export_checkpoint.py does."""
    arrays = {name: np.asarray(values, np.float32) for name, values in tensors.items()}
    np.savez(file, __framework__=framework, **arrays)
    return file


def sage_policy(units: int, width: int, seed: int = 17) -> Tensors:
    """Return tensors of Sage's policy, with the names of TensorFlow 2 for Acme's modules."""
    draw = np.random.default_rng(seed)
    tensors: Tensors = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        tensors[f"{name}/w"], tensors[f"{name}/b"] = dense(draw, inputs, outputs)

    def norm(name: str) -> None:
        tensors[f"{name}/scale"] = rounded(draw.uniform(0.5, 1.5, width))
        tensors[f"{name}/offset"] = rounded(draw.normal(size=width) * 0.1)

    for place, inputs in ((0, 69), (2, units)):
        linear(f"{place}/_proprio_encoder/_network/_layers/0", inputs, width)
        norm(f"{place}/_proprio_encoder/_network/_layers/1")
    tensors["1/_w_i"], tensors["1/b"] = dense(draw, width, 3 * units)
    tensors["1/_w_h"], _ = dense(draw, units, 3 * units)
    linear("3/_module/_layers/0/_layers/0", width, width)
    for block in (1, 2):
        for layer in (0, 1):
            linear(f"3/_module/_layers/{block}/_layer/_layers/{layer}", width, width)
        norm(f"3/_module/_layers/{block}/_layer_norm")
    for part in ("_logit_layer", "_loc_layer", "_scale_layer"):
        linear(f"4/{part}", width, 5)
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    return {f"policy/_layers/{name}{suffix}": values for name, values in tensors.items()}


def reference_sage(tensors: Tensors, units: int, seen: FloatArray) -> list[float]:
    """Compute the outputs for successive observations, as Acme and Sonnet define the policy."""

    def of(name: str) -> FloatArray:
        return tensors[f"policy/_layers/{name}/.ATTRIBUTES/VARIABLE_VALUE"]

    def linear(name: str, x: FloatArray) -> FloatArray:
        return x @ of(f"{name}/w") + of(f"{name}/b")

    def norm(name: str, x: FloatArray) -> FloatArray:
        scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        return scaled * of(f"{name}/scale") + of(f"{name}/offset")

    def encoded(place: int, x: FloatArray) -> FloatArray:
        scope = f"{place}/_proprio_encoder/_network/_layers"
        return np.tanh(norm(f"{scope}/1", linear(f"{scope}/0", x)))

    def sigmoid(x: FloatArray) -> FloatArray:
        return 1 / (1 + np.exp(-x))

    said, h = [], np.zeros(units)
    for row in seen:
        of_input = encoded(0, row) @ of("1/_w_i") + of("1/b")
        w_h = of("1/_w_h")
        gates = sigmoid(of_input[: 2 * units] + h @ w_h[:, : 2 * units])
        update, reset = gates[:units], gates[units:]
        new = np.tanh(of_input[2 * units :] + (reset * h) @ w_h[:, 2 * units :])
        h = (1 - update) * h + update * new
        x = linear("3/_module/_layers/0/_layers/0", encoded(2, h))
        for block in (1, 2):
            scope = f"3/_module/_layers/{block}"
            hidden = np.maximum(linear(f"{scope}/_layer/_layers/0", x), 0)
            x = norm(f"{scope}/_layer_norm", linear(f"{scope}/_layer/_layers/1", hidden) + x)
        likely = np.exp(linear("4/_logit_layer", x))
        mean = likely / likely.sum() @ linear("4/_loc_layer", x)
        said.append(float(np.clip(mean, -2, 2)))
    return said


def small_sage(place: Path, network: bytes, units: int) -> Path:
    """Write Sage's card for a network with less memory, and the network next to it."""
    text = dict(_core.policy_cards())["sage"]
    card = place / "sage.toml"
    card.write_text(text.replace("size = 1024", f"size = {units}"), "utf-8")
    card.with_suffix(".onnx").write_bytes(network)
    return card


_FLOW = """\
[path]
kind = "fixed"
rtt = "40 ms"
[link]
rate = "20 Mbit/s"
queue = "100 kB"
[run]
duration = "4 s"
[[flow]]
cc = "policy"
policy = "sage.toml"
"""


def pairs(tensors: Tensors) -> list[tuple[FloatArray, FloatArray]]:
    values = list(tensors.values())
    return list(zip(values[::2], values[1::2], strict=True))


def transposed(tensors: Mapping[str, FloatArray]) -> Tensors:
    """Transpose weights to PyTorch's order: outputs x inputs."""
    return {name: values.T if values.ndim == 2 else values for name, values in tensors.items()}


@pytest.mark.parametrize(
    ("card", "sizes"),
    [("astraea", [50, 256, 128, 64, 1]), ("orca", [70, 256, 256, 1])],
)
def test_converted_actors_equal_their_authors_definition(
    tmp_path: Path, skyhop: Skyhop, card: str, sizes: list[int]
) -> None:
    tensors = actor(sizes)
    file = write_tensors(tmp_path / "model.npz", tensors)
    done = skyhop("policy", "convert", "model.npz", "--card", card, "-o", f"{card}.onnx")
    assert done.returncode == 0, done.stderr
    hidden = "".join(f"{size} leaky-relu 0.2 -> " for size in sizes[1:-1])
    assert f"{sizes[0]} -> {hidden}1 tanh" in done.stderr + done.stdout
    # The network fits the card that comes with skyhop.
    assert skyhop("policy", "new", f"{card}.toml", "--from", card).returncode == 0
    _, features, steps, files = _core.check_policy(str(tmp_path / f"{card}.toml"))
    assert len(features) * steps == sizes[0]
    assert any(Path(name).name == f"{card}.onnx" for name in files)
    network = NETWORKS[card](open_checkpoint(file), sizes[0])
    assert network.onnx() == (tmp_path / f"{card}.onnx").read_bytes()
    check_outputs(network, reference_actor(tensors, len(sizes) - 2), tmp_path / "probe.onnx")


@pytest.mark.parametrize("scope", ["model", "pi/model"])
def test_aurora_is_the_mean_of_its_policy(tmp_path: Path, scope: str) -> None:
    tensors = aurora([f"{scope}/pi_fc0", f"{scope}/pi_fc1", f"{scope}/pi"], "/w", "/b")
    ignored = {"model/pi/logstd": np.zeros((1, 1)), "oldpi/model/pi/w": np.ones((16, 1))}
    network = NETWORKS["aurora"](in_memory(tensors | ignored), 30)
    assert str(network) == "30 -> 32 tanh -> 16 tanh -> 1"
    check_outputs(network, chained(pairs(tensors), np.tanh), tmp_path / "probe.onnx")


def test_aurora_of_stable_baselines3_is_the_same_network(tmp_path: Path) -> None:
    names = ["mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net"]
    tensors = aurora(names, ".weight", ".bias")
    critic = {"value_net.weight": np.ones((1, 16)), "log_std": np.zeros(1)}
    file = write_tensors(tmp_path / "policy.npz", transposed(tensors) | critic, "torch")
    of_torch = NETWORKS["aurora"](open_checkpoint(file), 30)
    of_tensorflow = in_memory(aurora(["model/pi_fc0", "model/pi_fc1", "model/pi"], "/w", "/b"))
    assert of_torch.onnx() == NETWORKS["aurora"](of_tensorflow, 30).onnx()


def test_sage_is_the_mean_of_its_mixture_and_has_memory(tmp_path: Path) -> None:
    tensors = sage_policy(units=12, width=8)
    ignored = {"signature/.ATTRIBUTES/VARIABLE_VALUE": np.zeros(())}
    file = write_tensors(tmp_path / "ckpt-1.npz", tensors | ignored)
    network = sage_network(open_checkpoint(file), 69, 12)
    assert str(network) == (
        "69 -> 8 norm tanh -> GRU 12 -> 8 norm tanh -> 8, with 2 residual blocks "
        "-> mean of 5 Gaussians"
    )
    card = small_sage(tmp_path, network.onnx(), 12)
    seen = rounded(np.random.default_rng(7).normal(size=(50, 69)))
    expected = reference_sage(tensors, 12, seen)
    assert _core.ask_policy(str(card), seen.tolist()) == pytest.approx(expected, abs=1e-5)
    assert np.ptp(expected) > 0.05
    assert max(map(abs, expected)) < 2, "no output is clipped by the card"
    # Earlier observations change the output.
    alone = reference_sage(tensors, 12, seen[-1:])
    assert abs(alone[0] - expected[-1]) > 1e-3


def test_sage_of_its_own_size_fits_its_card(tmp_path: Path, skyhop: Skyhop) -> None:
    network = NETWORKS["sage"](in_memory(sage_policy(units=1024, width=256)), 69)
    assert skyhop("policy", "new", "sage.toml", "--from", "sage").returncode == 0
    (tmp_path / "sage.onnx").write_bytes(network.onnx())
    done = skyhop("policy", "check", "sage.toml")
    assert done.returncode == 0, done.stderr
    assert "69" in done.stdout


def test_sage_of_another_size_is_an_error(tmp_path: Path, skyhop: Skyhop) -> None:
    tensors = sage_policy(units=12, width=8)
    write_tensors(tmp_path / "ckpt-1.npz", tensors)
    done = skyhop("policy", "convert", "ckpt-1.npz", "--card", "sage", "-o", "sage.onnx")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "_w_i/.ATTRIBUTES/VARIABLE_VALUE holds 8 x 36 numbers; expected 8 x 3072" in done.stderr
    for name in tensors:
        if "_scale_layer" in name or "_layers/2/_layer" in name:
            continue
        short = {other: values for other, values in tensors.items() if other != name}
        said = refusal(lambda short=short: sage_network(in_memory(short), 69, 12))
        assert f"has no tensor {name}; it has policy/" in said


def test_sage_with_drawn_weights_drives_a_flow(tmp_path: Path) -> None:
    def windows(name: str, scale: float) -> list[int]:
        place = tmp_path / name
        place.mkdir()
        tensors = sage_policy(units=12, width=8)
        means = {part: values * scale for part, values in tensors.items() if "_loc_layer" in part}
        small_sage(place, sage_network(in_memory(tensors | means), 69, 12).onnx(), 12)
        (place / "scenario.toml").write_text(_FLOW, "utf-8")
        run = sh.sim(place / "scenario.toml", place / "run")
        assert "fallback" not in set(run.events.to_pandas().kind)
        return [int(cwnd) for cwnd in run.flows.to_pandas().cwnd_packets if cwnd]

    # Small outputs, so that the window changes slowly, and the same with the opposite sign.
    one, other = windows("one", 0.2), windows("other", -0.2)
    lower, higher = sorted((one, other), key=max)
    assert max(lower) <= 20
    assert min(lower) == 4, "lower bound of the card"
    assert len(set(higher)) > 20
    assert max(higher) > 200


@pytest.mark.parametrize(
    ("hidden", "last", "reference"),
    [
        (Activation("relu"), None, lambda x: np.maximum(x, 0)),
        (Activation("tanh"), Activation("tanh"), np.tanh),
        (Activation("leaky-relu"), None, lambda x: np.where(x > 0, x, 0.01 * x)),
        (Activation("leaky-relu", 0.3), None, lambda x: np.where(x > 0, x, 0.3 * x)),
    ],
)
def test_a_plain_network_of_pytorch(
    tmp_path: Path,
    hidden: Activation,
    last: Activation | None,
    reference: Callable[[FloatArray], FloatArray],
) -> None:
    # The order is that of the file, not that of the names.
    tensors = aurora(["net.10", "net.2", "head"], ".weight", ".bias")
    file = write_tensors(tmp_path / "mine.npz", transposed(tensors), "torch")
    network = plain_network(open_checkpoint(file), hidden, last)
    closing = np.tanh if last else lambda x: x
    check_outputs(network, chained(pairs(tensors), reference, closing), tmp_path / "probe.onnx")


def test_a_plain_network_of_tensorflow_is_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [f"layer_with_weights-{i}" for i in (2, 9, 10)]
    tensors = aurora(names, f"/kernel{suffix}", f"/bias{suffix}")
    kept = {f"{names[0]}/kernel/.OPTIMIZER_SLOT/optimizer/m{suffix}": np.ones((30, 32))}
    checkpoint = in_memory(tensors | kept | {f"save_counter{suffix}": np.ones(())})
    network = plain_network(checkpoint, Activation("relu"), None)
    reference = chained(pairs(tensors), lambda x: np.maximum(x, 0))
    check_outputs(network, reference, tmp_path / "probe.onnx")


def test_the_command_converts_plain_networks_and_overwrites_nothing(
    tmp_path: Path, skyhop: Skyhop
) -> None:
    tensors = aurora(["a.0", "a.2", "a.4"], ".weight", ".bias")
    write_tensors(tmp_path / "mine.npz", transposed(tensors), "torch")
    command = ("policy", "convert", "mine.npz", "--activation", "leaky-relu", "--last", "tanh")
    done = skyhop(*command, "-o", "mine.onnx")
    assert done.returncode == 0, done.stderr
    assert "30 -> 32 leaky-relu 0.01 -> 16 leaky-relu 0.01 -> 1 tanh" in done.stderr + done.stdout
    written = (tmp_path / "mine.onnx").read_bytes()
    again = skyhop(*command, "-o", "mine.onnx")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "exists already" in again.stderr
    assert (tmp_path / "mine.onnx").read_bytes() == written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "either --card or --activation"),
        (("--card", "orca", "--activation", "relu"), "either --card or --activation"),
        (("--card", "none"), "expected one of astraea, aurora, orca, sage"),
        (("--card", "orca", "--slope", "0.1"), "leave out --last and --slope"),
        (("--activation", "relu", "--slope", "0.1"), "only --activation leaky-relu has a slope"),
        (("--card", "orca"), "nowhere: cannot be read: No such file"),
    ],
)
def test_wrong_options_are_an_error_of_one_line(
    tmp_path: Path, skyhop: Skyhop, options: tuple[str, ...], message: str
) -> None:
    done = skyhop("policy", "convert", "nowhere", *options, "-o", "x.onnx")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert not (tmp_path / "x.onnx").exists()


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(InputError) as raised:
        run()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def orca(tensors: Tensors) -> Network:
    return NETWORKS["orca"](in_memory(tensors), 70)


def test_an_error_names_both_the_shape_and_the_expected_one() -> None:
    said = refusal(lambda: orca(actor([60, 8, 8, 1])))
    assert "actor/fc1/kernel holds 60 x 8 numbers; expected 70 x any" in said
    said = refusal(lambda: orca(actor([70, 8, 8, 2])))
    assert "dense/kernel holds 8 x 2 numbers; expected 8 x 1" in said
    said = refusal(lambda: orca(actor([70, 8, 8, 1]) | {"actor/fc2/bias": np.zeros(9)}))
    assert "fc2/bias holds 9 numbers; expected 8" in said


def test_an_error_for_a_missing_tensor_lists_the_existing_ones() -> None:
    tensors = actor([70, 8, 8, 1])
    del tensors["actor/fc2/kernel"]
    said = refusal(lambda: orca(dict(sorted(tensors.items()))))
    assert "has no tensor actor/fc2/kernel; it has actor/batch_normalization/beta, " in said
    assert "Adam" not in said


def test_values_that_are_not_finite_are_refused() -> None:
    tensors = actor([70, 8, 8, 1])
    said = refusal(lambda: orca(tensors | {"actor/dense/bias": np.array([np.nan])}))
    assert "dense/bias has values that are not finite" in said
    negative = {"actor/batch_normalization/moving_variance": np.full(8, -1.0)}
    said = refusal(lambda: orca(tensors | negative))
    assert "moving_variance has a value below 0" in said


def test_a_plain_network_with_other_tensors_is_refused() -> None:
    tensors = transposed(aurora(["0", "2", "4"], ".weight", ".bias"))

    def plain(tensors: Tensors) -> Network:
        checkpoint = Checkpoint(Path("memory"), is_torch=True, tensors=tensors)
        return plain_network(checkpoint, Activation("relu"), None)

    said = refusal(lambda: plain(tensors | {"1.running_mean": np.zeros(32)}))
    assert "found 1.running_mean" in said
    said = refusal(lambda: plain(dict(reversed(tensors.items()))))
    assert "2.weight holds 16 x 32 numbers; expected any x 1" in said


def test_a_file_with_any_byte_cut_or_changed_is_read_or_refused(tmp_path: Path) -> None:
    file = write_tensors(tmp_path / "m.npz", actor([70, 2, 2, 1]))
    whole = file.read_bytes()
    before = NETWORKS["orca"](open_checkpoint(file), 70).onnx()
    refused = 0
    for at in range(0, len(whole), 61):
        for damaged in (whole[:at], flipped(whole, at)):
            file.write_bytes(damaged)
            said = refused_or_same(lambda: NETWORKS["orca"](open_checkpoint(file), 70), before)
            assert "\n" not in said
            # A zip has redundant fields, and some that no program reads.
            refused += said != ""
    assert refused > len(whole) // 61


def refused_or_same(network: Callable[[], Network], before: bytes) -> str:
    """Return the error for a damaged checkpoint; without one check that its network is equal."""
    try:
        made = network().onnx()
    except InputError as error:
        return str(error)
    assert made == before
    return ""


def flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]


class _Hostile:
    """Object that runs a command when it is unpickled."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


def with_pickle(content: object) -> bytes:
    """Return a .npz file with a pickle in place of an array's numbers."""
    held, written = np.empty((), object), io.BytesIO()
    held[()] = content
    np.savez(written, __framework__="torch", **{"a.weight": held})
    return written.getvalue()


def torch_file(content: object) -> bytes:
    """Return a zip with a pickle, as torch.save writes it."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as opened:
        opened.writestr("archive/data.pkl", pickle.dumps(content, 2))
    return written.getvalue()


@pytest.mark.parametrize("write", [with_pickle, torch_file, pickle.dumps])
def test_a_pickle_is_refused_and_does_not_run(
    tmp_path: Path, skyhop: Skyhop, write: Callable[[object], bytes]
) -> None:
    trace = tmp_path / "ran"
    data = write(_Hostile(os.mkdir, str(trace)))
    (tmp_path / "m.npz").write_bytes(data)
    done = skyhop("policy", "convert", "m.npz", "--activation", "relu", "-o", "m.onnx")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "export_checkpoint.py CHECKPOINT tensors.npz" in done.stderr
    assert not trace.exists()
    assert not (tmp_path / "m.onnx").exists()


def test_a_file_that_expands_to_too_much_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in "abcde":
            opened.writestr(name, bytes(110 << 20))
    assert "m.npz: has more than 512 MB" in refusal(lambda: open_checkpoint(file))


def test_without_onnx_the_command_names_the_extra(
    skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("skyhop_lab.policies")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    command = ("policy", "convert", "m.npz", "--card", "orca", "-o", "m.onnx")
    monkeypatch.setattr(sys, "argv", ["skyhop", *command])
    done = skyhop(*command)
    assert done.returncode == 1
    assert "onnx is not installed: run make setup in the checkout" in done.stderr


def test_damaged_files(tmp_path: Path) -> None:
    file = write_tensors(tmp_path / "m.npz", actor([70, 2, 2, 1]))

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return NETWORKS["orca"](open_checkpoint(file), 70)

    Trial("policy-tensors", [file.read_bytes()], is_text=False).run(read)


# The script for users, with stand-ins of the frameworks, and with the frameworks where they are.


def check_exported(file: Path, expected: Tensors, framework: str) -> None:
    checkpoint = open_checkpoint(file)
    assert checkpoint.is_torch == (framework == "torch")
    assert list(checkpoint.tensors) == list(expected)
    for name, values in expected.items():
        assert np.array_equal(checkpoint.tensors[name], values), name


@pytest.mark.parametrize(
    ("source", "prefix"),
    [
        ("models", "models/ckpt-7"),
        ("models/ckpt-3.index", "models/ckpt-3"),
        ("models/ckpt-3.data-00000-of-00001", "models/ckpt-3"),
        ("models/ckpt-3", "models/ckpt-3"),
        ("saved", "saved/variables/variables"),
    ],
)
def test_the_script_exports_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, prefix: str
) -> None:
    for name in ("models/ckpt-3.index", "models/ckpt-3", "saved/variables/variables.index"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    tensors: Tensors = {"b/w": np.full((2, 3), 0.1), "a/w": np.ones(3, np.float16), "n": np.ones(2)}
    opened = []

    def load_checkpoint(prefix: str) -> object:
        opened.append(prefix)
        types = {name: SimpleNamespace(is_floating=name != "n") for name in tensors}
        return SimpleNamespace(
            get_variable_to_dtype_map=lambda: types, get_tensor=tensors.__getitem__
        )

    newest = SimpleNamespace(model_checkpoint_path="/home/x/ckpt-7")
    train = SimpleNamespace(
        load_checkpoint=load_checkpoint, get_checkpoint_state=lambda _directory: newest
    )
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(train=train))
    export(tmp_path / source, tmp_path / "m.npz")
    assert opened == [str(tmp_path / prefix)]
    check_exported(tmp_path / "m.npz", {name: tensors[name] for name in ("a/w", "b/w")}, "tf")


class _TorchTensor:
    """Stand-in for a tensor of PyTorch."""

    def __init__(self, values: FloatArray) -> None:
        self.dtype, self._values = values.dtype, values

    def is_floating_point(self) -> bool:
        return self.dtype.kind == "f"

    def float(self) -> _TorchTensor:
        return _TorchTensor(self._values.astype(np.float32))

    def detach(self) -> _TorchTensor:
        return self

    def numpy(self) -> FloatArray:
        return self._values


def test_the_script_exports_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {
        "lr": 0.1,
        "net": {"2.weight": np.full((2, 3), 0.1), "0.bias": np.ones(2, np.float16)},
        "steps": np.ones(3, np.int64),
    }

    def load(file: str, map_location: str, weights_only: bool) -> object:
        assert (file, map_location) == (str(tmp_path / "m.pt"), "cpu")
        assert weights_only, "PyTorch calls no function that the file names"
        net = {name: _TorchTensor(values) for name, values in state["net"].items()}
        return {**state, "net": net, "steps": _TorchTensor(state["steps"])}

    torch = SimpleNamespace(
        load=load, is_tensor=lambda value: isinstance(value, _TorchTensor), float64=np.float64
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "m.pt").touch()
    export(tmp_path / "m.pt", tmp_path / "m.npz")
    expected = {f"net.{name}": values for name, values in state["net"].items()}
    check_exported(tmp_path / "m.npz", expected, "torch")


@pytest.mark.integration
def test_the_script_exports_what_tensorflow_has_saved(tmp_path: Path) -> None:
    needs_framework("tensorflow")
    import tensorflow as tf

    tensors = {
        "b/w": tf.constant([[0.1, 0.2]]),
        "a/w": tf.constant([0.1], tf.float64),
        "half": tf.constant([0.5], tf.bfloat16),
        "count": tf.constant(3),
    }
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    export(tmp_path / "m.index", tmp_path / "m.npz")
    expected = {name: tensors[name].numpy() for name in ("a/w", "b/w", "half")}
    check_exported(tmp_path / "m.npz", expected, "tensorflow")


@pytest.mark.integration
def test_the_script_exports_what_pytorch_has_saved(tmp_path: Path) -> None:
    needs_framework("torch")
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    half = torch.tensor([0.5], dtype=torch.bfloat16)
    torch.save({"net": model.state_dict(), "half": half}, tmp_path / "m.pt")
    export(tmp_path / "m.pt", tmp_path / "m.npz")
    expected = {f"net.{name}": values.numpy() for name, values in model.state_dict().items()}
    check_exported(tmp_path / "m.npz", {**expected, "half": np.array([0.5])}, "torch")
    torch.save(_Hostile(os.mkdir, str(tmp_path / "ran")), tmp_path / "hostile.pt")
    with pytest.raises(pickle.UnpicklingError):
        export(tmp_path / "hostile.pt", tmp_path / "hostile.npz")
    assert not (tmp_path / "ran").exists()
