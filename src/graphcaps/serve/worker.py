"""The process that computes: ``python -m graphcaps.serve.worker MODEL LIMITS``.

It takes frames on its input and gives frames on its output, one request after another, and ends when its input
does. The first frame out describes the model. What it has to say to people goes to the error stream.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO

from graphcaps.errors import GraphcapsError, MissingExtraError
from graphcaps.serve.ipc import SIZES, frame, sentence
from graphcaps.serve.limits import Limits, Refused

if TYPE_CHECKING:
    from graphcaps.inference.fitted_model import FittedModel

__all__ = ["handle", "main"]


def handle(fitted: FittedModel, limits: Limits, head: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Status and JSON of the answer to one request; whatever happens, there is one."""
    from graphcaps.serve.request_graphs import read_request
    from graphcaps.serve.responses import answer

    options = dict(head["options"])
    column = options.pop("column", "smiles")
    try:
        items = read_request(head["type"], body, fitted.recipe, limits, column=column)
        told = answer(fitted, head["kind"], items, **options)
        return 200, json.dumps(told, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except Refused as error:
        return error.status, sentence(str(error))
    except MissingExtraError as error:  # what the server lacks is not the request's fault
        return 501, sentence(f"server: {error}")
    except GraphcapsError as error:
        return 422, sentence(str(error))
    except Exception:
        traceback.print_exc()
        return 500, sentence("server: these graphs could not be worked on; the log of the server says more.")


def main(path: str, limits: Limits) -> None:
    """Answers until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the frames
    requests = sys.stdin.buffer
    fitted = _load(path, limits, answers)
    while fitted is not None and (sizes := requests.read(SIZES.size)):
        heads, bodies = SIZES.unpack(sizes)
        head, body = json.loads(requests.read(heads)), requests.read(bodies)
        _alarm(limits.max_seconds + 2)
        status, told = handle(fitted, limits, head, body)
        _alarm(0)
        answers.write(frame({"status": status}, told))
        answers.flush()


def _load(path: str, limits: Limits, answers: BinaryIO) -> FittedModel | None:
    """The model, and a first frame that describes it or says why there is none."""
    from graphcaps.inference.fitted_model import load
    from graphcaps.serve.explorer_page import page_parts
    from graphcaps.serve.responses import describe_model

    fitted = None
    try:
        fitted = load(path)
        known = {"model": describe_model(fitted), "page": page_parts()}
        status, told = 200, json.dumps(known, ensure_ascii=False).encode("utf-8", "replace")
        _threads(limits.workers)
    except GraphcapsError as error:
        status, told = 422, sentence(str(error))
    answers.write(frame({"status": status}, told))
    answers.flush()
    return fitted


def _threads(workers: int) -> None:
    if workers > 1:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


def _alarm(seconds: float) -> None:
    """Ends this process after a while even if nobody is left to do it; the system does, whatever runs then."""
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(seconds))


if __name__ == "__main__":
    main(sys.argv[1], Limits(**json.loads(sys.argv[2])))
