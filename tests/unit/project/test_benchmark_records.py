"""What the benchmarks write is what the tables of the pages read: without measuring anything."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace

import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.quality import anomalies, precision, results, series, series_classify
from benchmarks.quality.rows import Result, Row
from benchmarks.speed import accelerate, chains, engine, growth, inference
from tests.paths import ROOT
from tools import records, tables

GROUPS = ("speed", "quality")  # those of peers run in environments that have the peers
PROGRAMS = sorted(f"{group}.{path.stem}" for group in GROUPS for path in (ROOT / "benchmarks" / group).glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_fit_the_package(name):
    importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def read(monkeypatch):
    """Lets the tables read a new record in the place of the one that is kept."""

    def use(name, record):
        record = json.loads(json.dumps(record))
        kept = records.read(name)
        assert record.keys() >= kept.keys() - {"note"}
        monkeypatch.setattr(tables, "read", lambda asked: record if asked == name else records.read(asked))

    return use


def test_engine(read):
    kept = records.read("engine")
    rows = [
        engine.Row(one["work"], one["peer"], 0.002, 0.0051, 4_000_000_000 * (at % 2))
        for at, one in enumerate(kept["layers"])
    ]
    bench = SimpleNamespace(rows=rows, peak=1000.0)
    read("engine", engine.record(bench, 199.4, 0.77, (8_000_000, 20_600_000), kept["runtimes"]))
    assert "| 2.000 | 5.100 | **2.5** |  |  |" in tables.engine_layers()[2]
    assert tables.engine_layers()[3].endswith("| **2.5** | 1.3 | 2.00 |")
    assert len(tables.speed()) > len(tables.SPEED)
    assert "199 GFLOP/s" in " ".join(" ".join(tables.engine_machine()).split())


def test_inference(read, monkeypatch):
    def measured(case, contestants, folder, seconds):
        return {each: 0.001 * (at + 1) for at, each in enumerate(contestants)}

    monkeypatch.setattr(inference, "measure", measured)
    cases = [inference.Case("layer", "lstm", 32, 35, 1)]
    found = {
        "layers": inference.layers(cases, None, 1.0),
        "train": inference.training([1], None, 1.0),
        **inference.streams(None, 1.0, 2),
    }
    monkeypatch.setenv("WEFT_ENGINE", "avx2")
    (held,) = inference.layers(cases, None, 1.0)
    assert list(held["times"]) == ["weft float32", "torch float32", "onnxruntime float32", "openvino float32"]
    assert held["ratios"] == {"float32": 2.0}
    assert (inference.record_name("inference"), inference.record_name("engine")) == ("inference-avx2", "engine-avx2")
    stamp = records.stamp(["benchmarks/speed/inference.py::measure"])
    read("inference", {"command": "x", **stamp, **records.machine(), **found})
    assert tables.inference()[2].startswith(
        "| LSTM, batch 32, 35 steps, 1 core | 1.00 | torch 4.00 | **4.00** | 2.00 |"
    )
    assert len(tables.inference_layers("bf16")) == 3
    assert len(tables.inference_train()) == 4
    assert tables.inference_step()[-1] == "| ONNX Runtime float32 | 6000.0 | **1.0** |"
    assert tables.inference_streams()[2] == "| weft float32 | 1,000,000 | 1,000 | **1000.0** |"


def test_growth(read, monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "CACHE", tmp_path)
    names = dict.fromkeys(growth.NAMES, 0.002) | {"torch": 0.003}
    stamp = records.stamp(["benchmarks/speed/growth.py::times"])
    for size in (*growth.SEQUENCES, *(size for _, size in growth.rows())):
        growth.stored(size, "time").write_text(json.dumps({**names, **stamp}))
        used = {name: 1e6 * value for name, value in names.items()}
        growth.stored(size, "memory").write_text(json.dumps({**used, **stamp}))
    for steps in growth.LONG:
        growth.stored((steps,), "layer").write_text(json.dumps({"weft": 5e6, "checkpointed": 2e6, **stamp}))
    for at in growth.RATES:
        row = {"forward": 0.007, "backward": 0.01, "system": 0.0001, "rate": 172e9}
        growth.stored(at, "rate").write_text(json.dumps({**row, **stamp}))
    read("growth", growth.record())
    assert tables.growth_sequences()[2].startswith("| 10,000 | 1 | 2 | 2 | 3 | **1.50** |")
    assert tables.growth("T")[2] == "| 16 | 2 | 2 | 3 | **1.50** | 0.0 | 0.0 | 0.0 |"
    assert tables.checkpointing()[2] == "| 1,024 | 5.0 | 2.0 |"
    assert tables.rates()[2] == "| 35 | 32 | 7.0 | 10.0 | 0.1 | 200.0 | 172 |"


def test_chains_and_models_of_others(read):
    read("chains", chains.record({"Viterbi": {"weft": 0.001, "peer": 0.004}}, (1.8, 0.65, 4_864_267), 15))
    assert "| Viterbi | 1.00 | peer 4.00 | **4.0** |" in tables.chains()
    row = {
        "train": (0.2, 0.1),
        "inference": (0.06, 0.05),
        "share": 0.6,
        "float32": (1e-7, 1e-6),
        "float64": (1e-15, 1e-15),
    }
    stamp = records.stamp(["benchmarks/speed/accelerate_models.py"])
    row |= {"version": "0.1", "parameters": 800_000, "batch": "32 sentences", "threads": 1}
    read("accelerate", accelerate.record({"flair": {**row, **stamp}}))
    assert "| flair 0.1 | 0.8 | 32 sentences |" in tables.packages_of_others()[2]
    assert "| 200.0 | 100.0 | **2.00** | 60.0 | 50.0 | **1.20** | 60% |" in tables.models_of_others()[2]
    assert any("flair" in line and "| 100.0 | 200.0 | **2.00** |" in line for line in tables.speed())


def test_forecasts(read):
    kept = records.read("series")["rows"]
    row = {"set": "m4-hourly", "model": "linear", "mase": 0.91234567, "smape": 0.1, "scaled_crps": 0.2, "msis": 7.0}
    row |= {
        "coverage_80": 0.8,
        "coverage_95": 0.95,
        "seconds": 2.0,
        **records.stamp(["benchmarks/quality/series.py::trained"]),
    }
    before = [one for one in kept if (one["set"], one["model"]) != ("m4-hourly", "linear")]
    first = series.record(before, {**row, "seed": 1})
    read(
        "series",
        series.record(series.record(first["rows"], {**row, "seed": 2})["rows"], {**row, "seed": 2, "mase": 0.8}),
    )
    (line,) = [line for line in tables.series("m4-hourly") if line.startswith("| weft, linear |")]
    assert line.startswith("| weft, linear | **0.856** | 0.100 | 0.200 | 7.00 | 0.800 | 0.950 | 2.0 | 2 |")
    assert set(tables.SERIES_SETS) == {*series.SETS, series.ELECTRICITY}


def test_forecasts_of_held_out_horizons(read):
    """They stand in a table of their own, beside the forecasters that were combined."""
    row = {"set": "m4-hourly", "model": "auto", "seed": 1, "coverage_80": 0.8, "coverage_95": 0.95, "seconds": 2.0}
    row |= records.stamp(["benchmarks/quality/series.py::trained"])
    found = records.read("series")
    lines = tables.series("m4-hourly")
    for window, mase, linear in ((1, 0.5, 0.4), (2, 0.7, 1.2)):
        parts = {"linear": linear, "ses": 1.0}
        found = series.record(found["rows"], {**row, "held_out": window, "mase": mase, "parts": parts})
    read("series", found)
    assert tables.series("m4-hourly") == lines
    body = [line for line in tables.series_parts() if line.startswith("| m4-hourly | ")]
    assert body[-3].startswith("| m4-hourly | 1 before | **0.500** | linear 0.400 | 1.250 | 0.800 | 0.950 |")
    assert body[-2].startswith("| m4-hourly | 2 before | **0.700** | ses 1.000 | 0.700 |")
    assert body[-1].startswith("| m4-hourly | held out, mean | **0.600** | linear 0.800 | 0.750 |")


def test_classification_of_series(read):
    kept = records.read("series-classification")["rows"]
    row = {"set": "BasicMotions", "model": "weft", "accuracy": 0.97512, "seconds": 5.0}
    row |= records.stamp(["benchmarks/quality/series_classify.py::trained"])
    first = series_classify.record([one for one in kept if one["model"] != "weft"], {**row, "seed": 1})
    read("series-classification", series_classify.record(first["rows"], {**row, "seed": 2, "accuracy": 1.0}))
    (line,) = [line for line in tables.series_classification() if line.startswith("| BasicMotions | weft |")]
    assert line.startswith("| BasicMotions | weft | **98.8** (97.5–100.0) | 5.0 | 2 |")


def test_anomalies(read):
    kept = records.read("anomalies")
    row = {**kept["files"][0], "found": 0, "offline": 1}
    changed = anomalies.record(kept, files=[row])
    assert len(changed["files"]) == len(kept["files"])
    read("anomalies", changed)
    assert tables.anomalies()[2].startswith(f"| {row['file']} | `linear` | 1 | **0** | 1 |")
    counts = {"windows": 16, "offline": 2, **records.stamp(["benchmarks/quality/anomalies.py::injected"])}
    kinds = [{"kind": "spike", "found": 9, **counts}, {"kind": "flat", "found": 3, **counts}]
    read("anomalies", anomalies.record(kept, injected=kinds))
    assert "| all | 32 | **12** | 4 |" in tables.anomalies_injected()


def test_precision_writes_only_a_whole_measurement(read, monkeypatch):
    written = {}
    monkeypatch.setattr(precision, "scores", lambda work, seed: {"float32": 80.0 + seed, "bf16": 80.5, "int8": 80.0})
    monkeypatch.setattr(precision, "write", lambda name, record: written.update({name: record}))
    monkeypatch.setattr(precision, "write_pages", lambda: None)
    monkeypatch.setattr("sys.argv", ["precision", "lm"])
    precision.main()
    assert not written
    monkeypatch.setattr("sys.argv", ["precision"])
    precision.main()
    read("precision", written["precision"])
    assert "81.00, 82.00, 83.00 | 80.50, 80.50, 80.50 | -1.50 | 2.00" in tables.precision()[2]


def test_a_row_that_is_measured_replaces_its_record(monkeypatch, tmp_path, capsys):
    kept = json.loads(records.TASKS.read_text(encoding="utf-8"))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(results, "TASKS", path)
    monkeypatch.setattr(results, "write_pages", lambda: None)
    row = Row(None, lambda folder, seed: Result("test accuracy", 0.84567, 60.0, {"network alone": 0.8}, 1), seeds=(1,))
    monkeypatch.setattr(results, "all_rows", lambda: {"cls/sst2": row})
    monkeypatch.setattr("sys.argv", ["results"])
    results.main()
    after = json.loads(path.read_text(encoding="utf-8"))
    assert len(after) == len(kept)
    (mine,) = [one for one in after if (one["row"], one["seed"]) == ("cls/sst2", 1)]
    assert (mine["score"], mine["minutes"]) == (0.8457, 1.0)
    assert mine["depends"] == {part: records.digest(part) for part in records.parts_of_row("cls/sst2")}
    assert results.state("cls/sst2", 1) == "current"
    assert results.state("cls/sst2", 9) == "missing"
    assert json.loads(capsys.readouterr().out)["date"] == mine["date"]


def test_peers_that_are_measured_replace_theirs(monkeypatch, tmp_path):
    path = tmp_path / "peers.json"
    monkeypatch.setattr(peers, "PEERS", path)
    monkeypatch.setattr(peers, "write_pages", lambda: None)
    peers.keep("cls/sst2", [{"model": "NB-SVM", "score": 0.8, "seconds": 1.0, "settings": ""}])
    (one,) = json.loads(path.read_text(encoding="utf-8"))["cls/sst2"]
    assert one["depends"].keys() == {"benchmarks/peers/classify_texts.py"}
    assert not records.changed(one)
