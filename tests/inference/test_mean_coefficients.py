"""Mean routing coefficients: measured after training, per member, in the model file, and read by all explanations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.errors import DataError
from graphcaps.explanation import explain_store
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.model_file import FORMAT, FORMAT_VERSION
from graphcaps.nn.hard_assignment import hard_assignment
from graphcaps.training import single_training
from graphcaps.training.final_training import train_final
from tests.small_models import means_of, planted, small_committee, small_model, two_level_model

pytestmark = pytest.mark.filterwarnings("ignore::graphcaps.nn.capsule_use.CapsuleCollapseWarning")


def training_graphs(model: FittedModel) -> Any:
    parts = np.array(model.used_in(planted()))
    return planted()[torch.as_tensor(np.flatnonzero(parts == "training"))]


def changed(path: Path, target: Path, **entries: Any) -> Path:
    """A copy of a file with changed header entries; ``...`` removes one."""
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    own = ("format", "version", "sha256")
    content = {name: value for name, value in read.content.items() if name not in own} | entries
    content = {name: value for name, value in content.items() if value is not Ellipsis}
    target.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, content, read.tensors))
    return target


def test_means_are_over_the_nodes_of_the_training_graphs() -> None:
    model = two_level_model()
    explanations = explain_store(model, training_graphs(model))
    assert len(training_graphs(model)) == 24
    for mean, iterations in zip(means_of(model), explanations.iterations, strict=True):
        assert mean.dtype == torch.float64
        expected = iterations.double().flatten(1, -2).mean(1)  # [R, J]
        assert torch.allclose(mean, expected, rtol=0, atol=1e-6)


def test_a_file_has_them_and_gives_the_same_capsules(tmp_path: Path) -> None:
    model = two_level_model()
    model.save(tmp_path / "m.safetensors")
    back = graphcaps.load(tmp_path / "m.safetensors")
    for mean, expected in zip(means_of(back), means_of(model), strict=True):
        assert torch.equal(mean, expected)
    one, two = explain_store(model, planted()), explain_store(back, planted())
    for level in range(3):
        assert torch.equal(one.capsules_of(level), two.capsules_of(level))
    assert not torch.equal(one.capsule, one.assignments[0].argmax(-1))
    assert "mean_coefficients" not in back.training


def test_a_file_without_them_compares_nodes_with_their_graph(tmp_path: Path) -> None:
    """As files of earlier versions."""
    two_level_model().save(tmp_path / "m.safetensors")
    path = changed(tmp_path / "m.safetensors", tmp_path / "earlier.safetensors", mean_coefficients=...)
    back = graphcaps.load(path)
    assert back.members[0].mean_coefficients is None
    explanations = explain_store(back, planted())
    c, groups = explanations.assignments[0], explanations.groups
    assert torch.equal(explanations.capsule, hard_assignment(c, None, groups, explanations.node_graph))
    assert torch.equal(
        explanations[2].levels[1].capsule, hard_assignment(explanations.assignments[1][2], None)
    )
    assert explanations[2].as_dict()["levels"][0]["mean_coefficients"] is None
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_model_that_was_not_trained_here_has_none() -> None:
    assert small_model().members[0].mean_coefficients is None


def test_each_member_of_a_committee_has_its_own(tmp_path: Path) -> None:
    committee = small_committee()
    committee.save(tmp_path / "c.safetensors")
    back = graphcaps.load(tmp_path / "c.safetensors")
    graphs = training_graphs(committee)
    for number in range(3):
        explanations = explain_store(back.member(number), graphs)
        expected = explanations.assignments[0].double().mean(0)
        assert torch.allclose(means_of(back, number)[0][-1], expected, rtol=0, atol=1e-6)
        assert torch.equal(means_of(back, number)[0], means_of(committee, number)[0])
    assert not torch.allclose(means_of(back, 0)[0], means_of(back, 1)[0], rtol=0, atol=1e-6)
    together = explain_store(back, planted())
    assert torch.equal(together.capsule, explain_store(back.member(0), planted()).capsule)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("entry", "'members' of 1 models with capsules under 'mean_coefficients' in the header"),
        ("count", "'members' of 1 models with capsules under 'mean_coefficients' in the header"),
        ("list", "an object or null under 'mean_coefficients' in the header"),
        ("levels", "mean coefficients of the shapes [(3, 4), (3, 3), (3, 3)] for member 1"),
        ("shape", "mean coefficients of the shapes [(3, 4), (3, 3), (3, 3)] for member 1"),
        ("range", "mean coefficients from 0 to 1 for member 1"),
        ("ragged", "a valid model"),
        ("text", "a valid model"),
    ],
)
def test_other_entries_are_rejected(tmp_path: Path, change: str, expected: str) -> None:
    two_level_model().save(tmp_path / "m.safetensors")
    levels: Any = [level.tolist() for level in means_of(two_level_model())]
    if change == "levels":
        levels = levels[:2]
    elif change == "shape":
        levels[0] = levels[0][:2]
    elif change == "range":
        levels[1][0][0] = -0.5
    elif change == "ragged":
        levels[1][0] = levels[1][0][:1]
    elif change == "text":
        levels[1][0][0] = "many"
    entry: Any = {"members": [levels]}
    if change == "entry":
        entry = {"means": [levels]}
    elif change == "count":
        entry = {"members": [levels, levels]}
    elif change == "list":
        entry = [levels]
    path = changed(tmp_path / "m.safetensors", tmp_path / "made.safetensors", mean_coefficients=entry)
    with pytest.raises(DataError) as caught:
        graphcaps.load(path)
    assert f"{path}: expected {expected}" in str(caught.value)


def test_means_of_many_graphs_are_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small_model_means(None, monkeypatch)
    some = small_model_means(20, monkeypatch)
    assert not torch.equal(whole, some)
    assert torch.allclose(whole, some, rtol=0.1, atol=0)


def small_model_means(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    if limit is not None:
        monkeypatch.setattr(single_training, "_GRAPHS_OF_MEANS", limit)
    config = RunConfig(
        model_arguments={"num_capsules": (4,), "capsule_dim": 8}, training=TrainConfig(epochs=1)
    )
    return means_of(train_final(planted(), config, device="cpu").model)[0]


def test_the_estimator_and_restarts_have_them(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_capsules": 4, "capsule_dim": 8, "epochs": 1, "validation": 0.2}
    model = HGCNClassifier(**options, n_init=2, device="cpu").fit(planted())
    model.save(tmp_path / "m.safetensors")
    assert len(means_of(graphcaps.load(tmp_path / "m.safetensors"))) == 2


def test_models_without_capsules_have_no_entry(tmp_path: Path) -> None:
    config = RunConfig(model="gin", model_arguments={"hidden": 8}, training=TrainConfig(epochs=1))
    train_final(planted(), config, device="cpu").model.save(tmp_path / "m.safetensors")
    assert "mean_coefficients" not in read_checked(tmp_path / "m.safetensors", FORMAT, FORMAT_VERSION).content
