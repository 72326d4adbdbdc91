"""The report of a pipeline: one HTML file without any reference to the outside, to keep beside the artifacts."""

from bitedge.cli.report.page import write_report

__all__ = ["write_report"]
