"""A call as a ledger holds it, taken apart; nothing here knows a charter."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from deedbook.contract import Object, Principal
from deedbook.format.canonical import decode
from deedbook.policy.gates import APPROVAL_GATE, ASKING

from .history import JUDGED
from .standings import Standing

NO_ARGUMENTS: Final = "its arguments are not recorded"
EXCISED: Final = "what it says was taken out of its line"
ERASED: Final = "a sealed value is gone"
SCRUBBED: Final = "it held a secret's value, which is kept nowhere"
NOBODY: Final = "who asked cannot be told"

_GONE: Final = b'{"$excised":"'
_TAGGED: Final = tuple({"rule": tag} for tag in (APPROVAL_GATE, *ASKING))


@attrs.frozen(eq=False)
class Told:
    """What ``session.start`` says: the session's id, its principal, the charter's digest, and whether it enforced."""

    id: str
    principal: Principal
    charter: str
    enforcement: str


@attrs.define(eq=False)
class Recorded:
    """One intent or denial. *args* are those that were asked for, *raw* their canonical bytes, *final* what was judged.

    *code* is empty where the call went on; *by* says who refused it. *fired* and *checked* are the payloads of the
    ``hook.fired`` and the ``policy.check`` before it. *standing* is ``None`` if nobody can tell who asked, *over* says
    that they asked for a call that had its outcome. *approved* is the request that a person has approved before,
    *deferred*: who has the effect was to ask one. *signed* is the digest of the call that was signed for, where the
    request was taken out of its line. *why* is what keeps the call from being judged again. *folded* are
    the facts as the ledger has them before the call; *held* says, until the next is taken, whether one was so before.
    """

    told: Told
    seq: int
    ts: str
    span: str
    kind: str
    ability: str
    principal: str
    standing: Standing | None
    args: Any
    raw: bytes
    final: bytes
    code: str = ""
    reason: str = ""
    by: Object | None = None
    over: bool = False
    fired: bytes | None = None
    checked: bytes | None = None
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    why: str = ""
    approved: Object | None = None
    deferred: bool = False
    signed: str = ""
    folded: Mapping[str, Any] = attrs.field(factory=dict)
    held: Callable[[str, Any], bool] | None = None
    open: Callable[[bytes], Any] = decode

    @property
    def outcome(self) -> Literal["allow", "ask", "deny"]:
        """What was decided by the charter, whatever a person decided then: what they were asked about is an ``ask``."""
        if self.code:
            return "deny" if self.code in JUDGED else "ask"
        if self.deferred:
            return "ask"
        return "ask" if self.approved is not None and self._asked(self.approved) else "allow"

    @property
    def waited(self) -> bool:
        """Whether a person was waited for, so that what gates were told and said may be of an earlier time."""
        return self.approved is not None or self.deferred or bool(self.code and self.code not in JUDGED)

    def _asked(self, request: Object) -> bool:
        """Say whether a person was still to be asked when the approved call was judged again."""
        fired, checked = self.minutes()
        binding = checked.get("asked", ()) if self.told.enforcement == "enforce" else ()
        lines = [*fired.get("asked", ()), *binding]
        return request.get("by") in _TAGGED or any(line["decision"] == "ask" for line in lines)

    def lost(self) -> tuple[bool, bool]:
        """Say whether ``hook.fired``, and whether ``policy.check``, was taken out of its line."""
        return bool(self.fired and self.fired.startswith(_GONE)), bool(self.checked and self.checked.startswith(_GONE))

    def minutes(self) -> tuple[Object, Object]:
        """Return ``hook.fired`` and ``policy.check``, opened; empty where there was none."""
        return tuple(self.open(raw) if raw else {} for raw in (self.fired, self.checked))
