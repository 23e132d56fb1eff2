"""Forecasts of statsforecast, run by benchmarks/quality/series.py in the environment that has it.

    python forecast_series.py SETS.npz OUT.npz MODEL...

SETS.npz has `values` (all series, one after the other), `lengths`, `season` and `horizon`. OUT.npz gets, for each
model, its forecasts (N, h) and the CPU seconds that it took on one core, after a warm-up on one series.
"""

import sys
import time

import numpy as np
from statsforecast import models


def create(name, season):
    if name == "HoltWinters":
        return models.HoltWinters(season_length=season)
    if name == "Holt":
        return models.Holt(season_length=season)
    if name == "MSTL":
        return models.MSTL(season_length=[24, 168], trend_forecaster=models.AutoETS(model="ZZN"))
    return getattr(models, name)(season_length=season)


def forecast(name, values, season, horizon):
    try:
        result = create(name, season).forecast(y=values, h=horizon, level=[80, 95])
    except Exception as error:
        print(f"{name}: {error!r}", file=sys.stderr)
        return np.full((5, horizon), np.nan)
    return np.stack([result[key] for key in ("mean", "lo-80", "hi-80", "lo-95", "hi-95")])


def main():
    source, out, *names = sys.argv[1:]
    with np.load(source) as file:
        season, horizon = int(file["season"]), int(file["horizon"])
        series = np.split(file["values"], np.cumsum(file["lengths"])[:-1])
    found = {}
    for name in names:
        forecast(name, series[0], season, horizon)
        begin = time.process_time()
        found[name] = np.stack([forecast(name, values, season, horizon) for values in series], 1)
        found[f"{name} seconds"] = time.process_time() - begin
    np.savez(out, **found)


if __name__ == "__main__":
    main()
