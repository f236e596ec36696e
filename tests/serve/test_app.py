"""The HTTP interface: responses, limits, errors, and pages that load nothing from another host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import graphcaps.serve
from graphcaps import __version__
from graphcaps.serve import Limits
from tests.serve.models import node_link, saved
from tests.small_models import planted, small_model

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip(
    "python_multipart", reason="python-multipart is not installed: pip install 'graphcaps[serve]'"
)
testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed: pip install httpx")
create_app = graphcaps.serve.create_app  # imports FastAPI, hence below the checks

GRAPH = node_link(planted(), 0)
LIMITS = Limits(max_bytes=300_000, max_seconds=6.0, max_waiting=1)
DIGEST = re.compile("[0-9a-f]{64}")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = saved(small_model(), tmp_path_factory.mktemp("served"), "small <b>model")
    with testclient.TestClient(create_app(path, limits=LIMITS), base_url="http://localhost") as client:
        yield client


def error_of(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    content = response.json()
    assert list(content) == ["error"]
    assert "/" not in re.sub(r"\w+/[\w+-]+|/docs", "", content["error"])  # content types are no paths
    assert "Traceback" not in content["error"]
    return str(content["error"])


def test_predict_and_explain(client: Any) -> None:
    response = client.post("/predict", json={"graphs": [GRAPH, 7]})
    assert response.status_code == 200
    first, bad = response.json()["predictions"]
    fitted = small_model()
    assert first["class"] == fitted.predict(planted()[0])[0]
    assert bad["error"]
    response = client.post(
        "/explain", files={"file": ("g.json", json.dumps(GRAPH))}, params={"target": "ring-star"}
    )
    (explanation,) = response.json()["explanations"]
    assert explanation["predicted"] == first["class"]
    assert explanation["target"] == "ring-star"
    assert len(explanation["node_scores"]) == len(GRAPH["nodes"])


def test_health(client: Any) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["model"]["name"] == "small <b>model"
    assert health["model"]["classes"] == list(small_model().class_names)
    assert health["version"] == __version__
    assert health["uptime_seconds"] > 0
    assert health["limits"] == vars(LIMITS)
    assert (health["workers"], health["waiting"]) == (1, 0)
    assert DIGEST.fullmatch(health["model"]["sha256"])


def test_invalid_requests_get_an_error_of_one_sentence(client: Any) -> None:
    assert "JSON" in error_of(
        client.post("/predict", content=b"{", headers={"content-type": "application/json"}), 422
    )
    assert "content types" in error_of(
        client.post("/predict", content=b"x", headers={"content-type": "text/plain"}), 415
    )
    assert "compressed bodies" in error_of(
        client.post("/predict", json=GRAPH, headers={"content-encoding": "gzip"}), 415
    )
    assert "unknown option 'target'" in error_of(
        client.post("/predict", json=GRAPH, params={"target": "x"}), 422
    )
    assert "invalid option 'unseen'" in error_of(
        client.post("/predict", json=GRAPH, params={"unseen": "x"}), 422
    )
    assert "at most 200 characters" in error_of(
        client.post("/explain", json=GRAPH, params={"target": "x" * 300}), 422
    )
    assert "target" in error_of(client.post("/explain", json=GRAPH, params={"target": "x"}), 422)
    assert "cannot be read" in error_of(client.post("/predict", json={"graphs": [7]}), 422)
    assert "257" in error_of(client.post("/predict", json={"graphs": [7] * 257}), 413)
    error_of(client.get("/predict"), 405)
    error_of(client.get("/nothing"), 404)
    error_of(client.post("/predict/", json=GRAPH), 404)  # no redirection
    assert "found none" in error_of(client.post("/predict", content=b"x"), 415)
    error_of(client.get("/page/serve.html"), 404)
    error_of(client.get("/..%2f..%2fetc/passwd"), 404)


def test_a_wrong_content_type_does_not_wait_for_a_worker() -> None:
    limits = Limits(max_seconds=1.0)
    client = testclient.TestClient(create_app("none", limits=limits), base_url="http://localhost")
    assert client.get("/health").status_code == 503  # the workers are not started
    assert "more than 1 s" in error_of(client.post("/predict", json=GRAPH), 503)
    error_of(client.post("/predict", content=b"x", headers={"content-type": "text/plain"}), 415)


def test_all_waiting_bodies_together_are_limited() -> None:
    limits = Limits(max_seconds=1.0, max_bytes=1000, max_waiting_bytes=2500)
    client = testclient.TestClient(create_app("none", limits=limits), base_url="http://localhost")
    headers = {"content-type": "application/json"}

    def post(_: int) -> str:
        return error_of(client.post("/predict", content=b" " * 1000, headers=headers), 503)

    with ThreadPoolExecutor(4) as threads:
        errors = sorted(threads.map(post, range(4)))
    assert ["busy" in error for error in errors] == [True, True, False, False]
    assert "more than 1 s" in post(0)  # the memory is free again


def test_large_bodies_are_rejected_with_and_without_content_length(client: Any) -> None:
    large = b" " * (LIMITS.max_bytes + 1)
    headers = {"content-type": "application/json"}
    assert "0.3 MB" in error_of(client.post("/predict", content=large, headers=headers), 413)

    def pieces() -> Iterator[bytes]:
        yield from [large[:1000]] * 400

    assert "0.3 MB" in error_of(client.post("/predict", content=pieces(), headers=headers), 413)


def test_other_hosts_and_origins_are_rejected(client: Any) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "evil.example:8000"):
        assert "localhost" in error_of(client.get("/health", headers={"host": host}), 421)
    for host in ("localhost:8000", "127.0.0.1:99", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert "origin" in error_of(client.post("/predict", json=GRAPH, headers={"origin": origin}), 403)
    response = client.post("/predict", json=GRAPH, headers={"origin": "http://localhost"})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_every_response_has_security_headers(client: Any) -> None:
    for path in ("/", "/docs", "/health", "/page.js", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_load_nothing_from_another_host(client: Any) -> None:
    for path in ("/", "/docs", "/page.css"):
        text = client.get(path).text.replace("http://localhost", "")
        assert not re.findall(r"(?:src|href)=\"?(?:https?:)?//|url\(|@import", text)
    page = client.get("/").text
    assert "small &lt;b&gt;model" in page
    assert "<b>model" not in page


def model_of(schema: dict[str, Any], reference: dict[str, str]) -> dict[str, Any]:
    """The schema that a ``$ref`` names."""
    return schema["components"]["schemas"][reference["$ref"].rpartition("/")[2]]


def test_the_schema_and_its_page(client: Any) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/predict", "/explain", "/health"}
    content = schema["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert {"application/json", "text/csv", "application/graphml+xml", "multipart/form-data"} <= set(content)
    for task, rows in (("predict", "predictions"), ("explain", "explanations")):
        operation = schema["paths"][f"/{task}"]["post"]
        response = model_of(schema, operation["responses"]["200"]["content"]["application/json"]["schema"])
        fields = model_of(schema, response["properties"][rows]["items"])["properties"]
        row = client.post(f"/{task}", json=GRAPH).json()[rows][0]
        assert len(fields) >= 8
        optional = {"disagreement", "members", "parts", "companion"}  # of committees and companions
        assert set(fields) - optional <= set(row)
        assert {one["name"] for one in operation["parameters"]} >= {"unseen", "column"}
    page = client.get("/docs").text
    for name in ("/predict", "/explain", "/health", "predictions[].probabilities", "curl -F file=@"):
        assert name in page
    example = content["application/json"]["example"]
    assert client.post("/predict", json=example).status_code == 200


def test_the_server_process_does_not_import_torch() -> None:
    code = (
        "import sys, graphcaps.cli.serve\n"
        "from graphcaps.serve import create_app, serve\n"
        "create_app('m.safetensors').openapi()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
