"""After a short training capsules agree with planted parts within a graph, with ``parts="blocks"`` over all graphs."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.explanation import explain_store
from graphcaps.nn import HGCN
from graphcaps.presets import load_preset
from graphcaps.training.final_training import train_final


def _agreement(**arguments: Any) -> tuple[float, float]:
    """Mean NMI inside held-out graphs, and NMI over all their nodes, the scaffold counted as a kind; the seed is not
    that of the data set."""
    store = planted_parts("easy", seed=1, num_graphs=156)
    preset = load_preset("planted-parts")
    config = replace(
        preset,
        model_arguments=preset.model_arguments | {"num_capsules": (5,), "capsule_dim": 32} | arguments,
        training=replace(preset.training, epochs=40),
    )
    fitted = train_final(store[range(120)], config, seed=0, validation=0.0, device="cpu").model
    assert isinstance(fitted.model, HGCN)
    unseen = store[range(120, 156)]
    capsule = explain_store(fitted, unseen).capsule.numpy()
    kind = unseen.truth["kind"].numpy()
    spans = [slice(*span) for span in pairwise(unseen.node_ptr.tolist())]
    within = float(np.mean([normalized_mutual_info_score(kind[s], capsule[s]) for s in spans]))
    return within, float(normalized_mutual_info_score(kind, capsule))


@pytest.mark.slow
def test_capsules_agree_with_planted_parts() -> None:
    (plain, plain_over_all), (blocks, blocks_over_all) = _agreement(), _agreement(parts="blocks")
    assert plain > 0.7
    assert blocks > plain + 0.05
    assert blocks_over_all > plain_over_all + 0.15
