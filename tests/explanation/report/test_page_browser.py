"""The report in a browser: drawings, highlighting, filters and keyboard access."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.explanation import explain_store
from graphcaps.explanation.contribution_flow import contribution_flow
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.palette import AGAINST, CATEGORICAL, FOR
from graphcaps.explanation.report import write_report
from graphcaps.metrics import NUM_BINS
from tests.explanation.synthetic import FakeModel, make_explanations, make_store
from tests.small_models import train_small

HISTORY = [
    {"epoch": e, "train_loss": 1 / e, "train_accuracy": 1 - 0.5 / e, "validation_loss": 1.1 / e}
    for e in range(1, 9)
]
METRICS = {
    "methods": {"capsules": {"nmi": 0.61, "ari": None}, "gradient": {"nmi": None, "fidelity_plus": 0.25}}
}


@pytest.fixture(scope="module")
def explained() -> tuple[Any, StoreExplanation]:
    store = make_store(60)
    return store, make_explanations(store, capsules=(5,))


@pytest.fixture(scope="module")
def report(explained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store, explanations = explained
    model = FakeModel(store.class_names, {"dataset": "synthetic", "epoch": 5})
    folder = tmp_path_factory.mktemp("report")
    return write_report(
        folder, model, store, explanations, metrics=METRICS, history=HISTORY, title="A report"
    )


def highlighted_nodes(page: Any) -> set[int]:
    return set(
        page.eval_on_selector_all("svg.graph .node.lit", "all => all.map((n) => Number(n.dataset.node))")
    )


def count_shown(page: Any) -> int:
    return int(page.evaluate("graphcaps.explorer.list.shown.length"))


def test_a_click_draws_every_level(visit: Any, report: Path, explained: Any) -> None:
    _, explanations = explained
    page = visit(report)
    page.click('[role=option][data-graph="3"]')
    one = explanations[3]
    assert page.text_content("#graph-title") == "Graph 4"
    assert page.locator("svg.graph .node").count() == one.num_nodes
    assert page.locator("svg.coarse .capsule").count() == 5
    assert page.locator("svg.flow .block").count() == 1 + 5 + 1 + 3  # with the mean capsule
    assert page.locator(".classes li").count() == 3
    words = page.text_content("#summary").replace("\u00a0", " ")
    assert words.startswith(f"{one.num_nodes} nodes, {one.edges.size(1)} edges. Predicted: ")
    assert one.class_names[one.predicted] in words
    drawn = page.get_attribute("svg.graph .edge", "d")
    assert drawn.count("M") == one.edges.size(1)
    colours = page.eval_on_selector_all(
        "svg.graph .node text", "all => all.map((t) => Number(t.textContent) - 1)"
    )
    assert colours == one.levels[0].capsule.tolist()


def test_hover_and_focus_highlight_the_nodes_of_a_capsule(visit: Any, report: Path, explained: Any) -> None:
    _, explanations = explained
    page = visit(report)
    capsule = explanations[0].levels[0].capsule.numpy()
    for number in range(5):
        expected = set(np.flatnonzero(capsule == number).tolist())
        page.hover(f'#chips [data-capsule="{number}"]')
        assert highlighted_nodes(page) == expected
        page.hover(f'svg.coarse [data-capsule="{number}"] circle')
        assert highlighted_nodes(page) == expected
    page.hover("h1")
    assert highlighted_nodes(page) == set()
    page.focus('#chips [data-capsule="2"]')
    assert highlighted_nodes(page) == set(np.flatnonzero(capsule == 2).tolist())
    # A class highlights the nodes that lead to it.
    page.hover('.classes [data-class="1"]')
    above = explanations[0].levels[1].capsule.numpy()
    assert highlighted_nodes(page) == set(np.flatnonzero(above[capsule] == 1).tolist())


def test_a_clicked_capsule_stays_highlighted(visit: Any, report: Path, explained: Any) -> None:
    page = visit(report)
    expected = set(np.flatnonzero(explained[1][0].levels[0].capsule.numpy() == 1).tolist())
    page.click('#chips [data-capsule="1"]')
    page.hover("h1")
    assert page.get_attribute('#chips [data-capsule="1"]', "aria-pressed") == "true"
    assert highlighted_nodes(page) == expected
    page.click('#chips [data-capsule="1"]')
    page.hover("h1")
    page.evaluate("document.activeElement.blur()")
    assert highlighted_nodes(page) == set()


def test_routing_iterations_can_be_stepped_through(visit: Any, report: Path, explained: Any) -> None:
    lowest = explained[1][0].levels[0]
    page = visit(report)
    page.click("#iteration-back")
    names = "all => all.map((t) => t.textContent)"
    numbers = page.eval_on_selector_all("svg.graph .node text", names)
    assert numbers == [str(int(number) + 1) for number in lowest.capsule_after(1)]
    page.click("#iteration-back")
    assert page.is_disabled("#iteration-back")
    assert set(page.eval_on_selector_all("svg.graph .node text", names)) == {""}
    page.focus("#iteration")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#iteration", "aria-valuetext") == "iteration 2 of 3"


def test_filters_select_the_same_graphs_as_python(visit: Any, report: Path, explained: Any) -> None:
    _, explanations = explained
    labels, predicted = explanations.true_class.numpy(), explanations.predicted.numpy()
    sure = explanations.probabilities.amax(-1).numpy()
    page = visit(report)
    assert count_shown(page) == 60
    page.check('[name=outcome][value="wrong"]')
    assert count_shown(page) == int((labels != predicted).sum()) > 0
    assert page.text_content("#count").startswith(f"{(labels != predicted).sum()} of 60")
    page.check('[name=outcome][value="right"]')
    page.select_option("[name=trueClass]", "1")
    assert count_shown(page) == int(((labels == predicted) & (labels == 1)).sum()) > 0
    page.check('[name=outcome][value="all"]')
    page.select_option("[name=trueClass]", "-1")
    page.select_option("[name=predicted]", "2")
    page.fill("[name=low]", "45")
    page.fill("[name=high]", "70")
    assert count_shown(page) == int(((predicted == 2) & (sure >= 0.45) & (sure <= 0.70)).sum()) > 0
    page.fill("[name=low]", "99")
    page.fill("[name=high]", "98")
    assert page.text_content(".nothing p") == "No graph matches these filters."
    page.click(".nothing button")
    assert count_shown(page) == 60
    page.select_option("[name=order]", "unsure")
    order = page.evaluate("Array.from(graphcaps.explorer.list.shown)")
    assert order == np.argsort(sure.astype(np.float32), kind="stable").tolist()


def test_all_controls_are_reachable_by_keyboard(visit: Any, report: Path) -> None:
    page = visit(report)
    page.focus("#list")
    for key, title in (("ArrowDown", 2), ("ArrowDown", 3), ("ArrowUp", 2), ("End", 60), ("Home", 1)):
        page.keyboard.press(key)
        assert page.text_content("#graph-title") == f"Graph {title}"
        chosen = page.get_attribute("#list", "aria-activedescendant")
        assert page.get_attribute(f"#{chosen}", "aria-selected") == "true"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "graph-title"
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.name || document.activeElement.className || document.activeElement.id"
            )
        )
        outline = page.evaluate(
            "(() => { const a = document.activeElement; const s = a.type === 'radio' ? a.nextElementSibling : a;"
            " return getComputedStyle(s).outlineStyle; })()"
        )
        assert outline != "none", reached[-1]
    assert reached[:2] == ["colour", "names"]
    assert sum(name.startswith("chip") for name in reached) == 5


def test_scores_labels_and_tables(visit: Any, report: Path, explained: Any) -> None:
    one = explained[1][0]
    page = visit(report)
    page.check('[name=colour][value="score"]')
    assert page.locator("svg.graph .edge").count() == one.edges.size(1)
    filled = page.eval_on_selector_all("svg.graph circle", "all => all.map((c) => c.style.fill)")
    assert [("--against" in value) for value in filled] == (one.node_scores < 0).tolist()
    page.check('[name=names][value="label"]')
    labels = page.eval_on_selector_all("svg.graph .node text", "all => all.map((t) => t.textContent)")
    assert labels == [str(int(value)) for value in one.node_labels[:, 0]]
    for summary, rows in (
        ("Capsules as a table", 5),
        ("Nodes as a table", one.num_nodes),
        ("Edges as a table", one.edges.size(1)),
    ):
        page.click(f"text={summary}")
        body = page.locator("#alternatives details", has_text=summary).locator("tbody tr")
        body.first.wait_for()
        assert body.count() == rows
    weights = page.eval_on_selector_all(
        "table.heat-map tbody tr:first-child .heat", "all => all.map((c) => Number(c.textContent))"
    )
    assert weights == pytest.approx((100 * one.levels[0].assignment[0]).tolist(), abs=0.8)


def test_metrics_equal_those_of_python(visit: Any, report: Path, explained: Any) -> None:
    _, explanations = explained
    labels, predicted = explanations.true_class.numpy(), explanations.predicted.numpy()
    page = visit(report)
    cells = (
        "rows => rows.map((row) => "
        "Array.from(row.querySelectorAll('td:not(.total)'), (cell) => Number(cell.textContent)))"
    )
    counts = [[int(((labels == a) & (predicted == b)).sum()) for b in range(3)] for a in range(3)]
    assert page.eval_on_selector_all("table.confusion tbody tr", cells) == counts
    assert page.locator(".curve.train").count() == 3  # accuracy, loss, reliability
    assert page.locator("circle.point").count() == NUM_BINS
    assert "training graphs possibly included" in page.text_content("#facts")
    metrics = page.text_content("#metrics")
    assert "0.610" in metrics
    assert "0.250" in metrics
    assert "–" in metrics


@pytest.mark.parametrize("dark", [False, True])
def test_no_horizontal_scrolling_on_a_phone(visit: Any, report: Path, dark: bool) -> None:
    page = visit(report, width=375, height=800, dark=dark)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in back[4:-1].split(",")) < 200) == dark


def test_hierarchies_of_more_levels(visit: Any, tmp_path: Path) -> None:
    store = make_store(4)
    explanations = make_explanations(store, capsules=(6, 3))
    page = visit(write_report(tmp_path, FakeModel(store.class_names), store, explanations))
    assert page.locator("svg.coarse").count() == 2
    low, high = explanations[0].levels[0].capsule.numpy(), explanations[0].levels[1].capsule.numpy()
    page.check('[name=level][value="1"]')
    assert page.locator("#chips .chip").count() == 3
    for number in range(3):
        page.hover(f'#chips [data-capsule="{number}"]')
        assert highlighted_nodes(page) == set(np.flatnonzero(high[low] == number).tolist())


def test_one_round_of_routing_and_losses_below_zero(visit: Any, tmp_path: Path) -> None:
    """All routing weights are equal then; and the part loss is negative."""
    store = make_store(6)
    explanations = make_explanations(store, capsules=(4,), iterations=1)
    history = [{"epoch": e, "train_loss": -0.1 * e, "validation_loss": 1 / e} for e in (1, 2, 3)]
    model = FakeModel(store.class_names, {"dataset": "synthetic"})
    page = visit(write_report(tmp_path, model, store, explanations, history=history, title="One iteration"))
    assert "coefficients to all 4 capsules are equal" in page.text_content("#summary").replace("\u00a0", " ")
    assert page.locator("svg.graph .node").count() == explanations[0].num_nodes
    inside = page.evaluate(
        """() => [...document.querySelectorAll("svg")].every((svg) => [...svg.querySelectorAll("polyline, path.train")]
        .every((line) => line.getBBox().y + line.getBBox().height <= svg.viewBox.baseVal.height))"""
    )
    assert inside


def test_learning_curves_have_a_limited_width_and_stand_side_by_side(visit: Any, tmp_path: Path) -> None:
    store = make_store(6)
    explanations = replace(make_explanations(store), true_class=None)  # no labels: the curves stand alone
    model = FakeModel(store.class_names)
    path = write_report(tmp_path, model, store, explanations, history=HISTORY)
    page = visit(path, width=1400)
    first, second = (chart.bounding_box() for chart in page.locator("#cards svg.chart").all())
    assert 400 <= first["width"] <= 600
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] < second["x"]
    page = visit(path, width=400)
    first, second = (chart.bounding_box() for chart in page.locator("#cards svg.chart").all())
    assert first["y"] + first["height"] < second["y"]
    assert first["x"] + first["width"] <= 400


def test_curves_say_how_training_graphs_were_measured(visit: Any, report: Path) -> None:
    page = visit(report)
    legends = page.locator("#cards .legend").all_text_contents()
    assert sum("training graphs, during the epoch" in text for text in legends) == 2
    assert "training graphs, during the epoch" in page.locator("svg.chart").nth(1).get_attribute("aria-label")


def test_class_names_are_written_exactly(visit: Any, tmp_path: Path) -> None:
    store = make_store(12, class_names=("-1", "1"))
    page = visit(
        write_report(tmp_path, FakeModel(store.class_names), store, make_explanations(store)), width=1400
    )
    words = page.locator("body").inner_text()
    assert "class -1" in words
    assert "class \u22121" not in words
    assert "class -1" in page.locator("table.confusion").inner_text()


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a model that is right on all training graphs and wrong on all test graphs."""
    store = make_store(30)
    explanations = make_explanations(store, right=1.0)
    probabilities = explanations.probabilities.clone()
    probabilities[20:] = probabilities[20:].roll(1, -1)
    training = {"dataset": "synthetic", "test_accuracy": 0.0, "test_graphs": 10}
    return write_report(
        tmp_path_factory.mktemp("overfitted"),
        FakeModel(store.class_names, training),
        store,
        replace(explanations, probabilities=probabilities),
        used_in=["training"] * 20 + ["test"] * 10,
        ids=[f"compound-{number}" for number in range(30)],
    )


def test_the_headline_is_the_test_accuracy(visit: Any, overfitted: Path) -> None:
    page = visit(overfitted)
    first = page.text_content("#facts .fact:first-child").replace("\u00a0", " ")
    assert first == (
        "Test accuracy0.0 %0 of 10 test graphs, which training did not use; 95 % interval 0.0 % to 27.8 %"
        "Caution: fewer than 30 graphs say little."
    )
    assert "66.7" not in page.text_content("header")  # the accuracy over all graphs
    others = page.text_content("#other-facts").replace("\u00a0", " ")
    assert "Training accuracy100.0 %20 of 20 training graphs" in others
    top = "(name) => document.querySelector(name).getBoundingClientRect().top"
    assert page.evaluate(top, "#facts") < page.evaluate(top, "#other-facts")
    total = "all => all.map((cell) => Number(cell.textContent)).reduce((a, b) => a + b, 0)"
    cells = "table.confusion tbody td:not(.total)"
    assert page.eval_on_selector_all(cells, total) == 10
    assert page.eval_on_selector_all("table.confusion tbody td.hit", total) == 0
    page.select_option("#set", label="Training graphs")
    assert page.eval_on_selector_all(cells, total) == 20
    assert "training graphs" in page.text_content("#cards .card:first-child h3")


def test_graphs_are_found_by_id_and_part(visit: Any, overfitted: Path) -> None:
    page = visit(overfitted)
    assert page.text_content("#list .row-number") == "compound-0"
    assert page.text_content("#graph-title") == "compound-0"
    assert "It trained the model." in page.text_content("#summary")
    page.fill('[name="find"]', "pound-2")
    assert count_shown(page) == 11  # 2 and 20 to 29
    page.select_option('[name="part"]', "test")
    assert count_shown(page) == 10
    page.fill('[name="find"]', "22")
    assert count_shown(page) == 2  # graph 22 is compound-21, and compound-22
    page.fill('[name="find"]', "nothing")
    page.click("text=Clear filters")
    assert count_shown(page) == 30


@pytest.mark.parametrize("levels", [(5,), (6, 3)])
def test_the_widest_flow_ends_at_the_predicted_class(
    visit: Any, tmp_path: Path, levels: tuple[int, ...]
) -> None:
    """The flow of every graph adds up to the class scores; before, widths were routing coefficients."""
    store = make_store(12)
    explanations = make_explanations(store, capsules=levels)
    page = visit(write_report(tmp_path, FakeModel(store.class_names), store, explanations))
    totals = page.evaluate(
        """() => Array.from({ length: graphcaps.graphs.count }, (_, graph) => {
          const last = graphcaps.graphs.flow(graph).at(-1);
          return last[0].map((_, o) => last.reduce((sum, row) => sum + row[o], 0));
        })"""
    )
    np.testing.assert_allclose(totals, explanations.class_scores.numpy(), atol=1e-3)
    assert np.argmax(totals, 1).tolist() == explanations.predicted.tolist()
    for flow, python in zip(
        page.evaluate("graphcaps.graphs.flow(3)"), contribution_flow(explanations[3]), strict=True
    ):
        np.testing.assert_allclose(flow, python, atol=3e-3)


def test_contributions_of_capsules_without_nodes_are_listed(visit: Any, tmp_path: Path) -> None:
    """The parts of a class score add up to it, also those of capsules that no node belongs to."""
    store = make_store(3)
    explanations = make_explanations(store, capsules=(5,))
    explanations.iterations[0][-1] = torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1])  # all nodes in capsule 1
    page = visit(write_report(tmp_path, FakeModel(store.class_names), store, explanations))
    rows = page.eval_on_selector_all(
        ".score-parts tbody tr",
        "all => all.map((row) => Array.from(row.children, (cell) => cell.textContent))",
    )
    names = [row[0].replace("\u00a0", " ") for row in rows]
    nodes = f"{int(store.sizes[0])} nodes"
    assert names == [
        f"capsule 1, {nodes}",
        "4 capsules without nodes",
        "residual (mean capsule)",
        "sum: length of the class capsule",
    ]
    numbers = np.array([[float(text.replace("−", "-")) for text in row[1:]] for row in rows])
    np.testing.assert_allclose(numbers[:-1].sum(0), numbers[-1], atol=0.003)
    np.testing.assert_allclose(numbers[-1], explanations.class_scores[0], atol=0.001)
    assert page.locator("svg.flow .block .hollow").count() == 4
    assert "capsule without nodes" in page.text_content(".legend:has(.hollow)")


def test_page_and_drawings_share_one_palette(visit: Any, report: Path) -> None:
    page = visit(report)
    value = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    assert page.evaluate(value, "--for") == FOR
    assert page.evaluate(value, "--against") == AGAINST
    badge = page.evaluate("document.querySelector('#chips .badge').style.backgroundColor")
    assert badge == f"rgb({', '.join(str(int(CATEGORICAL[0][at : at + 2], 16)) for at in (1, 3, 5))})"
    legend = page.text_content(".legend.sides")
    assert legend == "for the classagainst it"
    page.check('[name=colour][value="score"]')
    assert page.text_content("#chips").startswith("against the classfor")


def test_molecules_are_drawn_with_bonds(visit: Any, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    from graphcaps.data.readers.molecules import from_smiles

    texts = ["C[C@H](N)C(=O)[O-]", "c1ccncc1", "C#N", "CCO", "CCN", "CCC"]
    store = from_smiles(texts, ["a", "b"] * 3)
    model = train_small(store)
    page = visit(write_report(tmp_path, model, store, explain_store(model, store)))
    names = page.eval_on_selector_all("svg.molecule .node text", "all => all.map((t) => t.textContent)")
    assert sorted(names) == ["", "", "", "NH2", "O", "O−"]
    assert page.text_content("#smiles") == store.smiles[0]
    assert page.locator("svg.molecule .bond.solid").count() + page.locator("svg.molecule .bond").count() > 6
    wedges = page.evaluate("Array.from(graphcaps.graphs.edges(0, 'wedge')).filter(Boolean).length")
    assert wedges == 1
    page.click('[role=option][data-graph="1"]')
    assert page.locator("svg.molecule .bond").count() == 6 + 3
    page.click('[role=option][data-graph="2"]')
    assert page.locator("svg.molecule .bond").count() == 3
    page.fill('[name="find"]', "ccn")
    assert count_shown(page) == 2  # of pyridine and ethylamine
