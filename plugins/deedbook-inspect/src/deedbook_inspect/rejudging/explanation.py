"""The reasons of a decision: every step of the judging, each gate's answer and the place of its rule; pure.

Only pure gates are asked, as always when calls are judged without being made. A step after the deciding one is not
reached and not listed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Call, Decision, Object
from deedbook.format import canonical
from deedbook.format.lint import nearest
from deedbook.format.schema import Violation, foreign
from deedbook.policy.bound import BoundAbility
from deedbook.policy.charter import lists_rules
from deedbook.policy.defaults import POLICY, suggest_cover
from deedbook.policy.fitting import PolicyNote, facts_of, named_tags
from deedbook.policy.gates import APPROVAL_GATE, ASKING, Answers, BoundGate, allowing_policy, rule_of
from deedbook.policy.judge import Verdict, make_call
from deedbook.policy.kinds import DEFAULT_KINDS
from deedbook.policy.match import AbilityFacts, Match
from deedbook_audit.rederive import Answer, DecisionInput, RederivedDecision, describe_unknown, rederive

Places: TypeAlias = Callable[[str, str, str], str]
"""Returns ``file:line`` for a section of the workspace (``abilities``), an id and a JSON pointer; empty if unknown."""
Notes: TypeAlias = Callable[[str], Sequence[PolicyNote]]
"""Returns the doubtful rules of a policy, as its kind finds them."""

NOT_ASKED: Final = "unasked"
PASSED_OVER: Final = "passed over"
DID_YOU_MEAN: Final = "did you mean"
"""The beginning of a remedy that names another ability; it is printed before everything else."""


@attrs.frozen
class Step:
    """One step: *what* was examined, its *name* and *place*, its *result* and *reason*; *more* holds details."""

    what: str
    name: str
    result: str
    reason: str = ""
    place: str = ""
    more: Object = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON."""
        members = {
            "step": self.what,
            "name": self.name,
            "says": self.result,
            "reason": self.reason,
            "place": self.place,
        }
        return {**members, **self.more}


@attrs.frozen
class Explanation:
    """The *steps* in order, the *outcome* with its *code* and *reason*, the decider, and the remedy.

    *outcome* is ``undetermined`` if it depends on a gate that was not asked.
    """

    steps: Sequence[Step]
    outcome: str
    code: str
    reason: str
    by: Object | None
    remedy: str
    args: Any

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "steps": [step.as_json() for step in self.steps],
            "outcome": self.outcome,
            "code": self.code,
            "reason": self.reason,
            "by": None if self.by is None else dict(self.by),
            "remedy": self.remedy,
        }


def _no_notes(_policy: str) -> Sequence[PolicyNote]:
    return ()


def explain(decision_input: DecisionInput, answer: Answer, places: Places, notes: Notes = _no_notes) -> Explanation:
    """Judge a call and return the steps; *answer* answers for gates that are not pure, *places* finds rules.

    *notes* are used for rules that do not hold: a rule that never decides is probably a mistake.
    """
    rederived = rederive(decision_input, answer)
    steps = list(_StepBuilder(decision_input, rederived, places, notes).build())
    verdict, open_ = rederived.verdict, rederived.undetermined_gate
    if open_ is not None:
        why = describe_unknown(open_)
        return Explanation(steps, "undetermined", "", why, {open_.kind: open_.id}, "", verdict.args)
    remedy = _suggest_remedy(decision_input, verdict, places, notes) if verdict.code else ""
    return Explanation(steps, verdict.outcome, verdict.code, verdict.reason, verdict.by, remedy, verdict.args)


class _StepBuilder:
    """Builds the steps of one judging."""

    def __init__(
        self, decision_input: DecisionInput, rederived: RederivedDecision, places: Places, notes: Notes
    ) -> None:
        self.decision_input, self.rederived, self.places, self.notes = decision_input, rederived, places, notes
        self.verdict = rederived.verdict
        self.document = decision_input.bindings.charter.document

    def build(self) -> Iterator[Step]:
        bound, verdict = self.verdict.bound, self.verdict
        if bound is None:
            yield Step("ability", self.decision_input.ability, "missing", verdict.reason)
            return
        entry = self.document["abilities"][bound.id]
        details = {
            "kind": bound.kind,
            "effects": bound.effects,
            "tags": sorted(bound.tags),
            "plugin": self._plugin(entry),
        }
        yield Step("ability", bound.id, "found", bound.summary, self._place(bound), details)
        if verdict.code == "TOOL_NOT_ALLOWED":
            yield Step("scope", self.decision_input.caller.scope.why, "outside", verdict.reason)
            return
        yield Step("scope", self.decision_input.caller.scope.why, "inside")
        refused = verdict.code == "SCHEMA_VIOLATION"
        if refused and verdict.subject == "arguments":
            yield self._arguments(bound, entry, verdict.args)
            return
        yield Step("arguments", bound.id, "fit")
        yield from self._rewriters(bound)
        if refused:
            yield self._arguments(bound, entry, verdict.args)
        elif len(verdict.rewrites) == len(bound.rewriters) or not _is_refused_by_rewriter(verdict):
            yield from self._guards(bound)

    def _plugin(self, entry: Object) -> str:
        kind, name = entry["plugin"]
        about = self.document["plugins"][f"{kind}/{name}"]
        return f"{kind} {name!r} ({about['distribution']} {about['version']})"

    def _place(self, bound: BoundAbility, pointer: str = "") -> str:
        return self.places("abilities", bound.id, pointer) or str(self.document["abilities"][bound.id]["place"])

    # --- schemas -----------------------------------------------------------------------------------------------------

    def _arguments(self, bound: BoundAbility, entry: Object, args: Any) -> Step:
        """Return the violations of the arguments, with the schema of each: the plugin's, or the one in YAML."""
        found = [
            {"path": each.path, "message": each.message, "schema": by}
            for by, violations in self._by_schema(bound, entry, args)
            for each in violations
        ]
        first = f"{found[0]['path']}: {found[0]['message']}" if found else self.verdict.reason
        return Step("arguments", bound.id, "violate", first, self._place(bound), {"violations": found})

    def _by_schema(self, bound: BoundAbility, entry: Object, args: Any) -> Iterator[tuple[str, Sequence[Violation]]]:
        if bound.kind == "model" or type(args) is not dict:
            yield "the contract of calls", self.verdict.violations
            return
        schemas = self.document["schemas"]
        yield f"{self._plugin(entry)}: takes", foreign(schemas[entry["takes"]], place="takes").violations(args)
        if entry["schema_in"] is not None:
            place = f"{self._place(bound, '/schema_in')}: schema_in"
            yield place, foreign(schemas[entry["schema_in"]], place=place).violations(args)

    # --- gates -------------------------------------------------------------------------------------------------------

    def _rewriters(self, bound: BoundAbility) -> Iterator[Step]:
        asked = {id(gate): decision for gate, decision in self.verdict.rewrites}
        current = canonical.decode(self.decision_input.raw)
        for gate in bound.rewriters:
            decision = asked.get(id(gate))
            step = self._step("rewriter", gate, decision)
            if decision is not None and decision.outcome == "transform" and decision.args is not None:
                after = dict(decision.args)
                step, current = attrs.evolve(step, more={"before": current, "after": after}), after
            yield step

    def _guards(self, bound: BoundAbility) -> Iterator[Step]:
        verdict = self.verdict
        for gates, answers in ((bound.guards, verdict.hooks), (bound.policies, verdict.policies)):
            asked = {id(gate): decision for gate, decision in answers}
            for gate in gates:
                decision = asked.get(id(gate))
                if gate.kind == "policy":
                    yield self._policy(bound, gate, decision)
                else:
                    yield self._step("hook", gate, decision)
        yield from (self._policy(bound, *answer) for answer in verdict.policies if answer[0].id == POLICY)
        yield from (self._tag(bound, tag) for tag in (APPROVAL_GATE, *ASKING) if tag in bound.tags)

    def _tag(self, bound: BoundAbility, tag: str) -> Step:
        """Return whether a tag requires a person, or which policy names it and allows the call."""
        speaking = allowing_policy(tag, self.verdict.policies) if tag in ASKING else None
        if speaking is None:
            packed = self._find_limited(tag) if tag in ASKING else ""
            more = f"; policy {packed} names it, and its pack may not loosen it (may_loosen)" if packed else ""
            return Step("tag", tag, "ask", f"a person has to decide{more}", self._place(bound, "/tags"))
        rule = rule_of(*speaking)
        place = rule if isinstance(rule, str) else speaking[0].place
        return Step("tag", tag, "allow", f"policy {speaking[0].id} names it and allows the call", place)

    def _find_limited(self, tag: str) -> str:
        """Return the policy of a pack that names *tag*, allows the call, and may not loosen it; empty if none."""
        policies = self.decision_input.bindings.charter.document["policies"]
        for gate, decision in self.verdict.policies:
            limited = gate.loosens is not None and tag not in gate.loosens
            if limited and decision.outcome == "allow" and tag in named_tags(policies[gate.id]):
                return gate.id
        return ""

    def _step(self, what: str, gate: BoundGate, decision: Decision | None) -> Step:
        if decision is None:
            return Step(what, gate.id, PASSED_OVER, "its match does not hold for this call", gate.place)
        if gate in self.rederived.unknown:
            return Step(what, gate.id, NOT_ASKED, "it is not pure, so that it would be asked", gate.place)
        return Step(what, gate.id, decision.outcome, decision.reason, gate.place)

    def _policy(self, bound: BoundAbility, gate: BoundGate, decision: Decision | None) -> Step:
        step = self._step("policy", gate, decision)
        if decision is None or step.result == NOT_ASKED:
            return step
        rule = rule_of(gate, decision)
        passed = list(self._list_passed_over(bound, gate, decision))
        binding = {} if self.rederived.binding and self._enforces() else {"observed": True}
        place = rule if isinstance(rule, str) else step.place
        return attrs.evolve(step, place=place, more={"passed_over": passed, **binding})

    def _enforces(self) -> bool:
        return self.decision_input.bindings.enforcement == "enforce"

    def _list_passed_over(
        self, bound: BoundAbility, gate: BoundGate, decision: Decision
    ) -> Iterator[Mapping[str, str]]:
        """Yield the rules before the deciding one, each with the keys of its match that do not hold."""
        entry = self.document["policies"].get(gate.id)
        if entry is None or not lists_rules(entry):
            return
        decision_input, verdict = self.decision_input, self.verdict
        call = make_call(
            decision_input.bindings, decision_input.caller, bound, verdict.args, verdict.raw, decision_input.when
        )
        facts = facts_of(bound.id, self.document["abilities"][bound.id])
        decides = decision.signals.get("rule")
        passed = entry["settings"]["rules"][: decides if type(decides) is int else None]
        never = {each.rule: f"it {each.why}" for each in self.notes(gate.id)} if passed else {}
        for index, rule in enumerate(passed):
            keys = " and ".join(_find_failing_keys(rule, call, facts))
            why = f"its match on {keys} does not hold" if keys else "its condition (when) is not true"
            yield {"rule": gate.rules[index], "then": rule["then"], "why": never.get(index, why)}


def _is_refused_by_rewriter(verdict: Verdict) -> bool:
    """Return whether a rewriter refused, which ends the judging."""
    return any(decision.outcome == "deny" for _, decision in verdict.rewrites)


def _find_failing_keys(rule: Object, call: Call, facts: AbilityFacts) -> Iterator[str]:
    """Yield the keys of a rule's match that do not hold for *call*, each tried by itself."""
    body: Mapping[str, Any] = {"kind": list(DEFAULT_KINDS), **rule["match"]}
    for key, value in body.items():
        parts = [{key: value}] if key != "args" else [{"args": {name: each}} for name, each in value.items()]
        for part in parts:
            match = Match.compile({"kind": body["kind"], **part}, allows=rule["then"] == "allow")
            test = match.test_for(facts)
            if key != "kind" and call.kind not in match.kinds:
                continue
            if not match.could_match(facts) or (test is not None and not test(call)):
                yield key if key != "args" else f"args {next(iter(part['args']))}"


# --- remedies -------------------------------------------------------------------------------------------------------


def _suggest_remedy(decision_input: DecisionInput, verdict: Verdict, places: Places, notes: Notes) -> str:
    """Return one line: what to edit for the call to be allowed, and where."""
    bound = verdict.bound
    if bound is None:
        return _suggest_declaration(decision_input)
    if verdict.code == "TOOL_NOT_ALLOWED":
        return _suggest_scope(decision_input, bound, places)
    if verdict.code == "SCHEMA_VIOLATION":
        place = places("abilities", bound.id, "/schema_in") or places("abilities", bound.id, "")
        return f"to allow it, change the arguments, or what {place or bound.id} accepts"
    by = verdict.by or {}
    if by.get("rule") == "memory":
        return "to allow it, add a policy with match: {kind: memory}, and a rule that does"
    if by.get("rule") == APPROVAL_GATE:
        return f"to allow it without a person, edit {places('abilities', bound.id, '/tags') or bound.id}"
    if by.get("rule") in ASKING:
        tags = places("abilities", bound.id, "/tags") or bound.id
        rule = f"{{match: {{tags: [{by['rule']}]}}, then: allow}}"
        return f"to allow it without a person, add a rule that names the tag, such as {rule}, or edit {tags}"
    if isinstance(by.get("rule"), str):
        return _suggest_edit(by["rule"])
    default = _suggest_policy(decision_input, by["policy"], bound, places, notes) if "policy" in by else ""
    return default or _suggest_edit(
        by.get("place", "") or _find_first_place(verdict.rewrites, verdict.hooks, verdict.policies)
    )


def _suggest_policy(
    decision_input: DecisionInput, policy: str, bound: BoundAbility, places: Places, notes: Notes
) -> str:
    """Return what to do if a policy, or no policy, decided; empty if the place of the decision says it."""
    if policy == POLICY:
        return f"to allow it, {suggest_cover(bound.id, bound.effects)}"
    return _suggest_rule(decision_input, policy, places, notes)


def _suggest_declaration(decision_input: DecisionInput) -> str:
    """Return the ability that was probably meant, or where to declare a missing one."""
    if near := nearest(decision_input.ability, decision_input.bindings.abilities):
        return f'{DID_YOU_MEAN} "{near}"? run: deedbook explain {near}'
    return f"to allow it, declare it: .system/registry/low-level/{decision_input.ability.replace('/', '-')}.yaml"


def _suggest_rule(decision_input: DecisionInput, policy: str, places: Places, notes: Notes) -> str:
    """Return what to do if no rule of *policy* decided: repair a rule that can never hold, or add one."""
    if never := [each for each in notes(policy) if each.about]:
        return "; ".join(f"{each.place}: {each.about} {each.why}" for each in never)
    where = places("policies", policy, "/default")
    if not where or ": " in where or not lists_rules(decision_input.bindings.charter.document["policies"][policy]):
        return _suggest_edit(where) if where else ""
    return f"to allow it, add a rule that allows it to policy {policy}, above its default at {where}"


def _suggest_edit(where: str) -> str:
    """Return what to edit; a place in a pack (``label: path:line``) is no file of the workspace."""
    label, packed, path = where.partition(": ")
    if packed:
        return f"to allow it, take what decides ({path}) out of {label}, or the pack out of packs: in the workspace"
    return f"to allow it, edit {where}"


def _suggest_scope(decision_input: DecisionInput, bound: BoundAbility, places: Places) -> str:
    if decision_input.caller.scope.allows(bound) and bound.kind == "memory":
        return "to allow it, let them into that zone: memory.zones in .system/deedbook.yaml"
    skill = decision_input.bindings.skills.get(decision_input.caller.skill or "")
    if skill is not None and bound.id in decision_input.caller.scope.commands:
        where = places("skills", skill.source, "/allowed-tools")
        return f"to allow it, add a pattern that fits to allowed-tools at {where}"
    if decision_input.caller.scope.allows(bound):
        return "to allow it, nest calls less deeply"
    if bound.kind == "model":
        return "a role uses the model of its own tier; see roles: in the profile in .system/deedbook.yaml"
    if skill is None:
        return "to allow it, let it be asked for in a skill whose allowed-tools name it"
    return f"to allow it, add {bound.id} to allowed-tools at {places('skills', skill.source, '/allowed-tools')}"


def _find_first_place(*rounds: Answers) -> str:
    return next((gate.place for asked in rounds for gate, decision in asked if decision.outcome != "allow"), "")
