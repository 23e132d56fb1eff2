"""<eos> ends a text only where it stood between texts in training: the same from Python, the command and the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

import weft
from weft.cli import app
from weft.decoding import Sample
from weft.server.comparison import Comparisons
from weft.server.completion import Completion, CompletionRequest
from weft.server.config import ServerConfig
from weft.server.http import Context
from weft.server.metrics import Metrics
from weft.server.models import Models
from weft.server.sessions import SessionStore
from weft.text.tokenizers import TOKENIZERS

LINES = ["the cat sat .\n", "the dog ran to the cat .\n", "a cat ran .\n", "the small dog sat on a mat .\n"] * 6
TEXTS = {"one text": ["".join(LINES)], "several texts": LINES}
SMALL = {"model.hidden_size": 8, "model.embedding_dim": 4, "train.epochs": 1, "batch.size": 2, "batch.seq_length": 8}
PROMPTS, TOKENS, SEED = ("the cat", "a", ""), 60, 4
CASES = [(task, name) for task in ("ngram", "lm") for name in TOKENIZERS if task == "ngram" or name == "whitespace"]


def generate(context: Context, name: str, **options: Any) -> list[str]:
    """What the server generates, with and without log-probabilities: these take another way."""

    async def ask(log_probs: int | None) -> list[str]:
        request = CompletionRequest(PROMPTS, TOKENS, sample=Sample(0.9), seed=SEED, log_probs=log_probs)
        completion = await Completion.prepare(context, context.models.get(name), request)
        return [one.text for one in await completion.whole()]

    plain, logged = asyncio.run(ask(None)), asyncio.run(ask(1))
    assert plain == logged
    return plain


@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize(("task", "tokenizer"), CASES)
def test_python_command_and_server_end_a_text_at_the_same_token(tmp_path, task, tokenizer, texts):
    settings = {"text.tokenizer": tokenizer, "text.holdout": 0.2, **(SMALL if task == "lm" else {})}
    settings |= {"text.max_vocab_size": 40} if tokenizer == "subword" else {}
    weft.train(task, weft.Corpus.from_texts("text", TEXTS[texts]), tmp_path / "run", settings, progress=False)
    model = weft.load(tmp_path / "run")
    expected = model.generate_many(PROMPTS, tokens=TOKENS, sampler=Sample(0.9), seed=SEED)

    options = ["--tokens", str(TOKENS), "--temperature", "0.9", "--seed", str(SEED), "--json"]
    prompts = [part for prompt in PROMPTS for part in ("--prompt", prompt)]
    done = CliRunner().invoke(app, ["generate", str(tmp_path / "run"), *prompts, *options], catch_exceptions=False)
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == expected

    config, metrics = ServerConfig(), Metrics()
    models = Models({"run": tmp_path / "run"}, config, metrics)
    try:
        context = Context(config, models, SessionStore(config, models), Comparisons(), metrics)
        generated = generate(context, "run")
    finally:
        models.stop()
    assert [prompt + text for prompt, text in zip(PROMPTS, generated, strict=True)] == expected

    ends = texts == "several texts" and model.text_field.tokenizer.line_end != "<eos>"
    assert (model.end_id is not None) == ends
    lengths = [len(model.text_field.tokenizer.split(text)) for text in generated]
    assert (min(lengths) < TOKENS / 2) == ends, lengths
