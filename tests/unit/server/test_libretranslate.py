"""LibreTranslate's API in this process: several translators, runs of earlier versions, forms, keys."""

from __future__ import annotations

import asyncio

import pytest
from starlette.testclient import TestClient

import weft
from weft.server.app import Server
from weft.server.config import ServerConfig
from weft.server.libretranslate_api import MOST_FILES, find_translator
from weft.tasks.translate.language_detection import PROFILES_FILE

TINY = {"model.hidden_size": 4, "model.embedding_dim": 4}
PAIRS = {
    "en-fr": (["the cat sat.", "a dog ran."], ["le chat.", "un chien."]),
    "zh-en": (["猫坐下了。", "狗跑了。"], ["the cat sat.", "a dog ran."]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, (sources, targets) in PAIRS.items():
        pairs = weft.Pairs(name, sources * 20, targets * 20)
        weft.start_translate(pairs, folder / name, TINY, dev=pairs)
    return {name: folder / name for name in PAIRS}


def client_of(runs, **config):
    server = Server(runs, ServerConfig(**config))
    return server, TestClient(server.app, base_url="http://127.0.0.1")


@pytest.mark.parametrize(("text", "language", "translator"), [
    ("the dog", "en", "en-fr"), ("le chien", "fr", "en-fr"), ("狗坐下了", "zh", "zh-en"),
])  # fmt: skip
def test_the_language_selects_the_translator(runs, text, language, translator):
    server, client = client_of(runs)
    with client:
        found = client.post("/detect", data={"q": text}).json()
        assert found[0]["language"] == language
        assert {one["language"] for one in found} == {"en", "fr", "zh"}
        model, detected = asyncio.run(find_translator(server.context, {"source": "auto"}, [text]))
        assert detected[0].language == language
        if language != "fr":
            assert model.name == translator
        model, detected = asyncio.run(find_translator(server.context, {"source": "zh", "target": "en"}, [text]))
        assert (model.name, detected) == ("zh-en", None)


def test_a_run_of_an_earlier_version_answers_501(runs):
    text = (runs["en-fr"] / PROFILES_FILE).read_bytes()
    try:
        (runs["en-fr"] / PROFILES_FILE).unlink()
        _, client = client_of({"en-fr": runs["en-fr"]})
        with client:
            answer = client.post("/detect", json={"q": "the dog"})
            assert answer.status_code == 501
            assert answer.json()["error"].startswith("en-fr cannot detect languages: the run has no languages.json")
            assert client.post("/translate", json={"q": "the dog", "source": "auto"}).status_code == 200
    finally:
        (runs["en-fr"] / PROFILES_FILE).write_bytes(text)


def test_files_are_few_and_expire(runs, monkeypatch):
    server, client = client_of(runs)
    with client:
        addresses = []
        for number in range(MOST_FILES + 3):
            sent = {"file": (f"{number}.txt", b"the cat")}
            answer = client.post("/translate_file", data={"source": "en", "target": "fr"}, files=sent)
            addresses.append(answer.json()["translatedFileUrl"])
        codes = [client.get(address).status_code for address in addresses]
        assert codes == [404] * 3 + [200] * MOST_FILES
        for place, (made, text) in server.context.files.items():
            server.context.files[place] = (made - 1801, text)
        assert client.get(addresses[-1]).status_code == 404
        assert not server.context.files


@pytest.mark.parametrize(("kind", "body", "message"), [
    ("multipart/form-data", b"", "the form cannot be read"),
    ("multipart/form-data; boundary=X", b"--X--", "the form cannot be read"),
    ("multipart/form-data; boundary=X", b"--X\r\nno head--X--", "the form cannot be read"),
    ("multipart/form-data; boundary=X", b"--X\r\n\r\n\r\ntext\r\n--X--", "a part of the form has no name"),
    ("multipart/form-data; boundary=X", b'--X\r\nA: form-data; name="q"\r\n\r\na\r\n--X--', "no 'file'"),
    ("multipart/form-data; boundary=X", b"--X\r\nA: b\r\n\r\n1\r\n" * 101 + b"--X--", "expected 1 to 100 parts"),
    ("multipart/form-data; boundary=" + '"' * 9000, b"--X--", "the form cannot be read"),
])  # fmt: skip
def test_bad_forms_are_refused(runs, kind, body, message):
    _, client = client_of({"en-fr": runs["en-fr"]})
    with client:
        answer = client.post("/translate_file", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 400
        assert message in answer.json()["error"]


def test_a_server_with_a_key(runs):
    _, client = client_of({"en-fr": runs["en-fr"]}, api_key="secret")
    with client:
        for path, body in (
            ("/translate", {"q": "a dog"}),
            ("/detect", {"q": "a dog"}),
            ("/translate_file", {"file": "a"}),
        ):
            assert client.post(path, data=body).status_code == 401
            assert client.post(path, data={**body, "api_key": "wrong"}).status_code == 401
            assert client.post(path, data={**body, "api_key": "secret"}).status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        assert client.get("/languages").status_code == 200  # its clients send the key in the body of a GET


def test_without_a_translator():
    _, client = client_of({})
    with client:
        assert client.post("/detect", json={"q": "a"}).json() == {"error": "no model here translates"}
        assert client.get("/frontend/settings").json()["language"]["source"]["code"] == ""
