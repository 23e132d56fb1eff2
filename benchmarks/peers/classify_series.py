"""Classifiers of series by aeon, run by benchmarks/quality/series_classify.py in the environment that has it.

    python classify_series.py SPLITS.npz MODEL SEED

SPLITS.npz has, for "train" and "test", `values` (all steps of all series, C channels), `lengths` and `labels`. Prints
the accuracy on the test series and the CPU seconds of fitting and predicting, as JSON. MiniRocket needs equal lengths:
series are resampled to the longest one. What numba compiles is compiled before, on some of the series.
"""

import json
import sys
import time

import numpy as np
from aeon.classification.convolution_based import MiniRocketClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier


def resampled(series, length):
    """Channels (C, T) read at `length` places that are equally far apart."""
    places = np.linspace(0, series.shape[1] - 1, length)
    return np.stack([np.interp(places, np.arange(series.shape[1]), channel) for channel in series])


def main():
    source, name, seed = sys.argv[1:]
    with np.load(source) as file:
        series, labels = {}, {}
        for part in ("train", "test"):
            ends = np.cumsum(file[f"{part} lengths"])[:-1]
            series[part] = [np.ascontiguousarray(one.T) for one in np.split(file[f"{part} values"], ends)]
            labels[part] = file[f"{part} labels"]
    if name == "MiniRocket":
        length = max(one.shape[1] for part in series.values() for one in part)
        series = {part: np.stack([resampled(one, length) for one in own]) for part, own in series.items()}

    def create():
        if name == "MiniRocket":
            return MiniRocketClassifier(random_state=int(seed), n_jobs=1)
        return KNeighborsTimeSeriesClassifier(n_neighbors=1, distance="dtw", n_jobs=1)

    some = slice(None, None, max(1, len(labels["train"]) // 40))
    create().fit(series["train"][some], labels["train"][some]).predict(series["test"][:2])
    begin = time.process_time()
    found = create().fit(series["train"], labels["train"]).predict(series["test"])
    seconds = time.process_time() - begin
    print(json.dumps({"accuracy": float((found == labels["test"]).mean()), "seconds": seconds}))


if __name__ == "__main__":
    main()
