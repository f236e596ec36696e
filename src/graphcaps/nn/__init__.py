"""HGCN and its layers. Modules take ``lead``: with ``lead=(F,)`` a module holds F independent models."""

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.context import Context
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.losses import cross_entropy, margin_loss
from graphcaps.nn.part_loss import PartsOutput, block_loss
from graphcaps.nn.primary_capsules import InputCapsules, PrimaryCapsules
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.trunk import Trunk

__all__ = [
    "HGCN",
    "AdjacencyDecoder",
    "CapsuleLayer",
    "Context",
    "GraphLayer",
    "GraphModel",
    "InputCapsules",
    "PartsOutput",
    "PrimaryCapsules",
    "RaggedBatchNorm",
    "ReplicaDropout",
    "Trunk",
    "block_loss",
    "cross_entropy",
    "margin_loss",
]
