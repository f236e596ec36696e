"""The FastAPI application: routes, and errors as one sentence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps._io.provenance import library_versions
from graphcaps.errors import GraphcapsError
from graphcaps.serve import schema
from graphcaps.serve.docs_page import docs_page
from graphcaps.serve.explorer_page import explorer_page
from graphcaps.serve.guard import Guard
from graphcaps.serve.ipc import sentence
from graphcaps.serve.limits import Limits, Refused
from graphcaps.serve.worker_pool import Pool

__all__ = ["create_app"]

_OPTIONS = {"predict": ("unseen", "column"), "explain": ("unseen", "column", "target")}
_OPTIONS["page"] = _OPTIONS["explain"]
_LONGEST_OPTION = 200


def create_app(model: str | Path, *, limits: Limits | None = None, any_host: bool = False) -> Any:
    """A FastAPI application that serves one model.

    Args:
        model (str or Path): A model file.
        limits (Limits, optional): What a request may ask for.
        any_host (bool): Whether requests may call the server by any name; else only by names of this machine.
            (default: ``False``)

    Raises:
        MissingExtraError: Without FastAPI.

    Example:
        ``uvicorn.run(create_app("mutag.safetensors"))``
    """
    fastapi = require("fastapi", extra="serve", purpose="Serving a model")
    respond = require("fastapi.responses", extra="serve", purpose="Serving a model").Response
    gone = require("starlette.requests", extra="serve", purpose="Serving a model").ClientDisconnect
    limits = limits or Limits()
    pool = Pool(model, limits)
    name, version, began = Path(model).stem, library_versions()["graphcaps"], time.monotonic()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        await pool.start()
        try:
            yield
        finally:
            await pool.close()

    app = fastapi.FastAPI(
        title=f"graphcaps: {name}",
        version=version,
        description=schema.description(limits),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.pool = pool

    def told(status: int, body: bytes) -> Any:
        headers = {"retry-after": "5"} if status == 503 else None
        return respond(body, status, headers, "application/json")

    def post(kind: str) -> Callable[[Any], Any]:
        async def endpoint(request: Any) -> Any:
            try:
                async with asyncio.timeout(limits.max_seconds):
                    return told(*await _work(request, kind, pool, limits))
            except TimeoutError:
                return told(
                    503, sentence(f"server: this took more than {limits.max_seconds:g} s and was ended.")
                )
            except Refused as error:
                return told(error.status, sentence(str(error)))
            except gone:
                return told(400, sentence("request: expected a whole body, found the end of the connection."))

        endpoint.__annotations__ = {"request": fastapi.Request}  # which this module cannot name: an extra
        return endpoint

    for kind in ("predict", "explain"):
        app.add_api_route(
            f"/{kind}", post(kind), methods=["POST"], operation_id=kind, summary=schema.SUMMARIES[kind],
            openapi_extra=schema.operation(kind), responses=schema.answers(kind), response_model=None,
        )  # fmt: skip
    app.add_api_route(
        "/page/data", post("page"), methods=["POST"], include_in_schema=False, response_model=None
    )

    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "model": {"name": name} | pool.model,
            "version": version,
            "uptime_seconds": round(time.monotonic() - began, 1),
            "limits": dict(vars(limits)),
        }

    app.add_api_route(
        "/health", health, methods=["GET"], operation_id="health",
        summary=schema.SUMMARIES["health"], response_model=None,
    )  # fmt: skip

    def text(path: str, make: Callable[[], str], media_type: str) -> None:
        async def endpoint() -> Any:
            return respond(make(), media_type=media_type)

        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False, response_model=None)

    text("/", lambda: explorer_page(name, pool.model, limits, pool.page["markup"]), "text/html")
    text("/page.js", lambda: pool.page["script"], "text/javascript")
    text("/page.css", lambda: pool.page["style"], "text/css")

    async def docs(request: Any) -> Any:
        return respond(docs_page(app.openapi(), str(request.base_url).rstrip("/")), media_type="text/html")

    docs.__annotations__ = {"request": fastapi.Request}
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False, response_model=None)

    async def refused(_: Any, error: Any) -> Any:
        words = {404: "found no such page; see /docs.", 405: "found a method that this page does not take."}
        return told(error.status_code, sentence(f"request: {words.get(error.status_code, error.detail)}"))

    async def broken(_: Any, error: Exception) -> Any:
        return told(500, sentence("server: something broke here; its log says more."))

    app.add_exception_handler(
        require("starlette.exceptions", extra="serve", purpose="").HTTPException, refused
    )
    app.add_exception_handler(Exception, broken)
    app.add_middleware(Guard, any_host=any_host)
    return app


async def _work(request: Any, kind: str, pool: Pool, limits: Limits) -> tuple[int, bytes]:
    """Reads a request and has it worked on."""
    options = _options(request, kind)
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise Refused(415, f"request: expected a body that is not packed, found '{coding[:40]}'.")
    body = await _body(request, limits)
    head = {"kind": kind, "type": request.headers.get("content-type", ""), "options": options}
    try:
        return await pool.ask(head, body)
    except Refused:
        raise
    except GraphcapsError as error:
        raise Refused(500, str(error)) from error


def _options(request: Any, kind: str) -> dict[str, str]:
    options = dict(request.query_params)
    for name, value in options.items():
        if name not in _OPTIONS[kind]:
            listed = ", ".join(_OPTIONS[kind])
            raise Refused(422, f"request: expected the options {listed}, found '{name[:40]}'.")
        if len(value) > _LONGEST_OPTION:
            raise Refused(
                422, f"request: expected a shorter value of '{name}', found {len(value)} characters."
            )
    if options.get("unseen", "refuse") not in ("refuse", "ignore"):
        raise Refused(422, f"request: 'unseen' must be 'refuse' or 'ignore', got '{options['unseen']}'.")
    return options


async def _body(request: Any, limits: Limits) -> bytes:
    """The body, no more of which is kept than is allowed."""
    told = f"request: expected at most {limits.max_bytes / 1e6:g} MB, found more."
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.max_bytes:
        raise Refused(413, told)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.max_bytes:
            raise Refused(413, told)
    return bytes(body)
