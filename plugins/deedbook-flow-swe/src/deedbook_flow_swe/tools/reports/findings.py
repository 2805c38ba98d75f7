"""The findings of ruff and of the scan for secrets; pure."""

from collections.abc import Mapping
from typing import Any, Final

from .subject import (
    VERSION,
    ReportRefused,
    ReportSubject,
    as_count,
    as_list,
    as_object,
    as_text,
    read_status,
)

MOST: Final = 10_000
"""The most findings in one report."""
_WORKSPACE: Final = "/workspace/"
_PATH: Final = 400


def parse_lint(result: Any, subject: ReportSubject) -> dict[str, Any]:
    """Return the findings of ``ruff check --output-format=json`` (``lint_v1``)."""
    status, found = _read(result, "ruff")
    findings = []
    for index, row in enumerate(as_list(found, "the report of ruff", MOST)):
        each, what = as_object(row, f"finding {index}"), f"finding {index}"
        place = each.get("location")
        findings.append(
            {
                "path": _path(each.get("filename"), what),
                "line": as_count(as_object(place, what).get("row"), f"the line of {what}") if place else 0,
                "rule": as_text(each.get("code") or "syntax-error", f"the rule of {what}", 64),
                "message": as_text(each.get("message"), f"the message of {what}", 10_000)[:1000],
            }
        )
    _check_status("ruff", status, len(findings))
    return {
        "schema_version": VERSION,
        "task_id": subject.task,
        "unit_id": subject.unit_id,
        "runner": "ruff",
        "exit_code": status,
        "findings": findings,
    }


def parse_secrets(result: Any, subject: ReportSubject) -> dict[str, Any]:
    """Return the findings of the scan for secrets (``secrets_scan_v1``); the secrets themselves are in no report."""
    status, found = _read(result, "the scan for secrets")
    report = as_object(found, "the report of the scan")
    findings = []
    for index, row in enumerate(as_list(report.get("findings"), "findings of the scan", MOST)):
        each, what = as_object(row, f"finding {index}"), f"finding {index}"
        findings.append(
            {
                "path": _path(each.get("path"), what),
                "line": as_count(each.get("line"), f"the line of {what}"),
                "rule": as_text(each.get("rule"), f"the rule of {what}", 64),
            }
        )
    files = as_count(report.get("files"), "files of the scan")
    if findings and not files:
        raise ReportRefused("the scan has findings, and says that it read no file")
    _check_status("the scan for secrets", status, len(findings))
    return {
        "schema_version": VERSION,
        "task_id": subject.task,
        "runner": "detect-secrets",
        "exit_code": status,
        "files": files,
        "findings": findings,
    }


def _read(result: Any, what: str) -> tuple[int, Any]:
    status = read_status(result)
    if not isinstance(result, Mapping) or "value" not in result:
        raise ReportRefused(f"{what} printed no JSON")
    return status, result["value"]


def _check_status(what: str, status: int, findings: int) -> None:
    if status not in (0, 1) or (status == 1) != bool(findings):
        raise ReportRefused(f"{what} ended with status {status} and reports {findings} findings")


def _path(value: Any, what: str) -> str:
    path = as_text(value, f"the path of {what}", _PATH + len(_WORKSPACE)).removeprefix(_WORKSPACE)
    if path.startswith("/") or ".." in path.split("/"):
        raise ReportRefused(f"the path of {what} is outside of the code")
    return path
