"""One runtime of benchmarks/inference.py: a process that reads cases from standard input and answers with times.

It runs in the runtime's own environment, so it imports nothing of weft unless it is weft. A request is a JSON line; a
case has "kind", "cell", "rows", "steps", "threads", "precision" and "weights", an .npz file in torch's layout.
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


def weft_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    import weft

    torch.set_num_threads(case["threads"])
    cell = weft.CELLS[case["cell"]](arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name]))
    layer, x = weft.Recurrent(cell), torch.from_numpy(arrays["x"])  # (B, T, I)
    if case["precision"] == "int8":
        layer = weft.quantize(layer)

    def work() -> Any:
        with torch.inference_mode(), weft.precision("bf16" if case["precision"] == "bf16" else "float32"):
            return layer(x)[0].numpy()

    return work


def torch_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import torch

    torch.set_num_threads(case["threads"])
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case["cell"]]
    layer = kind(arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name.removesuffix("_l0")]))
    x = torch.from_numpy(arrays["x"]).transpose(0, 1).contiguous()

    def work() -> Any:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=case["precision"] == "bf16"):
            return layer(x)[0].transpose(0, 1)

    return work


def onnx_model(case: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """The layer as an ONNX model of fixed shapes: X (T, B, I) to Y (T, 1, B, H)."""
    from onnx import TensorProto, helper, numpy_helper

    H = arrays["weight_hh"].shape[1]
    order = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}[case["cell"]]  # i o f g; z r n

    def turn(array: Any) -> Any:
        blocks = array.reshape(len(order), H, -1)
        return np.concatenate([blocks[block] for block in order])[None].astype(np.float32)

    weights = {"W": turn(arrays["weight_ih"]), "R": turn(arrays["weight_hh"])}
    weights["B"] = np.concatenate([turn(arrays["bias_ih"])[..., 0], turn(arrays["bias_hh"])[..., 0]], 1)
    rows, steps, inputs = arrays["x"].shape
    options = {"linear_before_reset": 1} if case["cell"] == "gru" else {}
    node = helper.make_node(case["cell"].upper(), ["X", "W", "R", "B"], ["Y"], hidden_size=H, **options)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [steps, rows, inputs])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [steps, 1, rows, H])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()  # type: ignore[no-any-return]


def _time_first(arrays: dict[str, Any]) -> Any:
    return np.ascontiguousarray(arrays["x"].transpose(1, 0, 2))


def onnxruntime_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case["threads"]
    session = onnxruntime.InferenceSession(onnx_model(case, arrays), options, providers=["CPUExecutionProvider"])
    feed = {"X": _time_first(arrays)}
    return lambda: session.run(None, feed)[0][:, 0].transpose(1, 0, 2)


def openvino_layer(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if case["precision"] == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": case["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(core.read_model(onnx_model(case, arrays)), "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(_time_first(arrays)))

    def work() -> Any:
        request.infer()
        return request.get_output_tensor(0).data[:, 0].transpose(1, 0, 2)

    return work


def weft_steps(case: dict[str, Any], arrays: dict[str, Any]) -> Work:
    """One step of `rows` streams together, each going on from the one before."""
    import torch

    import weft
    from weft.engine import Stream

    torch.set_num_threads(case["threads"])
    cell = weft.CELLS[case["cell"]](arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1])
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[name]))
    layer = weft.Recurrent(cell)
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
    "weft": {"layer": weft_layer, "steps": weft_steps},
    "torch": {"layer": torch_layer, "steps": torch_steps},
    "onnxruntime": {"layer": onnxruntime_layer, "steps": onnxruntime_steps},
    "openvino": {"layer": openvino_layer},
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
