"""The server as programs meet it: answers, limits, refusals, and nothing from another place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphcaps import __version__
from graphcaps.serve import Limits, create_app
from tests.serve.models import node_link, saved
from tests.small_models import planted, small_model

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed: pip install httpx")

GRAPH = node_link(planted(), 0)
LIMITS = Limits(max_bytes=300_000, max_seconds=6.0, max_waiting=1)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = saved(small_model(), tmp_path_factory.mktemp("served"), "small <b>model")
    with testclient.TestClient(create_app(path, limits=LIMITS), base_url="http://localhost") as made:
        yield made


def error_of(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert list(told) == ["error"]
    assert "/" not in re.sub(r"\w+/[\w+-]+|/docs", "", told["error"])  # content types are no paths
    assert "Traceback" not in told["error"]
    return str(told["error"])


def test_predict_and_explain(client: Any) -> None:
    told = client.post("/predict", json={"graphs": [GRAPH, 7]})
    assert told.status_code == 200
    first, bad = told.json()["predictions"]
    fitted = small_model()
    assert first["class"] == fitted.predict(planted()[0])[0]
    assert bad["error"]
    found = client.post(
        "/explain", files={"file": ("g.json", json.dumps(GRAPH))}, params={"target": "ring-star"}
    )
    (one,) = found.json()["explanations"]
    assert one["predicted"] == first["class"]
    assert one["target"] == "ring-star"
    assert len(one["node_scores"]) == len(GRAPH["nodes"])


def test_health(client: Any) -> None:
    told = client.get("/health").json()
    assert told["model"]["name"] == "small <b>model"
    assert told["model"]["classes"] == list(small_model().class_names)
    assert told["version"] == __version__
    assert told["uptime_seconds"] > 0


def test_wrong_requests_are_told_in_one_sentence(client: Any) -> None:
    assert "JSON" in error_of(
        client.post("/predict", content=b"{", headers={"content-type": "application/json"}), 422
    )
    assert "content types" in error_of(
        client.post("/predict", content=b"x", headers={"content-type": "text/plain"}), 415
    )
    assert "not packed" in error_of(
        client.post("/predict", json=GRAPH, headers={"content-encoding": "gzip"}), 415
    )
    assert "options" in error_of(client.post("/predict", json=GRAPH, params={"target": "x"}), 422)
    assert "unseen" in error_of(client.post("/predict", json=GRAPH, params={"unseen": "x"}), 422)
    assert "shorter" in error_of(client.post("/explain", json=GRAPH, params={"target": "x" * 300}), 422)
    assert "target" in error_of(client.post("/explain", json=GRAPH, params={"target": "x"}), 422)
    assert "none" in error_of(client.post("/predict", json={"graphs": [7]}), 422)
    assert "257" in error_of(client.post("/predict", json={"graphs": [7] * 257}), 413)
    error_of(client.get("/predict"), 405)
    error_of(client.get("/nothing"), 404)
    error_of(client.get("/page/serve.html"), 404)
    error_of(client.get("/..%2f..%2fetc/passwd"), 404)


def test_large_requests_are_refused_with_a_length_and_without(client: Any) -> None:
    large = b" " * (LIMITS.max_bytes + 1)
    headers = {"content-type": "application/json"}
    assert "0.3 MB" in error_of(client.post("/predict", content=large, headers=headers), 413)

    def pieces() -> Iterator[bytes]:
        yield from [large[:1000]] * 400

    assert "0.3 MB" in error_of(client.post("/predict", content=pieces(), headers=headers), 413)


def test_other_hosts_and_origins_are_not_answered(client: Any) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "evil.example:8000"):
        assert "localhost" in error_of(client.get("/health", headers={"host": host}), 421)
    for host in ("localhost:8000", "127.0.0.1:99", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert "origin" in error_of(client.post("/predict", json=GRAPH, headers={"origin": origin}), 403)
    told = client.post("/predict", json=GRAPH, headers={"origin": "http://localhost"})
    assert told.status_code == 200
    assert not [name for name in told.headers if name.startswith("access-control")]


def test_every_answer_carries_a_policy(client: Any) -> None:
    for path in ("/", "/docs", "/health", "/page.js", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_name_nothing_from_another_place(client: Any) -> None:
    for path in ("/", "/docs", "/page.css"):
        text = client.get(path).text.replace("http://localhost", "")
        assert not re.findall(r"(?:src|href)=\"?(?:https?:)?//|url\(|@import", text)
    page = client.get("/").text
    assert "small &lt;b&gt;model" in page
    assert "<b>model" not in page


def test_the_schema_and_its_page(client: Any) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/predict", "/explain", "/health"}
    content = schema["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert {"application/json", "text/csv", "application/graphml+xml", "multipart/form-data"} <= set(content)
    row = schema["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    fields = row["properties"]["predictions"]["items"]["properties"]
    given = client.post("/predict", json=GRAPH).json()["predictions"][0]
    assert set(fields) <= set(given)
    page = client.get("/docs").text
    for name in ("/predict", "/explain", "/health", "predictions[].probabilities", "curl -F file=@"):
        assert name in page
    example = content["application/json"]["example"]
    assert client.post("/predict", json=example).status_code == 200


def test_the_server_itself_does_not_wait_for_torch() -> None:
    code = "import sys, graphcaps.serve, graphcaps.cli.serve as s; s.serve; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model behind a process that sleeps as many seconds as a column is called, or breaks."""
    module = tmp_path / "slow_worker.py"
    module.write_text(
        "import json, os, sys, time\n"
        "from graphcaps.serve import worker\n"
        "from graphcaps.serve.limits import Limits\n"
        "class Model: pass\n"
        "def load(path, limits, answers):\n"
        "    answers.write(worker.frame({'status': 200}, b'{\"model\": {}, \"page\": {}}'))\n"
        "    answers.flush()\n"
        "    return Model()\n"
        "def handle(fitted, limits, head, body):\n"
        "    wish = head['options'].get('column', '0')\n"
        "    if wish == 'break': os._exit(3)\n"
        "    time.sleep(float(wish)); return 200, b'{}'\n"
        "worker._load, worker.handle = load, handle\n"
        "worker.main(sys.argv[1], Limits(**json.loads(sys.argv[2])))\n"
    )
    import graphcaps.serve.worker_pool as pool

    monkeypatch.setattr(pool, "WORKER", (str(module),))
    return tmp_path / "none.safetensors"


def test_what_takes_too_long_or_breaks_is_ended_and_the_next_is_answered(slow: Path) -> None:
    limits = Limits(max_seconds=2.0)
    with testclient.TestClient(create_app(slow, limits=limits), base_url="http://localhost") as client:
        began = time.monotonic()
        assert "2 s" in error_of(client.post("/predict", params={"column": "60"}), 503)
        assert time.monotonic() - began < 5
        assert _until_answered(client)
        assert "broke off" in error_of(client.post("/predict", params={"column": "break"}), 500)
        assert _until_answered(client)


def _until_answered(client: Any) -> bool:
    """A new process needs a moment."""
    return any(client.post("/predict").status_code == 200 for _ in range(10))


def test_so_many_wait_and_no_more(slow: Path) -> None:
    limits = Limits(max_seconds=20.0, max_waiting=1)
    with testclient.TestClient(create_app(slow, limits=limits), base_url="http://localhost") as client:
        found: list[int] = []

        def post() -> None:
            found.append(client.post("/predict", params={"column": "1.5"}).status_code)

        threads = [threading.Thread(target=post) for _ in range(3)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        assert sorted(found) == [200, 200, 503]
