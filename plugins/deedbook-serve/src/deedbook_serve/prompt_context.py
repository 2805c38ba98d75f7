"""The feature `prompts`: what a client tells about a prompt beside its text, as the fact ``prompts.context``.

It is active where the workspace has `features: {prompts: {}}`, or a hook or policy reads the fact.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from deedbook.contract import Event, EventType, Failed, Object
from deedbook.contract.features import FeatureSpec, featureimpl
from deedbook.format.errors import DeedbookError, fault
from deedbook.format.files import Folder
from deedbook.format.sealed import open_values
from deedbook.sessions.session import Session

from .archive import SessionArchive

RECORD: Final = "x.prompts.context"
FACT: Final = "prompts.context"
_SCHEMA: Final = {
    "type": "object",
    "properties": {"context": {"type": "object"}},
    "required": ["context"],
    "additionalProperties": False,
}


class Prompts:
    """Offers the context of a session's last prompt to hooks and policies; without one, an empty object."""

    spec: ClassVar[FeatureSpec] = FeatureSpec(
        records={RECORD: EventType(schema=_SCHEMA, text="{context}", layer="L3")}, facts={FACT: {"type": "object"}}
    )

    @featureimpl
    def session_facts(self, kernel: Any, ledger: Any) -> Mapping[str, Callable[[Any], Object]]:
        """Return the reader of the fact, which follows the session's *ledger*."""
        last: dict[str, Any] = {"context": {}}
        place = Path(ledger.place).parent

        def follow(event: Event) -> None:
            if event.type == RECORD:
                last.update(event.payload)

        def read(_: Any) -> Object:
            with Folder.at(place) as folder:  # the ledger seals what is large
                context: Object = open_values(folder, last["context"])
            return context

        for event in SessionArchive(kernel.state).read_events(ledger.session_id):  # of a session that is resumed
            follow(event)
        ledger.subscribe(follow)
        return {FACT: read}


def record_context(session: Session, context: Object) -> None:
    """Record the *context* of the next prompt of *session*; raises `DeedbookError` if the feature is not active."""
    try:
        session.record(RECORD, {"context": context})
    except Failed as failure:
        why = f"{failure}; a context needs features: {{prompts: {{}}}} in .system/deedbook.yaml"
        raise DeedbookError(fault(failure.code, why)) from None
