"""A bidirectional model trained to foretell the next character: a splendid perplexity, and useless text.

Two models of the same size learn the same text in the same way. One reads forward, the other from both ends. The
second looks far better by perplexity, on text it has never seen and even on pure noise, and cannot write a word,
because what it has learned is to copy: at every place but a window's last, its backward half has read the answer.

    python examples/bidirectional_misuse.py                    about a minute, on the first 100,000 characters
    python examples/bidirectional_misuse.py --data my.txt
    python examples/bidirectional_misuse.py --quick            a few seconds, on embedded text
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.data.windows import RandomWindows
from weft.nn import make_stack
from weft.text.codec import Codec, prepare_corpus
from weft.text.config import TextConfig
from weft.text.corpus import open_tokens
from weft.text.datasets import open_data

ROWS, STEPS = 32, 35  # of a batch
PROMPT = "time traveller"
RESERVED = 4  # the vocabulary's first tokens stand for no character
DISTANCES = range(-4, 3)  # of a character from the answer: 0 is the answer itself


class NextCharacter(nn.Module):
    """Ids (B, T) to logits (B, T, V) of each next character. Nothing stops the stack from being bidirectional."""

    def __init__(self, size: int, hidden: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.stack = make_stack("lstm", size, hidden, layers=2, bidirectional=bidirectional)
        self.output = nn.Linear(self.stack.output_size, size)

    def forward(self, ids: Tensor) -> Tensor:
        outputs, _ = self.stack(ids)
        return self.output(outputs)


def train(model: NextCharacter, tokens: np.ndarray, steps: int) -> None:
    """An ordinary training loop."""
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    stream = RandomWindows(tokens, ROWS, STEPS, seed=1)
    done = epoch = 0
    while done < steps:
        for window in stream.epoch(epoch):
            loss = F.cross_entropy(model(window.inputs).flatten(0, 1), window.targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            done += 1
        epoch += 1


def windows(tokens: np.ndarray) -> tuple[Tensor, Tensor]:
    """All whole windows of a text: what is read, and what comes next, (N, STEPS) each."""
    count = (len(tokens) - 1) // STEPS
    ids = torch.from_numpy(tokens[: count * STEPS + 1].astype(np.int64))
    return ids[:-1].reshape(count, STEPS), ids[1:].reshape(count, STEPS)


@torch.no_grad()
def nats(model: NextCharacter, inputs: Tensor, targets: Tensor) -> Tensor:
    """-log P of every next character, (N, STEPS)."""
    return F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none")


def perplexity(values: Tensor) -> float:
    return math.exp(values.mean().item())


def choose(logits: Tensor, generator: torch.Generator) -> int:
    """A character by chance, at temperature 0.5; never a reserved symbol."""
    logits[:RESERVED] = -torch.inf
    return int(torch.multinomial((logits / 0.5).softmax(-1), 1, generator=generator))


@torch.no_grad()
def write(model: NextCharacter, codec: Codec, prompt: str, length: int) -> str:
    """The usual way: read one character, hand the state on, choose the next."""
    generator = torch.Generator().manual_seed(0)
    ids, state, outputs = codec.encode(prompt), None, torch.empty(0)
    for place in range(len(ids) + length):
        if place == len(ids):
            ids.append(choose(model.output(outputs)[0, -1], generator))
        outputs, state = model.stack(torch.tensor([ids[place : place + 1]]), state)
    return codec.decode(ids)


@torch.no_grad()
def write_rereading(model: NextCharacter, codec: Codec, prompt: str, length: int) -> str:
    """The kinder way: before each choice all of the text is read anew, from both ends if the model can."""
    generator = torch.Generator().manual_seed(0)
    ids = codec.encode(prompt)
    for _ in range(length):
        ids.append(choose(model(torch.tensor([ids]))[0, -1], generator))
    return codec.decode(ids)


@torch.no_grad()
def influence(model: NextCharacter, inputs: Tensor, distance: int, seed: int = 0) -> float:
    """How far a prediction moves when the character at that distance from the answer is swapped for another.

    It is the total variation between the chances before and after: 0 is no influence, 1 is another world. Asked in
    the middle of each window, where the model reads characters on both sides of the answer.
    """
    place = STEPS // 2  # the prediction made here is of the character at place + 1
    generator = torch.Generator().manual_seed(seed)
    letters = model.output.out_features - RESERVED
    swapped = inputs.clone()
    others = torch.randint(1, letters, (len(inputs),), generator=generator)  # how far on in the alphabet
    swapped[:, place + 1 + distance] = RESERVED + (inputs[:, place + 1 + distance] - RESERVED + others) % letters
    before, after = (model(ids)[:, place].softmax(-1) for ids in (inputs, swapped))
    return ((before - after).abs().sum(-1) / 2).mean().item()


def report(models: dict[str, NextCharacter], codec: Codec, train_tokens: np.ndarray, dev_tokens: np.ndarray) -> None:
    def line(title: str, cells: list[str]) -> None:
        print(f"{title:44}" + "".join(f"{cell:>16}" for cell in cells))

    noise = np.random.default_rng(0).integers(RESERVED, len(codec.vocabulary), 4000)
    line("", list(models))
    print("Perplexity of the next character, as a training loop reports it")
    for title, tokens in (("text it was trained on", train_tokens), ("text it has never seen", dev_tokens)):
        line(f"  {title}", [f"{perplexity(nats(model, *windows(tokens))):.2f}" for model in models.values()])
    line("  letters drawn at random", [f"{perplexity(nats(model, *windows(noise))):.2f}" for model in models.values()])
    print(f"The same on unseen text, by place in the window of {STEPS}")
    unseen = {name: nats(model, *windows(dev_tokens)) for name, model in models.items()}
    line(f"  places 1 to {STEPS - 1}", [f"{perplexity(values[:, :-1]):.2f}" for values in unseen.values()])
    line(f"  place {STEPS}: the answer is outside the window", [f"{perplexity(v[:, -1]):.2f}" for v in unseen.values()])
    print("How far a prediction moves when one character is swapped (0 to 1)")
    for distance in DISTANCES:
        where = (
            "the answer itself"
            if not distance
            else f"{abs(distance)} {'after' if distance > 0 else 'before'} the answer"
        )
        moves = [influence(model, windows(dev_tokens)[0], distance) for model in models.values()]
        line(f"  {where}", [f"{move:.3f}" for move in moves])
    print(f"What they write after {PROMPT!r}")
    for name, model in models.items():
        print(f"  {name:28}{write(model, codec, PROMPT, 60)}")
    print(f"  {'bidirectional, reading anew':28}{write_rereading(models['bidirectional'], codec, PROMPT, 60)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="timemachine", help="a file, or a name of `weft data list`")
    parser.add_argument("--quick", action="store_true", help="small models, few steps, embedded text")
    options = parser.parse_args()
    data, hidden, steps = ("python-docs", 48, 120) if options.quick else (options.data, 128, 400)
    text = TextConfig(tokenizer="char", lower=True, letters_only=True, limit=100_000)
    with tempfile.TemporaryDirectory() as folder:
        codec = prepare_corpus(text, open_data(data), None, Path(folder))
        size = len(codec.vocabulary)
        train_tokens, dev_tokens = (
            np.array(open_tokens(Path(folder) / f"{name}.bin", size)) for name in ("train", "dev")
        )
    models = {}
    for name, bidirectional in (("forward", False), ("bidirectional", True)):
        torch.manual_seed(1)
        models[name] = NextCharacter(size, hidden, bidirectional=bidirectional)
        train(models[name], train_tokens, steps)
        models[name].eval()
    report(models, codec, train_tokens, dev_tokens)


if __name__ == "__main__":
    main()
