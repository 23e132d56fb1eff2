"""Long checks of `weft serve`: nothing leaks, nothing fails.

python -m tests.long.serve_soak requests 10000     that many requests of every kind; memory and files stay flat
python -m tests.long.serve_soak load 10            minutes at 80% of the highest rate: no error, memory flat
python -m tests.long.serve_soak slow 60            clients that send a byte a second, for so many seconds
python -m tests.long.serve_soak drops 100           clients that go away; how long each computation goes on
python -m tests.long.serve_soak schema 500         schemathesis over /openapi.json, with so many examples for each route
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.serving import Served, served, train_runs, wait_for

GROWTH = 48 << 20  # bytes that caches and the allocator may take after the warm-up
SESSIONS = 100


def one_request(server: Served, number: int) -> int:
    """One request; the kinds take turns. Returns its status, 0 where the client goes away."""
    kind = number % 10
    if kind == 0:
        return server.ask("/models/ner", {"inputs": f"Ann Lee went to Paris {number}."}).status
    if kind == 1:
        return server.ask("/models/sentiment", {"inputs": "a very good day " * (number % 30 + 1)}).status
    if kind == 2:
        return server.ask("/translate", {"q": "the cat sat."}).status
    if kind == 3:
        return server.ask("/v1/completions", {"model": "lm", "prompt": "the", "max_tokens": 20, "n": 2}).status
    if kind == 4:
        return server.ask("/weft/sessions", {"model": "lm", "text": "the cat sat"}).status - 1
    if kind == 5:
        body = {"model": "lm", "prompt": "a", "max_tokens": 5, "session": f"s{number % 300}"}
        return 200 if server.ask("/v1/completions", body).status in (200, 409) else 500
    if kind == 6:
        return server.ask("/weft/look/lm/surprisal", {"text": "the cat sat"}).status
    if kind == 7:
        return 200 if server.ask("/v1/completions", b"{broken").status == 400 else 500
    return drop(server, stream=kind == 8)


def drop(server: Served, *, stream: bool) -> int:
    """A client that goes away: after the first event of a stream, or before the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {"model": "ngram", "prompt": "the", "max_tokens": 4000, "stream": stream}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if stream:
        connection.getresponse().readline()
    connection.close()
    return 0


def check_requests(server: Served, count: int) -> None:
    """Memory and open files after a warm-up and at the end."""
    statuses: dict[int, int] = {}
    before = files = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for begin in range(0, count, count // 10):
            for status in pool.map(lambda at: one_request(server, at), range(begin, begin + count // 10)):
                statuses[status] = statuses.get(status, 0) + 1
            print(f"{begin + count // 10:,} requests: {server.memory() >> 20} MB, {server.files()} files", flush=True)
            if begin == 2 * (count // 10):
                before, files = server.memory(), server.files()
    time.sleep(2)
    assert set(statuses) == {0, 200}, statuses
    assert server.metric("weft_sequences") == 0, "a dropped stream is still generated"
    assert server.metric("weft_queue_length") == 0
    assert server.metric("weft_sessions") == SESSIONS
    growth = server.memory() - before
    assert growth < GROWTH, f"the memory grew by {growth >> 20} MB"
    assert server.files() <= files + 5, "files are left open"
    print(f"{count:,} requests, {statuses[0]:,} dropped: memory {growth / (1 << 20):+.1f} MB after the first 30%")


def check_load(server: Served, minutes: float) -> None:
    """A steady load at 80% of the highest rate."""
    kinds = [0, 1, 2, 3, 6]
    begin, count = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        while time.monotonic() - begin < 5:
            list(pool.map(lambda at: one_request(server, 10 * at + random.choice(kinds)), range(100)))
            count += 100
        rate = 0.8 * count / (time.monotonic() - begin)
        print(f"load of {rate:.0f} requests/s for {minutes:g} minutes", flush=True)
        errors, sent, waiting, late = 0, 0, threading.Semaphore(64), 0
        begin, before = time.monotonic(), server.memory()

        def send(number: int) -> None:
            nonlocal errors
            try:
                errors += one_request(server, 10 * number + kinds[number % len(kinds)]) != 200
            finally:
                waiting.release()

        while (passed := time.monotonic() - begin) < 60 * minutes:
            if sent < rate * passed:
                waiting.acquire()
                pool.submit(send, sent)
                sent += 1
                if sent % 5000 == 0:
                    print(f"{passed / 60:.1f} minutes, {sent:,} requests: {server.memory() >> 20} MB", flush=True)
            else:
                time.sleep(0.002)
            late = max(late, int(rate * passed) - sent)
    growth = server.memory() - before
    assert not errors, f"{errors} errors"
    assert growth < GROWTH, f"the memory grew by {growth >> 20} MB"
    print(f"{sent:,} requests in {minutes:g} minutes, no error, memory {growth / (1 << 20):+.1f} MB")


def check_slow(server: Served, seconds: float) -> None:
    """A hundred clients that send a byte a second; others are answered meanwhile, and the slow ones are cut off."""
    head = (
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"
    )
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for number, one in enumerate(slow):
        one.sendall(head if number % 2 else head[:30])
    worst, begin, cut = 0.0, time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        for one in slow:
            try:
                one.sendall(b" ")
            except OSError:
                cut += 1
                one.close()
        slow = [one for one in slow if one.fileno() >= 0]
        began = time.monotonic()
        assert server.ask("/models/sentiment", {"inputs": "a good film"}).status == 200
        worst = max(worst, time.monotonic() - began)
        time.sleep(1)
    for one in slow:
        one.close()
    print(f"100 slow clients for {seconds:g} s: others were answered within {worst:.3f} s; {cut} were cut off")
    assert worst < 1
    assert cut == 100 or seconds < 15


def check_drops(server: Served, count: int) -> None:
    """Clients that go away, streaming or not: the computation stops within a second."""
    times = []
    for number in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        body = {"model": "ngram", "prompt": "the", "max_tokens": 4000, "stream": number % 2 == 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        wait_for(lambda: server.metric("weft_sequences") == 1, 10, "it is being generated")
        began = time.monotonic()
        connection.close()
        wait_for(lambda: server.metric("weft_sequences") == 0, 10, "it stops")
        times.append(time.monotonic() - began)
    print(f"{count} clients went away: the computation stopped after {max(times):.3f} s at most")
    assert max(times) < 1


def check_schema(server: Served, examples: int, *more: str) -> None:
    """schemathesis: no 500, and no answer that its schema does not allow."""
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    command = [str(Path(sys.executable).parent / "schemathesis"), "run", f"{server.address}/openapi.json"]
    command += ["--max-examples", str(examples), "--checks", f"{checks},negative_data_rejection"]
    command += ["--request-timeout", "60", "--seed", "1", "--no-color", *more]
    with tempfile.TemporaryDirectory() as folder:  # where it keeps its own files
        (Path(folder) / "schemathesis.toml").write_text(REFUSALS, encoding="utf-8")
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    print("\n".join(done.stdout.splitlines()[-12:]))
    assert done.returncode == 0, "\n".join(line[:LONGEST_LINE] for line in done.stdout.splitlines())


LONGEST_LINE = 300  # of a report: it has whole bodies
# How a body that does not fit its schema is refused: also with 413, where it is larger than a body may be.
REFUSALS = """[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
"""


CHECKS: dict[str, Any] = {"requests": check_requests, "load": check_load, "slow": check_slow, "drops": check_drops,
                          "schema": check_schema}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("amount", type=float)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "runs").mkdir()
        runs = train_runs(folder / "runs")
        some = ["--runs", folder / "runs", "--sessions", folder / "sessions", "--max-sessions", str(SESSIONS)]
        with served(*runs.values(), *some) as server:
            amount = int(options.amount) if options.check in ("requests", "drops", "schema") else options.amount
            CHECKS[options.check](server, amount)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
