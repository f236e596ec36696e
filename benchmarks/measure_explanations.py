"""Metrics of explanations on planted-parts and MUTAG, for the scores of HGCN and for other methods.

    python -m benchmarks.measure_explanations --out results/explaining.json

Models of seeds 0, 1, … are trained on nine tenths of the graphs of a data set. Metrics are computed on all graphs,
because an explanation belongs to a model, and averaged over seeds. GNNExplainer runs on a sample of the graphs. To time
a large data set, NCI1 is explained by a model trained for five epochs.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.explain import Explainer, GNNExplainer

from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data import load_dataset
from graphcaps.data.store import GraphStore
from graphcaps.explanation import (
    StoreExplanation,
    evaluate_explanations,
    explain_store,
    explanation_stability,
)
from graphcaps.explanation.baselines import MODEL_CONFIG
from graphcaps.explanation.explanation_metrics import METRICS
from graphcaps.explanation.fidelity import node_fidelity, pyg_batches
from graphcaps.explanation.model_inputs import encode_for_model, select_graphs
from graphcaps.explanation.pyg_explainer import GraphProbabilities
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.presets import load_preset
from graphcaps.training.final_training import FinalTraining

SETS = {
    "planted-parts": ("planted-parts", {}),
    "MUTAG": ("paper/MUTAG", {"epochs": 200}),
}
SHARES = (0.1, 0.2, 0.3)
"""Shares of the nodes that form the explanation; the tables use the middle one."""


def train(store: GraphStore, config: RunConfig, seed: int) -> FittedModel:
    """Trains a model as ``graphcaps train`` does."""
    training = FinalTraining(store, config, seed=seed, device="cpu")
    for _ in training.run():
        pass
    return training.result().model


def meeting_auc(store: GraphStore, explanation: StoreExplanation) -> float:
    """ROC AUC of edge scores for edges between two planted parts, mean over graphs."""
    part = store.truth["part"]
    ends = explanation.edges + store.node_ptr[:-1].repeat_interleave(explanation.edge_ptr.diff())
    meets = ((part[ends] >= 0).all(0) & (part[ends[0]] != part[ends[1]])).numpy()
    bounds = explanation.edge_ptr.tolist()
    areas = [roc_auc_score(meets[a:b], explanation.edge_scores[a:b].numpy()) for a, b in pairwise(bounds)]
    return float(np.mean(areas))


def variants(model: FittedModel, store: GraphStore, sample: int) -> dict[str, float]:
    """Fidelity+ of GNNExplainer with other settings, on the same sample.

    Edge masks, where a node has the score of its strongest edge; and node masks with the softmax of ten times the
    capsule lengths as probabilities, which reacts more sharply than lengths divided by their sum.
    """
    encoded, module = encode_for_model(model, store), GraphProbabilities(model, centred=True)
    predicted = explain_store(model, store).predicted
    chosen = torch.randperm(len(store), generator=torch.Generator().manual_seed(0))[:sample].sort().values
    few, target = select_graphs(encoded, chosen), predicted[chosen]
    fidelity = {}
    for name, network, masks in (
        ("edge masks", module, {"edge_mask_type": "object"}),
        ("sharper probabilities", Sharper(module), {"node_mask_type": "object"}),
    ):
        torch.manual_seed(0)
        explainer = Explainer(
            network, GNNExplainer(), explanation_type="model", model_config=MODEL_CONFIG, **masks
        )
        scores = []
        for graphs in pyg_batches(module, few, target):
            for graph in range(graphs.target.numel()):
                rows = (graphs.batch == graph).nonzero().squeeze(-1)
                edges = graphs.edge_index[:, graphs.batch[graphs.edge_index[0]] == graph] - rows[0]
                made = explainer(graphs.x[rows], edges)
                node_scores = made.get("node_mask")
                if node_scores is None:
                    node_scores = torch.zeros(len(rows)).scatter_reduce(0, edges[0], made.edge_mask, "amax")
                scores.append(node_scores.reshape(-1))
        fidelity[name] = node_fidelity(module, few, target, torch.cat(scores), 0.2).plus
    return fidelity


def zeroed(model: FittedModel, store: GraphStore) -> float:
    """Share of graphs whose class changes when all features of a random fifth of the nodes are set to zero.

    This is masking without a neutral row: zero in a column that is always 1 is far outside the training data.
    """
    encoded, module = encode_for_model(model, store), GraphProbabilities(model)
    scores = torch.rand(store.num_nodes, generator=torch.Generator().manual_seed(0))
    return node_fidelity(module, encoded, explain_store(model, store).predicted, scores, 0.2).plus


class Sharper(torch.nn.Module):
    """A model with the softmax of ten times the class-capsule lengths as probabilities."""

    def __init__(self, module: GraphProbabilities) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        output = self.module.network(x + self.module.reference, edge_index, batch)
        probabilities: torch.Tensor = (10 * output.class_scores).softmax(-1)
        return probabilities


def mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean of each metric over seeds, and the range of fidelity+."""
    means: dict[str, Any] = {}
    for name in METRICS:
        values = [row[name] for row in rows if row[name] is not None]
        means[name] = round(float(np.mean(values)), 6) if values else None
    values = [row["fidelity_plus"] for row in rows if row["fidelity_plus"] is not None]
    return means | {"fidelity_plus_range": [round(min(values), 4), round(max(values), 4)] if values else None}


def measure_dataset(name: str, seeds: int, sample: int, root: Path | None) -> dict[str, Any]:
    preset, changes = SETS[name]
    store, config = load_dataset(name, root), load_preset(preset).with_training(**changes)
    models = [train(store, config, seed) for seed in range(seeds)]
    evaluations = [evaluate_explanations(model, store, sample=sample) for model in models]
    cheap = ("capsules", "gradient", "integrated-gradients", "random")
    row: dict[str, Any] = {
        "dataset": name,
        "seeds": seeds,
        "graphs": len(store),
        "sample": sample,
        "share": evaluations[0]["share"],
        "classes_right": round(float(np.mean([each["classes_right"] for each in evaluations])), 4),
        "methods": {
            method: mean([each["methods"][method] for each in evaluations])
            for method in evaluations[0]["methods"]
        },
        "on_the_sample": {
            key: {
                method: round(float(np.mean([each["sample"][key][method] for each in evaluations])), 4)
                for method in evaluations[0]["sample"][key]
            }
            for key in ("fidelity_plus", "fidelity_minus")
        },
        "stability": explanation_stability(models, store),
        "config": config.as_dict(),
    }
    row["shares"] = {}
    for share in SHARES:
        again = [
            evaluate_explanations(model, store, methods=cheap, share=share)["methods"] for model in models
        ]
        row["shares"][str(share)] = {method: mean([one[method] for one in again]) for method in cheap}
    if "part" in store.truth:
        areas = [meeting_auc(store, explain_store(model, store)) for model in models]
        others = [variants(model, store, sample) for model in models]
        row["gnnexplainer_otherwise"] = {
            way: round(float(np.mean([one[way] for one in others])), 4) for way in others[0]
        }
        row["meeting_auc"] = round(float(np.mean(areas)), 4)
        row["random_fifth_zeroed"] = round(float(np.mean([zeroed(model, store) for model in models])), 4)
    return row


def time_nci1(root: Path | None) -> dict[str, Any]:
    store = load_dataset("NCI1", root)
    model = train(store, load_preset("paper/NCI1").with_training(epochs=5), 0)
    start = time.perf_counter()
    explanations = explain_store(model, store)
    return {"graphs": len(explanations), "seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--root", type=Path, help="folder with the TU data sets")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "command": f"python -m benchmarks.measure_explanations --seeds {arguments.seeds} --sample {arguments.sample}",
        "hardware": describe_hardware(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "versions": versions_and_commit(),
        "sets": [],
    }
    for name in arguments.sets:
        report["sets"].append(measure_dataset(name, arguments.seeds, arguments.sample, arguments.root))
        print(json.dumps(report["sets"][-1], indent=1), flush=True)
        write(report, arguments.out)
    report["nci1"] = time_nci1(arguments.root)
    print(json.dumps(report["nci1"]), flush=True)
    write(report, arguments.out)


def write(report: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
