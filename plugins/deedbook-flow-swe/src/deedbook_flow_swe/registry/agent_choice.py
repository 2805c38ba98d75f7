"""The agents of contracts that say what is wanted of an agent, and not its name: chosen by what the cards say.

The rules are those of `deedbook_flow_runcontext.agent_choice`, with the names on the cards. No persona is read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from deedbook import Failed
from deedbook.charter.capabilities import Capabilities
from deedbook.contract import AgentInfo
from deedbook.format.errors import DomainError, fault
from deedbook.workspace.declarations import Workspace
from deedbook_flow_runcontext.agent_choice import AgentQuery

from .files import PipelineFile


def find_query(file: PipelineFile) -> AgentQuery | None:
    """Return what a contract wants of its agent; ``None`` if it names one."""
    document: Any = file.document.value
    said = document["agent"]
    return None if isinstance(said, str) else AgentQuery.parse(said)


def choose_agent(query: AgentQuery, cards: Sequence[AgentInfo]) -> tuple[str | None, str]:
    """Return the agent that fits *query* best, and why there is none."""
    try:
        return query.choose(cards).name, ""
    except Failed as problem:
        return None, str(problem)


def check_choice(file: PipelineFile, workspace: Workspace) -> Iterator[DomainError]:
    """Yield a fault if the chosen agent cannot use what the contract wants of it."""
    query = find_query(file)
    card = workspace.cards.get(file.agent or "")
    if query is None or card is None:
        return
    found = Capabilities(workspace).describe(card)
    for name in query.unknown(found):
        why = f"agent: {card.id} is the best agent for {query}, but cannot use {name}: {found.unknown[name]}"
        yield fault("SOURCE_INVALID", why, place=file.place("agent"))
