"""Readers of series: layouts, rules for columns, steps of time, and what is refused, with its line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import polars
import pytest

from weft.errors import WeftError
from weft.series import Frequency, TimeFormat, read_series
from weft.series.frequency import infer_frequency

NAN = float("nan")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def values(series):
    return series.target[:, 0].tolist()


def same(found, expected):
    return np.array_equal(found, expected, equal_nan=True)


LONG = """unique_id,ds,y,price,shop
a,2024-01-01 00:00,1,5,north
a,2024-01-01 01:00,2,6,north
a,2024-01-01 03:00,4,8,north
b,2024-01-01 01:00,7,1,south
b,2024-01-01 00:00,,2,south
b,2024-01-01 02:00,9,3,south
b,2024-01-01 03:00,,4,south
"""


def test_a_long_table(tmp_path):
    path = write(tmp_path / "sales.csv", LONG)
    found = read_series(path, known="price")
    a, b = found.series
    assert (found.channels, found.known, found.past, found.static) == (("y",), ("price",), (), ("shop",))
    assert same(a.target[:, 0], [1, 2, NAN, 4])
    assert same(a.known[:, 0], [5, 6, NAN, 8])
    assert (a.id, a.static, b.static) == ("a", ("north",), ("south",))
    assert b.start == np.datetime64("2024-01-01T01:00")  # a series starts with its first value, and ends with its last
    assert (values(b), b.known[:, 0].tolist(), b.future) == ([7.0, 9.0], [1.0, 3.0, 4.0], 1)
    assert found.time_format.write(a.future_times(1)) == ["2024-01-01 04:00"]
    words = "\n".join(found.reading)
    assert "sales.csv: CSV, with a header, 7 rows, 2 series" in words
    assert "id 'unique_id'; time 'ds'; target 'y'; known 'price'; static 'shop'" in words
    assert "a value every hour (h), 2024-01-01 00:00 to 2024-01-01 03:00, season of 24 steps" in words
    assert "1 step in 1 gap filled as missing: 'a' 1 step after 2024-01-01 01:00 (line 3)" in words
    assert "1 row before the time of the row above, sorted: the first is line 6" in words
    again = read_series(path, **found.columns.to_json())
    assert [same(one.known, two.known) for one, two in zip(found, again, strict=True)] == [True, True]
    assert read_series(path).past == ("price",)
    assert "`known=` names those that are known in advance" in "\n".join(read_series(path).reading)


def test_the_same_from_all_formats(tmp_path):
    expected = read_series(write(tmp_path / "a.csv", LONG), known="price")
    rows = [dict(zip(LONG.splitlines()[0].split(","), line.split(","), strict=True)) for line in LONG.splitlines()[1:]]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(LONG.encode()))
    write(tmp_path / "a.tsv", LONG.replace(",", "\t"))
    write(tmp_path / "semicolons.csv", LONG.replace(",", ";"))
    write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    frame = pd.read_csv(tmp_path / "a.csv")
    timed = frame.assign(ds=pd.to_datetime(frame["ds"]))
    files = [tmp_path / "a.csv.gz", tmp_path / "a.tsv", tmp_path / "semicolons.csv", tmp_path / "a.jsonl"]
    tables = [
        frame,
        timed,
        polars.DataFrame({name: timed[name].tolist() for name in timed}),
        frame.to_dict("list"),
        rows,
    ]
    for source in (*files, *tables):
        found = read_series(source, known="price")
        assert [one.id for one in found] == ["a", "b"]
        for one, other in zip(found, expected, strict=True):
            assert one.start == other.start
            assert same(one.target, other.target)
            assert same(one.known, other.known)
            assert one.static == other.static


def test_wide_tables(tmp_path):
    columns = read_series(write(tmp_path / "c.csv", "date,oil,gas\n2024-01,1,\n2024-02,2,5\n2024-03,,6\n"))
    assert [(one.id, values(one)) for one in columns] == [("oil", [1.0, 2.0]), ("gas", [5.0, 6.0])]
    assert columns.series[1].start == np.datetime64("2024-02")
    assert columns.frequency.name == "MS"
    counted = read_series(write(tmp_path / "n.csv", "m1,m2\n1,4\n2,5\n3,\n"))
    assert [values(one) for one in counted] == [[1.0, 2.0, 3.0], [4.0, 5.0]]
    assert not counted.frequency.has_times
    rows = read_series(write(tmp_path / "r.csv", '"V1","V2","V3","V4"\n"H1",1,2,\n"H2",3,4,5\n'))
    assert [(one.id, values(one)) for one in rows] == [("H1", [1.0, 2.0]), ("H2", [3.0, 4.0, 5.0])]
    dated = read_series(write(tmp_path / "d.csv", "shop,town,2023-11,2023-12,2024-01\nx,Ulm,1,2,3\ny,Bonn,4,,6\n"))
    assert (dated.static, dated.series[1].static, dated.frequency.name) == (("town",), ("Bonn",), "MS")
    assert same(dated.series[1].target[:, 0], [4, NAN, 6])
    years = read_series(write(tmp_path / "y.csv", "country,2019,2020,2021\nCuba,1,2,3\nPeru,4,5,6\n"))
    assert (years.frequency.name, years.time_format.write(years.series[0].future_times(1))) == ("YS", ["2022"])
    both = read_series(tmp_path / "c.csv", target="oil,gas")
    assert (both.channels, both.series[0].target.shape) == (("oil", "gas"), (3, 2))


def test_rules_for_columns(tmp_path):
    parts = "No,year,month,day,hour,load,wind\n1,2024,2,28,23,1,NW\n2,2024,2,29,0,2,NW\n3,2024,2,29,1,3,SE\n"
    found = read_series(write(tmp_path / "p.csv", parts))
    assert (found.frequency.name, found.channels, found.series[0].start) == (
        "h",
        ("load",),
        np.datetime64("2024-02-28T23"),
    )
    assert "columns left out: 'wind' (text)" in found.reading
    joined = "date,shop,product,units\n" + "".join(
        f"2024-01-0{day},{shop},{product},{day}\n" for shop in "xy" for product in "pq" for day in (1, 2, 3)
    )
    found = read_series(write(tmp_path / "j.csv", joined))
    assert [one.id for one in found] == ["x/p", "x/q", "y/p", "y/q"]
    assert read_series(tmp_path / "j.csv", id=["product", "shop"]).series[1].id == "q/x"
    numbered = read_series(write(tmp_path / "i.csv", "id,ds,y\n1,2024-01-01,5\n2,2024-01-02,6\n3,2024-01-03,7\n"))
    assert [one.id for one in numbered] == [""]  # each row another id: they number the rows
    german = read_series(write(tmp_path / "g.csv", "Datum;Wert\n31.01.2024;1.000,5\n29.02.2024;2,5\n31.03.2024;3\n"))
    assert (german.frequency.name, values(german.series[0])) == ("ME", [1000.5, 2.5, 3.0])
    assert german.time_format.write(german.series[0].future_times(1)) == ["30.04.2024"]
    bare = read_series(write(tmp_path / "b.csv", "2024-01-01,5\n2024-01-02,6\n2024-01-03,NA\n2024-01-04,8\n"))
    assert same(bare.series[0].target[:, 0], [5, 6, NAN, 8])
    one = read_series(write(tmp_path / "one.csv", "x\n1\n2\n3\n"))
    assert values(one.series[0]) == [1.0, 2.0, 3.0]


def test_pandas_indexes_and_zones():
    index = pd.date_range("2024-03-30 22:00", periods=6, freq="h", tz="Europe/Berlin")
    found = read_series(pd.DataFrame({"y": range(6)}, index=index))
    assert (found.frequency.name, len(found.series[0])) == ("h", 6)  # no hour is missing where clocks change
    written = found.time_format.write(found.series[0].times)
    assert [text[11:] for text in written[3:6]] == ["01:00:00+01:00", "03:00:00+02:00", "04:00:00+02:00"]
    assert found.time_format.clock(found.series[0].times)[4] == np.datetime64("2024-03-31T03:00")
    days = pd.date_range("2024-03-29", periods=5, tz="Europe/Berlin")
    daily = read_series(pd.Series(range(5), index=days).to_frame("load"))
    assert (daily.frequency.name, daily.time_format.write(daily.series[0].future_times(1))) == ("D", ["2024-04-03"])
    utc = polars.Series("ds", [f"2024-01-0{day}" for day in (1, 2, 3)]).str.to_datetime(time_zone="UTC")
    zoned = read_series(polars.DataFrame({"ds": utc, "y": [1, 2, 3]}))
    assert (zoned.frequency.name, zoned.time_format.zone) == ("D", "UTC")


def test_json_lines_of_series_and_archives(tmp_path):
    lines = [
        {"id": "a", "start": "2024-01-01", "freq": "D", "y": [1, None, 3], "known": [[1], [2], [3], [4]]},
        {"item_id": "b", "start": "2024-02-01", "freq": "D", "target": [4], "feat_dynamic_real": [[1]]},
    ]
    found = read_series(write(tmp_path / "s.jsonl", "\n".join(map(json.dumps, lines))))
    assert (found.series[0].future, found.series[1].start) == (1, np.datetime64("2024-02-01"))
    assert same(found.series[0].target[:, 0], [1, NAN, 3])
    tsf = (
        "# c\n@relation r\n@attribute series_name string\n@attribute start_timestamp date\n@frequency half_hourly\n"
        "@missing true\n@data\nT1:2012-01-01 00-00-00:1,?,3\nT2:2012-01-02 00-30-00:4\n"
    )
    found = read_series(write(tmp_path / "m.tsf", tsf))
    assert (found.frequency.name, found.series[1].start) == ("30min", np.datetime64("2012-01-02T00:30"))
    assert found.time_format.write(found.series[1].future_times(1)) == ["2012-01-02 01-00-00"]
    ts = "#c\n@problemName x\n@timeStamps false\n@dimensions 2\n@classLabel true u v\n@data\n1,2,3:4,5,6:u\n7,?:8,9:v\n"
    found = read_series(write(tmp_path / "x.ts", ts))
    assert (found.series[0].target.tolist(), found.series[1].static) == ([[1, 4], [2, 5], [3, 6]], ("v",))
    assert same(found.series[1].target, [[7, 8], [NAN, 9]])
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    assert read_series(tmp_path / "a.npy").channels == ("y1", "y2")
    np.savez(tmp_path / "a.npz", u=np.arange(3.0), v=np.arange(4.0))
    assert [(one.id, len(one)) for one in read_series(tmp_path / "a.npz")] == [("u", 3), ("v", 4)]
    assert [len(one) for one in read_series([[1, 2], [3, 4, 5]])] == [2, 3]


HOURS = "ds,y\n2024-01-01 00:00,1\n2024-01-01 01:00,2\n2024-01-01 02:00,3\n"
DAYS = "".join(f"b,2024-01-{day:02} 00:00,{day}\n" for day in range(1, 15))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (HOURS + "2024-01-01 03:00,many\n", {}, r"csv:5: the target column 'y' has 'many'"),
        (HOURS + "2024-01-01 03:00,inf\n", {}, r"x\.csv:5: column 'y' is infinite"),
        (HOURS + "2024-01-01 03:00,-1e61\n", {}, r"x\.csv:5: column 'y' is -1e\+61 \(1 values.*up to 1e\+60"),
        (
            HOURS.replace("2024", "0000"),
            {},
            r"x\.csv:2: .*'0000-01-01 00:00' is not a time; expected a date of the cal",
        ),
        (f"ds,y\n{'9' * 400},1\n{'9' * 399}8,2\n", {}, r"x\.csv:2: the time column 'ds': '9{59}\.\.\. is not a time"),
        (f"ds,y\n{1 << 63},1\n{1 << 64},2\n", {}, r"x\.csv:2: .*'9223372036854775808' is not a time"),
        (HOURS, {"freq": f"{'9' * 5000}D"}, "frequency is .9{59}\\.\\.\\.; expected at least one step"),
        (HOURS, {"freq": "9999999999W"}, "frequency is '9999999999W'; expected .* less than 20,000 years"),
        (HOURS, {"freq": "0M-15"}, "frequency is '0M-15'; expected at least one step"),
        (HOURS + "2024-01-01 02:00,4\n", {}, r"csv:5: the series has the time .* twice, first in line 4"),
        (HOURS + "2024-01-01 02:20,4\n", {}, r"csv:5: the time .* is not on the steps every hour.*freq=h"),
        (HOURS + "someday,4\n", {}, r"x\.csv:5: the time column 'ds': 'someday' is not a time"),
        (
            HOURS + "2024-02-30 00:00,4\n",
            {},
            r"x\.csv:5: .*'2024-02-30 00:00' is not a time; expected a date of the cal",
        ),
        (HOURS + ",4\n", {}, r"x\.csv:5: the time column 'ds' is empty"),
        (HOURS + "2024-01-01 03:00\n", {}, r"x\.csv:5 has 1 columns; expected 2"),
        (
            "unique_id,ds,y\n" + HOURS[5:].replace("2024-01-01 ", "a,2024-01-01 ") + DAYS,
            {},
            r"two frequencies: series 'b' has a value every day, series 'a' every hour.*`freq=D` resamples",
        ),
        (
            "unique_id,ds,y\n" + DAYS.replace(" 00:00", "") + "".join(f"a,2024-{m:02}-01,1\n" for m in range(1, 8)),
            {},
            r"two frequencies: series 'b' has a value every day, series 'a' every month.*`freq=MS` resamples",
        ),
        ("ds,y\n2024-01-01,\n2024-01-02,\n", {}, "all values of the target are missing"),
        ("ds,y\n2024-01-01,3\n", {}, "each series has one point of time, 2024-01-01.*`freq=D`"),
        ("ds,y\n", {}, "has a header and no rows"),
        (HOURS, {"target": "sales"}, "target: column 'sales' is not known; expected one of: ds, y"),
        (HOURS, {"freq": "fortnight"}, "frequency 'fortnight' is not known"),
        (HOURS, {"freq": "step"}, "`freq` is step, and .* has dates"),
        (HOURS, {"duplicates": "keep"}, "`duplicates` is 'keep'"),
        (HOURS, {"target": "y", "known": "y"}, "column 'y' is named twice"),
        ("unique_id,ds,u,v\na,1,1,1\na,2,3,1\nb,1,2,2\n", {}, "2 columns may be the target: 'u', 'v'.*`target=u`"),
        ("unique_id,ds,y,s\na,1,1,1\na,2,3,2\n", {"static": "s"}, r"x\.csv:3: the static column 's' changes"),
        ("ds,text\n2024-01-01,a\n2024-01-02,b\n", {}, "no column has numbers|has a header"),
        ("t,y\n1,1\n900000000,2\n", {}, "|"),
    ],
)
def test_what_is_refused(tmp_path, text, options, message):
    path = write(tmp_path / "x.csv", text)
    if message == "|":
        assert len(read_series(path, **options).series[0]) == 2
        return
    with pytest.raises(WeftError, match=message):
        read_series(path, **options)


def test_a_table_of_a_german_spreadsheet(tmp_path):
    text = "Datum;Wert\n01.02.2024;1,5\n02.02.2024;2,5\n04.02.2024;1.002,75\n"
    found = read_series(write(tmp_path / "x.csv", text))
    assert same(found.series[0].target[:, 0], [1.5, 2.5, NAN, 1002.75])
    assert found.time_format.write(found.series[0].future_times(1)) == ["05.02.2024"]


def test_resampling_and_duplicates(tmp_path):
    path = write(tmp_path / "x.csv", HOURS + "2024-01-01 02:20,5\n2024-01-03 00:00,7\n")
    assert values(read_series(path, freq="h").series[0])[:3] == [1.0, 2.0, 4.0]
    days = read_series(path, freq="D", aggregate="sum")
    assert same(days.series[0].target[:, 0], [11, NAN, 7])
    assert any("resampled to every day: 5 rows became 2, each the sum" in line for line in days.reading)
    months = read_series(path, freq="ME", aggregate="last").series[0]
    assert (values(months), months.start) == ([7.0], np.datetime64("2024-01-31"))
    twice = write(tmp_path / "y.csv", HOURS + "2024-01-01 02:00,5\n")
    wanted = {"mean": 4.0, "sum": 8.0, "min": 3.0, "max": 5.0, "first": 3.0, "last": 5.0}
    assert {rule: values(read_series(twice, duplicates=rule).series[0])[2] for rule in wanted} == wanted
    equal = read_series(write(tmp_path / "z.csv", HOURS + "2024-01-01 02:00,3\n"))
    assert (len(equal.series[0]), "they are equal" in "".join(equal.reading)) == (3, True)


def test_stated_behaviours(tmp_path):
    found = read_series(write(tmp_path / "x.csv", "unique_id,ds,y\na,1,5\na,2,5\nb,1,\nb,2,\nc,1,3\n"))
    assert [(one.id, len(one)) for one in found] == [("a", 2), ("c", 1)]
    assert found.reading[-2:] == ("1 series without any value left out: 'b'", "1 series constant: 'a'")
    large = write(tmp_path / "l.csv", "ds,y\n2000-01-01 00:00:00,1\n2000-01-01 00:00:01,1\n2024-01-01 00:00:00,2\n")
    with pytest.raises(WeftError, match=r"every second, the series has .* steps.*fewer missing steps"):
        read_series(large)


@pytest.mark.parametrize(
    ("texts", "pattern", "first"),
    [
        (["2024-01-31"], "%Y-%m-%d", "2024-01-31"),
        (["13/02/2024", "01/02/2024"], "%d/%m/%Y", "2024-02-13"),
        (["01/02/2024", "01/13/2024"], "%m/%d/%Y", "2024-01-02"),
        (["1/2/2024 9:05", "12/31/2024 10:00"], "%-m/%-d/%Y %-H:%M", "2024-01-02T09:05"),
        (["01/01/2024", "01/02/2024", "01/03/2024"], "%m/%d/%Y", "2024-01-01"),
        (["01/11/2023", "01/12/2023", "01/01/2024", "01/02/2024"], "%d/%m/%Y", "2023-11-01"),
        (["2024Q3"], "%YQ%q", "2024-07-01"),
        (["Q3 2024"], "Q%q %Y", "2024-07-01"),
        (["2020-W53"], "%G-W%V", "2020-12-28"),
        (["Jan 2024"], "%b %Y", "2024-01-01"),
        (["5 March 2024"], "%-d %B %Y", "2024-03-05"),
        (["20240131"], "%Y%m%d", "2024-01-31"),
        (["202401"], "%Y%m", "2024-01-01"),
        (["1704067200"], "epoch s", "2024-01-01"),
        (["1704067200000"], "epoch ms", "2024-01-01"),
        (["2024-01-01T12:30:00.250Z"], "%Y-%m-%dT%H:%M:%S.%3f%Z", "2024-01-01T12:30:00.25"),
        (["01/02/2024 03:04 PM"], "%m/%d/%Y %I:%M %p", "2024-01-02T15:04"),
        (["2012-01-01 00-30-00"], "%Y-%m-%d %H-%M-%S", "2012-01-01T00:30"),
    ],
)
def test_times_are_written_as_they_were_read(texts, pattern, first):
    form = TimeFormat.detect(texts)
    times = form.read(texts)
    assert (form.pattern, times[0]) == (pattern, np.datetime64(first, "us"))
    assert form.write(times) == texts


def test_times_beyond_the_calendar_are_refused():
    """Those after the year 9999, which a forecast may reach, in every way that times are counted and written."""
    for texts in (
        ["9999-12-30", "9999-12-31"],
        ["9999-12-31 20:00+01:00", "9999-12-31 22:00+02:00"],
        ["9998-01-01", "9999-01-01"],
    ):
        form = TimeFormat.detect(texts)
        times = form.read(texts)
        assert form.write(times)[-1].startswith("9999")
        frequency = infer_frequency([times])
        with pytest.raises(WeftError, match="times go beyond the years 1 to 9999"):
            form.write(frequency.range(times[0], 9000))
    epoch = TimeFormat.detect(["1704067200", "1704067260"])
    with pytest.raises(WeftError, match="'999999999999999999' is not a time"):
        epoch.read(["1704067200", "9" * 18])
    counter = TimeFormat.detect(["123456789012345678", "123456789012345679"])
    assert np.diff(counter.read(["123456789012345678", "123456789012345679"])).tolist() == [1]  # float64 has 53 bits
    with pytest.raises(WeftError, match="times go beyond"):
        Frequency.parse("1000YE").range(np.datetime64("2024-12-31"), 10_000)


def test_clocks_that_change():
    """Hours with offsets are counted in UTC, days by the clock."""
    hours = TimeFormat.detect(["2024-03-31T00:00+01:00", "2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"])
    times = hours.read(["2024-03-31T00:00+01:00", "2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"])
    assert np.diff(times).astype("m8[h]").astype(int).tolist() == [1, 1]
    assert hours.write(times[2:]) == ["2024-03-31T03:00+02:00"]
    days = TimeFormat.detect(["2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"])
    assert np.diff(days.read(["2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"])) == np.timedelta64(1, "D")
    with pytest.raises(WeftError, match="the time zone is 'Mars/Base'"):
        TimeFormat("%Y-%m-%d %H:%M%Z", "Mars/Base", utc=True).write(times)


def npy(shape, kind="<f8"):
    """The head of an array of NumPy, and a few bytes of it."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(48)


def test_hostile_arrays(tmp_path):
    np.savez(tmp_path / "whole.npz", a=np.arange(9.0), b=np.arange(4.0))
    whole = (tmp_path / "whole.npz").read_bytes()
    assert [len(one) for one in read_series(tmp_path / "whole.npz").series] == [9, 4]
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(5_000_000))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    changed = bytearray(whole)
    changed[whole.index(b"NUMPY") + 140] ^= 1
    files = {
        "cut.npz": (whole[:-30], "cannot be read"),
        "changed.npz": (bytes(changed), "cannot be read: Bad CRC-32"),
        "huge.npy": (npy("(99999999999999,)"), "cannot be read: mmap length"),
        "below.npy": (npy("(-3,)"), "cannot be read"),
        "complex.npy": (npy("(3,)", "<c16"), "expected numbers"),
        "bomb.npz": ((tmp_path / "bomb.npz").read_bytes(), "bytes expand to 40,000,128"),
        "objects.npy": ((tmp_path / "objects.npy").read_bytes(), "cannot be read"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeftError, match=message):
            read_series(tmp_path / name)


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    hours = pd.date_range("2024-01-01", periods=5, freq="h")
    polars.DataFrame({"ds": hours.to_list(), "y": [1.0, None, 3.0, 4.0, 5.0]}).write_parquet(tmp_path / "a.parquet")
    found = read_series(tmp_path / "a.parquet")
    assert found.frequency.name == "h"
    assert same(values(found.series[0]), [1, NAN, 3, 4, 5])
    polars.select(t=polars.repeat(3, 10**7), y=polars.repeat(3.0, 10**7)).write_parquet(tmp_path / "bomb.parquet")
    with pytest.raises(WeftError, match="bytes expand to 160,000,000"):
        read_series(tmp_path / "bomb.parquet")
    (tmp_path / "none.parquet").write_bytes(b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1")
    with pytest.raises(WeftError, match="cannot be read"):
        read_series(tmp_path / "none.parquet")


def test_many_columns_take_linear_time(tmp_path):
    names = ",".join(f"s{place}" for place in range(100_000))
    path = write(
        tmp_path / "wide.csv", "\n".join([f"ds,{names}", *(f"2024-01-0{n}{',1' * 100_000}" for n in (1, 2, 3))])
    )
    begin = time.thread_time()
    assert len(read_series(path).series) == 100_000
    assert time.thread_time() - begin < 20, "it was 37 s of the processor"


def test_csv_needs_no_library_of_tables(tmp_path):
    path = write(tmp_path / "x.csv", HOURS)
    script = (
        "import sys, weft\n"
        "from weft.series import read_series\n"
        f"assert len(read_series({str(path)!r}).series[0]) == 3\n"
        "import weft.tasks.forecast.task\n"
        "print(sorted({'pandas', 'polars', 'pyarrow', 'scipy', 'numba', 'statsmodels'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
