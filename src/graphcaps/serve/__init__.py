"""An HTTP server for one model: predictions, explanations and an explorer page. Needs the extra ``serve``.

The server process only reads requests and writes responses. Worker processes read the graphs and compute, so a
request that takes too long or crashes ends a worker, which is replaced, and not the server.

``create_app`` and ``serve`` are imported on first use: they need FastAPI, and the worker processes do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcaps._io.lazy_names import lazy_names
from graphcaps._io.optional_imports import require
from graphcaps.serve.limits import Limits

if TYPE_CHECKING:
    from graphcaps.serve.app import create_app
    from graphcaps.serve.server import serve

__all__ = ["Limits", "create_app", "serve"]

_PACKAGES = {
    "create_app": ("fastapi", "python_multipart"),
    "serve": ("fastapi", "python_multipart", "uvicorn"),
}
_import_name, __dir__ = lazy_names(
    __name__, {"graphcaps.serve.app": ["create_app"], "graphcaps.serve.server": ["serve"]}
)


def __getattr__(name: str) -> Any:
    """Names the extra in the message if one of its packages is missing."""
    for package in _PACKAGES.get(name, ()):
        require(package, extra="serve", purpose="Serving a model")
    return _import_name(name)
