"""Load on a running server: many requests at once, one in ten of them bad, in several rounds.

    python -m benchmarks.measure_server_load MODEL --smiles molecules.csv --out results/server-load.json

The program starts ``graphcaps serve MODEL`` and sends it requests from as many threads as there are concurrent
requests; each sends the next request as soon as it has its response. A good request is one molecule for ``/predict``
and must be answered with status 200. Bad requests have a wrong content type, invalid JSON, no readable molecule, an
unknown option, or too large a body, in turn; each must be answered with its status and ``{"error": …}``. After each
round the memory of the server and of its workers is read (resident set, Linux only).
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from graphcaps._io.provenance import describe_hardware

MAX_MB = 1.0


@dataclass(frozen=True)
class LoadRequest:
    """A request and the status that it must get."""

    path: str
    content_type: str
    body: bytes
    status: int


@dataclass(frozen=True)
class Round:
    """Result of one round.

    Args:
        requests (int): Number of requests.
        good (int): Number of good ones.
        good_answered (int): Number of good requests that were answered with status 200.
        bad_answered (int): Number of bad requests that were answered with the status that they must get, and an error.
        seconds (float): Time of the round.
        p50_ms, p99_ms, max_ms (float): Quantiles of the response time of good requests, in milliseconds.
        memory_mb (float): Resident memory of the server and its workers after the round, in MB; 0 if it is unknown.
    """

    requests: int
    good: int
    good_answered: int
    bad_answered: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    memory_mb: float


BAD = (
    LoadRequest("/predict", "text/plain", b"CCO", 415),
    LoadRequest("/predict", "application/json", b'{"smiles": [', 422),
    LoadRequest("/predict", "application/json", b'{"smiles": ["no molecule"]}', 422),
    LoadRequest("/predict?no_option=1", "application/json", b'{"smiles": ["CCO"]}', 422),
    LoadRequest("/predict", "application/json", b" " * int(MAX_MB * 1e6 + 1), 413),
)


def make_requests(smiles: Sequence[str], number: int, *, one_bad_in: int = 10) -> list[LoadRequest]:
    """Requests of one molecule each, and bad ones at regular places."""
    bad, good = cycle(BAD), cycle(smiles)
    return [
        next(bad)
        if index % one_bad_in == one_bad_in - 1
        else LoadRequest("/predict", "application/json", json.dumps({"smiles": [next(good)]}).encode(), 200)
        for index in range(number)
    ]


@contextmanager
def running_server(model: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Process number and port of ``graphcaps serve``."""
    command = [sys.executable, "-m", "graphcaps", "serve", str(model), "--port", "0", "--max-mb", str(MAX_MB)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        if match is None:
            raise SystemExit("The server did not start; see the messages above.")
        yield process.pid, int(match[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def run_round(port: int, requests: Sequence[LoadRequest], *, concurrent: int, server: int) -> Round:
    """Sends all requests, ``concurrent`` at a time.

    Args:
        port (int): Port of the server.
        requests (sequence): The requests.
        concurrent (int): Number of threads, each with a connection of its own.
        server (int): Process number of the server.
    """
    answers: list[tuple[LoadRequest, int, float]] = []
    queue, lock = iter(requests), threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            with lock:
                request = next(queue, None)
            if request is None:
                break
            start = time.perf_counter()
            status = _send(connection, request)
            answers.append((request, status, time.perf_counter() - start))
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(concurrent)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    good = [(status, time) for request, status, time in answers if request.status == 200]
    times = 1000 * np.array([time for _, time in good])
    return Round(
        requests=len(answers),
        good=len(good),
        good_answered=sum(status == 200 for status, _ in good),
        bad_answered=sum(status == one.status for one, status, _ in answers if one.status != 200),
        seconds=round(seconds, 2),
        p50_ms=round(float(np.quantile(times, 0.5)), 1),
        p99_ms=round(float(np.quantile(times, 0.99)), 1),
        max_ms=round(float(times.max()), 1),
        memory_mb=round(memory_of(server) / 1e6, 1),
    )


def _send(connection: http.client.HTTPConnection, request: LoadRequest) -> int:
    """Status of the response; 0 without one, or if it does not have the form that it must have."""
    try:
        connection.request("POST", request.path, request.body, {"Content-Type": request.content_type})
        response = connection.getresponse()
        content = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError):
        connection.close()  # the next request opens it again
        return 0
    expected = {"classes", "predictions"} if response.status == 200 else {"error"}
    return response.status if set(content) == expected else 0


def memory_of(process: int) -> int:
    """Bytes of resident memory of a process and of all that it has started; 0 if the system does not say."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return (1024 * int(match[1]) if match else 0) + sum(memory_of(int(child)) for child in children)


def measure(model: Path, smiles: Sequence[str], settings: argparse.Namespace) -> list[Round]:
    """All rounds against one server."""
    requests = make_requests(smiles, settings.requests)
    rounds = []
    with running_server(model, "--workers", str(settings.workers)) as (server, port):
        for request in islice(requests, 5):  # the first requests import what the worker needs
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                _send(connection, request)
        for _ in range(settings.rounds):
            rounds.append(run_round(port, requests, concurrent=settings.concurrent, server=server))
            print(rounds[-1], flush=True)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a model file that reads molecules")
    parser.add_argument("--smiles", type=Path, required=True, help="a table with a column 'smiles'")
    parser.add_argument("--requests", type=int, default=1000, help="requests per round")
    parser.add_argument("--concurrent", type=int, default=50, help="requests at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file for the results")
    settings = parser.parse_args()
    with settings.smiles.open(encoding="utf-8") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    load = round(os.getloadavg()[0], 1)  # of other programs
    rounds = measure(settings.model, smiles, settings)
    names = ("requests", "concurrent", "rounds", "workers")
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.measure_server_load MODEL --smiles {settings.smiles.name}",
        "hardware": describe_hardware("cpu"),
        "load_average": load,
        "molecules": settings.smiles.stem,
        "settings": {name: vars(settings)[name] for name in names},
        "rounds": [asdict(one) for one in rounds],
    }
    if settings.out is not None:
        settings.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
