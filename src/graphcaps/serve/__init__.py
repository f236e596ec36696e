"""A small server for one model: predictions, explanations and a page. Needs the extra ``serve``.

The server itself only takes requests and gives answers; a process beside it reads the graphs and computes, so that
one that takes too long, or breaks, can be ended and replaced.
"""

from graphcaps.serve.app import create_app
from graphcaps.serve.limits import Limits
from graphcaps.serve.server import serve

__all__ = ["Limits", "create_app", "serve"]
