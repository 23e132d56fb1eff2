"""Speed of the engine relative to torch on this machine: ratios, written to benchmarks/records/engine.json.

Ours and the peer are checked to agree, then alternate in one process; each time is the median of many rounds. The peer
gets its best layout (time first, one-hot rows precomputed).

    python -m benchmarks.speed.engine [--quick]
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.speed.inference import Case, chosen_engine, hold_peers, is_compared, measure, record_name
from examples.own_cell import OWN_CELLS
from tools.pages import write_pages
from tools.records import machine, stamp, write
from weft import engine
from weft.cells import CELLS, Cell, GRUCell, GRUResetBeforeCell, LSTMCell, RNNCell
from weft.compiler import program_of
from weft.engine import Pass, Stream
from weft.nn import Bidirectional, Recurrent, make_stack
from weft.nn.steps import run_steps

B, T, V, H = 32, 35, 28, 256
Work = Callable[[], Any]


class Row(NamedTuple):
    work: str
    peer: str
    ours: float  # seconds
    theirs: float
    operations: int  # of its matrix products; 0: they are not the bottleneck

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    def bound(self, peak: float) -> float:
        """The ratio if the products ran at the peak of the machine, in GFLOP/s; 0 if they are not the bottleneck."""
        return self.theirs * peak * 1e9 / self.operations if self.operations else 0.0


def in_turns(works: list[Work], seconds: float) -> list[float]:
    """The median time of each function; the functions alternate."""
    for work in works:
        work()
    taken: list[list[float]] = [[] for _ in works]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken[0]) < 7:
        for work, times in zip(works, taken, strict=True):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def trains(module: nn.Module, run: Callable[[], Tensor]) -> Work:
    def work() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        run().sum().backward()

    return work


def agree(name: str, ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=lambda m: f"{name}: {m}")


def operations(cell: Cell, tokens: int, *, ids: bool = True, wants_x: bool = False) -> int:
    """Floating-point operations in the products of one training step: forward, and twice as many backward."""
    recurrent = sum(len(product.blocks) for product in program_of(cell).products) * cell.hidden_size
    recurrent //= getattr(cell, "heads", 1)  # a head reads its own units only
    inputs = 0 if ids else cell.blocks * cell.input_size
    return 2 * tokens * cell.hidden_size * (3 * recurrent + (3 if wants_x else 2) * inputs)


def peak() -> float:
    """GFLOP/s of multiply-adds on registers, on all threads: the upper bound of this machine."""
    return max(engine.peak_flops() for _ in range(5)) / 1e9 if engine.library() else math.inf


class Bench:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.rows, self.peak = seconds, list[Row](), peak()

    def add(self, work: str, peer: str, ours: Work, theirs: Work, operations: int = 0) -> None:
        mine, other = in_turns([ours, theirs], self.seconds)
        self.rows.append(Row(work, peer, mine, other, operations))
        self.peak = max(self.peak, peak())  # repeated, because other load on the machine can only lower it
        print(line(self.rows[-1], self.peak), flush=True)

    def against_torch(self, cell: type[Cell], peer: type[nn.Module]) -> None:
        theirs = peer(V, H)
        layer = Recurrent(like(cell(V, H), theirs))
        ids = torch.randint(0, V, (B, T))
        rows = F.one_hot(ids.t(), V).float().contiguous()  # (T, B, V)
        agree(cell.__name__, layer(ids)[0], theirs(rows)[0].transpose(0, 1))
        name, torch_name = f"{peer.__name__} H{H}, vocabulary {V}", f"torch.nn.{peer.__name__}, one-hot input"
        ours = trains(layer, lambda: layer(ids)[0])
        work = operations(layer.cell, B * T)
        self.add(f"{name}, train", torch_name, ours, trains(theirs, lambda: theirs(rows)[0]), work)
        if cell is LSTMCell:
            with torch.no_grad():
                self.add(f"{name}, inference", torch_name, lambda: layer(ids), lambda: theirs(rows), work // 3)

    def against_loops(self) -> None:
        ids = torch.randint(0, V, (B, T))
        cell = GRUResetBeforeCell(V, H)
        layer, rows = Recurrent(cell), F.one_hot(ids.t(), V).float().contiguous()
        agree("notes", layer(ids)[0], notes_gru(cell, rows).transpose(0, 1))
        self.add(
            f"GRU as the notes write it, H{H}, train", "the notes' loop in torch",
            trains(layer, lambda: layer(ids)[0]), trains(cell, lambda: notes_gru(cell, rows)), operations(cell, B * T),
        )  # fmt: skip
        for name, make in {**CELLS, **OWN_CELLS}.items():
            if name in ("lstm", "gru", "rnn", "rnn-relu", "gru-reset-before", "stateless"):
                continue
            cell = make(V, H)
            layer, run = Recurrent(cell), Pass(cell, False)

            def loop(run: Pass = run, cell: Cell = cell) -> Tensor:
                return run_steps(run, ids, cell.initial_state(B), None)[0].h

            agree(name, layer(ids)[0], loop())
            ours = trains(layer, lambda layer=layer: layer(ids)[0])
            peer = "the same equations, eager torch"
            self.add(f"{name} H{H}, train", peer, ours, trains(cell, loop), operations(cell, B * T))

    def wide(self) -> None:
        theirs, x = nn.LSTM(512, 512), torch.randn(B, T, 512)
        layer, across = Recurrent(like(LSTMCell(512, 512), theirs)), x.transpose(0, 1).contiguous()
        agree("I512 H512", layer(x)[0], theirs(across)[0].transpose(0, 1))
        ours = trains(layer, lambda: layer(x)[0])
        peer, work = trains(theirs, lambda: theirs(across)[0]), operations(layer.cell, B * T, ids=False)
        self.add("LSTM I512 H512, train", "torch.nn.LSTM", ours, peer, work)

    def deep(self) -> None:
        x, theirs = torch.randn(B, T, H), nn.LSTM(H, H, num_layers=2, bidirectional=True)
        stack, across = make_stack("lstm", H, H, layers=2, bidirectional=True), x.transpose(0, 1).contiguous()
        ours = trains(stack, lambda: stack(x)[0])
        peer = trains(theirs, lambda: theirs(across)[0])
        work = 2 * sum(
            operations(layer.forward_layer.cell, B * T, ids=False, wants_x=number > 0)
            for number, layer in enumerate(stack.layers)
        )
        self.add(f"2-layer bidirectional LSTM H{H}, train", "torch.nn.LSTM", ours, peer, work)

    def lengths(self) -> None:
        theirs, lengths = nn.LSTM(100, 128, bidirectional=True, batch_first=True), torch.randint(4, 61, (B,))
        lengths[0] = 60
        layer, x = Bidirectional(LSTMCell(100, 128), LSTMCell(100, 128)), torch.randn(B, 60, 100)
        across = x.transpose(0, 1).contiguous()
        padded = nn.LSTM(100, 128, bidirectional=True)

        def packed() -> Tensor:
            rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(theirs(rows)[0], batch_first=True)[0]

        ours = trains(layer, lambda: layer(x, lengths=lengths)[0])
        name = "bidirectional LSTM I100 H128, lengths 4-60, train"
        work = 2 * operations(layer.forward_layer.cell, int(lengths.sum()), ids=False)
        self.add(name, "torch.nn.LSTM, PackedSequence", ours, trains(theirs, packed), work)
        self.add(name, "torch.nn.LSTM, padded (wrong)", ours, trains(padded, lambda: padded(across)[0]), work)

    def small(self) -> None:
        x = torch.randn(64, 10, 32)
        across = x.transpose(0, 1).contiguous()
        for cell, peer in ((LSTMCell, nn.LSTM), (GRUCell, nn.GRU)):
            theirs = peer(32, 32)
            layer = Recurrent(like(cell(32, 32), theirs))
            agree("small", layer(x)[0], theirs(across)[0].transpose(0, 1))
            ours = trains(layer, lambda layer=layer: layer(x)[0])
            name = f"small {peer.__name__}: H32, batch 64, 10 steps, train"
            other = trains(theirs, lambda theirs=theirs: theirs(across)[0])
            work = operations(layer.cell, 640, ids=False)
            self.add(name, f"torch.nn.{peer.__name__}", ours, other, work)

    def stream(self) -> None:
        theirs = nn.LSTM(V, H)
        stream = Stream([like(LSTMCell(V, H), theirs)])
        ids, state, x = torch.tensor([3]), stream.start(), F.one_hot(torch.tensor([[3]]), V).float()
        agree("stream", stream.step(ids, state)[0], theirs(x)[0][0])
        _, their_state = theirs(x)

        def ours() -> None:  # each step goes on from the one before
            nonlocal state
            _, state = stream.step(ids, state)

        def peer() -> None:
            nonlocal their_state
            _, their_state = theirs(x, their_state)

        step = onnx_step(theirs)
        with torch.inference_mode():
            self.add(f"one step of one stream, LSTM H{H}", "torch.nn.LSTM", ours, peer)
            if isinstance(step, str):
                print(f"ONNX Runtime: {step}")
            else:
                self.add(f"one step of one stream, LSTM H{H}", "ONNX Runtime", ours, step)


def like(cell: Cell, theirs: nn.Module) -> Cell:
    """The cell with torch's weights."""
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            parameter.copy_(getattr(theirs, f"{name}_l0"))
    return cell


def notes_gru(cell: Cell, rows: Tensor) -> Tensor:
    """The textbook's loop: one product for each gate and source, one step after the other. rows (T, B, V)."""
    W, U = cell.weight_ih.t().chunk(3, 1), cell.weight_hh.t().chunk(3, 1)
    b = (cell.bias_ih + cell.bias_hh).chunk(3)
    h, outputs = rows.new_zeros(rows.shape[1], H), []
    for x in rows:
        r = torch.sigmoid(torch.matmul(x, W[0]) + torch.matmul(h, U[0]) + b[0])
        z = torch.sigmoid(torch.matmul(x, W[1]) + torch.matmul(h, U[1]) + b[1])
        n = torch.tanh(torch.matmul(x, W[2]) + torch.matmul(r * h, U[2]) + b[2])
        h = z * h + (1 - z) * n
        outputs.append(h)
    return torch.stack(outputs)


def onnx_step(layer: nn.LSTM) -> Work | str:
    """One step of the same layer in ONNX Runtime, or why there is none."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return "not installed, row left out"

    def turn(weight: Tensor) -> np.ndarray:  # blocks i, f, g, o to i, o, f, g
        i, f, g, o = weight.detach().numpy().reshape(4, H, -1)
        return np.concatenate([i, o, f, g])[None].astype(np.float32)

    biases = np.concatenate([turn(layer.bias_ih_l0)[..., 0], turn(layer.bias_hh_l0)[..., 0]], 1)
    weights = {"W": turn(layer.weight_ih_l0), "R": turn(layer.weight_hh_l0), "B": biases}
    shapes = {"X": [1, 1, V], "h": [1, 1, H], "c": [1, 1, H]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "h1", "c1")]
    node = helper.make_node("LSTM", ["X", "W", "R", "B", "", "h", "c"], ["Y", "h1", "c1"], hidden_size=H)
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "step", inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return lambda: session.run(None, feed)


def roof(seconds: float) -> float:
    """GFLOP/s of torch's own product of two 1024 x 1024 matrices."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / in_turns([lambda: a @ b], seconds)[0] / 1e9


def kept_bytes(module: nn.Module, run: Callable[[], Tensor]) -> int:
    """The memory that a forward call keeps for the backward pass, without weights and inputs."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def runtimes(seconds: float) -> list[dict[str, Any]]:
    """Other runtimes, each in a process of its own: inference, and training with JAX's scan. Milliseconds."""
    inference, train = ("weft", "torch", "onnxruntime", "openvino"), ("weft", "torch", "jax")
    threads, rows = torch.get_num_threads(), []
    with tempfile.TemporaryDirectory() as folder:
        for case, some in (
            (Case("layer", "lstm", B, T, threads), inference),
            (Case("layer", "gru", B, T, threads), inference),
            (Case("lengths", "lstm", B, 60, threads), inference),
            (Case("train", "lstm", B, T, threads), train),
        ):
            found = measure(case, tuple((name, "float32") for name in some), Path(folder), seconds)
            times = {name: round(taken * 1e3, 3) for (name, _), taken in found.items()}
            ratio = min(taken for name, taken in times.items() if is_compared(name)) / times["weft"]
            rows.append({"work": case.title, "times": times, "ratio": round(ratio, 3)})
            print(rows[-1], flush=True)
    return rows


def line(row: Row, peak: float) -> str:
    times = f"{row.ours * 1e3:.3f} ms | {row.theirs * 1e3:.3f} ms"
    bound = row.bound(peak)
    limits = f"{bound:.1f} x | {row.ratio / bound:.2f}" if bound else " | "
    return f"| {row.work} | {row.peer} | {times} | **{row.ratio:.1f} x** | {limits} |"


def record(bench: Bench, gflops: float, share: float, memory: tuple[int, int], others: list[dict[str, Any]]) -> Any:
    """What benchmarks/records/engine.json keeps: times in milliseconds."""
    layers = []
    for row in bench.rows:
        bound = row.bound(bench.peak)
        limits = (
            {"bound": round(bound, 2), "share": round(row.ratio / bound, 3)}
            if bound
            else {"bound": None, "share": None}
        )
        times = {"weft": round(row.ours * 1e3, 4), "theirs": round(row.theirs * 1e3, 4), "ratio": round(row.ratio, 3)}
        layers.append({"work": row.work, "peer": row.peer, **times, **limits})
    parts = [
        "benchmarks/speed/engine.py::Bench",
        "benchmarks/speed/inference.py::measure",
        "benchmarks/speed/inference_peers.py",
    ]
    return {
        "command": f"{chosen_engine()}python -m benchmarks.speed.engine",
        **stamp(parts),
        **machine(),
        "roof": round(gflops),
        "peak": round(bench.peak),
        "share of the roof": round(share, 2),
        "memory": {"weft": round(memory[0] / 1e6, 1), "torch.nn.LSTM": round(memory[1] / 1e6, 1)},
        "layers": layers,
        "runtimes": others,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, nothing written")
    quick = parser.parse_args().quick
    hold_peers()
    torch.manual_seed(0)
    torch.set_num_threads(min(2, torch.get_num_threads()))
    bench = Bench(0.3 if quick else 3.0)
    gflops = roof(bench.seconds)
    bench.against_torch(LSTMCell, nn.LSTM)
    train = bench.rows[0].ours
    bench.against_torch(GRUCell, nn.GRU)
    bench.against_torch(RNNCell, nn.RNN)
    bench.against_loops()
    bench.wide()
    bench.deep()
    bench.lengths()
    bench.small()
    bench.stream()
    share = 3 * 2 * B * T * H * 4 * H / train / 1e9 / gflops  # three products of 4H x H for each token
    layer, theirs, x = Recurrent(LSTMCell(H, H)), nn.LSTM(H, H), torch.randn(B, T, H)
    memory = kept_bytes(layer, lambda: layer(x)[0]), kept_bytes(theirs, lambda: theirs(x)[0])
    found = record(bench, gflops, share, memory, runtimes(bench.seconds / 3))
    if not quick:
        write(record_name("engine"), found)
        write_pages()


if __name__ == "__main__":
    main()
