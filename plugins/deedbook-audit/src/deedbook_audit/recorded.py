"""A call as a ledger holds it; this module knows no charter."""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Literal

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import decode
from deedbook.policy.gates import APPROVAL_GATE, ASKING

from .history import JUDGE_CODES, PREVENTED, SessionInfo
from .positions import CallPosition

NO_ARGUMENTS: Final = "its arguments are not recorded"
EXCISED: Final = "what it says was taken out of its line"
ERASED: Final = "a sealed value is gone"
SCRUBBED: Final = "it held a secret's value, which is kept nowhere"
UNKNOWN_CALLER: Final = "who asked cannot be told"

_EXCISED_MARK: Final = b'{"$excised":"'
_TAG_RULES: Final = tuple({"rule": tag} for tag in (APPROVAL_GATE, *ASKING))


@attrs.define(eq=False)
class RecordedSubject:
    """One decision about a subject: the *policy*, the subject's *name* and *value*, and the *line* of the answer.

    *facts* are the recorded ones, *folded* those before the event; the other members are as in `RecordedCall`.
    """

    session: SessionInfo
    seq: int
    ts: str
    span: str
    principal: str
    position: CallPosition | None
    policy: str = ""
    name: str = ""
    value: Any = None
    line: Mapping[str, Any] = attrs.field(factory=dict)
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    folded: Mapping[str, Any] = attrs.field(factory=dict)
    had_recently: Callable[[str, Any], bool] | None = None
    why: str = ""
    is_over: bool = False


@attrs.define(eq=False)
class RecordedCall:
    """One intent or denial. *args* are the requested arguments, *raw* their bytes, *final* the judged bytes.

    *code* is empty for an allowed call; *by* names who refused it. *fired* and *checked* are the payloads of the
    ``hook.fired`` and the ``policy.check`` before it. *position* is ``None`` if the caller is unknown; *is_over*: the
    call belongs to a call that already had its outcome. *approved* is the request that a person approved before;
    *deferred*: the program that performs the call was to ask a person, or a fork served what one had approved. *signed*
    is the digest of the call that an approver signed, if the request was excised. *why* is the reason why the call
    cannot be judged again. *folded* are the facts before the call; *had_recently* returns, until the next call is read,
    whether a fact had a value before.
    """

    session: SessionInfo
    seq: int
    ts: str
    span: str
    kind: str
    ability: str
    principal: str
    position: CallPosition | None
    args: Any
    raw: bytes
    final: bytes
    code: str = ""
    reason: str = ""
    by: Object | None = None
    is_over: bool = False
    fired: bytes | None = None
    checked: bytes | None = None
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    why: str = ""
    approved: Object | None = None
    deferred: bool = False
    signed: str = ""
    folded: Mapping[str, Any] = attrs.field(factory=dict)
    had_recently: Callable[[str, Any], bool] | None = None
    open: Callable[[bytes], Any] = decode

    @property
    def outcome(self) -> Literal["allow", "ask", "deny"]:
        """The decision of the charter; a call that a person decided is an ``ask``."""
        if self.code:
            return "deny" if self.code in JUDGE_CODES and not self.is_prevented else "ask"
        if self.deferred:
            return "ask"
        return "ask" if self.approved is not None and self._still_asked(self.approved) else "allow"

    @property
    def is_prevented(self) -> bool:
        """Whether a feature denied the call, which no gate denied."""
        return bool(self._feature) or self.code in PREVENTED

    @property
    def _feature(self) -> str:
        """The feature that denied the call, if the record names one."""
        by = self.by.get("feature") if isinstance(self.by, Mapping) else None
        return by if isinstance(by, str) else ""

    def is_prevented_by(self, plugins: Container[str]) -> bool:
        """Return whether one of *plugins*, by kind and name, is the feature that denied the call."""
        return f"feature/{self._feature}" in plugins if self._feature else self.code in PREVENTED

    @property
    def was_pending(self) -> bool:
        """Whether the call waited for a person, so that facts and answers of gates may be older."""
        return (
            self.approved is not None
            or self.deferred
            or bool(self.code and (self.code not in JUDGE_CODES or self.is_prevented))
        )

    def _still_asked(self, request: Object) -> bool:
        """Return whether the second judgement of an approved call still asked a person."""
        fired, checked = self.read_gate_records()
        binding = checked.get("asked", ()) if self.session.enforcement == "enforce" else ()
        lines = [*fired.get("asked", ()), *binding]
        return request.get("by") in _TAG_RULES or any(line["decision"] == "ask" for line in lines)

    def find_excised(self) -> tuple[bool, bool]:
        """Return whether ``hook.fired``, and whether ``policy.check``, was excised."""
        return bool(self.fired and self.fired.startswith(_EXCISED_MARK)), bool(
            self.checked and self.checked.startswith(_EXCISED_MARK)
        )

    def read_gate_records(self) -> tuple[Object, Object]:
        """Return ``hook.fired`` and ``policy.check`` with sealed values opened; empty if there was none."""
        return tuple(self.open(raw) if raw else {} for raw in (self.fired, self.checked))
