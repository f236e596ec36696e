"""A random forest on Morgan fingerprints: the baseline that chemists try first. Needs the extra ``chem``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.chemistry.rdkit_tasks import INTEGERS
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.classical import RawInput
from graphcaps.models.forest_model import ForestModel
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["ECFPForest", "morgan_fingerprints"]

_PURPOSE = "The model ecfp-forest"


def morgan_fingerprints(
    smiles: Sequence[str], *, radius: int = 2, bits: int = 2048, counts: bool = False
) -> csr_matrix:
    """Folded Morgan fingerprints of RDKit's generator, ``[n, bits]`` float32, sparse.

    Args:
        smiles (sequence): SMILES of each molecule; an empty one has no entries.
        radius (int): Largest distance from the central atom of a substructure, in bonds. (default: 2)
        bits (int): Length of a fingerprint. (default: 2048)
        counts (bool): How often each substructure occurs, instead of whether it does. (default: ``False``)

    Raises:
        ArgumentError: If a SMILES is invalid.
        MissingExtraError: If RDKit is not installed.
    """
    options = {"radius": radius, "bits": bits, "counts": counts}
    answers = call_rdkit("fingerprint", smiles, options, purpose=_PURPOSE, until_problem=True)
    entries = []
    for index, answer in enumerate(answers):
        if answer.problem:
            got = f"{smiles[index][:80]!r} at {index}: {answer.problem}"
            raise ArgumentError("morgan_fingerprints", "smiles", "be valid SMILES", got)
        numbers = np.frombuffer(answer.content, dtype=INTEGERS)
        entries.append(numbers.reshape(2 if counts else 1, -1))  # columns, and with counts also values
    joined = np.concatenate([np.zeros((2 if counts else 1, 0), dtype=np.int64), *entries], axis=1)
    ends = np.cumsum([0, *(entry.shape[1] for entry in entries)])
    data = joined[1].astype(np.float32) if counts else np.ones(joined.shape[1], dtype=np.float32)
    return csr_matrix((data, joined[0], ends), shape=(len(smiles), bits))


@MODELS.register("ecfp-forest")
class ECFPForest(ForestModel[None]):
    r"""Classifies molecules with a random forest on Morgan fingerprints (ECFP4).

    A molecule is described by which circular substructures it has: every atom with its neighbourhood of up to
    ``radius`` bonds is hashed, and the hashes are folded into ``bits`` columns (Rogers and Hahn, 2010). Radius 2 is
    ECFP4. The forest is scikit-learn's, with its defaults apart from the number of trees.

    It reads the SMILES of the graphs, and nothing else; see ``GraphStore.smiles``.

    Args:
        num_classes (int): Number of classes.
        radius (int): Radius of the substructures. (default: 2)
        bits (int): Columns of a fingerprint. (default: 2048)
        counts (bool): Counts of substructures in place of bits. (default: ``False``)
        trees (int): Number of trees. (default: 500)
        class_weight (str): ``"balanced"`` weighs classes inversely to their frequency, ``"none"`` alike.
            (default: ``"none"``)
        seed (int): Seed of the forest. (default: 0)
        jobs (int): Number of threads that fit trees. (default: 1)

    Raises:
        ArgumentError: If an option is out of range.
    """

    reference: ClassVar[str] = (
        "Extended-Connectivity Fingerprints, J. Chem. Inf. Model. 2010, https://doi.org/10.1021/ci100050t, "
        "with random forests, Machine Learning 2001, https://doi.org/10.1023/A:1010933404324"
    )
    inputs: ClassVar[frozenset[RawInput]] = frozenset({"smiles"})
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "radius": Interval(1, 3),
        "counts": Choices((False, True)),
        "class_weight": Choices(("none", "balanced")),
    }

    def __init__(
        self,
        num_classes: int,
        *,
        radius: int = 2,
        bits: int = 2048,
        counts: bool = False,
        trees: int = 500,
        class_weight: str = "none",
        seed: int = 0,
        jobs: int = 1,
    ) -> None:
        super().__init__(num_classes, trees=trees, seed=seed, jobs=jobs)
        self._require_at_least(0, radius=radius)
        self._require_at_least(1, bits=bits)
        if class_weight not in ("none", "balanced"):
            raise ArgumentError("ECFPForest", "class_weight", "be 'none' or 'balanced'", repr(class_weight))
        self.radius, self.bits, self.counts, self.class_weight = radius, bits, counts, class_weight

    def _fit_columns(self, store: GraphStore, indices: NDArray[np.int64]) -> None:
        """Nothing is fitted: the columns are the bits of a fingerprint."""

    def _columns(self, store: GraphStore, indices: NDArray[np.int64], columns: None) -> csr_matrix:
        if store.smiles is None:
            raise UsageError(
                f"The model ecfp-forest reads molecules, and '{store.name}' has no SMILES; read the molecules from "
                "SMILES, or choose wl-forest."
            )
        smiles = [store.smiles[index] for index in indices.tolist()]
        return morgan_fingerprints(smiles, radius=self.radius, bits=self.bits, counts=self.counts)

    def _num_columns(self, columns: None) -> int:
        return self.bits

    def _column_state(self, columns: None) -> dict[str, Tensor]:
        return {}

    def _read_columns(self, state: Mapping[str, Tensor]) -> None:
        """There is nothing to read."""

    @property
    def _class_weight(self) -> str | None:
        return None if self.class_weight == "none" else self.class_weight
