"""Where personas may write: folders and globs, held against the path arguments of calls.

Paths are read as `under` of a match reads them: relative, without ``..``, and in exactly the case that is written. A
path that is absolute, leaves the root, or may be read in two ways is nowhere. The tools of the kernel follow no links.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Call, Object, PolicyProblem
from deedbook.format.lint import violation
from deedbook.policy.conditions import (
    ABSENT,
    ValueTest,
    as_list,
    condition_tests,
    glob_test,
    impossible,
    lookup,
    normal_path,
    path_test,
    too_large,
)

_SHOWN: Final = 200


@attrs.frozen(eq=False)
class PersonaRow:
    """One row of the table: the *name* or glob that it is for, where such personas may write, and its *place*."""

    name: str
    writes: tuple[str, ...]
    place: str
    _is_under: ValueTest
    _fits: ValueTest

    @classmethod
    def compile(cls, name: str, writes: Sequence[str], place: str = "") -> "PersonaRow":
        """Compile a row without `table_problems`."""
        folders = [path for path in writes if "*" not in path]
        globs = [path for path in writes if "*" in path]
        (is_under,) = condition_tests({"under": folders}, allows=True)
        fits = path_test(glob_test(globs), allows=True)
        return cls(name, tuple(writes), place or f"personas: {name}", is_under, fits)

    @property
    def description(self) -> str:
        """The folders and globs as text."""
        return ", ".join(self.writes) or "no path"

    def refusal(self, call: Call) -> str:
        """Return why the persona may not make *call*; empty if it may."""
        paths = [path for pointer in call.paths for path in as_list(lookup(pointer)(call.args)) if path is not ABSENT]
        if not paths:
            return f"{call.skill} may write to {self.description}, and {call.ability} says by no path where it writes"
        outside = [path for path in paths if not self._allows(path)]
        if not outside:
            return ""
        shown = outside[0] if isinstance(outside[0], str) else type(outside[0]).__name__
        return f"{call.skill} may write to {self.description}, and not to {shown[:_SHOWN]!r}"

    def covers(self, wanted: str) -> bool:
        """Return whether every path of a folder or glob is where the persona may write."""
        if wanted in self.writes:
            return True
        start, star, _ = wanted.partition("*")
        return self._is_under(start.rpartition("/")[0] if star else wanted)

    def _allows(self, path: Any) -> bool:
        return self._is_under(path) or self._fits(path)


class PersonaTable:
    """The rows of all personas; the first whose name or glob fits counts."""

    def __init__(self, personas: Mapping[str, Object]) -> None:
        rows = [PersonaRow.compile(name, row["writes"], row.get("place", "")) for name, row in personas.items()]
        self._rows = [(glob_test([row.name]), row) for row in rows]

    def find(self, persona: str) -> PersonaRow | None:
        """Return the row of a persona."""
        return next((row for fits, row in self._rows if fits(persona)), None)


def table_problems(personas: Mapping[str, Object]) -> Iterator[PolicyProblem]:
    """Yield the folders and globs that fit no path, and names that are too large."""
    for name, row in personas.items():
        globs = [path for path in row["writes"] if "*" in path]
        wrong = list(impossible({"under": [path for path in row["writes"] if "*" not in path]}))
        wrong += [f'"{glob}" fits no path; expected a glob over relative, normalised paths'
                  for glob in globs if normal_path(glob) != glob]  # fmt: skip
        if too_large(globs) or too_large([name]):
            wrong.append("the globs are too large together; write fewer or shorter ones")
        for why in wrong:
            found = violation(("personas", name, "writes"), why)
            yield PolicyProblem(message=str(found), pointer=found.pointer)
