"""A server answers for a model with companions as predict does."""

from dataclasses import replace

from graphcaps.inference.predictions import predict_store
from graphcaps.serve.request_graphs import RequestGraph
from graphcaps.serve.responses import describe_model, predict_requests, respond
from tests.small_models import companion_model, labelled


def test_rows_of_the_server_are_those_of_predict() -> None:
    model, store = companion_model(), labelled()
    unlabelled = replace(store, y=None, class_names=())
    graphs = [RequestGraph(str(number), unlabelled[number]) for number in (0, 4, 9)]
    failed = RequestGraph("bad", error="no graph")
    (rows,) = predict_requests(model, [[*graphs, failed]])
    expected = [next(iter(predict_store(model, graph.store, parts=True).rows())) for graph in graphs]
    for row, own in zip(rows, expected, strict=False):
        assert row["class"] == own["class"]
        assert len(row["parts"]) == 3
        for part, same in zip(row["parts"], own["parts"], strict=True):
            assert part["model"] == same["model"]
            assert part["weight"] == same["weight"]
            assert abs(part["probability"] - same["probability"]) < 1e-6
            assert abs(part["contribution"] - same["contribution"]) < 1e-6
        assert abs(row["probability"] - own["probability"]) < 1e-6
    assert rows[3]["parts"] is None
    assert rows[0].keys() == rows[3].keys()
    assert describe_model(model)["companions"] == ["wl-forest", "features-trees"]
    (explained,) = respond(model, "explain", graphs[:1])["explanations"]
    assert explained["companion"]["models"] == ["wl-forest", "features-trees"]
