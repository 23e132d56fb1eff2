"""What reaches the core is checked, and nothing that goes wrong inside it ends the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from array import array
from dataclasses import replace

import pytest
import torch

from weft import abi, engine
from weft import chains as chain
from weft.abi import Status
from weft.cells import GRUCell, LSTMCell
from weft.chains import Chains, kernel
from weft.compiler import StepMasks
from weft.decoding import Sample
from weft.engine import OptimizerStep, Pass, Stream
from weft.engine.encode import ProgramHeader
from weft.engine.library import check
from weft.errors import WeftError

pytestmark = pytest.mark.skipif(engine.library() is None, reason="the engine is not built here")


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


WRONG = {
    "device": lambda tensor: tensor.to("meta"),
    "type": lambda tensor: tensor.double(),
    "size": lambda tensor: torch.cat([tensor, tensor])[: len(tensor) + 1],
}


@pytest.mark.parametrize("which", [1, 2, 3, 4])
@pytest.mark.parametrize("wrong", [*WRONG, "layout"])
def test_every_tensor_of_an_optimizer_step(which, wrong):
    """Gradient, both moments and the moving average: else the core writes to where nothing is."""
    tensors = [torch.ones(4, 6) for _ in range(5)]
    assert OptimizerStep.of([tuple(tensors)]) is not None
    tensors[which] = torch.ones(6, 4).t() if wrong == "layout" else WRONG[wrong](tensors[which])
    assert OptimizerStep.of([tuple(tensors)]) is None


def run(cell=None, x=None, state=None, lengths=None, **kinds):
    cell = cell or GRUCell(3, 5)
    return engine.run_layers(
        [[Pass(cell, False, **kinds)]], torch.randn(2, 4, 3) if x is None else x, [[state]], lengths
    )


@pytest.mark.parametrize("wrong", WRONG)
def test_states_and_masks_of_a_layer(wrong):
    cell = LSTMCell(3, 5)
    state = cell.initial_state(2)
    assert run(cell, state=state) is not None
    for changed in (state._replace(h=WRONG[wrong](state.h)), state._replace(c=WRONG[wrong](state.c))):
        with pytest.raises(WeftError):
            run(cell, state=changed)
    row_mask, step_mask = torch.ones(2, 5), torch.ones(2, 4, 10)
    assert run(cell, noise=StepMasks(recurrent_dropout=True), row_mask=row_mask) is not None
    assert run(cell, noise=StepMasks(zoneout=True), step_mask=step_mask) is not None
    with pytest.raises(WeftError, match="a mask of the rows"):
        run(cell, noise=StepMasks(recurrent_dropout=True), row_mask=WRONG[wrong](row_mask))
    with pytest.raises(WeftError, match="a mask of the steps"):
        run(cell, noise=StepMasks(zoneout=True), step_mask=WRONG[wrong](step_mask))


@pytest.mark.parametrize("lengths", [[1], [1, 2, 3], [-1, 2], [1, 5]])
def test_lengths_of_a_layer(lengths):
    with pytest.raises(WeftError, match="length"):
        run(lengths=torch.tensor(lengths))


def test_shapes_of_x():
    for x in (torch.randn(2, 3), torch.randn(1, 2, 4, 3), torch.zeros(2, 4, 1, dtype=torch.int64)):
        with pytest.raises(WeftError, match="x is"):
            run(x=x)


@pytest.mark.parametrize("wrong", ["device", "size"])
def test_tensors_of_a_stream(wrong):
    cells, weight, bias = [GRUCell(7, 5)], torch.randn(7, 5), torch.randn(7)
    with pytest.raises(WeftError, match=r"weight is|bias is"):
        Stream(cells, WRONG[wrong](weight), bias)
    with pytest.raises(WeftError, match="bias is"):
        Stream(cells, weight, WRONG[wrong](bias))
    stream, uniforms = Stream(cells, weight, bias, rows=2), torch.rand(2, 3)
    with pytest.raises(WeftError, match="uniforms"):
        stream.sample(torch.tensor([1, 2]), stream.start(), WRONG[wrong](uniforms), Sample())


@pytest.fixture
def chains():
    return Chains.padded(torch.randn(3), torch.randn(3, 3), torch.randn(3), torch.randn(2, 4, 3), None)


@pytest.mark.parametrize("name", ["start", "transition", "end", "table", "ids", "begins", "lengths"])
@pytest.mark.parametrize("wrong", ["device", "type"])
def test_tensors_of_chains(name, wrong, chains):
    given = getattr(chains, name)
    changed = replace(chains, **{name: given.to("meta") if wrong == "device" else given.float()})
    for function in (kernel.partition, kernel.viterbi):
        with pytest.raises((WeftError, RuntimeError)):  # torch refuses some of them before the core would
            function(changed)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [("ids", 8, "id"), ("ids", -1, "id"), ("begins", 5, "length"), ("begins", -1, "length"), ("lengths", 9, "length")],
)
def test_positions_of_chains(name, value, match, chains):
    changed = replace(chains, **{name: getattr(chains, name).index_fill(0, torch.tensor([1]), value)})
    for function in (chain.partition, chain.viterbi):
        with pytest.raises(WeftError, match=match):
            function(changed)


@pytest.mark.parametrize("name", ["start", "transition", "table"])
def test_sizes_of_chains(name, chains):
    given = getattr(chains, name)
    with pytest.raises((WeftError, RuntimeError)):
        kernel.viterbi(replace(chains, **{name: given[..., :-1]}))


def test_a_compiled_graph_that_brings_other_tensors():
    from weft.engine import compiled

    cell = GRUCell(3, 5)
    number, _, *names = compiled.described(cell, True, False, False, (0.0).hex()).split(" ")
    parameters = [getattr(cell, name).detach() for name in names]
    x, state = torch.randn(2, 4, 3), torch.zeros(2, 5)

    def forward(x=x, parameters=parameters, state=state, lengths=None):
        there = [True] * (len(parameters) + 1)
        return compiled.run_operator(
            x, lengths, [*parameters, state], [], there, [False, False], [int(number)], [False], 0, True
        )

    assert len(forward()) == 3
    with pytest.raises(WeftError):
        forward(x=torch.randn(2, 4, 2))
    with pytest.raises(WeftError):
        forward(parameters=[*parameters[:-1], parameters[-1][:-1]])
    with pytest.raises(WeftError):
        forward(state=torch.zeros(1, 5))
    with pytest.raises(WeftError):
        forward(lengths=torch.tensor([4]))


def run_alone(program):
    """In a process of its own, with little memory beyond what it has: what ends the process ends only that one."""
    start = (
        "import ctypes, resource\nfrom array import array\nimport torch\nfrom weft import engine\n"
        "from weft import abi\nfrom weft.abi import Status\nlibrary = engine.library()\n"
        "def limit_memory(extra):\n"
        "    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start + program], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it limits memory as Linux does")
def test_running_out_of_memory_is_an_error_of_the_call():
    header = dict.fromkeys(ProgramHeader._fields, 0)
    found = run_alone(
        "from weft.engine.encode import ProgramHeader\n"
        f"header = ProgramHeader(**{ {**header, 'backward_order': 2**61} })\n"
        "print(library.weft_new_program(array('q', header).tobytes()))\n"
        "values = torch.zeros(4)\n"
        "state = array('q', abi.ParameterState(2**50, *[values.data_ptr()] * 5))\n"
        "norm, size = ctypes.c_double(), array('d', [0.1, 1.0])\n"
        "limit_memory(2**26)\n"
        "call = abi.packer(abi.NormCall)(0, 1, 1, state.buffer_info()[0], ctypes.addressof(norm))\n"
        "print(library.weft_gradient_norm(call))\n"
        "call = abi.packer(abi.OptimizerCall)(0, 1, 1, state.buffer_info()[0], size.buffer_info()[0], *[0.5] * 6)\n"
        "print(library.weft_optimizer_step(call))\n"
        "print(library.weft_peak(abi.packer(abi.PeakCall)(2**61, ctypes.addressof(norm))))\n"
    )
    assert found == [str(int(Status.out_of_memory))] * 4


def test_a_call_that_fails_raises():
    with pytest.raises(MemoryError):
        check(Status.out_of_memory)
    with pytest.raises(RuntimeError, match="failed"):
        check(Status.failed)


def test_a_program_that_is_too_large_raises():
    header = dict.fromkeys(ProgramHeader._fields, 0)
    code = engine.library().weft_new_program(array("q", ProgramHeader(**{**header, "backward_order": 2**61})).tobytes())
    assert code == Status.out_of_memory


def test_handles_of_nothing_may_be_freed():
    core = engine.library()
    assert core.weft_free_program(None) == core.weft_free_stream(None) == Status.ok


def test_the_peak_of_the_machine():
    flops = ctypes.c_double()
    call = abi.packer(abi.PeakCall)(threads=1, flops=ctypes.addressof(flops))
    assert engine.library().weft_peak(call) == Status.ok
    assert flops.value > 1e6
