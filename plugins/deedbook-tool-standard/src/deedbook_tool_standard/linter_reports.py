"""How one linter's report is read: where each part of a finding is, and what the linter's words mean; pure."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deedbook.contract import Failed, Json, Object
from deedbook.contract.pointers import find_value

_ABSENT: Final = object()
_LONGEST_TITLE: Final = 500
_LONGEST_TEXT: Final = 20_000
_OPTIONAL: Final = ("rule", "suggestion")
_NUMBERS: Final = ("line", "column")


class Choice(NamedTuple):
    """One of a few values: that of the longest glob that fits the text at the pointer *at*, or *default*.

    The order of *values* means nothing, because a mapping of settings has none; of globs of one length the first in
    the alphabet counts.
    """

    default: Any
    at: str | None = None
    values: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def parse(cls, said: Any) -> "Choice":
        """Return the choice in the settings: a value, or ``{at, values, default}``."""
        return cls(said["default"], said["at"], said["values"]) if isinstance(said, dict) else cls(said)

    def read(self, item: Json) -> Any:
        """Return the value for one item of a report."""
        word = _ABSENT if self.at is None else find_value(item, self.at, _ABSENT)
        if not isinstance(word, str):
            return self.default
        fitting = sorted((-len(glob), glob) for glob in self.values if fnmatchcase(word, glob))
        return self.values[fitting[0][1]] if fitting else self.default


class ReportReader:
    """Reads the items of one linter's reports. *settings* are those of the tool."""

    def __init__(self, settings: Object) -> None:
        self._settings: Any = settings
        self._choices = {key: Choice.parse(settings[key]) for key in ("severity", "autofix_class", "confidence")}

    def items(self, report: Json) -> list[Json]:
        """Return the items of a report; raises `Failed` (``SCHEMA_VIOLATION``) if they are no list."""
        pointer = self._settings.get("items", "")
        found = find_value(report, pointer, _ABSENT)
        if not isinstance(found, list):
            raise Failed("SCHEMA_VIOLATION", f"the report has no list at {pointer or 'its root'}")
        return found

    def read(self, item: Json, number: int) -> dict[str, Any]:
        """Return the finding in *item*, the one with this *number* from 1, without ``pre_existing``."""
        reviewer = self._settings["reviewer"]
        place = f"item {number} of the report of {reviewer}"
        text = self._text(item, "title", place)
        detail = self._text(item, "detail", place) if self._has(item, "detail") else ""
        title = text.strip().split("\n", 1)[0]
        if len(title) > _LONGEST_TITLE:
            title = title[: _LONGEST_TITLE - 1] + "…"
        if title != text.strip():
            detail = f"{text.strip()}\n\n{detail}".strip()
        if len(detail) > _LONGEST_TEXT:
            raise Failed("SCHEMA_VIOLATION", f"{place}: its text has more than {_LONGEST_TEXT} characters")
        return {
            "schema_version": "v1",
            "id": f"{reviewer}-{number}",
            "reviewer": reviewer,
            **{key: choice.read(item) for key, choice in self._choices.items()},
            "title": title,
            "file": self._text(item, "file", place),
            **{key: self._text(item, key, place) for key in _OPTIONAL if self._has(item, key)},
            **{key: value for key in _NUMBERS if (value := self._number(item, key))},
            **({"detail": detail} if detail else {}),
            "evidence": [_digest(item)],
        }

    def lines(self, item: Json) -> range:
        """Return the lines that an item is about; none if it has no line."""
        first = self._number(item, "line")
        return range(first, max(first, self._number(item, "end_line")) + 1) if first else range(0)

    def _at(self, item: Json, key: str) -> Any:
        pointer = self._settings.get(key)
        return _ABSENT if pointer is None else find_value(item, pointer, _ABSENT)

    def _has(self, item: Json, key: str) -> bool:
        return self._at(item, key) not in (_ABSENT, None, "")

    def _text(self, item: Json, key: str, place: str) -> str:
        found = self._at(item, key)
        if not isinstance(found, str) or not found.strip():
            raise Failed("SCHEMA_VIOLATION", f"{place}: expected a text at {self._settings[key]}, its {key}")
        return found

    def _number(self, item: Json, key: str) -> int:
        found = self._at(item, key)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _digest(item: Json) -> str:
    """Return the digest of an item: the same for the same item in any report."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(text.encode()).hexdigest()}"
