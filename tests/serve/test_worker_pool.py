"""The pool of workers: batches, workers that end or hang, a model file that changes, back-off."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from graphcaps.errors import GraphcapsError
from graphcaps.serve import worker_process
from graphcaps.serve.limits import Limits, RequestError
from graphcaps.serve.worker_pool import WorkerPool
from tests.serve.event_loops import run_in_thread

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="ends processes by signals of POSIX")
SCRIPT = Path(__file__).with_name("scripted_worker.py")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a scripted worker; it does not start while a file ``broken`` lies beside it."""
    monkeypatch.setattr(worker_process, "WORKER", (str(SCRIPT),))
    monkeypatch.setattr(WorkerPool, "first_delay", 0.05)
    path = tmp_path / "model"
    path.write_text(f"exit_if {tmp_path / 'broken'}\n")
    return path


@asynccontextmanager
async def running(path: Path, **limits: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(path, Limits(**({"max_seconds": 10.0} | limits)))
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
        assert pool.num_serving == 0


async def post(
    pool: WorkerPool, command: str = "", task: str = "predict", *, seconds: float = 20.0
) -> dict[str, Any]:
    """The response to a request; a rejected one as ``{"status", "error"}``. The application times it out as here."""
    header = {"task": task, "content_type": "", "options": {}}
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout_at(deadline):
            _, content = await pool.submit(header, command.encode(), deadline)
    except TimeoutError:
        return {"status": 503, "error": "timed out"}
    except RequestError as error:
        return {"status": error.status, "error": str(error), "retry_after": error.retry_after}
    response: dict[str, Any] = json.loads(content)
    return response


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_thread(test, seconds=60)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def pids(pool: WorkerPool) -> list[int]:
    return [worker.process.pid for worker in pool._serving]


def test_waiting_requests_are_computed_in_batches(model: Path) -> None:
    async def test() -> None:
        async with running(model, max_batch=4) as pool:
            first = asyncio.create_task(post(pool, "sleep 0.3"))
            await until(lambda: bool(pool._jobs) and not pool.num_waiting)
            others = [asyncio.create_task(post(pool, task=task)) for task in ["predict"] * 5 + ["explain"]]
            assert (await first)["batch"] == 1
            assert [(await other)["batch"] for other in others] == [4, 4, 4, 4, 1, 1]

    run(test)


def test_a_request_whose_client_has_gone_is_not_computed(model: Path, tmp_path: Path) -> None:
    create_app = pytest.importorskip("graphcaps.serve.app", reason="FastAPI is not installed").create_app
    computed = tmp_path / "computed"

    async def test() -> None:
        app = create_app(model, limits=Limits(max_seconds=10.0), any_host=True)
        pool: WorkerPool = app.state.pool
        await pool.start()
        gone = asyncio.Event()
        body = [{"type": "http.request", "body": f"exit_once {computed}".encode(), "more_body": False}]
        sent = []

        async def receive() -> dict[str, Any]:
            if body:
                return body.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/predict",
            "query_string": b"",
            "headers": headers,
        }
        try:
            busy = asyncio.create_task(post(pool, "sleep 0.5"))
            await until(lambda: bool(pool._jobs) and not pool.num_waiting)
            request = asyncio.create_task(app(scope, receive, send))
            await until(lambda: pool.num_waiting == 1)
            gone.set()
            await request
            assert pool.num_waiting == 0
            assert not busy.done()
            assert (await busy)["batch"] == 1
            assert (await post(pool))["batch"] == 1
        finally:
            await pool.close()

    run(test)
    assert not computed.exists()


def test_a_batch_is_shared_among_workers(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=2) as pool:
            busy = [asyncio.create_task(post(pool, "sleep 0.3", "explain")) for _ in range(2)]
            await until(lambda: len(pool._jobs) == 2 and not pool.num_waiting)
            responses = await asyncio.gather(*(post(pool) for _ in range(6)), *busy)
            assert [one["batch"] for one in responses[:3]] == [3] * 3

    run(test)


def test_a_request_whose_worker_was_killed_is_tried_again(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            assert (await post(pool, f"exit_once {tmp_path / 'once'}"))["batch"] == 1
            (killed,) = pids(pool)
            os.kill(killed, signal.SIGKILL)
            assert (await post(pool))["batch"] == 1
            assert pids(pool) != [killed]

    run(test)


def test_a_request_sent_to_workers_that_have_ended_is_not_blamed(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=3) as pool:
            for pid in pids(pool):
                os.kill(pid, signal.SIGKILL)
            assert (await post(pool))["batch"] == 1  # the pool has not noticed yet

    run(test)


def test_an_idle_worker_that_ends_is_replaced_without_a_request(model: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            (killed,) = pids(pool)
            os.kill(killed, signal.SIGKILL)
            await until(lambda: not pool.num_serving)
            with pytest.raises(RequestError, match="no worker process is ready") as caught:
                pool.check_serving()
            assert caught.value.status == 503
            await until(lambda: pool.num_serving == 1)
            assert pids(pool) != [killed]

    run(test)


def test_a_request_that_ends_every_worker_gets_an_error_and_the_others_do_not(model: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            commands = ["sleep 0.2", "", "", "exit", ""]
            responses = await asyncio.gather(*(post(pool, command) for command in commands))
            assert [one.get("status", 200) for one in responses] == [200, 200, 200, 500, 200]
            assert "ended twice" in responses[3]["error"]
            assert (await post(pool))["batch"] == 1

    run(test)


def test_a_request_that_hangs_ends_its_worker_and_the_others_are_answered(model: Path) -> None:
    async def test() -> None:
        async with running(model, max_seconds=2.0) as pool:
            before = pids(pool)
            hanging = post(pool, "sleep 60", seconds=2.0)
            responses = await asyncio.gather(post(pool), hanging, post(pool), post(pool))
            assert [one.get("status", 200) for one in responses] == [200, 503, 200, 200]
            assert [responses[index]["batch"] for index in (0, 2, 3)] == [3] * 3  # together again, without it
            await until(lambda: pool.num_serving == 1)
            assert pids(pool) != before

    run(test)


def test_workers_that_do_not_start_are_tried_again_until_one_does(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            broken = tmp_path / "broken"
            broken.touch()
            os.kill(pids(pool)[0], signal.SIGKILL)
            await until(lambda: bool(pool._failure))
            refused = await asyncio.wait_for(post(pool), 1)  # at once, not after max_seconds
            assert refused["status"] == 503
            assert refused["retry_after"] >= 1
            assert "did not start" in refused["error"]
            await asyncio.sleep(0.3)  # further attempts
            broken.unlink()
            await until(lambda: pool.num_serving == 1)
            assert (await post(pool))["batch"] == 1
            pool.check_serving()

    run(test)


def test_a_process_that_cannot_be_created_is_tried_again(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = asyncio.create_subprocess_exec
    attempts: list[int] = []

    async def fail_twice(*arguments: Any, **settings: Any) -> Any:
        attempts.append(len(attempts))
        if len(attempts) in (2, 3):
            raise OSError(11, "Resource temporarily unavailable")
        return await create(*arguments, **settings)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail_twice)

    async def test() -> None:
        async with running(model) as pool:
            os.kill(pids(pool)[0], signal.SIGKILL)
            await until(lambda: "temporarily unavailable" in pool._failure)
            await until(lambda: pool.num_serving == 1)
            assert len(attempts) == 4
            assert (await post(pool))["batch"] == 1

    run(test)


def test_the_delay_doubles_up_to_a_limit(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(WorkerPool, "longest_delay", 0.3)

    async def test() -> None:
        pool, stop = WorkerPool(model, Limits()), asyncio.Event()
        for failures in (1, 2, 3, 4, 5000):
            now = asyncio.get_running_loop().time()
            await asyncio.wait({asyncio.create_task(pool._pause(failures, stop))}, timeout=0.001)
            delays.append(round(pool._next_attempt - now, 2))

    run(test)
    assert delays == [0.05, 0.1, 0.2, 0.3, 0.3]


def test_a_changed_or_removed_file_does_not_change_the_model(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=2) as pool:
            before, digest = (await post(pool))["model"], pool.sha256
            for change in (lambda: model.write_text("name other\n"), model.unlink):
                change()
                os.kill(pids(pool)[0], signal.SIGKILL)
                await until(lambda: pool.num_serving == 1)
                await until(lambda: pool.num_serving == 2)
                answers = await asyncio.gather(*(post(pool, "sleep 0.05", "explain") for _ in range(6)))
                assert {answer["model"] for answer in answers} == {before}
                assert pool.sha256 == digest

    run(test)


def test_reloading_switches_all_workers_or_none(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=2) as pool:
            before, answers = (await post(pool))["model"], []

            async def client(seconds: float) -> None:
                while not done.is_set():
                    answers.append((await post(pool, f"sleep {seconds}", "explain"))["model"])

            done = asyncio.Event()
            clients = [asyncio.create_task(client(seconds)) for seconds in (0.3, 0.4, 0.02, 0.02)]
            model.write_text("name other\n")
            digest = pool.sha256
            await pool.reload()
            assert pool.sha256 != digest
            await asyncio.sleep(0.5)
            done.set()
            await asyncio.gather(*clients)
            first = answers.index("name other\n")
            assert set(answers[:first]) == {before}
            assert set(answers[first:]) == {"name other\n"}
            assert pool.model == {"content": "name other\n"}
            model.unlink()
            await pool.reload()
            assert (await post(pool))["model"] == "name other\n"

    run(test)


def test_too_many_waiting_requests_are_rejected(model: Path) -> None:
    async def test() -> None:
        async with running(model, max_waiting=1) as pool:
            tasks = []
            for _ in range(3):
                tasks.append(asyncio.create_task(post(pool, "sleep 0.4")))
                await asyncio.sleep(0.1)
            statuses = [(await task).get("status", 200) for task in tasks]
            assert statuses == [200, 200, 503]

    run(test)


def test_a_request_that_was_given_up_does_not_wait(model: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            first = asyncio.create_task(post(pool, "sleep 0.3"))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(post(pool))
            await until(lambda: pool.num_waiting == 1)
            second.cancel()
            await until(lambda: pool.num_waiting == 0)
            assert (await first)["batch"] == 1

    run(test)


def test_requests_get_an_error_when_the_pool_ends(model: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            task = asyncio.create_task(post(pool, "sleep 60"))
            await asyncio.sleep(0.1)
            pool.abort()
            assert "stopping" in (await task)["error"]
            assert (await post(pool))["status"] == 503

    run(test)


def test_a_model_that_cannot_be_loaded_at_the_start_is_an_error(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "broken").touch()
        with pytest.raises(GraphcapsError, match="did not start"):
            await WorkerPool(model, Limits(workers=2)).start()
        with pytest.raises(GraphcapsError, match="file not found"):
            await WorkerPool(tmp_path / "none", Limits()).start()

    run(test)
