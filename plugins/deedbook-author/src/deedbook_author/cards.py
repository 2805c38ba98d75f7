"""Check the cards of a workspace's agents: report errors and warnings at once, without starting anything.

An error keeps the workspace from starting: a card of another form, a missing state file, an exceeded budget. A warning
does not: an unknown capability, a long card, or an agent without a persona.
"""

from math import ceil
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from deedbook.charter.capabilities import Capabilities
from deedbook.format.errors import DomainError
from deedbook.plugins.plugins import Catalogue
from deedbook.workspace.declarations import CardSource, Workspace
from deedbook.workspace.sources import CARD
from deedbook.workspace.workspace import AGENTS, survey_workspace

MAX_TOKENS: Final = 150
"""A card with more tokens is reported; the form asks for about 125."""

_BYTES_PER_TOKEN: Final = 2.5
"""A card has short words, punctuation and line ends, so a token has fewer bytes than in prose."""


@attrs.frozen
class CardFinding:
    """One finding about a card; *code* is the stable code of an error."""

    level: Literal["error", "warning"]
    code: str | None
    place: str | None
    message: str


@attrs.frozen
class CardSurvey:
    """The checked *cards* with the estimated tokens of each, by name, and the findings, errors first."""

    cards: dict[str, int]
    findings: tuple[CardFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(each.level == "warning" for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        cards = [{"id": name, "tokens": tokens, "counted": "estimate"} for name, tokens in self.cards.items()]
        findings = [attrs.asdict(each) for each in self.findings]
        return {"schema_version": "v1", "ok": self.ok, "agents": cards, "findings": findings}


def estimate_tokens(size: int) -> int:
    """Return how many tokens a card of *size* bytes has: an estimate, since each model counts differently."""
    return ceil(size / _BYTES_PER_TOKEN)


def check_cards(root: Path, catalogue: Catalogue | None = None) -> CardSurvey:
    """Check every card of the workspace at *root*, and of its packs."""
    workspace, faults = survey_workspace(root, catalogue=catalogue)
    cards = sorted(workspace.cards.values(), key=lambda card: card.id) if workspace else []
    errors = [CardFinding("error", each.code, each.place, each.message) for each in faults if _is_of_agent(each)]
    warnings = _find_warnings(workspace, cards) if workspace else []
    return CardSurvey({card.id: estimate_tokens(card.size) for card in cards}, (*errors, *warnings))


def _is_of_agent(error: DomainError) -> bool:
    place = error.place or ""
    return f"/{CARD}" in place or f"{AGENTS}/" in place


def _find_warnings(workspace: Workspace, cards: list[CardSource]) -> list[CardFinding]:
    capabilities, found = Capabilities(workspace), []
    for card in cards:
        said: Any = card.origin.document.value
        unknown = capabilities.describe(card).unknown
        for index, name in enumerate(said.get("capabilities", ())):
            if name in unknown:
                why = f"unknown capability {name}: {unknown[name]}; a call of it is refused"
                found.append(CardFinding("warning", None, card.origin.place(f"/capabilities/{index}"), why))
        tokens = estimate_tokens(card.size)
        if tokens > MAX_TOKENS:
            why = f"about {tokens} tokens (estimate), more than {MAX_TOKENS}; move words into persona.md or a skill"
            found.append(CardFinding("warning", None, card.origin.place(), why))
        if card.persona is None:
            why = "no persona.md beside the card; a flow that uses the agent fails"
            found.append(CardFinding("warning", None, card.origin.place(), why))
    return found
