"""Checks before a task is created or changed: steps 1 to 3 of the door, and the hooks of PreAbilityCreate."""

from typing import Any

import attrs

from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, TaskError, fault, recordable
from deedbook.policy.bound import BoundAbility
from deedbook.policy.judge import DecisionContext, check_admission, encode_args, make_call
from deedbook.policy.requests import principal_json
from deedbook.sessions.session import Session

from .task_log import TaskLog


class Unavailable(Exception):  # noqa: N818 - it names a state of the task
    """Hooks refused the task; *error* says why, *signals* holds their signals."""

    def __init__(self, error: DomainError, signals: Object) -> None:
        super().__init__(str(error))
        self.error, self.signals = error, signals


class Preflights:
    """Checks tasks of *session*; *log* records refusals."""

    def __init__(self, session: Session, log: TaskLog) -> None:
        self._session, self._log = session, log

    def admit(self, ability: str, args: Json) -> bytes:
        """Return *args* in recorded form; raises `DeedbookError`, after recording it, for arguments that have none."""
        try:
            return encode_args(self._session.bindings.find(ability), args)
        except DeedbookError as problem:
            self._log.deny([], _build_denial(ability, problem.error), self._session.cause)
            raise

    def check(self, ability: str, raw: bytes, task: str | None = None) -> tuple[BoundAbility, Object]:
        """Return the ability, and the signals of the hooks of ``PreAbilityCreate``, if they allow the task.

        *task* is the one to change. A refusal is recorded; raises `TaskError` with the door's refusal, and
        `Unavailable` with the hooks'.
        """
        session, cause = self._session, self._session.cause
        verdict = check_admission(session.bindings, session.caller, ability, canonical.decode(raw), raw)
        more = {**({"task": task} if task else {}), **({"args": verdict.args} if type(verdict.args) is dict else {})}
        if verdict.bound is None or verdict.code:
            error = fault(verdict.code, verdict.reason)
            entries = session.door.recorder.decision_entries(verdict, session.caller, {}, cause)
            self._log.deny(entries, _build_denial(ability, error, more), cause)
            raise TaskError(_name_ability(error, ability))
        when = DecisionContext(session.ledger.now(), session.id, {})
        judged = verdict.bound.judged_args(raw)
        call = make_call(session.bindings, session.caller, verdict.bound, canonical.decode(judged), judged, when)
        answer = session.hooks.pre_ability_create(verdict.bound, call, cause)
        if answer.refusal is not None:
            error = fault("TASK_UNAVAILABLE", answer.refusal)
            self._log.deny([], _build_denial(ability, error, {**more, "args": canonical.decode(raw)}), cause)
            raise Unavailable(error, answer.signals)
        return verdict.bound, answer.signals

    def build_payload(self, bound: BoundAbility, raw: bytes, key: str | None, *, direct: bool) -> dict[str, Any]:
        """Return the recorded payload of a new task: its input, its principal, and its binding."""
        return {
            "ability": bound.id,
            "kind": bound.kind,
            "effects": bound.effects,
            "principal": principal_json(self._session.principal),
            "direct": direct,
            **self.build_binding(bound, raw),
            **({"key": key} if key is not None else {}),
        }

    def build_binding(self, bound: BoundAbility, raw: bytes) -> dict[str, Any]:
        """Return what a task is bound to: its input, the charter, and the charter's entry of the ability."""
        charter = self._session.bindings.charter
        entry = charter.document["abilities"][bound.id]
        hooks = {name: list(entry["hooks"].get(name, ())) for name in ("pre_create", "pre_call", "post_call")}
        config = {
            "entry": canonical.digest(canonical.encode(entry)),
            "tags": sorted(entry["tags"]),
            "policies": list(entry["policies"]),
            "timeout_ms": entry["timeout_ms"] or 0,
            **hooks,
        }
        profile = charter.document["profile"]
        return {"args": canonical.decode(raw), "charter": charter.digest, "profile": profile, "config": config}


def _name_ability(error: DomainError, ability: str) -> DomainError:
    """Return *error* with the name of the ability whose arguments do not fit; other errors name it already."""
    if error.code != "SCHEMA_VIOLATION":
        return error
    return attrs.evolve(error, message=f"the arguments of {ability}: {error.message}")


def _build_denial(ability: str, error: DomainError, more: Object | None = None) -> dict[str, Any]:
    name = ability if isinstance(ability, str) else str(type(ability))
    return {"ability": recordable(name), "code": error.code, "reason": recordable(str(error), 2000), **(more or {})}
