"""Makes the pictures of look.md, forecast.md, gradients.md and ladder-lesson.md from small real runs (10 minutes).

python -m tools.pictures [FOLDER]     FOLDER keeps the runs; those that are there are not trained again
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

import weft
from weft import probes
from weft.config import load_config
from weft.pictures import Curve, Curves, Figure, to_svg
from weft.tasks import get_task
from weft.tasks.curves import curve_figures

OUT = Path(__file__).parents[1] / "docs" / "pictures"
LARGEST = 150_000  # bytes of a picture

LADDER = {
    "rnn": "RNN",
    "additive": "additive",
    "coupled-gate": "coupled gate",
    "two-gates": "two gates",
    "gru": "GRU",
    "lstm": "LSTM",
}
SENTENCE = "The value of the expression is the object that the name refers to."
LESSON = "If the name is bound, its value is returned."
PASSAGE = (
    "A class definition is an executable statement. The inheritance list usually gives a list of base classes, so each "
    "item in the list should evaluate to a class object."
)
LAGS = 80

RUNS: dict[str, tuple[str, str, list[str]]] = {
    "translate": ("translate", "grammar-fr", ["model.hidden_size=64", "train.minutes=1.2"]),
    "hmm": ("hmm", "grammar", ["model.num_states=6", "text.tokenizer=word", "text.limit=20000", "train.iterations=40"]),
    "classify": ("classify", "grammar", ["model.hidden_size=16", "model.pooling=attention", "train.epochs=2"]),
    "tag": ("tag", "grammar", ["model.hidden_size=16", "train.minutes=0.1"]),
}
CHARACTERS = ["model.hidden_size=64", "model.num_layers=1", "model.embedding_dim=32", "model.dropout=0.0"]
TRAINED = ["batch.seq_length=64", "train.epochs=40", "train.learning_rate=0.004"]


def make_run(task: str, source: str, folder: Path, settings: list[str], *, train: bool = True) -> object:
    """A run of the folder, trained if it is not there."""
    if not folder.exists():
        print(f"training {folder.name}", file=sys.stderr, flush=True)
        own = get_task(task)
        training = own.start(source, folder, load_config(own.config_class, None, settings))
        for _ in training.steps() if train else ():
            pass
    return weft.load(folder)


def gradient_by_distance(models: dict[str, object], title: str) -> Curves:
    """The mean norm of dL_t/dh_s over all t, by the distance t - s."""
    curves = []
    for name, model in models.items():
        (layer,) = probes.gradient_flow(model, PASSAGE).layers
        norms = layer.states["h"]
        P = norms.shape[0]
        means = [float(np.mean([norms[t, t - lag] for t in range(LAGS, P)])) for lag in range(LAGS)]
        curves.append(Curve(name, np.arange(LAGS, dtype=np.float64), np.array(means) / means[0]))
    return Curves(
        title, tuple(curves), "distance t - s in characters", "norm of dL_t/dh_s, relative to s = t", log=True
    )


def save(name: str, figure: Figure) -> None:
    svg = to_svg(figure)
    if len(svg.encode()) > LARGEST:
        raise SystemExit(f"{name}: {len(svg.encode()):,} bytes, more than {LARGEST:,}")
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
    print(f"{name}.svg  {len(svg.encode()):,} bytes", file=sys.stderr)


def monthly_forecaster(folder: Path) -> object:
    """A run on generated series of a trend, a yearly wave and noise."""
    if not folder.exists():
        random, months = np.random.default_rng(4), np.arange(96)
        values = 100 + 0.6 * months + 20 * np.sin(months * np.pi / 6) + random.normal(0, 6, (8, 96))
        dates = np.datetime_as_string(np.datetime64("2017-01") + months, "M")
        names = np.repeat([f"shop {number}" for number in range(1, 9)], 96)
        table = {"unique_id": names.tolist(), "ds": np.tile(dates, 8).tolist(), "y": values.ravel()}
        weft.train_forecast(table, folder, {"model.kind": "linear"}, horizon=18, progress=False)
    return weft.load(folder)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    start, trained = {}, {}
    for cell, name in LADDER.items():
        settings = [*CHARACTERS, *TRAINED, f"model.cell={cell}"]
        start[name] = make_run("lm", "python-docs", folder / f"{cell}-start", settings, train=False)
        trained[name] = make_run("lm", "python-docs", folder / cell, settings)
    save("gradients-start", gradient_by_distance(start, "Gradients through time, random weights"))
    save("gradients-trained", gradient_by_distance(trained, "Gradients through time, after training"))
    lstm, rnn, gru = trained["LSTM"], trained["RNN"], trained["GRU"]
    save("surprisal", probes.surprisal(lstm, SENTENCE).figures()[0])
    save("connectivity", probes.connectivity(lstm, SENTENCE).figures()[0])
    laid = dataclasses.replace(probes.compare_surprisal(rnn, lstm, SENTENCE), first="the RNN", second="the LSTM")
    save("surprisal-two", laid.figures()[0])
    for gate in "ifo":
        found = probes.activations(lstm, LESSON)
        save(f"lesson-lstm-{gate}", found.gate_figures(gate=gate)[0])
    save("lesson-lstm-c", probes.activations(lstm, LESSON).state_figures(gate="c")[0])
    save("lesson-gru-z", probes.activations(gru, LESSON).gate_figures(gate="z")[0])
    coupled = probes.activations(trained["coupled gate"], LESSON)
    save("lesson-coupled-f", coupled.gate_figures(gate="f")[0])
    save("lesson-rnn-h", probes.activations(rnn, LESSON).state_figures()[0])
    jacobians = [probes.step_jacobians(model, LESSON)[0] for model in (rnn, trained["coupled gate"])]
    named = [
        Curve(name, np.array(one.positions, dtype=np.float64), one.norm)
        for name, one in zip(("RNN", "coupled gate"), jacobians, strict=True)
    ]
    title = "Largest singular value of dh_t/dh_(t-1)"
    save("jacobian", Curves(title, tuple(named), "step t", "norm", ticks=tuple(LESSON)))
    flow = probes.gradient_flow(lstm, LESSON)
    save("gradient-map", flow.figures()[1])
    curves = [probes.metric_curves(folder / cell) for cell in ("rnn", "gru", "lstm")]
    save("training", curve_figures(curves, ["cross_entropy"])[0])
    others = {name: make_run(task, source, folder / name, own) for name, (task, source, own) in RUNS.items()}
    text = "the king sees a dog."
    save("attention", probes.attention(others["translate"], text).figures()[0])
    save("beam", probes.beam(others["translate"], text, width=3).figures()[0])
    posterior = probes.posterior(others["hmm"], "the old king sees a dog").figures()
    save("hmm-marginals", posterior[0])
    save("hmm-states", posterior[2])
    save("evidence", probes.evidence(others["classify"], "the old king sees a dog .").figures()[1])
    save("confusion", probes.confusion(others["tag"]).figures()[0])
    save("forecast", probes.forecast(monthly_forecaster(folder / "forecast"), steps=60).figures()[0])
    save("tags", probes.posterior(others["tag"], "the old king sees a dog .").figures()[0])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/pictures"))
