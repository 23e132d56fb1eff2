"""The gradient of a batch that is cut into slices: the same bits whatever the number of processes.

Each slice is a part of the batch's rows, with random numbers of its own. Losses are sums, so the gradient of the batch
is the sum of the gradients of its slices, divided once by the number of predictions. Floating-point addition is not
associative, so the slices are added in the order of a fixed binary tree:

    ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))

A worker computes consecutive slices and adds those that are neighbours in the tree. The sums of all workers are then
exchanged: worker r receives part r of every sum, adds them in the order of the tree, and sends the result to all.
Where each worker has a whole branch, this moves as much as a ring all-reduce: 2 (W-1)/W times the gradient per worker.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from weft.cells import State
from weft.nn import map_state
from weft.nn.states import state_leaves
from weft.training.config import TrainConfig
from weft.training.distributed import Workers, split_evenly
from weft.training.loss import Loss, MeanLoss


class Branch(NamedTuple):
    """A node of the tree: the sum of the slices from `first` on."""

    first: int
    slices: int  # how many; a power of 2
    total: Tensor | None  # None where only the shape of the tree matters


def add_branch(branches: list[Branch], new: Branch) -> None:
    """Appends a branch to those of the slices before it and adds all that are neighbours in the tree, in place."""
    branches.append(new)
    while len(branches) > 1:
        left, right = branches[-2:]
        if left.slices != right.slices or left.first % (2 * left.slices):
            return
        total = left.total if left.total is None or right.total is None else left.total.add_(right.total)
        branches[-2:] = [Branch(left.first, 2 * left.slices, total)]


def branches_of(slices: range) -> list[Branch]:
    """The branches that a worker with these slices has, without their sums.

    >>> [(branch.first, branch.slices) for branch in branches_of(range(2, 7))]
    [(2, 2), (4, 2), (6, 1)]
    """
    found: list[Branch] = []
    for number in slices:
        add_branch(found, Branch(number, 1, None))
    return found


def sum_slices(
    workers: Workers, slices: int, parts: Iterable[Tensor], notes: Sequence[float], *, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds one vector of every slice, of all workers, in the order of the tree.

    Args:
        slices: the number of slices of all workers.
        parts: (N,) of each slice of this worker, in order; changed in place.
        notes: further values of this worker, which are not added. Read after all parts.
        like: a tensor of the type and device of the parts, (N,).

    Returns:
        The sum (N,), and the notes of all workers (workers, notes) in float64.
    """
    blocks = split_evenly(slices, workers.size)
    own: list[Branch] = []
    for number, part in zip(blocks[workers.rank], parts, strict=True):
        add_branch(own, Branch(number, 1, part))
    if workers.alone:
        return _fold(own), torch.tensor([list(notes)], dtype=torch.float64)
    width = -(-like.numel() // workers.size)
    sums = [nn.functional.pad(_sum(branch), (0, width * workers.size - like.numel())) for branch in own]
    mine = like.new_empty(0)
    pieces = [torch.cat([mine, *(one[width * to : width * (to + 1)] for one in sums)]) for to in range(workers.size)]
    shapes = [branches_of(block) for block in blocks]
    received = workers.exchange(pieces, [width * len(shape) for shape in shapes])
    merged: list[Branch] = []
    for shape, piece in zip(shapes, received, strict=True):
        for branch, total in zip(shape, piece.view(len(shape), width), strict=True):
            add_branch(merged, branch._replace(total=total))
    # The notes travel as bits beside the sums: float64 as pairs of float32.
    bits = torch.tensor(list(notes), dtype=torch.float64).view(like.dtype).to(like.device)
    gathered = workers.collect(torch.cat([_fold(merged), bits]))
    return gathered[:, :width].reshape(-1)[: like.numel()], gathered[:, width:].cpu().contiguous().view(torch.float64)


def _sum(branch: Branch) -> Tensor:
    assert branch.total is not None
    return branch.total


def _fold(branches: list[Branch]) -> Tensor:
    """The sum of the branches that have no neighbour, from left to right."""
    first, *rest = map(_sum, branches)
    for total in rest:
        first = first.add_(total)
    return first


def slice_seed(seed: int, step: int, number: int) -> int:
    """The seed of one slice of one step."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {step} {number}".encode(), digest_size=8).digest(), "little") >> 1


class SlicedGradient:
    """Computes the gradient of a batch slice by slice, together with the other workers.

    `stop_requested` says whether this worker is asked to stop; after `compute`, whether any worker was.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], config: TrainConfig, workers: Workers) -> None:
        self.parameters, self.slices, self.seed, self.workers = parameters, config.slices, config.seed, workers
        self.own = split_evenly(self.slices, workers.size)[workers.rank]
        self.sizes = [parameter.numel() for parameter in parameters]
        self.stop_requested = False

    def compute(
        self,
        batch: Callable[[int], Any],
        objective: Callable[[Any, State], Loss],
        carried: list[State] | None,
        step: int,
    ) -> tuple[MeanLoss, list[State]]:
        """Sets the gradients of the parameters to those of the mean loss of the whole batch.

        Args:
            batch: reads a slice; None if it has no rows.
            objective: as for `GradientDescent`.
            carried: the state of each of this worker's slices.

        Returns:
            The loss of the whole batch, and the states to carry.
        """
        losses, states = list[tuple[float, float]](), list[State]()
        present = [0.0] * len(self.parameters)
        notes: list[float] = []

        def gradients() -> Iterator[Tensor]:
            for place, number in enumerate(self.own):
                torch.manual_seed(slice_seed(self.seed, step, number))
                part = batch(number)
                for parameter in self.parameters:
                    parameter.grad = None
                loss = None if part is None else objective(part, None if carried is None else carried[place])
                if loss is not None:
                    loss.total.backward()  # type: ignore[no-untyped-call]
                losses.append((0.0, 0.0) if loss is None else (float(loss.total.detach()), loss.count))
                states.append(None if loss is None else loss.state)
                yield self._flatten(present)
            notes.extend([time.perf_counter(), float(self.stop_requested), *present])
            notes.extend(value for pair in losses for value in pair)
            notes.extend([0.0] * (2 * -(-self.slices // self.workers.size) - 2 * len(losses)))  # as long in all workers

        like = self.parameters[0].new_empty(sum(self.sizes))
        total, found = sum_slices(self.workers, self.slices, gradients(), notes, like=like)
        torch.manual_seed(slice_seed(self.seed, step, self.slices))  # the same in all workers from here on
        if not self.workers.alone:
            self.workers.set_clock(float(found[0, 0]))
        self.stop_requested = bool(found[:, 1].any())
        used, pairs = found[:, 2 : 2 + len(present)], found[:, 2 + len(present) :]
        loss, count = (sum(pairs.reshape(-1, 2)[:, column].tolist()) for column in (0, 1))
        total.mul_(1 / max(1, int(count)))
        for parameter, gradient, has_gradient in zip(
            self.parameters, total.split_with_sizes(self.sizes), used.any(0).tolist(), strict=True
        ):
            parameter.grad = gradient.view_as(parameter) if has_gradient else None
        return MeanLoss(loss, int(count)), states

    def _flatten(self, present: list[float]) -> Tensor:
        """All gradients in one vector; notes in `present` which parameters have one."""
        flat = self.parameters[0].new_empty(sum(self.sizes))
        for number, (parameter, target) in enumerate(
            zip(self.parameters, flat.split_with_sizes(self.sizes), strict=True)
        ):
            if parameter.grad is None:
                target.zero_()
            else:
                present[number] = 1.0
                target.copy_(parameter.grad.reshape(-1))
        return flat

    def join(self, carried: list[State] | None) -> State:
        """The carried state of all rows of all workers; every worker has to call it."""
        if carried is None:
            return None
        states = [state for some in self.workers.gather(carried) for state in some if state is not None]
        if not states:
            return None
        columns = zip(*map(state_leaves, states), strict=True)
        whole = iter([torch.cat(column) for column in columns])
        return map_state(lambda like: next(whole), states[0])

    def split(self, state: State) -> list[State] | None:
        """The states of this worker's slices, from that of all rows."""
        if state is None:
            return None
        return [
            map_state(lambda leaf, number=number: leaf.tensor_split(self.slices)[number], state)  # type: ignore[misc]
            for number in self.own
        ]
