"""The contract of flows in two modes: one writes to the context and returns nothing, the other returns a result.

The three rules are those of seed 004: with a context, a flow writes all state there and returns ``None``; without one,
it returns the result; it never does both.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs
import pytest

from deedbook.contract import Json, Run
from deedbook.format.canonical import encode
from deedbook.format.context import LIVE, RunContext
from deedbook.format.errors import Ok
from deedbook.format.schema import foreign
from deedbook.plugins.plugins import Offer, discover, load

from .contract import SUBJECT, PluginContract
from .imports import sources
from .lab import Lab
from .outside import find_outside
from .watching import Watch, vars_of

STANDALONE: Final = "standalone-of-the-contract"
"""The id under which the standalone flow stands in the workspaces of its tests."""


@attrs.frozen
class ModeRun:
    """One example in one mode: the *result* that the caller got, the *context* it names, and the calls that it made."""

    result: Json
    context: RunContext | None
    calls: list[tuple[str, bytes]]
    span: str


class FlowModesContract(PluginContract):
    """Give the entry points of both modes: *name* writes to its context, *standalone* returns a result.

    *examples* are arguments that both take, and *allows* the abilities that they call. `prepare` declares these. With
    *rooms*, modules of the kernel are allowed as in every contract.
    """

    kind: ClassVar[str] = "flow"
    standalone: str = ""
    examples: Sequence[Mapping[str, Any]] = ()
    allows: Collection[str] = ()

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Declare both flows, and a flow with a skill that calls them."""
        lab.offer("flow", STANDALONE, load(discover().find("flow", self.standalone)), distribution="standalone")
        entry = {**({"with": dict(settings)} if settings else {}), **more}
        for name in (SUBJECT, STANDALONE):
            lab.settings(abilities={name: {"summary": "Under test.", "handler": {"flow": name}, **entry}})
        lab.skill("contract", allows=" ".join([SUBJECT, STANDALONE, *self.allows]))

    @pytest.fixture
    def subject(self, plugin: type[Any], watch: Watch) -> type[Any]:
        """Return the class of the flow that keeps a context, watched."""
        return watch.handler(plugin)

    def run_example(self, lab: Lab, ability: str, args: Mapping[str, Any]) -> ModeRun:
        """Call a flow from another flow; return what came of it."""
        results: list[Json] = []
        lab.flow("caller", lambda _, run: _call(run, ability, args, results))
        with lab.session("run") as session:
            ended = session.run("contract")
            assert isinstance(ended, Ok), ended
            (call,) = (each for each in lab.all("flow.call", session) if each.payload["flow"] == ability)
            context = session.context(call.span)
        calls = [
            (str(each.payload["tool_name"]), encode(each.payload["args"]))
            for each in lab.all("tool.call", session)
        ]  # fmt: skip
        return ModeRun(results[0], context, calls, call.span)

    # --- the three rules ----------------------------------------------------------------------------------------------

    def test_specs_say_which_mode_each_is(self, plugin: type[Any]) -> None:
        """One has no ``gives``, so the kernel keeps a context for it; the other one has."""
        other = load(discover().find("flow", self.standalone))
        assert plugin.spec.gives is None, f"{self.name} has `gives`, so it has no context"
        assert other.spec.gives is not None, f"{self.standalone} has no `gives`, so it must write to a context"
        assert plugin.spec.takes == other.spec.takes, "both take the same arguments"

    def test_with_a_context_it_writes_there_and_returns_nothing(
        self, workshop: Callable[..., Lab], watch: Watch
    ) -> None:
        """Its caller gets a reference; the context has ended, and has a report or a reason."""
        for example in self._all():
            lab = workshop()
            made = self.run_example(lab, SUBJECT, example)
            assert made.result == {"context": made.span}, f"{self.name} gave {made.result!r}"
            (ended,) = (each for each in lab.all("flow.result") if each.parent == made.span)
            assert ended.payload["result"] == {"context": made.span}, "the record has a copy of the state"
            assert made.context is not None
            assert made.context.state not in LIVE, f"the context is still {made.context.state}"
            assert made.context.report or made.context.reason, "the context has neither a report nor a reason"
        assert not watch.faults, f"{self.name} {watch.faults}"

    def test_without_a_context_it_returns_the_result(self, workshop: Callable[..., Lab]) -> None:
        """Its result fits ``gives``, and no event of a context stands under its call."""
        for example in self._all():
            lab = workshop()
            made = self.run_example(lab, STANDALONE, example)
            assert made.context is None
            written = [
                each.type for each in lab.events() if each.type.startswith("context.") and each.parent == made.span
            ]
            assert not written, f"{self.standalone} wrote {written}"
            gives = load(discover().find("flow", self.standalone)).spec.gives
            found = foreign(gives, place=f"`spec.gives` of {self.standalone}").violations(made.result)
            assert not found, f"{self.standalone} gave {made.result!r}: {[str(each) for each in found]}"
            assert made.result != {"context": made.span}

    def test_both_modes_make_the_same_calls_through_the_door(self, workshop: Callable[..., Lab]) -> None:
        """The mode changes where the state stands, and not what is done."""
        for example in self._all():
            runtime, alone = (self.run_example(workshop(), name, example) for name in (SUBJECT, STANDALONE))
            assert runtime.calls == alone.calls

    def test_its_objects_hold_no_state_of_a_run(self, workshop: Callable[..., Lab], watch: Watch) -> None:
        """After a run, the object of the flow is as it was: the context holds the state, and nothing else does."""
        for example in self._all():
            lab = workshop()
            self.run_example(lab, SUBJECT, example)
            (used,) = watch.made
            watch.made.clear()
            unused = type(used)(dict(self.settings), None)
            watch.made.clear()
            assert repr(vars_of(used)) == repr(vars_of(unused)), f"{self.name} keeps state of its run in its object"

    # --- what a flow may import ---------------------------------------------------------------------------------------

    def test_acts_through_the_door_only(self, offer: Offer) -> None:
        """No module of its distribution imports programs, sockets or HTTP clients, or opens files.

        This finds ordinary code. It is no sandbox: code that hides what it does is not found.
        """
        found = [each for path in sources(offer) for each in find_outside(path)]
        assert not found, f"{offer}: {'; '.join(found)}; make an ability of it, and call that"

    def _all(self) -> Sequence[Mapping[str, Any]]:
        assert self.examples, "give at least one example"
        return self.examples


def _call(run: Run, ability: str, args: Mapping[str, Any], results: list[Json]) -> str:
    results.append(run.call(ability, dict(args)))
    return "called"
