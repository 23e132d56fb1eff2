"""A bidirectional model trained to predict the next character: an excellent perplexity, and useless text.

Two models of the same size are trained on the same text, one unidirectional, one bidirectional. The second has a far
lower perplexity, on unseen text and even on random characters, but cannot generate text. It has learned to copy: at
every position of a window but the last, its backward direction has read the target.

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
from weft.text.config import TextConfig
from weft.text.corpus import open_tokens
from weft.text.datasets import open_data
from weft.text.text_field import Text, store_corpus

ROWS, STEPS = 32, 35  # of a batch
PROMPT = "time traveller"
RESERVED = 4  # the first tokens of the vocabulary are not characters
DISTANCES = range(-4, 3)  # of a character from the target; 0 is the target itself


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
    """A plain training loop."""
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
    """All complete windows of a text: inputs and targets, (N, STEPS) each."""
    count = (len(tokens) - 1) // STEPS
    ids = torch.from_numpy(tokens[: count * STEPS + 1].astype(np.int64))
    return ids[:-1].reshape(count, STEPS), ids[1:].reshape(count, STEPS)


@torch.no_grad()
def cross_entropy(model: NextCharacter, inputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of every next character in nats, (N, STEPS)."""
    return F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none")


def perplexity(values: Tensor) -> float:
    return math.exp(values.mean().item())


def sample(logits: Tensor, generator: torch.Generator) -> int:
    """Sample a character at temperature 0.5; never a reserved token."""
    logits[:RESERVED] = -torch.inf
    return int(torch.multinomial((logits / 0.5).softmax(-1), 1, generator=generator))


@torch.no_grad()
def generate(model: NextCharacter, text_field: Text, prompt: str, length: int) -> str:
    """Generate step by step: read one character, carry the state, sample the next character."""
    generator = torch.Generator().manual_seed(0)
    ids, state, outputs = text_field.encode(prompt), None, torch.empty(0)
    for index in range(len(ids) + length):
        if index == len(ids):
            ids.append(sample(model.output(outputs)[0, -1], generator))
        outputs, state = model.stack(torch.tensor([ids[index : index + 1]]), state)
    return text_field.decode(ids)


@torch.no_grad()
def generate_rereading(model: NextCharacter, text_field: Text, prompt: str, length: int) -> str:
    """Generate by reading the complete text again before each character, in both directions if the model has them."""
    generator = torch.Generator().manual_seed(0)
    ids = text_field.encode(prompt)
    for _ in range(length):
        ids.append(sample(model(torch.tensor([ids]))[0, -1], generator))
    return text_field.decode(ids)


@torch.no_grad()
def influence(model: NextCharacter, inputs: Tensor, distance: int, seed: int = 0) -> float:
    """How much a prediction changes if the character at this distance from the target is replaced.

    This is the total variation distance between the predicted distributions, from 0 to 1, in the middle of each window,
    where the model reads characters on both sides of the target.
    """
    position = STEPS // 2  # the target is the character at position + 1
    generator = torch.Generator().manual_seed(seed)
    letters = model.output.out_features - RESERVED
    replaced = inputs.clone()
    offsets = torch.randint(1, letters, (len(inputs),), generator=generator)
    replaced[:, position + 1 + distance] = (
        RESERVED + (inputs[:, position + 1 + distance] - RESERVED + offsets) % letters
    )
    before, after = (model(ids)[:, position].softmax(-1) for ids in (inputs, replaced))
    return ((before - after).abs().sum(-1) / 2).mean().item()


def report(
    models: dict[str, NextCharacter], text_field: Text, train_tokens: np.ndarray, dev_tokens: np.ndarray
) -> None:
    def line(title: str, cells: list[str]) -> None:
        print(f"{title:44}" + "".join(f"{cell:>16}" for cell in cells))

    noise = np.random.default_rng(0).integers(RESERVED, len(text_field.vocabulary), 4000)
    line("", list(models))
    print("Perplexity of the next character, as reported by the training loop")
    for title, tokens in (("training text", train_tokens), ("unseen text", dev_tokens)):
        line(f"  {title}", [f"{perplexity(cross_entropy(model, *windows(tokens))):.2f}" for model in models.values()])
    line(
        "  random characters", [f"{perplexity(cross_entropy(model, *windows(noise))):.2f}" for model in models.values()]
    )
    print(f"The same on unseen text, by position in the window of {STEPS}")
    unseen = {name: cross_entropy(model, *windows(dev_tokens)) for name, model in models.items()}
    line(f"  positions 1 to {STEPS - 1}", [f"{perplexity(values[:, :-1]):.2f}" for values in unseen.values()])
    line(f"  position {STEPS}: the target is outside", [f"{perplexity(v[:, -1]):.2f}" for v in unseen.values()])
    print("Change of a prediction if one character is replaced (0 to 1)")
    for distance in DISTANCES:
        where = (
            "the target itself"
            if not distance
            else f"{abs(distance)} {'after' if distance > 0 else 'before'} the target"
        )
        moves = [influence(model, windows(dev_tokens)[0], distance) for model in models.values()]
        line(f"  {where}", [f"{move:.3f}" for move in moves])
    print(f"Text generated after {PROMPT!r}")
    for name, model in models.items():
        print(f"  {name:28}{generate(model, text_field, PROMPT, 60)}")
    print(f"  {'bidirectional, rereading':28}{generate_rereading(models['bidirectional'], text_field, PROMPT, 60)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="timemachine", help="a file, or a name listed by `weft data list`")
    parser.add_argument("--quick", action="store_true", help="small models, few steps, embedded text")
    options = parser.parse_args()
    data, hidden, steps = ("python-docs", 48, 120) if options.quick else (options.data, 128, 400)
    text = TextConfig(tokenizer="char", lower=True, letters_only=True, limit=100_000)
    with tempfile.TemporaryDirectory() as folder:
        text_field, _ = store_corpus(text, open_data(data), None, Path(folder))
        size = len(text_field.vocabulary)
        train_tokens, dev_tokens = (
            np.array(open_tokens(Path(folder) / f"{name}.tokens.npy", size)) for name in ("train", "dev")
        )
    models = {}
    for name, bidirectional in (("forward", False), ("bidirectional", True)):
        torch.manual_seed(1)
        models[name] = NextCharacter(size, hidden, bidirectional=bidirectional)
        train(models[name], train_tokens, steps)
        models[name].eval()
    report(models, text_field, train_tokens, dev_tokens)


if __name__ == "__main__":
    main()
