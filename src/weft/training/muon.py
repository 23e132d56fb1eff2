"""Muon: momentum with orthogonalised updates, for the matrices of hidden layers (Jordan et al. 2024).

    M <- beta M + G
    W <- (1 - rate * weight_decay) W - rate * 0.2 sqrt(max(rows, columns)) * orthogonal(M)

With the singular value decomposition M = U S V^T, orthogonal(M) is about U V^T: the update moves the weights equally
far in all directions, also in those of small gradients. The factor gives it the size of an update of AdamW, so that
both have one learning rate (Liu et al. 2025, "Muon is scalable for LLM training").

Two things differ from `torch.optim.Muon`. Each gate is a matrix of its own. And M is orthogonalised only every
`interval` steps, with `interval` times the rate: the products of the orthogonalisation take as long as a step of a
small batch, and the momentum of about 20 steps changes little in between.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from weft.cells import Cell

# Newton-Schulz: X <- a X + b (X X^T) X + c (X X^T)^2 X. Five steps of these coefficients (Jordan) map singular values
# from 0.01 to 1 into 0.7 to 1.2.
COEFFICIENTS, NEWTON_SCHULZ_STEPS = (3.4445, -4.7750, 2.0315), 5
UPDATE_SIZE = 0.2  # root mean square of an update's elements, as of AdamW's


class Muon(NamedTuple):
    """The rule of one matrix. Its blocks of rows, one for each gate, are matrices of their own."""

    block_rows: int
    weight_decay: float = 0.0
    beta1: float = 0.95
    interval: int = 8
    low_precision: bool = False  # whether the products are in bfloat16
    buffers: tuple[str, ...] = ("momentum_buffer",)  # torch's name, used in saved states

    def is_due(self, step: int) -> bool:
        """Whether the weights are updated at a step, counted from 1. The first step is one, for short trainings."""
        return (step - 1) % self.interval == 0

    def update(self, weight: Tensor, momentum: Tensor, learning_rate: float) -> None:
        """Updates the weights in place, for all steps of the interval."""
        rate = self.interval * learning_rate
        blocks = momentum.reshape(-1, self.block_rows, momentum.shape[-1])
        size = UPDATE_SIZE * max(blocks.shape[1:]) ** 0.5
        orthogonal = orthogonalize(blocks.bfloat16() if self.low_precision else blocks)
        weight.mul_(1 - rate * self.weight_decay).add_(orthogonal.reshape(weight.shape), alpha=-rate * size)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Replaces the singular values of matrices (..., N, M) by values near 1; those below 0.01 of all become smaller.

    >>> import torch
    >>> torch.linalg.svdvals(orthogonalize(torch.diag(torch.tensor([4.0, 2.0, -1.0])))).round(decimals=2)
    tensor([1.1300, 0.8200, 0.7000])
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    found: Tensor = x.mT if is_tall else x
    return found


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices between embeddings and output layers, each with the rows of a block.

    These are the matrices of cells, whose blocks are the gates, and of linear layers; but not those of the modules that
    a model names in `output_layers`, whose rows stand for labels or words.
    """
    found = dict[nn.Parameter, int]()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and not name.startswith(tuple(getattr(model, "output_layers", ()))):
            found |= {one: module.out_features for one in module.parameters() if one.ndim == 2}
        elif isinstance(module, Cell):
            found |= {one: module.hidden_size for one in module.parameters() if one.ndim == 2}
    return found
