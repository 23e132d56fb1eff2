"""Speed of `weft serve`: requests per second and latency beside a plain FastAPI handler, and tokens per second.

    python -m benchmarks.speed.serve runs/bench [--seconds 4] [--only tag] [--size small]

Trains small and default-size models on the embedded grammars (a few steps: sizes matter here, not quality), then
measures, on loopback, 1, 8 and 64 clients that keep their connection and send the next request when they have an
answer. The peer is the same loaded model behind a FastAPI handler without batching, as a `def` and as an `async def`
handler; the faster of the two counts. The bound is `/health`: HTTP alone. Streams are server-sent events; their peer
sends the pieces of the model's own `stream` from a handler of its own for each client. Prints rows of a table.

The last table compares one client with direct calls. They take turns, sentence by sentence: measured one after the
other, they would differ by what the machine does meanwhile, which is more than the server adds to a translation. A
direct call computes with all threads, its default, and with one, as the server computes short
texts; the difference is that to the faster of the two.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded, as the command line sets it

import numpy as np

CLIENTS = (1, 8, 64)
SIZES = {"small": {"model.hidden_size": 32}, "default": {}}
SOURCES = {"classify": "grammar", "tag": "grammar", "translate": "grammar-fr"}
MINUTES = {"classify": 0.3, "tag": 0.4, "translate": 2.0, "lm": 0.5}
TOKENS = 200  # of each generated text
ROUNDS = 3  # of all sentences, beside direct calls


class Load(NamedTuple):
    """What some clients measured."""

    rate: float  # requests per second
    p50: float  # milliseconds
    p99: float
    errors: int


def train(folder: Path) -> dict[str, Path]:
    """The runs to serve, trained once."""
    import weft

    runs = {}
    for task in ("classify", "tag", "translate", "lm"):
        for size, settings in SIZES.items():
            path = folder / f"{task}-{size}"
            runs[path.name] = path
            if path.exists():
                continue
            changes: dict[str, Any] = {**settings, "train.minutes": MINUTES[task]}
            if size == "small" and task == "translate":
                changes |= {"model.embedding_dim": 32}
            weft.train(task, SOURCES.get(task, "grammar"), path, changes, progress=False)
    return runs


def sentences(count: int) -> list[str]:
    """Different sentences of the grammar, of different lengths."""
    from weft.text.grammars.english import ENGLISH

    return list(dict.fromkeys(ENGLISH.text(8 * count, seed=5).splitlines()))[:count]


async def _client(port: int, requests: Sequence[bytes], first: int, until: float, times: list[float]) -> int:
    """One client: sends requests one after the other; returns how many failed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number, errors = first, 0
    while time.perf_counter() < until:
        began = time.perf_counter()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - began)
        errors += not head.startswith(b"HTTP/1.1 200")
        number += 17
    writer.close()
    return errors


def _drive(port: int, requests: Sequence[bytes], clients: int, seconds: float, results: Any) -> None:
    async def run() -> tuple[list[float], int]:
        times: list[float] = []
        until = time.perf_counter() + seconds
        failed = await asyncio.gather(*(_client(port, requests, 5 * at, until, times) for at in range(clients)))
        return times, sum(failed)

    results.put(asyncio.run(run()))


def encode_requests(path: str, bodies: Sequence[Any]) -> list[bytes]:
    """HTTP requests that post bodies as JSON; where a body is None, a GET."""
    requests = []
    for body in bodies:
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return requests


def load(port: int, path: str, bodies: Sequence[Any], clients: int, seconds: float) -> Load:
    """Loads a server from a process of its own, after a short warm-up."""
    requests = encode_requests(path, bodies)
    spawn = multiprocessing.get_context("fork")
    for duration in (min(1.0, seconds / 2), seconds):
        queue = spawn.Queue()
        process = spawn.Process(target=_drive, args=(port, requests, clients, duration, queue))
        process.start()
        times, errors = queue.get()
        process.join()
    found = 1e3 * np.array(times)
    return Load(len(times) / seconds, float(np.median(found)), float(np.quantile(found, 0.99)), errors)


def stream(port: int, path: str, body: Any, clients: int) -> float:
    """Tokens per second of clients that each read some streams."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
    streams = 4 if clients < 64 else 2

    async def read() -> None:
        for _ in range(streams):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            answer = await reader.read()
            assert b"[DONE]" in answer
            writer.close()

    async def run() -> None:
        await asyncio.gather(*(read() for _ in range(clients)))

    asyncio.run(run())
    began = time.perf_counter()
    asyncio.run(run())
    return clients * streams * TOKENS / (time.perf_counter() - began)


PEER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import uvicorn, weft
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
model, app = weft.load(sys.argv[1]), FastAPI()
call = {"classify": lambda text: model.classify([text])[0].probabilities,
        "tag": lambda text: model.tag([text])[0].tags,
        "translate": lambda text: model.translate([text])[0],
        "lm": lambda text: model.generate(text, tokens=16)}[sys.argv[2]]
class Body(BaseModel):
    inputs: str
    tokens: int = 0
@app.post("/stream")
def stream(body: Body):
    def events():
        for (piece,) in model.stream([body.inputs], tokens=body.tokens):
            yield f"data: {json.dumps({'text': piece})}\\n\\n"
        yield "data: [DONE]\\n\\n"
    return StreamingResponse(events(), media_type="text/event-stream")
@app.post("/def")
def plain(body: Body):
    return {"result": call(body.inputs)}
@app.post("/async")
async def blocking(body: Body):
    return {"result": call(body.inputs)}
@app.get("/health")
async def health():
    return {"status": "ok"}
uvicorn.run(app, port=int(sys.argv[3]), log_level="error")
"""


@contextlib.contextmanager
def process(*command: str) -> Iterator[None]:
    """A server for the time of a `with`."""
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def wait_for(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"no server on port {port}")


def beside_direct(run: Path, task: str, port: int, texts: Sequence[str], rounds: int) -> list[float]:
    """The 99th percentiles of a direct call, of one that computes with one thread, and of a request, in milliseconds.

    How long a text takes depends on its length, and all of them take longer while the machine is slower. So every text
    goes all three ways in turn, in changing order, and all equally often.
    """
    import torch

    import weft

    model: Any = weft.load(run)
    predict = {"classify": lambda text: model.classify([text]), "tag": lambda text: model.tag([text])}.get(
        task, lambda text: model.translate([text])
    )
    threads = torch.get_num_threads()

    def call_with_one_thread(number: int) -> None:
        torch.set_num_threads(1)
        predict(texts[number])
        torch.set_num_threads(threads)

    requests = encode_requests(f"/models/{run.name}", [{"inputs": text} for text in texts])
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:

        def ask(number: int) -> None:
            connection.sendall(requests[number])
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            answers.read(length)

        ways: list[Callable[[int], Any]] = [lambda number: predict(texts[number]), call_with_one_thread, ask]
        for number in range(20):
            for way in ways:
                way(number)
        times: list[list[float]] = [[] for _ in ways]
        for turn in range(rounds * len(texts)):
            for place in range(len(ways)):
                which = (place + turn) % len(ways)
                began = time.perf_counter()
                ways[which](17 * turn % len(texts))
                times[which].append(1e3 * (time.perf_counter() - began))
    return [float(np.quantile(one, 0.99)) for one in times]


def measure(runs: dict[str, Path], tasks: Sequence[str], sizes: Sequence[str], seconds: float) -> Iterator[str]:
    """The rows of requests."""
    texts = sentences(200)
    bodies = [{"inputs": text} for text in texts]
    some = next(iter(runs.values()))
    with process(sys.executable, "-m", "weft", "serve", str(some), "--port", "18431"):
        wait_for(18431)
        yield "| HTTP alone | requests/s | p50 ms | p99 ms |\n| --- | --- | --- | --- |"
        for clients in CLIENTS:
            found = load(18431, "/health", [None], clients, seconds)
            yield f"| {clients} clients | {found.rate:,.0f} | {found.p50:.2f} | {found.p99:.2f} |"
    yield "\n| model | clients | weft requests/s | p50 ms | p99 ms | FastAPI requests/s | p50 ms | p99 ms | ratio |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    directs = []
    for task in tasks:
        for size in sizes:
            name = f"{task}-{size}"
            ours: dict[int, Load] = {}
            with process(sys.executable, "-m", "weft", "serve", str(runs[name]), "--port", "18432"):
                wait_for(18432)
                for clients in CLIENTS:
                    ours[clients] = load(18432, f"/models/{name}", bodies, clients, seconds)
                p99 = beside_direct(runs[name], task, 18432, texts, ROUNDS)
            with process(sys.executable, "-c", PEER, str(runs[name]), task, "18433"):
                wait_for(18433)
                for clients in CLIENTS:
                    both = [load(18433, path, bodies, clients, seconds) for path in ("/def", "/async")]
                    peer = max(both, key=lambda one: one.rate)
                    one = ours[clients]
                    errors = one.errors + peer.errors
                    yield (
                        f"| {task}, {size} | {clients} | {one.rate:,.0f} | {one.p50:.1f} | {one.p99:.1f} | "
                        f"{peer.rate:,.0f} | {peer.p50:.1f} | {peer.p99:.1f} | {one.rate / peer.rate:.1f} |"
                        + (f"  {errors} errors" if errors else "")
                    )
            directs.append(
                f"| {task}, {size} | {p99[0]:.1f} | {p99[1]:.1f} | {p99[2]:.1f} | {p99[2] - min(p99[:2]):+.1f} |"
            )
    yield "\n| model | p99 of a direct call, ms | with one thread | p99 of one client, ms | difference to the faster |"
    yield "| --- | --- | --- | --- | --- |"
    yield from directs


def measure_streams(runs: dict[str, Path], sizes: Sequence[str]) -> Iterator[str]:
    """The rows of streams."""
    yield "\n| streams | clients | weft tokens/s | FastAPI tokens/s | ratio |\n| --- | --- | --- | --- | --- |"
    for name in (f"lm-{size}" for size in sizes):
        body = {"model": name, "prompt": "the ", "max_tokens": TOKENS, "stream": True}
        with process(sys.executable, "-m", "weft", "serve", str(runs[name]), "--port", "18434"):
            wait_for(18434)
            ours = [stream(18434, "/v1/completions", body, clients) for clients in CLIENTS]
        with process(sys.executable, "-c", PEER, str(runs[name]), "lm", "18435"):
            wait_for(18435)
            theirs = [stream(18435, "/stream", {"inputs": "the ", "tokens": TOKENS}, clients) for clients in CLIENTS]
        for clients, one, other in zip(CLIENTS, ours, theirs, strict=True):
            shown = name.replace("-", ", ")
            yield f"| {shown} | {clients} | {one:,.0f} | {other:,.0f} | {one / other:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs are, or are trained")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each figure (4)")
    parser.add_argument("--only", choices=[*SOURCES, "lm"], help="one task")
    parser.add_argument("--size", choices=[*SIZES], help="one size")
    parser.add_argument("--train", action="store_true", help="train the runs and stop")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = train(options.folder)
    if options.train:
        return
    sizes = [options.size] if options.size else list(SIZES)
    tasks = [options.only] if options.only else list(SOURCES)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", flush=True)
    if options.only != "lm":
        for line in measure(runs, tasks, sizes, options.seconds):
            print(line, flush=True)
    if options.only in (None, "lm"):
        for line in measure_streams(runs, sizes):
            print(line, flush=True)


if __name__ == "__main__":
    main()
