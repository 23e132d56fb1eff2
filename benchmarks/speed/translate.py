"""Speed of translators: training against the study notes' loop, and beam search in batches against one at a time.

    python -m benchmarks.speed.translate train [--rounds 5]      the notes' setup, alternating
    python -m benchmarks.speed.translate decode RUN --data FILE  a trained run, on the sources of some pairs

The notes' setup: the first 600 pairs of mt/fra-eng, lower case, words between spaces that occur twice, GRUs of 2
layers of 32 units, embeddings of 32, dropout 0.1, the encoder's last state joined to every input of the decoder,
batches of 64, Adam at 0.005, gradients clipped at norm 1. The notes' loop pads every sentence to 10 steps and runs
torch.nn.GRU; it is reimplemented here from its description. Tokens are target tokens without padding, <eos> included.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.quality.rows import data
from weft.config import load_config
from weft.data.buckets import Padded
from weft.tasks import load_for
from weft.tasks.stored_data import TRAIN_PART, stored
from weft.tasks.translate.config import TranslateConfig
from weft.tasks.translate.data import read_pairs
from weft.tasks.translate.model import BOS_ID
from weft.tasks.translate.predictor import END, TranslatePredictor
from weft.tasks.translate.task import start_translate
from weft.text.parallel import Pairs, open_pairs
from weft.text.vocabulary import PAD, RESERVED

STEPS = 10
NOTES = [
    *("text.tokenizer=space", "text.lower=true", "text.joint=false", "text.min_count=2", "text.max_vocab_size=0"),
    *("text.holdout=0", f"text.max_tokens={STEPS - 1}", "model.cell=gru", "model.num_layers=2", "model.hidden_size=32"),
    *("model.embedding_dim=32", "model.tied=false", "model.bidirectional=false", "model.decoder=context"),
    *("model.dropout=0.1", "batch.size=64", "train.epochs=300", "train.optimizer=adam", "train.learning_rate=0.005"),
    *(
        "train.schedule=constant",
        "train.label_smoothing=0",
        "train.ema_decay=0",
        "train.clip_norm=1",
        "train.save_seconds=3600",
    ),
]
NOTES_SENTENCES = {
    "go .": "va !",
    "i lost .": "j'ai perdu .",
    "he's calm .": "il est calme .",
    "i'm home .": "je suis chez moi .",
}


def notes_pairs(archive: Path) -> Pairs:
    pairs = open_pairs(f"{archive}:fra-eng/fra.txt")
    return Pairs("the first 600 of fra-eng", pairs.sources[:600], pairs.targets[:600])


class NotesEncoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 32)
        self.rnn = nn.GRU(32, 32, 2, dropout=0.1)

    def forward(self, ids):
        return self.rnn(self.embedding(ids).permute(1, 0, 2))[1]


class NotesDecoder(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 32)
        self.rnn = nn.GRU(64, 32, 2, dropout=0.1)
        self.dense = nn.Linear(32, size)

    def forward(self, ids, state):
        x = self.embedding(ids).permute(1, 0, 2)
        context = state[-1].repeat(x.shape[0], 1, 1)
        outputs, _ = self.rnn(torch.cat((x, context), 2), state)
        return self.dense(outputs).permute(1, 0, 2)


class NotesLoop:
    """Batches of 64 rows of 10 steps, in a new order each epoch."""

    def __init__(self, sources: Padded, targets: Padded, sizes: tuple[int, int]) -> None:
        torch.manual_seed(1)
        self.sources, self.targets = sources, targets
        self.encoder, self.decoder = NotesEncoder(sizes[0]), NotesDecoder(sizes[1])
        self.parameters = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=0.005)

    def epoch(self) -> int:
        tokens = 0
        for rows in torch.randperm(len(self.sources.ids)).split(64):
            sources, targets, lengths = self.sources.ids[rows], self.targets.ids[rows], self.targets.lengths[rows]
            self.optimizer.zero_grad()
            begin = torch.full((len(rows), 1), BOS_ID)
            logits = self.decoder(torch.cat([begin, targets[:, :-1]], 1), self.encoder(sources))
            losses = F.cross_entropy(logits.permute(0, 2, 1), targets, reduction="none")
            inside = torch.arange(STEPS) < lengths[:, None]
            (losses * inside).mean(1).sum().backward()
            norm = torch.sqrt(sum(torch.sum(p.grad**2) for p in self.parameters))
            if norm > 1:
                for parameter in self.parameters:
                    parameter.grad[:] *= 1 / norm
            self.optimizer.step()
            tokens += int(lengths.sum())
        return tokens


def padded(rows) -> Padded:
    ids = torch.full((len(rows), STEPS), RESERVED.index(PAD))
    lengths = torch.zeros(len(rows), dtype=torch.long)
    for number in range(len(rows)):
        row = [*rows[number].tolist(), END][:STEPS]
        ids[number, : len(row)] = torch.tensor(row)
        lengths[number] = len(row)
    return Padded(ids, lengths)


def training_speed(rounds: int, epochs: int) -> tuple[list[float], list[float]]:
    """Tokens per second of the notes' loop and of ours, alternating."""
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(TranslateConfig, None, NOTES)
        training = start_translate(notes_pairs(data("mt", "fra-eng", "fra-eng.zip")), Path(folder) / "run", config)
        columns = stored(training.run, TRAIN_PART)
        model = training.model
        sizes = (len(model.encoder.embedding.weight), len(model.embedding.weight))
        loop = NotesLoop(padded(columns["source"]), padded(columns["target"]), sizes)
        ours = training.trainer.run()
        loop.epoch()
        for _ in range(training.trainer.phase.data.batches):
            next(ours)
        speeds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            began = time.perf_counter()
            tokens = sum(loop.epoch() for _ in range(epochs))
            speeds[0].append(tokens / (time.perf_counter() - began))
            began = time.perf_counter()
            tokens = sum(next(ours).loss.count for _ in range(epochs * training.trainer.phase.data.batches))
            speeds[1].append(tokens / (time.perf_counter() - began))
    return speeds


class Decoding(NamedTuple):
    """Sentences per second in batches and one at a time, their ratio, and the fraction of equal translations."""

    batched: float
    alone: float
    ratio: float
    same: float


def decoding_speed(
    model: TranslatePredictor, texts: list[str], *, beam: int = 5, single: int = 60, rounds: int = 5
) -> Decoding:
    """Translate all texts at once, then about `single` of them one at a time; alternating, medians of the rounds."""
    model.translate(texts[:50], beam=beam)
    step, same = max(1, len(texts) // single), []
    batched, alone = [], []
    for number in range(rounds):
        began = time.perf_counter()
        together = model.translate(texts, beam=beam)
        batched.append(len(texts) / (time.perf_counter() - began))
        chosen = range(number * step // rounds, len(texts), step)  # different ones in each round
        began = time.perf_counter()
        found = [model.translate([texts[row]], beam=beam)[0] for row in chosen]
        alone.append(len(found) / (time.perf_counter() - began))
        same += [together[row] == text for row, text in zip(chosen, found, strict=True)]
    ratio = statistics.median(one / other for one, other in zip(batched, alone, strict=True))
    return Decoding(statistics.median(batched), statistics.median(alone), ratio, sum(same) / len(same))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--rounds", type=int, default=5)
    train.add_argument("--epochs", type=int, default=10, help="of each round")
    decode = commands.add_parser("decode")
    decode.add_argument("run", type=Path)
    decode.add_argument("--data", required=True)
    decode.add_argument("--beam", type=int, default=5)
    options = parser.parse_args()
    if options.command == "train":
        notes, ours = training_speed(options.rounds, options.epochs)
        print(
            f"{torch.get_num_threads()} threads, median of {options.rounds} rounds of {options.epochs} epochs in turn"
        )
        for name, speeds in (("the notes' loop", notes), ("weft", ours)):
            print(f"{name:16} {statistics.median(speeds):10,.0f} tokens/s  ({min(speeds):,.0f} to {max(speeds):,.0f})")
        print(f"{'ratio':16} {statistics.median(b / a for a, b in zip(notes, ours, strict=True)):10.1f}")
    else:
        model = load_for(options.run, "translate")
        texts = list(dict.fromkeys(read_pairs(options.data, model.config).sources))
        found = decoding_speed(model, texts, beam=options.beam)
        print(f"beam {options.beam}, {len(texts):,} sentences, {torch.get_num_threads()} threads, 5 rounds in turn")
        print(f"in batches     {found.batched:8.1f} sentences/s\none at a time  {found.alone:8.1f} sentences/s")
        print(f"ratio          {found.ratio:8.1f}  ({found.same:.1%} of the translations are the same)")


if __name__ == "__main__":
    main()
