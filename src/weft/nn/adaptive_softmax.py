"""The adaptive softmax: an output layer for large vocabularies, and the embedding that shares its tables.

    P(w) = P_head(w)                            for the frequent tokens
    P(w) = P_head(cluster of w) P_cluster(w)    for the rare ones

Tokens are sorted by frequency and cut into clusters. The head predicts a frequent token or a cluster; only then the
cluster, if it is one, predicts the token. Rare tokens have short vectors. Most of the work of a full softmax is not
done, and the probabilities are exact all the same.

Grave et al. 2017, "Efficient softmax approximation for GPUs"; Baevski and Auli 2019, "Adaptive input representations
for neural language modeling" (the embedding, and tied tables).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.engine import linear_cross_entropy
from weft.engine.cross_entropy import IGNORE_INDEX
from weft.errors import WeftError

SHORTER = 4  # the vectors of a cluster have a fourth of the dimension of those of the cluster before it
HEAD, MIDDLE = 2000, 10000  # ids at which the clusters of a large vocabulary begin


def default_cutoffs(vocabulary_size: int) -> tuple[int, ...]:
    """Where clusters begin: at the ids 2,000 and 10,000; of a small vocabulary, after its first quarter.

    >>> default_cutoffs(33_278), default_cutoffs(5000), default_cutoffs(100)
    ((2000, 10000), (2000,), (25,))
    """
    return tuple(cut for cut in (HEAD, MIDDLE) if cut < vocabulary_size) or (max(1, vocabulary_size // 4),)


class _Choice(NamedTuple):
    """A softmax and the tokens that it predicts."""

    x: Tensor  # (N, I)
    weight: Tensor  # (K, I)
    bias: Tensor  # (K,)
    targets: Tensor  # (N,)


class AdaptiveSoftmax(nn.Module):
    """An embedding and an output layer over one set of tables: one table per cluster of tokens.

    Args:
        vocabulary_size: V; ids are sorted by falling frequency.
        embedding_dim: E, the dimension of the embedding; that of cluster i is E / 4^i.
        hidden_size: H, the dimension of what the output layer reads. If it differs from E, a projection comes first.
        cutoffs: the first id of every cluster but the head.

    Raises:
        WeftError: the cutoffs do not rise inside the vocabulary.

    Shapes: `embed` maps ids (...) to (..., E); `log_probs` maps (..., H) to (..., V).
    """

    def __init__(self, vocabulary_size: int, embedding_dim: int, hidden_size: int, cutoffs: Sequence[int]) -> None:
        super().__init__()
        edges = (0, *cutoffs, vocabulary_size)
        if len(edges) < 3 or any(low >= high for low, high in pairwise(edges)):
            raise WeftError(
                f"AdaptiveSoftmax: cutoffs {tuple(cutoffs)} for a vocabulary of {vocabulary_size}",
                expected="rising ids inside the vocabulary, at least one",
            )
        self.edges, self.embedding_dim = edges, embedding_dim
        clusters = len(edges) - 2  # beside the head
        dims = [max(1, embedding_dim // SHORTER**index) for index in range(clusters + 1)]
        sizes = [high - low for low, high in pairwise(edges)]
        self.tables = nn.ParameterList(
            nn.init.normal_(nn.Parameter(torch.empty(size, dim)), std=dim**-0.5)
            for size, dim in zip(sizes, dims, strict=True)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)
        # From the vectors of a cluster to the embedding, and from the output to the vectors of a cluster.
        self.up = nn.ParameterList(_matrix(embedding_dim, dim, embedding_dim) for dim in dims[1:])
        self.down = nn.ParameterList(_matrix(dim, embedding_dim, embedding_dim) for dim in dims[1:])
        self.cluster_weight = _matrix(clusters, embedding_dim, embedding_dim)
        self.cluster_bias = nn.Parameter(torch.zeros(clusters))
        self.projection = None if hidden_size == embedding_dim else _matrix(embedding_dim, hidden_size, hidden_size)

    def embed(self, ids: Tensor) -> Tensor:
        """The embedding (..., E) of ids (...)."""
        flat = ids.reshape(-1)
        found: Tensor = self.tables[0].new_zeros(len(flat), self.embedding_dim)
        for index, table in enumerate(self.tables):
            rows = self._members(flat, index)
            vectors = F.embedding(flat[rows] - self.edges[index], table)
            found = found.index_put((rows,), vectors if index == 0 else F.linear(vectors, self.up[index - 1]))
        return found.reshape(*ids.shape, self.embedding_dim)

    def cross_entropy(self, x: Tensor, targets: Tensor) -> Tensor:
        """The summed cross-entropy, in nats, of targets (B, T) given x (B, T, H). IGNORE_INDEX has none."""
        x, targets = self._project(x).reshape(-1, self.embedding_dim), targets.reshape(-1)
        first, *others = (_cross_entropy(choice, "sum") for _, choice in self._choices(x, targets))
        for one in others:
            first = first + one
        return first

    def target_log_probs(self, x: Tensor, targets: Tensor) -> Tensor:
        """The log-probabilities (N,) of targets (N,) given x (N, H); those of other tokens are not computed."""
        found: Tensor = x.new_zeros(len(targets))
        for rows, choice in self._choices(self._project(x), targets):
            found[rows] -= _cross_entropy(choice, "none")
        return found

    def _choices(self, x: Tensor, targets: Tensor) -> Iterator[tuple[Tensor | slice, _Choice]]:
        """The softmaxes that predict targets (N,) given x (N, E), each with the targets it is for: the head, then the
        clusters that have any."""
        members = [self._members(targets, index) for index in range(1, len(self.tables))]
        head = targets.clone()
        for index, rows in enumerate(members):
            head[rows] = self.edges[1] + index
        yield slice(None), _Choice(x, *self._head(), head)
        for index, rows in enumerate(members, start=1):
            if len(rows):
                narrow, among = F.linear(x[rows], self.down[index - 1]), targets[rows] - self.edges[index]
                yield rows, _Choice(narrow, self.tables[index], self.biases[index], among)

    def log_probs(self, x: Tensor) -> Tensor:
        """The log-probabilities (..., V) of all tokens, exact, given x (..., H)."""
        x = self._project(x)
        head = F.linear(x, *self._head()).log_softmax(-1)
        frequent = self.edges[1]
        parts = [head[..., :frequent]]
        for index in range(1, len(self.tables)):
            narrow = F.linear(x, self.down[index - 1])
            within = F.linear(narrow, self.tables[index], self.biases[index]).log_softmax(-1)
            parts.append(within + head[..., frequent + index - 1, None])
        return torch.cat(parts, -1)

    def _head(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the head: its own tokens, then the clusters."""
        weight = torch.cat([self.tables[0], self.cluster_weight])
        return weight, torch.cat([self.biases[0], self.cluster_bias])

    def _members(self, ids: Tensor, index: int) -> Tensor:
        """The positions of the ids (N,) that belong to a cluster."""
        inside = (ids >= self.edges[index]) & (ids < self.edges[index + 1])
        return inside.nonzero().squeeze(1)

    def _project(self, x: Tensor) -> Tensor:
        return x if self.projection is None else F.linear(x, self.projection)


def _matrix(outputs: int, inputs: int, fan: int) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(outputs, inputs), std=fan**-0.5))


def _cross_entropy(choice: _Choice, reduction: Literal["none", "sum"]) -> Tensor:
    """The cross-entropy of the targets of a softmax: their sum, or that of each (N,)."""
    x, weight, bias, targets = choice
    found = linear_cross_entropy(x[None], weight, bias, targets[None], reduction=reduction, ignore_index=IGNORE_INDEX)
    return found if reduction == "sum" else found[0]
