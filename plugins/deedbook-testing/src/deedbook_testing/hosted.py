"""The contract of a provider that speaks a vendor's protocol, over real HTTP against a server of that protocol."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from deedbook.contract import Failed
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas
from deedbook.plugins.host import WorkspaceHost
from deedbook.plugins.plugins import Offer

from .bad_answers import BadAnswerContract
from .endpoints import Action, Endpoint, Handler, Protocol
from .endpoints.protocol import Call
from .endpoints.server import cut_short, document, hang, stream
from .examples import Example
from .images import IMAGES, image_of, image_part, with_images
from .imports import modules_after
from .lab import Lab
from .model_requests import KEY, PRICES, TOOLS, Ask, WatchedCall, user

WAIT: Final = 20.0
"""Seconds that a test waits for what has to happen."""
DIRECTIVE: Final = {
    "intent": "greet", "constraints": [], "needs_advisor": False, "needs_scaffolder": False, "schema_version": "v1",
}  # fmt: skip
_ELSEWHERE: Final = ("api.example", "10.0.0.1", "127.0.0.1.evil.example", "localhost.evil.example", "[2001:db8::1]",
                     "127.0.0.1\\.evil.example")  # fmt: skip
_SECRETS: Final[tuple[dict[str, Any], ...]] = ({}, {"key": None, "headers": {"x-key": {"secret": "main"}}})


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class HostedProviderContract(BadAnswerContract):
    """The contract of a provider for a vendor's protocol: what it sends, reads, shows, refuses and never says.

    Give the `name` of the entry point and the `protocol`. *sdk* is the module of the vendor's SDK: without it, the
    tests are skipped; *extra* is what installs it, where it is an extra. *once* are settings that keep the provider
    from asking again, if it does so.
    """

    sdk: ClassVar[str | None] = None
    extra: ClassVar[str | None] = None
    once: ClassVar[Mapping[str, Any]] = {}
    model = "model-x"
    secrets: Mapping[str, str] = {"main": KEY}
    bad_settings = ({"base_url": 1}, {"key": ["sk-in-the-open"]}, {"extra": {"messages": []}, "prices": {}})
    examples = (Example(user("Fail."), fails="PROVIDER_ERROR"),)

    # --- fixtures -----------------------------------------------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def server(self) -> Iterator[Endpoint]:
        """Run a server; what it was sent and should not have been fails the test."""
        if self.sdk and not is_installed(self.sdk):
            pytest.skip(f"the SDK {self.sdk} is not installed")
        with Endpoint(self.protocol.faults) as server:
            server.always = self.usual
            self.settings = {"base_url": self.protocol.address(server.url), "key": "main", **self.once}
            yield server

    @pytest.fixture
    def endpoint(self, server: Endpoint) -> Endpoint:
        """Return a server that does what the test says."""
        server.always = None
        return server

    @pytest.fixture
    def provider(self, plugin: type[Any], kernel_schemas: Schemas, tmp_path: Path) -> Iterator[Callable[..., Any]]:
        """Return what makes the provider, with settings on top of the usual ones."""
        with Folder.at(tmp_path) as folder:
            host = WorkspaceHost(folder, ["."], [], {"main": KEY, "bad": "sk-line\n"}, kernel_schemas)
            yield lambda **settings: plugin({**self._but_none(settings)}, host)

    @pytest.fixture
    def respond(self, provider: Callable[..., Any], kernel_schemas: Schemas) -> Ask:
        """Return what sends a request through the provider, as the kernel does, and checks both ends."""

        def asked(request: Any = "Hi", ctx: WatchedCall | None = None, **settings: Any) -> dict[str, Any]:
            told = request if isinstance(request, dict) else user(request)
            full = {"model": self.model, "schema_version": "v2", **told}
            version = full["schema_version"]
            assert kernel_schemas.validator(f"completion_request_{version}").violations(full) == ()
            made: dict[str, Any] = asyncio.run(provider(**settings)(full, ctx or WatchedCall()))
            assert kernel_schemas.validator(f"completion_response_{version}").violations(made) == ()
            assert _plain(made), "an object of the SDK has left the provider"
            return made

        return asked

    def _but_none(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        merged = {**self.settings, **settings}
        return {name: value for name, value in merged.items() if value is not None}

    @pytest.fixture
    def failed(self, respond: Ask) -> Callable[..., Failed]:
        """Return what sends a request that has to fail."""

        def told(*args: Any, code: str = "PROVIDER_ERROR", **settings: Any) -> Failed:
            with pytest.raises(Failed) as caught:
                respond(*args, **settings)
            assert (caught.value.code, KEY in str(caught.value)) == (code, False), str(caught.value)
            return caught.value

        return told

    def usual(self, body: Any) -> Action:
        """Return what the server does for the examples of every provider."""
        if "Fail." in json.dumps(body):
            return self.protocol.refusal("no such key", 401)
        if body.get("tools"):
            return self.protocol.answer("", [("echo", {"text": "hello"})])
        return self.protocol.answer(json.dumps(DIRECTIVE) if "lead" in json.dumps(body).lower() else "hello")

    def expected(self, **more: Any) -> dict[str, Any]:
        """Return the response to a plain answer."""
        usage = {"input_tokens": 9, "output_tokens": 12}
        plain = {"text": "", "tool_calls": [], "finish_reason": "stop", "usage": usage, "model": "model-2026"}
        return {**plain, "schema_version": "v2", **more}

    with_schema = Example({"messages": [{"role": "user", "content": "Lead."}], "response_schema": "lead_directive_v1"})

    # --- where a key goes ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("host", _ELSEWHERE)
    @pytest.mark.parametrize("secret", _SECRETS, ids=["key", "header"])
    def test_refuses_to_send_a_secret_unencrypted_to_another_machine(
        self, provider: Callable[..., Any], host: str, secret: dict[str, Any]
    ) -> None:
        """A key over ``http:`` is for this machine only."""
        with pytest.raises(Failed, match="would send main unencrypted; write https://"):
            provider(base_url=f"http://{host}/v1", **secret)

    @pytest.mark.parametrize(
        "address", ["http://127.0.0.1:9", "http://[::1]:9", "http://localhost:9", "https://api.example"]
    )
    def test_takes_a_key_for_this_machine_or_an_encrypted_connection(
        self, provider: Callable[..., Any], address: str
    ) -> None:
        """The rule refuses nothing else, and nothing without a secret."""
        provider(base_url=address)
        provider(base_url="http://api.example", key=None)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def test_answers_a_text_with_usage_and_the_model_that_answered(self, endpoint: Endpoint, respond: Ask) -> None:
        """The text, the counts and the model are the vendor's."""
        endpoint.plays(self.protocol.answer("Grüß dich\u2028!"))
        assert respond("Hi") == self.expected(text="Grüß dich\u2028!")
        read = self.read_back(endpoint)
        assert (read.model, read.said) == ("model-x", [("user", "Hi")])

    def test_sends_system_prompts_and_settings(self, endpoint: Endpoint, respond: Ask) -> None:
        """Instructions arrive as such; a request's own temperature goes first; the lower limit of tokens holds."""
        endpoint.plays(self.protocol.answer("ok"), self.protocol.answer("ok"))
        messages = [{"role": "system", "content": "Be brief."}, *user("Hi")["messages"]]
        respond({"messages": messages, "temperature": 0, "max_tokens": 50}, temperature=0.5, max_output_tokens=100)
        respond(user(max_tokens=500), temperature=0.5, max_output_tokens=100)
        first, second = self.read_back(endpoint, 0), self.read_back(endpoint, 1)
        assert (first.system, first.temperature, first.limit) == ("Be brief.", 0, 50)
        assert (second.system, second.temperature, second.limit) == ("", 0.5, 100)

    def test_offers_tools_under_names_that_functions_may_have(self, endpoint: Endpoint, respond: Ask) -> None:
        """Ids of abilities are replaced without collision; their schemas arrive."""
        endpoint.plays(self.protocol.answer("ok"))
        respond(user(tools=TOOLS))
        tools = self.read_back(endpoint).tools
        assert sorted(tools) == ["echo", "git_commit", "git_commit_2"]
        assert tools["git_commit"] == {"type": "object", "properties": {"m": {}}}

    def test_reads_parallel_calls_under_the_abilities_own_names(self, endpoint: Endpoint, respond: Ask) -> None:
        """Several calls in one answer keep their order and have ids of their own."""
        endpoint.plays(self.protocol.answer("Two.", [("git_commit", {"m": "one"}), ("git_commit_2", {})]))
        made = respond(user(tools=TOOLS))
        assert (made["finish_reason"], made["text"]) == ("tool_use", "Two.")
        assert [(call["name"], call["args"]) for call in made["tool_calls"]] == [
            ("git/commit", {"m": "one"}),
            ("git.commit", {}),
        ]
        assert len({call["id"] for call in made["tool_calls"]}) == 2

    def test_passes_on_a_tool_that_was_never_offered(self, endpoint: Endpoint, respond: Ask) -> None:
        """The door denies it; the provider does not decide."""
        endpoint.plays(self.protocol.answer("", [("rm_rf", {})]))
        assert respond(user(tools=TOOLS))["tool_calls"][0]["name"] == "rm_rf"

    def test_sends_calls_and_their_results_back(self, endpoint: Endpoint, respond: Ask) -> None:
        """What the model asked for and what came of it arrive in their order, also of parallel calls."""
        endpoint.plays(
            self.protocol.answer("", [("git_commit", {"m": "grüße"}), ("echo", {"n": [1, None]})]),
            self.protocol.answer("Done."),
        )
        begin = user("Go", tools=TOOLS)
        asked = respond(begin)["tool_calls"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": f'{{"n":{n}}}'} for n, call in enumerate(asked)
        ]
        said = [*begin["messages"], {"role": "assistant", "content": "", "tool_calls": asked}, *results]
        assert respond({"messages": said, "tools": TOOLS})["text"] == "Done."
        assert self.read_back(endpoint).said == [
            ("user", "Go"),
            ("call", "git_commit", {"m": "grüße"}),
            ("call", "echo", {"n": [1, None]}),
            ("result", "git_commit", {"n": 0}),
            ("result", "echo", {"n": 1}),
        ]

    def test_takes_over_a_conversation_of_another_provider(self, endpoint: Endpoint, respond: Ask) -> None:
        """Ids that another vendor gave, of any form, do no harm."""
        endpoint.plays(self.protocol.answer("Done."))
        calls = [{"id": f"fc:{'x' * 300}/ {n}", "name": "echo", "args": {"n": n}} for n in range(2)]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": '{"ok":true}'} for call in calls]
        said = [*user("Go")["messages"], {"role": "assistant", "content": "So.", "tool_calls": calls}, *results]
        respond({"messages": said, "tools": TOOLS})
        assert self.read_back(endpoint).said[1:4] == [
            ("assistant", "So."), ("call", "echo", {"n": 0}), ("call", "echo", {"n": 1}),
        ]  # fmt: skip

    def test_refuses_a_result_that_answers_nothing(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """Nothing is sent."""
        problem = failed({"messages": [{"role": "tool", "content": "{}"}]})
        assert "no tool_call_id" in str(problem)
        assert endpoint.bodies == []

    def test_asks_for_a_form_by_its_schema(self, endpoint: Endpoint, respond: Ask, kernel_schemas: Schemas) -> None:
        """The vendor is given the schema; a code fence around the whole answer is taken off."""
        endpoint.plays(self.protocol.answer('```json\n{"a": 1}\n```\n'))
        assert respond(user(response_schema="plan_v1"))["text"] == '{"a": 1}'
        form = self.read_back(endpoint).form
        wanted = kernel_schemas.document("plan_v1")
        assert form["properties"].keys() == wanted["properties"].keys()
        assert set(wanted["required"]) <= set(form["required"])

    def test_asks_for_a_form_in_words_where_the_endpoint_knows_no_schemas(
        self, endpoint: Endpoint, respond: Ask, kernel_schemas: Schemas
    ) -> None:
        """With ``structured: none`` the schema is at the end of the instructions."""
        endpoint.plays(self.protocol.answer("{}"))
        messages = [{"role": "system", "content": "You plan."}, *user("Go")["messages"]]
        respond({"messages": messages, "response_schema": "plan_v1"}, structured="none")
        read = self.read_back(endpoint)
        assert read.system.startswith("You plan.\n\n# The form of your answer")
        assert json.loads(read.system.partition("plan_v1:\n\n")[2]) == kernel_schemas.document("plan_v1")
        assert read.form is None

    def test_a_form_does_not_keep_the_model_from_its_tools(self, endpoint: Endpoint, respond: Ask) -> None:
        """Tools and a form in one request: both arrive, in a way that the protocol takes."""
        endpoint.plays(self.protocol.answer("", [("echo", {})]))
        made = respond(user(tools=TOOLS, response_schema="worker_report_v1"))
        read = self.read_back(endpoint)
        assert made["finish_reason"] == "tool_use"
        assert "echo" in read.tools
        assert (read.form or {}).get("properties", {}).get("output") or "worker_report_v1" in read.system

    @pytest.mark.parametrize("reason", ["stop", "max_tokens", "safety"])
    def test_finishes_for_the_contract_s_reasons(self, endpoint: Endpoint, respond: Ask, reason: str) -> None:
        """The vendor's words become the contract's; what was said so far is kept."""
        word = self.protocol.finishes[reason]
        if word is None:
            pytest.skip(f"the protocol has no word for {reason}")
        endpoint.plays(self.protocol.answer("so far", finish=word), self.protocol.streamed(["so ", "far"], finish=word))
        for streams in (False, True):
            made = respond(stream=streams)
            assert (made["finish_reason"], made["text"]) == (reason, "so far")

    def test_leaves_out_a_call_that_was_cut_off(self, endpoint: Endpoint, respond: Ask) -> None:
        """Half a call is no call; the answer says that it was cut off, so that a larger model can be asked."""
        word = self.protocol.finishes["max_tokens"] or ""
        calls: list[Call] = [("echo", {"text": "a"}), ("echo", '{"text": "ha')]
        endpoint.plays(*(self._cut(calls, word, streams=streams) for streams in (False, True)))
        for streams in (False, True):
            made = respond(user(tools=TOOLS), stream=streams)
            assert (made["finish_reason"], made["text"], made["tool_calls"]) == ("max_tokens", "So.", [])

    def _cut(self, calls: list[Call], word: str, *, streams: bool) -> Action:
        protocol = self.protocol
        return protocol.streamed(["So."], calls, finish=word) if streams else protocol.answer("So.", calls, finish=word)

    def test_costs_what_the_prices_say(self, endpoint: Endpoint, respond: Ask) -> None:
        """Prices are settings, with the place where they were read; where one is not known, neither is the cost."""
        answer = self.protocol.answer("x", usage=self.protocol.usage(1000, 200))
        endpoint.plays(answer, answer)
        tokens = {"input_tokens": 1000, "output_tokens": 200}
        read = {**PRICES, "date": "2026-11-20", "source": "https://example.com/pricing"}
        assert respond(prices=read)["usage"] == {**tokens, "cost_usd": 0.004}
        assert respond(prices={**read, "output_per_million": None})["usage"] == tokens

    def test_estimates_where_the_endpoint_does_not_count(self, endpoint: Endpoint, respond: Ask) -> None:
        """Budgets bind all the same: one token for four bytes."""
        endpoint.plays(self.protocol.answer("12345", usage=self.protocol.usage(None, None)))
        assert respond("123456789")["usage"] == {"input_tokens": 3, "output_tokens": 2}

    # --- images -------------------------------------------------------------------------------------------------------

    def test_sends_images_of_the_workspace(self, endpoint: Endpoint, respond: Ask, tmp_path: Path) -> None:
        """Beside the text, in their order, with their media type; the answer has the request's version."""
        endpoint.plays(self.protocol.answer("Two."))
        images = [image_of(tmp_path, name) for name in IMAGES]
        made = respond(with_images("How many?", images))
        assert made == self.expected(text="Two.", schema_version="v3")
        sent = [("image", image["media_type"], image["sha256"]) for image in images]
        assert self.read_back(endpoint).said == [("user", "How many?"), *sent]

    def test_refuses_an_image_that_has_changed_or_is_gone(
        self, endpoint: Endpoint, failed: Callable[..., Failed], tmp_path: Path
    ) -> None:
        """What the ledger names is what is sent, or nothing; no file outside the workspace is read."""
        image = image_of(tmp_path, "red.png")
        asked = with_images("What is it?", [image])
        (tmp_path / "red.png").write_bytes(IMAGES["red.gif"])
        assert "the image red.png has changed since it was given" in str(failed(asked))
        disguised = {**image_part("red.png", IMAGES["red.gif"]), "media_type": "image/png"}
        assert "the image red.png is not image/png" in str(failed(with_images("What is it?", [disguised])))
        (tmp_path / "red.png").write_bytes(bytes(5 * 1024 * 1024 + 1))
        assert "the image red.png has more than 5242880 bytes" in str(failed(asked))
        (tmp_path / "red.png").unlink()
        assert "the image red.png cannot be read" in str(failed(asked))
        for path in ("../red.png", "/etc/hostname"):
            outside = {**image, "path": path}
            assert f"the image {path} cannot be read" in str(failed(with_images("And this?", [outside])))
        assert endpoint.bodies == []

    def test_estimates_images_where_the_endpoint_does_not_count(
        self, endpoint: Endpoint, respond: Ask, tmp_path: Path
    ) -> None:
        """Budgets also bind for images."""
        endpoint.plays(self.protocol.answer("12345", usage=self.protocol.usage(None, None)))
        asked = with_images("123456789", [image_of(tmp_path, "red.png")])
        assert respond(asked)["usage"] == {"input_tokens": 1603, "output_tokens": 2}

    # --- streams ------------------------------------------------------------------------------------------------------

    def test_shows_a_stream_as_it_comes_and_answers_once(self, endpoint: Endpoint, respond: Ask) -> None:
        """What is shown, joined, is the text of the one response."""
        parts = ["Grüß", " dich\u2028\u0085", "!"]
        endpoint.plays(self.protocol.streamed(parts))
        here = WatchedCall()
        assert respond("Hi", here, stream=True) == self.expected(text="".join(parts))
        assert here.shown == [{"text": part} for part in parts]

    def test_puts_the_calls_of_a_stream_together(self, endpoint: Endpoint, respond: Ask) -> None:
        """Pieces of arguments, and several calls."""
        endpoint.plays(self.protocol.streamed(["Two."], [("git_commit", {"m": "ä"}), ("echo", {"n": [1]})]))
        made = respond(user(tools=TOOLS), stream=True)
        found = [(call["name"], call["args"]) for call in made["tool_calls"]]
        assert found == [("git/commit", {"m": "ä"}), ("echo", {"n": [1]})]
        assert (made["finish_reason"], made["usage"]["output_tokens"]) == ("tool_use", 12)

    def test_reads_a_stream_byte_by_byte(self, endpoint: Endpoint, respond: Ask) -> None:
        """Where the network cuts it does not matter."""
        whole = b"".join(self.protocol.events(["Grüß", " dich"], [("echo", {"n": 1})]))
        pieces = [whole[at : at + 1] for at in range(len(whole))]
        endpoint.plays(stream(pieces, kind=self.protocol.kind))
        made = respond(user(tools=TOOLS), stream=True)
        assert (made["text"], made["tool_calls"][0]["args"]) == ("Grüß dich", {"n": 1})

    def test_a_stream_is_one_response_in_the_ledger(self, endpoint: Endpoint, workshop: Callable[..., Lab]) -> None:
        """The pieces are shown, the whole is recorded, and the ledger is sound."""
        endpoint.always = lambda _: self.protocol.streamed(["a", "b", "c"])
        lab = workshop({**self.settings, "stream": True})
        with lab.session() as session:
            made = self.ask(session, self.plain)
        assert made.value["text"] == "abc"  # type: ignore[union-attr]
        (recorded,) = lab.all("llm.response")
        assert recorded.payload["response"]["text"] == "abc"
        assert lab.verify().sound

    def test_half_a_stream_is_no_answer(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """Neither if it ends too early nor if the connection breaks."""
        half = self.protocol.events(["so", " far"])[:3]
        kind = self.protocol.kind
        endpoint.plays(stream(half, kind=kind), stream(half, kind=kind, cut=True))
        early, broken = failed(stream=True), failed(stream=True)
        assert "the stream ended before the answer was complete" in str(early)
        assert "cut the connection" in str(broken)
        assert early.retryable
        assert broken.retryable

    def test_says_what_broke_a_stream(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """An error in the midst of a stream is a failure."""
        begun = self.protocol.events(["so"])[:1]
        endpoint.plays(stream([*begun, self.protocol.error_event("the engine stopped")], kind=self.protocol.kind))
        problem = failed(stream=True)
        assert "broke off its stream: the engine stopped" in str(problem)
        assert problem.retryable

    def test_refuses_an_event_that_intake_refuses(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """A duplicate key, for one."""
        bad = b'{"a": 1, "a": 2}\n'
        line = bad if self.protocol.kind == "application/x-ndjson" else b"data: " + bad + b"\n"
        endpoint.plays(stream([line], kind=self.protocol.kind))
        assert failed(stream=True, code="INTAKE_REFUSED").retryable

    # --- refusals -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("status", "words", "retryable"),
        [
            (400, "refused the request; see the provider's README for", False),
            (401, "refused the key secret 'main'", False),
            (403, "does not permit this", False),
            (404, "does not know the model 'model-x'", False),
            (413, "too large", False),
            (429, "was asked too often", True),
            (500, "failed (500: oops)", True),
            (503, "failed (503: oops)", True),
            (529, "failed (529: oops)", True),
            (302, "a redirect, which is not followed", False),
        ],
    )
    @pytest.mark.parametrize("streams", [False, True])
    def test_refusals_say_what_to_do_and_nothing_is_asked_again(
        self,
        endpoint: Endpoint,
        failed: Callable[..., Failed],
        status: int,
        words: str,
        *,
        retryable: bool,
        streams: bool,
    ) -> None:
        """The caller decides whether to ask again, by ``retryable`` and ``retry_after``."""
        endpoint.plays(self.protocol.refusal("oops", status, {"location": "http://127.0.0.1:9/"}))
        problem = failed(stream=streams)
        assert words in str(problem)
        assert problem.retryable is retryable
        assert len(endpoint.bodies) == 1

    def test_says_how_long_the_endpoint_wants_to_be_left_alone(
        self, endpoint: Endpoint, failed: Callable[..., Failed]
    ) -> None:
        """As ``retry-after`` tells it."""
        endpoint.plays(self.protocol.refusal("slow down", 429, {"retry-after": "7"}))
        problem = failed()
        assert "it wants to be asked again in 7 s" in str(problem)
        assert problem.retry_after == 7

    @pytest.mark.parametrize("raw", [b"", b"oops", b"[1]", b'{"error": "gone"}', b'{"a": 1, "a": 2}', b"\xff\xfe"])
    def test_a_refusal_in_another_form_is_still_one(
        self, endpoint: Endpoint, failed: Callable[..., Failed], raw: bytes
    ) -> None:
        """Proxies have forms of their own."""
        endpoint.plays(document(raw, status=500))
        assert "failed (500" in str(failed())

    # --- the key, the environment, time -------------------------------------------------------------------------------

    def test_no_message_and_no_log_names_the_key(
        self, endpoint: Endpoint, failed: Callable[..., Failed], caplog: pytest.LogCaptureFixture
    ) -> None:
        """Even if the endpoint repeats it, or cuts the connection."""
        caplog.set_level("DEBUG")
        endpoint.plays(self.protocol.refusal(f"bad key {KEY}", 401), cut_short)
        first, second = failed(), failed()
        assert "bad key ***" in str(first)
        behind = [*_behind(first), *_behind(second)]
        assert KEY not in repr([(each, vars(each)) for each in behind])
        assert KEY not in caplog.text

    def test_refuses_a_key_that_no_header_may_hold(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """Unsaid, and nothing is sent."""
        problem = failed(key="bad")
        assert str(problem).startswith("the secret 'bad' holds a line end")
        assert "sk-line" not in str(problem)
        assert endpoint.bodies == []

    @pytest.mark.parametrize("key", ["main", None])
    def test_takes_nothing_from_the_environment(
        self, endpoint: Endpoint, respond: Ask, monkeypatch: pytest.MonkeyPatch, key: str | None
    ) -> None:
        """No key, no address, no header and no proxy."""
        for name in _ENVIRONMENT:
            monkeypatch.setenv(name, "http://127.0.0.1:9" if "URL" in name or "PROXY" in name else "x-env: sk-env")
            monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        endpoint.plays(self.protocol.answer("ok"))
        assert respond(key=key)["text"] == "ok"
        (sent,) = endpoint.headers
        own = {"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent", "anthropic-version"}
        assert sent.keys() <= own | {self.protocol.key}
        assert (self.protocol.key in sent) is (key is not None)
        assert "env" not in repr(sent)

    @pytest.mark.parametrize("begun", [False, True])
    def test_leaves_an_endpoint_that_hangs(
        self, endpoint: Endpoint, respond: Ask, failed: Callable[..., Failed], *, begun: bool
    ) -> None:
        """In time, whether or not an answer has begun; the connection is closed."""
        event = self.protocol.events(["so"])[0] if begun else None
        endpoint.plays(self.protocol.answer("what is imported late is imported now"), hang_after(event, self.protocol))
        respond()
        problem = failed("Hi", WatchedCall(0.5), stream=begun)
        assert "did not answer in time; raise the model's timeout_ms" in str(problem)
        assert problem.retryable
        assert len(endpoint.bodies) < 2 or endpoint.left.wait(WAIT)  # a busy machine may not have sent it in time

    def test_asks_nobody_when_no_time_is_left(self, endpoint: Endpoint, failed: Callable[..., Failed]) -> None:
        """A call that is late sends nothing."""
        assert "no time is left" in str(failed("Hi", WatchedCall(0)))
        assert endpoint.bodies == []

    def test_closes_its_connection_when_it_is_cancelled(self, endpoint: Endpoint, provider: Callable[..., Any]) -> None:
        """The vendor need not go on."""
        endpoint.plays(hang)
        asking = provider()

        async def cancel_once_asked() -> None:
            request = {"model": self.model, "schema_version": "v2", **user()}
            task = asyncio.ensure_future(asking(request, WatchedCall()))
            await asyncio.to_thread(endpoint.asked.wait, WAIT)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancel_once_asked())
        assert endpoint.left.wait(WAIT)

    def test_names_the_extra_when_its_sdk_is_missing(
        self,
        endpoint: Endpoint,
        failed: Callable[..., Failed],
        provider: Callable[..., Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """One clear error at the first call, before the limit of its time begins, and nothing is sent."""
        if self.extra is None:
            pytest.skip("it needs no SDK, or always has it")
        for name in [each for each in sys.modules if each == self.sdk or each.startswith(f"{self.sdk}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, str(self.sdk), None)
        problem = failed()
        assert f"the SDK {self.sdk} cannot be imported" in str(problem)
        assert f"pip install '{self.extra}'" in str(problem)
        assert not problem.retryable
        with pytest.raises(Failed, match="cannot be imported"):
            provider()({"model": self.model, "schema_version": "v2", **user()}, WatchedCall())
        assert endpoint.bodies == []

    def test_importing_it_does_not_import_the_sdk(self, offer: Offer) -> None:
        """Commands and calls that ask no model do not wait for it."""
        found = modules_after(f"import importlib; importlib.import_module({offer.target.partition(':')[0]!r})")
        assert not {name for name in found if name.partition(".")[0] in ("httpx2", "pydantic")}
        assert self.sdk not in found


def hang_after(event: bytes | None, protocol: Protocol) -> Action:
    """Return the action that begins a stream with *event*, if there is one, and says no more."""

    def play(handler: Handler) -> None:
        if event is not None:
            handler.begin(200, {"content-type": protocol.kind, "transfer-encoding": "chunked"})
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        hang(handler)

    return play


_ENVIRONMENT: Final = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "GEMINI_API_KEY",
    "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_API_KEY", "OLLAMA_HOST", "OPENAI_API_KEY", "OPENAI_BASE_URL",
    "OPENAI_CUSTOM_HEADERS", "OPENAI_ORG_ID", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
)  # fmt: skip
"""What SDKs and HTTP libraries look for."""


def _behind(problem: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = problem
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _plain(value: Any) -> bool:
    """Return whether a value is made of Python's own types alone."""
    if type(value) is dict:
        return all(map(_plain, value.values()))
    if type(value) is list:
        return all(map(_plain, value))
    return type(value) in (str, int, float, bool, type(None))
