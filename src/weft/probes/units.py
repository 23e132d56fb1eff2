"""Units: what single hidden units of a network respond to.

top_passages      the passages of a corpus that activate a unit most
select_units      the units that are on throughout a phrase and off around it, as in LSTMVis (Strobelt et al. 2018)
correlate_units   the correlation of every unit with a label of each token: line position, inside quotes, any other

A corpus is an iterable of texts; each text is read by itself, and no more than one is held in memory at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.cells import State
from weft.errors import WeftError
from weft.nn import Recurrent
from weft.pictures.figures import DIVERGING, SEQUENTIAL, Array, ColouredText, Figure, HeatMap, visible
from weft.pictures.svg import number
from weft.probes.layers import (
    LayerName,
    OnlyDirection,
    OnlyLayer,
    OnlyStack,
    find_layers,
    layer_by_layer,
)
from weft.probes.parts import get_network
from weft.probes.registry import Probe
from weft.probes.result import ProbeResult, to_array
from weft.tasks.inspection import Network
from weft.tasks.operation import Option
from weft.tasks.text_task import TextPredictor
from weft.text.datasets import open_data
from weft.text.vocabulary import EOS

CONTEXT = 20  # tokens shown on each side
PIECE = 2000  # characters of a corpus that are read at a time
HELD_OUT_TEXT = "held-out"  # the own held-out text of a run as a corpus
MOST_HELD_OUT_CHARACTERS = 60_000
SHOWN_UNITS = 20  # units in a figure


class UnitName(NamedTuple):
    """A unit: its layer (stack, number, direction) and its number from 0."""

    stack: str
    layer: int
    direction: str
    unit: int

    def __str__(self) -> str:
        return f"{self.stack} layer {self.layer} {self.direction} unit {self.unit}"


class Passage(NamedTuple):
    """Tokens around a maximum of a unit, and its value at each of them."""

    text: int  # the number of the text in the corpus
    position: int  # of the maximum, in the text
    peak: int  # of the maximum, among the steps
    steps: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class TopPassages(ProbeResult):
    """The passages of a corpus that activate a unit most, strongest first."""

    probe = "units"

    unit: UnitName
    passages: tuple[Passage, ...]
    count: int  # tokens read

    def records(self) -> Iterator[dict[str, Any]]:
        for rank, one in enumerate(self.passages):
            for step, value in zip(one.steps, one.values, strict=True):
                yield {**self.unit._asdict(), "rank": rank, "text": one.text, "step": step, "value": value}

    def figures(self) -> list[Figure]:
        return [
            ColouredText(
                f"{rank}. {self.unit}: {number(one.values[one.peak])} at {visible(one.steps[one.peak])!r}",
                one.steps,
                np.array(one.values),
                "h",
                DIVERGING if min(one.values) < 0 else SEQUENTIAL,
            )
            for rank, one in enumerate(self.passages, start=1)
        ]


class SelectedUnit(NamedTuple):
    """A unit that is on throughout a phrase."""

    unit: UnitName  # which one
    sign: int  # +1 where it is on with positive values, -1 with negative ones
    inside: float  # the smallest absolute value within the phrase
    outside: float  # the largest value of the same sign at the tokens right before and after it


@dataclass(frozen=True, eq=False)
class UnitSelection(ProbeResult):
    """The units that are on throughout a phrase and off around it, those with the largest margin first."""

    probe = "selection"

    steps: tuple[str, ...]
    begin: int  # of the phrase, in steps
    end: int
    threshold: float
    units: tuple[SelectedUnit, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        for one in self.units:
            yield {**one.unit._asdict(), "sign": one.sign, "inside": one.inside, "outside": one.outside}

    def figures(self) -> list[Figure]:
        inside = np.zeros(len(self.steps))
        inside[self.begin : self.end] = 1
        figures: list[Figure] = [ColouredText("The phrase", self.steps, inside, "inside")]
        if self.units:
            title = "Units that are on in the phrase and off around it"
            table = np.array([[one.inside, one.outside] for one in self.units[:SHOWN_UNITS]])
            names = tuple(str(one.unit) for one in self.units[:SHOWN_UNITS])
            figures.append(HeatMap(title, table, names, ("inside", "around"), "h", annotate=True, scale=DIVERGING))
        return figures


@dataclass(frozen=True, eq=False)
class UnitCorrelations(ProbeResult):
    """The Pearson correlation of every unit with a label, the strongest first.

    Attributes:
        label: The name of the label.
        units: The units.
        correlations: (N,).
        count: Tokens read.
    """

    probe = "correlation"

    label: str
    units: tuple[UnitName, ...]
    correlations: Array
    count: int

    def records(self) -> Iterator[dict[str, Any]]:
        for unit, value in zip(self.units, self.correlations.tolist(), strict=True):
            yield {**unit._asdict(), "label": self.label, "correlation": value}

    def figures(self) -> list[Figure]:
        table, names = self.correlations[:SHOWN_UNITS, None], tuple(str(one) for one in self.units[:SHOWN_UNITS])
        title = f"Units that follow {self.label} most ({self.count:,} tokens)"
        return [HeatMap(title, table, names, ("correlation",), "r", scale=DIVERGING, annotate=True, limits=(-1.0, 1.0))]


def units(
    model: Any,
    text: str | None = None,
    *,
    unit: Annotated[int | None, Option("The passages that activate this unit most.", 0)] = None,
    count: Annotated[int, Option("How many passages.", 1, 50)] = 10,
    label: Annotated[
        str | None,
        Option(
            "quotes, line-position, or a file with one value per token: units that follow it.", requests=tuple(LABELS)
        ),
    ] = None,
    phrase: Annotated[str | None, Option("A part of TEXT: units that are on only there.")] = None,
    data: Annotated[
        str | None,
        Option("A corpus to search: a path, the name of a data set, or held-out.", requests=(HELD_OUT_TEXT,)),
    ] = None,
    texts: Annotated[Sequence[str] | None, Option("The corpus to search, in place of the text.", flag="")] = None,
    stack: OnlyStack = None,
    layer: OnlyLayer = None,
    direction: OnlyDirection = None,
) -> TopPassages | UnitSelection | UnitCorrelations:
    """What single units respond to: units of a phrase, units that follow a label, or the passages of one unit."""
    if phrase is not None:
        return select_units(model, text or "", phrase)
    corpus = read_corpus(model, data) if data is not None else texts if texts is not None else [text] if text else []
    if label is not None:
        return correlate_units(model, corpus, label if label in LABELS else read_label(label), name=label)
    if unit is None:
        raise WeftError("the probe units needs a unit, a label or a phrase", expected="one of them")
    top = -1 if layer is None else layer
    return top_passages(model, corpus, unit=unit, layer=top, direction=direction, stack=stack, count=count)


def read_corpus(model: Any, data: str) -> Iterator[str]:
    """A corpus in pieces: whole lines up to PIECE characters for a model of running text, otherwise single lines."""
    if data == HELD_OUT_TEXT:
        size = 0
        for text in model.held_out_texts():
            yield text
            size += len(text)
            if size >= MOST_HELD_OUT_CHARACTERS:
                return
        if not size:
            raise WeftError("the run has no held-out text", expected="`texts` to search")
        return
    running, piece = isinstance(model, TextPredictor), ""
    for document in open_data(data).documents():
        for line in document.lines():
            if not running:
                if line.strip():
                    yield line.strip()
                continue
            if piece and len(piece) + len(line) > PIECE:
                yield piece
                piece = ""
            piece += line
    if piece.strip():
        yield piece


def top_passages(
    model: Any,
    texts: Iterable[str],
    *,
    unit: int,
    layer: int = -1,
    direction: str | None = None,
    stack: str | None = None,
    count: int = 10,
) -> TopPassages:
    """The passages of a corpus that activate a unit most; no two of them overlap.

    Args:
        model: A loaded run with recurrent layers.
        texts: The corpus; each text is read by itself.
        unit: The number of the unit, from 0.
        layer: Its layer, from 0 (the lowest) or counted from the top.
        direction: "forward" or "backward", where the layer has both.
        stack: The name of its stack, where the model has several.
        count: How many passages to return.

    Raises:
        WeftError: There is no such unit, or the corpus is empty.
    """
    best: list[tuple[float, int, int, Passage]] = []
    name, total, number = None, 0, 0
    for number, (network, hidden) in enumerate(_read_texts(model, texts)):
        name = find_layers(network, stack, layer, direction)[0]
        values = hidden[name]
        if not 0 <= unit < values.shape[1]:
            raise WeftError(f"{name} has no unit {unit}", expected=f"0 to {values.shape[1] - 1}")
        tokens, column = network.stacks[name.stack].steps, values[:, unit]
        total += len(tokens)
        for at in _peaks(column, count):
            first, last = max(0, at - CONTEXT), at + CONTEXT // 2
            shown = tuple(column[first:last].tolist())
            passage = Passage(number, at, at - first, tokens[first:last], shown)
            heapq.heappush(best, (float(column[at]), -number, -at, passage))
            if len(best) > count:
                heapq.heappop(best)
    if name is None:
        raise WeftError("the corpus is empty", expected="some text")
    ordered = tuple(entry[-1] for entry in sorted(best, reverse=True))
    return TopPassages(UnitName(*name, unit), ordered, total)


def select_units(model: Any, text: str, phrase: str | tuple[int, int], *, threshold: float = 0.3) -> UnitSelection:
    """The units that are on throughout a phrase and off right before and after it.

    Args:
        model: A loaded run with recurrent layers.
        text: The text that the model reads.
        phrase: A part of the text, or the positions (begin, end) of its tokens.
        threshold: A unit is on where its hidden state is above the threshold, or below -threshold throughout.

    Raises:
        WeftError: The phrase is not a part of the text.
    """
    network = get_network(model, text)
    tokens = next(iter(network.stacks.values())).steps
    begin, end = phrase if isinstance(phrase, tuple) else find_phrase(tokens, phrase)
    if not 0 <= begin < end <= len(tokens):
        raise WeftError(f"the phrase is tokens {begin} to {end}", expected=f"positions within 0 to {len(tokens)}")
    found = []
    for name, values in hidden_states(network).items():
        if len(values) != len(tokens):
            continue  # a stack that reads another text, as a decoder does
        around = np.concatenate([values[max(0, begin - 1) : begin], values[end : end + 1]])
        for sign in (1, -1):
            inside = (sign * values[begin:end]).min(0)
            outside = (sign * around).max(0) if len(around) else np.full(values.shape[1], -np.inf)
            for unit in np.flatnonzero((inside >= threshold) & (outside < threshold)):
                low = float(outside[unit])
                found.append(SelectedUnit(UnitName(*name, int(unit)), sign, float(inside[unit]), low))
    found.sort(key=lambda one: one.outside - one.inside)
    return UnitSelection(tokens, begin, end, threshold, tuple(found))


def correlate_units(model: Any, texts: Iterable[str], label: str | TokenLabel, *, name: str = "") -> UnitCorrelations:
    """The correlation of every unit's hidden state with a label of each token.

    Args:
        model: A loaded run with recurrent layers.
        texts: The corpus; each text is read by itself.
        label: "line-position", "quotes", or a function from the tokens of a text to one number for each.
        name: What to call the label, where it is a function.

    Raises:
        WeftError: The label is unknown or does not fit the tokens, or the corpus is empty.
    """
    if isinstance(label, str):
        if label not in LABELS:
            raise WeftError(f"the label is {label!r}", expected=f"one of: {', '.join(LABELS)}, or a function")
        name, label = label, LABELS[label]
    sums: dict[LayerName, Array] = {}
    count, sy, syy = 0, 0.0, 0.0
    for network, hidden in _read_texts(model, texts):
        tokens = next(iter(network.stacks.values())).steps
        y = np.asarray(label(tokens), dtype=np.float64)
        if y.shape != (len(tokens),):
            raise WeftError(f"the label has {y.size} values for {len(tokens)} tokens", expected="one for each token")
        count, sy, syy = count + len(y), sy + float(y.sum()), syy + float((y * y).sum())
        for layer, x in hidden.items():
            if len(x) == len(y):
                part = np.stack([x.sum(0), (x * x).sum(0), y @ x])
                sums[layer] = sums.get(layer, np.zeros_like(part)) + part
    if not count:
        raise WeftError("the corpus is empty", expected="some text")
    units, values = [], []
    for layer, (sx, sxx, sxy) in sums.items():
        spread = np.sqrt(np.maximum(sxx * count - sx**2, 0) * max(syy * count - sy**2, 0))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(spread > 0, (sxy * count - sx * sy) / spread, 0.0)
        units += [UnitName(*layer, unit) for unit in range(len(found))]
        values.append(found)
    flat = np.concatenate(values)
    order = np.argsort(-np.abs(flat), kind="stable")
    return UnitCorrelations(name or "label", tuple(units[at] for at in order), flat[order], count)


def find_phrase(tokens: Sequence[str], phrase: str) -> tuple[int, int]:
    """The first place where tokens, joined with or without spaces, make a phrase: (begin, end)."""
    wanted = "".join(phrase.split())
    for begin in range(len(tokens)):
        joined = ""
        for end in range(begin, len(tokens)):
            joined += "".join(tokens[end].split())
            if joined == wanted and joined:
                return begin, end + 1
            if not wanted.startswith(joined):
                break
    raise WeftError(f"the phrase {phrase!r} is not made of whole tokens of the text", expected="a part of the text")


@torch.no_grad()
def hidden_states(network: Network) -> dict[LayerName, Array]:
    """h of every layer and direction, (T, H), by the layers' fast path."""
    found: dict[LayerName, list[Tensor]] = {}

    def run(name: LayerName, layer: Recurrent, x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs, after = layer(x, state)
        found.setdefault(name, []).append(outputs[0])
        return outputs, after

    with layer_by_layer(network, run):
        network.logits(network.embeddings)
    return {name: to_array(torch.cat(parts)) for name, parts in found.items()}


def _read_texts(model: Any, texts: Iterable[str]) -> Iterator[tuple[Network, dict[LayerName, Array]]]:
    for text in texts:
        network = get_network(model, text)
        yield network, hidden_states(network)


def _peaks(values: Array, count: int) -> list[int]:
    """The positions of the largest values, no two within the same passage."""
    chosen: list[int] = []
    for at in np.argsort(-values, kind="stable").tolist():
        if all(abs(at - other) > CONTEXT for other in chosen):
            chosen.append(at)
            if len(chosen) == count:
                break
    return chosen


PROBE = Probe("units", "passages that activate a unit, units that follow a label or a phrase", "network", units)


# A label of tokens to compare units with: a function from the tokens of a text to one number for each.
TokenLabel = Callable[[Sequence[str]], Sequence[float]]

OPENING, CLOSING, STRAIGHT = "“「『«", "”」』»", '"'


def line_position(tokens: Sequence[str]) -> list[float]:
    """The number of characters since the last line break, before each token."""
    found, position = [], 0
    for token in tokens:
        found.append(float(position))
        position = 0 if "\n" in token or token == EOS else position + len(token)
    return found


def inside_quotes(tokens: Sequence[str]) -> list[float]:
    """1 inside quotation marks (straight, curly, Chinese, French), 0 outside; the marks themselves are inside."""
    found, depth, straight = [], 0, False
    for token in tokens:
        before = depth > 0 or straight
        for character in token:
            straight ^= character == STRAIGHT
            depth = max(0, depth + (character in OPENING) - (character in CLOSING))
        found.append(float(before or depth > 0 or straight))
    return found


LABELS: dict[str, TokenLabel] = {"line-position": line_position, "quotes": inside_quotes}


def read_label(path: str | Path) -> TokenLabel:
    """A label from a file: one value for each token of the corpus, separated by white space.

    Values that are not numbers are names: the label is then 1 for the most frequent name and 0 for all others.

    Raises:
        WeftError: The file cannot be read. When the label is used: it has too few values.
    """
    try:
        words = Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise WeftError(f"{path} cannot be read: {error}", expected="a text file with one value per token") from error
    try:
        values = [float(word) for word in words]
    except ValueError:
        most = max(dict.fromkeys(words), key=words.count)
        values = [float(word == most) for word in words]
    rest: Iterator[float] = iter(values)

    def label(tokens: Sequence[str]) -> list[float]:
        found = [value for _, value in zip(tokens, rest, strict=False)]
        if len(found) < len(tokens):
            raise WeftError(f"{path} has {len(values):,} values", expected="one for each token of the corpus")
        return found

    return label
