"""The tables of the pages of results, each from the records of measurements: lines of Markdown.

`TABLES` has them by the names that stand in the pages' marks; `tools/pages.py` puts them there.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

from tools.records import PEERS, TASKS, changed, read

Record = Mapping[str, Any]


class Line(NamedTuple):
    """A line of a table of results: the row of the records, its data, what was trained, its command."""

    row: str
    data: str
    trained: str = ""
    peers: str = ""  # the row whose other tools have the same test set; without one: the row
    command: str = ""  # without one: make results


LANGUAGE_MODELS = (
    Line("lm/tinyshakespeare", "tiny Shakespeare, characters", "LSTM, 512 units, with 7-grams; 6 minutes"),
    Line("lm/timemachine", "The Time Machine, characters; held-out text", "LSTM, 256 units, with 7-grams"),
    Line(
        "lm/wikitext-2, 10 min, 1 thread",
        "WikiText-2, words",
        "GRU, 512 units, with 3-grams; 10 minutes",
        command="`weft train lm`, below",
    ),
    Line(
        "lm/wikitext-2, 60 min, 1 thread",
        "WikiText-2, words",
        "GRU, 768 units, with 3-grams; 60 minutes",
        command="`weft train lm`, below",
    ),
)
CLASSIFICATION = (
    Line("cls/sst2", "SST-2: 6,920 sentences"),
    Line("cls/imdb-subset", "IMDB: 5,000 reviews"),
    Line("cls/chnsenticorp", "ChnSentiCorp: 9,600 reviews"),
    Line("cls/amazon", "Amazon: 700 sentences"),
    Line("cls/imdb-sentences", "IMDB: 700 sentences"),
    Line("cls/yelp", "Yelp: 700 sentences"),
)
TAGGING = (
    Line("tag/en_ewt", "English Web Treebank, parts of speech", "defaults"),
    Line("tag/en_ewt, raw text", "the same", "3 members, pretrained on raw text", "tag/en_ewt"),
    Line("tag/wnut17", "WNUT 17, named entities", "defaults"),
    Line("tag/wnut17, raw text", "the same", "3 members, pretrained on raw text", "tag/wnut17"),
    Line("tag/zh_gsdsimp", "Chinese GSD, word segmentation", "defaults"),
    Line("tag/zh_gsdsimp, 3 members", "the same", "3 members", "tag/zh_gsdsimp"),
    Line("tag/zh_gsdsimp, raw text", "the same", "3 members, pretrained on raw text", "tag/zh_gsdsimp"),
)
TRANSLATION = (
    Line(
        "mt/fra-eng, 14 min, dropout 0.05",
        "all 163,867 pairs",
        "14 minutes on 2 cores, dropout 0.05",
        "mt/fra-eng, 4 min",
    ),
    Line("mt/fra-eng, 14 min", "all 163,867 pairs", "14 minutes on 2 cores, defaults", "mt/fra-eng, 4 min"),
    Line("mt/fra-eng, 4 min", "all 163,867 pairs", "4 minutes on 1 core, defaults"),
    Line("mt/fra-eng, 30,000 pairs", "30,000 pairs", "defaults"),
    Line("mt/fra-eng, 10,000 pairs", "10,000 pairs", "defaults"),
    Line("mt/fra-eng, 1,000 pairs", "1,000 pairs", "defaults"),
)
SPEED = (  # what a layer does, as benchmarks/speed/engine.py names it, and as the page does
    ("LSTM H256, vocabulary 28, train", "LSTM, 256 units, training"),
    ("LSTM H256, vocabulary 28, inference", "LSTM, 256 units, inference"),
    ("GRU H256, vocabulary 28, train", "GRU, 256 units, training"),
    ("RNN H256, vocabulary 28, train", "RNN, 256 units, training"),
    ("LSTM I512 H512, train", "LSTM, 512 units, training"),
    ("2-layer bidirectional LSTM H256, train", "2-layer bidirectional LSTM, training"),
    ("bidirectional LSTM I100 H128, lengths 4-60, train", "bidirectional LSTM, rows of 4 to 60 steps, training"),
    ("additive H256, train", "a cell of your own, 256 units, training"),
    ("layer-norm-lstm H256, train", "layer-norm LSTM, 256 units, training"),
    ("sru H256, train", "SRU, 256 units, training"),
    ("one step of one stream, LSTM H256", "one step of one stream, LSTM"),
)
OTHERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "jax": "JAX", "torch": "torch", "weft": "weft"}


def task_records() -> list[Any]:
    """The records of trainings, one for each row and seed."""
    return [*json.loads(TASKS.read_text(encoding="utf-8")), *read("language-models")]


def of_row(row: str) -> list[Any]:
    return [record for record in task_records() if record["row"] == row]


def peers() -> dict[str, list[Any]]:
    """Other tools, by row."""
    found: dict[str, list[Any]] = json.loads(PEERS.read_text(encoding="utf-8"))
    return found


def lower_is_better(metric: str) -> bool:
    return "perplexity" in metric or "nats" in metric or "MASE" in metric


def best_peer(row: str) -> Any | None:
    """The other tool with the best score on the split of a row."""
    found = peers().get(row, [])
    if not found:
        return None
    pick = min if lower_is_better(of_row(row)[0]["metric"]) else max
    return pick(found, key=lambda one: one["score"])


def cpu_minutes(records: Sequence[Record]) -> float:
    """The mean over the seeds: CPU time where it was recorded, else the time times the threads."""
    return mean(one.get("CPU minutes", one["minutes"] * one["threads"]) for one in records)


def minutes(value: float) -> str:
    """CPU minutes for a cell."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.01 else "< 0.01"


def exact(record: Record) -> float:
    """The score of a record before it was rounded, where its metrics have it."""
    found: float = record["metrics"].get("f1", record["metrics"].get("accuracy", record["score"]))
    return found


def shown(value: float, metric: str) -> str:
    """A score for a cell: accuracy and F1 in percent."""
    if "perplexity per word" in metric or "BLEU, " in metric:
        return f"{value:.1f}"
    return f"{value:.3f}" if lower_is_better(metric) else f"{100 * value + 1e-9:.1f}"


def score(values: Sequence[float], metric: str) -> str:
    """Mean and spread: the least and the greatest of the seeds."""
    spread = f" ({shown(min(values), metric)}–{shown(max(values), metric)})" if len(values) > 1 else ""
    return f"**{shown(mean(values), metric)}**{spread}"


def measured(records: Iterable[Record]) -> str:
    """Date and commits, and whether a record is outdated."""
    records = list(records)
    commits = dict.fromkeys(one["commit"] for one in sorted(records, key=lambda one: one["date"]))
    mark = " **outdated**" if any(changed(one) for one in records) else ""
    return f"{max(one['date'] for one in records)}, {', '.join(commits)}{mark}"


def make_results(row: str) -> str:
    name = f'"{row}"' if " " in row else row
    return f"`make results ROW={name}`"


def rows(heads: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """A table of Markdown."""
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    return [*lines, *(f"| {' | '.join(cells)} |" for cells in body)]


def prose(text: str) -> list[str]:
    """A paragraph, or an item of a list, in lines of at most 120 characters."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def other_tool(line: Line) -> str:
    """The best other tool on the same test set, its score and its CPU minutes."""
    row = line.peers or line.row
    found = best_peer(row)
    if found is None:
        return "none measured"
    score, mark = shown(found["score"], of_row(row)[0]["metric"]), " **outdated**" if changed(found) else ""
    return f"{found['model'].partition(' (scikit')[0]} {score} ({minutes(found['seconds'] / 60)} min){mark}"


def results(lines: Iterable[Line], heads: Sequence[str], extra: Callable[[list[Any]], list[str]]) -> list[str]:
    """A table of results; a line without a record is left out."""
    body = []
    for line in lines:
        if records := of_row(line.row):
            scores, metric = [exact(one) for one in records], records[0]["metric"]
            trained = [line.trained] if line.trained else []
            cells = [line.data, *trained, score(scores, metric), *extra(records), str(len(records))]
            cells += [minutes(cpu_minutes(records)), other_tool(line), measured(records)]
            body.append([*cells, line.command or make_results(line.row)])
    return rows([*heads, "seeds", "CPU minutes", "best other tool", "measured", "command"], body)


def language_models() -> list[str]:
    table = results(LANGUAGE_MODELS, ("data", "trained", "score", "metric"), metric_name)
    found = read("memorise")
    ours, theirs = 2 * found["seconds"] / 60, 2 * found["notes' recipe"]["seconds"] / 60
    cells = ["The Time Machine, first 10,000 characters", "GRU, 256 units, until they are memorised", "**1.1**"]
    cells += [
        "training perplexity",
        str(found["seeds"]),
        minutes(ours),
        f"the study notes' recipe 1.1 ({theirs:.2f} min)",
    ]
    return [*table, *rows([], [[*cells, measured([found]), f"`{found['command']}`"]])[2:]]


def wikitext_commands() -> list[str]:
    one = of_row("lm/wikitext-2, 10 min, 1 thread")[0]
    train, evaluate = one["command"].split(" && ")
    return ["The command of WikiText-2, with `--minutes 60` in the second row:", "", f"    {train}", f"    {evaluate}"]


def classification() -> list[str]:
    def network(records: list[Any]) -> list[str]:
        return [score([one["metrics"]["network alone"] for one in records], "accuracy").replace("**", "")]

    return results(CLASSIFICATION, ("data", "accuracy, %: mixture", "network alone"), network)


def ahead_in_classification() -> list[str]:
    """Where the n-gram baseline inside weft is ahead of the mixture."""
    behind = []
    for line in CLASSIFICATION:
        records = of_row(line.row)
        baseline, ours = mean(one["metrics"]["NB-SVM"] for one in records), mean(one["score"] for one in records)
        if baseline > ours:
            behind.append(f"{line.data.partition(':')[0]} ({100 * baseline:.1f} against {100 * ours:.1f})")
    where = f"ahead of the mixture on {', '.join(behind)}" if behind else "behind the mixture on each of these sets"
    return prose(
        "**Where others are ahead:** the linear models need a small fraction of the time, and NB-SVM is ahead of the "
        "network alone on each of these sets. The NB-SVM inside weft, which `weft eval --against nbsvm` shows, is "
        f"{where}."
    )


def tagging() -> list[str]:
    return results(TAGGING, ("data", "trained", "score, %", "metric"), metric_name)


def metric_name(records: list[Any]) -> list[str]:
    return [records[0]["metric"].removeprefix("test ").removeprefix("held-out ")]


def translation() -> list[str]:
    lines = []
    for line in TRANSLATION:
        if records := of_row(line.row):
            beam = records[0]["metric"] == "BLEU, beam 5"
            greedy = [one["metrics"]["greedy"] if beam else one["score"] for one in records]
            beams = [one["score"] if beam else one["metrics"]["beam 5"] for one in records]
            cells = [line.data, line.trained, score(greedy, "BLEU, "), score(beams, "BLEU, ")]
            cells += [f"{mean(one['metrics']['chrF'] for one in records):.1f}", str(len(records))]
            cells += [minutes(cpu_minutes(records)), other_tool(line), measured(records), make_results(line.row)]
            lines.append(cells)
    heads = ("data", "trained", "BLEU, greedy", "BLEU, beam 5", "chrF", "seeds", "CPU minutes")
    return rows([*heads, "best other tool, greedy", "measured", "command"], lines)


def speed() -> list[str]:
    """Layers and whole models against torch."""
    engine, models = read("engine"), read("accelerate")
    layers = {one["work"]: one for one in reversed(engine["layers"])}
    body = []
    for work, name in SPEED:
        one = layers[work]
        share = f"{one['bound']:.1f}" if one["bound"] else ""
        times = [f"{one['weft']:.3g}", f"{one['theirs']:.3g}", f"**{one['ratio']:.1f}**", share]
        body.append([name, one["peer"], *times])
    for one in models["models"]:
        train = one["train"]
        times = [f"{train['after']:.1f}", f"{train['before']:.1f}", f"**{train['ratio']:.2f}**", ""]
        name = f"{one['model']}, with `weft.accelerate`, training"
        body.append([name, "torch.nn", *times])
    when = (
        f"Layers: measured {measured([engine])}, by `make bench`, {engine['machine']}. Models of others: "
        f"{measured([models])}, by `{models['command']}`, {models['machine']}. {engine['versions']}."
    )
    return [*rows(["work", "peer", "weft, ms", "peer, ms", "peer / weft", "bound"], body), "", *prose(when)]


def ahead_in_speed() -> list[str]:
    """The sentence that says where another tool is as fast or faster."""
    behind = [
        f"{OTHERS[name]} for {one['work'].partition(',')[0]} inference ({one['ratio']:.2f})"
        for one in read("engine")["runtimes"]
        if one["ratio"] < 1
        for name in [min((name for name in one["times"] if name != "weft"), key=lambda name: one["times"][name])]
    ]
    behind += [
        f"torch for the {one['model']} ({one['train']['ratio']:.2f})"
        for one in read("accelerate")["models"]
        if one["train"]["ratio"] < 1
    ]
    return prose(f"**Where others are ahead:** {'; '.join(behind) or 'nowhere in these measurements'}.")


def best_other(times: Mapping[str, float], precision: str) -> tuple[str, float]:
    """The fastest other runtime of a precision, and its time."""
    found = {name: value for name, value in times.items() if name.endswith(precision) and not name.startswith("weft")}
    name = min(found, key=lambda one: found[one])
    return OTHERS[name.partition(" ")[0]], found[name]


def inference() -> list[str]:
    found = read("inference")
    body = []
    for one in found["layers"]:
        times, cells = one["times"], [one["work"]]
        for precision in ("float32", "bf16"):
            name, value = best_other(times, precision)
            cells += [f"{times[f'weft {precision}']:.2f}", f"{name} {value:.2f}"]
            cells.append(f"**{one['ratios'][precision]:.2f}**")
        body.append([*cells, f"{times['weft int8']:.2f}"])
    heads = [
        "work, milliseconds",
        "float32",
        "best other",
        "other / weft",
        "bf16",
        "best other",
        "other / weft",
        "int8",
    ]
    return [*rows(heads, body), "", *inference_measured()]


def inference_measured() -> list[str]:
    found = read("inference")
    return prose(f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}; {found['versions']}.")


def ahead_in_inference() -> list[str]:
    behind: dict[tuple[str, str], list[str]] = {}
    for one in read("inference")["layers"]:
        for precision in ("float32", "bf16"):
            if one["ratios"][precision] < 1:
                name, _ = best_other(one["times"], precision)
                behind.setdefault((precision, name), []).append(f"{one['work']} ({one['ratios'][precision]:.2f})")
    parts = [f"{name} in {precision} for {'; '.join(works)}" for (precision, name), works in behind.items()]
    return prose(f"**Where others are ahead:** {'. '.join(parts) or 'nowhere in these measurements'}.")


def models_of_others() -> list[str]:
    found = read("accelerate")
    body = []
    for one in found["models"]:
        times = (one["train"], one["inference"])
        cells = [f"{kind['before']:.1f} | {kind['after']:.1f} | **{kind['ratio']:.2f}**" for kind in times]
        body.append([one["model"], *cells, f"{one['recurrent share']:.0%}"])
    heads = ["model", "train, before", "after", "ratio", "inference, before", "after", "ratio", "recurrent share"]
    largest = {kind: max(max(one[kind]) for one in found["models"]) for kind in ("float32", "float64")}
    differ = " and ".join(f"{value:.1e} in {kind}" for kind, value in largest.items())
    return [
        *rows(heads, body),
        "",
        *prose(f"Outputs and gradients differ by at most {differ}, relative to the largest element of their tensor."),
        "",
        *prose(
            f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}; {found['versions']}. The "
            "original and the accelerated model run alternately in one process; each time is the shortest of its "
            "rounds."
        ),
    ]


def packages_of_others() -> list[str]:
    body = [
        [one["model"], one["package"], f"{one['million parameters']:.1f}", one["one call reads"]]
        for one in read("accelerate")["models"]
    ]
    return rows(["model", "package", "million parameters", "one call reads"], body)


def engine_machine() -> list[str]:
    found, narrow = read("engine"), read("engine-avx2")
    memory = found["memory"]
    items = (
        f"machine: {found['machine']}; {found['versions']}",
        f"measured: {measured([found])}, by `{found['command']}` (`make bench`)",
        f"peak: {found['peak']} GFLOP/s, multiply-adds in registers on all threads; torch's product of two matrices of "
        f"1024 x 1024 has {found['roof']} GFLOP/s",
        f"memory that one training step keeps, LSTM of 256 units: weft {memory['weft']} MB, torch.nn.LSTM "
        f"{memory['torch.nn.LSTM']} MB",
        f"AVX2: torch held to it too, {narrow['machine']}; measured {measured([narrow])}, by `{narrow['command']}`; "
        f"peak {narrow['peak']} GFLOP/s",
    )
    return [line for item in items for line in prose(f"- {item}")]


def engine_layers() -> list[str]:
    body = [
        [
            *(one["work"], one["peer"], f"{one['weft']:.3f}", f"{one['theirs']:.3f}", f"**{one['ratio']:.1f}**"),
            *(("", "") if not one["bound"] else (f"{one['bound']:.1f}", f"{one['share']:.2f}")),
        ]
        for one in read("engine")["layers"]
    ]
    return rows(["work", "peer", "weft, ms", "peer, ms", "peer / weft", "bound", "share"], body)


EAGER = "the same equations, eager torch"


def linked(work: str) -> str:
    """What was measured, with a link to the notes that it names."""
    return work.replace("as the notes write it", "of the [study notes](from-the-notes.md)")


def engine_ratios(eager: bool) -> list[str]:
    """The layers that torch has, or the cells that it lacks; beside them, the ratios with AVX2.

    Shares of the bound stand with the layers; the bounds of the cells are in the laboratory.
    """
    body, narrow = [], {(one["work"], one["peer"]): one for one in read("engine-avx2")["layers"]}
    for one in read("engine")["layers"]:
        if (one["peer"] == EAGER) == eager:
            work = [one["work"].partition(" H256")[0]] if eager else [linked(one["work"]), one["peer"]]
            times = (f"{one[who]:#.3g}".rstrip(".") for who in ("weft", "theirs"))
            other = narrow.get((one["work"], one["peer"]))
            shares = [f"{each['share']:.2f}" if each and each["share"] else "" for each in (one, other)]
            body.append([*work, *times, f"**{one['ratio']:.1f}**", f"{other['ratio']:.1f}" if other else "", *shares])
            if eager:
                del body[-1][-2:]
    heads = [*(["cell"] if eager else ["work", "peer"]), "weft, ms", "peer, ms", "peer / weft", "AVX2: peer / weft"]
    return rows([*heads, *([] if eager else ["share of the bound", "AVX2: share"])], body)


def engine_runtimes() -> list[str]:
    names = ("weft", "torch", "onnxruntime", "openvino", "jax")
    body = [
        [
            one["work"],
            *(f"{one['times'][name]:.2f}" if name in one["times"] else "" for name in names),
            f"**{one['ratio']:.2f}**",
        ]
        for one in read("engine")["runtimes"]
    ]
    return rows(["work, ms", *(OTHERS[name] for name in names), "best other / weft"], body)


def chains() -> list[str]:
    found = read("chains")
    body = []
    for one in found["operations"]:
        times = dict(one["milliseconds"])
        ours = times.pop("weft")
        others = [f"{name} {value:.2f}" for name, value in times.items()]
        ratio = " to ".join(f"{value:.1f}" for value in sorted({round(one["ratios"][name], 1) for name in times}))
        body.append([one["work"], f"{ours:.2f}", "; ".join(others), f"**{ratio}**"])
    ngrams = found["ngrams"]
    date = measured([found]).replace(" **outdated**", " (**the code has changed since**)")
    when = f"Measured {date}, by `{found['command']}`: {found['machine']}; {found['versions']}."
    counted = (
        "Training an n-gram model (order 5, modified Kneser-Ney) on 2,000,000 tokens with a vocabulary of 20,000 "
        f"takes {ngrams['seconds']:.1f} s and {ngrams['gigabytes']:.2f} GB of peak memory; it has "
        f"{ngrams['count']:,} n-grams."
    )
    table = rows(["operation", "weft, ms", "others, ms", "other / weft"], body)
    return [*table, "", *prose(counted), "", *prose(f"{when} Median of {found['rounds']} rounds.")]


AXES = {"T": "steps T", "B": "rows B", "H": "hidden units H", "layers": "layers", "vocabulary": "vocabulary"}


def growth(axis: str) -> list[str]:
    found = read("growth")
    names, body = ("weft", "checkpointed", "torch"), []
    for time, memory in zip(found["time"]["rows"][axis], found["memory"]["rows"][axis], strict=True):
        times = [f"{time[name]:.3g}" if time[name] < 1000 else f"{time[name]:,.0f}" for name in names]
        used = [f"{memory[name]:,.0f}" if memory[name] >= 10 else f"{memory[name]:.1f}" for name in names]
        body.append([f"{time['value']:,}", *times, f"**{time['ratio']:.2f}**", *used])
    heads = [AXES[axis], *(f"{name}, ms" for name in names), "torch / weft", *(f"{name}, MB" for name in names)]
    return rows(heads, body)


def growth_sequences() -> list[str]:
    """Sequences of 10,000 steps."""
    names = ("weft", "checkpointed", "torch")
    body = [
        [
            *(f"{one['T']:,}", str(one["B"]), *(f"{one['time'][name]:,.0f}" for name in names)),
            *(f"**{one['time']['ratio']:.2f}**", *(f"{one['memory'][name]:,.0f}" for name in names)),
        ]
        for one in read("growth")["sequences"]["rows"]
    ]
    heads = [*(f"{name}, ms" for name in names), "torch / weft", *(f"{name}, MB" for name in names)]
    return rows(["steps T", "rows B", *heads], body)


def growth_measured() -> list[str]:
    found = read("growth")
    parts = {"times": "time", "memory": "memory", "checkpointing in time": "layer"}
    when = "; ".join(f"{name} {measured([found[part]])}" for name, part in parts.items())
    return prose(f"Measured by `{found['command']}` ({when}): {found['machine']}; {found['versions']}.")


def checkpointing() -> list[str]:
    body = [
        [f"{one['T']:,}", f"{one['weft']:,.1f}", f"{one['checkpointed']:,.1f}"]
        for one in read("growth")["layer"]["rows"]
    ]
    return rows(["steps T", "weft, MB", "checkpointed, MB"], body)


def rates() -> list[str]:
    found = read("growth")["rate"]
    body = [
        [
            *(f"{one['T']:,}", str(one["B"]), f"{one['forward']:.1f}", f"{one['backward']:.1f}"),
            *(f"{one['system']:.1f}", f"{one['forward, us a step']:.1f}", f"{one['rate']:.0f}"),
        ]
        for one in found["rows"]
    ]
    heads = ["steps T", "rows B", "forward, ms", "backward, ms", "system, ms", "forward, us a step", "GFLOP/s"]
    when = f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}."
    return [*rows(heads, body), "", *prose(when)]


def precision() -> list[str]:
    found = read("precision")

    def seeds(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2f}" for value in values)

    body = [
        [
            one["work"],
            *(seeds(one["float32"]), seeds(one["bf16"]), f"{one['difference']:+.2f}", f"{one['spread']:.2f}"),
            *(seeds(one["int8"]), f"{one['largest change']:.2%}"),
        ]
        for one in found["rows"]
    ]
    heads = ["task", "float32, by seed", "bf16, by seed", "difference of means", "spread of float32", "int8, by seed"]
    table = rows([*heads, "largest change"], body)
    return [*table, "", f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}."]


def precision_means() -> list[str]:
    """The means over the seeds."""
    found = read("precision")
    body = [
        [one["work"], *(f"{mean(one[kind]):.2f}" for kind in ("float32", "bf16", "int8")), f"{one['spread']:.2f}"]
        for one in found["rows"]
    ]
    table = rows(["task", "float32", "bf16", "int8", "seeds differ by"], body)
    return [*table, "", f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}."]


def runtime(name: str) -> str:
    """A runtime and its precision, as the pages write it."""
    first, _, rest = name.partition(" ")
    return f"{OTHERS[first]} {rest}".strip()


def inference_layers(precision: str) -> list[str]:
    """The layers in one precision; those of int8 stand beside bf16."""
    found = read("inference")
    kinds = (precision, "int8") if precision == "bf16" else (precision,)
    names = [name for name in found["layers"][0]["times"] if name.endswith(kinds)]
    body = [
        [one["work"], *(f"{one['times'][name]:.2f}" for name in names), f"**{one['ratios'][precision]:.2f}**"]
        for one in found["layers"]
    ]
    return rows(["work, ms", *(runtime(name) for name in names), f"{precision}: best other / weft"], body)


def inference_train() -> list[str]:
    found = read("inference")["train"]
    names, ratios = list(found[0]["times"]), list(found[0]["ratios"])
    body = [
        [one["work"], *(f"{one['times'][n]:.2f}" for n in names), *(f"**{one['ratios'][n]:.2f}**" for n in ratios)]
        for one in found
    ]
    return rows(["work, ms", *names, *ratios], body)


def inference_step() -> list[str]:
    found = {one["runtime"]: one["microseconds"] for one in read("inference")["step"]}
    ratios = {name: found["onnxruntime float32"] / value for name, value in found.items()}
    body = [
        [runtime(name), f"{value:.1f}", f"**{ratios[name]:.1f}**" if ratios[name] > 0.1 else f"**{ratios[name]:.2f}**"]
        for name, value in found.items()
    ]
    return rows(["runtime", "microseconds", "ONNX Runtime / this"], body)


def inference_streams() -> list[str]:
    body = [
        [one["runtime"], f"{one['together']:,.0f}", f"{one['one after the other']:,.0f}", f"**{one['ratio']:.1f}**"]
        for one in read("inference")["streams"]
    ]
    return rows(["runtime", "stepped together", "one after the other", "ratio"], body)


def inference_avx2() -> list[str]:
    found = read("inference-avx2")
    names = list(found["layers"][0]["times"])
    wide = {one["work"]: one["ratios"]["float32"] for one in read("inference")["layers"]}
    body = [
        [
            *(one["work"], *(f"{one['times'][name]:.2f}" for name in names), f"**{one['ratios']['float32']:.2f}**"),
            f"{wide[one['work']]:.2f}" if one["work"] in wide else "",
        ]
        for one in found["layers"]
    ]
    when = f"Measured {measured([found])}, by `{found['command']}`: {found['machine']}; {found['versions']}."
    heads = ["work, ms", *(runtime(name) for name in names), "best held to AVX2 / weft", "AVX-512: best / weft"]
    return [*rows(heads, body), "", *prose(when)]


def peer_cell(value: float, metric: str, seconds: float, outdated: bool) -> str:
    """A score and its CPU seconds."""
    time = f"{seconds:.1f}" if seconds >= 0.05 else "<&nbsp;0.1"
    return f"{shown(value, metric)} ({time}&nbsp;s){' **outdated**' if outdated else ''}"


def peers_classification() -> list[str]:
    """Other classifiers, a column each."""
    names = ("NB-SVM", "linear SVC", "logistic regression", "fastText")
    body = []
    for line in CLASSIFICATION:
        records, found = of_row(line.row), {one["model"].partition(" (")[0]: one for one in peers()[line.row]}
        seconds, outdated = cpu_minutes(records) * 60, any(changed(one) for one in records)
        alone = mean(one["metrics"]["network alone"] for one in records)
        cells = [line.data, peer_cell(mean(exact(one) for one in records), "accuracy", seconds, outdated)]
        cells.append(shown(alone, "accuracy"))
        others = [found[name] for name in names]
        body.append(
            [*cells, *(peer_cell(one["score"], "accuracy", one["seconds"], bool(changed(one))) for one in others)]
        )
    return rows(["data", "weft", "its network alone", *names], body)


def peers_others() -> list[str]:
    """The other tools of the other tasks."""
    body = []
    for line in (*LANGUAGE_MODELS, *TAGGING, *TRANSLATION):
        records, found = of_row(line.row), peers().get(line.row, [])
        if not found:
            continue
        metric = records[0]["metric"]
        outdated = any(changed(one) for one in records)
        ours = peer_cell(mean(exact(one) for one in records), metric, cpu_minutes(records) * 60, outdated)
        theirs = [f"{one['model']}: {peer_cell(one['score'], metric, one['seconds'], changed(one))}" for one in found]
        data = f"English to French, {line.data}" if line in TRANSLATION else line.data
        body.append([data, metric.removeprefix("test "), ours, "; ".join(theirs)])
    return rows(["data", "metric", "weft", "others"], body)


def peers_table() -> list[str]:
    body = []
    for row, found in sorted(peers().items()):
        if records := of_row(row):
            scores = [one["score"] for one in records]
            spread = f" ({min(scores):.4f} to {max(scores):.4f}, {len(scores)} seeds)" if len(scores) > 1 else ""
            seconds = 60 * cpu_minutes(records)
            cells = [row, "**weft**", f"**{mean(scores):.4f}**{spread}", f"{seconds:.1f}", "defaults"]
            body.append([*cells, measured(records)])
            if "network alone" in records[0]["metrics"]:
                alone = mean(one["metrics"]["network alone"] for one in records)
                cells = [row, "weft, the network alone", f"{alone:.4f}", f"{seconds:.1f}", "a part of the row above"]
                body.append([*cells, measured(records)])
            sign = 1 if lower_is_better(records[0]["metric"]) else -1
            found = sorted(found, key=lambda one: sign * one["score"])
        for one in found:
            cells = [row, one["model"], f"{one['score']:.4f}", f"{one['seconds']:.1f}", one["settings"]]
            body.append([*cells, measured([one])])
    return rows(["data", "model", "score", "CPU seconds", "settings", "measured"], body)


def seeds() -> list[str]:
    """Every record of a training."""
    body = []
    for one in task_records():
        also = ", ".join(f"{name} {number(value)}" for name, value in one["metrics"].items())
        threads = "" if one["threads"] == 2 else f" ({one['threads']} thread{'s' if one['threads'] != 1 else ''})"
        cells = [one["row"], one["metric"], str(one["seed"]), f"**{number(one['score'])}**"]
        body.append([*cells, f"{one['minutes']:.1f}{threads}", also, measured([one])])
    return rows(["data", "metric", "seed", "score", "minutes", "also", "measured"], body)


def number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("|", "\\|")


DECODERS = {
    "dot": "dot product",
    "additive": "additive",
    "bilinear": "bilinear",
    "scaled dot": "scaled dot product",
    "attention before the step": "bilinear, before the step of the decoder",
    "none (context)": "none; the encoder's last state is read at every step",
    "none (state)": "none; the encoder's last state is the decoder's first",
}


def decoders() -> list[str]:
    body = []
    for name, title in DECODERS.items():
        (one,) = of_row(f"mt/fra-eng, 4 min, {name}")
        cells = [title, f"{one['score']:.2f}", f"{one['metrics']['beam 5']:.2f}", f"{one['metrics']['steps']:,}"]
        body.append([*cells, f"{one['minutes']:.1f}", measured([one])])
    return rows(["attention", "BLEU, greedy", "beam 5", "steps", "minutes", "measured"], body)


def notes_translator() -> list[str]:
    body = []
    for one in of_row("mt/fra-eng, notes"):
        found = one["metrics"]
        speeds = [f"{found['tokens/s']:,.0f}", f"{found[NOTES_LOOP]:,.0f}", f"{found['ratio']:.2f}"]
        body.append([str(one["seed"]), f"{one['score']:.4f}", *speeds, f"{one['minutes']:.2f}", measured([one])])
    heads = ["seed", "mean BLEU of four sentences", "weft, tokens/s", "the notes' loop, tokens/s", "ratio", "minutes"]
    return rows([*heads, "measured"], body)


NOTES_LOOP = "the notes' loop"

SERIES_SETS = ("tourism-monthly", "tourism-quarterly", "tourism-yearly", "m4-hourly", "electricity")
FORECAST_SETS = {
    "tourism-monthly": "Tourism, monthly: 366 series, 24 months ahead",
    "tourism-quarterly": "Tourism, quarterly: 427 series, 8 quarters ahead",
    "tourism-yearly": "Tourism, yearly: 518 series, 4 years ahead",
    "m4-hourly": "M4, hourly: 414 series, 48 hours ahead",
}
MASE = "MASE, lower is better"
SERIES_TITLES = {"mase": "MASE", "smape": "sMAPE", "scaled_crps": "scaled CRPS", "msis": "MSIS"}


def series(name: str) -> list[str]:
    """The forecasters of a set of series; means over seeds."""
    by_model: dict[str, list[Any]] = {}
    for one in series_rows(name):
        by_model.setdefault(one["model"], []).append(one)
    body = []
    for model, records in sorted(by_model.items(), key=lambda item: (is_of_others(item[1][0]), item[0])):

        def mean_of(score: str, digits: int, records: Sequence[Record] = records) -> str:
            return f"{mean(one[score] for one in records):.{digits}f}" if score in records[0] else ""

        scores = [mean_of(score, 3 if score != "msis" else 2) for score in SERIES_TITLES]
        cells = [model if is_of_others(records[0]) else f"weft, {model}", f"**{scores[0]}**", *scores[1:]]
        cells += [mean_of(f"coverage_{percent}", 3) for percent in (80, 95)]
        body.append([*cells, mean_of("seconds", 1), str(len(records)), measured(records)])
    heads = ["model", *SERIES_TITLES.values(), "inside 80 %", "inside 95 %", "CPU seconds", "runs", "measured"]
    return rows(heads, body)


def series_parts() -> list[str]:
    """The combination beside its best forecaster alone: of each horizon, and of the held-out horizons together."""
    body = []
    for name in FORECAST_SETS:
        held_out = sorted({one["held_out"] for one in read("series")["rows"] if one["set"] == name and held(one)})
        windows = {number: of_series(name, "auto", number) for number in (0, *held_out)}
        windows = {number: own for number, own in windows.items() if all("parts" in one for one in own)}
        lines = {"test values" if not number else f"{number} before": [own] for number, own in windows.items()}
        if len(held_out) > 1:
            lines["held out, mean"] = [windows[number] for number in held_out if number in windows]
        for label, groups in lines.items():
            auto = mean(mean(one["mase"] for one in group) for group in groups)
            known = set.intersection(*({*one["parts"]} for group in groups for one in group))
            alone = {part: mean(mean(one["parts"][part] for one in group) for group in groups) for part in known}
            best = min(alone, key=lambda part: (alone[part], part))
            cells = [name, label, f"**{auto:.3f}**", f"{best} {alone[best]:.3f}", f"{auto / alone[best]:.3f}"]
            records = [one for group in groups for one in group]
            shares = [f"{mean(one[part] for one in records):.3f}" for part in ("coverage_80", "coverage_95")]
            body.append([*cells, *shares, measured(records)])
    heads = ["set", "horizon", "auto, MASE", "its best forecaster alone", "ratio", "inside 80 %", "inside 95 %"]
    return rows([*heads, "measured"], body)


def forecasts() -> list[str]:
    """The default forecaster beside the best one of other packages."""
    body = []
    for name, data in FORECAST_SETS.items():
        ours, best = of_series(name, "auto"), best_of_others(name)
        cells = [data, score([one["mase"] for one in ours], MASE), f"{100 * mean(inside(one) for one in ours):.1f}"]
        peer = f"{peer_name(best)} {shown(best['mase'], MASE)} ({minutes(best['seconds'] / 60)} min)"
        cells += [str(len(ours)), minutes(mean(one["seconds"] for one in ours) / 60), peer, measured(ours)]
        body.append([*cells, f"`python -m benchmarks.quality.series --sets {name} --models auto`"])
    heads = ["data", "MASE", "inside 80 % intervals, %", "seeds", "CPU minutes", "best other tool", "measured"]
    return rows([*heads, "command"], body)


def inside(record: Record) -> float:
    found: float = record["coverage_80"]
    return found


def held(record: Record) -> bool:
    """Whether the scores are of a horizon before the test values."""
    return "held_out" in record


def series_rows(name: str) -> list[Any]:
    """The records of a set of series on test values."""
    return [one for one in read("series")["rows"] if one["set"] == name and not held(one)]


def of_series(name: str, model: str, held_out: int = 0) -> list[Any]:
    """The records of a forecaster on a set of series: on test values, or on a horizon before them."""
    wanted = (name, model, held_out)
    return [one for one in read("series")["rows"] if (one["set"], one["model"], one.get("held_out", 0)) == wanted]


def best_of_others(name: str) -> Any:
    """The forecaster of another package with the lowest MASE on a set of series."""
    return min(filter(is_of_others, series_rows(name)), key=lambda one: one["mase"])


def is_of_others(record: Record) -> bool:
    return str(record["model"]).startswith(("statsforecast ", "neuralforecast "))


def peer_name(record: Record) -> str:
    """The name of a model without that of its package."""
    return str(record["model"]).partition(" ")[2]


def series_machine() -> list[str]:
    found = read("series")
    return prose(f"By `{found['command']}`: {found['machine']}; {found['versions']}.")


def series_classification() -> list[str]:
    """Classifiers of series; means over seeds."""
    by_model: dict[tuple[str, str], list[Any]] = {}
    for one in read("series-classification")["rows"]:
        by_model.setdefault((one["set"], one["model"]), []).append(one)
    body = []
    for (data, model), records in by_model.items():
        cells = [data, model if model == "weft" else f"aeon {model}", score([one["accuracy"] for one in records], "")]
        body.append([*cells, f"{mean(one['seconds'] for one in records):.1f}", str(len(records)), measured(records)])
    return rows(["data", "model", "accuracy, %", "CPU seconds", "runs", "measured"], body)


def anomalies() -> list[str]:
    """The labelled windows that are found, a row for each file and kind of model."""
    body = []
    for one in read("anomalies")["files"]:
        windows = (
            f"{one['windows']}, {one['in_training']} in the training part" if one["in_training"] else one["windows"]
        )
        cells = [one["file"], f"`{one['kind']}`", str(windows), f"**{one['found']}**", str(one["offline"])]
        body.append([*cells, str(one["alarms"]["0.001"]), f"{one['values']:,}", measured([one])])
    heads = ["file", "model", "labelled windows", "found", "by the z-score of the whole file"]
    return rows([*heads, "alarms at a rate of 0.001", "values", "measured"], body)


def anomalies_injected() -> list[str]:
    found = read("anomalies")["injected"]
    body = [[one["kind"], str(one["windows"]), f"**{one['found']}**", str(one["offline"])] for one in found]
    sums = [sum(one[name] for one in found) for name in ("windows", "found", "offline")]
    body.append(["all", str(sums[0]), f"**{sums[1]}**", str(sums[2])])
    return [
        *rows(["kind", "windows", "found", "z-score of the whole series"], body),
        "",
        f"Measured {measured(found)}.",
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "language models": language_models,
    "commands of WikiText-2": wikitext_commands,
    "classification": classification,
    "ahead in classification": ahead_in_classification,
    "tagging": tagging,
    "translation": translation,
    "the notes' translator": notes_translator,
    "speed": speed,
    "ahead in speed": ahead_in_speed,
    "inference": inference,
    "ahead in inference": ahead_in_inference,
    "models of others": models_of_others,
    "models of others, packages": packages_of_others,
    "engine, machine": engine_machine,
    "engine, layers": engine_layers,
    "engine, torch's layers": lambda: engine_ratios(eager=False),
    "engine, other cells": lambda: engine_ratios(eager=True),
    "engine, runtimes": engine_runtimes,
    "chains": chains,
    **{f"growth, {axis}": (lambda axis=axis: growth(axis)) for axis in AXES},
    "growth, measured": growth_measured,
    "growth, sequences": growth_sequences,
    "checkpointing": checkpointing,
    "rates": rates,
    "precision": precision,
    "precision, means": precision_means,
    "inference, float32": lambda: inference_layers("float32"),
    "inference, bf16": lambda: inference_layers("bf16"),
    "inference, training": inference_train,
    "inference, one step": inference_step,
    "inference, streams": inference_streams,
    "inference, measured": inference_measured,
    "inference, AVX2": inference_avx2,
    "peers": peers_table,
    "peers, classification": peers_classification,
    "peers, others": peers_others,
    "seeds": seeds,
    "decoders": decoders,
    "forecasts": forecasts,
    **{f"series, {name}": (lambda name=name: series(name)) for name in SERIES_SETS},
    "series, machine": series_machine,
    "series, parts": series_parts,
    "series, classification": series_classification,
    "anomalies": anomalies,
    "anomalies, injected": anomalies_injected,
}
