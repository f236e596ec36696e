"""``HGCNClassifier(companion=…)``: fitting, predicting, saving and wrong names."""

from pathlib import Path

import numpy as np
import pytest

from graphcaps import HGCNClassifier
from graphcaps.errors import ArgumentError
from tests.estimator.small_classifier import small
from tests.small_models import labelled
from tests.training.small_forests import few_trees

__all__ = ["few_trees"]
pytestmark = pytest.mark.usefixtures("few_trees")


def test_a_classifier_with_a_companion(tmp_path: Path) -> None:
    store = labelled()
    model = small(companion="wl-forest", validation=0.2).fit(store)
    assert model.model_.part_names == ("hgcn", "wl-forest")
    p = model.predict_proba(store)
    np.testing.assert_array_equal(p, model.model_.predict_proba(store))
    np.testing.assert_array_equal(model.predict(store), model.classes_[p.argmax(1)])
    abstained = model.predict(store, abstain_below=float(np.median(p.max(1))))
    assert [each is None for each in abstained] == (p.max(1) < np.median(p.max(1))).tolist()
    assert len(model.history_) == model.n_iter_
    model.save(tmp_path / "m.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "m.safetensors")
    assert loaded.companion == "wl-forest"
    np.testing.assert_array_equal(loaded.predict_proba(store), p)


@pytest.mark.parametrize(
    ("companion", "message"),
    [
        (
            3,
            "HGCNClassifier: 'companion' must be the name of a classical model, such as 'wl-forest', or None",
        ),
        ("wl-forrest", "HGCNClassifier: 'companion' must be one of wl-forest"),
        ("hgcn", "HGCNClassifier: 'companion' must differ from the model itself"),
        ("ecfp-forest", "which reads SMILES, and the graphs have none of these"),
    ],
)
def test_wrong_companions_are_refused(companion: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        small(companion=companion).fit(labelled())
