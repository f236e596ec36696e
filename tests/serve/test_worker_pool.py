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
SECONDS = 120.0  # bounds what hangs, also on a machine that is busy


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a scripted worker; beside a file ``broken`` it does not start, beside ``hold`` its start lasts."""
    monkeypatch.setattr(worker_process, "WORKER", (str(SCRIPT),))
    monkeypatch.setattr(WorkerPool, "first_delay", 0.05)
    path = tmp_path / "model"
    path.write_text(f"exit_if {tmp_path / 'broken'}\nwait_while {tmp_path / 'hold'}\n")
    return path


@asynccontextmanager
async def running(path: Path, **limits: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(path, Limits(**({"max_seconds": SECONDS} | limits)))
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
        assert pool.num_serving == 0


async def post(
    pool: WorkerPool, command: str = "", task: str = "predict", *, seconds: float = SECONDS
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
    run_in_thread(test, seconds=2 * SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def is_computed(pool: WorkerPool, jobs: int = 1) -> None:
    """Waits until workers compute that many requests and none waits."""
    await until(lambda: len(pool._jobs) == jobs and not pool.num_waiting)


def pids(pool: WorkerPool) -> list[int]:
    return [worker.process.pid for worker in pool._serving]


def test_waiting_requests_are_computed_in_batches(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model, max_batch=4) as pool:
            first = asyncio.create_task(post(pool, f"wait {tmp_path / 'go'}"))
            await is_computed(pool)
            others = [asyncio.create_task(post(pool, task=task)) for task in ["predict"] * 5 + ["explain"]]
            await until(lambda: pool.num_waiting == 6)
            (tmp_path / "go").touch()
            assert (await first)["batch"] == 1
            assert [(await other)["batch"] for other in others] == [4, 4, 4, 4, 1, 1]

    run(test)


def test_a_request_whose_client_has_gone_is_not_computed(model: Path, tmp_path: Path) -> None:
    create_app = pytest.importorskip("graphcaps.serve.app", reason="FastAPI is not installed").create_app
    computed = tmp_path / "computed"

    async def test() -> None:
        app = create_app(model, limits=Limits(max_seconds=SECONDS), any_host=True)
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
            busy = asyncio.create_task(post(pool, f"wait {tmp_path / 'go'}"))
            await is_computed(pool)
            request = asyncio.create_task(app(scope, receive, send))
            await until(lambda: pool.num_waiting == 1)
            gone.set()
            await request
            assert pool.num_waiting == 0
            assert not busy.done()
            (tmp_path / "go").touch()
            assert (await busy)["batch"] == 1
            assert (await post(pool))["batch"] == 1
        finally:
            await pool.close()

    run(test)
    assert not computed.exists()


def test_a_batch_is_shared_among_workers(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model, workers=2) as pool:
            go = tmp_path / "go"
            busy = [asyncio.create_task(post(pool, f"wait {go}", "explain")) for _ in range(2)]
            await is_computed(pool, 2)
            waiting = [asyncio.create_task(post(pool)) for _ in range(6)]
            await until(lambda: pool.num_waiting == 6)
            go.touch()
            responses = await asyncio.gather(*waiting, *busy)
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


def test_only_requests_that_may_be_mistaken_for_others_are_reported_as_read(
    model: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(model) as pool:
            assert not (await post(pool))["reported"]
            assert (await post(pool, f"exit_once {tmp_path / 'once'}"))["reported"]  # the second attempt
            waiting = asyncio.ensure_future(post(pool, f"wait {tmp_path / 'go'}"))
            await until((tmp_path / "go.begun").exists)
            others = [asyncio.ensure_future(post(pool)) for _ in range(2)]
            await asyncio.sleep(0)
            (tmp_path / "go").touch()
            assert not (await waiting)["reported"]
            assert [one["reported"] for one in await asyncio.gather(*others)] == [True, True]

    run(test)


def test_a_request_sent_to_workers_that_have_ended_is_not_blamed(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=3) as pool:
            for pid in pids(pool):
                os.kill(pid, signal.SIGKILL)
            assert (await post(pool))["batch"] == 1  # the pool has not noticed yet

    run(test)


def test_an_idle_worker_that_ends_is_replaced_without_a_request(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            (killed,) = pids(pool)
            (tmp_path / "hold").touch()
            os.kill(killed, signal.SIGKILL)
            await until(lambda: not pool.num_serving)
            with pytest.raises(RequestError, match="no worker process is ready") as caught:
                pool.check_serving()
            assert caught.value.status == 503
            (tmp_path / "hold").unlink()
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
            refused = await post(pool)
            assert refused["status"] == 503
            assert refused["retry_after"] >= 1
            assert "did not start" in refused["error"]
            attempt = pool._next_attempt
            await until(lambda: pool._next_attempt > attempt)  # a further attempt
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
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: 0.0)  # the clock stands still
            for failures in (1, 2, 3, 4, 5000):
                pause = asyncio.create_task(pool._pause(failures, stop))
                await asyncio.sleep(0)
                delays.append(pool._next_attempt)
                pause.cancel()

    run(test)
    assert delays == [0.05, 0.1, 0.2, 0.3, 0.3]


def test_a_changed_or_removed_file_does_not_change_the_model(model: Path) -> None:
    async def test() -> None:
        async with running(model, workers=2) as pool:
            before, digest = (await post(pool))["model"], pool.sha256
            for change in (lambda: model.write_text("name other\n"), model.unlink):
                change()
                killed = pids(pool)[0]
                os.kill(killed, signal.SIGKILL)
                await until(lambda gone=killed: pool.num_serving == 2 and gone not in pids(pool))
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
            await until(lambda: answers[-4:] == ["name other\n"] * 4)
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


def test_too_many_waiting_requests_are_rejected(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model, max_waiting=1) as pool:
            computed = asyncio.create_task(post(pool, f"wait {tmp_path / 'go'}"))
            await is_computed(pool)
            waiting = asyncio.create_task(post(pool))
            await until(lambda: pool.num_waiting == 1)
            assert (await post(pool))["status"] == 503
            (tmp_path / "go").touch()
            assert [(await task)["batch"] for task in (computed, waiting)] == [1, 1]

    run(test)


def test_a_request_that_was_given_up_does_not_wait(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            first = asyncio.create_task(post(pool, f"wait {tmp_path / 'go'}"))
            await is_computed(pool)
            second = asyncio.create_task(post(pool))
            await until(lambda: pool.num_waiting == 1)
            second.cancel()
            await until(lambda: pool.num_waiting == 0)
            (tmp_path / "go").touch()
            assert (await first)["batch"] == 1

    run(test)


def test_requests_get_an_error_when_the_pool_ends(model: Path) -> None:
    async def test() -> None:
        async with running(model) as pool:
            task = asyncio.create_task(post(pool, "sleep 60"))
            await is_computed(pool)
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
