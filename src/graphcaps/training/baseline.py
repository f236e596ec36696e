"""Simple models on the parts of a training, to see what the graphs give without a network.

The forest that a user would try first, by what the graphs have: SMILES (``ecfp-forest``, Morgan fingerprints), else
node attributes (``features-trees``, statistics of the input columns), else neither (``wl-forest``, Weisfeiler-Lehman
colours). Beside it, the most frequent class of the training graphs (``majority``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.metrics import class_metrics
from graphcaps.training.classical_training import ClassicalTraining

__all__ = ["Baseline", "baseline_configs", "baseline_model", "fit_baseline"]

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
        majority (float): Accuracy of predicting the most frequent class of the training graphs, from 0 to 1.
    """

    model: str
    part: Literal["validation", "test"]
    graphs: int
    accuracy: float
    roc_auc: float | None
    majority: float

    @property
    def sentence(self) -> str:
        """The result in words.

        ``ecfp-forest on the same split: test accuracy 80.8 %, ROC-AUC 0.892; largest class: 54.0 %``
        """
        where = "on the same split" if self.part == "test" else "on the same graphs"
        area = "" if self.roc_auc is None else f", ROC-AUC {self.roc_auc:.3f}"
        accuracy, majority = f"{100 * self.accuracy:.1f} %", f"{100 * self.majority:.1f} %"
        return f"{self.model} {where}: {self.part} accuracy {accuracy}{area}; largest class: {majority}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return asdict(self)


def baseline_model(store: GraphStore) -> str:
    """Name of the simple model for these graphs: the forest that reads what they have."""
    if store.smiles is not None:
        return "ecfp-forest"
    return "wl-forest" if store.node_attributes is None else "features-trees"


def baseline_configs(store: GraphStore) -> tuple[RunConfig, RunConfig]:
    """Configurations of the simple models for these graphs: the forest, and the most frequent class."""
    forest = RunConfig(model=baseline_model(store), model_arguments={"trees": _TREES})
    return forest, RunConfig(model="majority")


def fit_baseline(
    store: GraphStore, *, seed: int = 0, validation: float | Tensor = 0.1, split: Split | None = None
) -> Baseline | None:
    """Fits simple models to the training graphs of a training, and scores its test or else its validation graphs.

    Args:
        store (GraphStore): Graphs with labels.
        seed, validation, split: As in :class:`graphcaps.training.final_training.FinalTraining`: the same values give
            the same training, validation and test graphs.

    Returns:
        Baseline, optional: ``None`` if there are neither test nor validation graphs.

    Raises:
        GraphcapsError: As :class:`graphcaps.training.final_training.FinalTraining` does.
    """
    fit = partial(
        ClassicalTraining,
        store,
        seed=seed,
        validation=validation,
        device="cpu",
        calibrate=None,
        split=split,
    )
    forest, majority_class = map(fit, baseline_configs(store))
    holdout = forest.holdout
    part = forest.source[holdout.validation] if holdout.test_store is None else holdout.test_store
    if not len(part):
        return None
    metrics, majority = _score(forest, part), _score(majority_class, part)
    assert metrics["accuracy"] is not None
    assert majority["accuracy"] is not None
    return Baseline(
        forest.config.model,
        "validation" if holdout.test_store is None else "test",
        len(part),
        metrics["accuracy"],
        metrics["roc_auc"] if store.num_classes == 2 else None,
        majority["accuracy"],
    )


def _score(training: ClassicalTraining, part: GraphStore) -> dict[str, float | None]:
    """Fits the model, and its metrics on some graphs."""
    for _ in training.run():
        pass
    assert part.y is not None
    probabilities = training.result().model.predict_proba(part, unseen="ignore")
    return class_metrics(np.asarray(part.y.cpu()), probabilities)
