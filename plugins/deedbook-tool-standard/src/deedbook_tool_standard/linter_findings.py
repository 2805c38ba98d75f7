"""The tool ``linter-findings``: a linter's JSON report as ``findings_v1``, by pointers that YAML declares."""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from deedbook.contract import Ctx, Failed, HandlerSpec, Host, Object

from .diffs import read_added_lines
from .linter_reports import ReportReader

_SEVERITIES: Final = ("P0", "P1", "P2", "P3")
_CLASSES: Final = ("safe_auto", "gated_auto", "manual", "advisory")
_CONFIDENCES: Final = (0, 25, 50, 75, 100)
MOST: Final = 10_000
"""How many findings a report may have."""
_POINTER: Final = {"type": "string", "pattern": "^(/([^~/]|~[01])*)*$", "maxLength": 500}


def _pointer(description: str) -> dict[str, Any]:
    return {"description": f"The JSON pointer, within an item, to {description}", **_POINTER}


def _choice(description: str, values: Sequence[Any]) -> dict[str, Any]:
    chosen = {"enum": list(values)}
    depends = {
        "type": "object",
        "required": ["at", "values", "default"],
        "properties": {
            "at": _POINTER,
            "values": {"type": "object", "additionalProperties": chosen},
            "default": chosen,
        },
        "additionalProperties": False,
    }
    return {
        "description": f"{description}: one for all, or by the longest glob in values that fits the text at a pointer",
        "anyOf": [chosen, depends],
    }


SETTINGS: Final[Object] = {
    "type": "object",
    "required": ["reviewer", "file", "title", "severity", "autofix_class", "confidence"],
    "properties": {
        "reviewer": {"description": "The name of the linter", "type": "string", "minLength": 1, "maxLength": 100},
        "items": {"description": "The JSON pointer to the list of items; the report itself if left out", **_POINTER},
        "file": _pointer("the file"),
        "title": _pointer("the message"),
        "line": _pointer("the line"),
        "end_line": _pointer("the last line"),
        "column": _pointer("the column"),
        "rule": _pointer("the name of the rule"),
        "detail": _pointer("a longer text"),
        "suggestion": _pointer("a text about what to do"),
        "severity": _choice("The severity", _SEVERITIES),
        "autofix_class": _choice("Who may act on it", _CLASSES),
        "confidence": _choice("How sure the linter is, in percent", _CONFIDENCES),
    },
    "additionalProperties": False,
}
_TAKES: Final[Object] = {
    "type": "object",
    "required": ["report"],
    "properties": {
        "report": {"description": "The linter's report", "type": ["object", "array"]},
        "diff": {
            "description": "A unified diff with the prefixes a/ and b/. Findings outside its added lines are marked "
            "pre_existing",
            "type": "string",
        },
        "root": {"description": "The folder, an absolute path, that absolute paths lie in", "type": "string"},
    },
    "additionalProperties": False,
}
_GIVES: Final[Object] = {
    "type": "object",
    "required": ["findings"],
    "properties": {"findings": {"type": "array", "items": {"type": "object"}}},
    "additionalProperties": False,
}


class LinterFindings:
    """The tool: ``{report}`` to ``{findings}``. With a *diff*, what was there before the change is marked."""

    spec = HandlerSpec(settings=SETTINGS, takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._settings = settings

    def __call__(self, args: Object, _ctx: Ctx) -> dict[str, Any]:
        """Return the findings; ``SCHEMA_VIOLATION`` for a report of another form, ``TOO_MANY``, ``PATH_REFUSED``."""
        reader = ReportReader(self._settings)
        items = reader.items(args["report"])
        if len(items) > MOST:
            raise Failed("TOO_MANY", f"the report has {len(items)} items; at most {MOST} are read")
        added = read_added_lines(args["diff"]) if "diff" in args else None
        findings = []
        for number, item in enumerate(items, 1):
            finding = reader.read(item, number)
            finding["file"] = _make_relative(finding["file"], args.get("root"))
            if added is not None and not _is_added(finding["file"], reader.lines(item), added):
                finding["pre_existing"] = True
            findings.append(finding)
        return {"findings": findings}


def _make_relative(file: str, root: str | None) -> str:
    path = PurePosixPath(file)
    if path.is_absolute():
        if root is None:
            raise Failed("PATH_REFUSED", f"{file} is an absolute path; give its folder as root")
        if not path.is_relative_to(root):
            raise Failed("PATH_REFUSED", f"{file} does not lie in {root}")
        path = path.relative_to(root)
    if ".." in path.parts:
        raise Failed("PATH_REFUSED", f"{file} leads outside; expected a path within the workspace")
    return str(path)


def _is_added(file: str, lines: range, added: Mapping[str, frozenset[int]]) -> bool:
    """Return whether a finding is about an added line; one without a line is if the file has an added line."""
    known = added.get(file, frozenset())
    return any(line in known for line in lines) if lines else bool(known)
