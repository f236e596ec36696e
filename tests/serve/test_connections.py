"""Connections that send nothing, send slowly, do not read, or do not speak HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from graphcaps.serve.limits import Limits

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
from graphcaps.serve.connections import LimitedConnection  # noqa: E402  (imports uvicorn)
from tests.serve.event_loops import run_in_thread  # noqa: E402

GET = b"GET /size HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with as many bytes as the path says."""
    size = int(scope["path"].strip("/") or 2) if scope["path"].strip("/").isdecimal() else 2
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    for start in range(0, size, 100_000):
        await send(
            {"type": "http.response.body", "body": b"x" * min(100_000, size - start), "more_body": True}
        )
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening(**limits: Any) -> AsyncIterator[tuple[Any, int]]:
    """A server and its port."""
    connection = type("Connection", (LimitedConnection,), {"limits": Limits(**limits)})
    config = uvicorn.Config(application, http=connection, port=0, log_level="critical", lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        for one in list(server.server_state.connections):
            one.transport.abort()
        server.servers[0].close()


def run(test: Callable[[ExitStack], Coroutine[Any, Any, None]]) -> None:
    with ExitStack() as stack:
        run_in_thread(lambda: test(stack), seconds=30)


def connect(stack: ExitStack, port: int, request: bytes = b"") -> socket.socket:
    """A client that has sent (a part of) a request."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    client.sendall(request)
    client.setblocking(False)
    return client


async def read(client: socket.socket) -> bytes:
    """What a client receives until the connection is closed."""
    content = b""
    while chunk := await asyncio.get_running_loop().sock_recv(client, 100_000):
        content += chunk
    return content


async def response_of(port: int, request: bytes = GET) -> bytes:
    """The response on a new connection."""
    with ExitStack() as stack:
        closing = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        return await read(connect(stack, port, closing))


def test_idle_and_slow_connections_are_closed_and_others_answered() -> None:
    async def test(stack: ExitStack) -> None:
        async with listening(header_seconds=1.0) as (server, port):
            idle = [connect(stack, port) for _ in range(300)]
            slow, kept = connect(stack, port, GET[:-2]), connect(stack, port, GET)
            assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            for _ in range(4):  # one header after the other
                await asyncio.sleep(0.1)
                slow.sendall(b"X-More: 1\r\n")
            assert len(server.server_state.connections) == 302
            head, _, body = (await read(slow)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408")
            assert b"application/json" in head
            assert "1 s" in json.loads(body)["error"]
            assert await read(idle[-1]) == b""
            assert (await read(kept)).startswith(b"HTTP/1.1 200")  # closed after its response
            await asyncio.sleep(0.1)
            assert not server.server_state.connections

    run(test)


def test_a_new_connection_closes_the_one_that_has_been_idle_longest() -> None:
    async def test(stack: ExitStack) -> None:
        async with listening(max_connections=5, header_seconds=20.0) as (server, port):
            clients = [connect(stack, port) for _ in range(5)]
            await asyncio.sleep(0.1)
            clients[0].sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nslow")
            await asyncio.sleep(0.1)
            assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            assert (
                await asyncio.wait_for(read(clients[1]), 5) == b""
            )  # not the first, which has begun its request later
            clients[0].sendall(b" body")
            loop = asyncio.get_running_loop()
            assert (await loop.sock_recv(clients[0], 100)).startswith(b"HTTP/1.1 200")
            for _ in range(20):
                assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            assert len(server.server_state.connections) <= 5

    run(test)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def test(stack: ExitStack) -> None:
        async with listening(max_seconds=1.0, header_seconds=1.0) as (server, port):
            connect(stack, port, GET.replace(b"/size", b"/50000000"))
            await asyncio.sleep(1.5)
            assert len(server.server_state.connections) == 1
            await asyncio.sleep(1.0)
            assert not server.server_state.connections

    run(test)


def test_what_is_not_http_gets_an_error_in_json() -> None:
    async def test(stack: ExitStack) -> None:
        async with listening() as (_, port):
            for request in (b"\x16\x03\x01\x02\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
                head, _, body = (await read(connect(stack, port, request))).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 400")
                assert b"Content-Type: application/json" in head
                assert list(json.loads(body)) == ["error"]

    run(test)
