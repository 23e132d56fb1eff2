"""Posteriors: what an HMM or a CRF knows of its hidden states or tags after it has read a text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft import chains
from weft.chains.reference import Recursions
from weft.pictures.figures import DIVERGING, SEQUENTIAL, Array, ColouredText, Figure, HeatMap, StateDiagram, visible
from weft.probes.parts import get_part
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, rows_by_step, to_array
from weft.tasks.inspection import ChainView

MOST_DIAGRAM_STATES = 16  # of a state diagram that can still be read


@dataclass(frozen=True, eq=False)
class Posterior(ProbeResult):
    """The states of a chain on one text.

    Attributes:
        kind: "hmm" or "crf".
        steps: The T tokens.
        states: The names of the K states or tags.
        forward: (T, K), log of the summed scores of all paths that reach a state, without the token's own score.
        backward: (T, K), log of the summed scores of all paths from a state on.
        marginals: (T, K), the probability of each state at each token, given the whole text.
        viterbi: The best path, as numbers of states.
        viterbi_log_prob: The log of its probability, given the text.
        log_likelihood: log of the sum over all paths.
        transition: (K, K), from, to: probabilities of an HMM, scores of a CRF (-inf: not allowed).
        emissions: For each state of an HMM its most probable tokens, with their probabilities.
    """

    probe = "posterior"

    kind: str
    steps: tuple[str, ...]
    states: tuple[str, ...]
    forward: Array
    backward: Array
    marginals: Array
    viterbi: tuple[int, ...]
    viterbi_log_prob: float
    log_likelihood: float
    transition: Array
    emissions: tuple[tuple[tuple[str, float], ...], ...]

    def records(self) -> Iterator[dict[str, Any]]:
        columns = {"forward": self.forward, "backward": self.backward, "marginal": self.marginals}
        for row in rows_by_step(self.steps, **columns, best=self.viterbi):
            best, where = row.pop("best"), {name: row.pop(name) for name in ("position", "step")}
            for number, state in enumerate(self.states):
                values = {name: value[number] for name, value in row.items()}
                yield {**where, "state": state, **values, "viterbi": best == number}

    def figures(self) -> list[Figure]:
        names = tuple(f"state {name}" if self.kind == "hmm" else name for name in self.states)
        what = "states" if self.kind == "hmm" else "tags"
        path = [names[state] for state in self.viterbi]
        probability = math.exp(self.viterbi_log_prob)
        figures: list[Figure] = [
            HeatMap(
                f"Probability of the {what} given the whole text",
                self.marginals.T,
                names,
                self.steps,
                "probability",
                limits=(0.0, 1.0),
            ),
            ColouredText(
                f"Viterbi path: the most probable {what} together (probability {probability:.3f})",
                tuple(f"{token}/{name.removeprefix('state ')}" for token, name in zip(self.steps, path, strict=True)),
                self.marginals[np.arange(len(path)), list(self.viterbi)],
                "probability",
            ),
        ]
        if self.kind == "hmm" and len(self.states) <= MOST_DIAGRAM_STATES:
            notes = tuple(
                tuple(f"{visible(token)} {p:.2f}" for token, p in row[:4] if p >= 0.01) for row in self.emissions
            )
            figures.append(
                StateDiagram("States, transitions and most probable tokens", self.states, notes, self.transition)
            )
        elif self.kind == "hmm":
            names = tuple(
                " ".join([name, *(visible(token) for token, _ in row[:2])])
                for name, row in zip(names, self.emissions, strict=True)
            )
        finite = np.where(np.isfinite(self.transition), self.transition, np.nan)
        scale = SEQUENTIAL if self.kind == "hmm" else DIVERGING
        label = "probability" if self.kind == "hmm" else "score"
        annotate = len(self.states) <= 12
        figures.append(HeatMap("Transitions", finite, names, self.states, label, "from", "to", scale, annotate))
        return figures


def posterior(model: Any, text: str) -> Posterior:
    """Forward and backward recursions, marginals, the Viterbi path and the transitions of an HMM or a CRF.

    Raises:
        WeftError: The model has no chain of hidden states, or holds the text for impossible.
    """
    view: ChainView = get_part(model, text, "chain")()
    recursions = Recursions(view.chains)
    _, shares = chains.posterior(view.chains)
    path, score = chains.viterbi(view.chains)
    log_z = float(recursions.log_z[0])
    T = len(view.steps)
    return Posterior(
        view.kind,
        view.steps,
        view.states,
        to_array(recursions.pi[0]),
        to_array(recursions.backward()[0]),
        to_array(shares.view(-1, len(view.states))[:T]),
        tuple(path.view(-1)[:T].tolist()),
        float(score[0]) - log_z,
        log_z,
        to_array(view.transition.to(torch.float64)),
        view.emissions,
    )


PROBE = Probe("posterior", "forward, backward, marginals, Viterbi path, transitions", "chain", posterior)
