"""An event loop for tests, apart from the one that the browser of other tests leaves in their thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["run_in_thread"]


def run_in_thread(test: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    """Runs a coroutine in an event loop of a new thread, for at most some seconds."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await test()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(limited())).result()
