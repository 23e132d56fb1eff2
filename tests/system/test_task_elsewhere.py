"""A task of values from another package, as docs/architecture.md shows it: installed, it is known everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from urllib.parse import quote

import numpy as np
import pytest
import torch

import weft
from tests.elsewhere import FILES, importable
from tests.program import weft as run_weft
from tests.serving import served
from weft import probes
from weft.errors import WeftError
from weft.training.run import METRICS, open_run

SERIES = "[[0.5, 1.5], [1.0, -2.0], [0.0, 3.0]]"
TRAIN = ["--set", "model.hidden_size=16", "--set", "model.dropout=0", "--learning-rate", "0.01", "--batch-size", "8"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("package")
    for name, source in FILES.items():
        (folder / name).write_text(source, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    target = folder / "site"
    subprocess.run([*pip, "--no-build-isolation", "--target", target, folder], check=True, timeout=600)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with series of two channels, around a level of each series."""
    found, random = tmp_path_factory.mktemp("series"), np.random.default_rng(0)
    lengths, levels = random.integers(3, 12, 240), random.normal(size=240)
    series = [random.normal(level, 0.3, (length, 2)) for length, level in zip(lengths, levels, strict=True)]
    (found / "series.jsonl").write_text("".join(json.dumps(one.round(3).tolist()) + "\n" for one in series))
    return found


@pytest.fixture(scope="module")
def program(site, folder):
    def run(*arguments):
        with importable(site, "running_mean"):
            return run_weft(*arguments, cwd=folder)

    return run


@pytest.fixture(scope="module")
def run(program, folder):
    """A trained run."""
    data = ["--data", "series.jsonl", "--out", "run", "--epochs", "40", "--json"]
    done = program("train", "running_mean", *data, *TRAIN)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["held_out_mean_absolute_error"] < 0.2, result
    assert "216 series" in done.stderr
    assert "steps/s" in done.stderr
    assert not {"perplexity", "nats", "entropy", "tokens"} & {*re.findall(r"[a-z]+", done.stderr + done.stdout)}
    return folder / "run"


@pytest.fixture
def installed(site):
    with importable(site, "running_mean"):
        yield


def succeeds(program, *arguments):
    done = program(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_a_small_package():
    assert set(FILES) == {"pyproject.toml", "running_mean.py"}
    assert sum(len(source.strip().splitlines()) for source in FILES.values()) <= 150


def test_commands(program, run):
    assert re.search(
        r"^  running_mean +A task of the package running-mean\.$", succeeds(program, "train", "--help"), re.M
    )
    assert "running_mean" in succeeds(program, "tune", "--help")
    assert "Tasks of other packages, as weft train TASK --help: running_mean." in succeeds(program, "--help")
    help = succeeds(program, "train", "running_mean", "--help")
    assert "Series, a JSON list of steps on each line." in help
    assert "Commands of its runs: weft average, weft eval." in help
    assert "Average each series" in succeeds(program, "average", "--help")
    values = [float(one) for one in succeeds(program, "average", "run", SERIES).split()]
    assert values == pytest.approx([1.0, 0.25, 4 / 6], abs=0.5)
    lines = succeeds(program, "average", "run", "--file", "series.jsonl", "--json").splitlines()
    assert len(lines) == 240
    assert json.loads(lines[0]).keys() == {"running_mean"}
    assert json.loads(succeeds(program, "eval", "run", "--json"))["mean_absolute_error"] < 0.2
    assert "mean_absolute_error 0." in succeeds(program, "eval", "run", "--data", "series.jsonl")
    assert "mean_absolute_error 0." in succeeds(program, "runs", ".")
    assert "Mean absolute error" in succeeds(program, "plot", "run")
    for wrong, message in ((["[[1, 2, 3]]"], "2 in each step"), (["words"], "no JSON"), ([], "there is no series")):
        refused = program("average", "run", *wrong)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
    assert "`weft train lm`" in program("generate", "run").stderr


def test_probes_over_its_steps(program, run, installed):
    assert "Forget gate f" in succeeds(program, "look", "run", SERIES, "--show", "gates")
    model = weft.load(run)
    gates = probes.activations(model, SERIES).layers[0]
    assert (gates.steps, gates.gates["f"].shape) == (("1", "2", "3"), (3, 16))
    flow = probes.gradient_flow(model, SERIES)
    assert flow.names == ("1", "2", "3")
    norms = flow.layers[0].states["h"]
    assert (norms[np.tril_indices(3)] > 0).all()
    assert (norms[np.triu_indices(3, 1)] == 0).all()
    network = sys.modules["running_mean"].TASK.inspect(model, SERIES).network()
    expected = probes.flow_by_autograd(network, [0, 1, 2]).layers[0].states["h"]
    np.testing.assert_allclose(norms, expected, rtol=1e-3, atol=1e-6)
    with pytest.raises(WeftError, match="predicts values"):
        probes.evidence(model, SERIES)
    with pytest.raises(WeftError, match="predicts no tokens"):
        probes.surprisal(model, SERIES)


def test_python(run, installed, tmp_path):
    model = weft.load(run)
    (found,) = model.average([json.loads(SERIES)])
    alone = [one.means for series in ([[1.0, 2.0]], json.loads(SERIES)) for one in model.average([series])]
    together = [one.means for one in model.average([[[1.0, 2.0]], json.loads(SERIES)])]
    for one, other in zip(alone, together, strict=True):
        assert one == pytest.approx(other, abs=1e-6)  # the same alone and in a batch
    assert len(found.means) == 3
    random = np.random.default_rng(1)
    again = weft.train("running_mean", [random.normal(size=(4, 3)) for _ in range(30)], tmp_path / "own",
                       {"train.epochs": 1}, progress=False)  # fmt: skip
    assert again.run.package == "running-mean"
    assert again.evaluate().record["mean_absolute_error"] > 0


def test_a_killed_training_ends_in_the_same_weights(site, folder, run):
    """The data, and the epochs, are those of `run`, so its weights are what an uninterrupted training gives."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(site)]),
    }
    command = [sys.executable, "-m", "weft", "train", "running_mean", "--data", "series.jsonl", "--out", "killed"]
    command += ["--epochs", "40", *TRAIN, "--set", "train.save_seconds=0.2", "--resume"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    metrics = folder / "killed" / METRICS
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 10):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=600) == -signal.SIGKILL
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "resuming killed after step" in done.stderr
    expected, found = (open_run(folder / name).weights() for name in ("run", "killed"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_tuning(program, run):
    pytest.importorskip("optuna")
    out = ["--data", "series.jsonl", "--out", "tuned", "--trials", "2", "--set", "train.epochs=2", "--json"]
    found = json.loads(succeeds(program, "tune", "running_mean", *out))
    assert [trial["state"] for trial in found["trials"]] == ["complete", "complete"]
    assert found["settings"].keys() == {"train.learning_rate", "model.hidden_size"}


def test_serving(site, run, monkeypatch):
    pytest.importorskip("starlette")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(site)]))
    with served(run) as server:
        (model,) = server.ask("/weft/models").body["models"]
        assert (model["task"], model["metric"], "gates" in model["probes"]) == (
            "running_mean",
            "mean_absolute_error",
            True,
        )
        assert model["operations"]["average"]["input"]["type"] == "array"
        example = json.loads(model["example"])
        answer = server.ask("/weft/predict/run", {"texts": [example]})
        assert (answer.status, len(answer.body["results"][0]["running_mean"])) == (200, len(example))
        wrong = server.ask("/weft/predict/run", {"texts": [[["1", 2]]]})
        assert (wrong.status, "expected a number" in wrong.body["error"]["message"]) == (400, True)
        gates = server.ask("/weft/look/run/gates", {"text": SERIES}).body[0]["layers"][0]
        assert gates["steps"] == ["1", "2", "3"]


def test_page(site, run, monkeypatch):
    """The page offers its operation, and draws what goes on inside the model over the steps of a series."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(site)]))
    mistakes = []
    with served(run) as server, sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.goto(f"{server.address}/#/operate?model=run&text={quote(SERIES)}")
        figure = page.locator("figure.figure").filter(has=page.locator("h2", has_text="average")).first
        sync_api.expect(figure).to_contain_text("running mean")
        page.goto("about:blank")
        page.goto(f"{server.address}/#/look?model=run&text={quote(SERIES)}")
        sync_api.expect(page.locator("figure.figure svg").first).to_be_visible()
        browser.close()
    assert mistakes == []
