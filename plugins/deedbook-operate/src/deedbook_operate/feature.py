"""The feature `freeze`: every call checks the freezes in force. It stands: no line in YAML turns it on or off."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final

from deedbook.contract import EventType, Object
from deedbook.contract.features import AllowedCall, Check, FeatureSpec, featureimpl
from deedbook.policy.requests import approvers

from .freezes import RECORDED

if TYPE_CHECKING:
    from .checking import FreezeDocument

FEATURE: Final = "freeze"
FREEZE: Final = "x.freeze.frozen"
THAW: Final = "x.freeze.thawed"
_TEXT: Final = {"type": "string"}
_CALL: Final[Mapping[str, Any]] = {
    "session": _TEXT, "span": _TEXT, "name": _TEXT, "principal": _TEXT, "since": _TEXT,
}  # fmt: skip
_ROW: Final = {"type": "object", "required": list(_CALL), "properties": _CALL, "additionalProperties": False}


def _payload(**more: Object) -> Object:
    members: dict[str, Any] = {
        "number": {"type": "integer", "minimum": 1},
        "freezes": {"type": "array", "items": RECORDED},
        "by": _TEXT,
        "statement": _TEXT,
        **more,
    }
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


class FreezeFeature:
    """Denies frozen calls before their intent."""

    spec: ClassVar[FeatureSpec] = FeatureSpec(
        records={
            FREEZE: EventType(
                schema=_payload(
                    running={"type": "array", "items": _ROW},
                    ended={"type": "array", "items": _TEXT},
                    not_covered={"type": "array", "items": _TEXT},
                ),
                text="frozen by {by}, change {number}",
                layer="L6",
            ),
            THAW: EventType(
                schema=_payload(lifted={"type": "array", "items": RECORDED}),
                text="thawed by {by}, change {number}",
                layer="L6",
            ),
        },
        blocking=False,
    )

    def __init__(self) -> None:
        self._document: FreezeDocument | None = None
        self._making = Lock()

    @featureimpl
    def around_intents(self, kernel: Any) -> Callable[[AllowedCall], AbstractContextManager[None]]:
        """Return what holds the lock around an intent, and denies a frozen call."""
        from .checking import CheckedCall, FreezeDocument

        with self._making:
            if self._document is None:
                keys = approvers(kernel.bindings.charter.document["principals"])
                self._document = FreezeDocument(kernel.state, kernel.ledger.session_id, keys)
                kernel.resources.callback(self._document.close)
        return partial(CheckedCall, self._document)

    @featureimpl
    def examine(self, workspace: Any) -> Iterable[Check]:
        """Return what is frozen, for ``deedbook doctor``."""
        from .examining import examine

        return examine(workspace)
