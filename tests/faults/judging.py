"""What the command ``deedbook verify`` says of a state, taken apart: the verdict, and which rules are broken where."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs

from deedbook.schema import Schemas, data_folder

from .manipulations import Manipulation
from .states import HOME, State


@attrs.frozen
class Judged:
    """The exit status, the verdict, and pairs of a ledger (its file, or a session's id) and a broken rule."""

    status: int
    verdict: str
    found: tuple[tuple[str, str], ...]


class Judge:
    """Verifies whole states in this process. The kernel's schemas are loaded once."""

    def __init__(self) -> None:
        self._schemas = Schemas.load(data_folder("schemas"))

    def __call__(self, state: State, *more: str) -> Judged:
        """Verify everything of a state, with options *more*."""
        with patch.object(Schemas, "load", lambda _: self._schemas):
            ran = state.place.here("verify", "--json", *more)
        assert "Traceback" not in ran.err + ran.out, ran.err
        if ran.status == 1:
            return Judged(ran.status, "", ((ran.out + ran.err, f"refused {ran.out}"),))
        return Judged(ran.status, str(ran.json.get("verdict", "")), tuple(_findings(ran.json, "")))

    def misses(self, state: State, one: Manipulation, work: Path) -> str | None:
        """Say what a verifier misses of a manipulation of *state*, which is copied to *work*; ``None``: nothing."""
        copy = state.copy(work)
        one.change(copy)
        judged = self(copy)
        place = "workspace/" if one.where == HOME else copy.names.get(one.where, one.where)
        named = any(place in where and re.fullmatch(one.check, check, re.DOTALL) for where, check in judged.found)
        if judged.status in (1, 4) and named:
            return None
        return f"expected {one.check!r} of {place}; status {judged.status}, {judged.verdict!r}, {judged.found}"


def _findings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every broken rule in a report, whatever part it stands in."""
    if isinstance(value, list):
        for item in value:
            yield from _findings(item, place)
    elif isinstance(value, dict):
        place = str(value.get("file") or value.get("session") or place)
        if "check" in value:
            yield place, str(value["check"])
        if value.get("torn"):
            yield place, "torn"
        for item in value.values():
            yield from _findings(item, place)
