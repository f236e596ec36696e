"""The report: one self-contained HTML page about a model and its explanations, without network requests."""

from graphcaps.explanation.report.report_page import explanation_page, write_report
from graphcaps.explanation.report.report_tables import confusion_matrix

__all__ = ["confusion_matrix", "explanation_page", "write_report"]
