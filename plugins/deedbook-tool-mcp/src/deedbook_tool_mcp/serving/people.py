"""How a call that waits for an approval asks the client, in each revision of the protocol.

A client's answer is never an approval: another principal signs approvals. The question is only whether to wait for one.
"""

from collections.abc import Sequence
from typing import Final, Literal

from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deedbook import Object

KEY: Final = "approval"
"""The name of the one question that a call may come back with."""


def choose_contact(version: str, capabilities: ClientCapabilities | None) -> Literal["question", "round", "none"]:
    """Return how to ask a client's person: a *question* beside the call, a second *round* of the call, or not.

    Forms are part of the protocol from 2025-06-18 on; a client that names no mode supports them.
    """
    asks = capabilities.elicitation if capabilities else None
    if asks is None or (asks.form is None and asks.url is not None):
        return "none"
    return "round" if version in MODERN_PROTOCOL_VERSIONS else "question"


def describe_request(request: Object) -> str:
    """Return the request as text: the call, the reason, and the command that approves it."""
    identity = request["approval"]
    return (
        f"{request['name']} waits for an approver: {request['reason']}. "
        f"A person with the role approver runs: deedbook approvals show {identity}, "
        f"and then: deedbook approvals approve {identity} (or deny)"
    )


def build_question(request: Object) -> str:
    """Return the question for the client's person."""
    hint = "Your answer here approves nothing: accept to wait for theirs, decline to give up."
    return f"{describe_request(request)}. {hint}"


def build_retry_hint(identity: str) -> str:
    """Return the text for a model whose call ended before a decision."""
    return (
        f"\nNothing has been done. Once it is approved (deedbook approvals approve {identity}), "
        "make the same call again; it goes on then, once."
    )


def build_restart_hint(ability: str, approvals: Sequence[str]) -> str:
    """Return the text for a model whose call of *ability* ended since a call inside it waits for *approvals*."""
    commands = ", ".join(f"deedbook approvals approve {identity}" for identity in approvals)
    return (
        f"\n{ability} has ended; what it did before is done. Once a person has approved ({commands}), the same call "
        "begins from the start, and what was approved is not asked about again."
    )


FORM: Final[Object] = {"type": "object", "properties": {}}
"""No fields: the answer is accept, decline or cancel."""


def build_round_trip(request: Object) -> InputRequiredResult:
    """Return the result that makes a client repeat the call after its person has answered."""
    params = ElicitRequestFormParams(message=build_question(request), requested_schema=dict(FORM))
    return InputRequiredResult(
        input_requests={KEY: ElicitRequest(params=params)}, request_state=str(request["approval"])
    )


def is_accepted(answer: object) -> bool:
    """Return whether the person chose to wait."""
    return isinstance(answer, ElicitResult) and answer.action == "accept"
