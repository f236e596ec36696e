"""Labels of one byte are looked up in a table, with the result of the search among the values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps.data.features import label_columns as module
from graphcaps.data.features.label_columns import find_values, label_indices


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("values", [(0, 1, 5), (-3, 0, 100), (127,), (-500, 3, 900)])
def test_the_table_gives_what_the_search_gives(dtype: type, values: tuple[int, ...]) -> None:
    labels = np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8).view(dtype)
    assert len(labels) > module._MANY
    index, is_value = find_values(values, labels)
    slow_index, slow = find_values(values, labels.astype(np.int64))
    assert np.array_equal(is_value, slow)
    assert np.array_equal(index, slow_index)
    assert is_value.tolist() == [int(label) in values for label in labels]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int64], ids=str)
@pytest.mark.parametrize("blocks", [((0, 1, 5), (3,)), ((2, 4), (0, 7), (1,)), ((0, 1, 2, 3),), ()])
def test_indices_of_all_columns(dtype: torch.dtype, blocks: tuple[tuple[int, ...], ...]) -> None:
    labels = torch.randint(0, 9, (50, 2), generator=torch.Generator().manual_seed(0)).to(dtype)
    indices = label_indices(blocks, labels)
    assert indices.shape == (50, min(len(blocks), 2))
    for column in range(indices.shape[1]):
        values = blocks[column]
        expected = [values.index(label) if label in values else -1 for label in labels[:, column].tolist()]
        assert indices[:, column].tolist() == expected


def test_graphs_without_labels_have_no_indices() -> None:
    assert label_indices(((0, 1),), None).size == 0
    assert label_indices(((0, 1),), torch.zeros(0, 1, dtype=torch.int8)).shape == (0, 1)
