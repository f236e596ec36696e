"""Predictions in parts are those of all graphs at once; their file grows with them and is complete or absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcaps.data.readers.graph_metadata import GraphMetadata, SkippedRow
from graphcaps.errors import DataError
from graphcaps.inference import predictions as module
from graphcaps.inference.prediction_file import write_predictions
from graphcaps.inference.predictions import Predictions, predict_in_parts, predict_store, with_skipped_rows
from tests.small_models import labelled, labelled_model

STORE = labelled()[:6]


def assert_rows(found: list[Any], expected: list[Any]) -> None:
    """Equal rows, numbers up to rounding."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            if isinstance(value, dict):
                assert one[key] == pytest.approx(value, abs=1e-6)
            else:
                assert one[key] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value)


def parts_of(size: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Predictions]:
    monkeypatch.setattr(module, "_PART_SIZE", size)
    return list(predict_in_parts(labelled_model(), STORE, **options))


@pytest.mark.parametrize("size", [1, 2, 4, 6, 100])
def test_parts_joined_are_all_predictions(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tuple("abcdef")
    whole = predict_store(labelled_model(), STORE, ids=ids, abstain_below=0.6)
    parts = parts_of(size, monkeypatch, ids=ids, abstain_below=0.6)
    assert [len(part) for part in parts] == [min(size, 6 - start) for start in range(0, 6, size)]
    joined = Predictions.join(parts)
    assert_rows(list(joined.rows()), list(whole.rows()))
    assert joined.summary()["accuracies"] == whole.summary()["accuracies"]


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_skipped_rows_are_between_the_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = (1, 2, 5, 6, 7, 9)  # of the six graphs among eleven rows
    skipped = tuple(SkippedRow(row + 2, "C(C", f"reason {row}") for row in range(11) if row not in positions)
    rows = GraphMetadata(
        ids=tuple("abcdef"),
        skipped=skipped,
        skipped_ids=tuple("vwxyz"),
        row_indices=positions,
    )
    whole = with_skipped_rows(predict_store(labelled_model(), STORE, ids=rows.ids), rows)
    joined = Predictions.join(parts_of(size, monkeypatch, ids=rows.ids, rows=rows))
    assert joined.ids == tuple("vabwxcdeyfz")
    assert joined.errors[3] == "it is not a valid SMILES: reason 3"
    assert_rows(list(joined.rows()), list(whole.rows()))


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_a_file_of_parts_is_the_file_of_all(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = parts_of(2, monkeypatch)
    one, several = tmp_path / f"one{suffix}", tmp_path / f"several{suffix}"
    written = write_predictions(several, parts)
    write_predictions(one, [Predictions.join(parts)])
    assert len(written) == 6
    text = several.read_text("utf-8")
    assert text == one.read_text("utf-8")
    if suffix == ".jsonl":
        assert [json.loads(line)["graph"] for line in text.splitlines()] == [1, 2, 3, 4, 5, 6]
    elif suffix == ".json":
        content = json.loads(text)
        assert content == {"predictions": list(written.rows()), "summary": written.summary()}
    else:
        assert text == written.to_csv()


def test_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, out = parts_of(2, monkeypatch), tmp_path / "new.csv"
    sizes: list[int] = []

    def slowly() -> Iterator[Predictions]:
        for part in parts * 300:  # more than a buffer of the file
            yield part
            assert not out.exists()
            (temporary,) = tmp_path.iterdir()
            sizes.append(temporary.stat().st_size)

    write_predictions(out, slowly())
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
    assert sizes[len(sizes) // 2] > 0.3 * out.stat().st_size


@pytest.mark.parametrize("late", [True, False])
def test_a_failure_leaves_the_file_as_it_was(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, out = parts_of(2, monkeypatch), tmp_path / "new.csv"
    out.write_text("before", "utf-8")

    def fail(*_: object) -> Iterator[Predictions]:
        yield parts[0]
        raise DataError(out, "a reason")

    def refuse(predictions: Predictions) -> None:
        raise DataError(out, "a reason")

    with pytest.raises(DataError, match="a reason"):
        write_predictions(out, parts, check=refuse) if late else write_predictions(out, fail())
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]
    assert out.read_text("utf-8") == "before"


def test_joined_probabilities_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(4, monkeypatch)
    joined = Predictions.join(parts)
    assert np.array_equal(joined.probabilities[4:], parts[1].probabilities)
    assert joined.true_classes == sum((part.true_classes or () for part in parts), ())
