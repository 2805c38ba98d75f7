"""Ask a person from a flow, with the ability that the setting ``approval`` names; each call of it asks a person."""

from collections.abc import Mapping
from typing import Any, Final

from deedbook import Failed, Object, Run

from .plans import APPROVAL_GATE, AbilityFacts

APPROVAL_MISSING: Final = "APPROVAL_MISSING"
"""The code if a person must decide, in a run without an ability to ask for that."""
APPROVAL_SETTING: Final[Mapping[str, Any]] = {
    "approval": {
        "type": "string",
        "minLength": 1,
        "description": "The ability that asks a person; it has the tag approval-gate.",
    },
}
"""The property of a flow's settings that names the ability."""


def ask_person(run: Run, approval: str | None, subject: Object, why: str) -> None:
    """Ask a person about *subject* (the arguments of ``plan-approval``), and return if the person approves.

    *why* says why a person must decide. Raises `Failed`: `APPROVAL_MISSING` if no ability can ask, ``NEEDS_HUMAN``
    without an answer in a run that cannot be suspended, ``APPROVAL_REFUSED`` if the person refuses.
    """
    call_approval(run, approval, _find_facts(run, approval), subject, why)


def require_approval(run: Run, approval: str | None, why: str) -> None:
    """Raise `Failed` (`APPROVAL_MISSING`) if no ability can ask a person, before anything is done; see `ask_person`."""
    _check(approval, _find_facts(run, approval), why)


def call_approval(run: Run, approval: str | None, facts: AbilityFacts | None, subject: Object, why: str) -> None:
    """Act like `ask_person`, with the *facts* about the ability, which are ``None`` if it is not in scope."""
    run.call(_check(approval, facts, why), subject)


def _find_facts(run: Run, approval: str | None) -> AbilityFacts:
    tags = next((ability.tags for ability in run.abilities() if ability.id == approval), frozenset())
    return AbilityFacts(tags=tags)


def _check(approval: str | None, facts: AbilityFacts | None, why: str) -> str:
    """Return the ability that asks a person, or raise `Failed` if it cannot."""
    if approval is None or facts is None or APPROVAL_GATE not in facts.tags:
        more = f"name one with the tag {APPROVAL_GATE}, in scope, in the setting approval of the flow"
        raise Failed(APPROVAL_MISSING, f"{why}, and no ability asks a person about it; {more}")
    return approval
