"""The dependencies between the steps of a plan, the order that follows from them, and their cycles; pure.

The order is Kahn's ("Topological sorting of large networks", 1962), group by group: a group has the steps whose
dependencies are all in earlier groups. Inside a group the steps keep the order of the plan. Nothing recurses, and every
function is linear in steps and dependencies.
"""

from collections.abc import Iterator, Sequence

import attrs

from deedbook import Object

from .plans import iterate_dependencies

BEHIND_A_CYCLE = -1
"""The group of a step that is in a cycle, or depends on one."""


@attrs.frozen
class StepGraph:
    """The *steps* of a plan by index: *index* finds the first step of an id, *before* has the known dependencies.

    *unknown* has the dependencies on ids that no step has: the index of the step, and the id. *group_of* has the group
    of each step, from 0.
    """

    steps: Sequence[Object]
    index: dict[str, int]
    before: list[list[int]]
    unknown: list[tuple[int, str]]
    group_of: list[int]

    @classmethod
    def of(cls, steps: Sequence[Object]) -> "StepGraph":
        """Return the graph of *steps*."""
        index: dict[str, int] = {}
        for number, step in enumerate(steps):
            index.setdefault(step["id"], number)
        before: list[list[int]] = []
        unknown: list[tuple[int, str]] = []
        for number, step in enumerate(steps):
            names = dict.fromkeys(iterate_dependencies(step))
            before.append([index[name] for name in names if name in index])
            unknown += [(number, name) for name in names if name not in index]
        return cls(steps, index, before, unknown, _sort(before))

    @property
    def groups(self) -> list[list[str]]:
        """The ids of the steps by group, without those behind a cycle."""
        made: list[list[str]] = [[] for _ in range(max(self.group_of, default=BEHIND_A_CYCLE) + 1)]
        for step, group in zip(self.steps, self.group_of, strict=True):
            if group != BEHIND_A_CYCLE:
                made[group].append(step["id"])
        return made

    def find_cycles(self) -> Iterator[list[int]]:
        """Yield cycles as indexes: every step of one depends on the next, and the last on the first.

        At least one cycle is found if there is any; each step is in at most one of them.
        """
        left = {number for number, group in enumerate(self.group_of) if group == BEHIND_A_CYCLE}
        one_before = {number: next(each for each in self.before[number] if each in left) for number in sorted(left)}
        seen: set[int] = set()
        for start in one_before:
            path: dict[int, int] = {}
            number = start
            while number not in seen:
                seen.add(number)
                path[number] = len(path)
                number = one_before[number]
            if number in path:
                yield list(path)[path[number] :]


def _sort(before: Sequence[Sequence[int]]) -> list[int]:
    """Return the group of each step."""
    after: list[list[int]] = [[] for _ in before]
    waits = [len(each) for each in before]
    for number, each in enumerate(before):
        for earlier in each:
            after[earlier].append(number)
    group_of = [BEHIND_A_CYCLE] * len(before)
    ready, group = [number for number, count in enumerate(waits) if not count], 0
    while ready:
        following = []
        for number in ready:
            group_of[number] = group
            for later in after[number]:
                waits[later] -= 1
                if not waits[later]:
                    following.append(later)
        ready, group = following, group + 1
    return group_of
