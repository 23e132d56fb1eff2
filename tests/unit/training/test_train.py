"""The trainer: schedules, stopping, saving, and resuming bit for bit."""

from __future__ import annotations

import math
import shutil
from itertools import islice, pairwise

import pytest
import torch
from torch import nn

from weft.data.field import fields_content
from weft.errors import WeftError
from weft.training.config import TrainConfig
from weft.training.gradient_descent import GradientDescent
from weft.training.loss import Loss
from weft.training.progress import Speed
from weft.training.run import CHECKPOINT, WEIGHTS, open_run, staged, write_run
from weft.training.schedule import SCHEDULES
from weft.training.step import Evaluation
from weft.training.trainer import Trainer


class Noisy(nn.Module):
    """A model whose loss depends on weights, dropout, batch and the carried state."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)

    def loss(self, batch, carried):
        h = torch.zeros(3) if carried is None else carried[0][0]
        h = torch.tanh(self.layer(batch + nn.functional.dropout(h, 0.5, self.training)))
        return Loss((h - 0.3).square().sum() * 4, 4, ((h.detach(),),))


class NumberData:
    batches = 5

    def epoch(self, number, start=0):
        for batch in range(start, self.batches):
            yield torch.tensor([number, batch, 1.0]) / 10


def trainer(path=None, scores=None, evaluate=None, **settings):
    model = Noisy()
    if path and not path.exists():
        with staged(path) as folder:
            write_run(folder, "lm", {}, fields_content({}))
    run = open_run(path) if path else None
    left = iter(scores) if scores is not None else None

    def next_score():
        score, tie_break = found if isinstance(found := next(left), tuple) else (found, 0.0)
        return Evaluation(score, {"perplexity": score}, tie_break)

    config = TrainConfig(**{"epochs": 4, "warmup_steps": 3, "save_seconds": 0, **settings})
    held_out = evaluate if left is None else next_score
    phase = GradientDescent(model, NumberData(), model.loss, config, evaluate=held_out, carried=((torch.zeros(3),),))
    return Trainer([lambda: phase], run=run)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("stop_after", [1, 5, 7, 19])
@pytest.mark.parametrize("ema_decay", [0, 0.9])
def test_resuming_is_bit_for_bit(tmp_path, optimizer, stop_after, ema_decay):
    settings = {"optimizer": optimizer, "momentum": 0.9, "schedule": "cosine", "ema_decay": ema_decay}
    straight = trainer(**settings)
    losses = [step.loss.total for step in straight.run()]
    first = trainer(tmp_path / "run", **settings)
    seen = []
    for step in first.run():
        seen.append(step.loss.total)
        if step.number == stop_after:
            break  # as a kill would: nothing is told
    torch.rand(5)  # something else draws random numbers meanwhile
    second = trainer(tmp_path / "run", **settings)
    saved = second.run_directory.load(CHECKPOINT)
    second.restore(saved.tensors, saved.metadata)
    assert second.progress.step == stop_after
    seen += [step.loss.total for step in second.run()]
    assert seen == losses
    assert torch.equal(weights(second.model), weights(straight.model))
    for mean, same in zip((straight.phase.ema or {}).values(), (second.phase.ema or {}).values(), strict=True):
        assert torch.equal(mean, same)
    assert list(second.run()) == []


def test_state_survives_a_save_between_evaluations(tmp_path):
    scores = [5.0, 4.0, 6.0, 6.0]
    straight = trainer(scores=scores, schedule="plateau", plateau_patience=0, learning_rate=0.1)
    rates = [step.learning_rate for step in straight.run()]
    first = trainer(tmp_path / "run", scores=scores, schedule="plateau", plateau_patience=0, learning_rate=0.1)
    seen = [step.learning_rate for step in islice(first.run(), 17)]
    second = trainer(tmp_path / "run", scores=scores[3:], schedule="plateau", plateau_patience=0, learning_rate=0.1)
    saved = second.run_directory.load(CHECKPOINT)
    second.restore(saved.tensors, saved.metadata)
    assert seen + [step.learning_rate for step in second.run()] == rates
    assert rates[14] == 0.1
    assert rates[15] == 0.05


def test_best_weights_are_those_of_the_best_evaluation(tmp_path):
    subject = trainer(tmp_path / "run", scores=[3.0, 1.0, 2.0, 1.5])
    kept, flags = {}, []
    for step in subject.run():
        if step.evaluation:
            kept[step.number] = weights(subject.model).clone()
            flags.append(step.best)
    assert flags == [True, True, False, False]
    best = subject.run_directory.load(WEIGHTS)
    assert best.metadata["step"] == subject.progress.best_step == 10
    assert torch.equal(torch.cat([best.tensors["layer.weight"].flatten(), best.tensors["layer.bias"]]), kept[10])


def test_equal_scores_are_decided_by_the_tie_break(tmp_path):
    scores = [(1.0, 5.0), (1.0, 4.0), (1.0, 4.5), (1.0, 4.0)]
    subject = trainer(tmp_path / "run", scores=scores)
    assert [step.best for step in subject.run() if step.evaluation] == [True, True, False, False]
    assert subject.run_directory.load(WEIGHTS).metadata["step"] == 10
    subject = trainer(scores=[(1.0, 1.0), (1.0, 0.9), (0.5, 7.0), (0.6, 0.0)])  # the score comes first
    assert [step.best for step in subject.run() if step.evaluation] == [True, True, True, False]
    without = trainer(scores=[(1.0, math.nan), 1.0, 1.0, math.nan])
    assert [step.best for step in without.run() if step.evaluation] == [True, False, False, False]


def test_a_better_tie_break_is_an_improvement_for_patience():
    falling = [(1.0, 4.0), (1.0, 3.0), (1.0, 2.0), (1.0, 1.0)]
    assert list(trainer(scores=falling, patience=1).run())[-1].end == "finished"
    rising = [(1.0, 4.0), (1.0, 3.0), (1.0, 3.5), (1.0, 3.6)]
    steps = list(trainer(scores=rising, patience=1).run())
    assert (steps[-1].number, steps[-1].end) == (15, "no better evaluation")


def test_the_tie_break_of_the_best_weights_survives_a_resume(tmp_path):
    first = trainer(tmp_path / "run", scores=[(1.0, 5.0), (1.0, 4.0)])
    list(islice(first.run(), 12))
    second = trainer(tmp_path / "run", scores=[(1.0, 4.5), (1.0, 3.0)])
    saved = second.run_directory.load(CHECKPOINT)
    second.restore(saved.tensors, saved.metadata)
    assert [step.best for step in second.run() if step.evaluation] == [False, True]
    assert second.progress.best_tie_break == 3.0


def test_a_checkpoint_without_a_tie_break_is_resumed(tmp_path):
    """Those of earlier versions lack it."""
    first = trainer(tmp_path / "run", scores=[1.0, 1.0])
    list(islice(first.run(), 12))
    saved = first.run_directory.load(CHECKPOINT)
    del saved.metadata["progress"]["best_tie_break"]
    second = trainer(tmp_path / "run", scores=[(1.0, 4.0), (0.5, 3.0)])
    second.restore(saved.tensors, saved.metadata)
    assert [step.best for step in second.run() if step.evaluation] == [False, True]


def test_averaged_weights_are_evaluated_and_kept(tmp_path):
    """The running mean, by its definition: the first steps weigh little, later ones by the set memory."""
    plain = trainer()
    seen = [weights(plain.model).clone() for _ in plain.run()]
    evaluated = []

    def evaluate():
        evaluated.append(weights(subject.model).clone())
        return Evaluation(1.0 / len(evaluated), {})

    subject = trainer(tmp_path / "run", evaluate=evaluate, ema_decay=0.5)
    own = [weights(subject.model).clone() for _ in subject.run()]
    assert all(torch.equal(one, other) for one, other in zip(own, seen, strict=True))  # training itself is the same
    mean, means = weights(Noisy()).clone(), []
    for number, now in enumerate(seen):
        keep = min(0.5, number / (number + 10))
        mean = keep * mean + (1 - keep) * now
        means.append(mean)
    for step, found in zip((5, 10, 15, 20), evaluated, strict=True):
        torch.testing.assert_close(found, means[step - 1])
    best = subject.run_directory.load(WEIGHTS).tensors
    torch.testing.assert_close(torch.cat([best["layer.weight"].flatten(), best["layer.bias"]]), means[-1])


def test_without_evaluations_the_mean_weights_are_the_ones_to_use(tmp_path):
    subject = trainer(tmp_path / "run", ema_decay=0.9)
    for _ in subject.run():
        pass
    found = subject.run_directory.weights()
    assert torch.equal(found["layer.bias"], subject.phase.ema["layer.bias"])
    assert not torch.equal(found["layer.bias"], subject.model.layer.bias)


def test_averaging_can_begin_with_a_resumed_run(tmp_path):
    first = trainer(tmp_path / "run")
    list(islice(first.run(), 7))
    second = trainer(tmp_path / "run", ema_decay=0.9)
    saved = second.run_directory.load(CHECKPOINT)
    second.restore(saved.tensors, saved.metadata)
    assert torch.equal(second.phase.ema["layer.bias"], second.model.layer.bias)
    assert [step.number for step in second.run()] == list(range(8, 21))


def test_patience_ends_training():
    steps = list(trainer(scores=[3.0, 4.0, 5.0, 1.0], patience=2).run())
    assert steps[-1].number == 15
    assert steps[-1].end == "no better evaluation"


def test_evaluation_every_few_steps_and_at_the_end():
    steps = [step.number for step in trainer(scores=range(99), evaluate_every=7).run() if step.evaluation]
    assert steps == [7, 14, 20]


def test_time_is_up():
    steps = list(trainer(scores=range(99), minutes=1e-9).run())
    assert [(step.number, step.end) for step in steps] == [(1, "time is up")]
    assert steps[0].evaluation


class SimulatedTime:
    """The clock of a machine on which a step takes 0.5 s, the first one 3 s, an evaluation 4 s, a checkpoint 0.3 s."""

    def __init__(self, subject, *, batches=5, slow=lambda step: 1.0):
        self.now, self.subject, self.slow = 100.0, subject, slow
        phase = subject.phase
        phase.data.batches = phase.evaluate_every = batches
        save, objective = subject.save, phase.objective
        phase.evaluate = lambda: self.after(4.0, Evaluation(1 / subject.progress.step, {"perplexity": 1.0}))
        subject.save = lambda: self.after(0.3, save())
        phase.objective = lambda *given: self.after(self.step_seconds(), objective(*given))

    def step_seconds(self):
        number = self.subject.progress.step
        return (3.0 if not number else 0.4 + 0.2 * (number * 7 % 11) / 10) * self.slow(number)

    def after(self, seconds, result):
        self.now += seconds
        return result

    def perf_counter(self):
        return self.now


@pytest.fixture
def simulated(monkeypatch):
    def simulate(subject, **machine):
        monkeypatch.setattr("weft.training.distributed.time", SimulatedTime(subject, **machine))
        return subject

    return simulate


LONG = {"epochs": 10_000, "schedule": "cosine", "save_seconds": 20}


@pytest.mark.parametrize("minutes", [0.5, 2, 30])
@pytest.mark.parametrize("batches", [60, 100_000])  # many epochs, less than one
def test_a_time_limit_ends_with_the_schedule_complete(simulated, minutes, batches):
    subject = simulated(trainer(minutes=minutes, **LONG), batches=batches)
    subject.progress.seconds = 6.0  # reading the data
    steps = list(subject.run())
    assert steps[-1].end == "time is up"
    assert steps[-1].number == steps[-1].total == subject.progress.planned_steps
    assert 0.9 < subject.progress.seconds / (60 * minutes) <= 1
    rates = [step.learning_rate for step in steps]
    assert rates[-1] < 0.02 * max(rates)
    assert rates[len(rates) // 2] == pytest.approx(0.5 * max(rates), rel=0.3)  # and warm-up
    assert steps[-1].evaluation


def test_resuming_a_plan_is_bit_for_bit_whatever_the_resume_takes(simulated, tmp_path):
    limit = {"minutes": 1, **LONG}
    straight = simulated(trainer(tmp_path / "straight", **limit), batches=23)
    expected, planned = [], 0
    for step in straight.run():
        expected.append(step.loss.total)
        if straight.progress.planned_steps and not planned:
            shutil.copytree(tmp_path / "straight", tmp_path / "again")
            planned = step.number
    seen = expected[:planned]
    for pause in (9, 30, 10_000):  # killed twice
        second = simulated(trainer(tmp_path / "again", **limit), batches=23, slow=lambda step: 1.05)
        saved = second.run_directory.load(CHECKPOINT)
        second.restore(saved.tensors, saved.metadata)
        del seen[second.progress.step :]
        seen += [step.loss.total for step in islice(second.run(), pause)]
    assert seen == expected
    assert torch.equal(weights(second.model), weights(straight.model))
    assert second.end_reason() == "time is up"
    assert list(second.run()) == []


def test_epochs_that_end_before_the_time_are_trained_as_without_a_limit(simulated):
    free = trainer(epochs=7, schedule="cosine")
    list(free.run())
    for minutes in (2, 60):  # planned, or ended before that
        limited = simulated(trainer(epochs=7, schedule="cosine", minutes=minutes))
        assert list(limited.run())[-1].end == "finished"
        assert torch.equal(weights(limited.model), weights(free.model))


def test_a_machine_that_gets_slower_shortens_the_plan(simulated):
    subject = simulated(trainer(minutes=4, **LONG), batches=100, slow=lambda step: 1.0 if step < 100 else 2.0)
    steps = list(subject.run())
    assert steps[-1].end == "time is up"
    assert 0.9 * 240 < subject.progress.seconds <= 240
    assert steps[-1].learning_rate < 0.02 * max(step.learning_rate for step in steps)


@pytest.mark.parametrize("slower", [1.02, 1.05, 1.08])
def test_a_machine_that_gets_a_little_slower_keeps_the_limit(simulated, slower):
    subject = simulated(trainer(minutes=4, **LONG), batches=100, slow=lambda step: 1.0 if step < 80 else slower)
    steps = list(subject.run())
    assert 0.92 * 240 < subject.progress.seconds <= 240
    assert steps[-1].learning_rate < 0.02 * max(step.learning_rate for step in steps)


@pytest.mark.parametrize("slow", [range(60), range(200, 300)])  # when it was planned, and later
def test_a_machine_that_gets_faster_lengthens_the_plan(simulated, slow):
    subject = simulated(trainer(minutes=4, **LONG), batches=100, slow=lambda step: 4.0 if step in slow else 1.0)
    steps = list(subject.run())
    assert steps[-1].end == "time is up"
    assert 0.9 < subject.progress.seconds / 240 <= 1
    assert steps[-1].learning_rate < 0.02 * max(step.learning_rate for step in steps)
    assert steps[-1].number == steps[-1].total == subject.progress.planned_steps


def test_another_limit_is_planned_anew(simulated, tmp_path):
    list(simulated(trainer(tmp_path / "run", minutes=0.5, **LONG), batches=1000).run())
    more = simulated(trainer(tmp_path / "run", minutes=1, **LONG), batches=1000)
    saved = more.run_directory.load(CHECKPOINT)
    more.restore(saved.tensors, saved.metadata)
    assert list(more.run())[-1].end == "time is up"
    assert 54 < more.progress.seconds <= 60


@pytest.mark.parametrize("minutes", [0, 5])
def test_speed_and_remaining_time_do_not_jump_at_an_evaluation(simulated, minutes):
    subject = simulated(trainer(minutes=minutes, **{**LONG, "epochs": 12}), batches=50)
    speed, ends, speeds, first = Speed(), [], [], 0
    for step in subject.run():
        speeds.append(speed.add(step))
        ends.append(step.seconds + step.remaining)
        first = first or bool(step.evaluation) * step.number  # until then the length of an evaluation is not known
    assert max(abs(b / a - 1) for a, b in pairwise(ends[first:])) < 0.01
    assert ends[first] == pytest.approx(ends[-1], rel=0.05)
    assert all(shown == pytest.approx(4 / 0.5, rel=0.15) for shown in speeds[10:])


def test_stop_finishes_the_step_and_saves(tmp_path):
    subject = trainer(tmp_path / "run", scores=range(99), save_seconds=1000)
    for step in subject.run():
        if step.number == 3:
            subject.stop()
    assert (step.number, step.end, step.evaluation) == (4, "interrupted", None)
    assert subject.run_directory.load(CHECKPOINT).metadata["progress"]["step"] == 4


def test_clipping_bounds_the_step():
    wild, tame = (
        trainer(optimizer="sgd", learning_rate=1.0, clip_norm=clip, schedule="constant") for clip in (0.0, 0.01)
    )
    norms = {}
    for subject in (wild, tame):
        before = weights(subject.model).clone()
        step = next(subject.run())
        norms[subject] = (step.grad_norm, float((weights(subject.model) - before).norm()))
    assert norms[wild][0] == pytest.approx(norms[wild][1], rel=1e-4)
    assert norms[tame][0] == pytest.approx(norms[wild][0])
    assert norms[tame][1] == pytest.approx(0.01, rel=1e-3)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_state(tmp_path):
    subject = trainer(tmp_path / "run", save_seconds=1000)
    honest = subject.phase.objective

    def spoiled(batch, carried):
        loss = honest(batch, carried)
        return loss._replace(total=loss.total * math.nan) if subject.progress.step == 6 else loss

    subject.phase.objective = spoiled
    with pytest.raises(WeftError, match=r"step 7: the loss is nan.*train\.learning_rate=.*`resume`"):
        list(subject.run())
    saved = subject.run_directory.load(CHECKPOINT)
    assert saved.metadata["progress"]["step"] == 6
    assert all(tensor.isfinite().all() for name, tensor in saved.tensors.items() if name.startswith("model."))


def test_schedules():
    cosine = [SCHEDULES["cosine"](step, 100, 10) for step in range(100)]
    assert cosine[0] == pytest.approx(1 / 11)
    assert cosine[10] == 1.0
    assert all(a < b for a, b in pairwise(cosine[:11]))
    assert all(a > b for a, b in pairwise(cosine[10:]))
    assert cosine[55] == pytest.approx(0.5)
    assert 0 < cosine[-1] < 1e-3
    assert SCHEDULES["constant"](50, 100, 10) == 1.0


def test_a_short_training_reaches_its_full_rate():
    """20 steps: with a warm-up of 200 it would end at a tenth of the rate."""
    rates = [step.learning_rate for step in trainer(warmup_steps=200, schedule="cosine", learning_rate=0.01).run()]
    assert rates.index(max(rates)) == 5
    assert max(rates) == pytest.approx(0.01)


def test_metrics_are_reported(tmp_path):
    subject = trainer(tmp_path / "run", scores=[3.0, 2.0, 1.0, 0.5])
    losses = [step.loss for step in subject.run()]
    records = subject.run_directory.metrics()
    assert [record["step"] for record in records] == [5, 10, 15, 20]
    expected = sum(loss.total for loss in losses[5:10]) / sum(loss.count for loss in losses[5:10])
    assert records[1]["train_cross_entropy"] == pytest.approx(expected)
    assert records[1]["evaluation"] == {"perplexity": 2.0}
