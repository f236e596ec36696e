"""HGCN and its layers, and layers for other models.

Modules take ``lead``: with ``lead=(F,)`` a module holds F independent models, called replicas.
"""

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.coarsening_network import CoarseningNetwork
from graphcaps.nn.context import Context
from graphcaps.nn.conv_classifier import ConvClassifier
from graphcaps.nn.conv_head import ConvHead
from graphcaps.nn.decoder import AdjacencyDecoder
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.edge_modulation import EdgeModulation
from graphcaps.nn.gat_conv import ReplicaGATConv
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.nn.gin_conv import ReplicaGINConv
from graphcaps.nn.graph_layer import GraphLayer
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.losses import cross_entropy, margin_loss
from graphcaps.nn.mean_conv import ReplicaMeanConv
from graphcaps.nn.memory_network import MemoryNetwork
from graphcaps.nn.memory_pooling import MemoryPooling
from graphcaps.nn.part_loss import PartsOutput, block_loss
from graphcaps.nn.pooling import max_pool, mean_pool, sort_pool, sum_pool, top_k
from graphcaps.nn.primary_capsules import InputCapsules, PrimaryCapsules
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.nn.replica_mlp import ReplicaMLP
from graphcaps.nn.sage_conv import ReplicaSAGEConv
from graphcaps.nn.trunk import Trunk

__all__ = [
    "HGCN",
    "AdjacencyDecoder",
    "CapsuleLayer",
    "CoarseningNetwork",
    "Context",
    "ConvClassifier",
    "ConvHead",
    "EdgeModulation",
    "GraphLayer",
    "GraphModel",
    "InputCapsules",
    "MemoryNetwork",
    "MemoryPooling",
    "PartsOutput",
    "PrimaryCapsules",
    "RaggedBatchNorm",
    "ReplicaDropout",
    "ReplicaGATConv",
    "ReplicaGCNConv",
    "ReplicaGINConv",
    "ReplicaLinear",
    "ReplicaMLP",
    "ReplicaMeanConv",
    "ReplicaSAGEConv",
    "Trunk",
    "block_loss",
    "cross_entropy",
    "margin_loss",
    "max_pool",
    "mean_pool",
    "sort_pool",
    "sum_pool",
    "top_k",
]
