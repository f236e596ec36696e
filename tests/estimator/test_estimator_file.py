"""Model files of HGCNClassifier."""

from __future__ import annotations

import numpy as np
import pytest

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.errors import DataError
from tests.estimator.small_classifier import small
from tests.small_models import labelled, planted, train_small


@pytest.mark.parametrize("y", [np.arange(30) % 3, np.array(["a", "b"] * 15), np.array([True, False] * 15)])
def test_a_saved_classifier_is_restored(tmp_path, y):
    model = small(num_capsules=(4, 2), class_weight="balanced").fit(labelled(), y)
    model.save(tmp_path / "model.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "model.safetensors")
    assert loaded.get_params() == model.get_params()
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.history_ == model.history_
    assert loaded.n_iter_ == model.n_iter_
    np.testing.assert_array_equal(loaded.predict(labelled()), model.predict(labelled()))
    np.testing.assert_array_equal(loaded.predict_proba(labelled()), model.predict_proba(labelled()))
    by_name = graphcaps.load(tmp_path / "model.safetensors").predict(labelled())
    assert by_name.tolist() == [str(name) for name in model.predict(labelled()).tolist()]


def test_a_model_file_of_graphcaps_train_can_be_loaded(tmp_path):
    train_small(planted()).save(tmp_path / "m.safetensors")
    model = HGCNClassifier.load(tmp_path / "m.safetensors")
    assert (model.capsule_dim, model.edge_labels) == (8, False)
    assert model.classes_.tolist() == list(planted().class_names)
    assert model.predict(planted()).shape == (30,)
    train_small(planted(), "gin").save(tmp_path / "g.safetensors")
    with pytest.raises(DataError, match="expected a model 'hgcn', found a model 'gin'"):
        HGCNClassifier.load(tmp_path / "g.safetensors")
