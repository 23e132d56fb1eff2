"""What every task computes on small data, recorded, so that a change of structure can be compared with what was before.

Trains each task for about 20 steps in float32 and bf16, also with members, from another run, from an encoder, and with
two workers; then runs every command with `--json` on these runs. The record has a hash of the weights, the held-out
scores, and a hash of each output.

    python -m tests.long.recorded write [--outputs FOLDER]     about ten minutes; writes tests/long/recorded.json
    python -m tests.long.recorded check [--outputs FOLDER]     trains anew, and lists what differs

With --outputs the outputs themselves are written to a folder, so that two of them can be compared by diff.
The bits depend on the CPU, the engine and torch, as those of tests/weights.json do.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.paths import ROOT

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file

from tests.unit.tasks.test_weights import machine

RECORD = ROOT / "tests" / "long" / "recorded.json"
# What differs from run to run: times, and the folders that the runs are in.
VARYING = {"seconds", "minutes", "path", "date", "started", "duration", "tokens_per_second", "steps_per_second"}

WORDS = ["the", "Old", "man", "saw", "New", "York", "and", "a", "small", "Dog", "near", "Rome", "today"]
GOOD, BAD = ["fine", "good", "lovely", "bright"], ["poor", "dull", "bad", "grey"]


def write_data(folder: Path) -> None:
    """Small data for each task, by rules and not at random."""
    lines = [" ".join(WORDS[(row * 7 + place * 3) % 13] for place in range(4 + row % 6)) for row in range(200)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    (folder / "other.txt").write_text("\n".join(lines[::-3]) + "\n")
    labelled = [
        f"{'good' if row % 2 else 'bad'}\t{lines[row]} {(GOOD if row % 2 else BAD)[row % 4]} {lines[-row - 1]}"
        for row in range(160)
    ]
    (folder / "labelled.tsv").write_text("\n".join(labelled) + "\n")
    tagged = (
        "\n".join(f"{word}\t{'B-X' if word[0].isupper() else 'O'}" for word in line.split()) for line in lines[:120]
    )
    (folder / "tagged.tsv").write_text("\n\n".join(tagged) + "\n")
    words = ["我们", "在", "这里", "看", "电影院", "的", "书"]
    rows = [" ".join(words[(row * 5 + place * 3) % 7] for place in range(2 + row % 5)) for row in range(120)]
    (folder / "segments.txt").write_text("\n".join(rows) + "\n")
    pairs = [f"{line.lower()}\t{' '.join(word.upper() for word in line.split()[::-1])}" for line in lines]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")


LAYERS = ["--set", "model.hidden_size=24", "--set", "model.embedding_dim=12"]
TIED = ["--set", "model.hidden_size=24", "--set", "model.embedding_dim=24"]
WORDS_LM = ["--set", "text.tokenizer=word", "--set", "model.ngram_order=2", "--set", "text.min_count=1"]
SMALL_LM = [*LAYERS, "--set", "batch.size=4", "--set", "batch.seq_length=9", "--set", "train.evaluate_every=10"]
EPOCHS = ["--epochs", "2"]
BY_WORDS = ["--set", "text.tokenizer=word"]
TAGGER = ["--set", "model.hidden_size=24"]

# The name of a run, and the arguments of `weft train`: {x} is another run or a file of the data.
RUNS: dict[str, list[str]] = {
    "lm": ["lm", "--data", "{text.txt}", *SMALL_LM, "--set", "model.num_layers=2", "--set", "text.limit=1200"],
    "lm-words": ["lm", "--data", "{text.txt}", *SMALL_LM, *WORDS_LM],
    "lm-backward": ["lm", "--data", "{text.txt}", *SMALL_LM, "--set", "model.backward=true", *BY_WORDS],
    "lm-like": ["lm", "--data", "{text.txt}", *SMALL_LM, "--set", "text.limit=1200", "--seed", "2"],
    "lm-members": ["lm", "--data", "{text.txt}", *SMALL_LM, "--set", "text.limit=900", "--members", "2"],
    "lm-from": ["lm", "--data", "{other.txt}", "--from", "{lm}", "--epochs", "1"],
    "lm-workers": ["lm", "--data", "{text.txt}", *SMALL_LM, "--set", "text.limit=1200", "--workers", "2"],
    "fill": ["fill", "--data", "{text.txt}", *TIED, "--set", "batch.size=8", *EPOCHS],
    "fill-members": ["fill", "--data", "{text.txt}", *TIED, "--set", "batch.size=8", "--epochs", "1", "--members", "2"],
    "ngram": ["ngram", "--data", "{text.txt}", "--set", "text.limit=1200"],
    "hmm": ["hmm", "--data", "{text.txt}", "--set", "model.num_states=4", "--set", "train.iterations=8"],
    "classify": ["classify", "--data", "{labelled.tsv}", *LAYERS, "--epochs", "4", "--set", "model.wide=false"],
    "classify-wide": ["classify", "--data", "{labelled.tsv}", *LAYERS, "--epochs", "4"],
    "classify-members": ["classify", "--data", "{labelled.tsv}", *LAYERS, "--epochs", "2", "--members", "2"],
    "classify-from": ["classify", "--data", "{labelled.tsv}", "--from", "{classify}", "--epochs", "2"],
    "classify-encoder": ["classify", "--data", "{labelled.tsv}", "--encoder", "{lm-backward}", *EPOCHS],
    "classify-workers": [
        "classify", "--data", "{labelled.tsv}", *LAYERS, *EPOCHS, "--set", "model.wide=false", "--workers", "2",
    ],
    "tag": ["tag", "--data", "{tagged.tsv}", *TAGGER, *EPOCHS],
    "tag-members": ["tag", "--data", "{tagged.tsv}", *TAGGER, "--epochs", "1", "--members", "2"],
    "tag-from": ["tag", "--data", "{tagged.tsv}", "--from", "{tag}", "--epochs", "1"],
    "tag-encoder": ["tag", "--data", "{tagged.tsv}", "--encoder", "{lm-backward}", "--epochs", "1"],
    "tag-workers": ["tag", "--data", "{tagged.tsv}", *TAGGER, *EPOCHS, "--workers", "2"],
    "segment": ["tag", "--data", "{segments.txt}", "--set", "data.task=segments", *TAGGER, *EPOCHS],
    "translate": ["translate", "--data", "{pairs.tsv}", *LAYERS, "--set", "text.min_count=1", "--epochs", "3"],
    "translate-members": ["translate", "--data", "{pairs.tsv}", *LAYERS, "--epochs", "1", "--members", "2"],
    "translate-from": ["translate", "--data", "{pairs.tsv}", "--from", "{translate}", "--epochs", "1"],
    "translate-workers": ["translate", "--data", "{pairs.tsv}", *LAYERS, *EPOCHS, "--workers", "2"],
}  # fmt: skip
UNTRAINED = {"ngram", "hmm"}  # their training has no precision

# The name of an output, and the command that prints it.
COMMANDS: dict[str, list[str]] = {
    **{f"eval {name}": ["eval", f"{{{name}}}"] for name in RUNS if name not in ("segment",)},
    "eval segment": ["eval", "{segment}", "--data", "{segments.txt}"],
    "eval other": ["eval", "{lm}", "--data", "{other.txt}"],
    "eval against": ["eval", "{lm}", "--data", "{other.txt}", "--against", "{lm-like}"],
    "eval adapt": ["eval", "{lm-words}", "--data", "{other.txt}", "--adapt", "both"],
    "eval nbsvm": ["eval", "{classify-wide}", "--data", "{labelled.tsv}", "--against", "nbsvm"],
    "generate": ["generate", "{lm}", "--prompt", "the Old", "--tokens", "40"],
    "generate greedy": ["generate", "{lm-words}", "--prompt", "the", "--tokens", "12", "--greedy"],
    "generate members": ["generate", "{lm-members}", "--prompt", "the", "--tokens", "30", "--top-k", "5"],
    "generate ngram": ["generate", "{ngram}", "--prompt", "the", "--tokens", "30", "--top-p", "0.9"],
    "generate hmm": ["generate", "{hmm}", "--prompt", "the", "--tokens", "20"],
    "fill": ["fill", "{fill}", "the ___ man saw", "a ___ Dog"],
    "fill several": ["fill", "{fill-members}", "the ___ saw", "--tokens", "2"],
    "fill hmm": ["fill", "{hmm}", "the ___ man"],
    "classify": ["classify", "{classify}", "a fine small Dog", "dull", "--probabilities", "--weights"],
    "classify wide": ["classify", "{classify-wide}", "a fine small Dog", "dull", "--probabilities", "--weights"],
    "classify members": ["classify", "{classify-members}", "a fine small Dog", "--probabilities"],
    "tag": ["tag", "{tag}", "the Old man saw Rome", "--confidence"],
    "tag n-best": ["tag", "{tag-members}", "the Old man saw Rome", "--n-best", "3"],
    "tag segments": ["tag", "{segment}", "我们在这里看书", "--confidence"],
    "translate": ["translate", "{translate}", "the old man saw rome", "--n-best", "3"],
    "translate greedy": ["translate", "{translate-members}", "the old man", "--beam", "1", "--attention"],
    **{
        f"look {run} {show}": ["look", f"{{{run}}}", *([text] if text else []), "--show", show]
        for run, text, shows in [
            ("lm", "the Old man", "surprisal gates states gradient jacobian terms connectivity beam evidence"),
            ("fill", "the ___ man", "surprisal gates states gradient connectivity"),
            ("hmm", "the man", "surprisal posterior beam"),
            ("ngram", "the man", "surprisal beam"),
            ("classify", "a fine Dog", "gates states gradient connectivity evidence"),
            ("classify", "", "confusion"),
            ("tag", "the Old man", "gates states gradient posterior evidence connectivity"),
            ("translate", "the old man", "gates attention beam states"),
        ]
        for show in shows.split()
    },
    "plot": ["plot", "{lm}", "{lm-like}"],
    "compare": ["compare", "{lm}", "{lm-like}"],
    "compare classify": ["compare", "{classify}", "{classify-from}"],
    "runs": ["runs", "{.}"],
    "mix": ["mix", "{lm-like}", "{ngram}", "--out", "{mixed}"],
    "eval mix": ["eval", "{mixed}", "--data", "{other.txt}"],
    "data list": ["data", "list"],
}


def run(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Runs a command in this process; with workers, in one of its own."""
    filled = [_place(part, folder) for part in arguments]
    if "--workers" in filled:
        done = subprocess.run([sys.executable, "-m", "weft", *filled], capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout, done.stderr
    from weft.cli import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    code = 0
    sys.argv = ["weft", *filled]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def _place(part: str, folder: Path) -> str:
    return str(folder / part[1:-1]) if part.startswith("{") and part.endswith("}") else part


def weights_hash(path: Path) -> str:
    """A hash of the tensors of a run's weights, members and n-gram models included, in the order of their names."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*.safetensors")):
        if file.name.startswith(("checkpoint", "initial")):
            continue
        for name, tensor in sorted(load_file(file).items()):
            digest.update(f"{file.name} {name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def held_out(path: Path) -> dict[str, float]:
    """The last held-out scores of a run."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    found = [line["evaluation"] for line in lines if line.get("evaluation")]
    return found[-1] if found else {}


def normalized(text: str, folder: Path) -> str:
    """An output without what differs from run to run."""
    rows = []
    for line in text.replace(str(folder), "").splitlines():
        try:
            rows.append(json.dumps(_without_varying(json.loads(line)), sort_keys=True, ensure_ascii=False))
        except ValueError:
            rows.append(line)
    return "\n".join(rows)


def _without_varying(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_varying(item) for key, item in value.items() if key not in VARYING}
    return [_without_varying(item) for item in value] if isinstance(value, list) else value


def compute(folder: Path, outputs: Path | None) -> dict[str, Any]:
    """Trains all runs and runs all commands."""
    write_data(folder)
    record: dict[str, Any] = {"runs": {}, "outputs": {}}
    for name, arguments in RUNS.items():
        for precision in ("float32",) if name in UNTRAINED else ("float32", "bf16"):
            out = folder / (name if precision == "float32" else f"{name}-bf16")
            extra = [] if name in UNTRAINED else ["--precision", precision]
            code, _, err = run(["train", *arguments, *extra, "--out", str(out)], folder)
            if code:
                raise SystemExit(f"{name}: exit code {code}\n{err}")
            record["runs"][out.name] = {"weights": weights_hash(out), "held_out": held_out(out)}
            print(out.name, record["runs"][out.name]["weights"], flush=True)
    for name, arguments in COMMANDS.items():
        code, out_text, err = run([*arguments, "--json"], folder)
        text = normalized(out_text, folder)
        record["outputs"][name] = {"code": code, "sha256": hashlib.sha256(text.encode()).hexdigest()[:16]}
        if code:
            print(f"{name}: exit code {code}: {err.strip().splitlines()[-1:]}", flush=True)
        if outputs is not None:
            (outputs / f"{name}.json").write_text(text + "\n")
    return record


def main() -> int:
    """Writes the record, or compares with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("write", "check"))
    parser.add_argument("--outputs", type=Path, help="a folder for the outputs themselves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.outputs is not None:
        options.outputs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found = compute(Path(folder), options.outputs)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if options.action == "write":
        RECORD.write_text(json.dumps({**known, machine(): found}, indent=1, ensure_ascii=False) + "\n")
        return 0
    before = known.get(machine())
    if before is None:
        print(f"nothing is recorded for this machine ({machine()})")
        return 2
    differing = [
        f"{kind} {name}: {before[kind].get(name)} -> {found[kind].get(name)}"
        for kind in ("runs", "outputs")
        for name in {**before[kind], **found[kind]}
        if before[kind].get(name) != found[kind].get(name)
    ]
    print("\n".join(differing) or f"all equal: {len(found['runs'])} runs, {len(found['outputs'])} outputs")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
