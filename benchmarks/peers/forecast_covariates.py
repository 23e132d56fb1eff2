"""Forecasts of statsforecast's AutoARIMA with covariates, run by benchmarks/series.py in the environment that has it.

    python forecast_covariates.py SERIES.npz OUT.npz

SERIES.npz has `values` (N, T), `covariates` (N, T, E), `season`, `horizon` and `windows`. A model is fitted to what
stands before the last windows of a series, its orders chosen by the approximation that the library has for long series,
and forecasts each window from the values before it. OUT.npz gets the forecasts (5, W, N, h) and the CPU seconds.
"""

import sys
import time

import numpy as np
from statsforecast.models import AutoARIMA


def main():
    source, out = sys.argv[1:]
    with np.load(source) as file:
        values, covariates = file["values"], file["covariates"]
        season, horizon, windows = (int(file[name]) for name in ("season", "horizon", "windows"))
    begin = time.process_time()
    found = np.full((5, windows, len(values), horizon), np.nan)
    for number, (row, extra) in enumerate(zip(values, covariates, strict=True)):
        cutoff = len(row) - windows * horizon
        model = AutoARIMA(season_length=season, approximation=True).fit(row[:cutoff], extra[:cutoff])
        for window in range(windows):
            end = cutoff + window * horizon
            forecast = model.forward(row[:end], horizon, extra[:end], extra[end : end + horizon], level=[80, 95])
            found[:, window, number] = [forecast[key] for key in ("mean", "lo-80", "hi-80", "lo-95", "hi-95")]
        print(f"series {number + 1}: {time.process_time() - begin:.0f} CPU seconds", file=sys.stderr, flush=True)
    np.savez(out, forecasts=found, seconds=time.process_time() - begin)


if __name__ == "__main__":
    main()
