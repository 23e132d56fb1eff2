"""Parts of the server by themselves: batches, interruption, generated rows, sessions, schemas, guards."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import json
import math
import os
import random
import shutil
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

import weft
from tests.serving import RECIPES, train_runs
from weft import probes
from weft.config import load_config
from weft.decoding import Sample
from weft.decoding.engines import StepEngine, StreamEngine, parts
from weft.decoding.generation import StopText
from weft.decoding.history import History
from weft.server import http, hugging_face_api, native_api, openai_api
from weft.server.app import ENDPOINTS, Server
from weft.server.comparison import Comparisons
from weft.server.completion import Completion, CompletionRequest, check_stop
from weft.server.config import ServerConfig
from weft.server.errors import RequestError
from weft.server.generation import Generation
from weft.server.guard import check_host, check_key, check_origin
from weft.server.http import Context
from weft.server.metrics import Metrics
from weft.server.models import Models, find_operation, model_names
from weft.server.operations import ServedOperation, check_search
from weft.server.schema import array, check_value, either, integer, object_of, optional, parse_json, string
from weft.server.sessions import SessionStore
from weft.server.state_vectors import state_vectors
from weft.server.worker import SMALL_BATCH, Interrupted, Worker
from weft.tasks.fill.blanks import Blanked
from weft.tasks.fill.predictor import FillPredictor
from weft.tasks.lm.config import LmConfig
from weft.tasks.operation import operations
from weft.text.text_field import StreamingDecoder, Text
from weft.text.tokenizers import TOKENIZERS
from weft.training.run import WEIGHTS, load_tensors, save_tensors

QUICK = {name: one.changed({"train.epochs": 1}) for name, one in RECIPES.items() if name in ("lm", "sentiment", "ner")}
QUICK |= {
    "lm": QUICK["lm"].changed({"model.num_layers": 2}),
    "residual": QUICK["lm"].changed({"model.residual": True}),
    "gru": QUICK["lm"].changed({"model.cell": "gru"}),
    "members": QUICK["lm"].changed({"train.members": 2}),
    "ngram": RECIPES["ngram"],
    "en-fr": RECIPES["en-fr"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train_runs(folder, QUICK)
    other = weft.Corpus.from_texts("other", ["mad rat, mad rat, " * 30])
    mixed = weft.mix([folder / "lm", folder / "ngram"], folder / "mixed", source=other)
    assert mixed.parts[-1].name == "cache"  # whose state grows with the text
    return folder


@pytest.fixture(scope="module")
def context(folder, tmp_path_factory):
    config = ServerConfig(max_sessions=3, sessions=tmp_path_factory.mktemp("sessions"))
    metrics = Metrics()
    models = Models({path.name: path for path in folder.iterdir()}, config, metrics)
    comparisons = Comparisons()
    yield Context(config, models, SessionStore(config, models), comparisons, metrics)
    models.stop()
    comparisons.stop()


TEXTS = ["a good film", "Ann Lee went to Paris.", "the cat sat.", "a dog saw the small cat and ran away from Bob", "."]


@pytest.mark.parametrize("name", ["sentiment", "ner", "en-fr"])
def test_a_request_in_a_batch_of_32_equals_a_request_alone(context, name):
    model = context.models.get(name)
    operation = find_operation(model)
    options = operation.read_options({})
    texts = [f"{TEXTS[number % len(TEXTS)]} {'very ' * (number % 7)}film" for number in range(32)]
    sizes = []

    def run(given):
        sizes.append(len(given))
        return operation.predict(given, options)

    async def ask_alone():
        return [(await model.worker.compute(run, [text], "key"))[0] for text in texts]

    alone = asyncio.run(ask_alone())
    assert sizes == [1] * 32
    sizes.clear()
    together = asyncio.run(ask_together(model.worker, [(run, [text], "key") for text in texts]))
    for (one,), other in zip(together, alone, strict=True):
        assert same(one, other), (one, other)
    assert sizes == [32]


async def ask_together(worker, requests):
    """The results of requests that all wait while the worker is held by another one."""
    release = threading.Event()
    blocker = asyncio.ensure_future(worker.call(release.wait))
    await asyncio.sleep(0)  # the blocker is the first in the queue
    waiting = [asyncio.ensure_future(worker.compute(*one)) for one in requests]
    await asyncio.sleep(0)
    release.set()
    await blocker
    return await asyncio.gather(*waiting, return_exceptions=True)


def same(one, other):
    """Equal, numbers up to the rounding of float32: a matrix product of 32 rows may add in another order."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == pytest.approx(other, abs=2e-6) if isinstance(one, float) else one == other


def test_the_mistake_of_one_request_is_no_failure_of_the_others():
    worker = Worker("test", None, Metrics(), 8, 8)

    def run(given):
        if "bad" in given:
            raise weft.WeftError("a bad text")
        return [one.upper() for one in given]

    one, bad, other = asyncio.run(ask_together(worker, [(run, [text], "key") for text in ("a", "bad", "c")]))
    assert (one, other) == (["A"], ["C"])
    assert isinstance(bad, weft.WeftError)
    worker.stop()


def test_a_scrape_has_every_series(folder):
    server = Server({"lm": folder / "lm", "sentiment": folder / "sentiment"}, ServerConfig())
    with TestClient(server.app, base_url="http://127.0.0.1") as client:
        body = {"model": "lm", "prompt": "the", "max_tokens": 3, "seed": 1}
        assert client.post("/v1/completions", json=body).status_code == client.get("/health").status_code == 200
        scrape = client.get("/metrics")
    assert scrape.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(scrape.text)}
    assert families.pop("weft_cancelled").samples == []
    series = {(one.name, *one.labels.items()): one.value for family in families.values() for one in family.samples}
    assert sorted(families) == ["weft_batch_size", "weft_queue_length", "weft_request_seconds", "weft_requests",
                                "weft_sequences", "weft_sessions", "weft_tokens"]  # fmt: skip
    assert series["weft_requests_total", ("method", "POST"), ("route", "/v1/completions"), ("status", "200")] == 1
    assert series["weft_request_seconds_count", ("method", "GET"), ("route", "/health")] == 1
    assert series["weft_tokens_total", ("model", "lm")] == 3
    assert series["weft_sequences", ("model", "lm")] == series["weft_queue_length", ("model", "sentiment")] == 0
    assert ("weft_sequences", ("model", "sentiment")) not in series


def test_long_texts_are_computed_in_several_parts(monkeypatch):
    """A batch has so many texts, and so many characters together; a longer text is alone in one."""
    monkeypatch.setattr("weft.server.worker.LARGE_BATCH", 100)
    worker, parts = Worker("test", None, Metrics(), 4, 8), []

    def run(given):
        parts.append([len(one) for one in given])
        return given

    texts = ["a" * size for size in (60, 40, 1, 300, 99, 1, 1, 0, 0, 0)]
    assert asyncio.run(worker.compute(run, texts)) == texts
    assert parts == [[60, 40], [1], [300], [99, 1], [1, 0, 0, 0]]
    parts.clear()
    asyncio.run(ask_together(worker, [(run, ["a" * size], "key") for size in (50, 40, 30, 5, 5, 5)]))
    assert parts == [[50, 40, 5, 5], [30, 5]]
    worker.stop()


def test_a_small_batch_is_computed_by_one_thread(monkeypatch):
    """Larger ones and single computations use all threads, and the number is that of the worker's thread alone."""
    monkeypatch.setattr("weft.server.worker.ALL_THREADS", 3)
    before, worker = torch.get_num_threads(), Worker("test", None, Metrics(), 64, 8)

    async def threads(inputs):
        return (await worker.compute(lambda given: [torch.get_num_threads()] * len(given), inputs))[0]

    async def ask():
        half = "a" * (SMALL_BATCH // 2)
        given = ["a text"], [half, half, "b"], [half, half], [half * 2 + "b"], [None], ["a"]
        return [await threads(inputs) for inputs in given]

    try:
        assert asyncio.run(ask()) == [1, 3, 1, 3, 3, 1]
        assert torch.get_num_threads() == before
    finally:
        worker.stop()
        torch.set_num_threads(before)  # of threads that begin later


def test_a_computation_that_nobody_waits_for_is_interrupted():
    worker, beats, counted = Worker("test", None, Metrics(), 8, 2), [], []

    def endless():
        try:
            while True:
                beats.append(time.monotonic())
                time.sleep(0.01)
        finally:
            counted.append("ended")

    async def ask():
        running = asyncio.ensure_future(worker.call(endless))
        while not beats:
            await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(worker.call(lambda: counted.append("waited"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as refused:  # two requests wait already
            await worker.call(lambda: None)
        assert refused.value.status == 503
        assert refused.value.headers["Retry-After"]
        waiting[0].cancel()
        running.cancel()
        before = len(beats)
        await waiting[1]
        assert len(beats) - before < 50, "it ended long before a second was over"
        return await worker.call(lambda: "alive")

    assert asyncio.run(ask()) == "alive"
    assert counted == ["ended", "waited"]
    worker.stop()


def test_a_worker_that_was_stopped_still_computes_for_the_requests_that_have_it():
    """As those that began before their model was loaded again."""
    worker = Worker("test", None, Metrics(), 8, 8)
    for word in ("before", "after", "once more"):
        assert asyncio.run(worker.call(lambda word=word: word)) == word
        worker.stop()


def test_a_second_interruption_does_not_end_the_thread(monkeypatch):
    """One that comes while the first is being handled, as when what it frees takes a while."""
    worker, step = Worker("test", None, Metrics(), 8, 8), Worker.step

    calls = []

    def twice(self):
        calls.append(1)
        if len(calls) == 1:
            try:
                raise Interrupted
            finally:
                thread = ctypes.c_ulong(threading.get_ident())
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Interrupted))
        return step(self)

    monkeypatch.setattr(Worker, "step", twice)
    assert asyncio.run(worker.call(lambda: "alive")) == "alive"
    assert len(calls) > 1
    worker.stop()


REQUESTS = [
    ("/weft/predict/{model}", {"model": "sentiment"}, {"texts": ["a good film"]}),
    ("/weft/predict/{model}", {"model": "ner"}, {"texts": ["Ann went"]}),
    ("/models/{name}", {"name": "ner"}, {"inputs": "Ann went"}),
    ("/models/{name}", {"name": "lm"}, {"inputs": "the cat"}),
    ("/translate", {}, {"q": "the cat", "source": "en", "target": "fr"}),
    ("/v1/completions", {}, {"model": "lm", "prompt": ["the cat", "a"]}),
    ("/v1/embeddings", {}, {"model": "lm", "input": "the cat"}),
    ("/api/generate", {}, {"model": "lm", "prompt": "the cat", "stream": False}),
    ("/weft/sessions", {}, {"model": "lm", "text": "the cat"}),
]


@pytest.mark.parametrize(("path", "parameters", "body"), REQUESTS)
def test_texts_are_split_by_the_worker(context, monkeypatch, path, parameters, body):
    """And not by the event loop, which a long text would hold."""
    endpoint = next(one for one in ENDPOINTS if (one.method, one.path) == ("POST", path))
    threads = []
    for tokenizer in TOKENIZERS.values():

        def split(self, text, real=tokenizer.split):
            threads.append(threading.current_thread())
            return real(self, text)

        monkeypatch.setattr(tokenizer, "split", split)
    response = asyncio.run(endpoint.handler(context, SimpleNamespace(path_params=parameters, headers={}), body))
    assert response.status_code in (200, 201)
    assert threads
    assert threading.main_thread() not in threads


def complete(context, name, **options):
    async def ask():
        completion = await Completion.prepare(context, context.models.get(name), CompletionRequest(**options))
        return await completion.whole()

    return asyncio.run(ask())


SAMPLES = [
    Sample(temperature=0.8),
    Sample(top_k=1),
    Sample(1.2, top_k=5, top_p=0.9),
    Sample(1.5, min_p=0.02, typical_p=0.9),
    Sample(0.9, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.1),
    Sample(top_k=1, repetition_penalty=1.2),
]


@pytest.mark.parametrize("name", ["lm", "residual", "ngram"])
@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_generated_rows_equal_the_command_line_s(context, name, sample):
    """Also with log-probabilities, which take another way, and with rows of other prompts beside them."""
    predictor = context.models.get(name).predictor
    prompts = ("the cat", "a", "the dog saw the small cat", "")
    expected = predictor.generate_many(prompts, tokens=40, sampler=sample, seed=7)
    for log_probs in (None, 3):
        found = complete(context, name, prompts=prompts, tokens=40, sample=sample, seed=7, log_probs=log_probs)
        assert [prompt + one.text for prompt, one in zip(prompts, found, strict=True)] == expected
    assert all(token.log_prob <= 0 and len(token.top) == 3 for one in found for token in one.tokens)
    expected = predictor.generate_many(["the cat"] * 20, tokens=9, sampler=sample, seed=3)
    found = complete(context, name, prompts=("the cat",), choices=20, tokens=9, sample=sample, seed=3)
    assert ["the cat" + one.text for one in found] == expected


def test_tokens_and_choices_have_a_limit(context):
    """Nothing is generated for a request that is too large."""
    most = context.config.request_tokens
    prompt = "the cat " * (most // 64 // 8)
    assert len(complete(context, "lm", prompts=(prompt,), tokens=0, choices=64)) == 64
    for options, message in (
        ({"prompts": (prompt + "a",), "tokens": 0, "choices": 64}, f"has {most + 64:,} tokens"),
        ({"prompts": ("a",), "tokens": 2048, "choices": 64}, f"has {64 * 2049:,} tokens"),
        ({"prompts": ("a",), "tokens": 1000, "choices": 8, "log_probs": 20}, f"has {8 * 21_001:,} tokens"),
        ({"prompts": ("a" * 20_000,), "tokens": 1, "choices": 60}, "has 1,200,060 tokens"),
        ({"prompts": ("a" * 15_000, "b" * 1_000) * 32, "tokens": 1}, "has 512,064 tokens"),
    ):
        with pytest.raises(RequestError) as refused:
            complete(context, "lm", **options)
        assert message in refused.value.message
        assert refused.value.message.endswith(f"expected at most {most:,}")
    vectors = state_vectors(context, context.models.get("lm"), ["a" * (most + 1)])
    with pytest.raises(RequestError, match=f"{most + 1:,} tokens; expected at most {most:,}"):
        asyncio.run(vectors)


def test_a_mixture_has_the_state_vectors_of_its_networks(context):
    found = {
        name: asyncio.run(state_vectors(context, context.models.get(name), ["the cat", "a"])).vectors
        for name in ("lm", "mixed")
    }
    for network, mixture in zip(found["lm"], found["mixed"], strict=True):
        assert np.allclose(network, mixture)
    with pytest.raises(RequestError, match="an n-gram model has no state vector"):
        asyncio.run(state_vectors(context, context.models.get("ngram"), ["the cat"]))


def test_the_tokens_of_a_long_prompt_take_linear_time(context, monkeypatch):
    """Their offsets are those of the decoded text; the text is decoded for no more than the last tokens."""

    async def ask(name, prompt):
        request = CompletionRequest((prompt,), 0, log_probs=0, echo=True)
        return openai_api.logged_prompt(await Completion.prepare(context, context.models.get(name), request), 0)

    lengths, decode = [], Text.decode
    text = "the cat sat on the mat.\n" * 100
    expected = asyncio.run(ask("ngram", text))
    assert [one[3] for one in expected] == list(range(len(text)))
    monkeypatch.setattr(Text, "decode", lambda text_field, ids: lengths.append(len(ids)) or decode(text_field, ids))
    assert asyncio.run(ask("ngram", text)) == expected
    assert max(lengths) <= StreamingDecoder.CONTEXT + 1


@pytest.mark.parametrize("name", ["lm", "ngram"])
def test_every_token_of_a_long_echoed_prompt_has_its_log_probability(context, name):
    text = "the cat sat on the mat.\n" * 20

    async def ask():
        completion = await Completion.prepare(
            context, context.models.get(name), CompletionRequest((text,), 0, log_probs=0, echo=True)
        )
        (piece,) = await completion.whole()
        return piece, completion.rows[0].history

    piece, history = asyncio.run(ask())
    assert (piece.text, piece.finish) == ("", "length")
    assert history.log_probs[0] is None
    assert None not in history.log_probs[1:]
    assert len(history.ids) == len(text)


def test_a_model_generates_so_many_tokens_at_the_same_time(context):
    async def ask():
        generation = context.models.get("lm").generation
        request = CompletionRequest(("a",), context.config.max_tokens, 16)
        running = [await Completion.prepare(context, context.models.get("lm"), request) for _ in range(33)]
        for one in running[:32]:
            one.start()
        assert generation.size > context.config.model_tokens
        with pytest.raises(RequestError) as refused:
            running[32].start()
        assert refused.value.status == 503
        for one in running:
            one.close()
        while len(generation):
            await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_generation_stops_before_a_stop_text(context):
    (whole,) = complete(context, "lm", prompts=("the",), tokens=60, sample=Sample(top_k=1), seed=0)
    stop = whole.text[20:22]
    (found,) = complete(context, "lm", prompts=("the",), tokens=60, sample=Sample(top_k=1), seed=0, stop=(stop,))
    assert found.text == whole.text[: whole.text.index(stop)]
    assert (found.finish, whole.finish) == ("stop", "length")


def first_stop(text, stops):
    """The text before the stop text that is complete first; of several that end there, before the longest."""
    for end in range(len(text) + 1):
        if complete := [len(stop) for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(complete)]
    return text


def test_where_a_text_stops_does_not_depend_on_its_pieces():
    draw = random.Random(1)
    for _ in range(2000):
        stops = ["".join(draw.choices("ab", k=draw.randint(1, 6))) for _ in range(draw.randint(1, 3))]
        text, at, found = "".join(draw.choices("abc", [5, 5, 1], k=30)), 0, ""
        stopping = StopText(stops)
        while at < len(text):
            size = draw.randint(0, 5)
            found += stopping.push(text[at : at + size])
            assert text.startswith(found)
            assert len(found) + 6 > min(at + size, len(text)) or stopping.ended  # as little as possible is held back
            at += size
        assert found + stopping.rest() == first_stop(text, stops), (text, stops)


def executed_lines(call):
    """How many lines of Python a call executes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_the_time_of_a_piece_does_not_depend_on_the_length_of_the_stop_texts(context):
    stopping = StopText([f"{'a' * 20_000}{number}" for number in range(16)])
    lines = executed_lines(lambda: [stopping.push("a") for _ in range(60)])
    assert lines < 60 * 16 * 20, "the lines of a piece and a stop text do not depend on its 20,000 characters"
    assert stopping.push("b") == "a" * 60 + "b"
    with pytest.raises(weft.WeftError, match="a stop text has 1,001 characters; expected at most 1,000"):
        check_stop(["a", "b" * 1001])


@pytest.mark.parametrize("log_probs", [None, 1])
def test_rows_that_are_abandoned_are_not_continued(context, log_probs):
    """Also within one step of all rows: their client is gone when the first of them has its first token."""
    model, accepted = context.models.get("lm"), []

    async def ask():
        request = CompletionRequest(("the cat",), 50, 64, log_probs=log_probs)
        completion = await Completion.prepare(context, model, request)
        generation = Generation("test", model.engine, Metrics())
        generation.add(completion.rows)
        for row in completion.rows:
            row.accept = lambda *token: (accepted.append(token), generation.abandon(completion.rows))
        while len(generation):
            generation.tick()

    asyncio.run(ask())
    assert len(accepted) == 1


@pytest.mark.parametrize("name", ["lm", "ngram", "members", "mixed"])
def test_a_text_in_two_parts_equals_the_whole_bit_for_bit(context, name):
    model = context.models.get(name)
    ids = model.predictor.prompt_ids("the dog saw the small cat. a big dog ran to the mat.")
    whole, split = History(model.engine, keep=True), History(model.engine, keep=True)
    whole.append(ids)
    expected = whole.next_log_probs()
    for begin in range(0, len(ids), 7):
        split.append(ids[begin : begin + 7])
        found = split.next_log_probs()
    assert torch.equal(found, expected)
    assert split.log_probs == whole.log_probs
    for length in (len(ids) - 1, 33, 32, 31, 1):
        fresh = History(model.engine, keep=True)
        fresh.append(ids[:length])
        fork = whole.copy(length)
        split.rewind(length)
        assert torch.equal(fork.next_log_probs(), fresh.next_log_probs())
        assert torch.equal(split.next_log_probs(), fresh.next_log_probs())
    assert torch.equal(whole.next_log_probs(), expected)  # the forks took nothing from it


@pytest.mark.parametrize("sample", [Sample(temperature=0.9), SAMPLES[3], SAMPLES[4]], ids=range(3))
@pytest.mark.parametrize("name", ["lm", "members", "mixed"])
def test_a_session_generates_as_the_whole_prompt_does(context, name, sample):
    options = {"sample": sample, "tokens": 12, "seed": 5}
    (whole,) = complete(context, name, prompts=("the cat saw",), **options)
    complete(context, name, prompts=("the cat",), tokens=0, session="split")
    (found,) = complete(context, name, prompts=(" saw",), session="split", **options)
    assert found.text == whole.text
    session = context.sessions.get("split")
    assert session.describe()["text"] == f"the cat saw{whole.text}"
    context.sessions.save(session)
    expected = session.describe()
    for number in range(3):  # pushes it out of the store of three
        context.sessions.new(f"other{number}", context.models.get(name))
    assert {one.id for one in context.sessions} == {"other0", "other1", "other2"}
    restored = context.sessions.get("split").describe()
    shown = ("text", "tokens", "logprobs", "next", "hash")
    assert {one: restored[one] for one in shown} == {one: expected[one] for one in shown}
    with context.sessions.use(context.sessions.get("split")), pytest.raises(RequestError, match="in use"):
        complete(context, name, prompts=("a",), session="split", **options)
    context.sessions.delete("split")
    with pytest.raises(RequestError, match="no session"):
        context.sessions.get("split")


def test_models_without_a_stream_run_step_by_step(context):
    assert isinstance(context.models.get("lm").engine, StreamEngine)
    assert isinstance(context.models.get("residual").engine, StepEngine)
    assert [part.stop - part.start for part in parts(23)] == [16, 4, 1, 1, 1]


def test_two_models_are_compared_on_their_held_out_data(context, folder):
    """The tests of `weft compare`; a second request computes nothing."""
    models = {name: context.models.get(name) for name in ("lm", "gru", "ngram", "ner")}
    expected = probes.compare_run_results([folder / "lm", folder / "gru"]).tests
    found = asyncio.run(context.comparisons.compare(models["lm"], models["gru"]))
    assert [one.to_dict() for one in found.tests] == [one.to_dict() for one in expected]
    assert [one.metric for one in found.tests] == ["cross_entropy"]
    again = asyncio.run(context.comparisons.compare(models["lm"], models["gru"]))
    assert again is found
    other = asyncio.run(context.comparisons.compare(models["lm"], models["ner"]))
    assert not other.tests
    assert "their held-out data differs" in other.reason


def test_a_session_of_weights_that_have_changed_is_refused_and_can_be_deleted(folder, tmp_path):
    run = tmp_path / "lm"
    shutil.copytree(folder / "lm", run)
    config = ServerConfig(reload=True)
    models = Models({"lm": run}, config, Metrics())
    sessions = SessionStore(config, models)
    sessions.new("old", models.get("lm"))
    shutil.copytree(folder / "residual", run, dirs_exist_ok=True)
    models.checked = -math.inf
    models.refresh()
    with pytest.raises(RequestError) as refused:
        sessions.get("old")
    assert refused.value.code == "session_outdated"
    sessions.delete("old")
    with pytest.raises(RequestError) as refused:
        sessions.delete("old")
    assert refused.value.code == "session_not_found"
    models.stop()


def test_a_changed_run_is_loaded_between_requests(folder, tmp_path):
    run = tmp_path / "lm"
    shutil.copytree(folder / "lm", run)
    models = Models({"lm": run}, ServerConfig(reload=True), Metrics())
    before = models.get("lm")
    assert models.get("lm") is before
    weights = run / "weights.safetensors"
    shutil.copy(folder / "residual" / "weights.safetensors", weights)  # weights of another model: the old one stays
    models.checked = -math.inf
    models.refresh()
    assert models.get("lm") is before
    time.sleep(0.01)
    shutil.copytree(folder / "residual", run, dirs_exist_ok=True)
    models.checked = -math.inf
    models.refresh()
    after = models.get("lm")
    assert after is not before
    assert after.hash != before.hash
    models.stop()


def test_a_run_that_is_trained_again_with_the_same_result_keeps_its_sessions(tmp_path):
    first, second = (train_runs(tmp_path / name, {"lm": QUICK["lm"]})["lm"] for name in ("one", "two"))
    config = ServerConfig(reload=True)
    models = Models({"lm": first}, config, Metrics())
    sessions, before = SessionStore(config, models), models.get("lm")
    sessions.new("mine", before)
    time.sleep(0.01)
    shutil.copytree(second, first, dirs_exist_ok=True, copy_function=shutil.copyfile)
    models.checked = -math.inf
    models.refresh()
    assert models.get("lm").changed > before.changed
    assert sessions.get("mine").model is before
    assert asyncio.run(models.get("lm").worker.call(lambda: "alive")) == "alive"
    tensors, metadata = load_tensors(first / WEIGHTS)
    save_tensors(first / WEIGHTS, {**tensors, "bias": tensors["bias"] + 1}, metadata)
    models.checked = -math.inf
    models.refresh()
    with pytest.raises(RequestError, match="has changed since the session"):
        sessions.get("mine")
    models.stop()


def test_a_translation_begins_with_its_prefix(context):
    model = context.models.get("en-fr").predictor
    ((free,),) = model.n_best(["the cat sat."], 1, attention=True)
    ((same,),) = model.n_best(["the cat sat."], 1, attention=True, prefix=free.tokens[:1])
    assert (same.text, same.tokens) == (free.text, free.tokens)
    assert same.log_prob == pytest.approx(free.log_prob, abs=1e-4)
    torch.testing.assert_close(torch.tensor(same.attention), torch.tensor(free.attention))
    other = next(token for token in model.fields.target.vocabulary.tokens[5:] if token != free.tokens[0])
    ((forced,),) = model.n_best(["the cat sat."], 1, prefix=[other])
    assert forced.tokens[0] == other
    with pytest.raises(weft.WeftError, match="the prefix has 'no token'"):
        model.n_best(["the cat sat."], 1, prefix=["no token"])


SCHEMA = object_of(
    ("model",),
    model=string("", minLength=1, maxLength=8),
    n=optional(integer(1, 4)),
    stop=either(string(), array(string(), maxItems=2)),
    kind=string("", enum=["a", "b"]),
    last=optional(integer(-1, -1)),
    least=optional(integer(0, None)),
    label=optional(string("", enum=[f"label{number}" for number in range(10_000)])),
)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the body is []; expected an object"),
        ({}, "the body has no 'model'"),
        ({"model": 3}, "model is 3; expected a string"),
        ({"model": ""}, "model is ''; expected a string of 1 to 8"),
        ({"model": "a", "n": True}, "n is True; expected an integer from 1 to 4"),
        ({"model": "a", "n": 5}, "n is 5; expected an integer from 1 to 4"),
        ({"model": "a", "n": 1.5}, "n is 1.5; expected an integer"),
        ({"model": "a", "stop": ["x", 3]}, "stop[1] is 3; expected a string"),
        ({"model": "a", "stop": ["x"] * 3}, "stop has 3 items; expected a list of 0 to 2"),
        ({"model": "a", "kind": "c"}, "kind is 'c'; expected one of: a, b"),
        ({"model": "a", "modle": "b"}, "Try: model"),
        ({"model": "a", "last": 3}, "last is 3; expected -1"),
        ({"model": "a", "least": -1}, "least is -1; expected an integer of 0 or more"),
        ({"model": "a", "label": "x" * 1000}, "... (10,000 in all)"),
    ],
)
def test_a_body_that_does_not_fit_its_schema_is_refused(value, message):
    with pytest.raises(RequestError) as error:
        check_value(SCHEMA, value)
    assert message in error.value.message
    assert len(error.value.message) < 2000
    check_value(SCHEMA, {"model": "a", "n": None, "stop": ["x"], "kind": "b"})


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a": NaN}', b'{"a": -Infinity}', b"\xff", b'"\\ud800"', b"[" * 100_000, b"1" * 10_000]
)
def test_what_is_no_json_is_refused(body):
    with pytest.raises(RequestError) as error:
        parse_json(body)
    assert error.value.status == 400


def test_only_our_own_page_and_keys_are_let_in():
    config = ServerConfig(api_key="secret", allowed_hosts=("Models.example",))
    for host in (
        "localhost:8000",
        "127.0.0.1",
        "[::1]:80",
        "192.168.1.2:8000",
        "models.example:443",
        "LOCALHOST:",
        "[fe80::1%eth0]:8000",
        "[::ffff:127.0.0.1]",
    ):
        check_host({"host": host}, config)
    for host in (
        "evil.example",
        "",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8000",
        "[::1]evil.example:80",
        "[::1",
        "::1",
        "[localhost]",
        "localhost:80:80",
        "localhost:evil",
        "localhost@evil.example",
        "[::1]:x",
        "localhost\n",
        "localhost,evil.example",
        "127.0.0.1:123456",
    ):
        with pytest.raises(RequestError) as error:
            check_host({"host": host}, config)
        assert error.value.status == 421
    check_origin({"host": "localhost:8000"})
    check_origin({"host": "localhost:8000", "origin": "http://localhost:8000"})
    for origin in ("http://evil.example", "null", "http://localhost:9000", "file://localhost:8000"):
        with pytest.raises(RequestError) as error:
            check_origin({"host": "localhost:8000", "origin": origin})
        assert error.value.status == 403
    check_key({"authorization": "Bearer secret"}, config)
    check_key({}, config, "secret")
    config = ServerConfig(api_key="sécret")
    check_key({"authorization": "Bearer sécret".encode().decode("latin-1")}, config)  # as the server reads headers
    check_key({}, config, "sécret")
    for headers in ({}, {"authorization": "Bearer secre"}, {"authorization": "Basic secret"}):
        with pytest.raises(RequestError) as error:
            check_key(headers, config)
        assert error.value.status == 401


def test_the_name_of_a_model_says_its_languages(folder):
    models = Models({"de-en": folder / "en-fr", "other": folder / "en-fr"}, ServerConfig(), Metrics())
    assert [one.languages for one in models] == [("de", "en"), ("en", "fr")]
    models.stop()


def test_names_of_models(tmp_path):
    assert list(model_names([str(tmp_path / "fr"), f"de={tmp_path / 'x'}"])) == ["fr", "de"]
    with pytest.raises(weft.WeftError, match="two models have the name 'fr'"):
        model_names([str(tmp_path / "fr"), f"fr={tmp_path / 'x'}"])
    with pytest.raises(weft.WeftError, match="the name 'a b'; expected letters"):
        model_names([f"a b={tmp_path / 'fr'}"])


def test_pieces_that_are_all_there_do_not_hold_the_event_loop(context):
    """Between two pieces of an answer other requests have their turn."""

    async def ask():
        model, turns = context.models.get("lm"), []
        completion = await Completion.prepare(context, model, CompletionRequest(("the",), 3, choices=4, log_probs=0))

        async def others():
            while True:
                turns.append(completion.queue.qsize())
                await asyncio.sleep(0)

        completion.start()
        while not all(row.finish for row in completion.rows):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        completion.start = lambda: None
        task = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        await completion.whole()
        task.cancel()
        return turns

    turns = asyncio.run(ask())
    assert turns[: turns[0]] == list(range(turns[0], 0, -1))
    assert turns[0] >= 4


def test_a_large_answer_is_encoded_in_parts(monkeypatch):
    """The same bytes, and no call of json for more than one list or object."""
    parts, encode = [], http.ENCODE
    value = {"a": [[0.5, None, "\u00e9\n"] * 3] * 4, 'b"': {"c": {}, "d": [], "e": [1, [2, (3,)], {"f": True}]}, "": 1}
    values = (value, [value, value], [], {}, "a", 1.5, [[[]]], {"a": {"b": {"c": [1]}}})
    expected = [http.JsonResponse(one).body for one in values]
    monkeypatch.setattr(http, "ENCODE", lambda value: parts.append(encode(value)) or parts[-1])
    for one, body in zip(values, expected, strict=True):
        found = asyncio.run(http.large_json(lambda one=one: one))
        assert (found.body, found.headers["content-type"]) == (body, "application/json")
    assert max(map(len, parts)) < 80
    with pytest.raises(ValueError, match="JSON"):
        asyncio.run(http.large_json(lambda: [[math.nan]]))


def test_the_answer_of_a_pipeline_is_made_outside_of_the_event_loop(folder, monkeypatch):
    """It has an entry for each character of the texts of a tagger."""
    threads, pipeline = [], hugging_face_api.PIPELINES["tag"]

    def to_result(*given):
        threads.append(threading.get_ident())
        return pipeline.to_result(*given)

    async def loop_thread(context, request):
        threads.append(threading.get_ident())
        return await infer(context, request, {"inputs": TEXTS})

    infer = hugging_face_api.infer
    monkeypatch.setitem(hugging_face_api.PIPELINES, "tag", pipeline._replace(to_result=to_result))
    config, metrics = ServerConfig(), Metrics()
    models = Models({"ner": folder / "ner"}, config, metrics)
    context = Context(config, models, SessionStore(config, models), Comparisons(), metrics)
    request = SimpleNamespace(path_params={"name": "ner"}, headers={})
    found = asyncio.run(loop_thread(context, request))
    models.stop()
    assert len(json.loads(found.body)) == len(TEXTS)
    loop, *others = threads
    assert len(others) == len(TEXTS)
    assert loop not in others


LONG_NAME = "x" * 100_000


@pytest.mark.parametrize(
    "ask",
    [
        lambda context: context.models.get(LONG_NAME),
        lambda context: find_operation(context.models.get("sentiment"), LONG_NAME),
        lambda context: find_operation(context.models.get("sentiment")).read_options({LONG_NAME: 1}),
        lambda context: check_value({"type": "string", "enum": ["a", "b"]}, LONG_NAME),
        lambda context: check_value(object_of((), a=string()), {LONG_NAME: 1}),
        lambda context: load_config(LmConfig, sets={"text.tokenizer": LONG_NAME}),
        lambda context: load_config(LmConfig, sets={LONG_NAME: "1"}),
    ],
)
def test_an_unknown_choice_is_refused_in_short(context, ask):
    with pytest.raises((weft.WeftError, RequestError)) as refused:
        ask(context)
    assert len(str(refused.value)) < 600


def test_the_beam_of_a_filler_has_limits():
    kind = ServedOperation(None, operations(FillPredictor)["fill"]).options
    options = kind()

    def check(text, options):
        check_search(text, sum(Blanked.read(text).widths(options.tokens)), options)

    check("the ___ sat" + " a" * 40_000, options)
    check("the ___ sat ___ ", options)
    check("a ___", kind(tokens=20))
    for text, given, message in (
        ("___ " * 21, options, "21 tokens of the text are missing; expected at most 20"),
        ("a ___ ___", kind(tokens=11), "22 tokens"),
        ("_" * 30, kind(tokens=0), "30 tokens"),
        ("___ ___" + " a" * 1000, options, "a beam width of 100; expected at most 2,000 characters"),
    ):
        with pytest.raises(weft.WeftError, match=message):
            check(text, given)


def test_a_server_answers_so_many_requests_at_the_same_time(folder):
    """And nevertheless says that it is alive."""
    statuses = []

    async def ask(server, path, wait):
        async def receive():
            await asyncio.sleep(wait)
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append((path, message["status"]))

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        method = "POST" if path.startswith("/v1") else "GET"
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
        await server.app(scope, receive, send)

    async def ask_all(server):
        slow = [asyncio.ensure_future(ask(server, "/v1/completions", 0.3)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await ask(server, "/v1/completions", 0)
        await ask(server, "/health", 0)
        assert statuses == [("/v1/completions", 503), ("/health", 200)]
        await asyncio.gather(*slow)
        await ask(server, "/v1/completions", 0)
        assert statuses[2:] == [("/v1/completions", 400)] * 4
        assert server.running == 0

    server = Server({"ngram": folder / "ngram"}, ServerConfig(max_requests=3))
    asyncio.run(ask_all(server))
    server.stop()


def test_a_text_that_makes_a_model_compute_nan_is_refused(tmp_path):
    """Its weights are finite: a state grows by a half with each token."""
    run = train_runs(tmp_path, {"lm": RECIPES["lm"].changed({"model.cell": "rnn-relu", "train.epochs": 1})})["lm"]
    tensors, metadata = load_tensors(run / WEIGHTS)
    name = "stack.layers.0.cell.weight_hh"
    save_tensors(run / WEIGHTS, {**tensors, name: 1.5 * torch.eye(len(tensors[name]))}, metadata)
    predictor = weft.load(run)
    assert predictor.generate("the cat", tokens=20)
    with pytest.raises(weft.WeftError, match="values are not finite"):
        predictor.generate("the cat", tokens=3000)
    with pytest.raises(weft.WeftError, match="values are not finite"):
        predictor.generate("the cat " * 100, tokens=1)
    config, metrics = ServerConfig(), Metrics()
    models = Models({"lm": run}, config, metrics)
    context = Context(config, models, SessionStore(config, models), Comparisons(), metrics)
    for wanted in ({"tokens": 3000}, {"tokens": 3000, "log_probs": 2}, {"tokens": 3000, "session": "one"}):
        with pytest.raises(RequestError, match="values are not finite"):
            complete(context, "lm", prompts=("the",), **wanted)
    with pytest.raises(weft.WeftError, match="values are not finite"):
        asyncio.run(state_vectors(context, models.get("lm"), ["the cat " * 100]))
    models.stop()


def test_the_disk_is_not_filled_with_sessions(context, tmp_path):
    config = ServerConfig(sessions=tmp_path / "saved", max_sessions=1)
    sessions, model = SessionStore(config, context.models), context.models.get("lm")
    for number in range(10):
        assert sessions.save(sessions.new(f"s{number}", model))
    with pytest.raises(RequestError, match="10 sessions are saved; expected fewer: delete some"):
        sessions.save(sessions.new("more", model))
    assert sessions.save(sessions.get("s3")), "one that is saved already"
    sessions.delete("s4")
    assert sessions.save(sessions.new("more2", model))


@pytest.mark.parametrize("name", ["ner", "sentiment", "en-fr"])
def test_inputs_that_are_no_texts_are_refused(context, name):
    operation = find_operation(context.models.get(name), None)
    with pytest.raises(RequestError, match=r"inputs\[1\] is None; expected a string"):
        operation.check_inputs(["a", None], operation.read_options({}))


def test_the_probabilities_of_an_answer_have_a_limit(context):
    operation = find_operation(context.models.get("sentiment"), None)
    labels = tuple(f"label{number}" for number in range(10_000))
    many = ServedOperation(dataclasses.replace(operation.predictor, labels=labels), operation.operation)
    many.check_inputs(["a"] * 200, operation.read_options({}))
    with pytest.raises(RequestError, match="201 texts with 10,000 labels each; expected at most 200"):
        many.check_inputs(["a"] * 201, operation.read_options({}))


def test_names_that_are_no_text_are_shown(folder, tmp_path):
    """Of runs in a folder that somebody else has written."""
    shutil.copytree(folder / "ngram", tmp_path / os.fsdecode(b"run \xff"))
    context = SimpleNamespace(config=ServerConfig(runs=tmp_path))
    name = "run \N{REPLACEMENT CHARACTER}"
    (found,) = json.loads(asyncio.run(native_api.list_runs(context, None, None)).body)["runs"]
    assert found["name"] == name
    request = SimpleNamespace(path_params={"name": name}, query_params={})
    assert json.loads(asyncio.run(native_api.run_metrics(context, request, None)).body)["records"]


def test_the_log_of_a_failure_has_no_part_of_the_request(folder, monkeypatch, caplog):
    async def receive():
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b'{"texts": ["a"]}', "more_body": False}

    async def send(message):
        statuses.append(message.get("status"))

    def fail(*_):
        raise UnicodeDecodeError("utf-8", sent, 0, 1, str(sent))

    server, statuses, sent = Server({"ngram": folder / "ngram"}, ServerConfig()), [], b"a secret"
    monkeypatch.setattr(native_api, "find_operation", fail)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = "/weft/predict/ngram"
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(server.app(scope, receive, send))
    server.stop()
    assert statuses[0] == 500
    assert "UnicodeDecodeError" in caplog.text
    assert "native_api.py" in caplog.text
    assert "secret" not in caplog.text


def test_a_request_that_is_cut_off_at_the_end_is_told_when_to_come_again(folder):
    async def ask(server, *, stopping):
        messages = []

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            messages.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        task = asyncio.ensure_future(server.app(scope, receive, send))
        await asyncio.sleep(0.05)
        server.stopping = stopping
        task.cancel()
        await asyncio.wait({task})
        return messages, task.cancelled()

    server = Server({"ngram": folder / "ngram"}, ServerConfig())
    assert asyncio.run(ask(server, stopping=False)) == ([], True)
    messages, cancelled = asyncio.run(ask(server, stopping=True))
    assert (messages[0]["status"], cancelled) == (503, False)
    assert (b"retry-after", b"5") in messages[0]["headers"]
    assert b"overloaded" in messages[1]["body"]
    server.stop()
