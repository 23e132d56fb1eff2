"""The page of `weft serve` in a real browser: each view used as a person would use it, on runs trained here.

Every request that leaves this machine fails the test, and so does every error on the browser's console. What every view
shows is held to the rules of axe-core (tests/vendor).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlparse

import numpy as np
import pytest
import torch

import weft
from tests.paths import ROOT
from tests.serving import CORPUS, LABELLED, SPANS, Recipe, served, train_runs
from weft import probes
from weft.cells import CELLS
from weft.config import load_config
from weft.pictures import palette, to_html
from weft.probes.activations import order_units
from weft.probes.layers import part_labels
from weft.tasks import TASKS, get_task
from weft.tasks.classify.predictor import ClassifyPredictor
from weft.tasks.operation import OperationInputs, Option, operation, operations

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
uvicorn = pytest.importorskip("uvicorn", reason="the server is not installed: pip install 'weft[serve]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("chromium is not installed: apt-get install chromium", allow_module_level=True)

expect = sync_api.expect
expect.set_options(timeout=20_000)
LOOPBACK = ("127.0.0.1", "localhost")
AXE = ROOT / "tests" / "vendor" / "axe.min.js"
SMALLEST_TARGET = 24  # pixels in both directions, as WCAG 2.2 has it; tokens within a running text are exempt
SMALL_TARGETS = """(least) => [...document.querySelectorAll(`a:not(.skip), button, summary, select, textarea,
    label:has(input), input:not(label input), [role=button]:not(.running *)`)].filter((one) => {
  const { width, height } = one.getBoundingClientRect();
  return one.checkVisibility() && Math.min(width, height) < least;
}).map((one) => one.outerHTML)"""
SMALL = {"model.hidden_size": 16, "model.embedding_dim": 16, "train.epochs": 2, "batch.size": 8}
SENTENCE = "the cat saw the dog."
VIEWS = {
    "write": {"model": "lm", "text": "the cat"},
    "translate": {"model": "en-fr", "text": "the cat sat."},
    "label": {"model": "ner", "text": "Ann went to Paris ."},
    "forecast": {"model": "shops"},
    "operate": {"model": "en-fr", "text": "the cat sat."},
    "look": {"model": "lm", "text": SENTENCE},
    "learn": {},
    "compare": {"model": "lm", "with": "gru", "text": SENTENCE},
}

LM = Recipe("lm", CORPUS, SMALL)
FOUR_PAIRS = weft.Pairs(
    "pairs",
    ["the cat sat.", "a dog ran.", "the dog sat.", "a cat ran."] * 30,
    ["le chat.", "un chien.", "le chien.", "un chat."] * 30,
)
MONTHS = [f"{2015 + month // 12}-{month % 12 + 1:02}-01" for month in range(60)]
SHOPS = {
    "unique_id": [name for name in ("north", "south") for _ in MONTHS],
    "ds": MONTHS * 2,
    "y": [round(size * (50 + month / 3 + 8 * math.sin(month * math.pi / 6) + month**2 % 7), 2)
          for size in (1, 3) for month in range(len(MONTHS))],
}  # fmt: skip
CHOSEN = {
    "lm": LM,
    "gru": LM.changed({"model.cell": "gru", "model.hidden_size": 12, "train.epochs": 1}),
    "fill": Recipe("fill", CORPUS, {**SMALL, "text.tokenizer": "word"}),
    "sentiment": Recipe("classify", LABELLED, SMALL),
    "ner": Recipe("tag", SPANS, SMALL),
    "en-fr": Recipe("translate", FOUR_PAIRS, {**SMALL, "train.epochs": 8, "train.learning_rate": 0.02}),
    "shops": Recipe("forecast", SHOPS, {"model.horizon": 6}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "runs"
    folder.mkdir()
    return train_runs(folder, CHOSEN)


@pytest.fixture(scope="module")
def server(runs):
    """The address of a server of all runs."""
    with served(*runs.values(), "--runs", runs["lm"].parent) as found:
        yield found.address


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Reader:
    """A person at the page: opens views, saves figures. Collects what must not happen."""

    def __init__(self, context, address):
        self.context, self.address, self.mistakes = context, address, []
        self.page = context.new_page()
        context.route("**/*", self._guard)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.mistakes.append(f"error: {error}"))
        self.refused = False  # whether the server is expected to refuse something

    def _guard(self, route):
        host = urlparse(route.request.url).hostname
        if host in LOOPBACK or route.request.url.startswith(("blob:", "data:", "file:")):
            route.continue_()
        else:
            self.mistakes.append(f"request to {route.request.url}")
            route.abort()

    def _hear(self, message):
        if message.type in ("error", "warning") and not (self.refused and "Failed to load resource" in message.text):
            self.mistakes.append(f"console: {message.text}")

    def open(self, view="", **params):
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in params.items())
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{view}?{query}")

    def figure(self, title):
        return self.page.locator("figure.figure").filter(has=self.page.locator("h2", has_text=title)).first

    def check_access(self):
        """Everyone can use what is shown: axe-core finds nothing, and what can be pressed is large enough."""
        size = self.page.viewport_size
        high = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({**size, "height": high})  # at its edge a button would look small
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run({ rules: { 'target-size': { enabled: true } } })")
        assert len(found["passes"]) > 10
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
        assert self.page.evaluate(SMALL_TARGETS, SMALLEST_TARGET) == []
        self.page.set_viewport_size(size)

    def save(self, figure, kind):
        """Saves a figure by its menu; the text of the file."""
        figure.locator("summary").click()
        with self.page.expect_download() as waiting:
            figure.locator(".menu-items button").nth({"svg": 0, "html": 1, "json": -1}[kind]).click()
        return Path(waiting.value.path()).read_text(encoding="utf-8")

    def data(self, title):
        return json.loads(self.save(self.figure(title), "json"))


class Held:
    """Requests that wait on their way until they are released: those to a pattern that meet a condition."""

    def __init__(self, reader, pattern, condition=lambda request: True):
        self.reader, self.condition, self.routes, self.open = reader, condition, [], False
        reader.context.route(pattern, self._take)

    def _take(self, route):
        if self.open or not self.condition(route.request):
            route.continue_()
        else:
            self.routes.append(route)

    def wait(self):
        """Waits until a request is held."""
        while not self.routes:
            self.reader.page.wait_for_timeout(20)

    def release(self):
        self.open = True
        for route in self.routes:
            with contextlib.suppress(sync_api.Error):  # the page may have given it up
                route.continue_()


@pytest.fixture
def reader(browser, server):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US", accept_downloads=True)
    context.set_default_timeout(20_000)
    found = Reader(context, server)
    yield found
    context.close()
    assert found.mistakes == []


def texts(locator):
    return [text.replace("↵", "\n") for text in locator.all_text_contents()]


def close(one, other):
    """Equal numbers, up to those of JSON and of float32; None stands for NaN."""
    return one == other or (one is None and math.isnan(other)) or one == pytest.approx(other, abs=1e-4)


def test_write(reader, runs):
    page = reader.page
    reader.open("write", model="lm", text="the cat", tokens=30)
    page.get_by_role("button", name="Write", exact=True).click()
    tokens = page.locator(".tokens .token")
    expect(tokens).to_have_count(len("the cat") + 30)
    written = texts(tokens)

    saved = reader.data("Surprisal of each token")
    expected = probes.surprisal(weft.load(runs["lm"]), "".join(written)).nats
    assert [one["token"] for one in saved["tokens"]] == written
    assert all(close(one["nats"], nats) for one, nats in zip(saved["tokens"], expected.tolist(), strict=True))
    tint = [re.search(r"\b(s\d+|none)\b", tokens.nth(at).get_attribute("class"))[1] for at in (0, 10)]
    assert tint == ["none", palette.level_class(expected[10], 0, 6, "sequential")]

    # Another token: the text before it stays, the rest is written anew.
    tokens.nth(12).click()
    choices = page.locator(".popover .bar-name")
    expect(choices.first).to_be_visible()
    reader.check_access()
    names = texts(choices)
    assert names[:6] == [token.replace(" ", "␣") for token in most_probable(runs["lm"], written[:12], 6)]
    other = next(at for at, name in enumerate(names) if name.replace("␣", " ") != written[12])
    choices.nth(other).click()
    expect(tokens).to_have_count(13 + 30)
    assert texts(tokens)[:13] == [*written[:12], names[other].replace("␣", " ")]

    # A fork is a second text; the first one is kept.
    tokens.nth(9).click()
    page.get_by_role("button", name="Fork here").click()
    expect(tokens).to_have_count(9 + 30)
    branches = page.get_by_role("group", name="Branches").get_by_role("button")
    expect(branches).to_have_count(2)
    branches.first.click()
    expect(tokens).to_have_count(13 + 30)

    # The address shows the same text to somebody else.
    shown = texts(tokens)
    kept = "text => new URLSearchParams(location.hash.split('?')[1]).get('kept') === text"
    page.wait_for_function(kept, arg="\x1f".join(shown[len("the cat") :]))
    page.reload()
    expect(tokens).to_have_count(len(shown))
    assert texts(tokens) == shown


def most_probable(run, before, count):
    """The tokens that may follow others, by the probe, without those that are never written."""
    found = probes.surprisal(weft.load(run), "".join(before) + "x", top=count + 4).alternatives[len(before)]
    return [one.token for one in found if one.token not in ("<unk>", "<pad>", "<bos>")][:count]


def test_temperature_acts_while_the_model_writes(reader):
    """The stream stops, the text stays, and writing goes on with the new temperature until the length is reached."""
    page = reader.page
    asked = []
    page.on("request", lambda request: asked.append(request) if "completions" in request.url else None)
    sampling = {"top_p": 0.95, "min_p": 0.02, "typical_p": 0.9, "repetition_penalty": 1.1}
    reader.open("write", model="lm", text="the cat", tokens=400, temperature=1.5, **sampling)
    page.get_by_label("Temperature").wait_for()
    for label, value in (("Top-p", 0.95), ("Min-p", 0.02), ("Typical-p", 0.9), ("Repetition penalty", 1.1)):
        expect(page.get_by_label(label)).to_have_value(str(value))
    network = reader.context.new_cdp_session(page)  # slow enough that a person can follow
    limits = {"offline": False, "latency": 0, "uploadThroughput": -1}
    network.send("Network.emulateNetworkConditions", {**limits, "downloadThroughput": 40_000})
    page.get_by_role("button", name="Write", exact=True).click()
    tokens = page.locator(".tokens .token")
    expect(tokens.nth(20)).to_be_visible()
    before = texts(tokens)
    with page.expect_request("**/v1/completions"):
        page.get_by_label("Temperature").fill("0")
    network.send("Network.emulateNetworkConditions", {**limits, "downloadThroughput": -1})
    expect(tokens).to_have_count(len("the cat") + 400)
    assert texts(tokens)[: len(before)] == before
    bodies = [json.loads(request.post_data) for request in asked]
    assert [body["temperature"] for body in bodies] == [1.5, 0]
    assert all(sampling.items() <= body.items() for body in bodies)
    assert bodies[0]["session"] == bodies[1]["session"]
    assert bodies[1]["max_tokens"] < 400


def test_translate(reader, runs):
    page = reader.page
    model = weft.load(runs["en-fr"])
    reader.open("translate", model="en-fr", text="the cat sat.")
    (best, *_) = model.n_best(["the cat sat."], 3, beam=5, attention=True)[0]
    tokens = page.locator(".prose .token")
    expect(tokens).to_have_count(len(best.tokens))
    assert texts(tokens) == list(best.tokens)
    saved = reader.data("Attention")
    assert saved["weights"] == [pytest.approx(row, abs=1e-5) for row in best.attention]
    lines = reader.figure("Attention").locator("[data-joins]")
    expect(lines.first).to_be_visible()
    reader.figure("Attention").locator("[data-at=r0]").hover()  # the lines of the other words are faint
    assert reader.figure("Attention").locator("[data-joins]:not(.dim)").count() <= len(best.source) < lines.count()
    expect(reader.figure("Attention").locator(".readout")).to_contain_text(f"{best.tokens[0].strip()} ←")
    page.get_by_text("Heat map").click()
    reader.check_access()
    expect(reader.figure("Attention").get_by_text(best.tokens[0].strip(), exact=True).first).to_be_visible()

    tree = reader.figure("Beam search")
    assert reader.data("Beam search")["result"] == [token for token in best.tokens if token != "<eos>"]
    few = tree.locator("[data-at]").count()
    page.get_by_text("Show dropped hypotheses").click()
    expect(tree.locator("[data-at]").nth(few)).to_be_visible()
    tree.locator("[data-at]").nth(few).hover()
    expect(tree.locator(".readout")).to_contain_text("log P")

    # Another first word: the rest follows, as the model has it.
    tokens.first.click()
    choices = page.locator(".popover .bar-name")
    expect(choices.first).to_be_visible()
    reader.check_access()
    other = next(name for name in texts(choices) if name not in (best.tokens[0], "<eos>"))
    choices.get_by_text(other, exact=True).first.click()
    forced = model.n_best(["the cat sat."], 1, beam=5, prefix=[other])[0][0]
    expect(tokens.first).to_have_text(other)
    expect(tokens).to_have_count(len(forced.tokens))
    assert texts(tokens) == list(forced.tokens)
    page.get_by_role("button", name="Back to the best translation").click()
    expect(tokens.first).to_have_text(best.tokens[0])


def test_tag(reader, runs):
    page = reader.page
    text = "Ann Lee went to Paris ."
    (expected,) = weft.load(runs["ner"]).tag([text])
    reader.open("label", model="ner", text=text)
    words = page.locator("button.word")
    expect(words).to_have_count(len(expected.words))
    saved = reader.data("Tags")
    assert saved["tags"] == list(expected.tags)
    assert saved["confidence"] == pytest.approx(list(expected.confidence), abs=1e-5)
    rows = page.locator(".table tbody tr")
    expect(rows).to_have_count(len(expected.spans))
    words.nth(4).click()
    expect(reader.figure("Evidence for Paris")).to_be_visible()
    evidence = probes.evidence(weft.load(runs["ner"]), text, position=4)
    assert reader.data("Evidence for Paris")["occlusion"] == pytest.approx(evidence.occlusion.tolist(), abs=1e-4)
    expect(reader.figure("Tags of “Paris”").get_by_text("B-LOC")).to_be_visible()
    reader.check_access()


def test_classify_and_fill(reader, runs):
    page = reader.page
    reader.open("label", model="sentiment", text="a very good film")
    (expected,) = weft.load(runs["sentiment"]).classify(["a very good film"])
    expect(page.locator(".sentence")).to_have_text(expected.label)
    assert reader.data("Probability of each label")["probabilities"] == pytest.approx(
        dict(expected.probabilities), abs=1e-5
    )
    found = reader.data("Evidence for")
    assert found["prediction"] == expected.label
    page.get_by_text("Integrated gradients").click()
    expect(page.get_by_text(f"The share of the token in the log-odds against “{found['against']}”")).to_be_visible()
    reader.check_access()

    # Text is live, and another model is a choice away.
    page.get_by_label("Model").select_option("fill")
    page.get_by_label("Text").fill("the cat ___ on the mat.")
    answers = weft.load(runs["fill"]).fill("the cat ___ on the mat.", 10)
    bars = reader.figure("Most probable fills").locator(".drawing")
    expect(bars.locator("rect.s1")).to_have_count(len(answers))
    expect(page.locator(".sentence")).to_have_text(answers[0].text)
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        bars.press(key)
    expect(page.locator(".sentence")).to_have_text(answers[1].text)
    expect(reader.figure(f"Evidence for {answers[1].fills[0]}")).to_be_visible()
    reader.check_access()


def as_csv(**columns):
    return "\n".join(",".join(map(str, row)) for row in [list(columns), *zip(*columns.values(), strict=True)]) + "\n"


def test_forecast(reader, runs, tmp_path):
    page, model = reader.page, weft.load(runs["shops"])
    reader.open("forecast", **VIEWS["forecast"])
    expect(page.get_by_role("heading", name="Forecast of north")).to_be_visible()
    expect(page.get_by_text("These are series of the training")).to_be_visible()

    page.get_by_label("Or paste a table").fill(as_csv(**{**SHOPS, "unique_id": ["east"] * 60 + ["west"] * 60}))
    expect(page.locator(".reading")).to_contain_text("target 'y'")
    expect(page.locator(".reading")).to_contain_text("every month")
    page.locator(".results").get_by_label("Series").select_option("west")
    expect(page.get_by_role("heading", name="Forecast of west", exact=True)).to_be_visible()
    found, expected = reader.data("Forecast of west"), model.forecast()[1]
    assert found["forecast"] == pytest.approx(expected.values[:, 0].tolist())
    assert found["intervals"]["95"][1] == pytest.approx(expected.intervals["95"][1][:, 0].tolist())
    rows = page.locator(".table tbody tr")
    expect(rows).to_have_count(6)
    assert rows.first.locator("td").nth(1).text_content() == "2020-01-01"

    drawing = reader.figure("Forecast of west").locator(".drawing")
    drawing.focus()
    page.keyboard.press("ArrowLeft")  # the last date
    readout = reader.figure("Forecast of west").locator(".readout")
    expect(readout).to_contain_text("2020-06-01")
    expect(readout).to_contain_text("95%")
    reader.check_access()

    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download CSV of all 2 series").click()
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "unique_id,ds,weft,weft-lo-80,weft-hi-80,weft-lo-95,weft-hi-95"
    assert len(lines) == 1 + 2 * 6

    one = tmp_path / "one.csv"
    one.write_text(as_csv(ds=MONTHS, y=SHOPS["y"][:60]), encoding="utf-8")
    page.locator("input[type=file]").set_input_files(one)
    expect(page.get_by_role("heading", name="Forecast of y")).to_be_visible()
    page.get_by_label("Steps to forecast").fill("9")
    page.get_by_label("Steps to forecast").press("Enter")
    expect(rows).to_have_count(9)
    page.locator("fieldset").get_by_text("80%", exact=True).click()
    expect(page.locator(".table thead th")).to_have_count(4)
    page.locator("fieldset").get_by_text("1 : 100", exact=True).click()
    expect(page.get_by_role("heading", name="Anomalies of y")).to_be_visible()

    reader.refused = True
    page.get_by_label("Or paste a table").fill("ds,y\n2020-01-01,1\n2020-02-01,two\n2020-03-01,3\n")
    expect(page.get_by_role("alert")).to_contain_text("the table:3")
    page.get_by_role("button", name="Back to the series").click()
    expect(page.get_by_role("heading", name="Forecast of north")).to_be_visible()


def test_operations(reader, runs):
    """Every option of an operation has a control, and an empty one is its default."""
    page = reader.page
    reader.open("operate", model="en-fr", text="the cat sat.")
    rows = page.locator(".figure-body td table tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_label("n best").fill("3")
    page.get_by_label("n best").press("Tab")
    page.get_by_label("length penalty").fill("0.5")
    page.get_by_label("length penalty").press("Tab")
    page.get_by_label("attention", exact=True).check()
    expect(rows).to_have_count(3)
    (expected,) = weft.load(runs["en-fr"]).n_best(["the cat sat."], 3, length_penalty=0.5)
    found = reader.data("translate")["translations"]
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert len(found[0]["attention"][0]) == len(found[0]["source"])
    reader.check_access()
    page.get_by_label("n best").fill("")
    page.get_by_label("n best").press("Tab")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("^(?!.*n_best).*length_penalty"))
    page.reload()
    expect(page.get_by_label("length penalty")).to_have_value("0.5")

    page.get_by_label("Model").select_option("sentiment")
    expect(page.locator(".drawing rect.s1")).to_have_count(2)
    reader.check_access()


@dataclass(frozen=True)
class Spelled:
    """The letters of a text."""

    letters: Sequence[Mapping[str, str]]
    chances: Mapping[str, float]

    def to_text(self, number: int) -> str:
        return " ".join(one["word"] for one in self.letters) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"letters": self.letters, "chances": self.chances, "note": None, "seconds": 0.123456}


def spell_out(
    self: ClassifyPredictor,
    words: Sequence[Mapping[str, Any]],
    *,
    loud: Annotated[bool, Option("In capitals.")] = False,
    alphabet: Annotated[str, Option("The words.", choices=("echo", "plain"))] = "echo",
    pause: Annotated[float, Option("Seconds.", min=0, max=9)] = 0.5,
    skip: Annotated[tuple[str, ...], Option("Letters to leave out.")] = (),
) -> Iterator[Spelled]:
    """Spell a word.

    Args:
        words: Each with its letters.
        loud: In capitals.
        alphabet: The words.
        pause: Seconds.
        skip: Letters to leave out.
    """
    for one in words:
        letters = [letter for letter in one["word"] if letter not in skip]
        said = [{"letter": letter, "word": f"{letter}{alphabet} <b>" if pause < 9 else letter} for letter in letters]
        yield Spelled([{**row, "word": row["word"].upper() if loud else row["word"]} for row in said],
                      {"right": 0.75, "wrong": 0.25})  # fmt: skip


@contextlib.contextmanager
def served_here(run, name):
    """The address of a server in this process, which knows what has been added to its models."""
    from weft.server.app import Server
    from weft.server.config import ServerConfig

    server = Server({name: run}, ServerConfig())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = uvicorn.Server(uvicorn.Config(server.app, log_level="error"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()


def test_an_operation_that_the_server_has_never_seen(reader, runs, monkeypatch):
    """Its form, its checks and its record come from the method; it is the view of a model that has no other."""
    page = reader.page
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    marked = operation("spell_out", OperationInputs("Words.", schema=schema))(spell_out)
    monkeypatch.setattr(ClassifyPredictor, "spell_out", marked, raising=False)
    operations.cache_clear()
    with served_here(runs["sentiment"], "speller") as address:
        reader.address = address
        reader.open("operate", operation="spell_out", text='{"word": "ab"}')
        expect(page.get_by_label("Operation")).to_have_value("spell_out")
        expect(page.get_by_text("Spell a word.")).to_be_visible()
        rows, shares = page.locator(".figure-body td table tbody tr"), page.locator(".drawing text")
        expect(rows).to_have_text(["aaecho <b>", "bbecho <b>"])
        expect(shares).to_have_text(["right", "75.0%", "wrong", "25.0%"])
        expect(page.get_by_text("0.123", exact=True)).to_be_visible()
        reader.check_access()
        page.get_by_label("loud").check()
        page.get_by_label("alphabet").select_option("plain")
        expect(rows).to_have_text(["aAPLAIN <B>", "bBPLAIN <B>"])
        page.get_by_label("skip").fill("x\na")
        page.get_by_label("skip").press("Tab")
        expect(rows).to_have_text(["bBPLAIN <B>"])
        page.get_by_label("pause").fill("12.5")  # more than it may be
        page.get_by_label("pause").press("Tab")
        expect(page.get_by_label("pause")).to_have_value("9")
        expect(rows).to_have_text(["bB"])

        page.get_by_label("Input (JSON)").fill('{"word": ')
        expect(page.get_by_text("The input is no JSON")).to_be_visible()
        reader.refused = True
        page.get_by_label("Input (JSON)").fill('{"word": 5}')
        expect(page.get_by_role("alert")).to_contain_text("inputs[0].word is 5; expected a string")
    operations.cache_clear()


def test_look(reader, runs):
    page = reader.page
    model = weft.load(runs["lm"])
    (layer,) = probes.activations(model, SENTENCE).layers
    reader.open("look", model="lm", text=SENTENCE)
    page.get_by_text("forget gate f", exact=True).click()
    figure = reader.figure("f of stack")
    saved = json.loads(reader.save(figure, "json"))
    assert saved["layers"][0]["gates"]["f"] == [pytest.approx(row, abs=1e-5) for row in layer.gates["f"].tolist()]

    # The ten units that vary most, by their numbers; all of them are a choice away.
    drawing = figure.locator(".drawing")
    order = np.argsort(-layer.gates["f"].var(0)).tolist()
    rows = drawing.locator("text.ink")
    assert rows.all_text_contents()[:10] == list(map(str, order[:10]))
    drawing.click(position={"x": 200, "y": 16 + 20 * 3 + 10})
    expect(reader.figure(f"Passages that activate unit {order[3]}")).to_be_visible()
    page.get_by_text("All 16").click()
    expect(rows.nth(15)).to_have_text(str(order[15]))
    page.get_by_text("by similarity").click()
    alike = order_units(layer.gates["f"], "similarity")
    expect(rows.nth(1)).to_have_text(str(alike[1]))
    assert rows.all_text_contents()[:16] == list(map(str, alike))
    before = drawing.bounding_box()["width"]
    page.get_by_role("button", name="Larger").click()
    assert drawing.bounding_box()["width"] == pytest.approx(1.5 * before, abs=1)
    page.get_by_role("button", name="Smaller").click()
    page.get_by_text("by number").click()
    expect(rows.first).to_have_text(SENTENCE[0])  # rows have no names

    # A unit by a press on its row, then by the keyboard: its values, and the passages that activate it.
    drawing.click(position={"x": 200, "y": 16 + 13 * 3 + 6})
    expect(figure.locator(".readout")).to_contain_text("units 3 · ")
    expect(reader.figure("Passages that activate unit 3")).to_be_visible()
    drawing.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        drawing.press(key)
    unit = reader.data("Unit ")
    assert unit["values"] == pytest.approx(layer.gates["f"][:, unit["unit"]].tolist(), abs=1e-5)
    passages = reader.data("Passages that activate")["passages"]
    peaks = [one["values"][one["peak"]] for one in passages]
    assert peaks == sorted(peaks, reverse=True)
    assert len(peaks) > 1
    reader.check_access()

    # Influence and gradients follow the pointer.
    for show, title in (("connectivity", "Influence on the prediction"), ("gradient", "Gradient of the loss")):
        page.get_by_label("Show").select_option(show)
        figure = reader.figure(title)
        tokens = figure.locator(".token")
        tokens.nth(9).hover()
        expect(figure.locator("h2")).to_contain_text(f"“{SENTENCE[9].replace(' ', '␣')}”")
        first = [one.get_attribute("class") for one in tokens.all()]
        tokens.nth(5).hover()
        expect(figure.locator("h2")).to_contain_text(f"“{SENTENCE[5]}”")
        assert [one.get_attribute("class") for one in tokens.all()] != first
        tokens.nth(9).click()  # held, where one points elsewhere
        page.get_by_role("heading", name="Look").hover()
        expect(figure.locator("h2")).to_contain_text(f"“{SENTENCE[9].replace(' ', '␣')}”")
        reader.check_access()
    found = probes.connectivity(model, SENTENCE)
    page.get_by_label("Show").select_option("connectivity")
    assert reader.data("Influence on")["influence"][8] == pytest.approx(found.influence[8].tolist(), abs=1e-4)
    for model, show in (("lm", "surprisal"), ("ner", "posterior"), ("ner", "connectivity")):
        reader.open("look", model=model, text=SENTENCE, show=show)
        expect(page.locator("figure.figure").first).to_be_visible()
        reader.check_access()


def test_hostile_tokens_stay_text(reader):
    """In the SVG that the page inserts: of a probe, and of the page's own data."""
    page = reader.page
    tokens = ["<img/src=x/onerror=broken=1>", "</text></svg><script>broken=1</script>", 'a"onload="broken=1']
    for view, params in (
        ("label", {}),
        ("look", {"show": "gates"}),
        ("look", {"show": "posterior"}),
        ("look", {"show": "jacobian"}),
        ("look", {"show": "connectivity"}),
    ):
        reader.open(view, model="ner", text=" ".join(tokens), **params)
        drawn = page.locator(".drawn")
        expect(drawn.locator("svg").first).to_be_visible()
        assert "broken" in "".join(drawn.all_text_contents())
        assert drawn.locator("img, script, [onload], [onerror]").count() == 0
        assert page.evaluate("window.broken") is None
    curves = [{"name": token, "x": [0, 1], "y": [1, 2]} for token in tokens]
    drawn = page.evaluate(
        """async (figure) => {
          const headers = { 'Content-Type': 'application/json' };
          const options = { method: 'POST', headers, body: JSON.stringify({ figure }) };
          const { svg, file } = await (await fetch('weft/draw', options)).json();
          document.getElementById('app').innerHTML = svg + file;
          return document.querySelectorAll('#app script, #app img, #app [onload]').length;
        }""",
        {"kind": "Curves", "title": tokens[1], "x_label": tokens[0], "curves": curves},
    )
    assert drawn == 0


def test_hostile_labels_stay_text(reader, tmp_path):
    """Of a run that somebody else has trained: markup, escape sequences, line ends."""
    page, tags = reader.page, ["<img/src=x/onerror=broken=1>", "</text></svg><script>broken=1</script>"]
    labels = [*tags, 'a"onload="broken=1', "\x1b[31mred\x07", "\u202eabc"]
    texts = [(f"{text} {number}", label) for number, label in enumerate(labels * 8) for text in ("a film", "some day")]
    spans = [(["Ann", "saw", "Bob"], [f"B-{tags[0]}", "O", f"B-{tags[1]}"])] * 20
    runs = train_runs(tmp_path, {"sentiment": Recipe("classify", texts, SMALL), "ner": Recipe("tag", spans, SMALL)})
    with served(*runs.values()) as server:
        reader.address = server.address
        for view, model, params, drawn in (
            ("label", "sentiment", {}, tags[0][:20]),  # long labels are shortened in a figure
            ("label", "ner", {}, tags[0]),
            ("operate", "sentiment", {}, tags[0][:20]),
            ("look", "sentiment", {"show": "confusion"}, "onload"),
            ("look", "ner", {"show": "posterior"}, tags[0]),
        ):
            reader.open(view, model=model, text="Ann saw Bob", **params)
            expect(page.locator("main")).to_contain_text(drawn)
            assert page.locator("main").locator("img, script, [onload], [onerror]").count() == 0
            assert page.evaluate("window.broken") is None


def test_series_get_labels_and_tags(reader, tmp_path):
    """A series is JSON in the box of the view, and so it is sent."""
    page, evil = reader.page, "<img/src=x/onerror=broken=1>"
    series = [[math.sin(step * (1.5 if number % 2 else 0.5)) for step in range(24)] for number in range(40)]
    waves = [(one, ("quick", evil)[number % 2]) for number, one in enumerate(series)]
    states = [(one, ["high" if value > 0 else evil for value in one]) for one in series]
    runs = train_runs(tmp_path, {"waves": Recipe("classify", waves, SMALL), "states": Recipe("tag", states, SMALL)})
    with served(*runs.values()) as server:
        reader.address = server.address
        for model, figure in (("waves", "Probability of each label"), ("states", "Tags")):
            reader.open("label", model=model)  # begins with an example of the model
            expect(page.locator("main")).to_contain_text(figure)
            expect(page.get_by_label("Input (JSON)")).to_have_value(re.compile(r"^\["))
            page.get_by_label("Input (JSON)").fill("[0.5, 0.9, null, -0.2, -0.9]")
            expect(page.locator("main")).to_contain_text(evil)
            page.wait_for_load_state("networkidle")  # a server that ends answers what is left with 503
            page.get_by_label("Input (JSON)").fill("[0.5, 0.9")
            expect(page.locator("main")).to_contain_text("The input is no JSON")
            assert page.locator("main").locator("img, script, [onload], [onerror]").count() == 0
            assert page.evaluate("window.broken") is None


def test_learn_follows_a_training_run(reader, runs):
    """The steps of a run are taken here, one after the other, while the page looks at it."""
    page = reader.page
    task = get_task("lm")
    folder = runs["lm"].parent / "live"
    settings = [
        "model.hidden_size=8",
        "model.embedding_dim=8",
        "train.epochs=6",
        "train.evaluate_every=2",
        "batch.size=8",
    ]
    steps = task.start(CORPUS, folder, load_config(task.config_class, None, settings)).steps()
    for _ in range(4):
        next(steps)
    reader.open("learn")
    row = page.locator("tr").filter(has_text="live")
    expect(row.locator(".state")).to_have_text("training")
    expect(page.get_by_role("img", name="Cross-entropy")).to_be_visible()
    before = reader.data("Cross-entropy")
    for _ in steps:
        pass
    expect(row.locator(".state")).to_have_text("done")
    curve = probes.metric_curves(folder)["cross_entropy"]
    for _ in range(50):
        (live,) = (one for one in reader.data("Cross-entropy") if one["run"] == "live")
        if len(live["values"]) == len(curve.values):
            break
        page.wait_for_timeout(100)
    assert live["values"] == pytest.approx(curve.values.tolist(), abs=1e-6)
    assert len(live["values"]) > len(next(one for one in before if one["run"] == "live")["values"])
    page.locator("tr").filter(has_text="sentiment").get_by_role("checkbox").check()
    page.get_by_text("Optimization").click()
    expect(page.get_by_role("img", name="Learning rate")).to_be_visible()
    reader.check_access()


def test_compare(reader, runs):
    page = reader.page
    reader.open("compare", **VIEWS["compare"])
    first, second = (probes.surprisal(weft.load(runs[name]), SENTENCE).nats for name in ("lm", "gru"))
    saved = reader.data("Difference of the surprisals")
    assert all(close(one, other) for one, other in zip(saved["difference"], (first - second).tolist(), strict=True))
    table = page.locator("table")
    expect(table.locator("tr").filter(has_text="model.cell")).to_contain_text("gru")
    expect(table.locator("tr").filter(has_text="model.hidden_size")).to_contain_text("12")

    # The paired test runs when it is asked for; a link shows it at once.
    page.get_by_role("button", name="Test on held-out data").click()
    expect(reader.figure("Paired bootstrap test")).to_be_visible()
    (expected,) = probes.compare_run_results([runs["lm"], runs["gru"]]).tests
    (found,) = reader.data("Paired bootstrap test")["tests"]
    assert found == {**next(expected.records()), "first": "lm", "second": "gru"}
    reader.check_access()
    page.wait_for_function("() => location.hash.includes('test=1')")
    page.get_by_label("Second run").select_option("ner")
    expect(reader.figure("Paired bootstrap test")).to_have_count(0)


def test_an_old_answer_is_never_shown_with_a_new_question(reader, runs):
    """A word is chosen, then a shorter text is given: nothing is asked about the old word in the new text."""
    page = reader.page
    reader.open("label", model="ner", text="Ann Lee went to Paris .")
    page.locator("button.word").nth(4).click()
    expect(reader.figure("Evidence for Paris")).to_be_visible()
    held = Held(reader, "**/weft/predict/**")
    page.get_by_label("Text").fill("Bob .")
    held.wait()
    expect(reader.figure("Evidence for Paris")).to_be_visible()
    held.release()
    expect(page.locator("button.word")).to_have_count(2)
    expect(reader.figure("Evidence for")).to_have_count(0)
    # The answer to an old question comes after the answer to the new one.
    held = Held(reader, "**/weft/predict/**", lambda request: "slow" in request.post_data)
    page.get_by_label("Text").fill("a slow one .")
    held.wait()
    page.get_by_label("Text").fill("Ann")
    expect(page.locator("button.word")).to_have_count(1)
    held.release()
    page.wait_for_timeout(200)
    expect(page.locator("button.word")).to_have_count(1)
    # Another model while its page of units is open: the unit is asked of the new model only.
    reader.open("look", model="lm", text=SENTENCE, unit=3)
    expect(reader.figure("Passages that activate unit 3")).to_be_visible()
    page.get_by_label("Model").select_option("en-fr")
    expect(reader.figure("of encoder")).to_be_visible()
    expect(reader.figure("Passages that activate unit 3")).to_be_visible()


def test_a_text_outlives_its_session(reader, runs, server):
    """The server drops sessions; the text goes on as if it had not."""
    page = reader.page
    reader.open("write", model="lm", text="the cat", tokens=10)
    page.get_by_role("button", name="Write", exact=True).click()
    tokens = page.locator(".tokens .token")
    expect(tokens).to_have_count(17)
    drop = """async () => {
      const { sessions } = await (await fetch('weft/sessions')).json();
      for (const one of sessions) await fetch(`weft/sessions/${one.id}`, { method: 'DELETE' });
    }"""
    page.evaluate(drop)
    reader.refused = True  # the browser notes the session that is not there
    page.get_by_role("button", name="Continue").click()
    expect(tokens).to_have_count(27)
    expected = probes.surprisal(weft.load(runs["lm"]), "".join(texts(tokens))).nats
    saved = reader.data("Surprisal of each token")
    assert all(close(one["nats"], nats) for one, nats in zip(saved["tokens"], expected.tolist(), strict=True))
    # A token of the prompt is exchanged: the address has what is left of the prompt.
    tokens.nth(4).click()
    choices = page.locator(".popover .bar-name")
    expect(choices.first).to_be_visible()
    other = next(name for name in texts(choices) if name not in ("c", "␣"))
    choices.get_by_text(other, exact=True).first.click()
    expect(tokens).to_have_count(5 + 10)
    shown = texts(tokens)
    assert shown[:5] == [*"the ", other]
    page.wait_for_function("() => location.hash.includes('from=4')")
    page.reload()
    expect(tokens).to_have_count(15)
    assert texts(tokens) == shown


def test_what_a_link_names_may_be_missing(reader):
    page = reader.page
    reader.open("look", model="gone", text=SENTENCE)
    expect(page.get_by_text("The server has no model gone for this view.")).to_be_visible()
    expect(reader.figure("of stack")).to_be_visible()

    def without(route):
        found = route.fetch().json()
        found["models"] = [one for one in found["models"] if one["task"] == "lm"]
        route.fulfill(json=found)

    reader.context.route("**/weft/models", without)
    reader.open("translate", text="the cat sat.")
    expect(page.get_by_text("No served model can do this")).to_be_visible()
    reader.check_access()
    # A model that disappears while the page is open: the list is asked for again.
    reader.refused = True
    reader.context.unroute("**/weft/models")
    reader.open("translate", model="en-fr", text="the cat sat.")
    expect(page.locator(".prose .token").first).to_be_visible()
    reader.context.route("**/weft/models", without)
    gone = {"error": {"message": "there is no model 'en-fr'", "code": "model_not_found"}}
    reader.context.route("**/weft/predict/**", lambda route: route.fulfill(status=404, json=gone))
    page.get_by_label("Source text").fill("a dog ran.")
    expect(page.get_by_text("No served model can do this")).to_be_visible()


def test_a_setting_returns_to_its_default(reader):
    page = reader.page
    reader.open("write", model="lm", text="the cat", temperature=1.5)
    slider = page.get_by_label("Temperature")
    expect(slider).to_have_value("1.5")
    slider.fill("0.8")
    expect(slider).to_have_value("0.8")
    page.wait_for_function("() => !location.hash.includes('temperature')")
    page.get_by_label("Prompt").fill("")
    page.wait_for_function("() => location.hash.includes('text=&') || location.hash.endsWith('text=')")


def test_saved_files_open_without_a_server(reader, browser, runs, tmp_path):
    """Every figure of three views as SVG and HTML, opened from the disk in a browser without a network."""
    hostile = "</script><img src=x onerror=alert(1)> the cat."
    saved = []
    for view, params, figures in (
        ("translate", VIEWS["translate"], 2),
        ("look", {"model": "lm", "text": hostile, "unit": 2}, 3),
        ("learn", {"runs": "lm"}, 2),
    ):
        reader.open(view, **params)
        expect(reader.page.locator("figure.figure")).to_have_count(figures)
        for number, figure in enumerate(reader.page.locator("figure.figure").all()):
            for kind in ("svg", "html"):
                path = tmp_path / f"{view}-{number}.{kind}"
                path.write_text(reader.save(figure, kind), encoding="utf-8")
                saved.append(path)
    assert len(saved) >= 14
    context = browser.new_context(offline=True)
    other = Reader(context, "")
    for path in saved:
        other.page.goto(path.as_uri())
        assert other.page.locator("svg").count() == 1
        box = other.page.locator("svg").bounding_box()
        assert box["width"] > 100, path.name
        assert other.page.locator("img").count() == 0
        if path.suffix == ".html":
            json.loads(other.page.locator("#data").text_content())
            other.check_access()
    # What `weft look --out look.html` writes, on a screen that is narrower than its figures.
    found = probes.activations(weft.load(runs["lm"]), SENTENCE).gate_figures()
    found += probes.evidence(weft.load(runs["sentiment"]), "a very good film").figures()
    (tmp_path / "look.html").write_text(to_html("Gates", found), encoding="utf-8")
    other.page.set_viewport_size({"width": 400, "height": 800})
    other.page.goto((tmp_path / "look.html").as_uri())
    other.check_access()
    context.close()
    assert other.mistakes == []


@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_every_view_is_readable_at_400_pixels(browser, server, locale, scheme):
    context = browser.new_context(viewport={"width": 400, "height": 800}, locale=locale, color_scheme=scheme)
    reader = Reader(context, server)
    for view, params in VIEWS.items():
        reader.open(view, **params)
        expect(reader.page.locator("figure.figure").first).to_be_visible()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert reader.page.evaluate(wide) == 0, view
        reader.check_access()
        heading = reader.page.locator("h1").text_content()
        assert bool(re.search("[\u4e00-\u9fff]", heading)) == (locale == "zh-CN")
    body, white = reader.page.locator("body"), "rgb(255, 255, 255)"
    expect(body).to_have_css("background-color", white if scheme == "light" else "rgb(20, 24, 31)")
    reader.page.locator(".switches button").last.click()  # from the system's theme to light
    expect(body).to_have_css("background-color", white)
    reader.page.locator(".switches button").first.click()
    expect(reader.page.locator("html")).to_have_attribute("lang", "en" if locale == "zh-CN" else "zh-CN")
    context.close()
    assert reader.mistakes == []


def test_the_rules_are_those_of_the_package():
    """Unmodified, as tests/vendor/README.md has it."""
    readme = (AXE.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() in readme
    assert AXE.read_text(encoding="utf-8").startswith("/*! axe v4.13.0")


def test_the_check_sees_what_cannot_be_used(reader):
    page = reader.page
    reader.open("learn", runs="lm")
    expect(page.get_by_role("img", name="Cross-entropy")).to_be_visible()
    page.evaluate("document.querySelector('button').style.cssText = 'height: 10px; min-height: 0; padding: 0'")
    with pytest.raises(AssertionError, match="<button"):
        reader.check_access()
    page.evaluate("document.querySelector('th').textContent = ''")
    with pytest.raises(AssertionError, match="empty-table-header"):
        reader.check_access()


def labels_of(kind):
    """What the gates and the parts of the state of a cell are called."""
    cell = kind(2, 4)
    return part_labels(*cell.step(torch.zeros(1, 4 * cell.blocks), cell.initial_state(1)))


def test_words_and_colours(reader):
    """Both languages have the same texts with the same places for values, and the colours are those of the pictures."""
    page = reader.page
    reader.open("learn")
    words = page.evaluate("import('/page/language.js').then((module) => module.WORDS)")
    assert words["en"].keys() == words["zh"].keys()
    named = {f"task-{task}" for task in TASKS} | {f"state-{one}" for one in ("training", "done", "stopped", "started")}
    named |= {f"part-{label}" for cell in CELLS.values() for label in labels_of(cell).values()}
    assert named <= words["en"].keys()
    for name, text in words["en"].items():
        assert sorted(re.findall(r"\{\w+\}", text)) == sorted(set(re.findall(r"\{\w+\}", words["zh"][name]))) or (
            set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", words["zh"][name]))
        ), name
    classes = page.evaluate(
        "import('/page/palette.js').then(({ levelClass }) => ['sequential', 'diverging'].map((scale) => "
        "Array.from({ length: 101 }, (_, at) => levelClass(at, 7.77, 91.3, scale))))"
    )
    for scale, found in zip(("sequential", "diverging"), classes, strict=True):
        assert found == [palette.level_class(at, 7.77, 91.3, scale) for at in range(101)]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for name, colour in palette.variables(scheme == "dark").items():
            page.evaluate("(name) => { document.body.style.color = `var(--${name})`; }", name)
            shown = page.evaluate("getComputedStyle(document.body).color")
            assert shown == f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def test_refusals_are_explained(reader):
    page = reader.page
    reader.refused = True
    reader.open("look", model="lm", text="x")
    expect(page.get_by_role("alert")).to_contain_text("expected at least 2")
    reader.open("label", model="fill", text="no blank here")
    expect(page.locator(".empty")).to_contain_text("The text has no blank")
    reader.check_access()
    reader.context.route("**/weft/look/**", lambda route: route.abort())
    reader.open("look", model="lm", text=SENTENCE)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    reader.check_access()
    reader.context.unroute("**/weft/look/**")
    page.get_by_role("button", name="Try again").click()
    expect(reader.figure("of stack")).to_be_visible()

    # A server with a key asks for it once.
    def keyed(route):
        if route.request.headers.get("authorization") == "Bearer sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": {"message": "no key"}})

    reader.context.route("**/weft/models", keyed)
    reader.open("look", model="lm", text=SENTENCE)
    reader.check_access()
    page.get_by_label("API key").fill("sesame")
    page.get_by_role("button", name="Open").click()
    expect(reader.figure("of stack")).to_be_visible()
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(f"{reader.address}/#key=sesame")  # as `weft serve --open` has it
    expect(page.get_by_role("heading", name="Write")).to_be_visible()
    assert "sesame" not in page.url


def test_progress_is_shown_after_300_milliseconds(reader):
    page = reader.page
    held = Held(reader, "**/weft/look/**")
    reader.open("look", model="lm", text=SENTENCE)
    expect(page.locator(".progress-line")).to_be_visible()
    held.release()
    expect(reader.figure("of stack")).to_be_visible()
    expect(page.locator(".progress-line")).to_have_count(0)


def test_writing_waits_for_the_prompt(reader):
    """Ctrl+Enter before the session of the prompt is open, at the start and right after an edit, writes once it is."""
    page = reader.page
    held = Held(reader, "**/weft/sessions")
    reader.open("write", model="lm", text="the cat", tokens=20)
    prompt = page.get_by_label("Prompt")
    prompt.press("Control+Enter")
    held.wait()
    held.release()
    tokens = page.locator(".tokens .token")
    expect(tokens).to_have_count(7 + 20)
    held = Held(reader, "**/weft/sessions")
    prompt.fill("a dog")
    prompt.press("Control+Enter")
    held.wait()
    prompt.press("Control+Enter")  # impatient: it is written once
    held.release()
    expect(tokens).to_have_count(5 + 20)
    assert texts(tokens)[:5] == list("a dog")


def test_the_keyboard_is_enough(reader):
    """Tab and arrow keys: from the address bar to a token, its alternatives, and back."""
    page = reader.page
    reader.open("write", model="lm", text="the cat", tokens=20)
    prompt = page.get_by_label("Prompt")
    prompt.focus()
    prompt.press("Control+Enter")
    tokens = page.locator(".tokens .token")
    expect(tokens).to_have_count(7 + 20)
    tokens.first.focus()
    for key in ("ArrowRight", "End", "ArrowLeft", "Home", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(".popover .bar").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".popover .bar").nth(1)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(tokens.nth(2)).to_be_focused()
