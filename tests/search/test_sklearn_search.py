"""scikit-learn's own searches over HGCNClassifier, in several processes."""

import networkx as nx
import numpy as np
import pytest
import scipy.stats
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingRandomSearchCV

from graphcaps import HGCNClassifier

GRAPHS = [maker(size) for size in range(4, 12) for maker in (nx.cycle_graph, nx.path_graph)]
Y = np.array([0, 1] * 8)


def _small() -> HGCNClassifier:
    return HGCNClassifier(
        capsule_dim=4, num_capsules=2, num_factors=2, epochs=2, batch_size=8, random_state=0, device="cpu"
    )


@pytest.mark.exhaustive
def test_a_grid_search_in_two_processes_equals_one_in_one() -> None:
    grid = {"learning_rate": [0.001, 0.1], "dropout": [0.0, 0.5]}
    searches = [GridSearchCV(_small(), grid, cv=2, n_jobs=jobs).fit(GRAPHS, Y) for jobs in (1, 2)]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    assert np.array_equal(*scores)
    assert searches[0].best_params_ == searches[1].best_params_


@pytest.mark.slow
def test_successive_halving_over_epochs_in_two_processes() -> None:
    search = HalvingRandomSearchCV(
        _small(),
        {"learning_rate": scipy.stats.loguniform(1e-3, 1e-1), "num_capsules": [2, (3, 2)]},
        resource="epochs", min_resources=1, max_resources=4, factor=2, cv=2, n_jobs=2, random_state=0,
    ).fit(GRAPHS, Y)  # fmt: skip
    assert search.best_params_["epochs"] == 4
    assert search.n_candidates_ == [4, 2, 1]
    assert search.best_estimator_.predict(GRAPHS).shape == Y.shape
