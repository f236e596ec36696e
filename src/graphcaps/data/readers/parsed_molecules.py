"""The graphs of a list of SMILES: parsed by RDKit on all cores, or read from the cache.

Labels and atomic numbers take one byte each. Molecules are converted to arrays in steps, so that no wider copy of all
of them is held.

A list of at least :data:`MIN_CACHED` SMILES can be cached. The cache file is named after the SMILES and how they are
read. It holds for one version of RDKit; on a machine without RDKit, for any. A list in which a molecule exceeded the
limits of :mod:`graphcaps.chemistry.rdkit_pool` is not cached, because another attempt may succeed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import metadata
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from graphcaps.chemistry.featurizers import ELEMENT, FeatureColumn, Featurizer
from graphcaps.chemistry.rdkit_pool import Answer, call_rdkit
from graphcaps.chemistry.rdkit_tasks import ATOM_NUMBERS, MAX_SMILES_LENGTH
from graphcaps.data.datasets.cache import load_cached_store, save_cached
from graphcaps.data.store import GraphStore, offsets
from graphcaps.ops.edges import EdgeReport

__all__ = [
    "MIN_CACHED",
    "PURPOSE",
    "MoleculeParser",
    "ParsedMolecules",
    "SmilesList",
    "parse_here",
    "parse_long_lists_with",
    "parse_molecules",
]

PURPOSE = "Reading SMILES"
"""What RDKit is called for, in messages."""
MIN_CACHED = 1000
"""Fewest SMILES that are cached, or divided among processes; fewer are read in about a second."""

_STEP = 4096  # molecules that are converted at once


@dataclass(frozen=True, eq=False)
class ParsedMolecules:
    """The valid molecules of a list of SMILES.

    Args:
        store (GraphStore): The valid molecules in the order of the list, without classes.
        problems (dict): Why another entry is not valid, by its index in the list, ascending.
        fragmented (int): Number of valid molecules that are written with several fragments.
        from_cache (bool): Whether they came from the cache.
    """

    store: GraphStore
    problems: dict[int, str]
    fragmented: int
    from_cache: bool = False

    def with_empty_graphs(self) -> GraphStore:
        """One graph per entry of the list: one without nodes for each that is not valid."""
        store = self.store
        valid = torch.ones(len(store) + len(self.problems), dtype=torch.bool)
        valid[list(self.problems)] = False
        sizes = torch.zeros(len(valid), dtype=torch.int64)
        sizes[valid] = store.sizes
        smiles = iter(store.smiles or ())
        texts = tuple(next(smiles) if is_valid else "" for is_valid in valid.tolist())
        return replace(store, node_ptr=offsets(sizes), smiles=texts)


@dataclass(frozen=True, eq=False)
class SmilesList:
    """A list of SMILES and how it is read; arguments as in :func:`parse_molecules`."""

    smiles: Sequence[str]
    featurizer: Featurizer
    fragments: Literal["all", "largest"]
    name: str
    cache: bool = False


MoleculeParser = Callable[[SmilesList], ParsedMolecules]
"""Reads a list of SMILES, as :func:`parse_here` does."""

_parser: ContextVar[MoleculeParser | None] = ContextVar("molecule_parser", default=None)


@contextmanager
def parse_long_lists_with(parser: MoleculeParser) -> Iterator[None]:
    """Inside the context, ``parser`` reads lists of at least :data:`MIN_CACHED` SMILES."""
    token = _parser.set(parser)
    try:
        yield
    finally:
        _parser.reset(token)


def parse_molecules(
    smiles: Sequence[str],
    featurizer: Featurizer,
    fragments: Literal["all", "largest"],
    *,
    name: str,
    cache: bool = False,
) -> ParsedMolecules:
    """Reads a list of SMILES.

    Args:
        smiles (sequence): One SMILES per molecule.
        featurizer (Featurizer): Gives the label columns.
        fragments (str): Fragments that are read, as in :func:`graphcaps.data.readers.molecules.read_smiles`.
        name (str): Name of the store.
        cache (bool): Whether a long list is looked up in the cache, and kept there. (default: ``False``)

    Raises:
        MissingExtraError: If RDKit is not installed.
    """
    parser = _parser.get()
    if parser is None or len(smiles) < MIN_CACHED:
        parser = parse_here
    return parser(SmilesList(smiles, featurizer, fragments, name, cache))


def parse_here(listed: SmilesList) -> ParsedMolecules:
    """Reads a list of SMILES in this process and those of RDKit."""
    smiles, featurizer, fragments = listed.smiles, listed.featurizer, listed.fragments
    digest = _digest(smiles, featurizer, fragments) if listed.cache and len(smiles) >= MIN_CACHED else None
    if digest is not None and (cached := _load(digest, listed.name)) is not None:
        return cached
    options = {"featurizer": featurizer.name, "fragments": fragments}
    answers = call_rdkit("graph", smiles, options, purpose=PURPOSE)
    problems = {index: answer.problem for index, answer in enumerate(answers) if answer.problem}
    valid = [answer for answer in answers if not answer.problem]
    is_final = all(answer.is_final for answer in answers)
    del answers
    parsed = _to_molecules(listed.name, valid, problems, featurizer, fragments)
    if digest is not None and is_final:
        details = {
            "rdkit": _rdkit_version(),
            "problems": {str(index): problem for index, problem in problems.items()},
            "fragmented": parsed.fragmented,
        }
        save_cached(parsed.store, digest, details=details)
    return parsed


# ---------------------------------------------------------------------- cache
def _digest(smiles: Sequence[str], featurizer: Featurizer, fragments: str) -> str:
    """SHA-256 of the SMILES and of all that decides how they are read, apart from the version of RDKit."""
    columns = [[column.name, *column.values] for column in (*featurizer.atoms, *featurizer.bonds)]
    digest = hashlib.sha256(json.dumps(["molecules", columns, fragments, MAX_SMILES_LENGTH]).encode())
    for start in range(0, len(smiles), _STEP):
        digest.update(json.dumps(list(smiles[start : start + _STEP])).encode())
    return digest.hexdigest()


def _load(digest: str, name: str) -> ParsedMolecules | None:
    cached = load_cached_store(digest)
    if cached is None or _rdkit_version() not in (None, cached.details.get("rdkit")):
        return None
    problems = {int(index): problem for index, problem in cached.details["problems"].items()}
    store = replace(cached.store, name=name)
    return ParsedMolecules(store, problems, int(cached.details["fragmented"]), from_cache=True)


def _rdkit_version() -> str | None:
    """Version of RDKit; ``None`` if it is not installed."""
    try:
        return metadata.version("rdkit")
    except metadata.PackageNotFoundError:
        return None


# ---------------------------------------------------------------------- numbers to arrays
def _to_molecules(
    name: str,
    answers: Sequence[Answer],
    problems: dict[int, str],
    featurizer: Featurizer,
    fragments: Literal["all", "largest"],
) -> ParsedMolecules:
    """The molecules as a store.

    Args:
        name (str): Name of the store.
        answers (sequence): Numbers of each valid molecule, from the task ``"graph"``.
        problems (dict): Those of the others.
        featurizer (Featurizer): Gives the label columns.
        fragments (str): Fragments that were read.
    """
    # One step at least, which gives empty arrays of the right types.
    starts = range(0, max(len(answers), 1), _STEP)
    steps = [_convert(answers[start : start + _STEP], featurizer) for start in starts]
    arrays = {name: _joined([getattr(step, name) for step in steps]) for name in _ARRAYS}
    num_bonds = len(arrays["neighbours"]) // 2
    store = GraphStore(
        name,
        torch.from_numpy(_offsets(arrays["sizes"])),
        torch.from_numpy(_offsets(arrays["degree"])),
        torch.from_numpy(arrays["neighbours"]),
        node_labels=torch.from_numpy(arrays["node_labels"]),
        edge_labels=torch.from_numpy(arrays["edge_labels"]) if num_bonds else None,
        truth={ELEMENT.name: torch.from_numpy(arrays["elements"])},
        report=EdgeReport(rows=2 * num_bonds, edges=num_bonds),
        smiles=tuple(answer.texts[0] for answer in answers),
        featurizer=featurizer.name,
        fragments=fragments,
    )
    return ParsedMolecules(store, problems, int((arrays["fragments"] > 1).sum()))


@dataclass(frozen=True, eq=False)
class _ConvertedMolecules:
    """Arrays of some molecules, as those of a :class:`GraphStore`, and the number of fragments of each."""

    sizes: NDArray[np.int64]
    degree: NDArray[np.int64]
    neighbours: NDArray[np.int32]
    node_labels: NDArray[np.int8]
    edge_labels: NDArray[np.int8]
    elements: NDArray[np.int8]
    fragments: NDArray[np.int64]


_ARRAYS = tuple(entry.name for entry in fields(_ConvertedMolecules))


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cumulative sums with a leading zero."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _convert(answers: Sequence[Answer], featurizer: Featurizer) -> _ConvertedMolecules:
    """Arrays of some molecules. In numpy: a server converts one at a time, and torch's calls take longer."""
    numbers = np.frombuffer(b"".join(answer.content for answer in answers), dtype=ATOM_NUMBERS)
    itemsize = numbers.dtype.itemsize
    lengths = np.array([len(answer.content) // itemsize for answer in answers], dtype=np.int64)
    first = lengths.cumsum() - lengths  # of each molecule's numbers
    fragments, sizes, num_bonds = numbers[first + np.arange(3)[:, None]].astype(np.int64)
    first += 3
    atoms = _read_columns(numbers, first, sizes, len(featurizer.atoms))
    first += sizes * len(featurizer.atoms)
    bonds = _read_columns(numbers, first, num_bonds, len(featurizer.bonds))
    first += num_bonds * len(featurizer.bonds)
    ends = _read_columns(numbers, first, num_bonds, 2).astype(np.int64)
    nodes = sizes.cumsum() - sizes  # first node of each molecule
    N = int(sizes.sum())
    # Both directions of each bond, in the order of their nodes; RDKit has neither loops nor two bonds of a pair.
    source = (ends + np.repeat(nodes, num_bonds)).reshape(-1)
    target = ends[::-1].reshape(-1)  # within the molecule
    order = np.argsort(source * max(N, 1) + target)
    return _ConvertedMolecules(
        sizes,
        np.bincount(source, minlength=N),
        target[order].astype(np.int32),
        _label_table(featurizer.atoms, atoms),
        np.tile(_label_table(featurizer.bonds, bonds), (2, 1))[order],
        atoms[0].astype(np.int8),
        fragments,
    )


def _read_columns(
    numbers: NDArray[np.int16], first: NDArray[np.int64], counts: NDArray[np.int64], columns: int
) -> NDArray[np.int16]:
    """``columns`` runs of numbers of each molecule, one after the other, as ``[columns, rows]``.

    Args:
        numbers (ndarray): Numbers of all molecules.
        first (ndarray): Index of the first number of each molecule, ``[G]``.
        counts (ndarray): Length of a run of each molecule, ``[G]``.
        columns (int): Number of runs.
    """
    rows = np.arange(counts.sum()) + np.repeat(first - (counts.cumsum() - counts), counts)
    return numbers[rows + np.arange(columns)[:, None] * np.repeat(counts, counts)]


def _label_table(columns: tuple[FeatureColumn, ...], numbers: NDArray[np.int16]) -> NDArray[np.int8]:
    """Codes of atoms or bonds, ``[rows, columns]``, from RDKit's numbers, ``[columns, rows]``."""
    codes = _all_codes(columns)[np.arange(len(columns))[:, None], numbers.view(np.uint16)]
    return np.ascontiguousarray(codes.T)


@cache
def _all_codes(columns: tuple[FeatureColumn, ...]) -> NDArray[np.int8]:
    """Code of each number of 16 bits in each column, ``[columns, 65536]``."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int64)
    return np.stack([column.codes(every).astype(np.int8) for column in columns])
