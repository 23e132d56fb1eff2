"""Frequencies: names, arithmetic in the calendar against pandas, inference from times."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from weft.errors import WeftError
from weft.series import COUNTER, Frequency, SeriesSet, TimeSeries, infer_frequency

NAMES = ["s", "30s", "15min", "h", "6h", "D", "3D", "B", "W-SUN", "W-WED", "2W-MON", "MS", "ME", "2MS", "QS", "QE",
         "QE-NOV", "QS-FEB", "YS", "YE", "YS-JUL", "YE-MAR"]  # fmt: skip
STARTS = ["1999-12-31 23:00", "2023-01-31", "2024-02-29 12:30", "2000-06-15"]


def moments(texts):
    return np.array(texts, "M8[us]")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("start", STARTS)
def test_the_arithmetic_is_that_of_pandas(name, start):
    first = pd.date_range(start, periods=2, freq=name)[0 if pd.tseries.frequencies.to_offset(name).is_on_offset(
        pd.Timestamp(start)) else 1]  # fmt: skip
    expected = pd.date_range(first, periods=40, freq=name).to_numpy().astype("M8[us]")
    frequency = Frequency.parse(name)
    assert (frequency.range(expected[0], 40) == expected).all()
    assert (frequency.range(expected[7], 40, first=-7) == expected).all()
    assert frequency.steps(expected[5], expected).tolist() == list(range(-5, 35))
    between = expected[:-1] + (np.diff(expected) // 2)
    if name != "B":  # from Friday noon to Monday noon is one day
        assert frequency.steps(expected[0], between).tolist() == list(range(39))
    assert infer_frequency([expected]).name == frequency.name
    assert infer_frequency([expected[[0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16]]]).name == frequency.name


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_that_of_its_frequency(name):
    frequency = Frequency.parse(name)
    assert frequency.name == str(frequency) == name
    assert Frequency.parse(frequency.name) == frequency
    assert frequency.words.startswith("every ")


@pytest.mark.parametrize(
    ("alias", "name"),
    [("H", "h"), ("hourly", "h"), ("T", "min"), ("60min", "h"), ("90s", "90s"), ("24h", "D"), ("7D", "W"), ("M", "ME"),
     ("monthly", "MS"), ("Q", "QE"), ("4QS", "YS"), ("12MS", "YS"), ("A", "YE"), ("AS", "YS"), ("Q-NOV", "QE-NOV"),
     ("A-JUN", "YE-JUN"), ("weekly", "W"), ("W-sun", "W-SUN"), ("M-15", "M-15"), ("step", "step")],
)  # fmt: skip
def test_names_of_other_libraries(alias, name):
    assert Frequency.parse(alias).name == name


@pytest.mark.parametrize("text", ["", "0h", "fortnight", "W-ABC", "Q-MON", "M-32", "-3h", "h5"])
def test_no_frequency(text):
    with pytest.raises(WeftError, match="frequency"):
        Frequency.parse(text)


def test_seasons():
    wanted = {"h": 24, "30min": 48, "15min": 96, "5h": 1, "12h": 2, "min": 1440, "s": 3600, "500ms": 1, "D": 7,
              "2D": 1, "B": 5, "W": 52, "2W": 26, "3W": 1, "MS": 12, "2MS": 6, "QE": 4, "YS": 1,
              "2YS": 1, "step": 1}  # fmt: skip
    assert {name: Frequency.parse(name).season for name in wanted} == wanted


def test_month_ends_and_days_of_the_month():
    ends = Frequency.parse("ME").range(np.datetime64("2023-01-31T18:00"), 14)
    assert (ends[[1, 13]] == moments(["2023-02-28T18:00", "2024-02-29T18:00"])).all()
    thirtieth = moments(["2023-01-30", "2023-02-28", "2023-03-30", "2023-04-30"])
    frequency = infer_frequency([thirtieth])
    assert frequency.name == "M-30"
    assert (frequency.range(thirtieth[1], 3) == thirtieth[1:]).all()


@pytest.mark.parametrize(
    ("name", "time", "expected"),
    [("h", "2024-03-05T10:45", "2024-03-05T10:00"), ("D", "2024-03-05T10:45", "2024-03-05"),
     ("W-SUN", "2024-03-05", "2024-03-10"), ("MS", "2024-03-05", "2024-03-01"), ("ME", "2024-02-05", "2024-02-29"),
     ("QE", "2024-02-05", "2024-03-31"), ("YE", "2024-02-05", "2024-12-31"), ("QS", "2024-02-05", "2024-01-01"),
     ("YS-JUL", "2024-02-05", "2023-07-01"), ("B", "2024-03-10", "2024-03-08"), ("15min", "1969-12-31T23:50",
     "1969-12-31T23:45")],
)  # fmt: skip
def test_the_natural_start_of_a_step(name, time, expected):
    assert Frequency.parse(name).floor(np.datetime64(time)) == np.datetime64(expected, "us")


def test_inference_of_several_series_and_of_few_times():
    assert infer_frequency([]) is None
    assert infer_frequency([moments(["2024-01-01"]), np.array([], "M8[us]")]) is None
    assert infer_frequency([moments(["2024-01-01", "2024-01-02"])]).name == "D"
    assert infer_frequency([moments(["2024-01-01", "2024-02-01"])]).name == "MS"
    assert infer_frequency([moments(["2024-01-07", "2024-01-14"]), moments(["2024-01-01", "2024-01-08"])]).name == "W"
    assert infer_frequency([np.array([3, 13, 33, 43])]) == Frequency("step", 10)
    irregular = moments(["2024-01-01T00:00", "2024-01-01T01:00", "2024-01-01T02:00", "2024-01-01T02:20",
                         "2024-01-01T03:00", "2024-01-01T04:00"])  # fmt: skip
    assert infer_frequency([irregular]).name == "h"


def test_a_series_and_its_parts():
    frequency, start = Frequency.parse("MS"), np.datetime64("2024-01-01", "us")
    known = np.arange(10.0).reshape(5, 2)
    one = TimeSeries("a", start, frequency, np.array([1.0, np.nan, 3.0]), known, static=("shop", 2.0))
    assert (len(one), one.future, one.target.shape, one.past.shape) == (3, 2, (3, 1), (3, 0))
    assert (one.times == moments(["2024-01-01", "2024-02-01", "2024-03-01"])).all()
    assert (one.future_times(2) == moments(["2024-04-01", "2024-05-01"])).all()
    cut = one.until(2)
    assert (len(cut), cut.future) == (2, 3)
    late = one.since(1)
    assert late.start == np.datetime64("2024-02-01")
    assert (late.known == known[1:]).all()
    counted = TimeSeries.of(np.arange(4), "b")
    assert counted.since(2).start == 2
    assert counted.future_times(2).tolist() == [4, 5]
    both = SeriesSet((one,), ("y",), ("x", "z"), static=("kind", "size"), frequency=frequency)
    assert both["a"] is one
    assert [each.id for each in both] == ["a"]
    with pytest.raises(WeftError, match="no series 'c'"):
        both["c"]
    with pytest.raises(AssertionError, match="the names are"):
        SeriesSet((one,))
    assert COUNTER.range(5, 3).tolist() == [5, 6, 7]
