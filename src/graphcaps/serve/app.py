"""The FastAPI application: routes, limits of the body, and errors as one sentence in JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from graphcaps._io.provenance import library_versions
from graphcaps.errors import GraphcapsError
from graphcaps.serve.docs_page import docs_page
from graphcaps.serve.explorer_page import explorer_page
from graphcaps.serve.ipc import error_json
from graphcaps.serve.limits import Limits, RequestError
from graphcaps.serve.schema import (
    ExplainOptions,
    ExplainResponse,
    HealthResponse,
    PredictOptions,
    PredictResponse,
    describe_api,
    document,
)
from graphcaps.serve.security import SECURITY_HEADERS, check_host_and_origin
from graphcaps.serve.worker_pool import WorkerPool

__all__ = ["create_app"]


def create_app(model: str | Path, *, limits: Limits | None = None, any_host: bool = False) -> FastAPI:
    """A FastAPI application that serves one model.

    Args:
        model (str or Path): A model file.
        limits (Limits, optional): Limits of a request.
        any_host (bool): Whether to accept any host name in requests; otherwise only loopback names.
            (default: ``False``)

    Raises:
        MissingExtraError: If FastAPI is not installed.

    Example:
        ``uvicorn.run(create_app("mutag.safetensors"))``
    """
    limits = limits or Limits()
    pool = WorkerPool(model, limits)
    name, version, started = Path(model).stem, library_versions()["graphcaps"], time.monotonic()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await pool.start()
        try:
            yield
        finally:
            await pool.close()

    app = FastAPI(
        title=f"graphcaps: {name}",
        version=version,
        description=describe_api(limits),
        docs_url=None,  # FastAPI's own page loads its scripts from another host
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(_ERRORS, _report_error),
    )
    app.state.pool = pool

    async def compute(request: Request, task: str, options: PredictOptions) -> Response:
        try:
            async with asyncio.timeout(limits.max_seconds):
                header = {
                    "task": task,
                    "content_type": request.headers.get("content-type", ""),
                    "options": options.model_dump(exclude_unset=True),
                }
                status, content = await pool.submit(header, await _read_body(request, limits))
        except TimeoutError as error:
            message = f"server: the request took more than {limits.max_seconds:g} s and was stopped."
            raise RequestError(503, message) from error
        return _json_response(status, content)

    @app.post("/predict", operation_id="predict", **document(PredictResponse))
    async def predict(request: Request, options: Annotated[PredictOptions, Query()]) -> Response:
        """Class and probabilities of each graph."""
        return await compute(request, "predict", options)

    @app.post("/explain", operation_id="explain", **document(ExplainResponse))
    async def explain(request: Request, options: Annotated[ExplainOptions, Query()]) -> Response:
        """The capsules and nodes that each prediction is based on."""
        return await compute(request, "explain", options)

    @app.get("/health", operation_id="health")
    async def health() -> HealthResponse:
        """The model, its limits, and the time since the start."""
        uptime = round(time.monotonic() - started, 1)
        return HealthResponse(
            model={"name": name} | pool.model, version=version, uptime_seconds=uptime, limits=limits
        )

    @app.post("/page/data", include_in_schema=False)
    async def page_data(request: Request, options: Annotated[ExplainOptions, Query()]) -> Response:
        return await compute(request, "page", options)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(
            explorer_page(name, pool.model, limits, pool.assets["markup"]), media_type="text/html"
        )

    @app.get("/page.js", include_in_schema=False)
    async def script() -> Response:
        return Response(pool.assets["script"], media_type="text/javascript")

    @app.get("/page.css", include_in_schema=False)
    async def style() -> Response:
        return Response(pool.assets["style"], media_type="text/css")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return Response(docs_page(app.openapi(), str(request.base_url).rstrip("/")), media_type="text/html")

    @app.middleware("http")
    async def secure(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            check_host_and_origin(request.headers, any_host=any_host)
            response = await call_next(request)
        except RequestError as error:
            response = await _report_error(request, error)
        response.headers.update(SECURITY_HEADERS)
        return response

    return app


async def _read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request; reading stops as soon as it is larger than allowed."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise RequestError(415, f"request: compressed bodies are not supported, found '{encoding[:40]}'.")
    too_large = RequestError(413, f"request: the body is larger than {limits.max_bytes / 1e6:g} MB.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.max_bytes:
            raise too_large
    return bytes(body)


def _json_response(status: int, content: bytes) -> Response:
    return Response(content, status, {"Retry-After": "5"} if status == 503 else None, "application/json")


_ERRORS = (RequestError, GraphcapsError, RequestValidationError, HTTPException, ClientDisconnect, Exception)


async def _report_error(_: Request, error: Exception) -> Response:
    """The response to a request that raised one of ``_ERRORS``."""
    status, message = 500, "server: internal error; see the log of the server."
    if isinstance(error, RequestError):
        status, message = error.status, str(error)
    elif isinstance(error, GraphcapsError):
        message = str(error)
    elif isinstance(error, RequestValidationError):
        status, message = 422, _invalid_option(error)
    elif isinstance(error, ClientDisconnect):
        status, message = 400, "request: the connection was closed before the end of the body."
    elif isinstance(error, HTTPException):
        status = error.status_code
        known = {404: "there is no such page; see /docs", 405: "this page does not support the method"}
        message = f"request: {known.get(status, error.detail)}."
    return _json_response(status, error_json(message))


def _invalid_option(error: RequestValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][-1])[:40]
    if problem["type"] == "extra_forbidden":
        return f"request: unknown option '{name}'; see /docs for the options."
    return f"request: invalid option '{name}': {problem['msg']}."
