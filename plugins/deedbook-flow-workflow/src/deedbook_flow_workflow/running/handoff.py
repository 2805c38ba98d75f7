"""The request that a phase hands over to each of its personas; pure."""

import json
from typing import Any, Final

from deedbook import Object
from deedbook.contract.hidden import show_hidden_json
from deedbook_flow_workflow.definition import FINDINGS, Phase

_ANSWER: Final = "The output of the report is one JSON object, and nothing else"


def build_prompt(phase: Phase, request: str, given: Object | None, earlier: Object | None, manners: Object) -> str:
    """Return the prompt of a pass: the request, what the phase asks for, and what it works on.

    *given* is the output of an earlier phase; *earlier* is the aggregate of the last run of this phase; *manners* is
    what policies say about the mode: ``deliverables`` and ``ux``.
    """
    parts = [request]
    if phase.body:
        parts.append(phase.body)
    if given is not None:
        parts.append(f"Input: {_compact(given)}")
    if earlier is not None:
        parts.append(f"Findings of the last run: {_compact(earlier)}")
    parts += [f"{name}: {_compact(value)}" for name, value in sorted(manners.items())]
    forms = [FINDINGS]
    if not phase.is_review:
        forms.insert(0, str(phase.output_schema))
    parts.append(f"{_ANSWER}, in the form {' or '.join(forms)}.")
    return "\n\n".join(parts)


def _compact(value: Any) -> str:
    return show_hidden_json(json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
