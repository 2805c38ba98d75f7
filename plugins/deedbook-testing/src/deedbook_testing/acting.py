"""The contracts of what acts: tools, model providers and flows. Every call goes through a real door."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from deedbook.contract import Json
from deedbook.format.canonical import encode
from deedbook.format.errors import Err, Ok, Result
from deedbook.sessions.session import Session

from .contract import SUBJECT, PluginContract, tree
from .examples import Example
from .file_audit import FileAudit
from .lab import Lab
from .watching import Watch

_HARMLESS = ("none", "read")
_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


class _ActingContract(PluginContract):
    """What tools, providers and flows have in common.

    *examples*: at least one. *ability* is what else its YAML says, such as ``schema_in`` or ``uses``. A result that may
    differ from one fresh workspace to the next is not *repeatable*. A call ends within *patience* seconds, even one
    that has a millisecond.
    """

    examples: Sequence[Example] = ()
    ability: Mapping[str, Any] = {}
    repeatable: bool = True
    patience: float = 20.0
    _outcomes: ClassVar[str] = "tool"

    @pytest.fixture
    def subject(self, plugin: type[Any], watch: Watch) -> type[Any]:
        """Return the class, watched."""
        return watch.handler(plugin)

    def ask(self, session: Session, example: Example) -> Result[Any]:
        """Make one call as the example says."""
        return session.call(SUBJECT, example.args)

    def play(self, lab: Lab) -> list[Result[Any]]:
        """Make every call of the examples in one session, and return what came of them."""
        assert self._all(), "give at least one Example"
        with lab.session() as session:
            return [self.ask(session, each) for each in self._all()]

    def _all(self) -> Sequence[Example]:
        return self.examples

    # --- what they keep to --------------------------------------------------------------------------------------------

    def test_does_what_its_examples_say_and_is_recorded(self, workshop: Callable[..., Lab]) -> None:
        """Each example gives its result or its failure; the ledger is sound, and holds each result."""
        lab = workshop()
        results = self.play(lab)
        faults = [fault for each, result in zip(self._all(), results, strict=True) if (fault := each.fault(result))]
        assert not faults, "\n".join(faults)
        assert lab.verify().sound, list(lab.verify().lines())
        wanted = {"tool": "tool.result", "model": "llm.response", "flow": "flow.result"}[self._outcomes]
        assert len(lab.all(wanted)) >= sum(not isinstance(each, Err) for each in results)

    def test_writes_nothing_unless_it_says_so(self, plugin: type[Any], workshop: Callable[..., Lab]) -> None:
        """With the effects ``none`` or ``read``, the workspace is as it was before."""
        lab = workshop()
        before = tree(lab.path)
        self.play(lab)
        after = tree(lab.path)
        if self.ability.get("effects", plugin.spec.effects) in _HARMLESS:
            changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            assert not changed, f"effects are {plugin.spec.effects!r}, and it wrote {changed}"

    def test_neither_changes_nor_keeps_its_arguments(self, workshop: Callable[..., Lab], watch: Watch) -> None:
        """They are recorded as they were, and secrets in them are scrubbed there: a copy would be neither."""
        self.play(workshop())
        assert not watch.faults, f"{self.name} {watch.faults}"

    def test_equal_settings_give_equal_behaviour(self, workshop: Callable[..., Lab]) -> None:
        """Constructed twice, it does the same in two fresh workspaces."""
        one, other = self.play(workshop()), self.play(workshop())
        for example, first, second in zip(self._all(), one, other, strict=True):
            assert self._kind(first) == self._kind(second), f"{example.args!r}: {first!r}, then {second!r}"

    def _kind(self, result: Result[Any]) -> Any:
        if isinstance(result, Err):
            return result.error.code
        return encode(result.value) if self.repeatable else "a result"

    def test_a_call_that_is_late_ends(self, workshop: Callable[..., Lab]) -> None:
        """With a millisecond to go, the call still comes to an end, and the process can go on."""
        lab = workshop(timeout_ms=1)
        ended: list[Result[Any]] = []

        def late() -> None:
            with lab.session() as session:
                ended.append(self.ask(session, self._all()[0]))

        thread = threading.Thread(target=late, daemon=True)
        thread.start()
        thread.join(self.patience)
        if not ended:
            lab.damaged = True  # it is still being written
        assert ended, f"{self.name} had a millisecond, and has not ended after {self.patience} s; see `ctx.remaining()`"

    def test_keeps_its_secrets(self, workshop: Callable[..., Lab], watch: Watch) -> None:
        """The values are in no file of the workspace and its records, in no result or error, and do not print."""
        if not self.secrets:
            pytest.skip("it uses no secrets")
        lab = workshop()
        found = self.leaks(lab, watch.made, said=self.play(lab))
        found += self.leaks(lab, watch.made)
        assert not found, f"a secret is to be read in {sorted(set(found))}"


class ToolContract(_ActingContract):
    """The contract of a tool.

    Give the `name` of the entry point and some `examples`.
    """

    kind: ClassVar[str] = "tool"

    @pytest.fixture
    def subject(self, plugin: type[Any], watch: Watch, deedbook_file_audit: FileAudit) -> type[Any]:
        """Return the class, watched."""
        return watch.handler(deedbook_file_audit.watch(plugin))

    def test_reaches_no_file_by_itself(
        self, plugin: type[Any], workshop: Callable[..., Lab], deedbook_file_audit: FileAudit
    ) -> None:
        """With ``files: host`` or ``none``, it opens no file and starts no program but through its host."""
        if plugin.spec.files not in ("host", "none"):
            pytest.skip(f"its files are {plugin.spec.files or 'not declared'}")
        lab = workshop()
        with deedbook_file_audit.watching() as seen:
            self.play(lab)
        assert not seen, f"its files are {plugin.spec.files!r}, and by itself it does {sorted(set(seen))}"

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Declare an ability whose handler is the tool."""
        entry = {"summary": "Under test.", "handler": {"tool": SUBJECT}, **_with(settings), **self.ability, **more}
        lab.settings(abilities={SUBJECT: entry})


class FlowContract(_ActingContract):
    """The contract of a flow.

    The `args` of an example are a prompt, and what it gives is the reply's text; `prepare` writes the roles, skills and
    models that it puts to work.
    """

    kind: ClassVar[str] = "flow"
    _outcomes: ClassVar[str] = "flow"

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Declare an ability whose handler is the flow; it becomes the profile's own."""
        entry = {"summary": "Under test.", "handler": {"flow": SUBJECT}, **_with(settings), **self.ability, **more}
        lab.settings(abilities={SUBJECT: entry}, profile="lab", profiles={"lab": {"flow": SUBJECT}})

    def ask(self, session: Session, example: Example) -> Result[Any]:
        """Take the prompt to a reply."""
        result = session.run(str(example.args))
        return result if isinstance(result, Err) else Ok(result.value.text)


class ProviderContract(_ActingContract):
    """The contract of a model provider.

    `examples` are requests (``completion_request_v2``; what is missing is filled in). Three more are tried with every
    provider: *plain*, *with_tools* and *with_schema*; replace one whose answer cannot be expected of this provider.
    """

    kind: ClassVar[str] = "provider"
    _outcomes: ClassVar[str] = "model"
    model: str = "model-under-test"
    plain: Example = Example({"messages": [{"role": "user", "content": "Say hello."}]})
    with_tools: Example = Example(
        {
            "messages": [{"role": "user", "content": "Say hello with the tool echo."}],
            "tools": [{"name": "echo", "description": "Echo a text back.", "schema_in": _TEXT}],
        }
    )
    with_schema: Example = Example(
        {"messages": [{"role": "user", "content": "Say what to do."}], "response_schema": "lead_directive_v1"}
    )

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Let the provider serve the tier ``standard``."""
        entry = {"provider": SUBJECT, "model": self.model, **_with(settings), **more}
        lab.settings(profile="lab", profiles={"lab": {"models": {"standard": entry}}})

    def ask(self, session: Session, example: Example) -> Result[Any]:
        """Ask the model, through the door."""
        assert isinstance(example.args, dict)
        return session.call("model/standard", {"model": self.model, "schema_version": "v2", **example.args})

    def _all(self) -> Sequence[Example]:
        return (self.plain, self.with_tools, self.with_schema, *self.examples)

    def test_asks_only_for_tools_that_it_was_offered(self, workshop: Callable[..., Lab]) -> None:
        """Without tools it asks for none; with tools, only for those; ids are told apart."""
        for example, result in zip(self._all(), self.play(workshop()), strict=True):
            assert isinstance(example.args, dict)
            calls = [] if isinstance(result, Err) else result.value["tool_calls"]
            offered = {tool["name"] for tool in example.args.get("tools", ())}
            assert {call["name"] for call in calls} <= offered, f"{calls} were asked for; offered: {sorted(offered)}"
            assert len({call["id"] for call in calls}) == len(calls), f"{calls} share an id"

    def test_answers_in_the_form_that_is_asked_for(self, workshop: Callable[..., Lab]) -> None:
        """With a ``response_schema``, the text of an answer is JSON that fits it."""
        lab = workshop()
        for example, result in zip(self._all(), self.play(lab), strict=True):
            assert isinstance(example.args, dict)
            wanted = example.args.get("response_schema")
            if wanted and not isinstance(result, Err) and result.value["finish_reason"] == "stop":
                found = lab.schemas.validator(wanted).violations(_read(result.value["text"]))
                assert not found, f"{result.value['text']!r} does not fit {wanted}: {[str(each) for each in found]}"


def _with(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"with": dict(settings)} if settings else {}


def _read(text: str) -> Json:
    try:
        made: Json = json.loads(text)
    except ValueError:
        return text
    return made
