"""Cross-validation on a GPU: equal to the CPU, and resumable."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps import load_dataset
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.evaluation import GroupEpoch, cross_validate
from graphcaps.evaluation.epoch_records import METRIC_STEP
from graphcaps.evaluation.ledger import choose_epochs
from graphcaps.metrics import SelectionMetric, class_metrics

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 16, "num_capsules": (4,)}, training=TrainConfig(epochs=3, batch_size=32)
)


def test_losses_equal_those_on_a_cpu() -> None:
    store = load_dataset("planted-parts")[:120]
    one, two = (cross_validate(store, CONFIG, folds=3, seeds=2, device=name) for name in ("cpu", "cuda"))
    for cpu, gpu in zip(one.records, two.records, strict=True):
        np.testing.assert_allclose(cpu.curves.train_loss, gpu.curves.train_loss, atol=200)  # in units of 1e-5
        np.testing.assert_allclose(cpu.curves.validation_loss, gpu.curves.validation_loss, atol=200)
    assert "core" not in two.hardware


def test_an_interrupted_cross_validation_is_resumed(tmp_path: Path) -> None:
    store = load_dataset("planted-parts")[:120]

    def stop(event: GroupEpoch) -> None:
        if event.epoch.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cross_validate(store, CONFIG, folds=3, device="cuda", results=tmp_path, on_event=stop)
    rest: list[GroupEpoch] = []
    ledger = cross_validate(
        store, CONFIG, folds=3, device="cuda", results=tmp_path, resume=True, on_event=rest.append
    )
    assert [event.epoch.epoch for event in rest] == [3]
    assert ledger.records[0].curves.num_epochs == 3


@pytest.mark.parametrize("metric", ["accuracy", "balanced-accuracy", "roc-auc", "pr-auc", "mcc"])
def test_metrics_of_captured_evaluations_are_those_of_the_predictions(metric: SelectionMetric) -> None:
    """The metric of the validation set is computed inside the captured graph, from scores that stay on the device."""
    store = load_dataset("planted-parts")[:120]
    ledger = cross_validate(
        store, CONFIG, folds=3, device="cuda", metric=metric, class_weight="balanced", predictions=True
    )
    (record,) = ledger.records
    found, curve = record.predictions, record.curves.validation_metric
    assert found is not None
    assert curve is not None
    for fold, epoch in enumerate(choose_epochs(record)["held-out"].epochs.tolist()):
        rows = (found.fold == fold) & (found.part == 0)
        expected = class_metrics(found.y[rows], found.probabilities[rows])[metric.replace("-", "_")]
        assert curve[fold, epoch - 1] * METRIC_STEP == pytest.approx(expected, abs=2e-6)
