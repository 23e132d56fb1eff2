"""The path of devices without the engine: torch's fused layers, mixed precision, and where tensors are.

There is no GPU here. The same code runs on the CPU with the engine off; on torch's meta device, which has shapes and no
values, it shows that no operation mixes tensors of two devices.
"""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
import torch.fx.experimental._config

import weft
from tests.unit.training.test_slices import CASES, SMALL, TEXT
from weft.cells import CELLS, CoupledGateCell
from weft.engine import Pass
from weft.nn import Bidirectional, GRUCell, LSTMCell, Recurrent, ReLURNNCell, RNNCell, layers
from weft.nn.steps import FUSED, run_fused, run_steps
from weft.tasks import get_task
from weft.training.devices import mixed_precision

LENGTHS = torch.tensor([3, 6, 1, 6, 4])


@pytest.fixture
def engine_off(monkeypatch):
    for module in ("weft.engine.library", "weft.chains.kernel", "weft.training.devices"):
        monkeypatch.setattr(sys.modules[module], "library", lambda: None)
    monkeypatch.setenv("WEFT_ENGINE", "off")


def case(kind):
    torch.manual_seed(0)
    cell = kind(3, 4).double()
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(5, 6, 3, dtype=torch.float64, requires_grad=True)
    state = type(cell.initial_state(5))(*(torch.randn_like(part) for part in cell.initial_state(5)))
    return cell, x, state


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
@pytest.mark.parametrize("kind", FUSED)
def test_fused_layers_are_the_equations(kind, lengths, reverse):
    """Outputs, final state and all gradients."""
    cell, x, state = case(kind)
    found = []
    for run in ("fused", "steps"):
        for tensor in (x, *cell.parameters()):
            tensor.grad = None
        if run == "fused":
            outputs, last = run_fused(cell, x, state, lengths, reverse)
        else:
            states, _, last = run_steps(Pass(cell, reverse), x, state, lengths)
            outputs = states.h
        weights = torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).view_as(outputs)
        ((outputs * weights).sum() + sum(part.sum() for part in last)).backward()
        found.append([outputs, *last, x.grad, *(parameter.grad for parameter in cell.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    if lengths is not None:
        assert (found[0][0][torch.arange(6) >= LENGTHS[:, None]] == 0).all()


@pytest.mark.parametrize("kind", FUSED)
def test_padding_never_reaches_a_fused_layer(kind, engine_off):
    layer = Bidirectional(kind(3, 4), kind(3, 5))
    x = torch.randn(5, 6, 3)
    x[torch.arange(6) >= LENGTHS[:, None]] = torch.nan
    x.requires_grad_()
    outputs, _ = layer(x, lengths=LENGTHS)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("kind", CELLS.values())
def test_the_engine_off_takes_fused_layers_where_the_cell_is_theirs(kind, engine_off, monkeypatch):
    used = []
    monkeypatch.setattr(layers, "run_fused", lambda *given: used.append(1) or run_fused(*given))
    layer, x = Recurrent(kind(3, 4)), torch.randn(5, 6, 3)
    for lengths in (None, LENGTHS, torch.tensor([0, 6, 1, 6, 4])):
        outputs, _ = layer(x, lengths=lengths)
        torch.testing.assert_close(outputs, layer.record(x, lengths=lengths).states.h)
    # A row without steps is for the loop.
    assert len(used) == (2 if kind in (RNNCell, ReLURNNCell, GRUCell, LSTMCell) else 0)


@pytest.mark.parametrize("kind", [LSTMCell, GRUCell, RNNCell, CoupledGateCell])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_mixed_precision_without_the_engine(kind, lengths, engine_off):
    """Products in bfloat16; states, weights and gradients in float32; close to float32."""
    torch.manual_seed(1)
    layer, x = Recurrent(kind(3, 4)), torch.randn(5, 6, 3)
    exact, _ = layer(x, lengths=lengths)
    with mixed_precision("bf16", "cpu"):
        rounded, last = layer(x, lengths=lengths)
    assert not rounded.float().equal(exact)
    torch.testing.assert_close(rounded.float(), exact, atol=0.05, rtol=0.05)
    rounded.float().sum().backward()
    assert {part.dtype for part in (*last, *(parameter.grad for parameter in layer.parameters()))} == {torch.float32}
    with mixed_precision("float32", "cpu"):
        assert layer(x, lengths=lengths)[0].equal(exact)


def network_steps(trainer):
    """The steps of the network; linear models that are fitted before have no loss."""
    return (step for step in trainer.run() if not step.note)


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_every_task_trains_and_predicts_without_the_engine_in_both_precisions(name, slices, tmp_path, engine_off):
    source, settings = CASES[name]
    losses = []
    for precision in ("float32", "bf16"):
        chosen = {**SMALL, **settings, "train.precision": precision, "train.slices": slices, "train.epochs": 1}
        training = get_task(name).start(source, tmp_path / precision, chosen)
        steps = list(itertools.islice(network_steps(training.trainer), 4))
        assert {parameter.dtype for parameter in training.model.parameters()} == {torch.float32}
        losses.append([step.loss.value for step in steps])
        assert training.trainer.phase.evaluate().metrics
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.03)


@pytest.mark.parametrize("name", CASES)
def test_no_operation_of_a_loss_mixes_devices(name, tmp_path):
    source, settings = CASES[name]
    if name == "tag":
        settings = {**settings, "model.output": "softmax"}  # a CRF is computed on the CPU
    training = get_task(name).start(source, tmp_path / "run", {**SMALL, **settings, "train.epochs": 1})
    model, phase = training.model.to("meta"), training.trainer.phase
    # Without values, masks are taken to select everything.
    with torch.fx.experimental._config.patch(meta_nonzero_assume_all_nonzero=True):
        loss = phase.objective(next(phase.data.epoch(0)), None)
        assert loss.total.is_meta
        loss.total.backward()
    assert all(parameter.grad is None or parameter.grad.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("name", CASES)
def test_a_new_run_chooses_the_fastest_precision_and_keeps_it(name, tmp_path, monkeypatch):
    source, settings = CASES[name]
    task, settings = get_task(name), {**SMALL, **settings, "train.epochs": 1}
    for fastest in ("bf16", "float32"):
        for module in ("weft.training.devices", "weft.tasks.lm.recipe"):
            monkeypatch.setattr(f"{module}.fastest_precision", lambda device, fastest=fastest: fastest)
        training = task.start(source, tmp_path / fastest, settings)
        assert training.run.config["train"]["precision"] == fastest
        training.lock.release()
    resumed = task.resume(tmp_path / "bf16", {"train.epochs": 2})  # on a machine whose fastest is float32
    assert resumed.trainer.phase.config.precision == "bf16"
    given = task.start(source, tmp_path / "given", {**settings, "train.precision": "bf16"})
    first, second = (next(network_steps(one.trainer)).loss.value for one in (resumed, given))
    assert first == second


def test_a_precision_that_is_not_known(tmp_path):
    with pytest.raises(weft.WeftError, match="one of: float32, bf16"), mixed_precision("fp8", "cpu"):
        pass
    with pytest.raises(weft.WeftError, match=r"train\.precision"):
        get_task("lm").start(TEXT, tmp_path / "run", {"train.precision": "fp8"})
