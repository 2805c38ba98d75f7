"""What policy kinds judge besides calls: findings, generations, dispatches, coverage and reviews."""

from typing import Any, Final

from deedbook.contract import MODES, Object

_TEXT: Final = {"type": "string", "minLength": 1}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _texts(description: str) -> dict[str, Any]:
    return {"description": description, "type": "array", "items": _TEXT}


SEVERITIES: Final = ("P0", "P1", "P2", "P3")
"""The severities of findings, the worst first."""
CONFIDENCES: Final = (0, 25, 50, 75, 100)
"""How sure a reviewer may be, in percent."""
AUTOFIX_CLASSES: Final = ("safe_auto", "gated_auto", "manual", "advisory")
"""Who may act on a finding, the most permissive first."""

FINDING: Final[Object] = {
    "description": "One finding of a review, in the form of finding_v1 with severities P0 to P3",
    "type": "object",
    "required": ["id", "reviewer", "severity", "autofix_class", "confidence", "title"],
    "properties": {
        "schema_version": {"description": "The version of the form", "const": "v1"},
        "id": {"description": "Names the finding within its report", **_TEXT},
        "reviewer": {"description": "The persona or tool that found it", **_TEXT},
        "severity": {"description": "From P0, which blocks, to P3, which informs", "enum": list(SEVERITIES)},
        "autofix_class": {"description": "Who may act on it", "enum": list(AUTOFIX_CLASSES)},
        "confidence": {"description": "How sure the reviewer is, in percent", "enum": list(CONFIDENCES)},
        "title": {"description": "What is wrong, in one line", **_TEXT},
        "file": {"description": "The file, relative to the workspace", **_TEXT},
        "line": {"description": "The line, from 1", "type": "integer", "minimum": 1},
        "column": {"description": "The column, from 1", "type": "integer", "minimum": 1},
        "detail": {"description": "What follows from it", "type": "string"},
        "suggestion": {"description": "What to do", "type": "string"},
        "rule": {"description": "The rule of a tool that it comes from", "type": "string"},
        "pre_existing": {"description": "Whether it was there before the change", "type": "boolean"},
        "evidence": _texts("Digests of what it rests on"),
        "agreed": _texts("The reviewers that found the same, on other evidence"),
        "route": {"description": "What another policy does with it", "type": "string"},
    },
}
"""The JSON Schema of the subject ``finding``."""

GENERATION: Final[Object] = {
    "description": "One generation of a loop: what its round of work came to, and what earlier ones came to",
    "type": "object",
    "required": ["number", "fingerprints", "history"],
    "properties": {
        "number": {"description": "Which generation has ended, from 1", "type": "integer", "minimum": 1},
        "fingerprints": _texts("What is unresolved after it, such as the fingerprints of findings"),
        "grade": {"description": "How good its result is; higher is better", "type": "number"},
        "phase": {"description": "The phase that runs again", **_TEXT},
        "history": {
            "description": "The earlier generations, the first one first",
            "type": "array",
            "items": {
                "type": "object",
                "required": ["fingerprints"],
                "properties": {
                    "fingerprints": _texts("What was unresolved"),
                    "grade": {"description": "How good its result was", "type": "number"},
                },
            },
        },
    },
}
"""The JSON Schema of the subject ``generation``."""

DISPATCH: Final[Object] = {
    "description": "Work that is about to be given to a persona",
    "type": "object",
    "required": ["persona"],
    "properties": {
        "persona": {"description": "The persona: the name of its skill", **_TEXT},
        "role": {"description": "The persona's role, such as reviewer", **_TEXT},
        "mode": {"description": "How the session runs", "enum": list(MODES)},
        "cycle": {"description": "The cycle", **_TEXT},
        "phase": {"description": "The phase", **_TEXT},
        "generation": {"description": "Which run of the phase it is, from 1", **_COUNT},
        "flow": {"description": "The ability that the persona runs", **_TEXT},
        "parent": {"description": "The persona that dispatches another one", **_TEXT},
        "writes": _texts("Folders, and globs over paths, that the persona wants to write to"),
    },
}
"""The JSON Schema of the subject ``dispatch``."""

COVERAGE: Final[Object] = {
    "description": "The answers of the personas of a phase: how many were asked, and whose do not count",
    "type": "object",
    "required": ["asked", "reported", "failed"],
    "properties": {
        "asked": {"description": "How many were asked", **_COUNT},
        "reported": {"description": "How many reported", **_COUNT},
        "failed": _texts("Those that failed, were refused or never answered"),
        "cycle": {"description": "The cycle", **_TEXT},
        "phase": {"description": "The phase", **_TEXT},
        "mode": {"description": "How the session runs", "enum": list(MODES)},
    },
}
"""The JSON Schema of the subject ``coverage``."""

REVIEW: Final[Object] = {
    "description": "What a review of a task found, and what the task touches: a person may have to look at it",
    "type": "object",
    "required": ["task", "phase", "severities", "touches", "new_services", "schema_changes", "first_review"],
    "properties": {
        "task": {"description": "The task", **_TEXT},
        "phase": {"description": "The phase that reviewed it", **_TEXT},
        "severities": _texts("The severities of its findings, in the words of the review, such as BLOCKER"),
        "touches": _texts("What the task touches, such as auth, secrets or pii"),
        "new_services": _texts("Systems outside that are used only from now on"),
        "schema_changes": {"description": "Whether the form of stored data changes", "type": "boolean"},
        "first_review": {
            "description": "Whether it joins systems in a way that no review has seen before",
            "type": "boolean",
        },
    },
}
"""The JSON Schema of the subject ``review``."""
