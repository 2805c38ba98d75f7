"""Before a task is made or changed: steps 1 to 3 of the door, and the hooks that say whether there may be one."""

from typing import Any

import attrs

from deedbook.call.session import Session
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, TaskError, fault, recordable
from deedbook.policy.bound import BoundAbility
from deedbook.policy.judge import DecisionContext, check_admission, encode_args, make_call
from deedbook.policy.requests import principal_json

from .task_log import TaskLog


class Unavailable(Exception):  # noqa: N818 - it says what the task is
    """Hooks refused that there is such a task; *error* says why, *signals* what they said beside."""

    def __init__(self, error: DomainError, signals: Object) -> None:
        super().__init__(str(error))
        self.error, self.signals = error, signals


class Preflights:
    """Asks for who works in *session*; *clerk* writes what is refused."""

    def __init__(self, session: Session, clerk: TaskLog) -> None:
        self._session, self._clerk = session, clerk

    def input(self, ability: str, args: Json) -> bytes:
        """Return *args* as they are recorded; raises `DeedbookError` for what cannot be, which is recorded, too."""
        try:
            return encode_args(self._session.bindings.find(ability), args)
        except DeedbookError as problem:
            self._clerk.deny([], _denial(ability, problem.error), self._session.cause)
            raise

    def ask(self, ability: str, raw: bytes, task: str | None = None) -> tuple[BoundAbility, Object]:
        """Return the ability, and what the hooks of ``PreAbilityCreate`` signalled, where there may be such a task.

        *task* is the one that is to be changed. A refusal is recorded; raises `TaskError` with what the door would say,
        and `Unavailable` with what the hooks say.
        """
        session, cause = self._session, self._session.cause
        verdict = check_admission(session.bindings, session.caller, ability, canonical.decode(raw), raw)
        more = {**({"task": task} if task else {}), **({"args": verdict.args} if type(verdict.args) is dict else {})}
        if verdict.bound is None or verdict.code:
            error = fault(verdict.code, verdict.reason)
            entries = session.door.recorder.judged(verdict, session.caller, {}, cause)
            self._clerk.deny(entries, _denial(ability, error, more), cause)
            raise TaskError(_named(error, ability))
        when = DecisionContext(session.ledger.now(), session.id, {})
        judged = verdict.bound.judged_args(raw)
        call = make_call(session.bindings, session.caller, verdict.bound, canonical.decode(judged), judged, when)
        fired = session.hooks.pre_ability_create(verdict.bound, call, cause)
        if fired.refusal is not None:
            error = fault("TASK_UNAVAILABLE", fired.refusal)
            self._clerk.deny([], _denial(ability, error, {**more, "args": canonical.decode(raw)}), cause)
            raise Unavailable(error, fired.signals)
        return verdict.bound, fired.signals

    def said(self, bound: BoundAbility, raw: bytes, key: str | None, *, direct: bool) -> dict[str, Any]:
        """Return what is recorded of a task that is made: its input, whose it is, and what it is bound to."""
        return {
            "ability": bound.id,
            "kind": bound.kind,
            "effects": bound.effects,
            "principal": principal_json(self._session.principal),
            "direct": direct,
            **self.binding(bound, raw),
            **({"key": key} if key is not None else {}),
        }

    def binding(self, bound: BoundAbility, raw: bytes) -> dict[str, Any]:
        """Return what a task is bound to: its input, the charter, and what that says of the ability."""
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


def _named(error: DomainError, ability: str) -> DomainError:
    """Return *error* with the ability whose arguments do not fit; the others name it anyway."""
    if error.code != "SCHEMA_VIOLATION":
        return error
    return attrs.evolve(error, message=f"the arguments of {ability}: {error.message}")


def _denial(ability: str, error: DomainError, more: Object | None = None) -> dict[str, Any]:
    name = ability if isinstance(ability, str) else str(type(ability))
    return {"ability": recordable(name), "code": error.code, "reason": recordable(str(error), 2000), **(more or {})}
