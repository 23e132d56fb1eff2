"""Training and backtests of Darts' RNNModel, run by benchmarks/speed/series.py in the environment that has it.

    python lstm_darts.py SERIES.npz LAGS UNITS BATCH WINDOWS CUTOFFS

SERIES.npz has `values` (all series, one after the other), `lengths` and `horizon`. Each training draws about WINDOWS
windows. Prints, as JSON, the windows that are trained on in a CPU second, and the CPU seconds of a backtest of CUTOFFS
horizons of all series: with one training before the first cutoff, and with a training at each ("refit"), where each
training is of all series as they are known by then.
"""

import json
import logging
import sys
import time
import warnings

import numpy as np
from darts import TimeSeries
from darts.models import RNNModel
from darts.utils.likelihood_models.torch import GaussianLikelihood

PATHS = 100


def main():
    source, lags, units, batch, windows, cutoffs = sys.argv[1], *map(int, sys.argv[2:])
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with np.load(source) as file:
        horizon = int(file["horizon"])
        rows = [row.astype(np.float32) for row in np.split(file["values"], np.cumsum(file["lengths"])[:-1])]
    series = [TimeSeries.from_values((row - row.mean()) / row.std()) for row in rows]
    trainer = {
        "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False,
        "enable_checkpointing": False,
    }  # fmt: skip

    def fit(known, wanted):
        each = max(1, min(wanted // len(known), min(map(len, known)) - lags - horizon))
        model = RNNModel(
            model="LSTM", hidden_dim=units, n_rnn_layers=1, input_chunk_length=lags, training_length=lags + horizon,
            batch_size=batch, n_epochs=max(1, round(wanted / (each * len(known)))), likelihood=GaussianLikelihood(),
            pl_trainer_kwargs=trainer,
        )  # fmt: skip
        return model.fit(known, max_samples_per_ts=each)

    def seconds(action):
        begin = time.process_time()
        action()
        return time.process_time() - begin

    def known(ends):
        return [one[: len(one) - ends * horizon] for one in series]

    def backtest(refit):
        model = None
        for ends in range(cutoffs, 0, -1):
            if refit or model is None:
                model = fit(known(ends), windows)
            model.predict(horizon, series=known(ends), num_samples=PATHS)

    fit(known(cutoffs), batch)
    few, more = (seconds(lambda count=count: fit(known(cutoffs), count)) for count in (windows // 4, windows))
    found = {"windows": (windows - windows // 4) / (more - few)}
    found["backtest"] = seconds(lambda: backtest(refit=False))
    found["refit"] = seconds(lambda: backtest(refit=True))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
