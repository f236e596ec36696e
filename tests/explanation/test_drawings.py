import re
from pathlib import Path

import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.data.datasets.planted_parts import MOTIF_KINDS
from graphcaps.errors import ShapeError
from graphcaps.explanation import draw_parts


def test_picture_has_a_mark_per_node_and_its_legend(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=3)
    kind = store.truth["kind"]
    path = tmp_path / "parts.svg"
    draw_parts(
        path,
        store,
        [2, 0],
        {"part planted": kind - 1},
        titles=["one", "two"],
        names={"part planted": MOTIF_KINDS[1:]},
    )
    text = path.read_text("utf-8")
    nodes = int(store.sizes[2] + store.sizes[0])
    # Every node is one use of the marker's shape, filled with its part's colour (white for none).
    for number, colour in ((1, "#0072b2"), (0, "#ffffff")):
        own = int((kind[torch.cat([_rows(store, 2), _rows(store, 0)])] == number).sum())
        found = len(re.findall(rf"<use [^>]*fill: {colour}[^>]*/>", text)) - 1  # one more in the legend
        assert found == own, colour
    assert len(re.findall(r"<use [^>]*fill: #", text)) >= nodes


def _rows(store: object, graph: int) -> torch.Tensor:
    return torch.arange(int(store.node_ptr[graph]), int(store.node_ptr[graph + 1]))  # type: ignore[attr-defined]


def test_the_same_graph_is_drawn_the_same_way(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=3)
    pictures = []
    for name in ("one.png", "two.png"):
        draw_parts(tmp_path / name, store, [1], {"capsule": store.truth["kind"]})
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")


def test_a_row_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=3)
    with pytest.raises(
        ShapeError, match=r"draw_parts: 'capsule' must have one part per node, \d+, got \[2\]\."
    ):
        draw_parts(tmp_path / "x.png", store, [0], {"capsule": torch.zeros(2)})
    assert not (tmp_path / "x.png").exists()
