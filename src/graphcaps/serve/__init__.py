"""An HTTP server for one model: predictions, explanations and an explorer page. Needs the extra ``serve``.

The server process only reads requests and writes responses. Worker processes read the graphs and compute, so a
request that takes too long or crashes ends a worker, which is replaced, and not the server.

``create_app`` and ``serve`` are imported on first use: they need FastAPI, and the worker processes do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphcaps.serve.limits import Limits

if TYPE_CHECKING:
    from graphcaps.serve.app import create_app
    from graphcaps.serve.server import serve

__all__ = ["Limits", "create_app", "serve"]

_MODULES = {"create_app": "graphcaps.serve.app", "serve": "graphcaps.serve.server"}
_PACKAGES = {
    "create_app": ("fastapi", "python_multipart"),
    "serve": ("fastapi", "python_multipart", "uvicorn"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'graphcaps.serve' has no attribute '{name}'")
    from graphcaps._io.optional_imports import require

    for package in _PACKAGES[name]:
        require(package, extra="serve", purpose="Serving a model")
    return getattr(importlib.import_module(_MODULES[name]), name)
