"""Who asks, and what they may use, at each place of a run: a skill's flow, a role inside it, a call that calls again.

What a run does and what is judged again later both get their callers here.
"""

from typing import Final

import attrs

from .bindings import Bindings, Caller, Scope
from .contracts import Principal, Skill

OVER: Final = Scope("a call that is over", frozenset(), frozenset())
"""What may be used on account of a call that has its outcome: nothing."""


def with_skill(caller: Caller, skill: str | None) -> Caller:
    """Return *caller* in a run of *skill*; what a flow may use on their account is scoped by it."""
    return attrs.evolve(caller, skill=skill)


def under_call(caller: Caller, uses: Scope) -> Caller:
    """Return a call of *caller* as a caller itself, scoped by what its ability declares to use."""
    return attrs.evolve(caller, actor="tool", scope=uses, depth=caller.depth + 1)


def under_flow(caller: Caller, bindings: Bindings) -> Caller:
    """Return a flow that *caller* began as a caller: it keeps its skill's scope, and models are for roles."""
    scope = skill_scope(bindings.skills.get(caller.skill or ""), bindings, None)
    return attrs.evolve(caller, actor="agent", scope=scope, depth=caller.depth + 1)


def as_role(caller: Caller, role: str, bindings: Bindings) -> Caller:
    """Return *role* of a flow that *caller* began: inside the skill's scope, with its own model, on their behalf."""
    principal = Principal(f"agent:{role}", "run", frozenset(), caller.principal.id)
    scope = skill_scope(bindings.skills.get(caller.skill or ""), bindings, role)
    return attrs.evolve(caller, actor="agent", scope=scope, depth=caller.depth + 1, principal=principal, role=role)


def skill_scope(skill: Skill | None, bindings: Bindings, role: str | None) -> Scope:
    """Return what may be used under *skill* (none: nothing), with the model of *role*."""
    why = f"what skill {skill.name} allows" if skill else "what a run without a skill allows, which is nothing"
    models = frozenset({bindings.tier(role)} if role else ())
    allowed = skill.allowed if skill else frozenset()
    left = bindings.within(role, allowed)
    return Scope(why if left == allowed else f"{why}, and the card of {role}", left, models)
