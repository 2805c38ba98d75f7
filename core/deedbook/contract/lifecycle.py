"""The life cycle: the events that hooks answer, and one table with the properties of each.

The loader, the charter, the bindings, the hook runner and the test kit use this table; a new event is a method of
`Lifecycle` and a row in `EVENTS`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs
import pluggy

from .plugins import Call, Decision, Json, Object, Principal

hookspec = pluggy.HookspecMarker("deedbook")


class Lifecycle:
    """The events that hooks answer; on a blocking event, ``None``, an exception or a late answer denies."""

    @hookspec
    def session_start(self, principal: Principal, session: str, now: str, facts: Object) -> Decision | None:
        """SessionStart, blocking: may a session of *principal* begin? allow or deny."""

    @hookspec
    def user_prompt_submit(
        self, prompt: str, principal: Principal, session: str, now: str, facts: Object
    ) -> Decision | None:
        """UserPromptSubmit, blocking: allow, deny, or transform with ``{"prompt": …}``, before it is recorded."""

    @hookspec
    def skill_start(self, skill: str, prompt: str, principal: Principal, session: str, now: str) -> Decision | None:
        """SkillStart, blocking: may the skill be used for this prompt? allow, deny, or transform the prompt."""

    @hookspec
    def pre_ability_create(self, call: Call) -> Decision | None:
        """PreAbilityCreate, blocking: may a task for this call be made? allow or deny; nothing runs yet."""

    @hookspec
    def pre_tool_use(self, call: Call) -> Decision | None:
        """PreToolUse, blocking: allow, deny, transform (rewriters) or ask, before the call's intent is recorded."""

    @hookspec
    def post_tool_use(self, call: Call, result: Json) -> Json:
        """PostToolUse, not blocking: return the result for the caller; observers return *result* unchanged."""

    @hookspec
    def pre_compact(
        self, subject: Object, principal: Principal, session: str, now: str, facts: Object
    ) -> Decision | None:
        """PreCompact, blocking: ``messages`` are about to be shortened; allow, deny, or transform the subject."""

    @hookspec
    def workflow_start(
        self, subject: Object, principal: Principal, session: str, now: str, facts: Object
    ) -> Decision | None:
        """WorkflowStart, blocking: may the cycle ``cycle_id`` begin? allow, deny, or transform the subject."""

    @hookspec
    def phase_advance(
        self, subject: Object, principal: Principal, session: str, now: str, facts: Object
    ) -> Decision | None:
        """PhaseAdvance, blocking: may ``cycle_id`` go ``from_phase`` ``to_phase``? allow, deny, or transform."""

    @hookspec
    def workflow_complete(self, subject: Object, principal: Principal, session: str, now: str, facts: Object) -> None:
        """WorkflowComplete, not blocking: the cycle ``cycle_id`` has ended with a ``verdict``."""

    @hookspec
    def stop(self, session: str, ok: bool, now: str, facts: Object) -> Decision | None:
        """Stop, blocking: allow ends the run, or with a reason asks for another round; deny ends it as it is."""

    @hookspec
    def session_stop(self, session: str, ok: bool, now: str, facts: Object) -> None:
        """SessionStop, not blocking: the session is about to end."""


@attrs.frozen(kw_only=True)
class LifeEvent:
    """One event of the life cycle, as `EVENTS` lists it.

    *method* of `Lifecycle` answers it. *may* holds the allowed outcomes, *rewriter* those that only a hook that
    declares ``rewrites`` may return in addition. On a *blocking* event an answer can refuse; on others it cannot.
    *call*: the event is about a `Call`, so a hook's match can use it. *facts*: the facts that a hook declares are
    passed. *signals* names the structured hints that an answer may carry; *aliases* are accepted when reading, never
    written. *subject*: a flow fires the event, with an object that has at least these members.
    """

    name: str
    method: str
    blocking: bool
    may: frozenset[str]
    rewriter: frozenset[str] = frozenset()
    signals: frozenset[str] = frozenset()
    call: bool = False
    facts: bool = True
    aliases: tuple[str, ...] = ()
    subject: frozenset[str] = frozenset()


_GATE: Final = frozenset({"allow", "deny"})
_TRANSFORM: Final = frozenset({"transform"})
_TOLD: Final = frozenset({"allow"})

EVENTS: Final[Mapping[str, LifeEvent]] = MappingProxyType(
    {
        event.name: event
        for event in (
            LifeEvent(name="SessionStart", method="session_start", blocking=True, may=_GATE),
            LifeEvent(
                name="UserPromptSubmit",
                method="user_prompt_submit",
                blocking=True,
                may=_GATE | _TRANSFORM,
                signals=frozenset({"routing_hint", "normalized_intent"}),
                aliases=("PromptSubmit",),
            ),
            LifeEvent(
                name="PreAbilityCreate",
                method="pre_ability_create",
                blocking=True,
                may=_GATE,
                signals=frozenset({"ability_preflight"}),
                call=True,
            ),
            LifeEvent(name="SkillStart", method="skill_start", blocking=True, may=_GATE | _TRANSFORM, facts=False),
            LifeEvent(
                name="PreToolUse",
                method="pre_tool_use",
                blocking=True,
                may=_GATE | {"ask"},
                rewriter=_TRANSFORM,
                signals=frozenset({"ability_guard"}),
                call=True,
                aliases=("PreAbilityCall",),
            ),
            LifeEvent(
                name="PostToolUse",
                method="post_tool_use",
                blocking=False,
                may=_TOLD | _TRANSFORM,
                call=True,
                facts=False,
                aliases=("PostAbilityCall",),
            ),
            LifeEvent(
                name="PreCompact",
                method="pre_compact",
                blocking=True,
                may=_GATE | _TRANSFORM,
                subject=frozenset({"messages"}),
            ),
            LifeEvent(
                name="WorkflowStart",
                method="workflow_start",
                blocking=True,
                may=_GATE | _TRANSFORM,
                subject=frozenset({"cycle_id"}),
            ),
            LifeEvent(
                name="PhaseAdvance",
                method="phase_advance",
                blocking=True,
                may=_GATE | _TRANSFORM,
                subject=frozenset({"cycle_id", "from_phase", "to_phase"}),
            ),
            LifeEvent(
                name="WorkflowComplete",
                method="workflow_complete",
                blocking=False,
                may=_TOLD,
                subject=frozenset({"cycle_id", "verdict"}),
            ),
            LifeEvent(name="Stop", method="stop", blocking=True, may=_GATE),
            LifeEvent(name="SessionStop", method="session_stop", blocking=False, may=_TOLD),
        )
    }
)
"""Every event of the life cycle, by its name in YAML and in the ledger."""

TEXTS: Final = frozenset({"normalized_intent"})
"""The signals that are text; others may be any value."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {alias: event.name for event in EVENTS.values() for alias in event.aliases}
)
"""Other names of events, accepted when reading."""


class NoAnswer(Exception):  # noqa: N818 - it says what a gate lacks
    """A gate gave no answer that counts; the message is the whole reason to record.

    The kernel raises it where it asks a gate. A plugin may raise anything, which counts as a denial.
    """
