"""``HGCNClassifier(companion=…)``: fitting, predicting, saving and wrong names."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

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
            "HGCNClassifier: 'companion' must be the name of a classical model, such as 'wl-forest', 'none' or None",
        ),
        ("wl-forrest", "HGCNClassifier: 'companion' must be one of wl-forest"),
        ("hgcn", "HGCNClassifier: 'companion' must differ from the model itself"),
        ("ecfp-forest", "which reads SMILES, and the graphs have none of these"),
    ],
)
def test_wrong_companions_are_refused(companion: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        small(companion=companion).fit(labelled())


# ---------------------------------------------------------------------- the preset "best"
def test_the_preset_best_is_a_committee_with_a_companion(tmp_path: Path) -> None:
    store = labelled()
    best = small(preset="best", epochs=1).fit(store)
    given = small(n_estimators=5, companion="wl-forest", epochs=1).fit(store)
    assert len(best.model_.members) == 5
    assert best.model_.part_names == ("hgcn", "wl-forest")
    np.testing.assert_array_equal(best.predict_proba(store), given.predict_proba(store))
    best.save(tmp_path / "m.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "m.safetensors")
    assert (loaded.preset, loaded.n_estimators, loaded.companion) == ("best", None, None)
    np.testing.assert_array_equal(loaded.predict_proba(store), best.predict_proba(store))
    again = clone(best).set_params(n_estimators=1, companion="none").fit(store)
    assert (len(again.model_.members), again.model_.part_names) == (1, ("hgcn",))


def test_a_file_of_an_earlier_version_has_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(n_estimators=2).fit(labelled())
    parameters = model.get_params(deep=False)
    del parameters["preset"]
    monkeypatch.setattr(model, "get_params", lambda deep: parameters)
    model.save(tmp_path / "m.safetensors")
    loaded = HGCNClassifier.load(tmp_path / "m.safetensors")
    assert (loaded.preset, loaded.n_estimators) == ("default", 2)


def test_a_continued_fit_keeps_the_members_of_the_preset() -> None:
    model = small(epochs=1, warm_start=True).fit(labelled())
    with pytest.raises(
        ArgumentError, match="'n_estimators' must be 1, as in the fit that is continued, got 5"
    ):
        model.set_params(preset="best").fit(labelled())


def test_other_presets_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'preset' must be one of 'default', 'best', got 'paper'"):
        small(preset="paper").fit(labelled())
