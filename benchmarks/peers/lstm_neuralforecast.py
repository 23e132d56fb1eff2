"""Training speed of neuralforecast's LSTM, run by benchmarks/speed/series.py in the environment that has it.

    python lstm_neuralforecast.py SERIES.npz LAGS UNITS BATCH STEPS

SERIES.npz has `values` (all series, one after the other), `lengths` and `horizon`. Prints the windows that are trained
on in a CPU second, as JSON: of STEPS further steps, so that what a training costs once is not in it.
"""

import json
import logging
import sys
import time

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import DistributionLoss
from neuralforecast.models import LSTM


def main():
    source, lags, units, batch, steps = sys.argv[1], *map(int, sys.argv[2:])
    logging.disable(logging.INFO)
    with np.load(source) as file:
        horizon, lengths = int(file["horizon"]), file["lengths"]
        table = pd.DataFrame({
            "unique_id": np.repeat(np.arange(len(lengths)), lengths),
            "ds": np.concatenate([np.arange(length) for length in lengths]),
            "y": file["values"],
        })  # fmt: skip

    def train(steps):
        begin = time.process_time()
        model = LSTM(
            h=horizon, input_size=lags, encoder_n_layers=1, encoder_hidden_size=units, decoder_layers=1,
            decoder_hidden_size=units, loss=DistributionLoss("Normal", level=[80]), max_steps=steps,
            batch_size=len(lengths), windows_batch_size=batch, accelerator="cpu", enable_progress_bar=False,
            enable_model_summary=False, logger=False, enable_checkpointing=False,
        )  # fmt: skip
        NeuralForecast([model], freq=1).fit(table)
        return time.process_time() - begin

    train(5)
    few, more = train(5), train(5 + steps)
    print(json.dumps({"windows": steps * batch / (more - few)}))


if __name__ == "__main__":
    main()
