"""What the contracts of networks and of classical models have in common: the model under test and shared checks."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.model_file import load
from graphcaps.ops.edges import clean_edges
from graphcaps.registry import Choices, DatasetSize, RegisteredModel
from graphcaps.testing.expectations import ContractError, expect, expect_equal

__all__ = ["Subject", "check_description", "check_model_file", "check_unknown_options", "reorder_nodes"]

_SMALL = 8


@dataclass(frozen=True)
class Subject(ABC):
    """A registered model under test, with small options.

    Args:
        name (str): Name of the model.
        options (dict): Options of the model. (default: the option that its size grows with is 8)
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    @abstractmethod
    def kind(self) -> type[RegisteredModel]:
        """The class of the model."""

    @property
    @abstractmethod
    def size_option(self) -> str | None:
        """The option that is set to a small number."""

    @abstractmethod
    def config(self, **options: object) -> RunConfig:
        """A configuration of the model, with further options."""

    @abstractmethod
    def configure(self, **options: object) -> object:
        """A model of :meth:`config` with further options."""

    @abstractmethod
    def construct(self, **options: object) -> object:
        """A model from the constructor of its class, with these options alone."""

    def arguments(self, **options: object) -> dict[str, object]:
        """Options of the model: small, those of the subject, and further ones."""
        small = {} if self.size_option is None else {self.size_option: _SMALL}
        return small | dict(self.options) | options


def check_description(subject: Subject) -> None:
    """The summary is one sentence, and rules and search ranges give values that the model accepts."""
    summary = subject.kind.summary()
    expect(summary.endswith("."), f"the first line of the docstring must be a sentence, got {summary!r}")
    for size in (DatasetSize(tuple(range(1, 31)), 2), DatasetSize((1,) * 100_000, 100)):
        for name, option in subject.kind.data_options.items():
            subject.configure(**{name: option.rule(size)})
    # Beside other options a value may be refused; a search leaves such ranges out (graphcaps.search.default_space).
    for name, values in ({} if subject.options else subject.kind.searched).items():
        ends = values.values if isinstance(values, Choices) else (values.low, values.high)
        for value in ends:
            subject.configure(**{name: value})


def check_unknown_options(subject: Subject) -> None:
    """An option that the model does not have is refused, by the constructor and by the configuration."""
    refusals: tuple[tuple[Callable[..., object], type[Exception]], ...] = (
        (subject.configure, ArgumentError),
        (subject.construct, TypeError),
    )
    for build, error in refusals:
        try:
            build(no_such_option=1)
        except error:
            continue
        raise ContractError("an unknown option must be refused: the constructor takes no **kwargs")


def check_model_file(fitted: FittedModel, store: GraphStore) -> None:
    """A model file gives the probabilities of the model that was saved, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        fitted.save(path)
        loaded = load(path)
    expect(type(loaded.model) is type(fitted.model), "a model file must give the same model")
    expect_equal(
        loaded.predict_proba(store), fitted.predict_proba(store), "the probabilities of a loaded model", 0
    )


def reorder_nodes(store: GraphStore) -> tuple[GraphStore, Tensor]:
    """The same graphs with their nodes in another order, and the former index of each node, ``[N]``."""
    generator = torch.Generator().manual_seed(1)
    ptr = store.node_ptr.tolist()
    new_of = torch.cat([a + torch.randperm(b - a, generator=generator) for a, b in pairwise(ptr)])
    source, target = store.entry_rows()
    # The entry of each edge travels as its label, and finds the labels and the kind of the edge afterwards.
    entry = torch.arange(store.neighbours.numel()).unsqueeze(-1)
    clean = clean_edges(new_of[source], new_of[target], store.num_nodes, labels=entry)
    assert clean.labels is not None
    entry = clean.labels.squeeze(-1)
    old_of = new_of.argsort()
    columns = {
        "y": store.y,
        "smiles": store.smiles,
        "featurizer": store.featurizer,
        "fragments": store.fragments,
        "class_names": store.class_names,
        "node_labels": None if store.node_labels is None else store.node_labels[old_of],
        "node_attributes": None if store.node_attributes is None else store.node_attributes[old_of],
    }
    reordered = GraphStore.from_clean_edges("checks", store.node_ptr, clean, **columns)
    labels = None if store.edge_labels is None else store.edge_labels[entry]
    kind = None if store.edge_kind is None else store.edge_kind[entry]
    return replace(reordered, edge_labels=labels, edge_kind=kind), old_of
