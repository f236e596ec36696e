"""One page that shows a model and the parts of every decision, and asks nothing of the network."""

from graphcaps.explanation.report.figures import Reliability, confusion_matrix, reliability
from graphcaps.explanation.report.write import explanation_page, write_report

__all__ = ["Reliability", "confusion_matrix", "explanation_page", "reliability", "write_report"]
