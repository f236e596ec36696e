"""Explanations of a model with companions: scores of the network, and its share in the answer."""

import json
import re
from pathlib import Path

import numpy as np
import torch

from graphcaps.explanation import explain, explain_store
from graphcaps.explanation.report import write_report
from graphcaps.explanation.report.report_data import read_block
from tests.small_models import companion_model, labelled

GRAPHS = torch.tensor([0, 7, 3])


def test_scores_are_of_the_network_for_the_class_of_the_whole_model() -> None:
    model, store = companion_model(), labelled()[GRAPHS]
    answer = model.answer(store)
    assert answer.parts is not None
    together = explain_store(model, store)
    np.testing.assert_array_equal(together.probabilities.numpy(), model.predict_proba(store))
    predicted = answer.probabilities.argmax(-1)
    assert together.target.tolist() == predicted.tolist()
    alone = explain_store(model.network, store, target=torch.from_numpy(predicted))
    torch.testing.assert_close(together.node_scores, alone.node_scores)
    torch.testing.assert_close(together.class_scores, alone.class_scores)
    shares = answer.parts.contributions(predicted)[0]
    assert together.network_share is not None
    np.testing.assert_allclose(together.network_share.numpy(), shares)
    assert 0 < shares.min() < shares.max() < 1
    one = explain(model, labelled()[7])
    assert one.predicted == int(predicted[1])
    content = json.loads(one.to_json())["companion"]
    assert content["models"] == ["wl-forest", "features-trees"]
    assert abs(content["network_share"] - shares[1]) < 1e-5
    assert "companion" not in explain(model.network, labelled()[7]).as_dict()


def test_the_report_says_what_answers_are_made_of(tmp_path: Path) -> None:
    model, store = companion_model(), labelled()[GRAPHS]
    explanations = explain_store(model, store)
    text = write_report(tmp_path, model, store, explanations).read_text("utf-8")
    found = re.search(r'<script[^>]*id="data"[^>]*>([^<]+)<', text)
    assert found is not None
    meta, columns = read_block(found[1].strip())
    assert meta["parts"] == ["hgcn", "wl-forest", "features-trees"]
    assert "weighted mean (network 0.50, wl-forest 0.30, features-trees 0.20)" in meta["lead"]
    assert "Scores, capsules and lengths are of the network alone." in meta["lead"]
    assert explanations.network_share is not None
    np.testing.assert_allclose(columns["network_share"], explanations.network_share.numpy(), rtol=1e-6)
    page = explain(model, labelled()[7]).to_html()
    assert "network_share" in page
