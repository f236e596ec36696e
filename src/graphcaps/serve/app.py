"""The FastAPI application: routes, security headers, and errors as one sentence in JSON."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphcaps._io.provenance import library_versions
from graphcaps.errors import GraphcapsError
from graphcaps.serve.docs_page import docs_page
from graphcaps.serve.explorer_page import explorer_page
from graphcaps.serve.ipc import error_json
from graphcaps.serve.limits import Limits, RequestError, too_slow
from graphcaps.serve.request_body import BodyReader
from graphcaps.serve.schema import (
    ExplainOptions,
    ExplainResponse,
    HealthResponse,
    PredictOptions,
    PredictResponse,
    describe_api,
    document,
    document_health,
)
from graphcaps.serve.security import SECURITY_HEADERS, check_host_and_origin
from graphcaps.serve.uploads import check_content_type
from graphcaps.serve.worker_pool import WorkerPool

__all__ = ["create_app"]

_LOG = logging.getLogger("graphcaps.serve")


def create_app(model: str | Path, *, limits: Limits | None = None, any_host: bool = False) -> FastAPI:
    """A FastAPI application that serves one model.

    Args:
        model (str or Path): A model file.
        limits (Limits, optional): Limits of requests. Those of connections are kept by
            :func:`graphcaps.serve.serve`; with another server they are that server's.
        any_host (bool): Whether to accept any host name in requests; otherwise only loopback names.
            (default: ``False``)

    Raises:
        MissingExtraError: If FastAPI is not installed.

    Example:
        ``uvicorn.run(create_app("mutag.safetensors"))``
    """
    limits = limits or Limits()
    pool, bodies = WorkerPool(model, limits), BodyReader(limits)
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
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(_ERRORS, _report_error),
    )
    app.state.pool = pool
    app.add_middleware(_SecureRequests, any_host=any_host)

    async def compute(request: Request, task: str, options: PredictOptions) -> Response:
        content_type = request.headers.get("content-type", "")
        check_content_type(content_type)
        pool.check_open()  # before the body is read
        header = {
            "task": task,
            "content_type": content_type,
            "options": options.model_dump(exclude_unset=True),
        }
        deadline = asyncio.get_running_loop().time() + limits.max_seconds
        try:
            async with asyncio.timeout_at(deadline), bodies.read(request) as body:
                status, content = await _unless_closed(request, pool.submit(header, body, deadline))
        except TimeoutError as error:
            raise too_slow(limits) from error
        return Response(content, status, media_type="application/json")

    @app.post("/predict", operation_id="predict", **document(PredictResponse))
    async def predict(request: Request, options: Annotated[PredictOptions, Query()]) -> Response:
        """Class and probabilities of each graph."""
        return await compute(request, "predict", options)

    @app.post("/explain", operation_id="explain", **document(ExplainResponse))
    async def explain(request: Request, options: Annotated[ExplainOptions, Query()]) -> Response:
        """The capsules and nodes that each prediction is based on."""
        return await compute(request, "explain", options)

    @app.get("/health", operation_id="health", **document_health())
    async def health() -> HealthResponse:
        """The model, its limits, and the time since the start; an error while no worker process serves."""
        pool.check_serving()
        return HealthResponse(
            model={"name": name} | pool.model | {"sha256": pool.sha256},
            workers=pool.num_serving,
            waiting=pool.num_waiting,
            version=version,
            uptime_seconds=round(time.monotonic() - started, 1),
            limits=limits,
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

    return app


async def _unless_closed(
    request: Request, response: Coroutine[Any, Any, tuple[int, bytes]]
) -> tuple[int, bytes]:
    """The response, unless the client closes the connection before: then it is given up.

    Args:
        request (Request): A request whose body is read.
        response (coroutine): Computes the response.

    Raises:
        ClientDisconnect: If the client has closed the connection.
    """
    computing = asyncio.ensure_future(response)
    closing = asyncio.ensure_future(_closed(request))
    try:
        await asyncio.wait({computing, closing}, return_when=asyncio.FIRST_COMPLETED)
        if computing.done():
            return computing.result()
        raise ClientDisconnect
    finally:
        computing.cancel()
        closing.cancel()


async def _closed(request: Request) -> None:
    """Waits until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _SecureRequests:
    """Checks host and origin of every request, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, *, any_host: bool) -> None:
        self.app, self.any_host = app, any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_secured(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        try:
            check_host_and_origin(Headers(scope=scope), any_host=self.any_host)
            await self.app(scope, receive, send_secured)
        except Exception as error:
            if not isinstance(error, RequestError):
                _LOG.exception("graphcaps: internal error")
            if started:  # too late for another response: the connection is closed
                raise
            response = await _report_error(Request(scope), error)
            await response(scope, receive, send_secured)


_ERRORS = (RequestError, GraphcapsError, RequestValidationError, HTTPException, ClientDisconnect)


async def _report_error(_: Request, error: Exception) -> Response:
    """The response to a request that raised an exception; any but one of ``_ERRORS`` is a bug."""
    status, message = 500, "server: internal error; see the log of the server."
    headers: dict[str, str] = {}
    if isinstance(error, RequestError):
        status, message = error.status, str(error)
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
    elif isinstance(error, GraphcapsError):
        message = str(error)
    elif isinstance(error, RequestValidationError):
        status, message = 422, _invalid_option(error)
    elif isinstance(error, ClientDisconnect):
        status, message = 400, "request: the connection was closed before the response."
    elif isinstance(error, HTTPException):
        status = error.status_code
        known = {404: "there is no such page; see /docs", 405: "this page does not support the method"}
        message = f"request: {known.get(status, error.detail)}."
    return Response(error_json(message), status, headers, "application/json")


def _invalid_option(error: RequestValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][-1])[:40]
    if problem["type"] == "extra_forbidden":
        return f"request: unknown option '{name}'; see /docs for the options."
    return f"request: invalid option '{name}': {problem['msg']}."
