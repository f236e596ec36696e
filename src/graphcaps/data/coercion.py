"""Converts whatever a user has to one :class:`GraphStore`.

Estimator, library, explanation and server call :func:`coerce`. The command line has a name or a path and a folder to
search, and calls :func:`graphcaps.data.open_dataset` itself, as :func:`coerce` does with a path. Options that follow
from a model come from :func:`reader_defaults` in both cases.

=====================================================  ==============================================================
input                                                  read by
=====================================================  ==============================================================
a ``GraphStore``, or a list of stores                  as it is, or concatenated
a path to a TU folder or zip, a table, networks, …     :func:`graphcaps.data.open_dataset`
torch-geometric ``Data``, ``Batch``, lists of these,   :func:`graphcaps.data.convert.pyg_graphs.read_pyg`
data sets and loaders
networkx graphs, one or several                        :func:`graphcaps.data.readers.networks.store_from_networks`, as
                                                       files of networks
SMILES and RDKit molecules, one or several             :func:`graphcaps.data.readers.molecules.read_smiles`
adjacency matrices and edge lists, one or several      :func:`graphcaps.data.convert.array_graphs.from_arrays`
a ``Series`` of pandas or polars, or a ``DataFrame``   its entries, of any of these kinds
with one column of graphs
=====================================================  ==============================================================

Text labels get the same code from every kind (:mod:`graphcaps.data.label_encoding`), so that a model fitted on graphs
of one kind predicts graphs of another. Text inside a list is always SMILES, never a path.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.class_names import is_missing, is_missing_label
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.convert.array_graphs import from_arrays, is_array
from graphcaps.data.convert.networkx_graphs import attribute_key
from graphcaps.data.convert.pyg_graphs import read_pyg
from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.features.compatibility import CheckedGraphs, InputColumns, UnseenPolicy, check_graphs
from graphcaps.data.readers.graph_metadata import GraphMetadata, SkippedRow, warn_of_notes
from graphcaps.data.readers.molecules import molecule_smiles, read_smiles
from graphcaps.data.readers.networks import CLASS_ATTRIBUTES, store_from_networks
from graphcaps.data.readers.user_files import USER_FILE_SUFFIXES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = ["GraphInput", "coerce", "coerce_and_check", "read_graphs", "reader_defaults"]

_KINDS = (
    "be a GraphStore or a list of torch-geometric Data, networkx graphs, SMILES, RDKit molecules, adjacency matrices "
    "or edge lists, or a path"
)
_OPTIONS: dict[str, tuple[str, ...]] = {  # options of each kind, beside those of files
    "molecule": ("featurizer", "fragments", "bad"),
    "networkx": ("node_label", "edge_label", "weight", "node_attributes", "edge_attributes"),
    "array": ("num_nodes",),
}
_KIND_NAMES = {
    "store": "graph stores",
    "torch_geometric": "torch-geometric graphs",
    "networkx": "networkx graphs",
    "molecule": "molecules",
    "array": "arrays",
}
_SKIP = "bad='skip'"
_MAX_NAMES = 10  # columns in a sentence
_ARGUMENTS = ("graphs", "data", "stores", "smiles")  # names of the converters' arguments that hold the graphs
_SMILES = re.compile(r"(?:\[[^\[\]\s]+\]|Cl|Br|[BCNOPSFIbcnops*0-9=#$:~()@+/\\%.-])+")


@dataclass(frozen=True, eq=False)
class GraphInput:
    """Graphs that a user passed.

    Args:
        store (GraphStore): The graphs; ``store.label_names`` has the text of labels that are text.
        y (ndarray, optional): Class label of each graph: class names of a store or file, ``Data.y``, or the graph
            attribute ``y``, ``class`` or ``label`` of networkx graphs; ``None`` unless every graph has one.
        metadata (GraphMetadata, optional): Ids, split, skipped rows and notes; ``None`` for stores and arrays.
        column (str, optional): Column of the ``DataFrame`` that the graphs are from; ``None`` for any other input.
    """

    store: GraphStore
    y: np.ndarray | None = None
    metadata: GraphMetadata | None = None
    column: str | None = None


def coerce(
    graphs: Any,
    *,
    owner: str = "coerce",
    argument: str = "graphs",
    recipe: InputColumns | None = None,
    samples: bool = False,
    column: str | None = None,
    **options: Any,
) -> GraphInput:
    """Converts graphs of any supported kind to a store, and warns of what is not read.

    Args:
        graphs: One graph or several of one kind, as in the table above. One text is a path if it ends in a suffix of
            a file, or names an existing file or folder; otherwise it is SMILES.
        owner, argument (str): Owner and argument that messages name.
        recipe (FeatureRecipe, optional): A fitted recipe that will encode the graphs. Molecules are read with the
            featurizer of its training graphs, and networks with the names of their label attributes.
            (default: ``"standard"`` and ``"label"``)
        samples (bool): Whether an array is a collection of samples, as in scikit-learn: one matrix outside a list is
            then refused. Any other single graph is one graph. (default: ``False``)
        column (str, optional): Column that a ``DataFrame`` must have for the graphs unless it has a single one, such as
            that of the training graphs. (default: the one that holds graphs)
        options: Options of the kind: those of :func:`graphcaps.load_dataset` for a path; ``featurizer``, ``fragments``
            and ``bad`` for molecules; ``smiles`` and ``label``, the names of columns, for a ``DataFrame``, where
            ``bad="skip"`` also leaves out rows without a class;
            ``node_label``, ``edge_label``, ``weight``, ``node_attributes`` and ``edge_attributes`` for networkx graphs;
            ``num_nodes`` for edge lists in arrays.

    Warns:
        ReadingWarning: Once for each note on what is not read; ``metadata`` lists rows that were left out on request.

    Raises:
        ArgumentError: If the graphs are of no supported kind or of several, a graph is invalid, or an option does not
            apply.
        DataError: If a file or a SMILES is invalid.

    Example:
        >>> coerce(["CCO", "C1CC1"]).store.sizes.tolist()
        [3, 3]
    """
    read = read_graphs(
        graphs, owner=owner, argument=argument, recipe=recipe, samples=samples, column=column, **options
    )
    if read.metadata is not None:
        warn_of_notes(owner, read.metadata.notes)
    return read


def read_graphs(
    graphs: Any,
    *,
    owner: str = "coerce",
    argument: str = "graphs",
    recipe: InputColumns | None = None,
    samples: bool = False,
    keep_bad: bool = False,
    column: str | None = None,
    **options: Any,
) -> GraphInput:
    """Converts graphs as :func:`coerce` does, without warnings: ``metadata`` has the notes.

    With ``keep_bad``, an invalid molecule is a graph without nodes, and ``metadata.unreadable`` has the reason.
    """
    defaults = reader_defaults(recipe) | ({"bad": "keep"} if keep_bad else {})
    with _name_errors(owner, argument):
        path = _as_path(graphs)
        if path is not None:
            # Graphs for a model need no class.
            unlabelled = {} if recipe is None else {"unlabelled": "keep"}
            loaded = open_dataset(path, defaults=defaults | unlabelled, **options)
            return GraphInput(loaded.store, _class_names(loaded.store), loaded.metadata)
        if _is_instance(graphs, "pandas", "DataFrame") or _is_instance(graphs, "polars", "DataFrame"):
            if column is not None:
                _require_column(graphs, column, owner, argument)
                options |= {"smiles": column} if column in map(str, graphs.columns) else {}
            return _from_frame(graphs, defaults, options)
        return _from_list(_listed(graphs, samples), defaults, options)


def coerce_and_check(
    graphs: Any,
    recipe: InputColumns,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
    owner: str = "coerce",
    argument: str = "graphs",
) -> CheckedGraphs:
    """Converts graphs and checks them against a fitted recipe: the way from a user's graphs to a model.

    Args:
        graphs: As in :func:`coerce`, or graphs that were already checked, which are returned as they are.
        recipe (FeatureRecipe): A fitted recipe.
        unseen, dtype: As in :func:`graphcaps.data.features.compatibility.check_graphs`.
        owner, argument (str): Owner and argument that messages name.

    Raises:
        GraphcapsError: If the graphs cannot be converted, or have other columns than the training graphs.
    """
    if isinstance(graphs, CheckedGraphs):
        return graphs
    read = read_graphs(graphs, owner=owner, argument=argument, recipe=recipe, keep_bad=True)
    unreadable: dict[int, str] = {}
    if read.metadata is not None:
        warn_of_notes(owner, read.metadata.notes)
        unreadable = read.metadata.unreadable
    checked = check_graphs(read.store, recipe, unseen=unseen, dtype=dtype, owner=owner, argument=argument)
    return replace(checked, errors=dict(sorted((checked.errors | unreadable).items())))


def reader_defaults(recipe: InputColumns | None) -> dict[str, str]:
    """Options of the readers that follow from a recipe, unless the user sets them.

    Args:
        recipe (FeatureRecipe, optional): A fitted recipe that will encode the graphs.

    Returns:
        dict: ``featurizer`` and ``fragments``, with which molecules were read in training; ``node_label`` and
        ``edge_label``, the attributes that held the labels of networks. Only what the training graphs had.
    """
    if recipe is None:
        return {}
    if recipe.featurizer is not None:
        return {"featurizer": recipe.featurizer, "fragments": recipe.fragments or "all"}
    labels = {"node_label": "node_labels", "edge_label": "edge_labels"}
    names = {option: recipe.source_columns.get(table) for option, table in labels.items()}
    return {option: attribute_key(columns[0]) for option, columns in names.items() if columns}


@contextmanager
def _name_errors(owner: str, argument: str) -> Iterator[None]:
    """Makes messages of converters name the owner and argument that the user knows."""
    try:
        yield
    except ArgumentError as error:
        name = argument if error.name in _ARGUMENTS else error.name
        raise type(error)(owner, name, error.expected, error.got, error.fix) from error
    except DataError as error:
        if owner == "coerce" or _SKIP not in error.fix:
            raise
        # The user called a function without this argument.
        read = f"read = graphcaps.data.coerce({argument}, {_SKIP})"
        fix = error.fix.replace(_SKIP, f"{read}: read.store, and read.metadata.row_indices for their y")
        raise DataError(error.where, error.expected, error.found, line=error.line, fix=fix) from error


# ---------------------------------------------------------------------- kinds
def _as_path(graphs: Any) -> Path | None:
    """The path that ``graphs`` is, or ``None``."""
    if isinstance(graphs, os.PathLike):
        return Path(graphs)
    if not isinstance(graphs, str):
        return None
    if graphs.lower().endswith((".zip", *USER_FILE_SUFFIXES)):
        return Path(graphs)
    is_smiles = _SMILES.fullmatch(graphs) is not None
    if _exists(graphs):
        if is_smiles:
            expected = "be clearly a path or SMILES"
            fix = f"Pass pathlib.Path({graphs!r}), or [{graphs!r}] for the molecule."
            raise ArgumentError("coerce", "graphs", expected, f"{graphs!r}, which is both", fix)
        return Path(graphs)
    if not is_smiles and {"/", os.sep} & set(graphs):
        return Path(graphs)  # the reader reports that it does not exist
    if find_entry(graphs) is not None:
        fix = f"Pass graphcaps.load_dataset({graphs!r})."
        raise ArgumentError("coerce", "graphs", _KINDS, f"the name of a data set, {graphs!r}", fix)
    return None


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # a text that is too long for a path, or has a null character
        return False


def _listed(graphs: Any, samples: bool) -> list[Any]:
    """One graph, or an iterable of graphs, as a list."""
    if isinstance(graphs, str) or is_array(graphs):
        return _listed_values(graphs, samples)
    if isinstance(graphs, GraphStore) or _kind(graphs):
        return [graphs]
    if isinstance(graphs, np.ndarray):  # of text or objects
        texts = graphs.astype(str) if graphs.dtype.kind == "S" else graphs
        return list(texts.reshape(-1)) if texts.ndim < 2 or texts.shape[1:] == (1,) else list(texts)
    if isinstance(graphs, Mapping | Set | bytes | bytearray) or not isinstance(graphs, Iterable):
        raise ArgumentError("coerce", "graphs", _KINDS, type(graphs).__name__)
    return list(graphs)


def _listed_values(graphs: Any, samples: bool) -> list[Any]:
    """One SMILES, one matrix, or a stack of matrices as a list."""
    if isinstance(graphs, str):
        return [graphs]
    if len(graphs.shape) == 3 and graphs.shape[1] == graphs.shape[2]:
        return list(graphs)
    if samples or len(graphs.shape) != 2:
        fix = "Rows of numbers are not graphs; put one adjacency matrix or edge list into a list."
        raise ArgumentError("coerce", "graphs", _KINDS, f"an array of shape {list(graphs.shape)}", fix)
    return [graphs]


def _kind(graph: Any) -> str:
    """The kind of one graph, a key of ``_KIND_NAMES``, or "". Imports no library: a graph's library is loaded."""
    if isinstance(graph, GraphStore):
        return "store"
    if isinstance(graph, str) or _is_instance(graph, "rdkit.Chem", "Mol"):
        return "molecule"
    if _is_instance(graph, "networkx", "Graph"):
        return "networkx"
    if _is_instance(graph, "torch_geometric.data", "Data"):  # Batch is one
        return "torch_geometric"
    return "array" if is_array(graph) and len(graph.shape) == 2 else ""


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Whether it is an instance of a class of a library that may not be installed."""
    library = sys.modules.get(module)
    kind = None if library is None else vars(library).get(name)
    return kind is not None and isinstance(value, kind)


# ---------------------------------------------------------------------- lists of one kind
def _from_list(graphs: list[Any], defaults: dict[str, str], options: dict[str, Any]) -> GraphInput:
    """Converts a list of graphs of one kind."""
    if not graphs:
        raise ArgumentError("coerce", "graphs", "hold at least one graph", "none")
    kinds = {_kind(graph) for graph in graphs}
    if "molecule" in kinds and any(is_missing(graph) for graph in graphs):  # reported as invalid molecules
        graphs = ["" if is_missing(graph) else graph for graph in graphs]
        kinds = {_kind(graph) for graph in graphs}
    if len(kinds) > 1 or "" in kinds:
        got = ", ".join(sorted({type(graph).__name__ for graph in graphs}))
        if "" in kinds:
            raise ArgumentError("coerce", "graphs", _KINDS, got, _advice(graphs))
        raise ArgumentError("coerce", "graphs", "be of one kind", got)
    (kind,) = kinds
    _check_options(kind, options)
    if kind == "store":
        store = concat_stores(graphs)
        return GraphInput(store, _class_names(store))
    allowed = _OPTIONS.get(kind, ())
    options = {name: value for name, value in defaults.items() if name in allowed} | options
    if kind == "molecule":
        return _from_molecules(graphs, options)
    if kind == "networkx":
        return _from_networkx(graphs, options)
    if kind == "array":
        return GraphInput(from_arrays(graphs, **options))
    return _from_pyg(graphs)


def _advice(graphs: list[Any]) -> str:
    """What to do with graphs of an unsupported type."""
    if any(_is_instance(graph, "torch_geometric.data", "HeteroData") for graph in graphs):
        return "Convert graphs with several node types by HeteroData.to_homogeneous()."
    if any(isinstance(graph, os.PathLike) for graph in graphs):
        return "Pass one path to a file or folder, or a list of stores."
    if any(isinstance(graph, list | tuple) for graph in graphs):
        return "Pass matrices and edge lists as numpy arrays."
    return ""


def _check_options(kind: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in _OPTIONS.get(kind, ()):
            raise ArgumentError("coerce", name, f"be omitted for {_KIND_NAMES[kind]}", repr(value))


def _from_molecules(graphs: list[Any], options: dict[str, Any]) -> GraphInput:
    written = iter(molecule_smiles([graph for graph in graphs if not isinstance(graph, str)]))
    texts = [graph if isinstance(graph, str) else next(written) for graph in graphs]
    try:
        molecules = read_smiles(texts, **options)
    except DataError as error:
        if error.line is None:
            raise
        graph, fix = error.line - 1, error.fix  # counted from 0, as in messages on y
        if len(texts) > 1 and texts[graph].endswith(USER_FILE_SUFFIXES):
            fix = "Text in a list is SMILES; pass one path outside a list."
        raise DataError(f"graph {graph}", error.expected, error.found, fix=fix) from error
    rows = molecules.row_indices
    unreadable = {
        graph: f"{reason} (text in a list is SMILES; pass one path outside a list)"
        if len(texts) > 1 and texts[graph].endswith(USER_FILE_SUFFIXES)
        else reason
        for graph, reason in molecules.unreadable.items()
    }
    metadata = GraphMetadata(
        ids=tuple(str(row) for row in rows),
        skipped=molecules.skipped,
        has_names=False,
        row_indices=rows if molecules.skipped else None,
        skipped_ids=tuple(str(row.line - 1) for row in molecules.skipped),
        row_notes=() if molecules.unreadable else molecules.row_notes(),
        unreadable=unreadable,
    )
    return GraphInput(molecules.store, None, metadata)


def _from_networkx(graphs: list[Any], options: dict[str, Any]) -> GraphInput:
    names = [str(graph.name) for graph in graphs]
    has_names = all(names) and len(set(names)) == len(names)
    data = store_from_networks(
        graphs,
        [None] * len(graphs),
        names=names if has_names else (),
        name="graphs",
        strict=True,
        **options,
    )
    values = [next((g.graph[key] for key in CLASS_ATTRIBUTES if key in g.graph), None) for g in graphs]
    is_class = all(isinstance(value, str | int | float | np.generic) for value in values)
    metadata = replace(data.metadata, has_names=has_names)
    return GraphInput(data.store, np.array(values) if is_class else None, metadata)


def _from_pyg(graphs: list[Any]) -> GraphInput:
    data_list = [data for graph in graphs for data in _data_list(graph)]
    if not data_list:
        raise ArgumentError("coerce", "graphs", "hold at least one graph", "none")
    store, notes = read_pyg([_without_y(data) for data in data_list])
    if store.edge_attributes is not None:
        notes.append("'edge_attr' is kept in the store, but no model uses it.")
    values = [_class_of(data) for data in data_list]
    y = None if any(value is None for value in values) else np.array(values)
    ids = tuple(str(index) for index in range(len(store)))
    return GraphInput(store, y, GraphMetadata(ids, notes=tuple(notes), has_names=False))


def _data_list(graph: Any) -> list[Any]:
    """The graphs of a ``Batch``, as loaders give them, or one ``Data``."""
    is_batch = _is_instance(graph, "torch_geometric.data", "Batch")
    return list(graph.to_data_list()) if is_batch else [graph]


def _without_y(data: Any) -> Any:
    """A shallow copy without ``y``, which may hold anything in graphs to classify."""
    if "y" not in data or data.y is None:
        return data
    unlabelled = copy.copy(data)
    unlabelled.y = None
    return unlabelled


def _class_of(data: Any) -> Any:
    """``Data.y`` where it is one value."""
    y = data.y if "y" in data else None
    if isinstance(y, Tensor):
        return y.item() if y.numel() == 1 else None
    return y if isinstance(y, str | int | float) else None


def _class_names(store: GraphStore) -> np.ndarray | None:
    return None if store.y is None else np.array(store.class_names)[store.y.cpu().numpy()]


# ---------------------------------------------------------------------- tables in memory
def _from_frame(frame: Any, defaults: dict[str, str], options: dict[str, Any]) -> GraphInput:
    """Reads the column of graphs of a ``DataFrame``, and the column of classes if it is named.

    With ``bad="skip"``, rows without a class are left out, as in a table in a file.
    """
    options = dict(options)
    column, label = options.pop("smiles", None), options.pop("label", None)
    names = [str(name) for name in frame.columns]
    for option, name in (("smiles", column), ("label", label)):
        if name is not None and names.count(str(name)) != 1:
            listed = ", ".join(f"'{entry}'" for entry in names)
            raise ArgumentError("coerce", option, f"be one of the columns {listed}", repr(name))
    if column is None:
        column = _graph_column(frame, names, label)
    note = _describe_unread([name for name in names if name not in (str(column), str(label))])
    graphs = _entries(frame, names.index(str(column)))
    if label is None:
        return replace(_with_note(_from_list(graphs, defaults, options), note), column=str(column))
    y = _column(frame, names.index(str(label))).to_numpy()
    values = y.tolist()
    missing = [row for row, value in enumerate(values) if is_missing_label(value)]
    if missing and options.get("bad") != "skip":
        more = f" ({len(missing):,} such rows)" if len(missing) > 1 else ""
        got = f"{values[missing[0]]!r} in row {missing[0] + 1:,}{more}"
        fix = "Leave such rows out with bad='skip'."
        raise ArgumentError("coerce", "label", "name a column with a class in every row", got, fix)
    if len(missing) == len(y):
        raise ArgumentError("coerce", "label", "name a column with classes", "none in any row")
    kept = sorted(set(range(len(y))) - set(missing))
    if not any(_kind(graph) == "molecule" for graph in graphs):
        options.pop("bad", None)  # it decided on the classes; other graphs are never left out
    read = _with_note(_from_list([graphs[row] for row in kept], defaults, options), note)
    read = replace(read, column=str(column))
    rows = None if read.metadata is None else read.metadata.row_indices
    selected = kept if rows is None else [kept[row] for row in rows]
    if not missing:
        return replace(read, y=y[selected])
    return replace(read, y=y[selected], metadata=_skip_rows(read.metadata, selected, kept, missing, label))


def _require_column(frame: Any, column: str, owner: str, argument: str) -> None:
    """Refuses a ``DataFrame`` of several columns that lacks the one of the training graphs."""
    names = [str(name) for name in frame.columns]
    if column not in names and len(names) > 1:
        listed = ", ".join(f"'{name}'" for name in names[:_MAX_NAMES])
        more = ", …" if len(names) > _MAX_NAMES else ""
        expected = f"have the column '{column}', from which the training graphs were read"
        fix = f"Rename the column, or pass it alone, such as frame[['{names[0]}']]."
        raise ArgumentError(owner, argument, expected, f"the columns {listed}{more}", fix)


def _describe_unread(names: list[str]) -> str:
    """A sentence on columns of a ``DataFrame`` that are not read; "" if there are none."""
    if not names:
        return ""
    listed = ", ".join(f"'{name}'" for name in names[:_MAX_NAMES]) + (
        ", …" if len(names) > _MAX_NAMES else ""
    )
    verb = "1 column of the DataFrame is" if len(names) == 1 else f"{len(names)} columns of the DataFrame are"
    return f"{verb} not read: {listed}."


def _with_note(read: GraphInput, note: str) -> GraphInput:
    """The graphs with a further note, unless it is empty."""
    if not note:
        return read
    metadata = read.metadata or GraphMetadata(tuple(map(str, range(len(read.store)))), has_names=False)
    return replace(read, metadata=replace(metadata, notes=(*metadata.notes, note)))


def _skip_rows(
    metadata: GraphMetadata | None, selected: list[int], kept: list[int], missing: list[int], label: str
) -> GraphMetadata:
    """Metadata of the graphs of a frame: rows are those of the frame, counted from 0, and lines from 1.

    Args:
        metadata (GraphMetadata, optional): Metadata with rows among ``kept``.
        selected (list): Row of each graph.
        kept (list): Rows with a class.
        missing (list): Rows without one.
        label (str): Column of the classes.
    """
    skipped = [SkippedRow(row + 1, "", f"it has no label in column '{label}'", "label") for row in missing]
    if metadata is not None:
        skipped += [replace(entry, line=kept[entry.line - 1] + 1) for entry in metadata.skipped]
    skipped.sort(key=lambda entry: entry.line)
    return replace(
        metadata or GraphMetadata((), has_names=False),
        ids=tuple(map(str, selected)),
        skipped=tuple(skipped),
        row_indices=tuple(selected),
        skipped_ids=tuple(str(entry.line - 1) for entry in skipped),
    )


def _column(frame: Any, index: int) -> Any:
    """A column of a ``DataFrame`` of pandas or polars."""
    return frame.iloc[:, index] if _is_instance(frame, "pandas", "DataFrame") else frame.to_series(index)


def _entries(frame: Any, index: int) -> list[Any]:
    return list(_column(frame, index))


def _graph_column(frame: Any, names: list[str], label: str | None) -> str:
    """The only column that holds graphs; of several columns of text, the one named ``smiles``."""
    usable = []
    for index, name in enumerate(names):
        kinds = {_kind(value) for value in _entries(frame, index) if not is_missing(value)}
        if len(kinds) == 1 and "" not in kinds and name != label:
            usable.append(name)
    named = [name for name in usable if name.lower() == "smiles"]
    if len(named) == 1:
        return named[0]
    if len(usable) != 1:
        listed = ", ".join(f"'{name}'" for name in usable) or "none"
        likely = max(
            usable, key=lambda name: _smiles_share(_entries(frame, names.index(name))), default="smiles"
        )
        fix = f"Pass one column alone, such as frame['{likely}']."
        raise ArgumentError("coerce", "graphs", "have one column of SMILES or graphs", listed, fix)
    return usable[0]


def _smiles_share(values: list[Any]) -> float:
    """Share of the entries that have only characters of SMILES."""
    matches = sum(isinstance(value, str) and _SMILES.fullmatch(value) is not None for value in values)
    return matches / max(len(values), 1)
