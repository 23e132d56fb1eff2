"""Discriminative learning rates and gradual unfreezing, for models that start from pretrained layers.

The parameters are in groups, from the output layer down to the embedding. Group i is trained at decay^i times the
learning rate, and only from step i * interval on: new layers come first, then the pretrained ones from the top down.

Howard and Ruder 2018, "Universal language model fine-tuning for text classification".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


class LayerGroups:
    """Groups of parameters with learning rates of their own, frozen until their turn.

    Args:
        groups: the parameters of each group; the first group is trained from the first step on.
        decay: the factor of the learning rate from each group to the next.
        unfreeze_epochs: the epochs of training between the unfreezing of one group and the next; 0: none is frozen.
            All groups are trained in the second half of a training, however short it is.
    """

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]], decay: float, unfreeze_epochs: float) -> None:
        self.groups, self.decay, self.unfreeze_epochs = [list(group) for group in groups], decay, unfreeze_epochs

    def active(self, step: int, *, epoch_steps: int, total: int) -> int:
        """The number of groups that are trained at a step, counted from 0."""
        interval = min(round(self.unfreeze_epochs * epoch_steps), total // (2 * max(1, len(self.groups) - 1)))
        return min(len(self.groups), 1 + step // interval) if interval else len(self.groups)

    def freeze(self, active: int) -> None:
        """Sets `requires_grad`: true for the parameters of the first `active` groups."""
        for number, group in enumerate(self.groups):
            for parameter in group:
                parameter.requires_grad_(number < active)

    def rate_factors(self, parameters: Sequence[nn.Parameter]) -> list[float]:
        """The factor of the learning rate of each parameter; 1 for those in no group."""
        factors = {id(one): self.decay**number for number, group in enumerate(self.groups) for one in group}
        return [factors.get(id(parameter), 1.0) for parameter in parameters]
