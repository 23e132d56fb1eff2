"""Language models on real data, by the commands as a user types them; the time is that of the whole command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.quality.rows import Result, Row, data

WIKITEXT = "lm", "wikitext-2"


def weft(*arguments: object) -> str:
    """Runs a command; returns what it prints."""
    command = [sys.executable, "-m", "weft", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def trained(run: Path, seed: int, *arguments: object) -> float:
    """Trains a language model; returns the seconds of the command."""
    began = time.perf_counter()
    weft("train", "lm", "--out", run, "--seed", seed, *arguments)
    return time.perf_counter() - began


def evaluated(run: Path, text: Path | None = None) -> Any:
    """Evaluates a run on a text, or on its own held-out text."""
    return json.loads(weft("eval", run, *([] if text is None else ["--data", text]), "--json"))


def split_shakespeare(folder: Path) -> tuple[Path, Path]:
    """The first nine tenths of tiny Shakespeare, to train on, and the last, to test."""
    text = data("lm", "tinyshakespeare", "input.txt").read_text(encoding="utf-8")
    cut = len(text) * 9 // 10
    paths = folder / "train.txt", folder / "test.txt"
    for path, part in zip(paths, (text[:cut], text[cut:]), strict=True):
        path.write_text(part, encoding="utf-8")
    return paths


def shakespeare(folder: Path, seed: int) -> Result:
    """Tiny Shakespeare: characters, 6 minutes on one thread; it reads all of the training text, as the peers do."""
    train, test = split_shakespeare(folder)
    limits = ("--minutes", 6, "--threads", 1, "--set", "text.holdout=0")
    seconds = trained(folder / "run", seed, "--data", train, *limits)
    found = evaluated(folder / "run", test)
    nats = math.log(found["perplexity"])
    return Result("test nats per character", nats, seconds, {"perplexity": found["perplexity"]}, 1)


def time_machine(folder: Path, seed: int) -> Result:
    """The Time Machine as it stands: its last tenth is held out and measured; 2 minutes on two threads."""
    text = data("lm", "timemachine.txt")
    seconds = trained(folder / "run", seed, "--data", text, "--minutes", 2, "--threads", 2)
    found = evaluated(folder / "run")
    return Result("held-out perplexity per character", found["perplexity"], seconds, threads=2)


def wikitext(minutes: float, threads: int) -> Any:
    def run(folder: Path, seed: int) -> Result:
        train, dev, test = (data(*WIKITEXT, f"{part}.txt.gz") for part in ("train", "valid", "test"))
        limits = ("--minutes", minutes, "--threads", threads, "--set", "text.tokenizer=whitespace")
        seconds = trained(folder / "run", seed, "--data", train, "--dev", dev, *limits)
        found = evaluated(folder / "run", test)
        return Result("test perplexity per word", found["perplexity"], seconds, threads=threads)

    return run


ROWS = {
    "lm/tinyshakespeare": Row(1.42, shakespeare, seeds=(1, 2, 3), lower_is_better=True),
    "lm/timemachine": Row(4.05, time_machine, seeds=(1, 2, 3), lower_is_better=True),
    "lm/wikitext-2, 10 min": Row(217.8, wikitext(10, 2), seeds=(1,), lower_is_better=True),
    "lm/wikitext-2, 60 min": Row(115.0, wikitext(60, 2), seeds=(1,), lower_is_better=True),
}
