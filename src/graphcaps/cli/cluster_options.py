"""The option ``--ray``: trainings on a Ray cluster, and the progress bar of its nodes and cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from graphcaps.cli.output import note, option
from graphcaps.cli.progress import progress_bars
from graphcaps.errors import UsageError, count_noun

if TYPE_CHECKING:
    from graphcaps.evaluation.joint_training import JointProgress
    from graphcaps.execution import RayExecutor

__all__ = ["RayAddress", "cluster_progress", "open_cluster"]

RayAddress = Annotated[
    str | None,
    option(
        "--ray",
        metavar="ADDRESS",
        help="Train on a Ray cluster: auto, or HOST:PORT (docs/howto/cluster.md). Default: on this machine.",
    ),
]


def open_cluster(context: typer.Context, address: str | None, **refused: object) -> RayExecutor | None:
    """The executor of ``--ray``, until the command ends; ``None`` without the option.

    Args:
        context (Context): The command.
        address (str, optional): Value of the option.
        refused: Values of options that cannot be combined with it, by name; ``None`` if they are not given.

    Raises:
        UsageError: If one of them is given, no cluster answers, or a node has other versions.
    """
    if address is None:
        return None
    for name, value in refused.items():
        if value is not None:
            raise UsageError(f"--{name} cannot be combined with --ray: the trainings run in other processes.")
    from graphcaps.execution import RayExecutor

    executor = context.with_resource(RayExecutor(address, note))
    cluster = executor.cluster
    nodes = cluster.nodes()
    cores, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    size = f"{count_noun(len(nodes), 'node')}, {count_noun(int(cores), 'core')}"
    size += f", {count_noun(int(gpus), 'GPU')}" if gpus else ""
    origin = "Started Ray on this machine" if cluster.started else f"Ray cluster at {cluster.address}"
    note(f"{origin}: {size}.")
    return executor


@contextmanager
def cluster_progress(*, quiet: bool) -> Iterator[Callable[[JointProgress], None]]:
    """A bar over all trainings, with the nodes of the cluster and its cells.

    Args:
        quiet (bool): Draw nothing.
    """
    with progress_bars("cells", quiet=quiet) as progress:
        task = progress.add_task("Ray", total=None, cells="")

        def update(event: JointProgress) -> None:
            cluster = event.cluster
            cells = f"cells: {cluster.running} running or waiting, {cluster.finished} finished"
            nodes = count_noun(cluster.nodes, "node")
            progress.update(task, description=nodes, total=event.total, completed=event.trained, cells=cells)

        yield update
