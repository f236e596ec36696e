"""Drawings of explanations and of partitions: elements, colours, determinism and refused arguments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.data.datasets.planted_parts import MOTIF_KINDS
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation import draw_parts
from graphcaps.explanation.drawings import draw_explanation, flow_masses
from graphcaps.explanation.explanation import Explanation
from graphcaps.explanation.graph_drawing import normalise_scores
from graphcaps.explanation.palette import CATEGORICAL, score_colour
from tests.explanation.synthetic import make_explanations, make_store

KINDS = ("parts", "scores", "flow", "assignment", "iterations")


@pytest.fixture(scope="module")
def one() -> Explanation:
    store = make_store(3, class_names=("a $x^2$ b", "<c>", "-1"))
    return make_explanations(store, capsules=(4,))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_as_svg_and_png(one: Explanation, kind: str, tmp_path: Path) -> None:
    for ending, start in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        path = tmp_path / f"{kind}{ending}"
        draw_explanation(one, path, kind=kind)  # type: ignore[arg-type]
        assert path.read_bytes().startswith(start)
    text = (tmp_path / f"{kind}.svg").read_text("utf-8")
    assert "Graph 2: predicted" in text  # text stays text
    draw_explanation(one, tmp_path / "again.svg", kind=kind)  # type: ignore[arg-type]
    assert (tmp_path / "again.svg").read_text("utf-8") == text


def test_nodes_have_the_colour_and_number_of_their_capsule(one: Explanation, tmp_path: Path) -> None:
    draw_explanation(one, tmp_path / "parts.svg")
    text = (tmp_path / "parts.svg").read_text("utf-8")
    counts = np.bincount(one.levels[0].capsule.numpy(), minlength=4)
    for number, count in enumerate(counts):
        # Each capsule with nodes is drawn once more, in the coarse graph.
        assert len(re.findall(rf"<use [^>]*fill: {CATEGORICAL[number].lower()}", text)) + len(
            re.findall(rf'<path [^>]*style="fill: {CATEGORICAL[number].lower()}', text)
        ) == count + (count > 0)
        assert len(re.findall(rf">{number + 1}</text>", text)) == count + (count > 0)


def test_scores_have_their_colours(one: Explanation, tmp_path: Path) -> None:
    assert [score_colour(share) for share in (1, 0.5, 0, -1, -7)] == [
        "#D55E00", "#EAAE80", "#FFFFFF", "#0072B2", "#0072B2",
    ]  # fmt: skip
    assert normalise_scores([0.5, -2.0, 0.0]).tolist() == [0.25, -1.0, 0.0]
    assert normalise_scores([0.0, 0.0]).tolist() == [0.0, 0.0]
    scores = torch.linspace(-1, 3, one.num_nodes)
    draw_explanation(replace(one, node_scores=scores), tmp_path / "scores.svg", kind="scores")
    text = (tmp_path / "scores.svg").read_text("utf-8")
    for share in normalise_scores(scores):
        assert f"fill: {score_colour(share).lower()}" in text
    for number in range(one.num_nodes):
        assert f">{number + 1}</text>" in text
    for words in (">for the class<", ">(3)<", ">against it<", ">(-3)<"):
        assert words in text
    # The remaining nodes of a truncated graph keep their numbers.
    kept = torch.arange(one.num_nodes) + 40
    draw_explanation(replace(one, node_scores=0 * scores, nodes=kept), tmp_path / "cut.svg", kind="scores")
    text = (tmp_path / "cut.svg").read_text("utf-8")
    assert all(f">{number + 41}</text>" in text for number in range(one.num_nodes))


def test_one_capsule_for_all_nodes_is_mentioned(one: Explanation, tmp_path: Path) -> None:
    draw_explanation(one, tmp_path / "parts.svg", kind="parts")
    message = "All nodes share one capsule; use kind='scores' to see which nodes support the class."
    assert message not in (tmp_path / "parts.svg").read_text("utf-8")
    lowest = one.levels[0]
    one_capsule = torch.zeros_like(lowest.assignment)
    one_capsule[:, 2] = 1
    same = replace(one, levels=(replace(lowest, assignment=one_capsule), *one.levels[1:]))
    draw_explanation(same, tmp_path / "parts.svg", kind="parts")
    assert message in (tmp_path / "parts.svg").read_text("utf-8")


def test_names_of_classes_are_text(one: Explanation, tmp_path: Path) -> None:
    draw_explanation(one, tmp_path / "flow.svg", kind="flow")
    text = re.sub("<!--.*?-->", "", (tmp_path / "flow.svg").read_text("utf-8"))
    assert ">a $x^2$ b<" in text  # dollar signs are not mathematics
    assert ">&lt;c&gt;<" in text
    assert ">class -1<" in text


def test_masses_are_products_of_the_coefficients(one: Explanation) -> None:
    masses = flow_masses(one)
    first = one.levels[0].assignment.numpy().mean(0)
    assert masses[1] == pytest.approx(first)
    assert masses[2] == pytest.approx(first @ one.levels[1].assignment.numpy())
    assert [mass.sum() for mass in masses] == pytest.approx([1, 1, 1])


def test_pictures_have_a_legend_of_both_sides(one: Explanation, tmp_path: Path) -> None:
    for kind in ("scores", "flow"):
        draw_explanation(one, tmp_path / f"{kind}.svg", kind=kind)  # type: ignore[arg-type]
        text = (tmp_path / f"{kind}.svg").read_text("utf-8")
        assert "for the class" in text
        assert "against it" in text


def test_more_levels_and_more_capsules_than_colours(tmp_path: Path) -> None:
    one = make_explanations(make_store(2), capsules=(20, 3))[0]
    for kind in KINDS:
        draw_explanation(one, tmp_path / f"{kind}.png", kind=kind)  # type: ignore[arg-type]


def test_wrong_arguments_write_nothing(one: Explanation, tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError,
        match="'kind' must be one of parts, scores, flow, assignment, iterations, molecule, got 'pie'",
    ):
        draw_explanation(one, tmp_path / "x.png", kind="pie")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'path' must end in \.png, \.svg or \.pdf"):
        draw_explanation(one, tmp_path / "x.bmp")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- partitions
def test_partition_has_a_marker_per_node_and_a_legend(tmp_path: Path) -> None:
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
    for number, colour in ((1, CATEGORICAL[0].lower()), (0, "#ffffff")):
        expected = int((kind[torch.cat([node_rows(store, 2), node_rows(store, 0)])] == number).sum())
        actual = len(re.findall(rf"<use [^>]*fill: {colour}[^>]*/>", text)) - 1  # one more in the legend
        assert actual == expected, colour
    assert len(re.findall(r"<use [^>]*fill: #", text)) >= nodes


def node_rows(store: object, graph: int) -> torch.Tensor:
    return torch.arange(int(store.node_ptr[graph]), int(store.node_ptr[graph + 1]))  # type: ignore[attr-defined]


def test_a_partition_is_drawn_the_same_way_twice(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=3)
    pictures = []
    for name in ("one.png", "two.png"):
        draw_parts(tmp_path / name, store, [1], {"capsule": store.truth["kind"]})
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")


def test_a_partition_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=3)
    with pytest.raises(
        ShapeError, match=r"draw_parts: 'capsule' must have one part per node, \d+, got \[2\]\."
    ):
        draw_parts(tmp_path / "x.png", store, [0], {"capsule": torch.zeros(2)})
    assert not (tmp_path / "x.png").exists()


def test_every_level_is_drawn_with_its_coarse_graph(tmp_path: Path) -> None:
    store = make_store(2)
    one = make_explanations(store, capsules=(5, 3))[0]
    draw_explanation(one, tmp_path / "parts.svg", kind="parts")
    text = (tmp_path / "parts.svg").read_text("utf-8")
    low = one.levels[0].capsule.numpy()
    high = one.levels[1].capsule.numpy()[low]
    for level in (1, 2):
        assert f"Coarse graph of level {level}" in text
        assert f"Nodes, coloured and numbered by capsule of level {level}" in text
    for number in range(5):
        expected = sum((path == number).sum() + bool((path == number).any()) for path in (low, high))
        assert len(re.findall(rf">{number + 1}</text>", text)) == expected
