"""The field of series, and the features of the calendar."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest

from weft.data.column import open_column, write_column
from weft.data.field import Field
from weft.errors import WeftError
from weft.series import (
    Frequency,
    Series,
    TimeSeries,
    calendar_cycles,
    calendar_features,
    calendar_names,
    calendar_positions,
    read_series,
)

NAN = float("nan")
TABLE = {
    "unique_id": ["a"] * 4 + ["b"] * 2,
    "ds": ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30", "2024-01-31", "2024-02-29"],
    "y": [1.0, None, 3.0, None, 5.0, 6.0],
    "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "rain": [0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
    "shop": ["north"] * 4 + ["south"] * 2,
}


@pytest.fixture
def sales():
    return read_series(TABLE, known="price")


@pytest.fixture
def field(sales):
    return Series.fit(sales.series, sales)


def test_a_series_becomes_a_row_and_a_series_again(sales, field, tmp_path):
    assert isinstance(field, Field)
    a = sales.series[0]
    row = field.encode(a)
    assert np.array_equal(row, [[1, 1, 0], [NAN, 2, 1], [3, 3, 0], [NAN, 4, NAN]], equal_nan=True)
    assert field.names(a) == ("2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30")
    write_column(tmp_path / "x.npy", map(field.encode, sales), np.float64)
    column = open_column(tmp_path / "x.npy")
    for place, one in enumerate(sales):
        again = field.decode(column[place])
        for name in ("target", "known", "past"):
            assert np.array_equal(getattr(again, name), getattr(one, name), equal_nan=True)
    assert field.categories == {"shop": ()}  # a feature of one series would be its name
    assert [one.id for one in field.set_of(sales.series)] == ["a", "b"]


def test_static_columns_become_features():
    columns = {"unique_id": ["a", "a", "b", "b", "c", "c"], "ds": [1, 2] * 3, "y": range(6),
               "kind": ["small"] * 4 + ["big"] * 2, "size": [1, 1, 2, 2, 3, 3]}  # fmt: skip
    series = read_series(columns)
    field = Series.fit(series, series)
    assert field.categories == {"kind": ("small",)}
    features = [field.static_features(one.static).tolist() for one in series]
    assert features == [[1, pytest.approx(-(1.5**0.5))], [1, 0], [0, pytest.approx(1.5**0.5)]]
    assert Series.from_json(field.to_json()) == field
    assert field.static_features(("unknown", NAN)).tolist() == [0, 0]
    with pytest.raises(WeftError, match="static value 'size' is 'large'"):
        field.static_features(("small", "large"))


def test_the_json_of_a_series(sales, field):
    for one in sales:
        text = json.dumps(field.json_of(one))
        again = field.parse(text)
        assert field.json_of(again) == json.loads(text)
        assert (again.id, again.start, again.static, again.future) == (one.id, one.start, one.static, one.future)
    assert json.loads(json.dumps(field.json_of(sales.series[0])))["y"] == [1.0, None, 3.0]
    assert field.schema["required"] == ["y", "known", "past"]
    plain = Series.fit([TimeSeries.of(np.arange(3.0))])
    assert plain.parse("[1, null, 2]").target[2, 0] == 2
    with pytest.raises(WeftError, match="has 0 known covariates; expected 1: price"):
        field.parse('{"y": [1], "past": [[1]]}')
    for text in ("7", '{"x": 3}', '{"y": [1, "a"]}', '{"y": []}', "[", '{"y": [1], "start": "soon"}'):
        with pytest.raises(WeftError):
            field.parse(text)


def test_the_field_is_stored(sales, field):
    data = json.loads(json.dumps(field.to_json()))
    again = Series.from_json(data)
    assert again.to_json() == field.to_json()
    assert again == field
    read = read_series(TABLE, **field.columns.to_json())
    assert (read.known, read.past, read.frequency) == (field.known, field.past, field.frequency)
    for key in data:
        for damage in (None, {}, 7, "x", [None], NAN):
            if data[key] == damage or (key == "categories" and damage == {}):
                continue
            with pytest.raises((WeftError, ValueError, TypeError, LookupError, AttributeError)):
                Series.from_json({**copy.deepcopy(data), key: damage})


def test_positions_in_the_calendar_are_those_of_pandas():
    times = pd.date_range("2023-12-20", periods=2000, freq="7h")
    moments = times.to_numpy().astype("M8[us]")
    frequency = Frequency.parse("h")
    assert calendar_cycles(frequency) == ("hour of day", "day of week", "day of month", "day of year")
    positions = calendar_positions(moments, frequency)
    day = times.hour / 24
    expected = [day, (times.day_of_week + day) / 7, (times.day - 1 + day) / times.days_in_month,
                (times.day_of_year - 1 + day) / (365 + times.is_leap_year)]  # fmt: skip
    assert np.allclose(positions, np.stack(expected, axis=1))
    months = Frequency.parse("ME")
    ends = months.range(np.datetime64("2024-01-31"), 12)
    assert np.allclose(calendar_positions(ends, months)[:, 0], np.arange(12) / 12)
    assert calendar_cycles(Frequency.parse("YE")) == calendar_cycles(Frequency.parse("step")) == ()
    assert calendar_features(np.arange(3), Frequency.parse("step")).shape == (3, 0)


@pytest.mark.parametrize("name", ["15min", "h", "D", "B", "W-SUN", "MS", "QE", "YS"])
def test_features_go_around(name):
    frequency = Frequency.parse(name)
    start = frequency.floor(np.datetime64("2024-02-27"))
    times = frequency.range(start, 50)
    features = calendar_features(times, frequency, harmonics=2)
    assert features.shape == (50, len(calendar_names(frequency, 2)))
    assert len(set(calendar_names(frequency, 2))) == features.shape[1]
    squares = (features**2).reshape(50, -1, 2).sum(-1)
    assert np.allclose(squares, 1)
    assert np.array_equal(calendar_features(times[30:], frequency, 2), features[30:])  # no step asks another
