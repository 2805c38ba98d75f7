"""Parsers of what programs in the sandbox report; a report that contradicts the exit status is refused."""

from .parsing import PARSERS, parse_report
from .subject import ReportRefused, ReportSubject

__all__ = ["PARSERS", "ReportRefused", "ReportSubject", "parse_report"]
