"""What the command ``deedbook verify`` says of a state, taken apart: the verdict, and which rules are broken where."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs

from deedbook.format.schema import Schemas, data_folder

from .manipulations import Change, Manipulation
from .states import HOME, State

LOG = "workspace/ (its log)"
"""Where a broken rule is that is no single ledger's."""


@attrs.frozen
class Judged:
    """The exit status, the verdict, and pairs of a ledger (its file, or a session's id) and a broken rule."""

    status: int
    verdict: str
    found: tuple[tuple[str, str], ...]

    @property
    def broken(self) -> tuple[tuple[str, str], ...]:
        """What is found beside the verdict itself."""
        return tuple(each for each in self.found if each[0] != LOG)


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
        verdict = ran.json["verdict"]
        kind, said = str(verdict["kind"]), str(verdict["said"])
        return Judged(ran.status, said, ((LOG, kind), (LOG, said), *_findings(ran.json, LOG)))

    def misses(self, state: State, one: Manipulation, work: Path, *more: str) -> str | None:
        """Say what a verifier misses of a manipulation of *state*, which is copied to *work*; ``None``: nothing."""
        copy = state.copy(work)
        one.change(copy)
        judged = self(copy, *more)
        place = "workspace/" if one.where == HOME else copy.names.get(one.where, one.where)
        named = any(place in where and re.fullmatch(one.check, check, re.DOTALL) for where, check in judged.found)
        if judged.status in (1, 4) and named:
            return None
        return f"expected {one.check!r} of {place}; status {judged.status}, {judged.verdict!r}, {judged.found}"

    def found_only_by(self, state: State, change: Change, work: Path) -> bool:
        """Say whether a change is accepted by who has the files alone, and not by who kept a checkpoint elsewhere."""
        kept, copy = work / "kept", state.copy(work / "copy")
        kept.write_bytes(state.checkpoint.read_bytes())
        change(copy)
        alone = self(copy, "--log-key", state.key)
        held = self(copy, "--log-key", state.key, "--checkpoint", str(kept))
        return alone.status == 0 and held.status == 4 and held.verdict.startswith(("ROLLED BACK", "BROKEN"))


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
