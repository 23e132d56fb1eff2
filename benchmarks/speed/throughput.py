"""Training speed of the tagger against torch.nn.LSTM with PackedSequence, and inference speed of tagger and classifier
in batches of similar length against one sentence at a time.

python -m benchmarks.speed.throughput            both
python -m benchmarks.speed.throughput train
python -m benchmarks.speed.throughput infer

Both networks are the same module with the same weights, but the peer uses torch for the LSTMs, embeddings, dropout,
loss and optimizer. They are first checked to give the same loss and gradients. Steps alternate in one process, and
medians count. The sentences are those of tag/en_ewt if available, else of the embedded grammar. Use an idle machine.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from weft.cells import LSTMState
from weft.config import load_config
from weft.engine import Embedded
from weft.nn import BothDirections, Stack
from weft.tasks.classify.config import ClassifyConfig
from weft.tasks.classify.readers import grammar_examples
from weft.tasks.classify.task import TASK as CLASSIFY
from weft.tasks.classify.task import start_classify
from weft.tasks.tag.config import TagConfig
from weft.tasks.tag.model import Tagger
from weft.tasks.tag.predictor import TagPredictor
from weft.tasks.tag.task import start_tag
from weft.tasks.tag.vocabulary import TaggerVocabulary
from weft.text.conll import TaggedSentence, open_sentences
from weft.training.optimizer import Adam, Optimizer
from weft.training.run import open_run

LIBRARY: Any = import_module("weft.engine.library")


class Packed(nn.Module):
    """A stack of bidirectional LSTM layers computed by torch.nn.LSTM on a PackedSequence."""

    def __init__(self, stack: Stack, dropout: float) -> None:
        super().__init__()
        cell = stack.layers[0].forward_layer.cell
        self.output_size = stack.output_size
        self.lstm = nn.LSTM(
            cell.input_size, cell.hidden_size, len(stack.layers), bidirectional=True, batch_first=True, dropout=dropout
        )
        with torch.no_grad():
            for number, layer in enumerate(stack.layers):
                for run, suffix in ((layer.forward_layer, ""), (layer.backward_layer, "_reverse")):
                    for name, parameter in run.cell.named_parameters():
                        getattr(self.lstm, f"{name}_l{number}{suffix}").copy_(parameter)

    def forward(self, x: Embedded, *, lengths: Tensor) -> tuple[Tensor, tuple[BothDirections, ...]]:
        packed = pack_padded_sequence(x.tensor(), lengths, batch_first=True, enforce_sorted=False)
        outputs, (h, c) = self.lstm(packed)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        last = [LSTMState(*state) for state in zip(h, c, strict=True)]
        return padded, tuple(BothDirections(*last[at : at + 2]) for at in range(0, len(last), 2))


def on_torch(run: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same model with embeddings, dropout and loss computed by torch instead of the engine."""

    def plain(batch: Any) -> None:
        own, LIBRARY.usable = LIBRARY.usable, lambda: False
        try:
            run(batch)
        finally:
            LIBRARY.usable = own

    return plain


def twin(model: Tagger) -> Tagger:
    """The same tagger on torch's LSTM."""
    other = copy.deepcopy(model)
    other.stack = Packed(model.stack, model.dropout if len(model.stack.layers) > 1 else 0.0)
    if model.encoder.spell is not None:
        other.encoder.spell = Packed(model.encoder.spell, 0.0)
    return other


def sentences(count: int) -> tuple[list[TaggedSentence], str]:
    folder = Path(os.environ.get("WEFT_DATA") or Path(__file__).parents[3] / "shared" / "data")
    path = folder / "tag" / "en_ewt" / "en_ewt-ud-train.conllu.gz"
    source = str(path) if path.exists() else "grammar"
    found = open_sentences(source)
    while len(found) < count:
        found += found
    return found[:count], "tag/en_ewt" if path.exists() else "grammar"


def prepared(rows: list[TaggedSentence], folder: str, *sets: str) -> Any:
    pairs = [(one.words, one.tags) for one in rows]
    return start_tag(pairs, Path(folder) / "run", load_config(TagConfig, sets=[*sets, "data.holdout=0"]))


def agree(ours: Tagger, theirs: Tagger, batch: Any) -> None:
    """Check that both give the same loss, and the same gradients of their common parameters."""
    ours.eval(), theirs.eval()
    gradients = []
    for model in (ours, theirs):
        model.zero_grad()
        loss = model.loss(batch)
        (loss.total / loss.count).backward()
        gradients.append((loss.total.detach(), model.encoder.words.weight.grad, model.scores.weight.grad))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


WORDS = ("model.char_dim=0", "model.embedding_dim=100", "model.hidden_size=128")

# Settings of `weft train tag`, and which sentences share a batch.
CASES = {
    "words alone, 32 sentences of 4 to 60 words": (WORDS, "any length"),
    "words alone, 32 sentences as they come": (WORDS, "as they come"),
    "words and spelling (defaults), 32 sentences as they come": ((), "as they come"),
    "words and spelling (defaults), sentences of similar length": ((), "similar"),
}


def batches_of(data: Any, which: str, count: int) -> list[Any]:
    """The first batches of an epoch, of random sentences, or of sentences with uniform lengths from 4 to 60."""
    rng = np.random.default_rng(0)
    if which == "similar":
        return list(data.epoch(0))[:count]
    if which == "as they come":
        order = rng.permutation(len(data.lengths))
        return [data.collate(order[32 * number : 32 * (number + 1)]) for number in range(count)]
    order = np.argsort(data.lengths, kind="stable")
    wanted = rng.integers(4, 61, (count, 32))
    return [data.collate(order[np.searchsorted(data.lengths[order], row).clip(max=len(order) - 1)]) for row in wanted]


def train(name: str, steps: int) -> None:
    sets, which = CASES[name]
    rows, source = sentences(4000)
    with tempfile.TemporaryDirectory() as folder:
        training = prepared(rows, folder, "model.output=softmax", *sets)
        ours, batches = training.model, batches_of(training.trainer.phase.data, which, steps)
    theirs = twin(ours)
    agree(ours, theirs, batches[0])
    runs = [_own_step(ours), on_torch(_torch_step(theirs))]
    seconds: list[list[float]] = [[], []]
    for number, batch in enumerate([*batches[:3], *batches]):
        for run, times in zip(runs, seconds, strict=True):
            began = time.perf_counter()
            run(batch)
            if number >= 3:
                times.append(time.perf_counter() - began)
    words = statistics.mean(int(batch.inputs.lengths.sum()) for batch in batches)
    ratio = statistics.median(other / own for own, other in zip(*seconds, strict=True))
    print(f"training, {source}: {name}; {words:.0f} words a batch, {torch.get_num_threads()} threads")
    for title, times in (("weft", seconds[0]), ("torch.nn.LSTM, PackedSequence", seconds[1])):
        middle = statistics.median(times)
        print(f"  {title:30} {1000 * middle:7.1f} ms a step  {words / middle:8,.0f} words/s")
    print(f"  ratio {ratio:.2f}", flush=True)


def _own_step(model: Tagger) -> Callable[[Any], None]:
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = Optimizer(trained, [Adam(0.01)] * len(trained))

    def step(batch: Any) -> None:
        loss = model.loss(batch)  # as weft.training.gradient_descent.GradientDescent does it
        optimizer.zero_grad()
        loss.total.backward(loss.total.new_full((), 1 / loss.count))
        optimizer.step(1e-3, clip_norm=1.0)

    return step


def _torch_step(model: Tagger) -> Callable[[Any], None]:
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, 1e-3, weight_decay=0.01, fused=True)

    def step(batch: Any) -> None:
        loss = model.loss(batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def infer_tags(count: int) -> None:
    rows, name = sentences(count)
    with tempfile.TemporaryDirectory() as folder:
        training = prepared(rows[:2000], folder)
        model = TagPredictor(training.run, training.model, training.run.decode(TaggerVocabulary.from_json))
        words = [list(one.words) for one in rows]
        infer(f"tags, {name}, CRF with confidences", words, model.tag, lambda found: found.tags)


def infer_labels(count: int) -> None:
    examples = grammar_examples(count, seed=0)
    pairs = [(one.value, one.label) for one in examples]
    with tempfile.TemporaryDirectory() as folder:
        start_classify(pairs[:2000], Path(folder) / "run", load_config(ClassifyConfig))
        model = CLASSIFY.load(open_run(Path(folder) / "run"))
        texts = [one.value for one in examples]
        infer("labels, grammar, the default model", texts, model.classify, lambda found: found.label)


def infer(title: str, rows: list[Any], run: Callable[[list[Any]], list[Any]], result: Callable[[Any], object]) -> None:
    """Inference of an untrained model on all rows: in batches of similar length, and one at a time."""
    run(rows[:50])  # warm
    began = time.perf_counter()
    together = run(rows)
    batched = time.perf_counter() - began
    began = time.perf_counter()
    alone = [run([row])[0] for row in rows]
    single = time.perf_counter() - began
    # Rounding may change a result if two are almost equally probable.
    differ = sum(result(one) != result(other) for one, other in zip(together, alone, strict=True))
    assert differ <= len(rows) / 1000, f"{differ} of {len(rows)} sentences come out otherwise in a batch"
    print(f"inference: {title}; {len(rows):,} sentences, {torch.get_num_threads()} threads")
    print(f"  in batches       {batched:6.2f} s  {len(rows) / batched:8,.0f} sentences/s")
    print(f"  one at a time    {single:6.2f} s  {len(rows) / single:8,.0f} sentences/s")
    print(f"  ratio {single / batched:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train", "infer", "both"), default="both")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--sentences", type=int, default=10_000)
    options = parser.parse_args()
    if options.what != "infer":
        for name in CASES:
            train(name, options.steps)
    if options.what != "train":
        infer_tags(options.sentences)
        infer_labels(options.sentences)


if __name__ == "__main__":
    main()
