"""From the results of the probes to figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from weft.errors import WeftError
from weft.pictures.figures import (
    DIVERGING,
    SEQUENTIAL,
    Array,
    ColouredText,
    Curve,
    Curves,
    Figure,
    HeatMap,
    StateDiagram,
    Tree,
    TreeNode,
    visible,
)
from weft.pictures.svg import number
from weft.probes import (
    Activations,
    Attention,
    BeamSearch,
    ConfusionMatrix,
    Connectivity,
    Evidence,
    GradientFlow,
    GradientTerms,
    LayerActivations,
    LayerGradients,
    Posterior,
    StepJacobians,
    Surprisal,
    SurprisalComparison,
    TopPassages,
    UnitCorrelations,
    UnitSelection,
)

MOST_DIAGRAM_STATES = 16  # of a state diagram that can still be read


def surprisal_figures(found: Surprisal) -> list[Figure]:
    notes = []
    for token, nats, entropy, best in zip(
        found.tokens, found.nats.tolist(), found.entropy.tolist(), found.alternatives, strict=True
    ):
        if math.isnan(nats):
            notes.append(f"{visible(token)}: not predicted")
            continue
        others = ", ".join(f"{visible(one.token)} {one.probability:.2f}" for one in best)
        notes.append(f"{visible(token)}: {nats:.2f} nats, entropy {entropy:.2f}; expected {others}")
    mean = float(np.nanmean(found.nats)) if np.isfinite(found.nats).any() else math.nan
    sides = "the tokens before it" if found.context == "left" else "all other tokens"
    title = f"Surprisal of each token given {sides} (mean {mean:.2f} nats)"
    return [ColouredText(title, found.tokens, found.nats, "nats", notes=tuple(notes))]


def surprisal_comparison_figures(found: SurprisalComparison) -> list[Figure]:
    """The difference of two models as coloured text, and the surprisal of each."""
    notes = tuple(
        f"{visible(token)}: {number(one)} and {number(other)} nats"
        for token, one, other in zip(found.tokens, found.first_nats.tolist(), found.second_nats.tolist(), strict=True)
    )
    both = np.isfinite(found.difference)
    mean = float(found.difference[both].mean()) if both.any() else math.nan
    what = "nats, second - first"
    title = f"Surprisal of {found.second} minus that of {found.first} (mean {mean:+.2f} nats)"
    figures: list[Figure] = [ColouredText(title, found.tokens, found.difference, what, DIVERGING, notes)]
    for path, nats, context in zip(
        (found.first, found.second), (found.first_nats, found.second_nats), found.contexts, strict=True
    ):
        own = float(nats[both].mean()) if both.any() else math.nan
        sides = "the tokens before" if context == "left" else "all other tokens"
        figures.append(
            ColouredText(f"{path}: given {sides} (mean {own:.2f} nats)", found.tokens, nats, "nats", notes=notes)
        )
    return figures


def confusion_figures(found: ConfusionMatrix) -> list[Figure]:
    """The share of each predicted label among the examples of each true label."""
    totals = found.counts.sum(1)
    shares = np.divide(found.counts, totals[:, None], out=np.full_like(found.counts, np.nan), where=totals[:, None] > 0)
    rows = tuple(f"{label} ({int(total):,})" for label, total in zip(found.labels, totals, strict=True))
    return [
        HeatMap(
            f"Confusion matrix (accuracy {found.accuracy:.1%})",
            shares,
            rows,
            found.labels,
            "share of the true label",
            "true label (count)",
            "predicted label",
            annotate=len(found.labels) <= 12,
            limits=(0.0, 1.0),
        )
    ]


def activation_figures(
    found: Activations, *, gates: bool, gate: str | None = None, unit: int | None = None
) -> list[Figure]:
    """Gates or states of every layer as units over time; with `unit`, the text coloured by that unit."""
    figures: list[Figure] = []
    known = dict.fromkeys(name for one in found.layers for name in (one.gates if gates else one.states))
    if gate is not None and gate not in known:
        kind = "gate" if gates else "part of the state"
        raise WeftError(f"there is no {kind} {gate!r}", expected=f"one of: {', '.join(known)}")
    for one in found.layers:
        if unit is not None and not 0 <= unit < one.units:
            raise WeftError(f"{one.name} has no unit {unit}", expected=f"0 to {one.units - 1}")
        for name, values in (one.gates if gates else one.states).items():
            if gate in (None, name):
                figures.append(
                    _unit_text(one, name, values, unit) if unit is not None else _unit_map(one, name, values)
                )
    return figures


def part_title(one: LayerActivations | LayerGradients, name: str) -> str:
    """A gate or a part of the state as pictures name it: "input gate i", or "i" where its type has no label."""
    return f"{one.labels[name]} {name}" if name in one.labels else name


def _unit_map(one: LayerActivations, name: str, values: Array) -> HeatMap:
    signed = bool((values < 0).any())
    limits = None if signed or values.max() > 1 else (0.0, 1.0)
    return HeatMap(
        f"{_sentence(part_title(one, name))} of {one.name} ({one.cell})",
        values.T,
        columns=one.tokens,
        label=name,
        row_title="units",
        scale=DIVERGING if signed else SEQUENTIAL,
        limits=limits,
    )


def _unit_text(one: LayerActivations, name: str, values: Array, unit: int) -> ColouredText:
    column = values[:, unit]
    scale = DIVERGING if (column < 0).any() else SEQUENTIAL
    title = f"{_sentence(part_title(one, name))} of unit {unit}, {one.name} ({one.cell})"
    return ColouredText(title, one.tokens, column, name, scale)


def _sentence(title: str) -> str:
    """A title with a large initial; single letters are names."""
    return title[:1].upper() + title[1:] if len(title) > 1 else title


def select_layers(
    found: GradientFlow, *, stack: str | None = None, layer: int | None = None, direction: str | None = None
) -> GradientFlow:
    """Only the layers of a stack, a number (negative: from the top) or a direction."""
    top = max(one.name.layer for one in found.layers) + 1
    wanted = layer + top if layer is not None and layer < 0 else layer
    kept = tuple(
        one
        for one in found.layers
        if stack in (None, one.name.stack)
        and wanted in (None, one.name.layer)
        and direction in (None, one.name.direction)
    )
    if not kept:
        known = ", ".join(str(one.name) for one in found.layers)
        raise WeftError(f"there is no layer {layer} in {stack or 'any stack'}", expected=f"one of: {known}")
    return dataclasses.replace(found, layers=kept)


def gradient_figures(found: GradientFlow, *, gate: str | None = None) -> list[Figure]:
    """For each layer the norms of all pairs as a map, and those of the last prediction as a curve."""
    figures: list[Figure] = []
    last = found.names[-1]
    curves = []
    for one in found.layers:
        parts = one.states if gate is None else one.gates
        if gate is not None and gate not in parts:
            raise WeftError(f"there is no gate {gate!r}", expected=f"one of: {', '.join(parts)}")
        for name, norms in parts.items():
            if gate in (None, name):
                where = f"{one.name}, {name}" if len(found.layers) > 1 else part_title(one, name)
                curves.append(Curve(where, np.arange(norms.shape[1], dtype=np.float64), norms[-1]))
    tokens = found.layers[0].tokens
    figures.append(
        Curves(
            f"Gradient of the loss of {visible(last)!r} at each earlier step",
            tuple(curves),
            x_label="step s",
            y_label="norm of dL/dh_s" if gate is None else f"norm of dL/d{gate}_s",
            log=True,
            ticks=tokens if len({one.tokens for one in found.layers}) == 1 else (),
        )
    )
    if len(found.predictions) > 1:
        for one in found.layers:
            for name, norms in (one.states if gate is None else one.gates).items():
                if gate in (None, name):
                    with np.errstate(divide="ignore"):
                        logs = np.where(norms > 0, np.log10(norms), np.nan)
                    logs = np.maximum(logs, np.nanmax(logs) - 8) if np.isfinite(logs).any() else logs
                    figures.append(
                        HeatMap(
                            f"Gradient norms of {part_title(one, name)}, {one.name}",
                            logs,
                            found.names,
                            one.tokens,
                            f"log10 of the norm of dL/d{name}",
                            "loss of",
                            "step",
                        )
                    )
    return figures


def jacobian_figures(found: Sequence[StepJacobians]) -> list[Figure]:
    curves = []
    for one in found:
        x = np.array(one.positions, dtype=np.float64)
        curves += [Curve(f"norm, {one.name}", x, one.norm), Curve(f"spectral radius, {one.name}", x, one.radius)]
    ticks = found[0].tokens if found else ()
    return [Curves("Jacobian of a step: dh_t/dh_(t-1)", tuple(curves), "step t", "value", log=True, ticks=ticks)]


def term_figures(found: Sequence[GradientTerms]) -> list[Figure]:
    curves = [
        Curve(f"{one.name} (sum: {number(one.total)})", np.array(one.positions, dtype=np.float64), one.norms)
        for one in found
    ]
    title = f"Contribution of each step to dh_t/dw, t = {found[0].position}"
    return [Curves(title, tuple(curves), "step s", "norm of the term", log=True, ticks=found[0].tokens)]


def connectivity_figures(found: Connectivity) -> list[Figure]:
    """The influence on the last prediction as coloured text (on hover: on the others), and the whole matrix."""
    T = len(found.tokens)
    influence = np.full((T, T), np.nan)
    if found.predictions[-1] < T:
        for row, prediction in enumerate(found.predictions):
            influence[prediction] = found.influence[row]
    scale = DIVERGING if found.method == "integrated" else SEQUENTIAL
    label = "integrated gradients" if found.method == "integrated" else "gradient norm"
    title = f"Influence on the prediction of {visible(found.names[-1])!r}"
    notes = tuple(
        f"{visible(token)}: {number(float(v))}" for token, v in zip(found.tokens, found.influence[-1], strict=True)
    )
    figures: list[Figure] = [
        ColouredText(
            title, found.tokens, found.influence[-1], label, scale, notes, influence if T <= 400 else np.zeros((0, 0))
        )
    ]
    if len(found.predictions) > 1:
        shown = found.influence.copy()
        figures.append(
            HeatMap(
                "Influence of each token on each prediction",
                shown,
                found.names,
                found.tokens,
                label,
                "predicted",
                "read",
                scale,
            )
        )
    return figures


def evidence_figures(found: Evidence) -> list[Figure]:
    against = f" against {visible(found.against)}" if found.against else ""
    title = f"{visible(found.prediction)} ({found.probability:.1%}){against}"
    window = f", {found.window} tokens at a time" if found.window > 1 else ""
    figures: list[Figure] = [
        ColouredText(
            f"Occlusion{window}: evidence for {title}", found.tokens, found.occlusion, "fall of the log-odds", DIVERGING
        ),
        ColouredText(
            f"Integrated gradients: evidence for {title}",
            found.tokens,
            found.integrated,
            "share of the log-odds",
            DIVERGING,
        ),
    ]
    if found.pooling is not None:
        figures.append(ColouredText("Pooling weights", found.tokens, found.pooling, "weight"))
    if found.ngrams is not None:
        figures.append(
            ColouredText(
                f"N-grams: evidence for {title}", found.tokens, found.ngrams, "share of the log-odds", DIVERGING
            )
        )
    return figures


def attention_figures(found: Attention) -> list[Figure]:
    if len(found.queries) == 1:
        return [ColouredText(f"Attention of {found.queries[0]}", found.tokens, found.weights[0], "weight")]
    return [
        HeatMap(
            "Attention",
            found.weights,
            found.queries,
            found.tokens,
            "weight",
            "translation",
            "source",
            limits=(0.0, 1.0),
        )
    ]


def beam_figures(found: BeamSearch) -> list[Figure]:
    nodes = tuple(
        TreeNode(one.parent, one.step, one.token, one.log_prob, one.status, one.reason, one.best)
        for one in found.hypotheses
    )
    penalty = number(found.length_penalty)
    return [Tree(f"Beam search, width {found.width}, length penalty {penalty}, score {found.score:.3f}", nodes)]


def posterior_figures(found: Posterior) -> list[Figure]:
    names = tuple(f"state {name}" if found.kind == "hmm" else name for name in found.states)
    what = "states" if found.kind == "hmm" else "tags"
    path = [names[state] for state in found.viterbi]
    probability = math.exp(found.viterbi_log_prob)
    figures: list[Figure] = [
        HeatMap(
            f"Probability of the {what} given the whole text",
            found.marginals.T,
            names,
            found.tokens,
            "probability",
            limits=(0.0, 1.0),
        ),
        ColouredText(
            f"Viterbi path: the most probable {what} together (probability {probability:.3f})",
            tuple(f"{token}/{name.removeprefix('state ')}" for token, name in zip(found.tokens, path, strict=True)),
            found.marginals[np.arange(len(path)), list(found.viterbi)],
            "probability",
        ),
    ]
    if found.kind == "hmm" and len(found.states) <= MOST_DIAGRAM_STATES:
        notes = tuple(
            tuple(f"{visible(token)} {p:.2f}" for token, p in row[:4] if p >= 0.01) for row in found.emissions
        )
        figures.append(
            StateDiagram("States, transitions and most probable tokens", found.states, notes, found.transition)
        )
    finite = np.where(np.isfinite(found.transition), found.transition, np.nan)
    scale = SEQUENTIAL if found.kind == "hmm" else DIVERGING
    label = "probability" if found.kind == "hmm" else "score"
    annotate = len(found.states) <= 12
    figures.append(HeatMap("Transitions", finite, names, found.states, label, "from", "to", scale, annotate))
    return figures


def unit_figures(found: TopPassages | UnitSelection | UnitCorrelations) -> list[Figure]:
    if isinstance(found, TopPassages):
        return [
            ColouredText(
                f"{rank}. {found.unit}: {number(one.values[one.peak])} at {visible(one.tokens[one.peak])!r}",
                one.tokens,
                np.array(one.values),
                "h",
                DIVERGING if min(one.values) < 0 else SEQUENTIAL,
            )
            for rank, one in enumerate(found.passages, start=1)
        ]
    if isinstance(found, UnitSelection):
        inside = np.zeros(len(found.tokens))
        inside[found.begin : found.end] = 1
        figures: list[Figure] = [ColouredText("The phrase", found.tokens, inside, "inside")]
        if found.units:
            table = np.array([[one.inside, one.outside] for one in found.units[:20]])
            names = tuple(str(one.unit) for one in found.units[:20])
            figures.append(
                HeatMap(
                    "Units that are on in the phrase and off around it",
                    table,
                    names,
                    ("inside", "around"),
                    "h",
                    annotate=True,
                    scale=DIVERGING,
                )
            )
        return figures
    count = min(20, len(found.units))
    table = found.correlations[:count, None]
    names = tuple(str(one) for one in found.units[:count])
    title = f"Units that follow {found.label} most ({found.count:,} tokens)"
    return [HeatMap(title, table, names, ("correlation",), "r", scale=DIVERGING, annotate=True, limits=(-1.0, 1.0))]
