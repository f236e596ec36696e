"""A simple model on the parts of a training, to see what the graphs give without a network.

The forest that a user would try first: on Morgan fingerprints for molecules (``ecfp-forest``), else on
Weisfeiler-Lehman colours (``wl-forest``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.metrics import class_metrics
from graphcaps.training.classical_training import ClassicalTraining

__all__ = ["Baseline", "baseline_model", "fit_baseline"]

_TREES = 100  # a fifth of the models' default, to be quick


@dataclass(frozen=True)
class Baseline:
    """What a simple model reaches on graphs that did not train it.

    Args:
        model (str): Name of the model.
        part (str): ``"test"``, or ``"validation"`` for a training without test graphs.
        graphs (int): Number of graphs of this part.
        accuracy (float): Accuracy, from 0 to 1.
        roc_auc (float, optional): ROC-AUC, with two classes.
    """

    model: str
    part: Literal["validation", "test"]
    graphs: int
    accuracy: float
    roc_auc: float | None

    @property
    def sentence(self) -> str:
        """The result in words: ``ecfp-forest on the same split: test accuracy 80.8 %, ROC-AUC 0.892``."""
        where = "on the same split" if self.part == "test" else "on the same graphs"
        area = "" if self.roc_auc is None else f", ROC-AUC {self.roc_auc:.3f}"
        return f"{self.model} {where}: {self.part} accuracy {100 * self.accuracy:.1f} %{area}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return asdict(self)


def baseline_model(store: GraphStore) -> str:
    """Name of the simple model for these graphs."""
    return "wl-forest" if store.smiles is None else "ecfp-forest"


def fit_baseline(
    store: GraphStore, *, seed: int = 0, validation: float = 0.1, split: Split | None = None
) -> Baseline | None:
    """Fits a simple model to the training graphs of a training, and scores its test or else its validation graphs.

    Args:
        store (GraphStore): Graphs with labels.
        seed, validation, split: As in :class:`graphcaps.training.final_training.FinalTraining`: the same values give
            the same training, validation and test graphs.

    Returns:
        Baseline, optional: ``None`` if there are neither test nor validation graphs.

    Raises:
        GraphcapsError: As :class:`graphcaps.training.final_training.FinalTraining` does.
    """
    name = baseline_model(store)
    config = RunConfig(model=name, model_arguments={"trees": _TREES})
    training = ClassicalTraining(
        store, config, seed=seed, validation=validation, device="cpu", calibrate=None, split=split
    )
    holdout = training.holdout
    is_tested = holdout.test_store is not None
    part = training.source[holdout.validation] if holdout.test_store is None else holdout.test_store
    if not len(part):
        return None
    for _ in training.run():
        pass
    assert part.y is not None
    probabilities = training.result().model.predict_proba(part, unseen="ignore")
    metrics = class_metrics(np.asarray(part.y.cpu()), probabilities)
    accuracy, area = metrics["accuracy"], metrics["roc_auc"] if store.num_classes == 2 else None
    assert accuracy is not None
    return Baseline(name, "test" if is_tested else "validation", len(part), accuracy, area)
