"""One role of a flow: its model and the tool calls that the model asks for."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, NoReturn

from deedbook.call.call_context import OpenCall
from deedbook.call.records import text
from deedbook.contract import Failed, Json, Object, Skill, TokenCount
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, fault
from deedbook.format.schema import Violation, suggest
from deedbook.policy.completions import Completion, request_version

from .run_journal import RunJournal

_BYTES_PER_TOKEN: Final = 4


class RoleAgent:
    """Implements `flow.Agent`: one role, from its hand-over (*span*) on; *journal* returns the journal of its run."""

    def __init__(
        self, work: OpenCall, journal: Callable[[], RunJournal], role: str, instructions: str, span: str
    ) -> None:
        self.instructions = instructions
        self._work = work
        self._get_journal = journal
        self._role = role
        self._span = span
        self._answer = span
        self._offered: list[Mapping[str, Any]] = []

    @property
    def _journal(self) -> RunJournal:
        return self._get_journal()

    @property
    def role(self) -> str:
        """The role's name."""
        return self._role

    def complete(self, request: Object, *, tier: str | None = None) -> dict[str, Any]:
        """Ask the role's model, or that of *tier*, through the door."""
        ability, full = self._request(request, tier)
        self._offered = []
        response, outcome = self._journal.ask_model(self._work.agent(self._role), ability, full, self._span)
        self._answer = outcome or self._span
        self._offered = canonical.decode(canonical.encode(response["tool_calls"]))
        return response

    def count_tokens(self, request: Object, *, tier: str | None = None) -> TokenCount:
        """Return how many tokens the model would read, by its provider's count or an estimate; it is recorded."""
        ability, full = self._request(request, tier)
        estimated = _estimate_tokens(full)

        def count() -> Json:
            tokens = self._count(ability, full)
            if tokens is None:
                return {"tokens": estimated, "by": "estimate"}
            return {"tokens": tokens, "by": "provider"}

        counted: Any = self._journal.value("tokens", count)
        return TokenCount(counted["tokens"], counted["by"])

    def use(self, tool_call: Object) -> Json:
        """Perform one of the last response's tool calls, once, as its child."""
        caller = self._work.agent(self._role)
        wanted = {name: tool_call.get(name) for name in ("id", "name", "args")}
        model = str(wanted["name"]).startswith("model/")
        if model or wanted not in self._offered:
            asked = "is not a call that the last response asked for, or it was made"
            why = f"{wanted['name']!r} {'is no tool: models are for roles' if model else asked}"
            self._journal.refuse(caller, str(wanted["name"]), fault("TOOL_NOT_ALLOWED", why), self._answer)
        offered = self._offered.pop(self._offered.index(wanted))
        return self._journal.call(caller, offered["name"], offered["args"], self._answer)

    def message(self, schema: str, response: Object) -> dict[str, Any]:
        """Return the response's text as the JSON that *schema* requires; violations are recorded."""
        try:
            value = canonical.parse(response["text"])
        except IntakeError as problem:
            self._raise_malformed(schema, (Violation("$", str(problem)),))
        found = self._work.faults(schema, value)
        if found:
            self._raise_malformed(schema, found)
        return value  # type: ignore[no-any-return]

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools in scope, in a stable order."""
        bindings = self._journal.bindings
        names = self._work.agent(self._role, bindings).offered_names(bindings.entry_of)
        return [
            {"name": name, "description": bound.summary, "schema_in": deepcopy(dict(bound.takes_document))}
            for name in sorted(names)
            if (bound := bindings.find(name)) and bound.kind != "model"
        ]

    def _request(self, request: Object, tier: str | None) -> tuple[str, dict[str, Any]]:
        """Return the model to ask and the whole request; raises `Failed` for an unknown tier."""
        bindings = self._journal.bindings
        tiers = bindings.tiers
        if tier is not None and tier not in tiers:
            known = ", ".join(sorted(tiers)) or "none"
            raise Failed("NOT_AVAILABLE", f"no tier {tier!r} in the profile{suggest(tier, tiers)}; it has: {known}")
        ability = bindings.tier(self._role) if tier is None else f"model/{tier}"
        skill = self._work.skill(bindings)
        return ability, {
            **request,
            "model": tiers.get(ability.partition("/")[2], ""),
            "role": self._role,
            "skill": _card(skill) if skill else None,
            "schema_version": request_version(request),
        }

    def _count(self, ability: str, request: dict[str, Any]) -> int | None:
        """Return the provider's own count; a model that asks others is counted as the first of them."""
        bindings = self._work.door.bindings
        for first in (bindings.entry_of(ability) or {"uses": ()})["uses"][:1]:
            ability, request = first, {**request, "model": bindings.tiers[first.partition("/")[2]]}
        bound = bindings.find(ability)
        return bound.handler.count_tokens(request) if bound and isinstance(bound.handler, Completion) else None

    def _raise_malformed(self, schema: str, found: tuple[Violation, ...]) -> NoReturn:
        errors = [{"path": text(each.path), "message": text(each.message)} for each in found[:20]]
        payload = {"subject": "message", "name": self._role, "role": self._role, "schema": schema, "errors": errors}
        self._journal.write("schema.violation", "runtime", payload, self._answer)
        first = found[0]
        raise Failed("MALFORMED_AGENT_MESSAGE", f"the {self.role}'s {schema}: {first.path}: {first.message}")


def _estimate_tokens(request: Object) -> int:
    """Return a quarter of the bytes of the conversation and the tools as JSON."""
    read = {name: request[name] for name in ("messages", "tools") if name in request}
    try:
        return -(-len(canonical.admit(read)) // _BYTES_PER_TOKEN)
    except IntakeError as problem:
        raise Failed(problem.error.code, str(problem)) from None


def _card(skill: Skill) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "metadata": dict(skill.metadata)}
