"""Opening a source for a model."""

from __future__ import annotations

from typing import Any

import pytest

from graphcaps.cli.data_options import open_for_model
from graphcaps.data.coercion import reader_defaults
from graphcaps.data.datasets import loading
from graphcaps.data.readers.graph_metadata import GraphMetadata, SkippedRow
from tests.small_models import planted, small_model

NOTE, SKIPPED = "Not read: weight.", "2 rows hold no valid molecule and were left out: lines 3, 7."


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options of each call of the reader, which returns a note and two skipped rows."""
    calls = []
    skipped = tuple(SkippedRow(line, "C(", "not valid") for line in (3, 7))
    metadata = GraphMetadata(ids=("2",), skipped=skipped, notes=(NOTE,), row_indices=(0,))

    def open_dataset(source: str, root: object, *, defaults: dict[str, Any], **options: Any) -> Any:
        calls.append(defaults | options)
        return loading.LoadedDataset(planted()[:1], None, False, metadata)

    monkeypatch.setattr(loading, "open_dataset", open_dataset)
    return calls


def test_notes_other_than_on_skipped_rows_are_printed(opened, capsys):
    options: dict[str, Any] = {"smiles": "structure"}
    open_for_model("own.csv", None, options, small_model(), keep_bad_rows=True)
    assert capsys.readouterr().err.splitlines() == [NOTE]
    expected = {"bad": "skip", "unlabelled": "keep", "smiles": "structure"}
    assert opened == [reader_defaults(small_model().recipe) | expected]


@pytest.mark.parametrize(("options", "keep_bad_rows"), [({}, False), ({"bad": "skip"}, True)])
def test_skipped_rows_are_noted_where_results_do_not_list_them(opened, capsys, options, keep_bad_rows):
    open_for_model("own.csv", None, options, small_model(), keep_bad_rows=keep_bad_rows)
    assert capsys.readouterr().err.splitlines() == [NOTE, SKIPPED]
    assert opened == [reader_defaults(small_model().recipe) | {"unlabelled": "keep"} | options]
