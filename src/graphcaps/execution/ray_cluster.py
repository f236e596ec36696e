"""The connection to a Ray cluster: its address, its nodes with their resources, and their versions."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps.errors import ArgumentError, GraphcapsError, UsageError, shorten
from graphcaps.execution.node_versions import describe_difference, node_report

__all__ = ["Node", "RayCluster"]

_ADDRESS = re.compile(r"(?P<host>[^:/\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 120.0
_START = "Start one with: ray start --head --port=6379"
_NEW = "local"  # Ray's word for a cluster that ends with this process
_SETTINGS = 4  # the frame that each side of an HTTP/2 connection sends first


@dataclass(frozen=True)
class Node:
    """A node that is alive.

    Args:
        id (str): Ray's name of the node.
        host (str): Name of the machine.
        cpus, gpus (float): CPU cores and GPUs.
        memory (int): Memory for tasks, in bytes.
    """

    id: str
    host: str
    cpus: float
    gpus: float
    memory: int


class RayCluster:
    """A cluster that answers, all of whose nodes have the versions of this process.

    Args:
        address (str): ``HOST:PORT``, or ``"auto"``: the cluster of ``RAY_ADDRESS``, else the one that runs on this
            machine, else a new one on this machine, which ends with this process.

    Attributes:
        ray (module): Ray.
        versions (dict): Versions of this process, by name.
        gpu_memory (int, optional): Memory of the smallest GPU in bytes; ``None`` if no node has one.
        started (bool): Whether the cluster was started here.

    Raises:
        ArgumentError: If the address has another form.
        MissingExtraError: If Ray is not installed.
        UsageError: If no cluster answers, or a node has other versions.
    """

    def __init__(self, address: str = "auto") -> None:
        if address == "auto":
            address = os.environ.get("RAY_ADDRESS") or address
        if address != "auto":
            _check_address(address)
        self.ray = _import_ray()
        self._is_owner = not self.ray.is_initialized()
        self.started = False
        if self._is_owner:
            if address == "auto" and not _is_running(self.ray):
                address = _NEW
            self.started = address == _NEW
            _connect(self.ray, address)
        try:
            self.versions: dict[str, str] = node_report()(False)["versions"]
            self.gpu_memory = self._check_nodes()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Host and port of the cluster."""
        return str(self.ray.get_runtime_context().gcs_address)

    @property
    def environment(self) -> dict[str, Any]:
        """Ray's ``runtime_env`` of tasks: modules are found where this process finds them."""
        path = os.environ.get("PYTHONPATH")
        return {"env_vars": {"PYTHONPATH": path}} if path else {}

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        found = []
        for each in self.ray.nodes():
            if each["Alive"]:
                given = each["Resources"]
                counts = given.get("CPU", 0.0), given.get("GPU", 0.0), int(given.get("memory", 0))
                found.append(Node(each["NodeID"], each["NodeManagerHostname"], *counts))
        return found

    def close(self) -> None:
        """Leaves the cluster; ends it if it was started here. A connection of the caller stays."""
        if self._is_owner:
            self.ray.shutdown()

    def _check_nodes(self) -> int | None:
        """Compares the versions of all nodes, and returns the memory of the smallest GPU."""
        ray, report, waiting = self.ray, node_report(), {}
        strategy = require("ray.util.scheduling_strategies", extra="cluster", purpose="--ray")
        for node in self.nodes():
            has_gpu = node.gpus > 0
            task = ray.remote(report).options(
                num_cpus=0,
                num_gpus=0.01 if has_gpu else 0,  # a task without one does not see it
                max_retries=0,
                runtime_env=self.environment,
                scheduling_strategy=strategy.NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            waiting[node] = task.remote(has_gpu)
        sizes = []
        for node, answer in waiting.items():
            try:
                found = ray.get(answer, timeout=_PROBE_SECONDS)
            except ray.exceptions.GetTimeoutError as error:
                raise UsageError(
                    f"The node {node.host} of the Ray cluster did not run a task within {_PROBE_SECONDS:.0f} seconds."
                ) from error
            except ray.exceptions.RayTaskError as error:
                reason = shorten(str(error).strip().splitlines()[-1])
                raise UsageError(f"The node {node.host} cannot run graphcaps: {reason}") from error
            except ray.exceptions.RayError:  # it has just ended
                continue
            self.check_versions(found)
            if found["gpu_memory"]:
                sizes.append(found["gpu_memory"])
        return min(sizes, default=None)

    def check_versions(self, report: Mapping[str, Any]) -> None:
        """Rejects a node whose versions differ from those here.

        Args:
            report (dict): Result of :func:`graphcaps.execution.node_versions.node_report` on the node.

        Raises:
            UsageError: If they differ.
        """
        if problem := describe_difference(report["host"], report["versions"], self.versions):
            raise UsageError(problem)


def _import_ray() -> ModuleType:
    """Ray, imported such that it prints no messages of nodes: the standard output is for results."""
    names = ("RAY_DEDUP_LOGS_SKIP_REGEX",) if "ray" not in sys.modules else ()
    before = {name: os.environ.get(name) for name in names}
    os.environ |= dict.fromkeys(names, ".")  # read while Ray is imported
    try:
        return require("ray", extra="cluster", purpose="--ray")
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def _check_address(address: str) -> None:
    """Rejects text that is no address, and an address where no Ray answers."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) < 2**16:
        fix = f"{_START}, and take the address that it prints."
        if address.startswith("ray://"):
            fix = "Run the command on a node of the cluster, for instance with: ray job submit"
        raise ArgumentError("options", "--ray", "be auto or HOST:PORT", f"'{address}'", fix)
    try:
        answer = _greet(parts["host"].strip("[]"), int(parts["port"]))
    except OSError as error:
        raise UsageError(
            f"No Ray cluster answers at {address} ({error.strerror or error}). {_START}"
        ) from error
    if not answer:
        raise UsageError(f"Another program than Ray answers at {address}. {_START}")


def _greet(host: str, port: int) -> bool:
    """Whether a server speaks HTTP/2, as Ray's does; Ray itself would try to connect for minutes.

    Raises:
        OSError: If nothing listens there, or the answer takes too long.
    """
    with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") not in (
            "",
            "0",
        ):  # encrypted: it would not understand the greeting
            return True
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0)))
        answer = connection.recv(9)
        return len(answer) > 3 and answer[3] == _SETTINGS


def _is_running(ray: ModuleType) -> bool:
    """Whether the cluster that was started last on this machine answers."""
    address = ray._private.utils.read_ray_address()
    if address is None:
        return False
    try:
        _check_address(address)
    except GraphcapsError:  # it was killed
        return False
    return True


def _connect(ray: ModuleType, address: str) -> None:
    # Of a cluster that is started here: nothing is sent to Ray's makers, and workers do not yield to other programs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    try:
        with _same_signals():
            ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        where = f"at {address}" if ":" in address else "on this machine"
        reason = shorten(" ".join(str(error).split())).rstrip(".")
        token = " If it asks for a token, set RAY_AUTH_MODE=token." if "connect" in reason else ""
        raise UsageError(f"No connection to the Ray cluster {where}: {reason}.{token}") from error


@contextlib.contextmanager
def _same_signals() -> Iterator[None]:
    """Restores the handlers of signals, of which Ray replaces one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(number, handler)
