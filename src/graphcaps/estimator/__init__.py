"""A scikit-learn classifier of graphs."""

from graphcaps.estimator.classifier import HGCNClassifier

__all__ = ["HGCNClassifier"]
