"""The charts of the pages of results, drawn from the records: scores against CPU time, and speed against the bound.

They follow the reader's light or dark setting, as all figures of `weft.pictures` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np

from tools.records import read
from tools.tables import (
    AXES,
    CLASSIFICATION,
    FORECAST_SETS,
    OTHERS,
    cpu_minutes,
    is_of_others,
    of_row,
    of_series,
    peer_name,
    peers,
    series_rows,
)
from weft.pictures.draw_curves import draw_curves
from weft.pictures.figures import Curve, Curves
from weft.pictures.svg import SMALL, Canvas, number, text_width

WIDTH, LEFT, RIGHT, TOP, PANEL = 680, 46, 14, 34, 236
OURS, ALONE, THEIRS = 0, 1, 6  # hues of weft.pictures
LEAST = 0.05 / 60  # minutes: shorter times were rounded to 0


class Point(NamedTuple):
    """A model in a panel: its name, CPU minutes, score, hue, and the scores of its seeds."""

    name: str
    minutes: float
    score: float
    hue: int
    seeds: tuple[float, ...] = ()


class Panel(NamedTuple):
    """One data set: its title, its points, and what the vertical axis is."""

    title: str
    points: list[Point]
    axis: str


def point(name: str, row: str, metric: str = "", hue: int = OURS, scale: float = 1.0) -> Point | None:
    """A point of weft: the mean of a row's seeds."""
    if not (records := of_row(row)):
        return None
    values = tuple(scale * (one["metrics"][metric] if metric else one["score"]) for one in records)
    return Point(name, cpu_minutes(records), mean(values), hue, values)


SHORT = {
    "LSTM of 512 units (plain torch)": "LSTM, plain torch",
    "transformer, 4 layers of 128 (plain torch)": "transformer, plain torch",
    "GRU encoder-decoder of 256 units with attention (plain torch)": "GRU with attention, plain torch",
    "DynamicOptimizedTheta": "dynamic Theta",
}


def other_points(row: str, scale: float = 1.0) -> list[Point]:
    names = [SHORT.get(one["model"], one["model"].replace(" (scikit-learn)", "")) for one in peers().get(row, [])]
    return [
        Point(name, one["seconds"] / 60, scale * one["score"], THEIRS)
        for name, one in zip(names, peers().get(row, []), strict=True)
    ]


def some(*points: Point | None) -> list[Point]:
    return [one for one in points if one is not None]


def language_models() -> str:
    shakespeare = Panel(
        "tiny Shakespeare, characters",
        [*some(point("weft", "lm/tinyshakespeare")), *other_points("lm/tinyshakespeare")],
        "nats per character: lower is better",
    )
    rows = [point(f"weft, {n} minutes", f"lm/wikitext-2, {n} min, 1 thread") for n in (10, 60)]
    words = Panel("WikiText-2, words", some(*rows), "perplexity: lower is better")
    return draw("Language models: score against CPU time", [shakespeare, words])


def classification() -> str:
    panels = []
    for line in CLASSIFICATION:
        ours = [point("weft", line.row, scale=100), point("its network alone", line.row, "network alone", ALONE, 100)]
        panels.append(Panel(line.data, [*some(*ours), *other_points(line.row, 100)], "accuracy, %"))
    return draw("Classification: accuracy against CPU time", panels)


def tagging() -> str:
    sets = {
        "tag/en_ewt": ("English Web Treebank, parts of speech", "accuracy, %"),
        "tag/wnut17": ("WNUT 17, named entities", "span F1, %"),
        "tag/zh_gsdsimp": ("Chinese GSD, word segmentation", "word F1, %"),
    }
    panels = []
    for row, (title, axis) in sets.items():
        ours = [point("weft", row, scale=100), point("weft, raw text", f"{row}, raw text", scale=100)]
        ours.append(point("weft, 3 members", f"{row}, 3 members", scale=100))
        panels.append(Panel(title, [*some(*ours), *other_points(row, 100)], axis))
    return draw("Tagging: score against CPU time", panels)


def translation() -> str:
    ours = [
        point("weft, 4 minutes", "mt/fra-eng, 4 min"),
        point("weft, 14 minutes on 2 cores", "mt/fra-eng, 14 min", "greedy"),
        point("weft, 14 minutes, dropout 0.05", "mt/fra-eng, 14 min, dropout 0.05", "greedy"),
    ]
    points = [*some(*ours), *other_points("mt/fra-eng, 4 min")]
    return draw(
        "Translation: BLEU against CPU time", [Panel("English to French, 163,867 pairs", points, "BLEU, greedy")]
    )


def forecasts() -> str:
    panels = []
    for name, title in FORECAST_SETS.items():
        points = [
            Point(SHORT.get(peer_name(one), peer_name(one)), one["seconds"] / 60, one["mase"], THEIRS)
            for one in series_rows(name)
            if is_of_others(one)
        ]
        for model, label, hue in (("auto", "weft", OURS), ("linear", "its linear map alone", ALONE)):
            records = of_series(name, model)
            values = tuple(one["mase"] for one in records)
            points.append(Point(label, mean(one["seconds"] for one in records) / 60, mean(values), hue, values))
        panels.append(Panel(title.partition(":")[0], points, "MASE: lower is better"))
    return draw("Forecasts: error against CPU time", panels)


def draw(title: str, panels: Sequence[Panel]) -> str:
    """Panels of points in two columns, each with axes of its own; the horizontal one is logarithmic."""
    lines = math.ceil(len(panels) / 2)
    canvas = Canvas(WIDTH, 44 + lines * PANEL + 8, title)
    for place, panel in enumerate(panels):
        alone = place % 2 == 0 and place == len(panels) - 1
        width = (WIDTH - 16) / (1 if alone else 2)
        draw_panel(canvas, panel, 8 + place % 2 * width, 44 + place // 2 * PANEL, width)
    return canvas.render()


def draw_panel(canvas: Canvas, panel: Panel, x: float, y: float, width: float) -> None:
    left, right, top, base = x + LEFT, x + width - RIGHT, y + TOP + 18, y + PANEL - 42
    canvas.text(x + 8, y + 16, panel.title, weight="600")
    canvas.text(x + 8, y + 33, panel.axis, "faint", size=SMALL)
    times = [math.log10(max(one.minutes, LEAST)) for one in panel.points]
    low, high = min(times) - 0.3, max(times) + 0.45
    values = [value for one in panel.points for value in (one.score, *one.seeds)]
    pad = 0.12 * (max(values) - min(values)) or 1.0
    least, most = min(values) - pad, max(values) + pad

    def px(minutes: float) -> float:
        return left + (math.log10(minutes) - low) / (high - low) * (right - left)

    def py(value: float) -> float:
        return base - (value - least) / (most - least) * (base - top)

    for tick in round_ticks(least, most):
        canvas.line(left, py(tick), right, py(tick), "grid")
        canvas.text(left - 6, py(tick) + 4, f"{tick:g}", "faint", size=SMALL, anchor="end")
    factors = (1, 2, 5) if (right - left) / (high - low) > 170 else (1,)
    for tick in [factor * 10.0**power for power in range(-4, 3) for factor in factors]:
        if low <= math.log10(tick) <= high:
            canvas.line(px(tick), base, px(tick), base + 4)
            canvas.text(px(tick), base + 17, f"{tick:g}", "faint", size=SMALL, anchor="middle")
    canvas.line(left, base, right, base)
    canvas.text((left + right) / 2, base + 33, "CPU minutes", "faint", size=SMALL, anchor="middle")
    labels = []
    for one in panel.points:
        at, height = px(max(one.minutes, LEAST)), py(one.score)
        if len(one.seeds) > 1:
            canvas.line(at, py(min(one.seeds)), at, py(max(one.seeds)), f"line{one.hue}", 2)
        note = f"{one.name}: {number(one.score)}, {one.minutes:.2g} CPU minutes"
        canvas.circle(at, height, 4.5 if one.hue != THEIRS else 3.5, f"dot{one.hue}", note=note)
        size = text_width(one.name, SMALL) * (1.08 if one.hue == THEIRS else 1.2)
        begin = at + 8 if at + 8 + size < right + RIGHT - 4 else at - 8 - size
        labels.append((begin, size, height))
    dots = [(px(max(one.minutes, LEAST)), py(one.score)) for one in panel.points]
    for one, (begin, _, height), line in zip(panel.points, labels, apart(labels, dots), strict=True):
        css, weight = (f"dot{one.hue}", "600") if one.hue != THEIRS else ("faint", "")
        at = px(max(one.minutes, LEAST))
        if abs(line - height) > 6:
            canvas.line(at + 3, height, begin - 2, line, "axis")
        canvas.text(begin, line + 4, one.name, css, size=SMALL, weight=weight)


Label = tuple[float, float, float]  # its beginning, its width, the height of its middle


def apart(labels: Sequence[Label], dots: Sequence[tuple[float, float]] = (), least: float = 13) -> list[float]:
    """The heights of labels, moved until none overlaps another one or the dot of a point (x, height)."""
    heights = [height for _, _, height in labels]
    order = sorted(range(len(labels)), key=lambda place: heights[place])
    for _ in range(60):
        for before, after in ((a, b) for place, a in enumerate(order) for b in order[place + 1 :]):
            (x, size, _), (other, width, _) = labels[before], labels[after]
            short = least - (heights[after] - heights[before])
            if short > 0 and x < other + width and other < x + size:
                heights[before] -= short / 2
                heights[after] += short / 2
        for place, (x, size, height) in enumerate(labels):
            for at, y in dots:
                short = 10 - abs(heights[place] - y)
                if short > 0 and x < at + 4 and at - 4 < x + size:
                    heights[place] += short if height > y else -short
    return heights


def round_ticks(low: float, high: float) -> list[float]:
    """About four round values between two ends."""
    power = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * 4.5 >= high - low)
    return [round(step * k, 10) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


class Bar(NamedTuple):
    """A row of the chart of speed: the work, how many times as fast as the peer, and the ratio at the bound, or 0."""

    work: str
    ratio: float
    bound: float


TRAINING, EQUATIONS, INFERENCE, RUNTIMES = (
    "training, against torch.nn",
    "training, against the same equations in torch",
    "inference, against torch.nn",
    "against the fastest other runtime",
)


def speed() -> str:
    """Ratios to the peers as bars on a logarithmic axis, each with the ratio at the bound."""
    layers = read("engine")
    groups: dict[str, list[Bar]] = {TRAINING: [], EQUATIONS: [], INFERENCE: [], RUNTIMES: []}
    for one in layers["layers"]:
        kind = EQUATIONS if "eager" in one["peer"] or "loop" in one["peer"] else TRAINING
        kind = kind if "train" in one["work"] else INFERENCE
        if "wrong" not in one["peer"]:
            name = one["work"].replace(" as the notes write it,", " of the study notes")
            for words in (", train", ", inference", ", vocabulary 28", " H256", " I100 H128"):
                name = name.replace(words, "")
            groups[kind].append(Bar(name, one["ratio"], one["bound"] or 0))
    for one in layers["runtimes"]:
        best = min((name for name in one["times"] if name != "weft"), key=lambda name: one["times"][name])
        name = "LSTM, training" if "train" in one["work"] else one["work"].partition(",")[0]
        groups[RUNTIMES].append(Bar(f"{name} ({OTHERS[best]})", one["ratio"], 0))
    return draw_bars("Speed: how many times as fast as the peer", groups)


def draw_bars(title: str, groups: dict[str, list[Bar]]) -> str:
    step, left, right = 19, 300, WIDTH - 30
    height = 110 + step * sum(len(bars) for bars in groups.values()) + 30 * len(groups)
    canvas = Canvas(WIDTH, height, title)
    for line, words in enumerate(
        (
            "A bar ends at the measured ratio; 1 is as fast as the peer. The stroke behind it is the bound: the",
            "ratio if the matrix products ran at the processor's peak and everything else took no time.",
        )
    ):
        canvas.text(16, 46 + 17 * line, words, "faint")
    top, base, high = 72, height - 28, math.log2(28)

    def px(ratio: float) -> float:
        return left + math.log2(ratio) / high * (right - left)

    y = top
    for tick in (1, 2, 4, 8, 16):
        canvas.line(px(tick), top + 8, px(tick), base, "axis" if tick == 1 else "grid")
        canvas.text(px(tick), base + 16, f"{tick}", "faint", size=SMALL, anchor="middle")
    for group, bars in groups.items():
        y += 24
        canvas.text(16, y - 4, group, weight="600", size=SMALL)
        for bar in sorted(bars, key=lambda bar: -bar.ratio):
            shown = f"{bar.ratio:.2f}" if bar.ratio < 1.05 else f"{bar.ratio:.1f}"
            canvas.text(left - 46, y + 13, bar.work, size=SMALL, anchor="end")
            canvas.text(left - 10, y + 13, shown, size=SMALL, anchor="end", weight="600")
            begin, end = sorted((px(1), px(bar.ratio)))
            note = f"{bar.work}: {bar.ratio:g} times as fast" + (f"; bound {bar.bound:g}" if bar.bound else "")
            if bar.bound:
                canvas.line(end, y + 9, px(bar.bound), y + 9, "axis")
                canvas.line(px(bar.bound), y + 4, px(bar.bound), y + 14, "axis", 2)
            css = f"dot{OURS if bar.ratio >= 1 else ALONE}"
            canvas.rect(begin, y + 2, max(end - begin, 2), 14, css, note=note)
            y += step
        y += 6
    return canvas.render()


def growth(axis: str, kind: str) -> str:
    """Time or memory of a training step as one size grows."""
    found = read("growth")[kind]["rows"][axis]
    unit, label = "milliseconds" if kind == "time" else "megabytes", AXES[axis]
    names = {"weft": "weft", "checkpointed": "weft, checkpointed", "torch": "torch"}
    curves = tuple(
        Curve(name, np.arange(len(found)), np.array([one[key] for one in found])) for key, name in names.items()
    )
    title = f"One training step: {unit} as the {label} {'grows' if axis == 'vocabulary' else 'grow'}"
    ticks = tuple(f"{one['value']:,}" for one in found)
    return draw_curves(Curves(title, curves, x_label=label, y_label=unit, log=True, ticks=ticks)).render()


CHARTS: dict[str, Callable[[], str]] = {
    "results-language-models.svg": language_models,
    "results-classification.svg": classification,
    "results-tagging.svg": tagging,
    "results-forecasts.svg": forecasts,
    "results-translation.svg": translation,
    "results-speed.svg": speed,
    **{
        f"growth-{axis.lower()}-{kind}.svg": (lambda axis=axis, kind=kind: growth(axis, kind))
        for axis in AXES
        for kind in ("time", "memory")
    },
}
