"""A Markov model of a noisy sine, one step ahead and further ahead: how the errors of predictions accumulate.

The next value is a function of the last four (an MLP with 10 hidden units, `model.kind=ar`), fitted one step ahead to
the first 600 of 1,000 values. To predict k steps ahead, predictions take the place of values that are not known yet.
One step ahead the error is hardly larger than the noise; the further ahead, the nearer it comes to that of the mean.

    python examples/errors_accumulate.py                   half a minute
    python examples/errors_accumulate.py --out errors.svg  the picture as well
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import weft
from weft.pictures import Curve, Curves, to_svg

LENGTH, TRAINED, NOISE = 1000, 600, 0.2
AHEAD = (1, 4, 16, 64)
SETTINGS = {
    "model.kind": "ar",
    "model.lags": 4,  # tau of the notes
    "model.season": 1,
    "model.hidden_size": 10,
    "model.distribution": "gaussian",
    "train.epochs": 10,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="SVG file of the picture")
    out = parser.parse_args().out
    steps = np.arange(1, LENGTH + 1)
    law = np.sin(0.01 * steps)
    values = law + np.random.default_rng(1).normal(0, NOISE, LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        model = weft.train_forecast([values[:TRAINED]], Path(folder) / "run", SETTINGS, horizon=4, progress=False)
        cutoffs = np.arange(TRAINED, LENGTH - max(AHEAD) + 1, 4)
        forecasts = model.forecast([values[:cutoff] for cutoff in cutoffs], horizon=max(AHEAD))
        (alone,) = model.forecast([values[:TRAINED]], horizon=LENGTH - TRAINED)
    predicted = np.stack([one.values[:, 0] for one in forecasts])  # (cutoffs, 64)
    curves = [Curve("truth", steps.astype(float), values, hue=6)]
    print(f"{'steps ahead':12} root mean squared error (noise: {NOISE})")
    for place, ahead in enumerate(AHEAD):
        times, found = cutoffs + ahead, predicted[:, ahead - 1]
        error = np.sqrt(np.mean((found - values[times - 1]) ** 2))
        print(f"{ahead:<12} {error:.3f}")
        curves.append(Curve(f"{ahead} ahead", times.astype(float), found, hue=place))
    curves.append(Curve("from 600 on", steps[TRAINED:].astype(float), alone.values[:, 0], hue=5, dashed=True))
    print(f"{'mean of all':12} {np.sqrt(np.mean((values[TRAINED:] - values[:TRAINED].mean()) ** 2)):.3f}")
    if out is not None:
        title = "A Markov model of four values, fitted one step ahead"
        out.write_text(to_svg(Curves(title, tuple(curves), "step")), encoding="utf-8")
        print(out)


if __name__ == "__main__":
    main()
