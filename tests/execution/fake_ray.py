"""A Ray of this process: tasks run when their result is asked for, the last one first, and can be made to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from graphcaps.execution.node_versions import node_report
from graphcaps.execution.ray_cluster import Node, RayCluster

__all__ = ["FakeCluster", "FakeRay", "Reference"]


class RayError(Exception):
    pass


ERRORS = {
    name: type(name, (RayError,), {})
    for name in (
        *("OutOfMemoryError", "OutOfDiskError", "ObjectStoreFullError", "TaskUnschedulableError"),
        *("WorkerCrashedError", "NodeDiedError"),
    )
}


class Reference:
    """A value in the object store, or a task."""

    def __init__(self, compute: Callable[[], Any], title: str = "") -> None:
        self.compute, self.title = compute, title


class FakeRay:
    """What :class:`graphcaps.execution.RayExecutor` uses of the module ``ray``.

    Args:
        failures (dict): Exceptions of the next tasks whose title ends with a text, by that text.
    """

    exceptions = SimpleNamespace(RayError=RayError, **ERRORS)

    def __init__(self, failures: dict[str, list[str]] | None = None) -> None:
        self.failures = failures or {}
        self.stored: list[Any] = []
        self.submitted: list[dict[str, Any]] = []
        self.cancelled: list[str] = []

    def is_initialized(self) -> bool:
        return True

    def shutdown(self) -> None:
        raise AssertionError("the connection belongs to the test")

    def put(self, value: Any) -> Reference:
        self.stored.append(value)
        return Reference(lambda: value)

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**given: Any) -> Any:
            def submit(*arguments: Any) -> Reference:
                self.submitted.append(given)
                values = [each.compute() if isinstance(each, Reference) else each for each in arguments]
                return Reference(lambda: function(*values), given.get("name", ""))

            return SimpleNamespace(remote=submit)

        return SimpleNamespace(options=options)

    def wait(
        self, references: Sequence[Reference], num_returns: int, timeout: float
    ) -> tuple[list[Reference], list[Reference]]:
        return list(references[-1:]), list(references[:-1])

    def get(self, reference: Reference, timeout: float | None = None) -> Any:
        for ending, names in self.failures.items():
            if reference.title.endswith(ending) and names:
                raise ERRORS[names.pop(0)](reference.title)
        return reference.compute()

    def cancel(self, reference: Reference, force: bool = False) -> None:
        if not force:
            self.cancelled.append(reference.title)


class FakeCluster(RayCluster):
    """A cluster of two nodes, each with two cores."""

    def __init__(self, ray: FakeRay, **versions: str) -> None:
        self.ray: Any = ray
        self._is_owner, self.started, self.gpu_memory = False, False, None
        self.versions = node_report()(False)["versions"] | versions

    def nodes(self) -> list[Node]:
        return [Node(name, name, 2.0, 0.0, 8 * 2**30) for name in ("a", "b")]
