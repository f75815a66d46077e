"""What is wrong or unsafe in this installation, each finding in words and with its cure."""

from sends.reports.health.examination import Finding, Level, examine

__all__ = ["Finding", "Level", "examine"]
