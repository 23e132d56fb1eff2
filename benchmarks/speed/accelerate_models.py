"""Recurrent models of others, with random weights, before and after `weft.accelerate`: one row of docs/accelerate.md.

    python -m benchmarks.speed.accelerate_models NAME [--seconds 4]

Runs in an environment that has the package (benchmarks/speed/accelerate.py makes it) and prints one JSON object. The
same model object is measured throughout: `accelerate` and `restore` alternate between rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import weft


@contextmanager
def outputs_of(module: nn.Module) -> Iterator[list[Tensor]]:
    """What the module returns inside the block."""
    seen: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, given, out: seen.append(out))
    try:
        yield seen
    finally:
        handle.remove()


class Case(NamedTuple):
    model: nn.Module
    run: Callable[[nn.Module, torch.dtype], tuple[Tensor, Tensor]]  # outputs and loss
    batch: str  # what one call reads


def flair() -> Case:
    """SequenceTagger: learned word embeddings -> BiLSTM -> CRF; 256 units."""
    from flair.data import Dictionary, Sentence
    from flair.embeddings import OneHotEmbeddings
    from flair.models import SequenceTagger

    words = [f"word{number}" for number in range(500)]
    vocabulary, tags = Dictionary(add_unk=True), Dictionary(add_unk=False)
    for word in words:
        vocabulary.add_item(word)
    for tag in ("O", "S-PER", "B-PER", "E-PER", "I-PER", "S-LOC", "B-LOC", "E-LOC", "I-LOC"):
        tags.add_item(tag)
    embeddings = OneHotEmbeddings(vocabulary, embedding_length=100)
    model = SequenceTagger(
        embeddings=embeddings, tag_dictionary=tags, tag_type="ner", tag_format="BIOES", hidden_size=256, rnn_layers=1
    )
    drawn = torch.randint(500, (32, 40), generator=torch.Generator().manual_seed(0)).tolist()
    sentences = [Sentence(" ".join(words[i] for i in row[: 10 + n])) for n, row in enumerate(drawn)][::-1]
    gold = torch.randint(9, (sum(map(len, sentences)),), generator=torch.Generator().manual_seed(1))

    def run(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        for sentence in sentences:
            sentence.clear_embeddings()
        data, lengths = model._prepare_tensors(sentences)
        # The scores before the CRF, which adds -10,000 for what it forbids: relative to that nothing differs.
        with outputs_of(model.linear) as seen:
            scores = model.forward(data, lengths)
        return seen[0], model._calculate_loss(scores, gold)[0]

    return Case(model, run, "32 sentences of 10 to 40 words")


def stanza() -> Case:
    """The part-of-speech tagger: words and a character LSTM -> highway BiLSTM (nn.LSTM, packed) -> biaffine scorers."""
    from stanza.models.pos.model import Tagger

    vocab = {"word": range(5000), "char": range(100), "upos": range(19), "xpos": range(50), "feats": range(30)}
    args = {
        "word_emb_dim": 75, "char": True, "char_emb_dim": 100, "char_hidden_dim": 400, "char_num_layers": 1,
        "char_rec_dropout": 0, "transformed_dim": 125, "pretrain": False, "hidden_dim": 200, "num_layers": 2,
        "dropout": 0.5, "rec_dropout": 0, "word_dropout": 0.33, "deep_biaff_hidden_dim": 400,
        "composite_deep_biaff_hidden_dim": 100, "tag_emb_dim": 50, "charlm": None, "bert_model": None,
    }  # fmt: skip
    model = Tagger(args, vocab)
    nn.init.normal_(model.upos_clf.weight, std=0.05)  # zero at first: no gradient would reach the LSTMs
    generator = torch.Generator().manual_seed(0)
    lengths = [40 - 2 * n for n in range(16)]  # longest first
    B, T = len(lengths), max(lengths)
    mask = torch.arange(T) >= torch.tensor(lengths)[:, None]
    word = torch.randint(2, 5000, (B, T), generator=generator).masked_fill(mask, 0)
    count = sum(lengths)
    wordlens = sorted(torch.randint(2, 13, (count,), generator=generator).tolist(), reverse=True)
    chars = torch.randint(2, 100, (count, max(wordlens)), generator=generator)
    chars_mask = torch.arange(max(wordlens)) >= torch.tensor(wordlens)[:, None]
    order = torch.randperm(count, generator=generator).tolist()
    upos = torch.randint(2, 19, (B, T), generator=generator).masked_fill(mask, 0)

    def run(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        with outputs_of(model.upos_clf) as seen:
            loss, _ = model(
                word, mask, chars.masked_fill(chars_mask, 0), chars_mask, [upos], None, order, lengths, wordlens, None
            )
        return seen[0], loss

    return Case(model, run, "16 sentences of 10 to 40 words")


def word_language_model() -> Case:
    """An encoder, a 2-layer LSTM and a decoder, as the README of pytorch/examples describes; 650 units."""

    class WordLanguageModel(nn.Module):
        def __init__(self, tokens: int, width: int) -> None:
            super().__init__()
            self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(tokens, width)
            self.rnn, self.decoder = nn.LSTM(width, width, 2, dropout=0.2), nn.Linear(width, tokens)

        def forward(self, ids: Tensor) -> Tensor:
            outputs, _ = self.rnn(self.drop(self.encoder(ids)))
            return self.decoder(self.drop(outputs))

    ids = torch.randint(10000, (36, 20), generator=torch.Generator().manual_seed(0))  # (T + 1, B)

    def run(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        logits = model(ids[:-1])
        return logits, F.cross_entropy(logits.flatten(0, 1), ids[1:].flatten())

    return Case(WordLanguageModel(10000, 650), run, "20 rows of 35 words, vocabulary 10,000")


def easyocr() -> Case:
    """The text recogniser of the second generation: VGG features -> two BiLSTM layers of 256 -> characters."""
    # Its package imports OpenCV and torchvision for reading images; the model needs neither.
    package = types.ModuleType("easyocr")
    package.__path__ = [str(Path(find_spec("easyocr").origin).parent)]  # type: ignore[union-attr, arg-type]
    sys.modules["easyocr"] = package
    _silence("torchvision", "torchvision.models")
    from easyocr.model.vgg_model import Model

    images = torch.randn(4, 1, 64, 600, generator=torch.Generator().manual_seed(0))
    target = torch.randint(97, (4, 149), generator=torch.Generator().manual_seed(1))

    def run(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        scores = model(images.to(dtype), None)
        return scores, F.cross_entropy(scores.flatten(0, 1), target[:, : scores.shape[1]].flatten())

    return Case(Model(1, 256, 256, 97), run, "4 lines of 64 x 600 pixels")


def openunmix() -> Case:
    """Open-Unmix: spectrogram -> 3-layer BiLSTM -> mask of one source; 512 units."""
    _silence("torchaudio")  # its transforms read and write sound; the model needs none
    from openunmix.model import OpenUnmix

    mixture = torch.rand(4, 2, 2049, 128, generator=torch.Generator().manual_seed(0))

    def run(model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        given = mixture.to(dtype)
        source = model(given)
        return source, F.mse_loss(source, given / 2)

    return Case(OpenUnmix(nb_bins=2049, max_bin=1487, hidden_size=512), run, "4 pieces of 3 seconds (128 frames)")


def _silence(*names: str) -> None:
    """Empty modules, for imports of packages that have no build for this torch."""
    if find_spec(names[0]) is not None:
        return
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])


CASES = {
    "flair": flair,
    "stanza": stanza,
    "word_language_model": word_language_model,
    "easyocr": easyocr,
    "openunmix": openunmix,
}


def everything(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """The outputs, and the gradients of the loss by all parameters, without dropout."""
    case.model.eval()
    case.model.zero_grad()
    torch.manual_seed(1)
    outputs, loss = case.run(case.model, dtype)
    loss.backward()
    for module in case.model.modules():
        if isinstance(module, nn.RNNBase):
            assert all(p.grad is not None and p.grad.any() for p in module.parameters()), "no gradient to compare"
    return [outputs.detach(), *(p.grad.clone() for p in case.model.parameters() if p.grad is not None)]


def differences(case: Case, dtype: torch.dtype) -> tuple[float, float]:
    """The largest difference of the outputs, and of the gradients, relative to the largest element of each tensor."""
    expected = everything(case, dtype)
    weft.accelerate(case.model)
    found = everything(case, dtype)
    weft.restore(case.model)
    apart = [
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) if b.any() else float(a.abs().max())
        for a, b in zip(found, expected, strict=True)
    ]
    return apart[0], max(apart[1:])


def training_step(case: Case) -> None:
    case.model.zero_grad()
    case.run(case.model, torch.float32)[1].backward()


@torch.no_grad()
def inference(case: Case) -> None:
    case.run(case.model, torch.float32)


def in_turns(case: Case, work: Callable[[Case], Any], seconds: float) -> tuple[float, float]:
    """The shortest times before and after, since other work only adds to them; the rounds alternate."""
    taken: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    first = True
    while first or time.perf_counter() < until or len(taken[0]) < 4:
        for change, times in zip((weft.restore, weft.accelerate), taken, strict=True):
            change(case.model)
            work(case)  # warm-up: the caches hold the other's weights
            start = time.perf_counter()
            work(case)
            if not first:
                times.append(time.perf_counter() - start)
        first = False
    weft.restore(case.model)
    return min(taken[0]), min(taken[1])


def recurrent_share(case: Case) -> float:
    """The share of inference time that passes in the recurrent layers, before acceleration."""
    spent = [0.0]
    handles = []
    for module in case.model.modules():
        if isinstance(module, nn.RNNBase):
            handles.append(module.register_forward_pre_hook(lambda m, g: spent.append(-time.perf_counter())))
            handles.append(module.register_forward_hook(lambda m, g, o: spent.append(time.perf_counter())))
    with torch.no_grad():
        inference(case)
        spent.clear()
        start = time.perf_counter()
        case.run(case.model, torch.float32)
        whole = time.perf_counter() - start
    for handle in handles:
        handle.remove()
    return sum(spent) / whole


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CASES)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    case = CASES[given.name]()
    double = differences(case._replace(model=case.model.double()), torch.float64)
    case.model.float()
    single = differences(case, torch.float32)
    report = weft.accelerate(case.model)
    weft.restore(case.model)
    case.model.train()
    train = in_turns(case, training_step, given.seconds)
    case.model.eval()
    infer = in_turns(case, inference, given.seconds)
    result = {
        "version": version("torch") if given.name == "word_language_model" else version(given.name),
        "docstring": CASES[given.name].__doc__,
        "batch": case.batch,
        "parameters": sum(p.numel() for p in case.model.parameters()),
        "replaced": [one.layer for one in report.replaced],
        "kept": [f"{one.name}: {one.reason}" for one in report.kept],
        "float32": single,
        "float64": double,
        "train": train,
        "inference": infer,
        "share": recurrent_share(case),
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
