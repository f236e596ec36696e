"""Warnings of HGCNClassifier.fit about its graphs."""

from __future__ import annotations

import pytest

from graphcaps.data.coercion import coerce
from graphcaps.data.readers.graph_metadata import ReadingWarning
from tests.estimator.small_classifier import small


def test_fit_warns_of_salts_contradictions_and_rows_left_out(tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CC(=O)[O-].[Na+]", "c1ccccc1", "OCC", "CCN", "CCC"]
    y = [0, 1, 0, 1, 0, 1]
    with pytest.warns(ReadingWarning) as caught:
        small(epochs=1, validation=0).fit(smiles, y)
    salts = (
        "HGCNClassifier: 1 of 6 molecules has several fragments (salts, mixtures); coerce(X, fragments='largest') "
        "keeps the largest of each."
    )
    copies = (
        "HGCNClassifier: 1 molecule is in more than one row (1 further row), with different labels; "
        "all rows are kept."
    )
    assert [str(warning.message) for warning in caught] == [salts, copies]
    assert {warning.filename for warning in caught} == {__file__}
    read = coerce(smiles, fragments="largest")
    with pytest.warns(ReadingWarning) as caught:  # of the classes, which only fit has seen
        small(epochs=1, validation=0).fit(read.store, y)
    assert [str(warning.message) for warning in caught] == [copies]
    small(epochs=1, validation=0).fit(
        smiles[2:] * 2, y[2:] * 2
    )  # copies with one class, as in bootstrap samples
