"""Every row of the tables of calls in docs/serve.md, driven by the real client, or by HTTP where it lacks the call."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.paths import ROOT
from tests.serving import Served, served

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients leave sockets open


class World:
    """A server, the runs that it serves, and clients of it."""

    def __init__(self, server: Served, runs: dict[str, Path], closing: contextlib.ExitStack) -> None:
        self.server, self.runs, self._closing = server, runs, closing
        self._hubs: dict[str, Any] = {}

    @cached_property
    def openai(self) -> Any:
        client = openai.OpenAI(base_url=f"{self.server.address}/v1", api_key="none", max_retries=0)
        return self._closing.enter_context(client)

    @cached_property
    def ollama(self) -> Any:
        client = pytest.importorskip("ollama").Client(host=self.server.address)
        self._closing.callback(client.close)
        return client

    def hub(self, name: str) -> Any:
        """Hugging Face's client of a model; the address of the server is that of all."""
        hub = pytest.importorskip("huggingface_hub")
        if name not in self._hubs:
            address = f"{self.server.address}/models/{name}"
            self._hubs[name] = hub.InferenceClient(model=address if name else self.server.address, token="none")
            self._closing.callback(self._hubs[name].close)
        return self._hubs[name]

    @cached_property
    def libretranslate(self) -> Any:
        return pytest.importorskip("libretranslatepy").LibreTranslateAPI(self.server.address)

    def generated(self, name: str, prompt: str, **options: Any) -> str:
        """What Python generates after a prompt."""
        text: str = weft.load(self.runs[name]).generate(prompt, **options)
        return text[len(prompt) :]


@pytest.fixture(scope="module")
def world(runs):
    with served(*runs.values()) as server, contextlib.ExitStack() as closing:
        yield World(server, runs, closing)


def table() -> list[tuple[str, str]]:
    """The clients and calls of the tables, one below the name of each client."""
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    part = page.partition("## Calls of clients")[2].partition("\n## ")[0]
    _, *sections = re.split(r"^### (\w+)$", part, flags=re.M)
    rows = [re.findall(r"^\| (`.+?) \|", section, flags=re.M) for section in sections[1::2]]
    return [(client, call) for client, calls in zip(sections[::2], rows, strict=True) for call in calls]


ROWS: dict[tuple[str, str], Callable[[World], None]] = {}


def row(client: str, call: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """The function that checks a row of the table."""

    def put(check: Callable[[World], None]) -> Callable[[World], None]:
        ROWS[client, call] = check
        return check

    return put


@pytest.mark.parametrize(("client", "call"), table(), ids=map(" ".join, table()))
def test_a_row_of_the_table(world, client, call):
    ROWS[client, call](world)


def test_every_check_is_a_row_of_the_table():
    assert len(table()) == len(set(table())) > 5
    assert set(ROWS) == set(table())


SAMPLING = {"temperature": 0.9, "top_p": 0.95, "presence_penalty": 0.3, "frequency_penalty": 0.1}
MORE_SAMPLING = {"top_k": 9, "min_p": 0.01, "typical_p": 0.95, "repetition_penalty": 1.2}


@row("openai", "`models.list`, `models.retrieve`")
def openai_models(world):
    assert {one.id for one in world.openai.models.list()} == set(world.runs)
    assert world.openai.models.retrieve("lm").owned_by == "weft"


@row("openai", "`completions.create`")
def openai_completions(world):
    expected = world.generated("lm", "the cat", tokens=20, seed=3, sampler=weft.Sample(**SAMPLING, **MORE_SAMPLING))
    given = {"model": "lm", "prompt": "the cat", "max_tokens": 20, "seed": 3, **SAMPLING, "extra_body": MORE_SAMPLING}
    assert world.openai.completions.create(**given).choices[0].text == expected
    assert world.openai.completions.create(**given, logprobs=2).choices[0].text == expected
    pieces = list(world.openai.completions.create(**given, stream=True))
    assert "".join(one.choices[0].text for one in pieces) == expected
    filled = world.openai.completions.create(model="fill", prompt="the ", suffix=" sat").choices[0].text
    assert filled == weft.load(world.runs["fill"]).fill("the ___ sat")[0].fills[0]
    blank = {"model": "fill", "prompt": "the ", "suffix": " sat", "temperature": 0, "user": "me"}
    found = world.openai.completions.with_raw_response.create(**blank)
    assert found.headers["weft-ignored"] == "temperature, user"
    texts = {
        world.openai.completions.create(**{**given, "seed": seed}).choices[0].text for seed in (-1, None, -1, None)
    }
    assert len(texts) > 1
    with pytest.raises(openai.BadRequestError, match="seed is -2"):
        world.openai.completions.create(**{**given, "seed": -2})


@row("openai", "`completions.create(prompt=[3, 4])`")
def openai_token_prompts(world):
    model = weft.load(world.runs["lm"])
    ids = model.text_field.encode("the cat")
    given = {"model": "lm", "max_tokens": 9, "seed": 1}
    (expected,) = world.openai.completions.create(prompt="the cat", **given).choices
    for prompt in (ids, [ids, model.text_field.encode("a")], ["the cat"]):
        assert world.openai.completions.create(prompt=prompt, **given).choices[0].text == expected.text
    echoed = world.openai.completions.create(prompt=ids, echo=True, logprobs=0, **given).choices[0]
    assert echoed.text == f"the cat{expected.text}"
    assert len(echoed.logprobs.tokens) == len(ids) + 9
    with pytest.raises(openai.BadRequestError, match="a token id is 100000; expected 0 to"):
        world.openai.completions.create(prompt=[100_000], **given)


@row("openai", '`completions.create(logit_bias={"5": -100})`')
def openai_logit_bias(world):
    vocabulary = weft.load(world.runs["lm"]).text_field.vocabulary
    never, always = (str(vocabulary.id(letter)) for letter in "tz")
    given = {"model": "lm", "prompt": "the cat", "max_tokens": 60, "seed": 1}
    assert "t" in world.openai.completions.create(**given).choices[0].text
    assert "t" not in world.openai.completions.create(**given, logit_bias={never: -100}).choices[0].text
    always = str(vocabulary.id("m"))
    assert world.openai.completions.create(**given, logit_bias={always: 100}).choices[0].text == "m" * 60
    for wrong in ({"t": 1}, {"100000": 1}, {never: 101}):
        with pytest.raises(openai.BadRequestError, match=r"logit_bias|a token id is 100000"):
            world.openai.completions.create(**given, logit_bias=wrong)


@row("openai", "`completions.create(best_of=5)`")
def openai_best_of(world):
    given = {"model": "ngram", "prompt": ["the cat", "a"], "max_tokens": 12, "seed": 4}
    every = world.openai.completions.create(**given, n=5, logprobs=0).choices
    means = [np.mean(one.logprobs.token_logprobs) for one in every]
    order = [sorted(range(at, at + 5), key=lambda one: -means[one])[:2] for at in (0, 5)]
    best = world.openai.completions.create(**given, n=2, best_of=5)
    assert [one.text for one in best.choices] == [every[one].text for of_prompt in order for one in of_prompt]
    assert [one.index for one in best.choices] == [0, 1, 2, 3]
    assert best.choices[0].logprobs is None
    assert best.usage.completion_tokens == 120
    with pytest.raises(openai.BadRequestError, match="best_of is 1; expected at least n, which is 2"):
        world.openai.completions.create(**given, n=2, best_of=1)
    with pytest.raises(openai.BadRequestError, match="expected no stream"):
        world.openai.completions.create(**given, best_of=2, stream=True)


@row("openai", '`completions.create(user=..., extra_body={"metadata": ...})`')
def openai_ignored(world):
    given = {"model": "lm", "prompt": "a", "max_tokens": 1}
    more = {"metadata": {"a": "b"}, "service_tier": "auto", "store": True, "prompt_cache_key": None}
    found = world.openai.completions.with_raw_response.create(**given, user="me", extra_body=more)
    assert set(found.headers["weft-ignored"].split(", ")) == {"metadata", "service_tier", "store", "user"}
    assert found.parse().choices[0].text
    for stream in (False, True):
        found = world.openai.completions.with_raw_response.create(**given, stream=stream)
        assert "weft-ignored" not in found.headers
    found = world.openai.completions.with_raw_response.create(**given, stream=True, user="me")
    assert found.headers["weft-ignored"] == "user"
    with pytest.raises(openai.BadRequestError, match="the body has a field 'modalities'"):
        world.openai.completions.create(**given, extra_body={"modalities": ["text"]})


@row("openai", "`embeddings.create`")
def openai_embeddings(world):
    ids = weft.load(world.runs["lm"]).text_field.encode("the cat")
    (expected,) = world.openai.embeddings.create(model="lm", input="the cat").data
    for given in (ids, [ids], ["the cat", "a"], [ids, ids]):
        found = world.openai.embeddings.create(model="lm", input=given, encoding_format="float")
        assert found.data[0].embedding == pytest.approx(expected.embedding)
    assert len(found.data) == 2
    assert found.usage.total_tokens == 2 * len(ids)
    with pytest.raises(openai.BadRequestError, match="dimensions is 3; expected 16"):
        world.openai.embeddings.create(model="lm", input="a", dimensions=3)
    with pytest.raises(openai.BadRequestError, match="an n-gram model has no state vector"):
        world.openai.embeddings.create(model="ngram", input="a")


@row("openai", "`chat.completions.create`, `responses.create`")
def openai_chat(world):
    messages = [{"role": "user", "content": "Hello"}]
    with pytest.raises(openai.BadRequestError, match="no chat here; the model lm can: generate, embed, session"):
        world.openai.chat.completions.create(model="lm", messages=messages)
    with pytest.raises(openai.BadRequestError, match="no chat here; the model ner can: tag"):
        world.openai.responses.create(model="ner", input="Hello")
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        world.openai.chat.completions.create(model="gpt", messages=messages)


@row("huggingface_hub", "`text_generation`")
def hub_text_generation(world):
    lm = world.hub("lm")
    greedy = world.generated("lm", "the cat", tokens=20, sampler=weft.greedy)
    assert lm.text_generation("the cat", max_new_tokens=20) == greedy
    assert lm.text_generation("the cat", max_new_tokens=20, return_full_text=True) == f"the cat{greedy}"
    assert lm.text_generation("dog the cat", max_new_tokens=20, truncate=7) == greedy
    sample = weft.Sample(0.9, top_k=9, top_p=0.95, typical_p=0.95, repetition_penalty=1.2, frequency_penalty=0.1)
    expected = world.generated("lm", "the cat", tokens=20, sampler=sample, seed=3)
    options = {"temperature": 0.9, "top_k": 9, "top_p": 0.95, "typical_p": 0.95, "repetition_penalty": 1.2,
               "frequency_penalty": 0.1, "seed": 3}  # fmt: skip
    assert lm.text_generation("the cat", max_new_tokens=20, **options) == expected
    stopped = lm.text_generation("the cat", max_new_tokens=20, stop=[greedy[4:6]])
    assert stopped == greedy[: greedy.index(greedy[4:6])]
    expected = world.generated("lm", "a", tokens=9, sampler=weft.Sample(), seed=2)
    assert lm.text_generation("a", max_new_tokens=9, do_sample=True, seed=2) == expected
    expected = world.generated("hmm", "the cat", tokens=5, sampler=weft.greedy)
    assert world.hub("hmm").text_generation("the cat", max_new_tokens=5) == expected
    for wrong, message in (({"grammar": {}}, "field 'grammar'"), ({"watermark": True}, "watermark"),
                           ({"max_new_tokens": 0}, "parameters.max_new_tokens is 0")):  # fmt: skip
        with pytest.raises(Exception, match=message):
            lm.text_generation("a", **wrong)


@row("huggingface_hub", "`text_generation(details=True)`")
def hub_details(world):
    model, lm = weft.load(world.runs["lm"]), world.hub("lm")
    found = lm.text_generation("the cat", max_new_tokens=9, details=True, decoder_input_details=True, top_n_tokens=3)
    assert found.generated_text == world.generated("lm", "the cat", tokens=9, sampler=weft.greedy)
    assert "".join(one.text for one in found.details.tokens) == found.generated_text
    assert [one.id for one in found.details.tokens] == model.text_field.encode(found.generated_text)
    assert (found.details.finish_reason, found.details.generated_tokens) == ("length", 9)
    assert [top[0]["id"] for top in found.details.top_tokens] == [one.id for one in found.details.tokens]
    ids = model.text_field.encode("the cat" + found.generated_text)
    log_probs = [None, *model.model.token_log_probs(np.array(ids))]
    given = [*found.details.prefill, *found.details.tokens]
    assert [one.id for one in given] == ids
    assert given[0].logprob is None
    assert [one.logprob for one in given[1:]] == pytest.approx(log_probs[1:], abs=1e-5)
    found = lm.text_generation("a", max_new_tokens=30, do_sample=True, seed=1, best_of=3, details=True)
    sequences = [found.details, *found.details.best_of_sequences]
    means = [np.mean([one.logprob for one in each.tokens]) for each in sequences]
    assert means == sorted(means, reverse=True)
    assert found.details.seed == 1
    text = lm.text_generation("a", max_new_tokens=30, do_sample=True, seed=1, stop=["."], details=True)
    assert text.details.finish_reason == "stop_sequence"


@row("huggingface_hub", "`text_generation(stream=True)`")
def hub_stream(world):
    for name in ("lm", "ngram", "hmm"):  # tokens are characters, characters and words
        client, options = world.hub(name), {"max_new_tokens": 25, "do_sample": True, "seed": 5}
        expected = world.generated(name, "the cat", tokens=25, sampler=weft.Sample(), seed=5)
        assert "".join(client.text_generation("the cat", stream=True, **options)) == expected
        events = list(client.text_generation("the cat", stream=True, details=True, **options))
        assert "".join(one.token.text for one in events) == expected == events[-1].generated_text
        whole = client.text_generation("the cat", details=True, **options)
        assert [(one.token.id, one.token.text, one.token.logprob) for one in events] == [
            (one.id, one.text, one.logprob) for one in whole.details.tokens
        ]
        assert events[-1].details.finish_reason == "length"
        assert [one.generated_text for one in events[:-1]] == [None] * 24
    stopped = list(world.hub("lm").text_generation("the cat", stream=True, details=True, stop=["t"], **options))
    assert stopped[-1].generated_text == "".join(one.token.text for one in stopped)
    assert stopped[-1].details.finish_reason == "stop_sequence"


@row("huggingface_hub", "`feature_extraction`")
def hub_features(world):
    expected = world.openai.embeddings.create(model="lm", input=["the cat", "a"]).data
    found = world.hub("lm").feature_extraction(["the cat", "a"])
    np.testing.assert_allclose(found, [one.embedding for one in expected], rtol=1e-6)
    assert world.hub("lm").feature_extraction("the cat").shape == (1, 16)
    unit = world.hub("lm").feature_extraction("the cat", normalize=True)
    np.testing.assert_allclose(unit, found[:1] / np.linalg.norm(found[0]), rtol=1e-5)
    with pytest.raises(Exception, match="dimensions is 3; expected 16"):
        world.hub("lm").feature_extraction("a", dimensions=3)
    with pytest.raises(Exception, match="'normalize'; expected it for language models only"):
        world.hub("sentiment").feature_extraction("a", normalize=True)
    with pytest.raises(Exception, match="is for language models; the model sentiment answers text_classification"):
        world.hub("sentiment").feature_extraction("a")
    with pytest.raises(Exception, match="the model ner answers token_classification: the parameter 'max_new_tokens'"):
        world.hub("ner").text_generation("a", max_new_tokens=3)


@row("huggingface_hub", "`text_classification`, `token_classification`, `fill_mask`, `translation`")
def hub_pipelines(world):
    """Compared with the command line in test_serve.py."""
    assert world.hub("sentiment").text_classification("a good film")[0].label == "pos"
    assert [one.entity_group for one in world.hub("ner").token_classification("Ann saw Bob .")] == ["PER", "PER"]
    assert len(world.hub("fill").fill_mask("the <mask> sat", top_k=3)) == 3
    assert len(world.hub("hmm").fill_mask("the <mask> sat", top_k=3)) == 3
    assert world.hub("en-fr").translation("the cat sat.").translation_text


@row("huggingface_hub", "`chat_completion`")
def hub_chat(world):
    hub, messages = pytest.importorskip("huggingface_hub"), [{"role": "user", "content": "Hello"}]
    with pytest.raises(hub.errors.BadRequestError, match="no chat here; the model lm can: generate, embed, session"):
        world.hub("lm").chat_completion(messages)
    with pytest.raises(hub.errors.BadRequestError, match="no chat here; the model ner can: tag"):
        world.hub("").chat_completion(messages, model="ner")


@row("huggingface_hub", "`question_answering`, `sentence_similarity`, `zero_shot_classification`")
def hub_refused(world):
    hub = pytest.importorskip("huggingface_hub")
    with pytest.raises(hub.errors.BadRequestError, match=r"inputs is {.*}; expected a string or a list"):
        world.hub("lm").question_answering(question="Who?", context="Ann.")
    with pytest.raises(hub.errors.BadRequestError, match=r"inputs is {.*}; expected a string or a list"):
        world.hub("lm").sentence_similarity("a", other_sentences=["b"])
    with pytest.raises(hub.errors.BadRequestError, match="candidate_labels"):
        world.hub("sentiment").zero_shot_classification("a", ["b", "c"])


@row("ollama", "`generate`")
def ollama_generate(world):
    sample = weft.Sample(**{**SAMPLING, **MORE_SAMPLING})
    expected = world.generated("lm", "the cat", tokens=20, seed=3, sampler=sample)
    options = {**SAMPLING, **MORE_SAMPLING, "num_predict": 20, "seed": 3, "repeat_last_n": -1}
    options["repeat_penalty"] = options.pop("repetition_penalty")
    found = world.ollama.generate(model="lm:latest", prompt="the cat", options=options, raw=True, think=False)
    assert (found.response, found.done_reason, found.eval_count) == (expected, "length", 20)
    pieces = list(world.ollama.generate(model="lm", prompt="the cat", options=options, stream=True))
    assert "".join(one.response for one in pieces) == expected
    logged = world.ollama.generate(model="lm", prompt="the cat", options=options, logprobs=True, top_logprobs=2)
    assert "".join(one.token for one in logged.logprobs) == expected
    assert [len(one.top_logprobs) for one in logged.logprobs] == [2] * 20
    texts = {world.ollama.generate(model="lm", prompt="a", options={"seed": -1}).response for _ in range(3)}
    assert len(texts) > 1
    penalized = world.ollama.generate(model="lm", prompt="a", options={"repeat_penalty": 1.9, "temperature": 0})
    assert penalized.response != world.ollama.generate(model="lm", prompt="a", options={"temperature": 0}).response


@row("ollama", '`generate(model="lm")`')
def ollama_loads(world):
    assert world.ollama.generate(model="lm", keep_alive=60).done_reason == "load"
    (loaded,) = world.ollama.generate(model="lm", prompt="", stream=True)
    assert (loaded.response, loaded.done) == ("", True)


@row("ollama", '`generate(keep_alive=..., options={"num_ctx": ...})`')
def ollama_ignored(world):
    body = {"model": "lm", "prompt": "a", "stream": False, "keep_alive": 0, "options": {"num_ctx": 8, "num_thread": 1}}
    answer = world.server.ask("/api/generate", body)
    assert answer.headers["weft-ignored"] == "keep_alive, num_ctx, num_thread"
    assert world.ollama.generate(model="lm", prompt="a", keep_alive=0, options={"num_ctx": 8, "mirostat": 0}).response
    for wrong in ({"mirostat": 2}, {"repeat_last_n": 64}, {"tfs_z": 0.5}, {"temprature": 1}):
        with pytest.raises(Exception, match=next(iter(wrong))):
            world.ollama.generate(model="lm", prompt="a", options=wrong)


@row("ollama", '`generate(system=..., format="json")`')
def ollama_unsupported(world):
    for wrong in ({"system": "Be kind."}, {"format": "json"}, {"suffix": "end"}, {"context": [1]}, {"think": True}):
        with pytest.raises(Exception, match=f"{next(iter(wrong))} is not supported by a model that continues a text"):
            world.ollama.generate(model="lm", prompt="a", **wrong)
    assert world.ollama.generate(model="lm", prompt="a", system="", format="", context=[]).response


@row("ollama", "`embed`, `embeddings`")
def ollama_embed(world):
    expected = [one.embedding for one in world.openai.embeddings.create(model="lm", input=["the cat", "a"]).data]
    found = world.ollama.embed(model="lm", input=["the cat", "a"])
    np.testing.assert_allclose(found.embeddings, [one / np.linalg.norm(one) for one in expected], rtol=1e-6)
    assert len(world.ollama.embed(model="lm", input="the cat").embeddings) == 1
    np.testing.assert_allclose(world.ollama.embeddings(model="lm", prompt="the cat").embedding, expected[0], rtol=1e-6)
    with pytest.raises(Exception, match="an n-gram model has no state vector"):
        world.ollama.embed(model="ngram", input="a")


@row("ollama", "`list`, `ps`, `show`")
def ollama_models(world):
    names = {"lm", "ngram", "hmm"}
    assert {one.model for one in world.ollama.list().models} == names
    assert {one.model for one in world.ollama.ps().models} == names
    for name in names:
        shown = world.ollama.show(name)
        assert shown.details.family == shown.modelinfo["general.architecture"] == name
        assert shown.modelinfo["general.parameter_count"] > 0
        assert ("embedding" in shown.capabilities) == (name != "ngram")
    for wrong, message in (("none", "there is no model 'none'"), ("ner", "generates no text; it can: tag")):
        with pytest.raises(Exception, match=message):
            world.ollama.show(wrong)


@row("ollama", "`chat`")
def ollama_chat(world):
    with pytest.raises(Exception, match="there is no chat here; the model lm can: generate, embed, session"):
        world.ollama.chat(model="lm:latest", messages=[{"role": "user", "content": "Hello"}])


@row("ollama", "`pull`, `push`, `create`, `copy`, `delete`")
def ollama_refused(world):
    for call in (lambda: world.ollama.pull("a"), lambda: world.ollama.push("lm"), lambda: world.ollama.delete("lm"),
                 lambda: world.ollama.create(model="a", from_="lm"), lambda: world.ollama.copy("lm", "b")):  # fmt: skip
        with pytest.raises(Exception, match="models are not changed by requests; expected them as arguments of"):
            call()


@row("ollama", "`GET /api/version`")
def ollama_version(world):
    assert world.server.ask("/api/version").body == {"version": weft.__version__}


@row("libretranslatepy", "`translate`, `languages`")
def libretranslate_translate(world):
    expected = weft.load(world.runs["en-fr"]).translate(["the cat sat.", "a dog ran."])
    assert world.libretranslate.translate("the cat sat.", "en", "fr") == expected[0]
    assert world.libretranslate.translate("the cat sat.\na dog ran.", "auto", "fr") == "\n".join(expected)
    assert [one["code"] for one in world.libretranslate.languages()] == ["en", "fr"]
    answer = world.server.ask("/translate", {"q": ["the cat sat.", "un chien."], "target": "fr"}).body
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "fr"]
    assert "detectedLanguage" not in world.server.ask("/translate", {"q": "the cat", "source": "en"}).body


@row("libretranslatepy", "`detect`")
def libretranslate_detect(world):
    for text, language in (("the dog saw a cat", "en"), ("le chien et le chat", "fr")):
        first, second = world.libretranslate.detect(text)
        assert first["language"] == language
        assert first["confidence"] > 90
        assert first["confidence"] + second["confidence"] == pytest.approx(100, abs=0.2)
    assert world.server.ask("/detect", {"q": " "}).body["error"].startswith("the text is empty")


@row("libretranslatepy", "`POST /translate_file`")
def libretranslate_file(world):
    expected = weft.load(world.runs["en-fr"]).translate(["the cat sat.", "a dog ran."])

    def send(name: str, content: bytes, **fields: str) -> Any:
        parts = [f'name="{field}"\r\n\r\n{value}'.encode() for field, value in fields.items()]
        head = f'name="file"; filename="{name}"\r\nContent-Type: text/plain\r\n\r\n'.encode()
        form = b"".join(b"--X\r\nContent-Disposition: form-data; %s\r\n" % part for part in [*parts, head + content])
        kind = {"Content-Type": "multipart/form-data; boundary=X"}
        return world.server.ask("/translate_file", form + b"--X--\r\n", headers=kind)

    answer = send("my text.txt", b"the cat sat.\r\na dog ran.\n", source="en", target="fr")
    assert answer.status == 200, answer
    address = answer.body["translatedFileUrl"]
    assert address.startswith(f"{world.server.address}/download_file/")
    found = world.server.ask(address.removeprefix(world.server.address))
    assert found.body == "\n".join([*expected, ""])
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert send("my.docx", b"the cat", source="en", target="fr").body["error"].startswith("the file is 'my.docx'")
    assert "no UTF-8" in send("my.txt", b"\xff\xfe", source="en", target="fr").body["error"]
    assert world.server.ask("/download_file/none.txt").status == 404


@row("libretranslatepy", "`GET /frontend/settings`")
def libretranslate_settings(world):
    settings = world.server.ask("/frontend/settings").body
    assert settings["language"]["source"] == {"code": "en", "name": "en"}
    assert (settings["keyRequired"], settings["supportedFilesFormat"]) == (False, [".txt"])
    assert settings["charLimit"] == 100_000


@row("libretranslatepy", "`GET /spec`, `GET /docs`")
def libretranslate_description(world):
    assert world.server.ask("/spec").body == world.server.ask("/openapi.json").body
    page = world.server.ask("/docs")
    assert page.headers["content-type"].startswith("text/html")
    for path in world.server.ask("/openapi.json").body["paths"]:
        assert f"{path}</code>" in page.body
