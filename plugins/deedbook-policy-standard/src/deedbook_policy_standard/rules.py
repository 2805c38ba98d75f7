"""The policy kind ``rules``: the first rule that holds decides, else the default."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from deedbook.contract import GateSpec, Host, Object, PolicyProblem, PolicyTarget

from .ruleset import SETTINGS, RuleSet, read_named_facts


class Rules(RuleSet):
    """A policy of the kind ``rules``.

    What it says of a policy before any call lies in `rulebook`, which is imported when it is asked for: a start that
    finds nothing changed asks for none of it.
    """

    spec: ClassVar[GateSpec] = GateSpec(settings=SETTINGS, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        super().__init__(settings)

    @staticmethod
    def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
        """Yield what is wrong with the rules, and with what their conditions see of *abilities*."""
        from .rulebook import check  # noqa: PLC0415

        return check(body, abilities)

    @staticmethod
    def reads(body: Object) -> frozenset[str]:
        """Return the facts that the body names under ``reads``."""
        return read_named_facts(body)

    @staticmethod
    def lint(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
        """Yield the rules that never decide, and those that look at an argument that no ability takes."""
        from .rulebook import lint  # noqa: PLC0415

        return lint(body, abilities)

    @staticmethod
    def reachable(body: Object, abilities: Sequence[PolicyTarget]) -> frozenset[int | None]:
        """Return the rules that can decide about some ability, and ``None`` if the default can."""
        from .rulebook import reachable  # noqa: PLC0415

        return reachable(body, abilities)
