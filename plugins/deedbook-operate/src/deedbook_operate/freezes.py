"""The freezes in force: a small signed document in the state folder, which every call reads before its intent.

The document is one line of canonical JSON below a heading. Where the workspace has approvers with keys, one of them
signs it, as a C2SP signed note. Its number grows with each change, and the workspace ledger records it.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, SignatureError
from deedbook.format.notes import Note, VerifierKey, sign
from deedbook.policy.callers import AGENT
from deedbook.policy.conditions import glob_test

if TYPE_CHECKING:
    from deedbook.format.notes import SigningKey

FOLDER: Final = "freeze"
STATE_FILE: Final = "state"
LOCK_FILE: Final = "lock"
"""Calls hold the lock of this file in the shared form from the check until their intent is durable."""
MAX_BYTES: Final = 65_536
MAX_FREEZES: Final = 50
MAX_REASON: Final = 500

_HEADING: Final = "deedbook freeze v1\n"
_TEXTS: Final = ("id", "reason", "by", "at")


class FreezeInvalid(Exception):  # noqa: N818 - named like its message
    """The document is not what a freeze or a thaw wrote; the message says why."""


@attrs.frozen
class Freeze:
    """One freeze of the calls of an *agent*, of an *ability* (a glob), or of all calls where both are empty.

    *by* is the principal that froze, *at* the time.
    """

    id: str
    agent: str
    ability: str
    reason: str
    by: str
    at: str

    @property
    def target(self) -> str:
        """What is frozen, for people."""
        return f"agent {self.agent}" if self.agent else f"ability {self.ability}" if self.ability else "all calls"

    def is_same_as(self, other: "Freeze") -> bool:
        """Return whether both have one target and one reason, no matter who froze, and when."""
        return (self.agent, self.ability, self.reason) == (other.agent, other.ability, other.reason)

    @cached_property
    def _fits_ability(self) -> Callable[[Any], bool]:
        return glob_test([self.ability])

    def covers(self, principals: Collection[str | None], ability: str) -> bool:
        """Return whether it freezes a call of *ability* that one of *principals* makes, or that is made for it."""
        if self.agent:
            return self.agent in principals or f"{AGENT}{self.agent}" in principals
        return not self.ability or self._fits_ability(ability)

    def __str__(self) -> str:
        verb = "are" if self.target == "all calls" else "is"
        return f"{self.target} {verb} frozen by {self.by} since {self.at}: {self.reason}"

    def as_json(self) -> dict[str, str]:
        """Return it as the document and the ledger have it."""
        return {name: getattr(self, name) for name in ("id", "agent", "ability", "reason", "by", "at")}

    @classmethod
    def parse(cls, row: Any) -> Self:
        """Return the freeze in a *row* of the document; raises `FreezeInvalid`."""
        names = {*_TEXTS, "agent", "ability"}
        if not isinstance(row, dict) or row.keys() != names or not all(type(each) is str for each in row.values()):
            raise FreezeInvalid("a freeze in it is not what a freeze wrote")
        if not all(row[name] for name in _TEXTS) or (row["agent"] and row["ability"]):
            raise FreezeInvalid("a freeze in it lacks a member, or has two targets")
        return cls(**row)


@attrs.frozen
class FreezeState:
    """All freezes of the workspace with this *ledger*, changed last *by* a principal; *number* counts the changes."""

    ledger: str
    number: int = 0
    freezes: tuple[Freeze, ...] = ()
    by: str = ""
    at: str = ""

    def encode(self, key: "SigningKey | None") -> str:
        """Return the document, signed with *key* if there is one."""
        members = {"ledger": self.ledger, "number": self.number, "by": self.by, "at": self.at}
        freezes = [each.as_json() for each in self.freezes]
        text = f"{_HEADING}{canonical.encode({**members, 'freezes': freezes}).decode()}\n"
        return text if key is None else str(sign(text, [key]))

    @classmethod
    def parse(cls, raw: bytes, ledger: str, keys: Mapping[str, str]) -> Self:
        """Return the state in the document *raw*; raises `FreezeInvalid`.

        *keys* are the verifier keys of the approvers by principal. If there are any, one of them must have signed.
        """
        try:
            if len(raw) > MAX_BYTES:
                raise FreezeInvalid(f"it has more than {MAX_BYTES} bytes")
            text = raw.decode()
            value = _read_statement(text)
            found = cls(
                value["ledger"], value["number"], tuple(map(Freeze.parse, value["freezes"])), value["by"], value["at"]
            )
            if set(value) != {"ledger", "number", "freezes", "by", "at"} or type(found.number) is not int:
                raise FreezeInvalid("its members are not those of a freeze")
        except (UnicodeDecodeError, KeyError, TypeError, IntakeError) as problem:
            raise FreezeInvalid(f"it cannot be read: {problem}") from None
        if found.ledger != ledger:
            raise FreezeInvalid("it belongs to another workspace")
        if keys:
            _check_signature(text, found.by, keys)
        return found


def _read_statement(text: str) -> Mapping[str, Any]:
    """Return the statement in *text*, whose signatures are not checked here."""
    head, signed, _ = text.partition("\n\n")
    body = f"{head}\n" if signed else text
    value = canonical.parse(body.removeprefix(_HEADING)) if body.startswith(_HEADING) else None
    if not isinstance(value, dict) or body != f"{_HEADING}{canonical.encode(value).decode()}\n":
        raise FreezeInvalid("it is not in the form in which a freeze is written")
    return value


def _check_signature(text: str, by: Any, keys: Mapping[str, str]) -> None:
    """Raise `FreezeInvalid` unless *by* is an approver whose key signed *text*."""
    if type(by) is not str or by not in keys:
        raise FreezeInvalid(f"{by!r} is no approver with a key; one of {', '.join(sorted(keys))} must sign it")
    try:
        signed = Note.parse(text).is_signed_by(VerifierKey.parse(keys[by]))
    except SignatureError as problem:
        raise FreezeInvalid(f"its signature cannot be read: {problem}") from None
    if not signed:
        raise FreezeInvalid(f"it is not signed with the key of {by}")


RECORDED: Final[Object] = {
    "type": "object",
    "required": ["id", "agent", "ability", "reason", "by", "at"],
    "properties": {name: {"type": "string"} for name in ("id", "agent", "ability", "reason", "by", "at")},
    "additionalProperties": False,
}
"""The JSON Schema of a freeze in the ledger."""
