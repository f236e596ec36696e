"""Parameters around ops. Every module takes ``lead=()``; ``lead=(F,)`` holds F independent models."""

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.losses import cross_entropy, margin_loss
from graphcaps.nn.norm import RaggedBatchNorm
from graphcaps.nn.primary import InputCapsules, PrimaryCapsules
from graphcaps.nn.trunk import Trunk

__all__ = [
    "HGCN",
    "AdjacencyDecoder",
    "CapsuleLayer",
    "InputCapsules",
    "PrimaryCapsules",
    "RaggedBatchNorm",
    "ReplicaDropout",
    "Trunk",
    "cross_entropy",
    "margin_loss",
]
