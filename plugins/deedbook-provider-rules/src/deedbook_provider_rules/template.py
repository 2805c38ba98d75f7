"""Values with placeholders: ``${group}`` and ``${steps.N/json/pointer}``; ``$${`` stands for ``${`` itself.

A text that is exactly one placeholder becomes the value with its JSON type; elsewhere a value is written into the text,
strings as they are and everything else as JSON. N counts from 1, as the plan's step ids ``s1``, ``s2`` do; the pointer
is RFC 6901.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from deedbook import Failed, Json
from deedbook.contract.pointers import InvalidPointerError, find_value

ROOM: Final = 4 * 1024 * 1024
"""How many characters one filling may make."""

_PLACEHOLDER: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_STEP: Final = re.compile(r"steps\.([1-9][0-9]{0,3})((?:/.*)?)", re.DOTALL)


@attrs.frozen
class Reference:
    """What a placeholder names: a *group* of the pattern, or the *pointer* into the result of *step* (from 1)."""

    name: str
    step: int = 0
    pointer: str = ""

    @classmethod
    def parse(cls, name: str) -> "Reference":
        """Read the inside of a placeholder."""
        found = _STEP.fullmatch(name)
        return cls(name, int(found[1]), found[2]) if found else cls(name)


def references(template: Json) -> Iterator[Reference]:
    """Yield what *template* refers to, in order, with repetitions."""
    if isinstance(template, str):
        found = _PLACEHOLDER.finditer(template)
        yield from (Reference.parse(match[1]) for match in found if match[1] is not None)
    elif isinstance(template, dict):
        for item in template.values():
            yield from references(item)
    elif isinstance(template, list):
        for item in template:
            yield from references(item)


@attrs.define
class Filling:
    """Fills templates from a request's *groups* and the *results* of the steps so far.

    *place* says for whom, in messages. A reference without a value raises `Failed` with ``NO_RULE``, and so does a
    filling that outgrows `ROOM`: a skill may come from anyone.
    """

    place: str
    groups: Mapping[str, str | None]
    results: Sequence[Json] = ()
    room: int = ROOM

    def fill(self, template: Json) -> Json:
        """Return *template* with every placeholder replaced."""
        if isinstance(template, str):
            return self._string(template)
        if isinstance(template, dict):
            return {key: self.fill(item) for key, item in template.items()}
        if isinstance(template, list):
            return [self.fill(item) for item in template]
        return template

    def text(self, template: str) -> str:
        """Return *template* as text, even if it is exactly one placeholder."""
        return _PLACEHOLDER.sub(self._written, template)

    def has_value(self, reference: Reference) -> bool:
        """Return whether *reference* has a value."""
        try:
            self._value(reference)
        except Failed:
            return False
        return True

    def _string(self, template: str) -> Json:
        whole = _PLACEHOLDER.fullmatch(template)
        if whole is None or whole[1] is None:
            return self.text(template)
        value = self._value(Reference.parse(whole[1]))
        self._spend(value)
        return value

    def _written(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return "${"
        value = self._value(Reference.parse(found[1]))
        return self._spend(value)

    def _spend(self, value: Json) -> str:
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        self.room -= len(written)
        if self.room < 0:
            raise Failed("NO_RULE", f"{self.place} makes more than {ROOM} characters")
        return written

    def _value(self, reference: Reference) -> Json:
        if not reference.step:
            value = self.groups.get(reference.name)
            if value is None:
                raise self._describe_missing(reference.name, "the request does not have it")
            return value
        if reference.step > len(self.results):
            raise self._describe_missing(f"step s{reference.step}", "it has not run")
        return self._point(reference)

    def _point(self, reference: Reference) -> Json:
        nothing, needed = object(), f"{reference.pointer or 'the result'} of step s{reference.step}"
        try:
            value: Json = find_value(self.results[reference.step - 1], reference.pointer, nothing)
        except InvalidPointerError as problem:
            raise self._describe_missing(needed, str(problem)) from None
        if value is nothing:
            raise self._describe_missing(needed, "its result has nothing there")
        return value

    def _describe_missing(self, needed: str, why: str) -> Failed:
        return Failed("NO_RULE", f"{self.place} needs {needed}, but {why}")
