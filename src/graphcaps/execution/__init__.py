"""Execution of cells, the parts that a run is divided into: in this process, or on the nodes of a Ray cluster."""

from graphcaps.execution.cell import Cell, ClusterProgress, Executor, Outcome
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.execution.ray_executor import RayExecutor

__all__ = ["Cell", "ClusterProgress", "Executor", "LocalExecutor", "Outcome", "RayExecutor"]
