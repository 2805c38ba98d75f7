"""How far a worker is with the steps of a rule, and the answer that follows from their results."""

from collections.abc import Sequence
from typing import Any

import attrs

from deedbook import Failed, Json, Object

from .conversation import Done
from .rule import Fit
from .template import references


@attrs.define
class Work:
    """The *results* of a rule's steps so far, the ids of those *completed*, and the errors of those *skipped* by id.

    An optional step is also skipped if *offered* does not name its ability; ``None`` means that this is not known.
    The result of a skipped step is ``{"error": {code, message}}``. *call* is the next call. Without it the work has
    ended; *failure* then says which required step failed.
    """

    found: Fit
    ids: Sequence[str]
    offered: frozenset[str] | None = None
    results: list[Json] = attrs.field(factory=list)
    completed: list[str] = attrs.field(factory=list)
    skipped: dict[str, Object] = attrs.field(factory=dict)
    call: dict[str, Any] | None = None
    failure: str = ""

    @classmethod
    def of(cls, found: Fit, ids: Sequence[str], done: Sequence[Done], offered: frozenset[str] | None = None) -> "Work":
        """Assign the calls that were *done* to the steps of the rule; raises `Failed` if there are too many."""
        work, left = cls(found, ids, offered), list(done)
        while len(work.results) < len(ids):
            if not work._advance(left):
                return work
        if left:
            raise Failed("PROVIDER_ERROR", f"{len(done)} tool results for {len(ids)} steps")
        return work

    def _advance(self, left: list[Done]) -> bool:
        """Take the outcome of the next step, from *left* if it was called; return whether the work goes on."""
        at = len(self.results)
        step = self.found.rule.steps[at]
        if step.optional and self.offered is not None and step.ability not in self.offered:
            self._skip({"code": "TOOL_NOT_FOUND", "message": f"there is no ability {step.ability} for this role"})
            return True
        if step.optional or not left:
            try:
                args = self.found.filling(self.results, at + 1).fill(step.args)
            except Failed as problem:
                if not step.optional:
                    raise
                self._skip({"code": problem.code, "message": str(problem)})
                return True
            if not left:
                self.call = {"name": step.ability, "args": args}
                return False
        done = left.pop(0)
        if done.error is None:
            self.results.append(done.result)
            self.completed.append(self.ids[at])
        elif step.optional:
            self._skip(done.error)
        else:
            why = f"Step {self.ids[at]} ({done.ability}) failed with {_describe(done.error)}"
            self.failure = f"{why}\nSteps completed before it: {', '.join(self.completed) or 'none'}."
        return not self.failure

    def _skip(self, error: Object) -> None:
        self.skipped[self.ids[len(self.results)]] = error
        self.results.append({"error": dict(error)})

    def answer(self) -> str:
        """Return the paragraphs of the rule's answer, with a blank line between them.

        A paragraph is left out if it needs a value that an optional step did not give. No failure is left out: a
        skipped step that no paragraph mentions gets one of its own.
        """
        steps = self.found.rule.steps
        filling = self.found.filling(self.results)
        shown, mentioned = list[str](), set[str]()
        for paragraph in self.found.rule.answer:
            needs = [each for each in references(paragraph) if each.step and steps[each.step - 1].optional]
            if all(map(filling.has_value, needs)):
                shown.append(filling.text(paragraph))
                mentioned |= {self.ids[each.step - 1] for each in needs}
        abilities = dict(zip(self.ids, (step.ability for step in steps), strict=True))
        shown += [
            f"Step {name} ({abilities[name]}) failed with {_describe(error)}"
            for name, error in self.skipped.items()
            if name not in mentioned
        ]
        return "\n\n".join(shown)


def _describe(error: Object) -> str:
    return f"{error['code']}: {error['message']}"
