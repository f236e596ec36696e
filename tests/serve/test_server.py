"""A running server with a scripted worker: signals, grace, reloading, and the form of errors."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="sends signals of POSIX")

SCRIPT = Path(__file__).with_name("scripted_worker.py")
SECONDS = 120.0  # bounds what hangs, also on a machine that is busy
START = """
import sys
from graphcaps.serve import Limits, serve, worker_process
worker_process.WORKER = (sys.argv[1],)
serve(sys.argv[2], port=0, limits=Limits(**eval(sys.argv[3])), on_ready=lambda *ready: print(ready[0], flush=True))
"""


@dataclass
class Running:
    """A server process and its port."""

    process: subprocess.Popen[str]
    port: int
    answers: list[tuple[int, Any]] = field(default_factory=list)

    def request(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path, body, {"Content-Type": "text/csv"} | headers)
        response = connection.getresponse()
        self.answers.append((response.status, json.loads(response.read())))
        connection.close()
        return self.answers[-1]

    def post_later(self, body: str) -> threading.Thread:
        thread = threading.Thread(target=self.request, args=("POST", "/predict", body))
        thread.start()
        return thread

    def health(self) -> Any:
        """What ``/health`` says; no entry of ``answers``."""
        answer = self.request("GET", "/health")
        self.answers.remove(answer)
        return answer[1]

    def refuses_connections(self) -> bool:
        """Whether the server has begun to end."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS).close()
        except ConnectionRefusedError:
            return True
        return False

    def end(self, ending: int) -> str:
        """The rest of the error stream after a signal."""
        self.process.send_signal(ending)
        return self.process.communicate(timeout=SECONDS)[1]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.01)


@contextmanager
def serving(folder: Path, **limits: Any) -> Iterator[Running]:
    model = folder / "model"
    model.write_text("name first\n")
    command = [sys.executable, "-c", START, str(SCRIPT), str(model), repr(limits)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert match is not None, process.communicate()[1]
        yield Running(process, int(match[1]))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_requests_finish_before_the_server_ends(tmp_path: Path, ending: signal.Signals) -> None:
    go = tmp_path / "go"
    with serving(tmp_path, grace_seconds=SECONDS) as server:
        threads = [server.post_later(f"wait {go}")]
        until((tmp_path / "go.begun").exists)
        threads.append(server.post_later(f"wait {go}"))
        until(lambda: server.health()["waiting"] == 1)
        server.process.send_signal(ending)
        until(server.refuses_connections)
        go.touch()
        errors = server.process.communicate(timeout=SECONDS)[1]
        for thread in threads:
            thread.join()
        assert [status for status, _ in server.answers] == [200, 200]
        assert server.process.returncode == (0 if ending == signal.SIGINT else -ending)
        assert errors == ""


def test_requests_get_an_error_at_the_end_of_the_grace_period(tmp_path: Path) -> None:
    with serving(tmp_path, grace_seconds=0.5) as server:
        thread = server.post_later(f"wait {tmp_path / 'never'}")
        until((tmp_path / "never.begun").exists)
        errors = server.end(signal.SIGTERM)
        thread.join()
        ((status, content),) = server.answers
        assert status == 503
        assert "stopping" in content["error"]
        assert errors == ""


def test_a_second_ctrl_c_ends_the_server_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, grace_seconds=1e6) as server:
        thread = server.post_later(f"wait {tmp_path / 'never'}")
        until((tmp_path / "never.begun").exists)
        server.process.send_signal(signal.SIGINT)
        until(server.refuses_connections)
        errors = server.end(signal.SIGINT)
        thread.join()
        assert server.answers[0][0] == 503
        assert server.process.returncode == 0
        assert errors == ""


def test_sighup_reads_the_model_file_again(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as server:
        assert server.request("POST", "/predict")[1]["model"] == "name first\n"
        digest = server.health()["model"]["sha256"]
        (tmp_path / "model").write_text("name second\n")
        server.process.send_signal(signal.SIGHUP)
        assert server.process.stderr is not None
        assert "the model was replaced" in server.process.stderr.readline()
        assert server.health()["model"]["sha256"] != digest
        answers = [server.request("POST", "/predict")[1]["model"] for _ in range(4)]
        assert answers == ["name second\n"] * 4
        (tmp_path / "model").unlink()
        server.process.send_signal(signal.SIGHUP)
        assert "the model was not replaced" in server.process.stderr.readline()
        assert server.request("POST", "/predict")[1]["model"] == "name second\n"
        server.end(signal.SIGINT)


def test_every_error_has_the_same_form(tmp_path: Path) -> None:
    with serving(tmp_path, max_bytes=1000) as server:
        server.request("POST", "/predict", "x", **{"Content-Type": "text/plain"})
        server.request("POST", "/predict", "x" * 2000)
        server.request("POST", "/predict", "exit")
        server.request("GET", "/health", Host="evil.example")
        server.request("GET", "/nothing")
        server.request("PATCH", "/predict")
        server.request("POST", "/predict?unseen=x")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        connection.putrequest("GET", "/", skip_host=True)
        connection.endheaders()
        response = connection.getresponse()
        server.answers.append((response.status, json.loads(response.read())))
        assert [status for status, _ in server.answers] == [415, 413, 500, 421, 404, 405, 422, 400]
        for _, content in server.answers:
            assert list(content) == ["error"]
            assert re.fullmatch(r"(request|server): .+\.", content["error"])
