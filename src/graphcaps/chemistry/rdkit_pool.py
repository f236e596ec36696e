"""Guarded calls of RDKit: in processes of their own, with a time and a memory limit for each molecule.

RDKit holds the interpreter while it computes. A molecule of 218 characters can keep it busy for hours (Ctrl-C does
nothing meanwhile), and a molecule of a few atoms can end the process. Everything that calls RDKit on input of a user
therefore goes through :func:`call_rdkit`, which gives one answer per molecule and loses only the bad ones. The
processes work on all cores, are started at the first call and stay for the next.

The processes run on Linux and macOS. On Windows, RDKit is called directly and nothing is limited.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from graphcaps._io.optional_imports import require
from graphcaps._io.read_limit import check_memory
from graphcaps.chemistry.rdkit_process import ANSWER, REQUEST
from graphcaps.chemistry.rdkit_tasks import Option, perform
from graphcaps.errors import UsageError

__all__ = [
    "TIME_LIMIT",
    "Answer",
    "RDKitPool",
    "RDKitProgress",
    "call_rdkit",
    "close_rdkit",
    "count_from",
    "listen_to_rdkit",
]

TIME_LIMIT = 10.0
"""Seconds for one molecule. Usual ones take a millisecond."""

_START_LIMIT = 60.0  # seconds until a process is ready; usually 0.1
_MAX_STARTS = 3  # attempts to start a process
_MAX_PROCESSES = 16
_FEW = 400  # molecules that one process reads as fast as two, because a process has to be started
_BYTES_PER_BYTE = 4  # that a store takes per byte of the numbers of its molecules, these included
_MAX_CHUNK = 128  # molecules of one request
_GUARDED = os.name == "posix"  # select() takes pipes
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from graphcaps.chemistry.rdkit_process import main; main()"
)


class Answer(NamedTuple):
    """Result of a task for one molecule.

    Args:
        texts (list): Texts that the task returns.
        content (bytes): Bytes that the task returns.
        problem (str): Why there is no result, as the end of a sentence; "" otherwise.
        is_final (bool): ``False`` if a limit or a crash ended the attempt, so that another one may succeed.
    """

    texts: list[str]
    content: bytes = b""
    problem: str = ""
    is_final: bool = True


class RDKitProgress(NamedTuple):
    """How far a call is: its ``purpose``, and how many of the molecules (``total``) are ``done``."""

    purpose: str
    done: int
    total: int


_listener: ContextVar[Callable[[RDKitProgress], None] | None] = ContextVar("rdkit_listener", default=None)


@contextmanager
def listen_to_rdkit(listener: Callable[[RDKitProgress], None]) -> Iterator[None]:
    """Calls ``listener`` with the progress of every :func:`call_rdkit` inside the context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def count_from(before: int, total: int) -> Iterator[None]:
    """Progress of a call inside the context is that of a part: it counts on from ``before``, of ``total`` molecules."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    with listen_to_rdkit(lambda progress: outer(progress._replace(done=before + progress.done, total=total))):
        yield


def call_rdkit(
    task: str,
    items: Sequence[object],
    options: Mapping[str, Option] | None = None,
    *,
    purpose: str,
    until_problem: bool = False,
) -> list[Answer]:
    """Performs a task of :mod:`graphcaps.chemistry.rdkit_tasks` on each molecule, under the limits of this module.

    Args:
        task (str): Name of the task.
        items (sequence): The molecules, as text.
        options (dict, optional): Arguments of the task.
        purpose (str): What needs RDKit, for the message if it is missing.
        until_problem (bool): Return the answers up to the first molecule without a result. (default: ``False``)

    Raises:
        DataError: If the results take more memory than :func:`graphcaps._io.read_limit.read_limit`.
        MissingExtraError: If RDKit is not installed.
    """
    require("rdkit.Chem" if not _GUARDED else "rdkit", extra="chem", purpose=purpose)
    listed = [item if isinstance(item, str) else "" for item in items]
    listener = _listener.get()

    def progress(done: int) -> None:
        if listener is not None:
            listener(RDKitProgress(purpose, done, len(listed)))

    if _GUARDED:
        pool = _shared_pool()
        return pool.call(task, listed, options, until_problem=until_problem, progress=progress)
    answers = []
    for item in listed:
        result = perform(task, item, options or {})
        answers.append(Answer([], problem=result) if isinstance(result, str) else Answer(*result))
        progress(len(answers))
    return answers


class RDKitPool:
    """Processes that call RDKit; one task at a time, from any thread.

    Args:
        max_processes (int, optional): Largest number of processes. (default: one per core)
        seconds (float): Time limit for one molecule. (default: 10)
    """

    def __init__(self, max_processes: int | None = None, seconds: float = TIME_LIMIT) -> None:
        self.max_processes = max_processes or min(_MAX_PROCESSES, _num_cores())
        self.seconds = seconds
        self._processes: list[_RDKitProcess] = []
        self._lock = threading.Lock()

    def call(
        self,
        task: str,
        items: Sequence[str],
        options: Mapping[str, Option] | None = None,
        *,
        until_problem: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> list[Answer]:
        """As :func:`call_rdkit`; ``progress`` is called with the number of molecules that are done."""
        with self._lock:
            count = min(self.max_processes, 1 + (len(items) - 1) // _FEW)
            work = _Work(task, items, options or {}, self.seconds, until_problem, processes=count)
            try:
                self._perform(work, count, progress)
            finally:  # Ctrl-C, or molecules behind the first problem: their answers are of no use any more
                for process in self._processes:
                    if process.is_busy:
                        process.kill()
                self._processes = [process for process in self._processes if not process.is_closed]
            return work.finished()

    def close(self) -> None:
        """Ends the processes."""
        with self._lock:
            for process in self._processes:
                process.kill()
            self._processes = []

    def _perform(self, work: _Work, count: int, progress: Callable[[int], None] | None) -> None:
        """Distributes the molecules to ``count`` processes and collects the answers."""
        failed_starts = 0
        while not work.is_finished:
            processes = [process for process in self._processes if not process.is_closed]
            while len(processes) < min(count, work.num_open):
                processes.append(_RDKitProcess())
            self._processes = processes
            for process in processes:
                if process.is_idle:
                    work.assign(process)
            ready = _wait(processes)
            for process in processes:
                was_starting = process.is_starting
                if process in ready:
                    process.receive(work)
                elif process.is_late:
                    process.end(work, timed_out=True)
                failed_starts += was_starting and process.is_closed
            if progress is not None:
                progress(len(work.items) - work.num_open)
            if failed_starts >= _MAX_STARTS:
                raise UsageError("The process that calls RDKit does not start; see the messages above.")


class _Work:
    """The molecules of one call, divided into chunks, and their answers."""

    def __init__(
        self,
        task: str,
        items: Sequence[str],
        options: Mapping[str, Option],
        seconds: float,
        until_problem: bool,
        processes: int = 1,
    ) -> None:
        self.task, self.items, self.options, self.seconds = task, items, options, seconds
        self.until_problem = until_problem
        self.answers: list[Answer | None] = [None] * len(items)
        self.end = len(items)  # molecules from here on need no answer
        self._left = len(items)
        self._num_bytes = 0  # of all answers
        self._deaths: dict[int, int] = {}  # processes that ended at a molecule
        # Several processes take many chunks in turn; one process gets all molecules at once, if they are few.
        chunk = max(1, min(_MAX_CHUNK, len(items) if processes == 1 else len(items) // 16))
        starts = range(0, len(items), chunk)
        self._chunks = deque((start, min(start + chunk, len(items))) for start in starts)

    @property
    def is_finished(self) -> bool:
        return not self._left if self.end == len(self.items) else None not in self.answers[: self.end]

    @property
    def num_open(self) -> int:
        """Number of molecules without an answer."""
        return self._left

    def assign(self, process: _RDKitProcess) -> None:
        """Sends the next chunk to a process, if there is one."""
        while self._chunks:
            start, stop = self._chunks.popleft()
            if start < self.end:
                request = {
                    "task": self.task,
                    "options": dict(self.options),
                    "seconds": self.seconds,
                    "items": list(self.items[start:stop]),
                }
                process.send(request, start, stop, self.seconds)
                return

    def answer(self, index: int, answer: Answer) -> None:
        self.answers[index] = answer
        self._left -= 1
        self._num_bytes += len(answer.content)
        check_memory("molecules", _BYTES_PER_BYTE * self._num_bytes)
        if answer.problem and self.until_problem:
            self.end = min(self.end, index + 1)

    def lose(self, index: int, stop: int, timed_out: bool) -> None:
        """Notes that a process ended at a molecule, and lets another go on.

        After a death without a time-out the molecule is tried once more: the system may have ended the process for
        reasons of its own.
        """
        self._deaths[index] = self._deaths.get(index, 0) + 1
        if timed_out or self._deaths[index] > 1:
            problem = (
                f"RDKit needs more than {self.seconds:g} s for it"
                if timed_out
                else "RDKit ends with a crash or needs too much memory for it"
            )
            self.answer(index, Answer([], problem=problem, is_final=False))
            index += 1
        if index < stop:
            self._chunks.appendleft((index, stop))

    def finished(self) -> list[Answer]:
        """The answers in the order of the molecules, up to the first problem if that is all that is needed."""
        return [answer for answer in self.answers[: self.end] if answer is not None]


class _RDKitProcess:
    """One process, the molecules that it was sent, and the bytes of its output that are not yet an answer."""

    def __init__(self) -> None:
        path = [entry for entry in sys.path if isinstance(entry, str)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to this program alone
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self.output = self._process.stdin, self._process.stdout
        self._buffer = bytearray()
        self._next = self._stop = 0  # molecules that it has not yet answered
        self._seconds = 0.0
        self.is_starting, self.is_closed = True, False
        self.deadline = time.monotonic() + _START_LIMIT

    @property
    def is_busy(self) -> bool:
        return not self.is_closed and self._next < self._stop

    @property
    def is_idle(self) -> bool:
        return not self.is_closed and not self.is_starting and self._next == self._stop

    @property
    def is_late(self) -> bool:
        return (self.is_busy or self.is_starting) and time.monotonic() > self.deadline

    def send(self, request: Mapping[str, object], start: int, stop: int, seconds: float) -> None:
        """Sends a request for the molecules ``start`` to ``stop``."""
        content = json.dumps(request).encode()
        self._next, self._stop, self._seconds = start, stop, seconds
        self.deadline = time.monotonic() + seconds
        message = memoryview(REQUEST.pack(len(content)) + content)
        try:
            while message:
                message = message[self._input.write(message) or 0 :]
        except BrokenPipeError:  # it has ended; receive() notices
            pass

    def receive(self, work: _Work) -> None:
        """Takes what the process has written."""
        block = os.read(self.output.fileno(), 1 << 20)
        if not block:
            self.end(work, timed_out=False)
            return
        self._buffer += block
        self._take_answers(work)
        self.deadline = time.monotonic() + self._seconds

    def end(self, work: _Work, timed_out: bool) -> None:
        """Ends the process, and gives the molecules that it has not answered back."""
        first, stop = self._next, self._stop
        self.kill()
        if first < stop:
            work.lose(first, stop, timed_out)

    def _take_answers(self, work: _Work) -> None:
        offset, size = 0, len(self._buffer)
        view = bytes(self._buffer)
        while offset + ANSWER.size <= size:
            valid, num_texts, num_bytes = ANSWER.unpack_from(view, offset)
            start = offset + ANSWER.size
            middle, end = start + num_texts, start + num_texts + num_bytes
            if end > size:
                break
            texts = json.loads(view[start:middle])
            offset = end
            if self.is_starting:
                self.is_starting = False
                continue
            answer = Answer(texts, view[middle:end]) if valid else Answer([], problem=texts[0])
            work.answer(self._next, answer)
            self._next += 1
        del self._buffer[:offset]

    def kill(self) -> None:
        """Ends the process at once."""
        self.is_closed, self._next = True, self._stop
        self._process.kill()
        self._process.wait()
        self._input.close()
        self.output.close()


def _wait(processes: Sequence[_RDKitProcess]) -> list[_RDKitProcess]:
    """Waits until a process has written something or is late, and returns those that have written."""
    active = [process for process in processes if process.is_busy or process.is_starting]
    with selectors.PollSelector() as selector:  # unlike epoll, it needs no system call to be made
        for process in active:
            selector.register(process.output, selectors.EVENT_READ, process)
        first = min(process.deadline for process in active)
        return [key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))]


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pools: dict[int, RDKitPool] = {}  # by process: one made by fork() must not share pipes with its parent


def _shared_pool() -> RDKitPool:
    pool = _pools.get(os.getpid())
    if pool is None:
        pool = _pools[os.getpid()] = RDKitPool()
        atexit.register(_close_pool, os.getpid())
    return pool


def close_rdkit() -> None:
    """Ends the processes of this program; the next call starts new ones."""
    _shared_pool().close()


def _close_pool(process: int) -> None:
    if process == os.getpid():  # a fork inherits this exit handler, but the processes are not its own
        _pools[process].close()
