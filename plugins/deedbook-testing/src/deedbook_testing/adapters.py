"""The contract of adapters for agent frameworks: what holds when the gate, the framework or the tool misbehaves.

An adapter's test module makes a class of `AdapterContract`, with the framework's own agents and a fake model.
"""

import asyncio
import inspect
import itertools
import subprocess
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Lock
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import pytest

from deedbook.contract import Event
from deedbook.format.errors import BindingError
from deedbook.format.reader import read
from deedbook.format.schema import foreign, lint
from deedbook_guard import Conversation, Guard, guard
from deedbook_guard.adoption.changes import plan, write
from deedbook_guard.agent_tools import AgentTools, find_adapter
from deedbook_testing.pages import Shell, blocks

from .soundness import assert_sound
from .values import ValuesContract

Turn: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
"""The tool calls of one answer of the fake model: names and arguments. After the last turn it answers ``done``."""
PARALLEL: Final = 200
"""How many calls one answer of the model asks for."""
_DENYING: Final = """\
schema_version: v1
agents: {shop: {kind: program, unknown_tools: allow}}
policies:
  baseline:
    kind: rules
    rules: [{match: {abilities: shop/other}, then: deny, reason: no refunds today}]
    default: allow
"""
_WORKSPACE: Final = """\
schema_version: v1
enforcement: {enforcement}
agents:
  crew:
    kind: program
    unknown_tools: deny
    tools:
      {send}: {{effects: write}}
      {drop}: {{effects: irreversible}}
      {delegate}: {{effects: none}}
policies:
  baseline:
    kind: rules
    match: {{kind: [tool, model]}}
    rules:
      - {{match: {{abilities: [crew/{drop}]}}, then: deny, reason: nothing is dropped}}
    default: allow
"""
_NO_MODEL: Final = "      - {match: {kind: model}, then: deny, reason: no model is asked}\n"
_SLOW_GATE: Final = """\
hooks:
  slow: {event_type: PreToolUse, handler: {script: [/bin/sleep, "600"]}, timeout_ms: 200, match: {effects: [write]}}
"""


def read_events(governed: Guard) -> list[Event]:
    """Close the guard, and return the events of all its sessions."""
    governed.close()
    assert governed.workspace is not None
    places = (governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl")
    return [event for place in places for event in read(place)]


class Effects:
    """What the tools of a test did: counted, so that the ledger can be compared with it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failures: list[Exception] = []
        self._lock = Lock()

    def record(self, tool: str) -> str:
        """Perform an effect; raises the next of the prepared failures instead, if there is one."""
        with self._lock:
            self.done.append(tool)
            if self.failures:
                raise self.failures.pop(0)
        return f"{tool} done"

    def tools(self) -> dict[str, Callable[..., Any]]:
        """Return the functions to give to the agent: `send` is a coroutine function, `drop` a function."""

        async def send(text: str) -> str:
            """Send a text."""
            await asyncio.sleep(0)
            assert text
            return self.record("send")

        def drop(text: str) -> str:
            """Drop a table."""
            assert text
            return self.record("drop")

        return {"send": send, "drop": drop}


class RequestCount:
    """How often the fake models of a test were asked; the model itself counts."""

    def __init__(self) -> None:
        self.times = 0
        self.failure: Exception | None = None
        self._lock = Lock()

    def count(self) -> None:
        """Count a request; raises the prepared failure instead of an answer, if there is one."""
        with self._lock:
            self.times += 1
        if self.failure is not None:
            raise self.failure


class AdapterContract(ValuesContract):
    """Tests for one adapter; a subclass says how its framework makes and runs an agent.

    Every test ends with the same checks: no effect without a recorded intent, none after a denial, an outcome for each
    intent, and a sound ledger.
    """

    framework: ClassVar[str] = ""
    """The name of the adapter's entry point; empty if ``deedbook adopt`` cannot read its agents."""
    retry_error: ClassVar[type[Exception]]
    """The exception of a tool that makes the framework ask the model for another attempt."""
    tool_names: ClassVar[Mapping[str, str]] = {"send": "send", "drop": "drop", "delegate": "delegate"}
    """The names that the framework gives to the tools of the contract."""
    requests_hidden: ClassVar[bool] = False
    """Whether the framework shows no request to a model before it is sent.

    Then nothing can be refused, and the ledger must have no ``llm.*``. The tests of refused requests are skipped, with
    this as the reason.
    """
    failed_model: ClassVar[str] = "failed"
    """The outcome of a request whose model raises: ``unknown`` where the framework does not report it."""
    cancels_tools: ClassVar[bool] = True
    """Whether a cancelled run cancels its tools; not where the framework runs them in threads, which nothing can stop.

    Then a call has the outcome that its tool has in the end. An adapter's page says so.
    """
    requests: RequestCount
    """The count of requests, which the fake model makes with `RequestCount.count`."""

    @abstractmethod
    def agent(self, governed: Guard, tools: Mapping[str, Callable[..., Any]], turns: Sequence[Turn]) -> Any:
        """Return a governed agent with the *tools*, whose fake model answers with the *turns*."""

    @abstractmethod
    def team(self, governed: Guard, tools: Mapping[str, Callable[..., Any]], turns: Sequence[Turn]) -> Any:
        """Return a governed agent that hands its work to another agent, which has the *tools* and the *turns*."""

    @abstractmethod
    async def run(self, agent: Any) -> str:
        """Run the agent to its end; return everything that its model was told by tools, as text."""

    @abstractmethod
    async def stream(self, agent: Any) -> str:
        """Act like `run`, with a streamed answer."""

    def framework_agent(self, agent: Any) -> Any:
        """Return the framework's own agent of what `agent` returns, which may have more than that."""
        return agent

    # --- the workspace and the ledger ---------------------------------------------------------------------------------

    def workspace(self, enforcement: str) -> str:
        """Return the settings of the workspace, whose policy denies ``drop``."""
        return _WORKSPACE.format(enforcement=enforcement, **self.tool_names)

    @pytest.fixture
    def refusable(self) -> None:
        """Skip a test about refused requests if the framework hides them."""
        if self.requests_hidden:
            pytest.skip("requests_hidden: this framework shows no request to a model before it is sent")

    @pytest.fixture
    def effects(self) -> Effects:
        """Give the effects of a test."""
        return Effects()

    @pytest.fixture(autouse=True)
    def request_count(self) -> RequestCount:
        """Give every test its own count of requests to models."""
        self.requests = RequestCount()
        return self.requests

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Give the folder of a workspace that enforces."""
        (tmp_path / ".system").mkdir()
        (tmp_path / ".system/deedbook.yaml").write_text(self.workspace("enforce"), encoding="utf-8")
        return tmp_path

    @pytest.fixture
    def opened(self) -> Iterator[list[Guard]]:
        """Give a list of guards, which are closed after the test."""
        made: list[Guard] = []
        yield made
        for each in made:
            each.close()

    @pytest.fixture
    def governed(self, place: Path, opened: list[Guard]) -> Guard:
        """Give a guard of the workspace."""
        opened.append(guard("crew", workspace=place))
        return opened[-1]

    # --- the seven failures -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("way", ["run", "stream"])
    def test_gate_that_crashes_lets_nothing_run(
        self, governed: Guard, effects: Effects, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        """A fault in the adapter or the guard is no permission, whatever the framework does with exceptions."""

        def crash(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise RuntimeError("the gate crashed")

        monkeypatch.setattr(Conversation, "before", crash)
        monkeypatch.setattr(Conversation, "abefore", crash)
        agent = self.agent(governed, effects.tools(), [[("send", {"text": "a"})]])
        self._try(agent, way)
        assert effects.done == []
        assert self._calls(governed, effects) == {}

    def test_gate_that_times_out_lets_nothing_run(self, place: Path, opened: list[Guard], effects: Effects) -> None:
        """A hook that does not answer in time denies."""
        source = place / ".system/deedbook.yaml"
        source.write_text(source.read_text(encoding="utf-8") + _SLOW_GATE, encoding="utf-8")
        opened.append(guard("crew", workspace=place))
        agent = self.agent(opened[-1], effects.tools(), [[("send", {"text": "a"})]])
        assert "GATE_DENIED" in asyncio.run(self.run(agent))
        assert self._calls(opened[-1], effects) == {"tool.denied": 1}

    def test_many_parallel_calls_lose_nothing(self, governed: Guard, effects: Effects) -> None:
        """One answer of the model asks for many calls; every second one is denied."""
        turn = [(name, {"text": str(number)}) for number in range(PARALLEL // 2) for name in ("send", "drop")]
        asyncio.run(self.run(self.agent(governed, effects.tools(), [turn])))
        half = PARALLEL // 2
        assert self._calls(governed, effects) == {"tool.call": half, "tool.result": half, "tool.denied": half}

    def test_denial_reaches_the_model_and_the_run_goes_on(self, governed: Guard, effects: Effects) -> None:
        """The model sees the code and the reason, and may do something else."""
        turns = [[("drop", {"text": "orders"})], [("send", {"text": "sorry"})]]
        told = asyncio.run(self.run(self.agent(governed, effects.tools(), turns)))
        assert "nothing is dropped" in told
        assert effects.done == ["send"]
        assert self._calls(governed, effects) == {"tool.denied": 1, "tool.call": 1, "tool.result": 1}

    def test_cancelled_run_closes_its_calls(self, governed: Guard, effects: Effects) -> None:
        """A task that is cancelled while a tool runs leaves no open call."""

        async def cancel() -> None:
            loop, begun, ended = asyncio.get_running_loop(), asyncio.Event(), ThreadEvent()

            async def send(text: str) -> str:
                """Send a text."""
                effects.record("send")
                loop.call_soon_threadsafe(begun.set)
                if self.cancels_tools:
                    await asyncio.Event().wait()
                assert ended.wait(30)
                return text

            tools = {**effects.tools(), "send": send}
            task = asyncio.create_task(self.run(self.agent(governed, tools, [[("send", {"text": "a"})]])))
            await asyncio.wait_for(begun.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ended.set()  # the loop waits for its threads before it closes

        asyncio.run(cancel())
        outcome = "tool.error" if self.cancels_tools else "tool.result"
        assert self._calls(governed, effects) == {"tool.call": 1, outcome: 1}

    def test_streamed_run_is_governed(self, governed: Guard, effects: Effects) -> None:
        """Streaming is no second path."""
        turns = [[("send", {"text": "a"}), ("drop", {"text": "b"})]]
        asyncio.run(self.stream(self.agent(governed, effects.tools(), turns)))
        assert self._calls(governed, effects) == {"tool.call": 1, "tool.result": 1, "tool.denied": 1}

    def test_other_agent_is_governed(self, governed: Guard, effects: Effects) -> None:
        """The tools of a sub-agent, or of an agent that takes over, pass the same door."""
        turns = [[("send", {"text": "a"}), ("drop", {"text": "b"})]]
        asyncio.run(self.run(self.team(governed, effects.tools(), turns)))
        assert effects.done == ["send"]
        found = self._calls(governed, effects)
        assert found["tool.denied"] >= 1

    def test_each_attempt_is_a_call_of_its_own(self, governed: Guard, effects: Effects) -> None:
        """A tool that fails and is tried again has two intents: one failed, one with a result."""
        effects.failures = [self.retry_error("again")]
        turns = [[("send", {"text": "a"})], [("send", {"text": "a"})]]
        asyncio.run(self.run(self.agent(governed, effects.tools(), turns)))
        found = self._calls(governed, effects)
        assert found["tool.call"] == 2
        assert found["tool.result"] + found["tool.error"] == 2

    # --- tools --------------------------------------------------------------------------------------------------------

    def test_tools_are_listed_with_the_schemas_of_their_arguments(self, governed: Guard, effects: Effects) -> None:
        """``deedbook adopt`` declares what the framework tells a model, and calls with such arguments pass."""
        found = self._list_tools(governed, effects)
        tools = {tool.name: tool for tool in found.tools}
        assert set(tools) == {self.tool_names["send"], self.tool_names["drop"]}
        send = tools[self.tool_names["send"]]
        assert "Send a text" in send.description
        schema = send.input_schema
        assert schema is not None
        assert not lint(schema)
        assert foreign(schema, place="send").valid({"text": "a"})
        assert not foreign(schema, place="send").valid({"text": 5})
        assert not foreign(schema, place="send").valid({})

    def test_calls_of_an_adopted_agent_pass_with_their_schemas(
        self, governed: Guard, tmp_path: Path, opened: list[Guard], effects: Effects
    ) -> None:
        """What ``deedbook adopt`` writes governs the next run, and lets the arguments of the framework pass."""
        listed = self._list_tools(governed, effects)
        root = tmp_path / "adopted"
        root.mkdir()
        write(root, plan(root, "crew", listed.tools)[0])
        opened.append(guard("crew", workspace=root))
        turns = [[("send", {"text": "a"})], [("drop", {"text": "b"})]]
        asyncio.run(self.run(self.agent(opened[-1], effects.tools(), turns)))
        assert self._calls(opened[-1], effects) == {"tool.call": 2, "tool.result": 2}
        assert opened[-1].current.declared_effects(self.tool_names["send"]) == "write"

    def test_value_that_is_no_agent_is_refused(self) -> None:
        """The error says what was expected."""
        if not self.framework:
            pytest.skip("the adapter has no entry point for `deedbook adopt`")
        with pytest.raises(BindingError, match=r"it is 'function' and not a .*MODULE:FUNCTION"):
            find_adapter(self.framework)(_chain)

    # --- versions -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("installed", ["0.0.1", "1000.0"])
    def test_framework_of_another_version_is_refused_when_the_agent_is_built(
        self, governed: Guard, effects: Effects, monkeypatch: pytest.MonkeyPatch, installed: str
    ) -> None:
        """The error names the versions, and how to install one of them."""
        monkeypatch.setattr("deedbook_guard.frameworks.version", lambda _name: installed)
        with pytest.raises(BindingError, match=rf"is tested with .*{installed} is installed.*pip install"):
            self.agent(governed, effects.tools(), [])

    # --- models -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("way", ["run", "stream"])
    def test_each_request_to_a_model_is_recorded_with_its_answer_and_usage(
        self, governed: Guard, effects: Effects, request_count: RequestCount, way: str
    ) -> None:
        """The ledger has as many requests as the model got, each with what the tools told it and what it used."""
        agent = self.agent(governed, effects.tools(), [[("send", {"text": "a"})], [("drop", {"text": "b"})]])
        asyncio.run(self.run(agent) if way == "run" else self.stream(agent))
        found = _events(governed)
        requests = [event for event in found if event.type == "llm.request"]
        answers = {event.parent: event.payload["response"] for event in found if event.type == "llm.response"}
        assert request_count.times == 3
        if self.requests_hidden:
            assert [event.type for event in found if event.type.startswith("llm.")] == []
            return
        assert len(requests) == 3
        assert {event.span for event in requests} == set(answers)
        assert all(answer["usage"].keys() >= {"input_tokens", "output_tokens"} for answer in answers.values())
        first, second, third = (answers[event.span] for event in requests)
        assert [call["name"] for call in first["tool_calls"]] == ["send"]
        assert [call["args"] for call in second["tool_calls"]] == [{"text": "b"}]
        assert third["text"] == "done"
        told = [each["content"] for each in requests[2].payload["request"]["messages"] if each["role"] == "tool"]
        assert "send done" in told[0]
        assert "nothing is dropped" in told[1]
        assert {tool["name"] for tool in requests[0].payload["request"]["tools"]} == {"send", "drop"}

    @pytest.mark.usefixtures("refusable")
    @pytest.mark.parametrize("way", ["run", "stream"])
    def test_gate_that_crashes_lets_no_model_be_asked(
        self, governed: Guard, effects: Effects, request_count: RequestCount, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        """A fault in the adapter or the guard is no permission for a request either."""

        def crash(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise RuntimeError("the gate crashed")

        monkeypatch.setattr(Conversation, "before_model", crash)
        monkeypatch.setattr(Conversation, "abefore_model", crash)
        self._try(self.agent(governed, effects.tools(), [[("send", {"text": "a"})]]), way)
        assert request_count.times == 0
        assert self._calls(governed, effects) == {}

    @pytest.mark.usefixtures("refusable")
    @pytest.mark.parametrize("way", ["run", "stream"])
    def test_denied_request_reaches_no_model(
        self, place: Path, opened: list[Guard], effects: Effects, request_count: RequestCount, way: str
    ) -> None:
        """The run ends, and says why."""
        text = self.workspace("enforce").replace("    rules:\n", f"    rules:\n{_NO_MODEL}")
        (place / ".system/deedbook.yaml").write_text(text, encoding="utf-8")
        opened.append(guard("crew", workspace=place))
        agent = self.agent(opened[-1], effects.tools(), [[("send", {"text": "a"})]])
        with pytest.raises(Exception, match="no model is asked"):
            asyncio.run(self.run(agent) if way == "run" else self.stream(agent))
        assert request_count.times == 0
        assert self._calls(opened[-1], effects) == {"tool.denied": 1}

    def test_model_that_fails_leaves_no_open_request(
        self, governed: Guard, effects: Effects, request_count: RequestCount
    ) -> None:
        """The failure is recorded as the outcome of the request."""
        request_count.failure = RuntimeError("the model is down")
        agent = self.agent(governed, effects.tools(), [[("send", {"text": "a"})]])
        with pytest.raises(Exception, match="the model is down"):
            asyncio.run(self.run(agent))
        found = [event for event in _events(governed) if event.type.startswith("llm.")]
        assert request_count.times >= 1
        if self.requests_hidden:
            assert found == []
            return
        assert [event.type for event in found] == ["llm.request", "llm.error"] * request_count.times
        assert {event.payload["outcome"] for event in found[1::2]} == {self.failed_model}

    # --- observing ----------------------------------------------------------------------------------------------------

    def test_observed_denial_is_recorded_and_the_call_runs(
        self, place: Path, opened: list[Guard], effects: Effects
    ) -> None:
        """With ``enforcement: observe``, a policy's denial does not bind."""
        (place / ".system/deedbook.yaml").write_text(self.workspace("observe"), encoding="utf-8")
        opened.append(guard("crew", workspace=place))
        asyncio.run(self.run(self.agent(opened[-1], effects.tools(), [[("drop", {"text": "a"})]])))
        assert self._calls(opened[-1], effects) == {"tool.call": 1, "tool.result": 1}
        found = [event for event in _events(opened[-1]) if event.type == "policy.check"]
        checks = [event for event in found if f"crew/{self.tool_names['drop']}" in str(event.payload)]
        assert ["nothing is dropped" in str(event.payload) for event in checks] == [True]

    # --- the page -----------------------------------------------------------------------------------------------------

    def test_program_of_the_page_runs_in_an_empty_folder_and_leaves_a_session(self, tmp_path: Path) -> None:
        """The page of the adapter, beside the folder of its tests, shows a whole program and what it records."""
        page, shell = self._page(tmp_path)
        shown = [block for block in blocks(page) if block.language == "console"]
        assert shown, f"{page} shows no commands"
        for block in shown:
            shell.check(block)

    def test_program_of_the_page_says_that_its_tool_was_denied(self, tmp_path: Path) -> None:
        """The model of the page looks at the result of the tool: it reports no refund that was denied."""
        _, shell = self._page(tmp_path)
        (shell.folder / ".system").mkdir()
        (shell.folder / ".system/deedbook.yaml").write_text(_DENYING, encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "app.py"],
            check=False,
            cwd=shell.folder,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "GATE_DENIED" in ran.stdout, ran.stdout + ran.stderr
        assert "no refunds today" in ran.stdout
        assert "refunded a" not in ran.stdout

    def _page(self, tmp_path: Path) -> tuple[Path, Shell]:
        """Return the page of the adapter, and a shell in a home with its program."""
        page = Path(inspect.getfile(type(self))).parents[1] / "README.md"
        home = tmp_path / "home"
        home.mkdir()
        shell = Shell(home)
        shell.env |= {"HOME": str(home), "PYTHONWARNINGS": "ignore"}
        shell.env.pop("XDG_STATE_HOME", None)
        (home / "app.py").write_text(next(b.text for b in blocks(page) if b.first == "# app.py"), encoding="utf-8")
        return page, shell

    # --- parts --------------------------------------------------------------------------------------------------------

    def _list_tools(self, governed: Guard, effects: Effects) -> AgentTools:
        """Return the tools of an agent as its adapter lists them; skips the test of one that lists none."""
        if not self.framework:
            pytest.skip("the adapter has no entry point for `deedbook adopt`")
        agent = self.agent(governed, effects.tools(), [])
        return find_adapter(self.framework)(self.framework_agent(agent))

    def _try(self, agent: Any, way: str) -> None:
        """Run an agent whose gate crashes: the framework may raise, or tell the model."""
        try:
            asyncio.run(self.run(agent) if way == "run" else self.stream(agent))
        except Exception as problem:  # noqa: BLE001 - each framework has its own
            raised = "".join(map(str, _chain(problem)))
        else:
            return
        assert "the gate crashed" in raised

    def _calls(self, governed: Guard, effects: Effects) -> Counter[str]:
        """Return how many events of tools are recorded, after checking that they fit to the effects."""
        found = _events(governed)
        kinds = Counter(event.type for event in found if event.type.startswith("tool."))
        with_effects = [f"crew/{self.tool_names[each]}" for each in ("send", "drop")]
        own = [event for event in found if event.type == "tool.call" and event.payload["tool_name"] in with_effects]
        assert len(own) == len(effects.done), "an effect has no intent, or an intent no effect"
        intents = {event.span for event in found if event.type == "tool.call"}
        outcomes = Counter(event.parent for event in found if event.type in ("tool.result", "tool.error"))
        assert outcomes == Counter(intents), "a call has no outcome, or several"
        left = [event for event in found if event.type == "tool.error" and event.payload["outcome"] == "unknown"]
        assert not left, "a call was left open until the end of its session"
        return kinds


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    for _ in range(20):
        if problem is None:
            return
        yield problem
        problem = problem.__cause__ or problem.__context__


def _events(governed: Guard) -> list[Event]:
    governed.close()
    assert_sound(governed.workspace)
    places = sorted((governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl"))
    return list(itertools.chain.from_iterable(read(place) for place in places))
