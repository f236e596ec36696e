"""The process that calls RDKit: performs tasks on molecules until its input ends.

It imports neither torch nor numpy and is ready in about 0.1 s; :mod:`graphcaps.chemistry.rdkit_pool` starts it.
Messages on its input and output begin with their lengths, see :data:`REQUEST` and :data:`ANSWER`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import struct
import sys
from typing import BinaryIO

from graphcaps._io.optional_imports import require
from graphcaps.chemistry.rdkit_tasks import perform

__all__ = ["ANSWER", "REQUEST", "main"]

REQUEST = struct.Struct("<Q")
"""Length of a request, JSON: ``task``, ``options``, ``seconds`` and ``items``."""
ANSWER = struct.Struct("<?QQ")
"""Of one molecule: whether there is a result, and the lengths of its texts (JSON) and of its bytes. The first answer
comes before any request and says that the process is ready."""

_MEMORY = 2 << 30  # bytes of address space; RDKit itself takes about 0.2 GiB


def main() -> None:
    """Answers requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that started this one
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    require("rdkit.Chem", extra="chem", purpose="Reading molecules")
    log = require("rdkit.rdBase", extra="chem", purpose="Reading molecules")
    _limit_memory()
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 2
    )  # the last words of a process that aborts; the pool reports it
    with log.BlockLogs():
        _answer(output, [], b"")
        requests = sys.stdin.buffer
        while header := requests.read(REQUEST.size):
            (length,) = REQUEST.unpack(header)
            request = json.loads(requests.read(length))
            for item in request["items"]:
                # The pool ends this process in time; the alarm does so if the pool's process was killed.
                signal.alarm(math.ceil(request["seconds"]) + 2)
                result = perform(request["task"], item, request["options"])
                if isinstance(result, str):
                    _answer(output, [result], b"", valid=False)
                else:
                    _answer(output, *result)
            signal.alarm(0)


def _answer(output: BinaryIO, texts: list[str], content: bytes, valid: bool = True) -> None:
    listed = json.dumps(texts).encode()
    output.write(ANSWER.pack(valid, len(listed), len(content)) + listed + content)
    output.flush()


def _limit_memory() -> None:
    """Lets an allocation fail before the machine runs out of memory, where the system can do so."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = min([_MEMORY, *(value for value in (soft, hard) if value != resource.RLIM_INFINITY)])
    with contextlib.suppress(OSError, ValueError):  # macOS does not have this limit
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main()
