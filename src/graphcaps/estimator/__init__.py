"""HGCN as a scikit-learn classifier for graphs."""

from graphcaps.estimator.classifier import HGCNClassifier

__all__ = ["HGCNClassifier"]
