"""Which graphs trained a model: recorded by every training, kept in the model file, read by ``used_in``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import Split
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.split_hashes import SplitHashes
from graphcaps.training.final_training import train_final
from tests.small_models import HGCN_SMALL, small_model

CONFIG = RunConfig("planted-parts", "hgcn", HGCN_SMALL, training=TrainConfig(epochs=2, batch_size=8))
STORE = planted_parts(num_graphs=42)[torch.arange(40)]
SPLIT = Split(torch.arange(24), torch.arange(24, 30), torch.arange(30, 36), name="by hand")
PARTS = ("training",) * 24 + ("validation",) * 6 + ("test",) * 6 + ("left-out",) * 2 + (None,) * 2


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


def test_copies_across_the_parts_are_counted() -> None:
    found = SplitHashes.from_parts(hashes(1, 2, 3, 3), hashes(3, 4, 5), hashes(1, 4, 6, 6))
    assert found.copies() == {"validation": 1, "test": 2}
    assert found.describe_copies() == (
        "1 of 3 validation graphs and 2 of 3 test graphs equal a graph of an earlier part as the model reads them; "
        "they count there only."
    )
    one = SplitHashes.from_parts(hashes(1, 2), hashes(2, 4), hashes(5))
    assert one.describe_copies() == (
        "1 of 2 validation graphs equals a training graph as the model reads them; it counts there only."
    )
    none = SplitHashes.from_parts(hashes(1), hashes(2), hashes(3))
    assert (none.copies(), none.describe_copies()) == ({"validation": 0, "test": 0}, "")


@pytest.mark.parametrize("model", ["hgcn", "wl-forest", "majority"])
def test_every_training_records_its_graphs_in_the_model_file(model: str, tmp_path: Path) -> None:
    config = CONFIG if model == "hgcn" else RunConfig("planted-parts", model, {})
    result = train_final(STORE, config, split=SPLIT, device="cpu", left_out=STORE[[36, 37]])
    result.model.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    assert loaded.used_in(STORE) == PARTS
    assert loaded.used_in(STORE[[31, 2, 38]]) == ("test", "training", None)
    assert loaded.info()["recorded_graphs"] == {"training": 24, "validation": 6, "test": 6, "left-out": 2}


def test_the_drawn_validation_set_is_recorded() -> None:
    fitted = train_final(STORE, CONFIG, device="cpu").model
    parts, counts = fitted.used_in(STORE), fitted.info()["recorded_graphs"]
    assert parts is not None
    assert sum(counts.values()) == 40
    assert 3 <= counts["validation"] <= 5
    assert (parts.count("training"), parts.count("validation")) == (counts["training"], counts["validation"])


def test_the_estimator_records_its_graphs_and_those_of_an_earlier_fit(tmp_path: Path) -> None:
    small = {"capsule_dim": 8, "num_capsules": 3, "num_factors": 2, "epochs": 1, "validation": 0.2}
    model = HGCNClassifier(**small, random_state=0, device="cpu", warm_start=True).fit(STORE[range(20)])
    first = model.model_.used_in(STORE)
    assert first is not None
    assert set(first[:20]) == {"training", "validation"}
    assert set(first[20:]) == {None}
    model.fit(STORE[range(20, 40)])
    second = model.model_.used_in(STORE)
    assert second is not None
    # Training graphs of the first fit trained the weights that the second started from.
    assert all(part == "training" for part, before in zip(second, first, strict=True) if before == "training")
    assert set(second[20:]) == {"training", "validation"}
    model.save(tmp_path / "m.safetensors")
    assert HGCNClassifier.load(tmp_path / "m.safetensors").model_.used_in(STORE) == second


def test_a_model_without_a_record_does_not_guess(tmp_path: Path) -> None:
    small_model().save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    assert loaded.used_in(STORE) is None
    assert loaded.info()["recorded_graphs"] is None


def test_a_graph_of_several_parts_is_a_training_graph() -> None:
    split = SplitHashes.from_parts(hashes(5, 2, 5), hashes(2, 9), hashes(9, 1))
    assert split.parts(hashes(1, 2, 5, 9, 7)) == ("test", "training", "training", "validation", None)
    assert split.counts() == {"training": 2, "validation": 2, "test": 2, "left-out": 0}
    assert split.parts(hashes()) == ()


def test_left_out_graphs_have_a_part_of_their_own() -> None:
    split = SplitHashes.from_parts(hashes(1), hashes(2), hashes(3), left_out=hashes(4, 3, 4))
    assert split.parts(hashes(4, 3, 5)) == ("left-out", "test", None)
    assert SplitHashes.from_tensors(split.to_tensors()).parts(hashes(4, 3, 5)) == ("left-out", "test", None)


def test_tensors_hold_eight_bytes_per_graph() -> None:
    many = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    split = SplitHashes.from_parts(many, hashes(2**64 - 1), hashes())
    tensors = split.to_tensors()
    assert sum(value.numel() * value.element_size() for value in tensors.values()) == 8 * 1001
    assert SplitHashes.from_tensors(tensors).parts(hashes(2**64 - 1, int(many[3]))) == (
        "validation",
        "training",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"test": None},
        {"training": torch.tensor([2, 1])},
        {"training": torch.tensor([1.0])},
        {"validation": torch.tensor([[1]])},
    ],
)
def test_invalid_tensors_are_refused(change: dict[str, torch.Tensor | None]) -> None:
    tensors = SplitHashes.from_parts(hashes(1), hashes(2), hashes(3)).to_tensors()
    changed = {name: value for name, value in (tensors | change).items() if value is not None}
    with pytest.raises(ArgumentError, match="SplitHashes"):
        SplitHashes.from_tensors(changed)


def test_a_file_with_a_part_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train_final(STORE, CONFIG, device="cpu").model
    monkeypatch.setattr(SplitHashes, "to_tensors", lambda self: {"training": torch.tensor([1])})
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(DataError, match="validation"):
        graphcaps.load(tmp_path / "m.safetensors")
