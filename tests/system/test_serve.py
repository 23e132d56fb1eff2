"""`weft serve` as a subprocess: the clients of the table, equality with the command line, limits, misuse."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from typer.testing import CliRunner

from tests.long.serve_soak import check_schema
from tests.paths import ROOT
from tests.serving import served, wait_for
from weft.cli import app

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def server(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    some = next(iter(runs.values())).parent
    limits = ["--max-body", "100000", "--max-tokens", "100000", "--max-sessions", "100"]
    with served(*runs.values(), "--runs", some, "--sessions", folder, *limits) as server:
        yield server


def command_line(*arguments):
    """What `weft ... --json` prints, as values."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openai_client_completes_as_the_command_line(client, runs):
    assert {one.id for one in client.models.list()} == set(runs)
    for name in ("lm", "ngram", "hmm"):
        options = ["--tokens", 20, "--seed", 3, "--temperature", 0.9, "--top-p", 0.95, "--top-k", 8]
        (expected,) = command_line("generate", runs[name], "--prompt", "the cat", *options)
        given = {"model": name, "prompt": "the cat", "max_tokens": 20, "seed": 3, "temperature": 0.9, "top_p": 0.95}
        found = client.completions.create(**given, extra_body={"top_k": 8}, logprobs=2)
        assert "the cat" + found.choices[0].text == expected["text"]
        assert found.usage.completion_tokens == len(found.choices[0].logprobs.tokens) <= 20
        pieces = list(client.completions.create(**given, extra_body={"top_k": 8}, stream=True))
        assert "the cat" + "".join(one.choices[0].text for one in pieces) == expected["text"]
        assert pieces[-1].choices[0].finish_reason == found.choices[0].finish_reason
        echoed = client.completions.create(**given, extra_body={"top_k": 8}, echo=True, n=2)
        assert echoed.choices[0].text == expected["text"]
        assert [one.index for one in echoed.choices] == [0, 1]
    (expected,) = command_line("generate", runs["lm"], "--prompt", "the", "--tokens", 30, "--greedy", "--stop", "a")
    found = client.completions.create(model="lm", prompt="the", max_tokens=30, temperature=0, stop=["a"])
    assert "the" + found.choices[0].text == expected["text"]


def test_openai_client_fills_embeds_and_reads_errors(client, runs):
    (expected,) = command_line("fill", runs["fill"], "the ___ sat", "--n-best", 2)
    found = client.completions.create(model="fill", prompt="the ", suffix=" sat", n=2)
    assert [one.text for one in found.choices] == [one["fills"][0] for one in expected["answers"]]
    (vector,) = client.embeddings.create(model="lm", input="the cat").data  # by base64, as the client asks
    (plain,) = client.embeddings.create(model="lm", input=["the cat"], encoding_format="float").data
    assert vector.embedding == pytest.approx(plain.embedding)
    assert len(vector.embedding) == 16
    with pytest.raises(openai.NotFoundError, match="there is no model 'nothing'; expected one of: "):
        client.completions.create(model="nothing", prompt="a")
    with pytest.raises(openai.BadRequestError, match="generates no text; it can: classify"):
        client.completions.create(model="sentiment", prompt="a")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="lm", prompt="a", max_tokens=-1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ollama_client(server, runs, request):
    ollama = pytest.importorskip("ollama")
    client = ollama.Client(host=server.address)
    request.addfinalizer(client.close)
    assert {one.model for one in client.list().models} == {"lm", "ngram", "hmm"}
    options = {"num_predict": 20, "seed": 3, "temperature": 0.9}
    (expected,) = command_line(
        "generate", runs["lm"], "--prompt", "the", "--tokens", 20, "--seed", 3, "--temperature", 0.9
    )
    found = client.generate(model="lm", prompt="the", options=options)
    assert "the" + found.response == expected["text"]
    assert (found.done_reason, found.eval_count) == ("length", 20)
    pieces = list(client.generate(model="lm", prompt="the", options=options, stream=True))
    assert "the" + "".join(one.response for one in pieces) == expected["text"]
    with pytest.raises(ollama.ResponseError, match="there is no model"):
        client.generate(model="nothing", prompt="a")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the clients leave sockets open
def test_hugging_face_client(server, runs, request):
    hub = pytest.importorskip("huggingface_hub")

    def client(name):
        made = hub.InferenceClient(model=f"{server.address}/models/{name}", token="none")
        request.addfinalizer(made.close)
        return made

    (expected,) = command_line("classify", runs["sentiment"], "a good film")
    found = client("sentiment").text_classification("a good film")
    assert {one.label: one.score for one in found} == expected["probabilities"]
    assert found[0].label == expected["label"]
    text = "Ann Lee  went to\tNew York, 北京 then Bob saw Ann."
    (expected,) = command_line("tag", runs["ner"], text)
    entities = client("ner").token_classification(text)
    assert [one.entity_group for one in entities] == [one["label"] for one in expected["spans"]]
    assert entities, "the model has learnt its training sentences"
    for one, span in zip(entities, expected["spans"], strict=True):
        assert text[one.start : one.end] == one.word
        assert "".join(one.word.split()) == "".join(span["words"])
    (expected,) = command_line("fill", runs["fill"], "the ___ sat on the mat", "--n-best", 3)
    answers = client("fill").fill_mask("the <mask> sat on the mat", top_k=3)
    assert [(one.token_str, one.sequence) for one in answers] == [
        (one["fills"][0], one["text"]) for one in expected["answers"]
    ]
    (expected,) = command_line("translate", runs["en-fr"], "the cat sat.")
    found = client("en-fr").translation("the cat sat.")
    assert found.translation_text == expected["translations"][0]["text"]


def test_libretranslate_client(server, runs):
    api = pytest.importorskip("libretranslatepy").LibreTranslateAPI(server.address)
    (expected,) = command_line("translate", runs["en-fr"], "the dog sat.", "--n-best", 3)
    texts = [one["text"] for one in expected["translations"]]
    assert api.translate("the dog sat.", "en", "fr") == texts[0]
    assert api.languages() == [
        {"code": "en", "name": "en", "targets": ["fr"]},
        {"code": "fr", "name": "fr", "targets": []},
    ]
    found = server.ask("/translate", {"q": ["the dog sat.", "the dog sat.\n\nthe dog sat."], "alternatives": 2})
    assert found.body["translatedText"] == [texts[0], f"{texts[0]}\n\n{texts[0]}"]
    assert found.body["alternatives"][0] == texts[1:]
    assert server.ask("/translate", {"q": "a", "source": "de", "target": "fr"}).status == 400


def test_predictions_and_probes_equal_the_command_line(server, runs):
    for name, command, text, options in (
        ("sentiment", "classify", "a bad day", {"weights": True}),
        ("ner", "tag", "Ann saw Bob.", {"n_best": 2}),
        ("en-fr", "translate", "a dog ran.", {"n_best": 2, "attention": True}),
        ("fill", "fill", "the ___ sat", {"n_best": 2}),
    ):
        flags = [
            f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}") for key, value in options.items()
        ]
        (expected,) = command_line(command, runs[name], text, *flags)
        (found,) = server.ask(f"/weft/predict/{name}", {"texts": [text], "options": options}).body["results"]
        found.pop("offsets", None)
        assert found == expected
    described = {one["name"]: one for one in server.ask("/weft/models").body["models"]}
    texts = {"fill": "the cat sat on the mat", "hmm": "the cat sat on the mat"}
    for name, one in described.items():
        text = texts.get(name, "the cat sat.")
        assert one["probes"]
        for probe in one["probes"]:
            if probe == "units" or name in ("fill", "sentiment", "ngram"):
                continue
            ((expected),) = command_line("look", runs[name], text, "--show", probe)
            assert server.ask(f"/weft/look/{name}/{probe}", {"text": text}).body == expected
        other = server.ask(f"/weft/look/{name}/posterior", {"text": text})
        assert other.status == (200 if "posterior" in one["probes"] else 400)
    found = server.ask("/weft/look/lm/units", {"text": "", "options": {"unit": 2, "data": "held-out", "count": 3}})
    assert len(found.body[0]["passages"]) == 3


def test_sessions_fork_rewind_and_survive_a_restart(server, runs):
    first = server.ask("/weft/sessions", {"model": "lm", "id": "one", "text": "the cat"})
    assert (first.status, first.body["tokens"]) == (201, list("the cat"))
    text = server.ask(
        "/v1/completions", {"model": "lm", "prompt": " sat", "session": "one", "max_tokens": 5, "seed": 1}
    )
    whole = server.ask("/v1/completions", {"model": "lm", "prompt": "the cat sat", "max_tokens": 5, "seed": 1})
    assert text.body["choices"][0]["text"] == whole.body["choices"][0]["text"]
    fork = server.ask("/weft/sessions/one/fork", {"id": "two", "at": 7})
    same = ("text", "tokens", "logprobs", "next")
    assert {name: fork.body[name] for name in same} == {name: first.body[name] for name in same}
    back = server.ask("/weft/sessions/one/rewind", {"to": 7})
    assert {name: back.body[name] for name in same} == {name: first.body[name] for name in same}
    token = back.body["next"][0][0]
    assert server.ask("/weft/sessions/one/read", {"tokens": [token]}).body["text"] == "the cat" + token
    assert server.ask("/weft/sessions/one/save", b"", method="POST").body["saved"] is True
    assert server.ask("/weft/sessions/one/rewind", {"to": 100}).status == 400
    assert server.ask("/weft/sessions", {"model": "lm", "id": "../../evil"}).status == 400
    assert server.ask("/weft/sessions/one", method="DELETE").status == 204
    assert server.ask("/weft/sessions/one").status == 404
    assert server.ask("/v1/completions", {"model": "ngram", "prompt": "a", "session": "two"}).status == 409


def test_a_thousand_sessions_in_a_store_of_a_hundred(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ids = [f"s{number}" for number in range(1000)]
        codes = list(pool.map(lambda id: server.ask("/weft/sessions", {"model": "lm", "id": id}).status, ids))
    assert set(codes) == {201}
    assert server.metric("weft_sessions") == 100
    kept = {one["id"] for one in server.ask("/weft/sessions").body["sessions"]}
    assert "s0" not in kept
    assert len(kept & set(ids[-120:])) >= 90


LONG = {"model": "ngram", "prompt": "the", "max_tokens": 100_000, "seed": 1}


def open_request(server, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_stops_the_computation(server, stream):
    connection = open_request(server, "/v1/completions", {**LONG, "stream": stream})
    if stream:
        assert connection.getresponse().readline().startswith(b"data: ")
    wait_for(lambda: server.metric("weft_sequences") == 1, 20, "it is being generated")
    first = server.metric("weft_tokens_total")
    time.sleep(0.5)
    before = server.metric("weft_tokens_total")
    connection.close()
    wait_for(lambda: server.metric("weft_sequences") == 0, 20, "it stops")
    tokens = server.metric("weft_tokens_total")
    # `python -m tests.long.serve_soak drops` measures the time; on a busy machine tokens are the better clock.
    assert tokens - before <= 4 * (before - first) + 200, "it went on for more than a second"
    time.sleep(0.1)
    assert server.metric("weft_tokens_total") == tokens


def test_limits(server):
    assert server.ask("/v1/completions", {"model": "lm", "prompt": "a" * 200_000}).status == 413
    assert server.ask("/v1/completions", {**LONG, "max_tokens": 100_001}).status == 400
    assert server.ask("/weft/predict/sentiment", {"texts": ["a"] * 300}).status == 400
    for path, body, message in (
        ("/v1/completions", {"model": "hmm", "prompt": "a" * 90_000, "n": 12, "echo": True}, "1,080,000 characters"),
        ("/v1/completions", {"model": "fill", "prompt": "a " * 30_000, "suffix": "b", "n": 20}, "60,004 characters"),
        ("/v1/completions", {"model": "lm", "prompt": "a", "stop": "a" * 1001}, "a stop text has 1,001 characters"),
        ("/weft/predict/ner", {"texts": ["a " * 4000] * 2, "options": {"n_best": 100}}, "expected at most 10,000 with"),
        ("/weft/predict/en-fr", {"texts": ["a" * 11_000], "options": {"attention": True}}, "expected at most 10,000"),
        ("/weft/predict/en-fr", {"texts": ["a"], "options": {"prefix": ["le"] * 1001}}, "the prefix has 1,001 entries"),
        ("/weft/look/lm/units", {"text": "a", "options": {"unit": 1, "texts": ["a" * 700] * 100}}, "70,000 characters"),
        ("/weft/look/lm/surprisal", {"text": "a" * 20_000, "options": {"top": 50}}, "expected at most 10,000 with 50"),
    ):
        found = server.ask(path, body)
        assert found.status == 400
        assert message in json.dumps(found.body), found.body
    assert server.ask("/weft/predict/en-fr", {"texts": ["a"], "options": {"beam": 10_000}}).status == 400
    for path, body in (
        ("/v1/completions", {"model": "lm", "max_tokens": 100_001}),
        ("/models/lm", {"inputs": "a", "parameters": {"max_new_tokens": 100_001}}),
        ("/api/generate", {"model": "lm", "prompt": "a", "options": {"num_predict": 100_001}}),
    ):
        assert "100,001 tokens to generate; expected at most 100,000" in json.dumps(server.ask(path, body).body)
    for path, name in (("/models/sentiment", "inputs"), ("/weft/predict/sentiment", "texts"), ("/translate", "q")):
        assert "1 to 256 items" in json.dumps(server.ask(path, {name: ["a"] * 257}).body)


def test_slow_clients_hold_nothing(server):
    """Forty clients send no more than a part of a request; another one is answered while these are waited for."""
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    for number, one in enumerate(slow):
        one.sendall(head[:20] if number % 2 else head)
    assert server.ask("/models/sentiment", {"inputs": "a good film"}).status == 200
    for one in slow:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing was sent, and it is not closed: it was not cut off
            one.recv(1)
        one.close()


def test_a_request_that_takes_too_long_is_ended_and_a_changed_run_is_reloaded(runs, tmp_path):
    run = tmp_path / "ngram"
    shutil.copytree(runs["ngram"], run)
    with served(run, "--timeout", "1", "--max-tokens", "1000000", "--reload") as server:
        (model,) = server.ask("/v1/models").body["data"]
        (weights,) = run.glob("weights.safetensors")
        os.utime(weights, (model["created"] + 1000, model["created"] + 1000))
        wait_for(
            lambda: server.ask("/v1/models").body["data"][0]["created"] == model["created"] + 1000, 20, "it is reloaded"
        )
        late = server.ask("/v1/completions", {**LONG, "max_tokens": 1_000_000})
        assert (late.status, late.body["error"]["code"]) == (504, "timeout")
        with pytest.raises(http.client.IncompleteRead):  # and nothing is said of it on standard error
            server.ask("/v1/completions", {**LONG, "max_tokens": 1_000_000, "stream": True})
        wait_for(lambda: server.metric("weft_sequences") == 0, 20, "it stops")
        time.sleep(0.3)  # until the connections of the requests above are closed
        files = server.files()
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect(("127.0.0.1", server.port))
            unread.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 90)
            wait_for(lambda: server.files() > files, 20, "it is connected")
            wait_for(lambda: server.files() == files, 20, "it is cut off")


BAD = [
    (b"{", "no JSON"),
    (b'{"model": "lm", "prompt": NaN}', "NaN is no number"),
    (b'{"model": "lm", "prompt": "\\ud800"}', "surrogate"),
    (b'\xff\xfe', "UTF-8"),
    (b'[1, 2]', "expected an object"),
    (b'{"model": "lm", "prompt": 3}', "prompt is 3; expected a string or a list"),
    (b'{"model": "lm", "prompt": "a", "max_tokens": 1e300}', "max_tokens"),
    (b'{"model": "lm", "prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", "no JSON"),
    (b'{"model": "lm", "prompt": "a", "temperature": 1e400}', "temperature is inf"),
    (b'{"model": "lm", "prompt": "a", "temprature": 1}', "Try: temperature"),
    (b'{"prompt": "a"}', "has no 'model'"),
    (b'{"model": "lm", "prompt": "a", "stop": ""}', "a stop text is empty"),
    (b'{"model": "lm", "prompt": ["a", "b"], "session": "x"}', "a session continues one text"),
    (b'{"model": "lm", "prompt": ' + b"[" * 50_000, "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_is_refused_with_a_clear_message(server, body, message):
    found = server.ask("/v1/completions", body)
    assert found.status == 400
    assert message in found.body["error"]["message"]


def test_what_is_not_there_and_not_allowed(server, runs):
    for path, status in (("/page/%00", 404), ("/page/" + "a" * 5000, 404), ("/page/.", 404), ("/page/a%0a", 404),
                         ("/nothing", 404), ("/weft/runs/..%2f..%2fetc/metrics", 404), ("/page/..%2fapp.py", 404),
                         ("/weft/sessions/none", 404), ("/v1/models/none", 404)):  # fmt: skip
        assert server.ask(path).status == status, path
    wrong = server.ask("/v1/completions", method="GET")
    assert wrong.status == 405
    assert wrong.body["error"]["message"] == "there is no GET /v1/completions; expected POST"
    assert server.ask("/v1/completions", b"{}", headers={"Content-Type": "text/plain"}).status == 415
    for host in ("evil.example", "[::1]evil.example:80", "[", ""):
        assert server.ask("/v1/models", headers={"Host": host}).status == 421
    assert server.ask("/v1/models", headers={"Origin": "http://evil.example"}).status == 403
    found = server.ask("/health", headers={"Origin": server.address})
    assert found.status == 200
    assert not [name for name in found.headers if name.lower().startswith("access-control")]
    for bad in ({"text": ""}, {"text": "___"}):
        message = json.dumps(server.ask("/weft/look/lm/attention", bad).body)
        assert str(runs["lm"].parent) not in message
    assert (
        server.ask("/weft/look/en-fr/posterior", {"text": "the cat"})
        .body["error"]["message"]
        .startswith("en-fr is a run")
    )
    page = server.ask("/")
    assert page.status == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("sentiment", {"top_k": "x"}, "top_k is 'x'; expected a number of labels"),
        ("sentiment", {"top_k": -1}, "top_k is -1; expected a number of labels"),
        ("sentiment", {"topk": 1}, "Try: top_k"),
        ("ner", {"ignore_labels": 3}, "ignore_labels is 3; expected a list of labels"),
        ("ner", {"ignore_labels": [[]]}, "expected a list of labels"),
        ("fill", {"top_k": "x"}, "expected"),
        ("en-fr", {"beam": 1e9}, "beam"),
    ],
)
def test_bad_parameters_of_a_pipeline_are_refused(server, name, parameters, message):
    found = server.ask(f"/models/{name}", {"inputs": "the ___ sat", "parameters": parameters})
    assert found.status == 400
    assert message in found.body["error"]


def test_models_are_compared_as_the_command_line_does(server, runs):
    body = {"first": "lm", "second": "ngram"}
    found = server.ask("/weft/compare", body).body
    (expected,) = command_line("compare", runs["lm"], runs["ngram"])
    assert found["tests"] == [{**one, **body} for one in expected["tests"]]
    assert found["tests"][0]["metric"] == "cross_entropy"
    assert server.ask("/weft/compare", {**body, "second": "ner"}).body["reason"]
    assert server.ask("/weft/compare", {**body, "second": "none"}).status == 404
    assert server.ask("/weft/compare", {"first": "lm"}).status == 400


def test_runs_and_their_metrics(server):
    found = {one["name"]: one for one in server.ask("/weft/runs").body["runs"]}
    assert found["lm"]["state"] == "done"
    whole = server.ask("/weft/runs/lm/metrics").body
    assert whole["records"]
    assert server.ask(f"/weft/runs/lm/metrics?after={whole['step']}").body["records"] == []
    assert server.ask("/weft/runs/lm/metrics?after=x").status == 400
    curves = server.ask("/weft/runs/lm/curves").body
    assert curves["perplexity"]["path"] == "lm"


def test_keys_reload_and_an_orderly_end(runs, tmp_path):
    """SIGTERM: what runs is finished, new requests are refused, the exit code is 0."""
    key, file = {"Authorization": "Bearer secret"}, tmp_path / "key"
    file.write_text("secret\n", encoding="utf-8")
    with served(runs["ngram"], "--api-key-file", file, "--max-queue", "1", "--log-requests") as server:
        assert server.ask("/v1/models").status == 401
        for path in ("/openapi.json", "/docs"):
            assert "ngram" not in json.dumps(server.ask(path).body)
            assert "ngram" in json.dumps(server.ask(path, headers=key).body)
        assert server.ask("/v1/models", headers={"Authorization": "Bearer wrong"}).status == 401
        assert server.ask("/v1/models", headers=key).status == 200
        assert server.ask("/health").status == 200
        found = []
        body = {**LONG, "max_tokens": 2000}
        thread = threading.Thread(target=lambda: found.append(server.ask("/v1/completions", body, headers=key)))
        thread.start()
        wait_for(
            lambda: b'weft_sequences{model="ngram"} 1' in server.ask("/metrics", headers=key).body.encode(),
            20,
            "it runs",
        )
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert found[0].status == 200
        assert found[0].body["usage"]["completion_tokens"] == 2000
        assert server.process.wait(timeout=20) == 0


def test_a_second_signal_cuts_requests_off(runs):
    body = {**LONG, "max_tokens": 1_000_000, "stream": True}
    with (
        served(runs["ngram"], "--max-tokens", "1000000") as server,
        contextlib.closing(open_request(server, "/v1/completions", body)),
    ):
        wait_for(lambda: server.metric("weft_sequences") == 1, 20, "it runs")
        server.process.send_signal(signal.SIGINT)
        assert "finishing requests: 1" in server.process.stderr.readline()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=20) == 0, "without it, requests have 30 seconds to finish"


def test_addresses_that_cannot_be_listened_on_are_refused_before_a_model_is_loaded(server, tmp_path):
    """The run does not exist, so each message comes from a check that needs no model."""
    run, port = tmp_path / "none", str(server.port)
    for options, message in (
        (["--port", port], f"cannot listen on 127.0.0.1:{port}: Address already in use; expected a free port"),
        (["--host", "nowhere.invalid", "--insecure"], "expected an address of this machine. Try: --host 127.0.0.1"),
        (["--host", "192.0.2.1", "--insecure"], "expected an address of this machine. Try: --host 127.0.0.1"),
        (["--host", "0.0.0.0"], "expected --api-key-file FILE, or --insecure"),
        (["--port", "0"], "is not a run directory"),
    ):
        command = [sys.executable, "-m", "weft", "serve", str(run), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_answers_conform_to_the_description(server):
    """A short run of schemathesis; `make long RUN=server` has a long one."""
    check_schema(server, 2, "--phases", "fuzzing")


def run_page(server, language, command):
    """Runs the examples of docs/serve.md in one language, with the address of the server."""
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.M | re.S))
    code = code.replace("http://127.0.0.1:8000", server.address)
    return subprocess.run([*command, code], capture_output=True, text=True, timeout=60, check=False)


def test_the_examples_of_the_page_run(server):
    shell = 'set -e; curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n'
    done = run_page(server, "bash", ["bash", "-c", shell + 'eval "$0"'])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    assert json.loads(lines[0])["choices"][0]["text"]
    assert json.loads(lines[-1])["bytes"] > 100
    done = run_page(server, "python", [sys.executable, "-c"])
    assert done.returncode == 0, done.stderr
    assert "LOC New York 16 24" in done.stdout
    if shutil.which("node"):
        done = run_page(server, "javascript", ["node", "--input-type=module", "-e"])
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.strip()) > 10


def test_a_key_is_read_from_a_file(runs, tmp_path):
    (tmp_path / "empty").write_text(" \n", encoding="utf-8")
    (tmp_path / "two").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for options, message in (
        (["--api-key-file", "none"], "the key cannot be read from none: No such file or directory; expected a file"),
        (["--api-key-file", tmp_path], "Is a directory"),
        (["--api-key-file", tmp_path / "empty"], "empty is no file with a key; expected one line"),
        (["--api-key-file", tmp_path / "two"], "two is no file with a key; expected one line"),
        (["--api-key-file", tmp_path / "bytes"], "bytes: it is no text; expected a file with one line"),
        (["--api-key-file", "none", "--api-key", "a"], "there are both --api-key and --api-key-file"),
    ):
        done = CliRunner().invoke(app, ["serve", str(runs["lm"]), *map(str, options)])
        assert message in str(done.exception)


def test_another_host_needs_a_key(runs):
    done = CliRunner().invoke(app, ["serve", str(runs["lm"]), "--host", "0.0.0.0"])
    assert "can be reached from other machines" in str(done.exception)
