"""One runtime of benchmarks/speed/inference.py: a process that reads cases from standard input and answers with times.

It runs in the runtime's own environment, so it imports nothing of weft unless it is weft. A request is a JSON line; a
case has "kind", "cell", "rows", "steps", "threads", "precision" and "weights", an .npz file in torch's layout. Kinds:
"layer" runs a sequence, "lengths" both directions over rows of different lengths, "train" a forward and a backward
pass, "steps" one step of streams.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Work = Callable[[], Any]
CHECKED = 4096  # elements of the outputs that are compared


def weft_cell(case: dict[str, Any], arrays: dict[str, Any]) -> Any:
    import torch

    import weft

    torch.set_num_threads(case["threads"])
    cell = weft.CELLS[case["cell"]](arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name]))
    return cell


def weft_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    import weft

    layer, x = weft.Recurrent(weft_cell(case, arrays)), torch.from_numpy(arrays["x"])  # (B, T, I)
    if case["precision"] == "int8":
        layer = weft.quantize(layer)
    weft.freeze(layer)  # the other runtimes pack their weights when they load a model

    def work() -> Any:
        with torch.inference_mode(), weft.precision("bf16" if case["precision"] == "bf16" else "float32"):
            return layer(x)[0].numpy()

    return work


def weft_lengths(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    import weft

    layer = weft.Bidirectional(weft_cell(case, arrays), weft_cell(case, arrays))
    weft.freeze(layer)
    x, lengths = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["lengths"])

    def work() -> Any:
        with torch.inference_mode():
            return layer(x, lengths=lengths)[0].numpy()

    return work


def weft_train(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    import weft

    layer, x = weft.Recurrent(weft_cell(case, arrays)), torch.from_numpy(arrays["x"])

    def work() -> Any:
        with weft.precision("bf16" if case["precision"] == "bf16" else "float32"):
            return torch_gradient(layer, lambda: layer(x)[0])

    return work


def torch_gradient(layer: Any, run: Callable[[], Any]) -> Any:
    """The gradient of weight_hh after a forward and a backward pass."""
    layer.zero_grad(set_to_none=True)
    run().sum().backward()
    return next(p for name, p in layer.named_parameters() if "weight_hh" in name).grad


def torch_module(case: dict[str, Any], arrays: dict[str, Any], *, bidirectional: bool = False) -> Any:
    import torch

    torch.set_num_threads(case["threads"])
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case["cell"]]
    layer = kind(arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1], bidirectional=bidirectional)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name.removesuffix("_reverse").removesuffix("_l0")]))
    return layer


def torch_train(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    layer, x = torch_module(case, arrays), torch.from_numpy(_time_first(arrays))

    def run() -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=case["precision"] == "bf16"):
            return layer(x)[0]

    return lambda: torch_gradient(layer, run)


def torch_lengths(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    layer = torch_module(case, arrays, bidirectional=True)
    x, lengths = torch.from_numpy(_time_first(arrays)), torch.from_numpy(arrays["lengths"])

    def work() -> Any:
        with torch.inference_mode():
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            return pad_packed_sequence(layer(packed)[0])[0].transpose(0, 1)

    return work


def jax_train(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    """An LSTM as a scan over time; the gradient of the sum of its outputs, compiled."""
    import jax
    from jax import numpy as jnp

    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    parameters = {name: jnp.asarray(arrays[name]) for name in names}
    x, hidden = jnp.asarray(_time_first(arrays)), arrays["weight_hh"].shape[1]

    def loss(parameters: dict[str, Any], x: Any) -> Any:
        projected = x @ parameters["weight_ih"].T + parameters["bias_ih"] + parameters["bias_hh"]  # (T, B, 4H)

        def step(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row + h @ parameters["weight_hh"].T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], hidden), x.dtype)
        return jax.lax.scan(step, (zeros, zeros), projected)[1].sum()

    gradient = jax.jit(jax.grad(loss))
    return lambda: np.asarray(jax.block_until_ready(gradient(parameters, x))["weight_hh"])


def torch_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    layer = torch_module(case, arrays)
    x = torch.from_numpy(arrays["x"]).transpose(0, 1).contiguous()

    def work() -> Any:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=case["precision"] == "bf16"):
            return layer(x)[0].transpose(0, 1)

    return work


def onnx_model(case: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """The layer as an ONNX model of fixed shapes: X (T, B, I) to Y (T, directions, B, H)."""
    from onnx import TensorProto, helper, numpy_helper

    H = arrays["weight_hh"].shape[1]
    order = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}[case["cell"]]  # i o f g; z r n

    def turn(array: Any) -> Any:
        blocks = array.reshape(len(order), H, -1)
        return np.concatenate([blocks[block] for block in order])[None].astype(np.float32)

    weights = {"W": turn(arrays["weight_ih"]), "R": turn(arrays["weight_hh"])}
    weights["B"] = np.concatenate([turn(arrays["bias_ih"])[..., 0], turn(arrays["bias_hh"])[..., 0]], 1)
    rows, steps, inputs = arrays["x"].shape
    options: dict[str, Any] = {"linear_before_reset": 1} if case["cell"] == "gru" else {}
    given, directions = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [steps, rows, inputs])], 1
    if case["kind"] == "lengths":
        given.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [rows]))
        options["direction"], directions = "bidirectional", 2
        weights = {name: np.concatenate([array, array]) for name, array in weights.items()}
    names = ["X", "W", "R", "B", *(["lengths"] if directions == 2 else [])]
    node = helper.make_node(case["cell"].upper(), names, ["Y"], hidden_size=H, **options)
    graph = helper.make_graph(
        [node],
        "layer",
        given,
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [steps, directions, rows, H])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()  # type: ignore[no-any-return]


def _time_first(arrays: dict[str, Any]) -> Any:
    return np.ascontiguousarray(arrays["x"].transpose(1, 0, 2))


def _feed(case: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    lengths = {"lengths": arrays["lengths"].astype(np.int32)} if case["kind"] == "lengths" else {}
    return {"X": _time_first(arrays), **lengths}


def _rows_first(outputs: Any) -> Any:
    """(T, directions, B, H) to (B, T, directions * H); a view for one direction."""
    rows = outputs.transpose(2, 0, 1, 3)
    return rows[:, :, 0] if rows.shape[2] == 1 else rows.reshape(*rows.shape[:2], -1)


def onnxruntime_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case["threads"]
    session = onnxruntime.InferenceSession(onnx_model(case, arrays), options, providers=["CPUExecutionProvider"])
    feed = _feed(case, arrays)
    return lambda: _rows_first(session.run(None, feed)[0])


def openvino_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if case["precision"] == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": case["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(core.read_model(onnx_model(case, arrays)), "CPU", settings).create_infer_request()
    feed = {name: openvino.Tensor(array) for name, array in _feed(case, arrays).items()}

    def work() -> Any:
        request.infer(feed, share_inputs=True)
        return _rows_first(request.get_output_tensor(0).data)

    return work


def weft_steps(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    """One step of `rows` streams together, each going on from the one before."""
    import torch

    import weft
    from weft.engine import Stream

    layer = weft.Recurrent(weft_cell(case, arrays))
    if case["precision"] == "int8":
        layer = weft.quantize(layer)
    with weft.precision("bf16" if case["precision"] == "bf16" else "float32"):
        stream = Stream([layer.cell], rows=case["rows"], ids=False)
    x, state = torch.from_numpy(arrays["x"][:, 0].copy()), stream.start()

    def work() -> Any:
        nonlocal state
        with torch.inference_mode():
            _, state = stream.step(x, state)

    return work


def torch_steps(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    torch.set_num_threads(case["threads"])
    layer = torch.nn.LSTM(arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    x = torch.from_numpy(arrays["x"][None, :, 0].copy())
    with torch.inference_mode():
        _, state = layer(x)

    def work() -> Any:
        nonlocal state
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=case["precision"] == "bf16"):
            _, state = layer(x, state)

    return work


def onnxruntime_steps(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import onnxruntime
    from onnx import TensorProto, helper, load_from_string

    model = load_from_string(onnx_model(case, arrays))
    rows, H = len(arrays["x"]), arrays["weight_hh"].shape[1]
    node, graph = model.graph.node[0], model.graph
    node.input.extend(["", "h", "c"])
    node.output.extend(["h1", "c1"])
    graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, H]) for name in ("h", "c"))
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, H]) for name in ("h1", "c1"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case["threads"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"X": _time_first(arrays), **{name: np.zeros((1, rows, H), np.float32) for name in ("h", "c")}}

    def work() -> Any:
        _, feed["h"], feed["c"] = session.run(None, feed)

    return work


RUNTIMES = {
    "weft": {"layer": weft_layer, "lengths": weft_lengths, "train": weft_train, "steps": weft_steps},
    "torch": {"layer": torch_layer, "lengths": torch_lengths, "train": torch_train, "steps": torch_steps},
    "onnxruntime": {"layer": onnxruntime_layer, "lengths": onnxruntime_layer, "steps": onnxruntime_steps},
    "openvino": {"layer": openvino_layer, "lengths": openvino_layer},
    "jax": {"train": jax_train},
}


def main(runtime: str) -> None:
    works: dict[str, Work] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "prepare":
            arrays = dict(np.load(request["case"]["weights"]))
            work = works[request["name"]] = RUNTIMES[runtime][request["case"]["kind"]](request["case"], arrays)
            found = work()
            if hasattr(found, "float"):  # a tensor, perhaps of bfloat16
                found = found.float().numpy()
            sample = [] if found is None else np.asarray(found, np.float64).reshape(-1)[:CHECKED].tolist()
            answer: Any = sample
        else:
            work, times = works[request["name"]], []
            until = time.perf_counter() + request["seconds"]
            while time.perf_counter() < until or len(times) < 3:
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
            answer = times[1:]  # the first one wakes the threads
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
