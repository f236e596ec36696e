"""Options and responses of the server as pydantic models; ``/openapi.json`` and ``/docs`` are made from them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphcaps.serve.limits import Limits
from graphcaps.serve.uploads import CONTENT_TYPES

__all__ = [
    "ExplainOptions",
    "ExplainResponse",
    "HealthResponse",
    "PredictOptions",
    "PredictResponse",
    "describe_api",
    "document",
    "document_health",
]


class PredictOptions(BaseModel):
    """Options of ``/predict`` in the query string."""

    model_config = ConfigDict(extra="forbid")

    unseen: Literal["refuse", "ignore"] = Field(
        "refuse", description="Node labels that were not in the training set: an error, or zeros."
    )
    column: str = Field("smiles", max_length=200, description="Column of a table that holds the SMILES.")


class ExplainOptions(PredictOptions):
    """Options of ``/explain`` in the query string."""

    target: str | None = Field(
        None, max_length=200, description="Class that the scores are for. Default: the predicted class."
    )


class GraphsBody(BaseModel):
    """Either graphs or smiles."""

    graphs: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Node-link graphs with 'nodes' (each with an 'id') and 'links' (each with 'source' and 'target'). "
        "'label' of a node is its category; other numbers that every node has are attributes.",
    )
    smiles: list[str] = Field(default_factory=list, description="Molecules as SMILES.")


class GraphResult(BaseModel):
    """What every entry has. An entry with an error has the same fields as the others, and null in most of them."""

    model_config = ConfigDict(json_schema_extra={"required": ["graph", "name", "error"]})

    graph: int = Field(description="Number of the graph in the request, counted from 1.")
    name: str = Field(description="Name of the graph: its file, the id of its row, its SMILES or number.")
    unseen_values: str | None = Field(
        default=None,
        description="Values of a molecule that no training molecule has, which are read as 'other'; else null.",
    )
    truncated: str | None = Field(
        default=None,
        description="How many nodes of a large graph the model reads, if it was trained with a limit; else null.",
    )
    error: str | None = Field(description="Why this graph has no result, else null.")


class Prediction(GraphResult):
    """The prediction of one graph."""

    predicted_class: str | None = Field(alias="class", description="The most probable class.")
    probability: float | None = Field(description="Probability of that class.")
    probabilities: dict[str, float] | None = Field(description="Probability of each class.")
    lengths: dict[str, float] | None = Field(
        description="Length of each class capsule; 'scores' in a model without capsules."
    )
    disagreement: float | None = Field(
        default=None,
        description="How much the members of a committee differ, their mutual information in nats; the entry is "
        "missing if the model is a single one.",
    )
    parts: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of a model with a companion: for the network, then for each companion, 'model', 'weight', "
        "'probability' of the class, 'contribution' (its share in the weighted mean) and 'probabilities'. The entry is "
        "missing if the model is a network alone.",
    )
    out_of_distribution: str | None = Field(
        description="Why the graph is outside the applicability domain of the model. Null if it is inside, or if the "
        "model has no profile of its training set."
    )
    used_in: Literal["training", "validation", "test", "left-out"] | None = Field(
        description="The part of the data that the graph was in when the model was trained: accuracy on training "
        "graphs says nothing about new ones, and copies of left-out molecules have different labels. Null if it was in "
        "none, or if the model file has no record of its graphs."
    )


class GraphExplanation(GraphResult):
    """The explanation of one graph."""

    predicted: str | None = Field(description="The predicted class.")
    target: str | None = Field(description="The class that the scores are for.")
    probabilities: list[float] | None = Field(
        description="Probability of each class, in the order of 'class_names'."
    )
    node_scores: list[float] | None = Field(
        description="Contribution of each node: for the class above 0, against it below."
    )
    members: dict[str, Any] | None = Field(
        default=None,
        description="Of a committee: 'predicted' and 'node_scores' of each member, and 'agreement', the mean rank "
        "correlation of these scores. node_scores above are their means, and 'levels' those of the first member. The "
        "entry is missing if the model is a single one.",
    )
    companion: dict[str, Any] | None = Field(
        default=None,
        description="Of a model with a companion: 'models', and 'network_share', the share of the network in the "
        "probability of the predicted class. Scores, capsules and levels are of the network alone. The entry is "
        "missing if the model is a network alone.",
    )
    note: str | None = Field(description="Why there is nothing to explain, for a graph without nodes.")
    edges: list[list[int]] | None = Field(description="Each edge once, as a pair of nodes counted from 0.")
    edge_scores: list[float] | None = Field(description="Contribution of each edge.")
    levels: list[dict[str, Any]] | None = Field(
        description="Per level: assignment (routing coefficients of the last iteration), iterations (those of every "
        "iteration), capsule, lengths, adjacency, contributions to the lengths and residual_contributions; both add up "
        "to the length, at the last level to the class score."
    )


class PredictResponse(BaseModel):
    """Response of ``/predict``."""

    classes: list[str] = Field(description="All classes.")
    predictions: list[Prediction] = Field(description="One entry per graph.")


class ExplainResponse(BaseModel):
    """Response of ``/explain``."""

    classes: list[str] = Field(description="All classes.")
    explanations: list[GraphExplanation] = Field(description="One entry per graph.")


class HealthResponse(BaseModel):
    """Response of ``/health`` while at least one worker process has loaded the model."""

    status: Literal["ok"] = "ok"
    model: dict[str, Any] = Field(
        description="Name, kind, classes and expected input of the model, and the SHA-256 of its file."
    )
    workers: int = Field(description="Number of worker processes that have loaded the model.")
    waiting: int = Field(description="Number of requests that wait for a worker process.")
    version: str = Field(description="Version of graphcaps.")
    uptime_seconds: float = Field(description="Seconds since the server was started.")
    limits: Limits = Field(description="Limits of requests and connections.")


class ErrorResponse(BaseModel):
    """Response to a request that failed."""

    error: str = Field(description="What is wrong, in one sentence.")


_ERRORS = {
    413: "The request is too large, or has too many graphs or nodes.",
    415: "The content type or file format is not supported.",
    422: "The request or its graphs cannot be read.",
    500: "The worker process ended twice on this request, or an internal error.",
    503: "The request took too long, too many requests are waiting, no worker process is ready, or the server stops.",
}
_EXAMPLE = {
    "graphs": [
        {
            "nodes": [{"id": 0}, {"id": 1}, {"id": 2}],  # as many columns as the model reads
            "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}],
        }
    ]
}


def describe_api(limits: Limits) -> str:
    """The introduction of the schema: limits of a request, and how errors are reported."""
    return (
        f"A request may have {limits.max_bytes / 1e6:g} MB and {limits.max_graphs} graphs of at most "
        f"{limits.max_nodes:,} nodes each, {limits.max_total_nodes:,} together, and may take {limits.max_seconds:g} s. "
        "A graph that cannot be read has an 'error' in its entry. If no graph can be read, or the request itself is "
        'wrong, the response is {"error": "one sentence"}, as every response with a status of 400 or more.'
    )


def document_health() -> dict[str, Any]:
    """What the schema says of ``/health``."""
    unavailable = "No worker process has loaded the model; the error says why."
    return {"responses": {503: {"model": ErrorResponse, "description": unavailable}}}


def document(response: type[BaseModel]) -> dict[str, Any]:
    """What the schema says of a POST route: its responses, and the bodies that it accepts.

    The body stands in ``openapi_extra`` because it is read by hand: FastAPI would read all of it before any limit
    on its size could be checked.
    """
    file = {"type": "string", "format": "binary"}
    form = {"type": "object", "properties": {"file": {"type": "array", "items": file}}}
    content: dict[str, Any] = {name: {"schema": file} for name in CONTENT_TYPES}
    content["application/json"] = {"schema": GraphsBody.model_json_schema(), "example": _EXAMPLE}
    content["multipart/form-data"] = {"schema": form}
    errors = {status: {"model": ErrorResponse, "description": text} for status, text in _ERRORS.items()}
    return {
        "responses": {200: {"model": response, "description": "One entry per graph."}} | errors,
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }
