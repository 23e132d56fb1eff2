"""Attention: the weights of a translator or of attention pooling; and the tree of a beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from weft.errors import WeftError
from weft.pictures.figures import Array, ColouredText, Figure, HeatMap, Tree, TreeNode
from weft.pictures.svg import number as short
from weft.probes.parts import get_part
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.inspection import AttentionWeights, NamedBeamTree
from weft.tasks.operation import Option

DROPPED = ("outranked", "pruned")


@dataclass(frozen=True, eq=False)
class Attention(ProbeResult):
    """Attention weights (Q, S).

    Attributes:
        queries: What asks: each token of the best translation, or the label of a text.
        steps: The S tokens of the source.
        weights: (Q, S); each row sums to 1.
    """

    probe = "attention"

    queries: tuple[str, ...]
    steps: tuple[str, ...]
    weights: Array

    def records(self) -> Iterator[dict[str, Any]]:
        for number, (query, weights) in enumerate(zip(self.queries, self.weights, strict=True)):
            for row in rows_by_step(self.steps, weight=weights):
                yield {"query_position": number, "query": query, **row}

    def figures(self) -> list[Figure]:
        if len(self.queries) == 1:
            return [ColouredText(f"Attention of {self.queries[0]}", self.steps, self.weights[0], "weight")]
        named = ("weight", "translation", "source")
        return [HeatMap("Attention", self.weights, self.queries, self.steps, *named, limits=(0.0, 1.0))]


def attention(model: Any, text: str) -> Attention:
    """The attention weights of the best translation of a text, or of the pooling of a classifier.

    Raises:
        WeftError: The model has no attention.
    """
    found: AttentionWeights = get_part(model, text, "attention")()
    return Attention(found.queries, found.steps, to_array(found.weights))


class Hypothesis(NamedTuple):
    """A hypothesis of a beam search; see `weft.decoding.beam_search.BeamNode`."""

    parent: int  # its index, or -1 for the beginning
    step: int
    token: str
    log_prob: float
    score: float
    status: str  # kept, ended, cut, outranked, pruned
    reason: str
    best: bool  # on the way to the best result


@dataclass(frozen=True, eq=False)
class BeamSearch(ProbeResult):
    """Every hypothesis that a beam search considered.

    Attributes:
        hypotheses: In the order in which they were considered; parents come before their children.
        width: The beam width.
        length_penalty: The exponent alpha of score = log P / length^alpha.
        result: The tokens of the best result.
        score: Its score.
    """

    probe = "beam"

    hypotheses: tuple[Hypothesis, ...]
    width: int
    length_penalty: float
    result: tuple[str, ...]
    score: float

    def records(self) -> Iterator[dict[str, Any]]:
        for place, one in enumerate(self.hypotheses):
            yield {"hypothesis": place, **one._asdict()}

    def figures(
        self, *, kept: Annotated[bool, Option("Only the hypotheses that were not dropped.")] = False
    ) -> list[Figure]:
        shown = {n for n, one in enumerate(self.hypotheses) if not kept or one.best or one.status not in DROPPED}
        places = {-1: -1, **{n: place for place, n in enumerate(sorted(shown))}}
        nodes = tuple(
            TreeNode(places[one.parent], one.step, one.token, one.log_prob, one.status, one.reason, one.best)
            for n, one in enumerate(self.hypotheses)
            if n in shown
        )
        penalty = short(self.length_penalty)
        return [Tree(f"Beam search, width {self.width}, length penalty {penalty}, score {self.score:.3f}", nodes)]


def beam(
    model: Any,
    text: str,
    *,
    width: Annotated[int, Option("The beam width.", 1, 32, flag="--beam")] = 5,
    length_penalty: float | None = None,
    prefix: Annotated[Sequence[str], Option("Tokens that every hypothesis begins with.")] = (),
) -> BeamSearch:
    """The whole tree of a beam search: for the translation of a text, or for its continuation.

    Args:
        model: A loaded translator or language model.
        text: The source, or the beginning of a text.
        width: The beam width.
        length_penalty: The exponent alpha; without it the model's default.
        prefix: Tokens that every hypothesis begins with; they are not part of the tree. Its first step is what may
            follow them.

    Raises:
        WeftError: The model does not generate, a token of the prefix is unknown, or the width is below 1.
    """
    if width < 1:
        raise WeftError(f"the beam width is {width}", expected="1 or more")
    search = get_part(model, text, "search")
    found: NamedBeamTree = search(width, length_penalty, prefix)
    tree, names = found
    best = tree.results[0]
    finished = [n for n, node in enumerate(tree.nodes) if node.status in ("ended", "cut")]
    at = max(finished, key=lambda n: tree.nodes[n].score)
    path = set()
    while at >= 0:
        path.add(at)
        at = tree.nodes[at].parent
    hypotheses = tuple(
        Hypothesis(one.parent, one.step, names[one.id], one.log_prob, one.score, one.status, one.reason, n in path)
        for n, one in enumerate(tree.nodes)
    )
    return BeamSearch(hypotheses, tree.width, tree.alpha, tuple(names[one] for one in best.ids), best.score)


ATTENTION = Probe("attention", "attention weights", "attention", attention)
BEAM = Probe(
    "beam", "every hypothesis of a beam search, and why it was kept or dropped", "search", beam, BeamSearch.figures
)
