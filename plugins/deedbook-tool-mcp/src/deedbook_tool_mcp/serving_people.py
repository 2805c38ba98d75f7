"""Calls that wait for a person, as each revision of the protocol can say so; no answer of a client is an approval.

An approval is signed, by a principal who did not ask. What a client's person is asked is whether to wait for one.
"""

from typing import Final, Literal

from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deedbook import Object

KEY: Final = "approval"
"""The name of the one question that a call may come back with."""
Way: type = Literal["question", "round", "none"]  # type: ignore[assignment]


def way(version: str, capabilities: ClientCapabilities | None) -> Literal["question", "round", "none"]:
    """Return how a client's person can be told: by a *question* beside the call, a *round* trip of it, or not.

    Forms are the protocol's from 2025-06-18 on; a client that names no mode has them.
    """
    asks = capabilities.elicitation if capabilities else None
    if asks is None or (asks.form is None and asks.url is not None):
        return "none"
    return "round" if version in MODERN_PROTOCOL_VERSIONS else "question"


def told(request: Object) -> str:
    """Return what a person has to know: what waits, why, and how it is approved."""
    identity = request["approval"]
    return (
        f"{request['name']} waits for an approver: {request['reason']}. "
        f"Somebody with the role approver runs: deedbook approvals show {identity}, "
        f"and then: deedbook approvals approve {identity} (or deny)"
    )


def question(request: Object) -> str:
    """Return what the client's own person is asked."""
    return f"{told(request)}. Your answer here approves nothing: accept to wait for theirs, decline to give up."


def again(identity: str) -> str:
    """Return what a model is told that gets no answer in time."""
    return (
        f"\nNothing has been done. Once somebody has approved it (deedbook approvals approve {identity}), "
        "make the same call again; it goes on then, once."
    )


FORM: Final[Object] = {"type": "object", "properties": {}}
"""Nothing is to be filled in: the answer is accept, decline or cancel."""


def round_trip(request: Object) -> InputRequiredResult:
    """Return what asks a client to come back with the same call once its person knows."""
    params = ElicitRequestFormParams(message=question(request), requested_schema=dict(FORM))
    return InputRequiredResult(
        input_requests={KEY: ElicitRequest(params=params)}, request_state=str(request["approval"])
    )


def accepted(answer: object) -> bool:
    """Say whether somebody wants to wait."""
    return isinstance(answer, ElicitResult) and answer.action == "accept"
