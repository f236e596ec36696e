"""The contract of models that are trained by gradient descent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError, check_at_least
from graphcaps.nn.collate import attach_precomputed, collate
from graphcaps.nn.losses import check_class_type
from graphcaps.ops.compilation import untraced
from graphcaps.ops.ragged.reductions import clear_padding
from graphcaps.ops.structure.precomputation import Precomputation
from graphcaps.registry import RegisteredModel
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput, TrainingLoss

__all__ = ["GraphModel", "ModelFactory", "ScoringFunction", "TrainingFunction"]


class GraphModel(RegisteredModel, nn.Module, ABC):
    """A classifier of graphs that training, evaluation, prediction and files work with.

    A model is constructed with ``(in_channels, num_classes, *, lead=(), **options)``. With ``lead=(F,)`` it holds F
    independent models: parameters, buffers and results have a leading axis F, and replica f computes what a single
    model with its parameters computes. :func:`graphcaps.testing.check_model` tests this.

    A subclass implements :meth:`forward_batch`, :meth:`loss` and :meth:`reset_parameters`, and sets the class
    attributes of :class:`graphcaps.registry.RegisteredModel`.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes O.
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Attributes:
        edge_kinds (tuple): Number of values of each edge label column that the model reads in its message passing
            (:mod:`graphcaps.ops.edge_kinds`). A model that can read edge labels has an option of this name, whose value
            comes from the data. (default: (), none)
        export_formats (tuple): Suffixes of the files that the model can be exported to. Not among them are formats
            without an operation that the model needs, such as a stable sort in ONNX. (default: .pt2 and .onnx)
        has_capsules (bool): Whether the output is an :class:`HGCNOutput`, with levels of capsules. (default: False)
        assigns_groups (bool): Whether the nodes of a connected group belong to one capsule
            (:mod:`graphcaps.nn.hard_assignment`), and not each node to its own. (default: True)
        mean_coefficients (tuple, optional): Per level of a trained model with capsules, the means of its routing
            coefficients over the training graphs, of each iteration, ``[R, J]``, which say what capsule a node belongs
            to (:mod:`graphcaps.nn.hard_assignment`). They are measured after the training. (default: ``None``)
        replica_options (tuple): Options that may differ between the replicas of one model: the constructor takes a
            float64 tensor of one number per replica, ``[*lead]``, in place of a number. All of ``dropout`` that is
            passed on to :class:`~graphcaps.nn.ReplicaDropout` can be one. (default: (), none)
        order_invariant (bool): Whether scores are the same for any order of the nodes of a graph. A precomputation may
            break ties by it, such as the sign of an eigenvector. (default: True)
        pads_to_largest (bool): Whether a step pads graphs to the largest one of its batch. Captured steps then have a
            size for each rounded number of nodes of that graph; otherwise its bound is the largest graph of the store.
            (default: False)
        capturable (bool): Whether a training step can be captured as a CUDA graph: it must not synchronise with the
            host, and the shapes of its tensors must depend on the shape of the batch only, with and without edge
            weights, unless the model refuses weights. (default: False)

    Raises:
        ArgumentError: If a size is below 1.
    """

    edge_kinds: tuple[int, ...] = ()
    export_formats: ClassVar[tuple[str, ...]] = (".pt2", ".onnx")
    has_capsules: ClassVar[bool] = False
    assigns_groups: bool = True
    mean_coefficients: tuple[Tensor, ...] | None = None
    replica_options: ClassVar[tuple[str, ...]] = ()
    order_invariant: ClassVar[bool] = True
    pads_to_largest: ClassVar[bool] = False
    capturable: bool = False

    def __init__(self, in_channels: int, num_classes: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        check_at_least(type(self).__name__, 1, in_channels=in_channels, num_classes=num_classes)
        self.in_channels, self.num_classes, self.lead = in_channels, num_classes, lead

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draws all parameters anew from torch's generator, and resets buffers."""

    @abstractmethod
    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Class scores of the graphs of a batch.

        Padding rows of ``batch.x`` may hold any value, NaN too, and must not change the results of real graphs:
        :meth:`node_features` sets them to 0. Graphs without nodes may be among the others, and must not change their
        results either; their own scores must be finite. Training leaves them out, and predictions for them are the
        class prior.

        Args:
            batch (GraphBatch): Batch of graphs.
            y (Tensor, optional): Classes, ``[*lead, B]``, −1 at padding; passed in training, for losses that depend
                on more than the class scores.
        """

    @abstractmethod
    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """The loss that is minimised, one number per replica, as a mean over real graphs.

        Args:
            output (ModelOutput): Result of :meth:`forward_batch`, or class scores alone: those of the class prior, for
                graphs without nodes.
            y (Tensor): Classes, −1 at padding, ``[*lead, B]``.
            options (LossOptions): Weights of classes, graphs and loss terms. (default: those of :class:`LossOptions`)
        """

    def training_loss(self, batch: GraphBatch, options: LossOptions) -> TrainingLoss:
        """:meth:`loss` of :meth:`forward_batch` for a batch with classes, with its class scores."""
        assert batch.y is not None
        output = self.forward_batch(batch, batch.y)
        return TrainingLoss(self.loss(output, batch.y, options), output.class_scores)

    def training_function(self) -> TrainingFunction:
        """What training steps call; as an optimizer, it refers to the tensors that the model has now.

        A model can return a faster form of :meth:`training_loss`, which this is otherwise.
        """
        return self.training_loss

    def scoring_function(self) -> ScoringFunction:
        """What evaluations between epochs call, in evaluation mode and without gradients, for the class scores.

        As :meth:`training_function`, a model can return a faster form of :meth:`forward_batch`.
        """
        return self.forward_batch

    def node_features(self, batch: GraphBatch) -> Tensor:
        """The input features of the nodes, ``[*lead, V, in]``, with 0 in padding rows.

        Raises:
            ShapeError: If the batch has other leading axes or another number of features than the model.
            ArgumentError: If the batch does not have the precomputed levels and columns of the model.
        """
        x = batch.x
        if tuple(x.shape[:-2]) != tuple(self.lead) or x.size(-1) != self.in_channels:
            expected = f"have the shape {[*self.lead, 'V', self.in_channels]}"
            raise ShapeError(type(self).__name__, "x", expected, list(x.shape))
        needed = self.precomputation
        if needed is not None:
            columns = 0 if batch.columns is None else batch.columns.size(-1)
            expected = f"have {len(needed.level_weights)} precomputed levels and {needed.num_columns} columns"
            if (len(batch.levels), columns) != (len(needed.level_weights), needed.num_columns):
                fix = "Make batches from graphcaps.data.precompute.precompute(store, model.precomputation)."
                found = f"{len(batch.levels)} and {columns}"
                raise ArgumentError(type(self).__name__, "batch", expected, found, fix)
        return clear_padding(x, batch.segments)

    @property
    def precomputation(self) -> Precomputation | None:
        """What the model needs computed from each graph before it sees a batch; batches then have ``levels`` or
        ``columns`` (:mod:`graphcaps.data.precompute`). (default: None)"""
        return None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        y: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> ModelOutput:
        """Classifies graphs in the form of torch-geometric.

        Edges are made undirected and unique, and self-loops are dropped.

        Args:
            x (Tensor): Features, ``[V, in]``.
            edge_index (Tensor): ``[2, E]``.
            batch (Tensor, optional): Graph of each node, sorted, ``[V]``. (default: one graph)
            y (Tensor, optional): Classes ``[B]``, as in :meth:`forward_batch`, of which none is padding.
            edge_weight (Tensor, optional): ``[E]``.
            edge_attr (Tensor, optional): Index of each edge's label, from 0, or −1 for any other label, ``[E]``, or
                ``[E, C]`` for C label columns; for models with ``edge_kinds``, which need it.
            num_graphs (int, optional): Number of graphs B, if the last ones may have no nodes.

        Raises:
            ShapeError: If a class is out of range, or not an integer of 64 bits.
            ArgumentError: If a feature is not finite, the model holds replicas, ``edge_attr`` is missing or not read,
                or the model precomputes something from node labels.
        """
        graphs = self._collate(x, edge_index, batch, y, edge_weight, edge_attr, num_graphs)
        return self.forward_batch(graphs, y)

    @untraced
    def _collate(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None,
        y: Tensor | None,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
        num_graphs: int | None,
    ) -> GraphBatch:
        """The arguments of :meth:`forward` as a batch, checked."""
        owner = type(self).__name__
        if y is not None:
            check_class_type(owner, y)
        if y is not None and y.numel() and not 0 <= int(y.min()) <= int(y.max()) < self.num_classes:
            expected = f"hold classes from 0 to {self.num_classes - 1}"
            fix = "Number the classes from 0, as y.unique(return_inverse=True)[1] does."
            raise ShapeError(owner, "y", expected, f"{int(y.min())} to {int(y.max())}", fix)
        if self.lead:
            fix = "Use forward_batch for replicas."
            raise ArgumentError(owner, "lead", "be () for a torch-geometric call", self.lead, fix)
        dtype = next(self.parameters()).dtype
        collated = collate(
            owner, x, edge_index, batch, edge_weight, num_graphs, dtype,
            edge_attr=edge_attr, edge_kinds=self.edge_kinds,
        )  # fmt: skip
        if not x.size(0):
            collated = GraphBatch.without_nodes((), 1 if num_graphs is None else num_graphs, x)
        return attach_precomputed(owner, collated, self.precomputation, dtype)


TrainingFunction = Callable[[GraphBatch, LossOptions], TrainingLoss]
"""Loss and class scores of a batch with classes."""

ScoringFunction = Callable[[GraphBatch], ModelOutput]
"""Class scores of a batch."""

ModelFactory = Callable[[tuple[int, ...]], GraphModel]
"""Builds a model with the given leading axes."""
