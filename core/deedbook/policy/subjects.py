"""Decide about subjects: what policy kinds judge besides calls, such as a finding. No I/O.

`find_subject` finds the gate, `encode_subject` checks the value, `answer_subject` asks, `subject_payload` builds the
record, and `read_decision` reads a decision from a record, new or old.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Decision, Failed, Object, SubjectCase
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, describe
from deedbook.format.schema import Validator, suggest

from .bound import Caller
from .gates import BoundGate, Clock, answer, gate_line, refusal

VERSION: Final = "v2"
"""The version of ``policy.check`` that records subjects and advisory answers."""


@attrs.frozen(eq=False)
class BoundSubject:
    """One subject of one policy, ready to be judged: its *name*, its validator, and the *gate* that answers."""

    name: str
    gate: BoundGate
    values: Validator


Subjects: TypeAlias = Mapping[str, Mapping[str, BoundSubject]]
"""The subjects of every policy that has some: by the policy's id, then by the subject's name."""


def find_subject(subjects: Subjects, policy: str, name: str) -> BoundSubject:
    """Return a subject of a policy; raises `Failed` (``NOT_AVAILABLE``) with the known names."""
    if policy not in subjects:
        known = ", ".join(sorted(subjects)) or "none"
        why = f"no policy {policy!r} judges subjects{suggest(policy, subjects)}; policies that do: {known}"
        raise Failed("NOT_AVAILABLE", why)
    found = subjects[policy].get(name)
    if found is None:
        known = ", ".join(sorted(subjects[policy]))
        why = f"policy {policy!r} judges no {name!r}{suggest(name, subjects[policy])}; its subjects: {known}"
        raise Failed("NOT_AVAILABLE", why)
    return found


def encode_subject(bound: BoundSubject, value: Object) -> bytes:
    """Return the canonical bytes of a valid value; raises `Failed` (``SCHEMA_VIOLATION``)."""
    name = bound.name
    try:
        raw = canonical.admit(dict(value) if isinstance(value, Mapping) else value)
    except IntakeError as problem:
        raise Failed("SCHEMA_VIOLATION", f"{name}: {problem.error.message}") from None
    if not raw.startswith(b"{"):
        raise Failed("SCHEMA_VIOLATION", f"{name}: $: expected object")
    found = bound.values.violations(canonical.decode(raw))
    if found:
        raise Failed("SCHEMA_VIOLATION", f"{name}: {found[0]}")
    return raw


def subject_case(
    bound: BoundSubject, raw: bytes, caller: Caller, enforcement: str, session: str, now: str, facts: Object
) -> SubjectCase:
    """Return the case for the gate, with copies of its own of the value *raw* and of the facts that it reads."""
    read = {name: facts[name] for name in bound.gate.reads}
    return SubjectCase(
        name=bound.name,
        value=canonical.decode(raw),
        principal=caller.principal,
        role=caller.role,
        skill=caller.skill,
        enforcement=enforcement,
        session=session,
        now=now,
        facts=canonical.decode(canonical.encode(read)),
        mode=caller.mode,
    )


def answer_subject(bound: BoundSubject, clock: Clock, case: SubjectCase) -> Decision:
    """Ask the gate; always returns a decision that can be recorded. Signals that cannot be recorded deny."""
    decision = answer(bound.gate, clock, case)
    try:
        canonical.admit(dict(decision.signals))
    except Exception as problem:  # noqa: BLE001 - a mapping of a plugin's own may raise anything
        return refusal(f"answered with signals that cannot be recorded: {describe(problem, bound.gate.mask)}")
    return decision


def subject_payload(bound: BoundSubject, decision: Decision, case: SubjectCase, raw: bytes) -> dict[str, Any]:
    """Return the payload of ``policy.check`` for a *decision* about *case*, whose value is *raw*."""
    return {
        "asked": [gate_record(bound.gate, decision)],
        "decision": decision.outcome,
        "enforcement": case.enforcement,
        **({"facts": dict(case.facts)} if bound.gate.reads else {}),
        "schema_version": VERSION,
        "subject": {"name": case.name, "value": canonical.decode(raw)},
    }


def gate_record(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return the line of a policy about a subject: like that about a call, and with the decision's signals."""
    line = gate_line(gate, decision)
    signals = {name: value for name, value in decision.signals.items() if name != "rule"}
    return {**line, "signals": signals} if signals else line


def read_decision(payload: Object) -> Decision:
    """Return the decision that a recorded payload gives to the flow.

    Its signals name the rule as the record does. Under ``observe``, every answer but ``allow`` is advisory.
    """
    (line,) = payload["asked"]
    signals = {**line.get("signals", {}), **({"rule": line["rule"]} if "rule" in line else {})}
    is_binding = payload["enforcement"] == "enforce" or line["decision"] == "allow"
    return Decision(line["decision"] if is_binding else "advisory", line.get("reason", ""), None, signals)


def is_about_subject(payload: Object) -> bool:
    """Return whether the payload of a ``policy.check`` is about a subject and not about a call."""
    return payload.get("schema_version") == VERSION and "subject" in payload
