"""One parser for each name that a contract can give under ``reads``; pure.

| name | result of | form |
|---|---|---|
| ``pytest`` | ``swe/tests`` | ``unit_tests_v1``; the coverage if it was measured |
| ``coverage`` | ``swe/coverage`` | ``unit_tests_v1``; the coverage must have been measured |
| ``regression`` | ``swe/regression`` | ``regression_results_v1`` |
| ``ruff`` | ``swe/lint`` | ``lint_v1`` |
| ``secrets`` | ``swe/secrets`` | ``secrets_scan_v1`` |
| ``json`` | any ability | the JSON that the program printed, or the result itself if it ran no program |
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from .findings import parse_lint, parse_secrets
from .subject import ReportRefused, ReportSubject
from .suites import parse_regression, parse_tests


def parse_json(result: Any, subject: ReportSubject) -> Any:  # noqa: ARG001 - the form of every parser
    """Return what the program printed."""
    return result["value"] if isinstance(result, Mapping) and {"status", "value"} <= result.keys() else result


PARSERS: Final[Mapping[str, Callable[[Any, ReportSubject], Any]]] = MappingProxyType(
    {
        "pytest": parse_tests,
        "coverage": partial(parse_tests, measured=True),
        "regression": parse_regression,
        "ruff": parse_lint,
        "secrets": parse_secrets,
        "json": parse_json,
    }
)
"""The parsers by name."""


def parse_report(reads: str, result: Any, subject: ReportSubject) -> Any:
    """Return what *result* says about *subject*; raises `ReportRefused`, which is a `ValueError`."""
    parser = PARSERS.get(reads)
    if parser is None:
        raise ReportRefused(f"there is no parser {reads!r}; there are {', '.join(PARSERS)}")
    return parser(result, subject)
