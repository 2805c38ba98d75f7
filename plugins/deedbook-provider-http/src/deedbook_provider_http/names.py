"""Names as protocols take them: ``[a-zA-Z0-9_-]{1,64}``, while ids of abilities and calls hold more."""

import re
from collections.abc import Iterable
from itertools import count
from typing import Final

LONGEST: Final = 64

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")


def plain(name: str, longest: int = LONGEST) -> str:
    """Return *name* with ``_`` for each character that may not stand in it, cut where it is too long."""
    return _OTHER.sub("_", name)[:longest] or "_"


class Names:
    """One request's names, there and back: no two share a function name, and those that fit stay as they are.

    *offered* are the tools, *mentioned* names in the conversation, which may be anything. The names of what is offered
    do not depend on what is mentioned, so that they stay the same from turn to turn.
    """

    def __init__(self, offered: Iterable[str], mentioned: Iterable[str] = (), *, longest: int = LONGEST) -> None:
        self._longest = longest
        self._sent: dict[str, str] = {}
        self._meant: dict[str, str] = {}
        tools = list(dict.fromkeys(offered))
        for name in sorted(tools, key=lambda tool: plain(tool, longest) != tool):
            self._add(name)
        for name in mentioned:
            self._add(name)

    def sent(self, name: str) -> str:
        """Return what *name* is called towards the model."""
        return self._sent[name]

    def knows(self, name: str) -> bool:
        """Return whether *name* was offered or mentioned."""
        return name in self._sent

    def meant(self, sent: str) -> str:
        """Return the tool that the model means; a name that it was never told is passed on as it is."""
        return self._meant.get(sent, sent)

    def _add(self, name: str) -> None:
        if name not in self._sent:
            free = self._free(name)
            self._sent[name] = free
            self._meant[free] = name

    def _free(self, name: str) -> str:
        stem = plain(name, self._longest)
        if stem not in self._meant:
            return stem
        numbered = (f"{stem[: self._longest - len(end)]}{end}" for end in (f"_{number}" for number in count(2)))
        return next(made for made in numbered if made not in self._meant)
