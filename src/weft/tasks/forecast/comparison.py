"""Forecasters side by side: a run beside baselines and other runs on the same values, with paired tests over series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import WeftError
from weft.metrics.paired import ExampleStatistics, paired_bootstrap
from weft.tasks import load
from weft.tasks.forecast.baselines import BASELINES
from weft.tasks.forecast.evaluation import COMPARED, statistics_at
from weft.tasks.runs import held_out_digest

if TYPE_CHECKING:
    from weft.tasks.forecast.predictor import ForecastPredictor

SIGNIFICANT = 0.05


def compare_forecasters(
    predictor: ForecastPredictor, against: Sequence[str], data: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    """How a forecaster differs from others, as a record for each and as lines.

    Args:
        predictor: The forecaster.
        against: Names of baselines ("all": every one) and paths of runs.
        data: Later values, or None: the run's own held-out ones.
    """
    names = dict.fromkeys(part.strip() for one in against for part in one.split(",") if part.strip())
    baselines = BASELINES if "all" in names else tuple(name for name in names if name in BASELINES)
    own = _statistics(predictor, data, baselines)
    others = {name: own[name] for name in baselines}
    for path in names:
        if path not in BASELINES and path != "all":
            others[path] = _of_run(predictor, path, data)
    records, wide = [], max(map(len, others), default=0)
    lines = ["", f"{'difference from':{wide}}  " + "".join(f"{name:>40}" for name in COMPARED)]
    for name, statistics in others.items():
        record: dict[str, Any] = {"name": name}
        cells = []
        for its, mine in zip(statistics, own[""], strict=True):
            difference, low, high, p_value = paired_bootstrap(its, mine)
            score = float(its.score(its.sums.sum(0)))
            record[its.metric] = {
                "score": score, "difference": difference, "low": low, "high": high, "p_value": p_value,
            }  # fmt: skip
            verdict = "" if p_value >= SIGNIFICANT else "better" if difference < 0 else "worse"
            cells.append(f"{difference:+8.4f} [{low:+.4f}, {high:+.4f}] {verdict:6}")
        records.append(record)
        lines.append(f"{name:{wide}}  " + "".join(f"{cell:>40}" for cell in cells))
    count = len(own[""][0].sums)
    lines.append(f"(paired bootstrap over {count:,} series, 95% intervals; below 0 this run is better)")
    return records, lines


def _statistics(
    predictor: ForecastPredictor, data: Any, names: Sequence[str] = ()
) -> dict[str, tuple[ExampleStatistics, ...]]:
    model, rows, cutoffs = predictor.held_out_windows() if data is None else predictor.later_windows(data)
    return statistics_at(lambda some: model.with_baselines(some, names), rows, cutoffs, model.horizon, model.season)


def _of_run(predictor: ForecastPredictor, path: str, data: Any) -> tuple[ExampleStatistics, ...]:
    other: Any = load(path)
    if other.run.task != predictor.run.task:
        raise WeftError(f"{path} is a run of the task {other.run.task!r}", expected="one of `weft train forecast`")
    own, its = predictor.model, other.model
    if (own.horizon, own.season) != (its.horizon, its.season):
        raise WeftError(
            f"{path} forecasts {its.horizon} steps of a season of {its.season}",
            expected=f"{own.horizon} steps of a season of {own.season}, as {predictor.run.path}",
        )
    if data is None and held_out_digest(predictor.run) != held_out_digest(other.run):
        raise WeftError(
            f"{path} was trained on other data than {predictor.run.path}, and may know what is held out",
            expected="two runs on the same data",
            hint="`data=FILE` with later values",
        )
    return _statistics(other, data)[""]
